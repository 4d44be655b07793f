// Count sketches of features, and Tensor Sketches of matrices.

constexpr unsigned FEATURES = 8;

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

// Tensor Sketch of matrices: out[(h1[i] + h2[j]) mod k] += s1[i] s2[j] M[i, j]. Row by row, no two
// threads add to one bin: within a row bins differ where those of the second hash do, and a thread
// adds up all values of such a bin. So no atomics are needed, and the order of all additions is
// fixed. Values come sorted by their bins: those of `filled[u]` are number `runs[u]` to
// `runs[u + 1] - 1`, of `count` bins that are not empty.
template <typename T, typename Value>
__device__ __forceinline__ void add_runs(T* histogram, const int* filled, const int* runs,
                                         unsigned count, unsigned shift, unsigned k, Value value) {
  for (unsigned u = threadIdx.x; u < count; u += BLOCK) {
    T total = T(0);
    for (int i = runs[u]; i < runs[u + 1]; ++i) total += value(i);
    const unsigned bin = static_cast<unsigned>(filled[u]) + shift;
    histogram[bin < k ? bin : bin - k] += total;
  }
}

// In shared memory. `blocks` share an image, each has rows of M and writes a sketch of its own. A
// row is read as it is and sorted on its way into one of two buffers, while others still read the
// other.
template <typename T>
__global__ void scatter(const T* M, const int* h1, const signed char* s1, const signed char* s2,
                        const int* places, const int* filled, const int* runs, T* out, unsigned d,
                        unsigned k, unsigned count, unsigned blocks) {
  extern __shared__ __align__(16) unsigned char bytes[];
  T* histogram = reinterpret_cast<T*>(bytes);
  T* values = histogram + k;
  T* others = values + d;
  const size_t image = blockIdx.x / blocks;
  for (unsigned i = threadIdx.x; i < k; i += BLOCK) histogram[i] = T(0);
  for (unsigned row = blockIdx.x % blocks; row < d; row += blocks) {
    const T* m = M + (image * d + row) * d;
    for (unsigned j = threadIdx.x; j < d; j += BLOCK)
      values[places[j]] = s1[row] == s2[j] ? m[j] : -m[j];
    __syncthreads();
    add_runs(histogram, filled, runs, count, h1[row], k, [&](int i) { return values[i]; });
    T* other = values;
    values = others;
    others = other;
  }
  __syncthreads();
  T* own = out + static_cast<size_t>(blockIdx.x) * k;
  for (unsigned i = threadIdx.x; i < k; i += BLOCK) own[i] = histogram[i];
}

// The same where that does not fit into shared memory: straight to the block's own sketch.
template <typename T>
__global__ void scatter_far(const T* M, const int* h1, const signed char* s1, const signed char* s2,
                            const int* order, const int* filled, const int* runs, T* out,
                            unsigned d, unsigned k, unsigned count, unsigned blocks) {
  const size_t image = blockIdx.x / blocks;
  T* own = out + static_cast<size_t>(blockIdx.x) * k;
  for (unsigned i = threadIdx.x; i < k; i += BLOCK) own[i] = T(0);
  for (unsigned row = blockIdx.x % blocks; row < d; row += blocks) {
    const T* m = M + (image * d + row) * d;
    __syncthreads();
    add_runs(own, filled, runs, count, h1[row], k, [&](int i) {
      const int j = order[i];
      return s1[row] == s2[j] ? m[j] : -m[j];
    });
  }
}

// The sum of the `count` sketches of every image, in order; `blocks` share an image.
template <typename T>
__global__ void added(const T* parts, T* out, unsigned values, unsigned count, unsigned blocks) {
  const unsigned image = blockIdx.x / blocks;
  const unsigned j = blockIdx.x % blocks * BLOCK + threadIdx.x;
  if (j >= values) return;
  T total = T(0);
  for (unsigned i = 0; i < count; ++i)
    total += parts[(static_cast<size_t>(image) * count + i) * values + j];
  out[static_cast<size_t>(image) * values + j] = total;
}
