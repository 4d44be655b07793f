"""Words with one meaning, used by the whole package, its files and its JSON.

backend     a library on a device, written ``name:device`` (``torch:cuda``)
operation   one function of the contract (``weights``, ``pool``, ...; ``operations.py`` has them)
route       one algorithm for an operation (``dense``, ``gram``, ...)
descriptor  what a user wants in the end (``democratic``, ``sketched-power``, ...)
case        the job: descriptor, sizes, dtype, parameters, and where the data starts
candidate   backend x route for a case: what is checked, timed and chosen

Backends, descriptors and dtypes are strings that know about themselves: they are stored, compared
and printed as strings, and nothing else takes such a name apart.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple, Self


class _Word(str):
    """A name with attributes, and in everything else a string."""

    __slots__ = ()

    def __deepcopy__(self, memo: object) -> Self:
        return self


class Backend(_Word):
    """``library:device``, ours or a plug-in's."""

    __slots__ = ()

    @property
    def library(self) -> str:
        return self.partition(":")[0]

    @property
    def device(self) -> str:
        return self.partition(":")[2]

    @property
    def on_host(self) -> bool:
        """Its arrays are in the host's memory, and can be taken to any other backend."""
        return self.device == "cpu"

    @property
    def on_gpu(self) -> bool:
        return self.device == "cuda"

    @property
    def is_emulated(self) -> bool:
        """The device runs GPU kernels on the CPU, from their PTX or by an interpreter: to check
        them, never to time them."""
        return self.device in ("ptx", "interpreter")

    @property
    def is_timed(self) -> bool:
        return not self.is_emulated

    @property
    def data(self) -> str:
        """Where its arrays are, as a case says it."""
        return "host" if self.on_host else "device"

    @property
    def arrays(self) -> str:
        """What its arrays are called in a sentence."""
        return _OURS[self].arrays if self in _OURS else f"arrays of {self}"

    @property
    def survives_fork(self) -> bool:
        """A forked process can use it, whatever its parent did."""
        return self in _OURS and _OURS[self].survives_fork


class _Ours(NamedTuple):
    """``package``: of ``demopool.implementations``, where the ``SPECIFICATION`` is."""

    package: str
    arrays: str
    survives_fork: bool = False


_OURS = {
    "numpy:cpu": _Ours("numpy_cpu", "NumPy arrays", survives_fork=True),
    "numba:cpu": _Ours("numba_cpu", "NumPy arrays", survives_fork=True),
    "torch:cpu": _Ours("torch_any", "torch tensors on the CPU"),
    "torch:cuda": _Ours("torch_any", "torch tensors on a GPU"),
    "cupy:cuda": _Ours("cupy_cuda", "CuPy arrays"),
    "numba:cuda": _Ours("numba_cuda", "Numba device arrays"),
    "triton:cuda": _Ours("triton_cuda", "torch tensors on a GPU"),
    "numba:ptx": _Ours("numba_cuda", "arrays of numba:ptx"),
    "cupy:ptx": _Ours("cupy_cuda", "arrays of cupy:ptx"),
    "triton:interpreter": _Ours("triton_cuda", "torch tensors on the CPU"),
}
BACKENDS = tuple(Backend(name) for name in _OURS)
"""Ours, always listed."""

TIMED_BACKENDS = tuple(backend for backend in BACKENDS if backend.is_timed)

PACKAGES = tuple(dict.fromkeys(ours.package for ours in _OURS.values()))
"""Of ``demopool.implementations``: importing one imports no library."""

_SKETCHED = "sketched-"


class Descriptor(_Word):
    """A pooling method, of which there is a sketched twin."""

    __slots__ = ()

    @property
    def method(self) -> str:
        """``sum``, ``democratic`` or ``power``."""
        return self.removeprefix(_SKETCHED)

    @property
    def is_sketched(self) -> bool:
        return self.startswith(_SKETCHED)

    @property
    def operations(self) -> tuple[str, ...]:
        """In the order of work; ``normalize`` ends each."""
        return _STEPS[self]


_STEPS = {
    "sum": ("pool",),
    "democratic": ("weights", "pool"),
    "power": ("power",),
    "sketched-sum": ("pool_sketch",),
    "sketched-democratic": ("weights", "pool_sketch"),
    "sketched-power": ("power_sketch",),
}
DESCRIPTORS = tuple(Descriptor(name) for name in _STEPS)


class Dtype(_Word):
    """Of features. dtype out = dtype in; half precision in gives float32 out (and work)."""

    __slots__ = ()

    @property
    def bytes(self) -> int:
        """Of one element."""
        return _DTYPES[self].bytes

    @property
    def short(self) -> str:
        """For narrow tables."""
        return _DTYPES[self].short

    @property
    def is_half(self) -> bool:
        """Narrower than what is worked in."""
        return self.bytes < 4

    @property
    def result(self) -> Dtype:
        """What is worked in, and what comes out."""
        return Dtype("float32") if self.is_half else self

    @property
    def in_numpy(self) -> bool:
        """Whether NumPy has it; arrays of other dtypes are passed as float32 of equal values."""
        return _DTYPES[self].significand == 0

    @property
    def significand(self) -> int:
        """Bits after the point, of a dtype that NumPy lacks."""
        return _DTYPES[self].significand

    @property
    def least_exponent(self) -> int:
        """Of its normal numbers, of a dtype that NumPy lacks."""
        return _DTYPES[self].least_exponent


class _Format(NamedTuple):
    bytes: int
    short: str
    significand: int = 0
    least_exponent: int = 0


_DTYPES = {
    "float16": _Format(2, "f16"),
    "bfloat16": _Format(2, "bf16", significand=7, least_exponent=-126),
    "float32": _Format(4, "f32"),
    "float64": _Format(8, "f64"),
}
DTYPES = tuple(Dtype(name) for name in _DTYPES)
NUMPY_DTYPES = tuple(dtype for dtype in DTYPES if dtype.in_numpy)
RESULT_DTYPES = tuple(dict.fromkeys(dtype.result for dtype in DTYPES))

LAYOUTS = ("nd", "nchw", "nhwc")
NORMALIZATIONS = ("signed-sqrt-l2", "l2", "none")
VECTORIZATIONS = ("full", "upper")
ZERO_ROWS = ("warn", "ignore", "error")


class State(StrEnum):
    """Of a candidate. Every state but ``ok`` comes with a reason."""

    OK = "ok"
    WRONG = "wrong"
    UNAVAILABLE = "unavailable"
    UNSUPPORTED = "unsupported"
    OUT_OF_MEMORY = "out-of-memory"
    TIMEOUT = "timeout"
    INACCURATE = "inaccurate"
    ERROR = "error"


class Verdict(StrEnum):
    """Of a comparison: on a candidate, and on the whole of it (which is never ``slower``)."""

    FASTEST = "fastest"
    TIE = "tie"
    SLOWER = "slower"
    UNKNOWN = "unknown"
