"""One cost model: the work and the memory of every (operation, route) as functions of the case.

``work`` counts what an algorithm must do, by kind; the counts are mathematics and are code. What
one unit of a kind costs on a backend is measured and is data (``costs.json``), so it can be fitted
to a machine's own measurements:  seconds = sum over kinds of count x coefficient.

Kinds, counted for one image:

    product    multiply-adds in matrix products, symmetric ones counted half
    eigen      d^3 + 512 d^2 of symmetric eigen-decompositions (columns wait for each other)
    svd        n d min(n, d) of thin singular value decompositions
    inverse    d^3 of matrix inverses
    transform  k log2 k of real Fourier transforms of length k
    scatter    elements added at a hashed position
    matvec     elements of a symmetric matrix read by mat-vecs
    stream     elements read or written once by element-wise work
    call       library calls (on a device: launches)
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from math import inf, log2
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import InvalidInput
from ..problem.cases import Case
from ..problem.routes import find
from ..problem.vocabulary import Backend, Dtype

KINDS = ("product", "eigen", "svd", "inverse", "transform", "scatter", "matvec", "stream", "call")

FLOPS = {
    "product": 2.0,
    "eigen": 9.0,
    "svd": 6.0,
    "inverse": 2.0,
    "transform": 2.5,
    "scatter": 2.0,
    "matvec": 4.0,
    "stream": 1.0,
}
"""Floating-point operations in one unit of a kind (a half-read symmetric element serves twice)."""

# Products of the fixed-length square-root iterations, by dtype (implementations/shared/roots.py).
ROOT_PRODUCTS = {
    "newton": {"float32": 8, "float64": 12},
    "newton-schulz": {"float32": 48, "float64": 111},
    "polar": {"float32": 20, "float64": 48},
}
NEWTON_INVERSES = {"float32": 5, "float64": 7}

# Intermediate results that are streamed, not held whole, stay below this many bytes; the second
# moment that the moment route scatters stays below twice as many.
CHUNK_BYTES = 4 * 2**20

RESIDENT_BYTES = 2**26
"""More than the shared memory of all multiprocessors of a GPU."""


class Work(NamedTuple):
    """Counts by kind, and the elements held at once beyond input and output, per image."""

    counts: dict[str, float]
    held: float

    def __add__(self, other: Any) -> Work:
        """One after the other: counts add, the larger holding stays."""
        counts = {
            kind: self.counts.get(kind, 0.0) + other.counts.get(kind, 0.0)
            for kind in {**self.counts, **other.counts}
        }
        return Work(counts, max(self.held, other.held))


def work(operation: str, route: str, case: Case) -> Work:
    """What one call must do for one image of the case."""
    known = find(operation, route)
    if isinstance(known, str):
        raise InvalidInput(f"{operation} has no route {route!r}: {known}.")
    if operation == "power_sketch":
        return _power_sketch(route, case)
    return _WORK[operation, route](case)


def seconds(
    backend: str,
    operation: str,
    route: str,
    case: Case,
    prices: Mapping[str, float] | None = None,
) -> float:
    """Predicted time of one call; ``prices`` are coefficients other than those shipped."""
    prices = prices or coefficients(backend, case.dtype)
    counts = counts_of(backend, {operation: route}, case)
    return sum(prices[kind] * count for kind, count in counts.items())


def counts_of(backend: str, steps: Mapping[str, str], case: Case) -> dict[str, float]:
    """Units of every kind of work of operations by their routes, for the whole batch."""
    data = _data(backend)
    # A call may do the whole batch, whether all of it is held at once or not.
    calls = 1 if data["whole_batch"] or data.get("batched_calls") else case.batch
    found: dict[str, float] = {}
    for operation, route in steps.items():
        for kind, count in work(operation, route, case).counts.items():
            found[kind] = found.get(kind, 0.0) + count * (calls if kind == "call" else case.batch)
    return found


def flops(operation: str, route: str, case: Case) -> float:
    """Nominal floating-point operations of one call, by the usual count of each kind."""
    counts = work(operation, route, case).counts
    return case.batch * sum(FLOPS.get(kind, 0.0) * count for kind, count in counts.items())


def bytes_moved(operation: str, route: str, case: Case) -> float:
    """Bytes that element-wise work, mat-vecs and scatters read or write; products reuse theirs, and
    so do mat-vecs with a K that stays on the chip."""
    counts, held = work(operation, route, case)
    size = case.dtype.result.bytes
    stays = route == "dense-resident" and held * size <= RESIDENT_BYTES
    kinds = ("scatter", "stream") if stays else ("matvec", "scatter", "stream")
    return case.batch * sum(counts.get(kind, 0.0) for kind in kinds) * size


def peak_bytes(backend: str, operation: str, route: str, case: Case) -> int:
    """Predicted memory of one call beyond its input and output."""
    images = case.batch if _data(backend)["whole_batch"] else min(case.batch, 1)
    size = case.dtype.result.bytes
    return int(images * work(operation, route, case).held * size)


def is_modelled(backend: str) -> bool:
    """Whether there are coefficients of this backend or of its device.

    Where there are none, those of the host serve to plan a race (what to try first, how long to
    wait), and nothing that they predict is shown or decides.
    """
    return backend in _stored() or Backend(backend).device in _DEVICES


def coefficients(backend: str, dtype: str) -> dict[str, float]:
    """Seconds per unit of each kind; a backend without its own takes those of its device."""
    found: dict[str, float] = _data(backend)["seconds"][Dtype(dtype).result]
    return found


def _data(backend: str) -> dict[str, Any]:
    everything = _stored()
    device = _DEVICES.get(Backend(backend).device, "cpu")
    entry: dict[str, Any] = everything.get(backend) or everything[device]
    return entry


_DEVICES = {"cpu": "cpu", "ptx": "cpu", "interpreter": "cpu", "cuda": "cuda"}
"""Those that have a cost model, and its name."""


@cache
def _stored() -> dict[str, Any]:
    text = Path(__file__).with_name("costs.json").read_text()
    stored: dict[str, Any] = json.loads(text)["backends"]
    return stored


def _dense(c: Case) -> Work:
    counts = {
        "product": c.n * c.n * c.d / 2,
        "matvec": max(c.iterations, 1) * c.n * c.n / 2,
        "stream": 2.0 * c.n * c.n,
        "call": 3 + 2 * c.iterations,
    }
    return Work(counts, c.n * c.n)


def _matrix_free(c: Case) -> Work:
    rounds = max(c.iterations, 1)
    counts = {
        "product": 1.5 * rounds * c.n * c.d * c.d,
        "stream": 3 * rounds * c.n * c.d,
        "call": 6 * rounds,
    }
    return Work(counts, 2 * c.d * c.d + _chunk(c, c.n * c.d))


def _pool(c: Case) -> Work:
    if c.order == 1:
        return Work({"stream": c.n * c.d, "call": 1}, 0)
    counts = {"product": c.n * c.d * c.d / 2, "stream": 2 * c.n * c.d + c.d * c.d, "call": 3}
    return Work(counts, _chunk(c, c.n * c.d))


def _sketch(c: Case) -> Work:
    counts = {
        "transform": 3 * c.n * _transform(c.k),
        "scatter": 2 * c.n * c.d,
        "stream": 6 * c.n * c.k,
        "call": 8,
    }
    return Work(counts, _chunk(c, 4 * c.n * c.k))


def _pool_sketch_fft(c: Case) -> Work:
    counts = {
        "transform": (2 * c.n + 1) * _transform(c.k),
        "scatter": 2 * c.n * c.d,
        "stream": 6 * c.n * c.k,
        "call": 10,
    }
    return Work(counts, _chunk(c, 4 * c.n * c.k))


def _pool_sketch_moment(c: Case) -> Work:
    moment = min(c.d * c.d, 2 * _chunk(c, inf))
    return _pool(c) + Work({"scatter": c.d * c.d, "call": 4}, moment + _chunk(c, 5 * c.d * c.d))


def _eigh_of_a(c: Case) -> Work:
    counts = {"eigen": _eigen(c.d), "product": c.d**3 / 2, "stream": 4 * c.d**2, "call": 5}
    return Work(counts, 3 * c.d**2)


def _root(name: str) -> Callable[[Case], Work]:
    def count(c: Case) -> Work:
        products = ROOT_PRODUCTS[name][c.dtype.result]
        inverses = NEWTON_INVERSES[c.dtype.result] if name == "newton" else 0
        counts = {
            "product": products * float(c.d**3),
            "inverse": inverses * float(c.d**3),
            "stream": 3.0 * (products + inverses) * c.d**2,
            "call": 3.0 * (products + inverses),
        }
        return Work(counts, 6 * c.d**2)

    return count


def _gram_vectors(c: Case) -> Work:
    counts = {
        "eigen": _eigen(c.n),
        "product": c.n * c.n * c.d * 1.5,
        "stream": c.n * c.n + 2 * c.n * c.d,
        "call": 5,
    }
    return Work(counts, 3 * c.n * c.n + c.n * c.d)


def _svd_vectors(c: Case) -> Work:
    rank = min(c.n, c.d)
    counts = {"svd": float(c.n * c.d * rank), "stream": 3.0 * c.n * c.d, "call": 3}
    return Work(counts, 2 * c.n * c.d + 3 * rank * rank)


def _eigh_vectors(c: Case) -> Work:
    counts = {"eigen": _eigen(c.d), "stream": c.d**2, "call": 3}
    return _pool(c) + Work(counts, 3 * c.d**2)


_VECTORS = {"eigh": _eigh_vectors, "gram": _gram_vectors, "svd": _svd_vectors}


def _from_vectors(name: str) -> Callable[[Case], Work]:
    """A^p as the outer product of min(n, d) scaled eigenvectors."""

    def count(c: Case) -> Work:
        rank = min(c.n, c.d)
        outer = Work({"product": rank * c.d**2 / 2, "stream": rank * c.d, "call": 3}, 0)
        return _VECTORS[name](c) + outer

    return count


def _given_features(of_a: Callable[[Case], Work]) -> Callable[[Case], Work]:
    """A route through A, with the pooling that makes A."""
    return lambda c: _pool(c) + of_a(c)


_MULTIPLIED = {"cublas": 2.0, "syrk": 1.0, "128": 1.0, "tf32": 3.0}
"""How many times the products of a triangle are made, by the ending of a route. That those of TF32
are faster than others the model does not know: nobody asks it, except which to try first."""


def _multiplied(count: Callable[[Case], Work], times: float) -> Callable[[Case], Work]:
    def counted(c: Case) -> Work:
        counts, held = count(c)
        return Work({**counts, "product": times * counts["product"]}, held)

    return counted


_WORK: dict[tuple[str, str], Callable[[Case], Work]] = {
    ("weights", "dense"): _dense,
    ("weights", "matrix-free"): _matrix_free,
    **{("weights", f"dense-{how}"): _multiplied(_dense, t) for how, t in _MULTIPLIED.items()},
    # What blocks save by keeping K they may lose by waiting for each other: nobody has timed it.
    ("weights", "dense-resident"): _dense,
    ("pool", "direct"): _pool,
    **{("pool", how): _multiplied(_pool, times) for how, times in _MULTIPLIED.items()},
    ("sketch", "fft"): _sketch,
    ("pool_sketch", "fft"): _pool_sketch_fft,
    ("pool_sketch", "moment"): _pool_sketch_moment,
    ("matrix_power", "eigh"): _eigh_of_a,
    ("matrix_power", "newton"): _root("newton"),
    ("matrix_power", "newton-schulz"): _root("newton-schulz"),
    ("matrix_power", "polar"): _root("polar"),
    ("power", "eigh"): _from_vectors("eigh"),
    ("power", "gram"): _from_vectors("gram"),
    ("power", "svd"): _from_vectors("svd"),
    ("power", "newton"): _given_features(_root("newton")),
    ("power", "newton-schulz"): _given_features(_root("newton-schulz")),
    ("power", "polar"): _given_features(_root("polar")),
    ("normalize", "direct"): lambda c: Work({"stream": 3.0 * c.d**c.order, "call": 3}, 0),
}


def _power_sketch(route: str, c: Case) -> Work:
    """Either A^p is made and scattered, or its eigenvectors are sketched."""
    vectors, _, how = route.partition("+")
    if how == "moment":
        scatter = Work({"scatter": c.d**2, "call": 4}, c.d**2 + _chunk(c, 5 * c.d**2))
        return _WORK["power", vectors](c) + scatter
    rank = min(c.n, c.d)
    transforms = Work(
        {
            "transform": (2 * rank + 1) * _transform(c.k),
            "scatter": 2 * rank * c.d,
            "stream": 6 * rank * c.k,
            "call": 10,
        },
        rank * c.d + _chunk(c, 4 * rank * c.k),
    )
    return _VECTORS[vectors](c) + transforms


def _eigen(d: int) -> float:
    return float(d**3 + 512 * d**2)


def _transform(k: int) -> float:
    return k * log2(k + 1)


def _chunk(c: Case, elements: float) -> float:
    return min(elements, CHUNK_BYTES / c.dtype.result.bytes)
