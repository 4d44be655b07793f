"""Runs the kernels on tensors: compiled on a GPU, or by Triton's interpreter on the CPU."""

from __future__ import annotations

import importlib.util
import sys
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import triton
from torch import Tensor

from . import kernels as compiled_kernels


class Launcher:
    """Of one device, on torch's current stream there."""

    def __init__(self, kernels: ModuleType, device: torch.device) -> None:
        self._kernels = kernels
        self._device = device

    def launch(self, kernel: str, programs: int, *arguments: Any, **constants: Any) -> None:
        """So many programs of a kernel; nothing, if there is nothing to do."""
        if programs:
            getattr(self._kernels, kernel)[(programs,)](*arguments, **constants)

    def empty(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.empty(shape, dtype=dtype, device=self._device)

    def active(self) -> AbstractContextManager[Any]:
        """While it is worked with: Triton launches on the current GPU."""
        if self._device.type == "cuda":
            return torch.cuda.device(self._device)
        return nullcontext()

    def after(self, other: Launcher) -> None:
        """Every tensor is worked on on the current stream."""

    def reshape(self, array: Tensor, shape: tuple[int, ...]) -> Tensor:
        return array.reshape(shape)


@cache
def compiled(device: torch.device) -> Launcher:
    return Launcher(compiled_kernels, device)


@cache
def interpreted() -> Launcher:
    """Triton decides when a function is jitted whether it is compiled or interpreted. So the files
    of the kernels are loaded once more, under another name, with Triton's switch on for so long:
    this process may have a GPU, or compile with Triton for other reasons."""
    name = f"{__package__}.interpreted_kernels"
    (folder,) = compiled_kernels.__path__
    spec = importlib.util.spec_from_file_location(
        name, Path(folder, "__init__.py"), submodule_search_locations=[folder]
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    with triton.knobs.runtime.scope():
        triton.knobs.runtime.interpret = True
        spec.loader.exec_module(module)
    return Launcher(module, torch.device("cpu"))
