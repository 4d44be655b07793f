"""Keep results in a git branch: ``python -m tools.results_branch pull``, measure, then ``push``.

The folder of asv's results becomes a work tree of the branch, which has no commit in common with
the code: others read it with ``demopool.results.read("https://...")``.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import click

from benchmarks import checkout
from benchmarks.harness import ROOT
from demopool.results.remote import BRANCH

FOLDER = Path(".asv", "results")
TRIES = 5
"""Machines that push at the same moment: each brings its own files, so a rebase always works."""
_AUTHOR = ("-c", "user.name=demopool", "-c", "user.email=demopool@localhost")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--remote", default="origin", show_default=True, help="Name or address.")
@click.option("--branch", default=BRANCH, show_default=True)
@click.pass_context
def main(context: click.Context, remote: str, branch: str) -> None:
    """Results of asv in a branch of their own, for a machine that measures every night.

    \b
    python -m tools.results_branch pull
    make bench COMMITS=NEW
    python -m tools.results_branch push
    """
    context.obj = (remote, branch)


@main.command()
@click.pass_obj
def pull(where: tuple[str, str]) -> None:
    """Put the branch's results beside those that are here; a new branch begins with these."""
    remote, branch = where
    folder = ROOT / FOLDER
    start = _fetched(remote, branch)
    if not (folder / ".git").exists():
        _work_tree(folder, start or _empty())
    _commit(folder)
    if start:
        _rebase(start)
    click.echo(f"{FOLDER}: {len(list(folder.glob('*/*-*.json')))} result files")


@main.command()
@click.pass_obj
def push(where: tuple[str, str]) -> None:
    """Commit every result and push it."""
    remote, branch = where
    folder = ROOT / FOLDER
    if not (folder / ".git").exists():
        raise click.ClickException("first: python -m tools.results_branch pull")
    _commit(folder)
    for attempt in range(1, TRIES + 1):
        try:
            _git("push", "--quiet", remote, f"HEAD:refs/heads/{branch}")
            break
        except click.ClickException:
            start = _fetched(remote, branch)
            if start is None or attempt == TRIES:
                raise
            _rebase(start)
    click.echo(f"pushed to {branch} of {remote}")


def _fetched(remote: str, branch: str) -> str | None:
    """The newest commit of the branch; None if there is no such branch yet."""
    name = f"refs/heads/{branch}"
    if not _git("ls-remote", "--heads", remote, name, folder=ROOT):
        return None
    _git("fetch", "--quiet", "--no-tags", remote, name, folder=ROOT)
    return _git("rev-parse", "FETCH_HEAD", folder=ROOT)


def _empty() -> str:
    """A commit without files and without a parent."""
    tree = _git("hash-object", "-w", "-t", "tree", os.devnull, folder=ROOT)
    return _git(*_AUTHOR, "commit-tree", tree, "-m", "Results of asv", folder=ROOT)


def _work_tree(folder: Path, start: str) -> None:
    """What was measured here before stays."""
    before = folder.with_name("results.before")
    if folder.exists():
        folder.rename(before)
    _git("worktree", "prune", folder=ROOT)
    _git("worktree", "add", "--quiet", "--detach", str(folder), start, folder=ROOT)
    if before.exists():
        shutil.copytree(before, folder, dirs_exist_ok=True)
        shutil.rmtree(before)


def _commit(folder: Path) -> None:
    _git("add", "--all", "--force", "--", ".", ":!*.lock")
    if _git("diff", "--cached", "--name-only"):
        names = sorted(file.parent.name for file in folder.glob("*/machine.json"))
        _git(*_AUTHOR, "commit", "--quiet", "--message", f"Results of {', '.join(names)}")


def _rebase(start: str) -> None:
    """Ours on top; of a file that both have ours is newer, which a rebase calls theirs."""
    _git(*_AUTHOR, "rebase", "--quiet", "--strategy-option", "theirs", start)


def _git(*arguments: str, folder: Path | None = None) -> str:
    try:
        return checkout.git(*arguments, root=folder or ROOT / FOLDER)
    except checkout.NoCommit as problem:
        raise click.ClickException(str(problem)) from None


if __name__ == "__main__":
    main()
