"""The library's launches on given arrays, with arrays for their results."""

from __future__ import annotations

import inspect
from typing import Any, NamedTuple
from unittest import mock

import numpy as np

from demopool.implementations.shared import grids

from .arrays import Array
from .backends import Backend, Launch

# The axes of the first array, and those of the results, as in an einsum: images, n, d, k, values,
# parts, tiles along n and d (t, s), and how many chunks or blocks share an image; N or D tiles in
# triangles of n or d, m in that of one image's d, P blocks that share one, and its T values; more
# groups (g) than there are. With a plus the kernel counts, or finds the largest: it starts at zero.
# What a kernel must write is NaN: nobody may read it before.
_RESULTS: dict[str, tuple[str, dict[str, str]]] = {
    "copied": ("ind", {"out": "ind"}),
    "unordinary": ("ind", {"found": "+1"}),
    "largest": ("iv", {"out": "+i"}),
    "scaled": ("iv", {"out": "iv", "exponents": "i"}),
    "restored": ("in", {"out": "in"}),
    "gram": ("ind", {"K": "inn", "sums": "itn"}),
    "gram_parts": ("ind", {"parts": "NPT"}),
    "from_triangle": ("inn", {"sums": "itn"}),
    "first_step": ("v", {"targets": "v", "a": "v"}),
    "step": ("inn", {"out": "in"}),
    "resident": ("inn", {"other": "in", "arrived": "+g"}),
    "row_forms": ("ind", {"forms": "2ins"}),
    "exact_rows": ("ind", {"sums": "in"}),
    "free_sums": ("ind", {"sums": "in"}),
    "free_step": ("ind", {"out": "in"}),
    "outer": ("ind", {"A": "idd"}),
    "outer_parts": ("ind", {"parts": "DPT"}),
    "weighted_sum": ("ind", {"out": "id"}),
    "power_sums": ("iv", {"sums": "ic"}),
    "normalized": ("iv", {"out": "iv"}),
    "normalized_at_once": ("iv", {"out": "iv"}),
    "count_sketch": ("ind", {"out": "ink"}),
    "scatter": ("idd", {"out": "ibk"}),
    "added": ("ipv", {"out": "iv"}),
    "product": ("idd", {"C": "idd"}),
    "moments": ("idd", {"traces": "ic", "squares": "ic"}),
    "bounds": ("ip", {"out": "i"}),
    "start": ("idd", {"Y": "idd", "Z": "idd"}),
    "finish": ("idd", {"out": "idd"}),
    # Of a sum with its exponent, and of triangles.
    "cupy power_sums": ("iv", {"sums": "i2c"}),
    "cupy outer": ("ind", {"A": "idd", "sums": "i2m"}),
    "triangle_sums": ("idd", {"sums": "i2c"}),
    "normalized_triangle": ("idd", {"out": "idd"}),
}
_USUAL = {"kind": 0, "gamma": 0.5, "tau": 0.5, "iterations": 10, "share": 0.25, "power": 1}


class Made(NamedTuple):
    """Makes launches of a kernel."""

    b: Backend
    kernel: str

    def __call__(self, *given: Any, chunks: int = 2, **sizes: int) -> Launch:
        """From what the launch takes besides results, in order, and the length of a sketch as k;
        so many blocks share the values of an image, as if that were longer."""
        name = self.kernel.removesuffix("_far")
        function, first, rest = getattr(self.b.launches, name), given[0], list(given)
        axes, results = _RESULTS.get(f"{self.b.name} {name}") or _RESULTS.get(name, ("", {}))
        sizes |= dict(zip(axes, first.shape, strict=False))
        args: dict[str, Any] = {}
        if name != self.kernel:  # as of a sketch for which there is not enough shared memory
            args["max_shared"] = 0
        values = max(1, first.size // len(first) // chunks)
        with mock.patch.object(grids, "_VALUES_PER_BLOCK", values):
            sizes |= _shared_by(sizes, first) | _tiles(sizes)
            return function(**args | self._given(function, results, rest, sizes, first))

    def _given(
        self, function: Any, results: dict[str, str], rest: list[Any], sizes: Any, first: Array
    ) -> dict[str, Any]:
        args: dict[str, Any] = {}
        for parameter, known in inspect.signature(function).parameters.items():
            if parameter in results:
                args[parameter] = _result(parameter, results[parameter], sizes, first.dtype)
            elif rest:
                args[parameter] = self._or_absent(rest.pop(0), first)
            elif parameter in _USUAL and known.default is inspect.Parameter.empty:
                args[parameter] = _USUAL[parameter]
        return args

    def _or_absent(self, value: Any, first: Array) -> Any:
        """To Numba's kernels weights of 1 are an array without columns."""
        no_weights = value is None and self.b.name == "numba"
        return np.zeros((len(first), 0), first.dtype) if no_weights else value


def _shared_by(sizes: dict[str, int], first: Array) -> dict[str, int]:
    """Chunks of the values of an image, and blocks of its rows."""
    chunks = grids.chunks(len(first), first.size // len(first))[0]
    if "k" not in sizes:
        return {"c": chunks}
    blocks, _ = grids.sorted_scatters(len(first), first.shape[-1], sizes["k"], 4, 0)
    return {"c": chunks, "b": blocks}


def _tiles(sizes: dict[str, int]) -> dict[str, int]:
    """Along a side, in the triangles of all images, and the values of one."""
    images, n, d = (sizes.get(axis, 1) for axis in "ind")
    both = {"N": images * grids.triangle(n), "D": images * grids.triangle(d)}
    sides = {"t": grids.tiles(n), "s": grids.tiles(d), "m": grids.triangle(d), "1": 1, "2": 2}
    return {"T": grids.TILE**2, "g": 3, **sides, **both}


def _result(name: str, axes: str, sizes: dict[str, int], dtype: Any) -> Array:
    shape = [sizes[axis] for axis in axes.lstrip("+")]
    if name in ("exponents", "found"):
        return np.full(shape, -1 if name == "exponents" else 0, np.int32)
    dtype = np.uint32 if name == "arrived" else dtype
    return np.full(shape, 0 if axes[0] == "+" else np.nan, dtype)
