"""Every PTX instruction without rounding, against Python's integers and hand-made values.

The other files of test_ptx_* that are about instructions use the helpers of this one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pytest

from demopool import ptx

Array = Any

DTYPES = {f"{k}{8 * n}": f"{'i' if k == 's' else 'u'}{n}" for k in "bus" for n in (1, 2, 4, 8)}
DTYPES |= {"f16": "f2", "bf16": "u2", "f32": "f4", "f64": "f8", "pred": "?"}
HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"
REGISTERS = ".reg .pred %p<9>; .reg .b16 %h<9>; .reg .b32 %r<40>; .reg .b64 %q<20>;\n"


@cache
def module(text: str) -> ptx.Module:
    return ptx.compile(text)


def run(
    body: str,
    *arrays: Array,
    grid: Any = 1,
    block: Any = 32,
    before: str = "",
    triton: bool = False,
    **kw: Any,
) -> Any:
    """A kernel with arrays at %q0, ...; %r0 is the thread, %q9 and %q10 its elements of two."""
    params = ", ".join(f".param .u64 a{i}" for i in range(len(arrays) + 2 * triton))
    loads = "".join(f"ld.param.u64 %q{i}, [a{i}];\n" for i in range(len(arrays)))
    thread = """mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x;
        mad.lo.u32 %r0, %r1, %r2, %r3;"""
    for i in range(min(2, len(arrays))):
        thread += f"mad.wide.u32 %q{9 + i}, %r0, {arrays[i].itemsize}, %q{i};\n"
    text = f"{HEAD}{before}.visible .entry k({params}) {{\n{REGISTERS}{loads}{thread}{body}\nret;}}"
    of = ptx.Module(text, "sm_80", triton=True) if triton else module(text)
    return of.launch("k", grid, block, list(arrays), **kw)


def lanes(body: str, *inputs: Array, block: Any = 32, dtype: Any = np.uint32, **kw: Any) -> Array:
    """What the threads of one block store to [%q9], one value each; the first input is in %q1."""
    out = np.zeros(int(np.prod(block)), dtype)
    run(body, out, *inputs, block=block, **kw)
    return out


def evaluate(code: str, result: str, operands: Sequence[str], *values: Array) -> Array:
    """``code`` makes %d from %a, %b, %c, %e: one value per thread, or one immediate for all."""
    names, body, uniform = "abce", "", all(np.size(v) == 1 for v in values)
    inputs = [np.atleast_1d(v).astype(DTYPES[t]) for v, t in zip(values, operands, strict=True)]
    if uniform:  # in whole warps: registers keep one number only if all lanes write it
        inputs = [np.repeat(array, 128) for array in inputs]
    out = np.zeros(len(inputs[0]), DTYPES[result])
    declared = [f".reg .{_holder(t)} %{n};" for n, t in zip(names, operands, strict=False)]
    for i, (name, kind, array) in enumerate(zip(names, operands, inputs, strict=False)):
        bits, width = f"u{8 * array.itemsize}", array.itemsize
        if uniform and kind != "pred":
            number = int.from_bytes(array[:1].tobytes(), "little")
            body += f"mov.{_holder(kind)} %{name}, {number:#x};\n"
            continue
        body += f"mad.wide.u32 %q12, %r0, {width}, %q{i + 1};\n"
        if kind == "pred":
            body += f"ld.global.u8 %h0, [%q12]; setp.ne.u16 %{name}, %h0, 0;\n"
        else:
            body += f"ld.global.{bits} %{name}, [%q12];\n"
    store = f"st.global.u{8 * out.itemsize} [%q9], %d;"
    if result == "pred":
        store = "selp.u16 %h1, 1, 0, %d; st.global.u8 [%q9], %h1;"
    guard = f"setp.ge.u32 %p8, %r0, {len(out)}; @%p8 bra END;\n"
    regs = "".join([*declared, f".reg .{_holder(result)} %d;\n"])
    whole = f"{regs}{guard}{body}{code};\n{store}\nEND:"
    run(whole, out, *inputs, grid=-(-len(out) // 128), block=128)
    return out[:1] if uniform else out


def _holder(kind: str) -> str:
    """The type of a register for values of a type."""
    return kind if kind == "pred" else f"b{max(16, 8 * np.dtype(DTYPES[kind]).itemsize)}"


# --- integers ---


class Form(NamedTuple):
    """An instruction for some types: ``exact(bits, a, b, ...)`` in Python's integers."""

    name: str
    types: str
    exact: Callable[..., int]
    operands: str = "t t"
    result: str = "t"
    extra: str = ""


def clamp(bits: int, value: int) -> int:
    return max(-(1 << bits - 1), min((1 << bits - 1) - 1, value))


