// The kernels of cupy:cuda, for T = float and double. gpu.py compiles and launches them;
// signatures.py reads their parameters from here and compares what they are given.
//
// Products work on tiles of 64 x 64 results. A thread has 8 x 8 of them in registers (4 x 4 in
// double), as 2 x 2 squares 32 apart, so that it reads its factors from shared memory 128 bits at a
// time and neighbouring threads read neighbouring words. The factors come 8 columns at a time into
// one of two slabs, while the other one is multiplied. Of symmetric products only tiles on and
// below the diagonal are computed, and written twice.
//
// No kernel adds floating-point numbers atomically: where blocks share a sum, each writes its part
// and another kernel adds up the parts, in order. So results have the same bits every time.
//
// A block finds its image and its part of it in blockIdx.x alone, which may be large, unlike y and
// z. Positions in an image are 32-bit numbers, addresses 64-bit ones.

constexpr unsigned TILE = 64;
constexpr unsigned HALF = 32;
constexpr unsigned STEP = 8;
constexpr unsigned SLABS = 4;
constexpr unsigned BLOCK = 256;
constexpr unsigned WARP = 32;
constexpr unsigned WARPS = BLOCK / WARP;
constexpr unsigned FEATURES = 8;
constexpr unsigned PIECE = 8 * BLOCK;
constexpr unsigned ALL_LANES = 0xffffffffu;

enum Kind { SQUARE, RECTIFY, KEEP };

// Of a tile: numbers in 128 bits, results of a thread along each side, threads along each side and
// in all, the distance of rows in shared memory, and what a thread brings there of each factor.
template <typename T> constexpr unsigned VECTOR = 16 / sizeof(T);
template <typename T> constexpr unsigned SIDE = 2 * VECTOR<T>;
template <typename T> constexpr unsigned ACROSS = HALF / VECTOR<T>;
template <typename T> constexpr unsigned THREADS = ACROSS<T> * ACROSS<T>;
template <typename T> constexpr unsigned ROW = TILE + VECTOR<T>;
template <typename T> constexpr unsigned LOADS = TILE * STEP / THREADS<T>;

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

// 128 bits from shared memory to registers, and back. The compiler would take some loads of a
// float4 apart, other ones every time it is called.
#ifdef __CUDACC__
__device__ __forceinline__ void get(float* to, const float* from) {
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(to[0]), "=f"(to[1]), "=f"(to[2]), "=f"(to[3])
               : "r"(static_cast<unsigned>(__cvta_generic_to_shared(from)))
               : "memory");
}

__device__ __forceinline__ void get(double* to, const double* from) {
  asm volatile("ld.shared.v2.f64 {%0, %1}, [%2];"
               : "=d"(to[0]), "=d"(to[1])
               : "r"(static_cast<unsigned>(__cvta_generic_to_shared(from)))
               : "memory");
}
#else  // a compiler for the host, as a second opinion on the rest
template <typename T>
void get(T* to, const T* from) {
  for (unsigned i = 0; i < 16 / sizeof(T); ++i) to[i] = from[i];
}
#endif

__device__ __forceinline__ void put(float* to, const float* from) {
  *reinterpret_cast<float4*>(to) = make_float4(from[0], from[1], from[2], from[3]);
}

__device__ __forceinline__ void put(double* to, const double* from) {
  *reinterpret_cast<double2*>(to) = make_double2(from[0], from[1]);
}

// The tile of a block, when `parts` blocks share one: its image, its row and column among tiles,
// its first row and column, and the part of the block.
struct Place {
  unsigned image, row, column, first, second, part;
  __device__ __forceinline__ Place(unsigned tiles, unsigned parts) {
    const unsigned number = blockIdx.x / parts % tiles;
    image = blockIdx.x / parts / tiles;
    part = blockIdx.x % parts;
    row = triangle_row(number);
    column = number - row * (row + 1) / 2;
    first = row * TILE;
    second = column * TILE;
  }
};

// The factors of X X^T: number i of what a thread brings of each, and where it goes in a slab.
// Eight columns of four rows are four whole sectors, and 32 different banks. Beyond the last row
// the last one is read again, without a branch: its products are not kept. Beyond the last column
// are zeros.
template <typename T>
struct RowsOf {
  const T* x;
  unsigned n, d, first, second;

