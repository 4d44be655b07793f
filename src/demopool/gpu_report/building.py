"""From a plan to files: one page to look at, and one archive to send."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..common import files
from ..common.program import __version__
from ..machine import fingerprint
from . import page
from .collecting import Plan, Progress, collect
from .findings import findings

PAGE, ARCHIVE, STEPS = "gpu-report.html", "gpu-report.zip", "steps"
SCHEMA = 1
_EARLIEST = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class Built:
    """The page, the archive, what to look at first, and everything that was found."""

    files: tuple[Path, Path]
    findings: tuple[str, ...]
    found: dict[str, Any]

    @property
    def conforms(self) -> bool:
        """Whether nothing is wrong: no cell, nothing that was raced, nothing a sanitizer saw."""
        cells = {row["state"] for row in self.found["cells"]}
        raced = {row["state"] for race in self.found["races"] for row in race["candidates"]}
        sanitized = {row["state"] for row in self.found["sanitizer"]}
        return (
            cells <= {"ok", "unsupported"}
            and raced.isdisjoint({"wrong", "error"})
            and "wrong" not in sanitized
        )


def build(plan: Plan, folder: Path, *, fresh: bool, progress: Progress) -> Built:
    """Do what the folder does not have yet; then write the page and the archive into it."""
    found = collect(plan, folder / STEPS, fresh=fresh, progress=progress)
    told = findings(found)
    text = page.render(found, told)
    everything = {
        "schema": SCHEMA,
        "demopool": __version__,
        "fingerprint": fingerprint.fingerprint(),
        "findings": told,
        **found,
    }
    written = folder / PAGE, folder / ARCHIVE
    as_json = json.dumps(everything, indent=1, allow_nan=False)
    files.write_text(written[0], text)
    files.write_bytes(written[1], _archive({PAGE: text, "gpu-report.json": as_json}))
    return Built(written, tuple(told), found)


def _archive(contents: Mapping[str, str]) -> bytes:
    """A zip file whose bytes depend on its contents alone."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in contents.items():
            entry = zipfile.ZipInfo(name, _EARLIEST)
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, text.encode())
    return file.getvalue()
