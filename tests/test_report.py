"""The report: what it draws, that it says what ``choose`` says, and that it needs nothing else."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")
pytest.importorskip("pandas")

import races
import stored_races
from matplotlib.colors import to_hex

from demopool.choosing import crossover, sessions
from demopool.choosing.answer_types import Choice
from demopool.choosing.chooser import choose
from demopool.common import places
from demopool.common.units import readable
from demopool.problem.candidates import Subject
from demopool.problem.cases import Case
from demopool.problem.vocabulary import BACKENDS, DESCRIPTORS, Verdict
from demopool.profiles import store
from demopool.report import crossover_map, data, figures, history_plot, page, pictures, reasons
from demopool.report.building import Built, build
from demopool.results import history
from demopool.trials import samples


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty one, in a folder without asv results."""
    monkeypatch.setenv(places.VARIABLE, str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    store.forget()
    return tmp_path / "cache"


@pytest.fixture
def measured(cache: Path) -> Path:
    """Where to write the report of a cache with races over a grid of sizes."""
    stored_races.sweep(cache)
    return cache.parent / "out"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Built]:
    """The report of the same, once."""
    with stored_races.built(tmp_path_factory.mktemp("report")) as made:
        yield made


class Text(HTMLParser):
    """What a reader sees, and whether every element that was opened is closed."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.seen: list[str] = []
        self.open: list[str] = []
        self.feed(page.read_text())
        self.close()

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag not in ("meta", "link", "input", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, text: str) -> None:
        self.seen.append(text)


def test_the_report_is_one_page_with_pictures_beside_it(built: Built) -> None:
    written, *drawn = built.files
    names = {path.name for path in drawn}
    for over in ("n", "d"):
        assert {f"democratic-over-{over}.png", f"democratic-memory-over-{over}.png"} <= names
    assert {"democratic-over-batch.png", "democratic-map.png"} <= names
    assert {"democratic-pareto.png", "democratic-error.png"} <= names
    assert sum(name.startswith("job-") for name in names) == 14
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in drawn)
    text = written.read_text()
    for heading in ("Recommendation", "claims", "supported", "Machine", "How it was measured"):
        assert heading in text
    # Nothing from outside: every address is inside the page.
    assert not re.findall(r"""(?:src|href)=["'](?!data:|#)""", text)
    assert text.count("<script") == 1
    assert text.count("<svg") == len(drawn)
    assert not re.search(r' id="\w+_\d+"', text)  # two pictures with one name for two things
    assert Text(written).open == []


def test_pictures_take_the_colours_of_the_page(built: Built) -> None:
    text = built.files[0].read_text()
    drawn = "".join(re.findall(r"<svg.*?</svg>", text, re.DOTALL))
    for fixed in (pictures.INK, pictures.GRID, pictures.SOFT, "#ffffff", "#000000"):
        assert fixed not in drawn
    for variable in ("currentColor", "var(--line)", "var(--soft)"):
        assert variable in drawn


def test_every_candidate_of_a_descriptor_has_a_look_of_its_own() -> None:
    for descriptor in DESCRIPTORS:
        candidates = Subject("descriptor", descriptor).candidates(BACKENDS)
        looks = {pictures.look(str(candidate)) for candidate in candidates}
        assert len(looks) == len(candidates)
    assert pictures.look("$x^2$\x1b[31m") == pictures.look("$x^2$\x1b[31m")


def test_a_candidate_has_one_colour_in_every_figure(measured: Path) -> None:
    """In the bars of a job, a curve, the map, and the history."""
    found = data.gather(())
    name = "numpy:cpu/dense"
    colour = to_hex(pictures.look(name).colour)
    (bars,) = figures.of_job(found.jobs[0])
    (axes,) = bars.made.axes
    place = [label.get_text() for label in axes.get_yticklabels()].index(name)
    assert to_hex(axes.patches[place].get_facecolor()) == colour
    for figure in figures.all_of(found):
        looks = [own for own, words in figure.legend if words.startswith(name)]
        assert {to_hex(own.colour) for own in looks} <= {colour}
    wins = crossover.MapCell(49, 64, Verdict.FASTEST, *name.split("/"), 1.5)
    (drawn,) = crossover_map.draw([wins], "").axes[0].patches
    assert to_hex(drawn.get_facecolor()) == colour
    what = {"benchmark": "b", "measure": "call_s", "candidate": name}
    rest = dict.fromkeys(history.points.IDENTITY)
    points = tuple(history.Point(str(n), None, 1.0 + n) for n in range(2))
    line = history.Series(**{**rest, **what}, points=points)
    ((_, _, panel),) = history_plot.panels([line], ["0", "1"], {}, most=1, width=3.0)
    assert to_hex(panel.axes[0].lines[0].get_color()) == colour


def test_a_report_of_nothing_says_what_to_do(cache: Path) -> None:
    built = build(cache.parent / "out")
    assert len(built.files) == 1
    text = built.files[0].read_text()
    assert "Nothing was measured here yet" in text
    assert "demopool report --claims" in text
    assert {claim.holds for claim in built.claims} == {None}


