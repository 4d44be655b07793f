"""Counts of instructions: callgrind's files are read right, and a count is of the call alone."""

from __future__ import annotations

import shutil
from typing import Any

import pytest
from click.testing import CliRunner
from counted_work import ends, loops

from benchmarks import counts as benchmark
from demopool.errors import InvalidInput
from demopool.measurement import counting
from demopool.measurement.counting import Counts
from demopool.measurement.worker import Answer
from demopool.problem.candidates import Candidate
from demopool.problem.vocabulary import DESCRIPTORS, State
from tools import counts as tool

FILE = """\
# callgrind format
version: 1
creator: callgrind-3.19.0
pid: 4242
cmd:  python -P counted.py
part: 4

desc: I1 cache: 32768 B, 64 B, 8-way associative
desc: Trigger: Client Request
positions: line
events: Ir Dr Dw I1mr D1mr D1mw ILmr DLmr DLmw
summary: 1000 400 200 7 30 12

ob=(1) /lib/libpython.so
fl=(1) ceval.c
fn=(1) _PyEval_EvalFrameDefault
0 600 250 150 7 20 10
fn=(2) events: a name that is not a header
0 400 150 50 0 10 2

totals: 1000 400 200 7 30 12
"""


def test_callgrinds_file_is_read_and_zeros_at_its_end_are_there() -> None:
    assert counting.totals(FILE) == {
        "Ir": 1000,
        "Dr": 400,
        "Dw": 200,
        "I1mr": 7,
        "D1mr": 30,
        "D1mw": 12,
        "ILmr": 0,
        "DLmr": 0,
        "DLmw": 0,
    }


@pytest.mark.parametrize("text", ["", "events: Ir\n", "events: Ir\ntotals: many\n", "totals: 1\n"])
def test_what_is_no_output_of_callgrind_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="no output of callgrind"):
        counting.totals(text)


def test_a_count_is_the_median_of_the_calls_without_the_cost_of_a_mark(tmp_path: Any) -> None:
    parts = {1: 10**9, 2: 100, 3: 10**8, 4: 1100, 5: 10**8, 6: 9000, 7: 10**8, 8: 1200}
    for number, instructions in parts.items():
        text = f"events: Ir\ntotals: {instructions}\n"
        (tmp_path / f"counts.7.{number}").write_text(text)
    assert counting._read(tmp_path, 7, calls=3) == Counts(1100)
    assert list(tmp_path.iterdir()) == []


# --- under valgrind ---

needs_valgrind = pytest.mark.skipif(
    counting.refusal() is not None, reason=f"nothing can be counted: {counting.refusal()}"
)


@needs_valgrind
def test_equal_work_has_equal_counts_and_one_percent_more_is_seen() -> None:
    rounds = [(10_000,), (10_000,), (20_000,), (10_100,), (0,)]
    answers = list(counting.count_each(loops, rounds))
    assert [answer.state for answer in answers] == [State.OK] * len(rounds), answers
    one, same, double, more, none = (answer.value.instructions for answer in answers)
    assert same == pytest.approx(one, rel=0.001)
    assert double == pytest.approx(2 * one, rel=0.01)
    assert 1.008 < more / one < 1.012
    # The call that is not counted would be a quarter of the first; its own cost is next to nothing.
    assert 0 < none < one / 500
    again = counting.count(loops, 10_000, caches=True).value
    assert again.instructions == pytest.approx(one, rel=0.001)
    assert again.d1_misses is not None
    assert again.last_level_misses is not None
    assert again.last_level_misses <= again.d1_misses < one / 100  # a loop over nothing


@needs_valgrind
def test_what_fails_has_its_reason_and_the_next_is_counted() -> None:
    jobs = [("raises",), ("dies",), ("hangs",)]
    raised, died, hung = counting.count_each(ends, jobs, seconds=4.0)
    assert (raised.state, raised.reason) == (
        State.ERROR,
        "it raised ArithmeticError: not today",
    )
    assert (died.state, died.reason) == (State.ERROR, "its process died of signal 6")
    assert (hung.state, hung.reason) == (State.TIMEOUT, "not counted in 4 s")
    lost = counting.count(loops, 1, before=(ends, ()))
    assert lost.state is State.ERROR
    assert "missing 1 required positional argument" in lost.reason


