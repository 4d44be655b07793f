"""``auto`` must not take a NumPy program to a library that breaks it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from races import choice

import demopool as dp
from demopool.common import places
from demopool.contract import registry
from demopool.problem.candidates import Candidate
from demopool.problem.cases import Case
from demopool.problem.vocabulary import DESCRIPTORS
from demopool.profiles import forks, store

SHAPE = (3, 40, 12)
CASE = Case(batch=3, n=40, d=12)


pytestmark = pytest.mark.usefixtures("empty_profile")


def _recommend(backend: str, descriptor: str, dtype: str = "float32") -> None:
    route = {"democratic": "dense", "sum": "direct"}.get(descriptor, "gram")
    route = {"sketched-sum": "moment", "sketched-democratic": "dense+moment"}.get(descriptor, route)
    route += "+moment" if descriptor == "sketched-power" else ""
    case = Case(descriptor=descriptor, batch=3, n=40, d=12, k=64, dtype=dtype)
    name = str(Candidate(backend, route))
    assert store.remember(choice(case, {name: 1e-7}, name)) == ""


FORKING = """
import multiprocessing
import numpy as np
import demopool as dp

X = np.random.default_rng(0).standard_normal((3, 40, 12)).astype(np.float32)

def work(i):
    return dp.explain((3, 40, 12)).backend, dp.describe(X, "democratic").tobytes()

backend, before = work(0)
print(backend)
with multiprocessing.get_context("fork").Pool(2) as pool:
    found = pool.map(work, range(4))
