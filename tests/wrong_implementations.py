"""Deliberately wrong implementations, each a few lines over a right backend, each to be caught.

``kind`` is the first word of the reason the engine must give. Results are changed through NumPy
and moved back, so every mistake can be made on every backend.
"""

from __future__ import annotations

import time
from typing import Any, ClassVar

import numpy as np
from ptx_samples.products import to_tf32

from demopool import Hashes
from demopool import hashes as demopool_hashes
from demopool.pooling.operations import Operations


class Wrong:
    """A backend with one mistake; everything else is passed on."""

    operation: ClassVar[str]
    route: ClassVar[str]
    dtype: ClassVar[str] = "float32"
    kind: ClassVar[str] = "value"

    def __init__(self, ops: Operations) -> None:
        self.right = ops

    def __getattr__(self, name: str) -> Any:
        return getattr(self.right, name)

    def back(self, array: Any, like: Any) -> Any:
        """A NumPy result in the dtype that ``like`` has."""
        return self.right.asarray(np.asarray(array).astype(self.right.to_numpy(like).dtype))

    def changed(self, result: Any, change: Any) -> Any:
        return self.back(change(self.right.to_numpy(result)), result)


class ReturnsZeros(Wrong):
    operation, route = "pool_sketch", "fft"

    def pool_sketch(self, *args: Any, **options: Any) -> Any:
        return self.changed(self.right.pool_sketch(*args, **options), np.zeros_like)


class ReturnsItsInput(Wrong):
    operation, route = "normalize", "direct"

    def normalize(self, v: Any, **options: Any) -> Any:
        return self.changed(v, np.copy)


class IgnoresGamma(Wrong):
    operation, route = "weights", "dense"

    def weights(self, X: Any, **options: Any) -> Any:
        return self.right.weights(X, **{**options, "gamma": 0.5})


class OneIterationTooFew(Wrong):
    operation, route = "weights", "dense"

    def weights(self, X: Any, **options: Any) -> Any:
        fewer = max(options.get("iterations", 10) - 1, 0)
        return self.right.weights(X, **{**options, "iterations": fewer})


class TransposedResult(Wrong):
    operation, route, kind = "sketch", "fft", "shape"

    def sketch(self, *args: Any) -> Any:
        return self.changed(self.right.sketch(*args), lambda t: t.swapaxes(-1, -2))


class SwappedLeadingAxes(Wrong):
    """The right shape, the images in another order."""

    operation, route = "pool", "direct"

    def pool(self, *args: Any, **options: Any) -> Any:
        return self.changed(self.right.pool(*args, **options), lambda A: A[::-1])


class Float32WorkDeclaredFloat64(Wrong):
    operation, route, dtype = "weights", "matrix-free", "float64"

    def weights(self, X: Any, **options: Any) -> Any:
        single = self.right.asarray(self.right.to_numpy(X).astype(np.float32))
        return self.back(self.right.to_numpy(self.right.weights(single, **options)), X)


class MutatesItsInput(Wrong):
    operation, route, kind = "pool", "direct", "mutation"

    def pool(self, X: Any, a: Any = None, **options: Any) -> Any:
        result = self.right.pool(X, a, **options)
        X *= 2
        return result


class RightValuesInTheWrongDtype(Wrong):
    operation, route, kind = "pool", "direct", "dtype"

    def pool(self, *args: Any, **options: Any) -> Any:
        result = self.right.pool(*args, **options)
        return self.right.asarray(self.right.to_numpy(result).astype(np.float64))


class NotAnArray(Wrong):
    operation, route, kind = "normalize", "direct", "type"

    def normalize(self, *args: Any, **options: Any) -> Any:
        return self.right.to_numpy(self.right.normalize(*args, **options)).tolist()


class IgnoresTheSecondHash(Wrong):
    operation, route = "pool_sketch", "moment"

    def pool_sketch(self, X: Any, given: Any, a: Any = None, **options: Any) -> Any:
        hashes = getattr(given, "hashes", given)
        once = Hashes(hashes.h1, hashes.s1, hashes.h1, hashes.s1, hashes.k)
        return self.right.pool_sketch(X, once, a, **options)


class ForgetsNegativeSigns(Wrong):
    operation, route = "normalize", "direct"

    def normalize(self, *args: Any, **options: Any) -> Any:
        return self.changed(self.right.normalize(*args, **options), np.abs)


class ClampsSmallWeights(Wrong):
    operation, route = "weights", "dense"

    def weights(self, *args: Any, **options: Any) -> Any:
        return self.changed(
            self.right.weights(*args, **options), lambda a: np.where(a > 0, np.maximum(a, 1e-6), 0)
        )


class WorksOnlyForBatchOne(Wrong):
    operation, route = "power", "svd"

    def power(self, *args: Any, **options: Any) -> Any:
        return self.changed(
            self.right.power(*args, **options),
            lambda Z: Z if Z.ndim < 3 or not len(Z) else np.broadcast_to(Z[:1], Z.shape),
        )


