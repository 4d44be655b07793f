"""Every operation: time on all cases, tracked measures on the network cases."""

from .suite import Operation as _Operation


class Weights(_Operation, of="weights"):
    """Democratic weights by damped Sinkhorn iterations."""


class Pool(_Operation, of="pool"):
    """The weighted second-order pool."""


class Sketch(_Operation, of="sketch"):
    """Tensor Sketch of every feature."""


class PoolSketch(_Operation, of="pool_sketch"):
    """The weighted sum of sketched features."""


class Power(_Operation, of="power"):
    """The matrix power of the pool of features."""


class MatrixPower(_Operation, of="matrix_power"):
    """The power of given matrices."""


class PowerSketch(_Operation, of="power_sketch"):
    """The sketch of the matrix power."""


class Normalize(_Operation, of="normalize"):
    """Signed square root and unit length."""
