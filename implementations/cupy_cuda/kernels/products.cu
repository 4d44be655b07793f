// Symmetric products, and what leaves a tile of them: one triangle or both, and sums.

// What becomes of a product, and whether it has row sums (the first two) and a mirror image (the
// first three). Of LOWER_p only the lower triangle is written, with the sum of |v|^p over both.
enum Kind { SQUARE, RECTIFY, KEEP, LOWER_1, LOWER_2 };

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

// 32 rows of a tile of a symmetric C: what `change` makes of them to `space`, and from there to C.
template <typename T, typename Change>
__device__ __forceinline__ void read_half(T* space, const T* C, const Place& at, unsigned half,
                                          unsigned n, Change change) {
#pragma unroll 4
  for (unsigned turn = 0; turn < HALF * TILE / THREADS<T>; ++turn) {
    const unsigned i = turn * THREADS<T> + threadIdx.x;
    const unsigned p = at.first + half * HALF + i / TILE, q = at.second + i % TILE;
    const T value = p < n && q <= p ? C[static_cast<size_t>(p) * n + q] : T(0);
    space[i / TILE * ROW<T> + i % TILE] = change(value);
  }
}

// From `space` to C. `also` gets every value, and whether it is beside the diagonal.
template <typename T, typename Also>
__device__ __forceinline__ void store_half(T* C, const T* space, const Place& at, unsigned half,
                                           unsigned n, Also also) {
#pragma unroll 4
  for (unsigned turn = 0; turn < HALF * TILE / THREADS<T>; ++turn) {
    const unsigned i = turn * THREADS<T> + threadIdx.x;
    const unsigned row = at.first + half * HALF + i / TILE, column = at.second + i % TILE;
    if (row < n && column <= row) {
      const T value = space[i / TILE * ROW<T> + i % TILE];
      C[static_cast<size_t>(row) * n + column] = value;
      also(value, column < row);
    }
  }
}

