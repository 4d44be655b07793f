"""Conversions between the types of PTX."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from test_ptx_floats import FORMATS, MODES, TINY, assert_same, exactly, floats, flushed
from test_ptx_instructions import DTYPES, evaluate, integers

Array = Any
INF = math.inf


@pytest.mark.parametrize(
    ("source", "result", "mode"),
    [
        *((s, r, m) for s, r in (("f64", "f32"), ("f64", "f16"), ("f32", "f16")) for m in MODES),
        *(("f32", "bf16", m) for m in ("rn", "rz")),  # PTX has no others
        *(("f32", "tf32", m) for m in ("rna", "rn", "rz")),
    ],
)
def test_shorter_formats_are_rounded_once(source: str, result: str, mode: str) -> None:
    a = floats(source, 600, 5)
    ties = (1 + np.arange(40) * 2.0 ** -FORMATS[result][0]).astype(a.dtype)  # halfway, and above it
    a = np.concatenate(
        [a, ties, np.nextafter(ties, INF), ties * a.dtype.type(2.0**-20), a * a.dtype.type(1e-3)]
    )
    wanted = exactly(result, mode, lambda a: a, float, a)
    holder = "f32" if result == "tf32" else result
    found = evaluate(f"cvt.{mode}.{result}.{source} %d, %a", holder, [source], a)
    if result == "bf16":
        found = (found.astype(np.uint32) << 16).view(np.float32)
    assert_same(found, wanted, a)


@pytest.mark.parametrize(
    ("source", "result"), [("f16", "f32"), ("f16", "f64"), ("f32", "f64"), ("bf16", "f32")]
)
def test_longer_formats_are_exact(source: str, result: str) -> None:
    a = floats("f32", 300, 6).view(np.uint32) >> 16 if source == "bf16" else floats(source, 300, 6)
    wanted = (a << np.uint32(16)).view(np.float32) if source == "bf16" else a.astype(np.float64)
    assert_same(evaluate(f"cvt.{result}.{source} %d, %a", result, [source], a), wanted)


@pytest.mark.parametrize("result", ["f16x2", "bf16x2"])
def test_pairs_of_short_numbers_are_made(result: str) -> None:
    a, b = floats("f32", 100, 7), floats("f32", 100, 8)
    found = evaluate(f"cvt.rn.{result}.f32 %d, %a, %b", "u32", ["f32", "f32"], a, b)
    for half, given in ((found >> 16, a), (found & 0xFFFF, b)):
        bits = half.astype(np.uint16)
        value = bits.view(np.float16) if result == "f16x2" else (half << 16).view(np.float32)
        assert_same(value, exactly(result[:-2], "rn", lambda a: a, float, given), given)


WHOLE: dict[str, Callable[[Fraction], int]] = {
    "rni": round,
    "rzi": math.trunc,
    "rmi": math.floor,
    "rpi": math.ceil,
}


@pytest.mark.parametrize("mode", WHOLE)
@pytest.mark.parametrize("source", ["f16", "f32", "f64"])
def test_floats_become_integers_within_their_range(source: str, mode: str) -> None:
    a = floats(source, 200, 9)
    with np.errstate(over="ignore"):
        powers = 2.0 ** np.array([7, 8, 15, 16, 31, 32, 63, 64])
        powers = np.outer(powers, [0.999, 1, 1.001, -0.999, -1, -1.001]).reshape(-1).astype(a.dtype)
    halves = np.arange(-10, 10, dtype=a.dtype) / 2
    a = np.concatenate([a, powers, np.nextafter(powers, a.dtype.type(0)), halves])
    for result in ("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"):
        limits = np.iinfo(DTYPES[result])
        of_nan = 1 << limits.bits - 1 if source == "f64" or limits.bits == 64 else 0
        least, most = int(limits.min), int(limits.max)
        wanted = []
        for value in a.tolist():
            if math.isnan(value):
                wanted.append(-of_nan if result[0] == "s" else of_nan)
            elif math.isinf(value):
                wanted.append(most if value > 0 else least)
            else:
                wanted.append(max(least, min(most, WHOLE[mode](Fraction(value)))))
        for sat in ("", ".sat"):
            found = evaluate(f"cvt.{mode}{sat}.{result}.{source} %d, %a", result, [source], a)
            assert found.tolist() == wanted, result
    whole = [float(WHOLE[mode](Fraction(v))) if math.isfinite(v) else v for v in a.tolist()]
    found = evaluate(f"cvt.{mode}.{source}.{source} %d, %a", source, [source], a)
    assert_same(np.abs(found), np.abs(whole), a)
    assert (np.signbit(found) == np.signbit(a))[~np.isnan(a)].all()


@pytest.mark.parametrize("source", ["u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"])
def test_integers_are_cut_or_clamped(source: str) -> None:
    values = integers(source, 20)
    for result in ("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"):
        limits = np.iinfo(DTYPES[result])
        given = np.array(values, object)
        cut = evaluate(f"cvt.{result}.{source} %d, %a", result, [source], given)
        beyond = 1 << limits.bits
        assert [v % beyond for v in values] == [int(v) % beyond for v in cut]
        if min(values) >= limits.min and max(values) <= limits.max:
            continue  # nothing to clamp: PTX has no .sat there
        clamped = evaluate(f"cvt.sat.{result}.{source} %d, %a", result, [source], given)
        assert clamped.tolist() == [max(int(limits.min), min(int(limits.max), v)) for v in values]


def test_a_narrow_signed_result_fills_its_register() -> None:
    given = np.array([128, 127, -129])
    found = evaluate("cvt.s8.s32 %r5, %a; mov.b32 %d, %r5", "s32", ["s32"], given)
    assert found.tolist() == [-128, 127, 127]


def test_conversions_flush_and_saturate() -> None:
    half = np.array([TINY / 2, -TINY / 2, 0.7, 2], np.float32)
    assert evaluate("cvt.rpi.ftz.s32.f32 %d, %a", "s32", ["f32"], half).tolist() == [0, 0, 1, 2]
    assert evaluate("cvt.rpi.s32.f32 %d, %a", "s32", ["f32"], half).tolist() == [1, 0, 1, 2]
    small = half.astype(np.float64)
    assert_same(evaluate("cvt.rn.ftz.f32.f64 %d, %a", "f32", ["f64"], small), flushed(half))
    assert_same(evaluate("cvt.rn.f32.f64 %d, %a", "f32", ["f64"], small), half)
    assert_same(evaluate("cvt.ftz.f64.f32 %d, %a", "f64", ["f32"], half), flushed(half))
    found = evaluate("cvt.rn.sat.f16.f32 %d, %a", "f16", ["f32"], half)
    assert_same(found, [0, 0, np.float16(0.7), 1])
