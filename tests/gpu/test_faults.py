"""Mistakes in the kernels, made on purpose in their source or in a launch: each must be named."""

from __future__ import annotations

from typing import Any

import effort
import numpy as np
import pytest

import demopool as dp
from demopool import ptx
from demopool.implementations.shared import grids

from . import counted
from .arrays import UNEVEN
from .backends import BACKENDS, EVERY_KERNEL, Backend, Launch
from .faults import FAULTS, OUTSIDE, RACE, VALUES
from .mutation import STEPS

SPOILT = [
    (backend, kernel)
    for backend in BACKENDS
    for kernel in dict.fromkeys(fault[0] for fault in FAULTS[backend].values())
]


def _is_named(b: Backend, caught: Any, kind: ptx.FaultKind, word: str) -> None:
    assert caught.value.kind is kind, str(caught.value)
    assert word in str(caught.value)
    file, _, line = caught.value.place.source.partition(":")
    assert file in {path.name for path in b.sources}
    assert int(line) > 0


def _drawn() -> list[tuple[str, str]]:
    """All mistakes, or the first of each kind."""
    found = {}
    for backend in BACKENDS:
        for what, (_, _, kind, _) in FAULTS[backend].items():
            key = (backend, what) if effort.cases(1, 0) else (backend, kind)
            found.setdefault(key, (backend, what))
    return list(found.values())


@pytest.mark.parametrize(("backend", "what"), _drawn())
def test_a_mistake_is_named(backend: str, what: str) -> None:
    b = BACKENDS[backend]
    kernel, change, kind, word = FAULTS[backend][what]
    launch = counted.launch(b, kernel, UNEVEN)
    module = b.spoilt(launch, change)
    with pytest.raises(ptx.Fault) as caught:
        b.start(launch, module, counting=False, max_steps=STEPS)
    _is_named(b, caught, kind, word)


@pytest.mark.parametrize(("backend", "name"), SPOILT)
def test_without_a_mistake_nothing_is_named(backend: str, name: str) -> None:
    b = BACKENDS[backend]
    b.start(counted.launch(b, name, UNEVEN), max_steps=STEPS)


@pytest.mark.parametrize("what", effort.cases(list(VALUES), list(VALUES)[::3]))
def test_a_mistake_that_no_check_can_name_changes_values(cupy: Backend, what: str) -> None:
    kernel, change = VALUES[what]
    launch = counted.launch(cupy, kernel, UNEVEN)
    right, wrong = cupy.run(launch), cupy.run(launch, cupy.spoilt(launch, change))
    assert not all(np.array_equal(*pair, equal_nan=True) for pair in zip(right, wrong, strict=True))


# --- mistakes in a launch ---


@pytest.mark.parametrize("name", ["normalized_at_once", "scatter", "small_image"])
def test_too_little_shared_memory_is_named(b: Backend, name: str) -> None:
    kernel, shape, args = counted.launch(b, name, UNEVEN)
    with pytest.raises(ptx.Fault) as caught:
        b.start((kernel, shape._replace(shared=shape.shared - 4), args))
    _is_named(b, caught, OUTSIDE, "shared memory")


WEIGHTS = {"step": 2, "free_step": 4}
"""Which argument they are; the one after it is where new ones go."""


@pytest.mark.parametrize(("backend", "name"), [one for one in EVERY_KERNEL if one[1] in WEIGHTS])
def test_an_iteration_that_writes_into_its_own_weights_is_named(backend: str, name: str) -> None:
    b, given = BACKENDS[backend], WEIGHTS[name]
    kernel, shape, args = counted.launch(b, name, UNEVEN)
    same = (*args[: given + 1], args[given], *args[given + 2 :])
    with pytest.raises(ptx.Fault) as caught:
        b.start((kernel, shape, same))
    _is_named(b, caught, RACE, f"argument {given}")


# --- positions beyond 32 bits ---

_N = 65_536


def _last_tiles(b: Backend) -> tuple[Launch, list[tuple[int]]]:
    """Two images of 17 GB of K each, and the last tile of both."""
    X, K = np.ones((2, _N, 3), np.float32), ptx.reserve((2, _N, _N))
    X[1] = 2
    launch = b.launches.gram(X, K, b.row_sums(2, _N), b.launches.SQUARE)
    count = grids.triangle(_N)
    return launch, [(count - 1,), (2 * count - 1,)]


def test_without_a_mistake_both_images_are_there(b: Backend) -> None:
    launch, blocks = _last_tiles(b)
    b.start(launch, blocks=blocks)
    assert list(launch[2][1][:, -1, -1]) == [9, 144]


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (
            "const [-size_t-]{+unsigned+} first = static_cast<size_t>(at.image) * n;\n"
            "  T sums[SIDE<T>][SIDE<T>] = {};\n  multiply",
            RACE,
        ),
        ("C[static_cast<[-size_t>(row)-]{+int>(row+} * n + column{+)+}] = value;", OUTSIDE),
    ],
    ids=["images that land in each other", "a place in an image as a signed number"],
)
def test_a_position_of_32_bits_is_named(cupy: Backend, change: str, kind: ptx.FaultKind) -> None:
    launch, blocks = _last_tiles(cupy)
    with pytest.raises(ptx.Fault) as caught:
        cupy.start(launch, cupy.spoilt(launch, change), blocks=blocks)
    _is_named(cupy, caught, kind, "argument 1")


def test_a_row_that_is_read_in_another_image_changes_values(cupy: Backend) -> None:
    """No fault: it is inside of the array. K of the first image is 0, of the second one 1."""
    K = ptx.reserve((2, _N, _N))
    K[1, -grids.WARPS :] = 1
    targets, a, out = (np.full((2, _N), value, np.float32) for value in (1.0, 1.0, 0.0))
    launch = cupy.launches.step(K, targets, a, out, 0.5)
    blocks = [(launch[1].blocks - 1,)]
    cupy.start(launch, cupy.spoilt(launch, "const [-size_t-]{+unsigned+} first"), blocks=blocks)
    assert np.isinf(out[1, -grids.WARPS :]).all()
    cupy.start(launch, blocks=blocks)
    assert (out[1, -grids.WARPS :] == 2.0**-8).all()


def test_sketches_that_land_in_each_other_are_named(cupy: Backend) -> None:
    """2^19 features apart, in sketches of 8192 bins."""
    k, d, features = 8192, 2, 2**19 + 1
    X, out = ptx.reserve((1, features, d)), ptx.reserve((1, features, k))
    launch = cupy.launches.count_sketch(X, None, cupy.prepared(dp.hashes(d, k)).first, out)
    shape, blocks = launch[1], grids.sketches(features, k)[0]
    chosen = [(0,), (shape.blocks - blocks,)]
    cupy.start(launch, blocks=chosen)
    wrong = cupy.spoilt(launch, "for ([-size_t-]{+unsigned+} feature")
    with pytest.raises(ptx.Fault) as caught:
        cupy.start(launch, wrong, blocks=chosen)
    _is_named(cupy, caught, RACE, "argument 5")
