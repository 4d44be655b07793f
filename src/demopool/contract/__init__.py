"""What a backend gives to demopool, and everything its author needs: import it from here.

:mod:`.interface` has the contract itself, :mod:`.probing` what tells whether a library or a GPU is
there. The registry, the capability table and the support matrix are read by demopool.
"""

from ..machine.system import usable_cores
from ..problem import operations as signatures
from ..problem.hashing import Hashes
from ..problem.routes import ROUTES, Route, routes_for
from ..problem.vocabulary import DTYPES, State
from . import probing
from .interface import (
    CONTRACT_VERSION,
    ArrayFacts,
    Capability,
    Implementation,
    Kernel,
    Probe,
    Specification,
)

__all__ = [
    "CONTRACT_VERSION",
    "DTYPES",
    "ROUTES",
    "ArrayFacts",
    "Capability",
    "Hashes",
    "Implementation",
    "Kernel",
    "Probe",
    "Route",
    "Specification",
    "State",
    "probing",
    "routes_for",
    "signatures",
    "usable_cores",
]
