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
_LOW_BITS = "pow: the last bit of one result in a thousand, more than these launches have"
_OVERFLOW = "pow: the sign of a number is asked for only when it is far beyond 1 (overflow)"
_BEFORE = "pow: a case that never comes here; it has been dealt with before"
_LDEXP = "ldexp: where it changes its way to the same number, at exponents that no float has"

SURVIVORS: dict[str, dict[str, str]] = {
    "bounds": {
        "`sub.f32 %f12, %f10, %f11` -> `sub.f32 %f12, %f11, %f10`": "of the difference |.| is taken"
    },
    "exact_rows": {
        "`mov.u32 %r28, 4` -> `mov.u32 %r28, 5`": _ALL_LANES,
        "`mov.u32 %r31, 2` -> `mov.u32 %r31, 3`": _ALL_LANES,
    },
    "finish": {
        "`max.s32 %r13, %r12, -278` -> `max.s32 %r13, %r12, -277`": _LDEXP,
        "`setp.lt.s32 %p2, %r17, 101` -> `setp.lt.s32 %p2, %r17, 102`": _LDEXP,
    },
    "first_step": {
        "`mul.f32 %f28, %f21, 0f3F000000` -> `add.f32 %f28, %f21, 0f3F000000`": _NEGATIVE,
        "`sub.f32 %f31, %f21, %f30` -> `add.f32 %f31, %f21, %f30`": _NEGATIVE,
        "`sub.f32 %f31, %f21, %f30` -> `sub.f32 %f31, %f21, %f29`": _NEGATIVE,
        "`setp.lt.f32 %p6, %f71, 0f00000000` -> `setp.le.f32 %p6, %f71, 0f00000000`": _OVERFLOW,
        "`setp.eq.f32 %p33, %f10, 0f00000000` -> `setp.eq.f32 %p33, %f10, 0f3F800000`": _BEFORE,
        "`or.pred %p14, %p12, %p13` -> `or.pred %p14, %p11, %p13`": _BEFORE,
        "`abs.f32 %f15, %f11` -> `abs.f32 %f15, %f10`": _BEFORE,
    },
    "gram": {
        "`setp.gt.u32 %p139, %r35, %r40` -> `setp.ge.u32 %p139, %r35, %r40`": _OFF_DIAGONAL,
        "`add.s64 %rd101, %rd455, 2` -> `add.s64 %rd101, %rd454, 2`": (
            "the row of a tile is mended when its root is a unit off: never up to 1024 rows"
        ),
    },
    "largest": {
        "`mov.u32 %r19, 8` -> `mov.u32 %r19, 9`": _ALL_LANES,
        "`setp.ne.s32 %p8, %r30, 0` -> `setp.eq.s32 %p8, %r30, 0`": _SAME_LANE,
        "`setp.ne.s32 %p8, %r30, 0` -> `setp.ne.s32 %p8, %r30, 1`": _SAME_LANE,
    },
    "moments": {"`mov.u32 %r24, 4` -> `mov.u32 %r24, 5`": _ALL_LANES},
    "outer": {
        "`setp.ge.u32 %p124, %r32, %r35` -> `setp.ge.u32 %p124, %r31, %r35`": _OFF_DIAGONAL,
        "`selp.u64 %rd123, 1, 0, %p34` -> `selp.u64 %rd123, 1, 1, %p34`": (
            "the column of the next step after the last one"
        ),
    },
    "power_sums": {
        "`mov.u32 %r21, 8` -> `mov.u32 %r21, 9`": _ALL_LANES,
        "`mov.u32 %r27, 2` -> `mov.u32 %r27, 3`": _ALL_LANES,
        "`div.rn.f32 %f12, %f11, %f1` -> `div.rn.f32 %f12, %f10, %f1`": (
            "without |.|, of what is squared"
        ),
        "`setp.ne.s32 %p12, %r32, 0` -> `setp.ne.s32 %p12, %r32, 1`": _SAME_LANE,
    },
    "row_forms": {
        "`mul.lo.s64 %rd6, %rd56, %rd40` -> `mul.lo.s64 %rd6, %rd56, %rd39`": _SQUARE,
        "`mov.u32 %r68, 4` -> `mov.u32 %r68, 5`": _ALL_LANES,
    },
    "scaled": {
        "`setp.leu.f32 %p2, %f1, 0f00000000` -> `setp.ltu.f32 %p2, %f1, 0f00000000`": (
            "the exponent of 0 is 0 with and without the test"
        ),
        "`setp.eq.s32 %p5, %r14, 255` -> `setp.eq.s32 %p5, %r13, 255`": (
            "frexp: the exponent with the sign bit, which is 0 here"
        ),
        "`selp.b32 %r29, 0, %r16, %p6` -> `selp.b32 %r29, 0, %r16, %p5`": (
            "frexp: without its own test for 0, which has been made before"
        ),
    },
    "scatter": {"`mov.u32 %r17, %dynamic_smem_size` left out": "nobody reads it"},
    "small_image": {
        "`add.s32 %r82, %r82, 256` -> `add.s32 %r82, %r82, 257`": (
            "the loop ends in the first round: an image that fits has fewer features than a block "
            "has threads"
        ),
    },
    "start": {"`mul.lo.s64 %rd22, %rd21, %rd3` -> `mul.lo.s64 %rd22, %rd21, %rd2`": _SQUARE},
    "step": {
        "`mov.u32 %r16, 16` -> `mov.u32 %r16, 17`": _ALL_LANES,
        "`mov.u32 %r23, 4` -> `mov.u32 %r23, 5`": _ALL_LANES,
        "`mov.u32 %r26, 2` -> `mov.u32 %r26, 3`": _ALL_LANES,
        "`fma.rn.f32 %f93, %f91, %f86, %f92` -> `fma.rn.f32 %f93, %f91, %f85, %f92`": _LOW_BITS,
        "`fma.rn.f32 %f73, %f72, %f56, %f71` -> `fma.rn.f32 %f73, %f72, %f55, %f71`": _LOW_BITS,
        "`setp.lt.f32 %p13, %f80, 0f00000000` -> `setp.lt.f32 %p13, %f80, 0f3F800000`": _OVERFLOW,
    },
    "update": {
        "`add.rn.f32 %f94, %f2, %f3` -> `sub.rn.f32 %f94, %f2, %f3`": "pow: NaN either way",
        "`selp.f32 %f94, 0f7FFFFFFF, %f89, %p20` -> `selp.f32 %f94, 0f7FBFFFFF, %f89, %p20`": (
            "pow: another NaN"
        ),
        "`setp.gt.f32 %p22, %f12, 0f80000000` -> `setp.gt.f32 %p22, %f12, 0f80400000`": (
            "pow: tells exponents below the smallest normal number from 0"
        ),
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
