"""The kernels of numba:cuda by two ways that share only their source: PTX, and plain Python."""

from __future__ import annotations

import effort
import pytest

from . import cases
from .agreement import ORDERS, difference, units
from .backends import BACKENDS, Backend, Launch
from .faults import NUMBA
from .in_python import InPython

KERNELS = BACKENDS["numba"].kernels if "numba" in BACKENDS else ()


def smallest(launches: list[Launch]) -> Launch:
    return min(launches, key=lambda launch: launch[1].blocks)


@pytest.mark.parametrize("kernel", KERNELS)
def test_both_agree_on_every_kernel(numba: Backend, kernel: str) -> None:
    launches = cases.launches(numba, kernel)
    with numba.copied() as package:
        python = InPython(package)
        # Python takes a second for a tile: every launch is run in one order.
        for i, launch in enumerate(effort.cases(launches, [smallest(launches)])):
            order = ORDERS[-1 - i % len(ORDERS)]
            wanted = numba.run(launch, counting=False, check_races=False)
            apart, allowed = difference(python.run(launch, order), wanted), units(numba, launch)
            assert apart <= allowed, f"{kernel}: {apart} eps of {allowed} in order {order}"


# Mistakes that need no access outside of an array: NumPy has an exception for that.
SEEN = (
    "no barrier before a tile is read",
    "no barrier before a tile is overwritten",
    "no barrier before the mirror image is read",
    "no barrier before the sums of warps are added",
    "no barrier between iterations",
    "no barrier between the rows",
)


@pytest.mark.parametrize("mistake", SEEN)
def test_a_mistake_shows_in_some_order(numba: Backend, mistake: str) -> None:
    kernel, change = NUMBA[mistake][:2]
    launch = smallest(cases.launches(numba, kernel))
    wanted = numba.run(launch, counting=False, check_races=False)
    with numba.copied(change) as package:
        wrong = InPython(package)
        assert any(difference(wrong.run(launch, order), wanted) > 1000 for order in ORDERS)


@pytest.mark.parametrize(
    ("mistake", "says"),
    [
        ("a barrier in a branch", "does not come to a barrier"),
        ("a shuffle that names half of a warp", "only whole warps"),
    ],
)
def test_threads_that_do_not_come_are_named(numba: Backend, mistake: str, says: str) -> None:
    kernel, change = NUMBA[mistake][:2]
    with numba.copied(change) as package, pytest.raises(RuntimeError, match=says):
        InPython(package).run(cases.launches(numba, kernel)[0], 0)


def test_a_lane_that_leaves_its_warp_is_named(numba: Backend) -> None:
    change = "if row >= n{+ or lane == 31+}:\n"
    with numba.copied(change) as package, pytest.raises(RuntimeError, match="of its warp"):
        InPython(package).run(cases.launches(numba, "step")[0], 0)
