"""A profile that several processes write and read, and the command that shows it."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from races import HERE, choice, without_time

import demopool as dp
from demopool.commands.profile import profile_command
from demopool.common import files
from demopool.problem.cases import Case
from demopool.problem.vocabulary import State
from demopool.profiles import file_format, store

TIMES = {"numpy:cpu/dense": 3e-4, "numpy:cpu/matrix-free": 4e-4}
CASE = Case(batch=2, n=40, d=12)


pytestmark = pytest.mark.usefixtures("empty_profile")


WRITER = """
import sys
from races import choice
from demopool.profiles import store
from demopool.problem.cases import Case
number = int(sys.argv[1])
store.here()  # as a program that has used auto
print("ready", flush=True)
sys.stdin.readline()
for n in range(1, 5):
    case = Case(batch=number, n=n, d=8)
    assert store.remember(choice(case, {"numpy:cpu/dense": 1e-4}, "numpy:cpu/dense")) == ""
"""


def test_six_that_write_at_once_keep_all_answers(plain_environment: dict[str, str]) -> None:
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parent,
            env=plain_environment,
        )
        for number in range(1, 7)
    ]
    try:
        for writer in writers:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "ready\n"
        for writer in writers:
            assert writer.stdin is not None
            writer.stdin.write("go\n")
            writer.stdin.flush()
        assert [writer.wait(100) for writer in writers] == [0] * 6
    finally:
        for writer in writers:
            writer.kill()
            writer.communicate()
    kept = {(d.case.batch, d.case.n) for d in store.here().decided}
    assert kept == {(number, n) for number in range(1, 7) for n in range(1, 5)}


def _from_elsewhere(case: Case) -> None:
    """Another process adds an answer; what this one has read does not change by it."""
    path = store.path_here()
    known = file_format.read(path)
    (answer,) = store._with((), store._found(choice(case, TIMES, "numpy:cpu/dense")))
    file_format.write(path, store.Profile((*known.decided, answer), {}))


def test_what_others_wrote_is_not_written_over_from_an_old_copy() -> None:
    store.remember(choice(CASE, TIMES, "numpy:cpu/dense"))
    assert dp.explain((2, 40, 12)).because == "measured"
    other, third = Case(n=7, d=7), Case(n=5, d=5)
    _from_elsewhere(other)
    store.remember(choice(third, TIMES, "numpy:cpu/dense"))
    assert {d.case.n for d in store.here().decided} == {40, 7, 5}


def test_a_running_process_sees_what_another_has_learnt(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(store.time, "monotonic", lambda: now[0])
    assert dp.explain((1, 7, 7)).because == "default"
    _from_elsewhere(Case(n=7, d=7))
    assert dp.explain((1, 7, 7)).because == "default"  # it was looked at just now
    now[0] += store.LOOK_SECONDS
    assert dp.explain((1, 7, 7)).because == "measured"


def test_who_holds_a_lock_for_ever_does_not_stop_the_others(tmp_path: Path) -> None:
    pytest.importorskip("fcntl")
    path = tmp_path / "deep" / "file"
    entered = []
    with files.locked(path):
        with files.locked(path, seconds=0.05):
            entered.append("late")
        waiting = threading.Thread(target=lambda: _enter(path, entered))
        waiting.start()
        waiting.join(0.2)
        assert entered == ["late"]
    waiting.join(5)
    assert entered == ["late", "in turn"]


def _enter(path: Path, entered: list[str]) -> None:
    with files.locked(path):
        entered.append("in turn")


# --- demopool profile ---


def _run(*arguments: str, env: dict[str, str]) -> Any:
    return subprocess.run(
        [sys.executable, "-m", "demopool", "profile", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=env,
    )


def test_the_command_shows_exports_and_resets(
    plain_environment: dict[str, str], tmp_path: Path
) -> None:
    done = _run(env=plain_environment)
    assert "Nothing was measured here yet" in done.stdout
    wide = Case(descriptor="sketched-democratic", batch=256, n=50176, d=2048)
    rows = [
        without_time("numpy:cpu/dense+fft", State.OUT_OF_MEMORY, "needs 9 GB", untried=True),
        without_time("torch:cpu/dense+fft", State.ERROR, "died of signal 11"),
        without_time("torch:cpu/matrix-free+moment", State.TIMEOUT, "no answer within 9 s", 9.0),
    ]
    name = "numpy:cpu/matrix-free+moment"
    store.remember(choice(wide, {name: 1.0}, name, *rows, whole=False))
    store.remember(choice(CASE, TIMES, "numpy:cpu/dense"))
    done = _run(env=plain_environment)
    assert done.returncode == 0
    assert not done.stderr
    table, _, last = done.stdout.rstrip("\n").rpartition("\n")
    assert max(map(len, table.splitlines())) <= 80
    for words in ("numpy:cpu/dense", "fastest", "300 us", "1 crashed", "1 out of time", "n=50176"):
        assert words in table
    assert "out of memory" not in table  # it was never tried
    assert "best measured" in table
    assert last.startswith("2 jobs in ")

    shown = json.loads(_run("--json", env=plain_environment).stdout)
    assert [row["case"]["batch"] for row in shown["decided"]] == [256, 2]
    assert shown["decided"][0]["untimed"][1]["at_least_s"] == 9.0

    copy = tmp_path / "learnt.json"
    done = _run("--export", str(copy), "--reset", env=plain_environment)
    assert done.stdout.splitlines() == [f"2 jobs written to {copy}.", "Forgotten: 2 jobs."]
    store.forget()
    assert store.here() == store.Profile()
    copy.rename(store.path_here())  # which is all it takes to have it back
    store.forget()
    assert store.here().record(CASE) is not None
    assert json.loads(store.path_here().read_text())["fingerprint"] == HERE


def test_the_command_says_what_it_cannot_do(plain_environment: dict[str, str]) -> None:
    done = _run("--export", "/no/such/folder/file", env=plain_environment)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    help_ = _run("--help", env=plain_environment).stdout
    assert max(map(len, help_.splitlines())) <= 80
    assert "--reset" in help_


def test_times_of_changed_code_are_counted_and_kept_beside(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As after an update of demopool: nothing is used silently, and nothing is lost."""
    case = Case(batch=1, n=4, d=8)
    times, best = {"numpy:cpu/dense": 1e-4}, "numpy:cpu/dense"
    changed = {"numpy:cpu": "0" * 16}  # the key of code that is not this
    assert store.remember(choice(case, times, best, codes=changed)) == ""
    stored = store.path_here().read_bytes()
    assert (store.outdated(), store.here().decided) == (1, ())
    assert profile_command.main([], standalone_mode=False) in (0, None)
    assert "1 job was measured with code that has changed since" in capsys.readouterr().out
    assert store.remember(choice(replace(case, n=5), times, best)) == ""
    assert store.path_here().with_name(store.path_here().name + ".before").read_bytes() == stored
    assert store.outdated() == 0
