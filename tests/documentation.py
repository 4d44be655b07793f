"""Runs the examples of a page of README or docs, in order, in one process and one folder.

    python tests/documentation.py docs/tutorial.md

Blocks fenced as ``python`` share a namespace; those with prompts are doctests. A block that begins
with ``# file: NAME`` is written to that file as well. In ``console`` blocks each line after ``$``
is run by bash, and what the page shows below it is compared as a doctest would, ``...`` included.
A line that begins with ``demopool:`` is an error message, and the command must fail.
"""

from __future__ import annotations

import doctest
import json
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))

INSTALLS = "it installs packages from the network"
NEEDS_GPU = "it needs a GPU"
MINUTES = "it takes minutes"
NOT_EXECUTED = {
    "pip install '.[cuda13,torch,numba,report]'": INSTALLS,
    "pip install '.[gpu-proof]'": INSTALLS,
    "demopool gpu-report": NEEDS_GPU,
    "demopool check cupy:cuda torch:cuda numba:cuda triton:cuda": NEEDS_GPU,
    "demopool check cupy:ptx numba:ptx triton:interpreter": (
        "it takes minutes; test_conformance.py runs its cells"
    ),
    "demopool history --confirm": MINUTES,
    "demopool history --confirm --fail-on-regression": MINUTES,
    "demopool pool maps/ -o descriptors.npy --layout nchw --descriptor sketched-democratic": (
        "it needs files, which docs/howto/pool-files.md makes"
    ),
    "demopool paper maps/ --layout nchw": "it needs files, which docs/howto/paper.md makes",
    "make test": MINUTES,
    "make study PRECISION=bfloat16": "it downloads images; test_studies.py has the same code",
    "python -m studies.": "it needs downloads; test_studies.py runs the same code on small ones",
    "cd CUB_200_2011": "it needs that dataset",
    "make bench": MINUTES,
    "make bench PROFILE=regular": MINUTES,
    "make bench PROFILE=full": MINUTES,
    "python -m tools.results_branch pull": "test_workflows.py runs it",
    "make bench COMMITS=NEW": "test_workflows.py runs it",
    "python -m tools.results_branch push": "test_workflows.py runs it",
    "make bench-pr BASE=origin/main": "test_workflows.py runs it",
    "make counts": MINUTES,
    "make matrix": "it writes into the documentation; a test compares that",
    "asv run": MINUTES,
    "asv continuous": MINUTES,
    "asv find": MINUTES,
    "asv compare": "it needs two measured commits of this repository",
    "asv publish": "it needs measured commits of this repository",
    "asv preview": "it serves pages until it is stopped",
}
"""The beginning of every command that is not run, and why. Targets of make must exist all the same.
There is no other way for a page to have an example that is not executed."""

OTHERS = ("asv ", "python -m studies.", "cd CUB_200_2011")
"""Of these the beginning is enough, whatever arguments follow."""

SHORT = " --budget 0.5 --backends numpy:cpu"
"""What the race of an example is run with; a sweep has two cells."""
RUN_AS = {
    "make choose": "demopool choose --budget 2",
    # From this folder alone, into a folder that the page's processes search for packages.
    "pip install ./demopool-plain": f"{sys.executable} -m pip install --quiet "
    "--disable-pip-version-check --no-deps --no-build-isolation --no-index --target site "
    "./demopool-plain",
}

FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
_FENCE = re.compile(r"^( *)```(\S*)[^\n]*\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_OUT_OF_TIME = re.compile("the budget of .* ended before|[?] nothing")
"""What a race says, and fails with, that such a short budget left without any answer."""
_RACED = re.compile(r"[\w-]+ of \d+ x n=|\w+:\w+/\S+|candidate\b")


@dataclass(frozen=True)
class Block:
    language: str
    text: str
    line: int


@dataclass(frozen=True)
class Command:
    """One command of a console block, and what the page shows below it."""

    text: str
    shown: str
    line: int

    @property
    def reason(self) -> str:
        """Why it is not executed; empty if it is."""
        return next((NOT_EXECUTED[start] for start in NOT_EXECUTED if self.is_like(start)), "")

    def is_like(self, start: str) -> bool:
        return self.text == start or (start.startswith(OTHERS) and self.text.startswith(start))

    @property
    def is_race(self) -> bool:
        return bool(re.match("(demopool|make) choose", self.text))


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    for fence in _FENCE.finditer(text):
        line = text.count("\n", 0, fence.start()) + 2
        yield Block(fence[2], textwrap.dedent(fence[3]), line)


def commands(block: Block) -> Iterator[Command]:
    """A command may go on after a backslash; its output ends at the next prompt."""
    lines = block.text.replace("\\\n", "").splitlines()
    starts = [at for at, line in enumerate(lines) if line.startswith("$ ")]
    assert starts[:1] == [0], f"line {block.line}: a console block begins with a prompt"
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        shown = "\n".join(lines[start + 1 : end])
        text = " ".join(lines[start].removeprefix("$ ").split())
        yield Command(text, shown, block.line + start)


def console_commands(page: Path) -> Iterator[Command]:
    for block in blocks(page):
        if block.language == "console":
            yield from commands(block)


def run_page(page: Path) -> dict[str, str]:
    """Everything on the page, in the current folder; the output of every command."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    outputs: dict[str, str] = {}
    for block in blocks(page):
        where = f"{page.relative_to(ROOT)}:{block.line}"
        file = re.match(r"# file: (\S+)\n", block.text)
        if file:
            Path(file[1]).write_text(block.text, encoding="utf-8")
        if block.language == "python":
            _run_python(block, namespace, where)
        elif block.language == "console":
            for command in commands(block):
                if not command.reason:
                    outputs[command.text] = _run_command(command, where)
    return outputs


def _run_python(block: Block, namespace: dict[str, Any], where: str) -> None:
    if ">>> " not in block.text:
        exec(compile("\n" * (block.line - 1) + block.text, where, "exec"), namespace)
        return
    test = doctest.DocTestParser().get_doctest(block.text, namespace, where, where, block.line)
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    runner.run(test, clear_globs=False)
    namespace.update(test.globs)
    if runner.failures:
        sys.exit(f"{where}: a doctest failed")


def _run_command(command: Command, where: str) -> str:
    done = subprocess.run(
        ["bash", "-c", _as_run(command)], capture_output=True, text=True, check=False
    )
    expects_error = re.search("^demopool: ", command.shown, re.MULTILINE)
    got = done.stderr if expects_error else done.stdout
    report = f"{where}: $ {command.text}\nexit code {done.returncode}\n{done.stdout}{done.stderr}"
    out_of_time = command.is_race and _OUT_OF_TIME.search(done.stdout)
    if bool(done.returncode) != bool(expects_error) and not out_of_time:
        sys.exit(report)
    if command.is_race and "--json" not in command.text:
        missing = [part for part in _stable(command.shown) if part not in got]
    else:
        same = doctest.OutputChecker().check_output(command.shown + "\n", got.lstrip("\n"), FLAGS)
        missing = [] if same or not command.shown else [command.shown]
    if missing:
        sys.exit(f"{report}\nThe page shows, and this does not have: {missing}")
    return done.stdout


def _as_run(command: Command) -> str:
    text = RUN_AS.get(command.text, command.text)
    if command.is_race and command.text not in RUN_AS:
        text = re.sub(r" --budget \S+| --backends \S+", "", text) + SHORT
        text = re.sub(r"--sweep n=\S+ d=\S+", "--sweep n=49 d=64,128", text)
    return text


def _stable(shown: str) -> Iterator[str]:
    """Of a race: the job, the heading and the candidates. Figures and verdicts differ each time."""
    for line in shown.splitlines():
        if _RACED.match(line):
            yield line if " x n=" in line else line.split()[0]


if __name__ == "__main__":
    found = run_page(Path(sys.argv[1]).resolve())
    Path("outputs.json").write_text(json.dumps(found), encoding="utf-8")
