"""Derivatives of the operations on tensors: right, lean, and finite where features are hard."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from gradients import gradient as gradient_of  # noqa: E402

import demopool as dp  # noqa: E402
from demopool import reference  # noqa: E402
from demopool.conformance import tolerance  # noqa: E402
from demopool.problem.candidates import Subject  # noqa: E402
from demopool.problem.vocabulary import DESCRIPTORS  # noqa: E402
from demopool.torch import (  # noqa: E402
    GammaDemocraticPool,
)

Tensor = Any
Call = Callable[..., Tensor]
OPS = dp.backend("torch:cpu")
HASHES = OPS.prepare(dp.hashes(5, 16))
FACTORED = ("eigh", "gram", "svd")
ROOTS = ("newton", "newton-schulz", "polar")

pytestmark = pytest.mark.usefixtures("seeded_torch")


def _features(*shape: int, dtype: Any = None) -> Tensor:
    return torch.randn(*shape, dtype=dtype or torch.float64, requires_grad=True)


def _differentiable() -> Iterator[tuple[str, Call, tuple[Tensor, ...]]]:
    """Every operation and route where the derivative exists: X has full rank, no kernel is at 0."""
    torch.manual_seed(0)
    a = torch.rand(2, 7, dtype=torch.float64, requires_grad=True)
    for route in ("dense", "matrix-free"):
        for gamma, T in ((0.0, 10), (0.5, 1), (0.5, 10), (1.0, 3), (0.3, 0)):

            def weights(X: Tensor, route: str = route, gamma: float = gamma, T: int = T) -> Tensor:
                return OPS.weights(X, gamma=gamma, tau=0.4, iterations=T, route=route)

            yield f"weights {route} gamma={gamma} T={T}", weights, (_features(2, 7, 5),)
    positive = torch.rand(2, 6, 4, dtype=torch.float64, requires_grad=True)
    yield "weights of order 1", lambda X: OPS.weights(X, order=1), (positive,)
    yield "pool", OPS.pool, (_features(2, 7, 5), a)
    yield "pool of order 1", lambda X, a: OPS.pool(X, a, order=1), (_features(2, 7, 5), a)
    yield "sum", OPS.pool, (_features(2, 7, 5),)
    yield "sketch", lambda X: OPS.sketch(X, HASHES), (_features(2, 3, 5),)
    for route in ("fft", "moment"):

        def pool_sketch(X: Tensor, a: Tensor | None = None, route: str = route) -> Tensor:
            return OPS.pool_sketch(X, HASHES, a, route=route)

        yield f"pool_sketch {route}", pool_sketch, (_features(2, 7, 5), a)
        yield f"sum sketched {route}", pool_sketch, (_features(2, 7, 5),)
    for p in (0.3, 0.5, 1.0):
        for name in (*FACTORED, *(ROOTS if p == 0.5 else ())):

            def power(X: Tensor, p: float = p, name: str = name) -> Tensor:
                return OPS.power(X, p=p, route=name)

            yield f"power {name} p={p}", power, (_features(2, 9, 5),)
            if name in FACTORED:
                yield f"power {name} p={p}, n < d", power, (_features(2, 3, 5),)
                if p >= 0.5:  # below, differences are of the size of the step to the power 2p - 1
                    yield f"power {name} p={p}, a dead channel", power, (_with_dead_channel(),)
            for how in ("fft", "moment") if name in FACTORED else ("moment",):

                def power_sketch(X: Tensor, p: float = p, by: str = f"{name}+{how}") -> Tensor:
                    return OPS.power_sketch(X, HASHES, p=p, route=by)

                yield f"power_sketch {name}+{how} p={p}", power_sketch, (_features(2, 9, 5),)
        for d in (5, 130):
            A = _features(1, 2 * d, d).detach()

            def matrix_power(E: Tensor, p: float = p, A: Tensor = A.mT @ A) -> Tensor:
                return OPS.matrix_power(A + E * E.mT, p=p, route="eigh")[..., :3, :3]

            yield f"matrix_power p={p} d={d}", matrix_power, (_features(1, d, 1),)
    for kind in ("signed-sqrt-l2", "l2", "none"):
        for axes in (1, 2):

            def normalize(v: Tensor, kind: str = kind, axes: int = axes) -> Tensor:
                return OPS.normalize(v, kind=kind, axes=axes)

            yield f"normalize {kind} over {axes}", normalize, (_features(2, 3, 4),)
    for descriptor in DESCRIPTORS:

        def describe(X: Tensor, descriptor: str = descriptor) -> Tensor:
            return dp.describe(X, descriptor, k=16, iterations=4)

        yield f"describe {descriptor}", describe, (_features(2, 9, 5),)

        def centred(X: Tensor, descriptor: str = descriptor) -> Tensor:
            half = "full" if "sketched" in descriptor else "upper"
            options: dict[str, Any] = {"center": True, "vectorize": half, "lengths": [9, 7]}
            return dp.describe(X, descriptor, k=16, iterations=4, **options)

        yield f"describe {descriptor} centred and padded", centred, (_features(2, 9, 5),)


def _with_dead_channel() -> Tensor:
    """Rank deficient with n >= d: what couples range and null space counts. (Within the null space
    there is no derivative, but ours, 0, is what differences to both sides give.)"""
    X = torch.randn(1, 9, 5, dtype=torch.float64)
    X[..., 4] = 0
    return X.requires_grad_()


CASES = list(_differentiable())


@pytest.mark.parametrize(("name", "call", "inputs"), CASES, ids=[case[0] for case in CASES])
def test_derivatives_are_those_of_the_function(
    name: str, call: Call, inputs: tuple[Tensor, ...]
) -> None:
    assert torch.autograd.gradcheck(call, inputs, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize(("name", "call", "inputs"), CASES, ids=[case[0] for case in CASES])
def test_float32_derivatives_follow_float64(
    name: str, call: Call, inputs: tuple[Tensor, ...]
) -> None:
    gradients = []
    for dtype in (torch.float64, torch.float32):
        given = [x.detach().to(dtype).requires_grad_() for x in inputs]
        y = call(*given)
        direction = torch.linspace(-1, 1, y.numel(), dtype=torch.float64).reshape(y.shape)
        # Weights with gamma = 1 or T = 0 are constants, and have no gradient at all.
        y.backward(direction.to(dtype))
        gradients.append([x.grad.double() for x in given])
        assert all(x.grad.dtype == dtype for x in given)
    for exact, rounded in zip(*gradients, strict=True):
        scale = exact.abs().max()
        # The condition of these small random problems is up to a few hundred, of powers its square.
        assert (rounded - exact).abs().max() <= 2e-3 * scale


def test_the_gradient_of_the_target_is_not_left_out() -> None:
    """With (K 1)^gamma taken for a constant, the gradient would be another."""
    X = _features(1, 8, 5)
    a = OPS.weights(X, gamma=0.7, iterations=6)
    direction = torch.randn_like(a)
    (ours,) = torch.autograd.grad(a, X, direction)
    K = (X @ X.mT).square()
    target = K.sum(-1).detach() ** 0.7
    plain = torch.ones_like(a)
    for _ in range(6):
        plain = plain / (plain * (K @ plain.unsqueeze(-1)).squeeze(-1) / target) ** 0.5
    (detached,) = torch.autograd.grad(plain, X, direction)
    assert (ours - detached).abs().max() > 0.1 * ours.abs().max()


@pytest.mark.parametrize("route", ["dense", "matrix-free"])
def test_implicit_derivative_is_that_of_the_converged_iteration(route: str) -> None:
    X = torch.rand(2, 12, 6, dtype=torch.float64)
    found = []
    for backward in ("unrolled", "implicit"):
        given = X.clone().requires_grad_()
        pool = GammaDemocraticPool(
            gamma=0.3, iterations=60, route=route, backward=backward, layout="nd"
        )
        y = pool(given)
        y.backward(torch.linspace(-1, 1, y.numel(), dtype=y.dtype).reshape(y.shape))
        found.append(given.grad)
    assert (found[0] - found[1]).abs().max() <= 1e-9 * found[0].abs().max()


def test_backward_of_many_features_is_lean() -> None:
    """n = 12544, d = 64: K would be 630 MB; plain autograd keeps 122 MB at T = 10, 950 at 100.

    In a process of its own: what a long test run leaves in the heap would count.
    """
    program = """
