"""Would a mistake in a kernel of cupy:cuda be seen? Kernels with one instruction changed.

Results are compared bit for bit; ``tools/cupy_cases.py`` has the launches. Mutants of what CUDA's
own mathematics puts into a kernel (pow, exp2) are drawn with those of its own code, and
judged like them: the compiler gives both the same line of the source.

Here are the first mutants of each kernel; ``CUPY_MUTANTS=50`` in the environment tests all for
which survivors are named, and ``python -m tools.cupy_mutants`` lists those that are left.
"""

from __future__ import annotations

import os

import pytest

pytest.importorskip("cuda.bindings.nvrtc")

from demopool import ptx
from demopool.implementations.cupy_cuda import signatures
from tools import mutation
from tools.cupy_cases import CASES
from tools.cupy_mutants import KERNELS

TESTED = int(os.environ.get("CUPY_MUTANTS", "16"))

# Mutants that are left, by kernel: what was changed, and why it is not seen. A mutant that is
# left and not named here fails the test, and so does a name that no mutant has any more.
_ALL_LANES = "another lane, but with the other steps it still takes in all lanes of the warp"
_SAME_LANE = "other lanes write: all of them have the result"
_TWICE = "written twice: what the compiler put before a branch it puts behind it too"
_UNUSED = "a sum that is not used: with tau = 0 weights stay as they are"
_NEGATIVE = (
    "pow: whether the exponent is odd matters for negative bases only, and sums are positive"
)
_LOW_BITS = "pow: a bit of 2 in 1,200,000 results, counted; these launches have 3,000 each"
_PARTS = "pow: 2 to a whole number as another product of two powers of two"
_MINUS_ONE = "pow: of -1 to an infinite power, which nobody asks for"
_BEFORE = "a case that never comes here; it has been dealt with before"
_SUBNORMAL = "a subnormal number, which is 0 with -ftz"
_FAR = "pow: where its result is 0 or infinite anyway"
_OFF_DIAGONAL = "a part of a tile beside the diagonal: a row of it is never a column of it"
_PADDING = "beyond the features or their ends: not kept, or times the zero of the other factor"
_ZERO = "zero is zero either way"
_MENDED = "any row will do: the loops mend it"
_RANGE = "a power of two with which no result is in range"

