"""The laws on whatever features Hypothesis comes up with."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from effort import cases
from hypothesis import given, reject, settings

from demopool import backend, hashes, reference
from demopool.conformance import tolerance
from demopool.conformance.engine import Target, laws_of, try_law
from demopool.contract import capabilities, registry
from demopool.problem.routes import Sizes
from demopool.problem.vocabulary import Backend, Dtype

# Integers of a small range: exact in every dtype, with ties, duplicates, zeros and rank deficiency.
IMAGES = st.integers(1, 12).flatmap(
    lambda n: st.integers(1, 6).flatmap(
        lambda d: st.lists(
            st.lists(st.integers(-4, 4), min_size=d, max_size=d), min_size=n, max_size=n
        )
    )
)

LAWS = [
    (row, dtype, law)
    for row in capabilities.table()
    for dtype in cases(row.dtypes, row.dtypes and ("float32",))
    if not Dtype(dtype).is_half  # integers up to 4 are the same in all of them
    if Backend(row.backend).is_timed  # others are too slow for hundreds of examples each
    for law in laws_of(Target(None, row.operation, row.route, row.order, dtype))  # type: ignore[arg-type]
]


def _ident(value: object) -> str:
    if isinstance(value, capabilities.CapabilityRow):
        return f"{value.backend}-{value.operation}-{value.route}-{value.order}"
    return str(value)


@pytest.mark.parametrize(("row", "dtype", "law"), cases(LAWS, LAWS[::2]), ids=_ident)
def test_law(row: capabilities.CapabilityRow, dtype: str, law: str) -> None:
    found = registry.probe(row.backend)
    if found.state != "ok":
        pytest.skip(f"{row.backend}: {found.reason}")
    target = Target(backend(row.backend), row.operation, row.route, row.order, dtype)

    @settings(max_examples=cases(25, 8))
    @given(IMAGES)
    def holds(image: list[list[int]]) -> None:
        X = np.array(image, dtype=dtype)
        sizes = Sizes(*X.shape, 0.5)  # type: ignore[misc]
        if not capabilities.supports(
            row.backend, row.operation, route=row.route, dtype=dtype, order=row.order, sizes=sizes
        ):
            reject()
        claim = try_law(target, law, X)
        assert claim.error <= claim.allowed

    holds()


@given(IMAGES, st.sampled_from([0.0, 0.4, 1.0]), st.sampled_from([0.3, 0.5, 1.0]))
def test_all_routes_of_an_operation_agree(image: list[list[int]], gamma: float, p: float) -> None:
    ops = backend("numpy:cpu")
    X = np.array(image, dtype=np.float64)
    dense, free = (ops.weights(X, gamma=gamma, route=r) for r in ("dense", "matrix-free"))
    np.testing.assert_allclose(dense, free, rtol=1e-11)
    h = hashes(X.shape[1], k=7, seed=5)
    size = max(float((X**2).sum()), 1.0)
    fft, moment = (ops.pool_sketch(X, h, dense, route=r) for r in ("fft", "moment"))
    np.testing.assert_allclose(fft, moment, atol=1e-12 * size * max(dense.max(), 1.0))
    wanted = reference.power(X, p=p)
    allowed = tolerance.for_power(reference.spectrum(X), len(X), wanted, "float64", p=p, route="")
    for route in ("eigh", "gram", "svd"):
        powers = ops.power(X, p=p, route=route)
        bound = 2 * float(allowed) * float(np.abs(wanted).max())
        np.testing.assert_allclose(powers, wanted, atol=bound)


@given(IMAGES, st.integers(0, 6))
def test_convergence_law_of_the_reference(image: list[list[int]], iterations: int) -> None:
    """``max |log s|`` never rises, for any tau in (0, 1]."""
    X = np.array(image, dtype=np.float64)
    X = X[(X != 0).any(axis=1)]
    if not len(X):
        return
    K = reference.kernel(X)
    target = K.sum(axis=-1) ** 0.3

    def residual(T: int) -> float:
        a = reference.weights(X, gamma=0.3, tau=0.8, iterations=T)
        return float(np.abs(np.log(a * (K @ a) / target)).max())

    assert residual(iterations + 1) <= residual(iterations) + 1e-12
