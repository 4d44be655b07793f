"""Matrix powers with LAPACK and BLAS (see ``shared/powers.py``); compiled loops for the rest."""

from __future__ import annotations

from demopool.implementations.shared import powers

from . import products, sketch

OF_FEATURES, OF_MATRICES, SKETCHED = powers.kernels(
    mirror=products.mirror,
    sketch_of_rows=lambda rows, prepared: sketch.pool_fft(rows, prepared, None),
    sketch_of_matrices=sketch.sketch_of_matrices,
)
