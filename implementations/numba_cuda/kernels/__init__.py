"""The kernels, for Numba's CUDA target: float32 or float64 by the arrays they are given."""

from .magnitudes import copied, fill, largest, scaled
from .pool import (
    normalized,
    normalized_at_once,
    outer,
    power_sums,
    weighted_sum,
)
from .roots import (
    bounds,
    finish,
    moments,
    product,
    start,
)
from .sketch import scatter, scatter_far
from .tiles import STEP, triangle_row
from .weights import (
    RECTIFY,
    SQUARE,
    exact_rows,
    first_step,
    gram,
    restored,
    row_forms,
    small_image,
    step,
    update,
)

__all__ = [
    "RECTIFY",
    "SQUARE",
    "STEP",
    "bounds",
    "copied",
    "exact_rows",
    "fill",
    "finish",
    "first_step",
    "gram",
    "largest",
    "moments",
    "normalized",
    "normalized_at_once",
    "outer",
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
    "update",
    "weighted_sum",
]
