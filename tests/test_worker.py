"""The worker: whatever a candidate does, it costs only that candidate, and is told as its state."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from threadpoolctl import threadpool_info

from demopool.errors import BackendUnavailable, InvalidInput, Unsupported
from demopool.machine.system import usable_cores
from demopool.measurement.worker import THREAD_VARIABLES, Answer, Worker, thread_environment
from demopool.problem.vocabulary import State

PATIENCE = 60.0
"""Seconds for requests that must not time out, also on a busy machine."""

remembered: list[Any] = []


class OutOfMemoryError(RuntimeError):
    """Named like those of torch and CuPy."""


class Unreadable:
    """Leaves the worker, and cannot enter the parent."""

    def __reduce__(self) -> tuple[Any, ...]:
        return int, ("not a number",)


def remember(value: Any) -> list[Any]:
    remembered.append(value)
    return remembered


def fail(kind: str) -> None:
    raise {
        "ordinary": ValueError("three\nlines\nof it"),
        "exit": SystemExit("leaving"),
        "python": MemoryError(),
        "library": OutOfMemoryError("tried to allocate 2 GiB"),
        "host": RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried 4 PB"),
        "cuda": RuntimeError("Call to cuMemAlloc results in CUDA_ERROR_OUT_OF_MEMORY"),
        "unsupported": Unsupported("sketch on numpy:cpu", "there is no such route"),
        "unavailable": BackendUnavailable("torch:cuda", "there is no GPU"),
    }[kind]


def hang_deaf_to_polite_signals() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        pass


def hang_in_native_code() -> None:
    while True:
        ctypes.PyDLL(None).sleep(60)  # PyDLL keeps the interpreter's lock


def read_address_zero() -> None:
    ctypes.string_at(0)


def shout(megabytes: int) -> None:
    for stream in (sys.stdout, sys.stderr):
        for _ in range(megabytes):
            stream.write("x" * 2**20 + "\n")


def whisper_and_abort(words: str) -> None:
    print("from Python")
    ctypes.CDLL(None).puts(words.encode())
    ctypes.CDLL(None).fflush(None)
    os.abort()


def start_sleeper() -> int:
    return subprocess.Popen(["sleep", "60"]).pid


def exit_beside_a_fork() -> None:
    if os.fork():
        os._exit(3)
    time.sleep(60)


def blas_threads() -> list[int]:
    import numpy as np

    np.ones((256, 256)) @ np.ones((256, 256))
    return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]


def processor_seconds(pid: int | None) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def ended(pid: int) -> bool:
    """Whether a process ends soon. A zombie that init has yet to fetch has ended."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.01)
    return False


def reaped(pid: int | None) -> bool:
    """Whether nothing is left of a process, not even a zombie."""
    return not Path(f"/proc/{pid}").exists()


@pytest.fixture
def worker() -> Iterator[Worker]:
    with Worker(1) as worker:
        yield worker


@pytest.fixture(scope="module")
def shared() -> Iterator[Worker]:
    """For requests that leave the worker as it was."""
    with Worker(1) as worker:
        yield worker


def test_the_value_comes_back(shared: Worker) -> None:
    assert shared.ask(divmod, 17, 5, timeout=PATIENCE) == Answer(State.OK, (3, 2))
    assert shared.ask(int, "101", base=2, timeout=PATIENCE).value == 5
    assert len(shared.ask(bytes, 10**7, timeout=PATIENCE).value) == 10**7
    assert shared.ask(len, bytes(10**7), timeout=PATIENCE).value == 10**7


def test_what_a_function_keeps_is_there_for_the_next_request(worker: Worker) -> None:
    assert worker.ask(remember, "warm", timeout=PATIENCE).value == ["warm"]
    assert worker.ask(remember, "state", timeout=PATIENCE).value == ["warm", "state"]
    assert remembered == []


@pytest.mark.parametrize(
    ("kind", "state", "reason"),
    [
        ("ordinary", State.ERROR, "it raised ValueError: three lines of it"),
        ("exit", State.ERROR, "it raised SystemExit: leaving"),
        ("python", State.OUT_OF_MEMORY, "it raised MemoryError"),
        ("library", State.OUT_OF_MEMORY, "OutOfMemoryError: tried to allocate 2 GiB"),
        ("host", State.OUT_OF_MEMORY, "it raised RuntimeError: DefaultCPUAllocator"),
        ("cuda", State.OUT_OF_MEMORY, "it raised RuntimeError: Call to cuMemAlloc"),
        ("unsupported", State.UNSUPPORTED, "there is no such route"),
        ("unavailable", State.UNAVAILABLE, "there is no GPU"),
    ],
)
def test_an_exception_is_a_state_and_the_worker_lives_on(
    shared: Worker, kind: str, state: State, reason: str
) -> None:
    shared.ask(fail, kind, timeout=PATIENCE)
    before = shared.pid
    answer = shared.ask(fail, kind, timeout=PATIENCE)
    assert answer.state is state
    assert reason in answer.reason
    assert answer.value is None
    assert shared.alive
    assert shared.ask(os.getpid, timeout=PATIENCE).value == before