def quotient(bits: int, a: int, b: int) -> int:
    return -1 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def leading(bits: int, a: int) -> int:
    """Position of the highest bit that is not the sign; -1 if there is none."""
    return (a if a >= 0 else ~a).bit_length() - 1


def shift_amount(bits: int, a: int) -> int:
    return bits - 1 - leading(bits, a) if leading(bits, a) >= 0 else -1


def funnel(left: bool, wrap: bool) -> Callable[..., int]:
    def exact(bits: int, a: int, b: int, c: int) -> int:
        by = c % 32 if wrap else min(c, 32)
        return ((b << 32 | a) << by) >> 32 if left else (b << 32 | a) >> by

    return exact


def extract(bits: int, a: int, position: int, length: int, signed: bool = False) -> int:
    """Bit by bit, as the PTX manual has it."""
    position, length, raw = position & 255, length & 255, a % (1 << bits)
    sign = raw >> min(position + length - 1, bits - 1) & 1 if signed and length else 0
    found = 0
    for i in range(bits):
        inside = i < length and position + i < bits
        found |= (raw >> position + i & 1 if inside else sign) << i
    return found


def insert(bits: int, a: int, b: int, position: int, length: int) -> int:
    for i in range(min(length & 255, max(0, bits - (position & 255)))):
        at = (position & 255) + i
        b = b & ~(1 << at) | (a >> i & 1) << at
    return b


def permute(bits: int, a: int, b: int, c: int) -> int:
    octets, found = (b << 32 | a).to_bytes(8, "little"), 0
    for i in range(4):
        choice = c >> 4 * i & 15
        octet = octets[choice & 7]
        found |= (octet if choice < 8 else 255 * (octet >> 7)) << 8 * i
    return found


def table(number: int) -> Callable[..., int]:
    def exact(bits: int, a: int, b: int, c: int) -> int:
        rows = ((a >> i & 1) << 2 | (b >> i & 1) << 1 | c >> i & 1 for i in range(bits))
        return sum((number >> row & 1) << i for i, row in enumerate(rows))

    return exact


ALL, SIGNED, BITS = "u16 s16 u32 s32 u64 s64", "s16 s32 s64", "b16 b32 b64"
NARROW, LONG, WIDE = "u16 s16 u32 s32", "u32 s32 u64 s64", "b32 b64"
FORMS = [
    Form("add.t", ALL, lambda n, a, b: a + b),
    Form("sub.t", ALL, lambda n, a, b: a - b),
    Form("add.sat.t", "s32", lambda n, a, b: clamp(n, a + b)),
    Form("sub.sat.t", "s32", lambda n, a, b: clamp(n, a - b)),
    Form("mul.lo.t", ALL, lambda n, a, b: a * b),
    Form("mul.hi.t", ALL, lambda n, a, b: a * b >> n),
    Form("mul.wide.t", NARROW, lambda n, a, b: a * b, result="w"),
    Form("mad.lo.t", ALL, lambda n, a, b, c: a * b + c, "t t t"),
    Form("mad.hi.t", ALL, lambda n, a, b, c: (a * b >> n) + c, "t t t"),
    Form("mad.hi.sat.t", "s32", lambda n, a, b, c: clamp(n, (a * b >> n) + c), "t t t"),
    Form("mad.wide.t", NARROW, lambda n, a, b, c: a * b + c, "t t w", "w"),
    Form("div.t", ALL, quotient),
    Form("rem.t", ALL, lambda n, a, b: a - b * quotient(n, a, b) if b else a),
    Form("min.t", ALL, lambda n, a, b: min(a, b)),
    Form("max.t", ALL, lambda n, a, b: max(a, b)),
    Form("abs.t", SIGNED, lambda n, a: abs(a), "t"),
    Form("neg.t", SIGNED, lambda n, a: -a, "t"),
    Form("and.t", BITS, lambda n, a, b: a & b),
    Form("or.t", BITS, lambda n, a, b: a | b),
    Form("xor.t", BITS, lambda n, a, b: a ^ b),
    Form("not.t", BITS, lambda n, a: ~a, "t"),
    Form("cnot.t", BITS, lambda n, a: int(a == 0), "t"),
    Form("shl.t", BITS, lambda n, a, b: a << min(b, n), "t u32"),
    Form("shr.t", f"{ALL} {BITS}", lambda n, a, b: a >> min(b, n), "t u32"),
    Form("shf.l.wrap.t", "b32", funnel(True, True), "t t u32"),
    Form("shf.l.clamp.t", "b32", funnel(True, False), "t t u32"),
    Form("shf.r.wrap.t", "b32", funnel(False, True), "t t u32"),
    Form("shf.r.clamp.t", "b32", funnel(False, False), "t t u32"),
    Form("popc.t", WIDE, lambda n, a: a.bit_count(), "t", "u32"),
    Form("clz.t", WIDE, lambda n, a: n - a.bit_length(), "t", "u32"),
    Form("bfind.t", LONG, leading, "t", "u32"),
    Form("bfind.shiftamt.t", LONG, shift_amount, "t", "u32"),
    Form("brev.t", WIDE, lambda n, a: int(f"{a:0{n}b}"[::-1], 2), "t"),
    Form("bfe.t", "u32 u64", extract, "t u32 u32"),
    Form("bfe.t", "s32 s64", lambda *v: extract(*v, signed=True), "t u32 u32"),
    Form("bfi.t", WIDE, insert, "t t u32 u32"),
    Form("prmt.t", "b32", permute, "t t t"),
    *(Form("lop3.t", "b32", table(n), "t t t", extra=f", {n}") for n in (0, 0x96, 0xCA, 0x1B, 255)),
    Form("selp.t", f"{ALL} {BITS}", lambda n, a, b, c: a if c else b, "t t pred"),
    Form("slct.t.s32", f"{ALL} {BITS}", lambda n, a, b, c: a if c >= 0 else b, "t t s32"),
    Form("mov.t", f"{ALL} {BITS}", lambda n, a: a, "t"),
]  # fmt: skip
CASES = [
    pytest.param(form, kind, id=form.name.replace(".t", f".{kind}") + form.extra)
    for form in FORMS
    for kind in form.types.split()
]
AMOUNTS = [0, 1, 5, 7, 15, 16, 17, 31, 32, 33, 63, 64, 65, 255, 256, 2**31, 2**32 - 1]


