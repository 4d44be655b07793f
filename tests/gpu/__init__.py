"""The kernels of cupy:cuda and numba:cuda, executed from their PTX: values, counts, mistakes."""
