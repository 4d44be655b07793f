"""Work that a GPU still has to do when a call returns, and the limits of a GPU, with fakes.

No test here shows that a real driver, torch or CuPy on a GPU behaves as these do.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from demopool import pooling, ptx
from demopool.choosing.referee import Referee
from demopool.machine import cuda_driver, gpu_limits, limits
from demopool.machine.gpu import gpus
from demopool.machine.limits import Limits
from demopool.measurement.clock import Clock
from demopool.measurement.worker import Answer
from demopool.problem.candidates import Candidate, Subject
from demopool.problem.cases import Case, named
from demopool.problem.vocabulary import State
from demopool.profiles import floors
from demopool.trials import jobs, streams
from demopool.trials.streams import ImagePool, Source, Stream, Turn

CASE = Case(batch=2, n=30, d=8)
SLOW = Limits(1e3, 1e3, 1e3)
ON_HOST, ON_GPU = Candidate("numpy:cpu", "dense"), Candidate("numba:cuda", "dense")


class Gpu:
    """Has ``left`` to do; time passes when it is waited for, and for every look at the clock."""

    gpu_index = 0

    def __init__(self) -> None:
        self.time = self.left = 0.0
        self.cost = 1e-5
        self.waits = 0

    def now(self) -> float:
        return self.time

    def finish(self) -> None:
        self.waits += 1
        self.time += self.cost + self.left
        self.left = 0.0

    def synchronize(self) -> None:
        """Says that it has finished, whatever is left."""

    def event(self) -> None:
        return None


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    made = Gpu()
    monkeypatch.setattr(streams, "_now", made.now)
    monkeypatch.setattr(streams, "_sleep", lambda seconds: made.__setattr__("time", made.time + 1))
    monkeypatch.setattr(streams, "_cpu", lambda: 0.0)
    monkeypatch.setattr(streams, "_waiting", lambda index: made.finish)
    monkeypatch.setattr(streams, "Clock", partial(Clock, now=made.now))
    return made


def test_waiting_for_an_idle_gpu_costs_nothing(gpu: Gpu) -> None:
    assert streams.busy_seconds(gpu.finish) == pytest.approx(0.0)
    gpu.left = 0.25
    assert streams.busy_seconds(gpu.finish) == pytest.approx(0.25)
    assert streams.busy_seconds(None) == 0.0


def test_a_gpu_that_goes_on_is_at_work(gpu: Gpu) -> None:
    assert streams.leaked_seconds(gpu.finish) == 0.0
    gpu.left = 0.5
    assert streams.leaked_seconds(gpu.finish) >= streams.MOST_LEAKED, "a look takes a second here"


def _stream(gpu: Gpu, leaves: Callable[[], float]) -> Stream:
    """Of calls that return while the GPU has something left to do."""
    job = jobs.prepare(pooling, Subject("descriptor", CASE.descriptor), ON_HOST, CASE)

    def run_from_host() -> Any:
        gpu.left += leaves()
        return job.run_from_host()

    device: Any = gpu
    fake = replace(job, run_from_host=run_from_host, device=device)
    return Stream(fake, CASE, Source(ImagePool(3), 2))


def test_what_a_backend_does_not_wait_for_is_charged_to_its_call(gpu: Gpu) -> None:
    left = iter([0.7, 0.25, 0.0, 0.5])
    turn = _stream(gpu, lambda: next(left)).turn(3, 1, thorough=False)
    assert turn.seconds == pytest.approx([0.25, 0.0, 0.5])
    assert gpu.waits == 8, "two for every call"


def test_the_host_is_not_asked_for_a_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "_waiting", lambda index: pytest.fail("there is no GPU"))
    job = jobs.prepare(pooling, Subject("descriptor", CASE.descriptor), ON_HOST, CASE)
    assert len(Stream(job, CASE, Source(ImagePool(3), 2)).turn(1, 0, thorough=False).seconds) == 1


class Driver:
    """libcuda as ctypes would show it; ``fails`` names a function that reports an error."""

    def __init__(self, fails: str = "") -> None:
        self.fails = fails
        self.called: list[str] = []

    def __getattr__(self, name: str) -> Callable[..., int]:
        if not name.startswith("cu"):
            raise AttributeError(name)

        def function(*arguments: Any) -> int:
            self.called.append(name)
            if name == "cuDevicePrimaryCtxRetain":
                arguments[0]._obj.value = 42
            if name == "cuCtxPushCurrent_v2":
                assert arguments[0].value == 42, "the primary context"
            return 999 if name == self.fails else 0

        return function


def test_the_driver_waits_in_the_primary_context(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver()
    monkeypatch.setattr(cuda_driver, "_open", lambda name: driver)
    wait = cuda_driver.waiting(0)
    assert wait is not None
    driver.called.clear()
    wait()
    assert driver.called == ["cuCtxPushCurrent_v2", "cuCtxSynchronize", "cuCtxPopCurrent_v2"]
    driver.fails = "cuCtxSynchronize"
    driver.called.clear()
    with pytest.raises(RuntimeError, match="error 999"):
        wait()
    assert driver.called[-1] == "cuCtxPopCurrent_v2", "the thread has its context back"


@pytest.mark.parametrize("fails", ["cuInit", "cuDeviceGet", "cuDevicePrimaryCtxRetain"])
def test_a_driver_that_cannot_be_asked_is_none(fails: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_driver, "_open", lambda name: Driver(fails))
    assert cuda_driver.waiting(0) is None

    def missing(name: str) -> Any:
        raise OSError("no such library")

    monkeypatch.setattr(cuda_driver, "_open", missing)
    assert cuda_driver.waiting(0) is None


# --- limits ---


class Judge:
    """In this process; of a machine and a GPU of our own."""

    threads = 1

    def __init__(self, of_gpu: Limits | None, of_host: Limits = SLOW) -> None:
        self.of_gpu, self.of_host = of_gpu, of_host
        self.asked: list[tuple[Any, ...]] = []

    def ask(self, function: Any, *arguments: Any, timeout: float, **options: Any) -> Answer:
        self.asked.append((function, *arguments, options["again"]))
        if function is gpu_limits.limits:
            if self.of_gpu is None and arguments == ("float64",):
                return Answer(State.ERROR, None, "the driver took the process with it")
            return Answer(State.OK, self.of_gpu)
        assert function is limits.limits
        return Answer(State.OK, self.of_host)


def _referee(judge: Judge) -> Referee:
    return Referee(judge)  # type: ignore[arg-type]


def test_a_gpu_has_limits_of_its_own() -> None:
    judge = Judge(Limits(1e6, 1e6, 1e6))
    referee = _referee(judge)
    assert referee.known_floor(ON_GPU, CASE) is None
    floor = referee.floor(ON_GPU, CASE)
    assert floor == floors.least_seconds(CASE, Limits(1e6, 1e6, 1e6))
    assert referee.known_floor(ON_GPU, CASE) == floor
    on_host = referee.floor(ON_HOST, CASE)
    assert on_host is not None
    assert on_host > floor
    asked = len(judge.asked)
    assert referee.floor(ON_GPU, CASE) == floor
    assert len(judge.asked) == asked, "it is asked once"
    judge.of_gpu = Limits(2e6, 2e6, 2e6)
    assert referee.floor(ON_GPU, CASE, again=True) == pytest.approx(floor / 2)
    assert judge.asked[asked] == (gpu_limits.limits, "float32", True)


def test_a_gpu_may_leave_small_work_to_a_faster_host() -> None:
    referee = _referee(Judge(Limits(1.0, 1.0, 1.0), Limits(1e9, 1e9, 1e9)))
    assert referee.floor(ON_GPU, CASE) == referee.floor(ON_HOST, CASE)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_gpu_that_cannot_be_measured_has_no_limit(dtype: str) -> None:
    """float64: where measuring it is fatal, as this judge has it."""
    assert _referee(Judge(None)).floor(ON_GPU, replace(CASE, dtype=dtype)) is None


def test_a_device_that_cuda_does_not_know_has_no_limit() -> None:
    judge = Judge(Limits(1e6, 1e6, 1e6))
    assert _referee(judge).floor(Candidate("plugin:other", "dense"), CASE) is None
    assert not judge.asked


def _library(speeds: dict[str, float], now: list[float], waited: list[int]) -> Any:
    """Takes the time that its speeds say: products by dtype, copies by "copy"."""

    def takes(seconds: float) -> Callable[[], None]:
        return lambda: now.__setitem__(0, now[0] + seconds)

    return lambda: gpu_limits.Library(
        lambda dtype, size: takes(2.0 * size**3 / speeds[dtype]),
        lambda size: takes(2.0 * size / speeds["copy"]),
        lambda: waited.append(1),
        lambda: None,
    )


def test_the_best_library_counts_and_tensor_cores_as_a_third(
    empty_profile: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, waited = [0.0], list[int]()
    monkeypatch.setattr(limits, "perf_counter", lambda: now[0])

    def broken() -> Any:
        raise RuntimeError("no GPU")

    one = _library({"float16": 9e12, "float32": 1e12, "float64": 5e11, "copy": 1e12}, now, waited)
    two = _library({"float16": 2e12, "float32": 2e12, "float64": 1e11, "copy": 2e12}, now, waited)
    monkeypatch.setattr(gpu_limits, "_LIBRARIES", (one, broken, two))
    found = {dtype: gpu_limits.limits(dtype) for dtype in ("float16", "float32", "float64")}
    assert waited, "work that only starts is waited for"
    for dtype, flops in {"float16": 9e12, "float32": 3e12, "float64": 5e11}.items():
        assert found[dtype] == pytest.approx(Limits(flops, 2e12, 2e12)), dtype
    monkeypatch.setattr(gpu_limits, "_LIBRARIES", (broken,))
    assert gpu_limits.limits("float32") == found["float32"], "it is stored"
    assert gpu_limits.limits("float32", again=True) == found["float32"]
    assert gpu_limits.limits("bfloat16") is None
    (file,) = limits.places.cache_folder().glob("limits-*.json")
    assert set(json.loads(file.read_text())) == {f"{dtype}, GPU" for dtype in found}


@pytest.mark.parametrize("device", ptx.DEVICES[1:], ids=lambda device: device.name)
def test_products_of_tf32_are_not_taken_for_faster_than_the_machine(
    device: ptx.Device, empty_profile: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three of them for one of float32, at half the speed of float16: as fast as a data sheet
    allows."""
    now = [0.0]
    monkeypatch.setattr(limits, "perf_counter", lambda: now[0])
    speeds = {"float16": device.tensor_flops, "float32": device.flops, "copy": device.bytes}
    monkeypatch.setattr(gpu_limits, "_LIBRARIES", (_library(speeds, now, []),))
    referee = _referee(Judge(gpu_limits.measured("float32")))
    case, candidate = named("vgg-b8", data="device"), Candidate("cupy:cuda", "dense-tf32")
    took = 3 * floors.least_flops(case) / (device.tensor_flops / 2)
    assert not referee._too_fast(candidate, case, Turn([took], [], []))
    assert referee._too_fast(candidate, case, Turn([took / 5], [], [])).startswith("faster than")


