"""Inputs that no timed call has seen, and evidence of what every timed call returned.

A pool of images is drawn from a seed that the operating system makes up for every race, or is
somebody's own. Each timed call works on one of a few arrays in rotation, which is overwritten at
its address before the call, outside the timed region: every image is one of the pool, with its rows
rotated and its values scaled by a random factor. Neither changes a normalised descriptor, so the
judge's answers for the images of the pool are answers for all of them; and a result that was kept
by address, shape, first row, number of the call or whole content is either wrong or never found
again.

So the features of a call were written just before it, by the same code for all candidates: they are
as warm in the caches as those of a stream of images are. If the case says ``cold``, the caches are
emptied in between: those of the host by code of ours, those of a GPU by the backend.

Evidence leaves the process: sums of each result with random signs, all values of one image, and
seconds of work that went on after the calls had returned. A GPU is waited for by the driver too,
after the clock has stopped: what a backend's own waiting has left out is charged to the call.

The judge, a process in which no candidate ever runs, compares (``answers.py``). The functions used
here are bound before a candidate is imported, so replacing them in their modules changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from secrets import randbits
from time import perf_counter, process_time, sleep
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..common.arrays import overwritten
from ..contract.device import Host, wait_for
from ..machine import cuda_driver
from ..measurement.clock import Clock
from ..problem.cases import Case
from .jobs import Data, Job, features

Array = NDArray[Any]
Wait = cuda_driver.Wait

_SHORT = 1.0
"""Seconds of a turn after which two more calls are made, to see whether results last."""

SLOTS = 3
"""Arrays in rotation."""

_BLOCK = 1 << 15
"""Values that are summed at a time, so that they stay in the cache."""

_SPIN_SECONDS, _IDLE_SECONDS = 0.03, 0.015
"""Threads of a library may wait for more work this long; afterwards a process should be idle."""

_BUSY = 0.3
"""Cores that a process uses while it has nothing to do, from which on it is at work."""

MOST_LEAKED = 1.0
"""Seconds; a process that is at work for longer is not waited for."""

_SPINNING = 0.9
"""Cores that a process uses or waits for, likewise: on a busy machine it may get few."""

_THREADS = Path("/proc/self/task")
"""Linux's statistics of its scheduler are here."""

# What is measured must not be able to replace what measures.
_dot, _abs, _multiply, _array = np.dot, np.abs, np.multiply, np.array
_now, _cpu, _sleep = perf_counter, process_time, sleep
_flush_host = Host().flush_caches
_waiting = cuda_driver.waiting


class ImagePool(NamedTuple):
    """The images of a race: noise of a seed; those of a .npy for cases of their sizes."""

    seed: int
    file: str = ""


class Source(NamedTuple):
    """The pool of a race, and how many of its images are used."""

    pool: ImagePool
    images: int


class Turn(NamedTuple):
    """A few timed calls, and the evidence.

    seconds   of every call
    which     of the pool's images, for every call and image of its batch
    sums      for every call and image: with random signs, and of magnitudes
    sample    of a thorough turn: one image of one call in full, its number and values
    leaked    seconds for which the process was at work after the calls had returned
    unread    seconds that readings took longer than they say
    began     when, by the clock of this process; Python's is the same in all of a machine
    ended     likewise
    reason    what the process itself saw to be wrong, or ""
    cores     of a thorough turn: how many threads ran during its calls on average, or wanted to
    """

    seconds: list[float]
    which: list[tuple[int, ...]]
    sums: list[list[tuple[float, float]]]
    sample: tuple[int, Array] | None = None
    leaked: float = 0.0
    unread: float = 0.0
    began: float = 0.0
    ended: float = 0.0
    reason: str = ""
    cores: float = 0.0


def image(case: Case, pool: ImagePool, number: int) -> Array:
    """An image of the pool, the same in every process."""
    if pool.file:
        stored = np.load(pool.file, mmap_mode="r", allow_pickle=False)
        if stored.shape[1:] == (case.n, case.d):
            return np.array(stored[number % len(stored)], case.dtype)
    rng = np.random.default_rng((pool.seed, number))
    return features(rng, (case.n, case.d), case.dtype)


def signs(length: int, seed: int) -> NDArray[np.float32]:
    """Random signs for the sums of a descriptor of this length."""
    drawn = np.random.default_rng((seed, 1 << 20)).integers(0, 2, length, dtype=np.int8)
    return (2 * drawn - 1).astype(np.float32)


