"""torch:cpu compared with straightforward torch, and the module with the authors' formulation."""

from __future__ import annotations

from functools import partial
from typing import Any

import demopool as dp
from benchmarks.baselines import torch_democratic, torch_democratic_of_maps, torch_sketch
from tools.ratios.rows import Call, Memory, Ratio, pooled, with_its_norm

NAME = "torch:cpu"


def ratios() -> list[Ratio]:
    import torch

    norm = with_its_norm(NAME, torch.rand(8, 2048, 14, 14))
    return [*_democratic(), *_sketches(), _power(), norm, *_module()]


def _democratic() -> list[Ratio]:
    """Against K = (X X^T)^2, T mat-vecs and a weighted product."""
    import torch

    rows = []
    for batch, n, d, bar in (
        (8, 784, 512, 0.6),
        (8, 196, 2048, 0.8),
        (1, 3136, 512, 0.75),
        (1, 12544, 64, 0.04),
    ):
        X = torch.rand(batch, n, d)
        job, theirs = f"democratic b={batch} n={n} d={d}", partial(torch_democratic, X)
        rows.append(Ratio(job, "straightforward torch", pooled(NAME, X), theirs, bar))
    return rows


def _sketches() -> list[Ratio]:
    import torch

    ops = dp.backend(NAME)
    rows = []
    for n, d, bar in ((784, 512, 0.045), (196, 2048, 0.3)):
        X, a, ready = torch.rand(8, n, d), torch.rand(8, n), ops.prepare(dp.hashes(d, 8192))
        ours = partial(ops.pool_sketch, X, ready, a)
        theirs = partial(torch_sketch, X, ready.ready, a)
        job = f"sketched pooling b=8 n={n} d={d}"
        rows.append(Ratio(job, "three FFTs per feature", ours, theirs, bar))
    return rows


def _power() -> Ratio:
    import torch

    X = torch.rand(196, 2048)
    ours = partial(dp.backend(NAME).power, X)
    theirs = partial(torch.linalg.eigh, X.mT @ X)
    return Ratio("power n=196 d=2048 p=1/2", "torch.linalg.eigh of A", ours, theirs, 1 / 25)


def _module() -> list[Ratio]:
    """Conv maps as they come; the derivative through all iterations."""
    import torch

    from demopool.torch import GammaDemocraticPool

    def step(pool: Any, maps: Any, gradient: Any) -> Call:
        def forward_and_backward() -> None:
            maps.grad = None
            pool(maps).backward(gradient)

        return forward_and_backward

    rows = []
    for norm in ("none", "signed-sqrt-l2"):
        ours = GammaDemocraticPool(normalize=norm)
        theirs = partial(torch_democratic_of_maps, norm=norm != "none")
        for channels, side in ((2048, 14), (512, 28)):
            maps = torch.rand(8, channels, side, side, requires_grad=True)
            gradient = torch.rand(8, channels**2)
            job = f"module 8 x {channels} x {side} x {side}, norm {norm}"
            forward = (partial(ours, maps), partial(theirs, maps))
            both = (step(ours, maps, gradient), step(theirs, maps, gradient))
            rows.append(Ratio(f"{job}, forward", "the authors' formulation", *forward, 0.6))
            rows.append(Ratio(f"{job}, and backward", "the authors' formulation", *both, 0.6))
    return rows


def memories() -> list[Memory]:
    import torch

    from demopool.torch import GammaDemocraticPool

    ops = dp.backend(NAME)
    X, a = torch.rand(8, 196, 2048), torch.rand(8, 196)
    ready = ops.prepare(dp.hashes(2048, 8192))
    long = torch.rand(1, 12544, 64, requires_grad=True)

    def forward_and_backward(T: int) -> Call:
        pool = GammaDemocraticPool(iterations=T, route="matrix-free", layout="nd")

        def step() -> None:
            long.grad = None
            pool(long).square().sum().backward()

        return step

    return [
        Memory("sketched pooling b=8 n=196 d=2048", lambda: ops.pool_sketch(X, ready, a), 20),
        Memory("democratic with backward n=12544 d=64 T=10", forward_and_backward(10), 40),
        Memory("democratic with backward n=12544 d=64 T=100", forward_and_backward(100), 40),
    ]
