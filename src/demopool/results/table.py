"""Everything that was measured, in one tidy table: asv's result files and files of samples.

Any number of machines and commits can be joined, because cases and candidates are constants.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from ..common.files import UNREADABLE
from ..errors import DemopoolError, InvalidInput
from ..problem.candidates import Candidate
from ..problem.cases import Case, from_name, name_of
from ..problem.vocabulary import State
from ..trials import samples
from ..trials.measures import UNITS, quantity
from ..trials.samples import Sample
from . import asv_files, distance, remote

COLUMNS = {
    "source": "string",
    "machine": "string",
    "commit": "string",
    "date": "datetime64[ns, UTC]",
    "environment": "string",
    "python": "string",
    "threads": "Int64",
    "benchmark": "string",
    "kind": "string",
    "subject": "string",
    "descriptor": "string",
    "operation": "string",
    "measure": "string",
    "unit": "string",
    "candidate": "string",
    "backend": "string",
    "route": "string",
    "case": "string",
    "batch": "Int64",
    "n": "Int64",
    "d": "Int64",
    "k": "Int64",
    "dtype": "string",
    "parameters": "string",
    "state": "string",
    "candidate_state": "string",
    "reason": "string",
    "value": "float64",
    "low": "float64",
    "high": "float64",
    "lower_quartile": "float64",
    "fastest": "float64",
    "samples": "Int64",
    "version": "string",
    "measured_at": "datetime64[ns, UTC]",
    "fingerprint": "string",
    "limit_s": "float64",
    "load": "float64",
    "phase": "string",
    "round": "Int64",
    "session": "string",
    "code": "string",
    "file": "string",
}
"""Of the table, in order, with their dtypes."""

_LONGEST = 10_000
"""Characters of a cell."""
_EARLIEST, _LATEST = datetime(1970, 1, 1, tzinfo=UTC), datetime(2262, 1, 1, tzinfo=UTC)
"""pandas counts nanoseconds from the first, up to a little more than the second."""

_SAMPLES = ".jsonl"
"""What files of samples are called, and the notes beside asv's result files."""

_NOT_TRIED = (State.UNAVAILABLE, State.UNSUPPORTED)

Record = dict[str, Any]
PathLike = str | os.PathLike[str]
Known = Callable[[Path], Mapping[str, Any] | None]


def read(paths: PathLike | Iterable[PathLike] | None = None, *, with_samples: bool = True) -> Any:
    """All results as a ``pandas.DataFrame``: a row per measured cell of a file, or per sample.

    ``paths``: one or many of a project's folder (with asv.conf.json), a results folder, a
    machine's folder, a result file, a file of samples, or the address of a git repository
    (``https://...``, ``git@...``, ``file://...``): its branch ``results`` if there is one, or the
    branch of ``address#branch``. Without any: the results of the nearest asv.conf.json from the
    current folder upwards, and the samples that ``choose`` and ``report --claims`` have stored.
    ``with_samples=False`` reads asv's result files only.

    ================  ==============================================================================
    source            ``asv`` or ``samples``
    machine           its name; missing for samples, which have a fingerprint
    commit            full hash; missing for samples
    date              when the commit was written (by its author), or a sample measured; in UTC
    environment       asv's name of it
    python            version, as asv was asked for it
    threads           of BLAS, from the environment's variables
    benchmark         asv's name: ``descriptors.Democratic.time_call``
    kind              of the subject: ``descriptor``, ``operation``, ``gradient``; asv's module
    subject           a descriptor or an operation: ``sketched-democratic``, ``pool_sketch``
    descriptor        the subject, if it is a descriptor (or its gradient), and
    operation         if it is an operation
    measure           ``call_s``, ``peak_host_bytes``, ``error``, ...
    unit              ``seconds``, ``bytes``, ...
    candidate         ``torch:cpu/dense+fft``, and its two parts:
    backend, route
    case              a name of ``demopool.problem.cases.NAMED``, or the sizes of one without a name
    batch, n, d       its sizes,
    k, dtype          of sketches, and of the features
    parameters        all parameters as text, also of benchmarks that have others
    state             ``ok``, ``skipped``, ``failed``, or ``not run``: asv was not asked for it
    candidate_state   ``unavailable``, ``out-of-memory``, ... where it is known
    reason            for every state but ``ok`` and ``not run``
    value             of times asv's median; NaN unless the state is ``ok``
    low, high         asv's 99 % interval of the median; NaN for a value measured once
    lower_quartile    of times; the value itself otherwise
    fastest           call, if asv has kept every one (``asv run --record-samples``)
    samples           how many measurements the value stands for
    version           of the benchmark
    measured_at       in UTC
    fingerprint       key of the machine and its software
    limit_s           of calls of a descriptor on the CPU: the least work of the case at the speed
                      of matrix products and memory of that machine; NaN unless ``choose`` has
                      measured that speed, with as many threads
    load              share of all cores that other processes used meanwhile; NaN if it is not known
    phase, round      of a sample: ``once``, or the number of a ``round`` or ``confirming`` round
    session           the race that a sample belongs to
    code              what identifies the code of a sample's candidate
    file              where it was read
    ================  ==============================================================================

    Text is ``string``, counts ``Int64``, times ``datetime64[ns, UTC]``; so too when it is empty.
    ``attrs["stale"]`` counts the cells left out because their benchmark has changed since or is
    gone. ``attrs["unreadable"]`` has a sentence for every broken file that was passed over in a
    folder, for every link to samples in one, for every file of samples with broken lines, and for
    a repository that cannot be reached now; a broken file that was named itself raises
    ``InvalidInput``.
    """
    pandas = _pandas()
    rows: list[Record] = []
    stale = 0
    unreadable: list[str] = []
    known = cache(asv_files.known_benchmarks)
    distance.forget()
    for file, by_name in _files(paths, with_samples, unreadable):
        try:
            if file.suffix == _SAMPLES:
                found, left_out = _read_samples(file, by_name, unreadable), 0
            else:
                found, left_out = _read_asv(file, known)
            rows += [
                _checked(
                    {**row, **_sizes(row), "limit_s": distance.limit_of(row), "file": str(file)},
                    file,
                )
                for row in found
            ]
        except InvalidInput as problem:
            if by_name:
                raise
            if str(problem) not in unreadable:
                unreadable.append(str(problem))
            continue
        stale += left_out
    # Column by column: an object array becomes each dtype without a guess on the way.
    frame = pandas.DataFrame(
        {
            name: pandas.Series([row[name] for row in rows], dtype=object).astype(kind)
            for name, kind in COLUMNS.items()
        }
    )
    frame.attrs.update(stale=stale, unreadable=unreadable)
    return frame


