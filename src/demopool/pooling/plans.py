"""What a call of ``describe`` has to find out before it works, once for all calls that are alike.

A small image is pooled in less time than its parameters are validated and its kernels looked up, so
both are remembered: parameters by their values and types, kernels by parameters, shape and dtype.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from ..contract.interface import ArrayFacts
from ..problem import routes
from ..problem.cases import Case
from ..problem.hashing import Hashes, hashes
from ..problem.operations import OPERATIONS, demand_defined
from ..problem.parameters import validated
from ..problem.vocabulary import Backend, Descriptor, Dtype
from ..profiles import auto
from .operations import Operations

SMALL = 64
"""Matrices of up to so many rows are pooled and then normalised: nothing is gained at once."""


@dataclass(frozen=True, eq=False)
class Wanted:
    """The parameters of ``describe`` but for its arrays, as plain Python.

    Compared by identity, which is quick: equal parameters give the same object.
    """

    descriptor: Descriptor
    gamma: float
    tau: float
    iterations: int
    p: float
    k: int
    seed: int
    order: int
    center: bool
    layout: str | None
    zero_rows: str
    normalize: str
    vectorize: str
    backend: Backend
    route: str
    check: bool
    dtype: Dtype | None
    accuracy: str | float

    @property
    def leaves_a_choice(self) -> bool:
        return self.backend == "auto" or "auto" in self.route

    def work(self, dtype: str) -> Dtype:
        """What features of a dtype are worked in."""
        return Dtype(self.dtype or dtype).result

    @property
    def of_operations(self) -> dict[str, Any]:
        """Parameters that operations take, whatever is asked for."""
        names = ("gamma", "tau", "iterations", "order", "p")
        return {name: getattr(self, name) for name in names}


def wanted(*given: Any) -> Wanted:
    """All parameters in the order of the fields, validated."""
    try:
        return _wanted(*given)
    except TypeError:  # a value without a hash, which its rule refuses in its own words
        return _wanted.__wrapped__(*given)


@lru_cache(maxsize=256, typed=True)
def _wanted(*given: Any) -> Wanted:
    named = dict(zip(Wanted.__dataclass_fields__, given, strict=True))
    accuracy = named.pop("accuracy")
    found = {name: validated(**{name: value}) for name, value in named.items()}
    routes.demand(found["descriptor"], found["route"])
    asked = Wanted(**found, accuracy=routes.left_to(accuracy, found["route"]))
    demand_defined(
        asked.descriptor, order=asked.order, center=asked.center, vectorize=asked.vectorize
    )
    return asked


@lru_cache(maxsize=256)
def case_of(home: str, asked: Wanted, facts: ArrayFacts) -> Case:
    """The job as ``auto`` is asked about it."""
    return auto.case_of(
        home,
        asked.descriptor,
        facts.shape,
        dtype=facts.dtype if asked.dtype is None else asked.dtype.result,  # what is worked in
        k=asked.k,
        **asked.of_operations,
    )


class Step(NamedTuple):
    """A kernel by operation and route, with its parameters."""

    kernel: tuple[str, str]
    parameters: dict[str, Any]


@dataclass(frozen=True, eq=False)
class Plan:
    """How features of one shape and dtype become descriptors on one backend.

    weigh       None for weights of 1
    pool        of features, hashes if it makes a sketch, and weights if ``is_weighted``
    normalize   None where ``pool`` does it
    """

    ops: Operations
    weigh: Step | None
    pool: Step
    is_weighted: bool
    hashes: Hashes | None
    normalize: Step | None
    length: int

    def run(self, X: Any, ordinary: bool = False) -> Any:
        """The descriptors of features, which may be known to be ordinary."""
        arguments = [X]
        if self.hashes is not None:
            arguments.append(self.ops.prepare(self.hashes).ready)
        if self.is_weighted:
            arguments.append(None if self.weigh is None else self._weights(X, ordinary))
        shape = (*X.shape[:-2], self.length)
        v = self.ops.implementation.reshaped(self._do(self.pool, *arguments), shape)
        return v if self.normalize is None else self._do(self.normalize, v)

    def _weights(self, X: Any, ordinary: bool) -> Any:
        assert self.weigh is not None
        if ordinary and self.ops.implementation.takes_ordinary:
            kernel, parameters = self.weigh
            return self._do(Step(kernel, {**parameters, "ordinary": True}), X)
        return self._do(self.weigh, X)

    def _do(self, step: Step, *arrays: Any) -> Any:
        return self.ops.implementation.kernels[step.kernel](*arrays, **step.parameters)


@lru_cache(maxsize=256)
def plan(ops: Operations, asked: Wanted, route: str, facts: ArrayFacts) -> Plan:
    """For features with these facts, by a route of the descriptor; unsupported is an error."""
    work = asked.work(facts.dtype)
    if asked.dtype is not None:  # features were cast
        facts = facts._replace(dtype=work)
    kind, order, d = asked.descriptor, asked.order, facts.shape[-1]
    chosen = routes.steps_of(kind, route)
    steps = {}
    for name in kind.operations:
        known = OPERATIONS[name].parameters
        parameters = {key: value for key, value in asked.of_operations.items() if key in known}
        taken = ops.route(name, chosen[name], facts, **parameters, k=asked.k)
        steps[name] = Step((name, taken), parameters)
    ops.route("normalize", "direct", facts._replace(dtype=work))
    last = kind.operations[-1]
    ending: dict[str, Any] = {"axes": 1, "kind": asked.normalize, "overwrite": True}
    normalize: Step | None = Step(("normalize", "direct"), ending)
    is_large_matrix = last == "pool" and order == 2 and d > SMALL
    if is_large_matrix and asked.normalize != "none" and ops.implementation.pools_normalized:
        steps[last].parameters["norm"] = asked.normalize
        normalize = None
    return Plan(
        ops,
        steps.get("weights"),
        steps[last],
        last in ("pool", "pool_sketch"),
        hashes(d, asked.k, asked.seed) if kind.is_sketched else None,
        normalize,
        asked.k if kind.is_sketched else d**order,
    )
