"""Every parameter is validated here and nowhere else."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from ..errors import InvalidInput
from .operations import OPERATIONS
from .vocabulary import (
    DESCRIPTORS,
    DTYPES,
    LAYOUTS,
    NORMALIZATIONS,
    VECTORIZATIONS,
    ZERO_ROWS,
    Backend,
    Descriptor,
    Dtype,
)

Rule = Callable[[str, Any], Any]


def validated(**given: Any) -> Any:
    """Check each named parameter by its rule; returns the values as plain Python, in order.

    One parameter gives its value, several give a tuple. What was accepted is remembered by value
    and type, so that a loop of small calls pays once: 1 is not True, and an error is never kept.
    """
    try:
        return _accepted(**given)
    except TypeError:  # a value without a hash, which its rule refuses in its own words
        return _accepted.__wrapped__(**given)


@lru_cache(maxsize=1024, typed=True)
def _accepted(**given: Any) -> Any:
    values = tuple(_RULES[name](name, value) for name, value in given.items())
    return values[0] if len(values) == 1 else values


def _number(low: float, high: float, *, low_included: bool) -> Rule:
    accepted = f"a number {'from' if low_included else 'above'} {low:g} up to {high:g}"

    def rule(name: str, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, numbers.Real):
            raise _wrong(name, accepted, value)
        try:
            number = float(value)
        except OverflowError:
            raise _wrong(name, accepted, value) from None
        inside = (low <= number if low_included else low < number) and number <= high
        if not inside or math.isnan(number):
            raise _wrong(name, accepted, value)
        return number

    return rule


def _integer(low: int, high: int) -> Rule:
    accepted = f"an integer >= {low}" + (f" and < 2**{high.bit_length() - 1}" if high else "")

    def rule(name: str, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, numbers.Integral):
            raise _wrong(name, accepted, value)
        number = int(value)
        if number < low or (high and number >= high):
            raise _wrong(name, accepted, value)
        return number

    return rule


def _one_of(*choices: Any) -> Rule:
    accepted = "one of " + ", ".join("None" if c is None else str(c) for c in choices)

    def rule(name: str, value: Any) -> Any:
        if isinstance(value, bool) or not any(
            type(value) is type(choice) and value == choice for choice in choices
        ):
            raise _wrong(name, accepted, value)
        return value

    return rule


def _accuracy(name: str, value: Any) -> str | float:
    if isinstance(value, str) and value in ("fast", "accurate"):
        return value
    try:
        found: float = _number(0, 1, low_included=False)(name, value)
    except InvalidInput:
        accepted = "fast, accurate, or a relative error above 0 up to 1"
        raise _wrong(name, accepted, value) from None
    return found


def _order(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value not in (1, 2):
        raise _wrong(name, "1 or 2", value)
    return int(value)


def _boolean(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise _wrong(name, "True or False", value)
    return value


def _dtype(name: str, value: Any) -> Dtype | None:
    """A name, or a library's own dtype object: ``"float32"``, ``np.float32``, ``torch.float32``."""
    if value is None:
        return None
    spelled = getattr(value, "__name__", None) or str(value)
    spelled = spelled.rpartition(".")[2]
    if spelled not in DTYPES:
        raise _wrong(name, "None or one of " + ", ".join(DTYPES), value)
    return Dtype(spelled)


def _descriptor(name: str, value: Any) -> Descriptor:
    if not isinstance(value, str) or value not in DESCRIPTORS:
        raise _wrong(name, "one of " + ", ".join(DESCRIPTORS), value)
    return Descriptor(value)


def _backend(name: str, value: Any) -> Backend:
    return Backend(_text(name, value))


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise _wrong(name, "a name", value)
    return value


def _wrong(name: str, accepted: str, value: Any) -> InvalidInput:
    shown = repr(value)
    if len(shown) > 60:
        shown = f"a {type(value).__name__}"
    return InvalidInput(f"{name} must be {accepted}; got {shown}.")


_RULES: dict[str, Rule] = {
    "gamma": _number(0, 1, low_included=True),
    "tau": _number(0, 1, low_included=False),
    "p": _number(0, 1, low_included=False),
    "max_error": _number(0, 1, low_included=False),
    "accuracy": _accuracy,
    "iterations": _integer(0, 2**31),
    "k": _integer(1, 2**31),
    "batch": _integer(0, 2**31),
    "n": _integer(1, 2**31),
    "d": _integer(1, 2**31),
    "seed": _integer(0, 2**64),
    "axes": _integer(1, 0),
    "calls": _integer(1, 2**31),
    "order": _order,
    "layout": _one_of(None, *LAYOUTS),
    "zero_rows": _one_of(*ZERO_ROWS),
    "normalize": _one_of(*NORMALIZATIONS),
    "kind": _one_of(*NORMALIZATIONS),
    "norm": _one_of(*NORMALIZATIONS),
    "descriptor": _descriptor,
    "check": _boolean,
    "center": _boolean,
    "vectorize": _one_of(*VECTORIZATIONS),
    "overwrite": _boolean,
    "ordinary": _boolean,
    "dtype": _dtype,
    "data": _one_of("host", "device"),
    "caches": _one_of("warm", "cold"),
    "operation": _one_of(*OPERATIONS),
    "backend": _backend,
    "route": _text,
}
