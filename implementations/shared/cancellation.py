"""Where ``(K v)_i = x_i^T M x_i``, ``M = X^T diag(v) X``, cannot be trusted.

It is a difference of large numbers for a row that is nearly orthogonal to all stronger ones. Because
M_jk^2 <= M_jj M_kk, the squares of its terms x_j M_jk x_k add up to at most the square of
``b_i = sum_j x_ij^2 M_jj``, in any basis; rounding errors come at random, so theirs is about eps b_i.
"""

ALIGNED = 0.2
"""Below this share of b_i the entries of K are summed one by one. Weights change from one product to
the next, and with them which rows those are. Of features of networks, and of random ones, no row is
below it: they have no weak directions, or rows that are not in them alone."""
