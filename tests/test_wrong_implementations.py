"""Who checks the checker: every wrong implementation must be caught, for the stated reason."""

from __future__ import annotations

from typing import Any, cast

import pytest
from wrong_implementations import WRONG, Wrong

from demopool import backend
from demopool.conformance.engine import Target, check_cell
from demopool.problem.vocabulary import Backend, State


def test_there_are_at_least_fourteen() -> None:
    assert len(WRONG) >= 14


@pytest.mark.parametrize("mistake", WRONG, ids=lambda mistake: mistake.__name__)
def test_mistake_is_caught_for_the_stated_reason(usable: str, mistake: type[Wrong]) -> None:
    if mistake.kind == "waiting" and Backend(usable).is_emulated:
        pytest.skip("emulated GPU code is not timed")
    ops = cast(Any, mistake(backend(usable)))
    verdict = check_cell(Target(ops, mistake.operation, mistake.route, 2, mistake.dtype))
    assert verdict.state in (State.WRONG, State.ERROR), "not caught"
    assert verdict.reason.startswith(mistake.kind), f"{verdict.where}: {verdict.reason}"


def test_the_wrapper_itself_is_not_what_is_caught(usable: str) -> None:
    class Right(Wrong):
        operation, route = "pool", "direct"

    verdict = check_cell(Target(cast(Any, Right(backend(usable))), "pool", "direct", 2, "float32"))
    assert verdict.state is State.OK
