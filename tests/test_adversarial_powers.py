"""Powers are finite, or a sentence, and as right as they say: on images that networks give and on
worse ones, by every route, on every backend of the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from effort import cases
from hypothesis import given, settings

import demopool as dp
from demopool import reference
from demopool.conformance import tolerance
from demopool.conformance.features import real
from demopool.contract import capabilities, registry
from demopool.implementations.shared import accuracy
from demopool.problem.routes import Sizes

BACKENDS = [
    name for name in ("numpy:cpu", "numba:cpu", "torch:cpu") if name in registry.available()
]
EMULATED = [name for name in ("cupy:ptx", "numba:ptx") if name in registry.available()]
Image = np.ndarray[Any, Any]


# --- images ---


def _rectified(rng: np.random.Generator, n: int, d: int) -> Image:
    return np.maximum(rng.standard_normal((n, d)), 0.0)


def _zero_rows(rng: np.random.Generator, n: int, d: int) -> Image:
    return _rectified(rng, n, d) * (rng.random((n, 1)) < 0.2)


def _dead_channels(rng: np.random.Generator, n: int, d: int) -> Image:
    return _rectified(rng, n, d) * (rng.random(d) < 0.3)


def _constant(rng: np.random.Generator, n: int, d: int) -> Image:
    return np.full((n, d), rng.uniform(0.1, 2.0))


def _nearly_constant(rng: np.random.Generator, n: int, d: int) -> Image:
    return 0.7 + 10.0 ** rng.uniform(-9, -1) * rng.standard_normal((n, d))


def _low_rank(rng: np.random.Generator, n: int, d: int) -> Image:
    rank = int(rng.integers(1, 4))
    return _rectified(rng, n, rank) @ rng.standard_normal((rank, d))


def _exactly_low_rank(rng: np.random.Generator, n: int, d: int) -> Image:
    rank = int(rng.integers(1, 4))
    return (rng.integers(-3, 4, (n, rank)) @ rng.integers(-3, 4, (rank, d))).astype(float)


def _duplicated(rng: np.random.Generator, n: int, d: int) -> Image:
    X = rng.standard_normal((n, d))[rng.integers(0, (n + 3) // 4, n)]
    return X[:, rng.integers(0, (d + 1) // 2, d)]


def _graded(rng: np.random.Generator, n: int, d: int) -> Image:
    """A spectrum without a gap, from 1 far below what the dtype resolves."""
    left, right = (np.linalg.qr(rng.standard_normal((m, m)))[0] for m in (n, d))
    r = min(n, d)
    return (left[:, :r] * np.logspace(0, -rng.uniform(2, 20), r)) @ right[:r]


def _scaled_rows(rng: np.random.Generator, n: int, d: int) -> Image:
    return _rectified(rng, n, d) * 10.0 ** rng.uniform(-6, 0, (n, 1))


def _nothing(rng: np.random.Generator, n: int, d: int) -> Image:
    return np.zeros((n, d))


FAMILIES = (
    *(_zero_rows, _dead_channels, _constant, _nearly_constant, _low_rank, _exactly_low_rank),
    *(_duplicated, _graded, _scaled_rows, _nothing),
)


def _usable(name: str, X: Image, p: float) -> list[str]:
    sizes = Sizes(X.shape[-2], X.shape[-1], p)
    rows = [row for row in capabilities.table((name,)) if row.operation == "power"]
    dtype = X.dtype.name
    return [
        row.route
        for row in rows
        if capabilities.supports(name, "power", route=row.route, dtype=dtype, sizes=sizes)
    ]


def _excess(found: Image, wanted: Image, allowed: Any) -> float:
    """How much of the tolerance is used; NaN, which is never ``<= 1``, if a value is not finite."""
    largest = np.abs(wanted).max()
    error = np.abs(found.astype(float) - wanted).max() / (largest or 1.0)
    return float(error / allowed) if allowed > 0 else (0.0 if error == 0 else np.inf)


@pytest.mark.parametrize("name", BACKENDS)
@settings(max_examples=cases(3_000, 60))
@given(
    st.sampled_from(FAMILIES),
    st.integers(1, 40),
    st.integers(1, 40),
    st.integers(0, 2**32 - 1),
    st.sampled_from(["float16", "float32", "float64"]),
    st.sampled_from([0.01, 0.05, 0.1, 0.3, 0.5, 0.5, 0.9, 1.0]),
    st.integers(-12, 12),
)
def test_finite_and_as_right_as_promised(
    name: str,
    family: Callable[..., Image],
    n: int,
    d: int,
    seed: int,
    dtype: str,
    p: float,
    scale: int,
) -> None:
    X = family(np.random.default_rng(seed), n, d)
    X = (X * (1.0 if dtype == "float16" else 10.0**scale)).astype(dtype)
    ops, wanted, spectrum = dp.backend(name), reference.power(X, p=p), reference.spectrum(X)
    for route in _usable(name, X, p):
        found = ops.to_numpy(ops.power(ops.asarray(X), p=p, route=route))
        allowed = tolerance.for_power(spectrum, n, wanted, dtype, p=p, route=route)
        assert _excess(found, wanted, float(allowed)) <= 1, route


@settings(max_examples=cases(1_000, 40))
@given(
    st.sampled_from(FAMILIES),
    st.integers(1, 40),
    st.integers(1, 40),
    st.integers(0, 2**32 - 1),
    st.sampled_from([0.01, 0.1, 0.5, 0.9, 1.0]),
)
def test_gradients_are_finite(
    family: Callable[..., Image], n: int, d: int, seed: int, p: float
) -> None:
    torch = pytest.importorskip("torch")
    ops = dp.backend("torch:cpu")
    image = family(np.random.default_rng(seed), n, d).astype(np.float32)
    for route in ("eigh", "gram", "svd"):
        X = torch.tensor(image, requires_grad=True)
        ops.power(X, p=p, route=route).square().sum().backward()
        assert torch.isfinite(X.grad).all(), route


# --- what was seen ---


@pytest.mark.parametrize("p", [0.1, 0.5])
@pytest.mark.parametrize("route", ["eigh", "gram", "svd"])
@pytest.mark.parametrize("name", BACKENDS)
def test_constant_images_of_usual_size(name: str, route: str, p: float) -> None:
    """Off by 0.3 of the largest entry, and by 70 times it, when float32 was taken at its word."""
    X, ops = np.full((300, 256), 0.7, np.float32), dp.backend(name)
    wanted = reference.power(X, p=p)
    found = ops.to_numpy(ops.power(ops.asarray(X), p=p, route=route))
    assert np.abs(found - wanted).max() <= accuracy.ACCURACY * wanted.max()


@pytest.mark.parametrize("rows", [True, False], ids=["zero rows", "dead channels"])
def test_torch_where_mkl_gives_up(rows: bool) -> None:
    """27 of 40 such images raised, and 5 were NaN. Finite with gradients, alone, in a batch, in a
    module, and where no value can be asked for."""
    torch = pytest.importorskip("torch")
    from demopool.torch import MatrixPowerPool

    X = np.maximum(np.random.default_rng(0).standard_normal((12, 196, 256)), 0.0)
    chosen = np.random.default_rng(1).random(X.shape[1] if rows else X.shape[2]) < 0.9
    X[:, chosen if rows else slice(None), slice(None) if rows else chosen] = 0.0
    features = torch.tensor(X, dtype=torch.float32, requires_grad=True)
    ops = dp.backend("torch:cpu")
    found = ops.power(features, route="eigh")
    found.square().sum().backward()
    wanted = reference.power(features.detach().numpy())
    limit = accuracy.ACCURACY * np.abs(wanted).max(axis=(-2, -1))
    assert torch.isfinite(features.grad).all()
    assert (np.abs(found.detach().numpy() - wanted).max(axis=(-2, -1)) <= limit).all()
    blind = torch.func.vmap(lambda image: ops.power(image, route="eigh"))(features.detach())
    assert (np.abs(blind.numpy() - wanted).max(axis=(-2, -1)) <= limit).all()
    assert torch.isfinite(MatrixPowerPool(0.5, layout="nd")(features.detach())).all()


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("route", ["eigh", "gram", "svd"])
def test_a_hard_image_changes_nothing_for_its_neighbours(name: str, route: str) -> None:
    """To the last bit, but for torch, whose product of one image is another than of several."""
    rng, ops = np.random.default_rng(0), dp.backend(name)
    hard = [make(rng, 30, 20) for make in FAMILIES]
    X = np.stack([*hard, rng.standard_normal((30, 20))]).astype(np.float32)
    for p in (0.1, 0.5):
        batch = ops.to_numpy(ops.power(ops.asarray(X), p=p, route=route))
        for one, image in zip(batch, X, strict=True):
            alone = ops.to_numpy(ops.power(ops.asarray(image), p=p, route=route))
            spectrum = reference.spectrum(image)
            allowed = tolerance.for_power(spectrum, 30, alone, "float32", p=p, route=route)
            limit = 2 * float(allowed) * alone.max() if name == "torch:cpu" else 0.0
            assert np.abs(one - alone).max() <= limit


@pytest.mark.parametrize("name", BACKENDS)
def test_what_is_not_finite_stays_so_and_stays_where_it_is(name: str) -> None:
    X, ops = np.ones((3, 6, 4), np.float32), dp.backend(name)
    X[0, 0, 0], X[1, 2, 3] = np.nan, np.inf
    for route in ("eigh", "gram", "svd"):
        found = ops.to_numpy(ops.power(ops.asarray(X), p=0.1, route=route))
        assert np.isnan(found[:2]).all()
        assert np.isfinite(found[2]).all()


@pytest.mark.parametrize("name", BACKENDS)
def test_a_solver_that_finds_nothing_is_a_sentence(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "torch:cpu":
        torch = pytest.importorskip("torch")
        module, error = torch.linalg, torch.linalg.LinAlgError
    else:
        from scipy import linalg

        module, error = linalg, linalg.LinAlgError

    def give_up(*_: Any, **__: Any) -> Any:
        raise error("did not converge")

    monkeypatch.setattr(module, "eigh", give_up)
    X, ops = np.random.default_rng(0).standard_normal((2, 9, 5)), dp.backend(name)
    found = ops.to_numpy(ops.power(ops.asarray(X), route="eigh"))
    np.testing.assert_allclose(found, reference.power(X), atol=1e-12 * found.max())
    monkeypatch.setattr(module, "svd", give_up)
    with pytest.raises(dp.Unsupported, match="no eigenvectors"):
        ops.power(ops.asarray(X), route="eigh")


def test_the_judge_holds_implementations_to_what_they_promise() -> None:
    assert tolerance.PROMISED == accuracy.ACCURACY


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("exponent", [-30, 30])
def test_squares_that_leave_the_range_of_float32(name: str, exponent: int) -> None:
    X = np.random.default_rng(0).standard_normal((2, 12, 5))
    X = (X * 2.0 ** (3 * exponent)).astype(np.float32)
    ops, wanted = dp.backend(name), reference.power(X)
    for route in _usable(name, X, 0.5):
        found = ops.to_numpy(ops.power(ops.asarray(X), route=route))
        allowed = tolerance.for_power(
            reference.spectrum(X), 12, wanted, "float32", p=0.5, route=route
        )
        assert (
            np.abs(found - wanted).max(axis=(-2, -1)) / wanted.max(axis=(-2, -1)) <= allowed
        ).all()


@pytest.mark.parametrize("name", [name for name in BACKENDS if name.startswith("torch")])
def test_norms_of_large_descriptors(name: str) -> None:
    """torch's own norm of such a matrix is off by 2e-5."""
    X, ops = np.array(real("X448")), dp.backend(name)
    A = reference.pool(X).astype(np.float32)
    found = ops.to_numpy(ops.normalize(ops.asarray(A), axes=2, kind="l2"))
    allowed = float(tolerance.for_normalize("float32", A[0].size))
    wanted = reference.normalize(A, axes=2, kind="l2")
    assert np.abs(found / np.where(wanted > 0, wanted, 1) - (wanted > 0)).max() <= allowed