def _pandas() -> Any:
    try:
        import pandas
    except ImportError:
        raise DemopoolError(
            "Reading results needs pandas, which is not installed: "
            "pip install '.[report]' (in a clone)"
        ) from None
    return pandas


def _checked(row: Record, file: Path) -> Record:
    """Every column, of the kind it must have, whatever the file has put there."""
    try:
        return {
            name: None if row.get(name) is None else _CHECKS[kind](row[name])
            for name, kind in COLUMNS.items()
        }
    except UNREADABLE as problem:
        raise InvalidInput(f"{file} cannot be read: {problem}.") from None


def _sizes(row: Record) -> Record:
    """What the case and the subject of a row say in columns of their own."""
    is_operation, name = row.get("kind") == "operation", row.get("case")
    found: Record = {"operation" if is_operation else "descriptor": row.get("subject")}
    case = _case(name) if isinstance(name, str) else None
    if case is not None:
        found |= {name: getattr(case, name) for name in ("batch", "n", "d", "k", "dtype")}
    return found


@cache
def _case(name: str) -> Case | None:
    """None of a benchmark that is not ours."""
    try:
        return from_name(name)
    except UNREADABLE:
        return None


def _text(value: Any) -> str:
    """Parameters of foreign benchmarks can be anything; a column of text holds text."""
    text = str(value)
    if len(text) > _LONGEST:
        raise ValueError(f"a text in it has {len(text)} characters, more than {_LONGEST}")
    # Half of a surrogate pair, which JSON can hold, is no character.
    return text.encode(errors="replace").decode()


def _count(value: Any) -> int:
    if value != int(value) or not 0 <= value < 2**31:
        raise ValueError(f"{value!r} is no count")
    return int(value)


def _moment(value: datetime) -> datetime:
    if not _EARLIEST <= value < _LATEST:
        raise ValueError(f"{value} is no date of a measurement")
    return value


_CHECKS: dict[str, Callable[[Any], Any]] = {
    "string": _text,
    "Int64": _count,
    "float64": float,
    "datetime64[ns, UTC]": _moment,
}


