"""Words with one meaning, used by the whole package, its files and its JSON.

backend     a library on a device, written ``name:device`` (``torch:cuda``)
operation   one function of the contract (``weights``, ``pool``, ...)
route       one algorithm for an operation (``dense``, ``gram``, ...)
descriptor  what a user wants in the end (``democratic``, ``sketched-power``, ...)
case        the job: descriptor, sizes, dtype, parameters, and where the data starts
candidate   backend x route for a case: what is checked, timed and chosen
"""

from enum import StrEnum

BACKENDS = (
    "numpy:cpu",
    "numba:cpu",
    "torch:cpu",
    "torch:cuda",
    "cupy:cuda",
    "numba:cuda",
    "numba:ptx",
    "cupy:ptx",
)
"""Ours, always listed. ``ptx`` runs the real GPU code on the CPU: to check it, never to time it."""

OPERATIONS = (
    "weights",
    "pool",
    "sketch",
    "pool_sketch",
    "power",
    "matrix_power",
    "power_sketch",
    "normalize",
)

DESCRIPTORS = (
    "sum",
    "democratic",
    "power",
    "sketched-sum",
    "sketched-democratic",
    "sketched-power",
)

HALF_DTYPES = ("float16", "bfloat16")
DTYPES = (*HALF_DTYPES, "float32", "float64")
LAYOUTS = ("nd", "nchw", "nhwc")
NORMALIZATIONS = ("signed-sqrt-l2", "l2", "none")
ZERO_ROWS = ("warn", "ignore", "error")


class State(StrEnum):
    """Of a candidate. Every state but ``ok`` comes with a reason."""

    OK = "ok"
    WRONG = "wrong"
    UNAVAILABLE = "unavailable"
    UNSUPPORTED = "unsupported"
    OUT_OF_MEMORY = "out-of-memory"
    TIMEOUT = "timeout"
    ERROR = "error"


class Verdict(StrEnum):
    """Of a comparison: on a candidate, and on the whole of it (which is never ``slower``)."""

    FASTEST = "fastest"
    TIE = "tie"
    SLOWER = "slower"
    UNKNOWN = "unknown"


def result_dtype(dtype: str) -> str:
    """dtype out = dtype in; half precision in gives float32 out (and float32 work)."""
    return "float32" if dtype in HALF_DTYPES else dtype
