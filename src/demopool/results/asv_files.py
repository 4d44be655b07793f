"""What asv leaves on disk, as plain rows: its result files, and the notes that lie beside them.

asv stores numbers, ``null`` for a failure and ``NaN`` for what was skipped or not selected. Which
of the two a ``NaN`` is, why, and on what software it was measured, is said by the notes: a file of
JSON Lines with the same stem, written by the benchmarks themselves.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import product, zip_longest
from math import isfinite, isnan, prod
from pathlib import Path
from typing import Any

from ..common.files import UNREADABLE, read_text
from ..errors import InvalidInput
from ..problem.candidates import Candidate
from ..problem.cases import AXES, along, name_of
from ..problem.operations import OPERATIONS
from ..problem.vocabulary import DESCRIPTORS
from ..trials.measures import without_plugins
from .load import Counters, Loads

CONFIGURATION = "asv.conf.json"
RESULT_VERSION = 2
"""Of asv's files; `asv update` brings older ones to it."""
NOTE_SCHEMA = 1
_KINDS = {
    "descriptors": "descriptor",
    "scaling_n": "descriptor",
    "scaling_d": "descriptor",
    "operations": "operation",
    "gradients": "gradient",
    "counts": "descriptor",
}
"""What the classes of a module of the suite measure."""
RESULT_NAME = re.compile(r"[0-9a-f]{8}-.+\.json")

_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
_SUBJECTS = {
    "".join(part.capitalize() for part in re.split("[-_]", name)): name
    for name in (*DESCRIPTORS, *OPERATIONS)
}
_NO_REASON = "no reason is stored; `asv run --show-stderr` on this commit shows it"

_COMMIT = re.compile(r"[0-9a-f]{7,64}")
_MAX_CELLS = 1_000_000
"""Of one benchmark. A few short lists of parameters have a product that fills any memory."""
_LONGEST_LITERAL = 1_000
"""A parameter with a longer repr stays text."""
_SMALLEST, _LARGEST = 1e-30, 1e30
"""What is measured lies between: no ratio of two such values leaves the range of numbers."""

Record = dict[str, Any]
CellKey = tuple[str, Any, Any]


def project_folder(start: Path) -> Path | None:
    """The nearest folder with an asv.conf.json: ``start`` or one above it."""
    return next((f for f in (start, *start.parents) if (f / CONFIGURATION).is_file()), None)


def results_folder(project: Path) -> Path:
    """Where a project's asv.conf.json puts results: inside its folder, or it is not believed.

    Somebody else's could name the whole disk.
    """
    # asv allows comments in it, so it is not always JSON.
    text = re.sub(r"^\s*//.*$", "", read_text(project / CONFIGURATION), flags=re.MULTILINE)
    named = re.search(r'"results_dir"\s*:\s*"([^"]+)"', text)
    folder = project / (named[1] if named else "results")
    if not folder.resolve().is_relative_to(project.resolve()):
        raise InvalidInput(
            f"{project / CONFIGURATION} has results_dir {str(folder)!r}, which is outside its own "
            "folder; name that folder itself if its results are wanted."
        )
    return folder


def known_benchmarks(file: Path) -> dict[str, Any] | None:
    """``benchmarks.json``: name to units, parameters and present version; None if not there."""
    if not file.is_file():
        return None
    known = _object(file, "a list of asv's benchmarks")
    return {name: entry for name, entry in known.items() if isinstance(entry, dict)}


@dataclass(frozen=True)
class Notes:
    """What the benchmarks wrote down beside a result file."""

    cells: Mapping[CellKey, tuple[int, Mapping[str, Any]]]
    fingerprints: tuple[tuple[datetime, str], ...]
    loads: Loads

    def about(self, benchmark: str, candidate: Any, case: Any) -> Mapping[str, Any] | None:
        """The last note on a cell; one on its class (what setup found) is on every method."""
        owner = benchmark.rpartition(".")[0]
        found = [self.cells.get((name, candidate, case)) for name in (benchmark, owner)]
        return max((note for note in found if note), key=lambda note: note[0], default=(0, None))[1]

    def fingerprint(self, at: datetime | None) -> str | None:
        """Of the machine and its software at that moment: the note nearest in time."""
        if not self.fingerprints:
            return None
        if at is None:
            return self.fingerprints[-1][1]
        return min(self.fingerprints, key=lambda note: abs(note[0] - at))[1]


