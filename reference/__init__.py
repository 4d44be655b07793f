"""The paper's equations in plain NumPy float64: short, slow, and the only standard of correctness.

Every function takes one image ``X`` of shape ``(n, d)``, whose rows are the feature vectors
``x_i``, or any number of independent images ``(..., n, d)``. Nothing here is optimised: read the
code next to the paper,

    T.-Y. Lin, S. Maji, P. Koniusz. Second-order Democratic Aggregation. ECCV 2018.

Read in this order: :mod:`.democratic` (Section 3.1, Algorithm 1), :mod:`.pooling` (Section 3),
:mod:`.sketching` (Section 3.1, Proposition 3), :mod:`.powers` (Section 3.2),
:mod:`.spectra` (Section 3.2, Propositions 4 and 5), :mod:`.descriptors` (all of it together).

Input of any real dtype is converted to float64. Feature norms between 1e-70 and 1e70 keep the
kernel, which grows with their fourth power, within the range of float64.
"""

from .democratic import kernel, weights
from .descriptors import describe
from .pooling import bilinear, center, normalize, pool, upper
from .powers import matrix_power, power
from .sketching import bilinear_sketch, count_sketch, pool_sketch, power_sketch, sketch
from .spectra import Bounds, bounds, contributions, spectrum

__all__ = [
    "Bounds",
    "bilinear",
    "bilinear_sketch",
    "bounds",
    "center",
    "contributions",
    "count_sketch",
    "describe",
    "kernel",
    "matrix_power",
    "normalize",
    "pool",
    "pool_sketch",
    "power",
    "power_sketch",
    "sketch",
    "spectrum",
    "upper",
    "weights",
]
