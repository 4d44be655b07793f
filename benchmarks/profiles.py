"""Profiles: which part of the suite to run, as asv ``--bench`` patterns.

Parameters are constant, so a profile only selects. It runs in slices, one per class: asv writes
results at the end of a run, so an interruption loses only the current slice.

fast      every descriptor on one VGG image with all routes, and on one ResNet image with the routes
          that need no d x d decomposition; first call, memory and error on the VGG image; curves of
          democratic pooling over n and d
regular   every descriptor and gradient on the network cases, every operation on single images, time
          and memory of every descriptor over n and d; all tracked values on single images
full      everything
gpu       the regular profile on the backends of a GPU, and the baselines
counts    instructions and cache misses on the CPU, with valgrind
"""

from __future__ import annotations

import re
from itertools import product
from typing import Any, NamedTuple

from . import counts, descriptors, gradients, operations, scaling_d, scaling_n
from . import plugins_descriptors as of_plugins
from . import plugins_operations as operations_of_plugins
from . import plugins_scaling_d as scaling_d_of_plugins
from . import plugins_scaling_n as scaling_n_of_plugins
from .harness import cases, measures, vocabulary
from .suite import BASELINE, case_name

MODULES = (descriptors, scaling_n, scaling_d, operations, gradients)
"""What every machine can measure."""

_WITH_PLUGINS = (
    *(descriptors, of_plugins, scaling_n, scaling_n_of_plugins),
    *(scaling_d, scaling_d_of_plugins, operations, operations_of_plugins, gradients, counts),
)
"""All modules, each followed by what a machine adds to it."""

_SINGLE = ("vgg-b1", "resnet-b1")
_ANY = "[^']*"
# Excludes routes that take seconds per call at d = 2048.
_QUICK_ROUTE = r"(?![^']*(?:eigh|svd|newton|polar))[^']*"
_ONE_ROUTE = "(?:plain|direct|dense|svd|moment|svd.moment|dense.moment)"


class Part(NamedTuple):
    """Some methods of a module's classes; without sizes on all of them."""

    module: str
    methods: tuple[str, ...]
    sizes: tuple[Any, ...] = ()
    route: str = _ANY
    classes: tuple[str, ...] = ()
    device: str = ""


def _tracked(*where: str) -> tuple[str, ...]:
    return tuple(f"track_{m.name}" for m in measures.ONCE.values() if m.where in where)


_HOST_VALUES = _tracked("everywhere")
_ALL_VALUES = _tracked("everywhere", "transfers", "devices")
_TIMES = ("time_call", "time_forward_backward")
_CURVES = ("time_call", "track_peak_host_bytes", "track_peak_device_bytes")
_SCALING = ("scaling_n", "scaling_d")

_REGULAR = (
    Part("descriptors", ("time_call",)),
    Part("descriptors", _ALL_VALUES, _SINGLE),
    *(Part(module, _CURVES) for module in _SCALING),
    Part("operations", ("time_call", "track_error"), _SINGLE),
    Part("gradients", ("time_forward_backward",)),
)

PROFILES: dict[str, tuple[Part, ...]] = {
    "fast": (
        Part("descriptors", ("time_call", *_HOST_VALUES), ("vgg-b1",)),
        Part("descriptors", ("time_call",), ("resnet-b1",), _QUICK_ROUTE),
        Part("descriptors", ("track_peak_device_bytes",), ("vgg-b1",)),
        *(Part(module, _CURVES, classes=("Democratic",)) for module in _SCALING),
        Part("gradients", ("time_forward_backward",), ("vgg-b1",)),
    ),
    "regular": _REGULAR,
    "full": tuple(
        Part(module.__name__.rpartition(".")[2], (*_TIMES, *_ALL_VALUES)) for module in MODULES
    ),
    "counts": (Part("counts", tuple(f"track_{name}" for name in counts.TRACKED)),),
    "gpu": tuple(part._replace(device="cuda") for part in _REGULAR),
    # CI runs every class once on its smallest case, so that none breaks unnoticed.
    "smallest": (
        Part("descriptors", ("time_call",), ("vgg-b1",)),
        Part("descriptors", _ALL_VALUES, ("vgg-b1",), _ONE_ROUTE),
        Part("scaling_n", _CURVES, (16,), _ONE_ROUTE),
        Part("scaling_d", _CURVES, (16,), _ONE_ROUTE),
        Part("operations", ("time_call", "track_error"), ("vgg-b1",), _ONE_ROUTE),
        Part("gradients", ("time_forward_backward",), ("vgg-b1",), _ONE_ROUTE),
    ),
}


class Slice(NamedTuple):
    """One run of asv: patterns, usually those of one class, and the cells they select."""

    title: str
    patterns: tuple[str, ...]
    cells: frozenset[tuple[str, str, str]]


def slices(profile: str, backends: tuple[str, ...]) -> list[Slice]:
    """The runs of a profile, on these backends and the baseline."""
    made: list[Slice] = []
    for module in _WITH_PLUGINS:
        short = module.__name__.rpartition(".")[2]
        of = measures.without_plugins(short)
        parts = [p._replace(module=short) for p in PROFILES[profile] if p.module == of]
        for name, found in vars(module).items():
            if not name.startswith("_") and isinstance(found, type):
                asked = [part for part in parts if name in (part.classes or (name,))]
                patterns = tuple(_pattern(part, name, backends) for part in asked)
                cells = frozenset(_cells(short, found, patterns))
                if cells:
                    made.append(Slice(f"{short}.{name}", patterns, cells))
    return made


def _pattern(part: Part, name: str, backends: tuple[str, ...]) -> str:
    chosen = map(vocabulary.Backend, backends)
    ours = [b for b in chosen if part.device in ("", b.device)]
    everyone = "|".join((BASELINE.backend, *ours))
    methods = "|".join(part.methods)
    sizes = f"(?:{'|'.join(map(repr, part.sizes))})" if part.sizes else "[^,)]*"
    who = rf"'(?:{everyone})/{part.route}'"
    return rf"^{part.module}\.{name}\.(?:{methods})\({who}, {sizes}\)$"


def cell_name(benchmark: str, candidate: str, case: str) -> str:
    """Of one cell, as asv writes it, and compares it with patterns."""
    axis = measures.without_plugins(benchmark).partition(".")[0].removeprefix("scaling_")
    size = getattr(cases.from_name(case), axis) if axis in cases.AXES else case
    return f"{benchmark}({candidate!r}, {size!r})"


def pattern_of(benchmark: str, candidate: str, case: str) -> str:
    """The pattern that selects one cell."""
    return f"^{re.escape(cell_name(benchmark, candidate, case))}$"


def _cells(module: str, made: Any, patterns: tuple[str, ...]) -> list[tuple[str, str, str]]:
    """The (benchmark, candidate, case) that asv will select, by asv's own rule."""
    selected = []
    for method in vars(made).values():
        for candidate, size in product(*getattr(method, "params", ((), ()))):
            benchmark = f"{module}.{made.__name__}.{method.__name__}"
            text = f"{benchmark}({candidate!r}, {size!r})"
            if any(re.search(pattern, text) for pattern in patterns):
                selected.append((benchmark, candidate, case_name(made.axis, size)))
    return selected