import torch
from demopool.measurement.memory import peak_host_bytes
from demopool.torch import GammaDemocraticPool
from demopool.problem import routes  # noqa: E402
torch.set_num_threads(1)
X = torch.rand(1, 12544, 64, requires_grad=True)
for T in (10, 100):
    pool = GammaDemocraticPool(iterations=T, route="matrix-free", layout="nd")
    def step():
        X.grad = None
        pool(X).square().sum().backward()
    step()
    print(min(peak_host_bytes(step) or 0 for _ in range(3)))
"""
    # Without the slack that glibc leaves above every large block.
    environment = {**os.environ, "MALLOC_TOP_PAD_": "0"}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment
    )
    at_10, at_100 = (int(line) / 1e6 for line in done.stdout.split())
    assert at_100 < 40
    assert at_100 - at_10 < 7


def _groups_across(weak: float) -> Tensor:
    """Strong rows, and 20 or 200 weak ones across them: less and more than half of d."""
    rng = torch.Generator().manual_seed(3)
    Q = torch.linalg.qr(torch.randn(48, 48, generator=rng, dtype=torch.float64)).Q
    strong = torch.randn(300, 8, generator=rng, dtype=torch.float64) @ Q[:8]
    few = weak * torch.randn(200, 40, generator=rng, dtype=torch.float64) @ Q[8:]
    return torch.stack([torch.cat([strong, few]), torch.cat([strong, few[:20], strong[:180]])])


def _where_nothing_can_be_read(call: Call) -> Call:
    """As in a graph or on a GPU."""
    return lambda x: torch.func.vmap(call)(x[None])[0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("tau", [0.5, 0.9, 1.0])
@pytest.mark.parametrize("weak", [1e-1, 1e-3])
def test_matrix_free_where_sums_are_differences_of_large_numbers(
    weak: float, tau: float, dtype: torch.dtype
) -> None:
    """Of which rows changes with the weights, so in every product, and in every one backward."""
    X = _groups_across(weak).to(dtype)
    options = {"gamma": 0.0, "tau": tau}
    wanted = reference.weights(X.numpy(), **options)
    allowed = tolerance.for_weights(X.numpy(), str(dtype).removeprefix("torch."), **options)
    slope = torch.linspace(-1, 1, X.shape[1], dtype=dtype)

    def dense(x: Tensor) -> Tensor:
        return OPS.weights(x, **options, route="dense").log() * slope.to(x.dtype)

    def free(x: Tensor) -> Tensor:
        return OPS.weights(x, **options, route="matrix-free")

    # How far apart the gradients of features are that differ in their last digits.
    true = gradient_of(dense, X.double())[1]
    last = 1 + torch.finfo(dtype).eps * torch.randn(X.shape, dtype=torch.float64)
    apart = (gradient_of(dense, X.double() * last)[1] - true).norm(dim=(-2, -1))
    if dtype == torch.float64:  # the difference is rounded as much as what is looked at
        apart = apart + torch.finfo(dtype).eps * true.norm(dim=(-2, -1))
    growth = tolerance.CONSTANT * (X.shape[1] ** 0.5 + X.shape[2] ** 0.5)
    for weigh in (free, _where_nothing_can_be_read(free)):
        error = np.abs(weigh(X).numpy() / wanted - 1).max(axis=-1)
        assert (error <= allowed).all()
        gradient = gradient_of(lambda x, weigh=weigh: weigh(x).log() * slope, X)[1]
        assert ((gradient - true).norm(dim=(-2, -1)) <= growth * apart).all()


def test_features_too_faint_to_square_twice_stay_out_of_the_way() -> None:
    X = torch.tensor([[1.0, 0], [0, 1e-12], [0, 0]])
    for route in ("dense", "matrix-free"):
        weights = OPS.weights(X, route=route)
        assert torch.isfinite(weights).all()
        assert weights[2] == 0
        assert np.isfinite(dp.backend("numpy:cpu").weights(X.numpy(), route=route)).all()


def test_what_is_not_finite_shows_and_spoils_no_other_image() -> None:
    for bad in (torch.nan, torch.inf):
        for shape in ((2, 40, 8), (2, 8, 40)):
            X = torch.rand(shape)
            X[0, 1, 2] = bad
            for route in FACTORED:
                Z = OPS.power(X, route=route)
                assert Z[0].isnan().any(), route
                assert torch.allclose(Z[1], OPS.power(X[1], route=route), rtol=1e-3, atol=1e-4)


def test_gradients_are_finite_where_the_derivative_does_not_exist() -> None:
    """Repeated and vanishing eigenvalues, zero rows, zero entries, all zeros."""
    same = torch.ones(1, 6, 4, dtype=torch.float64)
    eye = torch.eye(4, dtype=torch.float64).repeat(1, 2, 1)
    zero = torch.zeros(1, 6, 4, dtype=torch.float64)
    some = torch.rand(1, 6, 4, dtype=torch.float64)
    some[:, 2:4] = 0
    for X in (same, eye, zero, some):
        for descriptor in DESCRIPTORS:
            for _, route in Subject("descriptor", descriptor).candidates(("torch:cpu",)):
                if "newton" in route and "schulz" not in route:
                    continue  # it inverts A
                given = X.clone().requires_grad_()
                y = dp.describe(given, descriptor, k=16, route=route, zero_rows="ignore")
                y.sum().backward()
                assert torch.isfinite(given.grad).all(), (descriptor, route)
                assert torch.isfinite(y).all()