def integers(kind: str, count: int = 4) -> list[int]:
    """Edges of a type, and some values between them."""
    if kind == "pred":
        return [0, 1]
    limits = np.iinfo(DTYPES[kind])
    edges = [0, 1, 2, 7, limits.max, limits.max - 1, limits.min, limits.min + 1, limits.max // 3]
    random = np.random.default_rng(len(kind)).integers(limits.min, limits.max, count, limits.dtype)
    return sorted({*edges, *(-1, -7) * (limits.min < 0), *map(int, random)})


def operand_types(form: Form, kind: str) -> list[str]:
    twice = f"{kind[0]}{2 * int(kind[1:])}"
    names = {"t": kind, "w": twice}
    return [names.get(o, o) for o in (*form.operands.split(), form.result)]


def wrapped(value: int, kind: str) -> int:
    bits = int(kind[1:])
    value %= 1 << bits
    return value - (1 << bits) if kind[0] == "s" and value >> bits - 1 else value


@pytest.mark.parametrize(("form", "kind"), CASES)
def test_integer_instructions_agree_with_pythons_integers(form: Form, kind: str) -> None:
    *operands, result = operand_types(form, kind)
    amounts = form.name.startswith(("sh", "bf")) and form.name != "bfind"
    choices = [
        AMOUNTS if amounts and i and o == "u32" and o != form.operands[0] else integers(o)
        for i, o in enumerate(operands)
    ]
    rows = list(product(*choices))
    if len(rows) > 3000:
        rows = [rows[i] for i in np.random.default_rng(0).permutation(len(rows))[:3000]]
    names = ", ".join(f"%{n}" for n in "dabce"[: len(operands) + 1])
    code = f"{form.name.replace('.t', f'.{kind}')} {names}{form.extra}"
    bits = int(kind[1:])
    wanted = [wrapped(form.exact(bits, *row), result) for row in rows]
    columns = [np.array(c, object) for c in zip(*rows, strict=True)]
    assert evaluate(code, result, operands, *columns).tolist() == wanted
    # With the same value in all threads, which registers keep as one number.
    one = evaluate(code, result, operands, *(np.array([c], object) for c in rows[-2]))
    assert one.tolist() == wanted[-2:-1]


@pytest.mark.parametrize("bits", [32, 64])
def test_carries_and_borrows_make_longer_sums(bits: int) -> None:
    values = [v % (1 << bits) for v in (0, 1, -1, -2, 1 << bits - 1, 12345)]
    columns = [np.array(c, object) for c in zip(*product(values, repeat=4), strict=True)]
    low, high, other_low, other_high = columns
    long = (high << bits) + low, (other_high << bits) + other_low
    kinds = [f"u{bits}"] * 4
    r = "r" if bits == 32 else "q"
    for op, total in (("add", long[0] + long[1]), ("sub", long[0] - long[1])):
        code = {
            "add": "add.cc.t %13, %a, %c; addc.cc.t %14, %b, %e; addc.t %15, 7, 2;",
            "sub": "sub.cc.t %13, %a, %c; subc.cc.t %14, %b, %e; subc.t %15, 7, 2;",
        }[op]
        code = re.sub(r"%(?=\d)", f"%{r}", code.replace(".t ", f".u{bits} "))
        parts = [total >> bits * i & ((1 << bits) - 1) for i in range(2)]
        for register, wanted in zip((13, 14), parts, strict=True):
            found = evaluate(f"{code} mov.b{bits} %d, %{r}{register}", kinds[0], kinds, *columns)
            assert found.tolist() == wanted.tolist()
        beyond = evaluate(f"{code} mov.b{bits} %d, %{r}15", kinds[0], kinds, *columns)
        carry = (total >> 2 * bits) & 1
        assert beyond.tolist() == (9 + carry if op == "add" else 5 - carry).tolist()


def test_a_carry_stays_with_its_lane() -> None:
    body = """setp.lt.u32 %p0, %r0, 16; mov.u32 %r5, 0;
        @%p0 add.cc.u32 %r4, -1, 1; @!%p0 add.cc.u32 %r4, 1, 1; addc.u32 %r5, 0, 0;
        st.global.u32 [%q9], %r5;"""
    assert lanes(body).tolist() == [1] * 16 + [0] * 16


# --- comparing ---

ORDER: dict[str, Callable[[Any, Any], Any]] = {
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b, "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b,
}  # fmt: skip
UNSIGNED_ORDER = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}


