"""Symmetric matrices by blocks of rows that fit the cache: products, final norm, derivatives.

A CPU in eager mode computes the lower triangle and mirrors it. A GPU gains nothing from that, and a
compiler cannot follow writes into parts of a matrix: there whole batches are computed at once.

Sums are by rows first, so that an image has the same norm in every batch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from . import tensors
from .tensors import HALF, in_place_on_cpu, working

# Rows of a matrix computed at once. Matrices of no more rows are not worth the blocks.
_ROWS = 128

# Features multiplied at once, in the dtype of the work and weighted: only they are copied.
_FEATURES = 1024

# Numbers in the blocks of all images that are processed together. With fewer, threads would wait
# for each other more often, which is slow where others use the cores.
_TOGETHER = 2**20

# Vectors of fewer numbers are normalised together: torch adds so many in one thread, so that the
# sum is the same alone.
_SMALL = 2**15

# Between the rows of a block that is read by columns: rows a power of two apart share few places of
# the cache.
_GAP = 16

_NUMPY = {torch.float32: np.float32, torch.float64: np.float64}


def _blocks(size: int, step: int = _ROWS) -> Iterator[slice]:
    return (slice(start, min(start + step, size)) for start in range(0, size, step))


def _empty(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Memory from NumPy, which requests large pages: the first access to 134 MB, the result of 8
    ResNet images, takes 9 ms instead of 36 ms with torch's own."""
    return torch.from_numpy(np.empty(shape, _NUMPY[dtype]))


