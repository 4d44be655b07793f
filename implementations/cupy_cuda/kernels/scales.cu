// The magnitude of features: found, taken off, and put back into their weights.

// The bits of |value|, which are ordered as magnitudes are; infinity and NaN come last.
__device__ __forceinline__ int magnitude_bits(float value) {
  return __float_as_int(value) & 0x7fffffff;
}

__device__ __forceinline__ long long magnitude_bits(double value) {
  return __double_as_longlong(value) & 0x7fffffffffffffffLL;
}

// Whether a row is not ordinary: its largest magnitude is neither from `low` to `high` nor, if rows
// of zeros may be there, 0. A warp for each row; `found` starts at 0. No number is worked on as one,
// so NaN is not passed over and subnormal numbers are not zero.
template <typename T>
__global__ void unordinary(const T* X, int* found, size_t rows, unsigned d, T low, T high,
                           int zero_rows) {
  const size_t row = static_cast<size_t>(blockIdx.x) * WARPS + threadIdx.x / WARP;
  if (row >= rows) return;  // a whole warp
  const T* x = X + row * d;
  auto most = magnitude_bits(T(0));
  for (unsigned j = threadIdx.x % WARP; j < d; j += WARP) most = larger(most, magnitude_bits(x[j]));
  most = largest_of_warp(most);
  const bool inside = most >= magnitude_bits(low) && most <= magnitude_bits(high);
  if (!inside && (most != 0 || zero_rows == 0) && threadIdx.x % WARP == 0) atomicMax(found, 1);
}

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