# --- contributions and bounds ---


@pytest.mark.parametrize("name", [*BACKENDS, *EMULATED])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_contributions_and_bounds_are_those_of_the_reference(name: str, dtype: str) -> None:
    ops, rng = dp.backend(name), np.random.default_rng(0)
    if not ops.supports("power", dtype=dtype):
        pytest.skip(f"{name} has no {dtype}")
    small, route = name in EMULATED, "polar" if name == "numba:ptx" else "eigh"
    sets = [rng.standard_normal((2, 12, 5)), _dead_channels(rng, 9, 12), np.zeros((1, 3, 2))]
    if not small:
        sets += [real("X224"), np.zeros((0, 4, 3))]
    if not small and dtype != "float16":
        sets += [1e-12 * sets[0], 1e12 * sets[0]]
    if route == "polar":  # up to 48 emulated products for each
        sets = [rng.standard_normal((4, 3))]
    for X in sets:
        X = X.astype(dtype)
        a = rng.uniform(0.1, 2.0, X.shape[:-1]).astype(np.result_type(dtype, np.float32))
        here, weights = ops.asarray(X), ops.asarray(a)
        for p, order, given_a in [
            *((p, 2, None) for p in ((0.5, 1.0) if small else (0.1, 0.5, 1.0))),
            *((1.0, order, given_a) for order in (1, 2) for given_a in (None, a)),
        ]:
            how = {"p": p, "order": order, "route": route}
            found = ops.contributions(here, None if given_a is None else weights, **how)
            wanted = reference.contributions(X, given_a, p=p, order=order)
            facts = ops.implementation.inspect(found)
            assert facts is not None
            assert facts.dtype == np.result_type(dtype, np.float32).name
            _judge(ops.to_numpy(found), wanted, X, given_a, dtype, **how)
        if dtype == "float64" or float(np.abs(X).max(initial=1.0)) < 1e6:
            for p in (0.5, 1.0):
                _judge_bounds(ops, X, here, dtype, p, route)


