"""The report: one HTML file that needs nothing else, and its pictures as PNG files beside it."""

from __future__ import annotations

from pathlib import Path

from demopool import files, pictures, profiles
from demopool.errors import InvalidInput
from demopool.measurement import fingerprint

from . import claims, data, figures, page

NAME = "report.html"


def build(folder: Path, paths: tuple[Path, ...] = ()) -> list[Path]:
    """Write the report into a folder, made if there is none; returns the files.

    ``paths``: asv results and samples of any machines; without any, the asv results of the nearest
    project and what ``choose`` has measured on this machine.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise InvalidInput(f"{folder} cannot be written: {problem.strerror}.") from None
    facts, frame = data.gather(paths)
    profile = profiles.here()
    drawn = list(figures.all_of(facts, profile, frame))
    written = []
    for figure in drawn:
        path = folder / f"{figure.name}.png"
        files.write_bytes(path, figure.png if figure.png else pictures.png(figure.made))
        written.append(path)
    shown = [(figure, (folder / f"{figure.name}.png").read_bytes()) for figure in drawn]
    here = data.machine_name(fingerprint.key(fingerprint.fingerprint()))
    text = page.render(facts, profile, claims.judged(facts, here), shown)
    files.write_text(folder / NAME, text)
    return [folder / NAME, *written]