def test_the_report_says_what_choose_said(cache: Path) -> None:
    case = Case(n=12, d=4)
    said = choose(case, backends=["numpy:cpu"], budget=1.5, threads=1)
    (job,) = data.gather(()).jobs
    _same(job.choice, said)
    # A second call of choose goes on from the same samples, and may not say anything else.
    again = choose(case, backends=["numpy:cpu"], budget=1.5, threads=1)
    (job,) = data.gather(()).jobs
    _same(job.choice, again)
    built = build(cache.parent / "out", limits=False)
    text = " ".join(Text(built.files[0]).seen)
    assert again.sentence in text
    for row in again.rows:
        if row.ratio is not None:
            assert f"{row.ratio:.2f}x" in text


def _same(found: Choice, said: Choice) -> None:
    assert found.sentence == said.sentence
    assert (found.state, found.backend, found.route) == (said.state, said.backend, said.route)
    assert (found.rounds, found.threads) == (said.rounds, said.threads)
    timed = [row for row in said.rows if row.median_s is not None]
    assert list(found.rows) == timed


def test_machines_threads_and_dtypes_are_never_in_one_picture(measured: Path) -> None:
    samples.append(
        places.cache_folder() / "samples" / "threads.jsonl",
        (
            s
            for n in (49, 196, 784)
            for s in stored_races.race(
                Case(n=n, d=64), {"numpy:cpu/dense": 1e-6 * n}, session=f"t{n}", threads=1
            )
        ),
    )
    found = data.gather(())
    seen = []
    for figure in figures.all_of(found):
        if figure.name.startswith("democratic-over-n"):
            seen.append(re.search(r"(float\d\d); machine (\S+), (\d) thread", figure.says))
    told = sorted(match.groups() for match in seen if match)
    mine = data.machine_name(store._key())
    own = [("float32", mine, "1"), ("float32", mine, "2"), ("float64", mine, "2")]
    assert told == sorted([*own, ("float32", "another-", "2")])


def test_of_equally_wide_sweeps_the_smallest_and_the_largest_are_drawn(measured: Path) -> None:
    samples.append(
        places.cache_folder() / "samples" / "wide.jsonl",
        (
            s
            for d in (16, 32, 128)
            for n in (10, 100, 1000, 10000)
            for s in stored_races.race(
                Case(n=n, d=d), {"numpy:cpu/dense": 1e-6 * n * d}, session=f"w{n}-{d}"
            )
        ),
    )
    drawn = [f for f in figures.all_of(data.gather(())) if f.name.startswith("democratic-over-n")]
    told = [re.search(r"^d = (\d+)", figure.says) for figure in drawn if "float32" in figure.says]
    found = sorted(int(match[1]) for match in told if match)
    assert found == [16, 64, 128]  # 64 is of the other machine, which has nothing else


@pytest.mark.parametrize("exponent", [0.5, 1.0, 2.37])
def test_slopes_are_those_of_power_laws(exponent: float) -> None:
    x = [49.0, 196.0, 784.0, 3136.0]
    found = figures.fitted_slope(x, [3e-7 * v**exponent for v in x])
    assert found == pytest.approx(exponent)
    assert figures.fitted_slope(x[:2], x[:2]) is None


def test_intervals_are_drawn_and_told(measured: Path) -> None:
    found = data.gather(())
    job = found.jobs[0]
    rows = [row for row in job.choice.rows if row.median_s is not None]
    (bars,) = figures.of_job(job)
    best = min(row.median_s or 0.0 for row in rows)
    whole = [row for row in rows if (row.median_s or 0.0) <= figures.CLIPPED * best]
    assert bars.svg().count("<use") >= 2 * len(whole)  # two caps of every whisker
    for row in rows:
        assert "95 %" not in page.time_of(row)
        assert " to " in page.time_of(row)
        assert row.low_s is not None
        assert row.high_s is not None
        assert row.low_s < row.high_s
    few = replace(rows[0], low_s=None, high_s=None)
    assert page.time_of(few) == readable(few.median_s, "time")


def test_a_bar_is_cut_only_where_the_axis_ends() -> None:
    times = {"numpy:cpu/dense": 1e-3, "torch:cpu/dense": 5e-3, "numba:cpu/dense": 9e-3}
    (found,) = sessions.rebuilt(list(stored_races.race(Case(), times, session="s")))
    origin = data.Origin("m", 2, "choose")
    (bars,) = figures.of_job(data.ReportedRace(origin, "f", found.choice, "2026-01-01T00:00:00"))
    (axes,) = bars.made.axes
    end = axes.get_xlim()[1]
    lengths = [bar.get_width() for bar in axes.patches]
    assert 5 < end < 9  # in milliseconds
    assert lengths == pytest.approx([1, 5, end], rel=0.1)
    assert lengths[2] == end
    assert [text.get_text().endswith("»") for text in axes.texts] == [False, False, True]


