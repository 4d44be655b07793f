// The kernels of cupy:cuda, for T = float and double. gpu.py compiles and launches them;
// signatures.py reads their parameters from here and compares what they are given.
//
// Products work on tiles of 64 x 64 results by 16 x 16 threads, 4 x 4 results each in registers; the
// factors go through shared memory 16 columns at a time, in rows padded against bank conflicts.
// Thread (tx, ty) has rows ty, ty + 16, ... and columns tx, tx + 16, ... of a tile, so that
// neighbouring threads read and write neighbouring words. Of symmetric products only tiles on and
// below the diagonal are computed, and written twice.
//
// A block finds its image and its part of it in blockIdx.x alone, which may be large, unlike y and
// z. Positions in an image are 32-bit numbers, addresses 64-bit ones.

constexpr unsigned THREADS = 16;
constexpr unsigned TILE = 64;
constexpr unsigned HALF = 32;
constexpr unsigned STEP = 16;
constexpr unsigned BLOCK = 256;
constexpr unsigned WARP = 32;
constexpr unsigned WARPS = BLOCK / WARP;
constexpr unsigned FEATURES = 8;
constexpr unsigned ALL_LANES = 0xffffffffu;

enum Kind { SQUARE, RECTIFY, KEEP };

// ------------------------------------------------------------------------ what kernels share ---

template <typename T>
__device__ __forceinline__ T sum_of(T value, unsigned lanes) {
  for (unsigned step = lanes / 2; step > 0; step /= 2)
    value += __shfl_xor_sync(ALL_LANES, value, step);
  return value;
}

template <typename T>
__device__ __forceinline__ T largest_of_warp(T value) {
  for (unsigned step = WARP / 2; step > 0; step /= 2)
    value = fmax(value, __shfl_xor_sync(ALL_LANES, value, step));
  return value;
}

// Over a block of BLOCK threads; all of them get the result. `parts` must not be written again
// before a barrier.
template <typename T>
__device__ __forceinline__ T sum_of_block(T value, T* parts) {
  value = sum_of(value, WARP);
  if (threadIdx.x % WARP == 0) parts[threadIdx.x / WARP] = value;
  __syncthreads();
  value = parts[0];
  for (unsigned i = 1; i < WARPS; ++i) value += parts[i];
  return value;
}

template <typename T>
__device__ __forceinline__ T largest_of_block(T value, T* parts) {
  value = largest_of_warp(value);
  if (threadIdx.x % WARP == 0) parts[threadIdx.x / WARP] = value;
  __syncthreads();
  value = parts[0];
  for (unsigned i = 1; i < WARPS; ++i) value = fmax(value, parts[i]);
  return value;
}

// Numbers that are not negative are ordered as their bits are.
__device__ __forceinline__ void atomic_largest(float* where, float value) {
  atomicMax(reinterpret_cast<int*>(where), __float_as_int(value));
}

__device__ __forceinline__ void atomic_largest(double* where, double value) {
  atomicMax(reinterpret_cast<unsigned long long*>(where),
            static_cast<unsigned long long>(__double_as_longlong(value)));
}

// The row of a tile when those on and below the diagonal are counted in rows. Up to 1024 rows of
// tiles (n = 65,536) 8 tile + 1 is below 2^24, so that it is a float, and its root, rounded
// correctly, falls into the right row; beyond, the loops mend what rounding does.
__device__ __forceinline__ unsigned triangle_row(unsigned tile) {
  const float root = __fsqrt_rn(static_cast<float>(8 * tile + 1));
  unsigned row = static_cast<unsigned>((root - 1.0f) * 0.5f);
  while (row * (row + 1) / 2 > tile) --row;
  while ((row + 1) * (row + 2) / 2 <= tile) ++row;
  return row;
}

// The exponent that brings a number to between 1/2 and 1, from its bits; it must not be subnormal.
__device__ __forceinline__ int exponent_of(float value) {
  return ((__float_as_int(value) >> 23) & 255) - 126;
}

__device__ __forceinline__ int exponent_of(double value) {
  return static_cast<int>((__double_as_longlong(value) >> 52) & 2047) - 1022;
}