@needs_valgrind
def test_a_descriptor_is_counted_by_asvs_benchmark() -> None:
    made = benchmark.Sum()
    made.setup("numpy:cpu/direct", benchmark.CASE)
    instructions = made.track_instructions("numpy:cpu/direct", benchmark.CASE)
    n, d = 49, 64
    # One triangle of the product, eight multiplications at a time.
    assert instructions > n * d * d / 2 / 8


# --- without valgrind ---


@pytest.fixture
def no_valgrind(monkeypatch: pytest.MonkeyPatch) -> Any:
    counting.refusal.cache_clear()
    benchmark.counting.refusal.cache_clear()
    found = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name: None if name == "valgrind" else found(name))
    yield
    monkeypatch.undo()
    counting.refusal.cache_clear()
    benchmark.counting.refusal.cache_clear()


@pytest.mark.usefixtures("no_valgrind")
def test_without_valgrind_one_sentence_says_what_to_install() -> None:
    done = CliRunner().invoke(tool.main, [])
    assert done.exit_code == 1
    assert done.output == (
        "Error: nothing can be counted: valgrind is not installed; install it with: "
        "apt-get install valgrind\n"
    )
    made = benchmark.Sum()
    made.setup("numpy:cpu/direct", benchmark.CASE)
    with pytest.raises(NotImplementedError, match="apt-get install valgrind"):
        made.track_instructions("numpy:cpu/direct", benchmark.CASE)


def test_asv_has_a_class_for_every_descriptor_and_no_gpu() -> None:
    classes = [
        found
        for name, found in vars(benchmark).items()
        if isinstance(found, type) and not name.startswith("_") and hasattr(found, "subject")
    ]
    assert {made.subject.name for made in classes} == set(DESCRIPTORS)
    for made in classes:
        names, cases = made.track_instructions.params
        assert names[0] == "baseline/plain"
        assert {Candidate.parse(name).backend for name in names[1:]} == {
            "numpy:cpu",
            "numba:cpu",
            "torch:cpu",
        }
        assert cases == (benchmark.CASE,)
        assert made.track_instructions.unit == "instructions"


# --- the table ---


def test_the_table_has_every_count_and_every_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def count_each(make: Any, jobs: Any, **_: Any) -> Any:
        for _, candidate, _ in jobs:
            if candidate == "numpy:cpu/matrix-free":
                yield Answer(State.ERROR, None, "its process died of signal 4")
            else:
                yield Answer(State.OK, Counts(2_000_000 if "base" in candidate else 500_000, 7, 3))

    monkeypatch.setattr(counting, "refusal", lambda: None)
    monkeypatch.setattr(counting, "count_each", count_each)
    wanted = ["--descriptor", "democratic", "--backend", "numpy:cpu", "--backend", "baseline"]
    done = CliRunner().invoke(tool.main, wanted)
    assert done.exit_code == 1  # something that can run here was not counted
    rows = [line.split() for line in done.output.splitlines()]
    dense = ["numpy:cpu/dense", "500,000", "0.25", "7", "3"]
    base = ["baseline/plain", "2,000,000", "1", "7", "3"]
    assert rows.index(dense) < rows.index(base)
    reason = "democratic numpy:cpu/matrix-free: its process died of signal 4."
    assert f"Not counted: {reason}" in done.output
    assert "Not seen: memory bandwidth, threads" in " ".join(done.output.split())


def test_what_cannot_run_here_is_named_and_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """newton inverts A, which is singular where n < d."""
    one = Answer(State.OK, Counts(1000, 1, 1))
    monkeypatch.setattr(counting, "refusal", lambda: None)
    monkeypatch.setattr(counting, "count_each", lambda make, jobs, **_: (one for _ in jobs))
    done = CliRunner().invoke(tool.main, ["--descriptor", "power", "--backend", "numpy:cpu"])
    assert done.exit_code == 0
    assert "Not counted: power numpy:cpu/newton: it inverts A" in done.output


def test_what_was_counted_before_an_interruption_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    def count_each(make: Any, jobs: Any, **_: Any) -> Any:
        yield Answer(State.OK, Counts(123_456, 1, 1))
        raise KeyboardInterrupt

    monkeypatch.setattr(counting, "refusal", lambda: None)
    monkeypatch.setattr(counting, "count_each", count_each)
    done = CliRunner().invoke(tool.main, ["--descriptor", "democratic", "--backend", "numpy:cpu"])
    assert done.exit_code == 130
    assert "123,456" in done.output
    assert "Interrupted: 1 of 2 candidates." in done.output
