"""What of the history was asked for: by columns, by candidates, by commits."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from ..errors import InvalidInput
from ..results.history import repository


def chosen(frame: Any, choices: dict[str, tuple[Any, ...]]) -> Any:
    """What was asked for, as far as there are measured values of it."""
    for column, wanted in choices.items():
        there = sorted(frame[frame["state"] == "ok"][column].dropna().unique())
        for name in wanted:
            if name not in there:
                raise InvalidInput(
                    f"--{column} must be one that was measured ({_few(there)}); got {name!r}."
                )
        if wanted:
            frame = frame[frame[column].isin(wanted)]
    return frame


def matching(frame: Any, candidate: str | None) -> Any:
    if candidate is None:
        return frame
    try:
        pattern = re.compile(candidate)
    except re.error as problem:
        raise InvalidInput(
            f"--candidate must be a regular expression; {candidate!r} is none: {problem}."
        ) from None
    there = sorted(frame[frame["state"] == "ok"]["candidate"].dropna().unique())
    wanted = [name for name in there if pattern.search(name)]
    if not wanted:
        raise InvalidInput(
            f"--candidate {candidate!r} matches none that was measured: {_few(there)}."
        )
    return frame[frame["candidate"].isin(wanted)]


def _few(names: Sequence[Any], most: int = 10) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(str, names[:most])) + more if names else "none"


def since(
    name: str, order: Sequence[str], frame: Any, git_order: Sequence[str] | None
) -> list[str]:
    """The commits from this one on; it need not be measured itself if git can place it."""
    measured = [commit for commit in order if len(name) >= 4 and commit.startswith(name)]
    if measured:
        return list(order[order.index(measured[0]) :])
    commit = repository.commit(repository.OWN, name)
    if commit is not None and git_order is not None and commit in git_order:
        later = set(git_order[git_order.index(commit) :])
        return [commit for commit in order if commit in later]
    try:
        day = datetime.fromisoformat(name)
    except ValueError:
        raise InvalidInput(
            f"--since must be a date, or a commit or tag in the measured history; got {name!r}."
        ) from None
    day = day if day.tzinfo else day.replace(tzinfo=UTC)
    later = set(frame[frame["date"] >= day]["commit"])
    if not later:
        raise InvalidInput(f"--since {name}: no measured commit is that young.")
    return [commit for commit in order if commit in later]
