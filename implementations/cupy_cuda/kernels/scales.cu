// The magnitude of features: found, taken off, and put back into their weights.

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
