"""Matrix powers on NumPy arrays with LAPACK and BLAS; see ``shared/powers.py``."""

from __future__ import annotations

from demopool.implementations.shared import blas, powers

from . import sketch

OF_FEATURES, OF_MATRICES, SKETCHED = powers.kernels(
    mirror=blas.mirror,
    sketch_of_rows=lambda rows, prepared: sketch.pool_fft(rows, prepared, None),
    sketch_of_matrices=sketch.sketch_of_matrices,
)
