"""Where demopool stores its measurements: the user's cache directory."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

from platformdirs import user_cache_path

VARIABLE = "DEMOPOOL_CACHE_DIR"


# The folder depends on these variables only. It is cached by their values, because finding it takes
# as long as describing a small image.
_OF_SYSTEM = ("LOCALAPPDATA",) if os.name == "nt" else ("XDG_CACHE_HOME", "HOME")
_VARIABLES = (VARIABLE, *_OF_SYSTEM)


def cache_folder() -> Path:
    """DEMOPOOL_CACHE_DIR if it is set, else the system's folder for caches."""
    return _folder(*map(os.environ.get, _VARIABLES))


@lru_cache(maxsize=8)
def _folder(named: str | None, *others: str | None) -> Path:
    return Path(named) if named else user_cache_path("demopool")
