"""Kernels that are right, however suspicious they look: no fault, and the right values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from demopool import ptx

pytest.importorskip("cuda.bindings.nvrtc")

from ptx_samples import cases
from ptx_samples.cases import launched
from test_ptx_instructions import run

f32, i32 = np.float32, np.int32


WARP_SYNCHRONOUS = """
__shared__ float s[64];
const int t = threadIdx.x, lane = t & 31;
volatile float* mine = s + (t & ~31);
mine[lane] = x[t];
for (int half = 16; half > 0; half >>= 1) {
  __syncwarp();
  const float other = lane < half ? mine[lane + half] : 0.0f;
  __syncwarp();
  if (lane < half) mine[lane] += other;
}
__syncwarp();
out[t] = mine[0];
"""
OWN_PART = """
__shared__ float s[4][32];
const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
for (int turn = 0; turn < 3; ++turn) {
  s[warp][lane] = x[threadIdx.x] + turn;
  __syncwarp();
  out[threadIdx.x] = s[warp][31 - lane];
  __syncwarp();
}
"""
HALVES_THEN_ALL = """
__shared__ float s[64];
const int lane = threadIdx.x;
if (lane < 16) {
  s[lane] = x[lane];
  __syncwarp(0xffffu);
  s[32 + lane] = s[lane ^ 1];
}
__syncwarp();
out[lane] = s[32 + (lane & 15)];
"""
DOUBLE_BUFFER = """
__shared__ float s[2][64];
const int t = threadIdx.x;
float sum = 0.0f;
for (int step = 0; step < 5; ++step) {
  s[step & 1][t] = x[t] * step;
  __syncthreads();
  sum += s[step & 1][63 - t];
}
out[t] = sum;
"""
HALF_MASKS = """
const int lane = threadIdx.x;
float v = x[lane];
if (lane < 16) for (int step = 8; step > 0; step >>= 1) v += __shfl_down_sync(0x0000ffffu, v, step);
else for (int step = 8; step > 0; step >>= 1) v += __shfl_xor_sync(0xffff0000u, v, step);
if (lane == 0 || lane >= 16) out[lane] = v; else out[lane] = 0.0f;
"""
ACTIVE_MASK = """
const int lane = threadIdx.x;
out[lane] = 0.0f;
if (lane % 3 == 0) {
  const unsigned mask = __activemask();
  out[lane] = __popc(mask) + __shfl_sync(mask, x[lane], 30);
}
"""
REJOINING = """
const int lane = threadIdx.x;
float v = 0.0f;
for (int i = 0; i < lane % 5; ++i) {
  const unsigned mask = __activemask();
  v += __shfl_sync(mask, x[lane], 31 - __clz(mask));
}
for (int step = 16; step > 0; step >>= 1) v += __shfl_xor_sync(0xffffffffu, v, step);
out[lane] = v;
"""
ATOMICS_THEN_READ = """
__shared__ int s[4];
const int t = threadIdx.x;
if (t < 4) s[t] = 0;
__syncthreads();
atomicAdd(&s[t & 3], 1);
__syncthreads();
out[t] = s[(t + 1) & 3] + x[t];
"""
IN_PLACE = "const int t = threadIdx.x; out[t] = x[t]; out[t] = out[t] * out[t] + 1.0f;"
PARTIAL_WARP = """
__shared__ float s[64];
s[threadIdx.x] = x[threadIdx.x];
__syncwarp();
out[threadIdx.x] = s[threadIdx.x ^ 1] + blockDim.x;
"""
LEFT_THE_WARP = """
if (threadIdx.x >= 20) return;
__shared__ float s[32];
s[threadIdx.x] = x[threadIdx.x];
__syncwarp();
out[threadIdx.x] = s[threadIdx.x ^ 1];
"""
FLAG = """
volatile float* now = out;
const int t = threadIdx.x;
if (t < 32) {
  while (now[40] == 0.0f) {}
  out[t] = now[41];
} else if (t == 32) {
  now[41] = x[5];
  __threadfence();
  now[40] = 1.0f;
}
"""
LANE = np.arange(32)


def _rejoined(x: Any) -> Any:
    trips = LANE % 5
    last = [x[LANE[trips > i].max()] for i in range(4)]
    return np.full(32, sum(last[i] * (trips > i).sum() for i in range(4)))


def _halves(x: Any) -> Any:
    low, high = np.zeros(16), np.full(16, x[16:].sum())
    low[0] = x[:16].sum()
    return np.concatenate([low, high])


RIGHT: dict[str, tuple[str, int, Any]] = {
    "warp-synchronous": (WARP_SYNCHRONOUS, 64, lambda x: np.repeat(x.reshape(2, 32).sum(1), 32)),
    "own part of shared memory": (OWN_PART, 128, lambda x: x.reshape(4, 32)[:, ::-1].ravel() + 2),
    "half a warp, then all of it": (HALVES_THEN_ALL, 32, lambda x: x[(LANE & 15) ^ 1]),
    "double buffer": (DOUBLE_BUFFER, 64, lambda x: x[::-1] * 10),
    "masks of half a warp": (HALF_MASKS, 32, _halves),
    "active mask": (ACTIVE_MASK, 32, lambda x: np.where(LANE % 3 == 0, 11 + x[30], 0)),
    "loop of different lengths": (REJOINING, 32, _rejoined),
    "atomics, barrier, read": (ATOMICS_THEN_READ, 100, lambda x: 25 + x),
    "block of 1024": (ATOMICS_THEN_READ, 1024, lambda x: 256 + x),
    "in place": (IN_PLACE, 45, lambda x: x * x + 1),
    "part of a warp": (PARTIAL_WARP, 44, lambda x: x[np.arange(44) ^ 1] + 44),
    "some have left the warp": (LEFT_THE_WARP, 32, lambda x: np.where(LANE < 20, x[LANE ^ 1], 0)),
}


@pytest.mark.parametrize("name", RIGHT)
def test_right_kernel_passes(name: str) -> None:
    body, threads, wanted = RIGHT[name]
    x = np.random.default_rng(threads).integers(-8, 8, threads).astype(f32)
    out = np.zeros(threads, f32)
    launched(body, "const float* __restrict__ x, float* out", [x, out], block=threads)
    np.testing.assert_array_equal(out, wanted(x))


def test_volatile_flag_is_waited_for() -> None:
    x, out = np.arange(8, dtype=f32), np.zeros(64, f32)
    launched(FLAG, "const float* x, float* out", [x, out], block=64, max_steps=100_000)
    np.testing.assert_array_equal(out[:32], 5)


def test_flag_of_another_block_with_a_fence() -> None:
    body = """
    volatile int* flag = x;
    if (blockIdx.x == 1) {
      if (threadIdx.x == 0) { x[1] = 7; __threadfence(); *flag = 1; }
    } else {
      if (threadIdx.x == 0) { while (*flag == 0) {} __threadfence(); }
      __syncthreads();
      x[2 + threadIdx.x] = x[1];
    }"""
    x = np.zeros(34, i32)
    launched(body, "int* x", [x], 2, block=32, max_steps=100_000)
    assert (x[1:] == 7).all()


def test_bytes_next_to_each_other_belong_to_different_threads() -> None:
    x = np.zeros((3, 50), np.uint8)
    body = "x[blockIdx.x * 50 + threadIdx.x] = threadIdx.x;"
    launched(body, "unsigned char* x", [x], 3, block=50)
    np.testing.assert_array_equal(x, np.tile(np.arange(50), (3, 1)))


def test_last_block_over_several_waves_may_reset_the_counter() -> None:
    old, new = "*sum = all;", "{ *sum = all; *finished = 0; }"
    text = cases.SOURCE.read_text()
    assert text.count(old) == 1
    blocks, n = 700, 30_000
    x, counter, total = np.ones(n, f32), np.zeros(1, np.uint32), ptx.empty(1)
    args = [x, ptx.empty(blocks), counter, total, i32(n)]
    ptx.compile(text.replace(old, new)).launch("last_block_sum", blocks, 32, args)
    assert (total[0], counter[0]) == (n, 0)


@pytest.mark.parametrize(
    ("name", "arch"),
    [(sample.name, arch) for sample in cases.SAMPLES for arch in sample.architectures],
)
def test_samples_are_right_everywhere(name: str, arch: str) -> None:
    sample = cases.BY_NAME[name]
    if sample.numba:
        pytest.importorskip("numba.cuda")
    assert max(sample.errors(sample.module(arch), check_races=True)) < 5


def test_unknown_register_matters_only_where_a_guard_lets_it() -> None:
    def stored(lanes: int) -> None:
        body = f"""setp.lt.u32 %p1, %r0, 16; setp.lt.u32 %p2, %r0, {lanes};
            @%p1 mov.u32 %r4, 7; @%p2 st.global.u32 [%q9], %r4;"""
        run(body, x)

    x = np.zeros(32, i32)
    stored(16)
    assert x.tolist() == [7] * 16 + [0] * 16
    with pytest.raises(ptx.Fault, match="register never written") as caught:
        stored(17)
    assert caught.value.thread == (16, 0, 0)
