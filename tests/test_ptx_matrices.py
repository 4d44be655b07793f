"""Matrix instructions of PTX: where the manual has every element, and how sums are rounded."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from test_ptx_floats import rounded
from test_ptx_instructions import run

from demopool import ptx
from demopool.ptx import FaultKind
from demopool.ptx import floats as formats

Array = Any
Places = Callable[[int, int], list[tuple[int, int]]]
"""Row and column of the elements of a lane, from its group and its place within it."""

# As the PTX manual lists them, one by one.
LEFT: dict[tuple[int, int], Places] = {
    (32, 4): lambda g, t: [(g, t), (g + 8, t)],
    (32, 8): lambda g, t: [(g, t), (g + 8, t), (g, t + 4), (g + 8, t + 4)],
    (16, 8): lambda g, t: [(g, 2 * t), (g, 2 * t + 1), (g + 8, 2 * t), (g + 8, 2 * t + 1)],
    (16, 16): lambda g, t: [
        (g, 2 * t), (g, 2 * t + 1), (g + 8, 2 * t), (g + 8, 2 * t + 1),
        (g, 2 * t + 8), (g, 2 * t + 9), (g + 8, 2 * t + 8), (g + 8, 2 * t + 9),
    ],
}  # fmt: skip
RIGHT: dict[tuple[int, int], Places] = {
    (32, 4): lambda g, t: [(t, g)],
    (32, 8): lambda g, t: [(t, g), (t + 4, g)],
    (16, 8): lambda g, t: [(2 * t, g), (2 * t + 1, g)],
    (16, 16): lambda g, t: [(2 * t, g), (2 * t + 1, g), (2 * t + 8, g), (2 * t + 9, g)],
}
SUMS: Places = lambda g, t: [(g, 2 * t), (g, 2 * t + 1), (g + 8, 2 * t), (g + 8, 2 * t + 1)]  # noqa: E731

FORMS = [
    *(("tf32", depth, "f32") for depth in (4, 8)),
    *((kind, depth, "f32") for kind in ("bf16", "f16") for depth in (8, 16)),
    *(("f16", depth, "f16") for depth in (8, 16)),
]


def to_bits(x: Array, kind: str) -> Array:
    if kind in ("f32", "tf32"):
        bits = x.astype(np.float32).view(np.uint32)
        return formats.to_tf32(x.astype(np.float32)) if kind == "tf32" else bits
    return formats.to_bfloat16(x) if kind == "bf16" else x.astype(np.float16).view(np.uint16)


def held(x: Array, kind: str, places: Places) -> Array:
    """The registers of all lanes: (32, registers) words."""
    bits = to_bits(x, kind)
    rows = [[bits[place] for place in places(lane // 4, lane % 4)] for lane in range(32)]
    return np.ascontiguousarray(np.array(rows, bits.dtype)).view(np.uint32)


def from_held(registers: Array, kind: str) -> Array:
    found = np.zeros((16, 8), np.float32 if kind == "f32" else np.float16)
    values = registers.view(found.dtype)
    for lane in range(32):
        for place, value in zip(SUMS(lane // 4, lane % 4), values[lane], strict=True):
            found[place] = value
    return found


def words(array: Array, register: int, base: int) -> tuple[str, str]:
    """Loads of a lane's words from the array at a 64-bit register, and the list of registers."""
    count = array.shape[1]
    names = [f"%r{base + i}" for i in range(count)]
    load = f"mad.wide.u32 %q12, %r0, {4 * count}, %q{register};"
    load += "".join(f"ld.global.u32 {name}, [%q12+{4 * i}];" for i, name in enumerate(names))
    return load, "{" + ", ".join(names) + "}"


def multiplied(
    A: Array, B: Array, C: Array, kind: str, to: str, before: str = "", **options: Any
) -> Array:
    """D = C + A B by one warp; ``before`` is put in front of the instruction."""
    depth, bits = A.shape[1], 32 if kind == "tf32" else 16
    inputs = [held(A, kind, LEFT[bits, depth]), held(B, kind, RIGHT[bits, depth])]
    inputs.append(held(C, to, SUMS))
    out = np.zeros_like(inputs[2])
    loaded = [words(x, i + 1, 4 + 8 * i) for i, x in enumerate(inputs)]
    results = "{" + ", ".join(f"%r{30 + i}" for i in range(out.shape[1])) + "}"
    operands = ", ".join([results, *(names for _, names in loaded)])
    body = "".join(load for load, _ in loaded) + before
    body += f"mma.sync.aligned.m16n8k{depth}.row.col.{to}.{kind}.{kind}.{to} {operands};"
    body += f"mad.wide.u32 %q12, %r0, {4 * out.shape[1]}, %q0;"
    body += "".join(f"st.global.u32 [%q12+{4 * i}], %r{30 + i};" for i in range(out.shape[1]))
    run(body, out, *inputs, **options)
    return from_held(out, to)