def _judge(found: Image, wanted: Image, X: Image, a: Any, dtype: str, **options: Any) -> None:
    allowed = tolerance.for_contributions(X, a, wanted, dtype, **options)
    scale = np.abs(wanted).max(axis=-1, initial=0.0)
    error = np.abs(found - wanted).max(axis=-1, initial=0.0)
    assert found.shape == wanted.shape
    assert (error <= allowed * scale).all(), options


def _judge_bounds(ops: Any, X: Image, here: Any, dtype: str, p: float, route: str) -> None:
    """The spectrum is that of float64, rounded; what is made of C moves as C does."""
    found, wanted = ops.bounds(here, p=p, route=route), reference.bounds(X, p=p)
    C = reference.contributions(X, p=p)
    moved = tolerance.for_contributions(X, None, C, dtype, p=p, order=2, route=route)
    moved = moved + 4 * tolerance.unit(dtype)
    largest = np.abs(C).max(axis=-1, initial=0.0)
    tiny = np.finfo(np.result_type(dtype, np.float32)).tiny
    for name in wanted._fields:
        one, other = ops.to_numpy(getattr(found, name)), getattr(wanted, name)
        of_C = name in ("variance", "bhatia_davis", "popoviciu")
        # Products of two differences of C: each moves by 2 of its errors.
        room = 8 * moved * largest**2 if of_C else 16 * tolerance.unit(dtype) * np.abs(other)
        assert (np.abs(one - other) <= room + tiny).all(), (name, p)


