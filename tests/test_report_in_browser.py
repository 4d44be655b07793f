"""The report in a headless Chromium: ``make browser``."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from test_report import measured  # noqa: F401 - a fixture

from demopool.report import build

pytestmark = pytest.mark.browser
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
COMPLAINT = "CONSOLE"


def _chromium(page: Path, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    assert CHROMIUM is not None, "make browser needs Chromium: apt-get install chromium"
    command = [
        *(CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"),
        *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
        *("--enable-logging=stderr", "--v=0", f"--user-data-dir={folder / 'browser'}"),
        *(*options, page.resolve().as_uri()),
    ]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)


@pytest.mark.parametrize("width", [390, 1200])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_renders_without_a_complaint(
    measured: Path,  # noqa: F811
    tmp_path: Path,
    width: int,
    scheme: str,
) -> None:
    from matplotlib.image import imread

    page = build(measured)[0]
    picture = tmp_path / "seen.png"
    size = f"--window-size={width},1600"
    looks = f"--blink-settings=preferredColorScheme={int(scheme == 'light')}"
    done = _chromium(page, tmp_path, size, looks, f"--screenshot={picture}")
    assert COMPLAINT not in done.stderr, done.stderr
    seen = imread(picture)
    assert seen.shape[1] == width
    assert seen[..., :3].std() > 0.02  # not an empty page
    background = seen[2, 2, :3].mean()
    assert (background > 0.9) == (scheme == "light")


def test_every_section_is_there(measured: Path, tmp_path: Path) -> None:  # noqa: F811
    page = build(measured)[0]
    done = _chromium(page, tmp_path, "--dump-dom")
    for heading in ("Recommendation", "The paper's claims", "What is supported"):
        assert heading in done.stdout


def test_something_from_outside_would_be_seen(measured: Path, tmp_path: Path) -> None:  # noqa: F811
    page = build(measured)[0]
    outside = '<img src="https://example.org/x.png"></body>'
    page.write_text(page.read_text().replace("</body>", outside))
    assert COMPLAINT in _chromium(page, tmp_path, "--dump-dom").stderr
