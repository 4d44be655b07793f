"""The page: HTML, its style, its pictures and a few lines of script in one file; no network."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from importlib.metadata import version
from typing import Any

from ..choosing.answer_types import Choice, Ranked
from ..common.units import readable
from ..contract import capabilities, registry
from ..machine import fingerprint
from ..problem.candidates import Candidate
from ..problem.cases import Case
from ..problem.vocabulary import Backend
from ..profiles.store import Decided, Profile
from ..trials.measures import ONCE
from .claims import Judged
from .data import Gathered, ReportedRace
from .html import TableCell, bullets, document, paragraph, picture, table
from .panels import Figure
from .reasons import Limit

OPEN_JOBS = 24
"""Shown with their bars at once; more are behind a line to click."""

HOW = (
    "Times are of whole calls, from features to the normalised descriptor, checks included, after "
    "a warm-up. Those of choose are the median over rounds of the lowest call in a round, with the "
    "95 % interval that order statistics give a median; a ratio is taken round by round, because "
    "whatever slows the machine slows all candidates of that round. Those of asv are its "
    "median. Memory is the peak above what was held before the call, in a run of its own. The "
    "error is against the float64 reference. Each backend runs in a process of its own."
)
_CLAIMS = (
    'Of "Second-order Democratic Aggregation" (Lin, Maji, Koniusz, 2018). Each is one race of its '
    "own candidates, best against best, all taking turns; yes and no need the whole 95 % interval "
    "on one side of the limit. On hardware and with implementations that are not the paper's: a "
    "claim that does not hold here was not necessarily wrong there."
)


def render(
    found: Gathered,
    profile: Profile,
    key: str,
    claims: Sequence[Judged],
    jobs: Sequence[tuple[ReportedRace, str, Sequence[Figure]]],
    figures: Sequence[Figure],
    limits: Sequence[Limit] = (),
) -> str:
    """``key`` is this machine's; ``jobs`` are with the reason and the bars."""
    facts = fingerprint.fingerprint()
    made = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    parts = [
        "<h1>Which second-order pooling should run here?</h1>",
        paragraph(f"{_machine(facts)}; demopool {version('demopool')}, {made}", "soft"),
        '<h2 id="use">Recommendation</h2>',
        *_recommendation(profile, found, key),
        bullets(found.notes, "warnings"),
        '<h2 id="claims">The paper\'s claims on this machine</h2>',
        *_claims(claims),
        *_jobs(jobs, key, limits),
        *_pictures(figures),
        *_measured(found),
        "<h2>What is supported</h2>",
        *_support(),
        "<h2>Machine and software</h2>",
        *_fingerprint(facts, key),
        "<h2>How it was measured</h2>",
        paragraph(HOW),
    ]
    return document("demopool report", parts)


def sizes(case: Case) -> str:
    k = f", k={case.k}" if case.descriptor.is_sketched else ""
    on = "" if case.data == "host" else f", data on the {case.data}"
    caches = ", cold caches" if case.is_cold else ""
    return f"{case.batch} x n={case.n} x d={case.d}, {case.dtype}{k}{on}{caches}"


def span(low: float | None, middle: float | None, high: float | None) -> str:
    """A time with its interval, if it has one."""
    if middle is None:
        return "-"
    if low is None or high is None:
        return readable(middle, "time")
    return f"{readable(middle, 'time')} ({readable(low, 'time')} to {readable(high, 'time')})"


def time_of(row: Ranked) -> str:
    return span(row.low_s, row.median_s, row.high_s)


def ratio(row: Ranked | None) -> str:
    """To the best, as ``choose`` prints it, with its interval."""
    if row is None or row.ratio is None:
        return "-"
    if row.ratio_low is None or row.ratio_high is None:
        return f"{row.ratio:.2f}x"
    return f"{row.ratio:.2f}x ({row.ratio_low:.2f} to {row.ratio_high:.2f})"


def best_and_next(choice: Choice) -> tuple[Ranked | None, Ranked | None]:
    """The recommended row, and the one of the others with the lowest ratio."""
    timed = [row for row in choice.rows if row.median_s is not None]
    own = next((r for r in timed if r.candidate == choice.candidate), None)
    others = [row for row in timed if row is not own and row.ratio is not None]
    return own, min(others, key=lambda row: row.ratio or 0.0, default=None)


