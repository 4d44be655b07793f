"""Floating-point instructions of PTX: rounded once, in every direction, against exact fractions."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
from test_ptx_instructions import DTYPES, ORDER, evaluate, integers, run

from demopool.ptx import floats as module

Array = Any
INF, NAN = math.inf, math.nan
MODES = ("rn", "rz", "rm", "rp")
FORMATS = {
    "f16": (11, -14, 16),
    "bf16": (8, -126, 128),
    "tf32": (11, -126, 128),
    "f32": (24, -126, 128),
    "f64": (53, -1022, 1024),
}
"""Bits of the significand, exponents of the least normal number and of the first too large one."""


def rounded(x: Fraction, kind: str, mode: str) -> float:
    """An exact number other than 0 in a format, by the definition of the rounding modes."""
    precision, least, beyond = FORMATS[kind]
    sign, size = (-1, -x) if x < 0 else (1, x)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    if Fraction(2) ** exponent > size:
        exponent -= 1
    unit = Fraction(2) ** (max(exponent, least) - precision + 1)
    count, rest = divmod(size, unit)
    away = {"rz": False, "rm": sign < 0, "rp": sign > 0}.get(mode)
    if away is None:
        count += rest * 2 > unit or (rest * 2 == unit and (count % 2 or mode == "rna"))
        away = True
    elif rest and away:
        count += 1
    found = count * unit
    if found >= Fraction(2) ** beyond:
        found = (2**precision - 1) * Fraction(2) ** (beyond - precision)
        return sign * INF if away else sign * float(found)
    return math.copysign(float(found), sign)


def root(x: Fraction) -> Fraction:
    """The square root, or what lies with it between the same numbers of any format here."""
    scaled = x.numerator * x.denominator << 4000
    whole = math.isqrt(scaled)
    return Fraction(2 * whole + (whole * whole != scaled), x.denominator << 2001)


def floats(kind: str, count: int, seed: int) -> Array:
    """Edges, random bits (so any exponent, subnormal numbers, NaN), and numbers around 1."""
    dtype = np.dtype(DTYPES[kind])
    limits, rng = np.finfo(dtype), np.random.default_rng(seed)
    edges = [0, -0.0, 1, -1, INF, -INF, NAN, limits.max, limits.min, limits.tiny, -limits.tiny]
    edges += [limits.smallest_subnormal, -limits.smallest_subnormal, limits.tiny * 0.75, 1.5, 3]
    bits = rng.integers(0, 256, (count // 2, dtype.itemsize), np.uint8).view(dtype)[:, 0]
    near = rng.standard_normal(count - count // 2).astype(dtype)
    return np.concatenate([np.array(edges, dtype), bits, near])


def operands(kind: str, arity: int, count: int = 300) -> list[Array]:
    """Pairs or triples; the edges with each other."""
    columns = [floats(kind, count, seed) for seed in range(arity)]
    edges = columns[0][:16]
    grid = [np.array(c) for c in zip(*product(edges, repeat=min(arity, 2)), strict=True)]
    if arity == 3:
        grid.append(np.tile(edges, 16))
    return [np.concatenate(pair) for pair in zip(columns, grid, strict=True)]


def assert_same(found: Array, wanted: Array, *inputs: Array) -> None:
    """Equal with the signs of zeros; NaN is NaN."""
    with np.errstate(all="ignore"):
        wanted = np.asarray(wanted).astype(found.dtype)
    same = (found == wanted) & (np.signbit(found) == np.signbit(wanted))
    same |= np.isnan(found) & np.isnan(wanted)
    at = int(np.argmin(same))
    assert same.all(), f"{found[at]!r} for {wanted[at]!r} of {[i[at] for i in inputs]}"


def check(code: str, kind: str, wanted: Array, *columns: Array) -> None:
    """An instruction makes %d of a format from operands of the same one."""
    assert_same(evaluate(code, kind, [kind] * len(columns), *columns), wanted, *columns)


def exactly(
    kind: str, mode: str, exact: Callable[..., Fraction], plain: Callable[..., Any], *columns: Array
) -> Array:
    """``plain`` (IEEE in doubles) for what is not finite or no number; else the exact result."""
    wanted = []
    for row in zip(*(c.tolist() for c in columns), strict=True):
        value = exact(*map(Fraction, row)) if all(map(math.isfinite, row)) else None
        wanted.append(rounded(value, kind, mode) if value else plain(*row))
    return np.array(wanted)


def plain(function: Callable[..., Any]) -> Callable[..., float]:
    def compute(*values: float) -> float:
        with np.errstate(all="ignore"):
            return float(function(*map(np.float64, values)))

    return compute


def sum_of_zeros(mode: str) -> Callable[[float, float], float]:
    """a + b when it is 0 or not finite: rounded down, zeros that cancel are negative."""

    def compute(a: float, b: float) -> float:
        total = plain(np.add)(a, b)
        differ = math.copysign(1, a) != math.copysign(1, b)
        return -0.0 if mode == "rm" and total == 0 and differ else total

    return compute


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["f32", "f64"])
class TestRounding:
    """All modes of both formats."""

    def test_one_value_for_all_threads_is_rounded_alike(self, kind: str, mode: str) -> None:
        """Registers keep it as one number, not as an array."""
        limits, arity = np.finfo(DTYPES[kind]), {"add": 2, "mul": 2, "fma": 3, "div": 2, "sqrt": 1}
        rows = [(limits.max, 3, -1), (limits.tiny, limits.eps, limits.tiny), (1, 3, -3), (7, 0, 0)]
        for row, (op, count) in product(rows, arity.items()):
            code = f"{op}.{mode}.{kind} %d, {', '.join(('%a', '%b', '%c')[:count])}"
            columns = [np.array([value], DTYPES[kind]) for value in row[:count]]
            many = evaluate(code, kind, [kind] * count, *(np.repeat(c, 2) for c in columns))
            check(code, kind, many[:1], *columns)

    def test_sums_and_differences(self, kind: str, mode: str) -> None:
        a, b = operands(kind, 2)
        b = np.concatenate([b, -a[:50], a[:50] * np.array(1e-8, a.dtype)])
        a = np.concatenate([a, a[:50], a[:50]])
        wanted = exactly(kind, mode, lambda a, b: a + b, sum_of_zeros(mode), a, b)
        check(f"add.{mode}.{kind} %d, %a, %b", kind, wanted, a, b)
        check(f"sub.{mode}.{kind} %d, %a, %b", kind, wanted, a, -b)

    def test_products(self, kind: str, mode: str) -> None:
        a, b = operands(kind, 2)
        wanted = exactly(kind, mode, lambda a, b: a * b, plain(np.multiply), a, b)
        check(f"mul.{mode}.{kind} %d, %a, %b", kind, wanted, a, b)

    def test_fused_products_are_rounded_once(self, kind: str, mode: str) -> None:
        a, b, c = operands(kind, 3)
        spread = (np.resize([2.0**-60, 2.0**-30, -1e-16, 1e-8], 300)).astype(a.dtype)
        with np.errstate(all="ignore"):
            near = -(a * b)[:300]  # what the fused sum leaves is the rounding error of the product
            c = np.concatenate([c, near, near * spread])
        a, b = (np.concatenate([v, v[:300], v[:300]]) for v in (a, b))

        def not_finite(a: float, b: float, c: float) -> float:
            """An exact product of finite numbers is finite, however large."""
            if np.isfinite([a, b]).all() and not np.isfinite(c):
                return c
            return sum_of_zeros(mode)(plain(np.multiply)(a, b), c)

        wanted = exactly(kind, mode, lambda a, b, c: a * b + c, not_finite, a, b, c)
        for op in ("fma", "mad"):
            check(f"{op}.{mode}.{kind} %d, %a, %b, %c", kind, wanted, a, b, c)

    def test_quotients_and_reciprocals(self, kind: str, mode: str) -> None:
        a, b = operands(kind, 2)
        nonzero = lambda a, b: a / b if b else Fraction(0)  # noqa: E731
        wanted = exactly(kind, mode, nonzero, plain(np.divide), a, b)
        check(f"div.{mode}.{kind} %d, %a, %b", kind, wanted, a, b)
        wanted = exactly(kind, mode, nonzero, plain(np.divide), np.ones_like(b), b)
        check(f"rcp.{mode}.{kind} %d, %a", kind, wanted, b)

    def test_square_roots(self, kind: str, mode: str) -> None:
        a = floats(kind, 600, 4)
        a = np.concatenate([a, np.abs(a), np.arange(20, dtype=a.dtype) ** 2])
        wanted = exactly(kind, mode, lambda a: root(a) if a > 0 else Fraction(0), plain(np.sqrt), a)
        check(f"sqrt.{mode}.{kind} %d, %a", kind, wanted, a)

    def test_conversions_of_integers(self, kind: str, mode: str) -> None:
        for source in ("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"):
            values = integers(source, 60)
            wanted = [rounded(Fraction(v), kind, mode) if v else 0.0 for v in values]
            code = f"cvt.{mode}.{kind}.{source} %d, %a"
            assert_same(evaluate(code, kind, [source], np.array(values, object)), wanted)


# --- flushing and saturating ---

TINY = np.finfo(np.float32).tiny
SMALL = np.array([TINY, TINY / 2, -TINY / 2, -TINY, 0.0, -0.0, 1.0, NAN, INF], np.float32)


def flushed(x: Array) -> Array:
    return np.where(np.abs(x) < TINY, np.copysign(0, x), x).astype(np.float32)


FLUSHING: list[tuple[str, Callable[..., Any]]] = [
    ("add", lambda a, b: a + b), ("sub", lambda a, b: a - b), ("mul", lambda a, b: a * b),
    *((f"div.{how}", lambda a, b: a / b) for how in ("rn", "full", "approx")),
    ("abs", lambda a: np.abs(a)), ("neg", lambda a: -a), ("sqrt.rn", lambda a: np.sqrt(a)),
    ("sqrt.approx", lambda a: np.sqrt(a)),
    ("rcp.rn", lambda a: 1 / a), ("rcp.approx", lambda a: 1 / a),
    ("fma.rn", lambda a, b, c: (np.float64(a) * b + c).astype("f4")),
    ("mad.rn", lambda a, b, c: (np.float64(a) * b + c).astype("f4")),
]  # fmt: skip


@pytest.mark.parametrize(("name", "function"), FLUSHING, ids=[f[0] for f in FLUSHING])
def test_ftz_flushes_operands_and_results(name: str, function: Callable[..., Any]) -> None:
    arity = function.__code__.co_argcount
    columns = [np.array(c, np.float32) for c in zip(*product(SMALL, repeat=arity), strict=True)]
    names = ", ".join(f"%{n}" for n in "dabc"[: arity + 1])
    with np.errstate(all="ignore"):
        kept, gone = function(*columns), flushed(function(*map(flushed, columns)))
    check(f"{name}.f32 {names}", "f32", kept, *columns)
    check(f"{name}.ftz.f32 {names}", "f32", gone, *columns)


@pytest.mark.parametrize("kind", ["f16", "f32"])
def test_saturation_clamps_to_zero_and_one(kind: str) -> None:
    a = np.array([-INF, -1, -0.0, 0, 0.25, 0.5, 1, 2, INF, NAN], DTYPES[kind])
    clamped = np.array([0, 0, 0, 0, 0.25, 0.5, 1, 1, 1, 0])
    zero, one = np.full_like(a, -0.0), np.ones_like(a)
    check(f"add.rn.sat.{kind} %d, %a, %b", kind, clamped, a, zero)
    check(f"sub.sat.{kind} %d, %a, %b", kind, clamped, a, -zero)
    check(f"mul.sat.{kind} %d, %a, %b", kind, clamped, a, one)
    check(f"fma.rn.sat.{kind} %d, %a, %b, %c", kind, clamped, a, one, zero)
    check(f"cvt.sat.{kind}.{kind} %d, %a", kind, clamped, a)
    ints = np.array([-5, 0, 1, 7])
    assert_same(evaluate(f"cvt.rn.sat.{kind}.s32 %d, %a", kind, ["s32"], ints), [0, 0, 1, 1])


def test_half_precision_is_rounded_once() -> None:
    a, b, c = operands("f16", 3)
    zeros, times = sum_of_zeros("rn"), plain(np.multiply)
    tests: list[tuple[str, Callable[..., Fraction], Callable[..., float]]] = [
        ("add.f16 %d, %a, %b", lambda a, b: a + b, zeros),
        ("sub.f16 %d, %a, %b", lambda a, b: a - b, lambda a, b: zeros(a, -b)),
        ("mul.rn.f16 %d, %a, %b", lambda a, b: a * b, times),
        ("fma.rn.f16 %d, %a, %b, %c", lambda a, b, c: a * b + c,
         lambda a, b, c: zeros(times(a, b), c)),
    ]  # fmt: skip
    for code, exact, otherwise in tests:
        columns = [a, b, c] if "%c" in code else [a, b]
        wanted = exactly("f16", "rn", exact, otherwise, *columns)
        check(code, "f16", wanted, *columns)


def test_half_precision_can_be_flushed() -> None:
    a = np.array([2.0**-15, -(2.0**-24), 2.0**-14, NAN], np.float16)
    wanted = np.array([0, -0.0, 2.0**-14, NAN])
    check("add.ftz.f16 %d, %a, %b", "f16", wanted, a, np.full(4, -0.0))
    check("abs.ftz.f16 %d, %a", "f16", np.abs(wanted), a)
    check("neg.ftz.f16 %d, %a", "f16", -wanted, a)


# --- comparing and choosing ---


@pytest.mark.parametrize("kind", ["f16", "f32", "f64"])
def test_extremes_prefer_numbers_and_order_zeros(kind: str) -> None:
    a, b = operands(kind, 2, 60)
    keep_nan = np.isnan(a) | np.isnan(b)
    lower, higher = np.where(np.isnan(a), b, a), np.where(np.isnan(a), b, a)
    for i, (x, y) in enumerate(zip(a.tolist(), b.tolist(), strict=True)):
        if not keep_nan[i]:
            lower[i], higher[i] = sorted([x, y], key=lambda v: (v, math.copysign(1, v)))
    for code, wanted in (("min.t %d, %a, %b", lower), ("max.t %d, %a, %b", higher)):
        check(code.replace(".t", f".{kind}"), kind, wanted, a, b)
        if kind != "f64":
            strict = code.replace(".t", f".NaN.{kind}")
            check(strict, kind, np.where(keep_nan, NAN, wanted), a, b)
    if kind == "f32":
        check("min.ftz.f32 %d, %a, %b", kind, flushed(SMALL), SMALL, SMALL)


def test_bfloat16_is_chosen_and_compared_as_float32() -> None:
    wide = [(x.view(np.uint32) & 0xFFFF0000).view(np.float32) for x in operands("f32", 2, 60)]
    short = [(x.view(np.uint32) >> 16).astype(np.uint16) for x in wide]
    for name, count in (("min", 2), ("max.NaN", 2), ("max", 2), ("abs", 1), ("neg", 1)):
        names = ", ".join(["%d", "%a", "%b"][: count + 1])
        code, of = f"{name}.bf16 {names}", ["bf16"] * count
        found = evaluate(code, "bf16", of, *short[:count]).astype(np.uint32) << 16
        check(f"{name}.f32 {names}", "f32", found.view(np.float32), *wide[:count])
    for name in ("lt", "eq", "geu", "nan"):
        found = evaluate(f"setp.{name}.bf16 %d, %a, %b", "pred", ["bf16"] * 2, *short)
        wanted = evaluate(f"setp.{name}.f32 %d, %a, %b", "pred", ["f32"] * 2, *wide)
        assert (found == wanted).all()


@pytest.mark.parametrize(("kind", "register"), [("f32", "%r4"), ("f16", "%h4"), ("bf16", "%h4")])
def test_an_extreme_is_one_operation_in_every_format(kind: str, register: str) -> None:
    body = f"mov.b{32 if kind == 'f32' else 16} {register}, 16256;\n"
    for name, flops in (("min", 32), ("max.NaN", 32), ("abs", 0), ("neg", 0)):
        names = ", ".join([register] * (2 if flops == 0 else 3))
        counts = run(f"{body}{name}.{kind} {names};", np.zeros(32, np.uint32))
        assert counts.flops == flops


@pytest.mark.parametrize("kind", ["f16", "f32", "f64"])
def test_comparisons_with_nan_are_false_or_if_unordered_true(kind: str) -> None:
    a, b = operands(kind, 2, 40)
    unordered = np.isnan(a) | np.isnan(b)
    tests = {name: function(a, b) & ~unordered for name, function in ORDER.items()}
    tests |= {f"{name}u": truth | unordered for name, truth in tests.items()}
    tests |= {"num": ~unordered, "nan": unordered}
    for name, truth in tests.items():
        found = evaluate(f"setp.{name}.{kind} %d, %a, %b", "pred", [kind] * 2, a, b)
        assert (found == truth).all(), name
        if kind != "f16":  # which has neither two results nor all forms of set
            code = f"setp.{name}.xor.{kind} %p0|%p1, %a, %b, %c; mov.pred %d, %p1"
            found = evaluate(code, "pred", [kind, kind, "pred"], a, b, a == 0)
            assert (found == (~truth ^ (a == 0))).all(), name
            found = evaluate(f"set.{name}.u32.{kind} %d, %a, %b", "u32", [kind] * 2, a, b)
            assert (found == np.where(truth, 0xFFFFFFFF, 0)).all(), name
            found = evaluate(f"set.{name}.f32.{kind} %d, %a, %b", "f32", [kind] * 2, a, b)
            assert (found == truth).all(), name


def test_comparisons_flush_subnormals_only_when_told() -> None:
    zero = np.zeros_like(SMALL)
    for ftz, wanted in (("", SMALL > 0), (".ftz", flushed(SMALL) > 0)):
        found = evaluate(f"setp.gt{ftz}.f32 %d, %a, %b", "pred", ["f32"] * 2, SMALL, zero)
        assert (found == wanted).all()
        found = evaluate(f"set.gt{ftz}.s32.f32 %d, %a, %b", "s32", ["f32"] * 2, SMALL, zero)
        assert (found == -wanted.astype(int)).all()


def test_slct_takes_the_second_for_nan_and_flushes_only_what_it_tests() -> None:
    a, b = np.full_like(SMALL, TINY / 4), np.full_like(SMALL, 2)
    for ftz, tested in (("", SMALL), (".ftz", flushed(SMALL))):
        found = evaluate(f"slct{ftz}.f32.f32 %d, %a, %b, %c", "f32", ["f32"] * 3, a, b, SMALL)
        assert_same(found, np.where(tested >= 0, a, b))
        code, kinds = f"slct{ftz}.u64.f32 %d, %a, %b, %c", ["u64", "u64", "f32"]
        found = evaluate(code, "u64", kinds, a * 0 + 5, b, SMALL)
        assert (found == np.where(tested >= 0, 5, 2)).all()
    code, kinds = "slct.f64.s32 %d, %a, %b, %c", ["f64", "f64", "s32"]
    found = evaluate(code, "f64", kinds, [1] * 3, [2] * 3, [-1, 0, 1])
    assert found.tolist() == [2, 1, 1]


@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_properties_and_signs(kind: str) -> None:
    a, b = operands(kind, 2, 60)
    normal = np.isfinite(a) & ((np.abs(a) >= np.finfo(a.dtype).tiny) | (a == 0))  # zeros are
    tests = {
        "testp.finite": np.isfinite(a), "testp.infinite": np.isinf(a), "testp.number": ~np.isnan(a),
        "testp.notanumber": np.isnan(a), "testp.normal": normal,
        "testp.subnormal": np.isfinite(a) & ~normal,
    }  # fmt: skip
    for name, wanted in tests.items():
        assert (evaluate(f"{name}.{kind} %d, %a", "pred", [kind], a) == wanted).all(), name
    found = evaluate(f"copysign.{kind} %d, %a, %b", kind, [kind] * 2, a, b)
    assert (np.signbit(found) == np.signbit(a)).all()
    assert_same(np.abs(found), np.abs(b))
    check(f"abs.{kind} %d, %a", kind, np.abs(a), a)
    check(f"neg.{kind} %d, %a", kind, -a, a)
    found = evaluate(f"selp.{kind} %d, %a, %b, %c", kind, [kind, kind, "pred"], a, b, a == 0)
    assert_same(found, np.where(a == 0, a, b))


# --- elementary functions ---


@pytest.mark.parametrize(
    ("code", "function", "edges"),
    [
        ("ex2.approx.t", lambda x: 2.0**x,
         [(0, 1), (-INF, 0), (INF, INF), (1, 2), (-1, 0.5), (200, INF), (NAN, NAN)]),
        ("lg2.approx.t", math.log2,
         [(0, -INF), (-0.0, -INF), (INF, INF), (8, 3), (1, 0), (-1, NAN)]),
        ("sin.approx.t", math.sin, [(0, 0), (-0.0, -0.0), (INF, NAN), (NAN, NAN)]),
        ("cos.approx.t", math.cos, [(0, 1), (-INF, NAN), (NAN, NAN)]),
        ("tanh.approx.t", math.tanh, [(0, 0), (INF, 1), (-INF, -1), (NAN, NAN)]),
        ("rsqrt.approx.t", lambda x: 1 / math.sqrt(x),
         [(0, INF), (-0.0, -INF), (INF, 0), (-1, NAN), (0.25, 2)]),
    ],
)  # fmt: skip
def test_elementary_functions(
    code: str, function: Callable[[float], float], edges: list[tuple[float, float]]
) -> None:
    """Within 2 units in the last place of what Python's doubles give; edges exactly."""
    x = np.exp(np.random.default_rng(3).uniform(-3, 3, 200)).astype(np.float32)
    kinds = {"ex2": ["f32", "f16"], "tanh": ["f32", "f16"], "rsqrt": ["f32", "f64"]}
    for kind in kinds.get(code.split(".")[0], ["f32"]):
        given = x.astype(DTYPES[kind])
        found = evaluate(f"{code.replace('.t', f'.{kind}')} %d, %a", kind, [kind], given)
        with np.errstate(over="ignore"):
            wanted = np.array([function(v) for v in given.tolist()]).astype(found.dtype)
        finite = np.isfinite(wanted)
        error = np.abs(found[finite] - wanted[finite])
        assert (error <= 2 * np.spacing(np.abs(wanted[finite]))).all()
        assert (found[~finite] == wanted[~finite]).all()
        at, of_edges = (np.array(column, np.float16) for column in zip(*edges, strict=True))
        found = evaluate(f"{code.replace('.t', f'.{kind}')} %d, %a", kind, [kind], at)
        assert_same(found, of_edges, at)
    if not code.startswith("tanh"):
        zeros = evaluate(f"{code.replace('.t', '.f32')} %d, %a", "f32", ["f32"], SMALL[4:6])
        check(f"{code.replace('.t', '.ftz.f32')} %d, %a", "f32", zeros, SMALL[1:3])


@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_fused_products_are_the_same_with_and_without_the_c_library(kind: str) -> None:
    a, b, c = operands(kind, 3)
    with np.errstate(all="ignore"):
        assert_same(module.fma_of_parts(a, b, c), module.fma(a, b, c), a, b, c)
