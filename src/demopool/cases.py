"""The job, as one plain value: what is checked, timed, chosen and stored."""

from __future__ import annotations

from dataclasses import dataclass, fields

from .parameters import validated


@dataclass(frozen=True)
class Case:
    """A descriptor of ``batch`` images of n features of dimension d, and where the data starts."""

    descriptor: str = "democratic"
    batch: int = 1
    n: int = 784
    d: int = 512
    k: int = 8192
    dtype: str = "float32"
    order: int = 2
    gamma: float = 0.5
    tau: float = 0.5
    iterations: int = 10
    p: float = 0.5
    data: str = "host"

    def __post_init__(self) -> None:
        """Every field by its rule, and as plain Python whatever it came as."""
        for field in fields(self):
            value = validated(**{field.name: getattr(self, field.name)})
            object.__setattr__(self, field.name, value)


DTYPE_BYTES = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}