__device__ __forceinline__ float power_of_two(float, int exponent) {
  return __int_as_float((exponent + 127) << 23);
}

__device__ __forceinline__ double power_of_two(double, int exponent) {
  return __longlong_as_double(static_cast<long long>(exponent + 1023) << 52);
}

// Times 2^exponent, which may itself be too small or too large for T: in two halves.
template <typename T>
__device__ __forceinline__ T shifted(T value, int exponent) {
  const int half = exponent >> 1;
  return value * power_of_two(value, half) * power_of_two(value, exponent - half);
}

// a <- a / (a (K a) / r)^tau, as a (...)^-tau; rows without a weight stay without one.
template <typename T>
__device__ __forceinline__ T next_weight(T weight, T total, T target, T tau) {
  return weight == T(0) ? weight : weight * pow(weight * total / target, -tau);
}

// The products of STEP columns of two tiles, added to the results of a thread. They are added up on
// their own first: in one long sum of equal terms, as of an image of one colour, all rounding errors
// have one sign.
template <typename T>
__device__ __forceinline__ void add_products(T (&sums)[4][4], const T (&rows)[TILE][STEP + 1],
                                             const T (&columns)[TILE][STEP + 1]) {
  T parts[4][4] = {};
#pragma unroll
  for (unsigned k = 0; k < STEP; ++k)
#pragma unroll
    for (unsigned i = 0; i < 4; ++i) {
      const T value = rows[threadIdx.y + THREADS * i][k];
#pragma unroll
      for (unsigned j = 0; j < 4; ++j) parts[i][j] += value * columns[threadIdx.x + THREADS * j][k];
    }
#pragma unroll
  for (unsigned i = 0; i < 4; ++i)
#pragma unroll
    for (unsigned j = 0; j < 4; ++j) sums[i][j] += parts[i][j];
}

// A tile of a symmetric C, and its mirror image through shared memory; the tile itself if it is new,
// and the sums of the rows if asked. Of a tile on the diagonal the part above it is the mirror image
// of the part below, like any other: rounding must not make C less symmetric than it is.
template <typename T>
__device__ __forceinline__ void store_twice(T* C, T* row_sums, bool is_new, bool with_sums,
                                            T (&sums)[4][4], unsigned n, unsigned first,
                                            unsigned second, T (&tile)[HALF][TILE + 1]) {
  const unsigned tx = threadIdx.x, ty = threadIdx.y;
  if (is_new) {
#pragma unroll
    for (unsigned i = 0; i < 4; ++i) {
      const unsigned row = first + ty + THREADS * i;
      T total = T(0);
#pragma unroll
      for (unsigned j = 0; j < 4; ++j) {
        const unsigned column = second + tx + THREADS * j;
        if (row < n && column <= row) {
          C[static_cast<size_t>(row) * n + column] = sums[i][j];
          total += sums[i][j];
        }
      }
      if (with_sums) {
        total = sum_of(total, THREADS);
        if (tx == 0 && row < n) atomicAdd(&row_sums[row], total);
      }
    }
  }
  // In two halves: 64 rows of double would be too much shared memory.
#pragma unroll
  for (unsigned half = 0; half < 2; ++half) {
#pragma unroll
    for (unsigned i = 0; i < 2; ++i)
#pragma unroll
      for (unsigned j = 0; j < 4; ++j)
        tile[ty + THREADS * i][tx + THREADS * j] = sums[2 * half + i][j];
    __syncthreads();
#pragma unroll
    for (unsigned i = 0; i < 4; ++i) {
      const unsigned row = second + ty + THREADS * i;
      T total = T(0);
#pragma unroll
      for (unsigned j = 0; j < 2; ++j) {
        const unsigned column = first + HALF * half + tx + THREADS * j;
        const T value = tile[tx + THREADS * j][ty + THREADS * i];
        if (row < column && column < n) {
          C[static_cast<size_t>(row) * n + column] = value;
          total += value;
        }
      }
      if (with_sums) {
        total = sum_of(total, THREADS);
        if (tx == 0 && row < n) atomicAdd(&row_sums[row], total);
      }
    }
    __syncthreads();
  }
}

