"""The kernels of cupy:cuda for tensor cores: float32 by three products of TF32, from their PTX."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from effort import cases

pytest.importorskip("cuda.bindings.nvrtc")
pytest.importorskip("cuda.pathfinder")

import demopool as dp
from demopool import ptx, reference
from demopool.conformance import tolerance
from demopool.errors import Unsupported
from demopool.implementations.cupy_cuda import emulated, launches, signatures
from demopool.implementations.cupy_cuda.emulated import CupyEmulator
from demopool.implementations.cupy_cuda.launcher import ON_CORES, Launch, ended
from demopool.implementations.shared import grids

Array = Any
KERNELS = signatures.tensor().instances
ARCHITECTURES = [arch for arch in ptx.ARCHITECTURES if arch != "sm_75"]
U = 2.0**-24


def _features(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def _gram(X: Array, source: str = "") -> tuple[Array, ptx.Counts]:
    """X X^T of every image."""
    images, n, _ = X.shape
    K, sums = ptx.empty((images, n, n)), ptx.empty((images, grids.tiles(n), n))
    counts = _run(ended(launches.gram(X, K, sums, launches.KEEP), ON_CORES.ending), source)
    return np.asarray(K), counts


def _run(launch: Launch, source: str = "") -> ptx.Counts:
    kernel, shape, args = launch
    name = signatures.instance(kernel, args)
    module = ptx.compile(source or signatures.tensor().source, "sm_80", names=[name])
    return module.launch(name, shape.blocks, shape.threads, list(args), shape.shared)


def _error(found: Array, X: Array) -> float:
    """The largest, in units of the sum of |x y|."""
    X = X.astype(float)
    wanted, sizes = X @ X.swapaxes(1, 2), np.abs(X) @ np.abs(X).swapaxes(1, 2)
    return float((np.abs(found - wanted) / sizes).max())


@pytest.mark.parametrize("n", cases([1, 16, 17, 63, 64, 65, 130], [17, 65]))
@pytest.mark.parametrize("d", cases([1, 7, 8, 9, 40, 300], [9, 300]))
def test_products_are_as_exact_as_their_bound(n: int, d: int) -> None:
    """8 u are left out, a slab costs u here, and so do sums of four slabs and of those."""
    X = _features(2, n, d)
    found, _ = _gram(X)
    assert _error(found, X) <= 1.01 * U * (9 + 3 + -(-d // 32))
    np.testing.assert_array_equal(found, found.swapaxes(1, 2))


@pytest.mark.parametrize("processors", [1, 108])
def test_every_way_through_the_kernels_agrees_with_the_reference(
    processors: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One block for a tile, and several; with weights and without; of one image too."""
    monkeypatch.setattr(emulated, "EMULATOR", CupyEmulator(processors=processors))
    ops = dp.backend("cupy:ptx")
    for images, n, d in ((2, 300, 70), (1, 20, 5)):
        X, a = _features(images, n, d), np.abs(_features(images, n, seed=1))
        with ptx.recording() as launched:
            for given in (a, None):
                wanted = reference.pool(X, given)
                allowed = tolerance.for_pool(X, given, wanted, "float32", order=2, route="tf32")
                error = np.abs(ops.pool(X, given, route="tf32") - wanted).max(axis=(1, 2))
                assert (error <= allowed * np.abs(wanted).max(axis=(1, 2))).all()
            rows = np.ascontiguousarray(X.swapaxes(1, 2))
            found, wanted = ops.weights(rows, route="dense-tf32"), reference.weights(rows)
            allowed = tolerance.for_weights(rows, "float32", route="dense-tf32")
            assert (np.abs(found / wanted - 1).max(axis=-1) <= allowed).all()
        kernels = {one.kernel.partition("<")[0] for one in launched}
        in_parts = processors > 1 and n > 200
        names = ("gram_parts", "outer_parts") if in_parts else ("gram", "outer")
        assert {f"{name}_tf32" for name in names} <= kernels
        assert not kernels & {"gram", "outer", "gram_parts", "outer_parts"}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("multiply_tf32(part, a[m].low, b.high);", ""),
        ("multiply_tf32(part, a[m].high, b.low);", ""),
        ("multiply_tf32(part, a[m].high, b.high);", ""),
        ("columns[i * ROW<float> + w * WIDE]", "columns[(1 - i) * ROW<float> + w * WIDE]"),
        ("+ i % 2 * 8]", "+ i / 2 * 8]"),
        ("result % 4 / 2 * 8", "result % 4 % 2 * 8"),
    ],
)
def test_a_mistake_shows_in_values(old: str, new: str) -> None:
    source = signatures.tensor().source
    assert source.count(old) == 1
    X = _features(1, 65, 9)
    found, _ = _gram(X, source.replace(old, new))
    assert _error(found, X) > 100 * U


def test_parts_that_are_not_rounded_to_tf32_are_a_fault() -> None:
    source = signatures.tensor().source
    old = "low[i] = to_tf32(x - __uint_as_float(high[i]));"
    assert old in source
    spoilt = source.replace(old, "low[i] = __float_as_uint(x - __uint_as_float(high[i]));")
    with pytest.raises(ptx.Fault) as caught:
        _gram(_features(1, 65, 9), spoilt)
    assert "TF32" in str(caught.value)


def test_the_products_are_those_of_tensor_cores_without_bank_conflicts() -> None:
    """What 64 more columns cost: three products of 64 x 64 x 64, and each of the 16 slabs read once
    from shared memory, 24 words by a lane."""
    few, many = (_gram(_features(1, 64, d))[1] for d in (64, 128))
    assert many.tensor_flops - few.tensor_flops == 3 * 2 * 64**3
    assert many.bank_conflicts == few.bank_conflicts
    # Threads take numbers apart and add slabs up; they multiply nothing.
    assert many.flops - few.flops < 64**3 / 2
    assert many.atomics == 0


@pytest.mark.parametrize("arch", cases(ARCHITECTURES, ["sm_80"]))
def test_nothing_is_spilled_and_nothing_is_worked_on_in_double(arch: str) -> None:
    module = ptx.compile(signatures.tensor().source, arch, names=KERNELS)
    needs = ptx.assemble(module)
    assert len(needs) == len(KERNELS) == 4
    for one in needs.values():
        assert one.spilled_bytes == one.stack_bytes == 0
        assert one.registers * 64 <= 65536
    assert ".f64" not in module.text
    products = module.text.count("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32")
    assert products == 48 * len(KERNELS)


def test_parameters_are_read_from_the_source() -> None:
    plain = signatures.parameters()
    for kernel, found in signatures.tensor().parameters.items():
        assert found == plain[kernel.removesuffix(ON_CORES.ending)]
    assert not set(plain) & set(signatures.tensor().parameters)


def test_an_older_gpu_refuses_with_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emulated, "EMULATOR", CupyEmulator("sm_75"))
    ops, X = dp.backend("cupy:ptx"), _features(2, 9, 5)
    for call in (lambda: ops.pool(X, route="tf32"), lambda: ops.weights(X, route="dense-tf32")):
        with pytest.raises(Unsupported, match=r"capability 8.0, and this GPU has 7.5"):
            call()
    with pytest.raises(Unsupported, match="takes float32, not float64"):
        ops.pool(X.astype(float), route="tf32")
