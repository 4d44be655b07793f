"""Pooling with the final norm in one call: the promise ``pools_normalized``, kept and broken."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import demopool as dp
from demopool import reference
from demopool.conformance import tolerance
from demopool.conformance.engine import Target, check_cell, laws_of
from demopool.conformance.laws_of_norms import NORMALIZED
from demopool.contract import registry
from demopool.errors import InvalidInput
from demopool.implementations.numpy_cpu.implementation import NumpyImplementation
from demopool.pooling.operations import Operations
from demopool.problem.vocabulary import NORMALIZATIONS, State

Array = Any
_kernels = NumpyImplementation.kernels
PROMISING = ("numpy:cpu", "numba:cpu", "torch:cpu", "cupy:ptx")
kinds = pytest.mark.parametrize("kind", ["signed-sqrt-l2", "l2"])


@pytest.fixture(params=PROMISING)
def ops(request: pytest.FixtureRequest) -> Operations:
    found = registry.probe(request.param)
    if found.state != "ok":
        pytest.skip(f"{request.param}: {found.reason}")
    return dp.backend(request.param)


def _pooled(ops: Operations, X: Array, a: Array = None, **options: Any) -> Array:
    given = None if a is None else ops.asarray(a)
    return ops.to_numpy(ops.pool(ops.asarray(X), given, **options))


def _whole(*shape: int) -> Array:
    """Small integers: their products and sums are exact, in any order."""
    return np.random.default_rng(sum(shape)).integers(-1, 2, shape).astype(np.float32)


@kinds
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_result_is_that_of_two_steps(ops: Operations, dtype: str, kind: str) -> None:
    """Of one image and of several, of matrices of one tile and of more; in float32 of integers,
    whose products do not round."""
    assert ops.implementation.pools_normalized
    for *batch, n, d in ((3, 1), (2, 4, 3), (9, 64), (2, 9, 65), (1, 2, 5, 130), (3, 300, 20)):
        X = _whole(*batch, n, d).astype(dtype)
        a = np.random.default_rng(0).integers(0, 3, X.shape[:-1]).astype(dtype) ** 2
        before = X.copy()
        for weights in (None, a):
            found = _pooled(ops, X, weights, norm=kind)
            wanted = reference.normalize(reference.pool(X, weights), axes=2, kind=kind)
            allowed = float(tolerance.for_normalize(dtype, d * d))
            assert np.abs(found - wanted).max() <= allowed * np.abs(wanted).max()
            np.testing.assert_array_equal(found, found.swapaxes(-1, -2))
            assert found.dtype == dtype
        np.testing.assert_array_equal(X, before)


@kinds
@pytest.mark.parametrize("ops", ["numpy:cpu", "numba:cpu", "cupy:ptx"], indirect=True)
@pytest.mark.parametrize("images", [1, 2])
@pytest.mark.parametrize("d", [5, 100])
def test_sums_that_leave_the_range(ops: Operations, d: int, images: int, kind: str) -> None:
    x = np.linspace(-1, 1, d)
    for dtype, scales in (("float32", (0, 1e-15, 1e-13, 1e18)), ("float64", (1e-150, 1e152))):
        for scale in scales:
            X = np.tile((x * scale).astype(dtype), (images, 1, 1))
            found = _pooled(ops, X, norm=kind)
            wanted = reference.normalize(np.outer(x, x), axes=2, kind=kind) * (scale > 0)
            # The product rounds too, and of a root near zero half of the digits are left.
            eps = float(np.finfo(dtype).eps)
            np.testing.assert_allclose(found, np.tile(wanted, (images, 1, 1)), atol=4 * eps**0.5)


@pytest.mark.parametrize("ops", ["numpy:cpu", "numba:cpu", "torch:cpu"], indirect=True)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_l2_norm_at_the_ends_of_the_range(ops: Operations, dtype: str) -> None:
    """The inverse of a subnormal norm is no number, and the norm of the largest is none itself."""
    limits = np.finfo(dtype)
    for value in (limits.smallest_subnormal, limits.tiny, limits.max):
        for axes, shape in ((1, (7,)), (1, (3, 50)), (2, (1, 10, 10)), (2, (2, 300, 300))):
            v = np.full(shape, value, dtype)
            found = ops.to_numpy(ops.normalize(ops.asarray(v), axes=axes, kind="l2"))
            size = int(np.prod(shape[-axes:]))
            allowed = float(tolerance.for_normalize(dtype, size))
            assert np.abs(found * size**0.5 - 1).max() <= allowed


@kinds
def test_an_image_has_the_same_bits_in_every_batch(ops: Operations, kind: str) -> None:
    """Of exact products: the norm adds up nothing in another order that would round."""
    X = _whole(5, 20, 130)
    loop = np.stack([_pooled(ops, image, norm=kind) for image in X])
    np.testing.assert_array_equal(_pooled(ops, X, norm=kind), loop)


def test_vectors_are_normalised_as_vectors(ops: Operations) -> None:
    X = _whole(2, 20, 70)
    for kind in NORMALIZATIONS:
        found = _pooled(ops, X, order=1, norm=kind)
        both = ops.normalize(ops.pool(ops.asarray(X), order=1), kind=kind)
        np.testing.assert_array_equal(found, ops.to_numpy(both))


def test_no_norm_is_the_product(ops: Operations) -> None:
    X = _whole(2, 20, 70)
    np.testing.assert_array_equal(_pooled(ops, X, norm="none"), _pooled(ops, X))


def test_a_norm_that_is_none(ops: Operations) -> None:
    with pytest.raises(InvalidInput, match="norm must be one of signed-sqrt-l2, l2, none"):
        _pooled(ops, _whole(2, 20, 70), norm="max")


@pytest.mark.parametrize("route", ["cublas", "syrk", "128", "tf32"])
@kinds
def test_every_way_to_multiply_keeps_the_promise(route: str, kind: str) -> None:
    """Integers up to 9 have 11 bits: tensor cores do not round either."""
    if registry.probe("cupy:ptx").state != "ok":
        pytest.skip("cupy:ptx is not here")
    ops, X = dp.backend("cupy:ptx"), _whole(2, 9, 130)
    found = _pooled(ops, X, norm=kind, route=route)
    np.testing.assert_array_equal(found, _pooled(ops, X, norm=kind))


# --- a backend that says it can and cannot ---


def _product(X: Array, a: Array) -> Array:
    return _kernels["pool", "direct"](X, a, order=2)


def _forgets(X: Array, a: Array, *, order: int, norm: str = "none") -> Array:
    return _kernels["pool", "direct"](X, a, order=order)


def _has_one_norm(X: Array, a: Array, *, order: int, norm: str = "none") -> Array:
    norm = norm if norm == "none" else "l2"
    return _kernels["pool", "direct"](X, a, order=order, norm=norm)


def _writes_one_triangle(X: Array, a: Array, *, order: int, norm: str = "none") -> Array:
    found = _kernels["pool", "direct"](X, a, order=order, norm=norm)
    return found if norm == "none" else np.tril(found)


def _adds_one_triangle(X: Array, a: Array, *, order: int, norm: str = "none") -> Array:
    if norm == "none" or order == 1:
        return _kernels["pool", "direct"](X, a, order=order)
    A = _product(X, a)
    roots = np.sign(A) * np.sqrt(np.abs(A)) if norm == "signed-sqrt-l2" else A
    lengths = np.linalg.norm(np.tril(roots).astype(np.float64), axis=(-2, -1), keepdims=True)
    return (roots / lengths).astype(A.dtype)


def _has_one_sum(X: Array, a: Array, *, order: int, norm: str = "none") -> Array:
    """For all images of a batch."""
    found = _kernels["pool", "direct"](X, a, order=order, norm=norm)
    images = 1 if norm == "none" or order == 1 else found.size // found.shape[-1] ** 2
    return found / found.dtype.type(max(1, images)) ** 0.5


def _works_in_its_input(X: Array, a: Array, *, order: int, norm: str = "none") -> Array:
    found = _kernels["pool", "direct"](X, a, order=order, norm=norm)
    if norm != "none":
        X *= 2
    return found


@pytest.mark.parametrize(
    ("kernel", "reason"),
    [
        (_forgets, "law"),
        (_has_one_norm, "law"),
        (_writes_one_triangle, "law"),
        (_adds_one_triangle, "law"),
        (_has_one_sum, "law"),
        (_works_in_its_input, "mutation"),
    ],
)
def test_a_false_promise_is_caught(kernel: Any, reason: str) -> None:
    class Promising(NumpyImplementation):
        kernels = {**_kernels, ("pool", "direct"): kernel}  # noqa: RUF012

    ops = Operations("numpy:cpu", Promising())
    verdict = check_cell(Target(ops, "pool", "direct", 2, "float32"))
    assert verdict.state is State.WRONG
    assert NORMALIZED in verdict.where
    assert verdict.reason.startswith(reason)


def test_no_promise_no_law() -> None:
    def older(X: Array, a: Array, *, order: int) -> Array:
        return _kernels["pool", "direct"](X, a, order=order)

    class Modest(NumpyImplementation):
        pools_normalized = False
        kernels = {**_kernels, ("pool", "direct"): older}  # noqa: RUF012

    ops = Operations("numpy:cpu", Modest())
    assert NORMALIZED not in laws_of(Target(ops, "pool", "direct", 2, "float32"))
    X = np.random.default_rng(0).standard_normal((20, 70))
    found = ops.pool(X, norm="signed-sqrt-l2")
    np.testing.assert_allclose(found, reference.normalize(X.T @ X, axes=2), rtol=1e-12)
