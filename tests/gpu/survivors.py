"""Mutants that nothing shows, of the draw with seed 0: by library and kernel, a piece of the line
of the source that was changed, and why it is not seen, once for each mutant of the line.

The line is the one that the compiler gives. Numba gives shuffles of a warp the head of the kernel,
or a line of ``tiles.py`` that is taken for one of the kernel if that has so many.

A mutant that is left and not named here fails a test, and so does a name without its mutants:
``python -m tools.gpu mutants cupy gram`` lists those that are left.
"""

from __future__ import annotations

_ALL_LANES = "another lane, but with the other steps it still takes in all lanes of the (half) warp"
_SAME_LANE = "other lanes write: all of them have the result"
_TWICE = "written twice: what the compiler put before a branch it puts behind it too"
_NEGATIVE = "pow: whether the exponent is odd matters for negative bases only, sums are positive"
_LAST_BITS = "pow: the last bits of the logarithm, which the few results of these launches lack"
_MINUS_ONE = "pow: of -1 to an infinite power, which nobody asks for"
_FAR = "pow: where its result is 0 or infinite anyway"
_NAN = "pow: NaN either way"
_SCALED = "pow: the smallest ordinary numbers are scaled as subnormal ones are, which is exact"
_LDEXP = "ldexp: where it changes its way to the same number, at exponents that no float has"
_OFF_DIAGONAL = "a part of a tile beside the diagonal: a row of it is never a column of it"
_SAME_SIDE = (
    "a part of a tile that is all on one side of the diagonal, by another row or column too"
)
_PADDING = "beyond the features or their ends: not kept, or times the zero of the other factor"
_ZERO = "zero is zero either way"
_NO_VALUES = "of a bin without values, of which there is none"
_MENDED = "any row will do: the loops mend it"
_SQUARE = "another side of a square matrix: equally long"
_GROUPS = "columns are added up in other groups: sums of integers are exact"
_LAST_BIT = "a last bit that is lost in the sum"
_BELOW_RANGE = "a shift beyond the range of float: the first half of it makes zero already"
_OTHER_PARTS = "other parts of the same shift"
_EIGHT_PARTS = "of eight parts in 32 lanes the first two steps add zeros"
_SAME_NUMBER = "the same number, before or after it was made 64 bits long or a global address"

