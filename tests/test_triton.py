"""The kernels of triton:cuda: their values by Triton's interpreter, and their GPU code."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from effort import cases

import demopool
from demopool import reference
from demopool.conformance import tolerance
from demopool.contract import probing, registry
from demopool.errors import InvalidInput, Unsupported
from demopool.problem.vocabulary import State

if registry.probe("triton:interpreter").state is not State.OK:
    pytest.skip("triton:interpreter is not usable here", allow_module_level=True)

import torch
import triton
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from demopool.implementations.triton_cuda import kernels, launcher, pool, sizes, weights

OPS = demopool.backend("triton:interpreter")
SETTINGS = {"gamma": 0.3, "tau": 0.4, "iterations": 4}


def _features(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def _check_weights(X: np.ndarray, order: int = 2, found: Tensor | None = None) -> None:
    """Every weight, relative to itself."""
    found = OPS.weights(OPS.asarray(X), order=order, **SETTINGS) if found is None else found
    expected = reference.weights(X, order=order, **SETTINGS)
    allowed = tolerance.for_weights(X, "float32", order=order, **SETTINGS)
    present = expected != 0
    difference = np.abs(found.numpy() - expected)
    assert not difference[~present].any()
    errors = np.divide(difference, expected, where=present, out=np.zeros_like(expected))
    assert (errors.max(axis=-1) <= allowed).all()


# Around the sides of tiles, of one program's K, and of the rows that a program owns.
SHAPES = cases(
    [(n, d) for n in (1, 15, 16, 63, 64, 65, 127, 128, 129, 200) for d in (1, 31, 32, 33, 70)],
    [(1, 33), (64, 32), (65, 70), (128, 31), (129, 5)],
)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize(("n", "d"), SHAPES)
def test_weights_of_sizes_around_those_of_tiles(n: int, d: int, order: int) -> None:
    _check_weights(_features(2, n, d), order)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize(("n", "d"), [*((d, n) for n, d in SHAPES), (700, 70)])
def test_pooling_of_sizes_around_those_of_tiles(n: int, d: int, order: int) -> None:
    """And of so many rows that they are summed in parts."""
    X, a = _features(2, n, d), np.abs(_features(2, n, seed=1))
    for given in (a, None):
        found = OPS.pool(OPS.asarray(X), None if given is None else OPS.asarray(a), order=order)
        expected = reference.pool(X, given, order=order)
        allowed = tolerance.for_pool(X, given, expected, "float32", order=order)
        last = tuple(range(-order, 0))
        error = np.abs(found.numpy() - expected).max(axis=last) / np.abs(expected).max(axis=last)
        assert (error <= allowed).all()


@pytest.mark.parametrize("scale", [1e-20, 1e-12, 1.0, 1e12, 1e20])
@pytest.mark.parametrize("in_steps", [False, True])
def test_weights_at_any_scale_of_the_features(
    scale: float, in_steps: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights of features times c are c^-q times those of the features. Each image has a scale of
    its own, and rows of zeros; small images are iterated in one program or step by step."""
    if in_steps:
        monkeypatch.setattr(weights, "_SMALL", 0)
    X = _features(3, 20, 6)
    X[0, [2, 5]] = 0.0
    X[1] = 0.0
    X[2] *= np.float32(scale)
    _check_weights(X)


@pytest.mark.parametrize("iterations", [0, 1, 2])
def test_few_iterations_step_by_step(iterations: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "_SMALL", 0)
    monkeypatch.setitem(SETTINGS, "iterations", iterations)
    _check_weights(_features(2, 20, 6))


def test_features_are_read_with_their_strides() -> None:
    X = _features(4, 70, 66)
    for view in (X[::2, ::2, ::3], X.swapaxes(-1, -2), X[:, ::-1]):
        _check_weights(view)


@pytest.mark.parametrize("kind", ["signed-sqrt-l2", "l2"])
@pytest.mark.parametrize("scale", [1e-38, 1e-12, 1.0, 1e12, 1e37])
def test_norms_of_several_chunks_at_any_scale(kind: str, scale: float) -> None:
    v = _features(2, 2 * sizes.CHUNK + 77) * np.float32(scale)
    v[0, 5] *= 8
    found = OPS.normalize(OPS.asarray(v), kind=kind).numpy()
    expected = reference.normalize(v, kind=kind)
    error = np.abs(found - expected).max() / np.abs(expected).max()
    assert error <= tolerance.for_normalize("float32", v.shape[-1])


def test_the_same_input_gives_the_same_bits_and_a_symmetric_matrix() -> None:
    """Also where a sum over many rows is made in parts."""
    X = torch.from_numpy(_features(2, 1100, 70))
    a = torch.from_numpy(np.abs(_features(2, 1100)))
    assert sizes.split(1100, 2 * sizes.triangle(2))[0] > 1
    one, two = OPS.pool(X, a), OPS.pool(X, a)
    assert torch.equal(one, two)
    assert torch.equal(one, one.mT)
    assert torch.equal(OPS.pool(X, a, order=1), OPS.pool(X, a, order=1))
    few = X[:, :150].contiguous()
    assert torch.equal(OPS.weights(few, iterations=2), OPS.weights(few, iterations=2))