class NaNOnRankDeficiency(Wrong):
    """The square root of eigenvalues as they come, rounded-negative ones included."""

    operation, route, kind = "power", "eigh", "nonfinite"

    def power(self, X: Any, **options: Any) -> Any:
        A = self.right.to_numpy(self.right.pool(X))
        values, vectors = np.linalg.eigh(A)
        with np.errstate(invalid="ignore"):
            powers = np.where(values == 0, -1e-30, values) ** options["p"]
        return self.back((vectors * powers[..., np.newaxis, :]) @ vectors.swapaxes(-1, -2), X)


class IgnoresTheHashesItIsGiven(Wrong):
    """Like a cache of hashes by (d, k)."""

    operation, route = "pool_sketch", "fft"

    def pool_sketch(self, X: Any, hashes: Any, a: Any = None, **options: Any) -> Any:
        given = getattr(hashes, "hashes", hashes)
        return self.right.pool_sketch(X, demopool_hashes(given.d, given.k, seed=1), a, **options)


class ReturnsAViewOfItsInput(Wrong):
    operation, route, kind = "normalize", "direct", "aliasing"

    def normalize(self, v: Any, **options: Any) -> Any:
        return v if options["kind"] == "none" else self.right.normalize(v, **options)


class HidesATinyNorm(Wrong):
    operation, route = "normalize", "direct"

    def normalize(self, v: Any, **options: Any) -> Any:
        array = self.right.to_numpy(v).astype(np.float64)
        if options["kind"] != "l2":
            return self.right.normalize(v, **options)
        axes = tuple(range(-options["axes"], 0))
        norm = np.sqrt((array**2).sum(axis=axes, keepdims=True))
        return self.back(array / np.maximum(norm, 1e-8), v)


class ClampsInsteadOfCutting(Wrong):
    """Negative eigenvalues set to zero, rounding-positive ones left in."""

    operation, route, dtype = "power", "eigh", "float64"

    def power(self, X: Any, **options: Any) -> Any:
        A = self.right.to_numpy(self.right.pool(X))
        values, vectors = np.linalg.eigh(A)
        powers = np.maximum(values, 0.0) ** options["p"]
        return self.back((vectors * powers[..., np.newaxis, :]) @ vectors.swapaxes(-1, -2), X)


class NormalisesOverTheBatch(Wrong):
    operation, route = "normalize", "direct"

    def normalize(self, v: Any, **options: Any) -> Any:
        array = self.right.to_numpy(v).astype(np.float64)
        if options["kind"] == "none":
            return self.right.normalize(v, **options)
        root = np.sign(array) * np.sqrt(np.abs(array))
        return self.back(root / (np.linalg.norm(root) or 1.0), v)


class ScalesEveryRow(Wrong):
    """One factor per row changes K; only one per image may be taken out."""

    operation, route = "weights", "dense"

    def weights(self, X: Any, **options: Any) -> Any:
        rows = self.right.to_numpy(X)
        norms = np.linalg.norm(rows, axis=-1, keepdims=True)
        return self.right.weights(self.back(rows / np.where(norms > 0, norms, 1), X), **options)


class FillsOnlyOneTriangle(Wrong):
    operation, route = "pool", "direct"

    def pool(self, *args: Any, **options: Any) -> Any:
        return self.changed(self.right.pool(*args, **options), np.tril)


class GivesZeroRowsAWeight(Wrong):
    """An epsilon where a zero row should have no say."""

    operation, route = "weights", "matrix-free"

    def weights(self, *args: Any, **options: Any) -> Any:
        return self.changed(
            self.right.weights(*args, **options), lambda a: np.where(a == 0, 1e-12, a)
        )


class CannotTakeAnEmptyBatch(Wrong):
    operation, route, kind = "pool_sketch", "fft", "raised"

    def pool_sketch(self, X: Any, *args: Any, **options: Any) -> Any:
        if 0 in X.shape:
            raise IndexError("no first image")
        return self.right.pool_sketch(X, *args, **options)


class WeightsByOneProductOfTf32(Wrong):
    """Of numbers of 11 bits, without the products of what is left of them."""

    operation, route = "weights", "dense-tf32"

    def weights(self, X: Any, **options: Any) -> Any:
        return self.right.weights(self.changed(X, to_tf32), **{**options, "route": "dense"})


class PoolingByTwoProductsOfTf32(Wrong):
    """One of the two small products is forgotten: an error of 2^-12, for one of 2^-22."""

    operation, route = "pool", "tf32"

    def pool(self, X: Any, a: Any = None, *, order: int, route: str) -> Any:
        x, result = self.right.to_numpy(X), self.right.pool(X, a, order=order)
        weighted = x if a is None else x * self.right.to_numpy(a)[..., None]
        return self.back(np.swapaxes(weighted, -1, -2) @ to_tf32(x), result)


class WaitsForNothing(Wrong):
    """The work goes on after ``wait``, and who reads the result pays for it."""

    operation, route, kind = "pool", "direct", "waiting"
    _unfinished: Any = None

    def pool(self, *args: Any, **options: Any) -> Any:
        result = self.right.pool(*args, **options)
        self._unfinished = result if result.shape[-1] > 100 else None
        return result

    def to_numpy(self, array: Any) -> Any:
        if array is self._unfinished:
            self._unfinished = None
            time.sleep(0.2)
        return self.right.to_numpy(array)


WRONG: tuple[type[Wrong], ...] = tuple(Wrong.__subclasses__())
