"""Where demopool keeps what it has measured: the user's cache directory."""

from __future__ import annotations

import os
from pathlib import Path

from platformdirs import user_cache_path

VARIABLE = "DEMOPOOL_CACHE_DIR"


def cache_folder() -> Path:
    """DEMOPOOL_CACHE_DIR if that is set, else the place the system has for caches."""
    named = os.environ.get(VARIABLE)
    return Path(named) if named else user_cache_path("demopool")
