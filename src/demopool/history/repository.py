"""What git knows about commits: their order, and what a name stands for."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path


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
            ["git", *arguments], cwd=folder, capture_output=True, text=True, check=False
        )
    except OSError:
        return None
    return done.stdout if done.returncode == 0 else None