@pytest.mark.parametrize(("kind", "depth", "to"), FORMS)
def test_every_element_is_where_the_manual_has_it(kind: str, depth: int, to: str) -> None:
    """Small integers: every product and sum is exact in every format."""
    rng = np.random.default_rng(depth)
    A, B, C = (rng.integers(-5, 6, s).astype("f4") for s in ((16, depth), (depth, 8), (16, 8)))
    np.testing.assert_array_equal(multiplied(A, B, C, kind, to), A @ B + C)


@pytest.mark.parametrize(("kind", "depth", "to"), FORMS)
def test_products_are_exact_and_their_sum_is_rounded_once(kind: str, depth: int, to: str) -> None:
    """The exponents are so near that a sum in float64 is exact: 22 bits in a range of 2^20."""
    rng = np.random.default_rng(depth)
    spread = 2.0 ** rng.integers(-5, 6, (16, depth))
    A, B = rng.standard_normal((16, depth)) * spread, rng.standard_normal((depth, 8))
    A, B, C = (x.astype(np.float32) for x in (A, B, rng.standard_normal((16, 8))))
    if to == "f16":
        C = C.astype(np.float16).astype(np.float32)
    found = multiplied(A, B, C, kind, to)
    exact = [_exact(x, kind) for x in (A, B)]
    for i, j in np.ndindex(16, 8):
        products = (Fraction(exact[0][i, k]) * Fraction(exact[1][k, j]) for k in range(depth))
        value = sum(products, Fraction(float(C[i, j])))
        assert found[i, j] == rounded(value, to, "rn")


def _exact(x: Array, kind: str) -> Array:
    bits = to_bits(x, kind)
    if kind == "bf16":
        return formats.from_bfloat16(bits).astype(float)
    return bits.view(np.float32 if kind == "tf32" else np.float16).astype(float)


def test_infinity_and_nan_reach_the_elements_that_use_them() -> None:
    A, B, C = np.ones((16, 8)), np.ones((8, 8)), np.zeros((16, 8))
    A[3, 2], B[2, 5], A[7, 0] = np.inf, 0, np.nan
    wanted = np.full((16, 8), 8.0)
    wanted[:, 5], wanted[3], wanted[3, 5], wanted[7] = 7, np.inf, np.nan, np.nan
    np.testing.assert_array_equal(multiplied(A, B, C, "tf32", "f32"), wanted)


def test_every_warp_multiplies_its_own() -> None:
    body = """cvt.rn.f32.u32 %r4, %r1; cvt.rna.tf32.f32 %r4, %r4; mov.f32 %r5, 0f3F800000;
        shr.u32 %r6, %r3, 5; cvt.rn.f32.u32 %r6, %r6;
        mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32 {%r7, %r8, %r10, %r11}, {%r4, %r4},
        {%r5}, {%r6, %r6, %r6, %r6}; st.global.f32 [%q9], %r11;"""
    out = np.zeros((3, 2, 32), np.float32)
    counts = run(body, out, grid=3, block=64)
    wanted = 4 * np.arange(3).reshape(-1, 1, 1) + np.arange(2).reshape(1, -1, 1)
    np.testing.assert_array_equal(out, np.broadcast_to(wanted, out.shape))
    assert counts.tensor_flops == 6 * 2 * 16 * 8 * 4
    assert counts.flops == 0


