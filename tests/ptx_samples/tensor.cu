// Small products by tensor cores, with what the large ones have: rounded operands, fragments from
// global memory, from shared memory by ldmatrix, and slabs that are copied while others are used.
// They need sm_80. A warp makes 16 x 8 elements; sizes need not be multiples of that.

constexpr int ROWS = 16, COLUMNS = 8;

__device__ unsigned tf32(float x) {
  unsigned bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
  return bits;
}

__device__ unsigned bf16_pair(float low, float high) {
  unsigned bits;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
  return bits;
}

// sum += A B on tensor cores; what the lanes hold of A, B and the sum is in the PTX manual.
#define PRODUCT(name, instruction)                                                              \
  __device__ void name(float (&sum)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {       \
    asm volatile(instruction " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])                       \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));           \
  }
PRODUCT(multiply_tf32, "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32")
PRODUCT(multiply_bf16, "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32")
PRODUCT(multiply_f16, "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")

// What a lane holds: of A and of the sum in rows `group` and 8 below, of B in column `group`.
struct Lane {
  int group = threadIdx.x % 32 / 4, within = threadIdx.x % 4;
};

template <typename T>
__device__ T element(const T* x, int i, int j, int rows, int columns) {
  return i < rows && j < columns ? x[(size_t)i * columns + j] : T(0);
}

__device__ void store(float* C, const float (&sum)[4], int row, int column, int m, int n) {
  const Lane lane;
  for (int e = 0; e < 4; ++e) {
    const int i = row + lane.group + 8 * (e / 2), j = column + 2 * lane.within + e % 2;
    if (i < m && j < n) C[(size_t)i * n + j] = sum[e];
  }
}

// C = A B^T for A (m, k) and B (n, k), both rounded to TF32.
extern "C" __global__ void product_tf32(const float* __restrict__ A, const float* __restrict__ B,
                                        float* __restrict__ C, int m, int n, int k) {
  const Lane lane;
  const int row = blockIdx.y * ROWS, column = blockIdx.x * COLUMNS;
  float sum[4] = {};
#pragma unroll 1
  for (int start = 0; start < k; start += 8) {
    unsigned a[4], b[2];
    for (int r = 0; r < 4; ++r) {
      const int i = row + lane.group + 8 * (r % 2), j = start + lane.within + 4 * (r / 2);
      a[r] = tf32(element(A, i, j, m, k));
    }
    for (int r = 0; r < 2; ++r)
      b[r] = tf32(element(B, column + lane.group, start + lane.within + 4 * r, n, k));
    multiply_tf32(sum, a, b);
  }
  store(C, sum, row, column, m, n);
}

// The same, rounded to bfloat16.
extern "C" __global__ void product_bf16(const float* __restrict__ A, const float* __restrict__ B,
                                        float* __restrict__ C, int m, int n, int k) {
  const Lane lane;
  const int row = blockIdx.y * ROWS, column = blockIdx.x * COLUMNS;
  float sum[4] = {};
#pragma unroll 1
  for (int start = 0; start < k; start += 16) {
    unsigned a[4], b[2];
    for (int r = 0; r < 4; ++r) {
      const int i = row + lane.group + 8 * (r % 2), j = start + 2 * lane.within + 8 * (r / 2);
      a[r] = bf16_pair(element(A, i, j, m, k), element(A, i, j + 1, m, k));
    }
    for (int r = 0; r < 2; ++r) {
      const int i = column + lane.group, j = start + 2 * lane.within + 8 * r;
      b[r] = bf16_pair(element(B, i, j, n, k), element(B, i, j + 1, n, k));
    }
    multiply_bf16(sum, a, b);
  }
  store(C, sum, row, column, m, n);
}

// The same within the error of float32, by three products of TF32: x = high + low + a rest. Every
// slab starts from zero and is added by the thread, because tensor cores cut sums off.
extern "C" __global__ void product_3xtf32(const float* __restrict__ A, const float* __restrict__ B,
                                          float* __restrict__ C, int m, int n, int k) {
  const Lane lane;
  const int row = blockIdx.y * ROWS, column = blockIdx.x * COLUMNS;
  float sum[4] = {};
#pragma unroll 1
  for (int start = 0; start < k; start += 8) {
    unsigned a_high[4], a_low[4], b_high[2], b_low[2];
    for (int r = 0; r < 4; ++r) {
      const int i = row + lane.group + 8 * (r % 2), j = start + lane.within + 4 * (r / 2);
      const float x = element(A, i, j, m, k);
      a_high[r] = tf32(x);
      a_low[r] = tf32(x - __uint_as_float(a_high[r]));
    }
    for (int r = 0; r < 2; ++r) {
      const float x = element(B, column + lane.group, start + lane.within + 4 * r, n, k);
      b_high[r] = tf32(x);
      b_low[r] = tf32(x - __uint_as_float(b_high[r]));
    }
    float part[4] = {};
    multiply_tf32(part, a_low, b_high);
    multiply_tf32(part, a_high, b_low);
    multiply_tf32(part, a_high, b_high);
    for (int e = 0; e < 4; ++e) sum[e] += part[e];
  }
  store(C, sum, row, column, m, n);
}

// C = A B for A (m, k) and B (k, n) in float16: slabs in shared memory, loaded by ldmatrix, that of
// B transposed.
extern "C" __global__ void product_f16(const unsigned short* __restrict__ A,
                                       const unsigned short* __restrict__ B, float* __restrict__ C,
                                       int m, int n, int k) {
  __shared__ __align__(16) unsigned short left[ROWS][16 + 8];  // 8 more: no bank conflicts
  __shared__ __align__(16) unsigned short right[16][COLUMNS];
  const int row = blockIdx.y * ROWS, column = blockIdx.x * COLUMNS;
  const unsigned t = threadIdx.x;
  float sum[4] = {};
#pragma unroll 1
  for (int start = 0; start < k; start += 16) {
#pragma unroll 1
    for (unsigned e = t; e < ROWS * 16; e += 32)
      left[e / 16][e % 16] = element(A, row + e / 16, start + e % 16, m, k);
#pragma unroll 1
    for (unsigned e = t; e < 16 * COLUMNS; e += 32)
      right[e / COLUMNS][e % COLUMNS] =
          element(B, start + e / COLUMNS, column + e % COLUMNS, k, n);
    __syncwarp();
    unsigned a[4], b[2];
    const unsigned of_left = __cvta_generic_to_shared(&left[t % 16][8 * (t / 16)]);
    const unsigned of_right = __cvta_generic_to_shared(&right[t % 16][0]);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3]) : "r"(of_left) : "memory");
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                 : "=r"(b[0]), "=r"(b[1]) : "r"(of_right) : "memory");
    multiply_f16(sum, a, b);
    __syncwarp();
  }
  store(C, sum, row, column, m, n);
}