  static __device__ __forceinline__ unsigned slot(unsigned i) {
    return threadIdx.x % STEP * ROW<T> + threadIdx.x / STEP + i * (THREADS<T> / STEP);
  }
  __device__ __forceinline__ void read(unsigned start, unsigned i, T& row, T& column) const {
    const unsigned k = start + threadIdx.x % STEP;
    const unsigned r = threadIdx.x / STEP + i * (THREADS<T> / STEP);
    const T* values = x + min(k, d - 1);
    row = values[static_cast<size_t>(min(first + r, n - 1)) * d];
    column = values[static_cast<size_t>(min(second + r, n - 1)) * d];
    if (k >= d) row = column = T(0);
  }
};

// Those of X^T diag(a) X: neighbouring threads read neighbouring columns of one feature.
template <typename T>
struct ColumnsOf {
  const T *x, *a;
  unsigned n, d, first, second;
  bool weighted;

  static __device__ __forceinline__ unsigned slot(unsigned i) {
    return (threadIdx.x / TILE + i * (THREADS<T> / TILE)) * ROW<T> + threadIdx.x % TILE;
  }
  __device__ __forceinline__ void read(unsigned start, unsigned i, T& row, T& column) const {
    const unsigned feature = start + threadIdx.x / TILE + i * (THREADS<T> / TILE);
    const unsigned there = min(feature, n - 1);
    const T* values = x + static_cast<size_t>(there) * d;
    row = values[min(first + threadIdx.x % TILE, d - 1)];
    column = values[min(second + threadIdx.x % TILE, d - 1)];
    if (weighted) row *= a[there];
    if (feature >= n) row = column = T(0);
  }
};

// The products of the STEP columns of a slab, added to the results of a thread.
template <typename T>
__device__ __forceinline__ void add_products(T (&sums)[SIDE<T>][SIDE<T>], const T* slab) {
  const T* rows = slab + threadIdx.x / ACROSS<T> * VECTOR<T>;
  const T* columns = slab + STEP * ROW<T> + threadIdx.x % ACROSS<T> * VECTOR<T>;
#pragma unroll
  for (unsigned k = 0; k < STEP; ++k) {
    T row[SIDE<T>], column[SIDE<T>];
    get(row, rows + k * ROW<T>);
    get(row + VECTOR<T>, rows + k * ROW<T> + HALF);
    get(column, columns + k * ROW<T>);
    get(column + VECTOR<T>, columns + k * ROW<T> + HALF);
#pragma unroll
    for (unsigned i = 0; i < SIDE<T>; ++i)
#pragma unroll
      for (unsigned j = 0; j < SIDE<T>; ++j) sums[i][j] += row[i] * column[j];
  }
}

// A tile of a product from `start` to `stop`. Some slabs are added up on their own first: in one
// long sum of equal terms, as of an image of one colour, all rounding errors have one sign. `space`
// has room for two slabs of both factors, and is free after it.
template <typename T, typename Factors>
__device__ __forceinline__ void multiply(T (&sums)[SIDE<T>][SIDE<T>], T* space, unsigned start,
                                         unsigned stop, const Factors& factors) {
  if (start >= stop) return;  // nothing to add up: a whole block
  T parts[SIDE<T>][SIDE<T>] = {}, rows[LOADS<T>], columns[LOADS<T>];
  unsigned slab = 0;
#pragma unroll
  for (unsigned i = 0; i < LOADS<T>; ++i) {
    factors.read(start, i, rows[i], columns[i]);
    space[factors.slot(i)] = rows[i];
    space[STEP * ROW<T> + factors.slot(i)] = columns[i];
  }
  __syncthreads();
  while (start < stop) {
    start += STEP;
    T* next = space + (slab + 1) % 2 * (2 * STEP * ROW<T>);
    if (start < stop) {
#pragma unroll
      for (unsigned i = 0; i < LOADS<T>; ++i) factors.read(start, i, rows[i], columns[i]);
    }
    add_products(parts, space + slab % 2 * (2 * STEP * ROW<T>));
    ++slab;
    if (slab % SLABS == 0 || start >= stop) {
#pragma unroll
      for (unsigned i = 0; i < SIDE<T>; ++i)
#pragma unroll
        for (unsigned j = 0; j < SIDE<T>; ++j) {
          sums[i][j] += parts[i][j];
          parts[i][j] = T(0);
        }
    }
    if (start < stop) {
#pragma unroll
      for (unsigned i = 0; i < LOADS<T>; ++i) {
        next[factors.slot(i)] = rows[i];
        next[STEP * ROW<T> + factors.slot(i)] = columns[i];
      }
    }
    __syncthreads();
  }
}

