"""What git knows about commits: their order, and what a name stands for.

A repository's own settings can name programs that git then runs, so git is never asked in a folder
of results, which may be a stranger's, but only in the repository around the working directory.
There too nothing is fetched: of a partial clone git would fetch a missing commit by the program
that its settings name.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

OWN = Path()
"""Where the user is: git finds the repository around it."""

_SETTINGS = ("--no-pager", "-c", "core.fsmonitor=false", "-c", f"core.hooksPath={os.devnull}")
_ENVIRONMENT = {
    # Before version 2.45 git has no switch for lazy fetching, but every version knows the list of
    # protocols, and an empty one prevails over what a repository's settings allow.
    "GIT_ALLOW_PROTOCOL": "",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
}


def order(folder: Path, wanted: Iterable[str]) -> list[str] | None:
    """These commits and all before them, oldest first, parents always before children.

    Those that git does not know are passed over; None where there is no git, no repository, or it
    knows none of them.
    """
    names = [name for name in dict.fromkeys(wanted) if not name.startswith("-")]
    options = ("--ignore-missing", "--date-order", "--reverse")
    listed = _git(folder, "rev-list", *options, *names, "--") if names else None
    return (listed.split() or None) if listed is not None else None


class Place(NamedTuple):
    """Where results belong in a repository's history.

    frame      the rows that are kept: those of the commits that led to HEAD
    order      the commits that git knows, oldest first; None if it knows none
    line       those that led to HEAD, and HEAD
    elsewhere  how many measured commits are left out
    head       the commit that HEAD stands for; None if the results are not of this repository
    """

    frame: Any
    order: list[str] | None
    line: list[str]
    elsewhere: int
    head: str | None

    def behind(self, newest: str) -> int | None:
        """How many commits HEAD has that this one, which led to it, has not."""
        counted = _git(OWN, "rev-list", "--count", f"{newest}..{self.head}", "--")
        return int(counted) if counted is not None else None


def place(frame: Any, all_branches: bool = False) -> Place:
    """What of the table of ``results.read`` belongs to HEAD's branch, in git's order.

    Everything, where git knows none of its commits, or none that led to HEAD.
    """
    measured = list(frame["commit"].dropna().unique())
    known = order(OWN, measured)
    head = commit(OWN, "HEAD") if known is not None else None
    line = (order(OWN, [head]) or []) if head is not None else []
    mine = frame["commit"].isin(line)
    if all_branches or not mine.any():
        return Place(frame, known, line, 0, head)
    return Place(frame[mine], line, line, int(frame[~mine]["commit"].nunique()), head)


def commit(folder: Path, name: str) -> str | None:
    """The commit a tag, branch or short hash stands for; None if git does not know it."""
    if name.startswith("-"):
        return None
    found = _git(folder, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
    return found.strip() if found else None


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", *_SETTINGS, *arguments],
            cwd=folder,
            env=os.environ | _ENVIRONMENT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:
        return None
    return done.stdout if done.returncode == 0 else None
