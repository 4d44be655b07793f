// The normalised result.

constexpr unsigned PIECE = 8 * BLOCK;

// Sums of (|v| / max |v|)^power, 1 or 2, over the `chunks` of every image: one number for each
// block.
template <typename T>
__global__ void power_sums(const T* V, const T* magnitude, T* sums, unsigned values,
                           unsigned chunks, int power) {
  __shared__ T parts[WARPS];
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
  total = sum_of_block(total, parts);
  if (threadIdx.x == 0) sums[blockIdx.x] = total;
}

// sign(v) sqrt(|v|), or v, over its norm.
template <typename T>
__device__ __forceinline__ T over_norm(T value, T scale, T sum, int power) {
  const T share = fabs(value) / scale;
  return copysign(power == 1 ? sqrt(share / sum) : share / sqrt(sum), value);
}

// `blocks` share an image, PIECE values each; zeros stay zeros. Every warp adds up the sums of the
// `chunks`, in the same order.
template <typename T>
__global__ void normalized(const T* V, const T* magnitude, const T* sums, T* out, unsigned values,
                           unsigned chunks, unsigned blocks, int power) {
  const unsigned image = blockIdx.x / blocks;
  const unsigned start = blockIdx.x % blocks * PIECE;
  const size_t first = static_cast<size_t>(image) * values;
  const T scale = magnitude[image];
  T sum = T(0);
  for (unsigned i = threadIdx.x % WARP; i < chunks; i += WARP)
    sum += sums[static_cast<size_t>(image) * chunks + i];
  sum = sum_of(sum, WARP);
  for (unsigned j = start + threadIdx.x; j < values && j < start + PIECE; j += BLOCK) {
    const T value = V[first + j];
    out[first + j] = scale > T(0) ? over_norm(value, scale, sum, power) : value;
  }
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
