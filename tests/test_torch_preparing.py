"""Modules with a centre, a triangle and padding: what describe gives, in one graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import demopool as dp  # noqa: E402
from demopool.torch import (  # noqa: E402
    GammaDemocraticPool,
    MatrixPowerPool,
    SecondOrderPool,
    SketchedDemocraticPool,
)

Tensor = Any
HALF = {"center": True, "vectorize": "upper"}
MODULES: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "sum": (SecondOrderPool, HALF),
    "democratic": (GammaDemocraticPool, HALF),
    "power": (lambda **options: MatrixPowerPool(route="eigh", **options), HALF),
    "sketched-democratic": (
        lambda **options: SketchedDemocraticPool(6, k=16, sketch="moment", **options),
        {"center": True},
    ),
}
LENGTHS = [12, 9, 8]
each_module = pytest.mark.parametrize("name", MODULES)

pytestmark = pytest.mark.usefixtures("seeded_torch")


def _made(name: str) -> tuple[Any, Tensor, Tensor, Tensor]:
    """The module, its input, and what describe gives; padding holds NaN."""
    make, options = MODULES[name]
    x = torch.rand(3, 12, 6, dtype=torch.float64) + 2
    for image, length in zip(x, LENGTHS, strict=True):
        image[length:] = torch.nan
    wanted = dp.describe(x, name, k=16, lengths=LENGTHS, **options)
    return make(layout="nd", **options), x, torch.tensor(LENGTHS), wanted


@each_module
def test_modules_give_what_describe_gives(name: str) -> None:
    module, x, lengths, wanted = _made(name)
    assert torch.allclose(module(x, lengths), wanted, rtol=0, atol=1e-7)
    assert torch.allclose(module(x[2], lengths[2]), wanted[2], rtol=0, atol=1e-7)


@each_module
def test_gradients_of_modules_stop_at_padding(name: str) -> None:
    module, x, lengths, _ = _made(name)
    x.requires_grad_()
    module(x, lengths).square().cumsum(-1).sum().backward()
    for gradient, length in zip(x.grad, LENGTHS, strict=True):
        assert gradient[:length].isfinite().all()
        assert gradient[:length].any()
        assert not gradient[length:].any()
        # Nothing changes with the mean, so nothing is left of the gradient in its direction.
        left = gradient[:length].sum(dim=0).abs().max()
        assert left <= 1e-9 * gradient.abs().max()


# Dynamo makes an instance of the class, which torch itself warns of.
@pytest.mark.filterwarnings("ignore:<class 'torch.autograd.function.Function'>")
@each_module
def test_one_graph(name: str) -> None:
    torch._dynamo.reset()
    module, x, lengths, wanted = _made(name)
    compiled = torch.compile(module, fullgraph=True, backend="eager")
    exported = torch.export.export(module, (x, lengths)).module()
    for found in (compiled(x, lengths), exported(x, lengths)):
        assert torch.allclose(found, wanted, rtol=0, atol=1e-7)


def test_conv_maps_can_be_centred() -> None:
    maps = torch.rand(2, 6, 4, 3)
    found = SecondOrderPool(center=True, vectorize="upper")(maps)
    wanted = dp.describe(maps, "sum", layout="nchw", center=True, vectorize="upper")
    assert torch.allclose(found, wanted, rtol=0, atol=1e-6)


def test_wrong_lengths_and_settings() -> None:
    maps = torch.rand(2, 6, 4, 3)
    with pytest.raises(dp.InvalidInput, match="make the module with layout='nd'"):
        SecondOrderPool()(maps, torch.tensor([1, 2]))
    with pytest.raises(dp.InvalidInput, match="lengths must be a tensor of 2 whole numbers"):
        SecondOrderPool(layout="nd")(maps[:, :, :, 0], [1, 2])
    with pytest.raises(dp.InvalidInput, match="vectorize must be one of full, upper"):
        SecondOrderPool(vectorize="lower")


def test_what_was_asked_for_shows() -> None:
    assert repr(SecondOrderPool(center=True)).endswith("center=True)")
    assert "center" not in repr(SecondOrderPool())
