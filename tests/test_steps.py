"""What a step and a regression is, and the laws they obey."""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from demopool.errors import DemopoolError
from demopool.results import history
from demopool.results.history import Point, Regression, Series, changes

pytest.importorskip("pandas")
pytest.importorskip("asv")

from asv_project import NUMPY

# --- what a step is ---

COMMITS = [f"{number:040x}" for number in range(200)]


def line(values: Sequence[float | None], measure: str = "call_s", **changes: Any) -> Series:
    prefix, unit = {
        "call_s": ("time", "seconds"),
        "peak_host_bytes": ("track", "bytes"),
        "error": ("track", "relative error"),
        "instructions": ("track", "instructions"),
        "d1_misses": ("track", "misses"),
    }.get(measure, ("track", "seconds"))
    given = {
        "machine": "alpha",
        "environment": "here",
        "threads": 1,
        "benchmark": f"descriptors.Sum.{prefix}_{measure.removesuffix('_s')}",
        "kind": "descriptor",
        "subject": "sum",
        "measure": measure,
        "unit": unit,
        "candidate": NUMPY,
        "case": "vgg-b1",
        "parameters": None,
    }
    points = tuple(
        Point(commit, None, value, "ok" if value is not None else "skipped")
        for commit, value in zip(COMMITS, values, strict=False)
    )
    return Series(**{**given, "points": points, **changes})


def found(one: Series, **thresholds: float) -> list[tuple[int, int, str, int | None]]:
    """Where each regression appeared, the last good, its state and where it was fixed."""
    place = {commit: number for number, commit in enumerate(COMMITS)}
    return sorted(
        (
            place[r.commit],
            place[r.last_good],
            r.state,
            place[r.fixed_by] if r.fixed_by else None,
        )
        for r in history.regressions([one], **thresholds)
    )


def test_open_fixed_and_partly_fixed() -> None:
    assert found(line([1.0] * 5 + [2.0] * 5)) == [(5, 4, "open", None)]
    assert found(line([1.0] * 5 + [2.0] * 5 + [1.0] * 3)) == [(5, 4, "fixed", 10)]
    assert found(line([1.0] * 5 + [2.0] * 5 + [1.5] * 5)) == [(5, 4, "open", None)]
    assert found(line([1.0] * 5 + [2.0] * 5 + [4.0] * 5 + [1.0] * 5)) == [
        (5, 4, "fixed", 15),
        (10, 9, "fixed", 15),
    ]
    assert found(line([2.0] * 5 + [1.0] * 5)) == []


def test_an_improvement_that_is_lost_again_is_a_regression() -> None:
    assert found(line([2.0] * 5 + [1.0] * 5 + [2.0] * 5)) == [(10, 9, "open", None)]


def test_many_small_steps_are_one_large() -> None:
    values = [1.0] * 8 + [1.06] * 8 + [1.12] * 8 + [1.19] * 8
    (one,) = history.regressions([line(values)])
    assert (one.commit, one.before, one.after) == (COMMITS[16], 1.0, 1.12)


def test_the_last_good_commit_is_a_measured_one() -> None:
    assert found(line([1.0, 1.0, 1.0, None, None, 2.0, 2.0])) == [(5, 2, "open", None)]


@pytest.mark.parametrize(
    ("measure", "before", "after", "counts"),
    [
        ("call_s", 1.0, 1.08, False),
        ("call_s", 1.0, 1.12, True),
        ("call_s", 20e-6, 60e-6, False),
        ("call_s", 200e-6, 260e-6, True),
        ("peak_host_bytes", 2e6, 2.9e6, False),
        ("peak_host_bytes", 2e6, 3.1e6, True),
        ("peak_host_bytes", 0.0, 3e6, True),
        ("instructions", 1e6, 1.004e6, False),
        ("instructions", 1e6, 1.006e6, True),
        ("d1_misses", 1e4, 1.05e4, False),
        ("d1_misses", 1e4, 1.2e4, True),
        ("error", 1e-7, 2e-7, False),
        ("error", 1e-7, 1e-6, True),
        ("error", 1e-16, 1e-14, False),
    ],
)
def test_ratio_and_absolute_change_must_both_be_large(
    measure: str, before: float, after: float, counts: bool
) -> None:
    assert bool(found(line([before] * 10 + [after] * 10, measure))) is counts


