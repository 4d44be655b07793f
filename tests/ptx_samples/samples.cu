// Small kernels that have what the large ones have: tiles, barriers, shuffles, votes, atomics,
// vector loads, dynamic shared memory. They are run from their PTX by the tests.

constexpr int TILE = 16;

// K = (X X^T)^2 for every image: tiles of X in shared memory, padded against bank conflicts.
template <typename T>
__global__ void squared_gram(const T* __restrict__ X, T* __restrict__ K, int n, int d) {
  __shared__ T rows[TILE][TILE + 1];
  __shared__ T columns[TILE][TILE + 1];
  const int tx = threadIdx.x, ty = threadIdx.y;
  const int i = blockIdx.y * TILE + ty, j = blockIdx.x * TILE + tx;
  const T* image = X + (size_t)blockIdx.z * n * d;
  T sum = T(0);
  for (int start = 0; start < d; start += TILE) {
    const int k = start + tx, other = blockIdx.x * TILE + ty;
    rows[ty][tx] = (i < n && k < d) ? image[(size_t)i * d + k] : T(0);
    columns[ty][tx] = (other < n && k < d) ? image[(size_t)other * d + k] : T(0);
    __syncthreads();
    for (int k = 0; k < TILE; ++k) sum += rows[ty][k] * columns[tx][k];
    __syncthreads();
  }
  if (i < n && j < n) K[((size_t)blockIdx.z * n + i) * n + j] = sum * sum;
}

// Dampened Sinkhorn, one block per image; both weight vectors in dynamic shared memory.
extern "C" __global__ void sinkhorn(const float* __restrict__ K, float* __restrict__ weights, int n,
                                    float target, float tau, int iterations) {
  extern __shared__ float memory[];
  float *now = memory, *next = memory + n;
  const float* image = K + (size_t)blockIdx.x * n * n;
  for (int i = threadIdx.x; i < n; i += blockDim.x) now[i] = 1.0f;
  __syncthreads();
  for (int step = 0; step < iterations; ++step) {
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
      float sum = 0.0f;
      for (int j = 0; j < n; ++j) sum += image[(size_t)i * n + j] * now[j];
      next[i] = now[i] / __powf(now[i] * sum / target, tau);
    }
    __syncthreads();
    float* other = now;
    now = next;
    next = other;
  }
  for (int i = threadIdx.x; i < n; i += blockDim.x) weights[(size_t)blockIdx.x * n + i] = now[i];
}

// A sum over everything: a tree in every block, one atomic for each of them.
extern "C" __global__ void total(const double* __restrict__ x, double* sum, int n) {
  __shared__ double part[128];
  const int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  part[t] = i < n ? x[i] : 0.0;
  __syncthreads();
  for (int half = blockDim.x / 2; half > 0; half >>= 1) {
    if (t < half) part[t] += part[t + half];
    __syncthreads();
  }
  if (t == 0) atomicAdd(sum, part[0]);
}

