"""The kernels of triton:cuda: their values by Triton's interpreter."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from effort import cases

import demopool
from demopool import reference
from demopool.conformance import tolerance
from demopool.contract import probing, registry
from demopool.errors import InvalidInput, Unsupported
from demopool.problem.vocabulary import State

if registry.probe("triton:interpreter").state is not State.OK:
    pytest.skip("triton:interpreter is not usable here", allow_module_level=True)

import torch
import triton
from torch import Tensor

from demopool.implementations.triton_cuda import kernels, launcher, pool, sizes, weights

OPS = demopool.backend("triton:interpreter")
SETTINGS = {"gamma": 0.3, "tau": 0.4, "iterations": 4}


def _features(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def _check_weights(X: np.ndarray, order: int = 2, found: Tensor | None = None) -> None:
    """Every weight, relative to itself."""
    found = OPS.weights(OPS.asarray(X), order=order, **SETTINGS) if found is None else found
    expected = reference.weights(X, order=order, **SETTINGS)
    allowed = tolerance.for_weights(X, "float32", order=order, **SETTINGS)
    present = expected != 0
    difference = np.abs(found.numpy() - expected)
    assert not difference[~present].any()
    errors = np.divide(difference, expected, where=present, out=np.zeros_like(expected))
    assert (errors.max(axis=-1) <= allowed).all()


# Around the sides of tiles, of one program's K, and of the rows that a program owns.
SHAPES = cases(
    [(n, d) for n in (1, 15, 16, 63, 64, 65, 127, 128, 129, 200) for d in (1, 31, 32, 33, 70)],
    [(1, 33), (64, 32), (65, 70), (128, 31), (129, 5)],
)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize(("n", "d"), SHAPES)
def test_weights_of_sizes_around_those_of_tiles(n: int, d: int, order: int) -> None:
    _check_weights(_features(2, n, d), order)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize(("n", "d"), [*((d, n) for n, d in SHAPES), (700, 70)])
def test_pooling_of_sizes_around_those_of_tiles(n: int, d: int, order: int) -> None:
    """And of so many rows that they are summed in parts."""
    X, a = _features(2, n, d), np.abs(_features(2, n, seed=1))
    for given in (a, None):
        found = OPS.pool(OPS.asarray(X), None if given is None else OPS.asarray(a), order=order)
        expected = reference.pool(X, given, order=order)
        allowed = tolerance.for_pool(X, given, expected, "float32", order=order)
        last = tuple(range(-order, 0))
        error = np.abs(found.numpy() - expected).max(axis=last) / np.abs(expected).max(axis=last)
        assert (error <= allowed).all()


@pytest.mark.parametrize("scale", [1e-20, 1e-12, 1.0, 1e12, 1e20])
@pytest.mark.parametrize("in_steps", [False, True])
def test_weights_at_any_scale_of_the_features(
    scale: float, in_steps: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights of features times c are c^-q times those of the features. Each image has a scale of
    its own, and rows of zeros; small images are iterated in one program or step by step."""
    if in_steps:
        monkeypatch.setattr(weights, "_SMALL", 0)
    X = _features(3, 20, 6)
    X[0, [2, 5]] = 0.0
    X[1] = 0.0
    X[2] *= np.float32(scale)
    _check_weights(X)


@pytest.mark.parametrize("iterations", [0, 1, 2])
def test_few_iterations_step_by_step(iterations: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "_SMALL", 0)
    monkeypatch.setitem(SETTINGS, "iterations", iterations)
    _check_weights(_features(2, 20, 6))


def test_features_are_read_with_their_strides() -> None:
    X = _features(4, 70, 66)
    for view in (X[::2, ::2, ::3], X.swapaxes(-1, -2), X[:, ::-1]):
        _check_weights(view)


def test_a_sign_that_torch_has_put_off_is_read() -> None:
    X, a, v = (OPS.asarray(_features(2, *shape)) for shape in ((40, 6), (40,), (5,)))
    X_, a_, v_ = (torch._neg_view(-each) for each in (X, a.abs(), v))
    assert torch.equal(OPS.pool(X_, a_, order=1), OPS.pool(X, a.abs(), order=1))
    assert torch.equal(OPS.normalize(v_), OPS.normalize(v))
    np.testing.assert_array_equal(OPS.to_numpy(v_), v)


@pytest.mark.parametrize("kind", ["signed-sqrt-l2", "l2"])
@pytest.mark.parametrize("scale", [1e-38, 1e-12, 1.0, 1e12, 1e37])
def test_norms_of_several_chunks_at_any_scale(kind: str, scale: float) -> None:
    v = _features(2, 2 * sizes.CHUNK + 77) * np.float32(scale)
    v[0, 5] *= 8
    found = OPS.normalize(OPS.asarray(v), kind=kind).numpy()
    expected = reference.normalize(v, kind=kind)
    error = np.abs(found - expected).max() / np.abs(expected).max()
    assert error <= tolerance.for_normalize("float32", v.shape[-1])


