"""What the kernels take, read from their source.

CuPy hands a kernel whatever it is given: a float64 array for a pointer to float, or a Python number
of 8 bytes for one of 4, and the results are wrong. So every launch is compared with the source.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache, lru_cache
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from demopool.implementations.shared.grids import MAX_BLOCKS, MAX_THREADS, TILE, Shape

_KERNELS = Path(__file__).with_name("kernels")
_ORDER = ("common", "tiles", "sums", "products", "scales", "weights", "norms", "sketches")
SOURCES = tuple(_KERNELS / f"{name}.cu" for name in _ORDER)
"""The files of the kernels, each after those that it uses."""

_OF_PRODUCTS, _TENSOR = SOURCES[:4], _KERNELS / "tensor.cu"

_C_TYPES = {
    "float": np.float32,
    "double": np.float64,
    "int": np.int32,
    "unsigned": np.uint32,
    "size_t": np.uint64,
    "signed char": np.int8,
}
TEMPLATED = {"float32": "float", "float64": "double"}
"""What T stands for, by the dtype of the arrays."""


class Parameter(NamedTuple):
    """Of a kernel; ``type`` is a type of C, or T."""

    name: str
    type: str
    is_array: bool

    def dtype(self, of: str) -> np.dtype[Any]:
        """What must be given in a kernel whose T is ``of``."""
        return np.dtype(_C_TYPES[of if self.type == "T" else self.type])


@cache
def source() -> str:
    """All files as one, in which a compiler still knows each line by its file."""
    return _joined(SOURCES)


def _joined(files: Sequence[Path]) -> str:
    return "".join(f'#line 1 "{file.name}"\n{file.read_text()}' for file in files)


@cache
def parameters() -> dict[str, tuple[Parameter, ...]]:
    """Of every kernel, in order, but for variants of products."""
    return _parameters_in(source())


class Variant(NamedTuple):
    """Products of float32 in another way, compiled on their own when they are wanted."""

    source: str
    parameters: dict[str, tuple[Parameter, ...]]

    @property
    def instances(self) -> tuple[str, ...]:
        return tuple(f"{kernel}<{TEMPLATED['float32']}>" for kernel in self.parameters)


@cache
def tensor() -> Variant:
    """On tensor cores, which older GPUs have not."""
    own = _parameters_in(_TENSOR.read_text())
    return Variant(_joined((*_OF_PRODUCTS, _TENSOR)), own)


@cache
def wide() -> Variant:
    """The same kernels in tiles of 128, with that as the ending of their names."""
    text = _joined(_OF_PRODUCTS)
    for name, usual in (("TILE", TILE), ("HALF", TILE // 2)):
        text = text.replace(f"unsigned {name} = {usual};", f"unsigned {name} = {2 * usual};")
    text = re.sub(r"(__launch_bounds__\(THREADS<T>[^)]*\) void \w+)", rf"\1_{2 * TILE}", text)
    return Variant(text, _parameters_in(text))


def variant(instance: str) -> Variant | None:
    """The one that a kernel is of."""
    return next((one for one in (tensor(), wide()) if instance in one.instances), None)


def _parameters_in(text: str) -> dict[str, tuple[Parameter, ...]]:
    head = r"__global__ (?:__launch_bounds__\([^)]*\) )?void (\w+)\(([^)]*)\)"
    heads = re.findall(head, text)
    return {name: tuple(_parameter(one) for one in given.split(",")) for name, given in heads}


@cache
def parameters_of(kernel: str) -> tuple[Parameter, ...]:
    return (parameters() | tensor().parameters | wide().parameters)[kernel]


def _parameter(text: str) -> Parameter:
    words = text.replace("*", " * ").split()
    type_ = " ".join(word for word in words[:-1] if word not in ("const", "*"))
    return Parameter(words[-1], type_, "*" in words)


def instance(kernel: str, args: Sequence[Any]) -> str:
    """The name of the kernel for the arrays it is given: ``gram<float>``."""
    return f"{kernel}<{_templated(kernel, args)}>"


def instances(ctype: str) -> tuple[str, ...]:
    """Of every kernel for one T."""
    return tuple(f"{kernel}<{ctype}>" for kernel in parameters())


def _templated(kernel: str, args: Sequence[Any]) -> str:
    for parameter, value in zip(parameters_of(kernel), args, strict=False):
        if parameter.type == "T":
            return _ctype(kernel, parameter.name, value.dtype)
    raise TypeError(f"{kernel} was not given what it is a kernel for.")


@cache
def _ctype(kernel: str, parameter: str, dtype: Any) -> str:
    name = np.dtype(dtype).name
    if name in TEMPLATED:
        return TEMPLATED[name]
    raise TypeError(f"{kernel}: {parameter} is {name}, not float32 or float64.")


def check(kernel: str, shape: Shape, args: Sequence[Any], max_shared: int) -> None:
    """A launch that would go wrong without a word raises a TypeError or a ValueError that says
    why. Arrays are those of NumPy or CuPy."""
    _check_arguments(kernel, _templated(kernel, args), tuple(_given(value) for value in args))
    if shape.blocks > MAX_BLOCKS:
        raise ValueError(f"{kernel}: {shape.blocks} blocks; a grid has at most {MAX_BLOCKS}.")
    if prod(shape.threads) > MAX_THREADS:
        raise ValueError(f"{kernel}: a block has at most {MAX_THREADS} threads.")
    if shape.shared > max_shared:
        raise ValueError(
            f"{kernel}: {shape.shared} bytes of shared memory; a block of this device has at most "
            f"{max_shared}."
        )


def _given(value: Any) -> tuple[Any, bool | None]:
    """What matters of an argument: its dtype, or its class if it has none, and whether it is in one
    piece, None for a number."""
    if isinstance(value, np.generic):
        return value.dtype, None
    dtype = getattr(value, "dtype", None)
    return (type(value), None) if dtype is None else (dtype, bool(value.flags.c_contiguous))


@lru_cache(maxsize=1024)
def _check_arguments(kernel: str, of: str, given: tuple[tuple[Any, bool | None], ...]) -> None:
    """Once for arguments of such types: comparing them takes longer than a small kernel."""
    wanted = parameters_of(kernel)
    if len(given) != len(wanted):
        raise TypeError(f"{kernel} takes {len(wanted)} arguments; got {len(given)}.")
    for parameter, (dtype, contiguous) in zip(wanted, given, strict=True):
        expected = parameter.dtype(of)
        if isinstance(dtype, type) or np.dtype(dtype) != expected:
            got = dtype.__name__ if isinstance(dtype, type) else dtype
            raise TypeError(f"{kernel}: {parameter.name} must be {expected}; got {got}.")
        if parameter.is_array == (contiguous is None):
            kind = "an array" if parameter.is_array else "a number"
            raise TypeError(f"{kernel}: {parameter.name} must be {kind}.")
        if parameter.is_array and not contiguous:
            raise TypeError(f"{kernel}: {parameter.name} must be contiguous, row by row.")