def _recommendation(profile: Profile, found: Gathered, key: str) -> Iterable[str]:
    jobs = found.jobs
    here = [job for job in jobs if job.fingerprint == key]
    known = {(job.choice.case, job.choice.threads) for job in here}
    alone = [d for d in reversed(profile.decided) if (d.case, d.threads) not in known]
    if not jobs and not alone:
        yield "<p>Nothing was measured here yet. <code>demopool choose</code> does it.</p>"
        return
    others = [job for job in jobs if job.fingerprint != key]
    headings = [
        "job",
        "use",
        "verdict",
        "time (95 %)",
        "next takes (95 %)",
        "rounds",
        "others used",
    ]
    headings += ["threads", "measured"]
    if others:
        headings.append("machine")
    rows = [_recommended(job, bool(others)) for job in (*here, *others)]
    rows += [
        _decided(answer, (key, answer.threads, answer.case) in found.begun, bool(others))
        for answer in alone
    ]
    yield table(headings, rows, numbers=(5, 7))
    yield paragraph(
        "Fastest: at least 3 % faster than every other; tie: all within 5 % of the best, and less "
        "memory or fewer dependencies decide; unknown: not told apart, the present best is shown.",
        "note",
    )


def _recommended(job: ReportedRace, named: bool) -> list[TableCell | str]:
    choice = job.choice
    own, following = best_and_next(choice)
    row: list[TableCell | str] = [
        f"{choice.case.descriptor}, {sizes(choice.case)}",
        str(choice.candidate or "-"),
        str(choice.state),
        TableCell(time_of(own) if own else "-", own.median_s if own else None),
        TableCell(ratio(following), following.ratio if following else None),
        str(choice.rounds),
        load(job),
        str(choice.threads),
        job.measured_at[:16].replace("T", " "),
    ]
    return [*row, job.origin.machine] if named else row


def load(job: ReportedRace) -> str:
    """What others took of the machine meanwhile, if it was written down."""
    return "not recorded" if job.load is None else f"{job.load:.1f} cores"


def _decided(answer: Decided, begun: bool, named: bool) -> list[TableCell | str]:
    """From the profile alone, without an interval: ``begun`` if there are samples of it."""
    why = "no whole round was timed" if begun else "samples are gone"
    best = Candidate(answer.backend, answer.route)
    own = next((m.seconds for m in answer.candidates if (m.backend, m.route) == best), None)
    row: list[TableCell | str] = [
        f"{answer.case.descriptor}, {sizes(answer.case)}",
        str(best),
        answer.state,
        TableCell(f"{readable(own, 'time')} ({why})", own),
        *("-", "-", "-"),
        str(answer.threads),
        answer.measured_at[:16].replace("T", " "),
    ]
    return [*row, "this"] if named else row


def _claims(claims: Sequence[Judged]) -> Iterable[str]:
    words = {True: ("yes", "holds"), False: ("no", "fails"), None: ("cannot be said", "soft")}
    rows = [
        (
            claim.claim,
            claim.reading,
            claim.here,
            TableCell(words[claim.holds][0], None, words[claim.holds][1]),
        )
        for claim in claims
    ]
    yield table(("claim", "read as", "here", "holds"), rows, sortable=False)
    yield paragraph(_CLAIMS, "note")


def _jobs(
    jobs: Sequence[tuple[ReportedRace, str, Sequence[Figure]]], key: str, limits: Sequence[Limit]
) -> Iterable[str]:
    if not jobs:
        return
    yield '<h2 id="jobs">Every job</h2>'
    if limits:
        reached = "; ".join(map(str, limits))
        yield paragraph(f"The limit is what this machine reached just now: {reached}.", "note")
    cards = [_card(job, why, bars, key) for job, why, bars in jobs]
    yield f'<div class="grid">{"".join(cards[:OPEN_JOBS])}</div>'
    if cards[OPEN_JOBS:]:
        yield f"<details><summary>{len(cards) - OPEN_JOBS} more jobs</summary>"
        yield f'<div class="grid">{"".join(cards[OPEN_JOBS:])}</div></details>'


def _card(job: ReportedRace, why: str, bars: Sequence[Figure], key: str) -> str:
    choice = job.choice
    foreign = "" if job.fingerprint == key else f", on {job.origin.machine}"
    threads = f"{choice.threads} thread{'s' * (choice.threads > 1)}"
    timed = [row for row in choice.rows if row.median_s is not None]
    measured = [m for m in ONCE.values() if any(getattr(row, m.name) is not None for row in timed)]
    rows: list[Sequence[TableCell | str]] = [
        (
            str(row.candidate),
            TableCell(time_of(row), row.median_s),
            TableCell(ratio(row), row.ratio),
            str(row.rounds),
            *(
                TableCell(readable(getattr(row, m.name), m.quantity), getattr(row, m.name))
                for m in measured
            ),
            str(row.verdict or row.state),
        )
        for row in timed
    ]
    headings = ["candidate", "median (95 %)", "x best (95 %)", "rounds"]
    headings += [m.heading for m in measured]
    rounds = f"{choice.rounds} round{'s' * (choice.rounds != 1)}"
    when = f"{job.measured_at[:10]}{foreign}"
    facts = f"{rounds}, {threads}; others used: {load(job)}; {when}."
    parts = [
        f'<section class="card"><h3>{escape(choice.case.descriptor)}</h3>',
        paragraph(sizes(choice.case), "soft"),
        paragraph(choice.sentence, "answer"),
        paragraph(why) if why else "",
        *(picture(figure, heading=False) for figure in bars),
        paragraph(facts, "note"),
        bullets(choice.warnings, "warnings"),
        f"<details><summary>all {len(rows)} candidates</summary>",
        table([*headings, "verdict"], rows, numbers=range(3, len(headings))),
        "</details></section>",
    ]
    return "".join(parts)