def test_a_regression_from_zero_has_no_ratio() -> None:
    (one,) = history.regressions([line([0.0] * 5 + [5e6] * 5, "peak_host_bytes")])
    assert one.ratio is None


def test_short_histories_of_times_claim_only_what_is_large() -> None:
    assert found(line([1.0])) == []
    assert found(line([1.0, 1.3])) == []
    assert found(line([1.0, 1.5])) == [(1, 0, "open", None)]
    assert found(line([1.0, 1.0, 1.15, 1.15])) == []
    assert found(line([1.0, 1.0, 1.3, 1.3])) == [(2, 1, "open", None)]
    assert found(line([1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 1.0, 1.0])) == [(3, 2, "fixed", 6)]
    # What repeats exactly needs no long history; a first call needs more than a quartile does.
    assert found(line([10e6, 12e6], "peak_host_bytes")) == [(1, 0, "open", None)]
    assert found(line([1.0, 1.0, 1.5], "first_call_s")) == []


def test_noise_is_no_regression() -> None:
    """By the table in the module about 1 in 1000."""
    noise = random.Random(0)
    false = sum(
        bool(found(line([1.0 + noise.gauss(0.0, 0.04) for _ in range(length)])))
        for length in (2, 3, 4, 5, 6, 7, 8, 10, 15, 25)
        for _ in range(60)
    )
    assert false <= 3


def test_what_comes_and_goes_is_found_in_noise() -> None:
    """asv's own choice of the price of a step misses many of these."""
    noise = random.Random(0)
    for _ in range(40):
        values = [
            level * (1.0 + noise.gauss(0.0, 0.04)) for level in [1.0] * 9 + [2.0] * 8 + [1.0] * 9
        ]
        assert (9, 8, "fixed", 17) in found(line(values))


def test_a_baseline_shows_the_machine() -> None:
    slower = [1.0] * 10 + [2.0] * 10
    baseline = line(slower, candidate="baseline/plain")
    elsewhere = line([1.0] * 20, candidate="baseline/plain", machine="beta")
    (one,) = history.regressions([line(slower), baseline, elsewhere])
    assert (one.series.candidate, one.baseline_ratio, one.state) == (NUMPY, 2.0, "machine")
    (one,) = history.regressions([line(slower), elsewhere])
    assert (one.baseline_ratio, one.state) == (None, "open")
    worse = line([1.0] * 10 + [4.0] * 10)
    (one,) = history.regressions([worse, baseline])
    assert (one.baseline_ratio, one.state) == (2.0, "open")  # twice as slow as the machine explains


def test_a_change_of_software_is_told() -> None:
    points = tuple(
        Point(commit, None, value, fingerprint=key)
        for commit, value, key in zip(COMMITS, [1.0, 1.0, 2.0, 2.0], "aabb", strict=False)
    )
    (one,) = history.regressions([line([], points=points)])
    assert one.software_changed


def test_without_asv_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "asv.step_detect", None)
    with pytest.raises(DemopoolError, match=r"pip install '\.\[bench\]'"):
        history.regressions([line([1.0, 2.0])])


# --- laws ---

values = st.lists(
    st.one_of(st.none(), st.floats(1e-3, 1e3), st.sampled_from([1.0, 2.0, 4.0])), max_size=30
)


def _facts(r: Regression, scale: float = 1.0) -> tuple[Any, ...]:
    levels = (r.before * scale, r.after * scale, r.now * scale)
    return (r.commit, r.last_good, r.state, r.fixed_by, r.ratio, *levels)