@pytest.mark.parametrize("kind", f"{ALL} {BITS}".split())
def test_integers_compare_and_comparisons_combine(kind: str) -> None:
    rows = list(product(integers(kind), integers(kind), [0, 1]))
    columns = [np.array(c, object) for c in zip(*rows, strict=True)]
    kinds = [kind, kind, "pred"]
    names = [*ORDER, *UNSIGNED_ORDER][: {"b": 2, "s": 6, "u": 10}[kind[0]]]
    boolean: dict[str, Any] = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}
    for name in names:
        truth = np.array([ORDER[UNSIGNED_ORDER.get(name, name)](a, b) for a, b, _ in rows])
        c = columns[2].astype(bool)
        found = evaluate(f"setp.{name}.{kind} %d, %a, %b", "pred", kinds, *columns)
        assert (found == truth).all()
        found = evaluate(f"set.{name}.u32.{kind} %d, %a, %b", "u32", kinds, *columns)
        assert (found == np.where(truth, 0xFFFFFFFF, 0)).all()
        found = evaluate(f"set.{name}.f32.{kind} %d, %a, %b", "f32", kinds, *columns)
        assert (found == truth).all()
        for combine, function in boolean.items():
            code = f"setp.{name}.{combine}.{kind} %p0|%p1, %a, %b, "
            for suffix, third in (("%c", c), ("!%c", ~c)):
                for p, t in ((0, truth), (1, ~truth)):
                    whole = f"{code}{suffix}; mov.pred %d, %p{p}"
                    found = evaluate(whole, "pred", kinds, *columns)
                    assert (found == function(t, third)).all(), whole
            code = f"set.{name}.{combine}.s32.{kind} %d, %a, %b, !%c"
            found = evaluate(code, "s32", kinds, *columns)
            assert (found == -function(truth, ~c).astype(int)).all()


@pytest.mark.parametrize(
    ("code", "function"),
    [
        ("and.pred %d, %a, %b", np.logical_and),
        ("or.pred %d, %a, %b", np.logical_or),
        ("xor.pred %d, %a, %b", np.logical_xor),
        ("and.pred %d, %a, !%b", lambda a, b: a & ~b),
        ("not.pred %d, %a", lambda a, b: ~a),
        ("mov.pred %d, %b", lambda a, b: b),
    ],
)
def test_predicates_combine(code: str, function: Callable[..., Array]) -> None:
    a, b = np.array([0, 0, 1, 1], bool), np.array([0, 1, 0, 1], bool)
    assert (evaluate(code, "pred", ["pred", "pred"], a, b) == function(a, b)).all()


# --- moving ---


@pytest.mark.parametrize(
    ("code", "kind", "wanted"),
    [
        ("mov.b32 {%h1, %h2}, %a; mov.b32 %d, {%h2, %h1}", "u32", 0x77885566),
        ("mov.b64 {%r5, %r6}, %a; mov.b64 %d, {%r6, %r5}", "u64", 0x5566778811223344),
        ("mov.b64 {_, %r6}, %a; cvt.u64.u32 %d, %r6", "u64", 0x11223344),
        ("mov.b64 {%h1, %h2, _, %h4}, %a; mov.b64 %d, {%h2, %h4, %h4, %h1}", "u64",
         0x7788112211225566),
    ],
)  # fmt: skip
def test_registers_are_packed_and_unpacked(code: str, kind: str, wanted: int) -> None:
    given = np.full(3, 0x1122334455667788, object) % (1 << int(kind[1:]))
    assert evaluate(code, kind, [kind], given).tolist() == [wanted] * 3
