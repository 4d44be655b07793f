"""Run real GPU code without a GPU: execute PTX in NumPy, check it and count its work.

    from demopool import ptx

    module = ptx.compile(Path("kernels.cu"), arch="sm_80")
    counts = module.launch("gram", grid=(4, 4), block=(16, 16), args=[X, K, np.int32(64)])

Importing this package imports no compiler; ``compile``, ``assemble`` and ``disassemble`` do.
"""

from .compiler import CUPY_OPTIONS, assemble, compile, disassemble
from .counting import Counts
from .devices import (
    ARCHITECTURES,
    DEVICES,
    LIMITS,
    Bound,
    Device,
    Limits,
    Occupancy,
    Resources,
    bound,
    occupancy,
)
from .faults import CompileError, Fault, FaultKind, LaunchError, Place, PtxError, UnknownInstruction
from .memory import Traffic, empty, reserve
from .module import Launched, Module, recording, representative_blocks
from .mutants import Mutant, coverage, mutants

__all__ = [
    "ARCHITECTURES",
    "CUPY_OPTIONS",
    "DEVICES",
    "LIMITS",
    "Bound",
    "CompileError",
    "Counts",
    "Device",
    "Fault",
    "FaultKind",
    "LaunchError",
    "Launched",
    "Limits",
    "Module",
    "Mutant",
    "Occupancy",
    "Place",
    "PtxError",
    "Resources",
    "Traffic",
    "UnknownInstruction",
    "assemble",
    "bound",
    "compile",
    "coverage",
    "disassemble",
    "empty",
    "mutants",
    "occupancy",
    "recording",
    "representative_blocks",
    "reserve",
]