def squares(values: Array) -> Array:
    """The descriptor before its final norm, as shares of its sum of magnitudes.

    The final norm takes signed square roots and divides by their length: this undoes the roots.
    """
    return np.asarray(values * np.abs(values))


def sums(values: Array, random_signs: Array) -> tuple[float, float]:
    """Of the squares of one image's values: with random signs, and of magnitudes."""
    signed = magnitude = 0.0
    for start in range(0, len(values), _BLOCK):
        block = values[start : start + _BLOCK]
        size = _abs(block)
        magnitude += float(_dot(size, size))
        _multiply(size, block, out=size)
        signed += float(_dot(size, random_signs[start : start + _BLOCK]))
    return signed, magnitude


@dataclass
class _Slot:
    data: Data
    which: tuple[int, ...] = ()


@dataclass
class Stream:
    """The inputs of one job. Its choices are drawn from the system's randomness."""

    job: Job
    case: Case
    source: Source
    slots: list[_Slot] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._pool = [image(self.case, self.source.pool, i) for i in range(self.source.images)]
        self._rng = np.random.default_rng(randbits(64))
        self._last = -1
        index = self.job.device.gpu_index
        self._wait = None if index is None else _waiting(index)
        shape = (self.case.batch, self.case.n, self.case.d)
        for _ in range(SLOTS):
            X = np.zeros(shape, self.case.dtype)
            slot = _Slot(Data({"X": X}, {}))
            if self.case.data == "device":
                slot.data.placed["X"] = self.job.place(X.copy())
            self.slots.append(slot)
        random_signs = signs(self.case.length, self.source.pool.seed)
        self._signs = random_signs.astype(self.case.dtype.result)

    def next(self) -> tuple[int, ...]:
        """Put the next input before the job; returns which images of the pool it holds."""
        number = int(self._rng.integers(SLOTS - (self._last >= 0)))
        number += 0 <= self._last <= number  # never the last one again
        self._last = number
        slot = self.slots[number]
        self._fill(slot)
        if self.case.data == "device":
            placed = slot.data.placed
            placed["X"] = overwritten(placed["X"], self.job.place(slot.data.host["X"]))
            wait_for(placed["X"], self.job.device)
            self.job.data.placed = placed
        self.job.data.host = slot.data.host
        return slot.which

    def _fill(self, slot: _Slot) -> None:
        X, rng = slot.data.host["X"], self._rng
        slot.which = tuple(int(i) for i in rng.integers(len(self._pool), size=len(X)))
        for target, number in zip(X, slot.which, strict=True):
            source = self._pool[number]
            if self.case.dtype.is_half:
                # Rounding would be seen, because results are worked in float32: an exact factor.
                factor = X.dtype.type(2.0 ** int(rng.integers(-1, 2)))
                _multiply(source[rng.permutation(self.case.n)], factor, out=target)
                continue
            cut, factor = int(rng.integers(self.case.n)), X.dtype.type(2.0 ** rng.uniform(-1, 1))
            _multiply(source[cut:], factor, out=target[: self.case.n - cut])
            _multiply(source[:cut], factor, out=target[self.case.n - cut :])

    def turn(self, calls: int, discard: int, thorough: bool) -> Turn:
        """Timed calls, after ``discard`` that are not reported but checked too.

        thorough   bring a whole image as evidence, look for work that goes on afterwards and for
                   results that do not last
        """
        began = _now()
        turn = self._turn(calls, discard, thorough)
        return turn._replace(began=began, ended=_now())

    def _turn(self, calls: int, discard: int, thorough: bool) -> Turn:
        job = self.job
        call = job.run_from_host if self.case.data == "host" else job.run
        clock = Clock(job.device, touch=self._touch)
        turn = Turn([], [], [])
        sampled = int(self._rng.integers(discard, calls + discard))
        sample: tuple[int, Array] | None = None
        around = read = wanted = 0.0
        for number in range(discard + calls):
            which = self.next()
            if self.case.is_cold:
                self._flush()
            used = _wanted_seconds() if thorough else 0.0
            before = _now()
            reading, result = clock.call(call)
            around += _now() - before
            wanted += _wanted_seconds() - used if thorough else 0.0
            read += reading.wall
            busy = busy_seconds(self._wait)
            values, late = self._values(result)
            del result
            if isinstance(values, str):
                return turn._replace(reason=values)
            if number >= discard:
                turn.seconds.append(reading.wall + busy + late)
            turn.which.append(which)
            turn.sums.append([sums(row, self._signs) for row in values])
            if thorough and number == sampled:
                row = int(self._rng.integers(len(values)))
                sample = which[row], _array(values[row])
            del values
        cores = wanted / around if around > 0 else 0.0
        turn = turn._replace(sample=sample, unread=around - read, cores=cores)
        if thorough:
            turn = turn._replace(leaked=leaked_seconds(self._wait))
            if sum(turn.seconds) < _SHORT:  # else two more calls would be too long
                turn = turn._replace(reason=self._overwritten_result(call))
        return turn

    def _flush(self) -> None:
        _flush_host()
        if self.job.device.gpu_index is not None:
            self.job.device.flush_caches()

    def _touch(self, result: Any) -> Any:
        """One value, read while the clock runs: a result that is not there yet is made now."""
        if self.case.data == "host":
            return result[0, 0]
        return self.job.to_numpy(result[:, -1:])

    def _values(self, result: Any) -> tuple[Array | str, float]:
        """As NumPy, and seconds to charge for it: on the host the values should be there."""
        before = _now()
        values = result if self.case.data == "host" else self.job.to_numpy(result)
        if type(values) is not np.ndarray:
            return f"the result is a {type(values).__name__}, not an array", 0.0
        took = _now() - before
        shape = (self.case.batch, self.case.length)
        if values.shape != shape:
            return f"the result has the shape {values.shape} instead of {shape}", 0.0
        if values.dtype != self.case.dtype.result:
            return f"the result is {values.dtype} instead of {self.case.dtype.result}", 0.0
        on_host = self.job.device.gpu_index is None
        return values, took if on_host else 0.0

    def _overwritten_result(self, call: Callable[[], Any]) -> str:
        """Whether a later call changes an earlier result; these calls are not timed."""
        self.next()
        earlier = call()
        wait_for(earlier, self.job.device)
        before = self._values(earlier)[0]
        if isinstance(before, str):
            return before
        known = [sums(row, self._signs) for row in before]
        self.next()
        wait_for(call(), self.job.device)
        after = self._values(earlier)[0]
        if isinstance(after, str) or [sums(row, self._signs) for row in after] != known:
            return "a later call overwrote the result of an earlier one"
        return ""


