"""What the kernels of both libraries must give beyond the conformance suite, from their PTX."""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pytest
from effort import cases

import demopool as dp
from demopool import ptx, reference
from demopool.conformance import tolerance
from demopool.implementations.shared import grids, scaling

from . import cases as cases_of
from .arrays import Array
from .arrays import random as _features
from .backends import ARCH, Backend

FLOATS = (np.float32, np.float64)


@pytest.fixture
def ops(b: Backend) -> dp.Operations:
    return dp.backend(b.ptx)


def _close(found: Array, wanted: Array, units: float = 64) -> None:
    eps = np.finfo(found.dtype).eps
    assert np.abs(found - wanted).max() <= units * eps * np.abs(wanted).max()


def _error(ops: dp.Operations, X: Array, **settings: Any) -> float:
    """Over the tolerance; not finite where a weight is not."""
    route = settings.pop("route", "matrix-free")
    found = ops.weights(X, route=route, **settings)
    wanted = reference.weights(X, **settings)
    allowed = tolerance.for_weights(X, X.dtype.name, **settings)
    return float((np.abs(found / wanted - 1).max(axis=-1) / allowed).max())


# --- numbers that are not ordinary ---


@pytest.mark.parametrize("images", cases([1, 2], [2]))
@pytest.mark.parametrize(("route", "order"), [("dense", 1), ("dense", 2), ("matrix-free", 2)])
def test_nan_features_give_nan_weights(
    ops: dp.Operations, route: str, order: int, images: int
) -> None:
    """Of their image, and of no other one."""
    X = _features(images, 12, 5)
    X[0, 3, 2] = np.nan
    found = ops.weights(X, route=route, order=order)
    assert np.isnan(found[0]).all()
    assert np.isfinite(found[1:]).all()


@pytest.mark.parametrize("values", [7, 13_000])
def test_nan_is_not_normalized_away(ops: dp.Operations, values: int) -> None:
    v = _features(3, values)
    v[0, 1] = np.nan
    v[1] = np.nan
    found = ops.normalize(v)
    assert np.isnan(found[:2]).all()
    assert np.isfinite(found[2]).all()


@pytest.mark.parametrize("kind", ["signed-sqrt-l2", "l2"])
@pytest.mark.parametrize("values", [70, 13_000])
def test_descriptors_of_subnormal_numbers(
    b: Backend, ops: dp.Operations, values: int, kind: str
) -> None:
    """Numba's kernels normalise them, in both ways to do it. CuPy's are compiled so that they count
    as zero, and give them back as they are; beside ordinary numbers they do not matter."""
    rng = np.random.default_rng(values)
    v = (rng.integers(-900, 901, (2, values)) * 2.0**-149).astype(np.float32)
    v[1, 0] = 1
    assert 0 < np.abs(v[0]).max() < np.finfo(np.float32).tiny
    found = ops.normalize(v, kind=kind)
    if b.name == "numba":
        _close(found[0], reference.normalize(v[0], kind=kind))
    else:
        np.testing.assert_array_equal(found[0], v[0])
    _close(found[1], reference.normalize(v[1], kind=kind))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("route", ["dense", "matrix-free"])
@pytest.mark.parametrize("scale", cases([1e-12, 1e12], [1e-12]))
@pytest.mark.parametrize(
    ("gamma", "tau", "iterations"), [(0.2, 0.9, 1), (0.3, 0.5, 10), (0, 0.3, 4)]
)
def test_the_scale_of_features_is_put_back_to_the_last_units(
    ops: dp.Operations,
    dtype: Any,
    route: str,
    scale: float,
    gamma: float,
    tau: float,
    iterations: int,
) -> None:
    """With so few features that nothing else rounds much."""
    X = (_features(2, 2, 1, dtype=dtype) * dtype(scale)).astype(dtype)
    assert _error(ops, X, route=route, gamma=gamma, tau=tau, iterations=iterations) <= 1


