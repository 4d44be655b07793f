"""Profiles: which part of the suite to run, as asv ``--bench`` patterns.

Parameters are constant, so a profile only selects. It runs in slices, one per class: asv writes
results at the end of a run, so an interruption loses only the current slice.

fast      every descriptor on one VGG image with all routes, and on one ResNet image with the routes
          that need no d x d decomposition; first call, memory and error on the VGG image
regular   every descriptor on all cases, every operation on the network cases; all tracked values
          on single images
full      everything
"""

from __future__ import annotations

import re
from itertools import product
from typing import NamedTuple

from . import descriptors, gradients, operations
from .harness import cases, measures, vocabulary
from .suite import BASELINE

_SINGLE = ("vgg-b1", "resnet-b1")
_ANY_ROUTE = "[^']*"
# Excludes routes that take seconds per call at d = 2048.
_QUICK_ROUTE = r"(?![^']*(?:eigh|svd|newton|polar))[^']*"


class Part(NamedTuple):
    """Some methods of a module's classes on some cases."""

    module: str
    methods: tuple[str, ...]
    cases: tuple[str, ...]
    route: str = _ANY_ROUTE
    device: str = ""


def _tracked(*where: str) -> tuple[str, ...]:
    return tuple(f"track_{m.name}" for m in measures.ONCE.values() if m.where in where)


_HOST_VALUES = _tracked("everywhere")
_ALL_VALUES = _tracked("everywhere", "transfers")
_DEVICE_VALUES = _tracked("devices")
_TIMES = ("time_call", "time_forward_backward")

PROFILES: dict[str, tuple[Part, ...]] = {
    "fast": (
        Part("descriptors", ("time_call",), ("vgg-b1",)),
        Part("descriptors", ("time_call",), ("resnet-b1",), _QUICK_ROUTE),
        Part("descriptors", _HOST_VALUES, ("vgg-b1",)),
        Part("descriptors", _DEVICE_VALUES, ("vgg-b1",), device="cuda"),
        Part("gradients", ("time_forward_backward",), ("vgg-b1",)),
    ),
    "regular": (
        Part("descriptors", ("time_call",), tuple(cases.NAMED)),
        Part("descriptors", _ALL_VALUES, _SINGLE),
        Part("descriptors", _DEVICE_VALUES, _SINGLE, device="cuda"),
        Part("operations", ("time_call",), cases.NETWORKS),
        Part("operations", ("track_error",), _SINGLE),
        Part("gradients", ("time_forward_backward",), cases.NETWORKS),
    ),
    "full": tuple(
        part
        for module in ("descriptors", "operations", "gradients")
        for part in (
            Part(module, (*_TIMES, *_ALL_VALUES), tuple(cases.NAMED)),
            Part(module, _DEVICE_VALUES, tuple(cases.NAMED), device="cuda"),
        )
    ),
    # CI runs every class once on its smallest case, so that none breaks unnoticed.
    "smallest": (
        Part("descriptors", ("time_call",), ("n49-d64",)),
        Part("operations", ("time_call",), ("n49-d64",)),
        Part("descriptors", _ALL_VALUES, ("vgg-b1",), "(?:plain|direct|dense|svd|moment)"),
        Part("operations", _ALL_VALUES, ("vgg-b1",), "(?:plain|direct|dense)"),
        Part("descriptors", _DEVICE_VALUES, ("vgg-b1",), "(?:direct|dense)"),
        Part("gradients", ("time_forward_backward",), ("n49-d64",)),
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
    for module in (descriptors, operations, gradients):
        short = module.__name__.rpartition(".")[2]
        parts = [part for part in PROFILES[profile] if part.module == short]
        for name, found in vars(module).items():
            if not name.startswith("_") and isinstance(found, type):
                patterns = tuple(_pattern(part, name, backends) for part in parts)
                cells = frozenset(_cells(short, found, patterns))
                if cells:
                    made.append(Slice(f"{short}.{name}", patterns, cells))
    return made


def _pattern(part: Part, name: str, backends: tuple[str, ...]) -> str:
    everyone = map(vocabulary.Backend, (BASELINE.backend, *backends))
    chosen = "|".join(b for b in everyone if part.device in ("", b.device))
    methods, sizes = "|".join(part.methods), "|".join(part.cases)
    who = rf"'(?:{chosen})/{part.route}'" if chosen else "(?!)"
    return rf"^{part.module}\.{name}\.(?:{methods})\({who}, '(?:{sizes})'\)$"


def _cells(module: str, made: type, patterns: tuple[str, ...]) -> list[tuple[str, str, str]]:
    """The (benchmark, candidate, case) that asv will select, by asv's own rule."""
    selected = []
    for method in vars(made).values():
        for candidate, case in product(*getattr(method, "params", ((), ()))):
            benchmark = f"{module}.{made.__name__}.{method.__name__}"
            text = f"{benchmark}({candidate!r}, {case!r})"
            if any(re.search(pattern, text) for pattern in patterns):
                selected.append((benchmark, candidate, case))
    return selected
