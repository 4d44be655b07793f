// The iterations that make weights democratic.

// Rows of K that a warp has at a time, and rows, or threads, of a block.
constexpr unsigned STEP_ROWS = 4;
constexpr unsigned STEP_BLOCK = 8;
constexpr unsigned SMALL_ROWS = 8;
template <typename T> constexpr unsigned SMALL_BLOCK = sizeof(T) == 4 ? 896 : 512;

// a <- a / (a (K a) / r)^tau, as a (...)^-tau; rows without a weight stay without one.
template <typename T>
__device__ __forceinline__ T next_weight(T weight, T total, T target, T tau) {
  return weight == T(0) ? weight : weight * pow(weight * total / target, -tau);
}

// r = (K 1)^gamma, and the first iteration, which starts from a = 1. The row sums of an image come
// as n numbers for each of `parts`.
template <typename T>
__global__ void first_step(const T* row_sums, T* targets, T* a, size_t count, unsigned n,
                           unsigned parts, T gamma, T tau, int iterations) {
  const size_t i = static_cast<size_t>(blockIdx.x) * BLOCK + threadIdx.x;
  if (i >= count) return;
  const size_t image = i / n;
  const T* own = row_sums + image * n * parts + (i - image * n);
  T total = own[0];
  for (unsigned part = 1; part < parts; ++part) total += own[static_cast<size_t>(part) * n];
  T target = T(0), weight = T(0);
  if (!(total <= T(0))) {  // NaN too, which makes the weight NaN
    target = pow(total, gamma);
    weight = iterations > 0 ? pow(total / target, -tau) : T(1);
  }
  targets[i] = target;
  a[i] = weight;
}

// How a warp reads rows: word by word, or 128 bits at a time from either memory.
template <typename T>
struct Words {
  static constexpr unsigned WIDTH = 1;
  static __device__ __forceinline__ void read(T* to, const T* from) { to[0] = from[0]; }
};

template <typename T>
struct Vectors {
  static constexpr unsigned WIDTH = VECTOR<T>;
  static __device__ __forceinline__ void read(T* to, const T* from) { fetch(to, from); }
};

template <typename T>
struct SharedVectors {
  static constexpr unsigned WIDTH = VECTOR<T>;
  static __device__ __forceinline__ void read(T* to, const T* from) { get(to, from); }
};

// (K v) of ROWS rows from `row` on, by a warp: v is read once for all of them. A lane gets the sum
// of row number lane / (WARP / ROWS). Rows are `across` apart and as long; those beyond the last
// one are the last one.
template <typename Read, unsigned ROWS, typename T>
__device__ __forceinline__ T rows_times(const T* K, const T* v, unsigned row, unsigned n,
                                        unsigned across) {
  const unsigned lane = threadIdx.x % WARP;
  const T* rows[ROWS];
  T sums[ROWS] = {};
#pragma unroll
  for (unsigned i = 0; i < ROWS; ++i)
    rows[i] = K + static_cast<size_t>(min(row + i, n - 1)) * across;
#pragma unroll 1
  for (unsigned j = lane * Read::WIDTH; j < across; j += WARP * Read::WIDTH) {
    T weights[Read::WIDTH], values[ROWS][Read::WIDTH];
    Read::read(weights, v + j);
#pragma unroll
    for (unsigned i = 0; i < ROWS; ++i) Read::read(values[i], rows[i] + j);
#pragma unroll
    for (unsigned i = 0; i < ROWS; ++i)
#pragma unroll
      for (unsigned k = 0; k < Read::WIDTH; ++k) sums[i] += values[i][k] * weights[k];
  }
  // While a lane has several sums, it gives half of them away for the other half of its own.
  unsigned step = WARP / 2;
#pragma unroll
  for (unsigned left = ROWS / 2; left > 0; left /= 2, step /= 2) {
    const bool upper = (lane & step) != 0;
#pragma unroll
    for (unsigned i = 0; i < left; ++i) {
      const T given = upper ? sums[i] : sums[i + left];
      sums[i] = (upper ? sums[i + left] : sums[i]) + __shfl_xor_sync(ALL_LANES, given, step);
    }
  }
  for (; step > 0; step /= 2) sums[0] += __shfl_xor_sync(ALL_LANES, sums[0], step);
  return sums[0];
}

// One iteration: K is read once, STEP_ROWS rows by a warp; `blocks` share an image.
template <typename T>
__global__ void step(const T* K, const T* targets, const T* a, T* out, unsigned n, unsigned blocks,
                     T tau) {
  const unsigned image = blockIdx.x / blocks;
  const unsigned start = blockIdx.x % blocks * STEP_BLOCK + threadIdx.x / WARP * STEP_ROWS;
  if (start >= n) return;  // a whole warp
  const size_t first = static_cast<size_t>(image) * n;
  // Rows begin at multiples of 128 bits, or do not.
  const T total =
      n % VECTOR<T> == 0
          ? rows_times<Vectors<T>, STEP_ROWS>(K + first * n, a + first, start, n, n)
          : rows_times<Words<T>, STEP_ROWS>(K + first * n, a + first, start, n, n);
  const unsigned lane = threadIdx.x % WARP, apart = WARP / STEP_ROWS;
  const unsigned row = start + lane / apart;
  if (row >= n) return;
  // All lanes that have the sum do the same: the others would only wait for the power.
  const T weight = next_weight(a[first + row], total, targets[first + row], tau);
  if (lane % apart == 0) out[first + row] = weight;
}