# --- memory: every kernel writes all of its results, and nothing else ---

GUARD = 4096


class Guarded(launcher.Launcher):
    """Tensors in the middle of NaN, and NaN themselves until they are written."""

    def __init__(self) -> None:
        super().__init__(launcher.interpreted()._kernels, torch.device("cpu"))
        self.given: list[tuple[Tensor, Tensor]] = []

    def empty(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        count = int(np.prod(shape))
        fill = float("nan") if dtype.is_floating_point else -1
        whole = torch.full((count + 2 * GUARD,), fill, dtype=dtype)
        self.given.append((whole, whole[GUARD : GUARD + count].view(shape)))
        return self.given[-1][1]

    def holding(self, array: np.ndarray) -> Tensor:
        return self.empty(*array.shape).copy_(torch.from_numpy(array))

    def check(self) -> None:
        for whole, own in self.given:
            assert not own.isnan().any()
            around = torch.cat([whole[:GUARD], whole[GUARD + own.numel() :]])
            assert bool((around.isnan() if own.is_floating_point() else around == -1).all())


@pytest.mark.parametrize("n", [1, 50, 70, 130])
def test_every_kernel_writes_its_results_and_nothing_else(n: int) -> None:
    on = Guarded()
    X, a = on.holding(_features(2, n, 67)), on.holding(np.abs(_features(2, n)))
    _check_weights(X.numpy(), found=weights.dense(on, X, order=2, **SETTINGS))
    for order in (1, 2):
        pool.direct(on, X, a, order=order)
    pool.normalize(on, on.holding(_features(2, 67 * n)), kind="l2")
    on.check()


def test_a_sum_in_parts_writes_them_all() -> None:
    on = Guarded()
    X = on.holding(_features(1, 600, 5))
    for order in (1, 2):
        pool.direct(on, X, None, order=order)
    on.check()
    assert len(on.given) == 5  # X, and for each order the parts and their sum


# --- as a backend ---


def test_a_tensor_stays_where_it_is() -> None:
    X = torch.from_numpy(_features(2, 9, 6))
    y = demopool.describe(X, "democratic", backend="triton:interpreter")
    assert torch.equal(y, OPS.normalize(OPS.pool(X, OPS.weights(X)), axes=2).reshape(2, 36))
    assert OPS.implementation.adopt(X) is X
    assert OPS.implementation.adopt(X.numpy()) is None


def test_what_it_has_not_is_refused_with_a_sentence() -> None:
    X = torch.from_numpy(_features(2, 9, 6))
    with pytest.raises(InvalidInput, match="no derivatives"):
        OPS.weights(X.clone().requires_grad_())
    with pytest.raises(Unsupported, match="float64"):
        OPS.weights(X.double())
    with pytest.raises(Unsupported, match="torch:cuda has it"):
        OPS.power(X)


def test_an_old_gpu_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def gpu(capability: str | None) -> Callable[[], list[dict[str, Any]]]:
        return lambda: [{"name": "a GPU", "compute_capability": capability}]

    for capability, state in (("7.5", "unavailable"), ("8.0", "ok"), ("12.0", "ok"), (None, "ok")):
        monkeypatch.setattr(probing, "gpus", gpu(capability))
        assert probing.on_gpu({}, (8, 0)).state == state
    monkeypatch.setattr(probing, "gpus", gpu("7.5"))
    assert "7.5" in probing.on_gpu({}, (8, 0)).reason


def test_interpreting_leaves_triton_as_it_was() -> None:
    OPS.weights(OPS.asarray(_features(1, 4, 3)))
    assert not triton.knobs.runtime.interpret
    assert "TRITON_INTERPRET" not in os.environ
    assert isinstance(kernels.gram, triton.JITFunction)


# --- GPU code ---

ARCHITECTURES = (80, 90, 100, 120)
DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
_TYPES = {
    torch.float32: "*fp32",
    torch.float16: "*fp16",
    torch.bfloat16: "*bf16",
    torch.int32: "*i32",
}
Launch = tuple[str, tuple[Any, ...], dict[str, Any]]


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


SPILLED = 192
"""Bytes of a thread, in tiles of 128: their sums take half of its registers, and addresses of rows
that begin at odd places the rest."""


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
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """No double precision, no atomic additions; tensor cores and TF32 where they were asked for,
    tensor cores for float16 too. Assembled by the ``ptxas`` that Triton brings, with the options
    that it gives it."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TRITON_DUMP_PTXAS_LOG", "1")
    target = GPUTarget("cuda", arch, 32)
    texts: dict[str, str] = {}
    for n, d in cases([(784, 512), (100, 70), (33, 2048), (1, 1)], [(784, 512), (100, 70)]):
        for launch in _launches(DTYPES[dtype], n, d):
            source, options = _source(launch)
            if (key := source.hash() + str(options)) in texts:
                continue
            compiled = triton.compile(source, target=target, options=options)
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
            assert spilled <= (SPILLED if launch[2].get("TILE") == sizes.WIDE else 0), (launch, log)
    assert set(kernels.__all__) <= {
        kernel for n in (100, 784) for kernel, *_ in _launches(torch.float32, n, 70)
    }