// Row sums, a warp for each row, by shuffles; rows without a positive element are marked with -1.
extern "C" __global__ void row_sums(const float* __restrict__ x, float* __restrict__ sums, int rows,
                                    int columns) {
  const int lane = threadIdx.x & 31, row = (blockIdx.x * blockDim.x + threadIdx.x) >> 5;
  if (row >= rows) return;  // a whole warp leaves
  float sum = 0.0f;
  bool positive = false;
  for (int j = lane; j < columns; j += 32) {
    const float value = x[(size_t)row * columns + j];
    sum += value;
    positive |= value > 0.0f;
  }
  for (int step = 16; step > 0; step >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  const unsigned votes = __ballot_sync(0xffffffffu, positive);
  if (lane == 0) sums[row] = votes ? sum : -1.0f;
}

// Count sketch of every row: a histogram in shared memory, then one store of each bucket.
extern "C" __global__ void count_sketch(const float* __restrict__ x, const int* __restrict__ bucket,
                                        const float* __restrict__ sign, float* __restrict__ out,
                                        int d, int k) {
  extern __shared__ float buckets[];
  for (int i = threadIdx.x; i < k; i += blockDim.x) buckets[i] = 0.0f;
  __syncthreads();
  for (int j = threadIdx.x; j < d; j += blockDim.x)
    atomicAdd(&buckets[bucket[j]], sign[j] * x[(size_t)blockIdx.x * d + j]);
  __syncthreads();
  for (int i = threadIdx.x; i < k; i += blockDim.x) out[(size_t)blockIdx.x * k + i] = buckets[i];
}

// sign(x) sqrt(|x|) / its norm, four values at a time; one block per row of 4 * quads values.
extern "C" __global__ void signed_root(const float4* __restrict__ x, float4* __restrict__ out,
                                       int quads) {
  __shared__ float parts[32];
  const float4* row = x + (size_t)blockIdx.x * quads;
  float sum = 0.0f;
  for (int i = threadIdx.x; i < quads; i += blockDim.x) {
    const float4 v = row[i];
    sum += fabsf(v.x) + fabsf(v.y) + fabsf(v.z) + fabsf(v.w);
  }
  for (int step = 16; step > 0; step >>= 1) sum += __shfl_down_sync(0xffffffffu, sum, step);
  if ((threadIdx.x & 31) == 0) parts[threadIdx.x >> 5] = sum;
  __syncthreads();
  float norm = 0.0f;
  for (int w = 0; w < blockDim.x / 32; ++w) norm += parts[w];
  const float scale = norm > 0.0f ? rsqrtf(norm) : 0.0f;
  for (int i = threadIdx.x; i < quads; i += blockDim.x) {
    const float4 v = row[i];
    float4 r;
    r.x = copysignf(sqrtf(fabsf(v.x)), v.x) * scale;
    r.y = copysignf(sqrtf(fabsf(v.y)), v.y) * scale;
    r.z = copysignf(sqrtf(fabsf(v.z)), v.z) * scale;
    r.w = copysignf(sqrtf(fabsf(v.w)), v.w) * scale;
    out[(size_t)blockIdx.x * quads + i] = r;
  }
}

// Through a tile in shared memory, so that both sides are read and written in rows.
extern "C" __global__ void transpose(const float* __restrict__ x, float* __restrict__ out, int rows,
                                     int columns) {
  __shared__ float tile[TILE][TILE + 1];
  int row = blockIdx.y * TILE + threadIdx.y, column = blockIdx.x * TILE + threadIdx.x;
  if (row < rows && column < columns)
    tile[threadIdx.y][threadIdx.x] = x[(size_t)row * columns + column];
  __syncthreads();
  row = blockIdx.y * TILE + threadIdx.x;
  column = blockIdx.x * TILE + threadIdx.y;
  if (row < rows && column < columns)
    out[(size_t)column * rows + row] = tile[threadIdx.x][threadIdx.y];
}

// Every block leaves a partial sum; the last one to finish adds them up (a fence and a counter).
extern "C" __global__ void last_block_sum(const float* __restrict__ x, float* partial,
                                          unsigned* finished, float* sum, int n) {
  __shared__ bool last;
  float mine = 0.0f;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    mine += x[i];
  for (int step = 16; step > 0; step >>= 1) mine += __shfl_down_sync(0xffffffffu, mine, step);
  if (threadIdx.x == 0) {
    partial[blockIdx.x] = mine;
    __threadfence();
    last = atomicAdd(finished, 1u) == gridDim.x - 1;
  }
  __syncthreads();
  if (!last) return;
  float all = 0.0f;
  for (int b = threadIdx.x; b < gridDim.x; b += blockDim.x) all += partial[b];
  for (int step = 16; step > 0; step >>= 1) all += __shfl_down_sync(0xffffffffu, all, step);
  if (threadIdx.x == 0) *sum = all;
}