def test_weights_that_just_fit_are_not_lost_on_the_way(ops: dp.Operations) -> None:
    """The factor of the scale alone is too small for float32; the weights are not, and they have no
    more error than with tau = 0.5, for which 0.4 of this tolerance is allowed."""
    X = (np.array([[-0.13], [0.64]]) * 1e12).astype(np.float32)
    settings = {"gamma": 0.0, "tau": 0.95, "iterations": 5}
    assert reference.weights(X, **settings).max() < 1e-36
    assert _error(ops, X, route="auto", **settings) <= 0.4


@pytest.mark.parametrize(("dtype", "scale"), [(np.float32, 1e-21), (np.float64, 1e-160)])
@pytest.mark.parametrize("route", ["dense", "matrix-free"])
def test_rows_of_zeros_have_no_weight_whatever_the_scale(
    ops: dp.Operations, dtype: Any, scale: float, route: str
) -> None:
    """The weights of the others do not fit the dtype, and are infinite."""
    X = _features(1, 5, 3, dtype=dtype) * dtype(scale)
    X[0, 2] = 0
    found = ops.weights(X, gamma=0.0, route=route)
    assert found[0, 2] == 0
    assert np.isinf(found[0, [0, 1, 3, 4]]).all()


def _rotated(n: int, d: int, *, live: int, faint: float, dtype: Any) -> Array:
    """Every sixth row is ``faint`` and orthogonal to all others, in no coordinate of its own: of d
    coordinates ``live`` are not zero, and they are rotated."""
    rng = np.random.default_rng(n + d + live)
    X, half = np.zeros((n, d)), live // 2
    X[:, :half] = rng.standard_normal((n, half))
    X[::6, :half] = 0
    X[::6, half:live] = faint * rng.standard_normal((len(X[::6]), live - half))
    X[:, :live] = X[:, :live] @ np.linalg.qr(rng.standard_normal((live, live)))[0]
    return X.astype(dtype)


@pytest.mark.parametrize(
    ("d", "live", "faint", "gamma", "tau", "dtype"),
    [
        (12, 12, 1e-3, 0.0, 1.0, np.float32),
        (12, 12, 1e-3, 0.0, 0.9, np.float32),
        (12, 12, 0.1, 0.0, 1.0, np.float32),
        (40, 4, 1e-2, 0.0, 1.0, np.float32),
        (64, 2, 0.03, 0.5, 0.5, np.float32),
        (12, 12, 1e-6, 0.0, 1.0, np.float64),
    ],
)
def test_rows_in_directions_that_others_do_not_have(
    ops: dp.Operations, d: int, live: int, faint: float, gamma: float, tau: float, dtype: Any
) -> None:
    """Their forms x^T M x cancel at first. With large tau they then gain weights with which those
    of all others do: which rows must be summed exactly is another question in every iteration."""
    X = _rotated(48, d, live=live, faint=faint, dtype=dtype)
    assert _error(ops, X, gamma=gamma, tau=tau) <= 1


@pytest.mark.parametrize("scale", [1e-9, 1e9])
def test_such_rows_at_other_scales_and_in_batches(ops: dp.Operations, scale: float) -> None:
    images = [_rotated(48, 12, live=12, faint=f, dtype=np.float32) for f in (1e-3, 0.1)]
    X = np.stack(images) * np.float32(scale)
    assert _error(ops, X, gamma=0.0, tau=0.9, iterations=4) <= 1


def test_an_image_of_one_colour(ops: dp.Operations) -> None:
    """All terms of a sum are the same, and so are the signs of their rounding errors."""
    X = np.full((2, 2048, 1), 0.9, np.float32)
    wanted = reference.pool(X)
    error = np.abs(ops.pool(X) / wanted - 1).max()
    assert error <= tolerance.for_pool(X, None, wanted, "float32", order=2)


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_power_in_two_parts_is_exact_with_every_exponent(dtype: Any) -> None:
    most = 2 - int(np.finfo(dtype).minexp) + int(np.finfo(dtype).nmant)
    for power in map(Fraction, ("1/10", "1/3", "1999/1000", "4", "-7/10")):
        first, rest = scaling.in_two_parts(power, dtype)
        assert abs(Fraction(first) + Fraction(rest) - power) < 2.0**-60
        assert dtype(first) == first
        for exponent in (1, 39, most - 1, most):
            assert float(dtype(exponent) * dtype(first)) == exponent * first


