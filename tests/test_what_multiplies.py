"""Ways to multiply are routes: who races them, who takes them, and who must ask for TF32."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
from races import choice

import demopool as dp
from demopool import ptx
from demopool.choosing import chooser
from demopool.conformance import cells, engine
from demopool.contract import Probe, registry
from demopool.errors import InvalidInput, Unsupported
from demopool.problem.cases import Case
from demopool.problem.routes import left_out
from demopool.problem.vocabulary import State
from demopool.profiles import accuracy, auto, store

pytestmark = pytest.mark.usefixtures("empty_profile")

CASE = Case(batch=2, n=40, d=12, data="device")
TIMES = {"dense": 3e-4, "matrix-free": 5e-4, "dense-cublas": 2e-4, "dense-tf32": 1e-4}


def _raced(monkeypatch: pytest.MonkeyPatch, descriptor: str, *routes: str) -> list[str]:
    """As if every backend were here."""
    monkeypatch.setattr(registry, "probe", lambda name: Probe(State.OK))
    case = Case(descriptor=descriptor)
    _, found = chooser._candidates(case, ("numpy:cpu", "cupy:cuda", "triton:cuda"), routes)
    return [str(candidate) for candidate in found]


def test_choose_races_cublas_but_tf32_only_if_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    found = _raced(monkeypatch, "democratic")
    assert [name for name in found if name.startswith("cupy")] == [
        "cupy:cuda/dense",
        "cupy:cuda/matrix-free",
        "cupy:cuda/dense-cublas",
        "cupy:cuda/dense-syrk",
        "cupy:cuda/dense-128",
        "cupy:cuda/dense-resident",
    ]
    assert "numpy:cpu/dense-cublas" not in found
    named = _raced(monkeypatch, "sum", "direct", "tf32")
    assert named == [
        "numpy:cpu/direct",
        *("cupy:cuda/direct", "cupy:cuda/tf32"),
        *("triton:cuda/direct", "triton:cuda/tf32"),
    ]
    with pytest.raises(InvalidInput, match=r"routes must be of sum: direct, cublas.*; got 'dense'"):
        dp.choose(Case(descriptor="sum"), routes=["dense"])


def test_what_is_left_out_of_products_is_part_of_what_is_expected() -> None:
    assert left_out("dense-tf32") == left_out("tf32") > 0
    assert left_out("dense") == left_out("dense-cublas") == left_out("dense+fft") == 0
    dense, tf32 = (accuracy.expected_error(route, CASE) for route in ("dense", "dense-tf32"))
    assert tf32 == dense + left_out("tf32")


if registry.probe("cupy:ptx").state is not State.OK:
    pytest.skip("cupy:ptx is not usable here", allow_module_level=True)


def _recommended(best: str) -> auto.Explanation:
    """What auto takes once that was measured to be best."""
    times = {f"cupy:ptx/{route}": seconds for route, seconds in TIMES.items()}
    store.remember(choice(CASE, times, f"cupy:ptx/{best}"))
    return _explained()


def _explained(**asked: str) -> auto.Explanation:
    return dp.explain((CASE.batch, CASE.n, CASE.d), home="cupy:ptx", **asked)


def test_auto_takes_what_was_measured_to_be_best() -> None:
    assert _explained().route == "dense"
    assert _recommended("dense-cublas").route == "dense-cublas"


def test_auto_never_takes_tf32_unless_it_is_named() -> None:
    found = _recommended("dense-tf32")
    assert found.route == "dense-cublas"
    (tf32,) = (option for option in found.options if option.route == "dense-tf32")
    assert tf32.state is State.UNSUPPORTED
    assert "asked for by its name" in tf32.reason
    assert _explained(route="dense-tf32").route == "dense-tf32"


@pytest.mark.parametrize(
    ("descriptor", "route", "kernels"),
    [
        ("democratic", "dense-tf32", {"gram_tf32", "outer_tf32"}),
        ("democratic", "dense-cublas", set()),
        ("democratic", "dense-128", {"gram_128", "outer_128"}),
        ("sum", "tf32", {"outer_tf32"}),
        ("sum", "128", {"outer_128"}),
        ("sum", "cublas", set()),
    ],
)
def test_a_descriptor_multiplies_as_its_route_says(
    descriptor: str, route: str, kernels: set[str]
) -> None:
    X = np.random.default_rng(0).random((2, 20, 6), dtype=np.float32)
    asked = {"backend": "cupy:ptx", "normalize": "none"}
    with ptx.recording() as launched:
        found = dp.describe(X, descriptor, route=route, **asked)
    names = {one.kernel.partition("<")[0] for one in launched}
    assert {name for name in names if name.startswith(("gram", "outer"))} == kernels
    usual = dp.describe(X, descriptor, **asked)
    np.testing.assert_allclose(found, usual, rtol=1e-4)


def test_pooling_by_itself_takes_what_was_measured_for_sums() -> None:
    X = np.random.default_rng(0).random((CASE.batch, CASE.n, CASE.d), dtype=np.float32)
    ops = dp.backend("cupy:ptx")
    case = Case(descriptor="sum", batch=CASE.batch, n=CASE.n, d=CASE.d, data="device")
    store.remember(choice(case, {"cupy:ptx/cublas": 1e-4}, "cupy:ptx/cublas"))
    with ptx.recording() as launched:
        ops.pool(X)
    assert not launched
    with ptx.recording() as launched:
        ops.pool(X, route="direct")
    assert launched


@pytest.mark.parametrize(("backend", "told"), [("cupy:cuda", True), ("cupy:ptx", False)])
def test_what_a_gpu_lacks_is_unsupported_and_no_error(
    monkeypatch: pytest.MonkeyPatch, backend: str, told: bool
) -> None:
    def lacks(*_: object) -> None:
        raise Unsupported("TF32", "it needs a newer GPU")

    monkeypatch.setattr(engine, "answer", lacks)
    monkeypatch.setattr(cells, "operations_of", lambda name: SimpleNamespace(name=name))
    cell = (backend, "pool", "tf32", 2, "float32")
    with pytest.raises(Unsupported) if told else nullcontext():
        cells.compile_cell(*cell, quick=True)
