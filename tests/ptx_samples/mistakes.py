"""Mistakes that are made on purpose in the source of the samples, and what each must be named."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from demopool.ptx import FaultKind


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
