// CUDA C on the host: enough of it for g++ to compile the kernels unchanged, as a second opinion on
// what they do. Every thread of a block is a fiber; the fibers of a block run in a given order,
// switching only where CUDA lets threads wait for each other. Blocks run one after the other, or
// each in a thread of its own where they wait for each other: a cooperative launch.

#include <math.h>
#include <string.h>
#include <ucontext.h>
#include <xmmintrin.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
// All fibers of a block are of one thread, which has one block at a time.
#define __shared__ thread_local

struct uint3 {
  unsigned x, y, z;
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(16) double2 {
  double x, y;
};

inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline double2 make_double2(double x, double y) { return {x, y}; }

thread_local uint3 threadIdx, blockIdx;
uint3 blockDim, gridDim;

namespace host {

constexpr unsigned WARP = 32, STACK = 1 << 16;
constexpr unsigned FLUSH = 0x8040;  // results and operands of SSE that are subnormal become zero
using Word = std::array<unsigned char, 8>;

struct Fiber {
  ucontext_t context;
  std::unique_ptr<char[]> stack{new char[STACK]};
  uint3 index;
  unsigned linear;
  unsigned turns = 0;  // exchanges with its warp so far
  Word given[2] = {};  // to the last two of them: others may still read the one before
  bool waits = false;  // at a barrier
  bool has_left = false;
};

std::function<void()> body;
thread_local std::vector<Fiber> fibers;
thread_local Fiber* current;
thread_local ucontext_t scheduler;
thread_local bool progressed;
thread_local const char* refused;  // what a fiber asked for: exceptions cannot leave its stack

void pause() { swapcontext(&current->context, &scheduler); }

void enter() {
  body();
  current->has_left = progressed = true;
  pause();
}

// Runs the threads of a block to their end.
void run_block(const std::vector<unsigned>& order) {
  for (Fiber& fiber : fibers) {
    fiber.has_left = fiber.waits = false;
    fiber.turns = 0;
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.get();
    fiber.context.uc_stack.ss_size = STACK;
    makecontext(&fiber.context, enter, 0);
  }
  for (;;) {
    progressed = false;
    for (unsigned i : order) {
      if (fibers[i].has_left || fibers[i].waits) continue;
      current = &fibers[i];
      threadIdx = current->index;
      swapcontext(&scheduler, &current->context);
      if (refused) throw std::runtime_error(refused);
    }
    if (progressed) continue;
    const auto here = [](const Fiber& fiber) { return fiber.waits; };
    if (std::none_of(fibers.begin(), fibers.end(), here)) {
      const auto gone = [](const Fiber& fiber) { return fiber.has_left; };
      if (std::all_of(fibers.begin(), fibers.end(), gone)) return;
      throw std::runtime_error("a lane waits for one of its warp that does not come");
    }
    if (!std::all_of(fibers.begin(), fibers.end(), here))
      throw std::runtime_error("a thread does not come to a barrier");
    for (Fiber& fiber : fibers) fiber.waits = false;
  }
}

// The order of fibers, and of blocks: as they are numbered, from the last one, or shuffled.
std::vector<unsigned> ordered(unsigned count, int order) {
  std::vector<unsigned> found(count);
  for (unsigned i = 0; i < count; ++i) found[i] = i;
  if (order == 1) std::reverse(found.begin(), found.end());
  if (order > 1) std::shuffle(found.begin(), found.end(), std::mt19937(order));
  return found;
}

template <typename... P, size_t... I>
void call(void (*kernel)(P...), void** args, std::index_sequence<I...>) {
  kernel(*static_cast<std::remove_cv_t<P>*>(args[I])...);
}

// Some blocks of a launch, one after the other, in a thread. Returns what went wrong, or nothing.
std::string run_blocks(const std::vector<unsigned>& blocks, int order, bool flush) {
  const unsigned state = _mm_getcsr();
  if (flush) _mm_setcsr(state | FLUSH);
  fibers = std::vector<Fiber>(blockDim.x * blockDim.y * blockDim.z);
  for (unsigned i = 0; i < fibers.size(); ++i) {
    fibers[i].linear = i;
    fibers[i].index = {i % blockDim.x, i / blockDim.x % blockDim.y, i / blockDim.x / blockDim.y};
  }
  std::string problem;
  refused = nullptr;
  try {
    const auto threads = ordered(fibers.size(), order);
    for (unsigned i : blocks) {
      blockIdx = {i % gridDim.x, i / gridDim.x % gridDim.y, i / gridDim.x / gridDim.y};
      run_block(threads);
    }
  } catch (const std::exception& wrong) {
    problem = wrong.what();
  }
  fibers.clear();
  _mm_setcsr(state);
  return problem;
}

// ``sizes`` are those of the grid and the block. Returns what went wrong, or nothing.
template <typename... P>
const char* launch(void (*kernel)(P...), const unsigned* sizes, bool cooperative, int order,
                   bool flush, void** args) {
  static std::string problem;
  gridDim = {sizes[0], sizes[1], sizes[2]};
  blockDim = {sizes[3], sizes[4], sizes[5]};
  body = [=] { call(kernel, args, std::index_sequence_for<P...>()); };
  const auto blocks = ordered(gridDim.x * gridDim.y * gridDim.z, order);
  if (!cooperative) {
    problem = run_blocks(blocks, order, flush);
    return problem.c_str();
  }
  std::vector<std::string> problems(blocks.size());
  std::vector<std::thread> threads;
  for (unsigned i : blocks)
    threads.emplace_back([=, &problems] { problems[i] = run_blocks({i}, order, flush); });
  for (std::thread& thread : threads) thread.join();
  problem = *std::max_element(problems.begin(), problems.end());
  return problem.c_str();
}

// What every lane of the warp gives in its turn.
template <typename T>
std::array<T, WARP> exchanged(unsigned mask, T value) {
  static_assert(sizeof(T) <= sizeof(Word));
  Fiber& me = *current;
  if (mask != 0xffffffffu) {
    refused = "only whole warps can exchange values here";
    pause();
  }
  const unsigned turn = ++me.turns, first = me.linear / WARP * WARP;
  memcpy(me.given[turn % 2].data(), &value, sizeof(T));
  progressed = true;
  std::array<T, WARP> found = {};
  for (unsigned lane = 0; lane < WARP && first + lane < fibers.size(); ++lane) {
    while (fibers[first + lane].turns < turn) pause();
    memcpy(&found[lane], fibers[first + lane].given[turn % 2].data(), sizeof(T));
  }
  return found;
}

inline unsigned lane() { return current->linear % WARP; }

template <typename To, typename From>
To bits(From value) {
  static_assert(sizeof(To) == sizeof(From));
  To found;
  memcpy(&found, &value, sizeof(To));
  return found;
}

template <typename T, typename Update>
T updated(T* where, Update update) {
  const T old = *where;
  *where = update(old);
  return old;
}

}  // namespace host

inline void __syncthreads() {
  host::current->waits = host::progressed = true;
  host::pause();
}
inline void __syncwarp(unsigned mask = 0xffffffffu) { host::exchanged(mask, 0); }
inline void __trap() { throw std::runtime_error("trap"); }

inline void __threadfence() { std::atomic_thread_fence(std::memory_order_seq_cst); }
template <typename T>
T __shfl_sync(unsigned mask, T value, int from) {
  return host::exchanged(mask, value)[from % host::WARP];
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int by) {
  return host::exchanged(mask, value)[host::lane() ^ by];
}
template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned by) {
  const unsigned lane = host::lane();
  return host::exchanged(mask, value)[lane + by < host::WARP ? lane + by : lane];
}
inline unsigned __ballot_sync(unsigned mask, int truth) {
  const auto votes = host::exchanged(mask, truth);
  unsigned found = 0;
  for (unsigned lane = 0; lane < host::WARP; ++lane) found |= unsigned(votes[lane] != 0) << lane;
  return found;
}
inline int __any_sync(unsigned mask, int truth) { return __ballot_sync(mask, truth) != 0; }

