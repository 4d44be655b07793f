"""The limit of a measured call, where the speed of its machine is known here."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from ..common.files import UNREADABLE
from ..machine import limits
from ..problem.cases import from_name
from ..problem.vocabulary import Backend
from ..profiles.floors import least_seconds

_OF_CALLS = ("call_s", "lowest_s")
"""Measures of which the limit is a lower bound: times of warm calls."""


def limit_of(row: Mapping[str, Any]) -> float | None:
    """Seconds that a call must take at least; None for what is no call on the CPU of a known
    machine."""
    names = ("case", "subject", "backend", "fingerprint")
    case, subject, backend, key = texts = [row.get(name) for name in names]
    threads = row.get("threads")
    if row.get("kind") != "descriptor" or row.get("measure") not in _OF_CALLS:
        return None
    if not all(isinstance(text, str) for text in texts) or not isinstance(threads, int):
        return None
    return _seconds(case, subject, key, threads) if Backend(backend).on_host else None


def forget() -> None:
    """Look at the files again."""
    _seconds.cache_clear()


@cache
def _seconds(name: str, descriptor: str, key: str, threads: int) -> float | None:
    try:
        case = from_name(name, descriptor)
    except UNREADABLE:  # of a benchmark that is not ours
        return None
    speed = limits.known(key, threads, str(case.dtype.result))
    return least_seconds(case, speed) if speed else None
