"""``make bench`` and plain ``asv run``: the machine's name, commands to read, incomplete clones."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from asv.machine import Machine
from asv.util import UserError
from click.testing import CliRunner

from benchmarks import asv_plugin, checkout, notes, profiles
from demopool.problem.vocabulary import TIMED_BACKENDS
from tools import bench, estimate
from tools.cells import Cell, in_a_shell

ROOT = Path(__file__).parent.parent
NAME = "lab-7-nvidia-a100"


# --- the machine's name ---


@pytest.fixture
def asv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """asv's process on a machine with a GPU, up to the moment when it loads the plugin."""
    monkeypatch.setattr(asv_plugin, "machine_name", lambda: NAME)
    monkeypatch.setattr(Machine, "hardcoded_machine_name", None)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv(notes.FOLDER_VARIABLE, "")
    monkeypatch.chdir(ROOT)

    def command(*arguments: str) -> Path:
        monkeypatch.setattr(sys, "argv", ["asv", *arguments])
        asv_plugin.setup()
        return tmp_path / ".asv-machine.json"

    return command


def test_plain_asv_has_the_name_of_make_bench_and_needs_no_asv_machine(asv: Any) -> None:
    file = asv("run", "HEAD^!")
    assert set(json.loads(file.read_text())) == {"version", NAME}
    assert Machine.load(interactive=True).machine == NAME
    assert Path(os.environ[notes.FOLDER_VARIABLE]) == ROOT / ".asv" / "results" / NAME


