"""Would a mistake in a kernel of numba:cuda be seen? Kernels with one instruction changed.

Results are compared bit for bit; ``tools/numba_cases.py`` has the launches. Mutants of what
libdevice puts into a kernel (pow, frexp, ldexp) are drawn with those of its own code, and judged
like them, though much of it is for numbers that do not occur.

Here are the first mutants of each kernel; ``NUMBA_MUTANTS=50`` in the environment tests all for
which survivors are named, and ``python -m tools.numba_mutants`` lists those that are left.
"""

from __future__ import annotations

import os

import pytest

pytest.importorskip("numba.cuda")
pytest.importorskip("cuda.pathfinder")

from demopool import ptx
from tools import mutation
from tools.numba_cases import CASES
from tools.numba_counts import LAUNCHES
from tools.numba_mutants import KERNELS

TESTED = int(os.environ.get("NUMBA_MUTANTS", "12"))

# Mutants that are left, by kernel: what was changed, and why it is not seen. A mutant that is
# left and not named here fails the test, and so does a name that no mutant has any more.
_ALL_LANES = "another lane, but with the other steps it still takes in all lanes of the (half) warp"
_SAME_LANE = "other lanes write: all of them have the result"
_SQUARE = "another side of a square matrix: equally long"
_OFF_DIAGONAL = "a part of a tile beside the diagonal: its rows and columns have one order anywhere"
_NEGATIVE = (
    "pow: whether the exponent is odd matters for negative bases only, and sums are positive"
)
_OVERFLOW = "pow: the sign of a number is asked for only when it is far beyond 1 (overflow)"
_LDEXP = "ldexp: where it changes its way to the same number, at exponents that no float has"
_NAN = "pow: NaN either way"
_PADDING = "beyond the features or their ends: not kept, or times the zero of the other factor"
_TWICE = "written twice: what the compiler put before a branch it puts behind it too"
_SAME_NUMBER = "the low half of a number below 2^32: the same number"
_ZERO = "zero is zero either way"
_FAR = "pow: where its result is 0 or infinite anyway"
_MINUS_ONE = "pow: of -1 to an infinite power, which nobody asks for"

