// Products work on tiles of 64 x 64 results. A thread has 8 x 8 of them in registers (4 x 4 in
// double), as 2 x 2 squares 32 apart, so that it reads its factors from shared memory 128 bits at a
// time and neighbouring threads read neighbouring words. The factors come 8 columns at a time into
// one of two slabs, while the other one is multiplied. Of symmetric products only tiles on and
// below the diagonal are computed. signatures.py has this compiled with tiles of 128 x 128 too.

constexpr unsigned TILE = 64;
constexpr unsigned HALF = 32;
constexpr unsigned STEP = 8;
constexpr unsigned SLABS = 4;

// Of a tile: results of a thread along each side, threads along each side and in all, the distance
// of rows in shared memory, and what a thread brings there of each factor.
template <typename T> constexpr unsigned SIDE = 2 * VECTOR<T>;
template <typename T> constexpr unsigned ACROSS = HALF / VECTOR<T>;
template <typename T> constexpr unsigned THREADS = ACROSS<T> * ACROSS<T>;
template <typename T> constexpr unsigned ROW = TILE + VECTOR<T>;
template <typename T> constexpr unsigned LOADS = TILE * STEP / THREADS<T>;

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

// The tile of a block, when `parts` blocks share one: its image, its number among the tiles of that,
// its row and column among them, its first row and column, and the part of the block.
struct Place {
  unsigned image, tiles, number, row, column, first, second, part;
  __device__ __forceinline__ Place(unsigned of_image, unsigned parts) {
    tiles = of_image;
    image = blockIdx.x / parts / tiles;
    number = blockIdx.x / parts % tiles;
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
// has room for two slabs of both factors, and is free after it. `add` makes the products of a slab.
template <typename T, typename Factors, typename Add>
__device__ __forceinline__ void multiply(T (&sums)[SIDE<T>][SIDE<T>], T* space, unsigned start,
                                         unsigned stop, const Factors& factors, const Add& add) {
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
    add(parts, space + slab % 2 * (2 * STEP * ROW<T>));
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

template <typename T, typename Factors>
__device__ __forceinline__ void multiply(T (&sums)[SIDE<T>][SIDE<T>], T* space, unsigned start,
                                         unsigned stop, const Factors& factors) {
  multiply(sums, space, start, stop, factors, [](auto& parts, const T* slab) {
    add_products(parts, slab);
  });
}
