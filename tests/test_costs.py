"""The cost model: it covers everything, decides sensibly, and its coefficients are data."""

from __future__ import annotations

import numpy as np
import pytest

import demopool as dp
from demopool.measurement.memory import peak_host_bytes
from demopool.problem.operations import OPERATIONS
from demopool.problem.routes import ROUTES
from demopool.profiles import auto, costs

pytestmark = pytest.mark.usefixtures("empty_profile")

VGG, RESNET = dp.Case(n=784, d=512), dp.Case(n=196, d=2048, batch=8)


@pytest.mark.parametrize("backend", ["numpy:cpu", "torch:cuda"])
@pytest.mark.parametrize("route", ROUTES, ids=lambda r: f"{r.operation}-{r.name}")
def test_every_route_has_work_time_and_memory(route: object, backend: str) -> None:
    operation, name = route.operation, route.name  # type: ignore[attr-defined]
    small = costs.seconds(backend, operation, name, dp.Case(n=64, d=64))
    large = costs.seconds(backend, operation, name, dp.Case(n=256, d=256))
    assert 0 < small < large
    assert set(costs.work(operation, name, VGG).counts) <= set(costs.KINDS)
    assert costs.peak_bytes(backend, operation, name, VGG) >= 0
    twice = costs.seconds(backend, operation, name, dp.Case(n=64, d=64, batch=2))
    assert small < twice <= 2 * small * (1 + 1e-12)
    assert costs.flops(operation, name, VGG) > 0
    assert costs.bytes_moved(operation, name, VGG) > 0


def test_flops_of_a_dense_job_by_hand() -> None:
    n, d, T = 100, 10, 4
    case = dp.Case(n=n, d=d, iterations=T)
    by_hand = n * n * d + T * 2 * n * n + 2 * n * n
    assert costs.flops("weights", "dense", case) == by_hand
    assert costs.bytes_moved("weights", "dense", case) == 4 * (T * n * n / 2 + 2 * n * n)
    # The same arithmetic, but K is written and read once, where it stays on the chip.
    assert costs.flops("weights", "dense-resident", case) == by_hand
    assert costs.bytes_moved("weights", "dense-resident", case) == 4 * 2 * n * n
    large, (dense, resident) = dp.Case(n=12544, d=64), ("dense", "dense-resident")
    moved = {route: costs.bytes_moved("weights", route, large) for route in (dense, resident)}
    assert moved[resident] == moved[dense], "no shared memory holds it"


@pytest.mark.parametrize(
    ("operation", "case", "route"),
    [
        ("weights", VGG, "dense"),
        ("weights", dp.Case(n=12544, d=64), "matrix-free"),
        ("weights", dp.Case(n=12544, d=64, order=1), "dense"),
        ("pool_sketch", VGG, "moment"),
        ("pool_sketch", RESNET, "fft"),
        ("power", RESNET, "gram"),
        ("power", dp.Case(n=12544, d=64), "eigh"),
    ],
)
def test_auto_takes_the_route_that_wins_at_each_size(
    operation: str, case: dp.Case, route: str
) -> None:
    assert _taken(operation, case) == route


def test_auto_never_picks_a_baseline_or_leaves_a_domain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even when square roots are free, another power cannot take them."""
    free = dict.fromkeys(costs.KINDS, 1.0) | {"product": 0.0, "inverse": 0.0, "stream": 0.0}
    monkeypatch.setattr(costs, "coefficients", lambda backend, dtype: free)
    assert _taken("power", VGG) in ("newton-schulz", "polar")
    assert _taken("power", dp.Case(n=784, d=512, p=0.3)) in ("eigh", "gram", "svd")


def test_coefficients_are_data(monkeypatch: pytest.MonkeyPatch) -> None:
    price = costs.coefficients("numpy:cpu", "float32")
    assert set(price) == set(costs.KINDS)
    assert costs.coefficients("numpy:cpu", "float16") == price
    slow_products = {**price, "product": 1.0}
    monkeypatch.setattr(costs, "coefficients", lambda backend, dtype: slow_products)
    assert _taken("pool_sketch", VGG) == "fft"


def _taken(operation: str, case: dp.Case) -> str:
    """The route of one operation that ``auto`` takes where nothing was measured."""
    parameters = case.parameters_of(OPERATIONS[operation])
    shape = (case.batch, case.n, case.d)
    return auto.pick_route("numpy:cpu", operation, shape, case.dtype, **parameters)


@pytest.mark.parametrize(
    ("operation", "route", "n", "d"),
    [
        ("weights", "dense", 2000, 64),
        ("weights", "matrix-free", 20000, 64),
        ("pool_sketch", "fft", 400, 512),
        ("pool_sketch", "moment", 400, 1024),
        ("power", "gram", 400, 600),
        ("power", "eigh", 400, 600),
    ],
)
def test_predicted_memory_is_near_the_measured(operation: str, route: str, n: int, d: int) -> None:
    """Beyond input and output, within a factor of two or the size of the small things."""
    ops = dp.backend("numpy:cpu")
    X = np.random.default_rng(0).standard_normal((n, d)).astype(np.float32)
    arguments = (X, ops.prepare(dp.hashes(d))) if operation == "pool_sketch" else (X,)

    def call() -> object:
        return getattr(ops, operation)(*arguments, route=route)

    call()
    measured = peak_host_bytes(call)
    if measured is None:
        pytest.skip("the peak of resident memory cannot be read on this system")
    output = np.asarray(call()).nbytes
    predicted = costs.peak_bytes("numpy:cpu", operation, route, dp.Case(n=n, d=d)) + output
    assert measured < 2 * predicted + 2**21
    assert predicted < 2 * measured + 2**21
