"""The instructions of PTX that are understood, by what they do; any other one is an error."""

from . import access, arithmetic, bits, control, moves, selection, warps
from .building import Builder

TABLE: dict[str, Builder] = {
    **arithmetic.TABLE,
    **bits.TABLE,
    **selection.TABLE,
    **moves.TABLE,
    **control.TABLE,
    **access.TABLE,
    **warps.TABLE,
}
