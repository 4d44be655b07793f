"""Mistakes that are made on purpose in the source of kernels, and what each must be named.

A change of the source is written as ``git diff --word-diff`` writes it: ``a [-<-]{+<=+} b``.
"""

from __future__ import annotations

import re

from demopool import ptx

RACE, OUTSIDE = ptx.FaultKind.RACE, ptx.FaultKind.OUT_OF_BOUNDS
DIVERGENT, MISSING = ptx.FaultKind.DIVERGENT_BARRIER, ptx.FaultKind.MISSING_THREAD
UNWRITTEN, RUNAWAY = ptx.FaultKind.UNINITIALISED, ptx.FaultKind.RUNAWAY
MISALIGNED, READ_ONLY = ptx.FaultKind.MISALIGNED, ptx.FaultKind.READ_ONLY
_SHARED = "shared memory"
_UNORDERED = "no barrier between"

Mistake = tuple[str, str, ptx.FaultKind, str]
"""Kernel, what is changed in its source, the fault it must be, and a word of the sentence."""


def sides(change: str) -> tuple[str, str]:
    """What is in the source, and what takes its place."""
    old = re.sub(r"\{\+.*?\+\}|\[-|-\]", "", change, flags=re.DOTALL)
    new = re.sub(r"\[-.*?-\]|\{\+|\+\}", "", change, flags=re.DOTALL)
    return old, new


_MIRROR = "get(values, space + i % HALF * ROW<T> + c);"
_ZEROED = "for (unsigned i = threadIdx.x; i < k; i += BLOCK) histogram[i] = T(0);"
_TO_OUT = "\n  T* own = out + static_cast<size_t>(blockIdx.x) * k;\n"
_SORTED = "m[j] : -m[j];\n    "
_PAIR = "{ const float2 two = *reinterpret_cast<const float2*>(v + j); found += two.x + two.y; }"

