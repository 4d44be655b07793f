"""The kernels of triton:cuda, in Triton's Python.

Every array is contiguous, and offsets of images and rows are of 64 bits. Programs are numbered
along one axis, the only one that may be long. No sum is made by atomic additions: programs write
parts, and the next kernel adds them in their order, so the same input gives the same bits.
"""

from .pool import norm_parts, normalized, outer, summed, weighted_sum
from .weights import first_step, gram, in_range, magnitudes, restored, small_image, step

__all__ = [
    "first_step",
    "gram",
    "in_range",
    "magnitudes",
    "norm_parts",
    "normalized",
    "outer",
    "restored",
    "small_image",
    "step",
    "summed",
    "weighted_sum",
]
