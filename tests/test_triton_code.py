"""The GPU code of the kernels of triton:cuda: assembled, and executed without a GPU."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from effort import cases

from demopool import ptx, reference
from demopool.conformance import tolerance
from demopool.contract import registry
from demopool.problem.vocabulary import State

if registry.probe("triton:interpreter").state is not State.OK:
    pytest.skip("triton:interpreter is not usable here", allow_module_level=True)

import torch
import triton
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, CompiledKernel

from demopool.implementations.triton_cuda import kernels, launcher, pool, sizes, weights

ARCHITECTURES = (80, 89, 90, 100, 120)
DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
_TYPES = {
    torch.float32: "*fp32",
    torch.float16: "*fp16",
    torch.bfloat16: "*bf16",
    torch.int32: "*i32",
}
Launch = tuple[str, tuple[Any, ...], dict[str, Any]]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))


def _gpu(arch: int) -> GPUTarget:
    return GPUTarget("cuda", arch, 32)


class Recorder(launcher.Launcher):
    """Notes launches, and runs none."""

    def __init__(self) -> None:
        super().__init__(kernels, torch.device("cpu"))
        self.launches: list[Launch] = []

    def launch(self, kernel: str, programs: int, *arguments: Any, **constants: Any) -> None:
        assert 0 < programs < 2**31
        self.launches.append((kernel, arguments, constants))


def _launches(dtype: torch.dtype, n: int, d: int) -> list[Launch]:
    """Of every operation, with and without weights, and of products of TF32."""
    on = Recorder()
    X, a = torch.empty((2, n, d), dtype=dtype), torch.empty((2, n))
    for order in (1, 2):
        for iterations in (1, 4):
            weights.dense(on, X, order=order, gamma=0.3, tau=0.4, iterations=iterations)
        pool.direct(on, X, a, order=order)
        pool.direct(on, X, None, order=order)
    wide = {"order": 2, "tile": sizes.WIDE}
    weights.dense(on, X, gamma=0.3, tau=0.4, iterations=1, **wide)
    pool.direct(on, X, a, **wide)
    pool.direct(on, X, None, **wide)
    for kind in ("signed-sqrt-l2", "l2"):
        pool.normalize(on, X.reshape(2, n * d), kind=kind)
    if dtype == torch.float32:
        how = {"order": 2, "precision": sizes.TF32}
        weights.dense(on, X, gamma=0.3, tau=0.4, iterations=1, **how)
        pool.direct(on, X, a, **how)
        pool.direct(on, X, None, **how)
    return on.launches


def _source(launch: Launch) -> tuple[ASTSource, dict[str, Any]]:
    """As Triton specialises a launch: for aligned pointers, numbers that divide by 16, and 1."""
    name, arguments, constants = launch
    kernel = getattr(kernels, name)
    names = kernel.arg_names
    signature, attributes, fixed, options = {}, {}, {}, {}
    for place, value in enumerate(arguments):
        if isinstance(value, Tensor):
            signature[names[place]] = _TYPES[value.dtype]
        elif value == 1 and isinstance(value, int):
            signature[names[place]], fixed[place,] = "constexpr", 1
        else:
            signature[names[place]] = "i32" if isinstance(value, int) else "fp32"
        if isinstance(value, Tensor) or (isinstance(value, int) and value % 16 == 0):
            attributes[place,] = [["tt.divisibility", 16]]
    for key, value in constants.items():
        if key in names:
            signature[key], fixed[names.index(key),] = "constexpr", value
        else:
            options[key] = value
    return ASTSource(kernel, signature, fixed, attributes), options


def _check_tf32(text: str) -> None:
    """Three products of TF32 from zero, and what they give added by threads, which round: tensor
    cores cut sums off. No product of a tile is made by threads."""
    by_cores = len(re.findall(r"\bmma\.sync|wgmma\.mma_async|tcgen05\.mma\.", text))
    steps = sizes.DEPTH // 8
    assert by_cores in (3 * steps, 3 * steps * (sizes.TILE // 16) * (sizes.TILE // 8) // 4)
    assert "cvt.rna.tf32.f32" in text
    results = sizes.TILE**2 // 128
    # Since 10.0 a thread may add two numbers at a time.
    one, two = (len(re.findall(rf"\badd(?:\.rn)?\.{kind}\b", text)) for kind in ("f32", "f32x2"))
    assert one + 2 * two >= results
    weights_and_roots = 64
    assert len(re.findall(r"\bfma\.rn\.f32\b", text)) < weights_and_roots


def _spilled(launch: Launch, arch: int) -> int:
    """Bytes of a thread that may be. In tiles of 128 sums take half of its registers, and addresses
    of rows that begin at odd places the rest. For 8.9 the assembler keeps a few numbers in memory
    though registers are left: in a norm and an outer product of float16."""
    if launch[2].get("TILE") == sizes.WIDE:
        return 192
    return 16 if arch == 89 and launch[0] in ("normalized", "outer") else 0


@pytest.mark.parametrize(
    ("arch", "dtype"),
    cases(
        [(arch, dtype) for arch in ARCHITECTURES for dtype in DTYPES],
        [(80, "float32"), (100, "float16")],
    ),
)
def test_gpu_code_hardly_spills_and_is_as_exact_as_asked_for(
    arch: int,
    dtype: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """No double precision, no atomic additions; tensor cores and TF32 where they were asked for,
    tensor cores for float16 too. Assembled by the ``ptxas`` that Triton brings, with the options
    that it gives it."""
    monkeypatch.setenv("TRITON_DUMP_PTXAS_LOG", "1")
    texts: dict[str, str] = {}
    for n, d in cases([(784, 512), (100, 70), (33, 2048), (1, 1)], [(784, 512), (100, 70)]):
        for launch in _launches(DTYPES[dtype], n, d):
            source, options = _source(launch)
            if (key := source.hash() + str(options)) in texts:
                continue
            compiled = triton.compile(source, target=_gpu(arch), options=options)
            text = texts[key] = compiled.asm["ptx"]
            assert not re.search(r"\.f64|\b(atom|red)\.", text), launch[0]
            has_tensor_cores = re.search(r"\b(mma|wgmma|tcgen05\.mma)\b", text) is not None
            asked = launch[2].get("PRECISION") == sizes.TF32
            assert ("tf32" in text) == asked, launch[0]
            if asked:
                _check_tf32(text)
                assert has_tensor_cores
            else:
                assert has_tensor_cores <= (dtype == "float16" and launch[0] in ("gram", "outer"))
            log = capsys.readouterr().out
            assert "registers" in log
            spilled = max(map(int, re.findall(r"(\d+) bytes (?:stack|spill)", log)))
            assert spilled <= _spilled(launch, arch), (launch, log)
    assert set(kernels.__all__) <= {
        kernel for n in (100, 784) for kernel, *_ in _launches(torch.float32, n, 70)
    }


# --- executed ---

SETTINGS = {"gamma": 0.3, "tau": 0.4, "iterations": 4}


class Executed(launcher.Launcher):
    """Compiles every launch as for a GPU, and executes its PTX. Nothing has a value until it is
    written."""

    def __init__(self, arch: int = 80) -> None:
        super().__init__(kernels, torch.device("cpu"))
        self._arch = arch
        self._compiled: dict[str, tuple[CompiledKernel, ptx.Module]] = {}
        self.kernels: set[str] = set()
        self.edit: tuple[str, str] = ("", "")

    def empty(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.full(shape, float("nan") if dtype.is_floating_point else -1, dtype=dtype)

    def launch(self, kernel: str, programs: int, *arguments: Any, **constants: Any) -> None:
        compiled, module = self._code(kernel, arguments, constants)
        self.kernels.add(kernel)
        module.launch(
            kernel,
            programs,
            compiled.metadata.num_warps * 32,
            [_given(value) for value in arguments if not _is_one(value)],
            compiled.metadata.shared,
            max_shared=module.limits.shared_per_block,
        )

    def _code(self, *launch: Any) -> tuple[CompiledKernel, ptx.Module]:
        source, options = _source(launch)
        key = source.hash() + str(options)
        if key not in self._compiled:
            compiled = triton.compile(source, target=_gpu(self._arch), options=options)
            text = re.sub(*self.edit, compiled.asm["ptx"]) if self.edit[0] else compiled.asm["ptx"]
            module = ptx.Module(text, f"sm_{self._arch}", triton=True)
            self._compiled[key] = compiled, module
        return self._compiled[key]


def _is_one(value: Any) -> bool:
    """Triton compiles a 1 in; it is no argument then."""
    return isinstance(value, int) and value == 1


def _given(value: Any) -> Any:
    if isinstance(value, Tensor):
        return (value.view(torch.int16) if value.dtype == torch.bfloat16 else value).numpy()
    return np.int32(value) if isinstance(value, int) else np.float32(value)


def _variants(dtype: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Routes, and what makes them."""
    yield "", {}
    yield "", {"tile": sizes.WIDE}
    if dtype == "float32":
        yield "tf32", {"precision": sizes.TF32}


