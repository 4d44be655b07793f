"""``describe``, the operations and the torch modules take the same route for the same job."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from effort import cases
from races import choice, without_time

import demopool as dp
from demopool.contract import registry
from demopool.errors import Unsupported
from demopool.problem.candidates import Candidate
from demopool.problem.cases import Case
from demopool.problem.vocabulary import State
from demopool.profiles import auto, store

pytest.importorskip("torch")

import torch

from demopool import torch as modules

pytestmark = pytest.mark.usefixtures("empty_profile")

K = 64
SHAPES = ((2, 40, 12), (3, 12, 40), (1, 200, 8))
WEIGHTING = {"gamma": 0.3, "tau": 0.4, "iterations": 7}
POWER = {"p": 0.3}
JOBS = {
    "democratic": WEIGHTING,
    "sketched-sum": {"k": K},
    "sketched-democratic": {"k": K, **WEIGHTING},
    "power": POWER,
    "sketched-power": {"k": K, **POWER},
}
STEPS = ("weights", "pool_sketch", "power", "matrix_power", "power_sketch")
Call = Callable[[], Any]
GENUINE = auto.pick


@pytest.fixture(autouse=True)
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The routes of the kernels that were called, in order."""
    calls: list[str] = []
    for backend in ("numpy:cpu", "torch:cpu"):
        kernels = registry.implementation(backend).kernels
        for (operation, route), kernel in kernels.items():
            if operation in STEPS:

                def spy(*given: Any, _kernel: Any = kernel, _route: str = route, **job: Any) -> Any:
                    calls.append(_route)
                    return _kernel(*given, **job)

                monkeypatch.setitem(kernels, (operation, route), spy)
    return calls


def _case(descriptor: str, shape: tuple[int, ...]) -> Case:
    return auto.case_of("torch:cpu", descriptor, shape, dtype="float32", **JOBS[descriptor])


def _ways(descriptor: str, X: Any, backend: str) -> Iterator[Call]:
    """Everything that can do a descriptor, or the part of it that has routes."""
    ops, job = dp.backend(backend), JOBS[descriptor]
    yield lambda: dp.describe(X, descriptor, backend=backend, **job)
    hashes = dp.hashes(X.shape[-1], K)
    if descriptor == "democratic":
        yield lambda: ops.weights(X, **job)
    elif descriptor == "sketched-sum":
        yield lambda: ops.pool_sketch(X, hashes)
    elif descriptor == "power":
        yield lambda: ops.power(X, **job)
    elif descriptor == "sketched-power":
        yield lambda: ops.power_sketch(X, hashes, **POWER)
    if backend != "torch:cpu":
        return
    yield lambda: dp.describe(X, descriptor, **job)
    if descriptor == "democratic":
        yield lambda: modules.GammaDemocraticPool(**job, layout="nd")(X)
    elif descriptor == "sketched-democratic":
        yield lambda: modules.SketchedDemocraticPool(X.shape[-1], layout="nd", **job)(X)
    elif descriptor == "power":
        yield lambda: modules.MatrixPowerPool(**job, layout="nd")(X)


def _routes(descriptor: str, shape: tuple[int, ...], backend: str, ran: list[str]) -> list[str]:
    """The route that each way took."""
    X: Any = np.random.default_rng(0).random(shape, dtype=np.float32)
    if backend == "torch:cpu":
        X = torch.from_numpy(X)
    found = []
    for call in _ways(descriptor, X, backend):
        ran.clear()
        call()
        found.append("+".join(ran))
    return found


def _second(descriptor: str, shape: tuple[int, ...], backend: str, best: str) -> str:
    """A route that nothing is known against, and that is not taken as things are."""
    found = dp.explain(shape, descriptor, backend=backend, **JOBS[descriptor])
    return next(o.route for o in found.options if o.state is State.OK and o.route != best)


@pytest.mark.parametrize("backend", ["numpy:cpu", "torch:cpu"])
@pytest.mark.parametrize("descriptor", JOBS)
def test_all_ways_take_one_route(descriptor: str, backend: str, ran: list[str]) -> None:
    """Without a profile, where another route was measured to be faster, where one nearby was, and
    where the usual one failed."""
    for shape in SHAPES:
        store.reset()
        (best,) = set(_routes(descriptor, shape, backend, ran))
        other = _second(descriptor, shape, backend, best)
        names = {route: str(Candidate(backend, route)) for route in (best, other)}
        case = _case(descriptor, shape)

        times = {names[best]: 1e-1, names[other]: 1e-7}
        assert store.remember(choice(case, times, names[other])) == ""
        assert set(_routes(descriptor, shape, backend, ran)) == {other}

        store.reset()
        larger = _case(descriptor, (shape[0] + 1, *shape[1:]))
        assert store.remember(choice(larger, times, names[other])) == ""
        assert set(_routes(descriptor, shape, backend, ran)) == {other}

        for state in (State.WRONG, State.ERROR):
            store.reset()
            failure = without_time(names[best], state, "its reason")
            assert store.remember(choice(case, {}, "", failure)) == ""
            (after,) = set(_routes(descriptor, shape, backend, ran))
            assert after != best


