"""What is computed of every image, as one value that can be stored and compared."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

from ..errors import InvalidInput
from ..problem.cases import Case
from ..problem.operations import demand_defined
from ..problem.parameters import validated
from ..problem.routes import demand
from ..problem.vocabulary import Descriptor, Dtype

ZERO_ROWS = ("ignore", "error")
"""A warning would come with nearly every dataset, and could not say of which image."""


@dataclass(frozen=True)
class Settings:
    """The parameters of ``describe``; ``dtype`` is that of the output, None for the input's."""

    descriptor: str
    gamma: float = 0.5
    tau: float = 0.5
    iterations: int = 10
    p: float = 0.5
    k: int = 8192
    seed: int = 0
    order: int = 2
    zero_rows: str = "ignore"
    normalize: str = "signed-sqrt-l2"
    center: bool = False
    vectorize: str = "full"
    dtype: str | None = None
    layout: str | None = None
    dataset: str | None = None
    backend: str = "auto"
    route: str = "auto"
    accuracy: str | float = "fast"

    # Where the images come from and what computes them is no argument of the descriptor.
    _ELSEWHERE = ("descriptor", "layout", "dataset", "backend", "route", "accuracy")

    def __post_init__(self) -> None:
        for entry in fields(self):
            if entry.name not in ("zero_rows", "dataset"):
                value = validated(**{entry.name: getattr(self, entry.name)})
                object.__setattr__(self, entry.name, value)
        if self.zero_rows not in ZERO_ROWS:
            raise InvalidInput(
                f"zero_rows must be one of {', '.join(ZERO_ROWS)}; got {self.zero_rows!r}."
            )
        kind = Descriptor(self.descriptor)
        demand(self.descriptor, self.route)
        demand_defined(kind, order=self.order, center=self.center, vectorize=self.vectorize)

    def case(self, batch: int, n: int, d: int, dtype: str) -> Case:
        """Of a call with images of one size."""
        work = Dtype(self.dtype).result if self.dtype else Dtype(dtype)
        numbers = {name: getattr(self, name) for name in ("gamma", "tau", "iterations", "p")}
        sizes: dict[str, Any] = {"batch": batch, "n": n, "d": d, "k": self.k, "order": self.order}
        return Case(Descriptor(self.descriptor), **sizes, dtype=work, **numbers)

    def length(self, d: int) -> int:
        """Of a descriptor of features of length d."""
        if self.vectorize == "upper":
            return d * (d + 1) // 2
        return self.case(1, 1, d, "float32").length

    def for_describe(self) -> dict[str, Any]:
        """Its keyword arguments, without the backend and the route."""
        return {name: value for name, value in asdict(self).items() if name not in self._ELSEWHERE}