template <typename T>
T atomicAdd(T* where, T value) {
  return host::updated(where, [=](T old) { return old + value; });
}
inline unsigned atomicAdd(unsigned* where, unsigned value) {
  return __atomic_fetch_add(where, value, __ATOMIC_RELAXED);
}
template <typename T>
T atomicMax(T* where, T value) {
  return host::updated(where, [=](T old) { return std::max(old, value); });
}

// To 11 bits; halves go away from zero.
inline unsigned to_tf32(float x) {
  return std::isnan(x) ? host::bits<unsigned>(x) : (host::bits<unsigned>(x) + 0x1000u) & ~0x1fffu;
}

// sum += A B of 16 x 8 x 8, rounded once. A row has four lanes, each with two of its columns four
// apart; where there are two rows, they are eight apart.
inline void multiply_tf32(float (&sum)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  using Lanes = std::array<float, host::WARP>;
  const auto shared = [](unsigned value) {
    return host::exchanged(0xffffffffu, host::bits<float>(value));
  };
  const Lanes A[4] = {shared(a[0]), shared(a[1]), shared(a[2]), shared(a[3])};
  const Lanes B[2] = {shared(b[0]), shared(b[1])};
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned row = host::lane() / 4, column = host::lane() % 4 * 2 + i % 2;
    double total = sum[i];
    for (unsigned k = 0; k < 8; ++k)
      total += double(A[i / 2 + k / 4 * 2][row * 4 + k % 4]) * B[k / 4][column * 4 + k % 4];
    sum[i] = float(total);
  }
}

using std::max;
using std::min;
inline float __fsqrt_rn(float x) { return sqrtf(x); }
inline int __float_as_int(float x) { return host::bits<int>(x); }
inline float __int_as_float(int x) { return host::bits<float>(x); }
inline unsigned __float_as_uint(float x) { return host::bits<unsigned>(x); }
inline float __uint_as_float(unsigned x) { return host::bits<float>(x); }
inline long long __double_as_longlong(double x) { return host::bits<long long>(x); }
inline double __longlong_as_double(long long x) { return host::bits<double>(x); }
template <typename T>
T __ldg(const T* where) {
  return *where;
}
