"""A launch of each kernel to be counted, and the files of counts.

Counts are the same on every machine; a test compares them with the files, so that a kernel that
gets worse shows in the history: ``python -m tools.gpu counts --write``.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import demopool as dp
from demopool import ptx
from demopool.implementations.shared import grids

from .arrays import EVEN, Array, KernelSizes, lower, positive, random
from .backends import BACKENDS, Backend, Launch
from .made import Made

f32, i32 = np.float32, np.int32


def file(backend: str) -> Path:
    return Path(__file__).with_name(f"{backend}_counts.json")


def launch(b: Backend, name: str, z: KernelSizes = EVEN, dtype: Any = f32) -> Launch:
    chunks = 4 if name == "moments" else 2
    return Made(b, _kernel(name))(*_GIVEN[name](_Inputs(b, z, dtype)), chunks=chunks, k=z.k, P=2)


@cache
def started(b: Backend, name: str, z: KernelSizes = EVEN) -> tuple[Launch, ptx.Counts]:
    """A launch after it, and what it did: for many tests, as nothing here depends on chance."""
    done = launch(b, name, z)
    return done, b.start(done)


def names(b: Backend) -> list[str]:
    """Of the launches that are counted."""
    lacking = {"outer, with its norm"} if b.name == "numba" else set()
    return [name for name in _GIVEN if _kernel(name) in b.kernels and name not in lacking]


def _kernel(name: str) -> str:
    return name.partition(",")[0]


def counts(backend: str, every: int = 1) -> dict[str, Any]:
    """In float32, on whole tiles, for sm_80; of every so many launches."""
    b = BACKENDS[backend]
    return {name: started(b, name)[1].as_dict() for name in names(b)[::every]}


class _Inputs(NamedTuple):
    """Arrays of some sizes and a dtype; those of the libraries differ where their files of counts
    were begun with different ones."""

    b: Backend
    z: KernelSizes
    dtype: Any

    def random(self, axes: str) -> Array:
        return random(*self._shape(axes), dtype=self.dtype)

    def positive(self, axes: str) -> Array:
        return positive(*self._shape(axes), dtype=self.dtype)

    def _shape(self, axes: str) -> list[int]:
        sizes = {"i": self.z.images, "n": self.z.n, "d": self.z.d, "k": self.z.k}
        return [sizes[axis] for axis in axes]

    def rows(self, numba: int) -> Array:
        size = self.z.n * self.z.d if self.b.name == "cupy" else numba
        return random(self.z.images, size, dtype=self.dtype)

    def sums(self) -> Array:
        """Numba's are of all magnitudes, subnormal ones among them, and a zero."""
        count = self.z.images * self.z.n
        if self.b.name == "cupy":
            return positive(count, dtype=self.dtype)
        found = np.logspace(-42, 37, count).astype(self.dtype)
        found[count // 2] = 0
        return found

    def sum_of_powers(self, *values: Array) -> tuple[Any, ...]:
        """CuPy's kernels find the magnitude themselves."""
        return (*values, self.positive("i")) if self.b.name == "numba" else values

    def norms(self, chunks: int = 64) -> tuple[Array, ...]:
        """The sums of the chunks of an image with their exponents, or after the magnitude."""
        if self.b.name == "numba":
            return self.positive("i"), self.positive("id")
        sums = np.zeros((self.z.images, 2, chunks), self.dtype)
        sums[:, 0] = positive(self.z.images, chunks, dtype=self.dtype)
        sums[:, 1] = -(np.arange(chunks) % 3)
        return (sums,)

    def vectors(self) -> tuple[Array, Array]:
        """Targets, and weights of which some are zero."""
        targets, a = self.positive("in"), self.positive("in")
        if self.b.name == "numba":
            targets = self.sums().reshape(a.shape) + self.dtype(1e-44)
        a[:, 2:5] = 0
        return targets, a

    def small_image(self) -> tuple[Any, ...]:
        if self.b.name == "cupy":
            return (self.positive("inn"), *self.vectors(), 0.5, 4)
        small = self._replace(z=self.z._replace(n=min(self.z.n, 64)))
        return (*map(small.positive, ("inn", "in", "in")), 0.5, 4)

    def free(self, *, doubtful: bool) -> tuple[Array, Array, Array]:
        """X, X M and the diagonal of M; every eighth row is doubtful, or none."""
        X = self.random("ind")
        XM = X.copy()
        if doubtful:
            XM[:, ::8] *= -1
        return X, XM, np.ones(self._shape("id"), self.dtype)

    def forms(self) -> Array:
        """Of one tile of columns; three of five rows are doubtful."""
        forms = np.ones((2, *self._shape("in"), 1), self.dtype)
        forms[0] = np.arange(forms[0].size).reshape(forms[0].shape) % 5 >= 3
        return forms

    def parts(self) -> tuple[Array, Array, Array]:
        """Two of every tile, and where K and its row sums go."""
        images, n = self.z.images, self.z.n
        tiles = images * grids.triangle(n)
        shapes = ((images, n, n), (images, grids.tiles(n), n))
        results = (np.full(shape, np.nan, self.dtype) for shape in shapes)
        return random(tiles, 2, grids.TILE**2, dtype=self.dtype), *results

    def updated(self) -> tuple[Array, Array, Array]:
        a = positive(self.z.images * self.z.n, dtype=self.dtype)
        targets = a.copy()
        a[3:6] = 0
        return self.sums(), targets, a

    def hashes(self) -> Any:
        if self.b.name == "cupy":
            return self.b.prepared(dp.hashes(self.z.d, self.z.k))
        rng = np.random.default_rng(0)
        bins = [rng.integers(0, self.z.k, self.z.d) for _ in range(2)]
        signs = [rng.choice([-1, 1], self.z.d).astype(np.int8) for _ in range(2)]
        return self.b.prepared(dp.Hashes(bins[0], signs[0], bins[1], signs[1], self.z.k))


_GIVEN: dict[str, Callable[[_Inputs], tuple[Any, ...]]] = {
    "unordinary": lambda x: (x.random("ind"), 2.0**-13, 2.0**13, False),
    "largest": lambda x: (x.rows(5000),),
    "scaled": lambda x: (x.rows(10 * x.z.n), x.positive("i")),
    "restored": lambda x: (x.positive("in"), np.arange(x.z.images, dtype=i32), Fraction(0.9)),
    "gram": lambda x: (x.random("ind"),),
    "gram_parts": lambda x: (x.random("ind"),),
    "from_parts": lambda x: x.parts(),
    "from_triangle": lambda x: (lower(x.random("inn")),),
    "first_step": lambda x: (x.sums(),),
    "step": lambda x: (x.positive("inn"), *x.vectors()),
    "small_image": _Inputs.small_image,
    "resident": lambda x: (
        *(x.positive("inn"), *x.vectors()),
        *(grids.Slices(-(-x.z.n // 4), 4, 1), 0.5, 4),
    ),
    "free_sums": lambda x: x.free(doubtful=True),
    "free_step": lambda x: (*x.free(doubtful=False), *x.vectors()),
    "free_step, doubtful": lambda x: (*x.free(doubtful=True), *x.vectors()),
    "row_forms": lambda x: (x.random("ind"), x.random("idd")),
    "exact_rows": lambda x: (x.random("ind"), x.positive("in"), x.forms(), 0.5),
    "update": _Inputs.updated,
    "outer": lambda x: (x.random("idn"), x.positive("id")),
    "outer, with its norm": lambda x: (x.random("idn"), x.positive("id"), x.b.launches.LOWER_1),
    "outer_parts": lambda x: (x.random("idn"), x.positive("id")),
    "weighted_sum": lambda x: (x.random("ind"), x.positive("in")),
    "power_sums": lambda x: x.sum_of_powers(x.rows(5000)),
    "triangle_sums": lambda x: (x.random("inn"),),
    "normalized": lambda x: (x.rows(10 * x.z.n), *x.norms()),
    "normalized_triangle": lambda x: (x.random("inn"), *x.norms()),
    "normalized_at_once": lambda x: (x.rows(10 * x.z.n),),
    "count_sketch": lambda x: (x.random("ind"), x.positive("in"), x.hashes().first),
    "scatter": lambda x: (x.random("idd"), x.hashes()),
    "scatter_far": lambda x: (x.random("idd"), x.hashes()),
    "added": lambda x: (x.random("ink"),),
    "product": lambda x: (P := x.random("inn"), x.random("inn"), P, (0.5, 0.25, 2.0)),
    "moments": lambda x: (x.random("inn"),),
}
"""What launches are given, by kernel; a second launch of a kernel has a word more."""