SURVIVORS: dict[str, dict[str, dict[str, tuple[str, ...]]]] = {
    "cupy": {
        "count_sketch": {
            "const size_t last = first + FEATURES": (
                "a group goes on to the last feature, and writes what the next one writes",
            ),
        },
        "first_step": {
            "target = pow(total, gamma)": ("pow: of an infinite number, infinite either way", _FAR),
            "pow(total / target, -tau)": (_LAST_BITS, _NEGATIVE),
        },
        "free_step": {
            "value += __shfl_xor_sync(ALL_LANES, value, step)": (_ALL_LANES,),
            "if ((exact >> other & 1) == 0) continue": (
                "a warp reads a row from n on, and adds nothing of it",
            ),
            "pow(weight * total / target, -tau)": (_NAN, _NEGATIVE),
        },
        "free_sums": {
            "if (row < n) {": ("a row from n on has a sum and a bound of 0, and no doubt either",),
        },
        "from_parts": {
            "__int_as_float((exponent + 127) << 23)": (_LAST_BIT,),
            "for (unsigned part = 0; part < count; ++part)": ("of no parts, which nobody has",),
        },
        "from_triangle": {"while (row * (row + 1) / 2 > tile) --row": (_MENDED,)},
        "gram": {
            "for (unsigned i = 0; i < SIDE<T>; ++i)": ("the same parameter, which is read twice",),
            "kind == RECTIFY && product < T(0)": (_ZERO,),
        },
        "gram_parts": {"const unsigned end = min(stop, start + SLABS * STEP)": (_GROUPS,)},
        "largest": {"== 0) atomic_largest(&out[image], found)": (_SAME_LANE,)},
        "normalized": {
            "most = max(most, int(parts[count + i]))": ("another top serves as well",),
        },
        "normalized_at_once": {
            "max(power * (below - top), -2 * TOP<T>)": (_BELOW_RANGE,),
            "for (unsigned j = threadIdx.x; j < values; j += BLOCK) {": (
                "of threads without a value: 1 for the lowest top, which is zero for any other",
            ),
            "if (size * scale >= T(1)) raise": ("a number that is zero unless it is set",),
            "larger(value, __shfl_xor_sync(ALL_LANES, value, step))": (_ALL_LANES,),
            "const int half = exponent >> 1": (_OTHER_PARTS,) * 2,
        },
        "normalized_triangle": {
            "const T value = p < n && q <= p": ("above the diagonal, which is not kept",),
        },
        "outer_parts": {
            "while (start < stop) {": (_GROUPS,),
            "const unsigned end = min(stop, start + SLABS * STEP)": (_GROUPS,),
        },
        "power_sums": {
            "if (size * scale >= T(1)) raise": ("the sign of a number that has none",),
        },
        "restored": {
            "static_cast<int>(whole), -most": ("a power of two with which no result is in range",),
        },
        "scatter": {
            "i < runs[u + 1]; ++i) total += value(i)": (
                _NO_VALUES,
                "zero taken away, not added",
            ),
        },
        "scatter_far": {
            "i < runs[u + 1]; ++i) total += value(i)": (_NO_VALUES,),
        },
        "triangle_sums": {
            "* power_of_two(value, exponent - half)": (_BELOW_RANGE,),
            "const int half = exponent >> 1": (_BELOW_RANGE,),
            "__int_as_float((exponent + 127) << 23)": (_LAST_BIT,),
            "value += __shfl_xor_sync(ALL_LANES, value, step)": (_EIGHT_PARTS,),
        },
        "small_image": {
            "pow(weight * total / target, -tau)": (
                *(_FAR, _MINUS_ONE),
                "pow: of 0 or infinity to a positive power, but tau is not negative",
            ),
            "for (unsigned i = threadIdx.x; i < across; i += blockDim.x)": (
                "a zero where a sum is written later",
            ),
        },
        "step": {
            "pow(weight * total / target, -tau)": (
                *(_MINUS_ONE, "pow: an exponent that is flushed to zero, not zero"),
            ),
        },
        "unordinary": {
            "threadIdx.x % WARP == 0) atomicMax(found, 1)": (_SAME_LANE,),
            "return __float_as_int(value) & 0x7fffffff": (
                "of an end of the range, a power of two, whose last bit is 0",
            )
            * 2,
            "value = larger(value, __shfl_xor_sync(ALL_LANES, value, step))": (_ALL_LANES,) * 2,
        },
    },
    "numba": {
        "added": {"while part < uint32(parts.shape[1])": (_TWICE,)},
        "exact_rows": {"def exact_rows(": (_TWICE,)},
        "finish": {"factor = math.ldexp(math.sqrt(bound[image])": (_LDEXP,) * 2},
        "first_step": {
            "target = math.pow(total, gamma)": (_NEGATIVE, _LAST_BITS, _SCALED, _FAR),
            "weight = math.pow(total / target, -tau)": (_SCALED, _NEGATIVE),
        },
        "from_parts": {
            "def from_parts(": ("the last barrier, after which nobody uses what it guards", _ZERO),
        },
        "gram": {"def gram(": (*(_MENDED,) * 3, *(_SAME_SIDE,) * 2)},
        "gram_parts": {
            "def gram_parts(": (_MENDED,) * 3,
            "for i in range(4)": (_TWICE,) * 2,
            "rows[r, tx] = x if k < stop": (_PADDING,),
        },
        "largest": {
            "cuda.shfl_xor_sync(ALL_LANES, value, step)": (_ALL_LANES,),
            "if uint32(cuda.threadIdx.x) & 31 == 0": (_SAME_LANE,) * 2,
        },
        "moments": {
            "if cuda.threadIdx.x == 0": (_SAME_LANE,),
            "square += value * value": (_ALL_LANES,),
        },
        "normalized": {
            "def normalized(": ("without |.|, of what gets its sign then", _TWICE),
            "while i < sums.shape[1]": (_ALL_LANES,),
        },
        "normalized_at_once": {
            "while j < count and scale > 0": (
                "the largest of a warp: where it is zero, all of its values are",
                "a sum of zeros, which is not used",
            ),
            "def normalized_at_once(": (_ALL_LANES,) * 2,
        },
        "outer": {"def outer(": (*(_OFF_DIAGONAL,) * 5, _SAME_SIDE, _MENDED)},
        "outer_parts": {"def outer_parts(": (*(_MENDED,) * 3, *(_PADDING,) * 2)},
        "power_sums": {
            "cuda.shfl_xor_sync(ALL_LANES, value, step)": (_ALL_LANES,),
            "if uint32(cuda.threadIdx.x) & 31 == 0": (_SAME_LANE,),
        },
        "product": {"columns[c, ty] = y if row < d": (_PADDING,)},
        "restored": {"math.ldexp(weight * factor, int32(whole))": (_LDEXP,)},
        "row_forms": {
            "rows[r, tx] = x if k < stop": (_PADDING,),
            "last, final = uint32(P.shape[1] - 1)": (_SQUARE,),
            "def row_forms(": (_ALL_LANES,),
        },
        "scaled": {
            "if magnitude[image] > 0": ("the exponent of 0 is 0 with and without the test",),
            "exponent = math.frexp(magnitude[image])[1]": (
                "frexp: the exponent with the sign bit, which is 0 here",
                "frexp: without its own test for 0, which has been made before",
            ),
        },
        "scatter_far": {"while i < stop": (_NO_VALUES,) * 2},
        "start": {"value, limit = A[image, p, q], bound[image]": (_SQUARE,)},
        "step": {
            "cuda.shfl_xor_sync(ALL_LANES, value, step)": (_ALL_LANES,),
            "math.pow(weight * total / targets[image, row], -tau)": (
                *(_MINUS_ONE, _FAR, _LAST_BITS),
            ),
        },
        "unordinary": {
            "cuda.shfl_xor_sync(ALL_LANES, value, step)": (_ALL_LANES,) * 2,
            "if not inside and lane == 0": (_SAME_LANE,),
        },
        "update": {"math.pow(weight * sums[i] / targets[i], -tau)": (_NAN, _NEGATIVE)},
    },
}
