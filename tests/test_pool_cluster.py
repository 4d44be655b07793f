"""``pool_files`` on real Dask clusters of processes: the same file, whatever dies."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import distributed
import numpy as np
import psutil
import pytest

import demopool as dp
from demopool import InvalidInput, Unfinished
from demopool.datasets import planning
from tools.pool_ratio import units_per_second

# Each starts processes, which need the cores. Dask leaves sockets and event loops to the collector.
pytestmark = [
    pytest.mark.serial,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
RNG = np.random.default_rng(0)
DEADLY = """
import os
from demopool.datasets import pipeline, units
def dies(unit, plan):
    if unit.number == 2:
        os._exit(1)
    return units.load(unit, plan)
pipeline.load = dies
"""


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """40 images of two sizes, in units of four."""
    monkeypatch.setattr(planning, "MAX_ROWS", 4)
    folder = tmp_path / "in"
    folder.mkdir()
    for number in range(4):
        images = RNG.standard_normal((10, 30 + number % 2, 16)).astype(np.float16)
        np.save(folder / f"{number}.npy", images)
    return folder


def _pool(source: Path, name: str, **options: Any) -> dp.PoolResult:
    chosen = {"k": 64, "memory": 8e9, **options}
    return dp.pool_files(source, source.parent / name, "sketched-democratic", **chosen)


def _same(source: Path, name: str) -> bool:
    _pool(source, "alone.npy")
    return (source.parent / name).read_bytes() == (source.parent / "alone.npy").read_bytes()


@contextmanager
def _cluster(**options: Any) -> Iterator[str]:
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50, **options
    ) as cluster:
        yield cluster.scheduler_address


def _kills_a_worker(after: int) -> Callable[[int, int, str], None]:
    """One of our own, once so many images are done."""
    killed: list[int] = []

    def progress(done: int, total: int, what: str) -> None:
        if done >= after and not killed:
            children = psutil.Process().children(recursive=True)
            workers = [child for child in children if "spawn_main" in " ".join(child.cmdline())]
            killed.append(workers[0].pid)
            os.kill(workers[0].pid, signal.SIGKILL)

    return progress


def test_a_worker_killed_in_the_middle_is_made_up_for(source: Path) -> None:
    result = _pool(source, "jobs.npy", jobs=2, progress=_kills_a_worker(after=8))
    assert (result.images, result.computed, result.failed) == (40, 40, {})
    assert _same(source, "jobs.npy")


def test_workers_leave_the_environment_as_it_was(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dask sets the number of their threads in this process too."""
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    before = dict(os.environ)
    _pool(source, "jobs.npy", jobs=2)
    assert dict(os.environ) == before


def test_a_unit_whose_workers_die_is_named_and_the_rest_stays(source: Path, tmp_path: Path) -> None:
    preload = tmp_path / "deadly.py"
    preload.write_text(DEADLY)
    named = r"images 8 to 11 \(the first is .*0.npy, image 8\)"
    with _cluster(preload=str(preload)) as address, pytest.raises(Unfinished, match=named):
        _pool(source, "out.npy", scheduler=address)
    assert 0 < _pool(source, "out.npy").computed < 40  # without the cluster
    assert _same(source, "out.npy")


def test_a_cluster_that_exists_writes_zarr_from_relative_names(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with _cluster() as address:
        monkeypatch.chdir(source.parent)  # the workers are elsewhere
        dp.pool_files("in", "out.zarr", "sum", memory=8e9, scheduler=address)
    import zarr

    dp.pool_files("in", "alone.npy", "sum", memory=8e9)
    assert np.array_equal(zarr.open_array("out.zarr", mode="r")[:], np.load("alone.npy"))
    with pytest.raises(InvalidInput, match="no scheduler answers at tcp://"):
        _pool(source, "other.npy", scheduler=address)


def test_what_fails_in_a_worker_is_one_sentence(source: Path) -> None:
    images = np.load(source / "1.npy")
    images[3] = np.nan
    np.save(source / "1.npy", images)
    with _cluster() as address:
        with pytest.raises(Unfinished, match=r"1.npy, image 3: X must be finite"):
            _pool(source, "out.npy", scheduler=address)
        result = _pool(source, "out.npy", scheduler=address, keep_going=True)
    assert list(result.failed) == [13]


def test_what_is_missing_says_what_to_install(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(InvalidInput, match=r"need Dask: pip install 'demopool\[scale\]'"):
        _pool(source, "out.npy", jobs=2)


def test_jobs_and_scheduler_exclude_each_other(source: Path) -> None:
    with pytest.raises(InvalidInput, match="not together with scheduler"):
        _pool(source, "out.npy", jobs=2, scheduler="tcp://127.0.0.1:1")


def test_what_the_scheduler_allows_is_measured() -> None:
    assert units_per_second(units=4) > 0
