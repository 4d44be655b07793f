"""Every descriptor over d at n = 196: time and memory of one image."""

from .suite import OverD as _OverD


class Sum(_OverD, of="sum"):
    """Sum pooling."""


class Democratic(_OverD, of="democratic"):
    """Democratic pooling."""


class Power(_OverD, of="power"):
    """The matrix power of sum pooling."""


class SketchedSum(_OverD, of="sketched-sum"):
    """Sum pooling of sketched features."""


class SketchedDemocratic(_OverD, of="sketched-democratic"):
    """Democratic pooling of sketched features."""


class SketchedPower(_OverD, of="sketched-power"):
    """The matrix power, sketched."""
