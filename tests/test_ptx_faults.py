"""Kernels with one mistake each must be caught for the right reason; right ones must pass."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from demopool import ptx
from demopool.ptx import FaultKind

pytest.importorskip("cuda.bindings.nvrtc")

from gpu.faults import sides
from ptx_samples import cases
from ptx_samples.cases import compiled, launched
from ptx_samples.mistakes import MISSING, OUTSIDE, RACE, READ_ONLY, SEEDS, Seed

f32, i32 = np.float32, np.int32
SOURCE = cases.SOURCE.read_text()


def changed(change: str, nth: int = 1, source: str = SOURCE) -> tuple[str, int]:
    """The source with the change made where it can be made for the nth time, and its line."""
    old, new = sides(change)
    pieces = source.split(old)
    assert len(pieces) > nth, f"{old!r} is there {len(pieces) - 1} times"
    before, after = old.join(pieces[:nth]), old.join(pieces[nth:])
    return before + new + after, before.count("\n") + 1


def line_of(piece: str, text: str) -> int:
    assert text.count(piece) == 1, f"{piece!r} is there {text.count(piece)} times"
    return text[: text.index(piece)].count("\n") + 1


@pytest.mark.parametrize("seed", SEEDS, ids=lambda seed: seed.name.replace(" ", "-"))
def test_mistake_is_named(seed: Seed) -> None:
    sample = cases.BY_NAME[seed.sample]
    text, line = changed(seed.change, seed.nth, sample.source.read_text())
    with pytest.raises(ptx.Fault) as caught:
        sample.run(seed.case, compiled(text), **seed.options)
    fault = caught.value
    assert fault.kind is seed.kind
    assert seed.says in fault.what
    assert fault.place.source == f"kernels.cu:{line_of(seed.shows, text) if seed.shows else line}"
    assert {name: getattr(fault, name) for name in seed.at} == seed.at


@pytest.mark.parametrize(
    ("sample", "change"),
    [
        ("gram", "columns[t[-x-]{+y+}][k]"),
        ("gram", "sum[- * sum-]"),
        ("gram", "k < TILE{+ - 1+}; ++k"),
        ("sinkhorn", "sum[- / target-]"),
        ("sinkhorn", "step [-<-]{+<=+} iterations"),
        ("total", "i < n {+- 1 +}?"),
        ("total", "half > [-0-]{+1+}"),
        ("row-sums", "int step = [-16-]{+8+}"),
        ("row-sums", "value [->-]{+>=+} 0.0f"),
        ("count-sketch", "[-sign[j] * -]x"),
        ("signed-root", "[-copysignf(-]sqrtf(fabsf(v.w))[-, v.w)-]"),
        ("transpose", "row * columns + {+columns - 1 - +}column]"),
        ("last-block-sum", "b {++ 1 +}< gridDim.x"),
        ("product-tf32", "8 * (r [-%-]{+/+} 2), j = start + lane.within + 4 * (r [-/-]{+%+} 2)"),
        ("product-bf16", "(element(A, i, j{+ + 1+}, m, k), element(A, i, j[- + 1-], m, k))"),
        ("product-3xtf32", "[-multiply_tf32(part, a_low, b_high);-]"),
        ("product-3xtf32", "float part[4] = {[-};-]{+sum[0]};+}"),
        ("product-f16", "m8n8.x2[-.trans-]"),
        ("product-f16", "&left[t [-% 16-]{+/ 2+}][8 * (t [-/ 16-]{+% 2+})]"),
        ("product-copied", "left[now][[-warp_row + -]lane.group"),
    ],
)
def test_mistake_without_a_fault_shows_in_the_values(sample: str, change: str) -> None:
    right = cases.BY_NAME[sample]
    text, _ = changed(change, source=right.source.read_text())
    try:
        errors = right.errors(compiled(text))
    except ptx.Fault as fault:
        pytest.fail(f"meant to give wrong values, not a fault: {fault}")
    assert max(errors) > 1000


# --- faults that need a launch of their own ---


def test_overflow_of_a_32_bit_index_at_real_size() -> None:
    n, d = 65_536, 32
    text, line = changed("K[([-(size_t)blockIdx.z * n + i) * n + j-]{+int)((unsigned)i * n + j)+}]")
    X, K = ptx.reserve((n, d)), ptx.reserve((n, n))
    args = [X, K, i32(n), i32(d)]
    module, tiles = compiled(text), n // 16
    # The first half of the rows is still right: only a block beyond them shows it.
    module.launch("squared_gram<float>", (tiles, tiles), (16, 16), args, blocks=[(0, 2047)])
    with pytest.raises(ptx.Fault, match=f"byte {-(2**33)} of argument 1") as caught:
        module.launch("squared_gram<float>", (tiles, tiles), (16, 16), args, blocks=[(0, 2048)])
    fault = caught.value
    assert fault.kind is OUTSIDE
    assert fault.place.source == f"kernels.cu:{line}"
    assert (fault.block, fault.thread, fault.address) == ((0, 2048, 0), (0, 0, 0), -(2**33))


def test_unaligned_view_is_misaligned() -> None:
    x, out = np.ones(65, f32)[1:], ptx.empty(64)
    with pytest.raises(ptx.Fault, match="16 bytes at an address that is no multiple") as caught:
        cases.cuda().launch("signed_root", 1, 32, [x, out, i32(16)])
    fault, line = caught.value, line_of("v = row[i];\n    sum", SOURCE)
    assert fault.kind is FaultKind.MISALIGNED
    assert (fault.memory, fault.address, fault.thread) == ("argument 0", 0, (0, 0, 0))
    assert fault.place.source == f"samples.cu:{line}"


ONES, MATRIX = np.ones(8, f32), np.ones((4, 4), f32)
BUCKETS, OUTSIDER = np.zeros(8, i32), np.array([0, 0, 0, 0, 0, -1, 0, 0], i32)


@pytest.mark.parametrize(
    ("kernel", "block", "args", "shared", "says", "thread"),
    [
        ("count_sketch", 32, [ONES, BUCKETS, ONES, ptx.empty(20), i32(8), i32(20)], 4 * 19,
         "byte 76 of shared memory, which has 76", 19),
        ("count_sketch", 32, [ONES, OUTSIDER, ONES, ptx.empty(20), i32(8), i32(20)], 4 * 20,
         "byte -4 of shared memory", 5),
        ("transpose", (16, 16), [MATRIX, np.uint64(0), i32(4), i32(4)], 0, "0x0 is in no array", 0),
    ],
    ids=["too little shared memory", "a bucket outside of its range", "a null pointer"],
)  # fmt: skip
def test_mistake_in_a_launch_is_named(
    kernel: str, block: Any, args: list[Any], shared: int, says: str, thread: int
) -> None:
    with pytest.raises(ptx.Fault, match=says) as caught:
        cases.cuda().launch(kernel, 1, block, args, shared=shared)
    assert (caught.value.kind, caught.value.thread) == (OUTSIDE, (thread, 0, 0))


def test_write_through_a_const_pointer() -> None:
    text, line = changed("sum += value;{+ ((float*)x)[j] = 0.0f;+}")
    x = np.ones((1, 32), f32)
    x.flags.writeable = False
    with pytest.raises(ptx.Fault, match="writes to argument 0") as caught:
        compiled(text).launch("row_sums", 1, 32, [x, ptx.empty(1), i32(1), i32(32)])
    fault = caught.value
    assert (fault.kind, fault.place.source) == (READ_ONLY, f"kernels.cu:{line}")
    assert x.all()


def test_array_passed_twice_is_one_memory() -> None:
    shift = "y[threadIdx.x] = x[threadIdx.x + 1];"
    x = np.arange(33, dtype=f32)
    launched(shift, "const float* x, float* y", [x, np.zeros(32, f32)])
    with pytest.raises(ptx.Fault, match="reads what it writes"):
        launched(shift, "const float* x, float* y", [x, x])


@pytest.mark.parametrize(
    ("body", "kind", "says"),
    [
        ("__shared__ int s[32]; s[threadIdx.x] = 1; x[threadIdx.x] = s[threadIdx.x ^ 1];", RACE,
         "writes what it reads"),
        ("if (threadIdx.x < 16) __syncwarp(); __syncthreads();", MISSING, "never comes"),
        ("*x = 1;", RACE, "several threads"),
        ("if (!threadIdx.x) { int a[4]; for (int i = 0; i < 4; ++i) a[i] = x[i]; *x = a[x[5]]; }",
         OUTSIDE, "byte 36 of local memory, which has 16"),
        ("__shared__ int s; if (!threadIdx.x) s = 0; __syncthreads(); atomicAdd(&s, 1);"
         "if (!threadIdx.x) *x = s;", RACE, "writes what it reads"),
        ("while (((volatile int*)x)[1] != 3);", FaultKind.RUNAWAY, "more than 9999 steps"),
    ],
)  # fmt: skip
def test_small_mistakes(body: str, kind: FaultKind, says: str) -> None:
    with pytest.raises(ptx.Fault, match=says) as caught:
        launched(body, "int* x", [np.arange(32, dtype=i32) + 4], max_steps=9999)
    assert caught.value.kind is kind
    assert caught.value.place.source == "kernels.cu:2"


def test_every_kind_of_fault_is_seeded() -> None:
    assert {seed.kind for seed in SEEDS} == set(FaultKind)