// All iterations from the second on of an image whose K fits into shared memory, by one block. Its
// rows are `across` apart there: n, rounded up to 128 bits, with zeros at the end.
template <typename T>
__global__ __launch_bounds__(SMALL_BLOCK<T>) void small_image(const T* K, const T* targets,
                                                              T* a, unsigned n, unsigned across,
                                                              T tau, int iterations) {
  extern __shared__ __align__(16) unsigned char bytes[];
  T* memory = reinterpret_cast<T*>(bytes);
  T* now = memory + n * across;
  T* sums = now + across;
  T* goal = sums + n;
  const size_t first = static_cast<size_t>(blockIdx.x) * n;
  const unsigned lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, warps = blockDim.x / WARP;
  for (unsigned row = warp; row < n; row += warps)
    for (unsigned j = lane; j < across; j += WARP)
      memory[row * across + j] = j < n ? K[(first + row) * n + j] : T(0);
  for (unsigned i = threadIdx.x; i < across; i += blockDim.x) {
    now[i] = i < n ? a[first + i] : T(0);
    if (i < n) goal[i] = targets[first + i];
  }
  __syncthreads();
  const unsigned apart = WARP / SMALL_ROWS;
  for (int iteration = 1; iteration < iterations; ++iteration) {
    for (unsigned start = warp * SMALL_ROWS; start < n; start += warps * SMALL_ROWS) {
      const T total = rows_times<SharedVectors<T>, SMALL_ROWS>(memory, now, start, n, across);
      const unsigned row = start + lane / apart;
      if (row < n && lane % apart == 0) sums[row] = total;
    }
    __syncthreads();
    // A thread for each row: a warp that has few rows takes as long for their powers.
    for (unsigned i = threadIdx.x; i < n; i += blockDim.x)
      now[i] = next_weight(now[i], sums[i], goal[i], tau);
    __syncthreads();
  }
  for (unsigned i = threadIdx.x; i < n; i += blockDim.x) a[first + i] = now[i];
}

// All blocks of a group come here, and each sees what the others wrote before. `arrived` counts
// them. The count may wrap around; its difference from `expected` stays below 2^31, so the sign of
// that is right.
__device__ __forceinline__ void meet(unsigned* arrived, unsigned expected) {
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    atomicAdd(arrived, 1u);
    while (static_cast<int>(*static_cast<volatile unsigned*>(arrived) - expected) < 0) {
    }
    __threadfence();
  }
  __syncthreads();
}

// The same iterations of images whose K fits into the shared memory of several blocks: each of
// `blocks` keeps `rows` rows of it, and groups of so many blocks take the images in turn. They wait
// for each other, so all must run at once: a cooperative launch. Weights go from `a` to `other` and
// back, because some block may still read them.
template <typename T>
__global__ __launch_bounds__(BLOCK, 1) void resident(const T* K, const T* targets, T* a, T* other,
                                                  unsigned* arrived, unsigned images, unsigned n,
                                                  unsigned across, unsigned rows, unsigned blocks,
                                                  T tau, int iterations) {
  extern __shared__ __align__(16) unsigned char bytes[];
  T* memory = reinterpret_cast<T*>(bytes);
  T* now = memory + rows * across;
  const unsigned group = blockIdx.x / blocks, start = blockIdx.x % blocks * rows;
  const unsigned own = min(rows, n - start);
  const unsigned lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, warps = blockDim.x / WARP;
  const unsigned apart = WARP / SMALL_ROWS;
  // CuPy makes a grid smaller that does not run at once: a part of a group would wait for ever.
  if (gridDim.x % blocks != 0) __trap();
  unsigned expected = 0;
  for (unsigned image = group; image < images; image += gridDim.x / blocks) {
    const size_t first = static_cast<size_t>(image) * n;
    for (unsigned row = warp; row < own; row += warps)
      for (unsigned j = lane; j < across; j += WARP)
        memory[row * across + j] = j < n ? K[(first + start + row) * n + j] : T(0);
    T *from = a + first, *to = other + first;
    for (int iteration = 1; iteration < iterations; ++iteration) {
      for (unsigned i = threadIdx.x; i < across; i += blockDim.x) now[i] = i < n ? from[i] : T(0);
      __syncthreads();
      for (unsigned next = warp * SMALL_ROWS; next < own; next += warps * SMALL_ROWS) {
        const T total = rows_times<SharedVectors<T>, SMALL_ROWS>(memory, now, next, own, across);
        const unsigned row = next + lane / apart, i = start + row;
        if (row < own) {
          const T weight = next_weight(now[i], total, targets[first + i], tau);
          if (lane % apart == 0) to[i] = weight;
        }
      }
      if (iteration + 1 < iterations)
        meet(arrived + group, expected += blocks);
      else
        __syncthreads();  // the next image goes where this one is
      T* before = from;
      from = to;
      to = before;
    }
  }
}