def test_the_only_machine_that_asv_knows_is_not_taken_for_this_one(
    asv: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For an unknown name that is the host's asv takes the only entry there is."""
    monkeypatch.setattr("asv.machine._get_unique_machine_name", lambda: NAME)
    old = {"version": 1, "laptop": {**Machine.get_defaults(), "machine": "laptop"}}
    (tmp_path / ".asv-machine.json").write_text(json.dumps(old))
    asv("run")
    assert Machine.load(interactive=True).machine == NAME


@pytest.mark.parametrize("given", [["--machine", "mine"], ["--machine=mine"], ["-m", "mine"]])
def test_a_given_name_prevails(asv: Any, given: list[str]) -> None:
    assert "mine" in json.loads(asv("run", *given).read_text())
    assert Path(os.environ[notes.FOLDER_VARIABLE]).name == "mine"
    assert Machine.load(machine_name="mine", interactive=True).machine == "mine"


def test_what_does_not_measure_registers_nothing(asv: Any) -> None:
    assert not asv("publish").exists()
    assert os.environ[notes.FOLDER_VARIABLE] == ""


def test_asv_says_in_a_sentence_that_there_is_no_commit(
    asv: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none() -> str:
        raise checkout.NoCommit("Nothing is committed here.")

    monkeypatch.setattr(checkout, "head", none)
    with pytest.raises(UserError, match="Nothing is committed here"):
        asv("run")


# --- commands and an estimate ---


def test_show_prints_commands_to_paste_and_registers_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    before = sorted((ROOT / ".asv").glob("results/*"))
    done = CliRunner().invoke(bench.bench, ["--show"])
    assert done.exit_code == 0, done.output
    assert list(tmp_path.iterdir()) == []
    assert sorted((ROOT / ".asv").glob("results/*")) == before
    parts = profiles.slices("fast", bench.usable_backends())
    commands = [
        shlex.split(text) for text in re.findall(r"^asv (?:.|\n)*?HEAD\^!'$", done.output, re.M)
    ]
    assert len(commands) == len(parts)
    count = sum(len(part.cells) for part in parts)
    last = done.output.splitlines()[-1]
    assert f"fast: {len(parts)} commands, {count} cells" in last
    assert re.search(r"about \d+(\.\d)? (s|min) for a commit \(an estimate", last)
    every = [Cell(*cell).name for part in _full() for cell in part.cells]
    for part, command in zip(parts, commands, strict=True):
        assert command[:2] == ["asv", "run"]
        patterns = [command[at + 1] for at, word in enumerate(command) if word == "--bench"]
        selected = {name for name in every if any(re.search(p, name) for p in patterns)}
        assert selected == {Cell(*cell).name for cell in part.cells}, part.title


def test_show_has_the_commits_that_were_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "chosen", lambda *_: ["a" * 40, "b" * 40])
    for asked, shown in (("HEAD~2..HEAD", "HEAD~2..HEAD"), ("NEW", "aaaaaaaa^..HEAD")):
        done = CliRunner().invoke(bench.bench, ["--show", "--commits", asked])
        assert done.exit_code == 0, done.output
        assert f"\n  '{shown}'\n" in done.output
        assert done.output.splitlines()[-1].startswith("# 2 commits: about ")


def _full() -> list[profiles.Slice]:
    return profiles.slices("full", bench.usable_backends())


@pytest.mark.parametrize("profile", [name for name in profiles.PROFILES if name != "smallest"])
def test_a_pattern_for_reading_selects_the_same(profile: str) -> None:
    every = [Cell(*cell).name for part in _full() for cell in part.cells]
    for part in profiles.slices(profile, bench.usable_backends()):
        for pattern in part.patterns:
            (shown,) = shlex.split(in_a_shell(pattern))
            assert "'" not in shown
            for name in every:
                assert bool(re.search(shown, name)) == bool(re.search(pattern, name)), name


def test_one_cell_is_selected_by_its_pattern() -> None:
    cells = {Cell(*cell) for part in profiles.slices("fast", TIMED_BACKENDS) for cell in part.cells}
    for one in sorted(cells)[::40]:
        assert [cell for cell in cells if re.search(one.pattern, cell.name)] == [one]


def test_an_estimate_adds_up_and_grows_with_the_work() -> None:
    democratic = "descriptors.Democratic.time_call"
    small = Cell(democratic, "numpy:cpu/dense", "n49-d64")
    large = small._replace(case="resnet-b8")
    skipped = Cell("descriptors.Power.time_call", "numpy:cpu/newton-schulz", "resnet-b8")
    alone, both = (estimate.seconds([small]), estimate.seconds([small, large]))
    assert estimate.PART < alone < estimate.seconds([large])
    assert both == pytest.approx(alone + estimate.seconds([large]) - estimate.PART)
    assert estimate.seconds([small], runs=4) == pytest.approx(4 * alone)
    assert estimate.seconds([skipped]) == estimate.PART + estimate.PROCESS
    baseline = small._replace(candidate="baseline/plain")
    assert estimate.seconds([baseline]) > estimate.PART + estimate.PROCESS
    assert (
        estimate.seconds([small._replace(benchmark="descriptors.Democratic.track_error")]) < alone
    )
    totals = [
        sum(estimate.seconds(part.cells) for part in profiles.slices(name, ("numpy:cpu",)))
        for name in ("fast", "regular", "full")
    ]
    assert totals == sorted(totals)


@pytest.mark.parametrize(
    ("total", "words"),
    [(0.2, "about 1 s"), (42.4, "about 42 s"), (370.0, "about 6.2 min"), (16200.0, "about 4.5 h")],
)
def test_an_estimate_in_words(total: float, words: str) -> None:
    assert estimate.sentence(total) == words


# --- the clone ---


def git(folder: Path, *arguments: str) -> str:
    person = ["-c", "user.name=a", "-c", "user.email=a@b"]
    done = subprocess.run(
        ["git", *person, *arguments], cwd=folder, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """Two commits of a small project."""
    folder = tmp_path / "clone"
    for name in ("benchmarks/suite.py", "implementations/a.py", "src/demopool/b.py", "README.md"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("1\n")
    git(folder, "init", "--quiet")
    for text in ("one", "two"):
        (folder / "README.md").write_text(text)
        git(folder, "add", "--all")
        git(folder, "commit", "--quiet", "--message", text)
    return folder


def test_a_clean_clone_has_a_commit_and_no_warning(clone: Path) -> None:
    assert checkout.head(clone) == git(clone, "rev-parse", "HEAD")
    assert checkout.warnings(clone) == []
    (clone / "README.md").write_text("not measured, and measures nothing")
    assert checkout.warnings(clone) == []


def test_a_changed_ruler_and_changed_code_are_told_apart(clone: Path) -> None:
    (clone / "implementations" / "a.py").write_text("2\n")
    (told,) = checkout.warnings(clone)
    assert "implementations/a.py are not measured" in told
    (clone / "benchmarks" / "suite.py").write_text("2\n")
    (clone / "src" / "demopool" / "new.py").write_text("2\n")
    ruler, code = checkout.warnings(clone)
    assert "benchmarks/suite.py and 1 more measure without being measured" in ruler
    assert "are not measured" in code


def test_a_shallow_clone_is_named_with_what_to_do(clone: Path, tmp_path: Path) -> None:
    shallow = tmp_path / "shallow"
    git(tmp_path, "clone", "--quiet", "--depth=1", f"file://{clone}", str(shallow))
    assert checkout.head(shallow) == checkout.head(clone)
    assert checkout.warnings(shallow) == [checkout.SHALLOW]
    assert "git fetch --unshallow" in checkout.SHALLOW


def test_no_clone_no_commit_and_no_git_are_a_sentence_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(checkout.NoCommit, match="is not a git clone"):
        checkout.head(tmp_path)
    git(tmp_path, "init", "--quiet")
    with pytest.raises(checkout.NoCommit, match="Nothing is committed here"):
        checkout.head(tmp_path)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(checkout.NoCommit, match="git is not installed"):
        checkout.head(tmp_path)


@pytest.mark.parametrize("module", ["tools.bench", "tools.bench_pr"])
def test_without_git_there_is_one_sentence_and_no_traceback(module: str, tmp_path: Path) -> None:
    for name in ("benchmarks", "tools", "reference", "src"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "asv.conf.json", tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", module], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == (1 if module == "tools.bench" else 2)
    assert done.stderr.startswith(f"Error: {tmp_path} is not a git clone")
    assert done.stderr.count("\n") == 1


def test_commits_of_a_range_and_new_ones(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    third = git(clone, "commit-tree", "HEAD^{tree}", "-p", "HEAD", "-m", "three")
    git(clone, "reset", "--hard", "--quiet", third)
    _, second, third = git(clone, "rev-list", "--reverse", "HEAD").split()
    for name in ("git", "is_shallow"):
        monkeypatch.setattr(checkout, name, partial(getattr(checkout, name), root=clone))
    folder = clone / "results"
    plan = bench.Plan(clone / "asv.conf.json", folder, 2, third, [])
    assert bench.chosen("HEAD~2..HEAD", plan) == [second, third]
    assert bench.chosen("NEW", plan) == [third]  # nothing is measured yet
    folder.mkdir()
    (folder / "machine.json").touch()
    (folder / f"{second[:8]}-borrowed.json").touch()
    assert bench.chosen("NEW", plan) == [second, third]  # the last may be unfinished
    for wrong, sentence in (("HEAD..HEAD", "no commit in"), ("nonsense", "git rev-list failed")):
        with pytest.raises(bench.click.ClickException, match=sentence):
            bench.chosen(wrong, plan)


def test_every_commit_is_measured_by_its_hash(tmp_path: Path) -> None:
    part = profiles.Slice("descriptors.Sum", ("^a", "^b"), frozenset())
    plan = bench.Plan(tmp_path / "asv.conf.json", tmp_path / "vm", 2, "c" * 40, [part])
    command = plan.command(part)
    assert command[-1] == f"{'c' * 40}^!"
    assert command[3:8] == ["run", "--config", "asv.conf.json", "--machine", "vm"]
    assert command[8:-1] == ["--bench", "^a", "--bench", "^b"]


def test_a_commit_is_unpacked_in_place_of_the_last(tmp_path: Path) -> None:
    environment = object.__new__(asv_plugin.Borrowed)
    environment._path, environment._project = str(tmp_path / "env"), "demopool"
    environment._set_installed_commit_hash = lambda commit: None
    beside = environment._own / "other.pth"
    beside.parent.mkdir(parents=True)
    beside.write_text("")
    for name in ("old", "new"):
        wheel = tmp_path / name / "demopool-0.1.0-py3-none-any.whl"
        wheel.parent.mkdir()
        with zipfile.ZipFile(wheel, "w") as packed:
            packed.writestr(f"demopool/{name}.py", "")
            packed.writestr(f"demopool-0.1.0.dist-info/{name}", "")
        environment._uninstall_project()
        environment._global_env_vars = {"ASV_BUILD_CACHE_DIR": str(wheel.parent)}
        environment._install_project(None, name, "")
        found = {file.name for file in environment._own.rglob("*") if file.is_file()}
        assert found == {"other.pth", f"{name}.py", name}
