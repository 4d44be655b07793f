"""The report in a headless Chromium: ``make browser``."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import stored_races

pytestmark = pytest.mark.browser
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
COMPLAINT = "CONSOLE"
WIDTHS = (390, 1280)

# What a script sees of the page once all is laid out; a phone has no narrower element than this.
MEASURE = """
<script>
addEventListener("load", () => {
  const wide = [...document.querySelectorAll("body *")].filter(
    (e) => e.getBoundingClientRect().right > document.documentElement.clientWidth + 0.5);
  const small = [...document.querySelectorAll("svg text")].map(
    (e) => parseFloat(getComputedStyle(e).fontSize) * (e.ownerSVGElement.getScreenCTM()?.a ?? 0)
  ).filter((size) => size > 0);
  const heading = document.querySelector("table.sortable th");
  const first = () => document.querySelector("table.sortable tbody tr").textContent;
  const rows = () => [...document.querySelectorAll("table.sortable tbody tr")]
    .filter((row) => !row.hidden).length;
  const before = [first(), rows()];
  heading.click(); heading.click();
  const sorted = first();
  const filter = document.querySelector("input[type=search]");
  filter.value = "n=784"; filter.dispatchEvent(new Event("input"));
  document.title = "seen" + JSON.stringify({
    inner: document.documentElement.clientWidth, scroll: document.documentElement.scrollWidth,
    wide: wide.map((e) => e.outerHTML.slice(0, 80)), least: Math.min(...small),
    sorts: sorted !== before[0], filters: rows() < before[1],
    ink: getComputedStyle(document.querySelector("svg text")).fill,
  });
});
</script></body>
"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with stored_races.built(tmp_path_factory.mktemp("report")) as made:
        yield made.files[0]


def _chromium(page: Path, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    assert CHROMIUM is not None, "make browser needs Chromium: apt-get install chromium"
    command = [
        *(CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"),
        *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
        *("--hide-scrollbars", "--enable-logging=stderr", "--v=0"),
        *(f"--user-data-dir={folder / 'browser'}", *options, page.resolve().as_uri()),
    ]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)


def _framed(report: Path, folder: Path, width: int) -> Path:
    """A copy that measures itself, in a frame: a window has a least width, a frame has not."""
    text = report.read_text()
    text = re.sub(r"; script-src 'sha256-[^']*'", "; script-src 'unsafe-inline'", text)
    inside = folder / "inside.html"
    inside.write_text(text.replace("</body>", MEASURE))
    outside = folder / "outside.html"
    outside.write_text(
        f'<iframe src="inside.html" style="border: 0" width="{width}" height="900"></iframe>'
        "<script>setInterval(() => { const t = document.querySelector('iframe').contentDocument"
        "?.title; if (t?.startsWith('seen')) document.title = t; }, 50)</script>"
    )
    return outside


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_and_follows_the_scheme(
    report: Path, tmp_path: Path, width: int, scheme: str
) -> None:
    page = _framed(report, tmp_path, width)
    looks = f"--blink-settings=preferredColorScheme={int(scheme == 'light')}"
    done = _chromium(
        page,
        tmp_path,
        *("--window-size=1400,1000", looks, "--virtual-time-budget=8000", "--dump-dom"),
        "--allow-file-access-from-files",
    )
    assert COMPLAINT not in done.stderr, done.stderr
    title = re.search(r"<title>seen(.*?)</title>", done.stdout)
    assert title, done.stdout[:2000]
    seen = json.loads(title[1].replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))
    assert seen["inner"] == width
    assert seen["scroll"] <= width
    assert seen["wide"] == []
    assert seen["least"] >= 9.0  # pixels: letters in pictures can be read
    assert seen["sorts"]
    assert seen["filters"]
    light = sum(int(part) for part in re.findall(r"\d+", seen["ink"])[:3]) > 3 * 128
    assert light == (scheme == "dark")


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_renders_without_a_complaint(
    report: Path, tmp_path: Path, width: int, scheme: str
) -> None:
    from matplotlib.image import imread

    picture = tmp_path / "seen.png"
    size = f"--window-size={width},1600"
    looks = f"--blink-settings=preferredColorScheme={int(scheme == 'light')}"
    done = _chromium(report, tmp_path, size, looks, f"--screenshot={picture}")
    assert COMPLAINT not in done.stderr, done.stderr
    seen = imread(picture)
    assert seen.shape[1] == width
    assert seen[..., :3].std() > 0.02  # not an empty page
    background = seen[2, 2, :3].mean()
    assert (background > 0.9) == (scheme == "light")


def test_it_prints_in_dark_mode_on_white_paper(report: Path, tmp_path: Path) -> None:
    printed = tmp_path / "printed.pdf"
    dark = "--blink-settings=preferredColorScheme=0"
    _chromium(report, tmp_path, dark, f"--print-to-pdf={printed}", "--no-pdf-header-footer")
    assert printed.read_bytes().startswith(b"%PDF")
    if shutil.which("pdftoppm") is None:
        pytest.skip("pdftoppm is not installed (poppler-utils)")
    from matplotlib.image import imread

    command = ["pdftoppm", "-r", "40", "-png", "-l", "2", str(printed), str(tmp_path / "sheet")]
    subprocess.run(command, check=True)
    for sheet in tmp_path.glob("sheet*.png"):
        assert imread(sheet)[..., :3].mean() > 0.8


def test_every_section_is_there(report: Path, tmp_path: Path) -> None:
    done = _chromium(report, tmp_path, "--dump-dom")
    for heading in ("Recommendation", "The paper's claims", "Every job", "What is supported"):
        assert heading in done.stdout


def test_something_from_outside_would_be_seen(report: Path, tmp_path: Path) -> None:
    outside = '<img src="https://example.org/x.png"></body>'
    copy = tmp_path / "copy.html"
    copy.write_text(report.read_text().replace("</body>", outside))
    assert COMPLAINT in _chromium(copy, tmp_path, "--dump-dom").stderr
