"""The paper's claims: one race each, and yes or no only where the interval allows it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("matplotlib")
pytest.importorskip("pandas")

import stored_races
from fake_workers import FakeWorkers

from demopool.choosing import qualifying, racing, rule
from demopool.choosing.budget import Budget
from demopool.choosing.runners import Workers
from demopool.common import places
from demopool.problem.cases import named
from demopool.report import claim_races, claims, data
from demopool.report.claims import CLAIMS, Claim, Side
from demopool.trials import samples

NEWTON, EXACT, SKETCH, POWER_MEMORY, IMPRACTICAL, SKETCHED_POWER = CLAIMS
DEMOCRATIC, POWER = named("vgg-b1"), named("vgg-b1", descriptor="power")


def _newton(ratio: float, **options: Any) -> claims.Judged:
    ours = {"numpy:cpu/dense": 0.010, "numba:cpu/dense": 0.005}
    theirs = {"numpy:cpu/newton": 0.005 * ratio, "torch:cpu/newton": 0.2 * ratio}
    sides = [(DEMOCRATIC, ours), (POWER, theirs)]
    rows = stored_races.claim("newton", sides, fingerprint="f", **options)
    return claims.judged(rows, "f")[0]


def test_yes_and_no_need_the_whole_interval() -> None:
    assert _newton(12).holds is True
    assert _newton(8).holds is False
    undecided = _newton(10)
    assert undecided.holds is None
    assert "cannot be said, the interval holds the limit" in undecided.here
    wide = _newton(12, spread=0.5)
    assert wide.holds is None
    told = _newton(12, spread=0.0).here
    assert told.startswith("12.0x faster (12.0x to 12.0x)")
    assert "democratic numba:cpu/dense against power numpy:cpu/newton, 15 rounds" in told


def test_best_is_compared_with_best() -> None:
    """And a ratio below one is said the other way round."""
    slower = _newton(0.5, spread=0.0)
    assert slower.holds is False
    assert slower.here.startswith("2.0x slower")


def test_few_rounds_say_nothing() -> None:
    few = _newton(300, rounds=5)
    assert few.holds is None
    assert "5 rounds of both sides, 6 are needed" in few.here


def test_the_missing_side_is_named() -> None:
    """The page once said: cannot be said, 6 rounds of both sides, 6 are needed."""
    sides = [(DEMOCRATIC, {"numpy:cpu/dense": 1e-3}), (POWER, {"numpy:cpu/newton": 1.0})]
    rows = [
        s
        for s in stored_races.claim("newton", sides, fingerprint="f", rounds=6)
        if s.round == 0 or s.case == DEMOCRATIC
    ]
    here = claims.judged(rows, "f")[0].here
    assert "0 rounds of both sides, 6 are needed (power by newton in none)" in here


def test_the_best_of_a_side_is_never_set_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of one side are more than 5 times slower than the other, and rounds do not fit."""
    monkeypatch.setattr(racing, "PAUSE", 0.0)
    monkeypatch.setattr(racing.Others, "cores", lambda self: 0.0)
    monkeypatch.setattr(claim_races, "TIMED_BACKENDS", ("numpy:cpu", "numba:cpu"))
    names = ("numpy:cpu/dense", "numpy:cpu/matrix-free", "numba:cpu/dense", "numba:cpu/matrix-free")
    times: dict[str, Any] = dict.fromkeys(names, 0.02)
    times |= {"numpy:cpu/newton": 0.3, "numba:cpu/newton": 2.0}
    workers = FakeWorkers(times)
    found: list[samples.Sample] = []
    race = claim_races.ClaimRace(NEWTON, workers, 5.0, found.append, lambda *_: None)  # type: ignore[arg-type]
    race.budget = Budget(16.0, workers.clock)
    qualifying.qualify(race)
    with suppress(racing.OutOfTime):
        race.take_turns()
    aside = {runner.name for runner in race.runners if runner.aside}
    assert "power numpy:cpu/newton" not in aside
    assert "power numba:cpu/newton" in aside
    assert claims.verify(NEWTON, found).holds is True


def test_a_claim_without_one_side_is_not_raced() -> None:
    workers = FakeWorkers({})
    race = claim_races.ClaimRace(NEWTON, workers, 5.0, lambda s: None, lambda *_: None)  # type: ignore[arg-type]
    for runner in race.sides[0]:
        runner.once["error"] = 0.0
    race._warm_up = dict  # type: ignore[assignment]
    race.take_turns()
    assert not workers.asked


def test_separate_races_never_make_a_claim() -> None:
    """The races of ``choose`` on both descriptors: an answer was made of them once, 305x."""
    rows = [
        *stored_races.race(DEMOCRATIC, {"numpy:cpu/dense": 1e-3}, session="a", fingerprint="f"),
        *stored_races.race(POWER, {"numpy:cpu/newton": 1.0}, session="b", fingerprint="f"),
    ]
    for judged in claims.judged(rows, "f"):
        assert judged.holds is None
        assert "demopool report --claims" in judged.here
    sides = [(DEMOCRATIC, {"numpy:cpu/dense": 1e-3}), (POWER, {"numpy:cpu/newton": 1.0})]
    ours, theirs = (list(stored_races.claim("newton", [side], fingerprint="f")) for side in sides)
    later = [replace(s, session="claim:newton:2") for s in theirs]
    assert claims.judged([*ours, *later], "f")[0].holds is None
    other = [replace(s, fingerprint="g") for s in theirs]
    assert claims.judged([*ours, *other], "f")[0].holds is None
    threads = [replace(s, threads=1) for s in theirs]
    assert claims.judged([*ours, *threads], "f")[0].holds is None


