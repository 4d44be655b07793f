// The iterations that make weights democratic.

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
// (shared/cancellation.py says why), and the row's entries of K are summed. `x` and `xm` are those
// of all rows of the image.
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