SURVIVORS: dict[str, dict[str, str]] = {
    "bounds": {
        "`sub.f32 %f12, %f10, %f11` -> `sub.f32 %f12, %f11, %f10`": (
            "of the difference |.| is taken"
        ),
    },
    "exact_rows": {
        "`mov.u32 %r29, 4` -> `mov.u32 %r29, 5`": _ALL_LANES,
        "`mov.u32 %r67, 4` -> `mov.u32 %r67, 5`": _ALL_LANES,
    },
    "finish": {
        "`max.s32 %r13, %r12, -278` -> `max.s32 %r13, %r12, -277`": _LDEXP,
        "`setp.lt.s32 %p2, %r17, 101` -> `setp.lt.s32 %p2, %r17, 102`": _LDEXP,
    },
    "first_step": {
        "`mul.f32 %f28, %f21, 0f3F000000` -> `add.f32 %f28, %f21, 0f3F000000`": _NEGATIVE,
        "`selp.b32 %r17, %r15, %r16, %p21` -> `selp.b32 %r17, %r16, %r15, %p21`": _NEGATIVE,
        "`setp.gtu.f32 %p11, %f5, 0f7F800000` -> `setp.gtu.f32 %p11, %f4, 0f7F800000`": _NAN,
        "`sub.f32 %f31, %f21, %f30` -> `add.f32 %f31, %f21, %f30`": _NEGATIVE,
        "`sub.f32 %f31, %f21, %f30` -> `sub.f32 %f31, %f21, %f29`": _NEGATIVE,
    },
    "gram": {
        "`mov.f32 %f470, %f256` left out": _TWICE,
        "`or.pred %p27, %p10, %p26` -> `or.pred %p27, %p9, %p26`": _PADDING,
        "`setp.ge.u32 %p245, %r50, %r27` -> `setp.ge.u32 %p245, %r50, %r26`": (
            "rows from 48 on of a tile on the diagonal, columns below 32: no sum of theirs is there"
        ),
    },
    "largest": {
        "`mov.u32 %r19, 8` -> `mov.u32 %r19, 9`": _ALL_LANES,
        "`setp.ne.s32 %p8, %r30, 0` -> `setp.eq.s32 %p8, %r30, 0`": _SAME_LANE,
        "`setp.ne.s32 %p8, %r30, 0` -> `setp.ne.s32 %p8, %r30, 1`": _SAME_LANE,
    },
    "moments": {
        "`mov.u32 %r24, 4` -> `mov.u32 %r24, 5`": _ALL_LANES,
    },
    "normalized_at_once": {
        "`mov.u32 %r25, 8` -> `mov.u32 %r25, 9`": _ALL_LANES,
        "`mov.u32 %r31, 2` -> `mov.u32 %r31, 3`": _ALL_LANES,
        "`setp.leu.f32 %p10, %f5, 0f00000000` -> `setp.ltu.f32 %p10, %f5, 0f00000000`": (
            "a sum of zeros, which is not used"
        ),
        "`setp.gt.f32 %p22, %f5, 0f00000000` -> `setp.gt.f32 %p22, %f4, 0f00000000`": (
            "the largest of a warp: where it is zero, all of its values are"
        ),
    },
    "outer": {
        "`add.s64 %rd165, %rd164, %rd40` -> `add.s64 %rd165, %rd163, %rd40`": _SAME_NUMBER,
        "`setp.ge.u32 %p100, %r32, %r30` -> `setp.ge.u32 %p100, %r32, %r29`": _OFF_DIAGONAL,
    },
    "power_sums": {
        "`div.rn.f32 %f12, %f11, %f1` -> `div.rn.f32 %f12, %f10, %f1`": (
            "without |.|, of what is squared"
        ),
        "`mov.u32 %r21, 8` -> `mov.u32 %r21, 9`": _ALL_LANES,
        "`mov.u32 %r27, 2` -> `mov.u32 %r27, 3`": _ALL_LANES,
        "`setp.ne.s32 %p12, %r32, 0` -> `setp.ne.s32 %p12, %r32, 1`": _SAME_LANE,
    },
    "product": {
        "`add.s64 %rd208, %rd204, %rd38` -> `add.s64 %rd208, %rd204, %rd37`": _SQUARE,
    },
    "restored": {
        "`setp.lt.s32 %p3, %r17, 101` -> `setp.le.s32 %p3, %r17, 101`": _LDEXP,
    },
    "row_forms": {
        "`mov.f32 %f409, %f200` left out": _TWICE,
    },
    "scaled": {
        "`selp.b32 %r29, 0, %r16, %p6` -> `selp.b32 %r29, 0, %r16, %p5`": (
            "frexp: without its own test for 0, which has been made before"
        ),
        "`setp.eq.s32 %p5, %r14, 255` -> `setp.eq.s32 %p5, %r13, 255`": (
            "frexp: the exponent with the sign bit, which is 0 here"
        ),
        "`setp.leu.f32 %p2, %f1, 0f00000000` -> "
        "`setp.ltu.f32 %p2, %f1, 0f00000000`": "the exponent of 0 is 0 with and without the test",
    },
    "scatter": {
        "`mov.u32 %r17, %dynamic_smem_size` left out": "nobody reads it",
    },
    "start": {
        "`mul.lo.s64 %rd22, %rd21, %rd3` -> `mul.lo.s64 %rd22, %rd21, %rd2`": _SQUARE,
    },
    "step": {
        "`and.pred %p24, %p22, %p23` -> `and.pred %p24, %p21, %p23`": _MINUS_ONE,
        "`mov.u32 %r16, 16` -> `mov.u32 %r16, 17`": _ALL_LANES,
        "`setp.eq.f32 %p23, %f11, 0f7F800000` -> `setp.eq.f32 %p23, %f11, 0f7FC00000`": _MINUS_ONE,
        "`setp.lt.f32 %p13, %f80, 0f00000000` -> `setp.le.f32 %p13, %f80, 0f00000000`": _FAR,
        "`setp.lt.f32 %p13, %f80, 0f00000000` -> `setp.lt.f32 %p13, %f80, 0f3F800000`": _OVERFLOW,
    },
    "update": {
        "`add.rn.f32 %f94, %f2, %f3` -> `sub.rn.f32 %f94, %f2, %f3`": _NAN,
        "`selp.b32 %r16, %r14, %r15, %p21` -> `selp.b32 %r16, %r13, %r15, %p21`": _NEGATIVE,
    },
}


@pytest.mark.parametrize("name", sorted(CASES))
def test_only_mutants_that_are_explained_are_left(name: str) -> None:
    module, wanted = KERNELS.fresh(name)
    drawn = mutation.drawn(module)
    named = SURVIVORS.get(name, {})
    assert len(drawn) >= 20
    assert named.keys() <= {mutant.what for mutant in drawn}
    tested = drawn[:TESTED]
    left = [mutant.what for mutant in KERNELS.survivors(tested, name, wanted)]
    assert sorted(left) == sorted(m.what for m in tested if m.what in named)
    assert ptx.coverage(module) >= 0.8


def test_over_all_kernels_96_percent_are_caught() -> None:
    """The survivors are named above, and the test above compares them."""
    for names in (CASES, LAUNCHES):
        left = sum(len(SURVIVORS.get(name, {})) for name in names)
        assert left <= 0.04 * mutation.MUTANTS * len(names)


def test_every_kernel_that_is_counted_has_cases() -> None:
    assert LAUNCHES.keys() <= CASES.keys()


def test_no_kernel_works_on_float32_in_double() -> None:
    for name in CASES:
        code = KERNELS.fresh(name)[0].kernel().code
        assert not [ins.text for ins in code if "f64" in ins.modifiers], name
