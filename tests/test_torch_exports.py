"""The table of docs/reference/torch.md: what torch can do with each module, tried cell by cell."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest
from effort import cases

from demopool.contract import registry
from demopool.errors import BackendUnavailable, Unsupported

pytest.importorskip("torch")

import torch

from demopool import torch as modules
from demopool.contract import probing

CHANNELS = 140  # symmetric products of more than 128 rows are made in parts, in place
DOCUMENT = Path(__file__).parent.parent / "docs" / "reference" / "torch.md"


def make(module: str, route: str) -> Any:
    if module == "SketchedDemocraticPool":
        weights = "auto" if route == "auto" else "dense"
        return modules.SketchedDemocraticPool(CHANNELS, k=64, route=weights, sketch=route)
    if module == "BilinearPool":
        return modules.BilinearPool((CHANNELS, CHANNELS), k=64 if route == "sketched" else None)
    return getattr(modules, module)(**({"route": route} if route else {}))


def compiled(module: Any, seen: Any, x: Any) -> Any:
    torch.compiler.reset()
    return torch.compile(module, fullgraph=True, backend="aot_eager")(x)


def exported(module: Any, seen: Any, x: Any) -> Any:
    return torch.export.export(module, (seen,)).module()(x)


def traced(module: Any, seen: Any, x: Any) -> Any:
    return torch.jit.trace(module, (seen,))(x)


def mapped(module: Any, seen: Any, x: Any) -> Any:
    return torch.func.vmap(module)(torch.stack([seen, x]))[1]


def shaped(module: Any, seen: Any, x: Any) -> Any:
    found = module.to("meta")(x.to("meta"))
    assert found.device.type == "meta"
    return found


def to_onnx(module: Any, seen: Any, x: Any) -> Any:
    pytest.importorskip("onnxscript", reason="ONNX needs onnxscript, which is not installed")
    runtime = pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    program = torch.onnx.export(module, (seen,), dynamo=True, verbose=False)
    session = runtime.InferenceSession(program.model_proto.SerializeToString())
    return torch.from_numpy(session.run(None, {session.get_inputs()[0].name: x.numpy()})[0])


WAYS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "compile": compiled,
    "export": exported,
    "jit.trace": traced,
    "vmap": mapped,
    "meta": shaped,
    "onnx": to_onnx,
}


def table() -> list[tuple[str, str, str, str]]:
    """(module, route, way, yes or no) of every cell."""
    lines = [line for line in DOCUMENT.read_text().splitlines() if line.startswith("|")]
    heading, _, *rows = [[cell.strip(" `") for cell in line.split("|")[1:-1]] for line in lines]
    assert heading == ["module", "route", *WAYS]
    return [
        (module, route, way, cell)
        for module, route, *cells in rows
        for way, cell in zip(WAYS, cells, strict=True)
    ]


def test_the_table_has_every_module() -> None:
    assert {module for module, *_ in table()} == set(modules.__all__)
    assert {cell for *_, cell in table()} == {"yes", "no"}


def drawn() -> list[tuple[str, str, str, str]]:
    """Graphs take seconds each, and test_torch.py makes one of every route: here, of those that
    are taken without a choice."""
    slow = ("compile", "export")
    return [row for row in table() if row[2] not in slow or row[1] in ("", "auto")]


# Torch warns of its own ways: of tracing, of prototypes, of instances Dynamo makes.
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("module", "route", "way", "cell"), cases(table(), drawn()))
def test_the_table_is_right(module: str, route: str, way: str, cell: str) -> None:
    generator = torch.Generator().manual_seed(0)
    seen, x = torch.rand(2, 2, CHANNELS, 5, 4, generator=generator)
    if cell == "no":
        with pytest.raises(Exception, match="in ONNX is not supported"):
            WAYS[way](make(module, route), seen, x)
        return
    expected = make(module, route)(x)
    found = WAYS[way](make(module, route), seen, x)
    assert found.shape == expected.shape
    if way != "meta":
        # Another order of sums: of matrix powers in float32 by eps^(1/2), as tolerance.py says.
        rounding = torch.finfo(torch.float32).eps * CHANNELS
        allowed = rounding**0.5 if module == "MatrixPowerPool" else rounding
        assert (found - expected).abs().max() <= allowed * expected.abs().max()


def test_what_onnx_lacks_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which needs no exporter; and without a choice of the user's the route is one that it has."""
    monkeypatch.setattr(torch.onnx, "is_in_onnx_export", lambda: True)
    x = torch.rand(2, CHANNELS, 5, 4)
    refused = [(module, route) for module, route, way, cell in table() if cell == "no"]
    assert len(refused) == 7
    for module, route in refused:
        with pytest.raises(Unsupported, match=r"in ONNX is not supported: .*\.$"):
            make(module, route)(x)
    by_moment = make("SketchedDemocraticPool", "moment")(x)
    assert torch.equal(modules.SketchedDemocraticPool(CHANNELS, k=64, route="dense")(x), by_moment)


def test_without_torch_the_import_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(probing, "version", missing)
    for name in [name for name in sys.modules if name == "torch" or name.startswith("torch.")]:
        monkeypatch.setitem(sys.modules, name, None)
    for name in ("demopool.torch", "demopool.pooling.torch_modules"):
        monkeypatch.delitem(sys.modules, name)
    registry.probe.cache_clear()
    try:
        with pytest.raises(BackendUnavailable, match=r"pip install '\.\[torch\]'") as problem:
            import demopool.torch  # noqa: F401
        assert str(problem.value).startswith("demopool.torch is not available: torch is not inst")
    finally:
        registry.probe.cache_clear()
