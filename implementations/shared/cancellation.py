"""Where ``(K v)_i = x_i^T M x_i``, ``M = X^T diag(v) X``, cannot be trusted.

It is a difference of large numbers for a row that is nearly orthogonal to all stronger ones. Since
M_jk^2 <= M_jj M_kk, the squares of its terms x_j M_jk x_k add up to at most the square of
``b_i = sum_j x_ij^2 M_jj``, in any basis. Rounding errors come at random, so that the form is off
by about eps b_i.
"""

ALIGNED = 0.2
"""Below this share of b_i the entries of K are summed one by one. Weights change from one product
to the next, and with them which rows those are. No row of random features or of a network's is
below it, with any weights that were tried."""