// Copy four floats to shared memory while the thread goes on; zeros where `there` is false.
__device__ void copy_four(float* to, const float* from, bool there) {
  const unsigned shared = __cvta_generic_to_shared(to);
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :: "r"(shared), "l"(from), "r"(there ? 16 : 0) : "memory");
}

__device__ void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

template <int LEFT>
__device__ void wait() {
  asm volatile("cp.async.wait_group %0;" :: "n"(LEFT) : "memory");
}

// C = A B^T in TF32, two warps below each other; while a slab is used the next one is copied. Rows
// must start at multiples of 16 bytes: k is a multiple of 4.
extern "C" __global__ void product_copied(const float* __restrict__ A, const float* __restrict__ B,
                                          float* __restrict__ C, int m, int n, int k) {
  constexpr int SLAB = 8, PADDED = SLAB + 4;
  __shared__ __align__(16) float left[2][2 * ROWS][PADDED], right[2][COLUMNS][PADDED];
  const Lane lane;
  const int row = blockIdx.y * 2 * ROWS, column = blockIdx.x * COLUMNS;
  const unsigned t = threadIdx.x, warp_row = t / 32 * ROWS;
  auto copy = [&](int start, int to) {
    const int line = t / 2, place = t % 2 * 4, j = start + place;
    const int i = row + line, other = column + line;
    copy_four(&left[to][line][place], A + (size_t)i * k + j, i < m && j < k);
    if (line < COLUMNS)
      copy_four(&right[to][line][place], B + (size_t)other * k + j, other < n && j < k);
  };
  float sum[4] = {};
  copy(0, 0);
  commit();
#pragma unroll 1
  for (int start = 0, now = 0; start < k; start += SLAB, now ^= 1) {
    if (start + SLAB < k) copy(start + SLAB, now ^ 1);
    commit();  // also if there is nothing left to copy: groups are counted
    wait<1>();
    __syncthreads();
    unsigned a[4], b[2];
    for (int r = 0; r < 4; ++r)
      a[r] = tf32(left[now][warp_row + lane.group + 8 * (r % 2)][lane.within + 4 * (r / 2)]);
    for (int r = 0; r < 2; ++r) b[r] = tf32(right[now][lane.group][lane.within + 4 * r]);
    multiply_tf32(sum, a, b);
    __syncthreads();
  }
  store(C, sum, row + warp_row, column, m, n);
}