def test_who_was_not_found_right_has_no_say() -> None:
    sides = [(DEMOCRATIC, {"numpy:cpu/dense": 1e-3}), (POWER, {"numpy:cpu/newton": 1.0})]
    rows = [s for s in stored_races.claim("newton", sides, fingerprint="f") if s.measure != "error"]
    assert claims.judged(rows, "f")[0].holds is None


def test_another_machine_is_named_and_this_one_preferred() -> None:
    sides = [(DEMOCRATIC, {"numpy:cpu/dense": 1e-3}), (POWER, {"numpy:cpu/newton": 1.0})]
    rows = list(stored_races.claim("newton", sides, fingerprint="elsewhere"))
    assert claims.judged(rows, "here")[0].here.endswith("[on elsewher]")
    sides[1] = (POWER, {"numpy:cpu/newton": 1e-3})
    mine = stored_races.claim("newton", sides, fingerprint="here")
    assert claims.judged([*mine, *rows], "here")[0].holds is False


def test_memory_is_compared_within_a_session() -> None:
    case = named("resnet-b1")
    sketched = replace(case, descriptor="sketched-democratic")
    sides = [(sketched, {"numpy:cpu/dense+fft": 1e-3}), (case, {"numpy:cpu/dense": 1e-3})]

    def held(by: Callable[[str], float]) -> claims.Judged:
        rows = [
            replace(s, value=by(s.case.descriptor)) if s.measure == "peak_host_bytes" else s
            for s in stored_races.claim("sketch-memory", sides, fingerprint="f")
        ]
        return claims.judged(rows, "f")[2]

    lean = held(lambda descriptor: 5e6 if descriptor.startswith("sketched") else 20e6)
    assert lean.holds is True
    assert "5 MB against 20 MB" in lean.here
    assert "512x less to store" in lean.here
    assert held(lambda descriptor: 5e6).holds is False


def test_the_sketch_of_a_power_exists_if_one_was_right() -> None:
    case = named("resnet-b1", descriptor="sketched-power")
    rows = stored_races.claim(
        "sketched-power", [(case, {"numpy:cpu/gram+fft": 0.01})], fingerprint="f"
    )
    judged = claims.judged(rows, "f")[5]
    assert judged.holds is False
    assert "error 1e-07" in judged.here


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.key)
def test_every_side_has_entrants(claim: Claim) -> None:
    for side in claim.sides:
        entrants = claim_races.entrants(claim, side, ["numpy:cpu"])
        assert entrants
        assert not side.routes or {candidate.route for candidate in entrants} <= set(side.routes)


def test_a_claim_is_raced_between_descriptors(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """For real, in processes, on a small case: stored, judged, and not raced again."""
    monkeypatch.setenv(places.VARIABLE, str(tmp_path))
    small = named("n49-d64"), named("n49-d64", descriptor="power")
    claim = Claim("newton", "faster", Side(small[0]), Side(small[1], ("gram",)), limit=1.03)
    monkeypatch.setattr(claim_races, "TIMED_BACKENDS", ("numpy:cpu",))
    monkeypatch.setattr(claim_races, "ROUNDS", rule.FEWEST)
    monkeypatch.setattr(claim_races, "CLAIMS", (claim,))
    heard = []
    found = claim_races.measure(
        [], budget=20, threads=1, progress=lambda s, what: heard.append(what)
    )
    assert heard
    stored = data.gather(()).claimed
    assert len(stored) == len(found)
    assert {s.case for s in stored} == set(small)
    assert len({s.session for s in stored}) == 1
    judged = claims.verify(claim, stored)
    assert judged.measured
    assert f"{rule.FEWEST} rounds" in judged.here
    assert claim_races.measure(stored, budget=20, threads=1) == []
    other_code = [replace(s, code="older") for s in stored]
    monkeypatch.setattr(claim_races, "race", lambda *_, **__: other_code[:1])
    assert len(claim_races.measure(other_code, budget=20, threads=1)) == 1


def test_memory_is_read_thrice(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(places.VARIABLE, str(tmp_path))
    monkeypatch.setattr(claim_races, "TIMED_BACKENDS", ("numpy:cpu",))
    case = named("n49-d64")
    sketched = replace(case, descriptor="sketched-democratic", k=64)
    claim = replace(SKETCH, ours=Side(sketched), theirs=Side(case))
    with Workers(1) as workers:
        rows = claim_races.race(claim, workers, budget=5)
    assert claims.verify(claim, rows).measured
    kept = list(samples.read(next(tmp_path.rglob("sketch-memory*.jsonl"))))
    assert [s.measure for s in kept].count("peak_host_bytes") == 3 * len(
        {(s.backend, s.route, s.case) for s in kept}
    )
