// The kernels of cupy:cuda, for T = float and double: this file and those beside it, which are
// compiled as one. signatures.py has their order, reads their parameters from here and compares
// what they are given.
//
// No kernel adds floating-point numbers atomically: where blocks share a sum, each writes its part
// and another kernel adds up the parts, in order. So results have the same bits every time.
//
// A block finds its image and its part of it in blockIdx.x alone, which may be large, unlike y and
// z. Positions in an image are 32-bit numbers, addresses 64-bit ones.

constexpr unsigned BLOCK = 256;
constexpr unsigned WARP = 32;
constexpr unsigned WARPS = BLOCK / WARP;
constexpr unsigned ALL_LANES = 0xffffffffu;

// Numbers in 128 bits.
template <typename T> constexpr unsigned VECTOR = 16 / sizeof(T);

template <typename T>
__device__ __forceinline__ T sum_of(T value, unsigned lanes) {
  for (unsigned step = lanes / 2; step > 0; step /= 2)
    value += __shfl_xor_sync(ALL_LANES, value, step);
  return value;
}

__device__ __forceinline__ float larger(float a, float b) { return fmax(a, b); }
__device__ __forceinline__ double larger(double a, double b) { return fmax(a, b); }
__device__ __forceinline__ int larger(int a, int b) { return max(a, b); }
__device__ __forceinline__ long long larger(long long a, long long b) { return max(a, b); }

template <typename T>
__device__ __forceinline__ T largest_of_warp(T value) {
  for (unsigned step = WARP / 2; step > 0; step /= 2)
    value = larger(value, __shfl_xor_sync(ALL_LANES, value, step));
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

// A number from global memory, or zero where it is not wanted: without a branch, and without a use of
// it, at which a thread would wait for memory.
__device__ __forceinline__ float fetch_if(bool wanted, const float* from) {
  float value;
  asm volatile("{ .reg .pred p; setp.ne.u32 p, %2, 0; mov.f32 %0, 0f00000000;\n"
               "@p ld.global.f32 %0, [%1]; }"
               : "=f"(value) : "l"(from), "r"(static_cast<unsigned>(wanted)) : "memory");
  return value;
}

__device__ __forceinline__ double fetch_if(bool wanted, const double* from) {
  double value;
  asm volatile("{ .reg .pred p; setp.ne.u32 p, %2, 0; mov.f64 %0, 0d0000000000000000;\n"
               "@p ld.global.f64 %0, [%1]; }"
               : "=d"(value) : "l"(from), "r"(static_cast<unsigned>(wanted)) : "memory");
  return value;
}
#else  // a compiler for the host, as a second opinion on the rest
template <typename T>
void get(T* to, const T* from) {
  for (unsigned i = 0; i < 16 / sizeof(T); ++i) to[i] = from[i];
}
template <typename T>
T fetch_if(bool wanted, const T* from) {
  return wanted ? *from : T(0);
}
#endif

// The same from global memory.
__device__ __forceinline__ void fetch(float* to, const float* from) {
  const float4 values = *reinterpret_cast<const float4*>(from);
  to[0] = values.x, to[1] = values.y, to[2] = values.z, to[3] = values.w;
}

__device__ __forceinline__ void fetch(double* to, const double* from) {
  const double2 values = *reinterpret_cast<const double2*>(from);
  to[0] = values.x, to[1] = values.y;
}

__device__ __forceinline__ void put(float* to, const float* from) {
  *reinterpret_cast<float4*>(to) = make_float4(from[0], from[1], from[2], from[3]);
}

__device__ __forceinline__ void put(double* to, const double* from) {
  *reinterpret_cast<double2*>(to) = make_double2(from[0], from[1]);
}
