"""``demopool paper``: the paper's figures and statements, from somebody's own features."""

from __future__ import annotations

from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from ..errors import DemopoolError
from ..problem.vocabulary import LAYOUTS
from .output import console, emit, envelope, json_option, progress

SCHEMA = 1


@click.command(name="paper", context_settings={"max_content_width": 80, "show_default": True})
@click.argument("features", nargs=-1, metavar="[FEATURES]...")
@click.option(
    "-o",
    "--output",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("demopool-paper"),
    help="Folder to write into.",
)
@click.option(
    "--layout",
    type=click.Choice(LAYOUTS),
    show_default=False,
    help="nchw or nhwc for conv maps, as for `demopool pool`.",
)
@click.option("--dataset", metavar="NAME", help="Take only these arrays of files with several.")
@click.option(
    "--sample",
    type=click.IntRange(1),
    default=50,
    help="Images in the figures, drawn at random if there are more; the paper draws 50.",
)
@click.option("--seed", type=click.IntRange(0), default=0, help="Of all that is drawn at random.")
@click.option(
    "--labels",
    metavar="CSV|folders",
    help="Measure accuracy: a table file,label[,split] (train, test), or the names of the folders "
    "that files are in. Without a split, half of every class is drawn for training.",
)
@json_option
def paper_command(
    features: tuple[str, ...],
    folder: Path,
    layout: str | None,
    dataset: str | None,
    sample: int,
    seed: int,
    labels: str | None,
    as_json: bool,
) -> int:
    """Does "Second-order Democratic Aggregation" (ECCV 2018) hold on these features?

    Writes paper.html, one page that needs no network, and every figure as PNG, SVG and CSV: spectra
    and contributions (Figure 1), contributions with their bounds over p (Figure 2) and over gamma,
    the residual of Sinkhorn's iteration for dampings from 0.3 to 1, and the error of Tensor Sketch
    over k. Every statement of the paper that these figures can judge is listed: it holds, it does
    not, or these images cannot say, each with its number.

    With --labels it also measures the accuracy of a linear SVM for every aggregator: gamma, p,
    sketch sizes, first and second order, with and without signed square roots, with standard errors
    and paired tests. The protocol stands above the table.

    FEATURES are files, folders and globs as for `demopool pool`. Without any, the features that
    ship with demopool are taken: three images, enough to look at and too few for most verdicts.

    \b
    demopool paper                               the features that ship with it
    demopool paper maps/ --layout nchw -o out
    demopool paper 'shards/*.h5' --sample 200 --seed 1
    demopool paper maps/ --layout nchw --labels labels.csv
    demopool paper maps/ --layout nchw --labels folders
    """
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise DemopoolError(
            "The figures need matplotlib, which is not installed: pip install '.[report]' (in a "
            "clone)"
        ) from None
    if labels is not None and not features:
        raise click.UsageError("--labels are of FEATURES: the features that ship have none.")
    if labels is not None and find_spec("sklearn") is None:
        raise DemopoolError(
            "Accuracy needs scikit-learn, which is not installed: pip install '.[sklearn]' (in a "
            "clone)"
        )
    from ..datasets.images import open_images
    from ..paper.accuracy import measure
    from ..paper.building import build
    from ..paper.finished import NAME
    from ..paper.images import shipped
    from ..paper.labels import read as read_labels

    images: Any
    if features:
        images = open_images(features, layout=layout, dataset=dataset)
        files = len(images.stamps)
        source = f"{len(images)} images of {files} file{'s' * (files != 1)}"
    else:
        images, source = shipped()
    unfinished = folder / NAME
    with progress("paper") as report:
        accuracies = None
        if labels is not None:
            given = read_labels(labels, images, seed)
            how = {"layout": layout, "dataset": dataset}
            accuracies = partial(measure, images, features, given, seed, report, unfinished, **how)
        built = build(
            folder, images, source, most=sample, seed=seed, progress=report, accuracies=accuracies
        )
    unfinished.unlink(missing_ok=True)
    if as_json:
        payload = {
            "files": [str(file) for file in built.files],
            "sample": built.sample,
            "images": built.images,
            "statements": [one._asdict() for one in built.statements],
            "tables": [one._asdict() for one in built.tables],
        }
        emit(envelope(SCHEMA, payload))
        return 0
    screen = console()
    width = max(len(one.verdict) for one in built.statements)
    for one in built.statements:
        screen.print(f"{one.verdict:{width}}  {one.where}: {one.text}.", soft_wrap=True)
        screen.print(f"{'':{width}}  {one.found}.", soft_wrap=True)
    screen.print(f"\n{built.files[0]}, and {len(built.files) - 1} files beside it", soft_wrap=True)
    return 0