# --- features that are ordinary ---


def _judged(X: Array, low: float, high: float, zero_rows: bool) -> bool:
    """Whether a row is not ordinary."""
    most = np.abs(X).max(axis=-1)
    return not ((low <= most) & (most <= high) | (zero_rows & (most == 0))).all()


def test_rows_that_are_not_ordinary_are_found(b: Backend) -> None:
    """Of both floats, which have another kernel each."""
    for dtype in FLOATS:
        for launch in cases_of.launches(b, "unordinary"):
            given = dict(zip(b.parameters(launch), launch[2], strict=True))
            X = given["X"] if b.name == "cupy" else given["bits"].view(np.float32)
            low, high = np.array([0.125, 8], dtype)
            # Beside an end of the range of float64 too.
            wide = X.astype(dtype)
            edge = np.nextafter(dtype(8), dtype(9))
            wide[(wide > 8) & np.isfinite(wide)] = edge
            for zero_rows in (False, True):
                found = np.zeros(1, np.int32)
                b.start(b.launches.unordinary(wide, found, low, high, zero_rows), counting=False)
                assert found[0] == _judged(wide, low, high, zero_rows)


@pytest.mark.parametrize("dtype", FLOATS)
def test_features_are_looked_at_as_they_are(b: Backend, ops: dp.Operations, dtype: Any) -> None:
    """Read-only, of several axes, in no image, by stride."""
    X = _features(6, 5, 9, dtype=dtype)
    X.flags.writeable = False
    look = partial(ops.implementation.looks_ordinary, low=2.0**-13, high=2.0**13)
    assert look(X)
    assert look(X.reshape(2, 3, 5, 9))
    assert look(X[:0])
    assert look(X.swapaxes(1, 2))
    assert not look(X * dtype(2.0**-20))


