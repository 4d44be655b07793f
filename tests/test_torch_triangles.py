"""Large symmetric matrices in torch, by blocks: triangles, norms, derivatives, layouts."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from benchmarks.baselines import torch_democratic_of_maps  # noqa: E402
from demopool.implementations.torch_any import triangles  # noqa: E402
from demopool.implementations.torch_any.implementation import KERNELS  # noqa: E402
from demopool.torch import GammaDemocraticPool, SecondOrderPool  # noqa: E402

D = 300
"""Three blocks, the last of them smaller."""

EPS = torch.finfo(torch.float32).eps
kinds = pytest.mark.parametrize("kind", ["signed-sqrt-l2", "l2", "none"])


def pool(*given: Any, **options: Any) -> Any:
    return KERNELS["pool", "direct"](*given, order=2, **options)


def normalize(v: Any, kind: str, **options: Any) -> Any:
    options = {"axes": 2, "overwrite": False, **options}
    return KERNELS["normalize", "direct"](v, kind=kind, **options)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("kind", ["signed-sqrt-l2", "l2"])
@pytest.mark.parametrize("d", [5, D])
def test_only_the_lower_triangle_is_read(kind: str, d: int) -> None:
    A = torch.randn(3, d, d)
    A = A + A.mT
    found = torch.where(torch.ones(d, d).tril() > 0, A, torch.nan)
    triangles.normalize_triangles_(found, kind)
    assert torch.equal(found, found.mT)
    expected = normalize(A.double(), kind)
    assert (found - expected).abs().max() <= 8 * EPS * expected.abs().max()


@pytest.mark.parametrize("weighted", [False, True])
def test_a_pooled_triangle_is_that_of_the_whole(weighted: bool) -> None:
    X = torch.rand(2, 40, D)
    a = torch.rand(2, 40) if weighted else None
    lower = triangles.weighted_moment(X, a, triangle=True).tril()
    assert torch.equal(pool(X, a).tril(), lower)


@kinds
def test_half_precision_with_a_derivative_keeps_its_layout_and_norm(kind: str) -> None:
    """By the formula for derivatives and in place: the same numbers, but for the order of sums."""
    X = torch.rand(2, 3, 20, 200).to(torch.bfloat16)
    plain = pool(X, None, norm=kind)
    graph = pool(X.clone().requires_grad_(), None, norm=kind)
    assert graph.requires_grad
    assert graph.shape == plain.shape == (2, 3, 200, 200)
    assert torch.equal(graph, plain)


def test_an_image_has_the_same_moment_in_every_batch() -> None:
    X = torch.rand(5, 30, D)
    assert torch.equal(pool(X, None), torch.stack([pool(image, None) for image in X]))


@kinds
@pytest.mark.parametrize("d", [5, 200, D])
def test_an_image_has_the_same_norm_in_every_batch(kind: str, d: int) -> None:
    A, X = torch.randn(5, d, d), torch.randint(-1, 2, (5, 30, d)).float()
    alone = torch.stack([normalize(image, kind) for image in A])
    assert torch.equal(normalize(A, kind), alone)
    alone = torch.stack([pool(image, None, norm=kind) for image in X])
    assert torch.equal(pool(X, None, norm=kind), alone)


@pytest.mark.parametrize("d", [5, 600])
@pytest.mark.parametrize(("dtype", "bits"), [(torch.float32, 40), (torch.float64, 300)])
def test_the_l2_norm_of_features_far_from_one(dtype: Any, bits: int, d: int) -> None:
    """A power of two changes no bit: alone, with an ordinary image, in graphs, by vmap."""
    X, G = torch.randn(2, 9, d, dtype=dtype), torch.randn(2, d, d, dtype=dtype)
    far = X * 2.0 ** torch.tensor([bits, -bits]).reshape(2, 1, 1).to(dtype)

    def everything(X: Any) -> list[Any]:
        given = X.clone().requires_grad_()
        A = (X.mT @ X).requires_grad_()
        norm, both = pool(given, None, norm="l2"), normalize(A, "l2")
        (gradient,) = torch.autograd.grad((norm * G).sum(), given)
        (by_matrix,) = torch.autograd.grad((both * G).sum(), A)
        return [
            *(pool(X, None, norm="l2"), normalize(A.detach(), "l2")),
            *(norm, both, torch.func.vmap(lambda x: pool(x, None, norm="l2"))(X)),
            *(gradient * X.abs().amax(dim=(1, 2), keepdim=True), by_matrix * A.detach()),
        ]

    wanted = everything(X)
    for images in ([0], [1], [0, 1]):
        mixed = X.clone()
        mixed[images] = far[images]
        for found, plain in zip(everything(mixed), wanted, strict=True):
            assert torch.equal(found, plain)
            assert found.any()


@kinds
@pytest.mark.parametrize("derivative", [False, True])
def test_the_norm_of_no_images(kind: str, derivative: bool) -> None:
    X, v = torch.empty(0, 4, D, requires_grad=derivative), torch.empty(0, 5, 5)
    assert pool(X, None, norm=kind).shape == (0, D, D)
    assert normalize(v.requires_grad_(derivative), kind).shape == v.shape


@kinds
def test_derivatives_by_blocks(kind: str) -> None:
    """The same as those of plain operations, in a graph of torch's own."""
    X = torch.randn(2, 7, D, dtype=torch.float64, requires_grad=True)
    A = X.mT @ X
    roots = A.sign() * A.abs().sqrt() if kind == "signed-sqrt-l2" else A
    norm = roots.flatten(1).norm(dim=1).reshape(-1, 1, 1) if kind != "none" else 1.0
    G = torch.randn(2, D, D, dtype=torch.float64)
    (expected,) = torch.autograd.grad((roots / norm * G).sum(), X)
    found = SecondOrderPool(normalize=kind, layout="nd")(X)
    (gradient,) = torch.autograd.grad((found * G.flatten(1)).sum(), X)
    allowed = D * torch.finfo(torch.float64).eps * expected.abs().max()
    assert (gradient - expected).abs().max() <= allowed


