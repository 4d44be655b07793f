"""Two streams of features: bilinear CNN and compact bilinear pooling, on every backend."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import demopool as dp
from demopool import reference
from demopool.errors import InvalidInput, Unsupported

EPS = np.finfo(np.float64).eps
rng = np.random.default_rng(0)
X, Y = rng.standard_normal((3, 12, 5)) + 1, rng.standard_normal((3, 12, 7)) - 2
LENGTHS = [12, 7, 4]
BOTH = ("sum", "sketched-sum")


def _expected(descriptor: str, X: Any = X, Y: Any = Y, normalize: str = "l2") -> Any:
    if descriptor == "sum":
        v = reference.bilinear(X, Y).reshape(*X.shape[:-2], -1)
    else:
        first, second = (dp.hashes(x.shape[-1], k=16, seed=1) for x in (X, Y))
        v = reference.bilinear_sketch(X, Y, first, second)
    return reference.normalize(v, kind=normalize)


def _described(X: Any, Y: Any, descriptor: str, normalize: str = "l2", **options: Any) -> Any:
    return dp.describe((X, Y), descriptor, k=16, seed=1, normalize=normalize, **options)


# --- published formulas ---


def test_the_sum_is_that_of_a_bilinear_cnn() -> None:
    """Lin et al., ICCV 2015: the sum over places of f_A(l)^T f_B(l), signed root, l2."""
    pooled = sum(np.outer(x, y) for x, y in zip(X[0], Y[0], strict=True)).ravel()  # type: ignore[union-attr]
    rooted = np.sign(pooled) * np.sqrt(np.abs(pooled))
    found = dp.describe((X[0], Y[0]), "sum")
    np.testing.assert_allclose(found, rooted / np.linalg.norm(rooted), atol=1e-7)


def test_the_sketch_is_that_of_compact_bilinear_pooling() -> None:
    """Gao et al., CVPR 2016: entry (i, j) with its signs in bin (h1(i) + h2(j)) mod k."""
    first, second = dp.hashes(5, k=16, seed=1), dp.hashes(7, k=16, seed=1)
    M, bins = X[0].T @ Y[0], np.zeros(16)
    for i in range(5):
        for j in range(7):
            sign = int(first.s1[i]) * int(second.s2[j])
            bins[(first.h1[i] + second.h2[j]) % 16] += sign * M[i, j]
    found = _described(X[0], Y[0], "sketched-sum", normalize="none")
    np.testing.assert_allclose(found, bins, atol=1e3 * EPS * np.abs(bins).max())
    np.testing.assert_allclose(
        reference.bilinear_sketch(X[0], Y[0], first, second), bins, atol=1e3 * EPS * np.abs(M).max()
    )


# --- laws ---


@pytest.mark.parametrize("descriptor", BOTH)
def test_a_stream_with_itself_is_one_stream(descriptor: str) -> None:
    one = dp.describe(X, descriptor, k=16, seed=1, normalize="l2")
    np.testing.assert_allclose(_described(X, X, descriptor), one, atol=1e3 * EPS)


def test_streams_in_the_other_order_are_the_transpose() -> None:
    found = _described(X, Y, "sum").reshape(3, 5, 7)
    np.testing.assert_allclose(_described(Y, X, "sum").reshape(3, 7, 5), found.mT, atol=1e3 * EPS)


@pytest.mark.parametrize("descriptor", BOTH)
@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_the_scale_of_both_does_not_matter(descriptor: str, scale: float) -> None:
    single = (X * scale).astype(np.float32), (Y * scale).astype(np.float32)
    found = _described(*single, descriptor)
    assert np.abs(found - _expected(descriptor)).max() <= 64 * np.finfo(np.float32).eps


# --- every backend ---


@pytest.mark.parametrize("descriptor", BOTH)
def test_every_backend_gives_the_references(usable: str, descriptor: str) -> None:
    ops = dp.backend(usable)
    found = _described(ops.asarray(X), ops.asarray(Y), descriptor, backend=usable)
    np.testing.assert_allclose(ops.to_numpy(found), _expected(descriptor), atol=1e3 * EPS)
    named = _described(X, Y, descriptor, backend=usable)
    np.testing.assert_allclose(named, _expected(descriptor), atol=1e3 * EPS)


@pytest.mark.parametrize("descriptor", BOTH)
def test_a_batch_is_its_images_bit_by_bit(usable: str, descriptor: str) -> None:
    ops = dp.backend(usable)
    single = [ops.asarray(array.astype(np.float32)) for array in (X, Y)]
    together = ops.to_numpy(_described(*single, descriptor))
    for i in range(3):
        alone = _described(single[0][i : i + 1], single[1][i : i + 1], descriptor)
        # torch multiplies one image in another order than several, of one stream too.
        allowed = 8 * np.finfo(np.float32).eps if usable.startswith("torch") else 0
        assert np.abs(ops.to_numpy(alone)[0] - together[i]).max() <= allowed


@pytest.mark.parametrize("descriptor", BOTH)
def test_with_a_centre_padding_layout_and_dtype(descriptor: str) -> None:
    found = _described(X, Y, descriptor, center=True, lengths=LENGTHS)
    for i, length in enumerate(LENGTHS):
        parts = [reference.center(array[i, :length]) for array in (X, Y)]
        np.testing.assert_allclose(found[i], _expected(descriptor, *parts), atol=1e3 * EPS)
    maps = [array.mT.reshape(3, -1, 4, 3) for array in (X, Y)]
    laid = _described(*maps, descriptor, layout="nchw")
    np.testing.assert_allclose(laid, _expected(descriptor), atol=1e3 * EPS)
    halves = _described(X.astype(np.float16), Y.astype(np.float16), descriptor, dtype="float64")
    assert halves.dtype == np.float64
    assert _described(X[:0], Y[:0], descriptor).shape == (0, 35 if descriptor == "sum" else 16)


def test_half_precision_is_worked_in_float32() -> None:
    halves = X.astype(np.float16), Y.astype(np.float16)
    found = _described(*halves, "sum")
    assert found.dtype == np.float32
    assert np.abs(found - _expected("sum", *halves)).max() <= 64 * np.finfo(np.float32).eps


def test_two_streams_of_tensors_have_gradients_and_ignore_autocast() -> None:
    torch = pytest.importorskip("torch")
    streams = [torch.tensor(array[:2, :4], requires_grad=True) for array in (X, Y)]
    for descriptor in BOTH:

        def call(x: Any, y: Any, descriptor: str = descriptor) -> Any:
            return _described(x, y, descriptor)

        assert torch.autograd.gradcheck(call, streams)
    single = [stream.detach().float() for stream in streams]
    plain = _described(*single, "sum")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(_described(*single, "sum"), plain)


# --- what is refused ---


def test_a_list_is_a_batch_as_before() -> None:
    found = dp.describe([X[0], X[1]], "sum")
    assert np.array_equal(found, dp.describe(X[:2], "sum"))


@pytest.mark.parametrize(
    ("descriptor", "options", "reason"),
    [
        ("democratic", {}, "democratic of two streams is not supported: their weights are of"),
        ("sketched-power", {}, "X^T Y is not symmetric and has no such power"),
        ("sum", {"order": 1}, "the first order has no products of two features"),
        ("sum", {"vectorize": "upper"}, "X^T Y is not symmetric, its triangle is not all of it"),
        ("sketched-sum", {"route": "fft"}, "there is no route fft, sketches are made of X^T Y"),
    ],
)
def test_what_has_no_meaning_says_why(
    descriptor: str, options: dict[str, Any], reason: str
) -> None:
    with pytest.raises(Unsupported, match=re.escape(reason)):
        dp.describe((X, Y), descriptor, **options)


def test_streams_that_do_not_fit_together() -> None:
    for other in (Y[:, :3], Y[:2], Y.astype(np.float32)):
        with pytest.raises(InvalidInput, match="Two streams must have the same images and rows"):
            dp.describe((X, other), "sum")
    torch = pytest.importorskip("torch")
    with pytest.raises(InvalidInput, match="one library; got numpy:cpu and torch:cpu"):
        dp.describe((X, torch.tensor(Y)), "sum")
    with pytest.raises(InvalidInput, match=r"^Y must be a dense array"):
        dp.describe((X, Y.astype(int)), "sum")


# --- the module ---


@pytest.mark.parametrize("k", [None, 16])
def test_the_module_gives_what_describe_gives(k: int | None) -> None:
    torch = pytest.importorskip("torch")
    from demopool.torch import BilinearPool

    descriptor = "sketched-sum" if k else "sum"
    x, y = torch.tensor(X), torch.tensor(Y)
    lengths = torch.tensor(LENGTHS)
    module = BilinearPool((5, 7), k, seed=1, normalize="l2", layout="nd", center=True)
    wanted = _described(x, y, descriptor, center=True, lengths=LENGTHS)
    assert torch.allclose(module(x, y, lengths), wanted, rtol=0, atol=1e3 * EPS)
    assert torch.allclose(module(x[0], y[0], lengths[0]), wanted[0], rtol=0, atol=1e3 * EPS)
    maps = [array.mT.reshape(3, -1, 4, 3) for array in (x, y)]
    laid = BilinearPool((5, 7), k, seed=1, normalize="l2")(*maps)
    assert torch.allclose(laid, torch.tensor(_expected(descriptor)), rtol=0, atol=1e3 * EPS)
    again = BilinearPool((5, 7), k, seed=9, normalize="l2")
    again.load_state_dict(BilinearPool((5, 7), k, seed=1).state_dict())
    assert torch.equal(again(*maps), laid)
    inputs = [array[:2, :, :2, :2].clone().requires_grad_() for array in maps]
    assert torch.autograd.gradcheck(BilinearPool((5, 7), k, seed=1), inputs)


def test_a_module_of_other_channels() -> None:
    torch = pytest.importorskip("torch")
    from demopool.torch import BilinearPool

    maps = torch.rand(2, 5, 3, 3)
    with pytest.raises(InvalidInput, match=r"y must have 7 channels; got \(2, 5, 3, 3\)"):
        BilinearPool((5, 7))(maps)
    with pytest.raises(InvalidInput, match=r"x must have 5 channels; got \(2, 5\)"):
        BilinearPool((5, 7))(maps[:, :, 0, 0])
    with pytest.raises(InvalidInput, match="one dtype"):
        BilinearPool((5, 5))(maps, maps.double())
    with pytest.raises(InvalidInput, match="channels must be d1 and d2; got 5"):
        BilinearPool(5)  # type: ignore[arg-type]
    assert "channels=(5, 7), k=16, seed=0" in repr(BilinearPool((5, 7), 16))