template <typename T>
__device__ __forceinline__ T kernel_of(T product, int kind) {
  if (kind == SQUARE) return product * product;
  return kind == RECTIFY && product < T(0) ? T(0) : product;
}

// Sums of the rows of a tile of K, and of its mirror image, from 32 rows of it in `space`. A thread
// has a half of a row: it begins at another column than its neighbours, in another bank. It also
// has a row of the mirror image, of which it keeps the sum itself.
template <typename T>
struct RowSums {
  T (&halves)[2][TILE];
  T mirrored;

  __device__ __forceinline__ void add(const T* space, const Place& at, unsigned half, unsigned n) {
    if (threadIdx.x >= TILE) return;
    const unsigned r = threadIdx.x % HALF, part = threadIdx.x / HALF;
    const unsigned row = at.first + half * HALF + r;
    T total = T(0);
    for (unsigned i = 0; i < HALF; ++i) {
      const unsigned c = part * HALF + (i + r) % HALF;
      total += at.second + c <= row ? space[r * ROW<T> + c] : T(0);
      const unsigned column = at.first + half * HALF + i;
      const bool there = at.second + threadIdx.x < column && column < n;
      mirrored += there ? space[i * ROW<T> + threadIdx.x] : T(0);
    }
    halves[part][half * HALF + r] = total;
  }
  // Where the column of tiles has its sums of rows; `sums` has n numbers for each column.
  __device__ __forceinline__ void write(T* sums, const Place& at, unsigned n) const {
    if (threadIdx.x >= TILE) return;
    const unsigned row = at.first + threadIdx.x;
    T total = halves[0][threadIdx.x] + halves[1][threadIdx.x];
    if (at.row == at.column)
      total += mirrored;
    else
      sums[static_cast<size_t>(at.row) * n + at.second + threadIdx.x] = mirrored;
    if (row < n) sums[static_cast<size_t>(at.column) * n + row] = total;
  }
};

// 32 rows of a tile of a symmetric C from `space`, if they are new, and their mirror image. Of a
// tile on the diagonal the part above it is the mirror image of the part below, like any other:
// rounding must not make C less symmetric than it is.
template <typename T>
__device__ __forceinline__ void store_twice(T* C, const T* space, bool is_new, const Place& at,
                                            unsigned half, unsigned n) {
  const unsigned first = at.first + half * HALF;
  if (is_new) {
#pragma unroll 4
    for (unsigned turn = 0; turn < HALF * TILE / THREADS<T>; ++turn) {
      const unsigned i = turn * THREADS<T> + threadIdx.x;
      const unsigned row = first + i / TILE, column = at.second + i % TILE;
      if (row < n && column <= row)
        C[static_cast<size_t>(row) * n + column] = space[i / TILE * ROW<T> + i % TILE];
    }
  }
#pragma unroll 4
  for (unsigned turn = 0; turn < HALF * TILE / VECTOR<T> / THREADS<T>; ++turn) {
    const unsigned i = turn * THREADS<T> + threadIdx.x;
    const unsigned column = first + i % HALF;
    const unsigned c = i / HALF * VECTOR<T>;
    T values[VECTOR<T>];
    get(values, space + i % HALF * ROW<T> + c);
#pragma unroll
    for (unsigned j = 0; j < VECTOR<T>; ++j) {
      const unsigned row = at.second + c + j;
      if (row < column && column < n) C[static_cast<size_t>(row) * n + column] = values[j];
    }
  }
}

