"""Where ``(K v)_i = x_i^T M x_i``, ``M = X^T diag(v) X``, is inaccurate because of cancellation.

It is a difference of large numbers for a row that is nearly orthogonal to all rows of larger
weight. Entries of M have an error of about ``u sqrt(M_jj M_kk)``, u the rounding unit, so the form
has an error of about u times ``b_i = sum_k x_ik^2 M_kk``, in any basis. A form below a certain
share of b_i is *doubtful* and is computed again in another way.

Weights change from one product to the next, and with them the doubtful rows: with tau = 1, faint
rows dominate every second M. So every product is checked separately.
"""

from math import sqrt

ALIGNED = 0.2
"""The share on a GPU, where a doubtful row's entries of K are summed one by one in the same dtype.
No row of random or network features was below it, with any of the weights that were tried."""


def doubt_limit(n: int, d: int) -> float:
    """The reciprocal of the share where doubtful rows can be computed again in float64.

    A form at this limit has a relative error of ``u (sqrt(n) + sqrt(d))``, which sums of n and of d
    terms have anyway.
    """
    return sqrt(n) + sqrt(d)