// Their mirror image. Of a tile on the diagonal the part above it is the mirror image of the part
// below, like any other: rounding must not make C less symmetric than it is.
template <typename T>
__device__ __forceinline__ void mirror_half(T* C, const T* space, const Place& at, unsigned half,
                                            unsigned n) {
  const unsigned first = at.first + half * HALF;
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

// A whole tile of C, and its part of `totals`: n row sums for each column of tiles, or for each tile
// two numbers of the sum for the norm. A kernel without one of them says so to the compiler.
template <bool HAS_ROW_SUMS, bool HAS_NORM, typename T>
__device__ __forceinline__ void finish(T* C, T* totals, T (&sums)[SIDE<T>][SIDE<T>], T* space,
                                       T (&halves)[2][TILE], const Place& at, unsigned n,
                                       int kind) {
  const bool with_rows = HAS_ROW_SUMS && kind < KEEP, with_norm = HAS_NORM && kind > KEEP;
  RowSums<T> of_rows{halves, T(0)};
  NormSum<T> of_both(kind - KEEP);
#pragma unroll
  for (unsigned i = 0; i < SIDE<T>; ++i)
#pragma unroll
    for (unsigned j = 0; j < SIDE<T>; ++j)
      if (HAS_ROW_SUMS) sums[i][j] = kernel_of(sums[i][j], kind);
#pragma unroll
  for (unsigned half = 0; half < 2; ++half) {
    put_half(space, sums, half);
    __syncthreads();
    store_half(C, space, at, half, n, [&](T value, bool is_twice) {
      if (with_norm) of_both.add(value, T(is_twice ? 2 : 1));
    });
    if (!with_norm) mirror_half(C, space, at, half, n);
    if (with_rows) of_rows.add(space, at, half, n);
    __syncthreads();
  }
  if (with_rows) of_rows.write(totals, at, n);
  if (with_norm) {
    of_both.join_warps(space, THREADS<T> / WARP);
    if (threadIdx.x == 0) of_both.put(totals + at.number, at.tiles);
  }
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

// K = (X X^T)^2, or max(X X^T, 0), and its row sums, n numbers for each column of tiles; `tiles` in
// a triangle.
template <typename T>
__global__ __launch_bounds__(THREADS<T>, BLOCKS<T>) void gram(
    const T* X, T* K, T* row_sums, unsigned n, unsigned d, unsigned tiles, int kind) {
  __shared__ __align__(16) T space[HALF * ROW<T>];
  __shared__ T halves[2][TILE];
  const Place at(tiles, 1);
  const size_t first = static_cast<size_t>(at.image) * n;
  T sums[SIDE<T>][SIDE<T>] = {};
  multiply(sums, space, 0, d, RowsOf<T>{X + first * d, n, d, at.first, at.second});
  const unsigned columns = (n + TILE - 1) / TILE;
  finish<true, false>(K + first * n, row_sums + first * columns, sums, space, halves, at, n, kind);
}

// A = X^T diag(a) X of a batch, or with LOWER_p its lower triangle and, for each of the `tiles` in a
// triangle, its part of the sum for the norm.
template <typename T>
__global__ __launch_bounds__(THREADS<T>, BLOCKS<T>) void outer(
    const T* X, const T* a, T* A, T* norm_sums, unsigned n, unsigned d, unsigned tiles,
    int weighted, int kind) {
  __shared__ __align__(16) T space[HALF * ROW<T>];
  __shared__ T halves[2][TILE];
  const Place at(tiles, 1);
  const size_t first = static_cast<size_t>(at.image) * n;
  T sums[SIDE<T>][SIDE<T>] = {};
  const ColumnsOf<T> factors{X + first * d, a + first, n, d, at.first, at.second, weighted != 0};
  multiply(sums, space, 0, n, factors);
  T* own_sums = norm_sums + static_cast<size_t>(at.image) * 2 * tiles;
  const size_t matrix = static_cast<size_t>(at.image) * d * d;
  finish<false, true>(A + matrix, own_sums, sums, space, halves, at, d, kind);
}

// Where there are too few tiles for a GPU: `count` blocks share one, and each has `length` columns
// of X, or features. What they found goes to `parts`, a tile for each block.
template <typename T>
__global__ __launch_bounds__(THREADS<T>, BLOCKS<T>) void gram_parts(
    const T* X, T* parts, unsigned n, unsigned d, unsigned tiles, unsigned count, unsigned length) {
  __shared__ __align__(16) T space[HALF * ROW<T>];
  const Place at(tiles, count);
  const T* x = X + static_cast<size_t>(at.image) * n * d;
  T sums[SIDE<T>][SIDE<T>] = {};
  const unsigned start = at.part * length;
  multiply(sums, space, start, min(start + length, d), RowsOf<T>{x, n, d, at.first, at.second});
  put_part(parts, sums);
}

template <typename T>
__global__ __launch_bounds__(THREADS<T>, BLOCKS<T>) void outer_parts(
    const T* X, const T* a, T* parts, unsigned n, unsigned d, unsigned tiles, unsigned count,
    unsigned length, int weighted) {
  __shared__ __align__(16) T space[HALF * ROW<T>];
  const Place at(tiles, count);
  const size_t first = static_cast<size_t>(at.image) * n;
  T sums[SIDE<T>][SIDE<T>] = {};
  const unsigned start = at.part * length;
  const ColumnsOf<T> factors{X + first * d, a + first, n, d, at.first, at.second, weighted != 0};
  multiply(sums, space, start, min(start + length, n), factors);
  put_part(parts, sums);
}

// What `gram` or, from KEEP on, `outer` would have found, from `count` parts of each tile.
template <typename T>
__global__ __launch_bounds__(THREADS<T>) void from_parts(const T* parts, T* C, T* totals,
                                                         unsigned n, unsigned tiles, unsigned count,
                                                         int kind) {
  __shared__ __align__(16) T space[HALF * ROW<T>];
  __shared__ T halves[2][TILE];
  const Place at(tiles, 1);
  const size_t first = static_cast<size_t>(at.image) * n;
  T sums[SIDE<T>][SIDE<T>] = {};
  add_parts(sums, parts, count);
  const unsigned columns = (n + TILE - 1) / TILE;
  T* own = totals + (kind > KEEP ? static_cast<size_t>(at.image) * 2 * tiles : first * columns);
  finish<true, true>(C + first * n, own, sums, space, halves, at, n, kind);
}

// The same from X X^T, of which a library has made the lower triangle, in place. With KEEP the matrix
// is only mirrored, and nobody wants row sums.
template <typename T>
__global__ __launch_bounds__(THREADS<T>) void from_triangle(T* K, T* row_sums, unsigned n,
                                                            unsigned tiles, int kind) {
  __shared__ __align__(16) T space[HALF * ROW<T>];
  __shared__ T halves[2][TILE];
  const Place at(tiles, 1);
  const size_t first = static_cast<size_t>(at.image) * n;
  T* own = K + first * n;
  RowSums<T> of_rows{halves, T(0)};
  for (unsigned half = 0; half < 2; ++half) {
    read_half(space, own, at, half, n, [=](T product) { return kernel_of(product, kind); });
    __syncthreads();
    if (kind != KEEP) store_half(own, space, at, half, n, [](T, bool) {});
    mirror_half(own, space, at, half, n);
    if (kind != KEEP) of_rows.add(space, at, half, n);
    __syncthreads();
  }
  if (kind != KEEP) of_rows.write(row_sums + first * ((n + TILE - 1) / TILE), at, n);
}
