"""Libraries that return before the work is done: what was waited for is there, and is weighed."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from demopool.conformance.waiting import late_seconds
from demopool.contract.device import Host
from demopool.measurement import memory
from demopool.trials.jobs import Job
from demopool.trials.measures import ONCE, Trial


class Library:
    """One with a clock of its own, on which everything takes its time."""

    def __init__(self, *, wait: float = 1.0, lazy: bool = False, keeps: bool = False) -> None:
        """``wait``: the share of the work that waiting waits for."""
        self.time, self.share, self.lazy, self.keeps = 0.0, wait, lazy, keeps
        self.left: dict[int, float] = {}
        self.brought: set[int] = set()
        self.arrays: list[Any] = []

    def now(self) -> float:
        return self.time

    def call(self) -> Any:
        self.time += 0.1  # to start it
        result = np.zeros(3)
        self.arrays.append(result)
        self.left[id(result)] = self.time + 1.0 if not self.lazy else 1.0
        return result

    def wait(self, result: Any) -> None:
        """Of work in the background it waits for a share of what is left."""
        left = self.left.get(id(result), 0.0)
        if self.lazy:
            self.time += self.share * left
            self.left[id(result)] = (1 - self.share) * left
        else:
            self.time += self.share * max(left - self.time, 0.0)

    def asarray(self, array: Any) -> Any:
        self.arrays.append(array)
        return array

    def to_numpy(self, array: Any) -> Any:
        left = self.left.pop(id(array), 0.0)
        self.time += left if self.lazy else max(left - self.time, 0.0)
        if not (self.keeps and id(array) in self.brought):
            self.time += 2.0  # the way to the host
        self.brought.add(id(array))
        return array


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("keeps", [False, True])
def test_a_result_that_was_waited_for_adds_only_its_way_to_the_host(
    lazy: bool, keeps: bool
) -> None:
    right = Library(lazy=lazy, keeps=keeps)
    assert late_seconds(right.call, right, right.now) == ""
    for share in (0.0, 0.5):
        early = Library(wait=share, lazy=lazy, keeps=keeps)
        assert "ms more" in late_seconds(early.call, early, early.now), share


class Later(Host):
    """Work in a thread, which ``wait`` joins; a result that says how large it is."""

    class Result:
        def __init__(self, nbytes: int, held: int) -> None:
            self.nbytes, self.held = nbytes, held
            self.thread = threading.Thread(target=self.work)
            self.thread.start()

        def work(self) -> None:
            temporary = np.ones(self.held, np.uint8)
            self.values = np.ones(self.nbytes, np.uint8)
            del temporary

    def wait(self, result: Any) -> None:
        result.thread.join()


def test_memory_that_a_library_takes_after_it_has_returned_is_seen() -> None:
    if memory.peak_host_bytes(lambda: None) is None:
        pytest.skip("this system does not report it")
    device, made = Later(), []

    def run() -> Any:
        # Beyond 32 MiB each, memory is new: what was freed before may still be resident.
        made.append(Later.Result(40_000_000, 60_000_000))
        return made[-1]

    job = Job(run, run, np.asarray, device)  # type: ignore[arg-type]
    of_job = ONCE["peak_host_bytes"].of_job
    assert of_job is not None
    found = of_job(Trial(job, lambda: None)).value
    assert found is not None
    assert 99e6 < found < 130e6
    assert not any(one.thread.is_alive() for one in made)  # the warm-up was waited for as well
