"""One name for this machine, whether ``make bench`` or plain ``asv run`` measures."""

from __future__ import annotations

import platform
import re

from .harness import fingerprint


def machine_name() -> str:
    """``<host>-<gpu>``: two GPUs on one host are two machines to asv."""
    gpus = fingerprint.machine().get("gpu") or []
    return re.sub(r"[^A-Za-z0-9.-]+", "-", "-".join([platform.node(), *gpus[:1]])).lower()
