"""Stored files that say what cannot be: ``describe`` works, ``choose`` keeps its answer."""

from __future__ import annotations

import copy
import json
import os
import random
import warnings
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from effort import cases
from hypothesis import given, settings
from hypothesis import strategies as st
from races import choice, without_time

import demopool as dp
from demopool.choosing import rule
from demopool.choosing.budget import Budget
from demopool.choosing.earlier_samples import EarlierSamples
from demopool.choosing.racing import Race
from demopool.choosing.runners import Runner, Workers
from demopool.common import places
from demopool.problem.candidates import Candidate
from demopool.problem.cases import Case
from demopool.problem.vocabulary import State
from demopool.profiles import file_format, store
from demopool.trials import samples
from demopool.trials.samples import Sample

CASE = Case(batch=2, n=40, d=12)
TIMES = {"numpy:cpu/dense": 3e-4, "numpy:cpu/matrix-free": 4e-4, "numba:cpu/dense": 2.5e-4}
X = np.random.default_rng(0).standard_normal((2, 40, 12)).astype(np.float32)
EXPECTED = dp.describe(X, "democratic", backend="numpy:cpu", route="dense")

DEEP = 100_000
NONSENSE = (
    *(None, True, False, 0, -1, 1, 2**31, 10**400, -(10**400), 0.0, -0.0, 5e-324, 1e308, -1e308),
    *(float("nan"), float("inf"), float("-inf"), "", "x", "auto", "nan", "numpy:cpu", "gone:cpu"),
    *("numba:ptx", "float8", "bfloat16", "power", "matrix-free", "\x1b[31mred", "a" * 10_000),
    *([], {}, [[]], {"": {}}, [None], {"n": 1}),
)


@pytest.fixture(autouse=True)
def _empty_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(places.VARIABLE, str(tmp_path))
    monkeypatch.setattr(file_format, "_warned", set())
    monkeypatch.setattr(samples, "_warned", set())


def _good() -> str:
    """A profile with a bit of everything."""
    late = without_time("torch:cpu/dense", State.TIMEOUT, "gave no answer within 15 s", 15.0)
    dead = without_time("torch:cpu/matrix-free", State.ERROR, "died of signal 11")
    store.remember(choice(CASE, TIMES, "numba:cpu/dense", late, dead))
    sum_ = Case(descriptor="sum", n=9, d=9)
    store.remember(choice(sum_, {"numpy:cpu/direct": 1e-5}, "numpy:cpu/direct"))
    return store.path_here().read_text()


def _paths(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    items = tree.items() if isinstance(tree, dict) else ()
    items = enumerate(tree) if isinstance(tree, list) else items
    for key, value in items:
        yield from _paths(value, (*path, key))


def _mutated(text: str, rng: random.Random) -> bytes:
    """A value replaced, removed or doubled, a key renamed; or the bytes themselves."""
    tree = json.loads(text)
    how = rng.choice(
        ["value", "value", "value", "remove", "rename", "double", "cut", "flip", "deep"]
    )
    if how == "cut":
        return text.encode()[: rng.randrange(len(text))]
    if how == "flip":
        raw = bytearray(text.encode())
        for _ in range(rng.randrange(1, 20)):
            raw[rng.randrange(len(raw))] = rng.randrange(256)
        return bytes(raw)
    for _ in range(rng.randrange(1, 4)):
        *above, key = rng.choice([path for path in _paths(tree) if path])
        parent = tree
        for step in above:
            parent = parent[step]
        if how == "remove":
            del parent[key]
        elif how == "rename" and isinstance(parent, dict):
            parent[rng.choice(["", "x", "case", "torch:cpu"])] = parent.pop(key)
        elif how == "double" and isinstance(parent, list):
            parent.append(copy.deepcopy(parent[key]))
        elif how == "deep":
            parent[key] = "DEEP"
        else:
            parent[key] = copy.deepcopy(rng.choice(NONSENSE))  # what follows may change it
    written = json.dumps(tree)
    brackets = rng.choice(["[]", "{}"])
    nested = "[" * DEEP + "]" * DEEP if brackets == "[]" else '{"a":' * DEEP + "1" + "}" * DEEP
    return written.replace('"DEEP"', nested).encode()


@settings(max_examples=cases(2_000, 100))
@given(rng=st.randoms(use_true_random=False))
def test_no_profile_breaks_describe_explain_or_the_next_answer(
    rng: random.Random, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        patch.setenv(places.VARIABLE, str(tmp_path_factory.mktemp("state")))
        damaged = _mutated(_text(tmp_path_factory), rng)
        path = store.path_here()
        path.parent.mkdir(parents=True)
        path.write_bytes(damaged)
        store.forget()
        y = dp.describe(X, "democratic")
        np.testing.assert_allclose(y, EXPECTED, atol=1e-4)
        for shape in ((2, 40, 12), (1, 100_000, 64), (9, 9)):
            for descriptor in ("democratic", "sum", "power"):
                found = dp.explain(shape, descriptor)
                assert found.sentence.isprintable()
                json.dumps(found.as_result(), allow_nan=False)
        # Another job is measured, and its answer is kept beside what is good of the rest.
        before = store.here().decided
        job = Case(descriptor="power", n=30, d=20)
        told = store.remember(choice(job, {"numpy:cpu/gram": 1e-4}, "numpy:cpu/gram"))
        if "later version" in told:
            assert path.read_bytes() == damaged
            return
        assert told == ""
        assert store.here().record(job) is not None
        assert len(store.here().decided) >= len(before)


_texts: list[str] = []


def _text(factory: pytest.TempPathFactory) -> str:
    """The good profile, made once."""
    if not _texts:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(places.VARIABLE, str(factory.mktemp("good")))
            _texts.append(_good())
    return _texts[0]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '{"schema": 1}',
        '{"schema": -1}',
        "\x00\x01",
        "[" * DEEP + "]" * DEEP,
        "1" + "0" * 5000,
    ],
)
def test_a_damaged_profile_is_set_aside_with_one_sentence(text: str) -> None:
    path = store.path_here()
    path.parent.mkdir(parents=True)
    path.write_text(text)
    with pytest.warns(RuntimeWarning, match=r"is damaged: .*\. It is kept as .*damaged") as told:
        assert store.here() == store.Profile()
    assert len(told) == 1
    assert path.with_name(path.name + ".damaged").read_text() == text
    store.forget()
    assert store.here() == store.Profile()  # and nothing is said again
    assert store.remember(choice(CASE, TIMES, "numba:cpu/dense")) == ""
    assert store.here().record(CASE) is not None


