"""Work for ``test_counting.py``, in a module of its own: a process under valgrind imports it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any


def loops(rounds: int) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """A call whose work is proportional to its rounds, after one that must not be counted."""

    def work(count: int) -> int:
        total = 0
        for value in range(count):
            total += value & 7
        return total

    return lambda: work(2500), lambda: work(rounds)


def ends(how: str) -> tuple[Callable[[], Any], Callable[[], Any]]:
    def call() -> None:
        if how == "raises":
            raise ArithmeticError("not today")
        if how == "dies":
            os.abort()
        time.sleep(60)

    return (lambda: None), call
