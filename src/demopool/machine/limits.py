"""How fast this processor multiplies and copies at best: the limit that no call can beat.

Measured with NumPy, and torch where it is installed, in a process in which no candidate runs. The
best figures ever seen for this machine and number of threads are kept: a busy moment makes the
machine look slow, never fast.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import numpy as np

from ..common import places
from ..common.files import UNREADABLE, locked, read_text, write_text
from ..errors import InvalidInput
from . import fingerprint

_PRODUCT = 1024
_SMALL, _LARGE = 1 << 18, 1 << 26
"""Bytes of a copy: what the cache of a thread holds, and what no cache holds."""

_LONGEST_KEY = 64

_SECONDS = 0.1
"""For each figure; the best of the repetitions counts."""


class Limits(NamedTuple):
    """Of all threads together.

    flops          floating-point operations a second, in matrix products of this dtype
    cached_bytes   read or written a second, of data in the cache
    memory_bytes   the same, of data that no cache holds
    """

    flops: float
    cached_bytes: float
    memory_bytes: float

    def bytes(self, amount: float) -> float:
        """A second, if this much is moved in all."""
        return self.memory_bytes if amount > 2 * _LARGE else self.cached_bytes


def limits(threads: int, dtype: str, *, again: bool = False) -> Limits:
    """Of this machine; measured the first time, or ``again`` where they are in doubt."""
    found = kept(_name(threads, dtype), lambda: measured(threads, dtype), again=again)
    assert found is not None
    return found


def known(key: str, threads: int, dtype: str) -> Limits | None:
    """Of the machine with this key, if they were measured and are kept here; measures nothing."""
    if not (key.isascii() and key.isalnum() and len(key) <= _LONGEST_KEY):
        return None  # from a stranger's file, and no name of a file of ours
    return _stored(_path(key)).get(_name(threads, dtype))


def kept(name: str, measure: Callable[[], Limits | None], *, again: bool) -> Limits | None:
    """The best that was ever measured on this machine, under a name in its file."""
    path = _path(fingerprint.key(fingerprint.fingerprint()))
    known = _stored(path).get(name)
    if known is not None and not again:
        return known
    found = measure()
    if found is None:
        return known
    if known is not None:
        found = Limits(*map(max, found, known))
    try:
        with locked(path):
            everything = _stored(path) | {name: found}
            text = {key: value._asdict() for key, value in everything.items()}
            write_text(path, json.dumps(text, indent=1) + "\n")
    except (InvalidInput, OSError):
        pass  # it is measured again the next time
    return found


def measured(threads: int, dtype: str) -> Limits:
    """Right now, in this process, whose libraries have that many threads."""
    rng = np.random.default_rng(0)
    A, B = (rng.standard_normal((_PRODUCT, _PRODUCT)).astype(dtype) for _ in range(2))
    out = np.empty_like(A)
    product = min(best(lambda: np.matmul(A, B, out=out)), _best_of_torch(A, B, threads))
    with ThreadPoolExecutor(threads) as pool:

        def copied(size: int) -> float:
            size = max(size // threads, _SMALL)  # of all threads together
            pairs = [(np.ones(size, np.uint8), np.empty(size, np.uint8)) for _ in range(threads)]
            repeats = max(1, _LARGE // size // 8)

            def copy(pair: tuple[np.ndarray, np.ndarray]) -> None:
                for _ in range(repeats):
                    np.copyto(pair[1], pair[0])

            seconds = best(lambda: list(pool.map(copy, pairs)))
            return 2.0 * size * threads * repeats / seconds  # read and written

        memory = copied(_LARGE)
        return Limits(2.0 * _PRODUCT**3 / product, max(copied(_SMALL), memory), memory)


def _best_of_torch(A: np.ndarray, B: np.ndarray, threads: int) -> float:
    """Seconds of the same product by torch, if it is there: NumPy may have a slow BLAS."""
    try:
        import torch
    except Exception:
        return float("inf")
    torch.set_num_threads(threads)
    first, second = torch.from_numpy(A), torch.from_numpy(B)
    return best(lambda: torch.mm(first, second))


def best(work: Callable[[], object]) -> float:
    """Seconds, the least of some repetitions."""
    found = float("inf")
    end = perf_counter() + _SECONDS
    while perf_counter() < end or found == float("inf"):
        before = perf_counter()
        work()
        found = min(found, perf_counter() - before)
    return found


def _name(threads: int, dtype: str) -> str:
    return f"{dtype}, {threads} threads"


def _path(key: str) -> Path:
    return places.cache_folder() / f"limits-{key}.json"


def _stored(path: Path) -> dict[str, Limits]:
    """What can be read of it; a broken file is one that is not there."""
    if not path.exists():
        return {}
    try:
        found = {k: Limits(**v) for k, v in json.loads(read_text(path)).items()}
        return {k: v for k, v in found.items() if all(0 < float(x) < float("inf") for x in v)}
    except (InvalidInput, *UNREADABLE):
        return {}
