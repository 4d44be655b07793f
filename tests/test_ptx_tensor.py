"""Products by tensor cores: float32 from TF32 within its bound, and what the assembler makes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from demopool import ptx
from demopool.ptx import floats
from demopool.ptx.instructions import matrices

pytest.importorskip("cuda.bindings.nvrtc")

from ptx_samples import cases, products

Array = Any
SIZES = (17, 9)


def _normal(rng: Any, k: int) -> tuple[Array, Array]:
    return rng.standard_normal((SIZES[0], k)), rng.standard_normal((SIZES[1], k))


def _positive(rng: Any, k: int) -> tuple[Array, Array]:
    A, B = _normal(rng, k)
    return np.abs(A), np.abs(B)


def _many_magnitudes(rng: Any, k: int) -> tuple[Array, Array]:
    A, B = _normal(rng, k)
    return tuple(x * 2.0 ** rng.integers(-40, 41, x.shape) for x in (A, B))  # type: ignore[return-value]


def _tiny_and_huge(rng: Any, k: int) -> tuple[Array, Array]:
    A, B = _normal(rng, k)
    return A * 2.0**-60, B * 2.0**100


def _cancelling(rng: Any, k: int) -> tuple[Array, Array]:
    """Neighbours of opposite sign, with partners that differ in the last bit."""
    A, B = (x.astype(np.float32) for x in _normal(rng, k))
    A[:, 1::2] = -A[:, ::2]
    B[:, 1::2] = np.nextafter(B[:, ::2], np.float32(np.inf))
    return A, B


def _halfway(rng: Any, k: int) -> tuple[Array, Array]:
    """Significands halfway between two of TF32, and one bit off: the largest low parts."""
    A, B = (1 + (2 * rng.integers(0, 2**10, (s, k)) + 1) * 2.0**-11 for s in SIZES)
    return A - rng.integers(0, 2, A.shape) * 2.0**-23, B + rng.integers(0, 2, B.shape) * 2.0**-23


def _lost_bits(rng: Any, k: int) -> tuple[Array, Array]:
    """The last of 24 bits is set, and the low part has no room for it."""
    A, B = (1 + (2 * rng.integers(2**10, 2**11, (s, k)) + 1) * 2.0**-23 for s in SIZES)
    return A, B


HARD = (_normal, _positive, _many_magnitudes, _tiny_and_huge, _cancelling, _halfway, _lost_bits)
U = 2.0**-24


def bound(k: int, slab: float) -> float:
    """Of the error in units of the sum of |a b|, where a slab of 8 costs ``slab``; see the manual.

    docs/reference/ptx.md derives it: 8 u for what high and low parts leave out, a slab, and an
    addition by a thread for every further slab; 1 % is for terms of higher order.
    """
    return 1.01 * (8 * U + slab + (-(-k // 8) - 1) * U)


def error(kernel: str, A: Array, B: Array) -> float:
    """The largest error, in units of the sum of |a b|."""
    A, B = A.astype(np.float32), B.astype(np.float32)
    grid, block, args, result, _ = products.launch(kernel, A, B)
    cases.cuda("sm_80", products.SOURCE).launch(kernel, grid, block, args)
    wide = A.astype(float), B.astype(float)
    sizes = np.abs(wide[0]) @ np.abs(wide[1]).T
    return float((np.abs(np.asarray(result) - wide[0] @ wide[1].T) / sizes).max())


@pytest.mark.parametrize("k", [5, 8, 300])
@pytest.mark.parametrize("hard", HARD, ids=lambda hard: hard.__name__)
def test_three_products_of_tf32_are_as_exact_as_their_bound(hard: Any, k: int) -> None:
    A, B = hard(np.random.default_rng(k), k + k % 2)
    assert error("product_3xtf32", A, B) <= bound(A.shape[1], slab=U)


def cut_off(a: Array, b: Array, c: Array) -> Array:
    """C + A B as published experiments found it on V100 and, for TF32, on A100.

    Four products at a time are added to the sum: all are cut off at the last of 24 bits of the
    largest exponent, added exactly, and the sum is cut off to float32.
    """
    for start in range(0, a.shape[2], 4):
        inside = slice(start, start + 4)
        x, y = a[:, :, None, inside], b.swapaxes(1, 2)[:, None, :, inside]
        terms = np.concatenate([x * y, c[..., None]], axis=3)
        exponents = np.frexp(x)[1] + np.frexp(y)[1] - 2
        exponents = np.where(terms[..., :-1] == 0, -200, exponents)
        of_sum = np.where(c == 0, -200, np.frexp(c)[1] - 1)
        largest = np.maximum(exponents.max(axis=3), of_sum)
        unit = np.ldexp(1.0, largest - 23)
        total = (np.trunc(terms / unit[..., None]) * unit[..., None]).sum(axis=3)
        c = floats.converted(total, np.float32, "rz").astype(float)
    return c


@pytest.mark.parametrize("k", [8, 300])
@pytest.mark.parametrize("hard", HARD, ids=lambda hard: hard.__name__)
def test_sums_that_are_cut_off_keep_their_own_bound(
    hard: Any, k: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight products and two cuts of the sum, each below 2 u: 20 u, and little for low parts."""
    monkeypatch.setattr(matrices, "summed", cut_off)
    A, B = hard(np.random.default_rng(k), k)
    assert error("product_3xtf32", A, B) <= bound(k, slab=20 * U)