def test_no_memory_is_a_page_and_not_absent(cache: Path) -> None:
    times = {"numpy:cpu/dense": 1e-3, "torch:cpu/dense": 2e-3, "numba:cpu/dense": 3e-3}
    rows = [
        replace(s, value=0.0) if (s.backend, s.measure) == ("numba:cpu", "peak_host_bytes") else s
        for s in stored_races.race(Case(), times, session="s")
    ]
    samples.append(cache / "samples" / "a.jsonl", rows)
    (drawn,) = [f for f in figures.all_of(data.gather(())) if f.name.endswith("pareto")]
    assert "numba:cpu/dense" in [words for _, words in drawn.legend]


def test_an_answer_without_a_whole_round_says_so(cache: Path) -> None:
    case = Case(n=20, d=8)
    choice = races.choice(case, {"numpy:cpu/dense": 1e-3}, "numpy:cpu/dense", threads=2)
    store.remember(choice)
    profile = store.here()

    def told() -> str:
        return "".join(page._recommendation(profile, data.gather(()), store._key()))

    assert "samples are gone" in told()
    rows = stored_races.race(case, {"numpy:cpu/dense": 1e-3}, session="s", rounds=0)
    samples.append(cache / "samples" / "a.jsonl", rows)
    assert "no whole round was timed" in told()


def test_the_reason_is_the_work_and_how_near_the_limit(measured: Path) -> None:
    job = next(j for j in data.gather(()).jobs if (j.choice.case.n, j.choice.case.d) == (196, 1024))
    limit = reasons.Limit(1e11, 1e10, 1, "float32")
    told = reasons.reason(job.choice, limit)
    assert told.startswith("numpy:cpu/dense: ")
    assert "GFLOP" in told
    assert "the same as numba:cpu/dense" in told
    own = reasons.work(job.choice.rows[0].candidate, job.choice.case)
    share = max(own.flops / 1e11, own.bytes / 1e10) / (job.choice.rows[0].median_s or 0)
    if share <= 1:
        assert f"{share:.0%} of the limit" in told
    slow = reasons.Limit(1e6, 1e6, 1, "float32")
    assert "cannot be said" in reasons.reason(job.choice, slow)
    on_gpu = replace(
        job.choice, backend="cupy:cuda", rows=(replace(job.choice.rows[0], backend="cupy:cuda"),)
    )
    assert "limit" not in reasons.reason(on_gpu, slow)  # which is that of the host
    eigh = replace(
        job.choice,
        case=replace(job.choice.case, descriptor="power"),
        route="eigh",
        rows=(replace(job.choice.rows[0], route="eigh"),),
    )
    assert "limit" not in reasons.reason(eigh, limit)  # nobody knows how many operations those are


def test_the_limit_is_measured_in_a_process_of_its_own() -> None:
    found = reasons.limit(1, "float16")
    assert found is not None
    assert found.dtype == "float32"
    # Whatever the machine: more than a millionth, less than a million of today's.
    assert 1e6 < found.flops < 1e18
    assert 1e6 < found.bytes < 1e18


def test_what_a_killed_report_left_is_cleaned_by_the_next(cache: Path) -> None:
    out = cache.parent / "out"
    out.mkdir()
    left = [out / ".report.html.ab12_xyz", out / ".democratic-over-n.png.0a1b2c3d"]
    others = [out / ".gitignore", out / ".report.html.backup", out / "notes.txt"]
    for path in (*left, *others):
        path.write_text("")
        os.utime(path, (1e9, 1e9))
    being_written = out / ".report.html.nowwrite"
    being_written.write_text("")
    os.utime(being_written, (4e9, 4e9))
    build(out, limits=False)
    assert not any(path.exists() for path in left)
    assert all(path.exists() for path in (*others, being_written))


def test_the_command_writes_and_tells(cache: Path, plain_environment: dict[str, str]) -> None:
    out = cache.parent / "out"
    rows = stored_races.race(Case(n=9, d=9), {"numpy:cpu/dense": 1e-3}, session="a")
    samples.append(cache / "samples" / "a.jsonl", rows)
    command = [sys.executable, "-m", "demopool", "report", "-o", str(out), "--json"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env=plain_environment
    )
    told = json.loads(done.stdout)
    assert told["schema"] == 2
    assert all(Path(file).is_file() for file in told["files"])
    assert len(told["claims"]) == 6
    in_the_way = cache.parent / "file"
    in_the_way.write_text("")
    command[5] = str(in_the_way / "x")
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=plain_environment
    )
    assert done.returncode == 2
    assert "cannot be written" in done.stderr
    done = subprocess.run(
        [*command[:5], str(out), "--budget", "5"],
        capture_output=True,
        text=True,
        check=False,
        env=plain_environment,
    )
    assert done.returncode == 2
    assert "--claims" in done.stderr
