"""Features of many images as files, one each. Whatever interrupts it, the same call goes on."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from demopool.common import files
from demopool.errors import InvalidInput

from .vgg16 import PREPROCESSING, SIZE, Network, Weights, prepared

SETTINGS = "extraction.json"
LABELS = "labels.csv"
LARGEST = 65504.0
"""That float16 can hold; VGG-16's features are two hundred times smaller."""


class Picture(NamedTuple):
    """``name`` is that of its feature file, without the ending; ``read`` gives the encoded image.

    split   ``train`` or ``test``, or nothing: then the parts are drawn
    """

    name: str
    label: str
    split: str
    read: Callable[[], bytes]


def extract(
    pictures: Sequence[Picture],
    folder: Path,
    weights: Weights,
    progress: Callable[[int, int, str], None],
    *,
    precision: str = "float32",
    threads: int | None = None,
    size: int = SIZE,
) -> None:
    """Write ``folder/name.npy`` for every picture that has none: float16 (512, size/16, size/16).

    Each file is written whole or not at all. Convolutions use one thread, and ``threads`` images
    are on their way at a time: threads of one convolution would wait for each other, which costs
    most where other programs run.
    """
    _same_settings(folder, weights, precision, size)
    missing = [one for one in pictures if not _path(folder, one).exists()]
    done = len(pictures) - len(missing)
    progress(done, len(pictures), "features")
    if not missing:
        return
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    network = Network(weights, precision)

    def one(picture: Picture) -> None:
        _write(_path(folder, picture), _features(network, picture, size))

    pool = ThreadPoolExecutor(threads or before)
    try:
        for _ in pool.map(one, missing):
            done += 1
            progress(done, len(pictures), "features")
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(before)


def write_labels(pictures: Sequence[Picture], folder: Path) -> Path:
    """The table that ``demopool paper --labels`` reads."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(("file", "label", "split"))
    table.writerows((f"{one.name}.npy", one.label, one.split) for one in pictures)
    files.write_text(folder / LABELS, text.getvalue())
    return folder / LABELS


def _path(folder: Path, picture: Picture) -> Path:
    return folder / f"{picture.name}.npy"


def _features(network: Network, picture: Picture, size: int) -> np.ndarray:
    try:
        pixels = prepared(picture.read(), size)
    except OSError as problem:  # Pillow's errors are of this kind
        raise InvalidInput(f"{picture.name} is not an image that can be read: {problem}.") from None
    found = network(pixels)
    if not np.abs(found).max() <= LARGEST:
        raise InvalidInput(f"{picture.name} has features that are too large for float16.")
    return found.astype(np.float16)


def _write(path: Path, values: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    content = io.BytesIO()
    np.save(content, values)
    files.write_bytes(path, content.getvalue())


def _same_settings(folder: Path, weights: Weights, precision: str, size: int) -> None:
    """Features of two kinds in a folder would be mistaken for one."""
    digest = hashlib.sha256()
    for kernel, bias in weights:
        digest.update(kernel.tobytes() + bias.tobytes())
    settings = {
        "network": "VGG-16, conv5_3 after ReLU",
        "weights_sha256": digest.hexdigest(),
        "preprocessing": PREPROCESSING.replace(str(SIZE), str(size)),
        "precision": precision,
    }
    path = folder / SETTINGS
    if path.exists():
        if json.loads(files.read_text(path)) != settings:
            raise InvalidInput(
                f"{folder} has features that were extracted otherwise (see {SETTINGS} there); "
                "choose another folder, or remove this one."
            )
        return
    folder.mkdir(parents=True, exist_ok=True)
    files.write_text(path, json.dumps(settings, indent=2) + "\n")