@given(values, st.integers(-30, 30))
def test_the_unit_does_not_matter(given_values: list[float | None], power: int) -> None:
    """Without absolute thresholds; by powers of two, which round nothing."""
    scale = 2.0**power
    zero = {"seconds": 0.0, "bytes": 0.0, "error": 0.0}
    plain = history.regressions([line(given_values)], **zero)
    scaled = line([None if value is None else value * scale for value in given_values])
    assert [_facts(r) for r in history.regressions([scaled], **zero)] == [
        _facts(r, scale) for r in plain
    ]


@given(values, st.integers(0, 30))
def test_a_gap_changes_nothing(given_values: list[float | None], place: int) -> None:
    """A commit that was not measured is as if it were not there."""
    place = min(place, len(given_values))
    without = line(given_values)
    gap = Point("f" * 40, None, None, "skipped")
    points = (*without.points[:place], gap, *without.points[place:])
    with_gap = line([], points=points)
    assert [_facts(r) for r in history.regressions([with_gap])] == [
        _facts(r) for r in history.regressions([without])
    ]


@given(values)
def test_what_is_reported_is_consistent(given_values: list[float | None]) -> None:
    one = line(given_values)
    place = {commit: number for number, commit in enumerate(COMMITS)}
    for r in history.regressions([one]):
        assert r.after >= changes.RATIO * r.before
        assert r.after - r.before >= changes.SECONDS
        assert place[r.last_good] < place[r.commit]
        assert (r.state == "fixed") == (r.fixed_by is not None)
        assert r.fixed_by is None or place[r.commit] < place[r.fixed_by]
        assert r.measured >= 1


@given(st.floats(1e-6, 1e6), st.integers(0, 40))
def test_a_constant_has_no_step(value: float, length: int) -> None:
    assert history.steps(line([value] * length)) == []


@given(st.permutations(range(6)))
def test_regressions_do_not_depend_on_the_order_of_series(order: list[int]) -> None:
    lines = [line([1.0] * 8 + [1.5 + n] * (n + 2), case=f"case-{n}") for n in range(6)]
    shuffled = [lines[number] for number in order]
    assert history.regressions(shuffled) == history.regressions(lines)


def test_a_newest_value_that_stands_out_is_suspected() -> None:
    values = [1.0, 1.02, 0.98, 1.01, 0.99, 1.0, 1.02, 0.98, 1.01, 1.0]
    (one,) = history.regressions([line([*values, 1.15])])
    assert (one.state, one.commit, one.last_good) == ("suspect", COMMITS[10], COMMITS[9])
    assert history.regressions([line([*values, 1.04])]) == []
    (one,) = history.regressions([line([*values, 1.15, 1.15, 1.15])])
    assert one.state == "open"


# --- hints ---


def test_a_small_step_is_a_hint_to_measure_again() -> None:
    """+11 % in a noise of 2 %, as measured beside ten busy processes: clear to the eye."""
    before, after = [0.821, 0.843, 0.802, 0.786], [0.931, 0.894, 0.942, 0.894, 0.895, 0.89]
    for values, fixed in (([*before, *after], None), ([*before, *after, *before], 10)):
        one = line(values)
        assert history.regressions([one], ratio=1.05) == []
        (hint,) = history.hints([one], [], ratio=1.05)
        assert (hint.series, hint.state, hint.commit) == (one, "suspect", one.points[4].commit)
        assert hint.fixed_by == (one.points[fixed].commit if fixed else None)
    assert history.hints([line(before * 4)], [], ratio=1.05) == []


def test_there_is_no_hint_of_what_is_told() -> None:
    one = line([0.01] * 8 + [0.02] * 4)
    found = history.regressions([one])
    assert [r.state for r in found] == ["open"]
    assert history.hints([one], found) == []
    assert history.hints([one], []) != []
