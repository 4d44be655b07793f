"""The kernels of cupy:cuda compiled for the host by g++, unchanged: a second opinion on them.

It shares nothing with ``demopool.ptx`` but the source: no compiler of NVIDIA's, no interpreter.
"""

from __future__ import annotations

import ctypes
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .backends import Backend, Launch

Array = Any
HEADER = Path(__file__).with_name("on_host.h")

_DYNAMIC = re.compile(r"extern __shared__ (?:__align__\(\d+\) )?([\w ]+) (\w+)\[\];")
_BYTES = 1 << 18


class OnHost:
    """Some instances of the kernels of a source, in a library that is made in a folder."""

    def __init__(self, b: Backend, instances: Sequence[str], folder: Path, source: str) -> None:
        self._b, self._instances = b, list(instances)
        dynamic = {name: kind for kind, name in _DYNAMIC.findall(source)}
        lines = [f'#include "{HEADER}"']
        lines += [f"alignas(16) thread_local {k} {n}[{_BYTES}];" for n, k in dynamic.items()]
        lines.append(source)
        for i, name in enumerate(self._instances):
            given = f"sizes, cooperative, order, {_flushes(name)}, args"
            lines.append(
                f'extern "C" const char* run_{i}(const unsigned* sizes, bool cooperative, '
                f"int order, void** args) {{ return host::launch({name}, {given}); }}"
            )
        file, library = folder / "on_host.cpp", folder / "on_host.so"
        file.write_text("\n".join(lines) + "\n")
        # Nothing is fused: the compiler of the host would fuse elsewhere than that of the device.
        options = ["-std=c++17", "-O1", "-ffp-contract=off", "-shared", "-fPIC", "-pthread"]
        # Shared memory is thread-local to the compiler, and nothing initialises it.
        options += ["-w", "-fno-extern-tls-init"]
        command = ["g++", *options, str(file), "-o", str(library)]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"g++ does not take the kernels:\n{done.stderr[:2000]}")
        self._library = ctypes.CDLL(str(library))

    def run(self, launch: Launch, order: int) -> list[Array]:
        """All arrays of a launch after it; those that were given stay as they are."""
        _, shape, given = launch
        args = [np.array(arg, copy=True, order="C") for arg in given]
        # A kernel is given the address of an array, and the bytes of a number.
        held = [
            np.array(copy.ctypes.data, np.uint64) if isinstance(arg, np.ndarray) else copy
            for arg, copy in zip(given, args, strict=True)
        ]
        pointers = (ctypes.c_void_p * len(held))(*(one.ctypes.data for one in held))
        sizes = (ctypes.c_uint * 6)(*_three(shape.blocks), *_three(shape.threads))
        at = self._instances.index(self._b.lowered(launch))
        function = getattr(self._library, f"run_{at}")
        function.restype = ctypes.c_char_p
        problem = function(sizes, shape.cooperative, order, pointers).decode()
        if problem:
            raise RuntimeError(problem)
        return [copy for arg, copy in zip(given, args, strict=True) if isinstance(arg, np.ndarray)]


def _flushes(instance: str) -> str:
    """CuPy has subnormal numbers of float32 flushed to zero."""
    return "true" if "<float>" in instance else "false"


def _three(sizes: Any) -> tuple[int, int, int]:
    x, y, z = (*np.atleast_1d(sizes).tolist(), 1, 1)[:3]
    return x, y, z