# --- loads of fragments ---


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_matrices_are_loaded_by_rows(count: int, transposed: bool) -> None:
    """Rows lie 32 bytes apart, in another order than the lanes that have their addresses."""
    x = np.random.default_rng(count).integers(0, 2**16, (4, 8, 8)).astype(np.uint16)
    names = [f"%r{10 + i}" for i in range(count)]
    trans = ".trans" if transposed else ""
    body = f""".shared .align 16 .b8 memory[1024]; mov.u32 %r4, memory; xor.b32 %r5, %r0, 5;
        mad.lo.u32 %r5, %r5, 32, %r4; mad.wide.u32 %q4, %r0, 16, %q1;
        ld.global.v4.u32 {{%r20, %r21, %r22, %r23}}, [%q4];
        st.shared.v4.u32 [%r5], {{%r20, %r21, %r22, %r23}}; bar.warp.sync -1;
        ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 {{{", ".join(names)}}}, [%r5];"""
    body += "".join(f"st.global.u32 [%q9+{128 * i}], {name};" for i, name in enumerate(names))
    out = np.zeros((count, 32), np.uint32)
    counts = run(body, out, x)
    for i, lane in np.ndindex(count, 32):
        row, column = lane // 4, 2 * (lane % 4)
        pair = x[i, column : column + 2, row] if transposed else x[i, row, column : column + 2]
        assert out[i, lane] == int(pair[0]) | int(pair[1]) << 16
    assert counts.shared_requests == 2
    # Four rows of 32 bytes take all banks: eight rows need two passes.
    assert counts.shared_wavefronts == 4 * 2 + count * 2


# --- mistakes ---

ONES = (np.ones((16, 8)), np.ones((8, 8)), np.zeros((16, 8)))
TOGETHER = "all threads of the warp must come here together, and one "


@pytest.mark.parametrize(
    ("before", "how"),
    [
        ("setp.eq.u32 %p0, %r0, 5; @%p0 exit;", "has left or was never there"),
        ("setp.ne.u32 %p0, %r0, 5; @!%p0 bar.sync 0; @%p0 ", "never comes here"),
    ],
)
def test_a_lane_that_is_not_there_is_missed(before: str, how: str) -> None:
    with pytest.raises(ptx.Fault, match=f"{TOGETHER}{how}: it does not take part") as caught:
        multiplied(*ONES, "tf32", "f32", before)
    assert caught.value.kind is FaultKind.MISSING_THREAD


def test_a_block_must_consist_of_whole_warps() -> None:
    body = """.shared .align 16 .b8 memory[128]; mov.u32 %r4, memory;
        ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r5}, [%r4];"""
    with pytest.raises(ptx.Fault, match=f"{TOGETHER}has left or was never there"):
        run(body, block=20)


def test_an_operand_must_be_rounded_to_tf32() -> None:
    """NaN may have any bits; a number whose last bits only float32 has may not."""
    says = "a TF32 operand has bits that only float32 has"
    multiplied(*ONES, "tf32", "f32", "mov.u32 %r5, 0x7FFFFFFF;")
    with pytest.raises(ptx.Fault, match=says) as caught:
        multiplied(*ONES, "tf32", "f32", "setp.eq.u32 %p0, %r0, 9; @%p0 mov.u32 %r12, 0x3F800001;")
    assert caught.value.kind is FaultKind.UNDEFINED
    assert caught.value.thread == (9, 0, 0)


def test_bits_that_tf32_has_not_are_cut_off_in_code_of_triton() -> None:
    changed = "mov.u32 %r12, 0x3F800FFF;"  # of B, 1 in TF32
    wanted = multiplied(*ONES, "tf32", "f32")
    found = multiplied(*ONES, "tf32", "f32", changed, triton=True)
    np.testing.assert_array_equal(found, wanted)
    assert (multiplied(*ONES, "tf32", "f32", "mov.u32 %r12, 0x3F802FFF;", triton=True) > 8).all()


def test_an_operand_must_have_been_written() -> None:
    body = """mov.u32 %r4, 0; mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32
        {%r7, %r8, %r10, %r11}, {%r4, %r5}, {%r4}, {%r4, %r4, %r4, %r4};"""
    with pytest.raises(ptx.Fault, match="register never written"):
        run(body)


def test_rows_of_a_matrix_must_be_aligned_and_there() -> None:
    body = """.shared .align 16 .b8 memory[128]; mov.u32 %r4, memory; shl.b32 %r5, %r0, {0};
        add.u32 %r5, %r5, %r4; mov.u32 %r6, 0; shl.b32 %r7, %r0, 2; add.u32 %r7, %r7, %r4;
        st.shared.u32 [%r7], %r6; bar.warp.sync -1;
        ldmatrix.sync.aligned.m8n8.{1}.shared.b16 {2}, [%r5];"""
    run(body.format(4, "x1", "{%r8}"))
    with pytest.raises(ptx.Fault, match="16 bytes at an address that is no multiple of it"):
        run(body.format(3, "x1", "{%r8}"))
    with pytest.raises(ptx.Fault, match="byte 128 of shared memory, which has 128") as caught:
        run(body.format(4, "x2", "{%r8, %r10}"))
    assert caught.value.thread == (8, 0, 0)
