"""Is what cupy:cuda asks of CuPy there, in the one that is installed?"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest

from demopool.implementations import cupy_cuda
from demopool.machine import gpu_limits

cupy: Any = pytest.importorskip("cupy")

PACKAGE = Path(cupy_cuda.__file__).parent


def _chains(root: str) -> set[str]:
    """Attributes that the package takes of ``root``, as dotted names: ``linalg.eigh``."""
    found = set()
    for file in PACKAGE.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names: list[str] = []
            while isinstance(node, ast.Attribute) and ast.unparse(node) != root:
                names.insert(0, node.attr)
                node = node.value
            if names and ast.unparse(node) == root:
                found.add(".".join(names))
    return found


def _has(thing: Any, chain: str) -> bool:
    name, _, rest = chain.partition(".")
    return hasattr(thing, name) and (not rest or _has(getattr(thing, name), rest))


def test_the_names_of_cupy_that_we_use_exist_in_the_installed_one() -> None:
    chains = _chains("cupy()")
    assert {"RawModule", "cuda.Stream", "cuda.get_current_stream", "from_dlpack"} <= chains
    assert not [chain for chain in chains if not _has(cupy, chain)]
    streams = ("begin_capture", "end_capture", "is_capturing", "synchronize")
    kernels = ("max_dynamic_shared_size_bytes", "shared_size_bytes", "kernel")
    assert hasattr(cupy.cuda.Device, "attributes")
    assert hasattr(cupy.cuda.Device, "compute_capability")
    assert all(hasattr(cupy.cuda.Stream, name) for name in streams)
    assert all(hasattr(cupy.RawKernel, name) for name in kernels)
    for name in ("malloc_postprocess", "free_postprocess"):
        assert "mem_size" in getattr(cupy.cuda.MemoryHook, name).__doc__


def test_the_keywords_that_we_use_exist_in_the_installed_cupy() -> None:
    documented = {
        "RawModule": (cupy.RawModule, ("code", "name_expressions")),
        "RawKernel": (cupy.RawKernel.__call__, ("grid", "block", "args", "shared_mem")),
        "Stream": (cupy.cuda.Stream, ("non_blocking",)),
        "Graph.launch": (cupy.cuda.Graph.launch, ("stream",)),
        "ascontiguousarray": (cupy.ascontiguousarray, ("dtype",)),
    }
    for name, (thing, keywords) in documented.items():
        for keyword in keywords:
            assert re.search(rf"\b{keyword}\b", thing.__doc__), (name, keyword)
    # A function of the driver has no signature that can be read.
    (function,) = (Path(cupy.__file__).parent / "cuda").glob("function.*.so")
    assert b"enable_cooperative_groups" in function.read_bytes()
    # Its module wants cuBLAS itself, so that its source is read.
    source = (Path(cupy.__file__).parent / "cublas.py").read_text()
    functions = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
    (syrk,) = (function for function in functions if function.name == "syrk")
    names = [argument.arg for argument in syrk.args.args]
    assert names[:3] == ["trans", "a", "out"]
    assert "lower" in names


def test_the_array_functions_that_we_use_exist_for_cupy() -> None:
    namespace = pytest.importorskip("array_api_compat.cupy")
    chains = _chains("on.xp") | _chains("xp") | {"linalg.trace", "matrix_transpose", "eye"}
    assert {"linalg.eigh", "fft.rfft", "matmul"} <= chains
    assert not [chain for chain in chains if not _has(namespace, chain)]


def test_the_names_that_measure_a_gpu_exist_in_the_installed_cupy() -> None:
    tree = ast.parse(Path(gpu_limits.__file__).read_text())
    used = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "cupy"
    }
    assert {"matmul", "copyto", "empty_like"} <= used
    assert not [name for name in used if not hasattr(cupy, name)]
    assert hasattr(cupy.cuda.Device, "synchronize")
    assert hasattr(cupy.cuda.MemoryPool, "free_all_blocks")
