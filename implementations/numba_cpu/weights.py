"""Gamma-democratic weights in compiled loops.

``demopool.reference.weights`` explains the mathematics. Only the lower triangle of K exists. It is
computed in bands of rows: Gram matrix, kernel values and row sums while a band is in the cache. An
iteration reads it once, four rows at a time, and uses every entry twice, because K is symmetric.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from demopool.implementations.shared import blas, democratic, scaling
from demopool.implementations.shared.blas import Array

from . import products
from .compiled import grain_of, kernel, spread, threads

# Maximum memory for the kernels of a group of images (but at least one image per thread): they are
# still in the last-level cache when the next pass reads them.
_KERNEL_BYTES = 5 * 2**20

# Minimum rows for all threads to share one image; lower if there are fewer images than threads.
_SHARED_ROWS, _SHARED_ROWS_ALONE = 1024, 512


@kernel
def _to_kernel(K: Array, start: int, stop: int, order: int, row_sums: Array) -> None:
    """Turn rows start..stop of the Gram matrix into kernel values, and add them to ``row_sums``."""
    zero = K.dtype.type(0)
    for i in range(start, stop):
        row = K[i]
        total = zero
        for j in range(i):
            value = row[j] * row[j] if order == 2 else max(row[j], zero)
            row[j] = value
            total += value
            row_sums[j] += value
        row[i] = row[i] * row[i] if order == 2 else max(row[i], zero)
        row_sums[i] += total + row[i]


@kernel
def _times(K: Array, start: int, stop: int, a: Array, Ka: Array) -> None:
    """Add the contribution of rows start..stop of the triangle, and of these columns, to ``Ka``."""
    zero = K.dtype.type(0)
    whole = start + (stop - start) // 4 * 4
    for i in range(start, whole, 4):
        k0, k1, k2, k3 = K[i], K[i + 1], K[i + 2], K[i + 3]
        a0, a1, a2, a3 = a[i], a[i + 1], a[i + 2], a[i + 3]
        s0, s1, s2, s3 = zero, zero, zero, zero
        for j in range(i):
            aj = a[j]
            s0 += k0[j] * aj
            s1 += k1[j] * aj
            s2 += k2[j] * aj
            s3 += k3[j] * aj
            Ka[j] += k0[j] * a0 + k1[j] * a1 + k2[j] * a2 + k3[j] * a3
        Ka[i] += s0
        Ka[i + 1] += s1
        Ka[i + 2] += s2
        Ka[i + 3] += s3
        _times_row_by_row(K, i, i, i + 4, a, Ka)
    _times_row_by_row(K, 0, whole, stop, a, Ka)


@kernel
def _times_row_by_row(K: Array, left: int, start: int, stop: int, a: Array, Ka: Array) -> None:
    """Add the contribution of rows start..stop from column ``left`` on, without blocking."""
    for i in range(start, stop):
        row, ai = K[i], a[i]
        total = row[i] * ai
        for j in range(left, i):
            total += row[j] * a[j]
            Ka[j] += row[j] * ai
        Ka[i] += total


@kernel
def _step(a: Array, Ka: Array, target: Array, tau: float) -> None:
    """One step, ``a (a Ka / target)^(-tau)``; the usual tau = 0.5 is a root, much faster."""
    exponent = a.dtype.type(tau)
    if tau == 0.5:
        for i in range(len(a)):
            a[i] = np.sqrt(a[i] * target[i] / Ka[i])
    else:
        for i in range(len(a)):
            a[i] /= (a[i] * Ka[i] / target[i]) ** exponent


@kernel
def _target(row_sums: Array, gamma: float) -> Array:
    exponent = row_sums.dtype.type(gamma)
    target = np.empty_like(row_sums)
    for i in range(len(row_sums)):
        target[i] = np.sqrt(row_sums[i]) if gamma == 0.5 else row_sums[i] ** exponent
    return target


@kernel
def _occupy(empty: Array, Ka: Array) -> None:
    """Set K a to one in empty rows, which keeps their weight at 1, without effect on the others."""
    for i in range(len(Ka)):
        if empty[i]:
            Ka[i] = 1


@kernel
def _gram_images(
    start: int,
    stop: int,
    X: Array,
    by_channel: bool,
    order: int,
    K: Array,
    row_sums: Array,
    norms: Array,
    c: Array,
) -> None:
    """Kernel and row sums of images start..stop. Products are scaled after they are computed;
    images too far from 1 for that only get norms of zero."""
    n = K.shape[1]
    rows = np.empty((n, X.shape[1]) if by_channel else (0, 0), X.dtype)
    ones = np.ones(X.shape[1], X.dtype)
    for b in range(start, stop):
        image = X[b]
        if by_channel:
            products.weighted_transpose(image, ones, rows)
            image = rows
        c[b] = products.power_of_two_near_one(image[0])
        if not scaling.MILD_LOW < c[b] < scaling.MILD_HIGH:
            norms[b, :] = 0
            continue
        scale = X.dtype.type(c[b] * c[b])
        row_sums[b, :] = 0
        for top in range(0, n, products.BAND):
            bottom = min(top + products.BAND, n)
            products.gram_band(image, top, bottom, K[b])
            for i in range(top, bottom):
                for j in range(i + 1):
                    K[b, i, j] *= scale
                norms[b, i] = K[b, i, i]
            _to_kernel(K[b], top, bottom, order, row_sums[b])


@kernel
def _kernel_images(
    start: int, stop: int, order: int, K: Array, row_sums: Array, norms: Array
) -> None:
    """Kernel and row sums of images start..stop from their Gram matrices in K."""
    n = K.shape[1]
    for b in range(start, stop):
        for i in range(n):
            norms[b, i] = K[b, i, i]
        row_sums[b, :] = 0
        _to_kernel(K[b], 0, n, order, row_sums[b])


@kernel
def _sinkhorn_images(
    start: int,
    stop: int,
    K: Array,
    row_sums: Array,
    gamma: float,
    tau: float,
    iterations: int,
    weights: Array,
) -> None:
    """T iterations by T products with K: K 1, needed for the target, also serves the first one."""
    n = K.shape[1]
    for b in range(start, stop):
        a, Ka = weights[b], row_sums[b]
        empty = Ka == 0
        _occupy(empty, Ka)
        target = _target(Ka, gamma)
        a[:] = 1
        for iteration in range(iterations):
            if iteration:
                Ka[:] = 0
                _times(K[b], 0, n, a, Ka)
                _occupy(empty, Ka)
            _step(a, Ka, target, tau)


def dense(X: Array, *, order: int, **settings: Any) -> Array:
    """Build the lower half of K once, then one pass over it per iteration."""
    *batch, n, d = X.shape
    dtype = blas.working_dtype(X)
    every = X.reshape(-1, n, d)
    if n >= (_SHARED_ROWS if len(every) >= threads() else _SHARED_ROWS_ALONE):
        K = np.empty((n, n), dtype)
        return democratic.weights(X, lambda x: _shared_kernel(x, order, K), order=order, **settings)
    weights = np.empty((len(every), n), dtype)
    together = max(threads(), _KERNEL_BYTES // (n * n * weights.itemsize))
    for part in blas.row_chunks(len(every), 1, together):
        for group, images, by_channel in products.in_groups(every[part]):
            weights[part][group] = _weights_of_group(images, by_channel, order, **settings)
    return weights.reshape(*batch, n)


def _weights_of_group(given: Array, by_channel: bool, order: int, **settings: Any) -> Array:
    """Weights of a group of images whose kernels fit together; each thread has its own images."""
    X = given.swapaxes(1, 2) if by_channel else given
    images, n, d = X.shape
    K = np.empty((images, n, n), X.dtype)
    row_sums, norms, weights = (np.empty((images, n), X.dtype) for _ in range(3))
    c = np.empty(images)
    grain = grain_of(n * n * d)
    if products.image_by_image(images, n, d):
        spread(_gram_images, images, given, by_channel, order, K, row_sums, norms, c, grain=grain)
        if not scaling.need_no_scaling(norms):
            for unsafe in np.flatnonzero(~scaling.is_safe(norms)).tolist():
                c[unsafe] = scaling.gram_in_range(X[unsafe], K[unsafe])
                _kernel_images(unsafe, unsafe + 1, order, K, row_sums, norms)
    else:
        for b in range(images):
            c[b] = scaling.gram_in_range(X[b], K[b])
        spread(_kernel_images, images, order, K, row_sums, norms)
    grain = grain_of(n * n * settings["iterations"])
    spread(_sinkhorn_images, images, K, row_sums, *_numbers(**settings), weights, grain=grain)
    weights *= scaling.weights_factors(c, X.dtype, order=order, **settings)
    present = democratic.present(X, norms)
    if present is not True:
        weights[~present] = 0
    return weights


def _numbers(*, gamma: float, tau: float, iterations: int) -> tuple[float, float, int]:
    """The settings with fixed types: a kernel is compiled for every combination of types."""
    return float(gamma), float(tau), int(iterations)


def _shared_kernel(image: Array, order: int, K: Array) -> democratic.Kernel:
    """K of one large image, shared by all threads. BLAS multiplies: its threads, unlike ours, are
    still awake at the next iteration, and it too reads only half of K."""
    c = scaling.gram_in_range(blas.working(image), K)
    squared_norms = K.diagonal().copy()
    sums: dict[int, Array] = {}

    def part(start: int, stop: int) -> None:
        # Rows of the triangle affect all columns: every thread adds to its own vector.
        sums[start] = np.zeros_like(squared_norms)
        _to_kernel(K, start, stop, order, sums[start])

    spread(part, len(K), grain=512, triangle=True)
    # Add in a fixed order, so that the result is reproducible.
    row_sums = np.add.reduce([sums[start] for start in sorted(sums)])
    present = democratic.present(image, squared_norms)
    return democratic.Kernel(lambda v: blas.symmetric_times_vector(K, v), row_sums, present, c)


@kernel
def _row_products(X: Array, Y: Array, out: Array) -> None:
    for i in range(len(X)):
        total = X.dtype.type(0)
        for j in range(X.shape[1]):
            total += X[i, j] * Y[i, j]
        out[i] = total


def matrix_free(X: Array, **settings: Any) -> Array:
    """Never build K: each iteration computes the moment and the quadratic forms with it."""
    return democratic.weights(X, _matrix_free_kernel, **settings)


def _matrix_free_kernel(image: Array) -> democratic.Kernel:
    return democratic.matrix_free_kernel(image, _forms_of)


def _forms_of(image: Array) -> democratic.Forms:
    """Forms by BLAS, in blocks of rows that stay in the cache before and after its products. One
    thread weights and reduces a block in less time than it takes to wake ours."""
    d, dtype = image.shape[1], blas.working_dtype(image)
    moment = np.empty((d, d), dtype)
    blocks = democratic.blocks_of(image)
    weighted = np.empty((blocks[0].stop, d), dtype)

    def forms_with(v: Array) -> tuple[Array, Array]:
        for block in blocks:
            rows = blas.block(image, block)
            products.weighted_rows(0, len(rows), rows, v[block], weighted)
            blas.outer(weighted[: len(rows)], moment, add=block.start > 0)
        forms = np.empty_like(v)
        for block in blocks:
            rows = blas.block(image, block)
            product = blas.times_symmetric(rows, moment)
            _row_products(rows, product, forms[block])
        return forms, moment.diagonal()

    return forms_with
