"""Whatever is in the files, ``report`` ends with a page or a sentence: never a traceback, never a
page that obeys what it shows."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from effort import cases

pytest.importorskip("matplotlib")
pytest.importorskip("pandas")

import stored_races
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from demopool.common import files, places
from demopool.errors import DemopoolError
from demopool.problem.cases import named
from demopool.profiles import store
from demopool.report import data, figures, page
from demopool.report.building import build
from demopool.report.claims import judged
from demopool.trials import samples

UNHURRIED = [HealthCheck.too_slow, HealthCheck.data_too_large]
NASTY = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([0, -1, 10**400, 1e308, -1e308, 5e-324, float("nan"), float("inf"), 2**63]),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(
        [
            "$\\frac{1}{$",
            "\x1b[31mred\x1b[0m",
            "<script>alert(1)</script>",
            "\x00",
            "../../etc/passwd",
            "numpy:cpu/dense",
            "power",
            "claim:newton:1",
            "9999-99-99T99:99:99",
            "日本語",
            "[" * 2000,
        ]
    ),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)


@contextmanager
def somewhere() -> Iterator[Path]:
    """A cache of its own, and the current folder beside it."""
    folder = Path(tempfile.mkdtemp())
    before = Path.cwd()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(places.VARIABLE, str(folder / "cache"))
        try:
            os.chdir(folder)
            store.forget()
            yield folder
        finally:
            os.chdir(before)
            shutil.rmtree(folder)


def _rows() -> list[str]:
    """A short race and a short claim, as lines."""
    case = named("n49-d64")
    times = {"numpy:cpu/dense": 1e-3, "numba:cpu/dense": 2e-3}
    found = list(stored_races.race(case, times, session="a", fingerprint="f", rounds=3))
    sides = [(case, times), (named("n49-d64", descriptor="power"), {"numpy:cpu/newton": 1e-2})]
    found += stored_races.claim("newton", sides, fingerprint="f", rounds=6)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.jsonl"
        samples.append(path, found)
        return path.read_text().splitlines()


ROWS = _rows()


@st.composite
def broken_samples(draw: st.DrawFn) -> str:
    """Lines with a field, of the sample or of its case, replaced; or cut, doubled, or left out."""
    lines = list(ROWS)
    for _ in range(draw(st.integers(1, 6))):
        number = draw(st.integers(0, len(lines) - 1))
        how = draw(st.sampled_from(["field", "field", "field", "all", "case", "cut", "drop"]))
        if how in ("field", "case", "all"):
            try:
                row = json.loads(lines[number])
            except (ValueError, RecursionError):
                continue
            if not isinstance(row, dict):
                continue
            target = row["case"] if how == "case" and isinstance(row.get("case"), dict) else row
            if not target:
                continue
            name, value = draw(st.sampled_from(sorted(target))), draw(NASTY)
            target[name] = value
            lines[number] = json.dumps(row)
            if how == "all":  # the same everywhere: a whole file of another kind
                for other, line in enumerate(lines):
                    try:
                        again = json.loads(line)
                        again[name] = value
                        lines[other] = json.dumps(again)
                    except (ValueError, TypeError, RecursionError):
                        continue
        elif how == "cut":
            lines[number] = lines[number][: draw(st.integers(0, len(lines[number])))]
        else:
            del lines[number]
    return "\n".join(lines)


@settings(max_examples=cases(1_500, 60), suppress_health_check=UNHURRIED)
@given(broken_samples())
def test_broken_samples_end_in_a_page(text: str) -> None:
    with somewhere() as folder:
        path = folder / "cache" / "samples" / "x.jsonl"
        path.parent.mkdir(parents=True)
        path.write_text(text, encoding="utf-8", errors="replace")
        found = data.gather(())
        shown = page.render(
            found,
            store.here(),
            "f",
            judged(found.claimed, "f"),
            [(job, "", ()) for job in found.jobs],
            (),
        )
        _is_harmless(shown)
        for note in found.notes:
            assert note.isprintable()


def _is_harmless(shown: str) -> None:
    assert shown.count("<script") == 1
    assert "\x1b" not in shown
    assert "\x00" not in shown


def _asv() -> dict[str, Any]:
    """A result file of asv with two candidates on a case."""
    columns = ["result", "params", "version", "started_at", "duration", "stats_ci_99_a"]
    return {
        "version": 2,
        "commit_hash": "a" * 40,
        "env_name": "virtualenv",
        "date": 1700000000000,
        "params": {"machine": "m", "num_cpu": "2"},
        "python": "3.11",
        "requirements": {},
        "env_vars": {"OPENBLAS_NUM_THREADS": "1"},
        "result_columns": [*columns, "stats_ci_99_b"],
        "results": {
            f"descriptors.Democratic.{name}": [
                [0.1, 0.2],
                [["'numpy:cpu/dense'", "'numba:cpu/dense'"], ["'n49-d64'"]],
                "1",
                1700000000000,
                1.0,
                [0.09, 0.19],
                [0.11, 0.21],
            ]
            for name in ("time_call", "peak_host_bytes", "track_error")
        },
        "durations": {},
    }


@st.composite
def broken_asv(draw: st.DrawFn) -> list[Any]:
    """Two commits; somewhere in them another value stands."""
    files = [_asv(), {**_asv(), "commit_hash": "b" * 40, "date": 1700000100000}]
    for _ in range(draw(st.integers(1, 4))):
        place: Any = files[draw(st.integers(0, 1))]
        while True:
            keys = list(place) if isinstance(place, dict) else list(range(len(place)))
            if not keys:
                break
            key = draw(st.sampled_from(keys))
            if isinstance(place[key], dict | list) and place[key] and draw(st.booleans()):
                place = place[key]
                continue
            place[key] = draw(NASTY)
            break
    return files


@settings(max_examples=cases(400, 12), suppress_health_check=UNHURRIED)
@given(broken_asv())
def test_broken_results_of_asv_end_in_a_page_or_a_sentence(files: list[Any]) -> None:
    with somewhere() as folder:
        for name, content in zip("ab", files, strict=True):
            path = folder / "results" / "m" / f"{name * 8}-env.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(content), encoding="utf-8", errors="replace")
        notes = []
        with suppress(DemopoolError):  # a sentence
            built = build(folder / "out", (folder / "results",), limits=False)
            _is_harmless(built.files[0].read_text())
            notes = built.notes
        assert all(note.isprintable() for note in notes)


@pytest.mark.parametrize("name", ["$\\frac{1}{$", "a$b$", "<b>", "\x1b[31m", "日本", "\u202e"])
def test_names_are_drawn_as_they_are(name: str) -> None:
    """TeX, HTML and escapes in asv's machine name, and in a benchmark's parameters."""
    with somewhere() as folder:
        for number in range(2):
            content = _asv()
            content["params"]["machine"] = name
            content["commit_hash"] = f"{number}" * 40
            content["date"] += number
            for values in content["results"].values():
                values[1] = [[repr(name), "'numpy:cpu/dense'"], [repr(name)]]
            path = folder / "results" / "m" / f"{str(number) * 8}-env.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(content))
        found = data.gather((folder / "results",))
        assert found.frame is not None
        drawn = list(figures.all_of(found))
        assert any(figure.name == "history" for figure in drawn)
        for figure in drawn:
            assert figure.png().startswith(b"\x89PNG")
            assert "<b>" not in figure.svg()


def test_only_regular_files_of_a_sane_size_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with somewhere() as folder:
        kept = folder / "cache" / "samples"
        kept.mkdir(parents=True)
        outside = folder / "outside.jsonl"
        outside.write_text("\n".join(ROWS))
        (kept / "good.jsonl").write_text("\n".join(ROWS))
        os.mkfifo(kept / "pipe.jsonl")
        (kept / "link.jsonl").symlink_to(outside)
        (kept / "folder.jsonl").mkdir()
        assert len(data.gather(()).jobs) == 1
        assert set(data.gather(()).frame["file"]) == {str(kept / "good.jsonl")}
        monkeypatch.setattr(files, "LARGEST", 1000)
        found = data.gather(())
        assert found.jobs == []
        assert any("more than" in note for note in found.notes)


def test_a_line_that_is_nested_too_deep_costs_one_file_at_most() -> None:
    with somewhere() as folder:
        kept = folder / "cache" / "samples"
        kept.mkdir(parents=True)
        (kept / "bad.jsonl").write_text("[" * 100_000 + "\n" + ROWS[0])
        (kept / "good.jsonl").write_text("\n".join(ROWS))
        assert len(data.gather(()).jobs) == 1
