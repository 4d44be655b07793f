"""torch:cuda on a machine without a GPU: nothing leaves the device, and no value is waited for.

FakeTensorMode runs the real code on tensors that have a device, a shape and a dtype but no values.
For ``cuda`` it wants a device guard, which a build without CUDA does not have: a do-nothing one is
compiled here. Not seen: numbers, speed, streams, and what torch does inside its CUDA operators.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest
from effort import cases

import demopool as dp
from demopool.contract import capabilities
from demopool.pooling.operations import Operations
from demopool.problem.routes import Sizes, find
from demopool.problem.vocabulary import DTYPES, NORMALIZATIONS, Dtype, State

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch import Tensor  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils._pytree import tree_leaves  # noqa: E402

import demopool.torch as modules  # noqa: E402
from demopool.implementations.torch_any.implementation import OnGpu  # noqa: E402
from demopool.pooling.torch_modules import BACKWARD  # noqa: E402

GUARD = """
#include <c10/core/impl/DeviceGuardImplInterface.h>
namespace c10::impl { C10_REGISTER_GUARD_IMPL(CUDA, NoOpDeviceGuardImpl<DeviceType::CUDA>) }
"""
# Batch, n and d, below and above what the kernels split by: rows of one transform (with this k),
# rows of one scatter (d > 1024).
IMAGES = ((1, 20, 300), (3, 300, 20), (3, 300, 300), (1, 20, 1100))
K, CUDA = 4096, torch.device("cuda:0")
# Where torch waits for the GPU, to see whether it succeeded: documented for eigh and svd (and for
# inv, which is why newton takes inv_ex).
SOLVER = {"eigh": "_linalg_eigh", "gram": "_linalg_eigh", "svd": "_linalg_svd"}
SOLVER |= {"nobody": "_linalg_check_errors"}
READING = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
ROWS = [row for row in capabilities.table(("torch:cuda",)) if row.state is State.OK]
# One dtype that is converted first, one that is not.
SHOWN = cases(DTYPES, ("float16", "float32"))
KERNELS = [
    (row.operation, row.route, row.order, dtype)
    for row in ROWS
    for dtype in row.dtypes
    if dtype in SHOWN
]
MODULES: list[tuple[str, dict[str, Any]]] = [
    *(("SecondOrderPool", {"normalize": kind}) for kind in NORMALIZATIONS),
    *(("GammaDemocraticPool", {"route": "dense", "backward": b}) for b in BACKWARD),
    *(("GammaDemocraticPool", {"route": "matrix-free", "backward": b}) for b in BACKWARD),
    *(("SketchedDemocraticPool", {"channels": 20, "k": K, "sketch": s}) for s in ("fft", "moment")),
    *(("BilinearPool", {"channels": (20, 20), **k}) for k in ({}, {"k": K})),
    *(("MatrixPowerPool", {"route": r}) for r in ("eigh", "gram", "svd", "newton-schulz", "polar")),
]
OPS = Operations("torch:cuda", OnGpu())
facts = OPS.implementation.inspect  # shape, dtype and device


class OnlyOnTheGpu(TorchDispatchMode):
    """Stops at a value read back, a tensor of the host (even a scalar), another route's solver."""

    def __init__(self, route: str = "") -> None:
        super().__init__()
        self.refused = set(SOLVER.values()) - {SOLVER.get(route.partition("+")[0])}

    def __torch_dispatch__(self, operator: Any, types: Any, args: Any, kwargs: Any = None) -> Any:
        name = operator.overloadpacket.__name__
        given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        assert name not in self.refused, f"{operator} waits"
        if name in ("index", "index_put", "index_put_"):
            assert torch.bool not in {t.dtype for t in given[1:]}, f"{operator} counts a mask"
        else:
            assert not READING & set(operator.tags), f"{operator} reads a value back"
        assert {t.device for t in given} <= {CUDA}, f"{operator} takes a tensor of the host"
        result = operator(*args, **(kwargs or {}))
        made = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
        assert {t.device for t in made} <= {CUDA}, f"{operator} gives one to the host"
        return result


