"""The table of measures: what every line must have to be shown wherever measures are shown."""

from __future__ import annotations

from dataclasses import fields

import pytest

from demopool.choosing.answer_types import Ranked
from demopool.choosing.printing import table
from demopool.problem.vocabulary import State, Verdict
from demopool.trials.measures import MEASURES, ONCE, UNITS, quantity


def test_what_is_asked_of_a_job_can_be_shown_and_stored() -> None:
    headings = [measure.heading for measure in MEASURES.values() if measure.heading]
    assert len(set(headings)) == len(headings)
    for name, measure in ONCE.items():
        assert measure.heading
        assert measure.meaning
        assert measure.words
        assert measure.unit in UNITS.values()
        assert name in {field.name for field in fields(Ranked)}, "choosing/answer_types.py needs it"


def test_choose_prints_every_measure_that_has_a_value() -> None:
    values = dict.fromkeys(ONCE, 1.0)
    row = Ranked("torch:cuda", "dense", State.OK, Verdict.FASTEST, median_s=1.0, ratio=1.0)
    heading, *_ = table(
        [row, Ranked(*row.candidate, State.OK, **values)], 300, sizes_of_devices=True
    )
    assert all(measure.heading in heading for measure in ONCE.values())


@pytest.mark.parametrize(
    ("name", "unit", "expected"),
    [
        ("call_s", None, "time"),
        ("peak_host_bytes", None, "memory"),
        ("error", None, "error"),
        ("others_cores", None, "other"),
        ("track_of_another_project", "seconds", "time"),
        ("its_size", "bytes", "memory"),
        ("its_error", None, "error"),
        ("its_count", None, "other"),
    ],
)
def test_the_quantity_of_a_measure(name: str, unit: str | None, expected: str) -> None:
    assert quantity(name, unit) == expected
