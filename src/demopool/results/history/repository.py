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

    None where there is no git, no repository, or it does not know one of the commits.
    """
    names = [name for name in dict.fromkeys(wanted) if not name.startswith("-")]
    listed = _git(folder, "rev-list", "--date-order", "--reverse", *names, "--") if names else None
    return listed.split() if listed is not None else None


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
