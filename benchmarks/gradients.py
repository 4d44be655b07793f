"""Forward and backward of every descriptor, on tensors that carry gradients."""

from .suite import Gradient as _Gradient


class Sum(_Gradient, of="sum"):
    """Sum pooling."""


class Democratic(_Gradient, of="democratic"):
    """Democratic pooling."""


class Power(_Gradient, of="power"):
    """The matrix power of sum pooling."""


class SketchedSum(_Gradient, of="sketched-sum"):
    """Sum pooling of sketched features."""


class SketchedDemocratic(_Gradient, of="sketched-democratic"):
    """Democratic pooling of sketched features."""


class SketchedPower(_Gradient, of="sketched-power"):
    """The matrix power, sketched."""
