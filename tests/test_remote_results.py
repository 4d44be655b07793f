"""Results in a git repository of others: read by its address, without trust."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from demopool import results
from demopool.common import places
from demopool.errors import InvalidInput
from demopool.results import remote

pytest.importorskip("pandas")
pytest.importorskip("asv")

import asv_project
from asv_project import MACHINE, Project
from made_history import Run


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return asv_project.measured(tmp_path_factory.getbasetemp() / "toy")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(places.VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache"


def git(folder: Path, *arguments: str) -> None:
    person = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", *person, *arguments], cwd=folder, check=True, capture_output=True)


def commit(folder: Path) -> None:
    git(folder, "add", "--all", "--force")
    git(folder, "commit", "--quiet", "--message", "Results")


@pytest.fixture
def theirs(project: Project, tmp_path: Path) -> Path:
    """A repository with results in the branch that a clone checks out."""
    folder = tmp_path / "theirs"
    shutil.copytree(project.results, folder)
    git(folder, "init", "--quiet", "--initial-branch", "main")
    commit(folder)
    return folder


def test_a_repository_is_read_as_its_folder_is(project: Project, theirs: Path) -> None:
    read = results.read(f"file://{theirs}")
    mine = results.read(project.results)
    assert set(read["machine"]) == {MACHINE}
    columns = [name for name in results.COLUMNS if name != "file"]
    assert read[columns].equals(mine[columns])
    assert len(results.read([f"file://{theirs}", project.results])) == 2 * len(mine)


def test_commands_take_an_address(theirs: Path, tmp_path: Path, command: Run) -> None:
    address = f"file://{theirs}"
    code, out, _ = command("history", address, "--json")
    assert (code, bool(json.loads(out)["series"])) == (0, True)
    page = tmp_path / "page"
    assert command("report", "--results", address, "--output", page)[0] == 0
    assert MACHINE in (page / "report.html").read_text()
    missing = f"file://{tmp_path / 'missing'}"
    code, _, err = command("history", missing)
    assert (code, f"{missing} cannot be read" in " ".join(err.split())) == (2, True)


def test_the_branch_for_results_is_preferred_and_another_can_be_named(theirs: Path) -> None:
    git(theirs, "checkout", "--quiet", "-b", "results")
    for file in (theirs / MACHINE).glob("*-*.json"):
        file.unlink()
    commit(theirs)
    git(theirs, "checkout", "--quiet", "main")
    address = f"file://{theirs}"
    assert results.read(address, with_samples=False).empty
    assert not results.read(f"{address}#main").empty
    with pytest.raises(InvalidInput, match=r"#nothing cannot be read: .*nothing not found"):
        results.read(f"{address}#nothing")


def test_a_copy_is_renewed_and_serves_when_the_repository_is_gone(theirs: Path) -> None:
    address = f"file://{theirs}"
    before = len(results.read(address))
    next((theirs / MACHINE).glob("*-*.json")).unlink()
    commit(theirs)
    renewed = results.read(address)
    assert len(renewed) < before
    theirs.rename(theirs.with_name("elsewhere"))
    last = results.read(address)
    assert len(last) == len(renewed)
    (told,) = last.attrs["unreadable"]
    assert told.startswith(f"{address} cannot be reached")
    assert told.endswith("its last copy is read.")


@pytest.mark.parametrize(
    "address", ["file:///nowhere/at-all", "https://localhost:9/x/y.git", "git@localhost:x/y.git"]
)
def test_what_cannot_be_reached_is_one_sentence(address: str, cache: Path) -> None:
    with pytest.raises(InvalidInput) as raised:
        results.read(address)
    assert str(raised.value).startswith(f"{address} cannot be read: ")
    assert str(raised.value).endswith(".")
    assert "\n" not in str(raised.value)
    assert list((cache / "repositories").glob("*[!k]")) == []  # nothing but the lock


def test_without_git_there_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(InvalidInput, match="git is not installed"):
        results.read("https://localhost/x.git")


def test_links_and_hooks_of_a_stranger_do_nothing(
    theirs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tmp_path / "secret.jsonl"
    secret.write_text("{}\n")
    (theirs / "samples.jsonl").symlink_to(secret)
    commit(theirs)
    # A template of the user's own git would be installed into a clone.
    hook = tmp_path / "template" / "hooks" / "post-checkout"
    hook.parent.mkdir(parents=True)
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path / 'ran'}\n")
    hook.chmod(0o755)
    monkeypatch.setenv("GIT_TEMPLATE_DIR", str(tmp_path / "template"))
    folder = remote.copy_of(f"file://{theirs}", lambda _: None)
    assert not (folder / "samples.jsonl").is_symlink()
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("https://example.org/a/b", True),
        ("git@example.org:a/b.git", True),
        ("ssh://example.org/a", True),
        ("file:///a", True),
        ("ext::sh -c touch% x", False),
        (".asv/results", False),
        ("C:/results", False),
        ("-oProxyCommand=x@y:z", False),
    ],
)
def test_what_an_address_is(text: str, expected: bool) -> None:
    assert remote.is_address(text) == expected
