"""The job, as one plain value: what is checked, timed, chosen and stored."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from functools import cache
from typing import Any, NamedTuple

from ..errors import InvalidInput
from .operations import Operation
from .parameters import validated
from .vocabulary import Descriptor, Dtype

_DEMOCRATIC, _FLOAT32 = Descriptor("democratic"), Dtype("float32")


@dataclass(frozen=True)
class Case:
    """A descriptor of ``batch`` images of n features of dimension d, and how a call begins.

    data     where features start and descriptors end: ``host``, or where the backend works:
             ``device``
    caches   ``warm`` as in a stream of images: the features were just written; ``cold``: emptied
             before every timed call
    """

    descriptor: Descriptor = _DEMOCRATIC
    batch: int = 1
    n: int = 784
    d: int = 512
    k: int = 8192
    dtype: Dtype = _FLOAT32
    order: int = 2
    gamma: float = 0.5
    tau: float = 0.5
    iterations: int = 10
    p: float = 0.5
    data: str = "host"
    caches: str = "warm"

    def __post_init__(self) -> None:
        """Every field by its rule, and as plain Python whatever it came as."""
        for field in fields(self):
            value = validated(**{field.name: getattr(self, field.name)})
            object.__setattr__(self, field.name, value)
        if self.dtype is None:  # which ``describe`` takes for that of the features
            raise InvalidInput("dtype of a case must be a name such as float32; got None.")

    @property
    def is_cold(self) -> bool:
        return self.caches == "cold"

    @property
    def length(self) -> int:
        """Values of one descriptor."""
        return self.k if self.descriptor.is_sketched else int(self.d**self.order)

    def parameters_of(self, *operations: Operation) -> dict[str, Any]:
        """Those parameters of the operations that a case has; it has none of ``normalize``."""
        names = dict.fromkeys(name for operation in operations for name in operation.parameters)
        return {name: getattr(self, name) for name in names if hasattr(self, name)}


NAMED: dict[str, dict[str, Any]] = {
    # What networks give: VGG-16 at 448 px, ResNet-50 at 448 px; one image, and a batch.
    "vgg-b1": {"batch": 1, "n": 784, "d": 512},
    "vgg-b8": {"batch": 8, "n": 784, "d": 512},
    "resnet-b1": {"batch": 1, "n": 196, "d": 2048},
    "resnet-b8": {"batch": 8, "n": 196, "d": 2048},
    # The smallest, for a quick look.
    "n49-d64": {"n": 49, "d": 64},
    # Over n at d = 512 (with vgg-b1), over d at n = 196 (with resnet-b1).
    "n49-d512": {"n": 49, "d": 512},
    "n196-d512": {"n": 196, "d": 512},
    "n3136-d512": {"n": 3136, "d": 512},
    "n196-d64": {"n": 196, "d": 64},
    "n196-d256": {"n": 196, "d": 256},
    "n196-d1024": {"n": 196, "d": 1024},
    # Large n: early layers, videos, sets of patches.
    "n12544-d64": {"n": 12544, "d": 64},
    "n50176-d64": {"n": 50176, "d": 64},
    # Many small images.
    "b64-n49-d512": {"batch": 64, "n": 49, "d": 512},
    "b256-n49-d64": {"batch": 256, "n": 49, "d": 64},
    # A few in float64.
    "vgg-b1-f64": {"batch": 1, "n": 784, "d": 512, "dtype": "float64"},
    "resnet-b1-f64": {"batch": 1, "n": 196, "d": 2048, "dtype": "float64"},
    "n12544-d64-f64": {"n": 12544, "d": 64, "dtype": "float64"},
}
"""Sizes with a name. The names are in stored results: add to them, never change what one means."""

NETWORKS = ("vgg-b1", "vgg-b8", "resnet-b1", "resnet-b8")


def named(name: str, **changes: Any) -> Case:
    """A case by name, for any descriptor: ``named("vgg-b8", descriptor="power")``."""
    if name not in NAMED:
        raise InvalidInput(f"case must be one of {', '.join(NAMED)}; got {name!r}.")
    return Case(**{**NAMED[name], **changes})


class Axis(NamedTuple):
    """Sizes along which time and memory are tracked, one image each, and what stays the same."""

    sizes: tuple[int, ...]
    fixed: dict[str, int]


AXES = {
    # Maps of 4 x 4 to 56 x 56 positions.
    "n": Axis((16, 49, 196, 784, 1600, 3136), {"d": 512}),
    "d": Axis((16, 64, 128, 256, 512, 1024, 2048), {"n": 196}),
}
"""In stored results like the names: add to the sizes, never change what is fixed."""


def along(axis: str, size: int, **changes: Any) -> Case:
    """The case of that size on an axis: ``along("n", 784)``."""
    return Case(**{**AXES[axis].fixed, axis: size, **changes})


@cache
def name_of(case: Case) -> str:
    """Its name, whatever the descriptor; of one without a name the fields that make it special."""
    for name, sizes in NAMED.items():
        if Case(**{**sizes, "descriptor": case.descriptor}) == case:
            return name
    usual = asdict(Case())
    always = {"batch", "n", "d"}
    special = [
        f"{field.name}={getattr(case, field.name)}"
        for field in fields(case)
        if field.name in always
        or (field.name != "descriptor" and getattr(case, field.name) != usual[field.name])
    ]
    return ",".join(special)


@cache
def from_name(name: str, descriptor: str = _DEMOCRATIC) -> Case:
    """The case that :func:`name_of` has named."""
    if name in NAMED:
        return named(name, descriptor=descriptor)
    kinds = {field: type(value) for field, value in asdict(Case()).items()}
    pairs = (text.split("=", 1) for text in name.split(","))
    return Case(Descriptor(descriptor), **{field: kinds[field](value) for field, value in pairs})
