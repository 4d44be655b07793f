"""Where demopool keeps what it has measured: the user's cache directory."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

from platformdirs import user_cache_path

VARIABLE = "DEMOPOOL_CACHE_DIR"


# What the system's answer depends on; asking for it takes as long as describing a small image.
_SURROUNDINGS = (VARIABLE, "XDG_CACHE_HOME", "HOME", "LOCALAPPDATA")


def cache_folder() -> Path:
    """DEMOPOOL_CACHE_DIR if that is set, else the place the system has for caches."""
    return _folder(*map(os.environ.get, _SURROUNDINGS))


@lru_cache(maxsize=8)
def _folder(named: str | None, *others: str | None) -> Path:
    return Path(named) if named else user_cache_path("demopool")
