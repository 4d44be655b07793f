"""The kernels of cupy:cuda by two ways that share only their source: PTX, and g++ on the host."""

from __future__ import annotations

import platform
import shutil
import sys
from pathlib import Path

import effort
import numpy as np
import pytest

from demopool.implementations.cupy_cuda import signatures
from demopool.implementations.cupy_cuda.launcher import ON_CORES, WIDE, Tiles, ended
from demopool.implementations.shared import grids

from . import cases
from .agreement import ORDERS, difference, units
from .arrays import counting, whole
from .backends import Backend, Launch
from .faults import CUPY, sides
from .on_host import OnHost

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64" or not shutil.which("g++"),
    reason="kernels are compiled for the host by g++, on Linux and x86-64",
)


def agree(b: Backend, launches: list[Launch], folder: Path, text: str) -> None:
    host = OnHost(b, sorted({b.lowered(launch) for launch in launches}), folder, text)
    for launch in launches:
        wanted = b.run(launch, counting=False, check_races=False)
        for order in effort.cases(ORDERS, ORDERS[-1:]):
            apart, allowed = difference(host.run(launch, order), wanted), units(b, launch)
            assert apart <= allowed, f"{launch[0]}: {apart} eps of {allowed} in order {order}"


def test_both_agree_on_every_kernel(cupy: Backend, tmp_path: Path) -> None:
    launches = [one for kernel in cupy.kernels for one in cases.launches(cupy, kernel)]
    agree(cupy, launches, tmp_path, signatures.source())


@pytest.mark.parametrize("by", [ON_CORES, WIDE])
def test_both_agree_on_other_ways_to_multiply(cupy: Backend, by: Tiles, tmp_path: Path) -> None:
    """By tensor cores also of numbers that TF32 has not: the sums of 8 products are rounded once by
    both, and so have the same bits."""
    variant, there = signatures.variant(f"gram{by.ending}<float>"), cupy.launches
    X, a = whole(2, 45, 141, most=5000 if by is ON_CORES else 4), counting(2, 45)
    triangle, kind = grids.triangle(141, by.side), there.LOWER_1
    parts = np.full((2 * triangle, 2, by.side**2), np.nan, np.float32)
    A, sums = np.full((2, 141, 141), np.nan, np.float32), np.full((2, 2, triangle), np.nan)
    rows = np.ascontiguousarray(X.swapaxes(1, 2))
    row_sums = np.full((2, grids.tiles(141, by.side), 141), np.nan, np.float32)
    launches = [
        there.gram(rows, A, row_sums, there.KEEP, by.side),
        there.gram_parts(rows, parts, by.side),
        there.outer(X, a, A, sums.astype(np.float32), kind, by.side),
        there.outer(X, None, A, A, there.KEEP, by.side),
        there.outer_parts(X, a, parts, by.side),
    ]
    if by.sums_parts:
        given = counting(*parts.shape)
        launches.append(there.from_parts(given, A, row_sums, there.SQUARE, by.side))
    launches = [ended(launch, by.ending) for launch in launches]
    assert variant
    assert {launch[0] for launch in launches} >= {*variant.parameters} - {"from_triangle_128"}
    agree(cupy, launches, tmp_path, variant.source)


# Mistakes that need no access outside of an array: g++ would not notice that. The last two
# ``demopool.ptx`` does not name: to it a fence is one of all threads of a block.
SEEN: dict[str, tuple[str, str]] = {
    what: CUPY[what][:2]
    for what in (
        "no barrier before the first slab is read",
        "no barrier before a slab is overwritten",
        "no barrier before the mirror image is read",
    )
}
SEEN |= {
    "threads that write after their block has said that it is there": (
        "resident",
        "expected) {\n  [-__syncthreads();-]\n",
    ),
    "threads that do not wait for the one that waits": (
        "resident",
        "    __threadfence();\n  }\n  [-__syncthreads();-]\n}",
    ),
}


def spoilt(b: Backend, kernel: str, change: str, folder: Path) -> OnHost:
    (old, new), text = sides(change), signatures.source()
    assert old in text
    instances = [b.lowered(cases.launches(b, kernel)[0])]
    return OnHost(b, instances, folder, text.replace(old, new))


@pytest.mark.parametrize("mistake", SEEN)
def test_a_mistake_shows_in_some_order(cupy: Backend, mistake: str, tmp_path: Path) -> None:
    kernel, change = SEEN[mistake]
    wrong, launch = spoilt(cupy, kernel, change, tmp_path), cases.launches(cupy, kernel)[0]
    wanted = cupy.run(launch, counting=False, check_races=False)
    assert max(difference(wrong.run(launch, order), wanted) for order in ORDERS) > 1000


@pytest.mark.parametrize(
    ("kernel", "change", "says"),
    [
        (
            "step",
            "if (start >= n{+ || threadIdx.x % WARP == 31+}) return;",
            "of its warp that does",
        ),
        ("step", "__shfl_xor_sync([-ALL_LANES-]{+0xffffu+}, given", "only whole warps"),
        ("gram", "{+if (threadIdx.x > 3) +}__syncthreads();", "does not come to a barrier"),
    ],
)
def test_threads_that_do_not_come_are_named(
    cupy: Backend, kernel: str, change: str, says: str, tmp_path: Path
) -> None:
    wrong = spoilt(cupy, kernel, change, tmp_path)
    with pytest.raises(RuntimeError, match=says):
        wrong.run(cases.launches(cupy, kernel)[0], 0)
