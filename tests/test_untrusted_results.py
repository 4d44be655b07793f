"""A stranger's folder of results: nothing of it runs, hangs, escapes or ends in a traceback."""

from __future__ import annotations

import copy
import io
import json
import math
import os
import subprocess
import sys
from contextlib import redirect_stdout, suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from effort import cases
from hypothesis import given, settings
from hypothesis import strategies as st

from demopool import results
from demopool.commands import cli
from demopool.commands.output import printable
from demopool.common import files
from demopool.errors import DemopoolError, InvalidInput
from demopool.problem.cases import Case
from demopool.results import asv_files, history
from demopool.trials import samples

pytest.importorskip("pandas")
pytest.importorskip("asv")

HASH = "0123456789abcdef0123456789abcdef01234567"
NAME = f"{HASH[:8]}-py.json"
TIME = "descriptors.Democratic.time_call"


def stored(**changes: Any) -> dict[str, Any]:
    """A result file as asv writes it, with two cells."""
    return {
        "commit_hash": HASH,
        "date": 1_767_614_460_000,
        "params": {"machine": "stranger", "python": "3.11"},
        "python": "3.11",
        "env_name": "py",
        "env_vars": {"OPENBLAS_NUM_THREADS": "1"},
        "requirements": {},
        "result_columns": ["result", "params", "version", "started_at", "duration"],
        "results": {
            TIME: [
                [0.002, 0.004],
                [["'numpy:cpu/dense'", "'torch:cpu/dense'"], ["'vgg-b1'"]],
                "1",
                1_767_614_470_000,
                1.0,
            ]
        },
        "durations": {},
        "version": 2,
        **changes,
    }


def plant(folder: Path, content: Any = None) -> Path:
    """A results folder with one file."""
    machine = folder / "stranger"
    machine.mkdir(parents=True)
    file = machine / NAME
    file.write_text(json.dumps(stored() if content is None else content))
    return file


def demopool(*arguments: Any, cwd: Path, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "demopool", *map(str, arguments)]
    settings: dict[str, Any] = {"capture_output": True, "text": True, "timeout": 60, **options}
    return subprocess.run(command, cwd=cwd, check=False, **settings)


# --- git ---


@pytest.fixture
def trap(tmp_path: Path) -> tuple[Path, Path]:
    """A folder of results with a ``.git`` whose every fetch runs a program; what that leaves."""
    folder, mark = tmp_path / "downloaded", tmp_path / "executed"
    plant(folder)
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {mark}\n")
    program.chmod(0o755)
    git = folder / ".git"
    for part in ("objects", "refs/heads"):
        (git / part).mkdir(parents=True)
    (git / "HEAD").write_text(HASH + "\n")
    (git / "config").write_text(
        "[core]\n\trepositoryformatversion = 1\n\tbare = false\n"
        f"\tfsmonitor = {program}\n\tpager = {program}\n\tsshCommand = {program}\n"
        "[extensions]\n\tpartialClone = origin\n"
        '[protocol "file"]\n\tallow = always\n[protocol "ext"]\n\tallow = always\n'
        f'[remote "origin"]\n\turl = {tmp_path}\n\tpromisor = true\n\tuploadpack = {program}\n'
    )
    return folder, mark


def test_the_trap_is_one(trap: tuple[Path, Path]) -> None:
    folder, mark = trap
    subprocess.run(["git", "rev-list", "HEAD", "--"], cwd=folder, capture_output=True, check=False)
    assert mark.exists()


@pytest.mark.parametrize("command", [("history",), ("history", "--since", "v1"), ("report",)])
@pytest.mark.parametrize("inside", [False, True])
def test_nothing_in_a_folder_of_results_is_executed(
    trap: tuple[Path, Path], tmp_path: Path, command: tuple[str, ...], inside: bool
) -> None:
    """Neither from outside nor, by a user who has gone into it, from inside."""
    folder, mark = trap
    where = folder if inside else tmp_path
    given = ("--results", folder, "-o", tmp_path / "out") if command[0] == "report" else (folder,)
    done = demopool(*command, *given, cwd=where)
    assert "Traceback" not in done.stderr
    assert done.returncode == (2 if "--since" in command else 0), done.stderr
    assert not mark.exists()


# --- where results lie ---


