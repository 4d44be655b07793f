"""PTX instructions that concern several threads, or the way through a kernel."""

from __future__ import annotations

import ast
import re
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_ptx_instructions import DTYPES, HEAD, lanes, module, run

from demopool import ptx
from demopool.ptx.instructions import TABLE

Array = Any
LANE = np.arange(32)

# --- warps ---


def shuffled(mode: str, b: int, c: int) -> tuple[list[int], list[bool]]:
    """As the PTX manual has it."""
    sources, truths = [], []
    for lane in range(32):
        segment, value = c >> 8 & 31, c & 31
        least = lane & segment
        most = least | value & ~segment
        j = {"up": lane - b, "down": lane + b, "bfly": lane ^ b, "idx": least | b & ~segment}[mode]
        inside = j >= most if mode == "up" else j <= most
        sources.append(j if inside else lane)
        truths.append(inside)
    return sources, truths


@pytest.mark.parametrize("width", [32, 16, 8, 2, 1])
@pytest.mark.parametrize("mode", ["up", "down", "bfly", "idx"])
def test_shuffles_stay_in_their_segment(mode: str, width: int) -> None:
    base = (32 - width) << 8
    for c in (base | (0 if mode == "up" else 31), base | 5, base | 20):
        for b in (0, 1, 3, 7, 16, 31):
            body = f"""add.u32 %r4, %r0, 100; shfl.sync.{mode}.b32 %r5|%p0, %r4, {b}, {c}, -1;
                selp.u32 %r6, 1000, 0, %p0; add.u32 %r5, %r5, %r6; st.global.u32 [%q9], %r5;"""
            sources, truths = shuffled(mode, b, c)
            wanted = np.array(sources) + 100 + 1000 * np.array(truths)
            assert lanes(body).tolist() == wanted.tolist(), (b, c)


def test_a_shuffle_takes_its_lane_from_a_register_and_its_mask_from_the_active_ones() -> None:
    body = """mov.u32 %r5, 7; setp.lt.u32 %p0, %r0, 16; sub.u32 %r4, 15, %r0;
        @%p0 shfl.sync.idx.b32 %r5, %r0, %r4, 31, 0xFFFF; st.global.u32 [%q9], %r5;"""
    assert lanes(body).tolist() == [*range(15, -1, -1), *[7] * 16]


@pytest.mark.parametrize("most", [0, 1, 5, 31, 32])
@pytest.mark.parametrize("mode", ["all", "any", "uni", "ballot"])
def test_votes_count_the_lanes_of_the_mask(mode: str, most: int) -> None:
    """The lower half votes on its own, then the whole warp, with the negated predicate."""
    kind, wide = ("b32", "%r4") if mode == "ballot" else ("pred", "%p3")
    end = "" if mode == "ballot" else "selp.u32 %r4, 1, 0, %p3;"
    body = f"""setp.lt.u32 %p0, %r0, {most}; setp.lt.u32 %p1, %r0, 16; mov.u32 %r5, 0;
        @!%p1 bra ALL; vote.sync.{mode}.{kind} {wide}, %p0, 0xFFFF; {end} mov.u32 %r5, %r4;
        ALL: vote.sync.{mode}.{kind} {wide}, !%p0, -1; {end}
        st.global.u32 [%q9], %r5; st.global.u32 [%q9+128], %r4;"""
    out = np.zeros(64, np.uint32)
    run(body, out)
    below = most > LANE
    half = below[:16]
    ballots = [(1 << min(most, 16)) - 1, 0xFFFFFFFF & ~((1 << most) - 1)]
    wanted = {
        "all": [half.all(), (~below).all()],
        "any": [half.any(), (~below).any()],
        "uni": [half.all() or not half.any(), below.all() or not below.any()],
        "ballot": ballots,
    }[mode]
    assert out.tolist() == [int(wanted[0])] * 16 + [0] * 16 + [int(wanted[1])] * 32


