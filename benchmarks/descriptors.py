"""Every descriptor on the network cases: time and all tracked measures."""

from .suite import Descriptor as _Descriptor


class Sum(_Descriptor, of="sum"):
    """Sum pooling."""


class Democratic(_Descriptor, of="democratic"):
    """Democratic pooling."""


class Power(_Descriptor, of="power"):
    """The matrix power of sum pooling."""


class SketchedSum(_Descriptor, of="sketched-sum"):
    """Sum pooling of sketched features."""


class SketchedDemocratic(_Descriptor, of="sketched-democratic"):
    """Democratic pooling of sketched features."""


class SketchedPower(_Descriptor, of="sketched-power"):
    """The matrix power, sketched."""