def test_a_result_that_cannot_travel_is_an_error(shared: Worker) -> None:
    answer = shared.ask(threading.Lock, timeout=PATIENCE)
    assert answer.state is State.ERROR
    assert "cannot pickle" in answer.reason
    answer = shared.ask(Unreadable, timeout=PATIENCE)
    assert answer.state is State.ERROR
    assert "cannot be read here" in answer.reason
    assert shared.ask(os.getpid, timeout=PATIENCE).value == shared.pid


def test_a_request_that_cannot_travel_is_invalid(shared: Worker) -> None:
    with pytest.raises(InvalidInput, match="cannot be sent test_worker"):
        shared.ask(lambda: 1, timeout=PATIENCE)
    with pytest.raises(InvalidInput, match="cannot pickle"):
        shared.ask(len, threading.Lock(), timeout=PATIENCE)
    assert shared.ask(os.getpid, timeout=PATIENCE).value == shared.pid


@pytest.mark.parametrize(
    ("function", "arguments", "reason"),
    [
        (os._exit, (3,), "the worker exited with code 3 before it answered posix._exit"),
        (os.abort, (), "the worker died of signal 6 (Aborted) before it answered posix.abort"),
        (read_address_zero, (), "died of signal 11 (Segmentation fault)"),
        (exit_beside_a_fork, (), "exited with code 3"),
    ],
)
def test_a_crash_is_an_error_and_the_next_request_gets_a_new_process(
    worker: Worker, function: Any, arguments: tuple[Any, ...], reason: str
) -> None:
    assert not worker.alive
    assert worker.pid is None
    first = worker.ask(os.getpid, timeout=PATIENCE).value
    assert worker.alive
    answer = worker.ask(function, *arguments, timeout=PATIENCE)
    assert answer.state is State.ERROR
    assert reason in answer.reason
    assert not worker.alive
    assert reaped(first)
    assert worker.ask(os.getpid, timeout=PATIENCE).value == worker.pid != first


def test_a_crash_is_told_with_its_place_and_the_last_words(worker: Worker) -> None:
    answer = worker.ask(whisper_and_abort, "from C", timeout=PATIENCE)
    assert answer.state is State.ERROR
    assert "in whisper_and_abort" in answer.reason
    assert "it printed last: from Python from C" in answer.reason
    answer = worker.ask(whisper_and_abort, "what(): std::bad_alloc", timeout=PATIENCE)
    assert answer.state is State.OUT_OF_MEMORY
    answer = worker.ask(whisper_and_abort, "x" * 10**6, timeout=PATIENCE)
    assert len(answer.reason) < 600


def test_a_worker_that_the_system_kills_lacked_memory(worker: Worker) -> None:
    worker.ask(os.getpid, timeout=PATIENCE)
    assert worker.pid is not None
    killer = threading.Timer(0.1, os.kill, (worker.pid, signal.SIGKILL))
    killer.start()
    answer = worker.ask(time.sleep, PATIENCE, timeout=PATIENCE)
    killer.join()
    assert answer.state is State.OUT_OF_MEMORY
    assert "killed by the system, most likely for lack of memory" in answer.reason


def test_a_death_between_requests_is_answered_once(worker: Worker) -> None:
    first = worker.ask(os.getpid, timeout=PATIENCE).value
    os.kill(first, signal.SIGKILL)
    deadline = time.monotonic() + PATIENCE
    while worker.alive and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not worker.alive
    assert worker.ask(os.getpid, timeout=PATIENCE).state is State.OUT_OF_MEMORY
    assert worker.ask(os.getpid, timeout=PATIENCE).value not in (first, None)


@pytest.mark.parametrize("function", [hang_deaf_to_polite_signals, hang_in_native_code])
def test_a_hang_is_a_timeout_that_tells_where(worker: Worker, function: Any) -> None:
    worker.ask(remember, "so that the module is imported", timeout=PATIENCE)
    pid = worker.pid
    start = time.monotonic()
    answer = worker.ask(function, timeout=0.2)
    assert time.monotonic() - start < 5
    assert answer.state is State.TIMEOUT
    assert (
        f"{function.__name__} gave no answer within 0.2 s, at tests/test_worker.py:"
        in answer.reason
    )
    assert f" in {function.__name__}" in answer.reason
    assert not worker.alive
    assert reaped(pid)
    assert worker.ask(divmod, 1, 1, timeout=PATIENCE).state is State.OK


def test_a_worker_that_cannot_start_is_an_error() -> None:
    with Worker(1, environment={"PYTHONHOME": "/nowhere"}) as worker:
        answer = worker.ask(os.getpid, timeout=PATIENCE)
    assert answer.state is State.ERROR
    assert "exited with code 1" in answer.reason
    assert "encodings" in answer.reason
    assert not answer.asked


