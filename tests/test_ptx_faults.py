"""Kernels with one mistake each must be caught for the right reason; right ones must pass."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from demopool import ptx
from demopool.ptx import FaultKind

pytest.importorskip("cuda.bindings.nvrtc")

from gpu.faults import sides
from ptx_samples import cases
from ptx_samples.cases import compiled, launched

f32, i32 = np.float32, np.int32
SOURCE = cases.SOURCE.read_text()


@dataclass(frozen=True)
class Seed:
    """One change of the samples' source (as in ``gpu/faults.py``), and what must come of it.

    ``shows`` is a piece of the line where it shows, if that is not the changed one. Where
    ``sample`` is launched as the samples are, ``case`` is its size.
    """

    name: str
    sample: str
    change: str
    kind: FaultKind
    says: str
    shows: str = ""
    nth: int = 1
    case: tuple[int, ...] = ()
    at: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)


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


RACE, OUTSIDE, UNKNOWN = FaultKind.RACE, FaultKind.OUT_OF_BOUNDS, FaultKind.UNINITIALISED
MISSING, READ_ONLY = FaultKind.MISSING_THREAD, FaultKind.READ_ONLY
DIVERGENT, STOPPED = FaultKind.DIVERGENT_BARRIER, FaultKind.ASSERTION
PENDING, MISALIGNED, UNDEFINED = (
    FaultKind.PENDING_COPY,
    FaultKind.MISALIGNED,
    FaultKind.UNDEFINED,
)
BARRIER = "[-__syncthreads();-]"
BLOCK_0, THREAD_0 = {"block": (0, 0, 0)}, {"thread": (0, 0, 0)}
SHARED, SECOND = {"memory": "shared memory"}, {"memory": "argument 1"}

SEEDS = (
    # --- barriers ---
    Seed("gram reads before all have written", "gram", BARRIER, RACE, "writes what it reads",
         "sum += rows[ty]", at=SHARED | BLOCK_0),
    Seed("gram writes before all have read", "gram", BARRIER, RACE, "reads what it writes",
         "rows[ty][tx] =", nth=2, at=SHARED),
    Seed("sinkhorn starts before all is set", "sinkhorn", BARRIER, RACE, "no barrier",
         "sum += image", nth=3),
    Seed("sinkhorn's steps overlap", "sinkhorn", BARRIER, RACE, "no barrier", "sum += image",
         nth=4),
    Seed("tree starts before all is set", "total", BARRIER, RACE, "writes what it reads",
         "part[t] += part", nth=5),
    Seed("steps of the tree overlap", "total", BARRIER, RACE, "no barrier", "part[t] += part",
         nth=6),
    Seed("buckets are added to before all are zero", "count-sketch", BARRIER, RACE,
         "no barrier", "atomicAdd(&buckets", nth=7),
    Seed("buckets are stored before all is added", "count-sketch", BARRIER, RACE,
         "writes what it reads", "] = buckets[i]", nth=8),
    Seed("parts are added before all are there", "signed-root", BARRIER, RACE,
         "writes what it reads", "norm += parts", nth=9, at={"thread": (1, 0, 0), "address": 0}),
    Seed("tile is read before it is full", "transpose", BARRIER, RACE, "writes what it reads",
         "= tile[threadIdx.x]", nth=10),
    Seed("last is read before it is decided", "last-block-sum", BARRIER, UNKNOWN,
         "no thread has written this byte of shared", "if (!last)", nth=11,
         at={"thread": (1, 0, 0)}),
    Seed("barrier inside an if", "total", "{+if (t < half) +}__syncthreads();", DIVERGENT,
         "64 threads of the block do not come", nth=6, at=BLOCK_0 | {"thread": (64, 0, 0)}),
    Seed("early return before a barrier", "transpose",
         "if (row [-< rows && column < columns)-]{+>= rows || column >= columns) return;+}",
         DIVERGENT, "has left the kernel", "__syncthreads();\n  row =",
         at={"block": (2, 0, 0), "thread": (3, 0, 0)}),
    Seed("barrier in a loop of different lengths", "sinkhorn",
         "{+{ +}now[i] = 1.0f;{+ __syncthreads(); }+}", DIVERGENT, "waits elsewhere",
         at=BLOCK_0 | {"thread": (5, 0, 0)}),
    # --- addresses ---
    Seed("guard of a load off by one", "total", "i [-<-]{+<=+} n ?", OUTSIDE,
         "byte 2400 of argument 0, which has 2400",
         at={"block": (2, 0, 0), "thread": (44, 0, 0), "memory": "argument 0", "address": 2400}),
    Seed("guard of a store off by one", "gram", "if (i [-<-]{+<=+} n && j < n) K[", OUTSIDE,
         "byte 2888 of argument 1", at={"block": (0, 1, 1), "thread": (0, 3, 0), "address": 2888}),
    Seed("no guard of a store", "gram", "[-if (i < n && j < n) -]K[", OUTSIDE, "of argument 1"),
    Seed("no guard of a load", "row-sums", "[-if (row >= rows) return;-]", OUTSIDE,
         "byte 10800 of argument 0", "const float value = x",
         at={"block": (2, 0, 0), "thread": (32, 0, 0), "address": 10800}),
    Seed("wrong stride", "gram", "image[(size_t)i * [-d-]{+n+} + k]", OUTSIDE,
         "byte 132 of argument 0", case=(1, 33, 1), at={"thread": (0, 1, 0), "address": 132}),
    Seed("index starts at -1", "transpose",
         "out[([-size_t-]{+long long+})column * rows + row{+ - 1+}]", OUTSIDE,
         "byte -4 of argument 1", at=BLOCK_0 | THREAD_0 | {"address": -4}),
    Seed("swapped indices of global memory", "transpose",
         "x[(size_t)[-row-]{+column+} * columns + [-column-]{+row+}]", OUTSIDE, "of argument 0",
         at={"block": (1, 0, 0), "thread": (4, 0, 0), "address": 2800}),
    Seed("swapped indices of shared memory", "transpose",
         "tile[threadIdx.[-y-]{+x+}][threadIdx.[-x-]{+y+}] = x", UNKNOWN,
         "no thread has written this byte of shared", "= tile[threadIdx.x]"),
    Seed("index of shared memory by thread, not by warp", "signed-root",
         "parts[threadIdx.x[- >> 5-]]", OUTSIDE, "byte 128 of shared memory",
         at=SHARED | {"thread": (32, 0, 0), "address": 128}),
    Seed("tree twice as wide as the block", "total", "half = blockDim.x[- / 2-]", OUTSIDE,
         "byte 1024 of shared memory, which has 1024", "part[t] += part",
         at=THREAD_0 | {"address": 1024}),
    Seed("bucket outside of its range", "count-sketch", "bucket[j]{+ + 1+}]", OUTSIDE,
         "byte 80 of shared memory, which has 80", at={"address": 80}),
    # --- shuffles ---
    Seed("mask names a thread that left", "row-sums", "if (row >= rows{+ || lane == 31+}) return;",
         MISSING, "has left", "sum += __shfl_xor", at=THREAD_0),
    Seed("mask does not name its thread", "row-sums", "__shfl_xor_sync(0x[-f-]{+7+}fffffffu, sum,",
         MISSING, "its own mask says", at={"thread": (31, 0, 0)}),
    Seed("vote's mask does not name its thread", "row-sums", "__ballot_sync(0xfffffff[-f-]{+e+}u",
         MISSING, "its own mask says", at=THREAD_0),
    Seed("mask names threads that never come", "signed-root",
         "[-const -]float4 v = row[i];{+ v.x = __shfl_xor_sync(0xffffffffu, v.x, 1);+}", MISSING,
         "never comes"),
    Seed("half a warp shuffles with all of it", "row-sums",
         "{+lane < 16 ? +}__shfl_xor_sync(0xffffffffu, sum, step){+ : 0.0f+}", MISSING,
         "never comes", at=THREAD_0),
    Seed("sum over lanes that take no part", "row-sums",
         "{+if (lane < 16) +}sum += __shfl_xor_sync(0x[-ffff-]{+0000+}ffffu, sum, step)", UNKNOWN,
         "a lane that took no part", "sums[row] = votes"),
    # --- what nobody has written ---
    Seed("last bucket is not set to zero", "count-sketch",
         "i < k{+ - 1+}; i += blockDim.x) buckets[i] =", UNKNOWN, "of shared memory",
         "atomicAdd(&buckets", at={"address": 76}),
    Seed("adds to an output nobody has set", "gram", "{+++}= sum * sum", UNKNOWN,
         "no thread has written this byte of argument 1", at=BLOCK_0 | THREAD_0 | {"address": 0}),
    # --- several threads, one place ---
    Seed("no atomic in shared memory", "count-sketch",
         "[-atomicAdd(&buckets[bucket[j]], -]{+buckets[bucket[j]] += (+}", RACE, "shared memory"),
    Seed("no atomic in global memory", "total", "[-atomicAdd(sum, part[0])-]{+*sum += part[0]+}",
         RACE, "argument 1", at=SECOND | {"address": 0}),
    Seed("no atomic for a counter", "last-block-sum",
         "[-atomicAdd(finished, 1u)-]{+(*finished)+++} ==", RACE, "argument 2"),
    Seed("two blocks write one element", "row-sums", "sums[row{+ & 3+}] =", RACE,
         "several threads write it at once", at=SECOND),
    Seed("another block's result without a fence", "last-block-sum", "[-__threadfence();-]", RACE,
         "writes what it reads", "all += partial", at=SECOND),
    Seed("fence before the result it should publish", "last-block-sum",
         "{+__threadfence(); +}partial[blockIdx.x] = mine;\n    [-__threadfence();-]", RACE,
         "writes what it reads", "all += partial"),
    Seed("read-only load of what the kernel writes", "last-block-sum",
         "all += [-partial[b]-]{+__ldg(partial + b)+}", READ_ONLY, "read-only cache",
         at=SECOND | {"address": 0}),
    # --- the kernel stops, or never does ---
    Seed("endless loop", "total", "half [->-]{+>=+} 0; half >>= 1", FaultKind.RUNAWAY,
         "more than 5000 steps", "part[t] += part", options={"max_steps": 5000}),
    Seed("assertion", "row-sums", "{+assert(value <= 0.0f); +}sum += value;", STOPPED, "assert",
         at={"block": (1, 0, 0), "thread": (82, 0, 0)}),
    Seed("trap", "row-sums", "{+if (value > 0.0f) __trap(); +}sum += value;", STOPPED,
         "stops itself", at={"block": (1, 0, 0), "thread": (82, 0, 0)}),
    # --- tensor cores ---
    Seed("half a warp multiplies", "product-tf32",
         "{+if (lane.group < 4) +}multiply_tf32(sum, a, b);", MISSING,
         "all threads of the warp must come here together, and one has left or was never there",
         "PRODUCT(multiply_tf32", at=THREAD_0),
    Seed("half a warp multiplies before a barrier", "product-copied",
         "{+if (lane.group < 4) +}multiply_tf32(sum, a, b);\n    __syncthreads", MISSING,
         "all threads of the warp must come here together, and one never comes here",
         "PRODUCT(multiply_tf32", at=THREAD_0),
    Seed("a lane has left before the product", "product-bf16",
         "float sum[4] = {};{+ if (threadIdx.x == 31) return;+}", MISSING,
         "and one has left or was never there",
         "PRODUCT(multiply_bf16", nth=2, at=THREAD_0),
    Seed("an operand is not rounded", "product-tf32",
         "[-tf32-]{+__float_as_uint+}(element(B", UNDEFINED,
         "a TF32 operand has bits that only float32 has",
         "PRODUCT(multiply_tf32"),
    Seed("a low part is not rounded", "product-3xtf32",
         "b_low[r] = [-tf32-]{+__float_as_uint+}(", UNDEFINED,
         "a TF32 operand has bits that only float32 has",
         "PRODUCT(multiply_tf32"),
    Seed("ldmatrix before all has been written", "product-f16", "[-__syncwarp();-]", RACE,
         "writes what it reads", '"r"(of_left)', at=SHARED),
    Seed("a slab is overwritten before all have loaded it", "product-f16",
         "multiply_f16(sum, a, b);\n    [-__syncwarp();-]", RACE, "reads what it writes",
         "left[e / 16][e % 16] =", at=SHARED),
    Seed("rows for ldmatrix at no multiple of 16 bytes", "product-f16", "16 + [-8-]{+6+}]",
         MISALIGNED, "16 bytes at an address that is no multiple",
         '"r"(of_left)', at=SHARED),
    Seed("ldmatrix from beyond the tile", "product-f16", "&left[t % 16{+ + 16+}]", OUTSIDE,
         "byte 1056 of shared memory, which has 1024", '"r"(of_left)',
         at=SHARED | {"thread": (6, 0, 0)}),
    # --- asynchronous copies ---
    Seed("no wait", "product-copied", "[-wait<1>();-]", PENDING,
         "has not waited for the group it is in", "a[r] = tf32(left[now]", at=SHARED | THREAD_0),
    Seed("wait that leaves one group too many", "product-copied", "wait<[-1-]{+2+}>();", PENDING,
         "has not waited for the group it is in", "a[r] = tf32(left[now]", at=SHARED),
    Seed("no commit", "product-copied", "[-commit();-]  // also", PENDING,
         "has not waited for the group it is in", "a[r] = tf32(left[now]", at=SHARED),
    Seed("no commit of anything", "product-copied",
         'asm volatile("[-cp.async.commit_group;-]"', PENDING,
         "has not committed it to a group", "a[r] = tf32(left[now]", at=SHARED),
    Seed("wait, but no barrier", "product-copied", "wait<1>();\n    [-__syncthreads();-]", RACE,
         "writes what it reads", "a[r] = tf32(left[now]", at=SHARED),
    Seed("barrier before the wait", "product-copied",
         "{+__syncthreads(); +}wait<1>();\n    [-__syncthreads();-]", RACE,
         "writes what it reads", "a[r] = tf32(left[now]", at=SHARED),
    Seed("a slab is copied over before all have used it", "product-copied",
         "multiply_tf32(sum, a, b);\n    [-__syncthreads();-]", RACE, "reads what it writes",
         ':: "r"(shared)', nth=1, at=SHARED),
    Seed("copy to the slab in use", "product-copied", "copy(start + SLAB, now[- ^ 1-]);", PENDING,
         "has not waited for the group it is in", ':: "r"(shared)', at=SHARED),
    Seed("copy from an address that is not aligned", "product-copied",
         "A + (size_t)i * k + j{+ + 1+}, i < m", MISALIGNED,
         "argument 0: 16 bytes at an address that is no multiple",
         ':: "r"(shared)', at=BLOCK_0 | THREAD_0 | {"address": 4}),
    Seed("copy to rows that are not aligned", "product-copied", "PADDED = SLAB + [-4-]{+1+};",
         MISALIGNED, "shared memory: 16 bytes", ':: "r"(shared)', at=SHARED),
    Seed("copy beyond the last row", "product-copied", "i < m{+ + 1+} && j < k);", OUTSIDE,
         "byte 2960 of argument 0, which has 2960", ':: "r"(shared)',
         at={"block": (0, 1, 0), "thread": (10, 0, 0)}),
)  # fmt: skip


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
