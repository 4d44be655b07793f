"""Put every example to every route of a backend, and let the reference judge.

Besides the values: an array of the right library, shape, dtype and device, finite, and the input
left as it was.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ..common.arrays import overwritten
from ..errors import Unsupported
from ..pooling.description import describe
from ..pooling.operations import Operations
from ..problem.operations import OPERATIONS
from ..problem.routes import DESCRIPTOR_OF, FULL_RANK_ROOT, find
from ..problem.vocabulary import Backend, Descriptor, Dtype, State
from . import features, repeated, waiting
from .claims import Distance
from .examples import Example, Question, ask, examples
from .features import Array
from .laws import LAWS, ON_ORDINARY
from .laws_of_describe import LAWS_OF_DESCRIBE, READY, TWO_STREAMS, UPPER
from .laws_of_norms import NORMALIZED

# Each law is tried on these; the tests try many more.
LAW_FEATURES = ("rectified", "n>d")

_LAWS = {name: laws | LAWS_OF_DESCRIBE.get(name, {}) for name, laws in LAWS.items()}


class Violation(Exception):
    """What an implementation got wrong: ``kind`` is one word for programs, the text for people."""

    def __init__(self, kind: str, text: str) -> None:
        self.kind = kind
        super().__init__(f"{kind}: {text}")


@dataclass(frozen=True)
class Target:
    """The cell under test: one route of one backend in one dtype."""

    ops: Operations
    operation: str
    route: str
    order: int
    dtype: str


@dataclass(frozen=True)
class Outcome:
    """One example, answered. ``error`` and ``tolerance`` are those of the worst image."""

    example: str
    error: float
    tolerance: float
    result: Array
    expected: Array

    @property
    def excess(self) -> float:
        """How much of the tolerance was used; above 1 is wrong."""
        return _used((self.error, self.tolerance))


@dataclass(frozen=True)
class CellResult:
    """Of one cell: the state, the outcome that used most of its tolerance, where, and why."""

    state: State
    worst: Outcome | None
    where: str
    reason: str


def answer(target: Target, example: Example) -> Outcome:
    """Ask one example; raises :class:`Violation` for anything but a value that is too far off."""
    question = ask(example, target.operation, target.order, target.dtype)
    try:
        result = call(target, question.arrays, question.options, question.expected.shape)
    except BaseException:
        # It may have written into the question, which is kept for the next route.
        ask.cache_clear()
        raise
    error, allowed = _compare(result, question, question.allowed(target.route))
    return Outcome(example.name, error, allowed, result, question.expected)


def call(
    target: Target,
    arrays: dict[str, Array | None],
    options: dict[str, Any],
    shape: tuple[int, ...] | None = None,
) -> Array:
    """Run the operation on NumPy input and look at everything about the result but its values."""
    ops = target.ops
    given = {name: _move(ops, array, target.dtype, name) for name, array in arrays.items()}
    before = {name: _bytes(ops, array) for name, array in given.items()}
    result = _run(target, given, options)
    ops.wait(result)
    facts = ops.implementation.inspect(result)
    if facts is None:
        raise Violation(
            "type", f"the result is a {type(result).__name__}, not an array of {ops.name}"
        )
    if shape is not None and facts.shape != shape:
        raise Violation("shape", f"{facts.shape} instead of {shape}")
    if facts.dtype != Dtype(target.dtype).result:
        raise Violation("dtype", f"{facts.dtype} instead of {Dtype(target.dtype).result}")
    home = ops.implementation.inspect(next(iter(given.values())))
    if home is not None and facts.device != home.device:
        raise Violation("device", f"the result is on {facts.device}, the input on {home.device}")
    backend = Backend(ops.name)
    if not backend.is_emulated and facts.device.partition(":")[0] != backend.device:
        raise Violation("device", f"inspect says {facts.device}, but this is {ops.name}")
    for name, array in given.items():
        if _bytes(ops, array) != before[name]:
            raise Violation("mutation", f"the input {name} was changed")
    values = np.array(ops.to_numpy(result))
    if any(_shares(ops, result, array) for array in given.values()):
        raise Violation("aliasing", "the result shares memory with the input")
    if not np.isfinite(values).all():
        raise Violation(
            "nonfinite", f"{int((~np.isfinite(values)).sum())} values are NaN or infinite"
        )
    return values


def check_cell(target: Target, *, quick: bool = False) -> CellResult:
    """Every example and law of one cell, up to the first that fails."""
    worst: Outcome | None = None
    for where, attempt in _attempts(target, quick):
        try:
            outcome = attempt()
        except Violation as violation:
            return CellResult(State.WRONG, None, where, str(violation))
        except KeyboardInterrupt:
            raise
        except BaseException as problem:  # a kernel's sys.exit too
            return CellResult(State.ERROR, None, where, _raised(problem))
        if outcome is None:
            continue
        if not outcome.excess <= 1:
            text = f"value: error {outcome.error:.2e} over tolerance {outcome.tolerance:.2e}"
            return CellResult(State.WRONG, outcome, where, text)
        if worst is None or outcome.excess > worst.excess:
            worst = outcome
    return CellResult(State.OK, worst, worst.example if worst else "", "")


def first_calls(target: Target, *, quick: bool = False) -> tuple[float, float]:
    """Seconds of the first two calls of a cell, on its first example: the first one compiles.

    What is wrong with them is for :func:`check_cell` to say. Only what this GPU lacks, and others
    have, is told here: that is no fault of the code, and there is nothing to judge.
    """
    emulated = Backend(target.ops.name).is_emulated
    example = next(examples(target.operation, target.route, quick=quick, emulated=emulated))
    ask(example, target.operation, target.order, target.dtype)  # the reference's time is not theirs
    seconds = []
    for _ in range(2):
        began = time.perf_counter()
        try:
            answer(target, example)
        except Unsupported:
            if Backend(target.ops.name).device == "cuda":
                raise
        except BaseException:  # in a process of its own, which Ctrl-C does not reach
            pass
        seconds.append(time.perf_counter() - began)
    return seconds[0], seconds[1]


def _attempts(target: Target, quick: bool) -> Iterator[tuple[str, Callable[[], Outcome | None]]]:
    """What a cell is asked, by name: examples first, then laws, then calls in a row."""
    emulated = Backend(target.ops.name).is_emulated
    for example in examples(target.operation, target.route, quick=quick, emulated=emulated):
        yield example.name, partial(answer, target, example)
    for name in laws_of(target):
        for features_name in LAW_FEATURES[-1:] if emulated else LAW_FEATURES:
            yield f"law: {name}, on {features_name}", partial(_obey, target, name, features_name)
    calls = repeated.EMULATED_CALLS if emulated else repeated.CALLS
    yield repeated.WHERE, partial(ask_repeatedly, target, calls)
    if not emulated:
        yield waiting.WHERE, partial(_wait, target)


def _obey(target: Target, name: str, features_name: str) -> None:
    claim = try_law(target, name, features.make(features_name, target.dtype)[0])
    if not claim.error <= claim.allowed:
        raise Violation("law", f"{name} is off by {claim.error:.2e}, allowed {claim.allowed:.2e}")


def _wait(target: Target) -> None:
    """What was waited for is there: reading it adds no time."""
    ops = target.ops
    large = waiting.question(target.operation, target.route, target.order, target.dtype)
    given = {name: _move(ops, a, target.dtype, name) for name, a in large.arrays.items()}

    def call() -> Any:
        return _run(target, dict(given), large.options)

    late = waiting.late_seconds(call, ops)
    if late:
        raise Violation("waiting", f"{late} of a result after wait(result) had returned")


def _raised(problem: BaseException) -> str:
    """What was raised, and where: the innermost line of Python."""
    innermost = traceback.extract_tb(problem.__traceback__)[-1]
    place = "/".join(Path(innermost.filename).parts[-2:])
    said = f"{type(problem).__name__}: {problem}".rstrip(": ")
    return f"raised: {said}, at {place}:{innermost.lineno} in {innermost.name}"


def ask_repeatedly(target: Target, calls: int) -> None:
    """Calls in a row on arrays overwritten before each; raises :class:`Violation`."""
    ops = target.ops
    given: dict[str, Any] = {}
    held: tuple[Any, Array] | None = None
    asked = repeated.questions(target.operation, target.route, target.order, target.dtype, calls)
    for number, question in enumerate(asked, 1):
        for name, array in question.arrays.items():
            # A copy: the first is overwritten by the others, and the question is asked again.
            fresh = _move(ops, None if array is None else array.copy(), target.dtype, name)
            given[name] = overwritten(given[name], fresh) if name in given else fresh
        result = _run(target, dict(given), question.options)
        ops.wait(result)
        values = np.array(ops.to_numpy(result))
        if held is not None and not np.array_equal(ops.to_numpy(held[0]), held[1], equal_nan=True):
            raise Violation("overwritten", f"call {number} changed the result of the one before")
        error, allowed = _compare(values, question, question.allowed(target.route))
        if not _used((error, allowed)) <= 1:
            raise Violation(
                "repeated", f"call {number} in a row is off by {error:.2e}, allowed {allowed:.2e}"
            )
        held = result, values


def laws_of(target: Target) -> tuple[str, ...]:
    """The laws of an operation that hold for this order and this backend."""
    no_law: tuple[str, ...] = ()
    if target.order == 1:
        no_law += ("symmetric", "positive semi-definite", NORMALIZED, UPPER, TWO_STREAMS)
    known = find(target.operation, target.route)
    if not isinstance(known, str) and known.domain is FULL_RANK_ROOT:
        no_law += (READY,)  # centred features have a smaller rank
    if target.ops is not None and not target.ops.implementation.pools_normalized:
        no_law += (NORMALIZED,)
    if target.ops is not None and not target.ops.implementation.takes_ordinary:
        no_law += (ON_ORDINARY,)
    if target.ops is not None and not _describes(target):
        no_law += (READY, UPPER, TWO_STREAMS)
    return tuple(name for name in _LAWS[target.operation] if name not in no_law)


def _describes(target: Target) -> bool:
    """Whether the backend has all that ``describe`` needs; a plug-in may have one operation."""
    needed = dict.fromkeys(_descriptor_of(target).operations, target.dtype)
    needed["normalize"] = Dtype(target.dtype).result
    return all(
        target.ops.supports(operation, dtype=dtype, order=target.order)
        for operation, dtype in needed.items()
    )


def _descriptor_of(target: Target) -> Descriptor:
    return Descriptor(DESCRIPTOR_OF.get(target.operation, "sum"))


def try_law(target: Target, name: str, X: Array) -> Distance:
    """One law of the target's operation on one image."""
    return _LAWS[target.operation][name](_Run(target), X, target.dtype)