// The results of a thread to `space`, those of 32 rows of the tile.
template <typename T>
__device__ __forceinline__ void put_half(T* space, const T (&sums)[SIDE<T>][SIDE<T>],
                                         unsigned half) {
  T* own = space + threadIdx.x / ACROSS<T> * VECTOR<T> * ROW<T>;
  const unsigned column = threadIdx.x % ACROSS<T> * VECTOR<T>;
#pragma unroll
  for (unsigned i = 0; i < VECTOR<T>; ++i) {
    put(own + i * ROW<T> + column, sums[half * VECTOR<T> + i]);
    put(own + i * ROW<T> + column + HALF, sums[half * VECTOR<T> + i] + VECTOR<T>);
  }
}

// A whole tile of C, and the sums of its rows if it is one of K.
template <typename T>
__device__ __forceinline__ void finish(T* C, T* row_sums, T (&sums)[SIDE<T>][SIDE<T>], T* space,
                                       T (&halves)[2][TILE], const Place& at, unsigned n,
                                       int kind) {
  RowSums<T> of_rows{halves, T(0)};
#pragma unroll
  for (unsigned i = 0; i < SIDE<T>; ++i)
#pragma unroll
    for (unsigned j = 0; j < SIDE<T>; ++j) sums[i][j] = kernel_of(sums[i][j], kind);
#pragma unroll
  for (unsigned half = 0; half < 2; ++half) {
    put_half(space, sums, half);
    __syncthreads();
    store_twice(C, space, true, at, half, n);
    if (kind != KEEP) of_rows.add(space, at, half, n);
    __syncthreads();
  }
  if (kind != KEEP) of_rows.write(row_sums, at, n);
}

// The results of a thread as a part of a sum, and a sum of parts, in order. They are where the same
// thread finds them.
template <typename T>
__device__ __forceinline__ void put_part(T* parts, const T (&sums)[SIDE<T>][SIDE<T>]) {
  T* own = parts + static_cast<size_t>(blockIdx.x) * TILE * TILE + threadIdx.x;
#pragma unroll
  for (unsigned i = 0; i < SIDE<T> * SIDE<T>; ++i)
    own[i * THREADS<T>] = sums[i / SIDE<T>][i % SIDE<T>];
}