@pytest.mark.parametrize("name", BACKENDS)
def test_contributions_to_a_power_have_no_weights(name: str) -> None:
    ops = dp.backend(name)
    X, a = ops.asarray(np.ones((4, 3))), ops.asarray(np.ones(4))
    with pytest.raises(dp.InvalidInput, match="p must be 1"):
        ops.contributions(X, a, p=0.5)
    with pytest.raises(dp.InvalidInput, match="p must be 1"):
        ops.contributions(X, p=0.5, order=1)
    with pytest.raises(dp.InvalidInput, match="one weight per feature"):
        ops.contributions(X, ops.asarray(np.ones(3)))


def test_arrays_without_arithmetic_are_refused_in_a_sentence() -> None:
    class Bare:
        """As device arrays of numba:cuda."""

    from demopool.pooling import preparing

    with pytest.raises(dp.Unsupported, match="have no arithmetic"):
        preparing.namespace(dp.backend("numpy:cpu"), "bounds", Bare())


def test_spectrum_of_weighted_features() -> None:
    rng = np.random.default_rng(0)
    X, a = rng.standard_normal((3, 20, 7)), rng.uniform(0.0, 2.0, (3, 20))
    found = reference.spectrum(X, a, p=0.5)
    wanted = np.linalg.eigvalsh(reference.pool(X, a))[..., ::-1]
    np.testing.assert_allclose(found**2, wanted, rtol=1e-10)
    np.testing.assert_array_equal(reference.spectrum(X, np.ones((3, 20))), reference.spectrum(X))
