// The normalised result: a pass over it for the sum, and one that writes it.

constexpr unsigned PIECE = 16 * BLOCK;

// The sums of the `chunks` of every image, two numbers for each block.
template <typename T>
__global__ void power_sums(const T* V, T* sums, unsigned values, unsigned chunks, int power) {
  __shared__ T parts[2 * WARPS];
  const size_t image = blockIdx.x / chunks;
  NormSum<T> sum(power);
  sum.add(V + image * values, blockIdx.x % chunks * BLOCK + threadIdx.x, chunks * BLOCK, values, 0);
  sum.join_warps(parts, WARPS);
  if (threadIdx.x == 0) sum.put(sums + 2 * image * chunks + blockIdx.x % chunks, chunks);
}

// The same of symmetric matrices, from their lower triangles: a warp for each row.
template <typename T>
__global__ void triangle_sums(const T* S, T* sums, unsigned d, unsigned chunks, int power) {
  __shared__ T parts[2 * WARPS];
  const size_t image = blockIdx.x / chunks;
  NormSum<T> sum(power);
  const unsigned first = blockIdx.x % chunks * WARPS + threadIdx.x / WARP;
  for (unsigned row = first; row < d; row += chunks * WARPS)
    sum.add(S + (image * d + row) * d, threadIdx.x % WARP, WARP, row + 1, row);
  sum.join_warps(parts, WARPS);
  if (threadIdx.x == 0) sum.put(sums + 2 * image * chunks + blockIdx.x % chunks, chunks);
}

// `blocks` share an image, PIECE values each.
template <typename T>
__global__ void normalized(const T* V, const T* sums, T* out, unsigned values, unsigned chunks,
                           unsigned blocks, int power) {
  const size_t image = blockIdx.x / blocks;
  const unsigned start = blockIdx.x % blocks * PIECE;
  NormSum<T> sum(power);
  sum.join(sums + 2 * image * chunks, chunks);
  for (unsigned j = start + threadIdx.x; j < values && j < start + PIECE; j += BLOCK)
    out[image * values + j] = sum.over_norm(V[image * values + j]);
}

// Both triangles from the lower one, which may be where they go; `tiles` in a triangle.
template <typename T>
__global__ __launch_bounds__(THREADS<T>) void normalized_triangle(const T* S, const T* sums, T* out,
                                                                  unsigned d, unsigned tiles,
                                                                  unsigned chunks, int power) {
  __shared__ __align__(16) T space[HALF * ROW<T>];
  const Place at(tiles, 1);
  const size_t first = static_cast<size_t>(at.image) * d * d;
  NormSum<T> sum(power);
  sum.join(sums + 2 * static_cast<size_t>(at.image) * chunks, chunks);
  for (unsigned half = 0; half < 2; ++half) {
    read_half(space, S + first, at, half, d, [&](T value) { return sum.over_norm(value); });
    __syncthreads();
    store_half(out + first, space, at, half, d, [](T, bool) {});
    mirror_half(out + first, space, at, half, d);
    __syncthreads();
  }
}

// All of it for descriptors that fit into shared memory: one block each, which reads it once.
template <typename T>
__global__ void normalized_at_once(const T* V, T* out, unsigned values, int power) {
  extern __shared__ __align__(16) unsigned char bytes[];
  T* v = reinterpret_cast<T*>(bytes);
  __shared__ T parts[2 * WARPS];
  const size_t first = static_cast<size_t>(blockIdx.x) * values;
  NormSum<T> sum(power);
  for (unsigned j = threadIdx.x; j < values; j += BLOCK) {
    v[j] = V[first + j];
    sum.add(v[j], T(1));
  }
  sum.join_warps(parts, WARPS);
  for (unsigned j = threadIdx.x; j < values; j += BLOCK) out[first + j] = sum.over_norm(v[j]);
}
