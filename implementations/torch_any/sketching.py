"""Tensor Sketch without derivatives: in the frequency domain, or from the second moment."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from demopool.contract import Hashes

from . import tensors, triangles

# Maximum memory for the sketches and spectra of the features processed at once.
_SPECTRUM_BYTES = 4 * 2**20

# Maximum memory for the rows of the d x d matrix that the moment route scatters at once.
_SCATTER_BYTES = 8 * 2**20


_COMPLEX = {torch.float32: torch.complex64, torch.float64: torch.complex128}


class PreparedHashes(NamedTuple):
    """The hashes on a device."""

    h1: Tensor
    h2: Tensor
    s1: Tensor
    s2: Tensor
    k: int

    @classmethod
    def on(cls, device: torch.device | str, hashes: Hashes) -> PreparedHashes:
        arrays = (hashes.h1, hashes.h2, hashes.s1, hashes.s2)
        h1, h2, s1, s2 = (torch.from_numpy(array.copy()).to(device) for array in arrays)
        return cls(h1, h2, s1, s2, hashes.k)

    def to(self, device: torch.device) -> PreparedHashes:
        """The hashes on the features' device; unchanged if they are already there."""
        if self.h1.device == device:
            return self
        h1, h2, s1, s2 = (part.to(device) for part in self[:4])
        return PreparedHashes(h1, h2, s1, s2, self.k)


def bins_and_signs(
    hashes: PreparedHashes, rows: slice, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """The bins and signs of the entries (i, j) in some rows of a d x d matrix."""
    bins = (hashes.h1[rows].unsqueeze(-1) + hashes.h2) % hashes.k
    return bins, hashes.s1[rows].to(dtype).unsqueeze(-1) * hashes.s2.to(dtype)


def spread(sketches: Tensor, hashes: PreparedHashes) -> Tensor:
    """``s1[i] s2[j] sketch[(h1[i] + h2[j]) mod k]``: the transpose of sketching a matrix."""
    bins, signs = bins_and_signs(hashes, slice(None), sketches.dtype)
    return sketches[..., bins] * signs


def sketch(images: Tensor, hashes: PreparedHashes) -> Tensor:
    """The sketch of every feature: two forward transforms, one inverse transform."""
    chunks = torch.split(images, _rows(images, hashes.k), dim=-2)
    return torch.cat([_inverse(_spectrum(rows, hashes), hashes.k) for rows in chunks], dim=-2)


def pool_fft(images: Tensor, hashes: PreparedHashes, a: Tensor | None) -> Tensor:
    """Sum in the frequency domain: one inverse transform per image, not per feature."""
    total: Tensor | None = None
    step = _rows(images, hashes.k)
    for start in range(0, images.shape[-2], step):
        rows = images[..., start : start + step, :]
        spectrum = _spectrum(rows, hashes)
        if a is None:
            part = spectrum.sum(dim=-2)
        else:
            weights = a[..., start : start + step].to(spectrum.dtype)
            part = tensors.times_rows(weights, spectrum)
        total = part if total is None else total + part
    assert total is not None
    return _inverse(total, hashes.k)


def pool_moment(images: Tensor, hashes: PreparedHashes, a: Tensor | None) -> Tensor:
    """Tensor Sketch is linear in ``x x^T``: pool first, then scatter the d x d moment once."""
    return sketch_of_matrices(triangles.weighted_moment(images, a), hashes)


def sketch_of_matrices(M: Tensor, hashes: PreparedHashes) -> Tensor:
    """Tensor Sketch of symmetric matrices, ``(images, d, d) -> (images, k)``, by scattering."""
    d = M.shape[-1]
    # In float64, because a bin may be a sequential sum of very many values.
    sketches = M.new_zeros((*M.shape[:-2], hashes.k), dtype=torch.float64)
    step = max(1, _SCATTER_BYTES // (8 * d))
    for start in range(0, d, step):
        stop = min(start + step, d)
        bins, signs = bins_and_signs(hashes, slice(start, stop), M.dtype)
        values = M[..., start:stop, :] * signs
        sketches.index_add_(-1, bins.flatten(), values.flatten(-2).double())
    return sketches.to(M.dtype)


def _spectrum(rows: Tensor, hashes: PreparedHashes) -> Tensor:
    """Spectra of the sketches of some features, ``(images, rows, k // 2 + 1)``."""
    first = _transform(_count_sketch(rows, hashes.h1, hashes.s1, hashes.k))
    second = _transform(_count_sketch(rows, hashes.h2, hashes.s2, hashes.k))
    return first * second


def _transform(sketches: Tensor) -> Tensor:
    if sketches.numel() == 0:  # MKL rejects an empty batch
        size = sketches.shape[-1] // 2 + 1
        return sketches.new_zeros((*sketches.shape[:-1], size), dtype=_COMPLEX[sketches.dtype])
    return torch.fft.rfft(sketches)


def _inverse(spectra: Tensor, k: int) -> Tensor:
    if spectra.numel() == 0:
        return spectra.real.new_zeros((*spectra.shape[:-1], k))
    return torch.fft.irfft(spectra, k)


def _count_sketch(rows: Tensor, h: Tensor, s: Tensor, k: int) -> Tensor:
    return rows.new_zeros((*rows.shape[:-1], k)).index_add(-1, h, rows * s.to(rows.dtype))


def _rows(images: Tensor, k: int) -> int:
    """Features at once: each needs two sketches and two spectra of about k numbers.

    The limit applies to each image on a GPU, which has the memory, and in an exported program,
    which has no fixed number of images.
    """
    together = max(1, images.shape[0]) if tensors.in_place_on_cpu(images) else 1
    return max(1, _SPECTRUM_BYTES // (4 * k * images.element_size() * together))