template <typename T>
__device__ __forceinline__ void become_kernel(T (&sums)[4][4], int kind) {
#pragma unroll
  for (unsigned i = 0; i < 4; ++i)
#pragma unroll
    for (unsigned j = 0; j < 4; ++j) {
      const T value = sums[i][j];
      if (kind == SQUARE) sums[i][j] = value * value;
      if (kind == RECTIFY) sums[i][j] = value < T(0) ? T(0) : value;
    }
}

// -------------------------------------------------------------------------------- magnitudes ---

// max |v| of every image; `out` starts at 0, `chunks` blocks share an image.
template <typename T>
__global__ void largest(const T* V, T* out, unsigned values, unsigned chunks) {
  const unsigned image = blockIdx.x / chunks;
  const T* v = V + static_cast<size_t>(image) * values;
  T found = T(0);
  for (unsigned j = blockIdx.x % chunks * BLOCK + threadIdx.x; j < values; j += chunks * BLOCK)
    found = fmax(found, fabs(v[j]));
  found = largest_of_warp(found);
  if (threadIdx.x % WARP == 0) atomic_largest(&out[image], found);
}

// Every image times the power of two, 2^-exponent, that brings its largest value to between 1/2 and
// 1; `blocks` share an image.
template <typename T>
__global__ void scaled(const T* X, const T* magnitude, T* out, int* exponents, unsigned values,
                       unsigned blocks) {
  const unsigned image = blockIdx.x / blocks;
  const unsigned j = blockIdx.x % blocks * BLOCK + threadIdx.x;
  if (j >= values) return;
  const T size = magnitude[image];
  // Not of an infinity, nor of NaN.
  const int exponent = size > T(0) && size - size == T(0) ? exponent_of(size) : 0;
  const size_t place = static_cast<size_t>(image) * values + j;
  out[place] = shifted(X[place], -exponent);
  if (j == 0) exponents[image] = exponent;
}

// The weights of features that were scaled by 2^-exponent: times 2^(-exponent power). `power` comes
// in two parts, and exponent times the first is exact: rounded, it would be off by many units in
// the last place of the result.
template <typename T>
__global__ void restored(const T* a, const int* exponents, T* out, T power, T rest, unsigned n,
                         unsigned blocks) {
  const unsigned image = blockIdx.x / blocks;
  const unsigned i = blockIdx.x % blocks * BLOCK + threadIdx.x;
  if (i >= n) return;
  const size_t place = static_cast<size_t>(image) * n + i;
  const T exponent = static_cast<T>(-exponents[image]);
  const T whole = rint(exponent * power);
  const T factor = exp2((exponent * power - whole) + exponent * rest);
  // Beyond this no result is in range. Zero stays zero, whatever the factor.
  const int most = sizeof(T) == 4 ? 300 : 2200;
  const int shift = min(max(static_cast<int>(whole), -most), most);
  const T weight = a[place];
  const T near = shifted(weight * factor, shift >> 1);
  out[place] = weight == T(0) ? weight : shifted(near, shift - (shift >> 1));
}

// ----------------------------------------------------------------------------------- weights ---

// K = (X X^T)^2, or max(X X^T, 0), and its row sums, which start at 0; `tiles` in a triangle.
template <typename T>
__global__ void gram(const T* X, T* K, T* row_sums, unsigned n, unsigned d, unsigned tiles,
                     int kind) {
  __shared__ T rows[TILE][STEP + 1], columns[TILE][STEP + 1], tile[HALF][TILE + 1];
  const unsigned tx = threadIdx.x, ty = threadIdx.y;
  const unsigned image = blockIdx.x / tiles, number = blockIdx.x % tiles;
  const unsigned row = triangle_row(number);
  const unsigned first = row * TILE, second = (number - row * (row + 1) / 2) * TILE;
  const T* x = X + static_cast<size_t>(image) * n * d;
  T sums[4][4] = {};
  for (unsigned start = 0; start < d; start += STEP) {
    const unsigned k = start + tx;
#pragma unroll
    for (unsigned i = 0; i < 4; ++i) {
      const unsigned r = ty + THREADS * i, p = first + r, q = second + r;
      rows[r][tx] = p < n && k < d ? x[static_cast<size_t>(p) * d + k] : T(0);
      columns[r][tx] = q < n && k < d ? x[static_cast<size_t>(q) * d + k] : T(0);
    }
    __syncthreads();
    add_products(sums, rows, columns);
    __syncthreads();
  }
  become_kernel(sums, kind);
  store_twice(K + static_cast<size_t>(image) * n * n, row_sums + static_cast<size_t>(image) * n,
              true, true, sums, n, first, second, tile);
}