// What a warp of a block finds of (K v)_row from the entries of K, of which it has some.
template <typename T>
__device__ __forceinline__ T exact_part(const T* x, const T* v, bool weighted, unsigned row,
                                        unsigned n, unsigned d) {
  const unsigned lane = threadIdx.x % WARP, apart = WARP / STEP_ROWS;
  const T* own = x + static_cast<size_t>(row) * d;
  // The features may be the caller's, which begin anywhere.
  const bool aligned = d % VECTOR<T> == 0 && reinterpret_cast<size_t>(x) % 16 == 0;
  T total = T(0);
  for (unsigned start = threadIdx.x / WARP * STEP_ROWS; start < n; start += WARPS * STEP_ROWS) {
    const T product = aligned ? rows_times<Vectors<T>, STEP_ROWS>(x, own, start, n, d)
                              : rows_times<Words<T>, STEP_ROWS>(x, own, start, n, d);
    // A lane of each has its term: rounding errors of few equal terms do not add up. The square of
    // a small product may be 0 where its weight would have made it a large term.
    const unsigned i = start + lane / apart;
    if (i < n && lane % apart == 0) total += product * (product * (weighted ? v[i] : T(1)));
  }
  return sum_of(total, WARP);
}

// (K v)_row without K, by a warp: x^T M x from x and M x, M = X^T diag(v) X. Where that is below
// `share` of the same form of M's diagonal it is too small a difference of large numbers
// (shared/cancellation.py says why), and the row's entries of K are summed, by the whole block: one
// warp would still be at it when all others have left. `x` and `xm` are those of all rows of the
// image; all threads of a block come here, also those without a row.
template <typename T>
__device__ __forceinline__ T free_row(const T* x, const T* xm, const T* diagonal, const T* v,
                                      bool weighted, unsigned row, unsigned n, unsigned d,
                                      T share) {
  __shared__ bool doubtful[WARPS];
  __shared__ T parts[WARPS][WARPS];
  const unsigned lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
  T total = T(0), bound = T(0);
  if (row < n) {
    const size_t place = static_cast<size_t>(row) * d;
    for (unsigned j = lane; j < d; j += WARP) {
      const T value = x[place + j];
      total += value * xm[place + j];
      bound += value * value * diagonal[j];
    }
  }
  total = sum_of(total, WARP);
  bound = sum_of(bound, WARP);
  if (lane == 0) doubtful[warp] = row < n && !(total >= share * bound);
  __syncthreads();
  const unsigned exact = __ballot_sync(ALL_LANES, lane < WARPS && doubtful[lane % WARPS]);
  if (exact == 0) return total;  // a whole block
  for (unsigned other = 0; other < WARPS; ++other) {
    if ((exact >> other & 1) == 0) continue;
    const T part = exact_part(x, v, weighted, row - warp + other, n, d);
    if (lane == 0) parts[other][warp] = part;
  }
  __syncthreads();
  if (exact >> warp & 1) {
    total = parts[warp][0];
    for (unsigned i = 1; i < WARPS; ++i) total += parts[warp][i];
  }
  return total;
}

// K 1 without K, from X, XM = X M and the diagonal of M = X^T X: a warp for each row.
template <typename T>
__global__ void free_sums(const T* X, const T* XM, const T* diagonal, T* sums, unsigned n,
                          unsigned d, unsigned blocks, T share) {
  const unsigned image = blockIdx.x / blocks;
  const unsigned row = blockIdx.x % blocks * WARPS + threadIdx.x / WARP;
  const size_t first = static_cast<size_t>(image) * n;
  const T* own = diagonal + static_cast<size_t>(image) * d;
  const T total = free_row(X + first * d, XM + first * d, own, X, false, row, n, d, share);
  if (row < n && threadIdx.x % WARP == 0) sums[first + row] = total;
}

// One iteration without K, from X, XM = X M and the diagonal of M = X^T diag(a) X.
template <typename T>
__global__ void free_step(const T* X, const T* XM, const T* diagonal, const T* targets, const T* a,
                          T* out, unsigned n, unsigned d, unsigned blocks, T tau, T share) {
  const unsigned image = blockIdx.x / blocks;
  const unsigned row = blockIdx.x % blocks * WARPS + threadIdx.x / WARP;
  const size_t first = static_cast<size_t>(image) * n;
  const T* own = diagonal + static_cast<size_t>(image) * d;
  const T total = free_row(X + first * d, XM + first * d, own, a + first, true, row, n, d, share);
  if (row >= n) return;  // a whole warp, after the last barrier
  const T weight = next_weight(a[first + row], total, targets[first + row], tau);
  if (threadIdx.x % WARP == 0) out[first + row] = weight;
}