def notes(file: Path) -> Notes:
    """The last line about a cell counts; half a line, as a crash leaves it, is passed over."""
    cells: dict[CellKey, tuple[int, Mapping[str, Any]]] = {}
    fingerprints = []
    counters = []
    for number, line in enumerate(read_text(file).splitlines() if file.is_file() else ()):
        try:
            note = json.loads(line)
            if note["schema"] != NOTE_SCHEMA:
                continue
            if note["kind"] == "fingerprint":
                fingerprints.append((_moment(note["measured_at"]), str(note["key"])))
            elif note["kind"] == "load":
                counters.append(Counters.of(note, _moment(note["measured_at"])))
            elif note["kind"] in ("skip", "failure"):
                cells[note["benchmark"], note["candidate"], note["case"]] = (number, note)
        except UNREADABLE:
            continue
    return Notes(cells, tuple(fingerprints), Loads(counters))


def rows(file: Path, known: Mapping[str, Any] | None) -> tuple[list[Record], int]:
    """Every cell of one result file, and how many were left out as stale.

    Stale is what an older version of a benchmark measured, or a benchmark that is gone: asv
    itself does not show them either.
    """
    stored = _object(file, "an asv result file")
    if stored.get("version") != RESULT_VERSION:
        raise InvalidInput(
            f"{file} cannot be read: it is not an asv result file of version {RESULT_VERSION} "
            "(`asv update` renews old ones)."
        )
    beside = notes(file.with_suffix(".jsonl"))
    found: list[Record] = []
    stale = 0
    try:
        common = _common(stored, file)
        for name, values in stored["results"].items():
            entry = dict(zip_longest(stored["result_columns"], values))
            same = without_plugins(name)
            cells = _cells(name, entry, known.get(same) if known else None, beside)
            if _is_stale(same, entry, known):
                stale += sum(1 for _ in cells)
            else:
                found += [{**common, **cell} for cell in cells]
    except (OSError, *UNREADABLE) as problem:
        raise InvalidInput(
            f"{file} cannot be read: it is not an asv result file "
            f"({type(problem).__name__}: {problem})."
        ) from None
    return found, stale


def _is_stale(name: str, entry: Record, known: Mapping[str, Any] | None) -> bool:
    if known is None:
        return False
    if name not in known:
        return True
    return entry.get("version") not in (None, known[name].get("version"))


def _common(stored: Record, file: Path) -> Record:
    """What all cells of a file share."""
    environment, commit = stored["env_name"], stored["commit_hash"]
    if not _COMMIT.fullmatch(commit):
        raise ValueError(f"{commit!r} is no hash of a commit")
    return {
        "source": "asv",
        "machine": stored["params"].get("machine") or file.parent.name,
        "commit": commit,
        "date": _from_milliseconds(stored["date"]),
        "environment": environment,
        "python": stored["python"],
        "threads": _threads(stored.get("env_vars") or {}, environment),
    }


def _threads(variables: Mapping[str, str], environment: str) -> int | None:
    for name in _THREADS:
        if str(variables.get(name, "")).isdigit():
            return int(variables[name])
    for name in _THREADS:
        named = re.search(rf"{name}(\d+)", environment)
        if named:
            return int(named[1])
    return None


def _cells(name: str, entry: Record, known: Record | None, beside: Notes) -> Iterator[Record]:
    """One row per combination of parameters, in the order of their product."""
    parameters = entry["params"] or []
    count = prod(len(values) for values in parameters)
    if not 0 < count <= _MAX_CELLS:
        raise ValueError(f"{name} has {count} combinations of parameters")
    combinations = list(product(*parameters))
    names = _parameter_names(name, known, len(combinations[0]))
    results = entry["result"]
    if results is None:
        # Shorthand of asv's: every combination that was selected failed.
        results = [None] * len(combinations)
    if len(results) != len(combinations):
        raise ValueError(f"{name} has {len(results)} values for {len(combinations)} combinations")
    started = _from_milliseconds(entry.get("started_at"))
    common = {
        "benchmark": name,
        **_named(name, known),
        "version": entry.get("version"),
        "measured_at": started,
        "fingerprint": beside.fingerprint(started),
    }
    for place, (combination, value) in enumerate(zip(combinations, results, strict=True)):
        chosen = dict(zip(names, (_literal(text) for text in combination), strict=True))
        text = ", ".join(f"{key}={shown}" for key, shown in chosen.items())
        candidate, case = _candidate_and_case(chosen)
        pair = Candidate.found_in(str(candidate))
        yield {
            **common,
            "parameters": text or None,
            "candidate": candidate,
            "backend": pair and pair.backend,
            "route": pair and pair.route,
            "case": case,
            "load": beside.loads.of(
                f"{common['subject']} {candidate} {case}", started, entry.get("duration")
            ),
            **_outcome(value, beside.about(name, candidate, case)),
            **(_statistics(entry, place, value) if _is_number(value) else {}),
        }


