"""Train a small network that ends in second-order pooling, on textures made here.

    python examples/textures.py                  # about half a minute on one core
    python examples/textures.py --pool sum       # the same network with another pooling

A texture has no parts and no place: what tells it is which filters answer together, anywhere in the
image. That is what ``sum over positions of x x^T`` holds. Every image here also has a patch of
another texture at several times the contrast. Sum pooling counts a feature by its strength, so the
patch shouts; democratic weights bring the contributions closer together. A network trained end to
end can learn to live with the patch: sum pooling starts slower here and catches up.
"""

from __future__ import annotations

from collections.abc import Callable

import click
import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import Progress
from torch import Tensor, nn

from demopool.torch import (
    GammaDemocraticPool,
    MatrixPowerPool,
    SecondOrderPool,
    SketchedDemocraticPool,
)

Image = NDArray[np.float64]

SIZE = 32
"""Pixels on a side."""
PATCH, LOUDER = 12, 3.0
"""The patch of another texture: pixels on a side, and how much more contrast it has."""
TRAINING, TEST, BATCH = 2000, 500, 50
"""Images to learn from, images to be judged on, images per step."""
CHANNELS = 32
SKETCH = 256
"""Length of the sketched descriptor; the others have CHANNELS * CHANNELS = 1024."""

ROW, COLUMN = np.mgrid[:SIZE, :SIZE]
FREQUENCY = np.hypot(np.fft.fftfreq(SIZE)[:, np.newaxis], np.fft.fftfreq(SIZE))


def wave(rng: np.random.Generator, angle: float) -> Image:
    """A sine that runs at an angle, with a random wavelength and phase."""
    along = COLUMN * np.cos(angle) + ROW * np.sin(angle)
    return np.sin(2 * np.pi * (along / rng.uniform(4, 8) + rng.random()))


def filtered(rng: np.random.Generator, spectrum: Image) -> Image:
    """Noise with a given amplitude at every frequency and random phases."""
    noise = np.fft.fft2(rng.standard_normal((SIZE, SIZE)))
    return np.fft.ifft2(noise * spectrum).real


def stripes(rng: np.random.Generator) -> Image:
    return wave(rng, rng.uniform(0, np.pi))


def grid(rng: np.random.Generator) -> Image:
    angle = rng.uniform(0, np.pi)
    return wave(rng, angle) + wave(rng, angle + np.pi / 2)


def checkerboard(rng: np.random.Generator) -> Image:
    angle = rng.uniform(0, np.pi)
    return np.sign(wave(rng, angle) * wave(rng, angle + np.pi / 2))


def blobs(rng: np.random.Generator) -> Image:
    """Smooth noise cut at a level: islands with sharp coasts."""
    return np.sign(filtered(rng, np.exp(-((FREQUENCY / 0.1) ** 2))))


def clouds(rng: np.random.Generator) -> Image:
    """Amplitude 1/f, as in photographs."""
    return filtered(rng, 1 / np.maximum(FREQUENCY, 1 / SIZE))


def ripples(rng: np.random.Generator) -> Image:
    """Noise of one wavelength in all directions."""
    return filtered(rng, np.exp(-(((FREQUENCY - 0.18) / 0.03) ** 2)))


TEXTURES = (stripes, grid, checkerboard, blobs, clouds, ripples)
CHANCE = 1 / len(TEXTURES)


def standardised(texture: Image) -> Image:
    return (texture - texture.mean()) / texture.std()