def _features(n: int, d: int, dtype: str) -> tuple[Tensor, Tensor]:
    """Two images, with a row of zeros and scales of their own, and weights for their rows."""
    rng = np.random.default_rng(n + d)
    X, a = rng.standard_normal((2, n, d)), np.abs(rng.standard_normal((2, n)))
    X[0, n // 2], a[1, 0] = 0.0, 0.0
    X[1] *= 100.0
    return torch.from_numpy(X).to(DTYPES[dtype]), torch.from_numpy(a.astype(np.float32))


def _close(found: Tensor, expected: np.ndarray, allowed: Any, axes: int) -> bool:
    last = tuple(range(-axes, 0))
    error = np.abs(found.numpy() - expected).max(axis=last) / np.abs(expected).max(axis=last)
    return bool((error <= allowed).all())


def _pooled_right(on: Executed, X: Tensor, a: Tensor | None, order: int = 2, **how: Any) -> bool:
    wide, given = X.float().numpy(), None if a is None else a.numpy()
    expected = reference.pool(wide, given, order=order)
    route = "tf32" if how.get("precision") == sizes.TF32 else ""
    allowed = tolerance.for_pool(wide, given, expected, "float32", order=order, route=route)
    return _close(pool.direct(on, X, a, order=order, **how), expected, allowed, order)


SIZES = cases([(40, 33), (150, 70), (129, 5), (600, 16)], [(40, 33), (150, 70)])


@pytest.mark.parametrize("dtype", DTYPES)
def test_executed_gpu_code_agrees_with_the_reference(dtype: str) -> None:
    """For GPUs of 8.0; it is judged as our own is, but for what Triton does on purpose."""
    on = Executed()
    for n, d in SIZES:
        X, a = _features(n, d, dtype)
        wide = X.float().numpy()
        for order in (1, 2):
            for route, how in _variants(dtype):
                if order == 1 and how:
                    continue
                found = weights.dense(on, X, order=order, **SETTINGS, **how).numpy()
                expected = reference.weights(wide, order=order, **SETTINGS)
                allowed = tolerance.for_weights(
                    wide, "float32", order=order, **SETTINGS, route=route
                )
                assert not found[expected == 0].any()
                share = np.divide(found, expected, where=expected != 0, out=np.ones_like(expected))
                assert (np.abs(share - 1).max(axis=-1) <= allowed).all()
                for given in (a, None):
                    assert _pooled_right(on, X, given, order, **how)
        flat = X.reshape(2, n * d)
        for kind in ("signed-sqrt-l2", "l2"):
            expected = reference.normalize(flat.float().numpy(), kind=kind)
            allowed = tolerance.for_normalize("float32", n * d)
            assert _close(pool.normalize(on, flat, kind=kind), expected, allowed, 1)
    # A product in several parts; and features of float16 are not scaled first.
    assert _pooled_right(on, *_features(600, 5, dtype))
    scaling = {"magnitudes", "in_range", "restored"} if dtype == "float16" else set()
    assert on.kernels == set(kernels.__all__) - scaling


def test_one_product_of_tf32_is_not_enough() -> None:
    """A control: the bits that TF32 has not are missing."""
    X, a = _features(150, 70, "float32")
    assert _pooled_right(Executed(), X, a, precision=sizes.TF32)
    assert not _pooled_right(Executed(), X, a, precision="tf32")


@pytest.mark.parametrize(
    ("precision", "edit", "kind"),
    [
        (sizes.EXACT, (r"bar\.sync", "// "), ptx.FaultKind.RACE),
        (sizes.EXACT, (r"cp\.async\.wait_group", "// "), ptx.FaultKind.PENDING_COPY),
        (sizes.TF32, (r"bar\.sync", "// "), ptx.FaultKind.RACE),
    ],
)
def test_mistakes_in_executed_code_are_faults(
    precision: str, edit: tuple[str, str], kind: ptx.FaultKind
) -> None:
    on = Executed()
    on.edit = edit
    X, a = _features(150, 70, "float32")
    with pytest.raises(ptx.Fault) as caught:
        pool.direct(on, X, a, order=2, precision=precision)
    assert caught.value.kind is kind
