"""The table at the end of ``make bench``: one commit, every candidate beside the baseline."""

from __future__ import annotations

from collections import Counter
from typing import Any

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from demopool.common.units import quantity, readable
from demopool.problem.vocabulary import TIMED_BACKENDS, Backend

_MEASURES = {
    "call_s": "time",
    "forward_backward_s": "time with backward",
    "first_call_s": "first",
    "with_transfer_s": "with transfer",
    "peak_host_bytes": "host",
    "peak_device_bytes": "device",
    "error": "error",
}

EXPLANATION = """\
time      median of warm calls, the result's memory included; x base: over the baseline's
          (demopool history follows the lower quartile, which is steadier)
first     the first call of a process that has imported the library
host      peak memory above what was held before the call; device: the device's own
error     against the float64 reference, relative to the largest entry
"""


def show(frame: Any, screen: Console) -> None:
    """``frame``: rows of :func:`demopool.results.read` for one commit."""
    for kind, subjects in frame.groupby("kind", sort=False):
        measured = subjects[subjects["state"] == "ok"]
        for (subject, case), rows in measured.groupby(["subject", "case"], sort=False):
            screen.print(_table(f"{kind} {subject}, {case}", rows))
    screen.print(EXPLANATION)
    _reasons(frame, screen)


def _table(title: str, rows: Any) -> Table:
    measures = [m for m in _MEASURES if (rows["measure"] == m).any()]
    table = Table(title=title, title_justify="left", box=SIMPLE, pad_edge=False)
    table.add_column("candidate", overflow="fold")
    for measure in measures:
        table.add_column(_MEASURES[measure], justify="right", no_wrap=True)
        if measure == "call_s":
            table.add_column("x base", justify="right", no_wrap=True)
    values = rows.pivot_table(index="candidate", columns="measure", values="value", sort=False)
    times = values.get("call_s")
    baseline = times.get("baseline/plain") if times is not None else None
    if times is not None:
        values = values.sort_values("call_s")
    for candidate, row in values.iterrows():
        cells = []
        for measure in measures:
            value = row.get(measure)
            known = value is not None and value == value
            cells.append(readable(value, quantity(measure)) if known else "-")
            if measure == "call_s":
                cells.append(f"{value / baseline:.3g}" if known and baseline else "-")
        table.add_row(str(candidate), *cells)
    return table


def show_absent(backends: list[dict[str, Any]], screen: Console) -> None:
    """What could not be measured on this machine at all."""
    reasons: dict[str, list[str]] = {}
    for row in backends:
        if not Backend(row["backend"]).is_timed:
            continue
        if row["backend"] not in TIMED_BACKENDS:
            plugin = "a plug-in, and the suite has the same candidates on every machine"
            reasons.setdefault(plugin, []).append(row["backend"])
        elif row["state"] != "ok":
            reasons.setdefault(row["reason"], []).append(row["backend"])
    for reason, names in reasons.items():
        screen.print(f"Not measured: {', '.join(names)}: {reason}.")


def _reasons(frame: Any, screen: Console) -> None:
    """Why what has no number has none, each reason once."""
    for state in ("failed", "skipped"):
        rows = frame[frame["state"] == state]
        for reason, count in Counter(rows["reason"]).most_common():
            first = rows[rows["reason"] == reason].iloc[0]
            cell = f"{first['benchmark']} {first['candidate']} {first['case']}"
            more = f" and {count - 1} more" if count > 1 else ""
            screen.print(f"{state}: {cell}{more}: {reason}")
