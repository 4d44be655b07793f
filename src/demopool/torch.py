"""PyTorch modules: ``from demopool.torch import GammaDemocraticPool``."""

from .errors import BackendUnavailable

try:
    from .pooling.torch_modules import (
        GammaDemocraticPool,
        MatrixPowerPool,
        SecondOrderPool,
        SketchedDemocraticPool,
    )
    from .pooling.torch_streams import BilinearPool
except ModuleNotFoundError as missing:
    if missing.name != "torch":
        raise
    from .contract.registry import probe

    found = probe("torch:cpu")
    raise BackendUnavailable("demopool.torch", found.reason, found.install) from None

__all__ = [
    "BilinearPool",
    "GammaDemocraticPool",
    "MatrixPowerPool",
    "SecondOrderPool",
    "SketchedDemocraticPool",
]
