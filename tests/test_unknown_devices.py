"""Devices without a cost model: nothing is predicted of them before they are measured."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from races import choice

import demopool as dp
from demopool.choosing.racing import Race
from demopool.choosing.rule import Round
from demopool.choosing.runners import Runner
from demopool.contract import Probe, registry
from demopool.contract.registry import Entry
from demopool.implementations.numpy_cpu import SPECIFICATION
from demopool.problem.candidates import Candidate, Subject
from demopool.problem.cases import Case
from demopool.profiles import costs, eligibility, estimates, store
from demopool.profiles.eligibility import CallLimits

pytestmark = pytest.mark.usefixtures("empty_profile")

NPU = "strange:npu"


@pytest.fixture(autouse=True)
def plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    """A backend on a device of another kind."""
    found = replace(
        SPECIFICATION,
        library="strange",
        devices=("npu",),
        probe=lambda device: Probe("ok", device="an NPU"),
        recognise=lambda array: None,
    )
    entries = {**registry._entries(), NPU: Entry(found)}
    monkeypatch.setattr(registry, "_entries", lambda: entries)


@pytest.mark.parametrize(("n", "d", "route"), [(3000, 16, "matrix-free"), (20, 500, "dense")])
def test_an_array_on_it_takes_the_route_with_the_least_arithmetic(
    n: int, d: int, route: str
) -> None:
    found = dp.explain((1, n, d), home=NPU)
    assert found.route == route
    assert found.sentence.startswith(f"{NPU}/{route}: not measured yet, and there is no cost model")
    assert {(o.predicted_s, o.needed_bytes) for o in found.options} == {(None, None)}


def test_auto_leaves_it_out_until_it_was_measured() -> None:
    assert {option.backend for option in dp.explain((2, 40, 12)).options} == {"numpy:cpu"}
    case = Case(batch=2, n=40, d=12)
    store.remember(choice(case, {f"{NPU}/dense": 5e-6, "numpy:cpu/dense": 3e-4}, f"{NPU}/dense"))
    assert dp.explain((2, 40, 12)).backend == NPU
    near = {o.candidate: o for o in dp.explain((2, 50, 12)).options}
    predicted = near[Candidate(NPU, "dense")].predicted_s
    assert predicted is not None
    assert 4e-6 < predicted < 2e-5  # on the level of what was measured, not of the host
    of_host = estimates.modelled(Candidate("numpy:cpu", "dense"), case, store.here())
    assert predicted < of_host / 5
    other = {o.candidate: o for o in dp.explain((2, 40, 12), dtype="float64").options}
    assert other[Candidate(NPU, "dense")].reason.startswith("not measured yet in this dtype")


def test_no_prediction_keeps_it_out_of_a_race_or_puts_it_behind() -> None:
    subject, candidate = Subject("descriptor", "democratic"), Candidate(NPU, "dense")
    large, little = Case(batch=64, n=5000, d=512), CallLimits(seconds=1e-9, bytes=10.0)
    assert eligibility.limits_here(NPU).bytes is None
    assert eligibility.ineligible(subject, candidate, large, little) is None
    assert eligibility.ineligible(subject, Candidate("numpy:cpu", "dense"), large, little)
    assert costs.is_modelled("other:cpu")
    assert not costs.is_modelled(NPU)
    best = Candidate("numpy:cpu", "dense")
    race: Any = object.__new__(Race)
    race.runners = [Runner(best, 1e-3), Runner(candidate, 1.0)]
    rounds = [Round({str(best): 1e-3}, {str(best): 1e-3}, 0.0)] * 30
    for runner in (Runner(Candidate("torch:cpu", "dense"), 1.0), race.runners[1]):
        assert race.is_far(runner, 10.0, str(best), rounds) == (runner.candidate != candidate)
