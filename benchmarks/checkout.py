"""What of the clone decides what is measured: is there a commit, and is the ruler its own?

Commits are measured, but the ruler (benchmarks, cases, clock, cost model, reference) is that of the
working tree.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from .harness import ROOT

RULER = ("benchmarks", "asv.conf.json", "src/demopool", "reference")
"""What measures, from the working tree."""
MEASURED_ONLY = ("implementations",)
"""What is measured and does not measure."""

SHALLOW = (
    "This clone is shallow, so earlier commits can be neither measured nor put in order: "
    "git fetch --unshallow gets them (in a workflow: fetch-depth: 0)."
)


class NoCommit(Exception):
    """One sentence on why there is no commit to measure."""


def git(*arguments: str, root: Path = ROOT) -> str:
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=root, capture_output=True, text=True, check=False
        )
    except OSError:
        raise NoCommit("git is not installed, and asv measures commits: install git.") from None
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise NoCommit(f"git {arguments[0]} failed: {last}")
    return done.stdout.strip()


def head(root: Path = ROOT) -> str:
    """The commit that is checked out."""
    if not (root / ".git").exists():
        raise NoCommit(
            f"{root} is not a git clone, and asv measures commits: get it with git clone."
        )
    try:
        return git("rev-parse", "--verify", "--quiet", "HEAD", root=root)
    except NoCommit as problem:
        if "no reason given" not in str(problem):
            raise
        raise NoCommit("Nothing is committed here, and asv measures commits.") from None


def is_shallow(root: Path = ROOT) -> bool:
    return git("rev-parse", "--is-shallow-repository", root=root) == "true"


def warnings(root: Path = ROOT) -> list[str]:
    """What makes figures mean less than they seem to, one sentence each."""
    told = []
    ruler = _changed(RULER, root)
    if ruler:
        told.append(
            f"Uncommitted changes in {_few(ruler)} measure without being measured: they are the "
            "ruler, which comes from the working tree; commit them before you keep the figures."
        )
    measured = _changed(MEASURED_ONLY, root)
    if measured:
        told.append(
            f"Uncommitted changes in {_few(measured)} are not measured: asv installs the commit."
        )
    if is_shallow(root):
        told.append(SHALLOW)
    return told


def _changed(folders: tuple[str, ...], root: Path) -> list[str]:
    listed = git("status", "--porcelain", "--untracked-files=all", "--", *folders, root=root)
    return [line.split(maxsplit=1)[1] for line in listed.splitlines()]


def _few(names: list[str]) -> str:
    return names[0] + (f" and {len(names) - 1} more" if len(names) > 1 else "")
