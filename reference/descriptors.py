"""The complete computation from features to a descriptor, as evaluated in the paper."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .democratic import weights
from .pooling import center as centered
from .pooling import normalize as normalize_descriptor
from .pooling import pool, upper
from .powers import power
from .sketching import pool_sketch, power_sketch


def describe(
    X: ArrayLike,
    descriptor: str,
    *,
    p: float = 0.5,
    order: int = 2,
    hashes: Any = None,
    normalize: str = "signed-sqrt-l2",
    center: bool = False,
    vectorize: str = "full",
    lengths: ArrayLike | None = None,
    **weighting: Any,
) -> NDArray[Any]:
    """One vector per image, ``(..., n, d) -> (..., D)`` (Section 4.1).

    ``sum``, ``democratic`` and ``power`` give the d x d matrix row by row (D = d^2), or the pooled
    vector for ``order=1`` (D = d); their ``sketched-`` variants require ``hashes`` and give D = k.
    ``weighting`` is given to ``weights``: gamma, tau and iterations, for the democratic ones.
    ``center`` subtracts the mean of an image's rows first; ``vectorize="upper"`` takes the upper
    triangle last, after the norm (D = d (d + 1) / 2); of padded images ``(B, n, d)`` the first
    ``lengths`` rows count.
    """
    X = np.asarray(X, dtype=np.float64)
    if lengths is not None:
        options: dict[str, Any] = {"p": p, "order": order, "hashes": hashes, **weighting}
        options |= {"normalize": normalize, "center": center, "vectorize": vectorize}
        images = zip(X, np.asarray(lengths), strict=True)
        return np.stack([describe(x[:length], descriptor, **options) for x, length in images])
    if descriptor.removeprefix("sketched-") not in ("sum", "democratic", "power"):
        raise ValueError(
            f"descriptor must be sum, democratic, power or sketched-; got {descriptor}"
        )
    sketched = descriptor.startswith("sketched-")
    method = descriptor.removeprefix("sketched-")
    if center:
        X = centered(X)
    a = None
    if method == "democratic":
        a = weights(X, order=order, **weighting)
    if sketched:
        v = power_sketch(X, hashes, p=p) if method == "power" else pool_sketch(X, hashes, a)
    else:
        v = power(X, p=p) if method == "power" else pool(X, a, order=order)
        v = v.reshape(*X.shape[:-2], X.shape[-1] ** order)
    v = normalize_descriptor(v, kind=normalize)
    if vectorize == "upper":
        return upper(v.reshape(*X.shape[:-2], X.shape[-1], X.shape[-1]))
    return v
