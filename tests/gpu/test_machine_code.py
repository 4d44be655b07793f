"""What the assembler makes of the kernels: 128 bits at a time, nothing spilled, loads in time."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
from click.testing import CliRunner
from effort import cases
from ptx_samples.cases import SOURCE

pytest.importorskip("cuda.bindings.nvrtc")
pytest.importorskip("cuda.pathfinder")

from demopool import ptx
from demopool.errors import BackendUnavailable
from demopool.implementations.cupy_cuda import signatures
from demopool.ptx import compiler
from tools import gpu, machine_code
from tools.machine_code import Kernel, Loop

TWO_LOOPS = """
\t.section\t.text.one,"ax",@progbits
one:
.L_x_0:
        /*0000*/                   LDG.E.64 R4, [R2.64] ;
        /*0010*/                   FFMA.FTZ R8, R6, R7.reuse, R8 ;
.L_x_1:
        /*0020*/                   LDS.128 R12, [R3.X4+0x80] ;
        /*0030*/              @!P0 LDG.E R20, desc[UR4][R2.64] ;
        /*0040*/                   FFMA.FTZ R8, R12, R13, R8 ;
        /*0050*/                   FFMA2 R8, R12.F32x2.HI_LO, R14.F32x2.HI_LO, R8 ;
        /*0060*/                   STS [R3], R20 ;
        /*0070*/               @P1 BRA `(.L_x_1) ;
        /*0080*/               @P2 BRA.U `(.L_x_0) ;
        /*0090*/                   EXIT ;
.L_x_2:
        /*00a0*/                   BRA `(.L_x_2);
\t.section\t.text.two,"ax",@progbits
        /*0000*/                   EXIT ;
"""
"""As ``nvdisasm`` writes it: a loop in a loop, and what it adds after the end of a kernel."""


def test_the_main_loop_is_the_innermost_one_with_most_products() -> None:
    found = machine_code.kernels(TWO_LOOPS)
    assert found["two"] == Kernel(1, None)
    assert found["one"].instructions == 11
    loop = found["one"].loop
    assert loop is not None
    assert [one.kind for one in loop.instructions] == ["LDS", "LDG", "FFMA", "FFMA2", "STS", "BRA"]
    assert (loop.products, loop.per_load, loop.hidden) == (3, 3, 3)
    assert [loop.count("LDS", bits) for bits in (32, 64, 128)] == [0, 0, 1]


@pytest.mark.parametrize(
    ("use", "hidden"),
    [
        ("FSEL R9, R21, RZ, !P0", 1),
        ("STS.64 [R3], R20", 1),
        ("HMMA.1688.F32.TF32 R24, R18, R30, R24", 1),
        ("LDS R9, [R21]", 1),
        ("STS [R3], R19", 2),
        ("MOV R21, R9", 2),
    ],
)
def test_a_load_is_used_by_what_reads_one_of_its_registers(use: str, hidden: int) -> None:
    """Through a wide operand too; the loop goes on at its start, and to write is not to read."""
    lines = [use, "FFMA R8, R6, R7, R8", "LDG.E.64 R20, [R2.64]", "FFMA R8, R6, R7, R8"]
    code = "".join(f"/*{i:04x}*/ {line} ;\n" for i, line in enumerate([*lines, "BRA `(.L_x_0)"]))
    loop = machine_code.kernels(f".section .text.one,\n.L_x_0:\n{code}")["one"].loop
    assert loop is not None
    assert loop.hidden == hidden


# --- the page ---

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "gpu-on-paper.md"
_INSTANCE = re.compile(r"`(\w+)`(?: in (float64))?")


def _rows_of_page() -> list[tuple[str, tuple[str, ...]]]:
    """Of the table of machine code: a kernel, and its row; two kernels may share one."""
    (table,) = re.findall(
        r"^\| kernel \| registers .*\n\|-.*\n((?:\|.*\n)+)", PAGE.read_text(), re.M
    )
    rows = [[cell.strip() for cell in line.strip("|\n").split("|")] for line in table.splitlines()]
    found = []
    for kernels, *cells in rows:
        made = _INSTANCE.findall(kernels)
        for place, (kernel, wide) in enumerate(made):
            registers = cells[0].split(", ")[place]
            instance = f"{kernel}<{'double' if wide else 'float'}>"
            found.append((instance, (registers, *cells[1:])))
    return found


ROWS = _rows_of_page()


def test_the_page_has_the_kernels_that_the_command_shows() -> None:
    assert {instance for instance, _ in ROWS} == set(gpu.SHOWN)


