"""The two sets of GPU kernels behind one interface: launched, compiled, counted and spoilt."""

from __future__ import annotations

import ast
import inspect
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from shutil import copytree
from tempfile import TemporaryDirectory
from types import FunctionType, ModuleType
from typing import Any
from unittest import mock

import numpy as np

import demopool as dp
from demopool import ptx
from demopool.contract import registry
from demopool.implementations.shared import grids

from .faults import sides

Array = Any
Launch = tuple[Any, grids.Shape, tuple[Any, ...]]
"""Of an implementation's ``launches.py``: a kernel, blocks and threads, arguments."""

ARCH = "sm_80"


class Backend(ABC):
    """Kernels of one library, and the library's own launches of them."""

    name: str
    launches: ModuleType
    emulated: ModuleType
    sources: tuple[Path, ...]
    max_shared: int | None = None
    """Shared memory that a block may ask for; None for what it gets without asking."""

    @property
    def ptx(self) -> str:
        """The backend that executes these kernels here."""
        return f"{self.name}:ptx"

    @property
    def kernels(self) -> tuple[str, ...]:
        """By their names; ``scatter`` launches one of two."""
        there = [f for f in vars(self.launches).values() if isinstance(f, FunctionType)]
        own = [f.__name__ for f in there if f.__module__ == self.launches.__name__]
        return (*sorted([*own, "scatter_far"]),)

    def prepared(self, hashes: dp.Hashes) -> Any:
        """As its kernels want them."""
        return dp.backend(self.ptx).implementation.prepare(hashes)

    def row_sums(self, images: int, n: int) -> Array:
        """Room for those of the Gram matrix, for each column of tiles."""
        return ptx.reserve((images, grids.tiles(n), n))

    @property
    @abstractmethod
    def in_source(self) -> tuple[str, ...]:
        """Names of the kernels, as the source has them."""

    @abstractmethod
    def parameters(self, launch: Launch) -> list[str]:
        """Names of the arguments of a launch, as the source has them."""

    @abstractmethod
    def lowered(self, launch: Launch) -> str:
        """The name of a launch's kernel in its module."""

    @abstractmethod
    def compiled(self, launch: Launch, arch: str = ARCH) -> ptx.Module:
        """The kernel of a launch alone, for its dtypes."""

    @abstractmethod
    def spoilt(self, launch: Launch, change: str) -> ptx.Module:
        """The same with a change of the source (``faults.py``) made wherever it can be."""

    def start(self, launch: Launch, module: ptx.Module | None = None, **options: Any) -> ptx.Counts:
        """A launch on the arrays themselves, and what it did."""
        _, shape, args = launch
        options = {"max_shared": self.max_shared, "cooperative": shape.cooperative, **options}
        module = self.compiled(launch) if module is None else module
        name = self.lowered(launch)
        return module.launch(name, shape.blocks, shape.threads, args, shape.shared, **options)

    def run(self, launch: Launch, module: ptx.Module | None = None, **options: Any) -> list[Array]:
        """All arrays of a launch after it; those that were given stay as they are."""
        kernel, shape, given = launch
        args = tuple(arg.copy() if isinstance(arg, np.ndarray) else arg for arg in given)
        self.start((kernel, shape, args), module, **options)
        return [arg for arg in args if isinstance(arg, np.ndarray)]

    def line(self, mutant: ptx.Mutant) -> str:
        """The text of the line of the source that was changed."""
        file, _, number = mutant.source.partition(":")
        return self._text(file)[int(number) - 1].strip()

    def _text(self, file: str) -> list[str]:
        (path,) = (path for path in self.sources if path.name == file)
        return path.read_text().splitlines()