@pytest.mark.parametrize("route", ["dense", "matrix-free"])
def test_ordinary_features_are_read_by_the_check_and_the_products_alone(
    b: Backend, ops: dp.Operations, route: str
) -> None:
    X = _features(2, 12, 5)
    X[1, 3] = 0
    with ptx.recording() as launched:
        found = dp.describe(X, "democratic", backend=b.ptx, route=route, zero_rows="ignore")
    kernels = [one.kernel.partition("<")[0] for one in launched]
    assert kernels.count("unordinary") == 1
    assert not {"largest", "scaled", "restored"} & set(kernels)
    _close(found, reference.describe(X, "democratic"))
    with ptx.recording() as launched:
        ops.weights(X, route=route)
    assert "scaled" in [one.kernel.partition("<")[0] for one in launched]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_conv_maps_and_half_precision_are_copied_once(
    b: Backend, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For the check, weights and pooling; then they are read like any other features."""
    if (b.name, dtype) == ("numba", "float16"):
        pytest.skip("Numba has no half precision on CUDA")
    maps, copies = _features(2, 5, 4, 3).astype(dtype), []
    contiguous = np.ascontiguousarray

    def seen(array: Array, dtype: Any = None) -> Array:
        found = contiguous(array, dtype=dtype)
        if array.size == maps.size and not np.shares_memory(found, array):
            copies.append(array)
        return found

    monkeypatch.setattr(b.emulated.np, "ascontiguousarray", seen)
    with ptx.recording() as launched:
        found = dp.describe(maps, "democratic", backend=b.ptx, route="dense", layout="nchw")
    assert len(copies) == 1
    kernels = [one.kernel.partition("<")[0] for one in launched]
    assert kernels.count("unordinary") == 1
    assert not {"largest", "scaled", "restored", "copied"} & set(kernels)
    rows = maps.astype(float).reshape(2, 5, 12).swapaxes(1, 2)
    _close(found, reference.describe(rows, "democratic"))


@pytest.mark.parametrize("dtype", FLOATS)
def test_features_may_begin_anywhere_in_memory(ops: dp.Operations, dtype: Any) -> None:
    """A view into the caller's buffer, by every route of the weights and of pooling; ordinary
    features are read where they are. The first row is nearly orthogonal to the others, so that it
    is summed exactly without K."""
    n, d = 16, 8
    X = _features(1, n, d, dtype=dtype)[0]
    X[1:, 0], X[0] = X[1:, 1], 0
    X[0, :2] = 0.01, -0.01
    buffer = np.empty(n * d + 2, dtype)
    start = 1 if buffer[1:].ctypes.data % 16 else 2
    view = buffer[start : start + n * d].reshape(n, d)
    view[:] = X
    routes = [key for key in ops.implementation.kernels if key[0] in ("weights", "pool")]
    for operation, route in routes:
        if not ops.supports(operation, route=route, dtype=X.dtype.name):
            continue
        how = {"route": route} | ({"ordinary": True} if operation == "weights" else {})
        call = partial(getattr(ops, operation), **how)
        np.testing.assert_array_equal(call(view), call(X))
    _close(ops.weights(view, route="matrix-free", ordinary=True), reference.weights(X))


# --- other architectures, other sizes ---


# The oldest for one library and the newest for the other where time is short.
OTHERS = [arch for arch in ptx.ARCHITECTURES if arch != ARCH]
ARCHITECTURES = cases(
    list(product(("cupy", "numba"), OTHERS, FLOATS)),
    [("cupy", "sm_75", np.float64), ("numba", "sm_120", np.float32)],
)


@pytest.mark.parametrize(("b", "arch", "dtype"), ARCHITECTURES, indirect=["b"])
def test_other_architectures_give_the_same(
    b: Backend, ops: dp.Operations, arch: str, dtype: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(b.emulated, "EMULATOR", type(b.emulated.EMULATOR)(arch))
    X, h = _features(2, 70, 9, dtype=dtype), dp.hashes(9, k=16)
    _close(ops.weights(X, route="dense", iterations=3), reference.weights(X, iterations=3))
    _close(ops.weights(X, route="matrix-free"), reference.weights(X))
    _close(ops.pool(X), reference.pool(X))
    _close(ops.pool_sketch(X, h, route="moment"), reference.pool_sketch(X, h))
    _close(ops.normalize(X), reference.normalize(X))
    if b.name == "cupy":
        _close(ops.weights(X[0], route="dense"), reference.weights(X[0]))
        _close(ops.pool(X[0]), reference.pool(X[0]))
        _close(ops.pool_sketch(X, h, route="fft"), reference.pool_sketch(X, h))


@pytest.mark.parametrize("count", cases([1, 2], [2]))
def test_many_features_take_several_blocks_for_each_image(
    b: Backend, ops: dp.Operations, count: int
) -> None:
    """n beyond the shared memory of a block, and partial tiles on every side."""
    X = _features(count, 210 if b.max_shared else 131, 70)
    assert _error(ops, X, route="dense", iterations=3) <= 1


@pytest.mark.parametrize("count", cases([1, 2], [2]))
def test_pooled_features_are_exactly_symmetric(ops: dp.Operations, count: int) -> None:
    X, a = _features(count, 20, 131), np.abs(_features(count, 20))
    found = ops.pool(X, a)
    _close(found, reference.pool(X, a))
    np.testing.assert_array_equal(found, found.swapaxes(1, 2))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("k", [8192, 50_000])
def test_sketches_beyond_what_a_block_gets_without_asking(
    ops: dp.Operations, dtype: Any, k: int
) -> None:
    """k = 8192 in float64 is 64 kB of shared memory; 50,000 do not fit into any."""
    X, h = _features(1, 5, 40, dtype=dtype), dp.hashes(40, k=k)
    _close(ops.pool_sketch(X, h, route="moment"), reference.pool_sketch(X, h))


@pytest.mark.parametrize("kind", ["signed-sqrt-l2", "l2"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_descriptors_that_do_not_fit_into_shared_memory_are_normalized(
    ops: dp.Operations, kind: str, dtype: Any
) -> None:
    v = _features(2, 13_000, dtype=dtype)
    v[1] *= dtype(1e-30)
    _close(ops.normalize(v, kind=kind), reference.normalize(v, kind=kind))


@pytest.mark.parametrize("count", cases([1, 2], [2]))
@pytest.mark.parametrize("route", ["eigh", "newton", "polar"])
def test_matrices_beyond_the_solvers_for_many_small_ones(
    cupy: Backend, route: str, count: int
) -> None:
    """They go one by one, or are only multiplied."""
    X = _features(count, 60, 40, dtype=np.float64)
    found = dp.backend(cupy.ptx).power(X, route=route)
    _close(found, reference.power(X), units=20_000 if route == "polar" else 500)


def test_spectra_are_made_in_parts_where_memory_is_short(
    cupy: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    from demopool.implementations.cupy_cuda import sketch

    X, h = _features(2, 23, 9), dp.hashes(9, k=16)
    a = np.abs(_features(2, 23)) + np.float32(0.1)
    monkeypatch.setattr(sketch, "SPECTRUM_BYTES", 4 * 16 * 4 * 2 * 5)
    ops = dp.backend(cupy.ptx)
    _close(ops.pool_sketch(X, h, a, route="fft"), reference.pool_sketch(X, h, a))
    _close(ops.sketch(X, h), reference.sketch(X, h))


@pytest.mark.parametrize(("processors", "shared"), [(1, False), (108, True)])
@pytest.mark.parametrize("dtype", FLOATS)
def test_blocks_share_tiles_where_a_gpu_has_more_multiprocessors(
    b: Backend, dtype: Any, processors: int, shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tile for each of five images: one multiprocessor runs four blocks at once, or two. Of 300
    columns each of two blocks has some whole slabs, and the last one a tail."""
    emulator = type(b.emulated.EMULATOR)(processors=processors)
    monkeypatch.setattr(b.emulated, "EMULATOR", emulator)
    ops, X = dp.backend(b.ptx), _features(5, 300, 20, dtype=dtype)
    a = np.abs(_features(5, 300, dtype=dtype))
    features = np.ascontiguousarray(X.swapaxes(1, 2))
    with ptx.recording() as launched:
        _close(ops.pool(X, a), reference.pool(X, a))
        _close(ops.pool(X), reference.pool(X))
        for order in (1, 2):
            assert _error(ops, features, route="dense", order=order, iterations=2) <= 1
    kernels = [one.kernel.partition("<")[0] for one in launched]
    for name in ("gram", "outer"):
        assert kernels.count(f"{name}_parts" if shared else name) == 2
        assert (name in kernels) != shared
    assert kernels.count("from_parts") == (4 if shared else 0)


def test_the_gram_matrix_at_65536_features(b: Backend) -> None:
    """17 GB of K, of which chosen tiles are computed: first and last ones, each written twice."""
    n, d = 65_536, 20
    X, K, sums = _features(1, n, d), ptx.reserve((1, n, n)), b.row_sums(1, n)
    count, side = grids.triangle(n), grids.tiles(n)
    picked = {0: (0, 0), 1: (1, 0), count - side: (side - 1, 0), count - 1: (side - 1, side - 1)}
    b.start(b.launches.gram(X, K, sums, b.launches.SQUARE), blocks=[(tile,) for tile in picked])
    for row, column in picked.values():
        p, q = slice(64 * row, 64 * row + 64), slice(64 * column, 64 * column + 64)
        _close(K[0, p, q], (X[0, p].astype(float) @ X[0, q].T.astype(float)) ** 2)
        np.testing.assert_array_equal(K[0, p, q], K[0, q, p].T)
    if b.name == "cupy":  # from a triangle that a library has made
        last = slice(n - 64, n)
        before = K[0, last, last].copy()
        b.start(b.launches.from_triangle(K, sums, b.launches.KEEP), blocks=[(count - 1,)])
        np.testing.assert_array_equal(K[0, last, last], before)
    # An iteration over the last rows.
    a, targets, out = (np.full((1, n), value, np.float32) for value in (1.0, 2.0, 0.0))
    launch = b.launches.step(K, targets, a, out, 0.5)
    b.start(launch, blocks=[(launch[1].blocks - 1,)])
    _close(out[0, n - 8 :], (K[0, n - 8 :].astype(float).sum(axis=1) / 2) ** -0.5)
