"""``demopool gpu-report``: everything that the owner of a GPU can find out, in one go."""

from __future__ import annotations

from pathlib import Path

import click

from ..gpu_report import collecting
from ..gpu_report.building import build
from ..problem.cases import NAMED
from ..problem.operations import OPERATIONS
from ..problem.vocabulary import DESCRIPTORS
from .output import console, emit, envelope, json_option, progress

SCHEMA = 1


@click.command(name="gpu-report", context_settings={"max_content_width": 80})
@click.argument("backends", nargs=-1, metavar="[BACKEND]...")
@click.option(
    "-o",
    "--output",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("demopool-gpu-report"),
    show_default=True,
    help="Folder to write into, and to go on from.",
)
@click.option(
    "--case",
    "cases",
    multiple=True,
    type=click.Choice(list(NAMED)),
    metavar="NAME",
    help=f"Sizes to race; can be repeated.  [default: {', '.join(collecting.CASES)}]",
)
@click.option(
    "--descriptor",
    "descriptors",
    multiple=True,
    type=click.Choice(DESCRIPTORS),
    metavar="NAME",
    help=f"Descriptor to race; can be repeated.  [default: {', '.join(collecting.DESCRIPTORS)}]",
)
@click.option(
    "--budget",
    type=click.FloatRange(0, 1e6, min_open=True),
    default=collecting.BUDGET,
    show_default=True,
    metavar="SECONDS",
    help="Maximum for one race, without the set-up of libraries.",
)
@click.option(
    "--operation",
    "operations",
    multiple=True,
    type=click.Choice(tuple(OPERATIONS)),
    metavar="NAME",
    help="Check only this operation; can be repeated.  [default: all]",
)
@click.option("--quick", is_flag=True, help="Leave out the largest examples of the check.")
@click.option(
    "--tools/--no-tools",
    default=True,
    show_default=True,
    help="Use compute-sanitizer and ncu where they are installed.",
)
@click.option("--fresh", is_flag=True, help="Do again what the folder has already.")
@json_option
def gpu_report_command(
    backends: tuple[str, ...],
    folder: Path,
    cases: tuple[str, ...],
    descriptors: tuple[str, ...],
    budget: float,
    operations: tuple[str, ...],
    quick: bool,
    tools: bool,
    fresh: bool,
    as_json: bool,
) -> int:
    """Check, race and profile a GPU; write a page to look at and an archive to send.

    It compares every operation with the reference, races the routes on standard sizes with data
    on the GPU, notes its clocks, counts what the kernels do, and runs compute-sanitizer and
    Nsight Compute (ncu) where they are installed. gpu-report.html says first what is conspicuous:
    wrong results, a throttled clock, a time of more than twice the roofline, each with where to
    look. gpu-report.zip has the page and all numbers; it names no user, host or folder.

    Without BACKEND, all backends that can use a GPU here. Ctrl-C stops it, and the same command
    goes on from there; --no-tools leaves out what takes longest. The exit code is 1 if anything is
    wrong.

    \b
    demopool gpu-report                        all backends on this GPU
    demopool gpu-report cupy:cuda --no-tools
    demopool gpu-report torch:cuda --quick --case vgg-b8 --descriptor democratic
    demopool gpu-report cupy:ptx --quick       without a GPU, as an example
    """
    plan = collecting.Plan(
        backends,
        cases or collecting.CASES,
        descriptors or collecting.DESCRIPTORS,
        budget,
        quick,
        tools,
        operations,
    )
    with progress("gpu-report") as report:
        built = build(plan, folder, fresh=fresh, progress=report)
    if as_json:
        payload = {
            "files": [str(file) for file in built.files],
            "findings": list(built.findings),
            **built.found,
        }
        emit(envelope(SCHEMA, payload))
        return 0 if built.conforms else 1
    screen = console()
    for line in built.findings or ("Nothing is conspicuous.",):
        screen.print(f"- {line}", soft_wrap=not screen.is_terminal)
    screen.print(f"\n{built.files[0]} to look at", soft_wrap=True)
    screen.print(f"{built.files[1]} to send", soft_wrap=True)
    return 0 if built.conforms else 1
