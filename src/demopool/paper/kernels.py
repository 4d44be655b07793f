"""What the proofs say of the kernel matrix: Propositions 1 and 6."""

from __future__ import annotations

import numpy as np

from .images import Analysed, Array

P = 0.5


def measure(image: Analysed) -> dict[str, Array]:
    """Of one image.

    negative   the least entry of K over its largest: Proposition 1 needs it not to be negative
    definite   share of the eigenvalues of K that rounding cannot tell from zero: none if K is
               strictly positive definite
    outside    the part of A^(1/2) outside the span of the features' outer products, as a share of
               its length; its square is |A^p|^2 - b^T K^+ b with b_i = x_i^T A^p x_i
    rounding   what ``outside`` cannot be told from 0 below: the sum has an error of at most about
               2 n eps sqrt(l_max / l_min), because |b| <= sqrt(l_max) and each term is at most 1
    """
    values, vectors = np.linalg.eigh(image.K)
    resolution = len(values) * np.finfo(np.float64).eps
    kept = values > resolution * values[-1]
    b = image.power_contributions(P)  # of A^p divided by its length
    inside = float(((vectors[:, kept].T @ b) ** 2 / values[kept]).sum())
    return {
        "negative": np.array(image.K.min() / image.K.max()),
        "definite": np.array(1.0 - kept.mean()),
        "outside": np.array(np.sqrt(max(1.0 - inside, 0.0))),
        "rounding": np.array(np.sqrt(2 * resolution * np.sqrt(values[-1] / values[kept][0]))),
    }