def test_there_is_no_gpu_here() -> None:
    if gpus():
        pytest.skip("there is one")
    assert gpu_limits.measured("float32") is None


def test_torch_multiplies_and_copies_as_asked() -> None:
    """On the host, which the same lines can be told to use."""
    torch = pytest.importorskip("torch")
    library = gpu_limits.by_torch("cpu")
    for dtype in ("float32", "float64"):
        found = library.product(dtype, 4)()
        assert found.dtype == getattr(torch, dtype)
        assert (found == 4).all()
    copied = library.copy(8)()
    assert copied.nbytes == 8
    assert (copied == 1).all()
    library.wait()


def test_cupy_multiplies_and_copies_as_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """On NumPy, with those names of CuPy's that NumPy does not have."""
    arrays: list[Any] = []

    def empty_like(array: Any) -> Any:
        arrays.append(np.zeros_like(array))
        return arrays[-1]

    device = SimpleNamespace(synchronize=lambda: arrays.clear())
    pool = SimpleNamespace(free_all_blocks=lambda: None)
    names = {name: getattr(np, name) for name in ("empty", "ones", "matmul", "copyto", "uint8")}
    cupy = SimpleNamespace(
        **names,
        empty_like=empty_like,
        cuda=SimpleNamespace(Device=lambda: device),
        get_default_memory_pool=lambda: pool,
    )
    monkeypatch.setitem(sys.modules, "cupy", cupy)  # type: ignore[arg-type]
    library = gpu_limits.by_cupy()
    library.product("float32", 4)()
    library.copy(8)()
    product, copied = arrays
    assert product.dtype == np.float32
    assert (product == 4).all()
    assert copied.nbytes == 8
    assert (copied == 1).all()
    library.wait()
    assert not arrays
