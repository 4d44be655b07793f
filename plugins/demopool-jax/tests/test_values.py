"""Every route on hard values of one shape, which XLA compiles once; the conformance suite has many
shapes, and takes much longer."""

from __future__ import annotations

import numpy as np
import pytest

import demopool as dp
from demopool.conformance.examples import question
from demopool.contract import ROUTES

N, D = 12, 7


def _features() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    plain = rng.standard_normal((2, N, D))
    zero_rows = plain.copy()
    zero_rows[0, [2, 5]] = 0.0
    zero_rows[1] = 0.0
    across = np.zeros((2, N, D))
    across[:, :9, :4] = rng.standard_normal((2, 9, 4))
    across[:, 9:, 4:] = 1e-3 * rng.standard_normal((2, 3, 3))
    return {
        "gaussian": plain,
        "zero rows": zero_rows,
        "scaled by 1e12": 1e12 * plain,
        "scaled by 1e-12": 1e-12 * plain,
        "rank 3": rng.standard_normal((2, N, 3)) @ rng.standard_normal((2, 3, D)),
        "constant": np.stack([np.full((N, D), 0.7), np.full((N, D), 1 / 3)]),
        "faint across strong": across @ np.linalg.qr(rng.standard_normal((D, D)))[0],
    }


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("operation", "route", "order"),
    [(route.operation, route.name, order) for route in ROUTES for order in route.orders],
)
def test_a_route_is_right_on_hard_values(
    operation: str, route: str, order: int, dtype: str
) -> None:
    ops = dp.backend("jax:cpu")
    for name, values in _features().items():
        if "across" in name and operation != "weights":
            continue
        asked = question(values.astype(dtype), operation, order, dtype)
        arrays = {key: None if a is None else ops.asarray(a) for key, a in asked.arrays.items()}
        options = dict(asked.options)
        if operation == "normalize":
            options["overwrite"] = False
        if "hashes" in options:
            arrays = {"X": arrays.pop("X"), "hashes": options.pop("hashes"), **arrays}
        kernel = ops.implementation.kernels[operation, route]
        if "hashes" in arrays:
            arrays["hashes"] = ops.implementation.prepare(arrays["hashes"])
        found = kernel(*arrays.values(), **options)
        assert found.dtype == dtype
        found = ops.to_numpy(found).astype(np.float64)
        size, last = np.abs(asked.expected), tuple(range(-asked.axes, 0))
        scale = size if asked.entrywise else size.max(axis=last, keepdims=True)
        allowed = np.asarray(asked.allowed(route))
        allowed = allowed.reshape(allowed.shape + (1,) * (found.ndim - allowed.ndim))
        error = np.abs(found - asked.expected)
        assert (error <= allowed * scale).all(), f"{name}: {error.max()}"
