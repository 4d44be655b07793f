"""The kernels of cupy:cuda in tiles of 128: the same source, compiled with another side."""

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
from demopool.implementations.cupy_cuda.launcher import ON_CORES, USUAL, WIDE, Tiles, ended
from demopool.implementations.shared import grids

Array = Any


def _features(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("processors", [1, 108])
@pytest.mark.parametrize("d", cases([1, 63, 65, 127, 128, 129, 200], [65, 129]))
def test_every_way_through_the_kernels_agrees_with_the_reference(
    d: int, processors: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One block for a tile, and several; with weights and without; around the sides of tiles."""
    monkeypatch.setattr(emulated, "EMULATOR", CupyEmulator(processors=processors))
    ops, n = dp.backend("cupy:ptx"), 300 if processors > 1 else 20
    X, a = _features(2, n, d), np.abs(_features(2, n, seed=1))
    with ptx.recording() as launched:
        for given in (a, None):
            wanted = reference.pool(X, given)
            allowed = tolerance.for_pool(X, given, wanted, "float32", order=2)
            found = ops.pool(X, given, route="128")
            error = np.abs(found - wanted).max(axis=(1, 2))
            assert (error <= allowed * np.abs(wanted).max(axis=(1, 2))).all()
            np.testing.assert_array_equal(found, found.swapaxes(1, 2))
        rows = np.ascontiguousarray(X.swapaxes(1, 2))
        found, wanted = ops.weights(rows, route="dense-128"), reference.weights(rows)
        allowed = tolerance.for_weights(rows, "float32")
        assert (np.abs(found / wanted - 1).max(axis=-1) <= allowed).all()
    kernels = {one.kernel.partition("<")[0] for one in launched}
    names = ("gram_parts", "outer_parts", "from_parts") if processors > 1 else ("gram", "outer")
    assert {f"{name}_128" for name in names} <= kernels
    assert not kernels & {"gram", "outer", "gram_parts", "outer_parts", "from_parts"}


def _counts(by: Tiles, d: int) -> ptx.Counts:
    """Of the Gram matrix of one image of n = 128."""
    X, n = _features(1, 128, d), 128
    K, sums = ptx.empty((1, n, n)), ptx.empty((1, grids.tiles(n, by.side), n))
    launch = launches.gram(X, K, sums, launches.KEEP, by.side)
    kernel, shape, args = ended(launch, by.ending)
    name = signatures.instance(kernel, args)
    module = emulated.compiled(name, "sm_80")
    return module.launch(name, shape.blocks, shape.threads, list(args), shape.shared)


@pytest.mark.parametrize(
    ("by", "instructions", "passes", "sectors"),
    [(USUAL, 98, 18, 8), (WIDE, 91, 17, 4), (ON_CORES, 60, 5, 8)],
    ids=["usual", "wide", "on tensor cores"],
)
def test_the_inner_loop_takes_what_the_page_says(
    by: Tiles, instructions: int, passes: int, sectors: int
) -> None:
    """What 64 more columns cost, for every 64 products of a warp (gpu-on-paper.md)."""
    few, many = (_counts(by, d) for d in (64, 128))
    steps = grids.triangle(128, by.side) * by.side**2 * 64 / (32 * 64)
    assert (many.instructions - few.instructions) / steps == pytest.approx(instructions, abs=0.6)
    wavefronts = many.shared_wavefronts - few.shared_wavefronts
    assert wavefronts / steps == pytest.approx(passes, abs=0.6)
    assert (many.global_sectors - few.global_sectors) / steps == pytest.approx(sectors, abs=0.6)


def test_larger_tiles_read_their_factors_half_as_often() -> None:
    """What 64 more columns cost, per product: three tiles of 64 have 3/4 of those of one of 128."""
    few, many = ([_counts(by, d) for by in (USUAL, WIDE)] for d in (64, 128))
    usual, wide = (m.global_sectors - f.global_sectors for m, f in zip(many, few, strict=True))
    assert wide / 4 == usual / 3 / 2
    assert many[1].bank_conflicts == few[1].bank_conflicts


@pytest.mark.parametrize("arch", cases(ptx.ARCHITECTURES, ["sm_75"]))
def test_nothing_is_spilled_and_a_block_fits(arch: str) -> None:
    wide = signatures.wide()
    for needs in ptx.assemble(ptx.compile(wide.source, arch, names=wide.instances)).values():
        assert needs.spilled_bytes == needs.stack_bytes == 0
        assert needs.registers * 256 <= 65536
        assert needs.shared_bytes <= grids.SHARED_BYTES


def test_the_source_is_that_of_the_usual_tiles() -> None:
    wide, usual = signatures.wide(), signatures.parameters()
    assert all(
        usual[name.removesuffix(WIDE.ending)] == own for name, own in wide.parameters.items()
    )
    assert {"gram_128", "outer_128", "from_parts_128"} <= set(wide.parameters)
    assert f"TILE = {WIDE.side};" in wide.source
    assert f"HALF = {WIDE.side // 2};" in wide.source
    assert grids.vector_products(1, 4, WIDE.side).threads == (256,)


def test_double_is_refused_with_a_sentence() -> None:
    with pytest.raises(Unsupported, match="takes float16, float32, not float64"):
        dp.backend("cupy:ptx").pool(_features(2, 9, 5).astype(float), route="128")