// The same from X X^T, of which a library has made the lower triangle, in place. With KEEP the
// matrix is only mirrored, and nobody wants row sums.
template <typename T>
__global__ void from_triangle(T* K, T* row_sums, unsigned n, int kind) {
  __shared__ T tile[HALF][TILE + 1];
  const unsigned tx = threadIdx.x, ty = threadIdx.y;
  const unsigned row = triangle_row(blockIdx.x);
  const unsigned first = row * TILE, second = (blockIdx.x - row * (row + 1) / 2) * TILE;
  T sums[4][4];
#pragma unroll
  for (unsigned i = 0; i < 4; ++i)
#pragma unroll
    for (unsigned j = 0; j < 4; ++j) {
      const unsigned p = first + ty + THREADS * i, q = second + tx + THREADS * j;
      sums[i][j] = p < n && q <= p ? K[static_cast<size_t>(p) * n + q] : T(0);
    }
  become_kernel(sums, kind);
  store_twice(K, row_sums, kind != KEEP, kind != KEEP, sums, n, first, second, tile);
}

// A = X^T diag(a) X of a batch; `tiles` in a triangle. For one image a library has SYRK.
template <typename T>
__global__ void outer(const T* X, const T* a, T* A, unsigned n, unsigned d, unsigned tiles,
                      int weighted) {
  __shared__ T rows[TILE][STEP + 1], columns[TILE][STEP + 1], tile[HALF][TILE + 1];
  const unsigned tx = threadIdx.x, ty = threadIdx.y;
  const unsigned image = blockIdx.x / tiles, number = blockIdx.x % tiles;
  const unsigned row = triangle_row(number);
  const unsigned first = row * TILE, second = (number - row * (row + 1) / 2) * TILE;
  const T* x = X + static_cast<size_t>(image) * n * d;
  T sums[4][4] = {};
  for (unsigned start = 0; start < n; start += STEP) {
    // Neighbouring threads read neighbouring columns of one feature.
    const unsigned feature = start + ty;
    const bool there = feature < n;
    const T weight = there && weighted ? a[static_cast<size_t>(image) * n + feature] : T(1);
#pragma unroll
    for (unsigned i = 0; i < 4; ++i) {
      const unsigned r = tx + THREADS * i, p = first + r, q = second + r;
      const T* values = x + static_cast<size_t>(feature) * d;
      rows[r][ty] = there && p < d ? weight * values[p] : T(0);
      columns[r][ty] = there && q < d ? values[q] : T(0);
    }
    __syncthreads();
    add_products(sums, rows, columns);
    __syncthreads();
  }
  store_twice(A + static_cast<size_t>(image) * d * d, A, true, false, sums, d, first, second, tile);
}

// r = (K 1)^gamma, and the first iteration, which starts from a = 1.
template <typename T>
__global__ void first_step(const T* row_sums, T* targets, T* a, size_t count, T gamma, T tau,
                           int iterations) {
  const size_t i = static_cast<size_t>(blockIdx.x) * BLOCK + threadIdx.x;
  if (i >= count) return;
  const T total = row_sums[i];
  T target = T(0), weight = T(0);
  if (!(total <= T(0))) {  // NaN too, which makes the weight NaN
    target = pow(total, gamma);
    weight = iterations > 0 ? pow(total / target, -tau) : T(1);
  }
  targets[i] = target;
  a[i] = weight;
}