def _parameter_names(name: str, known: Record | None, count: int) -> list[str]:
    if known and len(known.get("param_names") or []) == count:
        return list(known["param_names"])
    # Without a list of benchmarks the names are not stored: two parameters are ours.
    if count == 2:
        module = without_plugins(name).partition(".")[0]
        axis = module.removeprefix("scaling_")
        return ["candidate", axis if axis in AXES else "case"]
    return [f"param{number + 1}" for number in range(count)]


def _candidate_and_case(chosen: Mapping[str, Any]) -> tuple[Any, str | None]:
    """Of our own benchmarks; a case that has one size as its parameter has a name like others."""
    for axis in ("case", *AXES):
        if list(chosen) == ["candidate", axis]:
            size = chosen[axis]
            if axis in AXES and isinstance(size, int):
                return chosen["candidate"], name_of(along(axis, size))
            return chosen["candidate"], size
    return None, None


def _named(name: str, known: Record | None) -> Record:
    """Kind, subject, measure and unit in the project's words: ``operations.Pool.time_call``."""
    *owners, method = without_plugins(name).split(".")
    prefix, _, rest = method.partition("_")
    timed = prefix in ("time", "timeraw")
    owner = owners[-1] if len(owners) > 1 else None
    return {
        "kind": _KINDS.get(owners[0], owners[0]) if owners else None,
        "subject": _SUBJECTS.get(owner, owner) if owner else None,
        "measure": f"{rest}_s" if timed else rest or method,
        "unit": (known or {}).get("unit") or ("seconds" if timed else None),
    }


def _outcome(value: Any, note: Mapping[str, Any] | None) -> Record:
    """A number wins over any note; without one the note says what the gap is."""
    if _is_number(value):
        return {"state": "ok", "candidate_state": "ok", "value": float(value)}
    why = {
        "reason": (note or {}).get("reason"),
        "candidate_state": (note or {}).get("state"),
    }
    failed_note = note is not None and note["kind"] == "failure"
    if isinstance(value, float) and isnan(value):
        if note is None:
            return {"state": "not run"}
        return {"state": "failed" if failed_note else "skipped", **why}
    if value is not None:
        return {"state": "failed", "reason": f"the value is {value!r}, which nothing measures"}
    return {"state": "failed", **(why if failed_note else {"reason": _NO_REASON})}


def _statistics(entry: Record, place: int, value: float) -> Record:
    def at(column: str) -> Any:
        found = (entry.get(column) or [None] * (place + 1))[place]
        return found if _is_number(found) else None

    quartile = at("stats_q_25")
    return {
        "low": at("stats_ci_99_a"),
        "high": at("stats_ci_99_b"),
        "lower_quartile": float(value) if quartile is None else quartile,
        "fastest": _fastest(entry, place),
        "samples": at("stats_repeat") or 1,
    }


def _fastest(entry: Record, place: int) -> float | None:
    """Of the calls, if asv was asked to keep them all."""
    kept = entry.get("samples")
    calls = kept[place] if isinstance(kept, list) and place < len(kept) else None
    if not isinstance(calls, list) or not calls or not all(map(_is_number, calls)):
        return None
    return float(min(calls))


def _is_number(value: Any) -> bool:
    """Something that can have been measured."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        return False
    return value == 0 or _SMALLEST <= abs(value) <= _LARGEST


def _literal(text: str) -> Any:
    """A parameter from its repr; one that is no literal (a function, a class) stays text."""
    if len(text) > _LONGEST_LITERAL:
        return text
    try:
        return ast.literal_eval(text)
    except UNREADABLE:
        return text


def _from_milliseconds(stamp: float | None) -> datetime | None:
    if stamp is None:
        return None
    return datetime.fromtimestamp(stamp / 1000, UTC)


def _moment(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _object(file: Path, what: str) -> Record:
    try:
        parsed = json.loads(read_text(file))
    except UNREADABLE as problem:
        raise InvalidInput(f"{file} cannot be read: it is not JSON ({problem}).") from None
    if not isinstance(parsed, dict):
        raise InvalidInput(f"{file} cannot be read: it is not {what}.")
    return parsed
