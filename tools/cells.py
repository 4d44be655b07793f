"""Cells of the suite: one benchmark of one candidate on one case, as asv names them."""

from __future__ import annotations

import importlib
import re
import shlex
from typing import NamedTuple

from benchmarks.profiles import cell_name, pattern_of
from benchmarks.suite import Suite
from demopool.problem import cases


class Cell(NamedTuple):
    """As in ``Slice.cells``."""

    benchmark: str
    candidate: str
    case: str

    @property
    def suite(self) -> type[Suite]:
        """The class that it belongs to."""
        module, name, _ = self.benchmark.split(".")
        found: type[Suite] = getattr(importlib.import_module(f"benchmarks.{module}"), name)
        return found

    @property
    def method(self) -> str:
        return self.benchmark.rpartition(".")[2]

    @property
    def size(self) -> cases.Case:
        return cases.from_name(self.case)

    @property
    def name(self) -> str:
        """As asv writes it, and compares it with patterns."""
        return cell_name(*self)

    @property
    def pattern(self) -> str:
        """For ``--bench``: this cell and no other."""
        return pattern_of(*self)


def in_a_shell(pattern: str) -> str:
    """The same selection without quotes in it, so that it can be quoted and still be read."""
    plain = pattern.replace("[^']", "[^,]").replace("'", ".")
    return shlex.quote(re.sub(r"\(\?:([^()|]*)\)", r"\1", plain))
