"""PyTorch modules: ``from demopool.torch import GammaDemocraticPool``."""

from .torch_modules import (
    GammaDemocraticPool,
    MatrixPowerPool,
    SecondOrderPool,
    SketchedDemocraticPool,
)

__all__ = ["GammaDemocraticPool", "MatrixPowerPool", "SecondOrderPool", "SketchedDemocraticPool"]
