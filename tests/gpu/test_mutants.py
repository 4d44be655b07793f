"""Would a mistake in a kernel be seen? Kernels with one instruction changed.

Here are the first mutants of each kernel; ``make test-all`` tests all those of ``survivors.py``.
"""

from __future__ import annotations

import re

import pytest
from click.testing import CliRunner
from effort import cases

from demopool import ptx
from tools import gpu

from .backends import BACKENDS, EVERY_KERNEL, Backend
from .mutation import MUTANTS, Examined, check
from .survivors import SURVIVORS

TESTED = cases(MUTANTS, 2)


@pytest.mark.parametrize(("backend", "kernel"), EVERY_KERNEL)
def test_only_mutants_that_are_explained_are_left(backend: str, kernel: str) -> None:
    tested = Examined(BACKENDS[backend], kernel)
    drawn = tested.mutants[:TESTED]
    assert len(drawn) >= min(TESTED, 20)
    named = SURVIVORS[backend].get(kernel, {})
    left = [tested.backend.line(mutant) for mutant in tested.survivors(drawn)]
    check(named, left, all_of_them=TESTED == MUTANTS)
    code = tested.module.kernel().code
    assert not [ins.text for ins in code if "f64" in ins.modifiers], "float32 worked on in double"
    assert ptx.coverage(tested.module) >= (0.9 if backend == "cupy" else 0.8)


def test_nearly_all_mutants_are_caught(b: Backend) -> None:
    """The survivors are named, and the test above compares them.

    The cases were made with the draw of seed 0 in view. Of another draw, seed 4, that nobody had
    looked at, 806 of the first 850 of cupy:cuda were caught, 94.8 %; of the 44 others 19 were
    inside of CUDA's own pow.
    """
    left = sum(len(why) for lines in SURVIVORS[b.name].values() for why in lines.values())
    assert left <= 0.05 * MUTANTS * len(b.kernels)
    assert SURVIVORS[b.name].keys() <= set(b.kernels)


def test_survivors_are_on_lines_of_the_source(b: Backend) -> None:
    text = "\n".join(path.read_text() for path in b.sources)
    for lines in SURVIVORS[b.name].values():
        assert all(piece in text for piece in lines)


def test_the_command_names_survivors_by_their_lines(cupy: Backend) -> None:
    done = CliRunner().invoke(gpu.main, ["mutants", "cupy", "largest"])
    assert done.exit_code == 0, done.output
    assert "largest: 1 of 50 left, 100% covered" in done.output
    assert re.search(r"scales.cu:\d+ `if \(threadIdx.x % WARP == 0\) atomic_largest", done.output)