@pytest.mark.parametrize("bits", [32, 64])
def test_match_finds_equal_lanes(bits: int) -> None:
    values = (LANE % 3).astype(f"u{bits // 8}") << (bits - 2)
    r = "r" if bits == 32 else "q"
    body = f"""ld.global.u{bits} %{r}14, [%q10]; match.any.sync.b{bits} %r5, %{r}14, -1;
        match.all.sync.b{bits} %r6|%p0, %{r}14, -1; mov.b{bits} %{r}15, 9;
        match.all.sync.b{bits} %r7|%p1, %{r}15, -1; selp.u32 %r8, 1, 0, %p0;
        selp.u32 %r10, 2, 0, %p1; add.u32 %r8, %r8, %r10; add.u32 %r8, %r8, %r6;
        add.u32 %r7, %r7, 1; add.u32 %r8, %r8, %r7; st.global.u32 [%q9], %r5;
        st.global.u32 [%q9+128], %r8;"""
    out = np.zeros(64, np.uint32)
    run(body, out, values)
    classes = [sum(1 << lane for lane in range(32) if lane % 3 == c) for c in range(3)]
    assert out[:32].tolist() == [classes[lane % 3] for lane in range(32)]
    assert out[32:].tolist() == [2] * 32  # not all (0 and false), then all (-1 and true)


@pytest.mark.parametrize(
    ("name", "kind"),
    [*product(("add", "min", "max"), ("u32", "s32")), *product(("and", "or", "xor"), ("b32",))],
)
def test_reductions_over_a_warp_and_over_a_part_of_it(name: str, kind: str) -> None:
    values = np.random.default_rng(2).integers(-(2**31), 2**31, 32).astype(DTYPES[kind])
    body = f"""ld.global.u32 %r4, [%q10]; setp.lt.u32 %p1, %r0, 11; mov.u32 %r5, 0;
        @%p1 redux.sync.{name}.{kind} %r5, %r4, 0x7FF; redux.sync.{name}.{kind} %r6, %r4, -1;
        add.u32 %r7, %r0, 32; st.global.u32 [%q9], %r5; st.global.u32 [%q9+128], %r6;"""
    out = np.zeros(64, DTYPES[kind])
    run(body, out, values)
    functions: dict[str, Any] = {
        "add": np.add, "min": np.minimum, "max": np.maximum,
        "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
    }  # fmt: skip
    part, whole = (functions[name].reduce(v, dtype=v.dtype) for v in (values[:11], values))
    assert out.tolist() == [part] * 11 + [0] * 21 + [whole] * 32


def test_the_active_mask_names_the_lanes_of_a_branch() -> None:
    body = """setp.lt.u32 %p0, %r0, 9; @%p0 bra LOW; activemask.b32 %r4; bra.uni END;
        LOW: activemask.b32 %r4; END: bar.warp.sync -1; activemask.b32 %r5;
        st.global.u32 [%q9], %r4; st.global.u32 [%q9+128], %r5;"""
    out = np.zeros(64, np.uint32)
    run(body, out)
    assert out.tolist() == [0x1FF] * 9 + [0xFFFFFE00] * 23 + [0xFFFFFFFF] * 32


def test_a_warp_barrier_orders_what_the_lanes_do() -> None:
    body = """.shared .align 4 .b8 memory[128]; mov.u64 %q4, memory; mad.wide.u32 %q5, %r0, 4, %q4;
        xor.b32 %r4, %r0, 1; mad.wide.u32 %q6, %r4, 4, %q4; st.shared.u32 [%q5], %r0;
        bar.warp.sync 0xFFFFFFFF; ld.shared.u32 %r5, [%q6]; st.global.u32 [%q9], %r5;"""
    assert lanes(body).tolist() == (LANE ^ 1).tolist()


# --- blocks ---


@pytest.mark.parametrize(
    "barrier", ["bar.sync 0", "bar.sync 3", "barrier.sync.aligned 0", "barrier.cta.sync 1"]
)
def test_a_barrier_orders_what_the_threads_of_a_block_do(barrier: str) -> None:
    body = f""".shared .align 4 .b8 memory[400]; mov.u64 %q4, memory; mad.wide.u32 %q5, %r3, 4, %q4;
        sub.u32 %r4, 99, %r3; mad.wide.u32 %q6, %r4, 4, %q4; st.shared.u32 [%q5], %r0;
        {barrier}; ld.shared.u32 %r5, [%q6]; st.global.u32 [%q9], %r5;"""
    out = np.zeros(300, np.uint32)
    counts = run(body, out, grid=3, block=100)
    assert out.reshape(3, 100)[:, ::-1].tolist() == np.arange(300).reshape(3, 100).tolist()
    assert counts.barriers == 3