@kinds
def test_conv_maps_keep_their_layout(kind: str) -> None:
    """In both directions: a copy would have another layout."""
    maps = torch.rand(2, D, 3, 4)
    rows = maps.flatten(2).mT.detach().requires_grad_()
    head = GammaDemocraticPool(normalize=kind, layout="nd")
    # Not a sum of squares, which is 1 after the norm whatever the features are.
    along = torch.rand(2, D * D)
    (gradient,) = torch.autograd.grad((head(rows) * along).sum(), rows)
    assert gradient.stride() == rows.stride()
    copied = rows.detach().contiguous().requires_grad_()
    (expected,) = torch.autograd.grad((head(copied) * along).sum(), copied)
    assert expected.stride() == copied.stride()
    assert (gradient - expected).abs().max() <= 100 * EPS * expected.abs().max()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("d", [6, 140])
def test_half_precision_is_converted_in_parts(
    dtype: Any, d: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    n = 2 * triangles._FEATURES + 50
    X = torch.rand(3, n, d).to(dtype)
    converted: list[int] = []
    plain = triangles.working

    def counted(part: Any) -> Any:
        converted.append(part.numel())
        return plain(part)

    monkeypatch.setattr(triangles, "working", counted)
    found = pool(X, None)
    assert max(converted) < X.numel() / 2
    expected = X.double().mT @ X.double()
    assert (found - expected).abs().max() <= n * EPS * expected.abs().max()


@pytest.mark.parametrize("norm", [False, True])
def test_the_authors_formulation_agrees(norm: bool) -> None:
    """What `make ratios` compares with computes the same."""
    maps = torch.rand(2, 150, 3, 4, dtype=torch.float64)
    head = GammaDemocraticPool(normalize="signed-sqrt-l2" if norm else "none")
    expected = torch_democratic_of_maps(maps, norm)
    assert (head(maps) - expected).abs().max() <= 1e3 * expected.abs().max() * 2**-52