def _images(size: int, rows: int) -> int:
    """How many images to process together, for blocks of rows of this size; a power of two."""
    return 1 << max(0, (_TOGETHER // max(1, size * rows)).bit_length() - 1)


class _Scratch:
    """Memory for blocks, allocated once: fresh memory would cost more than the work in it."""

    def __init__(self, like: Tensor) -> None:
        number, size = like.shape[0], like.shape[-1]
        together = min(number, _images(size, _ROWS))
        rows = min(size, _ROWS)
        self._memory = like.new_empty(together * max(rows * (size + _GAP), size * (rows + _GAP)))

    def of(self, *shape: int) -> Tensor:
        return self._memory[: math.prod(shape)].view(shape)

    def by_columns(self, block: Tensor) -> Tensor:
        """A copy of a block that is fast to read by columns, transposed."""
        *leading, size = block.shape
        return self.of(*leading, size + _GAP)[..., :size].copy_(block).mT


def symmetric_product(left: Tensor, right: Tensor) -> Tensor:
    """``left @ right`` of images, known to be symmetric."""
    size = left.shape[1]
    if size <= _ROWS or not in_place_on_cpu(left):
        return left @ right
    result = _empty((len(left), size, size), left.dtype)
    scratch = _Scratch(result)
    for group in _blocks(len(left), _images(size, _ROWS)):
        for block in _blocks(size):
            part = result[group, block, : block.stop]
            # Into the result itself it would be slower: torch multiplies images with gaps between
            # their rows one by one.
            product = scratch.of(*part.shape)
            rows, columns = left[group, block], right[group, :, : block.stop]
            part.copy_(torch.bmm(rows, columns, out=product))
        _mirror(result[group], scratch)
    return result


def weighted_moment(images: Tensor, a: Tensor | None, *, triangle: bool = False) -> Tensor:
    """``X^T diag(a) X`` of every image, or only its lower triangle."""
    number, n, d = images.shape
    worthwhile = d > _ROWS or (n > _FEATURES and images.dtype in HALF)
    if not (worthwhile and in_place_on_cpu(images)):
        images = working(images)
        weighted = images if a is None else images * a.unsqueeze(-1)
        return weighted.mT @ images
    result = _empty((number, d, d), working(images[:0]).dtype)
    scratch = _Scratch(result)
    for group in _blocks(number, _images(d, max(_ROWS, min(n, _FEATURES) // 2))):
        for rows in _blocks(n, _FEATURES):
            X = working(images[group, rows])
            weighted = X if a is None else X * a[group, rows].unsqueeze(-1)
            for block in _blocks(d):
                part = result[group, block, : block.stop]
                product = scratch.of(*part.shape)
                torch.bmm(weighted.mT[:, block], X[..., : block.stop], out=product)
                if rows.start == 0:
                    part.copy_(product)
                else:
                    part.add_(product)
        if not triangle:
            _mirror(result[group], scratch)
    return result


def normalized_moment(X: Tensor, a: Tensor | None, kind: str) -> tuple[Tensor, Tensor]:
    """The same with its final norm, and the norms; on a CPU in place."""
    if not in_place_on_cpu(X):
        return normalized(weighted_moment(X, a), 2, kind)
    result = weighted_moment(X, a, triangle=True)
    return result, normalize_triangles_(result, kind)


def _mirror(matrices: Tensor, scratch: _Scratch) -> None:
    """Copy the blocks below the diagonal to above it."""
    for block in _blocks(matrices.shape[-1]):
        if block.start:
            lower = matrices[:, block, : block.start]
            matrices[:, : block.start, block] = scratch.by_columns(lower)


def symmetrized(matrices: Tensor) -> Tensor:
    """New matrices with both triangles from the lower one."""
    return matrices.tril() + matrices.tril(-1).mT


def normalize_(vectors: Tensor, kind: str) -> Tensor:
    """The final norm of every row, in place; returns the norms, ``(rows, 1)``."""
    size = vectors.shape[-1]
    at_once = _TOGETHER // 4 if vectors.device.type == "cpu" else max(1, vectors.numel())
    norms = []
    for group in vectors.split(max(1, at_once // size) if size < _SMALL else 1):
        parts = group.split(at_once, dim=-1)
        total, c = _rooted_(parts, kind), None
        if kind == "l2" and not _are_squares(total, size):
            c = tensors.range_factor(group.unsqueeze(1)).squeeze(1)
            group.mul_(c)
            total = _rooted_(parts, kind)
        norm = total.sqrt()
        factor = _factor(norm)
        for part in parts:
            part.mul_(factor)
        norms.append(norm if c is None else norm / c)
    return norms[0] if len(norms) == 1 else torch.cat(norms)


def normalize_triangles_(matrices: Tensor, kind: str) -> Tensor:
    """The same of symmetric matrices, of which the lower triangle is read and both are written.

    The norms are ``(images, 1, 1)``.
    """
    size = matrices.shape[-1]
    if size <= _ROWS:
        matrices.copy_(symmetrized(matrices))
        return normalize_(matrices.view(-1, size * size), kind).unsqueeze(-1)
    norms = matrices.new_empty((len(matrices), 1, 1))
    scratch = _Scratch(matrices)
    for group in _blocks(len(matrices), _images(size, _ROWS)):
        found = matrices[group]
        total, c = _rooted_triangles_(found, kind, scratch), None
        if kind == "l2" and not _are_squares(total, size**2):
            _mirror(found, scratch)
            c = tensors.range_factor(found)
            total = _rooted_triangles_(found.mul_(c), kind, scratch)
        norm = total.sqrt()
        factor = _factor(norm)
        for block in _blocks(size):
            found[:, block, : block.stop].mul_(factor)
        _mirror(found, scratch)
        norms[group] = norm if c is None else norm / c
    return norms


def _rooted_(parts: Sequence[Tensor], kind: str) -> Tensor:
    """The squares of the norms of rows given in parts, of which roots are taken in place."""
    sums = []
    for part in parts:
        sizes = _sizes(part, kind, torch.empty_like(part))
        sums.append(sizes.sum(dim=-1, keepdim=True))
        if kind != "l2":
            torch.copysign(sizes.sqrt_(), part, out=part)
    return sums[0] if len(sums) == 1 else torch.stack(sums).sum(dim=0)


def _rooted_triangles_(matrices: Tensor, kind: str, scratch: _Scratch) -> Tensor:
    """The same of symmetric matrices; the blocks on the diagonal become symmetric."""
    total = matrices.new_zeros(len(matrices))
    for block in _blocks(matrices.shape[-1]):
        square = matrices[:, block, block]
        square.copy_(symmetrized(square))
        part = matrices[:, block, : block.stop]
        sizes = _sizes(part, kind, scratch.of(*part.shape))
        below, across = sizes[..., : block.start], sizes[..., block.start :]
        total += (2 * below.sum(dim=-1) + across.sum(dim=-1)).sum(dim=-1)
        if kind != "l2":
            torch.copysign(sizes.sqrt_(), part, out=part)
    return total.reshape(-1, 1, 1)


def _sizes(part: Tensor, kind: str, out: Tensor) -> Tensor:
    """What the squared norm is the sum of: that of signed square roots needs no roots."""
    return torch.square(part, out=out) if kind == "l2" else torch.abs(part, out=out)


def _are_squares(total: Tensor, size: int) -> bool:
    """Whether sums of so many squares lost nothing. Reads values, so it is for a CPU."""
    if not total.numel():
        return True
    least, most = _limits(total.dtype, size)
    low, high = torch.aminmax(total)
    return float(low) > least and float(high) < most


@lru_cache(maxsize=64)
def _limits(dtype: torch.dtype, size: int) -> tuple[float, float]:
    """Between which no square overflowed, and those that underflowed are no part of the sum."""
    limits = torch.finfo(dtype)
    return size * limits.tiny / limits.eps, limits.max


def _factor(norms: Tensor) -> Tensor:
    """One over them; zeros stay zeros."""
    return torch.where(norms == 0, 1.0, 1 / norms)


def normalized(v: Tensor, axes: int, kind: str, c: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The final norm over the last axes as a new tensor, and the norms; of c v if that is given."""
    last = tuple(range(-axes, 0))
    if kind == "l2" and not in_place_on_cpu(v):  # where no value is read, whatever they are
        c = tensors.range_factor(v, last)
    scaled = v if c is None else v * c
    sizes = scaled.square() if kind == "l2" else v.abs()
    total = sizes.sum(dim=last, keepdim=True)
    if kind == "l2" and c is None and not _are_squares(total, v.shape[-axes:].numel()):
        return normalized(v, axes, kind, tensors.range_factor(v, last))
    roots = scaled if kind == "l2" else v.sign() * sizes.sqrt()
    norms = total.sqrt()
    return roots / torch.where(norms > 0, norms, 1.0), norms if c is None else norms / c


def through_norm(y: Tensor, norms: Tensor, axes: int, kind: str, gradient: Tensor) -> Tensor:
    """The derivative by v from that by y, its norm; v is ``y |y| norms^2``, or ``y norms``.

    The root has no derivative at 0; 0 is used there.
    """
    along = (y * gradient).sum(dim=tuple(range(-axes, 0)), keepdim=True)
    if kind == "l2":
        return torch.where(norms == 0, 0.0, (gradient - y * along) / norms)
    return torch.where(y == 0, 0.0, (gradient - y * along) / (2 * norms.square() * y.abs()))


def through_moment(
    X: Tensor, a: Tensor | None, gradient: Tensor, norm: tuple[Tensor, Tensor, str] | None = None
) -> tuple[Tensor, Tensor | None]:
    """Derivatives by X and a from that by ``X^T diag(a) X``, or by its norm.

    ``norm`` holds the normalised matrices, their norms and the kind of norm.
    """
    if not in_place_on_cpu(gradient) or not in_place_on_cpu(X):
        if norm is not None:
            y, norms, kind = norm
            gradient = through_norm(y, norms, 2, kind, gradient)
        XS = X @ (gradient + gradient.mT)
        if a is None:
            return XS, None
        return XS * a.unsqueeze(-1), (XS * X).sum(dim=-1) / 2
    transposed = X.mT.is_contiguous()
    # In the layout of X, which may be that of conv maps.
    XS = _empty(X.mT.shape, X.dtype).mT if transposed else _empty(X.shape, X.dtype)
    scratch, more = _Scratch(gradient), _Scratch(gradient)
    for group in _blocks(len(X), _images(X.shape[-1], _ROWS)):
        x, found = X[group], XS[group]
        of_group = None if norm is None else (norm[0][group], norm[1][group], norm[2])
        for block, S in _rows_of_derivative(gradient[group], of_group, scratch, more):
            if transposed:
                found.mT[:, block] = S @ x.mT
            else:
                found[..., block] = x @ S.mT
    if a is None:
        return XS, None
    by_a = (XS * X).sum(dim=-1) / 2
    return XS.mul_(a.unsqueeze(-1)), by_a


def _rows_of_derivative(
    gradient: Tensor,
    norm: tuple[Tensor, Tensor, str] | None,
    scratch: _Scratch,
    more: _Scratch,
) -> Iterator[tuple[slice, Tensor]]:
    """Rows of ``D + D^T``, D the derivative by moments, from that by their norm."""
    blocks = list(_blocks(gradient.shape[-1]))
    if norm is not None:
        y, norms, kind = norm
        along = norms.new_zeros((len(y), 1, 1))
        for block in blocks:
            of_block = torch.mul(
                y[:, block], gradient[:, block], out=scratch.of(*y[:, block].shape)
            )
            along += 2 * of_block.sum(dim=(-2, -1), keepdim=True)
    for block in blocks:
        rows = gradient[:, block]
        columns = scratch.by_columns(gradient[..., block])
        S = torch.add(rows, columns, out=more.of(*rows.shape))
        if norm is not None:
            y_rows = y[:, block]
            S.addcmul_(y_rows, along, value=-1)
            if kind == "l2":
                S.div_(torch.where(norms == 0, torch.inf, norms))
            else:
                slope = torch.abs(y_rows, out=scratch.of(*rows.shape)).mul_(2 * norms.square())
                S.div_(slope).masked_fill_(y_rows == 0, 0.0)
        yield block, S