def test_one_bad_answer_does_not_cost_the_others() -> None:
    stored = json.loads(_good())
    stored["decided"][0]["candidates"][1]["seconds"] = float("-inf")
    path = store.path_here()
    path.write_text(json.dumps(stored))
    store.forget()
    with pytest.warns(RuntimeWarning, match=r"1 of its \d+ parts cannot be used"):
        (left,) = store.here().decided
    assert left.case.descriptor == "sum"
    assert "-Infinity" in path.with_name(path.name + ".damaged").read_text()
    assert "Infinity" not in path.read_text()


def test_a_damaged_profile_in_a_folder_that_cannot_be_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = store.path_here()
    path.parent.mkdir(parents=True)
    path.write_text("{")

    def refuse(*arguments: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(file_format.os, "replace", refuse)
    with pytest.warns(RuntimeWarning, match="It is passed over"):
        assert dp.describe(X, "sum").shape == (2, 144)
    assert path.read_text() == "{"


@pytest.mark.parametrize("kind", ["fifo", "folder"])
def test_what_is_not_a_file_is_not_read(kind: str) -> None:
    path = store.path_here()
    path.parent.mkdir(parents=True)
    os.mkfifo(path) if kind == "fifo" else path.mkdir()
    with pytest.warns(RuntimeWarning, match="not a file"):
        assert store.here() == store.Profile()
    with pytest.raises(dp.InvalidInput, match="cannot be read"):
        list(samples.read(path))


# --- samples ---

RUNNERS = {"numpy:cpu/dense": 0.002, "numpy:cpu/matrix-free": 0.005}
IDENTITY = {"fingerprint": "f", "code": "c"}


def _rows() -> list[str]:
    """A race of nine rounds, as it is put back by the next ``choose``."""
    rows = []
    for name, seconds in RUNNERS.items():
        of = dict(zip(("backend", "route"), name.split("/"), strict=True))
        when = [("once", 0), *(("round", number) for number in range(1, 10))]
        for phase, number in [*when, ("confirming", 1), ("confirming", 2)]:
            values = {"lowest_s": seconds, "mean_s": 1.1 * seconds}
            if phase == "once":
                values = {"error": 1e-7, "first_call_s": 0.1, "calls": 3}
            common = {"case": CASE, "phase": phase, "round": number, "session": "s", **IDENTITY}
            for measure, value in values.items():
                sample = Sample(**of, measure=measure, value=value, **common)
                rows.append(json.dumps(asdict(sample)))
    return rows


@settings(max_examples=cases(2_000, 120))
@given(rng=st.randoms(use_true_random=False))
def test_no_samples_cost_a_race_its_resuming(
    rng: random.Random, tmp_path_factory: pytest.TempPathFactory
) -> None:
    rows = [row.encode() for row in _rows()]
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(rows))
        rows[at] = (
            _mutated(rows[at].decode(errors="replace"), rng) if rows[at][:1] == b"{" else b"x"
        )
        if not _is_tree(rows[at]):
            break
    path = tmp_path_factory.mktemp("samples") / "race.jsonl"
    path.write_bytes(b"\n".join(rows) + b"\n")
    field = [Runner(Candidate.parse(name), 1.0, identity=IDENTITY) for name in RUNNERS]
    race = Race(CASE, field, Workers(1), Budget(1.0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        stored = EarlierSamples(path, race)
    race.recall(stored.known())
    race.resume(stored.earlier(field))
    for runner in field:
        assert all(np.isfinite(value) and value >= 0 for value in runner.once.values())
    assert 1 <= race.calls < 2**31
    for made in (*race.rounds, *race.confirming):
        assert all(0 < t < 1e10 for of in (made.lowest, made.mean) for t in of.values())
    standing = rule.standing_of(race.rounds, calls=race.calls, at_most=170)
    assert standing.lead in (None, *RUNNERS)


def _is_tree(row: bytes) -> bool:
    try:
        return isinstance(json.loads(row), dict)
    except (ValueError, RecursionError):
        return False