@dataclass(frozen=True)
class _Run:
    """What laws call: the target's route, by itself or by ``describe``."""

    target: Target

    @property
    def order(self) -> int:
        return self.target.order

    def __call__(self, X: Array, a: Array | None = None, **options: Any) -> Array:
        target, operation = self.target, OPERATIONS[self.target.operation]
        arrays: dict[str, Array | None] = {operation.arrays[0]: X}
        if a is not None:
            arrays["a"] = a
        if operation.has_order:
            options["order"] = target.order
        return call(target, arrays, options)

    def describe(self, *streams: Array, **options: Any) -> Array:
        """Of arrays of the backend; of NumPy's where those of the backend have no arithmetic."""
        ops = self.target.ops
        descriptor = _descriptor_of(self.target)
        options = {
            "route": self.target.route if len(streams) == 1 else "auto",
            "order": self.target.order,
            "normalize": "none",
            "zero_rows": "ignore",
            **options,
        }
        given = [_move(ops, array, self.target.dtype, "X") for array in streams]
        for X in (given, streams):
            with suppress(Unsupported):
                both = X[0] if len(X) == 1 else tuple(X)
                found = describe(both, descriptor, backend=ops.name, **options)
                return np.array(found if X is streams else ops.to_numpy(found))
        raise Violation("describe", f"{ops.name} takes neither its own arrays nor NumPy's")