// One iteration: a warp for each row of K, which is read once; `blocks` share an image.
template <typename T>
__global__ void step(const T* K, const T* targets, const T* a, T* out, unsigned n, unsigned blocks,
                     T tau) {
  const unsigned image = blockIdx.x / blocks;
  const unsigned row = blockIdx.x % blocks * WARPS + threadIdx.x / WARP;
  const unsigned lane = threadIdx.x % WARP;
  if (row >= n) return;  // a whole warp
  const size_t first = static_cast<size_t>(image) * n;
  const T* k = K + (first + row) * n;
  T total = T(0);
  for (unsigned j = lane; j < n; j += WARP) total += k[j] * a[first + j];
  // All lanes have the sum, and do the same: the others would only wait for the power.
  total = sum_of(total, WARP);
  const T weight = next_weight(a[first + row], total, targets[first + row], tau);
  if (lane == 0) out[first + row] = weight;
}

// All iterations from the second on of an image whose K fits into shared memory, by one block.
template <typename T>
__global__ void small_image(const T* K, const T* targets, T* a, unsigned n, T tau, int iterations) {
  extern __shared__ __align__(16) unsigned char bytes[];
  T* memory = reinterpret_cast<T*>(bytes);
  T* goal = memory + n * n;
  T* now = goal + n;
  T* next = now + n;
  const size_t first = static_cast<size_t>(blockIdx.x) * n;
  for (unsigned i = threadIdx.x; i < n * n; i += BLOCK) memory[i] = K[first * n + i];
  for (unsigned i = threadIdx.x; i < n; i += BLOCK) {
    now[i] = a[first + i];
    goal[i] = targets[first + i];
  }
  __syncthreads();
  const unsigned lane = threadIdx.x % WARP;
  for (int iteration = 1; iteration < iterations; ++iteration) {
    for (unsigned row = threadIdx.x / WARP; row < n; row += WARPS) {
      T total = T(0);
      for (unsigned j = lane; j < n; j += WARP) total += memory[row * n + j] * now[j];
      total = sum_of(total, WARP);
      const T weight = next_weight(now[row], total, goal[row], tau);
      if (lane == 0) next[row] = weight;
    }
    __syncthreads();
    T* other = now;
    now = next;
    next = other;
  }
  for (unsigned i = threadIdx.x; i < n; i += BLOCK) a[first + i] = now[i];
}

// (K v)_row from the entries of K, by a warp.
template <typename T>
__device__ __forceinline__ T exact_row(const T* x, const T* v, bool weighted, unsigned row,
                                       unsigned n, unsigned d) {
  const unsigned lane = threadIdx.x % WARP;
  const T* own = x + static_cast<size_t>(row) * d;
  T total = T(0);
  for (unsigned i = 0; i < n; ++i) {
    const T* other = x + static_cast<size_t>(i) * d;
    T product = T(0);
    for (unsigned j = lane; j < d; j += WARP) product += own[j] * other[j];
    product = sum_of(product, WARP);
    // Lanes take turns: rounding errors of few equal terms do not add up. The square of a small
    // product may be 0 where its weight would have made it a large term.
    const T term = product * (product * (weighted ? v[i] : T(1)));
    total += i % WARP == lane ? term : T(0);
  }
  return sum_of(total, WARP);
}

// (K v)_row without K, by a warp: x^T M x from x and M x, M = X^T diag(v) X. Where that is below
// `share` of the same form of M's diagonal it is too small a difference of large numbers
// (shared/cancellation.py says why), and the row's entries of K are summed. `x` and `xm` are those of
// all rows of the image.
template <typename T>
__device__ __forceinline__ T free_row(const T* x, const T* xm, const T* diagonal, const T* v,
                                      bool weighted, unsigned row, unsigned n, unsigned d,
                                      T share) {
  const size_t place = static_cast<size_t>(row) * d;
  T total = T(0), bound = T(0);
  for (unsigned j = threadIdx.x % WARP; j < d; j += WARP) {
    const T value = x[place + j];
    total += value * xm[place + j];
    bound += value * value * diagonal[j];
  }
  total = sum_of(total, WARP);
  bound = sum_of(bound, WARP);
  if (!(total >= share * bound)) total = exact_row(x, v, weighted, row, n, d);
  return total;
}

