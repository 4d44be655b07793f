"""The page: plain HTML, one style sheet inside it, pictures inside it, no script, no network."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from importlib.metadata import version
from importlib.resources import files as resources
from typing import Any

from demopool import capabilities, registry
from demopool.measurement import fingerprint
from demopool.profiles import Decided, Profile
from demopool.units import readable

from .claims import Judged
from .data import Fact
from .figures import Figure

HOW = (
    "Times are of whole calls, from features to the normalised descriptor, checks included, after "
    "a warm-up; those of choose are the median over rounds of the lowest call in a round, those of "
    "asv its median. Memory is the peak above what was held before the call, in a run of its own. "
    "The error is against the float64 reference. Each backend runs in a process of its own."
)


def render(
    facts: Sequence[Fact],
    profile: Profile,
    claims: Sequence[Judged],
    figures: Sequence[tuple[Figure, bytes]],
) -> str:
    machine = fingerprint.machine()
    made = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    style = resources("demopool.report").joinpath("style.css").read_text()
    name = f"{machine['processor']}, {machine['cores']} cores"
    gpu = machine["gpu"]
    if gpu:
        name += ", " + ", ".join(gpu)
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        # Whatever is not inside the page, a browser refuses and complains about.
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        "img-src data:; style-src 'unsafe-inline'\">",
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<link rel="icon" href="data:,">',
        "<title>demopool report</title>",
        f"<style>{style}</style></head><body>",
        "<h1>Which second-order pooling should run here?</h1>",
        f'<p class="soft">{escape(name)}; demopool {escape(version("demopool"))}, {made}</p>',
        "<h2>Recommendation</h2>",
        *_recommendation(profile),
        "<h2>The paper's claims on this machine</h2>",
        *_claims(claims),
        *_pictures(figures),
        *_measured(facts),
        "<h2>What is supported</h2>",
        *_support(),
        "<h2>Machine and software</h2>",
        *_fingerprint(),
        "<h2>How it was measured</h2>",
        f"<p>{escape(HOW)}</p>",
        "</body></html>",
    ]
    return "\n".join(parts) + "\n"


def _recommendation(profile: Profile) -> Iterable[str]:
    if not profile.decided:
        yield "<p>Nothing was measured here yet. <code>demopool choose</code> does it.</p>"
        return
    rows = [_decided(answer) for answer in reversed(profile.decided)]
    yield _table(
        ("job", "use", "verdict", "time", "next takes", "threads", "measured"), rows, (3, 4, 5)
    )


def _decided(answer: Decided) -> tuple[str, ...]:
    case = answer.case
    times = {(m.backend, m.route): m.seconds for m in answer.candidates}
    own = times.pop((answer.backend, answer.route), None)
    following = min(times.values(), default=None)
    ahead = f"{following / own:.2f}x" if own and following else "-"
    sizes = f"{case.batch} x n={case.n} x d={case.d} {case.dtype}"
    if case.descriptor.startswith("sketched-"):
        sizes += f" k={case.k}"
    return (
        f"{case.descriptor}, {sizes}",
        f"{answer.backend}, {answer.route}",
        answer.state,
        readable(own, "time"),
        ahead,
        str(answer.threads),
        answer.measured_at[:10],
    )


def _claims(claims: Sequence[Judged]) -> Iterable[str]:
    yield '<div class="wide"><table><tr><th>claim</th><th>here</th><th>holds</th></tr>'
    for claim in claims:
        word, kind = {True: ("yes", "holds"), False: ("no", "fails"), None: ("-", "soft")}[
            claim.holds
        ]
        yield (
            f"<tr><td>{escape(claim.claim)}</td><td>{escape(claim.here)}</td>"
            f'<td class="{kind}">{word}</td></tr>'
        )
    yield "</table></div>"
    yield (
        '<p class="note">Of "Second-order Democratic Aggregation" (Lin, Maji, Koniusz, 2018). Best '
        "implementation against best implementation, on hardware that is not the paper's: a claim "
        "that does not hold here was not necessarily wrong there.</p>"
    )


def _pictures(figures: Sequence[tuple[Figure, bytes]]) -> Iterable[str]:
    if figures:
        yield "<h2>Time, memory and where the winner changes</h2>"
    for figure, png in figures:
        encoded = base64.b64encode(png).decode()
        yield (
            f'<figure><img alt="{escape(figure.title)}" src="data:image/png;base64,{encoded}">'
            f"<figcaption>{escape(figure.title)}. {escape(figure.says)}</figcaption></figure>"
        )


def _measured(facts: Sequence[Fact]) -> Iterable[str]:
    """Every time, machine beside machine."""
    timed = [fact for fact in facts if fact.measure == "call_s"]
    if not timed:
        return
    machines = sorted({fact.machine for fact in timed})
    rows: dict[tuple[str, str], dict[str, float]] = {}
    for fact in timed:
        case = fact.case
        job = f"{case.descriptor}, {case.batch} x n={case.n} x d={case.d} {case.dtype}"
        rows.setdefault((job, fact.candidate), {})[fact.machine] = fact.value
    yield f"<details><summary>All {len(rows)} measured times</summary>"
    cells = [
        (job, candidate, *(readable(of.get(machine), "time") for machine in machines))
        for (job, candidate), of in sorted(rows.items())
    ]
    numbers = tuple(range(2, 2 + len(machines)))
    yield _table(("job", "candidate", *machines), cells, numbers)
    yield "</details>"


def _support() -> Iterable[str]:
    names = registry.names()
    states = [(name, registry.probe(name)) for name in names]
    rows = [(name, str(found.state), found.device or found.reason) for name, found in states]
    yield _table(("backend", "here", "device, or why not"), rows)
    table = capabilities.table(names)
    lines: dict[tuple[str, str, str], dict[str, str]] = {}
    for row in table:
        key = (row.operation, row.route, str(row.order))
        told = " ".join(row.dtypes) if row.state == "ok" else row.reason
        lines.setdefault(key, {})[row.backend] = told
    yield "<details><summary>Every operation and route, with the reason for every hole</summary>"
    cells = [(*key, *(of.get(name, "-") for name in names)) for key, of in lines.items()]
    yield _table(("operation", "route", "order", *names), cells)
    yield "</details>"


def _fingerprint() -> Iterable[str]:
    found = fingerprint.fingerprint()
    yield f"<p>Key <code>{fingerprint.key(found)}</code></p>"
    rows = [(escape_key, _plain(value)) for escape_key, value in found.items()]
    yield _table(("", ""), rows)


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return "; ".join(f"{k}: {_plain(v)}" for k, v in value.items() if v is not None) or "-"
    if isinstance(value, list | tuple):
        return " | ".join(_plain(v) for v in value) or "-"
    return "-" if value is None else str(value)


def _table(
    headings: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[int] = ()
) -> str:
    head = "".join(f"<th>{escape(heading)}</th>" for heading in headings)
    body = []
    for row in rows:
        cells = (
            f'<td class="number">{escape(cell)}</td>'
            if i in numbers
            else f"<td>{escape(cell)}</td>"
            for i, cell in enumerate(row)
        )
        body.append(f"<tr>{''.join(cells)}</tr>")
    return f'<div class="wide"><table><tr>{head}</tr>{"".join(body)}</table></div>'
