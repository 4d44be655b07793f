"""Launches that a driver would refuse, blocks chosen at real sizes, and what the assembler says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from demopool import ptx

pytest.importorskip("cuda.bindings.nvrtc")

from ptx_samples import cases
from ptx_samples.cases import launched

f32, f64, i32, i64 = np.float32, np.float64, np.int32, np.int64
GRAM = "squared_gram<float>"
TRANSPOSE = [np.ones((4, 4), f32), np.zeros((4, 4), f32), i32(4), i32(4)]


def launch(args: list[Any], grid: Any = 1, block: Any = 32, **options: Any) -> ptx.Counts:
    return cases.cuda().launch("transpose", grid, block, args, **options)


@pytest.mark.parametrize(
    ("grid", "block", "says"),
    [
        (1, 1025, "1025 threads; 1024 are allowed"),
        (1, (33, 32), "1056 threads"),
        (1, (1, 1, 65), "z: 64"),
        (2**31, 32, "too large"),
        ((1, 65536), 32, "too large"),
        ((1, 1, 65536), 32, "too large"),
        (0, 32, "at least 1"),
        (1, (32, 0), "at least 1"),
        (1.0, 32, "integers"),
        ((1, 1.5), 32, "integers"),
        ((1, 1, 1, 1), 32, "one to three"),
        ((), 32, "one to three"),
    ],
)
def test_sizes_a_driver_refuses(grid: Any, block: Any, says: str) -> None:
    with pytest.raises(ptx.LaunchError, match=says):
        launch(TRANSPOSE, grid, block, blocks=[(0, 0, 0)])


def test_largest_sizes_are_taken() -> None:
    x, out = np.ones((16, 16), f32), np.zeros((16, 16), f32)
    args = [x, out, i32(16), i32(16)]
    launch(args, (2**20, 65535), (16, 64), blocks=[(2**20 - 1, 65534)])
    launched("x[threadIdx.z] = 1;", "int* x", [ones := np.zeros(64, i32)], block=(1, 1, 64))
    assert ones.all()
    assert not out.any()


def test_launch_bounds_are_obeyed() -> None:
    source = 'extern "C" __global__ void __launch_bounds__(96) k(int* x) { x[threadIdx.x] = 1; }'
    module, x = ptx.compile(source), np.zeros(128, i32)
    module.launch("k", 1, 96, [x])
    with pytest.raises(ptx.LaunchError, match="128 threads; 96 are allowed"):
        module.launch("k", 1, 128, [x])
    assert x.sum() == 96


@pytest.mark.parametrize(
    ("arch", "most"),
    [("sm_75", 64), ("sm_80", 163), ("sm_90", 227), ("sm_100", 227), ("sm_120", 99)],
)
def test_shared_memory_a_block_may_have(arch: str, most: int) -> None:
    one = np.ones(4, f32)
    args = [one, np.zeros(4, i32), one, ptx.empty(4), i32(4), i32(4)]
    module = cases.cuda(arch)

    def sketch(kib: int, more: int = 0, **options: Any) -> None:
        module.launch("count_sketch", 1, 32, args, shared=kib * 1024 + more, **options)

    sketch(48)
    sketch(most, max_shared=most * 1024)
    with pytest.raises(ptx.LaunchError, match="max_shared"):
        sketch(48, 4)
    with pytest.raises(ptx.LaunchError, match=f"more than the {50 * 1024} that are allowed"):
        sketch(50, 4, max_shared=50 * 1024)
    with pytest.raises(ptx.LaunchError, match=f"{arch} allows {most * 1024} bytes"):
        sketch(most, 4, max_shared=most * 1024 + 4)


def test_static_and_dynamic_shared_memory_count_together() -> None:
    x = np.zeros(3, f64)
    args = [x, np.zeros(1), i32(3)]  # total has 1 kB of its own, but takes no more
    cases.cuda().launch("total", 1, 128, args, shared=47 * 1024)
    with pytest.raises(ptx.LaunchError, match="49156 bytes"):
        cases.cuda().launch("total", 1, 128, args, shared=47 * 1024 + 4)


@pytest.mark.parametrize(
    ("place", "value", "says"),
    [
        (2, 4, "Argument 2 is a Python int, which a driver is given as 8 bytes"),
        (2, 4.0, "Argument 2 is a Python float, which a driver is given as 8 bytes"),
        (2, None, "Argument 2 is a NoneType"),
        (2, [4], "Argument 2 is a list"),
        (2, i64(4), "Argument 2 is int64, .* takes 4 bytes"),
        (2, f32(4), "Argument 2 is float32"),
        (3, f64(4), "Argument 3 is float64"),
        (3, b"123", "Argument 3 has 3 bytes"),
        (3, np.zeros(4, i32), "Argument 3 is an array"),
        (0, f32(4), "Argument 0 is float32"),
        (0, f64(4), "Argument 0 is float64"),
        (0, i32(4), "Argument 0 is int32"),
        (0, np.ones((4, 8), f32)[:, ::2], "argument 0 must be C-contiguous"),
        (1, np.ones((4, 4), f32).T, "argument 1 must be C-contiguous"),
    ],
)
def test_argument_a_kernel_does_not_take(place: int, value: Any, says: str) -> None:
    args = list(TRANSPOSE)
    args[place] = value
    with pytest.raises(ptx.LaunchError, match=says):
        launch(args)


def test_float_where_a_double_is_wanted() -> None:
    for wrong, says in ((f32(1), "float32, .* takes 8 bytes"), (np.zeros(1), "an array")):
        with pytest.raises(ptx.LaunchError, match=f"Argument 1 is {says}"):
            launched("*x = y;", "double* x, double y", [np.zeros(1), wrong], block=1)
    launched("*x = y;", "double* x, double y", [x := np.zeros(1), f64(3)], block=1)
    assert x[0] == 3


@pytest.mark.parametrize("count", [0, 3, 5])
def test_wrong_number_of_arguments(count: int) -> None:
    with pytest.raises(ptx.LaunchError, match=f"takes 4 arguments, {count} were given"):
        launch([*TRANSPOSE, i32(1)][:count])


def test_numba_arrays_of_other_dimensions() -> None:
    pytest.importorskip("numba.cuda")
    module = cases.BY_NAME["numba-row-sums"].module()
    with pytest.raises(ptx.LaunchError, match="arrays count with their shape and strides"):
        module.launch("row_sums", 1, 32, [np.ones(4, f32), np.ones(4, f32)])


def test_arguments_are_named_by_their_position() -> None:
    with pytest.raises(ptx.Fault, match="byte 128 of argument 1, which has 128"):
        launched("x[threadIdx.x + n] = 1;", "int n, float* x", [i32(1), np.zeros(32, f32)])


def test_unknown_kernel_is_answered_with_those_there_are() -> None:
    for name in ("nope", ""):
        there = rf"no kernel '{name}'.*squared_gram<float>.*sinkhorn"
        with pytest.raises(ptx.LaunchError, match=there):
            cases.cuda().launch(name, 1, 1, [])


@pytest.mark.parametrize("block", [(2, 0, 0), (0, 1, 0), (0, 0, 1), (-1, 0, 0)])
def test_block_outside_of_the_grid(block: tuple[int, int, int]) -> None:
    with pytest.raises(ptx.LaunchError, match="is not in the grid"):
        launch(TRANSPOSE, (2, 1), (16, 16), blocks=[(0, 0, 0), block])


# --- compilers ---


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("__global__ void k() {\n  int x = ;\n}", r"kernels\.cu\(2\): error: expected an expr"),
        ("\n\n__global__ void k(flaot* x) {}", r"kernels\.cu\(3\): error: .*flaot"),
        ("__global__ void k(float* x) {\n  *x = y;\n}", r'kernels\.cu\(2\): error: .*"y"'),
    ],
)
def test_error_of_the_compiler_names_the_line(source: str, says: str) -> None:
    with pytest.raises(ptx.CompileError, match=says):
        ptx.compile(source)


def test_instance_that_is_not_there() -> None:
    with pytest.raises(ptx.CompileError, match='"nope" is undefined'):
        ptx.compile(cases.SOURCE, names=("nope<float>",))


def test_error_of_numba_is_a_compile_error() -> None:
    types = pytest.importorskip("numba.types")
    pytest.importorskip("numba.cuda")

    def kernel(x: Any) -> None:
        x[0] = x.nope

    with pytest.raises(ptx.CompileError, match="Unknown attribute 'nope'"):
        ptx.compile(kernel, signature=(types.Array(types.float32, 1, "C"),))
    with pytest.raises(ptx.PtxError, match="needs the signature"):
        ptx.compile(kernel)


@pytest.mark.parametrize("arch", ["sm_70", "compute_80", "80", ""])
def test_unknown_architecture(arch: str) -> None:
    with pytest.raises(ptx.PtxError, match="arch must be one of sm_75, sm_80"):
        ptx.compile("", arch)


def test_error_of_the_assembler_names_the_line() -> None:
    text = cases.cuda().text.replace("st.shared.f32", "st.shared.f99")
    with pytest.raises(ptx.CompileError, match=r"module\.ptx, line \d+"):
        ptx.assemble(ptx.Module(text, "sm_80"))


# --- chosen blocks at real sizes ---


def test_telling_blocks_are_corners_and_the_middle() -> None:
    assert ptx.representative_blocks(1) == [(0, 0, 0)]
    assert ptx.representative_blocks(2) == [(0, 0, 0), (1, 0, 0)]
    blocks = ptx.representative_blocks((4096, 4096))
    assert len(blocks) == 9
    assert {(0, 0, 0), (2048, 2048, 0), (4095, 4095, 0), (4095, 0, 0)} <= set(blocks)


def test_gram_at_its_real_size_writes_its_tiles_and_nothing_else() -> None:
    n, d = 65_536, 32
    X = np.random.default_rng(0).standard_normal((n, d), f32)
    K = ptx.reserve((1, n, n))
    grid = (n // 16, n // 16)
    blocks = ptx.representative_blocks(grid)
    counts = cases.cuda().launch(GRAM, grid, (16, 16), [X, K, i32(n), i32(d)], blocks=blocks)
    for x, y, _ in blocks:
        rows, columns = slice(16 * y, 16 * y + 16), slice(16 * x, 16 * x + 16)
        wanted = (X[rows].astype(f64) @ X[columns].astype(f64).T) ** 2
        assert np.abs(K[0, rows, columns] - wanted).max() < 5 * np.finfo(f32).eps * wanted.max()
    touched = sorted({16 * y for _, y, _ in blocks})
    for first in touched:
        assert np.count_nonzero(K[0, first : first + 16]) == 3 * 16 * 16
        assert not K[0, first + 16 : first + 17].any()
        assert not K[0, first - 1 : first].any()
    assert counts.traffic["argument 1"].stored_bytes == len(blocks) * 16 * 16 * 4
    assert counts.traffic["argument 1"].loaded_bytes == 0


# --- the assembler ---


@pytest.mark.parametrize("arch", ptx.ARCHITECTURES)
def test_samples_are_assembled_without_spills(arch: str) -> None:
    found = ptx.assemble(cases.cuda(arch))
    assert set(found) == set(cases.cuda(arch).kernels)
    shared = {name: kernel.shared_bytes for name, kernel in found.items()}
    assert shared[cases.cuda(arch).names[GRAM]] == 2 * 16 * 17 * 4
    assert shared["transpose"] == 16 * 17 * 4
    assert shared["total"] == 128 * 8
    assert shared["row_sums"] == 0
    for kernel in found.values():
        assert 8 <= kernel.registers <= 64
        assert (kernel.spilled_bytes, kernel.stack_bytes) == (0, 0)


@pytest.mark.parametrize("arch", ptx.ARCHITECTURES)
@pytest.mark.parametrize("name", [s.name for s in cases.SAMPLES if s.numba])
def test_numba_samples_are_assembled_without_spills(name: str, arch: str) -> None:
    pytest.importorskip("numba.cuda")
    (kernel,) = ptx.assemble(cases.BY_NAME[name].module(arch)).values()
    assert (kernel.spilled_bytes, kernel.stack_bytes) == (0, 0)
    assert kernel.registers <= 64


def test_too_few_registers_spill() -> None:
    source = """
    extern "C" __global__ void __launch_bounds__(1024, 2) k(float* x) {
      float a[100];
      #pragma unroll
      for (int i = 0; i < 100; ++i) a[i] = x[1024 * i + threadIdx.x];
      __syncthreads();
      #pragma unroll
      for (int i = 0; i < 100; ++i) x[1024 * (99 - i) + threadIdx.x] = a[i];
    }"""
    kernel = ptx.assemble(ptx.compile(source))["k"]
    assert kernel.registers <= 32
    assert kernel.spilled_bytes > 0
    assert kernel.stack_bytes > 0


def test_array_with_a_variable_index_is_on_the_stack() -> None:
    source = """
    extern "C" __global__ void k(float* x, int n) {
      float a[64];
      for (int i = 0; i < 64; ++i) a[(i * n) & 63] = x[i];
      x[0] = a[n & 63];
    }"""
    kernel = ptx.assemble(ptx.compile(source))["k"]
    assert (kernel.stack_bytes, kernel.spilled_bytes) == (256, 0)


# --- occupancy and bounds ---


@pytest.mark.parametrize(
    ("arch", "registers", "shared", "threads", "dynamic", "warps", "by"),
    [
        ("sm_80", 32, 0, 256, 0, 64, "warps"),  # 8 blocks of 8 warps
        ("sm_120", 32, 0, 1024, 0, 32, "warps"),  # a second block of 32 warps would make 64 > 48
        ("sm_80", 32, 0, 32, 0, 32, "blocks"),
        ("sm_75", 16, 1024, 32, 0, 16, "blocks"),
        # 256 * 64 registers of 65,536 for a block: four fit
        ("sm_80", 64, 0, 256, 0, 32, "registers"),
        # 40 * 32 = 1280 for a warp: 12 in every quarter of 16,384, so 48; blocks of 3: 16
        ("sm_90", 40, 0, 96, 0, 48, "registers"),
        # 5 of 1024 + 2 * 16,000 rounded up to 33,024
        ("sm_80", 32, 16_000, 128, 16_000, 20, "shared memory"),
        # 9344 is 73 * 128, but Turing rounds to 9472 of 65,536: 6, not 7
        ("sm_75", 32, 9344, 32, 0, 6, "shared memory"),
        ("sm_80", 255, 0, 1024, 0, 0, "registers"),  # does not even fit once
    ],
)
def test_occupancy_by_hand(
    arch: str, registers: int, shared: int, threads: int, dynamic: int, warps: int, by: str
) -> None:
    resources = ptx.Resources(registers, shared, 0, 0)
    found = ptx.occupancy(resources, threads, dynamic, arch)
    assert (found.warps, found.limited_by) == (warps, by)
    assert found.most == ptx.LIMITS[arch].warps
    assert found.share == warps / found.most


@pytest.mark.parametrize(
    ("counts", "seconds", "by"),
    [
        (ptx.Counts(flops=2_000, global_sectors=1), 2.0, "arithmetic"),
        (ptx.Counts(double_flops=300, flops=1_000), 4.0, "arithmetic"),
        (ptx.Counts(flops=1_000, global_sectors=10), 3.2, "memory"),
        (ptx.Counts(flops=1_000, tensor_flops=20_000), 2.0, "tensor cores"),
        (ptx.Counts(), 0.0, "arithmetic"),
    ],
)
def test_bound_by_hand(counts: ptx.Counts, seconds: float, by: str) -> None:
    device = ptx.Device("toy", "sm_80", 1e3, 1e2, 1e2, 1 << 20, 1, 1e4, 1e3)
    found = ptx.bound(counts, device)
    assert (found.seconds, found.limited_by) == (pytest.approx(seconds), by)
