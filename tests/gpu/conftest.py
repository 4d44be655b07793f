"""The sets of GPU kernels, as fixtures; one that cannot be executed here is skipped."""

from __future__ import annotations

import pytest

from .backends import BACKENDS, Backend


def _present(name: str) -> Backend:
    if name not in BACKENDS:
        pytest.skip(f"{name}:ptx is not usable here")
    return BACKENDS[name]


@pytest.fixture
def cupy() -> Backend:
    return _present("cupy")


@pytest.fixture
def numba() -> Backend:
    return _present("numba")


@pytest.fixture(params=("cupy", "numba"))
def b(request: pytest.FixtureRequest) -> Backend:
    """Each of them."""
    return _present(request.param)
