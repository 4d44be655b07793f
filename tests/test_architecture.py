"""The packages follow the data: no cycles, no import against the order, a thin front door."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import demopool
from tools import import_graph

ARROWS = import_graph.graph()
SOURCE = import_graph.FOLDERS["demopool"]
MAX_MODULES = 12


def test_no_modules_import_each_other() -> None:
    assert import_graph.cycles(ARROWS) == []


def test_no_package_imports_a_later_one() -> None:
    assert import_graph.against_the_order(ARROWS) == []


def test_a_cycle_and_an_arrow_against_the_order_are_found() -> None:
    planted = {
        "demopool.problem.cases": frozenset({"demopool.report.page"}),
        "demopool.report.page": frozenset({"demopool.problem.cases"}),
    }
    assert import_graph.cycles(planted) == [["demopool.problem.cases", "demopool.report.page"]]
    assert import_graph.against_the_order(planted) == [
        "demopool.problem.cases imports demopool.report.page"
    ]


def test_the_graph_sees_lazy_and_relative_imports() -> None:
    assert "demopool.commands" in ARROWS["demopool.__main__"]  # in a function
    assert "demopool.problem.cases" in ARROWS["demopool.problem.candidates"]  # from .cases
    assert "demopool.problem.cases" in ARROWS["demopool.choosing.racing"]  # from ..problem.cases


@pytest.mark.parametrize(
    "module", sorted(m for m in ARROWS if m.startswith("demopool.implementations."))
)
def test_implementations_import_the_contract_and_shared_code_only(module: str) -> None:
    own = ".".join(module.split(".")[:3])
    allowed = ("demopool.contract", "demopool.errors", "demopool.implementations.shared", own)
    if module.endswith(".emulated"):
        allowed += ("demopool.ptx",)
    inside = tuple(f"{name}." for name in allowed)
    strangers = [target for target in sorted(ARROWS[module]) if not f"{target}.".startswith(inside)]
    assert strangers == []


def test_the_top_level_has_what_users_import() -> None:
    modules = [file.stem for file in SOURCE.glob("*.py")]
    folders = [file.parent.name for file in SOURCE.glob("*/__init__.py")]
    assert len(modules) <= MAX_MODULES
    assert sorted([*folders, "errors", "implementations", "reference"]) == sorted(
        import_graph.ORDER
    )


def test_no_package_is_named_after_a_public_function() -> None:
    functions = {name for name in demopool.__all__ if callable(getattr(demopool, name))}
    assert functions.isdisjoint(import_graph.ORDER)


def test_every_package_says_what_it_is_in_one_sentence() -> None:
    for name in import_graph.ORDER:
        assert re.fullmatch(r"[A-Za-z].+\.", import_graph.sentence(name)), name


def test_the_picture_in_the_documentation_is_of_this_graph() -> None:
    stored = Path(import_graph.ROOT, "docs", "_static", "architecture.svg").read_text()
    assert stored == import_graph.svg(ARROWS), "run: make architecture"
