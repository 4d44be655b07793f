"""Whether candidates conform: what ``demopool check`` rejects is not raced.

The cells that a candidate is made of are judged by the quick examples of ``check``, in a process of
their own, once: verdicts are stored with the identity of the code (``conformance/verdicts.py``).
Those of ``demopool check`` count as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack

from ..conformance import Cell, failed, verdicts
from ..conformance.cells import CellProcess
from ..conformance.verdicts import CellKey
from ..contract import capabilities
from ..problem.candidates import Candidate, Subject
from ..problem.cases import Case
from ..problem.vocabulary import State
from ..profiles.eligibility import Ineligible

QUICK_CELL_SECONDS = 120.0
"""Maximum for the quick examples of a cell, and for its first call before; a library that compiles
for every shape needs most of it."""


class Conformance:
    """Verdicts on the cells of candidates; processes start only for what was not judged before."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._processes: dict[str, CellProcess] = {}
        self._stack = ExitStack()
        self._judged: set[tuple[str, CellKey]] = set()
        self.retry, self.save = False, True

    def known_refusal(self, candidate: Candidate, case: Case) -> Ineligible | None:
        """Why a candidate does not conform, by verdicts that there are."""
        found = verdicts.known(candidate.backend)
        return _refusal([found[key] for key in cells_of(candidate, case) if key in found])

    def refusal(
        self, candidate: Candidate, case: Case, progress: Callable[[str], None]
    ) -> Ineligible | None:
        """The same, after judging what was not judged yet."""
        return _refusal(self._cells(candidate, case, progress))

    def _cells(
        self, candidate: Candidate, case: Case, progress: Callable[[str], None]
    ) -> Iterator[Cell]:
        """Up to the first that fails, for whoever stops there."""
        found = verdicts.known(candidate.backend)
        for key in cells_of(candidate, case):
            again = self.retry and (candidate.backend, key) not in self._judged
            if key in found and not (again and failed([found[key]])):
                yield found[key]
                continue
            progress(f"checking {key.operation} by {key.route} of {candidate.backend}")
            cell = self._judge(candidate.backend, key)
            yield verdicts.known(candidate.backend).get(key, cell)

    def _judge(self, backend: str, key: CellKey) -> Cell:
        if backend not in self._processes:
            process = CellProcess(self._threads)
            self._processes[backend] = self._stack.enter_context(process)
        row = next(
            row
            for row in capabilities.table((backend,))
            if (row.operation, row.route, row.order) == key[:3]
        )
        assert key.dtype is not None
        cell = self._processes[backend].judge(row, key.dtype, True, QUICK_CELL_SECONDS)
        self._judged.add((backend, key))
        verdicts.keep(cell, quick=True, save=self.save)
        return cell

    def close(self) -> None:
        """End the processes: none may be there while candidates are timed."""
        self._stack.close()
        self._processes.clear()


def cells_of(candidate: Candidate, case: Case) -> list[CellKey]:
    """The cells that a candidate of this case is made of."""
    found = []
    for operation, route in Subject("descriptor", case.descriptor).steps(candidate.route).items():
        order, dtype = case.order, case.dtype
        if operation == "normalize":  # of what was pooled
            order, dtype = 1 if case.descriptor.is_sketched else order, dtype.result
        found.append(CellKey(operation, route, order, str(dtype)))
    return found


def _refusal(cells: Iterable[Cell]) -> Ineligible | None:
    for cell in cells:
        if failed([cell]):
            where = f" (on: {cell.worst_case})" if cell.worst_case else ""
            state = State.WRONG if cell.state == State.WRONG else State.ERROR
            what = f"{cell.operation} by {cell.route} does not conform"
            return Ineligible(state, f"{what}: {cell.reason}{where}")
    return None
