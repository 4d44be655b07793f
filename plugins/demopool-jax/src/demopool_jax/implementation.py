"""Arrays of JAX: what they are, the way from NumPy and back, and kernels compiled once a shape."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial, wraps
from inspect import Parameter, signature
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from demopool.contract import ArrayFacts, Hashes, Implementation, Kernel, routes_for

from . import kernels, powers, sketch

Function = Callable[..., Any]


def _compiled(function: Function) -> Kernel:
    """A kernel that is compiled once for every shape and every value of its parameters.

    Within somebody else's trace it becomes part of that. Otherwise it runs with the switch for
    float64 on, which leaves float32 as it is: powers need it where float32 is not accurate.
    """
    given = signature(function).parameters.values()
    parameters = [each.name for each in given if each.kind is Parameter.KEYWORD_ONLY]
    compiled = jax.jit(function, static_argnames=parameters)

    @wraps(function)
    def kernel(X: Any, *others: Any, **options: Any) -> Any:
        if others and isinstance(others[0], sketch.Prepared):
            others, options["k"] = (others[0].bins, *others[1:]), others[0].k
        if isinstance(X, jax.core.Tracer):
            return function(X, *others, **options)
        with jax.enable_x64(True):
            return compiled(X, *others, **options)

    return kernel


_FUNCTIONS: dict[tuple[str, str], Function] = {
    ("weights", "dense"): kernels.dense,
    ("weights", "matrix-free"): kernels.matrix_free,
    ("pool", "direct"): kernels.pool,
    ("sketch", "fft"): sketch.sketch_fft,
    ("pool_sketch", "fft"): sketch.pool_fft,
    ("pool_sketch", "moment"): sketch.pool_moment,
    ("normalize", "direct"): kernels.normalize,
}
_POWERS: dict[str, Function] = {
    "power": powers.power,
    "matrix_power": powers.matrix_power,
    "power_sketch": powers.power_sketch,
}


def _function(operation: str, route: str) -> Function:
    found = _POWERS.get(operation)
    return partial(found, route=route) if found else _FUNCTIONS[operation, route]


class JaxImplementation(Implementation):
    """JAX on one platform; arrays made here are on its first device."""

    kernels: ClassVar = {
        (route.operation, route.name): _compiled(_function(route.operation, route.name))
        for route in routes_for("jax")
    }

    def __init__(self, platform: str) -> None:
        self._platform = platform
        self._device = jax.local_devices(backend=platform)[0]

    def inspect(self, array: Any) -> ArrayFacts | None:
        if not isinstance(array, jax.Array):
            return None
        place = self._platform
        if not isinstance(array, jax.core.Tracer):
            device = next(iter(array.devices()))
            if device.platform != self._platform:
                return None
            place = f"{place}:{device.id}" if device.id else place
        return ArrayFacts(tuple(array.shape), array.dtype.name, place)

    def asarray(self, array: np.ndarray) -> Any:
        """Copied: JAX computes later, and takes for granted that its input stays as it is."""
        with jax.enable_x64(True):
            return jax.device_put(array, self._device, may_alias=False)

    def to_numpy(self, array: Any) -> np.ndarray:
        return np.asarray(array)

    def cast(self, array: Any, dtype: str) -> Any:
        with jax.enable_x64(True):
            return array.astype(dtype)

    def arithmetic(self) -> AbstractContextManager[Any]:
        return jax.enable_x64(True)

    def row_magnitudes(self, X: Any) -> np.ndarray:
        return np.asarray(jnp.max(jnp.abs(X), axis=-1))

    def prepare(self, hashes: Hashes) -> sketch.Prepared:
        return sketch.prepare(hashes)

    def wait(self, result: Any) -> None:
        jax.block_until_ready(result)