CUPY: dict[str, Mistake] = {
    "no barrier before the first slab is read": (
        "gram", "[-__syncthreads();-]\n  while (start < stop)", RACE, _UNORDERED),
    "no barrier before a slab is overwritten": (
        "outer", "found);\n      [-__syncthreads();-]\n    } while", RACE, _UNORDERED),
    "one slab where there are two": (
        "gram", "factors.write(space + [-slab-]{+(slab + 1)+} % 2", RACE, _SHARED),
    "no barrier before the mirror image is read": (
        "gram", "put_half(space, sums, half);\n    [-__syncthreads();-]\n", RACE, _SHARED),
    "no barrier between the halves of the mirror image": (
        "from_triangle", "half, n);\n    [-__syncthreads();-]\n", RACE, _SHARED),
    "no guard on the rows of a load": (
        "gram", "< d, values + static_cast<size_t>([-min(-]first + r[-, n - 1)-]) * d)", OUTSIDE,
        "argument 0"),
    "no guard on the columns of a load": (
        "gram", "fetch_if([-k < d-]{+true+}, values + static_cast<size_t>(min(second", OUTSIDE,
        "argument 0"),
    "no guard on the features of a load": (
        "outer_parts", "fetch_if([-feature < n-]{+true+}, values + min(second", OUTSIDE,
        "argument 0"),
    "no guard on the features of weights": (
        "outer_parts", "fetch_if([-k < n-]{+true+}, a + k)", OUTSIDE, "argument 1"),
    "a guard that lets one row too many through": (
        "gram", "if (row [-<-]{+<=+} n && column <= row)", OUTSIDE, "argument 1"),
    "a mirror image that is one column too wide": (
        "from_triangle", "row < column && column [-<-]{+<=+} n) C[", RACE, "argument 0"),
    "a mirror image through the read-only cache": (
        "from_triangle", f"[-{_MIRROR}-]"
        "{+for (unsigned j = 0; j < VECTOR<T>; ++j) values[j] = at.second + c + j < column && "
        "column < n ? __ldg(&C[column * n + at.second + c + j]) : T(0);+}",
        READ_ONLY, "read-only"),
    "row and column swapped in the mirror image": (
        "from_triangle", f"[-{_MIRROR}-]{{+get(values, space + c * ROW<T> + i % HALF);+}}",
        MISALIGNED, _SHARED),
    "128 bits at an odd place": (
        "gram", "get(row + VECTOR<T>, rows + k * ROW<T> + HALF{+ + 1+});", MISALIGNED, _SHARED),
    "row sums of a mirror image in the column of its own tile": (
        "gram", "sums[static_cast<size_t>(at.[-row-]{+column+}) * n + at.second", RACE,
        "argument 2"),
    "row sums beyond the matrix": (
        "from_parts", "[-if (row < n) -]sums[static_cast<size_t>(at.column)", RACE,
        "argument 2"),
    "parts of the norm that land in each other": (
        "outer, with its norm", "put(totals + at.[-number-]{+row+}, at.tiles);", RACE,
        "argument 3"),
    "parts of tiles that land in each other": (
        "gram_parts", "static_cast<size_t>(blockIdx.x) * TILE * [-TILE-]{+HALF+} + threadIdx.x",
        RACE, "argument 1"),
    "a part that is not there": (
        "from_parts", "for (unsigned part = 0; part [-<-]{+<=+} count; ++part)", OUTSIDE,
        "argument 0"),
    "a largest value without an atomic": (
        "largest", "[-atomic_largest(&out[image], found)-]"
        "{+out[image] = found > out[image] ? found : out[image]+}", RACE, "argument 1"),
    "a row too many is looked at": (
        "unordinary", "if (row [->=-]{+>+} rows) return;  // a whole warp", OUTSIDE, "argument 0"),
    "a value too many for the largest": (
        "largest", "j [-<-]{+<=+} values; j += chunks", OUTSIDE, "argument 0"),
    "two values at a time, at odd places": (
        "largest", f"[-found = fmax(found, fabs(v[j]));-]{{+{_PAIR}+}}", MISALIGNED, "argument 0"),
    "a thread too many in the first iteration": (
        "first_step", "if (i [->=-]{+>+} count) return;", OUTSIDE, "argument"),
    "a shuffle that names half of a warp": (
        "step", "__shfl_xor_sync([-ALL_LANES-]{+0xffffu+}, given", MISSING, "its own mask"),
    "lanes without a value that leave before a shuffle": (
        "free_sums", "{+if (lane >= d) return;+}\n  if (row < n) {\n    const size_t place",
        MISSING, "mask"),
    "a row that is guarded too late": (
        "step", "if (row [->=-]{+>+} n) return;\n  // All lanes", OUTSIDE, "argument"),
    "rows beyond the last one of the last image": (
        "step", "K + static_cast<size_t>([-min(row + i, n - 1)-]{+row + i+}) * across", OUTSIDE,
        "argument 0"),
    "128 bits where rows begin at odd places": (
        "step", "[-n % VECTOR<T> == 0-]{+n % 2 == 0+}", MISALIGNED, "argument"),
    "a row without K that is not guarded": (
        "free_step", "[-if (row >= n) return;-]  // a whole warp, after", OUTSIDE, "argument"),
    "warps without a row that leave before a barrier": (
        "free_step", "{+if (row >= n) return total;+}\n  if (row < n) {\n    const size_t place",
        DIVERGENT, "left the kernel"),
    "no barrier before doubts are counted": (
        "free_sums", "share * bound);\n  [-__syncthreads();-]", RACE, _SHARED),
    "no barrier before the parts of a row are added": (
        "free_sums", "[-__syncthreads();-]\n  if (exact >> warp", RACE, _SHARED),
    "weights where the second row of K is": (
        "small_image", "T* now = memory + [-n * -]across;", RACE, _SHARED),
    "no barrier before the first iteration": (
        "small_image", "[-__syncthreads();-]\n  const unsigned apart", RACE, _SHARED),
    "no barrier between iterations": (
        "small_image", "[-__syncthreads();-]\n  }\n  for (unsigned i = threadIdx.x; i < n; i += "
        "blockDim.x) a[first", RACE, _SHARED),
    "no barrier before the sums are read": (
        "small_image", "[-__syncthreads();-]\n    // A thread for each row", RACE, _SHARED),
    "weights that are overwritten while they are read": (
        "small_image", "T* sums = now[- + across-];", RACE, _SHARED),
    "rows that begin at odd places in shared memory": (
        "small_image", "memory, now, start, n, [-across-]{+n+});", MISALIGNED, _SHARED),
    "ends of rows without zeros": (
        "small_image", "j < [-across-]{+n+}; j += WARP)\n      memory", UNWRITTEN, _SHARED),
    "iterations that never end": (
        "small_image", "iteration < iterations;[- ++iteration-]", RUNAWAY, "steps"),
    "no fence before a block says that it is there": (
        "resident", "[-__threadfence();-]\n    atomicAdd", RACE, "argument 3"),
    "no fence after a block has waited": (
        "resident", "[-__threadfence();-]\n  }\n  __syncthreads", RACE, "argument 3"),
    "blocks that do not wait for each other": (
        "resident", "[-while-]{+if+} (static_cast<int>(*static_cast<volatile", RACE, "argument"),
    "blocks that wait for one too few": (
        "resident", "expected += blocks[--]{+ - 1+});", RACE, "argument"),
    "blocks that wait for one too many": (
        "resident", "expected += blocks[--]{+ + 1+});", RUNAWAY, "steps"),
    "weights that are overwritten while others read them": (
        "resident", "*to = [-other-]{+a+} + first", RACE, "argument 2"),
    "the next image too early": (
        "resident", "[-__syncthreads()-]{+0+};  // the next image", RACE, _SHARED),
    "rows that the image does not have": (
        "resident", "own = [-min(rows, n - start)-]{+rows+};", OUTSIDE, "argument"),
    "a barrier in a branch": (
        "scatter", f"{_SORTED}{{+if (threadIdx.x < k) +}}__syncthreads();",
        DIVERGENT, "do not come"),
    "no barrier before the parts are added": (
        "normalized_at_once", "put(parts + threadIdx.x / WARP, warps);\n    [-__syncthreads();-]\n",
        RACE, _SHARED),
    "one sum for all chunks of an image": (
        "power_sums", "sums + 2 * image * chunks[- + blockIdx.x % chunks-], chunks", RACE,
        "argument 1"),
    "a value beyond the last one of a row": (
        "triangle_sums", "j + i * apart [-<-]{+<=+} count ? values", OUTSIDE, "argument 0"),
    "no barrier before a triangle is mirrored": (
        "normalized_triangle", "over_norm(value); });\n    [-__syncthreads();-]", RACE, _SHARED),
    "the start of the bin after the last one's end": (
        "count_sketch", "stop = starts[bin + [-1-]{+2+}]", OUTSIDE, "argument 2"),
    "threads without a bin that leave before a barrier": (
        "scatter", f"{{+if (threadIdx.x >= k) return; +}}{_ZEROED}", DIVERGENT, "left the kernel"),
    "a histogram that is not set to zero": ("scatter", f"[-{_ZEROED}-]", UNWRITTEN, _SHARED),
    "no barrier between the rows": (
        "scatter", f"{_SORTED}[-__syncthreads();-]", RACE, _SHARED),
    "a row that is sorted into the one before": (
        "scatter", "T* others = values[- + d-];", RACE, _SHARED),
    "a histogram that is read too early": (
        "scatter", f"[-__syncthreads();-]{_TO_OUT}", RACE, _SHARED),
    "a bin beyond the histogram": (
        "scatter", "histogram[[-bin < k ? bin : bin - k-]{+bin + 9 * k+}]", OUTSIDE, _SHARED),
    "a thread for each value, not for each bin": (
        "scatter", "i < runs[u + 1]; ++i) total += value(i);\n    const unsigned bin = "
        "static_cast<unsigned>(filled[[-u-]{+u / 2+}])", RACE, _SHARED),
    "a bin beyond the sketch": (
        "scatter_far", "histogram[[-bin < k ? bin : bin - k-]{+2 * bin+}]",
        OUTSIDE, "argument 7"),
    "bins that go round to the same one": (
        "scatter_far", "bin < k ? bin : [-bin - k-]{+0+}", RACE, "argument 7"),
    "no barrier between the rows of a sketch": (
        "scatter_far", "* d;\n    [-__syncthreads();-]\n    add_runs(own", RACE, "argument 7"),
    "one sketch for all blocks of an image": (
        "scatter_far", "T* own = out + [-static_cast<size_t>(blockIdx.x)-]{+image+} * k;",
        RACE, "argument 7"),
    "a sum over too many sketches": (
        "added", "i [-<-]{+<=+} count; ++i)", OUTSIDE, "argument 0"),
}  # fmt: skip