def gradients(y: Tensor, *leaves: Tensor) -> list[Tensor]:
    """Of the sum of y. The engine of a build without CUDA refuses CUDA; the nodes of the graph do
    not, so they are called here, as the engine would: the one made last comes first."""
    arrived: dict[Any, dict[int, Tensor]] = {y.grad_fn: {y.output_nr: torch.ones_like(y)}}
    while waiting := [node for node in arrived if not hasattr(node, "variable")]:
        node = max(waiting, key=lambda node: node._sequence_nr())
        given = arrived.pop(node)
        with torch.no_grad():
            made = getattr(node, "apply", node)(*map(given.get, range(len(node._input_metadata))))
        made, ways = made if isinstance(made, tuple) else (made,), node.next_functions
        if hasattr(node, "needs_input_grad"):  # a Function answers for what is no tensor, too
            made = [gradient for i, gradient in enumerate(made) if node.needs_input_grad[i]]
            ways = [way for way in ways if way[0] is not None]
        for (following, output), gradient in zip(ways, made, strict=True):
            if following is not None and gradient is not None:
                wanted, sums = following._input_metadata[output], arrived.setdefault(following, {})
                assert gradient.dtype == wanted.dtype, node
                gradient = gradient.sum_to_size(wanted.shape)
                sums[output] = sums[output] + gradient if output in sums else gradient
    found = {id(leaf.variable): sums[0] for leaf, sums in arrived.items()}
    return [found[id(leaf)] for leaf in leaves]


