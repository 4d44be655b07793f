"""How far the features of two extractions of the same images are apart, and their descriptors.

python -m studies.difference build/study/groceries-float32 build/study/groceries-bfloat16
"""

from __future__ import annotations

from pathlib import Path

import click
import numpy as np

import demopool as dp

from . import command

DESCRIPTORS = {
    "features": None,
    "sum": {"descriptor": "sum"},
    "democratic, gamma = 0": {"descriptor": "democratic", "gamma": 0.0},
    "power, p = 0.5": {"descriptor": "power", "p": 0.5},
}


def differences(one: Path, other: Path) -> dict[str, list[float]]:
    """Of every image that both folders have: the distance over the length of the first; descriptors
    have the signed square root and length 1."""
    found: dict[str, list[float]] = {name: [] for name in DESCRIPTORS}
    for path in sorted(one.rglob("*.npy")):
        beside = other / path.relative_to(one)
        if not beside.exists():
            continue
        maps = [np.load(file).astype(np.float32) for file in (path, beside)]
        for name, how in DESCRIPTORS.items():
            x, y = maps
            if how is not None:
                x, y = (dp.describe(m, **how, layout="nchw", backend="numpy:cpu") for m in maps)
            distance = np.linalg.norm((x - y).astype(np.float64))
            found[name].append(float(distance / np.linalg.norm(x.astype(np.float64))))
    return found


@click.command()
@click.argument("one", type=click.Path(path_type=Path, file_okay=False, exists=True))
@click.argument("other", type=click.Path(path_type=Path, file_okay=False, exists=True))
def main(one: Path, other: Path) -> None:
    """Relative distances between the features of ONE and OTHER, image by image."""
    found = differences(one, other)
    count = len(found["features"])
    if not count:
        raise click.UsageError("the folders have no feature file in common.")
    click.echo(f"{count} images                median  largest")
    for name, values in found.items():
        click.echo(f"{name:24} {np.median(values):9.2%} {max(values):8.2%}")


if __name__ == "__main__":
    command.start(main)
