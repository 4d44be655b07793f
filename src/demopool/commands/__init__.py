"""The command line: one file per command, all thin over functions that return values."""

from __future__ import annotations

import sys

import click

from demopool import __version__
from demopool.errors import DemopoolError, InvalidInput

from .backends import backends
from .check import check
from .choose import choose_command
from .explain import explain_command
from .history import history
from .profile import profile_command
from .ptx import ptx_command
from .report import report

EXIT_WRONG, EXIT_BAD_USE, EXIT_INTERRUPTED = 1, 2, 130


@click.group(
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 96},
)
@click.version_option(__version__, prog_name="demopool")
@click.pass_context
def cli(context: click.Context) -> None:
    """Which implementation of second-order pooling should run on this hardware?

    \b
    demopool choose                  measure, decide, explain: the fastest for a job on this machine
    demopool explain --n 196 --d 2048    what auto would take, and why
    demopool profile                 what this machine has learnt; --reset forgets it
    demopool backends                what can run here, and how to get the rest
    demopool check                   is every implementation right? judged by the reference
    demopool check numpy:cpu --operation weights --worst
    demopool history                 what asv measured over the commits, and what got worse
    demopool report                  everything that was measured, as one page to look at
    demopool ptx kernels.cu          a CUDA kernel without a GPU: assembled, run, checked, counted

    Every command takes --json for scripts: one object with schema, demopool, machine and the
    payload. Exit codes: 0 fine, 1 something is wrong or a named backend is absent, 2 bad use.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


cli.add_command(backends)
cli.add_command(check)
cli.add_command(choose_command)
cli.add_command(explain_command)
cli.add_command(history)
cli.add_command(profile_command)
cli.add_command(ptx_command)
cli.add_command(report)


def main() -> None:
    """Run, and turn what is raised on purpose into one sentence and an exit code."""
    try:
        code = cli.main(standalone_mode=False)
    except click.exceptions.Abort:
        _fail("interrupted", EXIT_INTERRUPTED)
    except click.ClickException as problem:
        _fail(problem.format_message(), EXIT_BAD_USE)
    except InvalidInput as problem:
        _fail(str(problem), EXIT_BAD_USE)
    except DemopoolError as problem:
        _fail(str(problem), EXIT_WRONG)
    except BrokenPipeError:
        # The reader of our output went away, as `head` does: not an error of ours.
        sys.stderr.close()
        sys.exit(0)
    sys.exit(code if isinstance(code, int) else 0)


def _fail(sentence: str, code: int) -> None:
    click.echo(f"demopool: {sentence}", err=True)
    sys.exit(code)