def test_the_same_input_gives_the_same_bits_and_a_symmetric_matrix() -> None:
    """Also where a sum over many rows is made in parts."""
    X = torch.from_numpy(_features(2, 1100, 70))
    a = torch.from_numpy(np.abs(_features(2, 1100)))
    assert sizes.split(1100, 2 * sizes.triangle(2))[0] > 1
    one, two = OPS.pool(X, a), OPS.pool(X, a)
    assert torch.equal(one, two)
    assert torch.equal(one, one.mT)
    assert torch.equal(OPS.pool(X, a, order=1), OPS.pool(X, a, order=1))
    few = X[:, :150].contiguous()
    assert torch.equal(OPS.weights(few, iterations=2), OPS.weights(few, iterations=2))


# --- memory: every kernel writes all of its results, and nothing else ---

GUARD = 4096


class Guarded(launcher.Launcher):
    """Tensors in the middle of NaN, and NaN themselves until they are written."""

    def __init__(self) -> None:
        super().__init__(launcher.interpreted()._kernels, torch.device("cpu"))
        self.given: list[tuple[Tensor, Tensor]] = []

    def empty(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        count = int(np.prod(shape))
        fill = float("nan") if dtype.is_floating_point else -1
        whole = torch.full((count + 2 * GUARD,), fill, dtype=dtype)
        self.given.append((whole, whole[GUARD : GUARD + count].view(shape)))
        return self.given[-1][1]

    def holding(self, array: np.ndarray) -> Tensor:
        return self.empty(*array.shape).copy_(torch.from_numpy(array))

    def check(self) -> None:
        for whole, own in self.given:
            assert not own.isnan().any()
            around = torch.cat([whole[:GUARD], whole[GUARD + own.numel() :]])
            assert bool((around.isnan() if own.is_floating_point() else around == -1).all())


@pytest.mark.parametrize("n", [1, 50, 70, 130])
def test_every_kernel_writes_its_results_and_nothing_else(n: int) -> None:
    on = Guarded()
    X, a = on.holding(_features(2, n, 67)), on.holding(np.abs(_features(2, n)))
    _check_weights(X.numpy(), found=weights.dense(on, X, order=2, **SETTINGS))
    for order in (1, 2):
        pool.direct(on, X, a, order=order)
    pool.normalize(on, on.holding(_features(2, 67 * n)), kind="l2")
    on.check()


def test_a_sum_in_parts_writes_them_all() -> None:
    on = Guarded()
    X = on.holding(_features(1, 600, 5))
    for order in (1, 2):
        pool.direct(on, X, None, order=order)
    on.check()
    assert len(on.given) == 5  # X, and for each order the parts and their sum


# --- as a backend ---


def test_a_tensor_stays_where_it_is() -> None:
    X = torch.from_numpy(_features(2, 9, 6))
    y = demopool.describe(X, "democratic", backend="triton:interpreter")
    assert torch.equal(y, OPS.normalize(OPS.pool(X, OPS.weights(X)), axes=2).reshape(2, 36))
    assert OPS.implementation.adopt(X) is X
    assert OPS.implementation.adopt(X.numpy()) is None


def test_what_it_has_not_is_refused_with_a_sentence() -> None:
    X = torch.from_numpy(_features(2, 9, 6))
    with pytest.raises(InvalidInput, match="no derivatives"):
        OPS.weights(X.clone().requires_grad_())
    with pytest.raises(Unsupported, match="float64"):
        OPS.weights(X.double())
    with pytest.raises(Unsupported, match="torch:cuda has it"):
        OPS.power(X)


def test_an_old_gpu_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def gpu(capability: str | None) -> Callable[[], list[dict[str, Any]]]:
        return lambda: [{"name": "a GPU", "compute_capability": capability}]

    for capability, state in (("7.5", "unavailable"), ("8.0", "ok"), ("12.0", "ok"), (None, "ok")):
        monkeypatch.setattr(probing, "gpus", gpu(capability))
        assert probing.on_gpu({}, (8, 0)).state == state
    monkeypatch.setattr(probing, "gpus", gpu("7.5"))
    assert "7.5" in probing.on_gpu({}, (8, 0)).reason


def test_interpreting_leaves_triton_as_it_was() -> None:
    OPS.weights(OPS.asarray(_features(1, 4, 3)))
    assert not triton.knobs.runtime.interpret
    assert "TRITON_INTERPRET" not in os.environ
    assert isinstance(kernels.gram, triton.JITFunction)
