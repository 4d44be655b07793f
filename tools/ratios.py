"""Speed and memory compared with straightforward versions of the same jobs: ``make ratios``.

Our code and the baseline run in turns in one process; the figure is the median of the turns'
ratios, because times vary with the machine and ratios within one run hardly do. The dtype is
float32. The cores must be otherwise idle; the script warns if they are not.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

import demopool as dp
from benchmarks.baselines import (
    dense_democratic,
    eigh_alone,
    plain_democratic,
    sketch_by_three_transforms,
    torch_democratic,
    torch_democratic_of_maps,
    torch_sketch,
    two_symmetric_products,
)
from demopool.contract import registry
from demopool.contract.device import Host
from demopool.machine.fingerprint import BUSY
from demopool.machine.system import busy_share, usable_cores
from demopool.measurement.clock import Clock
from demopool.measurement.memory import peak_host_bytes
from demopool.measurement.worker import Worker

Call = Callable[[], Any]
SECONDS_PER_RATIO = 3.0

# Longer than the 93 ms that threads of OpenBLAS spin after a call, measured here.
PAUSE = 0.12

# glibc requests more from the system than a call asks for, and more each time memory was returned:
# 10 MB of slack that say nothing about the code. Not used for timing, which it would slow down.
EXACT_HEAP = {"MALLOC_TOP_PAD_": "0"}


class Ratio(NamedTuple):
    """Our time divided by that of the baseline must be at most ``bar``.

    With ``apart``, a turn is a pause, one uncounted call and several counted ones: for pairs where
    spinning threads of one version would slow down the other.
    """

    job: str
    baseline: str
    ours: Call
    theirs: Call
    bar: float
    apart: bool = False


class Memory(NamedTuple):
    """The extra memory of a call, including its result, must be at most ``megabytes``."""

    job: str
    ours: Call
    megabytes: float


def numpy_ratios() -> list[Ratio]:
    """The jobs that matter most for numpy:cpu."""
    ops = dp.backend("numpy:cpu")
    vgg, large, long = _features(784, 512), _features(3136, 512), _features(12544, 64)
    res = _features(196, 2048)
    A = res.T @ res
    hashes = dp.hashes(512, 8192)
    ready = ops.prepare(hashes)
    a = ops.weights(vgg)

    def democratic(X: np.ndarray[Any, Any]) -> Call:
        return lambda: ops.pool(X, ops.weights(X))

    return [
        Ratio(
            "democratic n=784 d=512",
            "two SYRKs",
            democratic(vgg),
            lambda: two_symmetric_products(vgg),
            1.25,
        ),
        Ratio(
            "democratic n=3136 d=512",
            "two SYRKs",
            democratic(large),
            lambda: two_symmetric_products(large),
            1.4,
        ),
        Ratio(
            "democratic n=12544 d=64",
            "good dense version",
            democratic(long),
            lambda: dense_democratic(long),
            1 / 8,
        ),
        Ratio(
            "sketched pooling n=784 d=512 k=8192",
            "three FFTs per feature",
            lambda: ops.pool_sketch(vgg, ready, a),
            lambda: sketch_by_three_transforms(vgg, hashes, a),
            1 / 8,
        ),
        Ratio(
            "power n=196 d=2048 p=1/2",
            "eigh of the 2048 x 2048 matrix",
            lambda: ops.power(res),
            lambda: eigh_alone(A),
            1 / 20,
        ),
        _norm_ratio("numpy:cpu"),
        *small_images("numpy:cpu", 1.0),
    ]


def small_images(backend: str, bar: float) -> list[Ratio]:
    """What a call costs beside its products: plain NumPy pays nothing for checks and for auto."""

    def described(X: np.ndarray[Any, Any]) -> Call:
        return lambda: dp.describe(X, "democratic", backend=backend)

    def plain(X: np.ndarray[Any, Any]) -> Call:
        return lambda: [plain_democratic(image) for image in X]

    rows = []
    for n in (4, 16, 49, 100, 196):
        X = _features(64, n, 64)
        one, many = f"describe n={n} d=64", f"describe b=64 n={n} d=64"
        rows.append(Ratio(one, "plain NumPy", described(X[0]), plain(X[:1]), 2.0))
        rows.append(Ratio(many, "plain NumPy, one by one", described(X), plain(X), bar))
    return rows


def numpy_memories() -> list[Memory]:
    """Jobs whose memory must stay small for any n, d and batch."""
    ops = dp.backend("numpy:cpu")
    long, batch = _features(12544, 64), _features(8, 196, 2048)
    return [
        Memory("democratic n=12544 d=64", lambda: ops.pool(long, ops.weights(long)), 10),
        Memory(
            "sketched democratic b=8 n=196 d=2048 k=8192",
            lambda: dp.describe(batch, "sketched-democratic"),
            16,
        ),
        _half_memory("numpy:cpu"),
    ]


def _norm_ratio(backend: str) -> Ratio:
    """The final norm of a large descriptor: the same call with and without it."""
    maps = np.abs(_features(8, 2048, 14, 14))
    options: dict[str, Any] = {"layout": "nchw", "backend": backend}
    return Ratio(
        "democratic conv maps b=8 n=196 d=2048, with its norm",
        "without the norm",
        lambda: dp.describe(maps, "democratic", **options),
        lambda: dp.describe(maps, "democratic", normalize="none", **options),
        1.6,
    )


def _half_memory(backend: str) -> Memory:
    """In float32 the features alone would be 25.6 MB."""
    half = _features(100_000, 64).astype(np.float16)
    options: dict[str, Any] = {"route": "matrix-free", "backend": backend}
    job = "democratic in half precision n=100000 d=64"
    return Memory(job, lambda: dp.describe(half, "democratic", **options), 10)


def torch_ratios() -> list[Ratio]:
    """Compared with straightforward torch: K = (X X^T)^2, T mat-vecs, weighted product; FFTs."""
    import torch

    ops = dp.backend("torch:cpu")
    made = []
    for batch, n, d, bar in ((8, 784, 512, 0.6), (8, 196, 2048, 0.8), (1, 3136, 512, 0.75)):
        X = torch.rand(batch, n, d)
        made.append((f"democratic b={batch} n={n} d={d}", X, bar))
    made.append(("democratic b=1 n=12544 d=64", torch.rand(1, 12544, 64), 0.04))
    rows = [
        Ratio(
            job,
            "straightforward torch",
            lambda X=X: ops.pool(X, ops.weights(X)),
            lambda X=X: torch_democratic(X),
            bar,
        )
        for job, X, bar in made
    ]
    for n, d, bar in ((784, 512, 0.045), (196, 2048, 0.3)):
        X, a, hashes = torch.rand(8, n, d), torch.rand(8, n), dp.hashes(d, 8192)
        ready = ops.prepare(hashes)
        rows.append(
            Ratio(
                f"sketched pooling b=8 n={n} d={d}",
                "three FFTs per feature",
                lambda X=X, a=a, ready=ready: ops.pool_sketch(X, ready, a),
                lambda X=X, a=a, ready=ready: torch_sketch(X, ready.ready, a),
                bar,
            )
        )
    res = torch.rand(196, 2048)
    A = res.mT @ res
    rows.append(
        Ratio(
            "power n=196 d=2048 p=1/2",
            "torch.linalg.eigh of A",
            lambda: ops.power(res),
            lambda: torch.linalg.eigh(A),
            1 / 25,
        )
    )
    return [*rows, *_norm_ratio(), *_module_ratios()]


def _norm_ratio() -> list[Ratio]:
    """The final norm of large descriptors, as a part of the whole."""
    import torch

    X = torch.rand(8, 196, 2048)

    def described(norm: str) -> Call:
        return lambda: dp.describe(X, "democratic", normalize=norm, backend="torch:cpu")

    job = "democratic with its norm b=8 n=196 d=2048"
    return [Ratio(job, "without", described("signed-sqrt-l2"), described("none"), 1.6)]


def _module_ratios() -> list[Ratio]:
    """The module, compared with the formulation of the paper's authors; conv maps as they come."""
    import torch

    from demopool.torch import GammaDemocraticPool

    def step(pool: Call, maps: Any, gradient: Any) -> Call:
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


