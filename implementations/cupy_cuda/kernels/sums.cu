// Sums that stay in range, for norms: of any values, in one reading.

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
  // That of a block of so many warps, in all of its threads; `parts` has two numbers of each.
  __device__ __forceinline__ void join_warps(T* parts, unsigned warps) {
    join();
    if (threadIdx.x % WARP == 0) put(parts + threadIdx.x / WARP, warps);
    __syncthreads();
    join(parts, warps);
  }
  // sign(v) sqrt(|v|), or v, over its norm. Zeros stay zeros; NaN in the sum is NaN everywhere.
  __device__ __forceinline__ T over_norm(T value) const {
    if (total == T(0)) return value;
    const T share = fabs(value) * scale;
    return copysign(power == 1 ? sqrt(share / total) : share / sqrt(total), value);
  }
};
