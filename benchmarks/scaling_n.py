"""Every descriptor over n at d = 512: time and memory of one image."""

from .suite import OverN as _OverN


class Sum(_OverN, of="sum"):
    """Sum pooling."""


class Democratic(_OverN, of="democratic"):
    """Democratic pooling."""


class Power(_OverN, of="power"):
    """The matrix power of sum pooling."""


class SketchedSum(_OverN, of="sketched-sum"):
    """Sum pooling of sketched features."""


class SketchedDemocratic(_OverN, of="sketched-democratic"):
    """Democratic pooling of sketched features."""


class SketchedPower(_OverN, of="sketched-power"):
    """The matrix power, sketched."""
