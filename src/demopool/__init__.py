"""Second-order pooling of deep features on every backend, with proof.

>>> import numpy as np, demopool as dp
>>> X = np.random.default_rng(0).standard_normal((8, 196, 64), dtype=np.float32)
>>> dp.describe(X, "democratic", gamma=0.5).shape
(8, 4096)

``describe`` goes from features to descriptors in one call; ``backend`` gives the operations of one
library on its own arrays; ``reference`` is the method in plain NumPy, to read and to compare with.
"""

from importlib.metadata import version

from . import reference, results
from .auto import explain
from .cases import Case
from .choosing import choose
from .conformance import check
from .description import describe
from .errors import BackendUnavailable, DemopoolError, InvalidInput, Unsupported
from .hashing import Hashes, hashes
from .listing import backends
from .operations import Operations, backend

__version__ = version("demopool")

__all__ = [
    "BackendUnavailable",
    "Case",
    "DemopoolError",
    "Hashes",
    "InvalidInput",
    "Operations",
    "Unsupported",
    "__version__",
    "backend",
    "backends",
    "check",
    "choose",
    "describe",
    "explain",
    "hashes",
    "reference",
    "results",
]
