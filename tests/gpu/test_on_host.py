"""The kernels of cupy:cuda by two ways that share only their source: PTX, and g++ on the host."""

from __future__ import annotations

import platform
import shutil
import sys
from pathlib import Path

import effort
import numpy as np
import pytest

from demopool.implementations.cupy_cuda.signatures import source

from . import cases
from .arrays import Array
from .backends import Backend, Launch
from .faults import CUPY, sides
from .on_host import ORDERS, OnHost

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64" or not shutil.which("g++"),
    reason="kernels are compiled for the host by g++, on Linux and x86-64",
)


def units(b: Backend, launch: Launch) -> float:
    """By how many eps results may differ.

    Two powers differ by 5: CUDA's may be off by 4, that of the host by 1. One that is raised again
    has its error times tau, and so has what is multiplied before it. In sums of squares the device
    does not round a square, once for every value that a thread adds. All else is exact: features
    are small integers, divisions and roots are rounded correctly.
    """
    given = dict(zip(b.parameters(launch), launch[2], strict=True))
    if "tau" in given:
        all_of_them = launch[0] in ("small_image", "resident")
        steps = int(given["iterations"]) if all_of_them else 1
        return 6 * (1 + float(given["tau"])) * steps
    if launch[0] == "normalized_at_once":
        return float(given["values"]) / 256 + 2
    return 0


def difference(found: list[Array], wanted: list[Array]) -> float:
    """The largest, in eps of each number; inf where only one is a number, or an integer differs."""
    worst = 0.0
    for one, other in zip(found, wanted, strict=True):
        same = (one == other) | (np.isnan(one) & np.isnan(other))
        if same.all():
            continue
        if one.dtype.kind != "f":
            return np.inf
        limits = np.finfo(one.dtype)
        a, b = (array[~same].astype(float) for array in (one, other))
        with np.errstate(all="ignore"):
            apart = np.abs(a - b) / np.maximum(np.abs(b), limits.tiny) / float(limits.eps)
        worst = max(worst, float(np.nan_to_num(apart, nan=np.inf).max()))
    return worst


def test_both_agree_on_every_kernel(cupy: Backend, tmp_path: Path) -> None:
    launches = [one for kernel in cupy.kernels for one in cases.launches(cupy, kernel)]
    instances = sorted({cupy.lowered(launch) for launch in launches})
    host = OnHost(cupy, instances, tmp_path, source())
    for launch in launches:
        wanted = cupy.run(launch, counting=False, check_races=False)
        for order in effort.cases(ORDERS, ORDERS[-1:]):
            apart, allowed = difference(host.run(launch, order), wanted), units(cupy, launch)
            assert apart <= allowed, f"{launch[0]}: {apart} eps of {allowed} in order {order}"


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
    old, new = sides(change)
    assert old in source()
    instances = [b.lowered(cases.launches(b, kernel)[0])]
    return OnHost(b, instances, folder, source().replace(old, new))


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
