"""Where ``(K v)_i = x_i^T M x_i``, ``M = X^T diag(v) X``, cannot be trusted.

It is a difference of large numbers for a row that is nearly orthogonal to all rows that have more
weight. Entries of M are wrong by about ``u sqrt(M_jj M_kk)``, u the rounding unit, so the form is
wrong by about u times ``b_i = sum_k x_ik^2 M_kk``, in whatever basis. A form below some share of
b_i is *doubtful* and is made again in another way.

Weights change from one product to the next, and with them the rows that are doubtful: with tau = 1
faint rows have the largest part in every second M. So every product is judged anew.
"""

from math import sqrt

ALIGNED = 0.2
"""The share on a GPU, where a doubtful row's entries of K are summed one by one in the same dtype.
No row of random features or of a network's was below it, with any weights that were tried."""


def doubt_limit(n: int, d: int) -> float:
    """One over the share where doubtful rows can be made again in float64.

    A form at this limit is wrong by ``u (sqrt(n) + sqrt(d))`` of itself, what sums of n and of d
    terms are wrong by anyway.
    """
    return sqrt(n) + sqrt(d)