def images(count: int, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Images ``(count, 1, SIZE, SIZE)`` and the class of each, the index into TEXTURES."""
    made, classes = [], rng.integers(len(TEXTURES), size=count)
    for right in classes:
        wrong = (right + rng.integers(1, len(TEXTURES))) % len(TEXTURES)
        image = standardised(TEXTURES[right](rng))
        other = standardised(TEXTURES[wrong](rng))
        top, left = rng.integers(SIZE - PATCH + 1, size=2)
        place = np.s_[top : top + PATCH, left : left + PATCH]
        image[place] = LOUDER * other[place]
        image += 0.3 * rng.standard_normal(image.shape)
        made.append(image * rng.uniform(0.3, 1.0) + rng.uniform(-0.5, 0.5))
    return torch.from_numpy(np.stack(made)).float().unsqueeze(1), torch.from_numpy(classes)


# The pooling of each name, and the length of the descriptor it gives.
POOLS: dict[str, tuple[Callable[[], nn.Module], int]] = {
    "sum": (SecondOrderPool, CHANNELS**2),
    "democratic": (GammaDemocraticPool, CHANNELS**2),
    "sketched": (lambda: SketchedDemocraticPool(CHANNELS, k=SKETCH), SKETCH),
    "power": (MatrixPowerPool, CHANNELS**2),
}


def network(pool: str) -> nn.Sequential:
    """Conv maps ``(B, CHANNELS, 14, 14)``, one descriptor per image, one score per class.

    No ReLU before the pooling: products of features are non-linear enough, and features of both
    signs keep their common mean from filling the descriptor.
    """
    make_pool, length = POOLS[pool]
    return nn.Sequential(
        nn.Conv2d(1, 16, kernel_size=5, stride=2, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, CHANNELS, kernel_size=3, padding=1, bias=False),
        nn.BatchNorm2d(CHANNELS),
        nn.ReLU(),
        nn.Conv2d(CHANNELS, CHANNELS, kernel_size=3, padding=1, bias=False),
        nn.BatchNorm2d(CHANNELS),
        make_pool(),
        nn.Linear(length, len(TEXTURES)),
    )


def accuracy_of(model: nn.Module, x: Tensor, classes: Tensor) -> float:
    model.eval()
    with torch.no_grad():
        right = model(x).argmax(dim=1) == classes
    model.train()
    return right.float().mean().item()


def train(
    steps: int = 300,
    pool: str = "democratic",
    seed: int = 0,
    report: Callable[[int, float, float], None] = lambda step, loss, accuracy: None,
) -> tuple[list[float], float]:
    """The loss of every step, and the accuracy on test images in the end.

    ``report`` is called after every step with its number, loss and accuracy on its batch.
    """
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    x, classes = images(TRAINING, rng)
    unseen = images(TEST, rng)
    model = network(pool)
    # Descriptors have length 1, so their entries are small and the last layer needs larger steps.
    filters, last = model[:-1].parameters(), model[-1].parameters()
    optimizer = torch.optim.Adam([{"params": filters, "lr": 5e-3}, {"params": last, "lr": 3e-2}])
    losses = []
    for step in range(1, steps + 1):
        batch = torch.from_numpy(rng.choice(TRAINING, size=BATCH, replace=False))
        scores = model(x[batch])
        loss = nn.functional.cross_entropy(scores, classes[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        right = scores.argmax(dim=1) == classes[batch]
        report(step, losses[-1], right.float().mean().item())
    return losses, accuracy_of(model, *unseen)


@click.command(context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.option("--steps", type=click.IntRange(1), default=300, help="Batches to learn from.")
@click.option(
    "--pool",
    type=click.Choice(list(POOLS)),
    default="democratic",
    help="sum: all outer products; democratic: weighted so that none dominates; sketched: the "
    f"same in {SKETCH} numbers instead of {CHANNELS**2}; power: the matrix square root of the sum.",
)
@click.option("--seed", type=click.IntRange(0), default=0, help="Of the images and the network.")
@click.option("--every", type=click.IntRange(1), default=50, help="Steps between two lines.")
def main(steps: int, pool: str, seed: int, every: int) -> None:
    """Learn to tell six kinds of texture apart, with second-order pooling inside the network.

    The images are made here: stripes, grids, checkerboards, blobs, clouds and ripples, at random
    angles, scales, phases and contrasts, each with a loud patch of another kind. Run it once per
    --pool, with a few seeds, before you conclude anything from a difference.
    """
    recent: list[tuple[float, float]] = []
    console = Console(highlight=False)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task(pool, total=steps)

        def report(step: int, loss: float, accuracy: float) -> None:
            recent.append((loss, accuracy))
            progress.advance(bar)
            if step % every == 0 or step == steps:
                loss, accuracy = np.mean(recent, axis=0)
                recent.clear()
                console.print(f"step {step:4}   loss {loss:.3f}   accuracy {accuracy:.0%}")

        _, accuracy = train(steps, pool, seed, report)
    click.echo(f"{pool}: {accuracy:.1%} of {TEST} unseen images are right; chance is {CHANCE:.1%}")


if __name__ == "__main__":
    main()
