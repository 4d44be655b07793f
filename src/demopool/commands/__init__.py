"""The command line: one file per command, each a thin layer over functions that return values."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from importlib import import_module
from typing import Any, NoReturn

import click

from ..common.program import EXIT_BAD_USE, EXIT_INTERRUPTED, EXIT_WRONG, __version__
from ..errors import DemopoolError, InvalidInput
from .output import printable
from .streams import prepare, silence

_COMMANDS = {
    "backends": "backends",
    "check": "check",
    "choose": "choose_command",
    "explain": "explain_command",
    "gpu-report": "gpu_report_command",
    "history": "history",
    "new-backend": "new_backend",
    "paper": "paper_command",
    "pool": "pool_command",
    "profile": "profile_command",
    "ptx": "ptx_command",
    "report": "report",
}
"""Modules of this package, with ``_`` for ``-``, and what the command is called in each."""


class _Commands(click.Group):
    """A command is imported when it is used: the others need libraries that it does not."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in _COMMANDS:
            return None
        module = import_module(f".{name.replace('-', '_')}", __package__)
        found = getattr(module, _COMMANDS[name])
        assert isinstance(found, click.Command)
        return found


@click.group(
    cls=_Commands,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
)
@click.version_option(__version__, prog_name="demopool")
@click.pass_context
def cli(context: click.Context) -> None:
    """Which implementation of second-order pooling should run on this hardware?

    \b
    demopool choose           measure, find the fastest for a job, explain why
    demopool explain --n 196  which backend auto would use here, and why
    demopool profile          what this machine has learnt; --reset forgets it
    demopool pool DIR -o OUT  descriptors of a whole dataset, in one file
    demopool backends         what can run here, and how to install the rest
    demopool check            compare all implementations with the reference
    demopool check numpy:cpu --operation weights --worst
    demopool history          asv's measurements over commits, and regressions
    demopool report           all measurements on one page
    demopool gpu-report       check, race and profile a GPU: a page and an archive
    demopool paper            the paper's figures and statements, on your features
    demopool ptx kernels.cu   run, check and count a CUDA kernel without a GPU
    demopool new-backend LIB  begin a backend of your own

    Every command takes --json for scripts: one object with schema, demopool, machine and the
    payload. Exit codes: 0 success, 1 something is wrong or a named backend is absent, 2 invalid
    usage.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


def main() -> None:
    """Run, and turn expected exceptions into one sentence and an exit code."""
    prepare()
    try:
        code = _run()
        sys.stdout.flush()
    except (click.exceptions.Abort, KeyboardInterrupt):
        _fail("interrupted", EXIT_INTERRUPTED)
    except click.ClickException as problem:
        _fail(problem.format_message(), EXIT_BAD_USE)
    except InvalidInput as problem:
        _fail(str(problem), EXIT_BAD_USE)
    except DemopoolError as problem:
        _fail(str(problem), EXIT_WRONG)
    except BrokenPipeError:
        # The reader of our output has closed it, as `head` does; that is not an error.
        silence()
        sys.exit(0)
    except OSError as problem:
        _fail(_about(problem), EXIT_WRONG)
    sys.exit(code if isinstance(code, int) else 0)


def _run() -> Any:
    """Run as click's own ``main`` does, which however treats a closed pipe as a failure."""
    if "_DEMOPOOL_COMPLETE" in os.environ:
        return cli.main(prog_name="demopool")
    try:
        with cli.make_context("demopool", sys.argv[1:]) as context:
            return cli.invoke(context)
    except click.exceptions.Exit as done:
        return done.exit_code


def _about(problem: OSError) -> str:
    why = problem.strerror or str(problem)
    if problem.filename is not None:
        return f"{problem.filename} cannot be read or written: {why}."
    if isinstance(problem, FileNotFoundError):
        return "the working directory no longer exists."
    return f"the output cannot be written: {why}."


def _fail(sentence: str, code: int) -> NoReturn:
    with suppress(OSError):
        click.echo(f"demopool: {printable(sentence)}", err=True)
    silence()
    sys.exit(code)