template <typename T>
__device__ __forceinline__ void add_parts(T (&sums)[SIDE<T>][SIDE<T>], const T* parts,
                                          unsigned count) {
  for (unsigned part = 0; part < count; ++part) {
    const size_t number = static_cast<size_t>(blockIdx.x) * count + part;
    const T* own = parts + number * TILE * TILE + threadIdx.x;
#pragma unroll
    for (unsigned i = 0; i < SIDE<T> * SIDE<T>; ++i)
      sums[i / SIDE<T>][i % SIDE<T>] += own[i * THREADS<T>];
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

// K = (X X^T)^2, or max(X X^T, 0), and its row sums, n numbers for each column of tiles; `tiles` in
// a triangle.
template <typename T>
__global__ __launch_bounds__(THREADS<T>) void gram(const T* X, T* K, T* row_sums, unsigned n,
                                                   unsigned d, unsigned tiles, int kind) {
  __shared__ __align__(16) T space[HALF * ROW<T>];
  __shared__ T halves[2][TILE];
  const Place at(tiles, 1);
  const size_t first = static_cast<size_t>(at.image) * n;
  T sums[SIDE<T>][SIDE<T>] = {};
  multiply(sums, space, 0, d, RowsOf<T>{X + first * d, n, d, at.first, at.second});
  const unsigned columns = (n + TILE - 1) / TILE;
  finish(K + first * n, row_sums + first * columns, sums, space, halves, at, n, kind);
}

// A = X^T diag(a) X of a batch; `tiles` in a triangle. For one image a library has SYRK.
template <typename T>
__global__ __launch_bounds__(THREADS<T>) void outer(const T* X, const T* a, T* A, unsigned n,
                                                    unsigned d, unsigned tiles, int weighted) {
  __shared__ __align__(16) T space[HALF * ROW<T>];
  __shared__ T halves[2][TILE];
  const Place at(tiles, 1);
  const size_t first = static_cast<size_t>(at.image) * n;
  T sums[SIDE<T>][SIDE<T>] = {};
  const ColumnsOf<T> factors{X + first * d, a + first, n, d, at.first, at.second, weighted != 0};
  multiply(sums, space, 0, n, factors);
  finish(A + static_cast<size_t>(at.image) * d * d, A, sums, space, halves, at, d, KEEP);
}

// Where there are too few tiles for a GPU: `count` blocks share one, and each has `length` columns
// of X, or features. What they found goes to `parts`, a tile for each block.
template <typename T>
__global__ __launch_bounds__(THREADS<T>) void gram_parts(const T* X, T* parts, unsigned n,
                                                         unsigned d, unsigned tiles, unsigned count,
                                                         unsigned length) {
  __shared__ __align__(16) T space[HALF * ROW<T>];
  const Place at(tiles, count);
  const T* x = X + static_cast<size_t>(at.image) * n * d;
  T sums[SIDE<T>][SIDE<T>] = {};
  const unsigned start = at.part * length;
  multiply(sums, space, start, min(start + length, d), RowsOf<T>{x, n, d, at.first, at.second});
  put_part(parts, sums);
}

template <typename T>
__global__ __launch_bounds__(THREADS<T>) void outer_parts(const T* X, const T* a, T* parts,
                                                          unsigned n, unsigned d, unsigned tiles,
                                                          unsigned count, unsigned length,
                                                          int weighted) {
  __shared__ __align__(16) T space[HALF * ROW<T>];
  const Place at(tiles, count);
  const size_t first = static_cast<size_t>(at.image) * n;
  T sums[SIDE<T>][SIDE<T>] = {};
  const unsigned start = at.part * length;
  const ColumnsOf<T> factors{X + first * d, a + first, n, d, at.first, at.second, weighted != 0};
  multiply(sums, space, start, min(start + length, n), factors);
  put_part(parts, sums);
}

// What `gram` or, with KEEP, `outer` would have found, from `count` parts of each tile.
template <typename T>
__global__ __launch_bounds__(THREADS<T>) void from_parts(const T* parts, T* C, T* row_sums,
                                                         unsigned n, unsigned tiles, unsigned count,
                                                         int kind) {
  __shared__ __align__(16) T space[HALF * ROW<T>];
  __shared__ T halves[2][TILE];
  const Place at(tiles, 1);
  const size_t first = static_cast<size_t>(at.image) * n;
  T sums[SIDE<T>][SIDE<T>] = {};
  add_parts(sums, parts, count);
  const unsigned columns = (n + TILE - 1) / TILE;
  finish(C + first * n, row_sums + first * columns, sums, space, halves, at, n, kind);
}

// The same from X X^T of one image, of which a library has made the lower triangle, in place. With
// KEEP the matrix is only mirrored, and nobody wants row sums.
template <typename T>
__global__ __launch_bounds__(THREADS<T>) void from_triangle(T* K, T* row_sums, unsigned n,
                                                            int kind) {
  __shared__ __align__(16) T space[HALF * ROW<T>];
  __shared__ T halves[2][TILE];
  const Place at(gridDim.x, 1);
  RowSums<T> of_rows{halves, T(0)};
  for (unsigned half = 0; half < 2; ++half) {
#pragma unroll 4
    for (unsigned turn = 0; turn < HALF * TILE / THREADS<T>; ++turn) {
      const unsigned i = turn * THREADS<T> + threadIdx.x;
      const unsigned p = at.first + half * HALF + i / TILE, q = at.second + i % TILE;
      const T product = p < n && q <= p ? K[static_cast<size_t>(p) * n + q] : T(0);
      space[i / TILE * ROW<T> + i % TILE] = kernel_of(product, kind);
    }
    __syncthreads();
    store_twice(K, space, kind != KEEP, at, half, n);
    if (kind != KEEP) of_rows.add(space, at, half, n);
    __syncthreads();
  }
  if (kind != KEEP) of_rows.write(row_sums, at, n);
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

// ---------------------------------------------------------------------- the normalised result ---

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
