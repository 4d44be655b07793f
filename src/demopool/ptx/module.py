"""A compiled module, whose kernels can be launched and assembled."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from .counting import Counts
from .devices import LIMITS, Limits
from .faults import Index, LaunchError
from .frames import Functions
from .machine import Launch, Wave, layout
from .memory import Arena
from .parser import parse
from .syntax import BITS, Function, Program, Variable

Array = Any

WAVE_LANES = 8192
"""Threads that run together, in whole blocks: enough to make NumPy's call overhead small."""

AT_ONCE = 4096
"""Blocks that a cooperative launch may have; the largest GPUs run about so many at once."""

_SCRATCH = 2
"""Pointers that Triton adds to the arguments of every kernel."""

STEPS = 20_000_000
"""Steps of a wave after which a launch counts as one that never ends."""


class Launched(NamedTuple):
    """One launch while :func:`recording`: the kernel by its name in the source, and its work."""

    kernel: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared: int
    counts: Counts


_recorded: ContextVar[list[Launched] | None] = ContextVar("recorded", default=None)


@contextmanager
def recording() -> Iterator[list[Launched]]:
    """All launches of the block, of whatever module, are counted and listed."""
    launched: list[Launched] = []
    token = _recorded.set(launched)
    try:
        yield launched
    finally:
        _recorded.reset(token)