def _run(target: Target, arrays: dict[str, Any], options: dict[str, Any]) -> Any:
    operation = OPERATIONS[target.operation]
    given = {**arrays, **options}
    if operation.is_routed:
        given["route"] = target.route
    if "hashes" in given and given["hashes"].k % 2:
        # Operations take hashes as they are or prepared; odd sizes go prepared.
        given["hashes"] = target.ops.prepare(given["hashes"])
    positional = [given.pop(name) for name in operation.arrays if name in given]
    return getattr(target.ops, operation.name)(*positional, **given)


def _move(ops: Operations, array: Array | None, dtype: str, name: str) -> Any:
    if array is None:
        return None
    moved = ops.asarray(array)
    # Features of a dtype that NumPy lacks came as float32 that holds them. Weights are float32.
    foreign = not Dtype(dtype).in_numpy and name != "a"
    return ops.implementation.cast(moved, dtype) if foreign else moved


def _shares(ops: Operations, result: Any, array: Any) -> bool:
    if array is None:
        return False
    return bool(np.shares_memory(ops.to_numpy(result), ops.to_numpy(array)))


def _bytes(ops: Operations, array: Any) -> bytes:
    return b"" if array is None else np.asarray(ops.to_numpy(array)).tobytes()


def _compare(result: Array, question: Question, allowed: Array) -> tuple[float, float]:
    """Error and tolerance of the image that uses most of its tolerance."""
    difference = np.abs(result.astype(np.float64) - question.expected)
    size = np.abs(question.expected)
    last = tuple(range(-question.axes, 0))
    if question.entrywise:
        relative = np.divide(difference, size, out=np.zeros_like(size), where=size > 0)
        # An expected zero must be a zero.
        relative[(size == 0) & (difference > 0)] = np.inf
        errors = relative.max(axis=last, initial=0.0)
    else:
        scale = size.max(axis=last, initial=0.0)
        worst = difference.max(axis=last, initial=0.0)
        errors = np.divide(worst, scale, out=np.zeros_like(scale), where=scale > 0)
        errors = np.where((scale == 0) & (worst > 0), np.inf, errors)
    allowed = np.broadcast_to(allowed, errors.shape)
    pairs = zip(errors.flat, allowed.flat, strict=True)
    return max(((float(e), float(t)) for e, t in pairs), key=_used, default=(0.0, 0.0))


def _used(error_and_tolerance: tuple[float, float]) -> float:
    """Share of the tolerance that was used; where none is allowed, any error is infinitely much."""
    error, allowed = error_and_tolerance
    if allowed == 0.0:
        return 0.0 if error == 0.0 else float("inf")
    return error / allowed
