"""Everything that was measured, in one tidy table: ``results.read()``."""

from .table import COLUMNS, read

__all__ = ["COLUMNS", "read"]
