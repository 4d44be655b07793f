"""numba:cpu compared with numpy:cpu, and with the loops that NumPy and torch users would write."""

from __future__ import annotations

from typing import Any

import numpy as np

import demopool as dp
from demopool.contract import registry
from tools.ratios.rows import (
    Memory,
    Ratio,
    features,
    memory_of_half_precision,
    pooled,
    small_images,
    with_its_norm,
)

NAME = "numba:cpu"


def ratios() -> list[Ratio]:
    rows = []
    for batch, n, d, bar in (
        (8, 784, 512, 1.1),
        (1, 784, 512, 1.1),
        (8, 196, 2048, 1.1),
        (1, 3136, 512, 1.1),
        (1, 12544, 64, 1.1),
        (64, 49, 512, 1.0),
        (64, 49, 64, 0.5),
        (64, 196, 64, 0.7),
    ):
        X = features(batch, n, d)
        job, both = f"democratic b={batch} n={n} d={d}", (pooled(NAME, X), pooled("numpy:cpu", X))
        rows.append(Ratio(job, "numpy:cpu", *both, bar, apart=True))
    small = small_images(NAME, 0.5)
    norm = with_its_norm(NAME, features(8, 2048, 14, 14))
    return [*_sinkhorn(), *_scatter(), *rows, norm, *small]


def _sinkhorn() -> list[Ratio]:
    """The iteration alone, for a given K."""
    if registry.probe("torch:cpu").state != "ok":
        return []
    import torch

    from demopool.implementations.numba_cpu import compiled, weights

    X = features(8, 784, 512)
    K = np.square(X @ X.swapaxes(1, 2))
    row_sums, a = K.sum(axis=-1), np.empty(X.shape[:2], np.float32)
    tensor = torch.from_numpy(K)

    def ours() -> None:
        arguments = (K, row_sums.copy(), 0.5, 0.5, 10, a)
        compiled.spread(weights._sinkhorn_images, len(K), *arguments)

    def theirs() -> None:
        target, a = tensor.sum(-1) ** 0.5, torch.ones(X.shape[:2])
        for _ in range(10):
            a = a / (a * (tensor @ a[..., None])[..., 0] / target) ** 0.5

    return [Ratio("Sinkhorn b=8 n=784", "batched torch mat-vecs", ours, theirs, 1 / 8, apart=True)]


def _scatter() -> list[Ratio]:
    """Scatter a given d x d matrix into k bins; NumPy gets the indices and signed values too."""
    from demopool.implementations.numba_cpu import sketch

    d, k = 2048, 8192
    M = features(d, d)
    M += M.T
    hashes = dp.hashes(d, k)
    prepared = sketch.prepare(hashes)
    index = (np.add.outer(hashes.h1, hashes.h2) % k).ravel()
    values = (np.multiply.outer(hashes.s1, hashes.s2) * M).ravel()
    bins = np.zeros(k, np.float32)

    def ours() -> Any:
        return sketch.sketch_of_matrices(M, prepared)

    by_add, by_count = (
        lambda: np.add.at(bins, index, values),
        lambda: np.bincount(index, values, minlength=k),
    )
    return [
        Ratio("scatter d=2048 k=8192", "np.add.at", ours, by_add, 1 / 2, apart=True),
        Ratio("scatter d=2048 k=8192", "np.bincount", ours, by_count, 1 / 2, apart=True),
    ]


def memories() -> list[Memory]:
    batch = features(8, 784, 512)
    return [
        Memory("democratic b=8 n=784 d=512", pooled(NAME, batch), 32),
        memory_of_half_precision(NAME),
    ]
