"""``backends()``: every backend, usable or not, as plain values."""

from __future__ import annotations

from typing import Any

from . import registry


def backends() -> list[dict[str, Any]]:
    """One entry per backend: state, device, versions, and for an absent one reason and install."""
    listed = []
    for name in registry.names():
        found = registry.probe(name)
        listed.append(
            {
                "backend": name,
                "state": str(found.state),
                "device": found.device or None,
                "versions": dict(found.versions),
                "reason": found.reason or None,
                "install": found.install or None,
            }
        )
    return listed
