"""Plug-ins in the suite: a machine may list backends of other distributions, and asv measures them.

The parameters of the suite are constants, the same on every machine. So plug-ins have benchmarks of
their own, in modules whose names begin with ``plugins_``: those of ``descriptors`` and the like
once more, with the listed backends as candidates. Their baseline is that of the others.
"""

from __future__ import annotations

import os
from types import ModuleType

from .harness import measures, vocabulary
from .suite import Suite, of_backends

VARIABLE = "DEMOPOOL_BENCH_BACKENDS"
"""Comma-separated backends of plug-ins."""


def listed() -> tuple[str, ...]:
    """The backends that this machine adds; ours are in the suite anyway."""
    names = (name.strip() for name in os.environ.get(VARIABLE, "").split(","))
    return tuple(dict.fromkeys(n for n in names if n and n not in vocabulary.BACKENDS))


def twins_of(module: ModuleType, name: str) -> dict[str, type[Suite]]:
    """The classes of a module for the listed backends, by name; none if none is listed."""
    backends = listed()
    assert name.endswith(f".{measures.PLUGINS}{module.__name__.rpartition('.')[2]}"), name
    return {
        name_: of_backends(found, backends, name)
        for name_, found in vars(module).items()
        if backends and not name_.startswith("_") and isinstance(found, type)
    }
