"""Which backends there are, and which of them this machine can use.

Asking is cheap and lazy: no backend library is imported and no device context is created until an
operation is wanted. Other distributions add backends through the entry-point group
``demopool.backends``: the entry is named after the library and its value is a
:class:`~demopool.contract.Specification`. Code of an installed plug-in runs when backends are
listed; whatever it raises is its state, and what it prints goes to standard error.
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from threading import RLock, local
from typing import Any

from ..errors import BackendUnavailable, InvalidInput
from ..machine.system import usual_threads
from ..problem.routes import ROUTES
from ..problem.vocabulary import BACKENDS, DTYPES, PACKAGES, Backend, State
from .interface import (
    CONTRACT_VERSION,
    Capability,
    CompilesPer,
    Implementation,
    Probe,
    Specification,
)

GROUP = "demopool.backends"
REQUIRED_VARIABLE = "DEMOPOOL_REQUIRE_BACKENDS"
"""Comma-separated backends that must be usable here, so that a skip cannot hide a bad install."""


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
        with _printing_to_stderr:
            found = listed.specification.probe(Backend(backend).device)
        if not isinstance(found, Probe):
            raise TypeError(f"a {type(found).__name__} instead of a demopool.contract.Probe")
        return found
    except KeyboardInterrupt:
        raise
    except BaseException as problem:  # a plug-in's sys.exit too
        return Probe(State.ERROR, reason=f"its probe raised {_described(problem)}")


def compiles_per(backend: str) -> CompilesPer:
    """What its first calls compile for, as its specification says; None of one that has gone."""
    listed = _entries().get(backend)
    return listed.specification.compiles_per if listed and listed.specification else None


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
    """The loaded implementation of a usable backend; one for all threads.

    No lock is held: the import system has its own, which see a deadlock coming. Threads that come
    at once may each load it, which costs little once the library is imported, and keep the first.
    """
    found = _loaded.get(backend)
    if found is not None:
        return found
    demand(backend)
    listed = entry(backend)
    assert listed.specification is not None, "demand() let an absent backend through"
    under_way: set[str] = _this_thread.__dict__.setdefault("loading", set())
    if backend in under_way:
        # A signal handler, or something its own import runs: half a library would be met.
        reason = "it is being loaded, and this call comes from within; call again afterwards"
        raise BackendUnavailable(backend, reason)
    under_way.add(backend)
    try:
        with _printing_to_stderr:
            made = listed.specification.load(Backend(backend).device, usual_threads())
        lacking = _lacking(made, listed.capabilities)
    except KeyboardInterrupt:
        raise
    except BaseException as problem:
        raise BackendUnavailable(backend, f"loading it raised {_described(problem)}") from problem
    finally:
        under_way.discard(backend)
    if lacking:
        raise BackendUnavailable(backend, lacking)
    return _loaded.setdefault(backend, made)


def _lacking(made: Any, capabilities: tuple[Capability, ...]) -> str:
    """What a loaded backend does not have although it is called or listed, or nothing."""
    if not isinstance(made, Implementation):
        return f"load returned a {type(made).__name__}, not a demopool.contract.Implementation"
    for row in capabilities:
        if not row.reason and (row.operation, row.route) not in made.kernels:
            return f"it lists {row.operation} by {row.route} but has no kernel for it"
    try:
        inspect.signature(made.looks_ordinary).bind(None, 0.5, 2.0, zero_rows=True)
    except TypeError:
        return "looks_ordinary must take looks_ordinary(X, low, high, *, zero_rows=False)"
    except ValueError:  # a callable without a signature
        pass
    return ""


def owner(array: Any) -> str | None:
    """The backend whose library and device this array lives on, or None."""
    for name, listed in _entries().items():
        if listed.specification is not None:
            try:
                device = listed.specification.recognise(array)
            except KeyboardInterrupt:
                raise
            except BaseException:  # somebody's plug-in does not know this kind of array
                continue
            if device is not None and name == f"{listed.specification.library}:{device}":
                return name
    return None


_loaded: dict[str, Implementation] = {}
_this_thread = local()


class _Redirected:
    """``contextlib.redirect_stdout`` for several threads: the last to leave puts it back."""

    def __init__(self) -> None:
        self.lock, self.inside, self.kept = RLock(), 0, sys.stdout

    def __enter__(self) -> None:
        with self.lock:
            if self.inside == 0:
                self.kept, sys.stdout = sys.stdout, sys.stderr
            self.inside += 1

    def __exit__(self, *problem: object) -> None:
        with self.lock:
            self.inside -= 1
            if self.inside == 0:
                sys.stdout = self.kept


_printing_to_stderr = _Redirected()
"""While code of a plug-in may run, whose words must not get into our output."""


def _described(problem: BaseException) -> str:
    return f"{type(problem).__name__}: {problem}"


@cache
def _entries() -> dict[str, Entry]:
    own: dict[str, Entry] = {}
    for package in PACKAGES:
        ours = importlib.import_module(f"demopool.implementations.{package}").SPECIFICATION
        own |= {f"{ours.library}:{device}": Entry(ours) for device in ours.devices}
    planned = Entry(None, "not written yet, planned for a later release")
    entries: dict[str, Entry] = {backend: own.get(backend, planned) for backend in BACKENDS}
    for point in entry_points(group=GROUP):
        for backend, listed in _plugin(point).items():
            if backend in entries:
                taken = Entry(None, "another backend has this name already", State.ERROR)
                entries[f"{backend} ({point.module})"] = taken
            else:
                entries[backend] = listed
    return entries


def _check_calls(loaded: Specification) -> None:
    """A mistake in what will be called is told when backends are listed."""
    if loaded.compiles_per not in (None, "shape", "dtype"):
        raise TypeError(
            f"compiles_per must be 'shape', 'dtype' or None; got {loaded.compiles_per!r}"
        )
    try:
        inspect.signature(loaded.load).bind("cpu", 1)
    except TypeError:
        raise TypeError("load must take two arguments, load(device, threads)") from None
    except ValueError:
        return  # a callable without a signature


def _check_lists(loaded: Specification) -> None:
    """Likewise, in what it lists."""
    for name, kind in (("devices", str), ("capabilities", Capability)):
        given = getattr(loaded, name)
        if not isinstance(given, tuple) or not given or not all(isinstance(x, kind) for x in given):
            raise TypeError(f"{name} must be a tuple of {kind.__name__}; got {given!r}")
    known = {(route.operation, route.name): route.orders for route in ROUTES}
    for row in loaded.capabilities:
        orders = known.get((row.operation, row.route))
        if orders is None:
            raise TypeError(f"there is no route {row.route} of an operation {row.operation}")
        for order in set(row.orders) - set(orders):
            raise TypeError(f"{row.operation} by {row.route} has no order {order!r}")
        for dtype in set(row.dtypes) - set(DTYPES):
            raise TypeError(f"dtype must be one of {', '.join(DTYPES)}; got {dtype!r}")


def _plugin(point: EntryPoint) -> dict[str, Entry]:
    """A plug-in's backends. One that cannot be read is listed with the reason, never a crash."""
    try:
        with _printing_to_stderr:
            loaded = point.load()
        if not isinstance(loaded, Specification):
            raise TypeError(f"{point.value} is not a demopool.contract.Specification")
        if loaded.contract != CONTRACT_VERSION:
            raise TypeError(
                f"it was written for contract {loaded.contract}, this is {CONTRACT_VERSION}"
            )
        if loaded.library != point.name:
            raise TypeError(f"the entry point is named {point.name}, its library {loaded.library}")
        _check_calls(loaded)
        _check_lists(loaded)
        return {f"{loaded.library}:{device}": Entry(loaded) for device in loaded.devices}
    except KeyboardInterrupt:
        raise
    except TypeError as problem:
        reason = str(problem)
    except BaseException as problem:
        reason = _described(problem)
    return {f"{point.name}:unknown": Entry(None, f"its plug-in failed: {reason}", State.ERROR)}
