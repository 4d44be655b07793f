"""Modules and tensors: what they give, and what torch does to them (compile, export, vmap)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from effort import cases

torch = pytest.importorskip("torch")

from gradients import gradient as gradient_of  # noqa: E402

import demopool as dp  # noqa: E402
from demopool.conformance import features  # noqa: E402
from demopool.errors import InvalidInput, Unsupported  # noqa: E402
from demopool.torch import (  # noqa: E402
    GammaDemocraticPool,
    MatrixPowerPool,
    SecondOrderPool,
    SketchedDemocraticPool,
)

Tensor = Any
Call = Callable[..., Tensor]
OPS = dp.backend("torch:cpu")

pytestmark = pytest.mark.usefixtures("seeded_torch")

MODULES: dict[str, Callable[[], Any]] = {
    "sum": SecondOrderPool,
    "democratic": GammaDemocraticPool,
    "matrix-free": lambda: GammaDemocraticPool(route="matrix-free"),
    "implicit": lambda: GammaDemocraticPool(iterations=60, backward="implicit"),
    "sketched": lambda: SketchedDemocraticPool(24, k=64),
    "sketched by fft": lambda: SketchedDemocraticPool(24, k=64, sketch="fft"),
    "power": MatrixPowerPool,
    "power by svd": lambda: MatrixPowerPool(route="svd"),
    "power by gram": lambda: MatrixPowerPool(0.3, route="gram"),
    "power by polar": lambda: MatrixPowerPool(route="polar"),
}
each_module = pytest.mark.parametrize("name", MODULES)


def _close(found: Tensor, expected: Tensor) -> bool:
    return bool((found - expected).abs().max() <= 1e-4 * expected.abs().max())


def _of_features(name: str) -> Any:
    """The module that takes ``(B, n, d)``."""
    module = MODULES[name]()
    module.layout = "nd"
    return module


def test_a_second_derivative_is_refused() -> None:
    """Not silently wrong: torch sees the first one as a constant."""
    for name in MODULES:
        module = _of_features(name)
        x = torch.rand(2, 9, 24, requires_grad=True)
        (gradient,) = torch.autograd.grad(module(x).sum(), x, create_graph=True)
        with pytest.raises(Unsupported, match="differentiated once"):
            gradient.square().sum().backward()
    for twice in (
        torch.func.jacrev(torch.func.jacrev(lambda x: module(x)[0, 1])),
        torch.func.grad(lambda x: torch.func.grad(lambda x: module(x)[0, 1])(x).sum()),
    ):
        with pytest.raises(Unsupported, match="differentiated once"):
            twice(torch.rand(1, 5, 24))


@each_module
def test_conv_maps_and_features_give_the_same(name: str) -> None:
    maps = torch.rand(3, 24, 5, 6)
    module, of_features = MODULES[name](), _of_features(name)
    assert torch.equal(module(maps), of_features(maps.flatten(2).mT))
    assert "layout='nd'" in repr(of_features)
    with pytest.raises(InvalidInput, match=r"x must be \(B, C, H, W\); got shape \(5, 6\)"):
        module(maps[0, 0])
    with pytest.raises(InvalidInput, match=r"x must be \(n, d\) or \(B, n, d\) for layout='nd'"):
        of_features(maps)


@each_module
def test_three_axes_are_never_guessed_at(name: str) -> None:
    """An image ``(C, H, W)`` would be taken for C images of H features, in silence."""
    maps = torch.rand(2, 24, 24, 24)
    module = MODULES[name]()
    with pytest.raises(InvalidInput, match=r"one image \(C, H, W\) or features \(B, n, d\)"):
        module(maps[0])
    expected = module(maps)[0]
    module.layout = "nchw"
    assert _close(module(maps[0]), expected)
    assert _close(_of_features(name)(maps[0].flatten(1).T), expected)


@each_module
def test_modules_give_what_describe_gives(name: str) -> None:
    X = torch.rand(3, 30, 24)
    module = _of_features(name)
    descriptor = {"sum": "sum", "sk": "sketched-democratic", "po": "power"}
    kind = next((d for start, d in descriptor.items() if name.startswith(start)), "democratic")
    options = {"p": module.p} if kind == "power" else {"k": 64}
    options |= {"iterations": module.iterations} if hasattr(module, "iterations") else {}
    assert _close(module(X), dp.describe(X, kind, **options))


# Dynamo makes an instance of the class, which torch itself warns of.
@pytest.mark.filterwarnings("ignore:<class 'torch.autograd.function.Function'>")
@pytest.mark.parametrize("name", cases(list(MODULES), list(MODULES)[::4]))
def test_one_graph(name: str) -> None:
    torch._dynamo.reset()
    maps = torch.rand(2, 24, 13, 12)
    module = MODULES[name]()
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    assert _close(compiled(maps), module(maps))  # nothing to differentiate: another graph
    for found, expected in zip(gradient_of(compiled, maps), gradient_of(module, maps), strict=True):
        assert _close(found, expected)


@each_module
def test_export(name: str) -> None:
    maps = torch.rand(2, 24, 5, 6)
    module = MODULES[name]().eval()
    exported = torch.export.export(module, (maps,)).module()
    assert _close(exported(maps), module(maps))


def test_exported_programs_take_any_number_of_images() -> None:
    maps = torch.rand(4, 24, 5, 6)
    for name in ("democratic", "sketched", "sketched by fft"):
        module = MODULES[name]().eval()
        shapes = ({0: torch.export.Dim("batch", min=2)},)
        exported = torch.export.export(module, (maps,), dynamic_shapes=shapes).module()
        assert _close(exported(maps[:2]), module(maps[:2]))


@each_module
def test_any_scale_gives_the_same(name: str) -> None:
    X = torch.rand(1, 30, 24)
    module = _of_features(name)
    for scale in (1e-20, 1e20):
        assert _close(module(X * scale), module(X))


def test_half_networks_name_the_dtype_they_want() -> None:
    network = torch.nn.Sequential(SecondOrderPool(dtype=torch.bfloat16), torch.nn.Linear(36, 2))
    assert network.bfloat16()(torch.rand(1, 6, 5, 1).bfloat16()).dtype == torch.bfloat16
    assert "dtype=torch.bfloat16" in repr(network)


def test_jacobians() -> None:
    def first(x: Tensor) -> Tensor:
        return GammaDemocraticPool(route="matrix-free", layout="nd")(x)[0, :3]

    x = torch.rand(1, 140, 3, requires_grad=True)
    (expected,) = torch.autograd.grad(first(x)[1], x)
    assert _close(torch.func.jacrev(first)(x)[1], expected)


@each_module
def test_vmap_and_grad(name: str) -> None:
    maps = torch.rand(3, 24, 13, 12)
    module = MODULES[name]()
    stacked = torch.func.vmap(module)(torch.stack([maps, 2 * maps]))
    assert _close(stacked[1], module(2 * maps))

    def one(x: Tensor) -> Tensor:
        return module(x.unsqueeze(0))[0, :3].sum()

    per_image = torch.func.vmap(torch.func.grad(one))(maps)
    given = maps.clone().requires_grad_()
    module(given)[:, :3].sum().backward()
    assert _close(per_image, given.grad)


@each_module
def test_autocast_keeps_the_work_in_float32(name: str) -> None:
    maps = torch.rand(2, 24, 5, 6)
    module = MODULES[name]()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = module(maps)
        given = maps.clone().requires_grad_()
        total = module(given).sum()
    total.backward()
    assert y.dtype == torch.float32
    assert torch.equal(y, module(maps))
    expected = maps.clone().requires_grad_()
    module(expected).sum().backward()
    assert torch.equal(given.grad, expected.grad)
    half = module(maps.bfloat16())
    assert half.dtype == torch.float32


@each_module
def test_state_and_description(name: str) -> None:
    module = MODULES[name]()
    again = MODULES[name]()
    again.load_state_dict(module.state_dict())
    assert "normalize='signed-sqrt-l2'" in repr(module)
    if name.startswith("sketched"):
        assert {"h1", "h2", "s1", "s2"} <= set(module.state_dict())
        other = SketchedDemocraticPool(24, k=64, seed=1)
        other.load_state_dict(module.state_dict())
        X = torch.rand(1, 24, 3, 3)
        assert torch.equal(other(X), SketchedDemocraticPool(24, k=64)(X))
        assert "seed=0" in repr(other)
        with pytest.raises(InvalidInput, match="k=64, this module k=32"):
            SketchedDemocraticPool(24, k=32).load_state_dict(module.state_dict())


def test_zero_rows_are_ignored() -> None:
    X = torch.rand(2, 10, 24)
    padded = torch.cat([X, torch.zeros(2, 3, 24)], dim=1)
    for name in MODULES:
        assert _close(_of_features(name)(padded), _of_features(name)(X))


def test_wrong_settings() -> None:
    for call, sentence in (
        (lambda: GammaDemocraticPool(gamma=2), "gamma"),
        (lambda: GammaDemocraticPool(route="fft"), "route must be auto, dense or matrix-free"),
        (lambda: GammaDemocraticPool(backward="none"), "backward must be one of"),
        (lambda: MatrixPowerPool(0.3, route="polar"), "p = 0.5 only"),
        (lambda: MatrixPowerPool(route="dense"), "route must be one of"),
        (lambda: SketchedDemocraticPool(24, sketch="x"), "sketch must be auto"),
        (lambda: SketchedDemocraticPool(24)(torch.rand(1, 8, 5, 1)), "24 channels"),
        (lambda: SecondOrderPool(layout="nhwc"), "layout must be None, 'nchw' or 'nd'"),
        (lambda: SketchedDemocraticPool(24.0), "channels must be a whole number"),
        (lambda: SecondOrderPool()(torch.ones(1, 5, 8, dtype=torch.uint8)), "floating-point"),
        (lambda: SecondOrderPool()(np.ones((1, 5, 8))), "must be a tensor"),
        (lambda: SecondOrderPool(dtype=torch.int32), "floating-point dtype"),
        (lambda: GammaDemocraticPool().weights(torch.rand(1, 8, 5, 5)), r"\(B, n, d\)"),
    ):
        with pytest.raises(InvalidInput, match=sentence):
            call()


@pytest.mark.parametrize("name", MODULES)
def test_real_features_give_finite_gradients(name: str) -> None:
    real = features.make("VGG-16 at 224 px", "float32")
    X = torch.from_numpy(np.array(real)).reshape(-1, *real.shape[-2:])
    d = X.shape[-1]
    makers = {
        "sketched": lambda: SketchedDemocraticPool(d),
        "sketched by fft": lambda: SketchedDemocraticPool(d, sketch="fft"),
    }
    module = makers.get(name, MODULES[name])()
    module.layout = "nd"
    y, gradient = gradient_of(module, X)
    assert torch.isfinite(y).all()
    assert torch.isfinite(gradient).all()
    assert gradient.abs().max() > 0


def test_tensors_stay_in_torch() -> None:
    X = torch.rand(2, 9, 5, requires_grad=True)
    y = dp.describe(X, "democratic")
    assert isinstance(y, torch.Tensor)
    assert y.requires_grad
    with pytest.raises(InvalidInput, match="cannot leave torch"):
        dp.describe(X, "democratic", backend="numpy:cpu")
    detached = dp.describe(X.detach(), "democratic", backend="numpy:cpu")
    assert isinstance(detached, torch.Tensor)
    assert _close(detached, y.detach())
    maps = torch.rand(2, 5, 3, 3)
    assert _close(
        dp.describe(maps, "power", layout="nchw"), dp.describe(maps.flatten(2).mT, "power")
    )
    from_numpy = dp.describe(X.detach().numpy(), "democratic", backend="torch:cpu")
    assert isinstance(from_numpy, np.ndarray)
    assert np.allclose(from_numpy, y.detach().numpy(), atol=1e-6)


def test_a_sign_that_torch_has_put_off_leaves_torch() -> None:
    X = torch.rand(2, 5, 3)
    found = dp.describe(torch._neg_view(-X), "sum", order=1, backend="numpy:cpu")
    assert torch.equal(found, dp.describe(X, "sum", order=1, backend="numpy:cpu"))


def test_dlpack_in_and_out() -> None:
    X = np.random.default_rng(0).random((2, 9, 5), dtype=np.float32)
    tensor = torch.from_dlpack(X)
    assert tensor.data_ptr() == X.ctypes.data
    y = OPS.pool(tensor)
    assert np.shares_memory(np.from_dlpack(y), y.numpy())


def test_arrays_are_views_where_they_can_be() -> None:
    X = np.ones((3, 4), np.float32)
    assert OPS.asarray(X).data_ptr() == X.ctypes.data
    assert OPS.asarray(X[::-1]).tolist() == X[::-1].tolist()
    X.flags.writeable = False
    assert OPS.asarray(X).data_ptr() != X.ctypes.data
