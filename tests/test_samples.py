"""Sample files: nothing is lost, nothing half-written breaks them."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from demopool import Case, InvalidInput
from demopool.problem.vocabulary import State
from demopool.trials import samples
from demopool.trials.samples import Sample

one = Sample(
    "numpy:cpu", "dense", Case(batch=8), "call_s", 0.0125, phase="round", round=3, threads=2
)
failed = Sample(
    "torch:cuda", "dense", Case(), "call_s", None, State.OUT_OF_MEMORY, "12 GB do not fit 8 GB"
)


@given(
    st.lists(
        st.builds(
            Sample,
            backend=st.sampled_from(["numpy:cpu", "torch:cuda"]),
            route=st.sampled_from(["dense", "gram+moment"]),
            case=st.builds(Case, batch=st.integers(0, 9), n=st.integers(1, 10**5)),
            measure=st.just("call_s"),
            value=st.floats(0, 1e9),
            device_s=st.none() | st.floats(0, 1e9),
            reason=st.text(),
        ),
        max_size=5,
    )
)
def test_what_is_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Sample]
) -> None:
    file = tmp_path_factory.mktemp("samples") / "new" / "samples.jsonl"
    samples.append(file, rows[:2])
    samples.append(file, rows[2:])
    assert list(samples.read(file)) == rows


def test_states_are_kept(tmp_path: Path) -> None:
    file = tmp_path / "samples.jsonl"
    samples.append(file, [one, failed])
    read = list(samples.read(file))
    assert read == [one, failed]
    assert read[1].state is State.OUT_OF_MEMORY
    for line in file.read_text().splitlines():
        assert json.loads(line)["schema"] == samples.SCHEMA


def test_half_a_line_is_passed_over_and_does_not_swallow_the_next(tmp_path: Path) -> None:
    file = tmp_path / "samples.jsonl"
    samples.append(file, [one, one])
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) * 3 // 4])
    samples.append(file, [failed])
    assert list(samples.read(file)) == [one, failed]


@pytest.mark.parametrize(
    ("stored", "phase", "number"), [(0, "once", 0), (3, "round", 3), (-2, "confirming", 2)]
)
def test_the_sign_of_the_round_was_the_phase_in_schema_1(
    tmp_path: Path, stored: int, phase: str, number: int
) -> None:
    file = tmp_path / "samples.jsonl"
    row = {**asdict(one), "schema": 1, "round": stored}
    del row["phase"]
    file.write_text(json.dumps(row) + "\n")
    assert list(samples.read(file)) == [replace(one, phase=phase, round=number)]


def test_rows_of_another_schema_are_passed_over(tmp_path: Path) -> None:
    file = tmp_path / "samples.jsonl"
    samples.append(file, [one])
    row = json.loads(file.read_text())
    with file.open("a") as lines:
        lines.write(json.dumps({**row, "schema": 99}) + "\n")
        lines.write("[1, 2]\n\n")
        lines.write(json.dumps({**row, "case": {"n": -1}}) + "\n")
    with pytest.warns(RuntimeWarning, match="2 of 5 lines are invalid"):
        assert list(samples.read(file)) == [one]
    assert list(samples.read(file)) == [one]  # said once


@pytest.mark.parametrize("value", [float("nan"), float("inf"), None])
def test_ok_needs_a_number(value: float | None) -> None:
    with pytest.raises(InvalidInput, match="value must be a finite number"):
        Sample("numpy:cpu", "dense", Case(), "call_s", value)


def test_another_state_needs_a_reason_and_no_number() -> None:
    with pytest.raises(InvalidInput, match="reason must be given"):
        Sample("numpy:cpu", "dense", Case(), "call_s", None, State.TIMEOUT)
    with pytest.raises(InvalidInput, match="value must be"):
        Sample("numpy:cpu", "dense", Case(), "call_s", 1.0, State.TIMEOUT, "too slow")


def test_what_is_measured_once_is_in_no_round() -> None:
    for phase, number in (("once", 1), ("round", 0), ("confirming", 0)):
        with pytest.raises(InvalidInput, match="round must be 0"):
            replace(one, phase=phase, round=number)


def test_files_that_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="cannot be read"):
        list(samples.read(tmp_path / "absent.jsonl"))
    with pytest.raises(InvalidInput, match="cannot be written"):
        samples.append(tmp_path, [one])


def test_times_of_who_was_wrong_later_are_no_times(tmp_path: Path) -> None:
    rows = [
        Sample("numpy:cpu", route, Case(), "call_s", 1.0, session=session)
        for session in ("a", "b")
        for route in ("dense", "matrix-free")
    ]
    wrong = Sample("numpy:cpu", "dense", Case(), "call_s", None, State.WRONG, "why", session="b")
    samples.append(tmp_path / "s.jsonl", [*rows, wrong])
    kept = [(r.session, r.route, r.value) for r in samples.read(tmp_path / "s.jsonl")]
    assert kept == [
        ("a", "dense", 1.0),
        ("a", "matrix-free", 1.0),
        ("b", "matrix-free", 1.0),
        ("b", "dense", None),
    ]
