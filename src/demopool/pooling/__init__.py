"""Using it: ``describe``, the operations of a backend, and both in PyTorch, scikit-learn and Dask.

What a job needs of the package it measures is here by name: see :mod:`demopool.trials.jobs`.
"""

from ..errors import BackendUnavailable, InvalidInput
from ..problem.hashing import hashes
from .description import describe
from .operations import backend

__all__ = ["BackendUnavailable", "InvalidInput", "backend", "describe", "hashes"]
