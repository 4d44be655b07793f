"""Descriptors of Dask arrays, lazily: ``from demopool.dask import describe``."""

from .errors import BackendUnavailable

try:
    from .pooling.blockwise import describe
except ModuleNotFoundError as missing:
    if missing.name != "dask":
        raise
    reason, install = "dask is not installed", "pip install '.[scale]' (in a clone)"
    raise BackendUnavailable("demopool.dask", reason, install) from None

__all__ = ["describe"]
