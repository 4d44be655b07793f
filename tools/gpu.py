"""The kernels for GPUs, without one: ``python -m tools.gpu counts|limits|mutants|machine-code``."""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from demopool import ptx
from demopool.implementations.cupy_cuda import signatures
from tools import gpu_limits, machine_code

TESTS = Path(__file__).parents[1] / "tests"
sys.path.insert(0, str(TESTS))

from gpu import counted, mutation  # noqa: E402
from gpu.backends import BACKENDS  # noqa: E402
from ptx_samples import cases as samples  # noqa: E402


def counts() -> dict[Path, dict[str, Any]]:
    """What every kernel does, by the file that keeps it."""
    return {
        samples.COUNTS: samples.counted(),
        **{counted.file(name): counted.counts(name) for name in BACKENDS},
    }


@click.group()
def main() -> None:
    """Verify the kernels for GPUs on the CPU."""


@main.command("counts")
@click.option("--write", is_flag=True, help="Replace the files instead.")
def show_counts(write: bool) -> None:
    """Print what every kernel does, as counts."""
    for file, found in counts().items():
        text = json.dumps(found, indent=1, sort_keys=True) + "\n"
        if write:
            file.write_text(text)
        else:
            click.echo(f"{file.relative_to(TESTS)}\n{text}", nl=False)


@main.command("limits")
def show_limits() -> None:
    """Print the least time of dense weights and pooling on some GPUs, by counts and data sheets."""
    click.echo(gpu_limits.table())


@main.command()
@click.argument("backend", type=click.Choice(sorted(BACKENDS)))
@click.argument("kernels", nargs=-1)
@click.option("--count", default=mutation.MUTANTS, help="Mutants of each kernel.")
@click.option("--seed", default=0, help="Of the draw; the survivors of 0 are explained.")
def mutants(backend: str, kernels: tuple[str, ...], count: int, seed: int) -> None:
    """Print which mutants of kernels are left, by the line of the source that was changed."""
    made = missed = 0
    for kernel in kernels or BACKENDS[backend].kernels:
        start = time.perf_counter()
        tested = mutation.Examined(BACKENDS[backend], kernel)
        drawn = tested.drawn(count, seed)
        left = tested.survivors(drawn)
        made, missed = made + len(drawn), missed + len(left)
        share, took = ptx.coverage(tested.module), time.perf_counter() - start
        text = f"{len(left)} of {len(drawn)} left, {share:.0%} covered, {took:.0f} s"
        click.echo(f"{kernel}: {text}")
        for mutant in left:
            line = tested.backend.line(mutant)
            click.echo(f"    {mutant.source} `{line}`\n        {mutant.what}")
    click.echo(f"{made - missed} of {made} are caught: {1 - missed / made:.1%}")


SHOWN = (
    *("gram<float>", "outer<float>", "gram_128<float>", "outer_128<float>"),
    *("gram_tf32<float>", "outer_tf32<float>", "gram<double>", "outer<double>"),
    *("step<float>", "small_image<float>", "resident<float>", "normalized_triangle<float>"),
)
_COLUMNS: dict[str, Any] = {
    "instructions": lambda found, loop: found.instructions,
    "in the loop": lambda found, loop: len(loop.instructions),
    "products": lambda found, loop: loop.products,
    "LDS 32, 64, 128": lambda found, loop: _by_width(loop, "LDS"),
    "products per LDS": lambda found, loop: f"{loop.per_load:.3g}" if loop.per_load else "-",
    "LDG 32, 64, 128": lambda found, loop: _by_width(loop, "LDG"),
    "STS": lambda found, loop: loop.count("STS"),
    "BAR": lambda found, loop: loop.count("BAR"),
    "products that hide LDG": lambda found, loop: "-" if loop.hidden is None else loop.hidden,
}


@main.command("machine-code")
@click.argument("instances", nargs=-1)
@click.option("--arch", "archs", multiple=True, type=click.Choice(ptx.ARCHITECTURES))
@click.option(
    "--source",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="A .cu file with all that its kernels need, to read those in place of cupy:cuda's.",
)
def show_machine_code(
    instances: tuple[str, ...], archs: tuple[str, ...], source: Path | None
) -> None:
    """Print what the machine code of kernels of cupy:cuda shows, such as 'gram<float>'; everything
    after `instructions` is of the main loop."""
    for instance in instances or SHOWN:
        _demand(instance, source)
    table = Table("kernel", "arch", "registers", "spilled", *_COLUMNS, box=None)
    table.columns[0].no_wrap = True
    for arch in archs or ptx.ARCHITECTURES:
        for instance in instances or SHOWN:
            if "tf32" in instance and arch == "sm_75":
                continue  # which has no such tensor cores
            made = signatures.variant(instance)
            text = made.source if made else signatures.source()
            try:
                module = ptx.compile(source or text, arch, names=[instance])
            except ptx.CompileError as problem:
                raise click.ClickException(str(problem)) from problem
            name = module.names[instance]
            needs = ptx.assemble(module)[name]
            found = machine_code.kernels(ptx.disassemble(module))[name]
            cells = [show(found, found.loop) for show in _COLUMNS.values()] if found.loop else []
            row = (instance, arch, needs.registers, needs.spilled_bytes, *cells)
            table.add_row(*map(str, row))
    Console(width=160).print(table)


def _demand(instance: str, source: Path | None) -> None:
    """NVRTC says what it could not parse, not what there is."""
    if source is not None:
        kernel, _, _ = instance.partition("<")
        heads = r"__global__[^;{]*?\bvoid\s+(?:__launch_bounds__\s*\([^;{]*?\)\s*)?(\w+)\s*\("
        there = re.findall(heads, source.read_text())
        if kernel not in there:
            raise click.UsageError(f"{source.name} has no {kernel}; it has {', '.join(there)}.")
        return
    both = list(signatures.parameters())
    single = [*signatures.tensor().parameters, *signatures.wide().parameters]
    known = {name + of for name in both for of in ("<float>", "<double>")}
    if instance not in known | {f"{name}<float>" for name in single}:
        raise click.UsageError(
            f"cupy:cuda has no {instance}; it has {', '.join(both)} of <float> and <double>, and "
            f"{', '.join(single)} of <float>."
        )


def _by_width(loop: machine_code.Loop, kind: str) -> str:
    return ", ".join(str(loop.count(kind, bits)) for bits in (32, 64, 128))


if __name__ == "__main__":
    main()
