"""The kernels, for Numba's CUDA target: float32 or float64 by the arrays they are given.

No kernel adds floating-point numbers atomically: where blocks share a sum, each writes its part and
another kernel adds up the parts, in order. So results have the same bits every time.
"""

from .magnitudes import copied, fill, largest, scaled, unordinary
from .pool import (
    normalized,
    normalized_at_once,
    power_sums,
    weighted_sum,
)
from .products import (
    KEEP,
    RECTIFY,
    SQUARE,
    from_parts,
    gram,
    gram_parts,
    outer,
    outer_parts,
)
from .roots import (
    bounds,
    finish,
    moments,
    product,
    start,
)
from .sketch import added, scatter, scatter_far
from .tiles import STEP, triangle_row
from .weights import (
    exact_rows,
    first_step,
    restored,
    row_forms,
    small_image,
    step,
    update,
)

__all__ = [
    "KEEP",
    "RECTIFY",
    "SQUARE",
    "STEP",
    "added",
    "bounds",
    "copied",
    "exact_rows",
    "fill",
    "finish",
    "first_step",
    "from_parts",
    "gram",
    "gram_parts",
    "largest",
    "moments",
    "normalized",
    "normalized_at_once",
    "outer",
    "outer_parts",
    "power_sums",
    "product",
    "restored",
    "row_forms",
    "scaled",
    "scatter",
    "scatter_far",
    "small_image",
    "start",
    "step",
    "triangle_row",
    "unordinary",
    "update",
    "weighted_sum",
]
