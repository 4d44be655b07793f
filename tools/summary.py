"""The table at the end of ``make bench``: one commit, every candidate beside the baseline."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from benchmarks import plugins
from demopool.common.units import readable
from demopool.problem.vocabulary import TIMED_BACKENDS, Backend
from demopool.trials.measures import MEASURES

_SHOWN = {name: measure for name, measure in MEASURES.items() if measure.heading}


def show(frame: Any, screen: Console) -> None:
    """``frame``: rows of :func:`demopool.results.read` for one commit."""
    for kind, subjects in frame.groupby("kind", sort=False):
        measured = subjects[subjects["state"] == "ok"]
        for (subject, case), rows in measured.groupby(["subject", "case"], sort=False):
            screen.print(_table(f"{kind} {subject}, {case}", rows))
    screen.print(_legend(frame[frame["state"] == "ok"]["measure"].unique()))
    _reasons(frame, screen)


def _legend(measures: Iterable[str]) -> Table:
    """What the columns are."""
    legend = Table.grid(padding=(0, 2))
    for measure in (_SHOWN[name] for name in _SHOWN if name in measures):
        legend.add_row(measure.heading, measure.meaning)
        if measure.name == "call_s":
            legend.add_row("x base", "over the baseline's time")
            legend.add_row("x limit", "over the machine's limit; a race of choose measures that")
    legend.add_row("", "demopool history follows the lower quartile of times, which is steadier")
    return legend


def _table(title: str, rows: Any) -> Table:
    measures = [m for m in _SHOWN if (rows["measure"] == m).any()]
    has_limits = rows["limit_s"].notna().any()
    table = Table(title=title, title_justify="left", box=SIMPLE, pad_edge=False)
    table.add_column("candidate", overflow="fold")
    for measure in measures:
        table.add_column(_SHOWN[measure].heading, justify="right", no_wrap=True)
        if measure == "call_s":
            table.add_column("x base", justify="right", no_wrap=True)
            if has_limits:
                table.add_column("x limit", justify="right", no_wrap=True)
    values = rows.pivot_table(index="candidate", columns="measure", values="value", sort=False)
    limits = rows.groupby("candidate")["limit_s"].max()
    times = values.get("call_s")
    baseline = times.get("baseline/plain") if times is not None else None
    if times is not None:
        values = values.sort_values("call_s")
    for candidate, row in values.iterrows():
        cells = []
        for measure in measures:
            value = row.get(measure)
            known = value is not None and value == value
            cells.append(readable(value, _SHOWN[measure].quantity) if known else "-")
            if measure == "call_s":
                cells.append(f"{value / baseline:.3g}" if known and baseline else "-")
            if measure == "call_s" and has_limits:
                limit = limits[candidate]
                cells.append(f"{value / limit:.3g}" if known and limit == limit else "-")
        table.add_row(str(candidate), *cells)
    return table


def show_absent(backends: list[dict[str, Any]], screen: Console) -> None:
    """What could not be measured on this machine at all."""
    reasons: dict[str, list[str]] = {}
    for row in backends:
        if not Backend(row["backend"]).is_timed:
            continue
        if row["backend"] not in (*TIMED_BACKENDS, *plugins.listed()):
            plugin = f"a plug-in, and {plugins.VARIABLE} does not list it"
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
