// The same products of float32 on tensor cores, each by three of TF32, which has 11 bits. They need
// sm_80, and are compiled on their own. docs/reference/ptx.md has their error.
//
// x = high + low + a rest that is left out; so is low low'. Every slab starts from zero, and threads
// add it to its sum: tensor cores cut sums off, threads round.

#ifdef __CUDACC__  // the tests have these two for a host
__device__ __forceinline__ unsigned to_tf32(float x) {
  unsigned bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
  return bits;
}

// sum += A B of 16 x 8 x 8; which elements the lanes have is in the PTX manual.
__device__ __forceinline__ void multiply_tf32(float (&sum)[4], const unsigned (&a)[4],
                                              const unsigned (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#endif

// What a lane has of a factor.
template <unsigned COUNT>
struct Parts {
  unsigned high[COUNT], low[COUNT];

  __device__ __forceinline__ void split(unsigned i, float x) {
    high[i] = to_tf32(x);
    low[i] = to_tf32(x - __uint_as_float(high[i]));
  }
};

// The results of a thread are numbered as its warp's: 32 rows of the tile, as 2 x 8 squares of
// 16 x 8 with 4 results each.
constexpr unsigned HIGH = 16, WIDE = 8;

__device__ __forceinline__ unsigned row_of(unsigned result) {
  return result / 32 * HIGH + result % 4 / 2 * 8 + threadIdx.x % WARP / 4;
}

__device__ __forceinline__ unsigned column_of(unsigned result) {
  return result / 4 % 8 * WIDE + threadIdx.x % 4 * 2 + result % 2;
}

// As add_products. Which column of the slab a lane takes for which of its elements does not matter,
// if both factors agree: two neighbouring ones, so that no two lanes read from one bank.
struct AddTf32 {
  __device__ __forceinline__ void operator()(float (&sums)[8][8], const float* slab) const {
    const unsigned group = threadIdx.x % WARP / 4, k = threadIdx.x % 4 * 2;
    const float* rows = slab + k * ROW<float> + threadIdx.x / WARP * HALF + group;
    const float* columns = slab + (STEP + k) * ROW<float> + group;
    Parts<4> a[2];
#pragma unroll
    for (unsigned m = 0; m < 2; ++m)
#pragma unroll
      for (unsigned i = 0; i < 4; ++i)
        a[m].split(i, rows[i / 2 * ROW<float> + m * HIGH + i % 2 * 8]);
#pragma unroll
    for (unsigned w = 0; w < 8; ++w) {
      Parts<2> b;
#pragma unroll
      for (unsigned i = 0; i < 2; ++i) b.split(i, columns[i * ROW<float> + w * WIDE]);
#pragma unroll
      for (unsigned m = 0; m < 2; ++m) {
        float part[4] = {};
        multiply_tf32(part, a[m].low, b.high);
        multiply_tf32(part, a[m].high, b.low);
        multiply_tf32(part, a[m].high, b.high);
#pragma unroll
        for (unsigned e = 0; e < 4; ++e) sums[m * 4 + w / 2][w % 2 * 4 + e] += part[e];
      }
    }
  }
};

// A tile of a product, with the results of threads where `multiply` leaves them.
template <typename Factors>
__device__ __forceinline__ void multiply_on_cores(float (&sums)[8][8], float* space,
                                                  unsigned start, unsigned stop,
                                                  const Factors& factors) {
  float own[8][8] = {};
  multiply(own, space, start, stop, factors, AddTf32());
  float* first = space + threadIdx.x / ACROSS<float> * 4 * ROW<float>;
  const unsigned column = threadIdx.x % ACROSS<float> * 4;
#pragma unroll
  for (unsigned half = 0; half < 2; ++half) {
    if (threadIdx.x / WARP == half) {
#pragma unroll
      for (unsigned i = 0; i < 64; ++i)
        space[row_of(i) * ROW<float> + column_of(i)] = own[i / 8][i % 8];
    }
    __syncthreads();
#pragma unroll
    for (unsigned i = 0; i < 4; ++i) {
      get(sums[half * 4 + i], first + i * ROW<float> + column);
      get(sums[half * 4 + i] + 4, first + i * ROW<float> + column + HALF);
    }
    __syncthreads();
  }
}

// As the kernels of these names without the ending.
template <typename T>
__global__ __launch_bounds__(THREADS<T>, BLOCKS<T>) void gram_tf32(
    const T* X, T* K, T* row_sums, unsigned n, unsigned d, unsigned tiles, int kind) {
  __shared__ __align__(16) T space[HALF * ROW<T>];
  __shared__ T halves[2][TILE];
  const Place at(tiles, 1);
  const size_t first = static_cast<size_t>(at.image) * n;
  T sums[SIDE<T>][SIDE<T>];
  multiply_on_cores(sums, space, 0, d, RowsOf<T>{X + first * d, n, d, at.first, at.second});
  const unsigned columns = (n + TILE - 1) / TILE;
  finish<true, false>(K + first * n, row_sums + first * columns, sums, space, halves, at, n, kind);
}

template <typename T>
__global__ __launch_bounds__(THREADS<T>, BLOCKS<T>) void outer_tf32(
    const T* X, const T* a, T* A, T* norm_sums, unsigned n, unsigned d, unsigned tiles,
    int weighted, int kind) {
  __shared__ __align__(16) T space[HALF * ROW<T>];
  __shared__ T halves[2][TILE];
  const Place at(tiles, 1);
  const size_t first = static_cast<size_t>(at.image) * n;
  T sums[SIDE<T>][SIDE<T>];
  const ColumnsOf<T> factors{X + first * d, a + first, n, d, at.first, at.second, weighted != 0};
  multiply_on_cores(sums, space, 0, n, factors);
  T* own_sums = norm_sums + static_cast<size_t>(at.image) * 2 * tiles;
  const size_t matrix = static_cast<size_t>(at.image) * d * d;
  finish<false, true>(A + matrix, own_sums, sums, space, halves, at, d, kind);
}

template <typename T>
__global__ __launch_bounds__(THREADS<T>, BLOCKS<T>) void gram_parts_tf32(
    const T* X, T* parts, unsigned n, unsigned d, unsigned tiles, unsigned count, unsigned length) {
  __shared__ __align__(16) T space[HALF * ROW<T>];
  const Place at(tiles, count);
  const T* x = X + static_cast<size_t>(at.image) * n * d;
  T sums[SIDE<T>][SIDE<T>];
  const unsigned start = at.part * length;
  const RowsOf<T> factors{x, n, d, at.first, at.second};
  multiply_on_cores(sums, space, start, min(start + length, d), factors);
  put_part(parts, sums);
}

template <typename T>
__global__ __launch_bounds__(THREADS<T>, BLOCKS<T>) void outer_parts_tf32(
    const T* X, const T* a, T* parts, unsigned n, unsigned d, unsigned tiles, unsigned count,
    unsigned length, int weighted) {
  __shared__ __align__(16) T space[HALF * ROW<T>];
  const Place at(tiles, count);
  const size_t first = static_cast<size_t>(at.image) * n;
  T sums[SIDE<T>][SIDE<T>];
  const unsigned start = at.part * length;
  const ColumnsOf<T> factors{X + first * d, a + first, n, d, at.first, at.second, weighted != 0};
  multiply_on_cores(sums, space, start, min(start + length, n), factors);
  put_part(parts, sums);
}