@dataclass
class Module:
    """PTX text and its compiler, if that matters.

    Numba passes arrays with shape and strides. Triton adds two pointers to scratch memory, of which
    nothing is used here, and does two things on purpose that are faults in code of others: several
    threads of a block store the same bits at one shared address at once, and TF32 operands are not
    rounded: here the bits that TF32 has not are cut off.
    """

    text: str
    arch: str
    numba: bool = False
    triton: bool = False
    names: dict[str, str] = field(default_factory=dict)
    executed: dict[str, set[int]] = field(default_factory=dict)
    """For every kernel, the PTX lines that launches have executed so far: the test coverage."""

    @cached_property
    def program(self) -> Program:
        return parse(self.text)

    @cached_property
    def functions(self) -> Functions:
        return Functions(self.program, self.names)

    @property
    def kernels(self) -> tuple[str, ...]:
        """Names of the kernels in the PTX."""
        return self.program.kernels

    def kernel(self, name: str = "") -> Function:
        """A kernel by its name in the PTX or in the source; without a name, the only kernel."""
        known = self.kernels
        wanted = self.names.get(name, name)
        if not name and len(known) == 1:
            wanted = known[0]
        if wanted not in known:
            available = ", ".join([*self.names, *known]) or "none"
            raise LaunchError(f"There is no kernel {name!r} in this module; it has: {available}.")
        return self.program.functions[wanted]

    def name_of(self, function: Function) -> str:
        """The name in the source if it is known, else the name in the PTX."""
        return next(
            (n for n, lowered in self.names.items() if lowered == function.name), function.name
        )

    def launch(
        self,
        kernel: str,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        args: Sequence[Any],
        shared: int = 0,
        blocks: Iterable[Sequence[int]] | None = None,
        *,
        cooperative: bool = False,
        check_races: bool = True,
        counting: bool = True,
        max_steps: int = STEPS,
        max_shared: int | None = None,
        report: Callable[[int, int], None] = lambda done, total: None,
    ) -> Counts:
        """Run a kernel on NumPy arrays, which it changes in place, and count its work.

        ``blocks`` are the blocks to run, as (x, y, z) (None: the whole grid); see
        ``representative_blocks``. ``shared`` is the dynamic shared memory in bytes; a total above
        48 kB requires ``max_shared``, as it does with a driver. Blocks run in turns, some thousand
        threads at a time; with ``cooperative`` all run at once, for kernels whose blocks wait for
        each other. ``report`` receives the number of finished blocks and their total. Raises
        ``LaunchError`` for a launch that a driver would reject and ``Fault`` for an error of the
        kernel.
        """
        function = self.kernel(kernel)
        grid, block = _three(grid, "grid"), _three(block, "block")
        granule = _granule(self.program)
        plan = layout(self.program, function, shared, granule)
        limits = self.limits
        _check_launch(function, grid, block, plan.shared_bytes, limits, max_shared)
        chosen = _chosen(grid, blocks, AT_ONCE if cooperative else None)
        arena = Arena(grid[0] * grid[1] * grid[2], check_races, cooperative)
        data, offsets = self._arguments(function, args, arena, granule)
        symbols = {}
        for variables, read_only in ((self.program.memory, False), (self.program.constants, True)):
            for variable in variables:
                content = np.zeros(max(variable.size, 1), np.uint8)
                content[: len(variable.initial)] = np.frombuffer(variable.initial, np.uint8)
                symbols[variable.name] = arena.add(
                    variable.name, content, granule=granule, read_only=read_only
                )
        launch = Launch(
            functions=self.functions,
            kernel=function.name,
            grid=grid,
            block=block,
            layout=plan,
            arena=arena,
            symbols=symbols,
            parameter_bytes=data,
            parameter_offsets=offsets,
            dynamic_shared=shared,
            cooperative=cooperative,
            counting=counting or _recorded.get() is not None,
            check_races=check_races,
            triton=self.triton,
            max_steps=max_steps,
            executed=self.executed.setdefault(function.name, set()),
        )
        lanes = -(-(block[0] * block[1] * block[2]) // 32) * 32
        together = max(1, len(chosen) if cooperative else WAVE_LANES // lanes)
        for start in range(0, len(chosen), together):
            report(start, len(chosen))
            launch.steps = 0
            Wave(launch, chosen[start : start + together]).run()
        arena.write_back()
        launch.counts.traffic = {
            memory.name: memory.touched for memory in arena.memories if memory.touched.requests
        }
        if (recorded := _recorded.get()) is not None:
            recorded.append(Launched(self.name_of(function), grid, block, shared, launch.counts))
        return launch.counts

    @property
    def limits(self) -> Limits:
        return LIMITS[self.arch]

    def _arguments(
        self, function: Function, args: Sequence[Any], arena: Arena, granule: int
    ) -> tuple[bytes, dict[str, int]]:
        """The parameter bytes that a driver would receive, and the offset of each parameter."""
        flat = [
            (i, part)
            for i, arg in enumerate(args)
            for part in (_numba(arg) if self.numba else [arg])
        ]
        if self.triton:
            flat += [(len(args) + i, np.uint64(0)) for i in range(_SCRATCH)]
        params = function.params
        if len(flat) != len(params):
            raise LaunchError(
                f"{self.name_of(function)} takes {len(params)} arguments, {len(flat)} were given"
                + (" (arrays count with their shape and strides)." if self.numba else ".")
            )
        data, offsets = b"", {}
        for param, (i, value) in zip(params, flat, strict=True):
            data += b"\0" * (-len(data) % param.align)
            offsets[param.name] = len(data)
            if isinstance(value, np.ndarray):
                _check_pointer(param, i)
                address = arena.add(f"argument {i}", value, granule=granule)
                data += np.uint64(address).tobytes()
            else:
                data += _scalar(param, value, i, exact=not self.numba)
        return data, offsets


def representative_blocks(grid: int | Sequence[int]) -> list[Index]:
    """Representative blocks of a grid: first, middle and last along every axis."""
    axes = [sorted({0, size // 2, size - 1}) for size in _three(grid, "grid")]
    return [(x, y, z) for z in axes[2] for y in axes[1] for x in axes[0]]


def _three(size: int | Sequence[int], what: str) -> Index:
    sizes = tuple(size) if isinstance(size, Iterable) else (size,)
    whole = all(isinstance(s, int | np.integer) and s >= 1 for s in sizes)
    if not 1 <= len(sizes) <= 3 or not whole:
        raise LaunchError(f"The {what} must have one to three integers of at least 1; got {size}.")
    x, y, z = (int(s) for s in (*sizes, 1, 1)[:3])
    return x, y, z


def _check_launch(
    function: Function,
    grid: Index,
    block: Index,
    shared: int,
    limits: Limits,
    max_shared: int | None,
) -> None:
    threads = block[0] * block[1] * block[2]
    most = min(1024, function.max_threads)
    if threads > most or block[2] > 64:
        raise LaunchError(f"A block {block} has {threads} threads; {most} are allowed (z: 64).")
    if grid[0] >= 2**31 or max(grid[1:]) > 65535:
        raise LaunchError(f"A grid {grid} is too large: x below 2^31, y and z up to 65,535.")
    allowed = 48 * 1024 if max_shared is None else max_shared
    if allowed > limits.shared_per_block:
        raise LaunchError(
            f"{limits.arch} allows {limits.shared_per_block} bytes of shared memory to a block, "
            f"not {allowed}."
        )
    if shared > allowed:
        raise LaunchError(
            f"{shared} bytes of shared memory are more than the {allowed} that are allowed"
            + ("; more than 48 kB requires max_shared." if max_shared is None else ".")
        )


def _chosen(
    grid: Index, blocks: Iterable[Sequence[int]] | None, at_once: int | None
) -> list[Index]:
    if at_once is not None and (count := grid[0] * grid[1] * grid[2]) > at_once:
        raise LaunchError(
            f"All blocks of a cooperative launch run at once; no GPU runs {count}, and {at_once} "
            "are allowed."
        )
    if blocks is None:
        return [(x, y, z) for z in range(grid[2]) for y in range(grid[1]) for x in range(grid[0])]
    found = []
    for given in blocks:
        x, y, z = (int(i) for i in (*given, 0, 0)[:3])
        if not (0 <= x < grid[0] and 0 <= y < grid[1] and 0 <= z < grid[2]):
            raise LaunchError(f"The block {(x, y, z)} is not in the grid {grid}.")
        found.append((x, y, z))
    return found


def _granule(program: Program) -> int:
    """Bytes per shadow cell: at most the width of the narrowest access."""
    widths = [
        BITS.get(ins.type, 32) // 8
        for function in program.functions.values()
        for ins in function.code
        if ins.op in ("ld", "st", "atom", "red", "cp") and "param" not in ins.modifiers
    ]
    return min([8, *(w for w in widths if w)])


def _numba(value: Any) -> list[Any]:
    """The parameters for one Numba argument.

    Numba passes an array as two empty owners, sizes, data, shape and strides, and a tuple item by
    item.
    """
    if isinstance(value, tuple):
        return [part for item in value for part in _numba(item)]
    if not isinstance(value, np.ndarray):
        return [value]
    none = np.uint64(0)
    sizes = (value.size, value.itemsize)
    return [
        none,
        none,
        *map(np.int64, sizes),
        value,
        *map(np.int64, value.shape),
        *map(np.int64, value.strides),
    ]


def _check_pointer(param: Variable, i: int) -> None:
    if BITS[param.type] != 64 or param.type == "f64":
        raise LaunchError(f"Argument {i} is an array, but {param.name} is a .{param.type}.")


def _scalar(param: Variable, value: Any, i: int, *, exact: bool) -> bytes:
    """The bytes of a number. CUDA C gets them unconverted, so its types must agree."""
    width = BITS[param.type] // 8
    if isinstance(value, bytes | np.void):
        data = value if isinstance(value, bytes) else value.tobytes()
        if len(data) != param.size:
            raise LaunchError(f"Argument {i} has {len(data)} bytes, {param.name} {param.size}.")
        return data
    if not exact:
        dtype = {"f": "f", "s": "i"}.get(param.type[0], "u")
        return np.array(value).astype(f"{dtype}{width}").tobytes()
    if not isinstance(value, int | float | np.generic):
        raise LaunchError(f"Argument {i} is a {type(value).__name__}, not an array or a number.")
    if not isinstance(value, np.generic):
        raise LaunchError(
            f"Argument {i} is a Python {type(value).__name__}, which a driver is given as 8 bytes; "
            f"pass a NumPy number of {width} bytes for {param.name} (.{param.type})."
        )
    is_float = value.dtype.kind == "f"
    mismatch = param.type[0] != "b" and is_float != (param.type[0] == "f")
    if value.dtype.itemsize != width or mismatch:
        raise LaunchError(
            f"Argument {i} is {value.dtype}, {param.name} takes {width} bytes (.{param.type})."
        )
    return value.tobytes()