@pytest.mark.parametrize("k", [8, 300])
@pytest.mark.parametrize("hard", HARD, ids=lambda hard: hard.__name__)
def test_one_accumulator_that_is_cut_off_keeps_the_bound_of_a_device(
    hard: Any, k: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cut for each product and for each sum of four, of numbers that are TF32 already."""
    monkeypatch.setattr(matrices, "summed", cut_off)
    A, B = (products.to_tf32(x) for x in hard(np.random.default_rng(k), k))
    assert error("product_tf32", A, B) <= 1.01 * 2 * U * (k + -(-k // 4))


def test_the_bounds_tell_such_products_apart() -> None:
    """One product of TF32 is far beyond them, and so is one sum that is always cut off."""
    A, B = _positive(np.random.default_rng(0), 300)
    assert error("product_tf32", A, B) > 10 * bound(300, slab=20 * U)


def test_adding_up_by_threads_avoids_the_drift_of_sums_that_are_cut_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is positive gets smaller with every cut: the error grows with k, and not by its root."""
    A, B = (products.to_tf32(x) for x in _positive(np.random.default_rng(0), 1000))
    rounded = error("product_tf32", A, B)
    monkeypatch.setattr(matrices, "summed", cut_off)
    assert error("product_tf32", A, B) > 4 * rounded
    assert error("product_3xtf32", A, B) < error("product_tf32", A, B) / 4


@pytest.mark.parametrize("arch", products.ARCHITECTURES)
def test_the_assembler_takes_them_without_spills(arch: str) -> None:
    found = ptx.assemble(cases.cuda(arch, products.SOURCE))
    assert set(found) == set(products.ROUNDED)
    assert not any(kernel.spilled_bytes for kernel in found.values())


def test_the_assembler_refuses_them_where_a_device_has_no_tf32() -> None:
    with pytest.raises(ptx.CompileError, match="sm_80 or higher"):
        ptx.assemble(cases.cuda("sm_75", products.SOURCE))


def test_counts_of_a_product_by_hand() -> None:
    """32 x 8 elements, k = 16: two warps, two slabs; B of 8 rows is copied by half a warp."""
    counts, _, _ = cases.BY_NAME["product-copied"].run((32, 8, 16))
    assert counts.tensor_flops == 2 * 32 * 8 * 16
    assert counts.traffic["argument 0"].loaded_bytes == 32 * 16 * 4
    assert counts.traffic["argument 1"].loaded_bytes == 8 * 16 * 4
    assert counts.traffic["argument 0"].sectors == 32 * 16 * 4 // 32
    assert counts.traffic["argument 0"].requests == 2 * 2
    assert counts.traffic["argument 1"].requests == 2
