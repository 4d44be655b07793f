"""A linear SVM on descriptors too long to hold: from their dot products alone.

A linear SVM needs the n x n matrix of dot products only (the dual problem), whatever the length of
a descriptor: of 1,336 images that is 14 MB, where their descriptors of 512 x 512 take 700 MB.
Descriptors are pooled to a file, read in blocks, and forgotten.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from .images import Array

CS = (0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)
FOLDS = 5
BLOCK_BYTES = 256_000_000
"""Of descriptors in memory at a time; a product has two such blocks."""


def gram(path: Path, rows: Sequence[int], scale: Array | None, *, rooted: bool) -> Array:
    """Dot products of normalised descriptors: of length 1, after signed square roots if ``rooted``.

    ``path`` has them without any normalisation. ``scale`` are the factors of an upper triangle: its
    off-diagonal entries have a factor of sqrt(2), under the root too, and sqrt(2) times the root is
    wanted, which is 2^(1/4) times the root of what is stored.
    """
    stored = np.load(path, mmap_mode="r")
    size = max(1, BLOCK_BYTES // (stored.shape[1] * 4))
    starts = range(0, len(rows), size)
    found = np.zeros((len(rows), len(rows)))

    def block(start: int) -> Array:
        v = np.asarray(stored[list(rows[start : start + size])], dtype=np.float32)
        if rooted:
            root = np.abs(v)
            v = np.copysign(np.sqrt(root, out=root), v, out=root)
            if scale is not None:
                v *= scale
        for row in v:  # one by one, they stay in the cache
            length = np.linalg.norm(row)
            if length > 0:
                row /= length
        return v

    for first in starts:
        left = block(first)
        for second in starts:
            if second < first:
                continue
            right = left if second == first else block(second)
            part = left @ right.T
            found[first : first + len(left), second : second + len(right)] = part
            found[second : second + len(right), first : first + len(left)] = part.T
    return found


class Fitted(NamedTuple):
    """``right`` says of every test image whether its class was found; ``validated`` is the accuracy
    in the cross-validation that chose ``C``."""

    C: float
    validated: float
    right: Array


def fit(K: Array, labels: Array, test: Array, seed: int) -> Fitted:
    """One SVM per class against the rest; C by cross-validation within the training part."""
    from sklearn.model_selection import StratifiedKFold

    train = np.flatnonzero(~test)
    own = labels[train]
    folds = min(FOLDS, int(np.unique(own, return_counts=True)[1].min()))
    splits = list(StratifiedKFold(folds, shuffle=True, random_state=seed).split(own, own))
    scores = []
    for C in CS:
        right = [
            _predicted(K, labels, train[inside], train[outside], C) == labels[train[outside]]
            for inside, outside in splits
        ]
        scores.append(float(np.concatenate(right).mean()))
    best = int(np.argmax(scores))  # the smallest of equals
    outside = np.flatnonzero(test)
    found = _predicted(K, labels, train, outside, CS[best])
    return Fitted(CS[best], scores[best], found == labels[outside])


def _predicted(K: Array, labels: Array, train: Array, test: Array, C: float) -> Array:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.svm import SVC

    every = np.unique(labels[train])
    inside, across = K[np.ix_(train, train)], K[np.ix_(test, train)]
    scores = np.empty((len(test), len(every)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for at, label in enumerate(every):
            one = SVC(kernel="precomputed", C=C).fit(inside, labels[train] == label)
            scores[:, at] = one.decision_function(across)
    found: Array = every[scores.argmax(axis=1)]
    return found