@pytest.mark.parametrize("most", [0, 1, 50, 99, 100])
def test_a_barrier_counts_and_combines_predicates(most: int) -> None:
    body = f"""setp.lt.u32 %p0, %r3, {most}; bar.red.popc.u32 %r4, 0, %p0;
        bar.red.and.pred %p1, 0, %p0; barrier.cta.red.or.aligned.pred %p2, 1, %p0;
        bar.red.popc.u32 %r5, 0, !%p0; selp.u32 %r6, 1000, 0, %p1; selp.u32 %r7, 2000, 0, %p2;
        add.u32 %r4, %r4, %r6; add.u32 %r4, %r4, %r7; mad.lo.u32 %r4, %r5, 10000, %r4;
        st.global.u32 [%q9], %r4;"""
    wanted = most + 1000 * (most == 100) + 2000 * (most > 0) + 10000 * (100 - most)
    assert lanes(body, block=100).tolist() == [wanted] * 100


def test_fences_and_pauses_change_no_value() -> None:
    body = """membar.cta; membar.gl; membar.sys; fence.acq_rel.gpu; fence.sc.cta; nanosleep.u32 20;
        st.global.u32 [%q9], %r0;"""
    assert lanes(body).tolist() == LANE.tolist()


@pytest.mark.parametrize("block", [(5,), (64,), (7, 5), (3, 4, 5), (33, 2, 1)])
def test_special_registers_know_where_a_thread_is(block: tuple[int, ...]) -> None:
    grid = (2, 3, 2)
    sizes = (*block, 1, 1)[:3]
    threads = int(np.prod(block))
    names = [f"{n}.{a}" for n in ("tid", "ntid", "ctaid", "nctaid") for a in "xyz"]
    names += ["laneid", "warpid", "nwarpid"]
    names += [f"lanemask_{m}" for m in ("eq", "lt", "le", "gt", "ge")]
    body = """mov.u32 %r4, %ctaid.z; mov.u32 %r5, %ctaid.y; mov.u32 %r6, %ctaid.x;
        mad.lo.u32 %r4, %r4, 3, %r5; mad.lo.u32 %r4, %r4, 2, %r6;
        mov.u32 %r5, %tid.z; mov.u32 %r6, %tid.y; mov.u32 %r7, %ntid.y;
        mad.lo.u32 %r5, %r5, %r7, %r6; mov.u32 %r6, %tid.x; mov.u32 %r7, %ntid.x;
        mad.lo.u32 %r5, %r5, %r7, %r6;"""
    body += f"mad.lo.u32 %r4, %r4, {threads}, %r5; mad.wide.u32 %q4, %r4, {4 * len(names)}, %q0;"
    for i, name in enumerate(names):
        body += f"mov.u32 %r6, %{name}; st.global.u32 [%q4+{4 * i}], %r6;\n"
    found = np.zeros((12 * threads, len(names)), np.uint32)
    run(body, found, grid=grid, block=block)
    thread = np.tile(np.arange(threads), 12)
    lane = (thread % 32).astype(np.uint64)
    at = np.repeat(np.arange(12), threads)
    one = np.uint64(1)
    bit, full = one << lane, np.uint64(0xFFFFFFFF)
    columns = [
        thread % sizes[0], thread // sizes[0] % sizes[1], thread // (sizes[0] * sizes[1]), *sizes,
        at % 2, at // 2 % 3, at // 6, *grid, lane, thread // 32, -(-threads // 32),
        bit, bit - one, 2 * bit - one, full & ~(2 * bit - one), full & ~(bit - one),
    ]  # fmt: skip
    for name, column, wanted in zip(names, found.T, columns, strict=True):
        assert (column == wanted).all(), name


def test_shared_memory_sizes_and_clocks_can_be_read() -> None:
    body = """.shared .b8 fixed[48]; mov.u32 %r4, %dynamic_smem_size; mov.u32 %r5, %total_smem_size;
        mov.u32 %r6, %clock; mov.u64 %q4, %clock64; mov.u32 %r7, %smid;
        mad.lo.u32 %r4, %r4, 1000, %r5; st.global.u32 [%q9], %r4;"""
    before = ".extern .shared .align 16 .b8 dynamic[];\n"
    assert set(lanes(body, before=before, shared=64).tolist()) == {64 * 1000 + 112}


# --- the way through a kernel ---


def test_guards_choose_the_lanes_that_run_an_instruction() -> None:
    body = """and.b32 %r4, %r0, 1; setp.eq.u32 %p0, %r4, 1; mov.u32 %r5, 0; @%p0 mov.u32 %r5, 11;
        @!%p0 mov.u32 %r5, 22; @%p0 st.global.u32 [%q9], %r5; @!%p0 st.global.u32 [%q9], %r5;"""
    assert lanes(body).tolist() == np.where(LANE % 2, 11, 22).tolist()


