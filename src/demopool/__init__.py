"""Second-order pooling of deep features on every backend, verified against one reference.

>>> import numpy as np, demopool as dp
>>> X = np.random.default_rng(0).standard_normal((8, 196, 64), dtype=np.float32)
>>> dp.describe(X, "democratic", gamma=0.5).shape
(8, 4096)

``describe`` goes from features to descriptors in one call; ``backend`` gives the operations of one
library on its own arrays; ``reference`` is the method in plain NumPy, to read and to compare with.
"""

import importlib
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from .common.program import __version__

if TYPE_CHECKING:
    from . import reference, results
    from .choosing.chooser import choose
    from .conformance import check
    from .contract.listing import backends
    from .datasets.pooling import PoolResult, pool_files
    from .errors import BackendUnavailable, DemopoolError, InvalidInput, Unfinished, Unsupported
    from .pooling.description import describe
    from .pooling.operations import Operations, backend
    from .problem.cases import Case
    from .problem.hashing import Hashes, hashes
    from .profiles.auto import explain


__all__ = [
    "BackendUnavailable",
    "Case",
    "DemopoolError",
    "Hashes",
    "InvalidInput",
    "Operations",
    "PoolResult",
    "Unfinished",
    "Unsupported",
    "__version__",
    "backend",
    "backends",
    "check",
    "choose",
    "describe",
    "explain",
    "hashes",
    "pool_files",
    "reference",
    "results",
]

_HOMES = {
    "BackendUnavailable": "errors",
    "Case": "problem.cases",
    "DemopoolError": "errors",
    "Hashes": "problem.hashing",
    "InvalidInput": "errors",
    "Operations": "pooling.operations",
    "PoolResult": "datasets.pooling",
    "Unfinished": "errors",
    "Unsupported": "errors",
    "backend": "pooling.operations",
    "backends": "contract.listing",
    "check": "conformance",
    "choose": "choosing.chooser",
    "describe": "pooling.description",
    "explain": "profiles.auto",
    "hashes": "problem.hashing",
    "pool_files": "datasets.pooling",
}


def __getattr__(name: str) -> Any:
    """Imported when first used: the command line must be reached before its libraries are loaded,
    or Ctrl-C in the meantime is a traceback. Other names are those of modules."""
    if name in _HOMES:
        found = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
        globals()[name] = found
        return found
    if not name.startswith("_") and find_spec(f"{__name__}.{name}") is not None:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
