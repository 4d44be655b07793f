"""PTX instructions that read and write memory: spaces, addresses, atomics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from test_ptx_instructions import DTYPES, lanes, run

from demopool import ptx

LANE = np.arange(32)

# --- loads and stores ---


VECTORS = [("v2", 8), ("v2", 16), ("v2", 32), ("v2", 64), ("v4", 8), ("v4", 16), ("v4", 32)]
VECTORS += [("v4", 64), ("v8", 32)]  # from sm_100 on


@pytest.mark.parametrize(("vector", "bits"), VECTORS)
def test_vectors_are_loaded_and_stored(vector: str, bits: int) -> None:
    count = int(vector[1])
    dtype = f"u{bits // 8}"
    given = np.arange(8 * count, dtype=dtype) + 1
    out = np.zeros_like(given)
    letter = {64: "q", 32: "r"}.get(bits, "h")
    names = [f"%{letter}{4 + i}" for i in range(count)]
    body = f"""mad.wide.u32 %q12, %r0, {count * bits // 8}, %q1;
        mad.wide.u32 %q13, %r0, {count * bits // 8}, %q0;
        ld.global.{vector}.u{bits} {{{", ".join(names)}}}, [%q12];
        st.global.{vector}.u{bits} [%q13], {{{", ".join(names[::-1])}}};"""
    run(body, out, given, block=8)
    assert (out.reshape(8, count) == given.reshape(8, count)[:, ::-1]).all()


@pytest.mark.parametrize("space", ["global", "global.nc", "shared", "local", ""])
@pytest.mark.parametrize("kind", ["u8", "s8", "u16", "s16"])
def test_narrow_loads_extend_and_narrow_stores_cut(kind: str, space: str) -> None:
    values = np.array([0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x12345678], np.uint32)
    width = int(kind[1:]) // 8
    at = "%q1" if "global" in space or not space else "%q13"
    store = f"st.{space} " if space in ("shared", "local") else ""
    ld = f"ld.{space}.{kind}" if space else f"ld.{kind}"
    body = f"""mad.wide.u32 %q14, %r0, {width}, {at};
        {f"ld.global.u32 %r4, [%q10]; {store.strip()}.u{8 * width} [%q14], %r4;" if store else ""}
        {ld} %r5, [%q14]; {ld} %q15, [%q14]; cvt.u32.u64 %r6, %q15; shr.u64 %q15, %q15, 32;
        cvt.u32.u64 %r7, %q15; st.global.u32 [%q9], %r5;
        st.global.u32 [%q9+{4 * len(values)}], %r6; st.global.u32 [%q9+{8 * len(values)}], %r7;"""
    if store:
        body = f".{space} .align 8 .b8 memory[64]; mov.u64 %q13, memory;" + body
    narrow = values.astype(DTYPES[kind])
    out = np.zeros(3 * len(values), np.uint32)
    run(body, out, values if store else narrow, block=len(values))
    wide = narrow.astype(np.int64)
    wanted = [wide & 0xFFFFFFFF, wide & 0xFFFFFFFF, wide >> 32 & 0xFFFFFFFF]
    assert out.reshape(3, -1).tolist() == np.array(wanted).tolist()


def test_constant_global_and_shared_variables_have_their_own_addresses() -> None:
    before = """.const .align 4 .u32 numbers[4] = {10, 0x14, 30, 40};
        .global .align 8 .f64 half = 0d3FE0000000000000;
        .extern .shared .align 16 .b8 dynamic[];\n"""
    body = """.shared .align 4 .b32 fixed[32];
        and.b32 %r4, %r0, 3; mul.wide.u32 %q4, %r4, 4; mov.u64 %q5, numbers; add.u64 %q5, %q5, %q4;
        ld.const.u32 %r5, [%q5]; cvta.const.u64 %q6, %q5; ld.u32 %r6, [%q6];
        ld.global.f64 %q7, [half]; cvt.rn.f32.f64 %r7, %q7; mul.f32 %r7, %r7, 0f41000000;
        cvt.rzi.u32.f32 %r7, %r7; ldu.global.f64 %q7, [half]; mov.u64 %q8, fixed;
        mad.wide.u32 %q8, %r0, 4, %q8; mov.u64 %q11, dynamic; mad.wide.u32 %q11, %r0, 4, %q11;
        st.shared.u32 [%q8], %r5; st.shared.u32 [%q11], %r6;
        ld.shared.u32 %r5, [%q8]; ld.shared::cta.u32 %r6, [%q11];
        add.u32 %r5, %r5, %r6; add.u32 %r5, %r5, %r7; st.global.u32 [%q9], %r5;"""
    found = lanes(body, before=before, shared=128)
    assert found.tolist() == (np.array([10, 20, 30, 40])[LANE & 3] * 2 + 4).tolist()


@pytest.mark.parametrize("space", ["shared", "local", "global"])
def test_generic_addresses_know_their_space(space: str) -> None:
    memory = (
        f".{space} .align 4 .b8 memory[128]; mov.u64 %q4, memory; mad.wide.u32 %q4, %r0, 4, %q4;"
    )
    body = f"""{memory if space != "global" else "mov.u64 %q4, %q10;"}
        cvta.{space}.u64 %q5, %q4; st.u32 [%q5], %r0; cvta.to.{space}.u64 %q6, %q5;
        ld.{space}.u32 %r4, [%q6]; isspacep.shared %p0, %q5; isspacep.local %p1, %q5;
        isspacep.global %p2, %q5; selp.u32 %r5, 100, 0, %p0; selp.u32 %r6, 200, 0, %p1;
        selp.u32 %r7, 400, 0, %p2; add.u32 %r4, %r4, %r5; add.u32 %r4, %r4, %r6;
        add.u32 %r4, %r4, %r7; st.global.u32 [%q9], %r4;"""
    found = lanes(body, np.zeros(32, np.uint32))
    assert found.tolist() == (LANE + {"shared": 100, "local": 200, "global": 400}[space]).tolist()


def test_one_generic_load_can_reach_several_spaces() -> None:
    body = """.shared .align 4 .b8 memory[128]; mov.u64 %q4, memory; mad.wide.u32 %q4, %r0, 4, %q4;
        add.u32 %r4, %r0, 1000; st.shared.u32 [%q4], %r4; cvta.shared.u64 %q5, %q4;
        and.b32 %r5, %r0, 1; setp.eq.u32 %p0, %r5, 0; selp.u64 %q5, %q5, %q10, %p0;
        ld.u32 %r6, [%q5]; st.global.u32 [%q9], %r6;"""
    found = lanes(body, np.arange(32, dtype=np.uint32))
    assert found.tolist() == np.where(LANE % 2, LANE, LANE + 1000).tolist()


@pytest.mark.parametrize(
    "hint",
    ["volatile.global", "relaxed.gpu.global", "global.cg", "global.L1::no_allocate", "weak.global"],
)
def test_hints_do_not_change_what_is_loaded(hint: str) -> None:
    body = f"""prefetch.global.L2 [%q10]; prefetchu.L1 [%q10]; ld.{hint}.u32 %r4, [%q10];
        st.{hint}.u32 [%q9], %r4;"""
    given = np.arange(32, dtype=np.uint32)
    assert (lanes(body, given) == given).all()


PAIRS = """.shared .align 8 .b8 memory[256]; shr.u32 %r4, %r3, 1; mov.u64 %q4, memory;
    mad.wide.u32 %q4, %r4, 8, %q4; shr.u32 %r5, %r0, 1; mov.b64 %q6, {%r5, 0x3FF00000};
    st.shared.u64 [%q4], %q6; bar.sync 0; ld.shared.v2.u32 {%r6, %r7}, [%q4];
    st.global.u32 [%q9], %r6;"""
"""Pairs of lanes of two blocks store the same number of 64 bits at one place."""


def test_equal_stores_at_once_are_no_race_in_code_of_triton() -> None:
    out = np.zeros(128, np.uint32)
    run(PAIRS, out, grid=2, block=64, triton=True)
    assert out.tolist() == (np.arange(128) // 2).tolist()


@pytest.mark.parametrize(
    ("body", "triton", "says"),
    [
        (PAIRS, False, "several threads write it at once"),
        (PAIRS.replace("shr.u32 %r5, %r0, 1", "mov.u32 %r5, %r0"), True, "several threads write"),
        # A lane of the other warp may not have read it yet.
        (""".shared .align 4 .b8 memory[4]; mov.u32 %r4, 7; st.shared.u32 [memory], %r4; bar.sync 0;
            setp.eq.u32 %p0, %r3, 40; @%p0 ld.shared.u32 %r5, [memory];
            st.shared.u32 [memory], %r4;""", True, "another thread reads what it writes"),
    ],
)  # fmt: skip
def test_other_stores_at_once_are_races(body: str, triton: bool, says: str) -> None:
    with pytest.raises(ptx.Fault, match=says):
        run(body, np.zeros(128, np.uint32), grid=2, block=64, triton=triton)


# --- atomics ---

ATOMICS: list[tuple[str, str, Callable[[Any, Any], Any]]] = [
    *(("add", k, lambda o, v: o + v) for k in ("u32", "s32", "u64", "f32", "f64")),
    ("add.noftz", "f16", lambda o, v: o + v),
    *(("min", k, min) for k in ("u32", "s32", "u64", "s64")),
    *(("max", k, max) for k in ("u32", "s32", "u64", "s64")),
    *(("and", k, lambda o, v: o & v) for k in ("b32", "b64")),
    *(("or", k, lambda o, v: o | v) for k in ("b32", "b64")),
    *(("xor", k, lambda o, v: o ^ v) for k in ("b32", "b64")),
    *(("exch", k, lambda o, v: v) for k in ("b32", "b64")),
    ("inc", "u32", lambda o, v: 0 if o >= v else o + 1),
    ("dec", "u32", lambda o, v: v if o == 0 or o > v else o - 1),
]


@pytest.mark.parametrize("space", ["global", "shared"])
@pytest.mark.parametrize(("op", "kind", "step"), ATOMICS, ids=[f"{a[0]}.{a[1]}" for a in ATOMICS])
def test_atomics_of_colliding_threads_happen_one_after_the_other(
    op: str, kind: str, step: Callable[[Any, Any], Any], space: str
) -> None:
    dtype = np.dtype(DTYPES[kind])
    given = np.random.default_rng(1).integers(1, 9, 32).astype(dtype)
    if kind[0] == "s":
        given[::3] *= -1
    cells, old = np.full(5, 3, dtype), np.zeros(32, dtype)
    wanted, olds = [3] * 5, []
    for lane in range(32):
        olds.append(wanted[lane % 5])
        wanted[lane % 5] = step(wanted[lane % 5], given[lane].item())
    r, u = {2: "h", 4: "r", 8: "q"}[dtype.itemsize], f"u{8 * dtype.itemsize}"
    start = f"""rem.u32 %r4, %r0, 5; mad.wide.u32 %q14, %r4, {dtype.itemsize}, %q2;
        ld.global.{u} %{r}5, [%q10]; setp.lt.u32 %p0, %r0, 5;"""
    copy = "mov.u64 %q15, %q14;"
    if space == "shared":
        copy = f""".shared .align 8 .b8 memory[40]; mov.u64 %q15, memory;
            mad.wide.u32 %q15, %r4, {dtype.itemsize}, %q15; @%p0 ld.global.{u} %{r}6, [%q14];
            @%p0 st.shared.{u} [%q15], %{r}6; bar.sync 0;"""
    back = f"bar.sync 0; @%p0 ld.{space}.{u} %{r}6, [%q15]; @%p0 st.global.{u} [%q14], %{r}6;"
    atomic = f"atom.{space}.{op}.{kind} %{r}7, [%q15], %{r}5; st.global.{u} [%q9], %{r}7;"
    run(start + copy + atomic + back, old, given, cells)
    assert cells.tolist() == wanted
    assert old.tolist() == olds
    if op != "exch":  # which has no form that forgets the old value
        cells[:] = 3
        reduction = f"red.{space}.{op}.{kind} [%q15], %{r}5;"
        run(start + copy + reduction + back, old, given, cells)
        assert cells.tolist() == wanted


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_compare_and_swap_lets_one_thread_win_each_time(bits: int) -> None:
    """Each thread swaps its own number for the next: only in order do all of them succeed."""
    r = {16: "h", 32: "r", 64: "q"}[bits]
    body = f"""cvt.u{bits}.u32 %{r}5, %r0; add.u{bits} %{r}6, %{r}5, 1;
        atom.global.cas.b{bits} %{r}7, [%q1], %{r}5, %{r}6; st.global.u{bits} [%q9], %{r}7;"""
    cell, old = np.zeros(1, f"u{bits // 8}"), np.zeros(32, f"u{bits // 8}")
    run(body, old, cell)
    assert cell.tolist() == [32]
    assert old.tolist() == LANE.tolist()
    cell[0] = 40  # nobody expects this
    run(body, old, cell)
    assert cell.tolist() == [40]
    assert set(old.tolist()) == {40}


@pytest.mark.parametrize(("memory", "expected"), [("global", 0.0), ("shared", 3e-39)])
def test_a_float_atomic_flushes_subnormal_numbers_in_global_memory_only(
    memory: str, expected: float
) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    source = """extern "C" __global__ void k(float* x) {
      __shared__ float s; s = 0; __syncthreads();
      atomicAdd(MEMORY, 3e-39f); __syncthreads(); if (s != 0) *x = s; }"""
    where = {"global": "x", "shared": "&s"}[memory]
    found = np.zeros(1, np.float32)
    module = ptx.compile(source.replace("MEMORY", where), options=["-ftz=false"])
    module.launch("k", 1, 1, [found])
    assert found[0] == np.float32(expected)