_PARTS = "    parts[ty, tx] = total\n"

NUMBA: dict[str, Mistake] = {
    "no barrier before a tile is read": (
        "gram", "[-cuda.syncthreads()-]\n        multiply_tiles", RACE, _UNORDERED),
    "no barrier before a tile is overwritten": (
        "gram", "tx, ty)\n        [-cuda.syncthreads()-]\n", RACE, _UNORDERED),
    "no barrier before the mirror image is read": (
        "gram", "sums[2 * half + i, j]\n        [-cuda.syncthreads()-]\n", RACE, _SHARED),
    "no guard on the rows of a load": (
        "gram", "x = P[image, [-min(-]uint32(first + r)[-, last)-], there]", OUTSIDE, "argument 0"),
    "no guard on the columns of a load": (
        "gram_parts", "there = [-min(k, uint32(stop - 1))-]{+k+}", OUTSIDE, "argument 0"),
    "a guard that lets one row too many through": (
        "gram", "if row [-<-]{+<=+} n and column <= row:", OUTSIDE, "argument 1"),
    "row and column swapped in the mirror image": (
        "gram", "tile[[-uint32(tx + 16 * j), -]uint32(ty + 16 * i){+, uint32(tx + 16 * j)+}]",
        OUTSIDE, _SHARED),
    "row sums of a mirror image in the column of its own tile": (
        "gram", "row_sums[image, quotient([-first-]{+second+}, TILE), uint32(second + r)] = other",
        RACE, "argument 2"),
    "row sums beyond the matrix": (
        "from_parts", "if tx == 0[- and first + r < n-]:", OUTSIDE, "argument 2"),
    "parts of tiles that land in each other": (
        "gram_parts", "own = parts[quotient(cuda.blockIdx.x, parts.shape[1]), [-part-]{+0+}]",
        RACE, "argument 1"),
    "a part that is not there": (
        "from_parts", "while part < uint32(parts.shape[1]{+ + 1+}):", OUTSIDE, "argument 0"),
    "features beyond the last part": (
        "outer_parts", "stop = [-min(-]uint32(start + length)[-, uint32(X.shape[1]))-]",
        OUTSIDE, "argument"),
    "no barrier before the diagonal is read": (
        "row_forms", "[-cuda.syncthreads()-]\n    for i in range(4):\n        row = uint32(first",
        RACE, _SHARED),
    "a diagonal that is longer than the matrix": (
        "row_forms", "if t < TILE[- and second + t < d-]:", OUTSIDE, "argument 1"),
    "one form for all rows": (
        "row_forms", "forms[0, image, [-row-]{+0+}, part] = total", RACE, "argument 2"),
    "a form of a tile that is not there": (
        "exact_rows", "while part < forms.shape[3]{+ + 9+}:", OUTSIDE, "argument 2"),
    "no barrier before the sums of warps are added": (
        "exact_rows", ">> 5] = value\n    [-cuda.syncthreads()-]\n", RACE, _SHARED),
    "one sum for all chunks of an image": (
        "power_sums", "sums[image, [-chunk-]{+0+}] = total", RACE, "argument 2"),
    "a trace and a norm in the same place": (
        "moments", "sum_of_block(square, [-others-]{+parts+})", RACE, _SHARED),
    "threads that leave before a barrier": (
        "weighted_sum", f"{{+    if column >= d:\n        return\n+}}{_PARTS}",
        DIVERGENT, "left the kernel"),
    "a barrier in a branch": (
        "weighted_sum", f"{_PARTS}{{+    if column < d:\n    +}}    cuda.syncthreads()\n",
        DIVERGENT, "do not come"),
    "no barrier before the parts are added": (
        "weighted_sum", f"{_PARTS}    [-cuda.syncthreads()-]\n", RACE, _SHARED),
    "a shuffle that names half of a warp": (
        "step", "value += cuda.shfl_xor_sync([-ALL_LANES-]{+0xFFFF+}, value, step)",
        MISSING, "its own mask"),
    "a row that is guarded too late": (
        "step", "    if row [->=-]{+>+} n:\n", OUTSIDE, "argument"),
    "a wrong stride in shared memory": (
        "small_image", "memory[uint32(row * [-n-]{+(n + 1)+} + j)]", RACE, _SHARED),
    "no barrier between iterations": (
        "small_image", "[-cuda.syncthreads()-]\n        now, following", RACE, _SHARED),
    "a histogram that is not set to zero": (
        "scatter", "        memory[[-i-]{+0+}] = M.dtype.type(0)\n", RACE, _SHARED),
    "no barrier between the rows": (
        "scatter", "j = uint32(j + BLOCK)\n        [-cuda.syncthreads()-]\n", RACE, _SHARED),
    "a row that is sorted into the one before": (
        "scatter", "others = k, uint32(k[- + d-])", RACE, _SHARED),
    "a histogram that is read too early": (
        "scatter", "        row = uint32(row + blocks)\n    [-cuda.syncthreads()-]\n",
        RACE, _SHARED),
    "a bin beyond the histogram": (
        "scatter", "return found[- if found < k else uint32(found - k)-]{+ + 9 * k+}",
        OUTSIDE, _SHARED),
    "a thread for each value, not for each bin": (
        "scatter", "memory[shifted(filled[[-u-]{+u >> 1+}]", RACE, _SHARED),
    "bins that go round to the same one": (
        "scatter_far", "else uint32([-found - k-]{+0+})", RACE, "argument 7"),
    "no barrier between the rows of a sketch": (
        "scatter_far", "while row < d:\n        [-cuda.syncthreads()-]\n", RACE, "argument 7"),
    "one sketch for all blocks of an image": (
        "scatter_far", "out[image, [-part-]{+0+}, shifted(", RACE, "argument 7"),
    "a sum over too many sketches": (
        "added", "while part < uint32(parts.shape[1]{+ + 1+}):", OUTSIDE, "argument 0"),
    "columns beyond the matrix": (
        "product", "y = Q[image, [-min(-]row[-, last)-], min(", OUTSIDE, "argument"),
}  # fmt: skip

