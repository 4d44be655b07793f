"""Would a mistake be seen? Kernels with one instruction changed, and counts that must not move."""

from __future__ import annotations

import json

import numpy as np
import pytest

pytest.importorskip("cuda.bindings.nvrtc")
pytest.importorskip("numba.cuda")

from ptx_samples import cases

from demopool import ptx
from tools import ptx_counts

MUTANTS = 50
STEPS = 20_000
"""No sample takes half as many: a mutant that does never ends."""

# Mutants that are left, by sample: what was changed, and why no test can see it. A mutant that is
# left and not named here fails the test, and so does a name that no mutant has any more.
_TWICE = "written twice: what the compiler put before a branch it puts behind it too"
SURVIVORS: dict[str, dict[str, str]] = {
    "sinkhorn": {
        "`setp.lt.s32 %p2, %r31, %r23` -> `setp.le.s32 %p2, %r31, %r23`": (
            "sets one weight more at the start: the first of the next iteration's, not yet in use"
        ),
        "`mov.u32 %r26, 1065353216` -> `mov.u32 %r26, 1065353217`": (
            "the bits of 1.0f as an integer: the next float, an error of one eps"
        ),
    },
    "row-sums": {
        "`mov.u32 %r55, 0` left out": _TWICE,
        "`mov.u32 %r36, 16` -> `mov.u32 %r36, 17`": (
            "lane ^ 17 instead of lane ^ 16: with ^ 8, 4, 2, 1 it still adds up all 32 lanes"
        ),
    },
    "signed-root": {"`mov.f32 %f78, 0f00000000` left out": _TWICE},
    "last-block-sum": {
        "`mov.f32 %f34, 0f00000000` left out": _TWICE,
        "`shfl.sync.down.b32 %r29|%p7, %r27, %r28, %r15, %r17` -> "
        "`shfl.sync.down.b32 %r29|%p7, %r27, %r28, %r14, %r17`": (
            "the last step clamps at lane 2 instead of 31: only the sum in lane 0 is used"
        ),
    },
    "numba-gram": {"`mov.f32 %f63, 0f00000000` left out": _TWICE},
    "numba-sinkhorn": {
        "`mov.f32 %f41, 0f00000000` left out": _TWICE,
        "`mov.f32 %f42, 0f3F800000` -> `mov.f32 %f42, 0f3FC00000`": (
            "the value of threads without a row, which nobody stores"
        ),
        "`selp.s64 %rd22, -1, 0, %p1` -> `selp.s64 %rd22, -1, 1, %p1`": (
            "the number of iterations left when there are none: the loop is not entered"
        ),
    },
    "numba-row-sums": {"`mov.f32 %f18, 0f00000000` left out": _TWICE},
    "numba-histogram": {
        "`add.s64 %rd12, %rd9, %rd11` -> `add.s64 %rd12, %rd9, %rd10`": (
            "without the mask that makes an index unsigned: those of the test are"
        ),
    },
}


def _is_caught(sample: cases.Sample, mutant: ptx.Mutant, allowed: float) -> bool:
    """By a fault, or by a value that is off."""
    try:
        return max(sample.errors(mutant.module, most_steps=STEPS)) > allowed
    except ptx.PtxError:
        return True


@pytest.mark.parametrize("sample", cases.SAMPLES, ids=lambda sample: sample.name)
def test_of_random_mutants_95_percent_are_caught(sample: cases.Sample) -> None:
    module = sample.module()
    allowed = max(16.0, 4 * max(sample.errors(module)))
    drawn = list(ptx.mutants(module, sample.kernel, MUTANTS, seed=0))
    left = [m.what for m in drawn if not _is_caught(sample, m, allowed)]
    assert len(drawn) >= 30
    assert sorted(left) == sorted(SURVIVORS.get(sample.name, {}))
    assert len(left) <= 0.06 * len(drawn)


def test_over_all_kernels_97_percent_are_caught() -> None:
    """The survivors are named above, and the test above compares them."""
    left = sum(len(named) for named in SURVIVORS.values())
    assert left <= 0.03 * MUTANTS * len(cases.SAMPLES)


def test_the_cases_of_the_samples_reach_most_of_their_instructions() -> None:
    for sample in cases.SAMPLES:
        module = sample.module()
        sample.errors(module)
        assert ptx.coverage(module, sample.kernel) > 0.85, sample.name


def test_mutants_are_drawn_by_their_seed() -> None:
    sample = cases.BY_NAME["total"]
    module = sample.module()
    sample.errors(module)
    first, same, other = (
        [str(m) for m in ptx.mutants(module, "total", 10, seed=seed)] for seed in (1, 1, 2)
    )
    assert first == same != other
    assert len(set(first)) == 10


def test_counts_are_what_they_were() -> None:
    """A kernel that gets worse, or better, shows here: `python -m tools.ptx_counts --write`."""
    assert ptx_counts.counted() == json.loads(ptx_counts.FILE.read_text())


def test_counts_of_a_transpose_by_hand() -> None:
    """32 x 32 floats in tiles of 16: every warp moves two rows of 64 bytes, in both directions.

    In rows of 17 words the last word of a warp's second row is in the bank of its first one.
    """
    sample = cases.BY_NAME["transpose"]
    counts, _, _ = sample.run(sample.module(), sample.kernel, (32, 32))
    warps = 4 * 8
    assert counts.global_requests == 2 * warps
    assert counts.global_sectors == 2 * warps * 4
    assert counts.useful_share == 1.0
    assert counts.bank_conflicts == 2 * warps
    assert counts.barriers == 4
    assert (counts.flops, counts.atomics, counts.divergent_branches) == (0, 0, 0)
    assert counts.traffic["argument 0"].loaded_bytes == 32 * 32 * 4
    assert counts.traffic["argument 1"].stored_bytes == 32 * 32 * 4


def test_a_layout_without_padding_has_bank_conflicts() -> None:
    """Two columns of a 16 x 16 tile: the 32 words are in four banks, eight in each."""
    source = cases.SOURCE.read_text().replace(
        "float tile[TILE][TILE + 1]", "float tile[TILE][TILE]"
    )
    module = ptx.compile(source, names=cases.INSTANCES)
    sample = cases.BY_NAME["transpose"]
    counts, _, _ = sample.run(module, sample.kernel, (32, 32))
    assert counts.bank_conflicts == 4 * 8 * 7


def test_strided_loads_waste_what_they_move() -> None:
    text = (
        'extern "C" __global__ void strided(const float* x, float* y) {'
        " y[threadIdx.x] = x[8 * threadIdx.x]; }"
    )
    counts = ptx.compile(text).launch("strided", 1, 32, [np.zeros(256, "f4"), ptx.empty(32)])
    assert counts.traffic["argument 0"].sectors == 32
    assert counts.traffic["argument 1"].sectors == 4
    assert counts.useful_bytes == 2 * 128
    assert counts.useful_share == pytest.approx(256 / (36 * 32))


def test_counts_add_up() -> None:
    sample = cases.BY_NAME["total"]
    one, _, _ = sample.run(sample.module(), sample.kernel, (300,))
    two = one + one
    assert two.instructions == 2 * one.instructions
    assert two.traffic["argument 0"].sectors == 2 * one.traffic["argument 0"].sectors
    assert one.atomics == 3
