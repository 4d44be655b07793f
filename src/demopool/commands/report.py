"""``demopool report``: everything that was measured, as one page to look at."""

from __future__ import annotations

from pathlib import Path

import click

from demopool.errors import DemopoolError

from .output import console, emit, envelope, json_option

SCHEMA = 1


@click.command()
@click.option(
    "-o",
    "--output",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("demopool-report"),
    show_default=True,
    help="Folder to write into.",
)
@click.option(
    "--results",
    "paths",
    multiple=True,
    type=click.Path(path_type=Path, exists=True),
    help="asv results or samples, of any machine; can be repeated.  [default: this machine's]",
)
@json_option
def report(folder: Path, paths: tuple[Path, ...], as_json: bool) -> int:
    """Write report.html, one self-contained page, and its pictures as PNG files.

    It has the recommendations of `demopool choose`, the paper's claims re-measured, time over n and
    d, the crossover map, time against memory, the history if asv has measured several commits, the
    support matrix and the machine. Nothing is measured: what is missing is named with the command
    that measures it.

    \b
    demopool choose --descriptor all --case vgg-b1    a good start, 10 minutes
    demopool report                                   then look at the page
    demopool report -o out --results mine/results --results yours/results
    """
    try:
        import matplotlib  # noqa: F401
        import pandas  # noqa: F401
    except ImportError as missing:
        raise DemopoolError(
            f"The report needs {missing.name}, which is not installed: "
            "pip install '.[report]' (in a clone)"
        ) from None
    from demopool.report import build

    files = build(folder, paths)
    if as_json:
        emit(envelope(SCHEMA, {"files": [str(file) for file in files]}))
    else:
        screen = console()
        screen.print(f"{files[0]}", soft_wrap=True)
        if len(files) > 1:
            screen.print(f"and {len(files) - 1} pictures beside it")
    return 0
