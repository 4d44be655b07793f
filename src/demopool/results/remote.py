"""Results that others keep in a git repository, as a copy in the cache folder.

A stranger's repository is only unpacked: no hook of it runs, and its links become plain files.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from ..common import places
from ..common.files import locked
from ..errors import InvalidInput

BRANCH = "results"
"""Read if a repository has it; otherwise the branch that a clone would check out."""

_ADDRESS = re.compile(r"(https?|ssh|git|file)://\S|[\w.-]+@[\w.-]+:\S")
_SETTINGS = (
    *("-c", "core.symlinks=false"),
    *("-c", f"core.hooksPath={os.devnull}"),
    *("-c", "core.fsmonitor=false"),
    # A connection that gives nothing for half a minute is none.
    *("-c", "http.lowSpeedLimit=1", "-c", "http.lowSpeedTime=30"),
)
_ENVIRONMENT = {
    "GIT_ALLOW_PROTOCOL": "https:http:ssh:git:file",
    "GIT_LFS_SKIP_SMUDGE": "1",
    "GIT_TERMINAL_PROMPT": "0",
}


def is_address(text: str) -> bool:
    """Whether it names a repository elsewhere: ``https://...``, ``git@host:...``, ``file://...``."""
    return _ADDRESS.match(text) is not None


def copy_of(address: str, tell: Callable[[str], None]) -> Path:
    """The folder of a copy that is up to date; ``address#branch`` names another branch.

    Where the repository cannot be reached but was before, its last copy serves, and ``tell`` gets
    a sentence about it.
    """
    repository, _, branch = address.partition("#")
    key = hashlib.sha256(address.encode()).hexdigest()[:16]
    folder = places.cache_folder() / "repositories" / key
    with locked(folder):
        beside = folder.with_name(f"{key}.new")
        shutil.rmtree(beside, ignore_errors=True)
        problem = _clone(repository, branch, beside)
        if problem is None:
            shutil.rmtree(folder, ignore_errors=True)
            beside.rename(folder)
        elif folder.is_dir():
            tell(f"{address} cannot be reached ({problem}); its last copy is read.")
        else:
            raise InvalidInput(f"{address} cannot be read: {problem}.")
    return folder


def _clone(repository: str, branch: str, folder: Path) -> str | None:
    """What is wrong, or None."""
    branches = [branch] if branch else [BRANCH, ""]
    problem = None
    for name in branches:
        chosen = ["--branch", name] if name else []
        problem = _git("clone", "--depth=1", "--template=", *chosen, "--", repository, str(folder))
        if problem is None or not re.search("[Rr]emote branch", problem):
            break
    return problem


def _git(*arguments: str) -> str | None:
    """The last line that git says if it fails, without a full stop."""
    try:
        done = subprocess.run(
            ["git", *_SETTINGS, *arguments],
            env={**os.environ, **_ENVIRONMENT, "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:
        return "git is not installed"
    if done.returncode == 0:
        return None
    said = re.findall(r"^(?:fatal|error|ERROR|ssh): (.+)$", done.stderr, re.MULTILINE)
    return (said[0] if said else f"git failed with code {done.returncode}").strip().rstrip(".")
