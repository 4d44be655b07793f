"""The operations whose routes differ, on the network cases: time and error."""

from .suite import Operation as _Operation


class Weights(_Operation, of="weights"):
    """Democratic weights by damped Sinkhorn iterations."""


class Pool(_Operation, of="pool"):
    """The weighted sum of outer products."""


class PoolSketch(_Operation, of="pool_sketch"):
    """The weighted sum of sketched features."""


class Power(_Operation, of="power"):
    """The matrix power of the pool of features."""


class MatrixPower(_Operation, of="matrix_power"):
    """The power of given matrices."""


class PowerSketch(_Operation, of="power_sketch"):
    """The sketch of the matrix power."""