@pytest.mark.parametrize(("instance", "cells"), cases(ROWS, ROWS[::5]))
def test_the_page_says_what_the_machine_code_shows(instance: str, cells: tuple[str, ...]) -> None:
    needs, loop = _assembled(instance, "sm_80")
    registers, instructions, products, loads, per_load, fetches, hidden = cells
    assert needs.spilled_bytes == 0
    assert needs.registers == int(registers)
    assert len(loop.instructions) == int(instructions)
    assert loop.products == int(products.partition(" ")[0])
    narrow, wide = (0, 0) if loads == "-" else map(int, loads.split(", "))
    assert [loop.count("LDS", bits) for bits in (32, 128)] == [narrow, wide]
    assert loop.per_load == (None if per_load == "-" else pytest.approx(float(per_load), rel=0.02))
    count, bits = re.fullmatch(r"(\d+)(?: of (\d+) bits)?", fetches.replace("-", "0")).groups("32")
    assert loop.count("LDG", int(bits)) == loop.count("LDG") == int(count)
    assert loop.hidden == (None if hidden == "-" else int(hidden))


# --- the tools ---


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["gramm<float>"], r"cupy:cuda has no gramm<float>; it has gram, outer, .* and <double>"),
        (["gram_tf32<double>"], r"and gram_tf32, .*, from_triangle_128 of <float>\."),
        (["gram", "--source", "SAMPLES"], "samples.cu has no gram; it has squared_gram, "),
        (["gram", "--source", "FOLDER"], "is a directory"),
    ],
)
def test_what_there_is_not_is_a_sentence(arguments: list[str], sentence: str) -> None:
    places = {"SAMPLES": str(SOURCE), "FOLDER": str(Path(__file__).parent)}
    given = [places.get(word, word) for word in arguments]
    done = CliRunner().invoke(gpu.main, ["machine-code", *given])
    assert done.exit_code == 2
    assert re.search(sentence, done.output)


def test_triton_lends_its_disassembler_but_not_its_assembler(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Which may know an older PTX than that of the compiler."""
    pytest.importorskip("triton.backends.nvidia")
    monkeypatch.setattr("cuda.pathfinder.find_nvidia_binary_utility", lambda name: None)
    assert compiler._tool("nvdisasm").endswith("nvdisasm")
    with pytest.raises(BackendUnavailable, match="ptxas is not available: it is not installed"):
        compiler._tool("ptxas")


# --- the kernels ---

SLAB, LEAST = 512, {"": 256, "_128": 128}
"""Products of float32 for each thread and slab, and of them so many hide a load of the next one, by
the ending of the kernel."""


@cache
def _assembled(instance: str, arch: str, source: str = "") -> tuple[ptx.Resources, Loop]:
    made = signatures.variant(instance)
    text = source or (made.source if made else signatures.source())
    module = ptx.compile(text, arch, names=[instance])
    try:
        code = ptx.disassemble(module)
    except BackendUnavailable as problem:
        pytest.skip(str(problem))
    name = module.names[instance]
    loop = machine_code.kernels(code)[name].loop
    assert loop is not None
    return ptx.assemble(module)[name], loop


def _mistakes(needs: ptx.Resources, loop: Loop, ending: str = "") -> list[str]:
    loads = loop.count("LDS")
    found = {
        "spilled": needs.spilled_bytes + needs.stack_bytes > 0,
        "products": loop.products != SLAB,
        "narrow": loop.count("LDS", 128) != loads,
        "many loads": loop.products < 16 * loads,
        "barriers": loop.count("BAR") != 1,
        "late": loop.hidden is None or loop.hidden < LEAST[ending],
        "overhead": len(loop.instructions) > 1.5 * SLAB,
    }
    return [name for name, wrong in found.items() if wrong]


@pytest.mark.parametrize("arch", cases(ptx.ARCHITECTURES, ["sm_90"]))
@pytest.mark.parametrize("kernel", ["gram", "outer", "gram_parts", "outer_parts"])
@pytest.mark.parametrize("ending", ["", "_128"])
def test_products_read_128_bits_and_fetch_the_next_slab_in_time(
    kernel: str, ending: str, arch: str
) -> None:
    assert _mistakes(*_assembled(f"{kernel}{ending}<float>", arch), ending) == []


_GET = "    get(row, rows + k * ROW<T>);\n"
_BY_WORDS = "    for (int i = 0; i < 4; ++i) row[i] = ((const volatile T*)rows)[k * ROW<T> + i];\n"
_READ = "      const Brought<T> found = factors.read(start);\n"
WORSE = {
    "narrow": (_GET, "#pragma unroll\n" + _BY_WORDS),
    "late": (_READ, _READ + "      if (__syncthreads_or(found.rows[0] == T(-7))) return;\n"),
    "products": ("unsigned STEP = 8;", "unsigned STEP = 16;"),
}


@pytest.mark.parametrize("mistake", WORSE)
def test_worse_kernels_are_seen(mistake: str) -> None:
    old, new = WORSE[mistake]
    source = signatures.source()
    assert old in source
    assert mistake in _mistakes(*_assembled("gram<float>", "sm_80", source.replace(old, new)))
