"""``demopool ptx``: assemble, execute, check and count a CUDA kernel without a GPU."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.box import SIMPLE
from rich.table import Table

from .. import ptx
from ..common.files import write_bytes
from ..common.units import readable
from ..errors import InvalidInput
from .output import check_writable, console, emit, envelope, json_option, progress

SCHEMA = 1
_TYPES = {
    **{f"i{bits}": f"i{bits // 8}" for bits in (8, 16, 32, 64)},
    **{f"u{bits}": f"u{bits // 8}" for bits in (8, 16, 32, 64)},
    **{f"f{bits}": f"f{bits // 8}" for bits in (16, 32, 64)},
}
_ARGUMENT = re.compile(r"(?P<type>[iuf]\d+)(?:\[(?P<shape>[\d,\s]+)\])?(?:=(?P<value>.+))?")


@click.command(name="ptx")
@click.argument("source", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option(
    "--arch",
    "archs",
    multiple=True,
    type=click.Choice(ptx.ARCHITECTURES),
    help="Architecture; can be repeated.  [default: all; with --kernel: sm_80]",
)
@click.option(
    "--instance",
    "instances",
    multiple=True,
    metavar="NAME<TYPE>",
    help="Template instance to compile, such as 'gram<float>'; can be repeated.",
)
@click.option(
    "--kernel", metavar="NAME", help="Run this kernel; requires --grid, --block and --arg."
)
@click.option("--grid", metavar="X[,Y[,Z]]", help="Number of blocks.")
@click.option(
    "--block",
    metavar="X[,Y[,Z]]",
    help="Threads per block; required with --kernel.  [default for occupancy: 256]",
)
@click.option(
    "--arg",
    "args",
    multiple=True,
    metavar="SPEC",
    help="The kernel's arguments, in order: f32[64,32] (seeded random numbers), f32[64]=zeros, "
    "f32[64]=empty (reading it is a fault), i32=64, f32=0.5, @features.npy.",
)
@click.option("--shared", type=click.IntRange(0), default=0, help="Dynamic shared memory in bytes.")
@click.option(
    "--cooperative", is_flag=True, help="Run all blocks at once, because they wait for each other."
)
@click.option(
    "--corners", is_flag=True, help="Run only the first, middle and last blocks of the grid."
)
@click.option(
    "--save",
    "saved",
    multiple=True,
    metavar="ARG=FILE.npy",
    help="Save an array argument, numbered from 0, after the launch.",
)
@click.option(
    "--counts", is_flag=True, help="Show the counted work and the minimum time on some devices."
)
@json_option
def ptx_command(
    source: Path,
    archs: tuple[str, ...],
    instances: tuple[str, ...],
    kernel: str | None,
    grid: str | None,
    block: str | None,
    args: tuple[str, ...],
    shared: int,
    cooperative: bool,
    corners: bool,
    saved: tuple[str, ...],
    counts: bool,
    as_json: bool,
) -> int:
    """Compile CUDA C (or read PTX) without a GPU; show its resources, or run and check it.

    Without --kernel, show registers, shared memory, spills and occupancy of every kernel, for every
    architecture. With --kernel, execute its PTX on the CPU, block by block. Faults that a GPU would
    silently ignore are errors that name the line, the block, the thread and the address: accesses
    out of bounds or misaligned, reads of uninitialised memory, races, divergent barriers, shuffles
    with a missing lane. The counts show the work that a kernel requires of a GPU; they do not
    predict its time.

    \b
    demopool ptx kernels.cu
    demopool ptx kernels.cu --instance 'gram<float>' --kernel 'gram<float>'
        --grid 4,4 --block 16,16 --arg 'f32[64,32]' --arg 'f32[64,64]=empty'
        --arg i32=64 --arg i32=32 --counts
    """
    if kernel is None:
        if args or grid or saved or counts:
            raise click.UsageError("--kernel names what to run; without it, nothing runs.")
        return _assembled(source, archs or ptx.ARCHITECTURES, instances, block, shared, as_json)
    if grid is None or block is None:
        raise click.UsageError("a launch needs --grid and --block.")
    if len(archs) > 1:
        raise click.UsageError("give one --arch to run a kernel.")
    if cooperative and corners:
        raise click.UsageError(
            "--cooperative runs all blocks, --corners does not: give one of them."
        )
    values = [_argument(text, i) for i, text in enumerate(args)]
    kept = [_kept(text, values) for text in saved]
    module = _module(source, archs[0] if archs else "sm_80", instances)
    sizes = _sizes(grid, "--grid")
    with progress("blocks") as report:
        found = module.launch(
            kernel,
            sizes,
            _sizes(block, "--block"),
            values,
            shared,
            ptx.representative_blocks(sizes) if corners else None,
            cooperative=cooperative,
            max_shared=max(module.limits.shared_per_block, 48 * 1024),
            report=lambda done, total: report(done, total, kernel),
        )
    for array, path in kept:
        write_bytes(path, _npy(array))
    if as_json:
        emit(envelope(SCHEMA, {"kernel": kernel, "arch": module.arch, "counts": found.as_dict()}))
    else:
        _show(kernel, module, found, counts)
    return 0


def _module(source: Path, arch: str, instances: tuple[str, ...]) -> ptx.Module:
    if source.suffix == ".ptx":
        return ptx.Module(source.read_text(), arch)
    return ptx.compile(source, arch, names=instances)


# --- resources ---


def _assembled(
    source: Path,
    archs: tuple[str, ...],
    instances: tuple[str, ...],
    block: str | None,
    shared: int,
    as_json: bool,
) -> int:
    threads = int(np.prod(_sizes(block, "--block"))) if block else 256
    rows: list[dict[str, Any]] = []
    for arch in archs:
        module = _module(source, arch, instances)
        names = {lowered: name for name, lowered in module.names.items()}
        for name, needs in ptx.assemble(module).items():
            fits = ptx.occupancy(needs, threads, shared, arch)
            rows.append(
                {
                    "kernel": names.get(name, name),
                    "arch": arch,
                    **asdict(needs),
                    "occupancy": fits.share,
                    "limited_by": fits.limited_by,
                }
            )
    rows.sort(key=lambda row: row["kernel"])
    if as_json:
        emit(envelope(SCHEMA, {"threads": threads, "kernels": rows}))
        return 0
    table = Table(box=SIMPLE, pad_edge=False)
    for heading in ("kernel", "arch", "registers", "shared", "spilled", "occupancy", "limited by"):
        left = heading in ("kernel", "arch", "limited by")
        table.add_column(heading, justify="left" if left else "right", overflow="fold")
    for row in rows:
        table.add_row(
            row["kernel"],
            row["arch"],
            str(row["registers"]),
            f"{row['shared_bytes']} B",
            f"{row['spilled_bytes']} B",
            f"{row['occupancy']:.0%}",
            row["limited_by"],
        )
    screen = console()
    screen.print(table)
    screen.print(f"Occupancy is theoretical, for blocks of {threads} threads (--block).")
    return 0


# --- results of a launch ---


def _show(kernel: str, module: ptx.Module, found: ptx.Counts, with_counts: bool) -> None:
    screen = console()
    covered = ptx.coverage(module, kernel)
    screen.print(
        f"{kernel} on {module.arch}: no fault; {covered:.0%} of its instructions were executed.",
        style="bold",
        soft_wrap=True,
    )
    if not with_counts:
        return
    table = Table(box=SIMPLE, pad_edge=False, show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for name, value in found.as_dict().items():
        if isinstance(value, int):
            table.add_row(name.replace("_", " "), f"{value:,}")
    table.add_row("useful share of global bytes", f"{found.useful_share:.0%}")
    table.add_row("bank conflicts", f"{found.bank_conflicts:,}")
    screen.print(table)
    for name, traffic in found.traffic.items():
        screen.print(
            f"{name}: {traffic.loaded_bytes:,} bytes loaded, {traffic.stored_bytes:,} stored, "
            f"in {traffic.sectors:,} sectors",
            soft_wrap=True,
        )
    screen.print("Minimum time for this work, from data sheets:")
    for device in ptx.DEVICES:
        least = ptx.bound(found, device)
        screen.print(f"  {device.name:10} {readable(least.seconds, 'time'):>8}  {least.limited_by}")


# --- options ---


def _sizes(text: str, option: str) -> tuple[int, ...]:
    try:
        return tuple(int(size) for size in text.split(","))
    except ValueError:
        raise InvalidInput(f"{option} must be like 4 or 4,4,2; got {text!r}.") from None


def _argument(text: str, number: int) -> Any:
    if text.startswith("@"):
        return _loaded(Path(text[1:]))
    match = _ARGUMENT.fullmatch(text.strip())
    if match is None or match["type"] not in _TYPES:
        raise InvalidInput(
            f"--arg must be like f32[64,32], f32[64]=zeros, i32=64 or @file.npy; got {text!r}."
        )
    dtype = np.dtype(_TYPES[match["type"]])
    if match["shape"] is None:
        return _number(dtype, match["value"], text)
    shape = tuple(int(size) for size in match["shape"].split(","))
    if match["value"] == "empty":
        return ptx.empty(shape, dtype)
    if match["value"] == "zeros":
        return ptx.reserve(shape, dtype)
    if match["value"] is not None:
        raise InvalidInput(f"an array must be =zeros, =empty or random; got {text!r}.")
    rng = np.random.default_rng(number)
    if dtype.kind == "f":
        return rng.standard_normal(shape).astype(dtype)
    return rng.integers(0, min(np.iinfo(dtype).max, 2**15), shape).astype(dtype)


def _number(dtype: Any, value: str | None, text: str) -> Any:
    try:
        return dtype.type(float(value or "") if dtype.kind == "f" else int(value or "", 0))
    except (ValueError, OverflowError):
        raise InvalidInput(f"--arg {text!r} needs a number of its type after =.") from None


def _loaded(path: Path) -> Any:
    try:
        return np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as problem:
        raise InvalidInput(f"{path} cannot be read as a .npy file: {problem}.") from None


def _kept(text: str, values: list[Any]) -> tuple[Any, Path]:
    number, _, path = text.partition("=")
    chosen = values[int(number)] if number.isdigit() and int(number) < len(values) else None
    if not path or not isinstance(chosen, np.ndarray):
        raise InvalidInput(
            f"--save must be ARG=FILE.npy with the number of an array; got {text!r}."
        )
    check_writable(Path(path))
    return chosen, Path(path)


def _npy(array: Any) -> bytes:
    from io import BytesIO

    file = BytesIO()
    np.save(file, np.asarray(array))
    return file.getvalue()
