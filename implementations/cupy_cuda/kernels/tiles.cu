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

// Blocks of a product that a multiprocessor has registers for at once: 256 threads, in double 512.
// Without the number the compiler may make room for more by reading the next slab too late.
template <typename T> constexpr unsigned BLOCKS = 64 * sizeof(T) / THREADS<T>;

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

// What a thread has read of both factors, and a weight. It waits for memory where it first uses
// them: nothing is done to them before the products of the slab before are made.
template <typename T>
struct Brought {
  T rows[LOADS<T>], columns[LOADS<T>], weight;
};

// The factors of X X^T, as a thread brings its share of a slab from global memory to shared memory.
// Eight columns of four rows are four whole sectors, and 32 different banks. Beyond the last row
// the last one is read again, without a branch: its products are not kept. Beyond the last column
// are zeros.
template <typename T>
struct RowsOf {
  const T* x;
  unsigned n, d, first, second;

  __device__ __forceinline__ Brought<T> read(unsigned start) const {
    Brought<T> found;
    const unsigned k = start + threadIdx.x % STEP;
    const T* values = x + k;
#pragma unroll
    for (unsigned i = 0; i < LOADS<T>; ++i) {
      const unsigned r = threadIdx.x / STEP + i * (THREADS<T> / STEP);
      found.rows[i] = fetch_if(k < d, values + static_cast<size_t>(min(first + r, n - 1)) * d);
      found.columns[i] = fetch_if(k < d, values + static_cast<size_t>(min(second + r, n - 1)) * d);
    }
    return found;
  }
  __device__ __forceinline__ void write(T* slab, const Brought<T>& found) const {
    T* own = slab + threadIdx.x % STEP * ROW<T> + threadIdx.x / STEP;
#pragma unroll
    for (unsigned i = 0; i < LOADS<T>; ++i) {
      own[i * (THREADS<T> / STEP)] = found.rows[i];
      own[STEP * ROW<T> + i * (THREADS<T> / STEP)] = found.columns[i];
    }
  }
};

// Those of X^T diag(a) X: neighbouring threads read neighbouring columns of one feature. Lanes have
// the weights of a slab, in turn.
template <typename T>
struct ColumnsOf {
  const T *x, *a;
  unsigned n, d, first, second;
  bool weighted;

  __device__ __forceinline__ Brought<T> read(unsigned start) const {
    Brought<T> found;
    const unsigned k = start + threadIdx.x % STEP;
    found.weight = fetch_if(k < n, a + k);
#pragma unroll
    for (unsigned i = 0; i < LOADS<T>; ++i) {
      const unsigned feature = start + threadIdx.x / TILE + i * (THREADS<T> / TILE);
      const T* values = x + static_cast<size_t>(feature) * d;
      found.rows[i] = fetch_if(feature < n, values + min(first + threadIdx.x % TILE, d - 1));
      found.columns[i] = fetch_if(feature < n, values + min(second + threadIdx.x % TILE, d - 1));
    }
    return found;
  }
  __device__ __forceinline__ void write(T* slab, const Brought<T>& found) const {
#pragma unroll
    for (unsigned i = 0; i < LOADS<T>; ++i) {
      const unsigned k = threadIdx.x / TILE + i * (THREADS<T> / TILE);
      T* own = slab + k * ROW<T> + threadIdx.x % TILE;
      const T weight = __shfl_sync(ALL_LANES, weighted ? found.weight : T(1), k);
      own[0] = found.rows[i] * weight;
      own[STEP * ROW<T>] = found.columns[i];
    }
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
  unsigned slab = 0;
  factors.write(space, factors.read(start));
  __syncthreads();
  while (start < stop) {
    const unsigned end = min(stop, start + SLABS * STEP);
    T parts[SIDE<T>][SIDE<T>] = {};
    // No branch: the assembler would move the loads past the products, to where they are used. So
    // the last turn reads a slab that nobody wants, in part beyond the end.
    do {
      start += STEP;
      const Brought<T> found = factors.read(start);
      add(parts, space + slab % 2 * (2 * STEP * ROW<T>));
      ++slab;
      factors.write(space + slab % 2 * (2 * STEP * ROW<T>), found);
      __syncthreads();
    } while (start < end);
#pragma unroll
    for (unsigned i = 0; i < SIDE<T>; ++i)
#pragma unroll
      for (unsigned j = 0; j < SIDE<T>; ++j) sums[i][j] += parts[i][j];
  }
}

template <typename T, typename Factors>
__device__ __forceinline__ void multiply(T (&sums)[SIDE<T>][SIDE<T>], T* space, unsigned start,
                                         unsigned stop, const Factors& factors) {
  multiply(sums, space, start, stop, factors, [](auto& parts, const T* slab) {
    add_products(parts, slab);
  });
}