print(*sorted({name for name, _ in found}))
expected = np.frombuffer(before, np.float32)
print(all(np.allclose(np.frombuffer(y, np.float32), expected, atol=1e-5) for _, y in found))
print(work(0)[0])
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.parametrize(
    ("backend", "in_children"), [("torch:cpu", "numpy:cpu"), ("numba:cpu", "numba:cpu")]
)
def test_a_forked_pool_works_whatever_was_recommended(
    backend: str, in_children: str, plain_environment: dict[str, str]
) -> None:
    """torch's threads do not survive a fork: its OpenMP waits for them for ever."""
    if backend not in registry.available():
        pytest.skip(f"{backend}: {registry.probe(backend).reason}")
    threads = {"OMP_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "2", "NUMBA_NUM_THREADS": "2"}
    name = f"{backend}/dense"
    store.remember(choice(CASE, {name: 1e-7}, name, threads=2))
    done = subprocess.run(
        [sys.executable, "-c", FORKING],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env=plain_environment | threads,
    )
    assert done.stdout.splitlines() == [backend, in_children, "True", backend], done.stderr


FORKED_FIRST = """
import multiprocessing
import torch

torch.rand(300, 300) @ torch.rand(300, 300)

def work(i):
    import demopool as dp
    import numpy as np
    y = dp.describe(np.random.default_rng(0).random((3, 40, 12), np.float32), "democratic")
    return dp.explain((3, 40, 12)).backend, bool(np.isfinite(y).all())

if __name__ == "__main__":
    for start in ("fork", "spawn"):
        with multiprocessing.get_context(start).Pool(1) as pool:
            print(start, *pool.map(work, range(1))[0], flush=True)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_process_forked_before_demopool_was_imported(
    plain_environment: dict[str, str], tmp_path: Path
) -> None:
    """One that is spawned is its own master, and may go anywhere."""
    if "torch:cpu" not in registry.available():
        pytest.skip("torch:cpu is not here")
    store.remember(choice(CASE, {"torch:cpu/dense": 1e-7}, "torch:cpu/dense", threads=2))
    script = tmp_path / "forked.py"
    script.write_text(FORKED_FIRST)
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env=plain_environment | {"OMP_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "2"},
    )
    assert done.stdout.splitlines() == ["fork numpy:cpu True", "spawn torch:cpu True"], done.stderr


def test_a_library_loaded_after_the_fork_and_one_named_are_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if "torch:cpu" not in registry.available():
        pytest.skip("torch:cpu is not here")
    _recommend("torch:cpu", "democratic")
    monkeypatch.setattr(forks, "loaded_before", frozenset({"numpy"}))
    assert dp.explain(SHAPE, k=64).backend == "torch:cpu"
    monkeypatch.setattr(forks, "loaded_before", frozenset({"numpy", "torch"}))
    found = dp.explain(SHAPE, k=64)
    assert found.backend == "numpy:cpu"
    assert any("forked" in option.reason for option in found.options)
    assert dp.explain(SHAPE, k=64, backend="torch:cpu").backend == "torch:cpu"


def test_other_surroundings_are_seen_within_a_second(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    now = [100.0]
    monkeypatch.setattr(store, "time", SimpleNamespace(monotonic=lambda: now[0]))
    _recommend("numba:cpu", "democratic")
    assert dp.explain(SHAPE, k=64).because == "measured"
    monkeypatch.setenv(places.VARIABLE, str(tmp_path / "elsewhere"))
    now[0] += 0.9 * store.LOOK_SECONDS
    assert dp.explain(SHAPE, k=64).because == "measured"
    now[0] += 0.2 * store.LOOK_SECONDS
    assert dp.explain(SHAPE, k=64).because == "default"


# --- kinds of arrays ---


def _unaligned(array: np.ndarray) -> np.ndarray:
    raw = np.zeros(array.nbytes + 1, np.uint8)
    view = raw[1:].view(array.dtype).reshape(array.shape)
    view[...] = array
    return view


def _field(array: np.ndarray) -> np.ndarray:
    """Of records: strides are not multiples of the element's size."""
    records = np.zeros(array.shape, [("flag", "u1"), ("x", array.dtype)])
    records["x"] = array
    return records["x"]


def _read_only(array: np.ndarray) -> np.ndarray:
    array = array.copy()
    array.setflags(write=False)
    return array


KINDS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "other byte order": lambda a: a.astype(a.dtype.newbyteorder()),
    "other byte order, strided": lambda a: np.repeat(a.astype(a.dtype.newbyteorder()), 2, 1)[
        :, ::2
    ],
    "unaligned": _unaligned,
    "field of records": _field,
    "read-only": _read_only,
    "negative strides": lambda a: np.ascontiguousarray(a[:, ::-1, ::-1])[:, ::-1, ::-1],
    "column-major": np.asfortranarray,
    "broadcast": lambda a: np.broadcast_to(a[0], a.shape),
    "memory map": lambda a: np.asarray(a).view(np.memmap),
}


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_array_works_on_every_backend(usable: str, kind: str, dtype: str) -> None:
    plain = np.random.default_rng(1).standard_normal(SHAPE).astype(dtype)
    array = KINDS[kind](plain)
    plain = np.ascontiguousarray(array, dtype=dtype)
    for descriptor in DESCRIPTORS:
        expected = dp.describe(plain, descriptor, backend=usable, k=64)
        found = dp.describe(array, descriptor, backend=usable, k=64)
        assert (type(found), found.dtype) == (np.ndarray, expected.dtype)
        # The order of sums may differ with the layout; a matrix power loses half the digits.
        tolerance = float(np.sqrt(np.finfo(expected.dtype).eps))
        np.testing.assert_allclose(found, expected, atol=tolerance * np.abs(expected).max())
    ops = dp.backend(usable)
    moved = ops.to_numpy(ops.asarray(array))
    np.testing.assert_array_equal(moved, plain)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_array_goes_where_auto_says(usable: str, kind: str) -> None:
    array = KINDS[kind](np.random.default_rng(1).standard_normal(SHAPE).astype(np.float32))
    for descriptor in ("democratic", "sketched-sum"):
        _recommend(usable, descriptor)
        assert dp.explain(SHAPE, descriptor, k=64).backend == usable
        found: Any = dp.describe(array, descriptor, k=64)
        assert isinstance(found, np.ndarray)
        assert np.isfinite(found).all()
