"""Where the numbers in ``roots.POLYNOMIALS`` come from.  Not imported at run time.

The coupled iteration of ``roots.polar`` moves every eigenvalue of A by a scalar map.  Write an
eigenvalue of A, divided by an upper bound of the largest one, as x^2 with x in (0, 1].  A step
with h(M) = aI + bM + cM^2 replaces x by the odd polynomial

    p(x) = x h(x^2) = a x + b x^3 + c x^5,

and after the last step the computed root of that eigenvalue is its true root times the final x.
So all x in [l, 1] have to converge to 1, and the relative error is max |1 - x|.

Amsel, Persson, Musco and Gower ("The Polar Express", 2025) prove that the greedy choice is optimal:
the best composition of odd polynomials uses in each step the minimax polynomial of the interval
[l, u] that the previous step has produced,

    min over (a, b, c) of  max over x in [l, u] of  |1 - p(x)|,

whose error E gives the next interval [1 - E, 1 + E].  By Chebyshev's alternation theorem the
minimiser is the polynomial whose error takes the values +E, -E, +E, ... at as many points as it has
coefficients plus one; l and u are among them, and the others are zeros of p'.

The first polynomial is cubic (c = 0): there M = A, so this step costs only the product A^2, which
the spectrum bound needs as well.  All later steps are quintic.

Run ``python -m demopool.implementations.shared.polynomials`` to print the table.
"""

import math

import numpy as np

Coefficients = tuple[float, float, float]

# Every step except the last is derived for x but applied to x / SAFETY.  At the upper end of the
# interval a minimax polynomial is steep and moves away from 1, so a rounding error that pushes x
# past u would grow from step to step (by factors such as T_5'(1) = 25); staying 1% inside prevents
# that, and costs 1% of l per step.
SAFETY = 1.01

# Below this relative width of [l, u] the equations of the alternation are too ill-conditioned to
# solve, and the limit of the minimax polynomials is as good: its error is below 1e-9.
NARROW = 2e-3

# (lower bound of the spectrum, steps) of the tables held in roots.py; the reasons are given there.
TABLES = ((1.6e-5, 6), (2.5e-13, 13))


def best_cubic(lower: float, upper: float) -> Coefficients:
    """The minimax a x + b x^3 on [lower, upper], in closed form.

    The error alternates at lower, q and upper with p'(q) = 0.  p(lower) = p(upper) gives
    3 q^2 = lower^2 + lower upper + upper^2 and a = -3 b q^2; p(lower) + p(q) = 2 gives b.
    """
    q = math.sqrt((lower * lower + lower * upper + upper * upper) / 3)
    b = -2 / (2 * q**3 + lower * upper * (lower + upper))
    return -3 * b * q * q, b, 0.0


def best_quintic(lower: float, upper: float) -> Coefficients:
    """The minimax a x + b x^3 + c x^5 on [lower, upper], by the Remez exchange.

    Given the two inner alternation points, (a, b, c, E) solve a linear 4 x 4 system; the zeros of
    p'(x) = a + 3 b x^2 + 5 c x^4 are the next inner points.  Converges in a few exchanges.
    """
    if upper - lower < NARROW * upper:
        # p(1) = 1 and p'(1) = p''(1) = 0, moved to the middle of the interval.
        t = 2 / (lower + upper)
        return 15 / 8 * t, -10 / 8 * t**3, 3 / 8 * t**5
    inner = np.array([(3 * lower + upper) / 4, (lower + 3 * upper) / 4])
    for _ in range(100):
        x = np.array([lower, *inner, upper])
        system = np.stack([x, x**3, x**5, np.array([1.0, -1.0, 1.0, -1.0])], axis=1)
        a, b, c, _error = np.linalg.solve(system, np.ones(4))
        root = math.sqrt(9 * b * b - 20 * a * c)
        moved = np.sqrt((-3 * b + np.array([-root, root])) / (10 * c))
        settled = np.max(np.abs(moved - inner)) < 1e-14 * upper
        inner = moved
        if settled:
            break
    return float(a), float(b), float(c)


def evaluate(polynomial: Coefficients, x: float) -> float:
    """p(x) = a x + b x^3 + c x^5; also works elementwise on arrays."""
    a, b, c = polynomial
    return x * (a + x * x * (b + x * x * c))


def coefficients(lower: float, steps: int) -> list[Coefficients]:
    """The (a, b, c) of each step, for a spectrum in [lower, 1] (that is, x in [sqrt(lower), 1])."""
    low, high = math.sqrt(lower), 1.0
    result = []
    for step in range(steps):
        a, b, c = best_cubic(low, high) if step == 0 else best_quintic(low, high)
        high = 2 - evaluate((a, b, c), low)
        if step < steps - 1:
            a, b, c = a / SAFETY, b / SAFETY**3, c / SAFETY**5
        low = evaluate((a, b, c), low)
        result.append((a, b, c))
    return result


def worst_error(lower: float, steps: int, points: int = 200_000) -> float:
    """max |1 - x| after all steps over a fine grid of the spectrum [lower, 1]."""
    x = np.geomspace(math.sqrt(lower), 1, points)
    for polynomial in coefficients(lower, steps):
        x = evaluate(polynomial, x)  # type: ignore[arg-type, assignment]
    return float(np.max(np.abs(1 - x)))


def main() -> None:
    """Print the tables in the form in which roots.py holds them."""
    print("POLYNOMIALS = {")
    for lower, steps in TABLES:
        error = worst_error(lower, steps)
        print(f"    {lower}: (  # {4 * steps - 4} products, relative error {error:.1e}")
        for polynomial in coefficients(lower, steps):
            print(f"        {polynomial},")
        print("    ),")
    print("}")


if __name__ == "__main__":
    main()
