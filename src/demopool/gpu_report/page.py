"""The page: what to look at first, then everything that it was concluded from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Any

from ..common.program import __version__
from ..common.units import readable
from ..conformance import Cell, failed
from ..contract import registry
from ..problem.candidates import Candidate
from ..problem.cases import Case
from ..problem.vocabulary import Backend
from ..report.html import TableCell, bullets, document, paragraph, table
from ..report.page import sizes
from . import counts
from .findings import FAR, distances

Found = dict[str, Any]

_HOW = (
    "Times are of whole calls with data on the device, checks included, after a warm-up: the "
    "median over rounds of the lowest call in a round. The roofline is the longer of two "
    "times: the route's operations, counted by the cost model, and its least bytes, at the speed "
    "that this GPU reached in float32 in matrix products by torch or CuPy without TF32, and in "
    "copies. Routes by TF32 have none, because the speed of its "
    "products is not measured, and neither have decompositions, whose operations are not counted "
    "exactly. Clocks are what NVML said during a race. Counts are from executing the kernels' PTX "
    "on the CPU: they are work, not time, and the same on every machine."
)


def render(found: Found, conspicuous: Sequence[str]) -> str:
    names = ", ".join(f"{gpu['name']} (driver {gpu['driver']})" for gpu in found["gpus"])
    made = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    parts = [
        "<h1>demopool on this GPU</h1>",
        paragraph(f"{names or 'no GPU'}; {', '.join(found['chosen'])}", "soft"),
        paragraph(f"demopool {__version__}, {made}", "soft"),
        '<h2 id="first">Look at this first</h2>',
        bullets(conspicuous, "warnings")
        or paragraph(
            "Nothing is conspicuous: every cell conforms, and in no race does the fastest "
            f"candidate that has a roofline take more than {FAR:g} times that, where it is known."
        ),
        '<h2 id="right">Is it right?</h2>',
        *_cells(found["cells"]),
        '<h2 id="fast">How fast is it?</h2>',
        *_limits(found["limits"]),
        *_races(found),
        '<h2 id="clocks">Clocks</h2>',
        *_clocks(found["races"]),
        '<h2 id="counts">What the kernels do</h2>',
        *_counts(found["counts"], found["chosen"]),
        '<h2 id="sanitizer">compute-sanitizer</h2>',
        *_sanitizer(found),
        '<h2 id="ncu">Nsight Compute</h2>',
        *_profiles(found),
        "<h2>Backends and software</h2>",
        *_backends(found["backends"]),
        "<h2>How it was measured</h2>",
        paragraph(_HOW),
    ]
    return document("demopool gpu-report", parts)


def _cells(rows: Sequence[Found]) -> Iterator[str]:
    cells = [Cell(**row) for row in rows]
    judged = [cell for cell in cells if cell.dtype is not None]
    bad = failed(cells)
    yield paragraph(f"{len(judged) - len(bad)} of {len(judged)} cells conform to the reference.")
    for backend in dict.fromkeys(cell.backend for cell in cells):
        own = [cell for cell in judged if cell.backend == backend]
        absent = Counter(
            cell.reason for cell in cells if cell.backend == backend and cell.dtype is None
        )
        holes = bullets([f"{count} routes: {reason}" for reason, count in absent.items()])
        yield f"<details><summary>{escape(backend)}: {len(own)} cells</summary>"
        yield table(
            (
                "operation",
                "route",
                "order",
                "dtype",
                "error",
                "tolerance",
                "state",
                "worst example",
            ),
            [
                (
                    *(cell.operation, cell.route, str(cell.order), str(cell.dtype)),
                    _figure(cell.worst_error, ".1e"),
                    _figure(cell.tolerance, ".1e"),
                    TableCell(cell.state, None, "holds" if cell.state == "ok" else "fails"),
                    cell.worst_case or cell.reason or "",
                )
                for cell in own
            ],
            numbers=(4, 5),
        )
        yield f"{holes}</details>"


def _limits(limits: Found | None) -> Iterator[str]:
    if limits is None:
        yield paragraph("Code that is executed on the CPU has no time of its own: no race.")
        return
    if limits["reason"]:
        yield paragraph(f"How fast this GPU is cannot be said: {limits['reason']}.")
        return
    text = (
        f"This GPU reached {limits['flops'] / 1e12:.3g} TFLOP/s in products of float32 and "
        f"{limits['memory_bytes'] / 1e9:.3g} GB/s in copies"
    )
    sheet = limits["data_sheet"]
    if sheet:
        text += (
            f": {sheet['flops_share']:.0%} and {sheet['bytes_share']:.0%} of the data sheet of "
            f"{sheet['device']}"
        )
    yield paragraph(f"{text}.")


def _races(found: Found) -> Iterator[str]:
    if not found["races"]:
        return
    rows: list[Sequence[TableCell | str]] = []
    for race in found["races"]:
        case = Case(**race["case"])
        away = {d.candidate: d for d in distances(race, found["limits"])}
        for row in race["candidates"]:
            if not row["route"]:
                continue
            name = f"{row['backend']}/{row['route']}"
            distance = next((d for c, d in away.items() if str(c) == name), None)
            times = distance.times if distance else None
            rows.append(
                (
                    f"{case.descriptor}, {sizes(case)}",
                    name,
                    TableCell(_readable(row["median_s"], "time"), row["median_s"]),
                    TableCell(_figure(row["ratio"], ".2f"), row["ratio"]),
                    TableCell(
                        _figure(times, ".1f"), times, "fails" if (times or 0.0) > FAR else ""
                    ),
                    distance.bound if distance else "-",
                    _readable(row["first_call_s"], "time"),
                    _readable(row["with_transfer_s"], "time"),
                    _readable(row["peak_device_bytes"], "memory"),
                    str(row["verdict"] or row["state"])
                    + (f": {row['reason']}" * bool(row["reason"])),
                )
            )
    headings = [
        *("job", "candidate", "median", "x best", "x roofline", "bound by", "first call"),
        *("with transfers", "memory", "verdict"),
    ]
    yield table(headings, rows, numbers=(2, 3, 4, 6, 7, 8))


def _clocks(races: Sequence[Found]) -> Iterator[str]:
    known = [(race, race["clocks"]) for race in races if race["clocks"]]
    if not known:
        yield paragraph("NVML said nothing about a GPU at work.")
        return
    yield table(
        (
            "race",
            "SM clock, MHz",
            "of at most",
            "memory clock, MHz",
            "temperature, C",
            "disturbed by",
        ),
        [
            (
                f"{race['case']['descriptor']} of {race['name']}",
                _span(clocks["sm_clock_mhz"]),
                str(clocks["max_sm_clock_mhz"] or "-"),
                _span(clocks["memory_clock_mhz"]),
                _span(clocks["temperature_c"]),
                clocks["warning"] or "-",
            )
            for race, clocks in known
        ],
    )


def _counts(rows: Sequence[Found], chosen: Sequence[str]) -> Iterator[str]:
    if rows:
        yield from _counted(rows)
    libraries = {Backend(Candidate.parse(row["candidate"]).backend).library for row in rows}
    others = [name for name in chosen if Backend(name).library not in libraries]
    executable = [name for name in others if counts.twin(name) in registry.names()]
    for names, why in (
        (executable, "pip install '.[gpu-proof]' in a clone brings what executes their kernels"),
        (
            [name for name in others if name not in executable],
            "nothing here executes their kernels",
        ),
    ):
        if names:
            yield paragraph(f"No counts for {' and '.join(names)}: {why}.", "note")


def _counted(rows: Sequence[Found]) -> Iterator[str]:
    yield table(
        (
            *("candidate", "kernel", "launches", "grid", "block", "flops", "global memory"),
            *("useful", "bank conflicts", "atomics", "divergent"),
        ),
        [
            (
                *(row["candidate"], row["kernel"], str(row["launches"])),
                *("x".join(map(str, row[name])) for name in ("grid", "block")),
                TableCell(f"{row['flops']:,}", row["flops"]),
                TableCell(readable(row["global_bytes"], "memory"), row["global_bytes"]),
                f"{row['useful_share']:.0%}",
                *(f"{row[name]:,}" for name in ("bank_conflicts", "atomics", "divergent_branches")),
            )
            for row in rows
            if "kernel" in row
        ],
        numbers=(2, *range(5, 11)),
    )
    yield bullets([f"{row['candidate']}: {row['reason']}" for row in rows if "reason" in row])
    yield paragraph(f"One call of democratic pooling, {sizes(counts.CASE)}.", "note")


def _sanitizer(found: Found) -> Iterator[str]:
    rows = found["sanitizer"]
    if not rows:
        yield paragraph(_absent(found, "compute-sanitizer", "It comes with the CUDA toolkit."))
        return
    yield table(
        ("backend", "tool", "state", "errors", "reason"),
        [
            (
                *(row["backend"], row["tool"]),
                TableCell(row["state"], None, "holds" if row["state"] == "ok" else "fails"),
                _figure(row["errors"], "d"),
                row["reason"],
            )
            for row in rows
        ],
    )
    yield paragraph(
        "Every array was memory of its own here, not a part of a pool of torch's or CuPy's: what "
        "is read or written beyond its end, or read before it is written, is seen.",
        "note",
    )
    for row in rows:
        yield from _log(f"{row['backend']}, {row['tool']}", row["log"])


def _profiles(found: Found) -> Iterator[str]:
    if not found["profiles"]:
        yield paragraph(
            _absent(
                found, "ncu", "It comes with the CUDA toolkit, and may need administrator rights."
            )
        )
        return
    for one in found["profiles"]:
        title = f"{one['candidate']}, {one['descriptor']} of {one['case']}"
        yield f"<h3>{escape(title)}</h3>"
        if one["reason"]:
            yield paragraph(f"No figures: {one['reason']}.", "warnings")
            yield from _log("what it printed", one.get("log", ()))
            continue
        yield table(
            (
                *("kernel", "launches", "blocks", "threads", "time", "DRAM", "compute %"),
                *("memory %", "occupancy %", "registers"),
            ),
            [
                (
                    *(row["kernel"], str(row["launches"])),
                    *(
                        TableCell(_figure(row[name], ",.0f"), row[name])
                        for name in ("blocks", "threads")
                    ),
                    TableCell(readable(row["seconds"], "time"), row["seconds"]),
                    TableCell(_readable(row["dram_bytes"], "memory"), row["dram_bytes"]),
                    *(
                        _figure(row[name], ".0f")
                        for name in (
                            *("compute_percent", "memory_percent", "occupancy_percent"),
                            "registers",
                        )
                    ),
                )
                for row in one["kernels"]
            ],
            numbers=range(1, 10),
        )
    yield paragraph(
        "Time and DRAM, which is what was read and written there, are of all launches of a kernel "
        "in one call; blocks are of one launch, threads of one block.",
        "note",
    )


def _backends(rows: Sequence[Found]) -> Iterator[str]:
    yield table(
        ("backend", "here", "device, or why not", "versions"),
        [
            (
                *(row["backend"], str(row["state"]), row["device"] or row["reason"] or ""),
                ", ".join(f"{name} {version}" for name, version in row["versions"].items()),
            )
            for row in rows
        ],
        sortable=False,
    )


def _absent(found: Found, tool: str, how: str) -> str:
    if found["tools"][tool]:
        return "It was not asked for, or there was nothing to run it on."
    return f"{tool} is not installed, or not in PATH. {how}"


def _log(title: str, lines: Iterable[str]) -> Iterator[str]:
    text = "\n".join(lines)
    if text:
        yield f"<details><summary>{escape(title)}</summary><pre>{escape(text)}</pre></details>"


def _span(values: Sequence[float] | None) -> str:
    if not values:
        return "-"
    low, middle, high = (f"{value:g}" for value in values)
    return low if low == high else f"{middle} ({low} to {high})"


def _figure(value: float | None, how: str) -> str:
    return "-" if value is None else format(value, how)


def _readable(value: float | None, quantity: str) -> str:
    return "-" if value is None else readable(value, quantity)
