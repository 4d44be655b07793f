"""The command line: shapes of the JSON, exit codes, plain output, files written whole."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click import Context
from click.testing import CliRunner

import demopool
from demopool.commands import cli
from demopool.common import files
from demopool.contract.support_matrix import BEGIN, END, insert_matrix
from demopool.errors import InvalidInput

ROOT = Path(__file__).parent.parent


def run(*arguments: str, env: dict[str, str], **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "demopool", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=env,
        **options,
    )


def _strict(text: str) -> dict[str, Any]:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} in JSON")

    parsed: dict[str, Any] = json.loads(text, parse_constant=refuse)
    assert list(parsed)[:3] == ["schema", "demopool", "machine"]
    assert parsed["schema"] == 1
    assert parsed["demopool"] == demopool.__version__
    assert parsed["machine"]["cores"] >= 1
    return parsed


def test_backends_begin_with_the_heading(plain_environment: dict[str, str]) -> None:
    first, *_ = run("backends", env=plain_environment).stdout.splitlines()
    assert first.split()[:2] == ["backend", "state"]


def test_backends_as_json(plain_environment: dict[str, str]) -> None:
    done = run("backends", "--json", env=plain_environment)
    assert done.returncode == 0
    listed = _strict(done.stdout)["backends"]
    assert listed[0]["backend"] == "numpy:cpu"
    assert len(listed) >= 8


def test_check_as_json(plain_environment: dict[str, str]) -> None:
    arguments = ("check", "numpy:cpu", "--quick", "--operation", "pool", "--json")
    done = run(*arguments, env=plain_environment)
    assert done.returncode == 0, done.stderr
    assert len(done.stderr.splitlines()) == 6, "a line for every cell"
    found = _strict(done.stdout)
    rows = found["rows"]
    assert len(rows) == 6
    # What somebody who is asked for help wants to know as well.
    assert found["backends"][0]["versions"]["numpy"]
    assert isinstance(found["gpus"], list)
    for row in rows:
        assert list(row) == [
            "operation",
            "route",
            "order",
            "backend",
            "dtype",
            "state",
            "worst_error",
            "tolerance",
            "worst_case",
            "reason",
            "seconds",
            "first_call_s",
            "compile_s",
        ]
        assert row["state"] == "ok"
        assert 0 < row["worst_error"] <= row["tolerance"]


@pytest.mark.parametrize("columns", ["60", "80", "200"])
def test_tables_are_plain_text_without_a_terminal(
    columns: str, plain_environment: dict[str, str]
) -> None:
    env = {**plain_environment, "COLUMNS": columns}
    for arguments in (
        ("backends",),
        ("check", "numpy:cpu", "--quick", "--operation", "pool", "--worst"),
    ):
        done = run(*arguments, env=env)
        assert done.returncode == 0, done.stderr
        assert "\x1b" not in done.stdout
        assert max(len(line) for line in done.stdout.splitlines()) <= max(int(columns), 78)
    assert "reproduce('numpy:cpu', 'pool', 'direct'" in done.stdout
    assert "6 of 6 cells conform" in done.stdout


def test_what_worst_prints_runs(plain_environment: dict[str, str]) -> None:
    arguments = ("check", "numpy:cpu", "--quick", "--operation", "sketch", "--worst")
    done = run(*arguments, env=plain_environment)
    code = done.stdout.partition("To run it again in Python:\n")[2].partition("3 of 3")[0]
    lines = code
    names: dict[str, Any] = {}
    exec(
        lines.replace("reproduce(", "outcome = reproduce(", 1).replace("import outcome", "import"),
        names,
    )
    assert names["outcome"].error <= names["outcome"].tolerance


def test_help_teaches(plain_environment: dict[str, str]) -> None:
    bare, helped = run(env=plain_environment), run("--help", env=plain_environment)
    assert bare.stdout == helped.stdout
    assert bare.returncode == 0
    assert "demopool check" in helped.stdout
    assert "tolerance" in run("check", "--help", env=plain_environment).stdout
    assert demopool.__version__ in run("--version", env=plain_environment).stdout


@pytest.mark.parametrize("columns", ["80", "200"])
def test_every_help_fits_eighty_columns(columns: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    for command in ([], *([name] for name in cli.list_commands(Context(cli)))):
        shown = CliRunner().invoke(cli, [*command, "--help"]).output
        assert "Usage:" in shown
        assert [line for line in shown.splitlines() if len(line) > 80] == []


def test_completion_as_the_readme_has_it(plain_environment: dict[str, str]) -> None:
    words = {"COMP_WORDS": "demopool ex", "COMP_CWORD": "1"}
    script = run(env={**plain_environment, "_DEMOPOOL_COMPLETE": "bash_source"})
    assert "_demopool_completion" in script.stdout
    found = run(env={**plain_environment, **words, "_DEMOPOOL_COMPLETE": "bash_complete"})
    assert found.stdout.split() == ["plain,explain"]
    page = ROOT / "docs" / "howto" / "choose.md"
    assert "_DEMOPOOL_COMPLETE=bash_source demopool" in page.read_text()


def test_works_from_the_repositorys_root(plain_environment: dict[str, str]) -> None:
    """The root has folders named like parts of the package; they must not shadow it."""
    assert run("backends", env=plain_environment, cwd=ROOT).returncode == 0


def test_output_to_a_closed_pipe_is_no_error(plain_environment: dict[str, str]) -> None:
    done = subprocess.run(
        f"{sys.executable} -m demopool backends --json | head -c 10",
        shell=True,
        capture_output=True,
        text=True,
        check=False,
        env=plain_environment,
    )
    assert done.stderr == ""


def test_output_file_holds_the_json(tmp_path: Path, plain_environment: dict[str, str]) -> None:
    file = tmp_path / "report.json"
    arguments = ("check", "numpy:cpu", "--quick", "--operation", "pool", "--output", str(file))
    assert run(*arguments, env=plain_environment).returncode == 0
    assert len(_strict(file.read_text())["rows"]) == 6
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"]


def test_matrix_goes_between_the_markers() -> None:
    text = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    assert insert_matrix(text, "new") == f"before\n{BEGIN}\nnew\n{END}\nafter\n"


def test_a_failed_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "kept.txt"
    files.write_text(file, "old")

    def fail(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "replace", fail)
    with pytest.raises(InvalidInput, match="No space left"):
        files.write_text(file, "new")
    assert file.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["kept.txt"]
