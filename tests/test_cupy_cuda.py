"""The CUDA C kernels of cupy:cuda: their launches, what the assembler says, and their values."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cuda.bindings.nvrtc")
pytest.importorskip("cuda.pathfinder")

import demopool as dp
from demopool import ptx, reference
from demopool.conformance import tolerance
from demopool.implementations.cupy_cuda import emulated, pool, power, signatures, sketch, weights
from demopool.implementations.cupy_cuda.emulated import Emulator
from demopool.implementations.shared import grids, images
from demopool.implementations.shared.grids import Shape
from demopool.implementations.shared.table import kernel_table
from demopool.problem.routes import ROUTES

Array = Any
FLOATS = (np.float32, np.float64)
i32, u32 = np.int32, np.uint32


def _features(*shape: int, dtype: Any = np.float32) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype)


def _close(found: Array, wanted: Array, units: float = 64) -> None:
    eps = np.finfo(found.dtype).eps
    assert np.abs(found - wanted).max() <= units * eps * np.abs(wanted).max()


# --- what kernels take ---


@pytest.fixture(scope="module", params=["float", "double"])
def everything(request: pytest.FixtureRequest) -> tuple[str, ptx.Module]:
    """All kernels for one T."""
    instances = signatures.instances(request.param)
    return request.param, ptx.compile(signatures.SOURCE, "sm_80", names=instances)


def test_parameters_read_from_the_source_are_those_of_the_ptx(
    everything: tuple[str, ptx.Module],
) -> None:
    ctype, module = everything
    widths = {"8": 1, "16": 2, "32": 4, "64": 8}
    for kernel, wanted in signatures.parameters().items():
        there = module.kernel(f"{kernel}<{ctype}>").params
        assert len(there) == len(wanted), kernel
        for parameter, found in zip(wanted, there, strict=True):
            bits = re.sub(r"\D", "", found.type)
            if parameter.is_array:
                assert bits == "64", (kernel, parameter)
                continue
            dtype = parameter.dtype(ctype)
            assert widths[bits] == dtype.itemsize, (kernel, parameter)
            assert (found.type[0] == "f") == (dtype.kind == "f"), (kernel, parameter)


def test_the_source_and_the_launches_agree_on_sizes() -> None:
    there = dict(re.findall(r"constexpr unsigned (\w+) = (\d+);", signatures.SOURCE.read_text()))
    for name in ("THREADS", "TILE", "BLOCK", "WARP", "FEATURES"):
        assert int(there[name]) == getattr(grids, name)
    kinds = re.search(r"enum Kind \{ (.*) \}", signatures.SOURCE.read_text())
    assert kinds is not None
    assert kinds[1].split(", ") == ["SQUARE", "RECTIFY", "KEEP"]
    assert (weights.SQUARE, weights.RECTIFY, pool._KEEP) == (0, 1, 2)


V, OUT = np.zeros((2, 8), np.float32), np.zeros(2, np.float32)
ONE = Shape(2, (256,))

WRONG_LAUNCHES: dict[str, tuple[Shape, tuple[Any, ...], type[Exception], str]] = {
    "an argument is missing": (ONE, (V, OUT, u32(8)), TypeError, "takes 4 arguments; got 3"),
    "a Python number": (ONE, (V, OUT, 8, u32(1)), TypeError, "values must be uint32; got int"),
    "a wider number": (ONE, (V, OUT, np.int64(8), u32(1)), TypeError, "uint32; got int64"),
    "another dtype": (ONE, (V, OUT.astype(float), u32(8), u32(1)), TypeError, "out must be float"),
    "integers": (ONE, (V.astype(int), OUT, u32(8), u32(1)), TypeError, "V is int64"),
    "not in one piece": (ONE, (V[:, ::2], OUT, u32(4), u32(1)), TypeError, "contiguous"),
    "column by column": (ONE, (np.asfortranarray(V), OUT, u32(8), u32(1)), TypeError, "row by"),
    "a number for an array": (ONE, (V, np.float32(0), u32(8), u32(1)), TypeError, "an array"),
    "an array for a number": (ONE, (V, OUT, np.array([8], u32), u32(1)), TypeError, "a number"),
    "too many blocks": (Shape(2**31, (256,)), (V, OUT, u32(8), u32(1)), ValueError, "blocks"),
    "too many threads": (Shape(1, (32, 64)), (V, OUT, u32(8), u32(1)), ValueError, "threads"),
    "too much shared memory": (
        Shape(1, (256,), 200_000),
        (V, OUT, u32(8), u32(1)),
        ValueError,
        "shared memory",
    ),
}


@pytest.mark.parametrize("what", WRONG_LAUNCHES)
def test_a_launch_that_would_go_wrong_without_a_word_says_so(what: str) -> None:
    shape, args, problem, word = WRONG_LAUNCHES[what]
    with pytest.raises(problem, match=word):
        Emulator().run("largest", shape, *args)


# --- launches ---

_LARGEST = 2**34
"""Features that a GPU can hold."""

SIZES = [
    (count, n, d)
    for n, d in [(1, 1), (49, 512), (784, 512), (196, 2048), (65536, 512)]
    for count in (1, 8, 4000)
    if count * n * d <= _LARGEST
]


@pytest.mark.parametrize("arch", ptx.ARCHITECTURES)
@pytest.mark.parametrize(("count", "n", "d"), SIZES)
def test_every_launch_is_within_the_limits_of_every_device(
    arch: str, count: int, n: int, d: int
) -> None:
    most = ptx.LIMITS[arch].shared_per_block
    for dtype in FLOATS:
        size = np.dtype(dtype).itemsize
        shapes = [
            grids.flat(count * n),
            grids.per_image(count, n * d)[1],
            grids.per_image(count * n, 8192)[1],
            grids.products(count * grids.triangle(n)),
            grids.products(grids.triangle(d)),
            grids.rows(count, n)[1],
            grids.chunks(count, d * d)[1],
            grids.scatters(count, d, 8192, size, most)[1],
            grids.scatters(count, d, 65536, size, most)[1],
        ]
        for shape in shapes:
            assert 1 <= shape.blocks <= grids.MOST_BLOCKS
            assert int(np.prod(shape.threads)) <= grids.MOST_THREADS
            assert shape.shared <= most


@pytest.mark.parametrize(
    ("arch", "n"), [("sm_75", 126), ("sm_80", 202), ("sm_90", 239), ("sm_120", 157)]
)
def test_how_large_an_image_one_block_can_hold(arch: str, n: int) -> None:
    most = ptx.LIMITS[arch].shared_per_block
    assert grids.small_image_bytes(n, 4) <= most < grids.small_image_bytes(n + 1, 4)


@pytest.mark.parametrize("arch", ptx.ARCHITECTURES)
def test_kernels_spill_nothing_and_float32_is_not_worked_on_in_double(arch: str) -> None:
    """Compiled with the options that CuPy gives NVRTC."""
    instances = [*signatures.instances("float"), *signatures.instances("double")]
    module = ptx.compile(signatures.SOURCE, arch, names=instances)
    needs = ptx.assemble(module)
    for instance in instances:
        found = needs[module.names[instance]]
        assert found.spilled_bytes == found.stack_bytes == 0, instance
        assert found.registers * grids.BLOCK <= 65536, instance
        assert found.shared_bytes <= grids.SHARED_BYTES, instance
        if instance.endswith("<float>"):
            code = module.kernel(instance).code
            assert not [ins.text for ins in code if "f64" in ins.modifiers], instance


# --- values: other architectures, other sizes ---


@pytest.mark.parametrize("arch", ["sm_75", "sm_120"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_other_architectures_give_the_same(
    arch: str, dtype: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(emulated, "EMULATOR", Emulator(arch))
    ops, X = dp.backend("cupy:ptx"), _features(2, 70, 9, dtype=dtype)
    h = dp.hashes(9, k=16)
    _close(ops.weights(X, route="dense"), reference.weights(X))
    _close(ops.weights(X[0], route="dense"), reference.weights(X[0]))
    _close(ops.weights(X, route="matrix-free"), reference.weights(X))
    _close(ops.pool(X[0]), reference.pool(X[0]))
    _close(ops.pool_sketch(X, h, route="moment"), reference.pool_sketch(X, h))
    _close(ops.pool_sketch(X, h, route="fft"), reference.pool_sketch(X, h))
    _close(ops.normalize(X), reference.normalize(X))


@pytest.mark.parametrize("count", [1, 2])
def test_many_features_take_several_blocks_for_each_image(count: int) -> None:
    """n beyond the shared memory of a block, and partial tiles on every side."""
    X, ops = _features(count, 210, 70), dp.backend("cupy:ptx")
    found = ops.weights(X, route="dense", iterations=3)
    error = np.abs(found / reference.weights(X, iterations=3) - 1).max(axis=-1)
    assert (error <= tolerance.for_weights(X, "float32", iterations=3)).all()


def test_one_image_comes_out_exactly_symmetric() -> None:
    X = _features(1, 40, 131)
    found = dp.backend("cupy:ptx").pool(X)
    _close(found, reference.pool(X))
    np.testing.assert_array_equal(found, found.swapaxes(1, 2))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("k", [8192, 50_000])
def test_sketches_beyond_what_a_block_gets_without_asking(dtype: Any, k: int) -> None:
    """k = 8192 in float64 is 64 kB of shared memory; 50,000 do not fit into any."""
    X, h = _features(1, 5, 40, dtype=dtype), dp.hashes(40, k=k)
    found = dp.backend("cupy:ptx").pool_sketch(X, h, route="moment")
    _close(found, reference.pool_sketch(X, h))


@pytest.mark.parametrize("kind", ["signed-sqrt-l2", "l2"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_descriptors_that_do_not_fit_into_shared_memory_are_normalized(
    kind: str, dtype: Any
) -> None:
    v = _features(2, 13_000, dtype=dtype)
    v[1] *= dtype(1e-30)
    _close(dp.backend("cupy:ptx").normalize(v, kind=kind), reference.normalize(v, kind=kind))


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("route", ["eigh", "newton", "polar"])
def test_matrices_beyond_the_solvers_for_many_small_ones(route: str, count: int) -> None:
    """They go one by one, or are only multiplied."""
    X = _features(count, 60, 40, dtype=np.float64)
    found = dp.backend("cupy:ptx").power(X, route=route)
    _close(found, reference.power(X), units=20_000 if route == "polar" else 500)


def test_spectra_are_made_in_parts_where_memory_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    X, h, ops = _features(2, 23, 9), dp.hashes(9, k=16), dp.backend("cupy:ptx")
    a = np.abs(_features(2, 23)) + np.float32(0.1)
    monkeypatch.setattr(sketch, "SPECTRUM_BYTES", 4 * 16 * 4 * 2 * 5)
    _close(ops.pool_sketch(X, h, a, route="fft"), reference.pool_sketch(X, h, a))
    _close(ops.sketch(X, h), reference.sketch(X, h))


def test_the_gram_matrix_at_65536_features() -> None:
    """17 GB of K, of which chosen tiles are computed: first and last ones, each written twice."""
    n, d = 65_536, 20
    X, K = _features(1, n, d), ptx.reserve((1, n, n))
    sums = np.zeros((1, n), np.float32)
    count, side = grids.triangle(n), grids.tiles(n)
    picked = {0: (0, 0), 1: (1, 0), count - side: (side - 1, 0), count - 1: (side - 1, side - 1)}
    blocks = [(tile,) for tile in picked]
    args = (X, K, sums, u32(n), u32(d), u32(count), i32(weights.SQUARE))
    name = "gram<float>"
    emulated.compiled(name, "sm_80").launch(name, count, (16, 16), args, blocks=blocks)
    for row, column in picked.values():
        p, q = slice(64 * row, 64 * row + 64), slice(64 * column, 64 * column + 64)
        _close(K[0, p, q], (X[0, p].astype(float) @ X[0, q].T.astype(float)) ** 2)
        np.testing.assert_array_equal(K[0, p, q], K[0, q, p].T)
    # From a triangle that a library has made, and an iteration over the last rows.
    last = slice(n - 64, n)
    before = K[0, last, last].copy()
    name = "from_triangle<float>"
    args = (K, sums, u32(n), i32(pool._KEEP))
    emulated.compiled(name, "sm_80").launch(name, count, (16, 16), args, blocks=[(count - 1,)])
    np.testing.assert_array_equal(K[0, last, last], before)
    a, targets, out = (np.full((1, n), value, np.float32) for value in (1.0, 2.0, 0.0))
    per_image, shape = grids.rows(1, n)
    args = (K, targets, a, out, u32(n), u32(per_image), np.float32(0.5))
    name = "step<float>"
    emulated.compiled(name, "sm_80").launch(
        name, shape.blocks, shape.threads, args, blocks=[(shape.blocks - 1,)]
    )
    wanted = (K[0, n - 8 :].astype(float).sum(axis=1) / 2) ** -0.5
    _close(out[0, n - 8 :], wanted)


# --- the array-level code on another namespace and another device ---


@pytest.fixture
def strict() -> Any:
    """Every operation and route on arrays that refuse NumPy's, lists, and other devices'."""
    xp = pytest.importorskip("array_api_strict")
    device = xp.Device("device1")

    class StrictEmulator(Emulator):
        def raw(self, value: Any) -> Any:
            return value if isinstance(value, np.generic) else value._array

        def contiguous(self, array: Array) -> Array:
            return here(np.ascontiguousarray(array._array))

        def asarray(self, array: Any) -> Array:
            return here(array)

    def here(array: Any) -> Array:
        return xp.asarray(array, device=device)

    on = StrictEmulator()
    on.xp = xp

    def place(array: Array) -> tuple[Any, Array]:
        assert array.device == device
        return on, array

    return here, images.kernels(kernel_table(weights, pool, sketch, power), place)


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.operation}-{route.name}")
@pytest.mark.parametrize("count", [1, 2])
def test_every_route_stays_on_its_device_and_in_its_namespace(
    strict: Any, route: Any, count: int
) -> None:
    here, kernels = strict
    X = _features(count, 12, 5)
    h, kernel = dp.hashes(5, k=8), kernels[route.operation, route.name]
    prepared = sketch.prepare(h, here)
    settings = {"gamma": 0.5, "tau": 0.5, "iterations": 3, "order": 2}
    a = np.abs(_features(count, 12))
    calls: dict[str, tuple[Any, Any]] = {
        "weights": (lambda: kernel(here(X), **settings), reference.weights(X, iterations=3)),
        "pool": (lambda: kernel(here(X), here(a), order=2), reference.pool(X, a)),
        "sketch": (lambda: kernel(here(X), prepared), reference.sketch(X, h)),
        "pool_sketch": (
            lambda: kernel(here(X), prepared, here(a)),
            reference.pool_sketch(X, h, a),
        ),
        "power": (lambda: kernel(here(X), p=0.5), reference.power(X)),
        "matrix_power": (
            lambda: kernel(here(reference.pool(X).astype(np.float32)), p=0.5),
            reference.power(X),
        ),
        "power_sketch": (lambda: kernel(here(X), prepared, p=0.5), reference.power_sketch(X, h)),
        "normalize": (
            lambda: kernel(here(X), axes=2, kind="l2", overwrite=False),
            reference.normalize(X, axes=2, kind="l2"),
        ),
    }
    call, wanted = calls[route.operation]
    found = call()
    assert found.device == here(X).device
    _close(np.asarray(found._array), wanted, units=500)


def test_pooling_in_first_order_stays_there_too(strict: Any) -> None:
    here, kernels = strict
    X = _features(2, 12, 5)
    for a in (None, np.abs(_features(2, 12))):
        found = kernels["pool", "direct"](here(X), None if a is None else here(a), order=1)
        _close(np.asarray(found._array), reference.pool(X, a, order=1))