def test_what_was_wrong_with_other_parameters_counts_for_no_way(ran: list[str]) -> None:
    """Not for the modules either: they say with which gamma, tau and p they are asked."""
    for descriptor, changed in (("democratic", {"gamma": 0.9}), ("power", {"p": 0.1})):
        shape = SHAPES[0]
        (best,) = set(_routes(descriptor, shape, "torch:cpu", ran))
        case = auto.case_of(
            "torch:cpu", descriptor, shape, dtype="float32", **{**JOBS[descriptor], **changed}
        )
        failure = without_time(f"torch:cpu/{best}", State.WRONG, "its reason")
        assert store.remember(choice(case, {}, "", failure)) == ""
        assert set(_routes(descriptor, shape, "torch:cpu", ran)) == {best}


def test_a_matrix_is_powered_as_features_are(ran: list[str]) -> None:
    A = torch.eye(20)
    ops = dp.backend("torch:cpu")

    def taken() -> list[str]:
        ran.clear()
        ops.matrix_power(A)
        return list(ran)

    (best,) = taken()
    case = auto.case_of("torch:cpu", "power", (20, 20), dtype="float32")
    failure = without_time(f"torch:cpu/{best}", State.WRONG, "its reason")
    assert store.remember(choice(case, {}, "", failure)) == ""
    assert taken() != [best]


def test_a_module_takes_the_fastest_route_with_an_exact_derivative(ran: list[str]) -> None:
    case = auto.case_of("torch:cpu", "power", (2, 40, 12), dtype="float32")
    times = {f"torch:cpu/{route}": s for route, s in (("polar", 1e-7), ("svd", 2e-7))}
    assert store.remember(choice(case, {**times, "torch:cpu/eigh": 1e-2}, "torch:cpu/polar")) == ""
    X = torch.rand(2, 40, 12)
    ran.clear()
    dp.describe(X, "power")
    modules.MatrixPowerPool(layout="nd")(X)
    assert ran == ["polar", "svd"]


def _compiled(module: Any, X: Any) -> None:
    torch.compiler.reset()
    torch.compile(module, fullgraph=True, backend="aot_eager")(X)


def _compiled_for_any_size(module: Any, X: Any) -> None:
    """From the second size on, Dynamo takes it for a symbol."""
    torch.compiler.reset()
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(auto, "pick", GENUINE)
        compiled(X[:, 3:])
    compiled(X)


def _exported(module: Any, X: Any) -> None:
    torch.export.export(module, (X,))


def _exported_for_any_batch(module: Any, X: Any) -> None:
    torch.export.export(module, (X,), dynamic_shapes=({0: torch.export.Dim("batch")},))


def _on_meta(module: Any, X: Any) -> None:
    module.to("meta")(X.to("meta"))


# Torch warns of its own ways.
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "way",
    cases(
        [_compiled, _compiled_for_any_size, _exported, _exported_for_any_batch, _on_meta],
        [_compiled, _exported_for_any_batch, _on_meta],
    ),
)
def test_a_graph_has_the_route_that_describe_takes(
    way: Callable[[Any, Any], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where sizes are symbols: the decision is made outside, for the sizes that were seen."""
    shape = SHAPES[0]
    makers: dict[str, Callable[[], Any]] = {
        "democratic": lambda: modules.GammaDemocraticPool(**WEIGHTING, layout="nd"),
        "sketched-democratic": lambda: modules.SketchedDemocraticPool(
            shape[-1], k=K, **WEIGHTING, layout="nd"
        ),
        "power": lambda: modules.MatrixPowerPool(**POWER, layout="nd"),
    }
    picked: list[tuple[str, str]] = []

    def pick(case: Case, **how: Any) -> Any:
        found = GENUINE(case, **how)
        picked.append((case.descriptor, found.route))
        return found

    monkeypatch.setattr(auto, "pick", pick)
    X = torch.rand(*shape)
    for descriptor, make in makers.items():
        for prefers in (0, 1):
            routes = [o.route for o in _usable(descriptor, shape)]
            wanted = f"torch:cpu/{routes[prefers]}"
            store.reset()
            slow = {f"torch:cpu/{route}": 1e-1 for route in routes}
            store.remember(choice(_case(descriptor, shape), {**slow, wanted: 1e-7}, wanted))
            picked.clear()
            way(make(), X)
            assert set(picked) == {(descriptor, routes[prefers])}


def _usable(descriptor: str, shape: tuple[int, ...]) -> list[Any]:
    found = dp.explain(shape, descriptor, backend="torch:cpu", **JOBS[descriptor])
    return [o for o in found.options if o.state is State.OK]


def test_what_is_refused_is_refused_in_one_sentence() -> None:
    """The domain is asked in one place, whoever asks."""
    X = np.ones((5, 9), np.float32)
    asked: tuple[Call, ...] = (
        lambda: dp.describe(X, "power", route="newton"),
        lambda: dp.describe(X, "power", route="newton", backend="numpy:cpu"),
        lambda: dp.backend("numpy:cpu").power(X, route="newton"),
        lambda: dp.explain(X.shape, "power", route="newton", backend="numpy:cpu"),
    )
    for call in asked:
        with pytest.raises(Unsupported, match="it inverts A, which is singular for n = 5 < d = 9"):
            call()