@pytest.fixture(scope="session")
def guard(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Loaded for good, and only where there is no GPU: it takes the place of a real one."""
    if torch.cuda.is_available():
        return
    cxx = shutil.which("c++")
    if cxx is None:
        pytest.skip("no C++ compiler (c++) for the device guard of a fake GPU")
    folder, home = tmp_path_factory.mktemp("guard"), torch.__path__[0]
    (folder / "guard.cpp").write_text(GUARD)
    abi = f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"
    flags = ["-std=c++20", "-shared", "-fPIC", abi, f"-I{home}/include", f"-L{home}/lib"]
    subprocess.run([cxx, *flags, "guard.cpp", "-lc10", "-o", "guard.so"], cwd=folder, check=True)
    ctypes.CDLL(str(folder / "guard.so"))


@pytest.fixture
def fake(guard: None) -> Iterator[None]:
    with FakeTensorMode():
        yield


def call(ops: Any, operation: str, route: str, order: int, h: Any, X: Any, a: Any = None) -> Any:
    own = {"pool": (a,), "sketch": (h,), "pool_sketch": (h, a), "power_sketch": (h,)}
    options = {"weights": {"route": route, "order": order, "iterations": 3}}
    options |= {"pool": {"order": order}, "sketch": {}, "normalize": {}}
    also = options.get(operation, {"route": route})
    return getattr(ops, operation)(X, *own.get(operation, ()), **also)


def shape_of(operation: str, order: int, n: int, d: int) -> tuple[int, ...]:
    shapes = {"weights": (n,), "pool": (d,) * order, "sketch": (n, K), "normalize": (n, d)}
    return shapes.get(operation, (K,) if "sketch" in operation else (d, d))


def test_every_kernel_and_every_module_is_here() -> None:
    assert {(row.operation, row.route) for row in ROWS} == set(OnGpu.kernels)
    assert {name for name, _ in MODULES} == set(modules.__all__)


def test_a_result_is_waited_for_on_its_own_gpu(fake: None, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[Any] = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device=None: waited.append(device))
    OPS.implementation.wait(torch.empty(2, device="cuda:1"))
    OPS.implementation.wait(np.zeros(2))
    assert waited == [torch.device("cuda:1"), None]


@pytest.mark.parametrize(("operation", "route", "order", "dtype"), KERNELS)
def test_kernels_stay(fake: None, operation: str, route: str, order: int, dtype: str) -> None:
    out = Dtype(dtype).result
    options: dict[str, Any] = {"device": "cuda", "requires_grad": operation != "matrix_power"}
    # What depends on the dtype is the first operator and the number of steps.
    for batch, n, d in IMAGES if dtype == "float32" else IMAGES[:2]:
        n = d if operation == "matrix_power" else n
        if find(operation, route).domain.excludes(Sizes(n, d)):
            continue
        X = torch.empty(batch, n, d, dtype=getattr(torch, dtype), **options)
        a = torch.empty(batch, n, dtype=getattr(torch, out), **options)
        hashes = OPS.prepare(dp.hashes(d, K))
        for inputs in ([X], [X, a]) if operation in ("pool", "pool_sketch") else ([X],):
            with OnlyOnTheGpu(route):
                y = call(OPS, operation, route, order, hashes, *inputs)
                found = gradients(y, *inputs) if X.requires_grad else inputs
            assert facts(y) == ((batch, *shape_of(operation, order, n, d)), out, "cuda:0")
            assert [facts(g) for g in found] == [facts(x) for x in inputs]


@pytest.mark.parametrize("dtype", SHOWN)
@pytest.mark.parametrize(("name", "options"), MODULES)
def test_modules_stay(fake: None, name: str, options: dict[str, Any], dtype: str) -> None:
    module = getattr(modules, name)(**options).to("cuda").train()
    maps = torch.empty(3, 20, 60, 5, device="cuda", dtype=getattr(torch, dtype)).requires_grad_()
    with OnlyOnTheGpu(options.get("route", "")):
        y = module(maps)
        (gradient,) = gradients(y, maps)
    assert facts(y) == ((3, options.get("k", 400)), Dtype(dtype).result, "cuda:0")
    assert facts(gradient) == facts(maps)


def test_normalizing_in_place_stays(fake: None) -> None:
    for dtype, kind in product(DTYPES, NORMALIZATIONS):
        v = torch.empty(3, 20, 300, device="cuda", dtype=getattr(torch, dtype))
        with OnlyOnTheGpu():
            y = OPS.normalize(v, axes=2, kind=kind, overwrite=True)
        assert facts(y) == (v.shape, Dtype(dtype).result, "cuda:0")


class WaitsInBackward(torch.autograd.Function):
    forward = staticmethod(lambda ctx, x: x * 2)
    backward = staticmethod(lambda ctx, gradient: gradient * gradient.sum().item())


WRONG: dict[str, list[Callable[[Tensor], Any]]] = {
    "value back": [lambda X: X * X.sum().item(), lambda X: X if X.any() else -X, torch.nonzero],
    "scalar_dense.* reads": [lambda X: gradients(WaitsInBackward.apply(X), X)],
    "counts a mask": [lambda X: X[X > 0], lambda X: X.index_put((X > 0,), X.sum())],
    "waits": [lambda X: torch.linalg.eigh(X @ X.mT)],
    "to the host": [torch.Tensor.cpu, lambda X: X @ torch.eye(4)],
    "of the host": [lambda X, host=host: X * host for host in (torch.ones(4), torch.tensor(2.0))],
}


def test_what_does_not_stay_is_caught(fake: None) -> None:
    X = torch.empty(3, 4, device="cuda", requires_grad=True)
    for message, kernels in WRONG.items():
        for wrong in kernels:
            with OnlyOnTheGpu(), pytest.raises(AssertionError, match=message):
                wrong(X)


@pytest.mark.parametrize(("name", "options"), MODULES)
def test_gradients_are_those_of_the_engine(name: str, options: dict[str, Any]) -> None:
    X = torch.arange(360.0).sin().double().reshape(2, 9, 20).requires_grad_()
    y = getattr(modules, name)(**options, layout="nd")(X)
    expected = torch.autograd.grad(y.sum(), X, retain_graph=True)
    torch.testing.assert_close(gradients(y, X), list(expected))


@pytest.mark.parametrize("precision", ["highest", "high"])
def test_the_switches_for_tf32_are_left_alone(precision: str) -> None:
    def switches() -> tuple[str, bool, bool]:
        matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
        return torch.get_float32_matmul_precision(), matmul.allow_tf32, cudnn.allow_tf32

    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision(precision)
        chosen, ops = switches(), dp.backend("torch:cpu")
        for *kernel, dtype in KERNELS:
            X = torch.eye(6, dtype=getattr(torch, dtype)).repeat(2, 1, 1).requires_grad_()
            call(ops, *kernel, dp.hashes(6, K), X).sum().backward()
        assert switches() == chosen
    finally:
        torch.set_float32_matmul_precision(before)


def test_asking_for_torch_does_not_import_it() -> None:
    """Not even in a build with CUDA, as which this one is passed off."""
    code = """
        import importlib.metadata, sys
        real = importlib.metadata.version
        importlib.metadata.version = lambda name: "2.13.0" if name == "torch" else real(name)
        import demopool
        from demopool.contract import registry
        demopool.backends()
        assert registry.probe("torch:cuda").versions == {"torch": "2.13.0"}
        assert "torch" not in sys.modules
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True)
