"""The dampened Sinkhorn iteration step by step: how fast it converges for which damping tau."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .images import Analysed, Array

TAUS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
STEPS = 50
"""Iterations that are followed."""

PAPERS_TAU, PAPERS_ITERATIONS = 0.5, 10

ENOUGH = 0.01
"""Share of its length by which a descriptor may differ from the converged one."""

CONVERGED = 2000
"""Iterations to what is called the solution, with tau = 0.5."""


def iterates(K: Array, *, gamma: float, tau: float, steps: int) -> Iterator[tuple[Array, Array]]:
    """Weights a after 0, 1, ..., ``steps`` iterations, each with s = a * (K a) / (K 1)^gamma, which
    is 1 for the solution."""
    target = K.sum(axis=1) ** gamma
    a = np.ones(len(K))
    for step in range(steps + 1):
        s = a * (K @ a) / target
        yield a, s
        if step < steps:
            a = a / s**tau


def weights(
    K: Array, gamma: float, *, tau: float = PAPERS_TAU, steps: int = PAPERS_ITERATIONS
) -> Array:
    """As the reference has them, of a kernel matrix that is there already."""
    *_, (a, _) = iterates(K, gamma=gamma, tau=tau, steps=steps)
    return a


def spread(s: Array) -> float:
    """Largest over smallest, less 1: 0 for a solution, whatever its scale, which the final norm
    takes away."""
    return float(s.max() / s.min() - 1.0)


def solution(K: Array, gamma: float) -> tuple[Array, float]:
    """Weights after very many iterations, or where rounding ends the progress, and their spread."""
    best, least = np.ones(len(K)), np.inf
    since = 0
    for a, s in iterates(K, gamma=gamma, tau=PAPERS_TAU, steps=CONVERGED):
        found = spread(s)
        if found < least:
            best, least, since = a, found, 0
        since += 1
        if since > STEPS or least == 0.0:
            break
    return best, least


def distance(K: Array, a: Array, b: Array) -> float:
    """Between the descriptors of two weights, each of length 1; |A_a - A_b|^2 needs K only."""
    a, b = a / np.sqrt(a @ K @ a), b / np.sqrt(b @ K @ b)
    between = a - b
    return float(np.sqrt(max(between @ K @ between, 0.0)))


def measure(image: Analysed) -> dict[str, Array]:
    """Of one image, for democratic weights (gamma = 0), the farthest from where it begins.

    spread      (taus, steps + 1): of s after every iteration
    level       (taus, steps + 1): geometric mean of s; it swings around 1 where scale oscillates
    distance    (taus, steps + 1): of the descriptor from the converged one
    solved      the spread of the solution, for gamma = 0 and 0.5
    """
    K = image.K
    goal, solved = solution(K, 0.0)
    found: dict[str, list[list[float]]] = {"spread": [], "level": [], "distance": []}
    for tau in TAUS:
        followed = list(iterates(K, gamma=0.0, tau=tau, steps=STEPS))
        found["spread"].append([spread(s) for _, s in followed])
        found["level"].append([float(np.exp(np.log(s).mean())) for _, s in followed])
        found["distance"].append([distance(K, a, goal) for a, _ in followed])
    result = {name: np.array(values) for name, values in found.items()}
    return result | {"solved": np.array([solved, solution(K, 0.5)[1]])}


def needed(distances: Array) -> Array:
    """The first iteration from which a descriptor stays near enough; NaN if there is none.

    Shapes: ``(..., steps + 1) -> (...)``.
    """
    near = distances <= ENOUGH
    stays = np.flip(np.logical_and.accumulate(np.flip(near, -1), axis=-1), -1)
    return np.where(stays.any(axis=-1), stays.argmax(axis=-1).astype(np.float64), np.nan)
