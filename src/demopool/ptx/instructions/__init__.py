"""All supported PTX instructions, grouped by what they do; any other instruction is an error."""

from . import access, arithmetic, bits, control, copies, matrices, moves, selection, warps
from .building import Builder

TABLE: dict[str, Builder] = {
    **arithmetic.TABLE,
    **bits.TABLE,
    **selection.TABLE,
    **moves.TABLE,
    **control.TABLE,
    **access.TABLE,
    **warps.TABLE,
    **matrices.TABLE,
    **copies.TABLE,
}