class Cupy(Backend):
    name = "cupy"
    max_shared = ptx.LIMITS[ARCH].shared_per_block

    def __init__(self) -> None:
        from demopool.implementations.cupy_cuda import emulated, launches, signatures

        self.launches, self.emulated, self.signatures = launches, emulated, signatures
        self.sources = signatures.SOURCES

    @property
    def in_source(self) -> tuple[str, ...]:
        return (*sorted(self.signatures.parameters()),)

    def parameters(self, launch: Launch) -> list[str]:
        return [parameter.name for parameter in self.signatures.parameters_of(launch[0])]

    def lowered(self, launch: Launch) -> str:
        kernel, shape, args = launch
        # What the library refuses is no launch here either.
        self.signatures.check(kernel, shape, args, self.max_shared)
        return self.signatures.instance(kernel, args)

    def compiled(self, launch: Launch, arch: str = ARCH) -> ptx.Module:
        return self.emulated.compiled(self.lowered(launch), arch)

    def spoilt(self, launch: Launch, change: str) -> ptx.Module:
        old, new = sides(change)
        source = self.signatures.source()
        assert old in source
        return ptx.compile(source.replace(old, new), ARCH, names=[self.lowered(launch)])


class Numba(Backend):
    name = "numba"

    def __init__(self) -> None:
        from demopool.implementations.numba_cuda import emulated, kernels, launches

        self.launches, self.emulated, self.package = launches, emulated, kernels
        self.sources = tuple(sorted(Path(kernels.__file__).parent.glob("*.py")))

    @property
    def in_source(self) -> tuple[str, ...]:
        """Functions for a device have a decorator, kernels have none."""
        there = vars(self.package).items()
        return (*sorted(name for name, one in there if isinstance(one, FunctionType)),)

    def parameters(self, launch: Launch) -> list[str]:
        return list(inspect.signature(launch[0]).parameters)

    def lowered(self, launch: Launch) -> str:
        return launch[0].__name__

    def compiled(self, launch: Launch, arch: str = ARCH) -> ptx.Module:
        return self._compiled(launch[0], launch, arch)

    def _compiled(self, kernel: Any, launch: Launch, arch: str) -> ptx.Module:
        return self.emulated.compiled(kernel, self.emulated.signature(launch[2]), arch)

    def line(self, mutant: ptx.Mutant) -> str:
        """Numba gives a line of a function that it has inlined the file of the kernel: one outside
        of the kernel and of the functions beside it is of ``tiles.py``."""
        file, _, number = mutant.source.partition(":")
        ours = [
            f for f in ast.parse("\n".join(self._text(file))).body if _is_inlined(f, mutant.kernel)
        ]
        inside = any(f.lineno <= int(number) <= (f.end_lineno or 0) for f in ours)
        return self._text(file if inside else "tiles.py")[int(number) - 1].strip()

    def spoilt(self, launch: Launch, change: str) -> ptx.Module:
        with self.copied(change) as package:
            return self._compiled(getattr(package, self.lowered(launch)), launch, ARCH)

    @contextmanager
    def copied(self, change: str = "") -> Iterator[ModuleType]:
        """The kernels once more, with a change of their source; as files, because Numba wants the
        lines."""
        (old, new), name = sides(change), "copied_kernels"
        with TemporaryDirectory() as folder, mock.patch.object(sys, "path", [folder, *sys.path]):
            files = copytree(self.sources[0].parent, Path(folder, name)).glob("*.py")
            changed = [file for file in files if old in file.read_text()]
            assert changed
            for file in changed:
                file.write_text(file.read_text().replace(old, new))
            try:
                yield import_module(name)
            finally:
                for module in [one for one in sys.modules if one.startswith(name)]:
                    del sys.modules[module]


def _is_inlined(node: ast.stmt, kernel: str) -> bool:
    """A kernel itself, or a function that has a decorator: those of a device have."""
    is_function = isinstance(node, ast.FunctionDef)
    return is_function and (node.name == kernel or bool(node.decorator_list))


BACKENDS: dict[str, Backend] = {
    one.name: one() for one in (Cupy, Numba) if f"{one.name}:ptx" in registry.available()
}
"""Those that can be executed here."""

EVERY_KERNEL = [(name, kernel) for name, one in BACKENDS.items() for kernel in one.kernels]
