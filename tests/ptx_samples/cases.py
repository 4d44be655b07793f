"""The sample kernels with small launches and what they must give: sizes with tails, and edges."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from demopool import ptx

from . import products

Array = Any
SOURCE = Path(__file__).with_name("samples.cu")
INSTANCES = ("squared_gram<float>", "squared_gram<double>")
i32, f32 = np.int32, np.float32


class Job(NamedTuple):
    """A launch, the array for its result, and what must be there after it."""

    grid: Any
    block: Any
    args: list[Any]
    result: Array
    wanted: Array
    shared: int = 0


@dataclass(frozen=True)
class Sample:
    """``job`` makes the launch of one case; ``source`` has the kernel, unless Numba makes it."""

    name: str
    kernel: str
    job: Callable[[Sample, tuple[int, ...]], Job]
    cases: tuple[tuple[int, ...], ...]
    numba: bool = False
    eps: float = float(np.finfo(np.float32).eps)
    source: Path = SOURCE
    architectures: tuple[str, ...] = ptx.ARCHITECTURES

    def module(self, arch: str = "sm_80") -> ptx.Module:
        return _numba(self.kernel, arch) if self.numba else cuda(arch, self.source)

    def run(
        self, case: tuple[int, ...] = (), module: ptx.Module | None = None, **options: Any
    ) -> tuple[ptx.Counts, Array, Array]:
        """The counts, what the kernel gave, and what it must; of the first case unless told."""
        job, module = self.job(self, case or self.cases[0]), module or self.module()
        counts = module.launch(self.kernel, *job[:3], job.shared, **options)
        return counts, np.asarray(job.result), job.wanted

    def errors(self, module: ptx.Module, **options: Any) -> list[float]:
        """Relative error of every case, in units of eps; inf where it is not even finite."""
        found = []
        for case in self.cases:
            _, result, wanted = self.run(case, module, **options)
            scale = np.abs(wanted).max(initial=0) or 1.0
            error = float(np.abs(result - wanted).max(initial=0) / scale / self.eps)
            found.append(error if np.isfinite(error) else np.inf)
        return found


@cache
def cuda(arch: str = "sm_80", source: Path = SOURCE) -> ptx.Module:
    return compiled(source, arch)


def compiled(source: Path | str, arch: str = "sm_80") -> ptx.Module:
    """A file of samples, or its text with changes."""
    text = source.read_text() if isinstance(source, Path) else source
    return ptx.compile(source, arch, names=INSTANCES if "void squared_gram(" in text else ())


@cache
def _numba(kernel: str, arch: str) -> ptx.Module:
    from numba import types

    from . import numba_samples

    f, i = types.float32, types.int64

    def array(dtype: Any, ndim: int) -> Any:
        return types.Array(dtype, ndim, "C")

    signatures = {
        "squared_gram": (array(f, 3), array(f, 3)),
        "sinkhorn": (array(f, 3), array(f, 2), f, i),
        "row_sums": (array(f, 2), array(f, 1)),
        "histogram": (array(i, 1), array(i, 1)),
    }
    return ptx.compile(getattr(numba_samples, kernel), arch, signature=signatures[kernel])


def launched(
    body: str, parameters: str, args: Any, grid: Any = 1, block: Any = 32, **options: Any
) -> ptx.Counts:
    """Run a kernel of which only the body is given."""
    source = f'extern "C" __global__ void kernel({parameters}) {{\n{body}\n}}\n'
    return ptx.compile(source).launch("kernel", grid, block, args, **options)


def _features(*shape: int, dtype: Any = np.float32) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype)


def _gram(sample: Sample, case: tuple[int, ...]) -> Job:
    batch, n, d = case
    X = _features(batch, n, d, dtype=np.float64 if "double" in sample.kernel else np.float32)
    K = ptx.empty((batch, n, n), X.dtype)
    tiles = -(-n // 16)
    args = [X, K] if sample.numba else [X, K, i32(n), i32(d)]
    wide = X.astype(np.float64)
    wanted = (wide @ wide.swapaxes(1, 2)) ** 2
    return Job((tiles, tiles, batch), (16, 16), args, K, wanted)


def _sinkhorn(sample: Sample, case: tuple[int, ...]) -> Job:
    batch, n, iterations = case
    X = _features(batch, n, 8)
    K = ((X @ X.swapaxes(1, 2)) ** 2).astype(np.float32)
    weights = ptx.empty((batch, n))
    target = f32(1 / n)
    a = np.ones((batch, n))
    for _ in range(iterations):
        a = a / np.sqrt(a * (K.astype(np.float64) @ a[..., None])[..., 0] * n)
    if sample.numba:
        return Job(batch, 64, [K, weights, target, iterations], weights, a)
    args = [K, weights, i32(n), target, f32(0.5), i32(iterations)]
    return Job(batch, 32, args, weights, a, shared=8 * n)


def _total(sample: Sample, case: tuple[int, ...]) -> Job:
    (n,) = case
    x, total = np.abs(_features(n, dtype=np.float64)), np.zeros(1)
    return Job(-(-n // 128), 128, [x, total, i32(n)], total, x.sum(keepdims=True))


def _row_sums(sample: Sample, case: tuple[int, ...]) -> Job:
    rows, columns = case
    x = _features(rows, columns)
    # Rows without a positive element, with zeros only, and with one small positive element.
    x = -np.abs(x)
    x[1:2] = 0
    places = np.arange(2, rows)
    x[places, places * 53 % columns] = 0.5
    sums = ptx.empty(rows)
    args = [x, sums] if sample.numba else [x, sums, i32(rows), i32(columns)]
    wanted = x.astype(np.float64).sum(axis=1)
    if not sample.numba:
        wanted[:2] = -1
    return Job(-(-rows // 4), 128, args, sums, wanted)


def _count_sketch(sample: Sample, case: tuple[int, ...]) -> Job:
    n, d, k = case
    rng = np.random.default_rng(d)
    x, out = _features(n, d), ptx.empty((n, k))
    bucket = rng.integers(0, k, d).astype(np.int32)
    sign = rng.choice([-1.0, 1.0], d).astype(np.float32)
    args = [x, bucket, sign, out, i32(d), i32(k)]
    wanted = np.zeros((n, k))
    np.add.at(wanted.T, bucket, (sign * x).T)
    return Job(n, 32, args, out, wanted, shared=4 * k)


def _signed_root(sample: Sample, case: tuple[int, ...]) -> Job:
    rows, quads = case
    x = _features(rows, 4 * quads)
    x[-1] = 0
    out = ptx.empty(x.shape)
    threads = 64 if quads > 32 else 32
    wide = np.sign(x) * np.sqrt(np.abs(x.astype(np.float64)))
    norm = np.linalg.norm(wide, axis=1, keepdims=True)
    wanted = wide / np.where(norm == 0, 1, norm)
    return Job(rows, threads, [x, out, i32(quads)], out, wanted)


def _transpose(sample: Sample, case: tuple[int, ...]) -> Job:
    rows, columns = case
    x, out = _features(rows, columns), ptx.empty((columns, rows))
    grid = (-(-columns // 16), -(-rows // 16))
    return Job(grid, (16, 16), [x, out, i32(rows), i32(columns)], out, x.T)


def _last_block_sum(sample: Sample, case: tuple[int, ...]) -> Job:
    blocks, n = case
    x, total = _features(n), ptx.empty(1)
    args = [x, ptx.empty(blocks), np.zeros(1, np.uint32), total, i32(n)]
    return Job(blocks, 32, args, total, x.astype(np.float64).sum(keepdims=True))


def _histogram(sample: Sample, case: tuple[int, ...]) -> Job:
    n, bins = case
    values = np.random.default_rng(n).integers(0, bins, n)
    counted = np.zeros(bins, np.int64)
    wanted = np.bincount(values, minlength=bins)
    return Job(-(-n // 64), 64, [values, counted], counted, wanted)


def _product(sample: Sample, case: tuple[int, ...]) -> Job:
    return Job(*products.launch(sample.kernel, *products.features(sample.kernel, case)))


DOUBLE = float(np.finfo(np.float64).eps)
SAMPLES = (
    Sample("gram", "squared_gram<float>", _gram, ((2, 19, 17), (1, 33, 1))),
    Sample("gram-double", "squared_gram<double>", _gram, ((2, 18, 17),), eps=DOUBLE),
    Sample("sinkhorn", "sinkhorn", _sinkhorn, ((2, 37, 2), (1, 6, 2), (1, 3, 1), (1, 5, 0))),
    Sample("total", "total", _total, ((300,), (128,), (1,)), eps=DOUBLE),
    Sample("row-sums", "row_sums", _row_sums, ((9, 300), (3, 70), (1, 1))),
    Sample("count-sketch", "count_sketch", _count_sketch, ((2, 70, 20), (2, 20, 70), (1, 1, 1))),
    Sample("signed-root", "signed_root", _signed_root, ((2, 70), (3, 1), (1, 64))),
    Sample("transpose", "transpose", _transpose, ((20, 35), (1, 1))),
    Sample("last-block-sum", "last_block_sum", _last_block_sum, ((40, 1500), (1, 7))),
    Sample("numba-gram", "squared_gram", _gram, ((2, 19, 21), (1, 17, 1)), numba=True),
    Sample("numba-sinkhorn", "sinkhorn", _sinkhorn, ((2, 37, 2), (1, 4, 1), (1, 5, 0)), numba=True),
    Sample("numba-row-sums", "row_sums", _row_sums, ((9, 300), (3, 70), (1, 1)), numba=True),
    Sample("numba-histogram", "histogram", _histogram, ((100, 7),), numba=True),
    *(
        Sample(
            kernel.replace("_", "-"),
            kernel,
            _product,
            products.CASES[kernel],
            source=products.SOURCE,
            architectures=products.ARCHITECTURES,
        )
        for kernel in products.CASES
    ),
)
BY_NAME = {sample.name: sample for sample in SAMPLES}

COUNTS = Path(__file__).with_name("counts.json")


def counted() -> dict[str, dict[str, Any]]:
    """What every sample does on its first case, for sm_80: the same on every machine."""
    found = {}
    for sample in SAMPLES:
        done, _, _ = sample.run()
        found[sample.name] = {"case": list(sample.cases[0]), **done.as_dict()}
    return found
