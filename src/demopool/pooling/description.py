"""``describe``: from features to descriptors in one call, on the best backend for the data."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..contract import registry
from ..errors import InvalidInput, Unsupported
from ..problem import routes
from ..problem.hashing import Hashes, hashes
from ..problem.operations import demand_defined
from ..problem.parameters import validated
from ..problem.vocabulary import Backend, Descriptor, Dtype
from ..profiles import auto
from . import preparing, streams
from .operations import Operations
from .operations import backend as operations_of

SAFE_EXPONENT = 20
"""Features of up to 2**20, and down to 2**-20, need no scaling in any dtype of the work."""

ORDINARY = 2.0**-13, 2.0**13
"""Rows whose largest magnitude is in this range are neither zero nor faint, and need no scaling:
their squares fit every dtype of the work, and so do squares of the squares of their ratios."""


SMALL = 64
"""Matrices of up to so many rows are mirrored when they are pooled, which their norm gains nothing
from doing."""


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
    kind: Descriptor = validated(descriptor=descriptor)
    layout, order, check, gamma, tau, iterations, p = validated(
        layout=layout, order=order, check=check, gamma=gamma, tau=tau, iterations=iterations, p=p
    )
    k, seed, dtype, zero_rows, normalize, center, vectorize, backend, route = validated(
        k=k,
        seed=seed,
        dtype=dtype,
        zero_rows=zero_rows,
        normalize=normalize,
        center=center,
        vectorize=vectorize,
        backend=backend,
        route=route,
    )
    chosen = routes.demand(descriptor, route)
    accuracy = routes.left_to(accuracy, route)
    demand_defined(kind, order=order, center=center, vectorize=vectorize)

    split = None
    if isinstance(X, tuple) and len(X) == 2 and all(registry.owner(x) for x in X):
        streams.refuse(kind, order, vectorize, route)
        features, home, split = _two_streams(X[0], X[1], layout)
    else:
        X, home = _array(X)
        home.check_kind(X)
        features = _as_rows(X, layout)
    present = None
    if lengths is not None:
        features, present = preparing.padded(home, features, lengths, layout)
    if center:
        work = Dtype(dtype or home.inspect_features(features).dtype).result
        features = _centered(home, features, present, work, check, normalize)
    if split is None and "auto" in (backend, *chosen.values()):
        parameters: dict[str, Any] = {"k": k, "order": order, "iterations": iterations, "p": p}
        parameters |= {"gamma": gamma, "tau": tau}
        if dtype is not None:
            parameters["dtype"] = dtype.result  # what is worked in
        backend, route = _picked(home, features, kind, backend, route, accuracy, parameters)
        chosen = routes.split(descriptor, route)
    ops = home if backend in ("auto", home.name) else operations_of(backend)
    if dtype is not None and not ops.supports("normalize", dtype=dtype):
        raise Unsupported(f"dtype={dtype!r}", f"{ops.name} has no such arrays")
    if ops is not home:
        features = _moved(features, home, ops)
    facts = ops.inspect_features(features)
    work = Dtype(dtype or facts.dtype).result
    if check and 0 not in facts.shape:
        magnitudes = ops.implementation.row_magnitudes(features)
        if not _are_ordinary(magnitudes):
            magnitudes = magnitudes.astype(np.float64)
            if present is not None:  # the zeros of padding are no zero rows
                magnitudes = np.where(present, magnitudes, magnitudes.max(axis=-1, keepdims=True))
            _check_values(magnitudes, zero_rows if kind.method == "democratic" else "ignore")
            if normalize == "none":
                _check_range(magnitudes, facts.shape[-2:], work)
            else:
                features = _into_range(ops, features, magnitudes, work)
            if kind.method == "democratic" and gamma < 1 and iterations > 0:
                _check_faint(magnitudes, work, order)
    if dtype is not None:
        features = ops.implementation.cast(features, work)

    # The norm mirrors a matrix while it scales it, so pooling need not.
    in_triangles = (
        split is None
        and normalize != "none"
        and order == 2
        and features.shape[-1] > SMALL
        and "pool" in kind.operations
    )
    if split is not None:
        features = ops.implementation.cast(features, work)
        v = streams.pooled(ops, features, split, (k, seed) if kind.is_sketched else None)
        length = k if kind.is_sketched else v.shape[-2] * v.shape[-1]
    else:
        sketching = hashes(features.shape[-1], k, seed) if kind.is_sketched else None
        weighting: dict[str, Any] = {"gamma": gamma, "tau": tau, "iterations": iterations}
        v = _compute(ops, features, chosen, sketching, weighting, p, order, in_triangles)
        length = k if sketching else features.shape[-1] ** order
    if in_triangles:
        v = ops.normalize(v, axes=2, kind=normalize, overwrite=True, symmetric=True)
    v = v.reshape((*features.shape[:-2], length))
    if not in_triangles:
        v = ops.normalize(v, axes=1, kind=normalize, overwrite=True)
    if dtype is not None:
        v = ops.implementation.cast(v, dtype)
    v = v if ops is home else _moved(v, ops, home)
    if vectorize == "upper":
        v = preparing.upper(preparing.namespace(home, "a triangle", v), v, features.shape[-1])
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
    for array, name in ((X, "X"), (Y, "Y")):
        home.check_kind(array, name)
    first, second = _as_rows(X, layout), _as_rows(Y, layout)
    return streams.joined(home, first, second), home, first.shape[-1]


def _centered(
    home: Operations, X: Any, present: preparing.Mask | None, work: str, check: bool, normalize: str
) -> Any:
    """In the dtype of the work. A mean would spread what is not finite to all rows."""
    if check and 0 not in X.shape:
        magnitudes = home.implementation.row_magnitudes(X).astype(np.float64)
        _check_values(magnitudes, "ignore")
        if normalize != "none":
            X = _into_range(home, X, magnitudes, work)
    xp = preparing.namespace(home, "center", X)
    return preparing.centered(xp, home.implementation.cast(X, work), present)


def _picked(
    home: Operations,
    features: Any,
    descriptor: Descriptor,
    backend: str,
    route: str,
    accuracy: str | float,
    parameters: dict[str, Any],
) -> tuple[str, str]:
    """What auto takes for these features. What is wrong with them is said later, in one place."""
    facts = home.implementation.inspect(features)
    if facts is None or len(facts.shape) < 2 or 0 in facts.shape:
        return backend, route
    parameters = {"dtype": facts.dtype, **parameters}
    case = auto.case_of(home.name, descriptor, facts.shape, **parameters)
    if backend != "auto":
        registry.demand(backend)
    return auto.pick(case, home=home.name, backend=backend, route=route, accuracy=accuracy)


def _compute(
    ops: Operations,
    X: Any,
    chosen: dict[str, str],
    sketching: Hashes | None,
    weighting: dict[str, Any],
    p: float,
    order: int,
    triangle: bool,
) -> Any:
    """The operations of a descriptor, in the order of work."""
    if sketching is not None and "power_sketch" in chosen:
        return ops.power_sketch(X, sketching, p=p, route=chosen["power_sketch"])
    if "power" in chosen:
        return ops.power(X, p=p, route=chosen["power"])
    a = None
    if "weights" in chosen:
        a = ops.weights(X, **weighting, order=order, route=chosen["weights"])
    if sketching is not None:
        return ops.pool_sketch(X, sketching, a, route=chosen["pool_sketch"])
    return ops.pool(X, a, order=order, triangle=triangle)


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


def _as_rows(X: Any, layout: str | None) -> Any:
    """``(..., n, d)`` from any layout; more than three axes are never guessed at."""
    shape = tuple(X.shape)
    if layout in ("nchw", "nhwc"):
        if len(shape) not in (3, 4):
            axes = "(C, H, W) or (B, C, H, W)" if layout == "nchw" else "(H, W, C) or (B, H, W, C)"
            raise InvalidInput(f"X must be {axes} for layout={layout!r}; got shape {shape}.")
        *batch, first, second, third = shape
        if layout == "nchw":
            return X.reshape((*batch, first, second * third)).swapaxes(-1, -2)
        return X.reshape((*batch, first * second, third))
    if layout is None and len(shape) not in (2, 3):
        raise InvalidInput(
            f"X must be (n, d) or (B, n, d) unless layout is given "
            f"(nchw, nhwc, or nd for any leading axes); got shape {shape}."
        )
    return X


def _are_ordinary(magnitudes: NDArray[Any]) -> bool:
    """Whether none of the checks below can find anything; NaN is in no range."""
    low, high = ORDINARY
    # Not the methods of the same meaning, which go through Python.
    return bool(
        np.minimum.reduce(magnitudes, axis=None) >= low
        and np.maximum.reduce(magnitudes, axis=None) <= high
    )


def _check_values(magnitudes: NDArray[Any], zero_rows: str) -> None:
    """NaN, infinities and zero rows, from the largest magnitude of each row."""
    bad = ~np.isfinite(magnitudes)
    if bad.any():
        raise InvalidInput(f"X must be finite; there is a NaN or an infinity in {_row(bad)}.")
    zero = magnitudes == 0
    if zero_rows == "error" and zero.any():
        raise InvalidInput(
            f"X has rows of zeros ({_row(zero)}), which have no democratic weight; "
            'zero_rows="ignore" gives them weight 0.'
        )
    if zero_rows == "warn" and zero.any():
        _warn_of_zero_rows(_row(zero))


_warned: set[str] = set()


def _warn_of_zero_rows(where: str) -> None:
    """Once in a process: networks give such rows, in every batch, and the descriptor is right."""
    if _warned:
        return
    _warned.add(where)
    warnings.warn(
        f"X has rows of zeros ({where}); such rows get weight 0, as if they were not there. "
        'zero_rows="ignore" says that this is known, zero_rows="error" refuses them.',
        RuntimeWarning,
        stacklevel=4,
    )


def _check_range(magnitudes: NDArray[Any], n_and_d: tuple[int, ...], work: str) -> None:
    """Without a final norm the result has the scale of squared features, which must fit."""
    limits = np.finfo(work)
    largest = magnitudes.max(axis=-1)
    too_large = largest > np.sqrt(float(limits.max) / np.prod(n_and_d))
    too_small = (largest > 0) & (largest < np.sqrt(float(limits.tiny)))
    if (too_large | too_small).any():
        extreme = largest[too_large | too_small].flat[0]
        raise InvalidInput(
            f"X has values of size {extreme:.3g}, whose squares do not fit {work}; scale the "
            "features, or use dtype='float64' or another normalize than 'none'."
        )


def _into_range(ops: Operations, X: Any, magnitudes: NDArray[Any], work: str) -> Any:
    """Descriptors with a final norm do not depend on the scale of an image's features.

    So features whose products might leave the range of the dtype are multiplied by a power of two,
    which is exact, one for each image. Usually there is nothing to do, and nothing is copied.
    """
    exponents = np.frexp(magnitudes.max(axis=-1))[1]
    if (np.abs(exponents) <= SAFE_EXPONENT).all():
        return X
    # Before the change of dtype where that makes the range smaller, after it where larger.
    if work != "float32" or Dtype(ops.inspect_features(X).dtype).is_half:
        X = ops.implementation.cast(X, work)
    limits = np.finfo(ops.inspect_features(X).dtype)
    factors = np.ldexp(1.0, -np.clip(exponents, limits.minexp, -limits.minexp))
    return ops.implementation.scaled(X, factors[..., np.newaxis, np.newaxis].astype(limits.dtype))


def _check_faint(magnitudes: NDArray[Any], work: str, order: int) -> None:
    """A row's entry of K goes with its norm to the power 2 order, and must not vanish."""
    largest = magnitudes.max(axis=-1, keepdims=True)
    smallest = float(np.finfo(work).tiny) ** (1 / (2 * order)) * 16
    faint = (magnitudes > 0) & (magnitudes < largest * smallest)
    if faint.any():
        raise InvalidInput(
            f"X has rows ({_row(faint)}) so much smaller than the largest of their image that "
            f"their weights do not fit {work}; leave them out, make them zero, or use "
            "dtype='float64'."
        )


def _row(where: NDArray[Any]) -> str:
    index = np.argwhere(where)[0].tolist()
    image = f"image {index[:-1] if len(index) > 2 else index[0]}, " if len(index) > 1 else ""
    more = int(where.sum()) - 1
    others = f" and {more} more row{'s' if more > 1 else ''}" if more else ""
    return f"{image}row {index[-1]}{others}"
