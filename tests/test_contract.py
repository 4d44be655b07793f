"""What users and scripts rely on: hashes, capabilities, threads, the registry and plug-ins."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from inspect import signature
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

import demopool as dp
from demopool.contract import capabilities, registry
from demopool.errors import BackendUnavailable, Unsupported
from demopool.problem.candidates import Subject
from demopool.problem.operations import OPERATIONS
from demopool.problem.routes import ROUTES, demand, descriptor_routes, join, split, steps_of
from demopool.problem.vocabulary import BACKENDS, DESCRIPTORS, State


def test_hashes_are_pinned_for_ever() -> None:
    """Stored descriptors outlive every library: these numbers may never change."""
    h = dp.hashes(8, k=8192, seed=0)
    assert h.version == 1
    assert h.h1.tolist() == [5344, 1363, 4176, 7991, 3032, 398, 7845, 577]
    assert h.h2.tolist() == [846, 4291, 1992, 346, 171, 5266, 1999, 8098]
    assert h.s1.tolist() == [-1, -1, 1, -1, 1, -1, 1, -1]
    assert h.s2.tolist() == [1, 1, -1, 1, 1, 1, 1, 1]
    assert dp.hashes(3, k=10, seed=2**64 - 1).h1.tolist() == [3, 4, 3]


def test_hashes_are_what_they_say() -> None:
    h = dp.hashes(1000, k=37, seed=5)
    assert (h.d, h.k, h.seed) == (1000, 37, 5)
    assert h.h1.dtype == h.h2.dtype == np.int64
    assert h.s1.dtype == h.s2.dtype == np.int8
    assert h.h1.min() >= 0
    assert h.h1.max() == 36
    assert set(h.s1.tolist()) == {-1, 1}
    np.testing.assert_array_equal(dp.hashes(10, k=37, seed=5).h2, h.h2[:10])
    assert (dp.hashes(1000, k=37, seed=6).h1 != h.h1).mean() > 0.9
    assert (h.h1 != h.h2).mean() > 0.9
    with pytest.raises(ValueError, match="read-only"):
        h.h1[0] = 1


def test_hashes_spread_evenly() -> None:
    h = dp.hashes(100_000, k=10, seed=0)
    for bins in (h.h1, h.h2):
        counts = np.bincount(bins, minlength=10)
        # Chi-square with 9 degrees of freedom: 27.9 is exceeded once in a thousand.
        assert ((counts - 1e4) ** 2 / 1e4).sum() < 27.9
    for signs in (h.s1, h.s2):
        assert abs(signs.astype(int).sum()) < 3.3 * np.sqrt(100_000)


def test_prepared_hashes_give_the_same_numbers(usable: str) -> None:
    ops = dp.backend(usable)
    X = ops.asarray(np.random.default_rng(0).standard_normal((6, 5)).astype(np.float32))
    h = dp.hashes(5, k=16)
    plain, ready = ops.pool_sketch(X, h), ops.pool_sketch(X, ops.prepare(h))
    # To some units in the last place: on a GPU torch adds atomically, in no order.
    difference = np.abs(ops.to_numpy(plain) - ops.to_numpy(ready))
    assert difference.max() <= 8 * np.finfo(np.float32).eps * np.abs(ops.to_numpy(plain)).max()


def test_signatures_are_those_of_the_interface() -> None:
    assert str(signature(dp.describe)).startswith("(X: 'Any', descriptor: 'str', *, gamma: 'float'")
    defaults = {
        name: parameter.default
        for name, parameter in signature(dp.describe).parameters.items()
        if parameter.default is not parameter.empty
    }
    assert defaults == {
        "gamma": 0.5,
        "tau": 0.5,
        "iterations": 10,
        "p": 0.5,
        "k": 8192,
        "seed": 0,
        "order": 2,
        "center": False,
        "layout": None,
        "lengths": None,
        "zero_rows": "warn",
        "normalize": "signed-sqrt-l2",
        "vectorize": "full",
        "backend": "auto",
        "route": "auto",
        "check": True,
        "dtype": None,
        "accuracy": "fast",
    }
    assert list(signature(dp.hashes).parameters) == ["d", "k", "seed"]


def test_all_our_backends_are_always_listed() -> None:
    listed = {row["backend"]: row for row in dp.backends()}
    assert tuple(listed)[: len(BACKENDS)] == BACKENDS
    for row in listed.values():
        assert set(row) == {"backend", "state", "device", "versions", "reason", "install"}
        assert row["state"] == "ok" or row["reason"]
    assert listed["numpy:cpu"]["state"] == "ok"
    assert listed["numpy:cpu"]["versions"]["numpy"] == np.__version__


def test_an_absent_backend_asked_for_by_name_is_an_error() -> None:
    for name in BACKENDS:
        if registry.probe(name).state is not State.OK:
            with pytest.raises(BackendUnavailable) as caught:
                dp.backend(name)
            assert caught.value.reason


def test_supports_answers_from_the_capability_table() -> None:
    ops = dp.backend("numpy:cpu")
    assert ops.supports("weights", route="dense", dtype="float32", order=2)
    assert ops.supports("weights", route="dense", dtype=np.float64, order=1).state == "ok"
    refused = ops.supports("weights", route="matrix-free", dtype="float32", order=1)
    assert refused.state == "unsupported"
    assert "order 2" in refused.reason
    assert "bfloat16" in ops.supports("pool", dtype="bfloat16").reason


@pytest.mark.parametrize("name", [n for n in registry.names() if registry.entry(n).capabilities])
def test_table_and_kernels_agree(name: str) -> None:
    """Every route the table promises has a kernel, and no kernel is hidden from the table."""
    if registry.probe(name).state is not State.OK:
        pytest.skip(f"{name}: {registry.probe(name).reason}")
    promised = {(r.operation, r.route) for r in capabilities.table((name,)) if r.state is State.OK}
    assert promised == set(dp.backend(name).implementation.kernels)


def test_every_hole_has_a_reason() -> None:
    rows = capabilities.table()
    assert {row.operation for row in rows} == set(OPERATIONS)
    assert len(rows) == len(registry.names()) * sum(len(route.orders) for route in ROUTES)
    for row in rows:
        assert (row.state is State.OK) == bool(row.dtypes)
        assert row.state is State.OK or row.reason


@pytest.mark.parametrize("descriptor", DESCRIPTORS)
def test_descriptor_routes_split_and_join(descriptor: str) -> None:
    for route in descriptor_routes(descriptor):
        assert join(descriptor, split(descriptor, route)) == route
    assert "dense+fft" in descriptor_routes("sketched-democratic")
    assert "gram+moment" in descriptor_routes("sketched-power")
    assert descriptor_routes("sum") == ("direct", "cublas", "syrk", "128", "tf32")


def test_pooling_multiplies_as_the_weights_before_it_do() -> None:
    assert steps_of("democratic", "dense") == {"weights": "dense", "pool": "direct"}
    assert steps_of("democratic", "dense-cublas") == {"weights": "dense-cublas", "pool": "cublas"}
    assert steps_of("democratic", "auto") == {"weights": "auto", "pool": "direct"}
    assert steps_of("sum", "cublas") == {"pool": "cublas"}
    assert not [route for route in descriptor_routes("sketched-democratic") if "cublas" in route]
    with pytest.raises(Unsupported, match="for sum and democratic alone"):
        demand("sketched-democratic", "dense-cublas+moment")


def test_a_route_of_some_libraries_is_no_candidate_of_others() -> None:
    democratic = Subject("descriptor", "democratic")
    found = {str(c) for c in democratic.candidates() if c.route == "dense-cublas"}
    assert found == {"cupy:cuda/dense-cublas"}
    assert len(democratic.candidates(("theirs:cpu",))) == 2
    assert not democratic.is_raced("dense-tf32")
    assert democratic.is_raced("dense-cublas")
    X = np.ones((1, 4, 3), np.float32)
    with pytest.raises(Unsupported, match="no backend here has it"):
        dp.describe(X, "democratic", route="dense-cublas")
    with pytest.raises(Unsupported, match="does not have it"):
        dp.backend("numpy:cpu").pool(X, route="cublas")


def test_a_thousand_concurrent_calls_equal_the_serial_ones(usable: str) -> None:
    ops = dp.backend(usable)
    rng = np.random.default_rng(0)
    # The last one is large enough for BLAS to use its threads.
    sizes = [(40, 24)] * 24 + [(300, 200)]
    images = [ops.asarray(rng.standard_normal(size).astype(np.float32)) for size in sizes]
    small, large = dp.hashes(24, k=64), dp.hashes(200, k=64)

    def hashes(X: Any) -> dp.Hashes:
        return small if X.shape[-1] == 24 else large

    jobs = [
        lambda X: ops.weights(X, route="dense"),
        lambda X: ops.weights(X, route="matrix-free"),
        lambda X: ops.pool(X, ops.weights(X)),
        lambda X: ops.pool_sketch(X, hashes(X), route="fft"),
        lambda X: ops.pool_sketch(X, hashes(X), route="moment"),
        lambda X: ops.power(X, route="gram"),
        lambda X: ops.power_sketch(X, hashes(X), route="svd+fft"),
        lambda X: ops.normalize(X, axes=2),
    ]
    calls = [(job, X) for _ in range(5) for job in jobs for X in images]
    assert len(calls) == 1000
    with threadpool_limits(2), ThreadPoolExecutor(8) as pool:
        serial = [ops.to_numpy(job(X)) for job, X in calls]
        concurrent = list(pool.map(lambda call: ops.to_numpy(call[0](call[1])), calls))
    for one, other in zip(serial, concurrent, strict=True):
        if usable == "numpy:cpu":
            np.testing.assert_array_equal(one, other)
        else:
            # Threads of their own may use another number of OpenMP threads, and round otherwise.
            np.testing.assert_allclose(one, other, atol=1e-3 * float(np.abs(one).max()))


def test_an_array_of_one_library_stays_in_it() -> None:
    X = np.random.default_rng(0).standard_normal((2, 5, 4)).astype(np.float32)
    y = dp.describe(X, "democratic", backend="numpy:cpu")
    assert type(y) is np.ndarray
    assert y.dtype == np.float32