def _pictures(figures: Sequence[Figure]) -> Iterable[str]:
    if figures:
        yield '<h2 id="pictures">Time, memory and error, and where the winner changes</h2>'
        yield f'<div class="grid">{"".join(picture(figure) for figure in figures)}</div>'


def _measured(found: Gathered) -> Iterable[str]:
    """Every time; an origin to a row, so that nothing is set beside what it cannot be."""
    timed = [fact for fact in found.facts if fact.measure == "call_s"]
    if not timed:
        return
    rows: list[Sequence[TableCell | str]] = [
        (
            fact.case.descriptor,
            sizes(fact.case),
            fact.candidate,
            TableCell(span(fact.low, fact.value, fact.high), fact.value),
            str(fact.origin),
        )
        for fact in sorted(timed, key=lambda f: (f.case.descriptor, sizes(f.case), f.value))
    ]
    yield f"<details><summary>All {len(rows)} measured times</summary>"
    yield table(("descriptor", "sizes", "candidate", "time", "measured by"), rows)
    yield "</details>"


def _support() -> Iterable[str]:
    names = registry.names()
    states = [(name, registry.probe(name)) for name in names]
    rows = [(name, str(probe.state), probe.device or probe.reason) for name, probe in states]
    yield table(("backend", "here", "device, or why not"), rows, sortable=False)
    # A backend that only verifies another has the routes of that.
    names = tuple(name for name in names if not Backend(name).is_emulated)
    lines: dict[tuple[str, str, str], dict[str, str]] = {}
    for row in capabilities.table(names):
        cell = " ".join(row.dtypes) if row.state == "ok" else row.reason
        lines.setdefault((row.operation, row.route, str(row.order)), {})[row.backend] = cell
    yield "<details><summary>Every operation and route, with the reason for every hole</summary>"
    cells = [(*key, *(of.get(name, "-") for name in names)) for key, of in lines.items()]
    yield table(("operation", "route", "order", *names), cells)
    yield "</details>"


def _machine(facts: dict[str, Any]) -> str:
    gpus = "".join(f", {gpu['name']}" for gpu in facts["gpus"])
    cores = facts["cpu"]["usable_cores"]
    return f"{facts['cpu']['name']}, {cores} core{'s' * (cores > 1)}{gpus}"


def _fingerprint(facts: dict[str, Any], key: str) -> Iterable[str]:
    """What a colleague asks first."""
    cpu, memory, frequency = facts["cpu"], facts["memory"], facts["frequency"]
    caches = [
        f"L{c['level']} {(c['type'] or '').lower()} {readable(c['size_bytes'], 'memory')}"
        for c in cpu["caches"] or ()
        if c["size_bytes"]
    ]
    held = memory["limit_bytes"] or memory["total_bytes"]
    blas = [f"{b['name']} {b['version']} ({b['package'] or 'system'})" for b in facts["blas"]]
    shown = {
        "key": key,
        "processor": cpu["name"],
        "cores": f"{cpu['usable_cores']} usable, {cpu['physical_cores'] or '?'} physical",
        "caches": ", ".join(caches),
        "memory": readable(held, "memory"),
        "GPU": ", ".join(gpu["name"] for gpu in facts["gpus"]) or "none",
        "clock": ", ".join(
            f"{name} {frequency[name]}" for name in ("governor", "max_mhz") if frequency[name]
        ),
        "system": f"{facts['system']} {facts['kernel']}, Python {facts['python']}",
        "BLAS": ", ".join(blas),
        "libraries": ", ".join(f"{n} {v}" for n, v in facts["libraries"].items()),
        "load now": ", ".join(f"{value:g}" for value in facts["load_average"] or ()),
    }
    cells = "".join(
        f"<tr><td>{escape(name)}</td><td>{escape(text)}</td></tr>"
        for name, text in shown.items()
        if text
    )
    yield f'<table class="facts">{cells}</table>'