SURVIVORS: dict[str, dict[str, str]] = {
    "count_sketch": {
        "`add.s64 %rd29, %rd119, 8` -> `sub.s64 %rd29, %rd119, 8`": (
            "a group goes on to the last feature, and writes what the next one writes"
        ),
    },
    "first_step": {
        "`setp.eq.ftz.f32 %p20, %f2, 0f3F800000` -> "
        "`setp.eq.ftz.f32 %p20, %f2, 0f3FC00000`": _NEGATIVE,
        "`setp.eq.ftz.f32 %p27, %f22, 0f80000000` -> "
        "`setp.eq.ftz.f32 %p27, %f22, 0f80400000`": _SUBNORMAL,
        "`setp.eq.ftz.f32 %p31, %f10, 0f00000000` -> "
        "`setp.eq.ftz.f32 %p31, %f10, 0f3F800000`": _BEFORE,
        "`setp.gt.ftz.f32 %p24, %f167, 0f43180000` -> "
        "`setp.gt.ftz.f32 %p24, %f167, 0f43580000`": _FAR,
        "`sub.ftz.f32 %f104, %f103, %f22` -> `sub.ftz.f32 %f104, %f22, %f103`": _NEGATIVE,
        "`sub.ftz.f32 %f29, %f21, %f28` -> `add.ftz.f32 %f29, %f21, %f28`": _NEGATIVE,
        "`sub.ftz.f32 %f29, %f21, %f28` -> `sub.ftz.f32 %f29, %f21, %f27`": _NEGATIVE,
    },
    "free_step": {
        "`setp.eq.ftz.f32 %p42, %f17, 0fBF800000` -> "
        "`setp.ne.ftz.f32 %p42, %f17, 0fBF800000`": _MINUS_ONE,
    },
    "free_sums": {
        "`mov.f32 %f78, 0f00000000` left out": _TWICE,
        "`mov.f32 %f79, 0f00000000` left out": _TWICE,
        "`mov.u32 %r58, 2` -> `mov.u32 %r58, 3`": _ALL_LANES,
        "`setp.ne.s32 %p30, %r4, 0` -> `setp.ne.s32 %p30, %r4, 1`": _SAME_LANE,
    },
    "from_triangle": {
        "`mov.u32 %r180, 4` -> `mov.u32 %r180, 5`": _ALL_LANES,
        "`or.b32 %r24, %r23, 1` -> `and.b32 %r24, %r23, 1`": _MENDED,
        "`setp.le.u32 %p59, %r285, %r51` -> `setp.lt.u32 %p59, %r285, %r51`": _OFF_DIAGONAL,
        "`setp.lt.ftz.f32 %p80, %f340, 0f00000000` -> "
        "`setp.le.ftz.f32 %p80, %f340, 0f00000000`": _ZERO,
    },
    "gram": {
        "`mov.f32 %f764, 0f00000000` -> `mov.f32 %f764, 0f3F800000`": _PADDING,
        "`or.b32 %r38, %r37, 1` -> `or.b32 %r38, %r37, 0`": _MENDED,
        "`setp.gt.u32 %p77, %r25, %r74` -> `setp.ge.u32 %p77, %r25, %r74`": _OFF_DIAGONAL,
        "`setp.gt.u32 %p80, %r26, %r74` -> `setp.gt.u32 %p80, %r26, %r73`": (
            "the row before it was made 64 bits long and short again: the same number"
        ),
    },
    "largest": {
        "`@%p8 bra $L__BB0_5` the other way": _SAME_LANE,
    },
    "normalized_at_once": {
        "`mov.f32 %f86, 0f00000000` left out": _TWICE,
        "`setp.ne.s32 %p8, %r4, 0` -> `setp.ne.s32 %p8, %r4, 1`": _SAME_LANE,
    },
    "outer": {
        "`setp.ge.u32 %p83, %r23, %r25` -> `setp.gt.u32 %p83, %r23, %r25`": _OFF_DIAGONAL,
        "`setp.gt.u32 %p45, %r16, %r20` -> `setp.ge.u32 %p45, %r16, %r20`": _OFF_DIAGONAL,
    },
    "power_sums": {
        "`add.s64 %rd9, %rd7, %rd8` -> `add.s64 %rd9, %rd6, %rd8`": (
            "the address before it is made one of global memory: the same number"
        ),
        "`mov.u32 %r24, 4` -> `mov.u32 %r24, 5`": _ALL_LANES,
        "`setp.ne.s32 %p11, %r33, 0` -> `setp.ne.s32 %p11, %r33, 1`": _SAME_LANE,
    },
    "restored": {
        "`max.s32 %r13, %r12, -300` -> `max.s32 %r13, %r12, -299`": _RANGE,
    },
    "scatter_far": {
        "`setp.ge.u32 %p1, %r17, %r8` -> `setp.gt.u32 %p1, %r17, %r8`": (
            "a block without a row: an image has no more blocks than rows"
        ),
    },
    "small_image": {
        "`add.ftz.f32 %f123, %f121, %f122` left out": _UNUSED,
        "`add.rn.ftz.f32 %f135, %f8, %f1` -> `sub.rn.ftz.f32 %f135, %f8, %f1`": (
            "pow: NaN either way"
        ),
        "`fma.rn.ftz.f32 %f93, %f92, %f90, %f91` -> "
        "`fma.rn.ftz.f32 %f93, %f92, %f89, %f91`": _LOW_BITS,
        "`mul.lo.s32 %r17, %r88, %r24` -> `add.s32 %r17, %r88, %r24`": _UNUSED,
        "`setp.eq.ftz.f32 %p26, %f12, 0f7F800000` -> "
        "`setp.eq.ftz.f32 %p26, %f11, 0f7F800000`": _MINUS_ONE,
        "`setp.ge.u32 %p35, %r6, %r24` -> `setp.gt.u32 %p35, %r6, %r24`": _UNUSED,
    },
    "step": {
        "`mov.u32 %r22, 4` -> `mov.u32 %r22, 5`": _ALL_LANES,
        "`setp.eq.ftz.f32 %p21, %f6, 0fBF800000` -> "
        "`setp.eq.ftz.f32 %p21, %f6, 0fBFC00000`": _MINUS_ONE,
    },
}


def test_every_kernel_has_cases() -> None:
    assert CASES.keys() == signatures.parameters().keys()


@pytest.mark.parametrize("name", sorted(CASES))
def test_only_mutants_that_are_explained_are_left(name: str) -> None:
    module, wanted = KERNELS.fresh(name)
    drawn = mutation.drawn(module)
    named = SURVIVORS.get(name, {})
    assert len(drawn) == mutation.MUTANTS
    assert named.keys() <= {mutant.what for mutant in drawn}
    tested = drawn[:TESTED]
    left = [mutant.what for mutant in KERNELS.survivors(tested, name, wanted)]
    assert sorted(left) == sorted(m.what for m in tested if m.what in named)
    assert ptx.coverage(module) >= 0.9


def test_over_all_kernels_95_percent_are_caught() -> None:
    """The survivors are named above, and the test above compares them.

    The cases were made with the draw of seed 0 in view. Of another draw, seed 4, that nobody had
    looked at, 806 of 850 were caught, 94.8 %; of the 44 others 19 are inside of CUDA's own pow.
    """
    left = sum(len(named) for named in SURVIVORS.values())
    assert left <= 0.05 * mutation.MUTANTS * len(CASES)