// K 1 without K, from X, XM = X M and the diagonal of M = X^T X: a warp for each row.
template <typename T>
__global__ void free_sums(const T* X, const T* XM, const T* diagonal, T* sums, unsigned n,
                          unsigned d, unsigned blocks, T share) {
  const unsigned image = blockIdx.x / blocks;
  const unsigned row = blockIdx.x % blocks * WARPS + threadIdx.x / WARP;
  if (row >= n) return;  // a whole warp
  const size_t first = static_cast<size_t>(image) * n;
  const T* own = diagonal + static_cast<size_t>(image) * d;
  const T total = free_row(X + first * d, XM + first * d, own, X, false, row, n, d, share);
  if (threadIdx.x % WARP == 0) sums[first + row] = total;
}

// One iteration without K, from X, XM = X M and the diagonal of M = X^T diag(a) X.
template <typename T>
__global__ void free_step(const T* X, const T* XM, const T* diagonal, const T* targets, const T* a,
                          T* out, unsigned n, unsigned d, unsigned blocks, T tau, T share) {
  const unsigned image = blockIdx.x / blocks;
  const unsigned row = blockIdx.x % blocks * WARPS + threadIdx.x / WARP;
  if (row >= n) return;  // a whole warp
  const size_t first = static_cast<size_t>(image) * n;
  const T* own = diagonal + static_cast<size_t>(image) * d;
  const T total = free_row(X + first * d, XM + first * d, own, a + first, true, row, n, d, share);
  const T weight = next_weight(a[first + row], total, targets[first + row], tau);
  if (threadIdx.x % WARP == 0) out[first + row] = weight;
}

// ---------------------------------------------------------------------- the normalised result ---

// Sum of (|v| / max |v|)^power, 1 or 2, of every image; `sums` starts at 0.
template <typename T>
__global__ void power_sums(const T* V, const T* magnitude, T* sums, unsigned values,
                           unsigned chunks, int power) {
  const unsigned image = blockIdx.x / chunks;
  const T* v = V + static_cast<size_t>(image) * values;
  const T scale = magnitude[image];
  T total = T(0);
  if (scale > T(0)) {
    for (unsigned j = blockIdx.x % chunks * BLOCK + threadIdx.x; j < values; j += chunks * BLOCK) {
      const T share = fabs(v[j]) / scale;
      total += power == 1 ? share : share * share;
    }
  }
  total = sum_of(total, WARP);
  if (threadIdx.x % WARP == 0) atomicAdd(&sums[image], total);
}

// sign(v) sqrt(|v|), or v, over its norm.
template <typename T>
__device__ __forceinline__ T over_norm(T value, T scale, T sum, int power) {
  const T share = fabs(value) / scale;
  return copysign(power == 1 ? sqrt(share / sum) : share / sqrt(sum), value);
}

// `blocks` share an image; zeros stay zeros.
template <typename T>
__global__ void normalized(const T* V, const T* magnitude, const T* sums, T* out, unsigned values,
                           unsigned blocks, int power) {
  const unsigned image = blockIdx.x / blocks;
  const unsigned j = blockIdx.x % blocks * BLOCK + threadIdx.x;
  if (j >= values) return;
  const size_t place = static_cast<size_t>(image) * values + j;
  const T scale = magnitude[image];
  out[place] = scale > T(0) ? over_norm(V[place], scale, sums[image], power) : V[place];
}