def busy_seconds(wait: Wait | None) -> float:
    """How long the GPU is at work from now on; waiting for one that is idle is not counted."""
    if wait is None:
        return 0.0
    began = _now()
    wait()
    idle = _now()
    wait()
    return max(0.0, (idle - began) - (_now() - idle))


def leaked_seconds(wait: Wait | None = None) -> float:
    """How long this process, or its GPU, is at work after its calls have returned.

    Threads of libraries may spin for a moment and wait for more; after that it should be idle.
    ``MOST_LEAKED`` if it does not become so.
    """
    _sleep(_SPIN_SECONDS)
    began, leaked = _now(), 0.0
    for _ in range(round(MOST_LEAKED / _IDLE_SECONDS)):  # the clock may be wrong
        if _now() - began > MOST_LEAKED:
            break
        start, cpu, waited = _now(), _cpu(), _waited_seconds()
        _sleep(_IDLE_SECONDS)
        took, cpu, waited = _now() - start, _cpu() - cpu, _waited_seconds() - waited
        if cpu > _BUSY * took or busy_seconds(wait) > _BUSY * _IDLE_SECONDS:
            leaked = _now() - began
        elif cpu + waited < _SPINNING * took:
            return leaked
    return MOST_LEAKED


def _wanted_seconds() -> float:
    """Processor time that threads of this process have had, or waited for."""
    return _cpu() + _waited_seconds()


def _waited_seconds() -> float:
    """How long threads of this process have waited for a core that others used; 0 if unknown.

    A thread that spins runs little on a busy machine, but wants to all the time.
    """
    nanoseconds = 0
    for thread in _THREADS.glob("*/schedstat"):
        with suppress(OSError, LookupError, ValueError):  # it may have just ended
            nanoseconds += int(thread.read_text().split()[1])
    return nanoseconds / 1e9
