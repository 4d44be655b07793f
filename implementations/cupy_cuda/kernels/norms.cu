// The normalised result: a pass over it for the sum, and one that writes it.

constexpr unsigned PIECE = 16 * BLOCK;
constexpr unsigned AHEAD = 4;  // values that a thread asks for before it needs the first
constexpr int ROOM = 8;  // values may grow by 2^8 before a sum is scaled again: others would wait

// 2^top and 2^-top are numbers up to here.
template <typename T> constexpr int TOP = sizeof(T) == 4 ? 126 : 1022;

// A sum of |v|^power, 1 or 2, as total * 2^(power * top). `top` follows the largest value, so that
// the sum stays in range however small or large values are, and they are read only once. Powers of
// two do not round.
template <typename T>
struct NormSum {
  int power, top;
  T scale, total;  // scale = 2^-top

  __device__ __forceinline__ explicit NormSum(int of)
      : power(of), top(-TOP<T>), scale(power_of_two(T(0), TOP<T>)), total(T(0)) {}

  // A sum that was made for `below`, as one for `top`.
  __device__ __forceinline__ T lowered(T sum, int below) const {
    return shifted(sum, max(power * (below - top), -2 * TOP<T>));
  }
  __device__ __forceinline__ void raise(int to) {
    const int before = top;
    top = to;
    scale = power_of_two(T(0), -to);
    total = lowered(total, before);
  }
  __device__ __forceinline__ void add(T value, T times) {
    const T size = fabs(value);
    if (size * scale >= T(1)) raise(min(exponent_of(size) + ROOM, TOP<T>));
    const T share = size * scale;
    total += times * (power == 1 ? share : share * share);
  }
  // Those of `count` values that are `apart` from the first, four at a time; the first `twice` of
  // all values are there twice.
  __device__ __forceinline__ void add(const T* values, unsigned first, unsigned apart,
                                      unsigned count, unsigned twice) {
    for (unsigned j = first; j < count; j += AHEAD * apart) {
      T next[AHEAD];
#pragma unroll
      for (unsigned i = 0; i < AHEAD; ++i)
        next[i] = j + i * apart < count ? values[j + i * apart] : T(0);
#pragma unroll
      for (unsigned i = 0; i < AHEAD; ++i) add(next[i], T(j + i * apart < twice ? 2 : 1));
    }
  }
  // The sum of a warp, in all of its lanes.
  __device__ __forceinline__ void join() {
    raise(largest_of_warp(top));
    total = sum_of(total, WARP);
  }
  // A part of the sum, as two numbers: totals of `count` parts, and then their tops.
  __device__ __forceinline__ void put(T* part, unsigned count) const {
    part[0] = total;
    part[count] = static_cast<T>(top);
  }
  // The sum of such parts, in all lanes of every warp, which add in the same order.
  __device__ __forceinline__ void join(const T* parts, unsigned count) {
    const unsigned lane = threadIdx.x % WARP;
    int most = -TOP<T>;
    for (unsigned i = lane; i < count; i += WARP) most = max(most, int(parts[count + i]));
    raise(largest_of_warp(most));
    total = T(0);
    for (unsigned i = lane; i < count; i += WARP)
      total += lowered(parts[i], int(parts[count + i]));
    total = sum_of(total, WARP);
  }
  // That of a block, in all of its threads.
  __device__ __forceinline__ void join(T (&parts)[2 * WARPS]) {
    join();
    if (threadIdx.x % WARP == 0) put(parts + threadIdx.x / WARP, WARPS);
    __syncthreads();
    join(parts, WARPS);
  }
  // sign(v) sqrt(|v|), or v, over its norm. Zeros stay zeros; NaN in the sum is NaN everywhere.
  __device__ __forceinline__ T over_norm(T value) const {
    if (total == T(0)) return value;
    const T share = fabs(value) * scale;
    return copysign(power == 1 ? sqrt(share / total) : share / sqrt(total), value);
  }
};

// The sums of the `chunks` of every image, two numbers for each block.
template <typename T>
__global__ void power_sums(const T* V, T* sums, unsigned values, unsigned chunks, int power) {
  __shared__ T parts[2 * WARPS];
  const size_t image = blockIdx.x / chunks;
  NormSum<T> sum(power);
  sum.add(V + image * values, blockIdx.x % chunks * BLOCK + threadIdx.x, chunks * BLOCK, values, 0);
  sum.join(parts);
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
  sum.join(parts);
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
    store_half(out + first, space, at, half, d);
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
  sum.join(parts);
  for (unsigned j = threadIdx.x; j < values; j += BLOCK) out[first + j] = sum.over_norm(v[j]);
}