def test_branches_diverge_and_come_together() -> None:
    body = """mov.u32 %r5, 0; and.b32 %r4, %r0, 3; setp.eq.u32 %p0, %r4, 0; @%p0 bra ZERO;
        setp.eq.u32 %p1, %r4, 1; @!%p1 bra MANY; add.u32 %r5, %r5, 10; bra DONE;
        MANY: add.u32 %r5, %r5, 20; bra.uni DONE; ZERO: add.u32 %r5, %r5, 30;
        DONE: add.u32 %r5, %r5, 1; st.global.u32 [%q9], %r5;"""
    assert lanes(body, block=70).tolist() == [[31, 11, 21, 21][i % 4] for i in range(70)]


def test_loops_may_take_another_number_of_turns_in_every_lane() -> None:
    """Collatz: how many steps to 1."""
    body = """add.u32 %r4, %r0, 1; mov.u32 %r5, 0;
        LOOP: setp.eq.u32 %p0, %r4, 1; @%p0 bra DONE; add.u32 %r5, %r5, 1; and.b32 %r6, %r4, 1;
        setp.eq.u32 %p1, %r6, 1; @%p1 mad.lo.u32 %r4, %r4, 3, 1; @%p1 bra LOOP;
        shr.u32 %r4, %r4, 1; bra LOOP;
        DONE: st.global.u32 [%q9], %r5;"""

    def steps(n: int) -> int:
        return 0 if n == 1 else 1 + steps(3 * n + 1 if n % 2 else n // 2)

    assert lanes(body, block=(100,)).tolist() == [steps(n) for n in range(1, 101)]


@pytest.mark.parametrize("leave", ["exit", "ret"])
def test_some_threads_may_leave_early(leave: str) -> None:
    body = "mov.u32 %r4, 5; setp.gt.u32 %p0, %r0, 9; @%p0 exit; st.global.u32 [%q9], %r4;"
    body = body.replace("exit", leave)
    assert lanes(body).tolist() == [5] * 10 + [0] * 22


FUNCTION = """.func (.param .b32 result) choose(.param .b32 x, .param .b64 y) {
    .local .align 4 .b8 kept[8]; .reg .pred %p; .reg .b32 %r<4>; .reg .b64 %q<2>;
    ld.param.u32 %r0, [x]; ld.param.u64 %q0, [y]; st.local.u32 [kept+4], %r0;
    and.b32 %r1, %r0, 1; setp.eq.u32 %p, %r1, 1; @%p bra ODD;
    cvt.u32.u64 %r2, %q0; st.param.b32 [result], %r2; ret;
    ODD: ld.local.u32 %r3, [kept+4]; mul.lo.u32 %r3, %r3, 100; st.param.b32 [result], %r3; ret;
    }\n"""


@pytest.mark.parametrize("guard", ["", "@%p1 "])
def test_a_called_function_returns_what_each_lane_makes(guard: str) -> None:
    """Its lanes return at different places; with a guard only some of them call it."""
    body = f"""setp.lt.u32 %p1, %r0, 20; cvt.u64.u32 %q4, %r0; add.u64 %q4, %q4, 7; mov.u32 %r5, 3;
        .param .b32 x; .param .b64 y; .param .b32 result; st.param.b32 [x], %r0;
        st.param.b64 [y], %q4; st.param.b32 [result], %r5;
        {guard}call (result), choose, (x, y); ld.param.b32 %r5, [result];
        st.global.u32 [%q9], %r5;"""
    called = np.where(LANE % 2, LANE * 100, LANE + 7)
    wanted = np.where((LANE < 20) | (not guard), called, 3)
    assert lanes(body, before=FUNCTION).tolist() == wanted.tolist()


def test_a_trap_is_a_fault_of_the_kernel() -> None:
    with pytest.raises(ptx.Fault, match=r"assertion.*thread \(4, 0, 0\)"):
        lanes("setp.eq.u32 %p0, %r0, 4; @%p0 trap; st.global.u32 [%q9], %r0;")


# --- what is not understood ---


@pytest.mark.parametrize(
    ("code", "named"),
    [
        ("frobnicate.u32 %r4, %r0", "frobnicate"),
        ("mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32 %r4, %r4, %r4, %r4", "mma"),
        ("add.wrong.s32 %r4, %r0, 1", r"\.wrong"),
        ("ld.global.wrong.u32 %r4, [%q0]", r"\.wrong"),
        ("setp.lt.wrong.u32 %p0, %r0, 1", r"\.wrong"),
        ("mma.sync.aligned.m16n8k8.row.col.f32.tf32.bf16.f32 %r4, %r4, %r4, %r4", "mma"),
        ("mma.sync.aligned.m16n8k8.row.row.f32.f16.f16.f32 %r4, %r4, %r4, %r4", "mma"),
        ("mma.sync.aligned.m16n8k8.row.col.f16.bf16.bf16.f16 %r4, %r4, %r4, %r4", "mma"),
        ("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 %r4, %r4, %r4, %r4", "mma"),
        ("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%r4}, {%r4}, {%r4}, {%r4}", "mma"),
        ("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r4}, [%r0]", "ldmatrix"),
        ("ldmatrix.sync.aligned.m8n8.x1.b16 {%r4}, [%q0]", "ldmatrix"),
        ("cp.async.cg.shared.global [%r4], [%q0], 8", "8 bytes"),
        ("cp.async.bulk.wait_group 0", r"\.bulk"),
        ("cp.async.mbarrier.arrive.shared.b64 [%r4]", r"\.mbarrier"),
        ("cvt.rna.f16.f32 %h4, %r0", r"\.rna"),
        ("cvt.rp.tf32.f32 %r4, %r0", r"\.tf32"),
        ("add.tf32 %r4, %r4, %r4", "tf32"),
        ("shfl.sync.idx.wrong.b32 %r4, %r0, 0, 31, -1", r"\.wrong"),
        ("shfl.sync.wrong.b32 %r4, %r0, 0, 31, -1", "shfl"),
        ("vote.sync.wrong.pred %p0, %p1, -1", "vote"),
        ("redux.sync.wrong.u32 %r4, %r0, -1", "redux"),
        ("redux.sync.min.abs.f32 %r4, %r0, -1", "redux"),
        ("match.wrong.sync.b32 %r4, %r0, -1", "match"),
        ("fence.wrong", r"\.wrong"),
        ("add.rn.bf16 %h1, %h2, %h3", "bf16"),
        ("fma.rn.f16x2 %r4, %r4, %r4, %r4", "f16x2"),
        ("max.bf16x2 %r4, %r4, %r4", "bf16x2"),
        ("setp.lt.bf16x2 %p0|%p1, %r4, %r5", "bf16x2"),
        ("set.eq.bf16.bf16 %h1, %h2, %h3", "bf16"),
        ("atom.global.add.noftz.bf16 %h1, [%q0], %h2", "bf16"),
        ("red.global.add.noftz.f16x2 [%q0], %r0", "f16x2"),
        ("bar.sync 1, 64", "bar.sync 1, 64"),
        ("bar.arrive 1, 64", "bar.arrive"),
        ("bar.red.popc.u32 %r4, 1, 64, %p0", "bar.red"),
        ("mov.u32 %r4, %envreg3", "%envreg3"),
        ("isspacep.const %p0, %q0", "isspacep"),
        ("call (x), nobody, (y)", "nobody"),
    ],
)
def test_what_is_not_understood_is_an_error_that_names_it(code: str, named: str) -> None:
    with pytest.raises(ptx.UnknownInstruction, match=named):
        lanes(f"{code};")


def test_exit_and_barriers_in_functions_are_refused() -> None:
    for code in ("exit", "bar.sync 0"):
        before = f".func stop() {{ {code}; ret; }}\n"
        with pytest.raises(ptx.UnknownInstruction, match=code):
            lanes("call stop;", before=before)


def test_an_instruction_nobody_runs_is_no_error() -> None:
    text = f"{HEAD}.entry good() {{ ret; }}\n.entry bad() {{ frobnicate; ret; }}"
    module(text).launch("good", 1, 32, [])


def test_every_instruction_is_in_these_tests() -> None:
    """A new instruction needs a test: its name must start a statement in one of these files."""
    found = set()
    files = ("instructions", "memory", "floats", "conversions", "threads", "matrices", "copies")
    for name in files:
        text = Path(__file__).with_name(f"test_ptx_{name}.py").read_text()
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                statement = r"(?:^|[;:{}\n])\s*(?:@!?%\w+\s+)?([a-z]\w*)(?:[.;]|\s\(|$)"
                found |= set(re.findall(statement, node.value))
    assert set(TABLE) <= found
