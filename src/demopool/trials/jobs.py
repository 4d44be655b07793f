"""Jobs: one candidate on one case, with its data, ready to be run, timed and judged.

What a job does is what a user's call does: a descriptor is ``describe`` with everything it checks
by default, an operation is the operation on the backend's own arrays. The package that is measured
is an argument, because the benchmarks measure other commits than the one they belong to; those may
know plain strings only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from inspect import signature
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..contract.device import Host, MeasuredDevice
from ..problem.candidates import Candidate, Subject
from ..problem.cases import Case
from ..problem.operations import OPERATIONS
from ..problem.vocabulary import Descriptor

VERSION = "2"
"""Raised when what is run changes its meaning: times from before are then dropped, not compared."""

Array = NDArray[Any]


@dataclass
class Data:
    """The arrays a job works on at present: as NumPy, and where the backend wants them."""

    host: dict[str, Array]
    placed: dict[str, Any]


@dataclass(frozen=True)
class Job:
    """``run`` starts the work on data that is where the backend wants it; the clock waits for it.

    run_from_host   NumPy in, NumPy out: with both transfers
    to_numpy        the result of ``run`` as NumPy
    device          what to wait for
    data            what the next run works on; others may be put there
    place           NumPy arrays as the backend wants them
    """

    run: Callable[[], Any]
    run_from_host: Callable[[], Array]
    to_numpy: Callable[[Any], Array]
    device: MeasuredDevice
    data: Data = field(default_factory=lambda: Data({}, {}))
    place: Callable[[Array], Any] = np.asarray


def prepare(package: Any, subject: Subject, candidate: Candidate, case: Case) -> Job:
    """A job of a backend of ``package``, a demopool. The candidate must be eligible."""
    ops = package.backend(candidate.backend)
    options = _options(subject, case)
    host = inputs(subject, case)
    data = Data(host, {name: ops.asarray(array) for name, array in host.items()})
    waits = (ops.to_numpy, _device(ops), data, ops.asarray)
    if subject.kind == "descriptor":

        def describe(X: Any) -> Any:
            chosen = {"backend": candidate.backend, "route": candidate.route}
            return package.describe(X, str(subject.name), **chosen, **options)

        # describe itself takes a NumPy array to the backend and its descriptor back.
        return Job(lambda: describe(data.placed["X"]), lambda: describe(data.host["X"]), *waits)

    operation = getattr(ops, subject.name)
    # Another version that is measured may have one route only, and no argument for it.
    if OPERATIONS[subject.name].is_routed and "route" in signature(operation).parameters:
        options["route"] = candidate.route
    ready: dict[str, Any] = {}
    if "hashes" in subject.arrays:
        ready["hashes"] = ops.prepare(package.hashes(case.d, case.k))

    def run(arrays: dict[str, Any]) -> Any:
        given = {**arrays, **ready}
        return operation(*(given[name] for name in subject.arrays), **options)

    def run_from_host() -> Array:
        placed = {name: ops.asarray(array) for name, array in data.host.items()}
        return np.asarray(ops.to_numpy(run(placed)))

    return Job(lambda: run(data.placed), run_from_host, *waits)


def prepare_gradient(package: Any, subject: Subject, candidate: Candidate, case: Case) -> Job:
    """Forward and backward with respect to X, for libraries whose tensors carry gradients."""
    ops = package.backend(candidate.backend)

    def place(array: Array) -> Any:
        return ops.asarray(array).requires_grad_(True)

    host = inputs(subject, case)
    data = Data(host, {"X": place(host["X"])})
    options = _options(subject, case)
    towards = ops.asarray(direction(subject, case))

    def run() -> Any:
        X = data.placed["X"]
        X.grad = None
        y = package.describe(
            X, str(subject.name), backend=candidate.backend, route=candidate.route, **options
        )
        y.backward(towards)
        return X.grad

    to_numpy = ops.to_numpy
    return Job(run, lambda: np.asarray(to_numpy(run())), to_numpy, _device(ops), data, place)


def direction(subject: Subject, case: Case) -> Array:
    """The derivative by the descriptor, from which a backward pass begins.

    Not that of the sum: a normalised descriptor's sum may have next to no gradient.
    """
    rng = np.random.default_rng(1)
    found: Array = rng.standard_normal(subject.output_shape(case)).astype(case.dtype)
    return found


def features(
    rng: np.random.Generator, shape: tuple[int, ...], dtype: str
) -> NDArray[np.floating[Any]]:
    """Rectified noise, as features are >= 0.

    With few channels all of a row may be rectified away, and a row of zeros is not allowed: it is
    then what it was before, without its signs.
    """
    noise = rng.standard_normal(shape, dtype=np.float32)
    X = np.maximum(noise, 0).astype(dtype)
    zero = ~X.any(axis=-1)
    # Half is added because the least of noises is zero in half precision.
    X[zero] = np.abs(noise[zero]) + np.float32(0.5)
    return X


def inputs(subject: Subject, case: Case, draw: int = 0) -> dict[str, Array]:
    """The NumPy arrays a subject takes, the same for every draw of that number."""
    rng = np.random.default_rng((case.batch, case.n, case.d, draw))
    shape = (case.batch, case.n, case.d)
    X = features(rng, shape, case.dtype)
    names = subject.arrays
    arrays: dict[str, Array] = {}
    if "X" in names:
        arrays["X"] = X
    if "a" in names:
        arrays["a"] = rng.uniform(0.5, 1.5, shape[:-1]).astype(case.dtype.result)
    if "A" in names or "v" in names:
        A = np.swapaxes(X, -1, -2) @ X
        if "A" in names:
            arrays["A"] = A
        else:
            arrays["v"] = A.reshape(case.batch, -1) if case.order == 2 else X.sum(axis=-2)
    return arrays


def judged_images(array: Array) -> Array:
    """The first and the last image of a batch: what the reference can judge in good time."""
    return array[sorted({0, len(array) - 1})]


def expected(
    reference: Any, package: Any, subject: Subject, case: Case, given: Mapping[str, Array]
) -> Array:
    """What the reference says for the images that are judged."""
    host = {name: judged_images(array) for name, array in given.items()}
    options = _options(subject, case)
    if subject.kind == "descriptor":
        options.pop("k", None)
        hashes = package.hashes(case.d, case.k) if Descriptor(subject.name).is_sketched else None
        return np.asarray(reference.describe(host["X"], subject.name, hashes=hashes, **options))
    arguments: dict[str, Any] = dict(host)
    if "hashes" in subject.arrays:
        arguments["hashes"] = package.hashes(case.d, case.k)
    operation = getattr(reference, subject.name)
    return np.asarray(operation(*(arguments[name] for name in subject.arrays), **options))


def relative_error(result: Array, wanted: Array) -> float:
    """Largest deviation of an image relative to its largest entry; the worst image counts."""
    images = tuple(range(1, wanted.ndim))
    if not np.isfinite(result).all():
        raise ArithmeticError("the result is not finite")
    deviation = np.abs(judged_images(result).astype(np.float64) - wanted).max(axis=images)
    return float((deviation / np.abs(wanted).max(axis=images)).max())


def _device(ops: Any) -> MeasuredDevice:
    """A commit from before implementations could be asked as devices ran on the host only."""
    implementation = ops.implementation
    return implementation if hasattr(implementation, "gpu_index") else Host()


def _options(subject: Subject, case: Case) -> dict[str, Any]:
    if subject.kind == "descriptor":
        given = {**case.parameters_of(*OPERATIONS.values()), "k": case.k}
    else:
        given = case.parameters_of(OPERATIONS[subject.name])
    # Only what is not the default, which an older version may not have a name for.
    return {name: value for name, value in given.items() if value != getattr(Case(), name)}
