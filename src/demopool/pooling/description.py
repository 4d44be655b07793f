"""``describe``: from features to descriptors in one call, on the best backend for the data."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..contract import registry
from ..contract.interface import ArrayFacts
from ..errors import InvalidInput, Unsupported
from ..problem.vocabulary import Backend
from ..profiles import auto
from . import plans, preparing, streams, values
from .operations import Operations
from .operations import backend as operations_of


def describe(
    X: Any,
    descriptor: str,
    *,
    gamma: float = 0.5,
    tau: float = 0.5,
    iterations: int = 10,
    p: float = 0.5,
    k: int = 8192,
    seed: int = 0,
    order: int = 2,
    center: bool = False,
    layout: str | None = None,
    lengths: Any = None,
    zero_rows: str = "warn",
    normalize: str = "signed-sqrt-l2",
    vectorize: str = "full",
    backend: str = "auto",
    route: str = "auto",
    check: bool = True,
    dtype: Any = None,
    accuracy: str | float = "fast",
) -> Any:
    """One descriptor per image; an array stays in its library and on its device.

    X           features: ``(n, d)`` or ``(B, n, d)``; with ``layout`` also conv maps; a tuple of
                two arrays is two streams, of which ``sum`` and ``sketched-sum`` pool ``x y^T``
    descriptor  ``sum``, ``democratic``, ``power``, or their ``sketched-`` twins
    gamma       0 equalises all contributions, 1 is sum pooling (democratic)
    tau         damping of the Sinkhorn iteration (democratic)
    iterations  Sinkhorn iterations (democratic)
    p           exponent (power)
    k, seed     length of the sketch, and which hashes (sketched)
    order       2, or 1 for first-order ``sum`` and ``democratic``
    center      subtract the mean of an image's rows first: ``sum`` is then n times the covariance
    layout      ``"nd"`` (any leading axes), ``"nchw"`` or ``"nhwc"`` (one image or many)
    lengths     of padded images, one number each: rows after that many are as if not there
    zero_rows   ``"warn"`` (once), ``"ignore"`` or ``"error"``, for democratic descriptors: a row of
                zeros has weight 0, and the descriptor is that of the other rows
    normalize   ``"signed-sqrt-l2"``, ``"l2"`` or ``"none"``
    vectorize   ``"full"``, or ``"upper"``: after the norm, the upper triangle of the matrix with
                off-diagonal entries times sqrt(2), which keeps norms and dot products
    backend     ``"auto"`` or a name from ``demopool.backends()``
    route       ``"auto"`` or a route such as ``"dense"``, ``"gram+moment"``
    check       read the values once for NaN, infinities, zero rows and range
    dtype       of the work and the result; the input's own by default
    accuracy    what ``auto`` may take: ``"fast"`` any route that conforms, ``"accurate"`` the most
                accurate one, a number those whose known error is at most that

    Returns ``(..., D)``: D is d*d (of two streams d1*d2), row by row, or d*(d+1)/2 of the triangle,
    or k when sketched, or d for order 1.
    """
    given = (descriptor, gamma, tau, iterations, p, k, seed, order, center, layout, zero_rows)
    asked = plans.wanted(*given, normalize, vectorize, backend, route, check, dtype, accuracy)
    kind = asked.descriptor

    split = None
    if isinstance(X, tuple) and len(X) == 2 and all(registry.owner(x) for x in X):
        streams.refuse(kind, asked.order, vectorize, route)
        features, home, split = _two_streams(X[0], X[1], layout)
    else:
        X, home = _array(X)
        features = _as_rows(home, X, layout)
    facts = home.inspect_features(features)
    present = None
    if lengths is not None:
        with home.implementation.arithmetic():
            features, present = preparing.padded(home, features, lengths, layout)
    if center:
        features = _centered(home, features, present, asked)
        facts = home.inspect_features(features)
    if split is None and asked.leaves_a_choice and 0 not in facts.shape:
        backend, route = _picked(home, features, facts, asked)
    ops = home if backend in ("auto", home.name) else operations_of(backend)
    if asked.dtype is not None and not ops.supports("normalize", dtype=asked.dtype):
        raise Unsupported(f"dtype={asked.dtype!r}", f"{ops.name} has no such arrays")
    if ops is not home:
        features = _moved(features, home, ops)
        facts = ops.inspect_features(features)
    features = ops.implementation.packed(features)
    ordinary = False
    if check and 0 not in facts.shape:
        features, ordinary = values.checked(ops, features, present, asked)
    if asked.dtype is not None or split is not None:
        features = ops.implementation.cast(features, asked.work(facts.dtype))
    if split is None:
        v = plans.plan(ops, asked, route, facts).run(features, ordinary)
    else:
        v = streams.pooled(
            ops, features, split, (asked.k, asked.seed) if kind.is_sketched else None
        )
        length = asked.k if kind.is_sketched else v.shape[-2] * v.shape[-1]
        v = v.reshape((*features.shape[:-2], length))
        v = ops.normalize(v, axes=1, kind=normalize, overwrite=True)
    if asked.dtype is not None:
        v = ops.implementation.cast(v, asked.dtype)
    v = v if ops is home else _moved(v, ops, home)
    if vectorize == "upper":
        xp = preparing.namespace(home, "a triangle", v)
        with home.implementation.arithmetic():
            v = preparing.upper(xp, v, features.shape[-1])
    return v


def _moved(array: Any, of: Operations, to: Operations) -> Any:
    """An array of one backend as one of another: where it is, if that backend can take it there."""
    there = to.implementation.adopt(array)
    return to.asarray(of.to_numpy(array)) if there is None else there


def _two_streams(X: Any, Y: Any, layout: str | None) -> tuple[Any, Operations, int]:
    """Both in one array, the operations of their library, and where the second begins."""
    (X, home), (Y, other) = _array(X), _array(Y)
    if home is not other:
        raise InvalidInput(
            f"Two streams must be arrays of one library; got {home.name} and {other.name}."
        )
    first, second = _as_rows(home, X, layout), _as_rows(home, Y, layout, "Y")
    return streams.joined(home, first, second), home, first.shape[-1]


def _centered(home: Operations, X: Any, present: preparing.Mask | None, asked: plans.Wanted) -> Any:
    """In the dtype of the work. A mean would spread what is not finite to all rows."""
    work = asked.work(home.inspect_features(X).dtype)
    if asked.check and 0 not in X.shape:
        magnitudes = home.implementation.row_magnitudes(X).astype(np.float64)
        values.check_finite(magnitudes, "ignore")
        if asked.normalize != "none":
            X = values.into_range(home, X, magnitudes, work)
    xp = preparing.namespace(home, "center", X)
    with home.implementation.arithmetic():
        return preparing.centered(xp, home.implementation.cast(X, work), present)


def _picked(
    home: Operations, features: Any, facts: ArrayFacts, asked: plans.Wanted
) -> tuple[str, str]:
    """What auto takes for these features."""
    if asked.backend != "auto":
        registry.demand(asked.backend)
    stays = asked.backend == "auto" and home.implementation.keeps(features)
    how: dict[str, Any] = {
        "backend": home.name if stays else asked.backend,
        "route": asked.route,
        "accuracy": asked.accuracy,
    }
    return auto.pick(plans.case_of(home.name, asked, facts), home=home.name, **how)


def _array(X: Any) -> tuple[Any, Operations]:
    """The array and the operations of the library it lives in; nested lists become NumPy."""
    owner = registry.owner(X)
    if owner is None and isinstance(X, list | tuple):
        try:
            X = np.asarray(X)
        except ValueError:
            raise InvalidInput("X must be an array; got lists of unequal lengths.") from None
        owner = "numpy:cpu"
    if owner is None:
        raise InvalidInput(f"X must be an array (here {_kinds()}); got a {_not_taken(X)}.")
    if owner == "numpy:cpu":
        X = np.asarray(X)  # a matrix is an array here, a memory map stays one
    return X, operations_of(owner)


def _kinds() -> str:
    """The arrays that can be given here."""
    return ", ".join(dict.fromkeys(Backend(name).arrays for name in registry.available()))


def _not_taken(X: Any) -> str:
    """What was given in place of an array, and what to do about it."""
    kind = f"{type(X).__module__}.{type(X).__qualname__}"
    device = getattr(getattr(X, "device", None), "type", None)
    if device == "meta":
        return f"{kind} on meta, which has no values"
    if device is not None:
        return f"{kind} on {device}; .cpu() makes one"
    if isinstance(X, np.ma.MaskedArray):
        return f"{kind}; .filled(0) makes one, with 0 for what is masked"
    if hasattr(X, "toarray"):
        return f"sparse {kind}; .toarray() makes one"
    return f"{kind}; numpy.asarray makes one" if hasattr(X, "__array__") else kind


def _as_rows(home: Operations, X: Any, layout: str | None, name: str = "X") -> Any:
    """``(..., n, d)`` from any layout; more than three axes are never guessed at."""
    home.check_kind(X, name)
    shape = tuple(X.shape)
    if layout in ("nchw", "nhwc"):
        if len(shape) not in (3, 4):
            axes = "(C, H, W) or (B, C, H, W)" if layout == "nchw" else "(H, W, C) or (B, H, W, C)"
            raise InvalidInput(f"X must be {axes} for layout={layout!r}; got shape {shape}.")
        *batch, first, second, third = shape
        reshaped, transposed = home.implementation.reshaped, home.implementation.transposed
        if layout == "nchw":
            return transposed(reshaped(X, (*batch, first, second * third)))
        return reshaped(X, (*batch, first * second, third))
    if layout is None and len(shape) not in (2, 3):
        raise InvalidInput(
            f"X must be (n, d) or (B, n, d) unless layout is given "
            f"(nchw, nhwc, or nd for any leading axes); got shape {shape}."
        )
    return X
