"""Which backends there are, and which of them this machine can use.

Asking is cheap and lazy: no backend library is imported and no device context is created until an
operation is wanted. Other distributions add backends through the entry-point group
``demopool.backends``: the entry is named after the library and its value is a
:class:`~demopool.contract.Specification`.
"""

from __future__ import annotations

import importlib
import os
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from threading import Lock
from typing import Any

from .contract import (
    CONTRACT_VERSION,
    Capability,
    Implementation,
    Probe,
    Specification,
)
from .errors import BackendUnavailable, InvalidInput
from .routes import ROUTES
from .vocabulary import BACKENDS, State

GROUP = "demopool.backends"
REQUIRED_VARIABLE = "DEMOPOOL_REQUIRE_BACKENDS"
"""Comma-separated backends that must be usable here, so that a skip cannot hide a bad install."""

_OWN = ("numpy_cpu", "numba_cpu", "torch_any", "cupy_cuda", "numba_cuda")
"""Packages of ``demopool.implementations`` whose ``SPECIFICATION`` describes a library on some
devices; importing one imports no library."""


@dataclass(frozen=True)
class Entry:
    """A listed backend: its specification, or the reason why there is none."""

    specification: Specification | None
    reason: str = ""
    state: State = State.UNAVAILABLE

    @property
    def capabilities(self) -> tuple[Capability, ...]:
        return self.specification.capabilities if self.specification else ()


def names() -> tuple[str, ...]:
    """All backends: ours, then the plug-ins', whatever is installed."""
    return tuple(_entries())


def entry(backend: str) -> Entry:
    """The entry of one backend; a name nobody knows is invalid input."""
    found = _entries().get(backend)
    if found is None:
        raise InvalidInput(f"backend must be one of {', '.join(names())}; got {backend!r}.")
    return found


@cache
def probe(backend: str) -> Probe:
    """Whether a backend is usable here. Found once; a probe that fails is a state, not a crash."""
    listed = entry(backend)
    if listed.specification is None:
        return Probe(listed.state, reason=listed.reason)
    try:
        return listed.specification.probe(backend.partition(":")[2])
    except Exception as problem:
        return Probe(State.ERROR, reason=f"its probe raised {type(problem).__name__}: {problem}")


def available() -> tuple[str, ...]:
    """The backends that can be used here."""
    return tuple(name for name in names() if probe(name).state is State.OK)


def required() -> tuple[str, ...]:
    """The backends that the environment says must be usable here."""
    wanted = os.environ.get(REQUIRED_VARIABLE, "")
    listed = tuple(name.strip() for name in wanted.split(",") if name.strip())
    for name in listed:
        if name not in names():
            raise InvalidInput(f"{REQUIRED_VARIABLE} must name backends; {name!r} is not one.")
    return listed


def demand(backend: str) -> None:
    """An absent backend asked for by name is an error, not a skip."""
    found = probe(backend)
    if found.state is not State.OK:
        raise BackendUnavailable(backend, found.reason, found.install)


def implementation(backend: str) -> Implementation:
    """The loaded implementation of a usable backend; loaded once, also from several threads."""
    demand(backend)
    with _loading:
        try:
            return _load(backend)
        except Exception as problem:
            reason = f"loading it raised {type(problem).__name__}: {problem}"
            raise BackendUnavailable(backend, reason) from problem


def owner(array: Any) -> str | None:
    """The backend whose library and device this array lives on, or None."""
    for name, listed in _entries().items():
        if listed.specification is not None:
            try:
                device = listed.specification.recognise(array)
            except Exception:  # somebody's plug-in does not know this kind of array
                continue
            if device is not None and name == f"{listed.specification.library}:{device}":
                return name
    return None


_loading = Lock()


@cache
def _load(backend: str) -> Implementation:
    listed = entry(backend)
    assert listed.specification is not None, "demand() let an absent backend through"
    return listed.specification.load(backend.partition(":")[2])


@cache
def _entries() -> dict[str, Entry]:
    own: dict[str, Entry] = {}
    for package in _OWN:
        ours = importlib.import_module(f"demopool.implementations.{package}").SPECIFICATION
        own |= {f"{ours.library}:{device}": Entry(ours) for device in ours.devices}
    planned = Entry(None, "not written yet, planned for a later release")
    entries = {backend: own.get(backend, planned) for backend in BACKENDS}
    for point in entry_points(group=GROUP):
        for backend, listed in _plugin(point).items():
            if backend in entries:
                taken = Entry(None, "another backend has this name already", State.ERROR)
                entries[f"{backend} ({point.module})"] = taken
            else:
                entries[backend] = listed
    return entries


def _plugin(point: EntryPoint) -> dict[str, Entry]:
    """A plug-in's backends. One that cannot be read is listed with the reason, never a crash."""
    try:
        loaded = point.load()
        if not isinstance(loaded, Specification):
            raise TypeError(f"{point.value} is not a demopool.contract.Specification")
        if loaded.contract != CONTRACT_VERSION:
            raise TypeError(
                f"it was written for contract {loaded.contract}, this is {CONTRACT_VERSION}"
            )
        if loaded.library != point.name:
            raise TypeError(f"the entry point is named {point.name}, its library {loaded.library}")
        known = {(route.operation, route.name) for route in ROUTES}
        for row in loaded.capabilities:
            if (row.operation, row.route) not in known:
                raise TypeError(f"there is no route {row.route} of an operation {row.operation}")
        return {f"{loaded.library}:{device}": Entry(loaded) for device in loaded.devices}
    except Exception as problem:
        return {f"{point.name}:unknown": Entry(None, f"its plug-in failed: {problem}", State.ERROR)}
