"""The same study on a folder of images: CUB, MIT Indoor, DTD, or one's own.

python -m studies.images FOLDER
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import click

from demopool.errors import InvalidInput

from . import command, downloads
from .extracting import Picture

ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".tif", ".tiff", ".webp")


def pictures(folder: Path, train: Sequence[Path], test: Sequence[Path]) -> list[Picture]:
    """Of ``folder/class/*.jpg``; the lists name images as ``class/name.jpg``.

    Without a list the parts are drawn later. With one of them, the rest is the other part; with
    both, an image in neither is left out.
    """
    found = sorted(
        path
        for path in folder.glob("*/*")
        if path.suffix.lower() in ENDINGS and not path.name.startswith(".")
    )
    if not found:
        raise InvalidInput(f"{folder} has no images: they must be in FOLDER/class/name.jpg.")
    names = {path.relative_to(folder).as_posix(): path for path in found}
    parts = _parts(names, train, test)
    return [
        Picture(name, path.parent.name, parts[name], path.read_bytes)
        for name, path in names.items()
        if name in parts
    ]


def _parts(names: Iterable[str], train: Sequence[Path], test: Sequence[Path]) -> dict[str, str]:
    if not train and not test:
        return dict.fromkeys(names, "")
    rest = "" if train and test else ("test" if train else "train")
    parts = dict.fromkeys(names, rest) if rest else {}
    known = set(names)
    for part, lists in (("train", train), ("test", test)):
        for path in lists:
            listed = [line.strip() for line in path.read_text().splitlines() if line.strip()]
            strange = [name for name in listed if name not in known]
            if strange:
                raise InvalidInput(
                    f"{path} names {strange[0]}, which is not among the images "
                    f"({len(strange)} of {len(listed)} are not)."
                )
            twice = [name for name in listed if parts.get(name, rest) not in (rest, part)]
            if twice:
                raise InvalidInput(f"{twice[0]} is in both parts.")
            parts.update(dict.fromkeys(listed, part))
    return parts


def _lists(which: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return click.option(
        f"--{which}",
        type=click.Path(path_type=Path, dir_okay=False, exists=True),
        multiple=True,
        metavar="LIST",
        help=f"Text file of images to {'learn from' if which == 'train' else 'be judged on'}, "
        "class/name.jpg, one a line; may be repeated.",
    )


@click.command(context_settings={"show_default": True})
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False, exists=True))
@_lists("train")
@_lists("test")
@command.options
def main(
    folder: Path, train: tuple[Path, ...], test: tuple[Path, ...], cache: Path, **how: Any
) -> None:
    """Judge the paper on FOLDER/class/*.jpg.

    Without --train and --test, half of every class is drawn for training. With one of them, all
    other images are the other part; with both, an image that neither names is left out.

    \b
    python -m studies.images dtd/images --train labels/train1.txt \\
        --train labels/val1.txt --test labels/test1.txt
    python -m studies.images Images --train TrainImages.txt --test TestImages.txt
    """
    own = pictures(folder, train, test)
    name = folder.resolve().name or "images"
    command.run(name, own, downloads.vgg16(cache), cache=cache, **how)


if __name__ == "__main__":
    command.start(main)