def test_an_interpreter_that_is_absent_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with Worker(1) as worker:
        answer = worker.ask(os.getpid, timeout=PATIENCE)
    assert answer.state is State.ERROR
    assert "could not be started" in answer.reason
    assert not answer.asked


def test_what_the_worker_prints_stays_out_of_the_way(
    shared: Worker, capfd: pytest.CaptureFixture[str]
) -> None:
    assert shared.ask(shout, 4, timeout=PATIENCE).state is State.OK
    assert shared.ask(print, "once more", timeout=PATIENCE).state is State.OK
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("threads", sorted({1, usable_cores()}))
def test_the_number_of_threads_is_fixed_before_any_library_loads(
    threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in THREAD_VARIABLES:
        monkeypatch.setenv(variable, "7")
    with Worker(threads, environment={"DEMOPOOL_TEST": "passed on"}) as worker:
        for variable in THREAD_VARIABLES:
            assert worker.ask(os.getenv, variable, timeout=PATIENCE).value == str(threads)
        assert worker.ask(os.getenv, "DEMOPOOL_TEST", timeout=PATIENCE).value == "passed on"
        assert set(worker.ask(blas_threads, timeout=PATIENCE).value) == {threads}


def test_a_worker_has_at_least_one_thread() -> None:
    with pytest.raises(InvalidInput, match="threads must be 1 or more; got 0"):
        Worker(0)
    assert thread_environment(3)["OMP_NUM_THREADS"] == "3"


def test_an_idle_worker_uses_no_processor() -> None:
    with Worker(usable_cores()) as worker:
        worker.ask(blas_threads, timeout=PATIENCE)
        time.sleep(0.3)  # threads of a library may spin for a moment
        before = processor_seconds(worker.pid)
        time.sleep(0.5)
        assert processor_seconds(worker.pid) - before <= 0.02


def test_workers_do_not_know_of_each_other() -> None:
    with Worker(1) as one, Worker(1) as two, Worker(1) as three:
        for number, worker in enumerate((one, two, three) * 2):
            worker.ask(remember, number, timeout=PATIENCE)
        assert len({one.pid, two.pid, three.pid}) == 3
        assert one.ask(os._exit, 1, timeout=PATIENCE).state is State.ERROR
        two.close()
        assert three.ask(remember, "end", timeout=PATIENCE).value == [2, 5, "end"]


def test_what_a_worker_started_dies_with_it(worker: Worker) -> None:
    sleepers = [worker.ask(start_sleeper, timeout=PATIENCE).value]
    worker.close()
    sleepers.append(worker.ask(start_sleeper, timeout=PATIENCE).value)
    worker.ask(os._exit, 1, timeout=PATIENCE)
    assert all(ended(pid) for pid in sleepers)


def test_nothing_is_left_open() -> None:
    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    before = descriptors()
    worker = Worker(1)
    pids = []
    for _ in range(2):
        pids.append(worker.ask(os.getpid, timeout=PATIENCE).value)
        assert descriptors() > before
        worker.ask(os._exit, 0, timeout=PATIENCE)
        pids.append(worker.ask(os.getpid, timeout=PATIENCE).value)
        worker.ask(time.sleep, PATIENCE, timeout=0.01)
        assert descriptors() == before
    pids.append(worker.ask(os.getpid, timeout=PATIENCE).value)
    worker.close()
    worker.close()
    assert descriptors() == before
    assert all(reaped(pid) for pid in pids)


PARENT = f"""
import os, time
from demopool.measurement.worker import Worker
worker = Worker(1)
print(worker.ask(os.getpid, timeout={PATIENCE}).value, flush=True)
"""
IDLE = f"time.sleep({PATIENCE})"
BUSY = f"worker.ask(time.sleep, {PATIENCE}, timeout={PATIENCE})"


@pytest.mark.parametrize("doing", [IDLE, BUSY], ids=["idle", "busy"])
def test_the_worker_ends_when_its_parent_is_killed(doing: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT + doing], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        time.sleep(0.1)
        parent.kill()
    assert ended(pid)


def test_interrupting_the_parent_closes_the_worker_without_a_word_from_it() -> None:
    caught = f"""
try:
    {BUSY}
except KeyboardInterrupt:
    print(worker.alive, os.path.exists(f"/proc/{{pid}}"))
"""
    with subprocess.Popen(
        [sys.executable, "-c", PARENT + "pid = worker.pid" + caught],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        time.sleep(0.1)
        os.killpg(parent.pid, signal.SIGINT)  # what a terminal does on Ctrl-C
        assert parent.communicate(timeout=PATIENCE) == ("False False\n", "")
    assert parent.returncode == 0
    assert ended(pid)