def _files(
    paths: PathLike | Iterable[PathLike] | None, with_samples: bool, unreadable: list[str]
) -> Iterator[tuple[Path, bool]]:
    """Every file once, and whether it was asked for by its own name."""
    if paths is None:
        paths = _default_folders()
    elif isinstance(paths, str | os.PathLike):
        paths = [paths]
    seen = set()
    for given in paths:
        if isinstance(given, str) and remote.is_address(given):
            path = remote.copy_of(given, unreadable.append)
        else:
            path = Path(given)
        if not path.exists():
            raise InvalidInput(f"{path} cannot be read: there is no such file or folder.")
        if not path.is_file() and not path.is_dir():
            raise InvalidInput(f"{path} cannot be read: it is not a regular file or a folder.")
        by_name = path.is_file()
        for file in [path] if by_name else _inside(path):
            is_samples = file.suffix == _SAMPLES
            if is_samples and not with_samples:
                continue
            if is_samples and file.is_symlink() and not by_name:
                # It may lead anywhere, also to what another path here reads.
                unreadable.append(f"{file} is a link and was passed over; name it to read it.")
            elif file.resolve() not in seen:
                seen.add(file.resolve())
                yield file, by_name


def _default_folders() -> list[Path]:
    found = [samples.folder()]
    with suppress(FileNotFoundError):  # the current folder was deleted
        here = Path.cwd()
        found.append(asv_files.project_folder(here) or here / samples.OLD_FOLDER)
    return [folder for folder in found if folder.is_dir()]


def _inside(folder: Path) -> list[Path]:
    """Result files and files of samples; what lies beside a result file is its notes."""
    if (folder / asv_files.CONFIGURATION).is_file():
        parts = (asv_files.results_folder(folder), folder / samples.OLD_FOLDER)
        return [file for part in parts if part.is_dir() for file in _inside(part)]
    found = [file for file in folder.rglob("*.json") if asv_files.RESULT_NAME.fullmatch(file.name)]
    lines = [
        file for file in folder.rglob(f"*{_SAMPLES}") if not file.with_suffix(".json").exists()
    ]
    return sorted(found) + sorted(lines)


def _read_asv(file: Path, known: Known) -> tuple[list[Record], int]:
    return asv_files.rows(file, known(file.parent.parent / "benchmarks.json"))


def _read_samples(file: Path, by_name: bool, unreadable: list[str]) -> list[Record]:
    try:
        found = [_from_sample(sample) for sample in samples.read(file, unreadable.append)]
    except UNREADABLE as problem:
        raise InvalidInput(f"{file} cannot be read: {problem}.") from None
    if by_name and not found:
        raise InvalidInput(f"{file} cannot be read: there is no sample in it.")
    return found


def _from_sample(sample: Sample) -> Record:
    state = (
        "ok" if sample.state is State.OK else "skipped" if sample.state in _NOT_TRIED else "failed"
    )
    moment = datetime.fromisoformat(sample.measured_at)
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return {
        "source": "samples",
        "threads": sample.threads,
        "kind": "descriptor",
        "subject": sample.case.descriptor,
        "measure": sample.measure,
        "unit": UNITS.get(quantity(sample.measure)),
        "candidate": str(Candidate(sample.backend, sample.route)),
        "backend": sample.backend,
        "route": sample.route,
        "case": name_of(sample.case),
        "state": state,
        "candidate_state": sample.state.value,
        "reason": sample.reason[:_LONGEST] or None,
        "value": sample.value,
        "lower_quartile": sample.value,
        "samples": 1 if state == "ok" else None,
        "date": moment,
        "measured_at": moment,
        "fingerprint": sample.fingerprint or None,
        "phase": sample.phase.value,
        "round": sample.round,
        "session": sample.session or None,
        "code": sample.code or None,
    }


def samples_in(frame: Any) -> list[Sample]:
    """The samples in a table, in its order; ``device_s`` is not in the table."""
    names = ["backend", "route", "subject", "case", "measure", "value", "candidate_state", "reason"]
    names += ["phase", "round", "session", "threads", "fingerprint", "code", "measured_at"]
    rows = frame.loc[frame["source"] == "samples", names].astype(object)
    rows = rows.where(rows.notna(), None)
    return [
        Sample(
            backend=row.backend,
            route=row.route,
            case=from_name(row.case, row.subject),
            measure=row.measure,
            value=row.value,
            state=row.candidate_state,
            reason=row.reason or "",
            phase=row.phase,
            round=int(row.round),
            session=row.session or "",
            threads=int(row.threads),
            fingerprint=row.fingerprint or "",
            code=row.code or "",
            measured_at=row.measured_at.isoformat(timespec="milliseconds"),
        )
        for row in rows.itertuples()
    ]