def torch_memories() -> list[Memory]:
    import torch

    from demopool.torch import GammaDemocraticPool

    ops = dp.backend("torch:cpu")
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


def numba_ratios() -> list[Ratio]:
    """Compared with numpy:cpu, and with the loops that NumPy and torch users would write."""
    numba, numpy = dp.backend("numba:cpu"), dp.backend("numpy:cpu")

    def pooled(ops: Any, X: Any) -> Call:
        return lambda: ops.pool(X, ops.weights(X))

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
        X = _features(batch, n, d)
        job = f"democratic b={batch} n={n} d={d}"
        rows.append(Ratio(job, "numpy:cpu", pooled(numba, X), pooled(numpy, X), bar, apart=True))
    small = small_images("numba:cpu", 0.5)
    return [*_sinkhorn_ratio(), *_scatter_ratios(), *rows, _norm_ratio("numba:cpu"), *small]


def _sinkhorn_ratio() -> list[Ratio]:
    """The iteration alone, for a given K."""
    if registry.probe("torch:cpu").state != "ok":
        return []
    import torch

    from demopool.implementations.numba_cpu import compiled, weights

    X = _features(8, 784, 512)
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


def _scatter_ratios() -> list[Ratio]:
    """Scatter a given d x d matrix into k bins; NumPy gets the indices and signed values too."""
    from demopool.implementations.numba_cpu import sketch

    d, k = 2048, 8192
    M = _features(d, d)
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