// All of it for descriptors that fit into shared memory: one block each, which reads it once.
template <typename T>
__global__ void normalized_at_once(const T* V, T* out, unsigned values, int power) {
  extern __shared__ __align__(16) unsigned char bytes[];
  T* v = reinterpret_cast<T*>(bytes);
  __shared__ T parts[WARPS];
  const size_t first = static_cast<size_t>(blockIdx.x) * values;
  T scale = T(0);
  for (unsigned j = threadIdx.x; j < values; j += BLOCK) {
    v[j] = V[first + j];
    scale = fmax(scale, fabs(v[j]));
  }
  scale = largest_of_block(scale, parts);
  __syncthreads();
  T total = T(0);
  if (scale > T(0)) {
    for (unsigned j = threadIdx.x; j < values; j += BLOCK) {
      const T share = fabs(v[j]) / scale;
      total += power == 1 ? share : share * share;
    }
  }
  total = sum_of_block(total, parts);
  for (unsigned j = threadIdx.x; j < values; j += BLOCK)
    out[first + j] = scale > T(0) ? over_norm(v[j], scale, total, power) : v[j];
}

// ---------------------------------------------------------------------------------- sketches ---

// The count sketch of every feature, times its weight: a thread for each bin, which sums the values
// that fall into it, so that no atomics are needed. Values are sorted by their bins: those of bin b
// are order[starts[b]] to order[starts[b + 1] - 1]. `blocks` share FEATURES features, so that a
// thread looks up its bin once for all of them.
template <typename T>
__global__ void count_sketch(const T* X, const T* weights, const int* starts, const int* order,
                             const signed char* signs, T* out, size_t features, unsigned d,
                             unsigned k, unsigned blocks, int weighted) {
  const size_t first = static_cast<size_t>(blockIdx.x / blocks) * FEATURES;
  const size_t last = first + FEATURES < features ? first + FEATURES : features;
  const unsigned bin = blockIdx.x % blocks * BLOCK + threadIdx.x;
  if (bin >= k) return;
  const int start = starts[bin], stop = starts[bin + 1];
  for (size_t feature = first; feature < last; ++feature) {
    const T* x = X + feature * d;
    T total = T(0);
    for (int i = start; i < stop; ++i) {
      const int j = order[i];
      total += signs[j] < 0 ? -x[j] : x[j];
    }
    out[feature * k + bin] = weighted ? total * weights[feature] : total;
  }
}

// out[(h1[i] + h2[j]) mod k] += s1[i] s2[j] M[i, j], in shared memory, then added to `out`, which
// starts at 0. `blocks` share an image, each has rows of M.
template <typename T>
__global__ void scatter(const T* M, const int* h1, const int* h2, const signed char* s1,
                        const signed char* s2, T* out, unsigned d, unsigned k, unsigned blocks) {
  extern __shared__ __align__(16) unsigned char bytes[];
  T* histogram = reinterpret_cast<T*>(bytes);
  const size_t image = blockIdx.x / blocks;
  for (unsigned i = threadIdx.x; i < k; i += BLOCK) histogram[i] = T(0);
  __syncthreads();
  for (unsigned row = blockIdx.x % blocks; row < d; row += blocks) {
    const T* m = M + (image * d + row) * d;
    for (unsigned j = threadIdx.x; j < d; j += BLOCK) {
      const unsigned bin = static_cast<unsigned>(h1[row] + h2[j]) % k;
      atomicAdd(&histogram[bin], s1[row] == s2[j] ? m[j] : -m[j]);
    }
  }
  __syncthreads();
  for (unsigned i = threadIdx.x; i < k; i += BLOCK)
    if (histogram[i] != T(0)) atomicAdd(&out[image * k + i], histogram[i]);
}

// The same for sketches that do not fit into shared memory: straight to `out`.
template <typename T>
__global__ void scatter_far(const T* M, const int* h1, const int* h2, const signed char* s1,
                            const signed char* s2, T* out, unsigned d, unsigned k,
                            unsigned blocks) {
  const size_t image = blockIdx.x / blocks;
  for (unsigned row = blockIdx.x % blocks; row < d; row += blocks) {
    const T* m = M + (image * d + row) * d;
    for (unsigned j = threadIdx.x; j < d; j += BLOCK) {
      const unsigned bin = static_cast<unsigned>(h1[row] + h2[j]) % k;
      atomicAdd(&out[image * k + bin], s1[row] == s2[j] ? m[j] : -m[j]);
    }
  }
}
