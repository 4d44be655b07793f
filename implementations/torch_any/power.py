"""Matrix powers on tensors.

Every route by eigenvectors gives a *factor* F of few rows with ``A^p = F^T F``; its Tensor Sketch
is the plain sum of the sketches of F's rows. The routes by matrix products are in
``shared/roots.py``; autograd differentiates them.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from array_api_compat import torch as xp
from torch import Tensor

from demopool.implementations.shared import roots

from . import spectra, tensors
from .autograd import MatrixPower, Pool, Power, SketchMatrices
from .sketching import PreparedHashes


def _inverse(M: Tensor) -> Tensor:
    if M.device.type != "cpu":
        return torch.linalg.inv_ex(M).inverse  # inv would synchronise to check for a singular M
    if M.dim() == 2:
        return torch.linalg.inv(M)
    # Batched inverses are wrong on CPU for d >= 256 with two threads (pytorch issue 142815).
    flat = M.reshape(-1, *M.shape[-2:])
    inverses = [torch.linalg.inv(matrix) for matrix in flat.unbind(0)]
    return torch.stack(inverses).reshape(M.shape) if inverses else M


def _newton(A: Tensor) -> Tensor:
    return roots.newton(A, xp=xp, inverse=_inverse, product=torch.matmul)


def _newton_schulz(A: Tensor) -> Tensor:
    return roots.newton_schulz(A, xp=xp, product=torch.matmul)


def _polar(A: Tensor) -> Tensor:
    return roots.polar(A, xp=xp, product=torch.matmul, to_rounding=True)


_ROOTS = {"newton": _newton, "newton-schulz": _newton_schulz, "polar": _polar}


def _power_of_features(route: str) -> Callable[..., Tensor]:
    def power(X: Tensor, *, p: float) -> Tensor:
        images = tensors.as_images(X)
        if route in spectra.ROUTES:
            Z = Power.apply(images, p, route, "matrix", *(None,) * 5)[0]
        else:
            c = tensors.range_factor(images)
            Z = _ROOTS[route](Pool.apply(images * c, None)) / c
        return Z.reshape(*X.shape[:-2], *Z.shape[1:])

    return power


def _power_of_matrices(route: str) -> Callable[..., Tensor]:
    def matrix_power(A: Tensor, *, p: float) -> Tensor:
        matrices = tensors.as_images(A)
        Z = MatrixPower.apply(matrices, p)[0] if route == "eigh" else _ROOTS[route](matrices)
        return Z.reshape(A.shape)

    return matrix_power


def _sketch_of_power(route: str) -> Callable[..., Tensor]:
    name, _, how = route.partition("+")

    def power_sketch(X: Tensor, hashes: PreparedHashes, *, p: float) -> Tensor:
        here = hashes.to(X.device)
        images = tensors.as_images(X)
        if name in spectra.ROUTES:
            v = Power.apply(images, p, name, how, *here)[0]
        else:
            v = SketchMatrices.apply(OF_FEATURES[name](images, p=p), *here)
        return v.reshape(*X.shape[:-2], here.k)

    return power_sketch


OF_FEATURES = {route: _power_of_features(route) for route in (*spectra.ROUTES, *_ROOTS)}
OF_MATRICES = {route: _power_of_matrices(route) for route in ("eigh", *_ROOTS)}
SKETCHED = {
    **{f"{route}+fft": _sketch_of_power(f"{route}+fft") for route in spectra.ROUTES},
    **{f"{route}+moment": _sketch_of_power(f"{route}+moment") for route in OF_FEATURES},
}
