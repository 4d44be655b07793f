"""Learn a projection and a classifier through second-order pooling, on real VGG-16 features.

    python examples/real_features.py                   # a few seconds on one core
    python examples/real_features.py --pool power      # another pooling

The package ships conv5_3 features of two images: 14 x 14 positions of 512 numbers each. One
position is enough to tell them apart, so a *bag* mixes them: 7 positions of one image, 3 of the
other, and the question is which has more. Features go through a learnable 1 x 1 projection to 32
numbers, the pooling, and a linear layer; the projection learns only by what comes back through the
pooling.

Bags to learn from are of the left half of each image, bags to be judged on of the right half. No
feature is in both, but features of conv5_3 look far around themselves, so the halves share pixels.
Two images are no benchmark: this shows how to use the modules, not how good they are.
"""

from __future__ import annotations

from collections.abc import Callable

import click
import numpy as np
import torch
from rich.console import Console
from rich.progress import Progress
from torch import Tensor, nn

from demopool.conformance import features
from demopool.torch import (
    GammaDemocraticPool,
    MatrixPowerPool,
    SecondOrderPool,
    SketchedDemocraticPool,
)

SIDE = 14
"""Positions on a side of a feature map."""
MORE, FEWER = 7, 3
"""Positions in a bag of the image that is asked for, and of the other one."""
BATCH, TEST = 32, 500
"""Bags per step, bags to be judged on."""
CHANNELS = 32
SKETCH = 256
"""Length of the sketched descriptor; the others have CHANNELS * CHANNELS = 1024."""
CHANCE = 1 / 2

# The pooling of each name, and the length of the descriptor it gives.
POOLS: dict[str, tuple[Callable[[], nn.Module], int]] = {
    "sum": (lambda: SecondOrderPool(layout="nd"), CHANNELS**2),
    "democratic": (lambda: GammaDemocraticPool(layout="nd"), CHANNELS**2),
    "sketched": (lambda: SketchedDemocraticPool(CHANNELS, k=SKETCH, layout="nd"), SKETCH),
    "power": (lambda: MatrixPowerPool(layout="nd"), CHANNELS**2),
}


def halves() -> tuple[Tensor, Tensor]:
    """Features ``(2 images, 98 positions, 512)`` of the left half and of the right half."""
    X = features.real("X224")
    maps = X.reshape(len(X), SIDE, SIDE, -1)
    left, right = np.split(maps, 2, axis=2)
    return tuple(torch.from_numpy(half.reshape(len(X), -1, X.shape[-1])) for half in (left, right))


def bags(X: Tensor, count: int, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Random features of both images, ``(count, MORE + FEWER, 512)``, and which image has more."""
    images = rng.integers(2, size=count)
    owners = np.where(np.arange(MORE + FEWER) < MORE, images[:, None], 1 - images[:, None])
    positions = rng.integers(X.shape[1], size=owners.shape)
    return X[owners, positions], torch.from_numpy(images)


def network(pool: str, width: int) -> nn.Sequential:
    """Projection of every feature, one descriptor per bag, one score per image."""
    make_pool, length = POOLS[pool]
    return nn.Sequential(nn.Linear(width, CHANNELS, bias=False), make_pool(), nn.Linear(length, 2))


def train(
    steps: int = 200,
    pool: str = "democratic",
    seed: int = 0,
    report: Callable[[int, float, float], None] = lambda step, loss, accuracy: None,
) -> tuple[list[float], float]:
    """The loss of every step, and the accuracy on bags of the unseen halves in the end.

    ``report`` is called after every step with its number, loss and accuracy on its batch.
    """
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    seen, unseen = halves()
    model = network(pool, width=seen.shape[-1])
    # Descriptors have length 1, so their entries are small and the last layer needs larger steps.
    projection, last = model[0].parameters(), model[-1].parameters()
    optimizer = torch.optim.Adam([{"params": projection, "lr": 1e-3}, {"params": last, "lr": 1e-2}])
    losses = []
    for step in range(1, steps + 1):
        x, images = bags(seen, BATCH, rng)
        scores = model(x)
        loss = nn.functional.cross_entropy(scores, images)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        report(step, losses[-1], share_right(scores, images))
    x, images = bags(unseen, TEST, rng)
    with torch.no_grad():
        return losses, share_right(model(x), images)


def share_right(scores: Tensor, images: Tensor) -> float:
    return (scores.argmax(dim=1) == images).float().mean().item()


@click.command(context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.option("--steps", type=click.IntRange(1), default=200, help="Batches to learn from.")
@click.option(
    "--pool",
    type=click.Choice(list(POOLS)),
    default="democratic",
    help="sum: all outer products; democratic: weighted so that none dominates; sketched: the "
    f"same in {SKETCH} numbers instead of {CHANNELS**2}; power: the matrix square root of the sum.",
)
@click.option("--seed", type=click.IntRange(0), default=0, help="Of the bags and the network.")
@click.option("--every", type=click.IntRange(1), default=25, help="Steps between two lines.")
def main(steps: int, pool: str, seed: int, every: int) -> None:
    """Tell which of two images has more of a bag of VGG-16 features, learning through the pooling.

    The features ship with the package. A projection from 512 to 32 numbers is learned before the
    pooling and a linear layer after it; the judgement is on halves of the images not learned from.
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
    click.echo(f"{pool}: {accuracy:.1%} of {TEST} unseen bags are right; chance is {CHANCE:.0%}")


if __name__ == "__main__":
    main()
