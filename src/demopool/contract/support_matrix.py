"""The support matrix of the documentation, made from the capability table."""

from __future__ import annotations

from ..errors import InvalidInput
from ..problem.vocabulary import BACKENDS, Dtype, State
from . import capabilities, registry
from .capabilities import CapabilityRow

BEGIN = "<!-- support matrix: made by `make matrix`, do not edit -->"
END = "<!-- end of the support matrix -->"


def markdown_matrix(backends: tuple[str, ...] = BACKENDS) -> str:
    """Every operation, route and order against backends; holes have a number and a reason."""
    reasons: list[str] = []
    lines = [
        "| operation | route | order | domain | " + " | ".join(backends) + " |",
        "|---|---|---|---|" + "---|" * len(backends),
    ]
    rows = {(r.operation, r.route, r.order, r.backend): r for r in capabilities.table(backends)}
    for operation, route, order in dict.fromkeys(key[:3] for key in rows):
        cells = [_cell(rows[operation, route, order, backend], reasons) for backend in backends]
        domain = rows[operation, route, order, backends[0]].domain or "everywhere"
        name = f"`{operation}` | `{route}` | {order} | {domain}"
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    lines += ["", *(f"{number}. {reason}" for number, reason in enumerate(reasons, 1))]
    return "\n".join(lines)


def insert_matrix(text: str, matrix: str) -> str:
    """The text with everything between the two markers replaced."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise InvalidInput(f"the file must hold the lines {BEGIN!r} and {END!r}.")
    return f"{before}{BEGIN}\n{matrix}\n{END}{after}"


def _cell(row: CapabilityRow, reasons: list[str]) -> str:
    if row.state is State.OK:
        text = " ".join(Dtype(dtype).short for dtype in row.dtypes)
        if not row.not_executed:
            return text
        return text + _note(f"not executed without a GPU: {row.not_executed}", reasons)
    if registry.entry(row.backend).specification is None:
        return "planned"
    return "-" + _note(row.reason, reasons)


def _note(reason: str, reasons: list[str]) -> str:
    if reason not in reasons:
        reasons.append(reason)
    return f" ({reasons.index(reason) + 1})"
