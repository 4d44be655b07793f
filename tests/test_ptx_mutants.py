"""Would a mistake be seen? Kernels with one instruction changed, and counts that must not move."""

from __future__ import annotations

import json

import effort
import numpy as np
import pytest

pytest.importorskip("cuda.bindings.nvrtc")
pytest.importorskip("numba.cuda")

from gpu.mutation import MUTANTS, STEPS, check
from ptx_samples import cases

from demopool import ptx

TESTED = effort.cases(MUTANTS, 8)

# Mutants that are left, by sample: a piece of the line of the source that was changed, and why no
# test can see it, once for each mutant. One that is left and not named here fails the test, and so
# does a name without its mutants.
_TWICE = "written twice: what the compiler put before a branch it puts behind it too"
_BEYOND = "another number beyond the last row, or beyond the last column where B has a zero"
_EMPTY = "whether there is anything to add up: otherwise one slab of zeros is added"
SURVIVORS: dict[str, dict[str, tuple[str, ...]]] = {
    "sinkhorn": {
        "now[i] = 1.0f": (
            "sets one weight more at the start: the first of the next iteration's, not yet in use",
            "the bits of 1.0f as an integer: the next float, an error of one eps",
        ),
    },
    "row-sums": {
        "for (int j = lane; j < columns": (_TWICE,),
        "sum += __shfl_xor_sync": (
            "lane ^ 17 instead of lane ^ 16: with ^ 8, 4, 2, 1 it still adds up all 32 lanes",
        ),
    },
    "signed-root": {"for (int i = threadIdx.x; i < quads": (_TWICE,)},
    "last-block-sum": {
        "for (int i = blockIdx.x * blockDim.x": (_TWICE,),
        "mine += __shfl_down_sync": (
            "the last step clamps at lane 2 instead of 31: only the sum in lane 0 is used",
        ),
    },
    "numba-gram": {"while start < d": (_TWICE,)},
    "numba-sinkhorn": {
        "if t < n": (_TWICE,),
        "for _ in range(iterations)": (
            "the value of threads without a row, which nobody stores",
            "the number of iterations left when there are none: the loop is not entered",
        ),
    },
    "numba-row-sums": {"def row_sums(": (_TWICE,)},
    "numba-histogram": {
        "cuda.atomic.add(counts, uint32(values[i]), 1)": (
            "without the mask that makes an index unsigned: those of the test are",
        ),
    },
    "product-tf32": {'asm("cvt.rna.tf32.f32': (_BEYOND,), "return i < rows": (_BEYOND,)},
    "product-bf16": {
        "for (int start = 0; start < k": (_EMPTY,),
        "return i < rows": (_BEYOND,),
    },
    "product-3xtf32": {"for (int start = 0; start < k": (_EMPTY,)},
    "product-f16": {"return i < rows": (_BEYOND,)},
}


def _line(mutant: ptx.Mutant) -> str:
    file, _, number = mutant.source.partition(":")
    return cases.SOURCE.with_name(file).read_text().splitlines()[int(number) - 1].strip()


def _is_caught(sample: cases.Sample, mutant: ptx.Mutant, allowed: float) -> bool:
    """By a fault, or by a value that is off."""
    try:
        return max(sample.errors(mutant.module, max_steps=STEPS)) > allowed
    except ptx.PtxError:
        return True


@pytest.mark.parametrize("sample", cases.SAMPLES, ids=lambda sample: sample.name)
def test_only_mutants_that_are_explained_are_left(sample: cases.Sample) -> None:
    module = sample.module()
    allowed = max(16.0, 4 * max(sample.errors(module)))
    drawn = list(ptx.mutants(module, sample.kernel, TESTED, seed=0))
    left = [_line(mutant) for mutant in drawn if not _is_caught(sample, mutant, allowed)]
    assert len(drawn) >= min(TESTED, 30)
    check(SURVIVORS.get(sample.name, {}), left, all_of_them=TESTED == MUTANTS)


def test_over_all_kernels_97_percent_are_caught() -> None:
    """The survivors are named above, and the test above compares them."""
    left = [len(why) for lines in SURVIVORS.values() for why in lines.values()]
    assert sum(left) <= 0.03 * MUTANTS * len(cases.SAMPLES)


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
    """A kernel that gets worse, or better, shows here: `python -m tools.gpu counts --write`."""
    assert cases.counted() == json.loads(cases.COUNTS.read_text())


def test_counts_of_a_transpose_by_hand() -> None:
    """32 x 32 floats in tiles of 16: every warp moves two rows of 64 bytes, in both directions.

    In rows of 17 words the last word of a warp's second row is in the bank of its first one.
    """
    counts, _, _ = cases.BY_NAME["transpose"].run((32, 32))
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
    source = cases.SOURCE.read_text().replace("tile[TILE][TILE + 1]", "tile[TILE][TILE]")
    module = cases.compiled(source)
    counts, _, _ = cases.BY_NAME["transpose"].run((32, 32), module)
    assert counts.bank_conflicts == 4 * 8 * 7


def test_strided_loads_waste_what_they_move() -> None:
    body, args = "y[threadIdx.x] = x[8 * threadIdx.x];", [np.zeros(256, "f4"), ptx.empty(32)]
    counts = cases.launched(body, "const float* x, float* y", args, block=32)
    assert counts.traffic["argument 0"].sectors == 32
    assert counts.traffic["argument 1"].sectors == 4
    assert counts.useful_bytes == 2 * 128
    assert counts.useful_share == pytest.approx(256 / (36 * 32))


def test_counts_add_up() -> None:
    one, _, _ = cases.BY_NAME["total"].run((300,))
    two = one + one
    assert two.instructions == 2 * one.instructions
    assert two.traffic["argument 0"].sectors == 2 * one.traffic["argument 0"].sectors
    assert one.atomics == 3