def numba_memories() -> list[Memory]:
    ops = dp.backend("numba:cpu")
    batch = _features(8, 784, 512)
    return [
        Memory("democratic b=8 n=784 d=512", lambda: ops.pool(batch, ops.weights(batch)), 32),
        _half_memory("numba:cpu"),
    ]


JOBS = {
    "numpy:cpu": (numpy_ratios, numpy_memories),
    "numba:cpu": (numba_ratios, numba_memories),
    "torch:cpu": (torch_ratios, torch_memories),
}


def main() -> int:
    console = Console()
    wanted = sys.argv[1:] or [name for name in JOBS if registry.probe(name).state == "ok"]
    for backend in wanted:
        if backend not in JOBS:
            console.print(f"There are no ratios for {backend}, only for {', '.join(JOBS)}.")
            return 2
    busy = busy_share()
    if busy is not None and busy > BUSY:
        console.print(
            f"Warning: other processes use {busy:.0%} of the cores; these ratios are unreliable."
        )
    if len(wanted) == 1:
        _measure(wanted[0], console)
        return 0
    # Each in its own process, because spinning threads of OpenBLAS slow torch down.
    for backend in wanted:
        subprocess.run([sys.executable, "-m", "tools.ratios", backend], check=True)
    return 0


def _measure(backend: str, console: Console) -> None:
    ratios, _ = JOBS[backend]
    table = Table(title=f"{backend}, float32")
    for heading in ("job", "against", "ratio", "spread", "bar", ""):
        table.add_column(
            heading, justify="right" if heading in ("ratio", "spread", "bar") else "left"
        )
    missed = 0
    for row in track(ratios(), "timing", console=console, transient=True):
        low, ratio, high = _quartiles(row)
        missed += ratio > row.bar
        verdict = "ok" if ratio <= row.bar else "missed"
        spread = f"{low:.3g}-{high:.3g}"
        table.add_row(row.job, row.baseline, f"{ratio:.3g}", spread, f"<= {row.bar:.3g}", verdict)
    from tools.ratios import peaks  # by the name under which the worker can import this module

    with Worker(usable_cores(), environment=EXACT_HEAP) as worker:
        answer = worker.ask(peaks, backend, timeout=300.0)
    if answer.value is None:
        console.print(f"The memory could not be measured: {answer.reason}")
    for job, peak, most in answer.value or ():
        verdict = "ok" if peak <= most else "missed"
        missed += peak > most
        shown, bar = f"{peak / 1e6:.1f} MB", f"<= {most / 1e6:g} MB"
        table.add_row(job, "extra memory", shown, "", bar, verdict)
    console.print(table)
    console.print("ratio: ours / baseline, median of alternating turns; spread: quartiles")
    if missed:
        console.print(f"{missed} missed; were the cores idle, and do they share a cache?")


def peaks(backend: str) -> list[tuple[str, float, float]]:
    """Job, peak bytes of its second call, and its maximum in bytes. Runs in the worker."""
    _, memories = JOBS[backend]
    found = []
    for job, call, megabytes in memories():
        call()
        peak = peak_host_bytes(call)
        found.append((job, float("nan") if peak is None else peak, megabytes * 1e6))
    return found


def _quartiles(row: Ratio) -> tuple[float, float, float]:
    """Quartiles of the ratio over turns, after one uncounted call of each version."""
    row.ours(), row.theirs()
    clock = Clock(Host())

    def turn(call: Call) -> float:
        if not row.apart:
            return clock.read(call).wall
        time.sleep(PAUSE)
        call()
        return float(np.median([clock.read(call).wall for _ in range(5)]))

    found: list[float] = []
    end = time.perf_counter() + SECONDS_PER_RATIO
    while time.perf_counter() < end or len(found) < 5:
        found.append(turn(row.ours) / turn(row.theirs))
    low, middle, high = np.quantile(found, (0.25, 0.5, 0.75))
    return float(low), float(middle), float(high)


def _features(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).standard_normal(shape, dtype=np.float32)


if __name__ == "__main__":
    sys.exit(main())