@pytest.mark.parametrize("named", ["/", "..", "inside/../..", "link"])
def test_results_outside_the_folder_of_their_configuration_are_not_read(
    named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "downloaded"
    project.mkdir()
    plant(tmp_path)
    (project / "link").symlink_to(tmp_path)
    (project / "asv.conf.json").write_text(json.dumps({"results_dir": named}))
    with pytest.raises(InvalidInput, match="outside its own folder"):
        results.read(project)
    monkeypatch.chdir(project)
    with pytest.raises(InvalidInput, match="name that folder itself"):
        results.read()
    assert len(results.read(tmp_path / "stranger")) == 2


def test_only_regular_files_of_a_limited_size_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fifo would wait for ever, /dev/zero would never end."""
    file = plant(tmp_path)
    os.mkfifo(file.with_name("11111111-fifo.json"))
    os.mkfifo(file.with_suffix(".jsonl"))
    os.mkfifo(file.with_name("samples.jsonl"))
    os.mkfifo(tmp_path / "benchmarks.json")
    file.with_name("22222222-device.json").symlink_to("/dev/zero")
    file.with_name("33333333-huge.json").write_text(json.dumps(stored()) + " " * 100_000)
    monkeypatch.setattr(files, "LARGEST", 100_000)
    frame = results.read(tmp_path)
    assert len(frame) == 2
    told = " ".join(frame.attrs["unreadable"])
    assert told.count("it is not a regular file") == 3
    assert told.count("it has more than") == 1
    with pytest.raises(InvalidInput, match="not a regular file"):
        results.read(file.with_name("11111111-fifo.json"))


def test_a_link_to_samples_is_named_but_read_only_by_its_name(tmp_path: Path) -> None:
    """Also if what it leads to is read from its own place."""
    target, link = tmp_path / "mine" / "race.jsonl", tmp_path / "downloaded" / "link.jsonl"
    samples.append(target, [samples.Sample("numpy:cpu", "dense", Case(), "call_s", 1e-3)])
    link.parent.mkdir()
    link.symlink_to(target)
    frame = results.read([link.parent, target.parent])
    assert list(frame["file"]) == [str(target)]
    assert frame.attrs["unreadable"] == [
        f"{link} is a link and was passed over; name it to read it."
    ]
    assert len(results.read(link)) == 1


# --- what stands in them ---

ESCAPE = "\x1b[2J\x1b]0;owned\x07\x9b31m\u202e"


def test_no_escape_reaches_the_terminal(tmp_path: Path) -> None:
    content = stored(env_name=f"py{ESCAPE}", params={"machine": f"m{ESCAPE}"})
    cells = content["results"][TIME]
    cells[0] = [None, 0.002]
    cells[1] = [[repr("torch:cpu"), repr(f"a{ESCAPE}")], [repr(f"case{ESCAPE}")]]
    content["results"][f"{TIME}{ESCAPE}"] = cells
    file = plant(tmp_path, content)
    note = {"schema": 1, "kind": "failure", "measured_at": "2026-01-05T12:00:00", "benchmark": TIME}
    note |= {"candidate": "torch:cpu", "case": f"case{ESCAPE}", "reason": f"because{ESCAPE}"}
    file.with_suffix(".jsonl").write_text(json.dumps(note))
    file.with_name(f"11111111-{ESCAPE.replace('/', '')}.json").write_text("{")
    for arguments in ((), ("--all",), ("--json",), ("--machine", ESCAPE)):
        done = demopool("history", tmp_path, *arguments, cwd=tmp_path)
        for text in (done.stdout, done.stderr):
            assert printable(text) == text
        assert done.returncode == (2 if "--machine" in arguments else 0), done.stderr
    assert "because?[2J" in demopool("history", tmp_path, cwd=tmp_path).stdout


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("date",), 10**30),
        (("date",), -(10**15)),
        (("date",), "yesterday"),
        (("commit_hash",), "--upload-pack=program"),
        (("env_vars", "OPENBLAS_NUM_THREADS"), "9" * 30),
        (("params", "machine"), "x" * 20_000),
        (("results", TIME, 0), [10**400, 1]),
        (("results", TIME, 1), [["1"] * 1000] * 10),
        (("results", TIME, 3), 10**18),
    ],
)
def test_a_file_with_absurd_values_is_left_out_with_a_sentence(
    path: tuple[Any, ...], value: Any, tmp_path: Path
) -> None:
    content = stored()
    inner = content
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    file = plant(tmp_path, content)
    file.with_name("11111111-fine.json").write_text(json.dumps(stored()))
    frame = results.read(tmp_path)
    assert len(frame) == 2
    (sentence,) = frame.attrs["unreadable"]
    assert sentence.startswith(f"{file} cannot be read: ")


@pytest.mark.parametrize("value", [1e300, 1e-300, -1e40])
def test_what_nothing_measures_has_failed(value: float, tmp_path: Path) -> None:
    content = stored()
    content["results"][TIME][0] = [value, 0.004]
    plant(tmp_path, content)
    frame = results.read(tmp_path)
    assert list(frame["state"]) == ["failed", "ok"]
    assert frame["reason"][0] == f"the value is {value!r}, which nothing measures"


def test_names_are_no_formulas(tmp_path: Path) -> None:
    """A picture of a machine named so failed with a parser's error."""
    plant(tmp_path, stored(params={"machine": r"$\frac{$"}))
    done = demopool("history", tmp_path, "--png", "p.png", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")


HOSTILE = st.one_of(
    st.sampled_from(
        [
            None,
            True,
            -1,
            0,
            10**400,
            1e308,
            5e-324,
            -1e308,
            math.nan,
            math.inf,
            "",
            "-",
            "/",
            ESCAPE,
        ]
    ),
    st.sampled_from(
        ["$\\frac{$", "$x^{", "_hidden", "\ud800", "9" * 5000, "(" * 300, "-" * 5000, "[]"]
    ),
    st.sampled_from([[], {}, [[]], [["1"] * 2000] * 9, {"a": {}}, [None] * 3, [1e300, 1e-300]]),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=20),
)


def _places(node: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a tree of JSON."""
    inner: Any = ()
    if isinstance(node, dict):
        inner = node.items()
    elif isinstance(node, list):
        inner = enumerate(node)
    below = [place for key, value in inner for place in _places(value, (*path, key))]
    return [*([path] if path else []), *below]


NOTE = {
    "schema": 1,
    "kind": "failure",
    "measured_at": "2026-01-05T12:00:00+00:00",
    "benchmark": TIME,
    "candidate": "torch:cpu/dense",
    "case": "vgg-b1",
    "state": "error",
    "reason": "planted",
}
SAMPLE = {
    "schema": 1,
    "backend": "numpy:cpu",
    "route": "dense",
    "case": {"descriptor": "sum", "batch": 1, "n": 4, "d": 4},
    "measure": "call_s",
    "value": 0.5,
    "threads": 2,
    "measured_at": "2026-01-05T12:00:00+00:00",
}
KNOWN = {
    TIME: {"name": TIME, "param_names": ["candidate", "case"], "unit": "seconds", "version": "1"}
}
SEVERAL = [
    stored(commit_hash=f"{number:040x}", date=1_767_614_460_000 + number) for number in range(4)
]
TREE = {"files": SEVERAL, "note": NOTE, "sample": SAMPLE, "known": KNOWN}
PLACES = _places(TREE)


@st.composite
def mutated(draw: st.DrawFn) -> dict[str, str]:
    """Files of a results folder, with some values replaced or gone, and some bytes changed."""
    tree = copy.deepcopy(TREE)
    for path in draw(st.lists(st.sampled_from(PLACES), min_size=1, max_size=4)):
        node: Any = tree
        try:
            for key in path[:-1]:
                node = node[key]
            if len(path) > 1 and draw(st.booleans()):
                node[path[-1]] = draw(HOSTILE)
            elif len(path) > 1 and isinstance(node, dict):
                del node[path[-1]]
        except (KeyError, IndexError, TypeError):
            continue  # an earlier change took it away
    made = {f"m/{number}0000000-py.json": one for number, one in enumerate(tree["files"])}
    made |= {"m/00000000-py.jsonl": tree["note"], "m/s.jsonl": tree["sample"]}
    texts = {name: json.dumps(value) for name, value in made.items()}
    texts["benchmarks.json"] = json.dumps(tree["known"])
    if draw(st.integers(0, 4)) == 0:
        name = draw(st.sampled_from(sorted(texts)))
        at, text = draw(st.integers(0, len(texts[name]))), draw(st.text(max_size=3))
        texts[name] = texts[name][:at] + text + texts[name][at + len(text) :]
    return texts


_number = count()


@settings(max_examples=cases(2000, 20))
@given(mutated(), st.booleans())
def test_any_file_is_read_or_left_out_with_a_sentence(
    tmp_path_factory: pytest.TempPathFactory, texts: dict[str, str], drawn: bool
) -> None:
    """Through the table, the history and now and then a picture of it."""
    folder = tmp_path_factory.getbasetemp() / f"mutated{next(_number)}"
    (folder / "m").mkdir(parents=True)
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8", errors="surrogatepass")
    frame = results.read(folder)
    assert list(frame.columns) == list(results.COLUMNS)
    history.regressions(history.series(frame))
    for options in (["--all"], ["--json", *(["--png", str(folder / "p.png")] if drawn else [])]):
        output = io.StringIO()
        with redirect_stdout(output), suppress(DemopoolError):  # nothing is left to show
            cli.main(["history", str(folder), *options], standalone_mode=False)
        assert printable(output.getvalue()) == output.getvalue()


def test_the_mutants_start_from_files_that_are_fine(tmp_path: Path) -> None:
    """Else the search would show nothing."""
    (tmp_path / "m").mkdir()
    for number, one in enumerate(SEVERAL):
        (tmp_path / "m" / f"{number}0000000-py.json").write_text(json.dumps(one))
    (tmp_path / "benchmarks.json").write_text(json.dumps(KNOWN))
    (tmp_path / "m" / "s.jsonl").write_text(json.dumps(SAMPLE))
    frame = results.read(tmp_path)
    assert (len(frame), frame.attrs) == (9, {"stale": 0, "unreadable": []})
    assert asv_files.known_benchmarks(tmp_path / "benchmarks.json") == KNOWN