FAULTS = {"cupy": CUPY, "numba": NUMBA}

# Nothing is wrong with memory or threads here: only what comes out is.
VALUES: dict[str, tuple[str, str]] = {
    "a mirror image that is not in the row sums": ("gram", "[-total += mirrored;-]{+;+}"),
    "a diagonal that is counted twice": (
        "gram", "there = at.second + threadIdx.x [-<-]{+<=+} column && column < n;"),
    "half of a row that is not in its sum": (
        "from_parts", "halves[0][threadIdx.x][- + halves[1][threadIdx.x]-];"),
    "columns beyond the last one that are not zeros": (
        "gram", "mov.f32 %0, 0f[-00000000-]{+3f800000+};"),
    "features beyond the last one that are not zeros": (
        "outer", "mov.f32 %0, 0f[-00000000-]{+3f800000+};"),
    "products that are not added up": ("outer", "sums[i][j] [-+-]= row[i] * column[j];"),
    "parts that begin in the middle of others": ("gram_parts", "at.part * [-length-]{+STEP+};"),
    "a triangle that is read where it was not made": (
        "from_triangle", "? C[static_cast<size_t>([-p) * n + q-]{+q) * n + p+}]"),
    "a row of K too early": ("small_image", "memory, now, start[--]{+ / 2+}, n, across);"),
    "lanes that keep the sums that they should give away": (
        "step", "given = upper ? [-sums[i] : sums[i + left]-]{+sums[i + left] : sums[i]+};"),
    "a weight to the wrong power": ("free_step", "target, [---]tau)"),
    "rows without a weight that get one": ("step", "weight [-==-]{+<+} T(0) ? weight"),
    "products where their squares were wanted": ("free_sums", "[-product-]{+T(1)+} * (product * ("),
    "forms that are never doubted": (
        "free_sums", "row < n && [-!(total >= share * bound)-]{+false+};"),
    "the row of another warp": ("free_sums", "row - warp + [-other-]{+1+}, n, d);"),
    "entries that a warp leaves out": ("free_sums", "start += WARPS * STEP_ROWS[--]{+ * 2+}) {"),
    "a norm in place of its root": ("normalized", "[-sqrt(-]share / total[-)-]"),
    "signs that are lost": ("normalized_at_once", "sqrt(total), [-value-]{+T(1)+});"),
    "a sum that stays as it was when a larger value comes": (
        "power_sums", "total = lowered(total, [-before-]{+top+});"),
    "parts that are added as if all were of one magnitude": (
        "normalized", "lowered(parts[i], [-int(parts[count + i])-]{+top+})"),
    "a diagonal that a tile has twice": (
        "outer, with its norm", "also(value, column [-<-]{+<=+} row);"),
    "a diagonal that is there twice": ("triangle_sums", "WARP, row + 1, row{+ + 1+});"),
    "a triangle without its mirror image": (
        "normalized_triangle", "[-mirror_half(out + first, space, at, half, d);-]"),
    "signs that are turned": ("count_sketch", "signs[j] [-<-]{+>+} 0 ? -x[j]"),
    "one sign instead of two": ("scatter", "s1[row] == [-s2[j]-]{+1+} ?"),
    "an exponent one too low": ("scaled", "? exponent_of(size){+ - 1+}"),
    "a scale that is taken off instead of put back": ("restored", "([---]exponents"),
}  # fmt: skip
