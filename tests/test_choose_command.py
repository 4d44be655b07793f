"""What ``demopool choose`` prints and accepts, without measuring anything."""

from __future__ import annotations

import json
import pickle
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from demopool import Case, InvalidInput
from demopool.choosing import crossover, printing
from demopool.choosing.answer_types import Choice, Ranked
from demopool.commands import choose as command
from demopool.commands import cli
from demopool.common.units import readable
from demopool.problem import feature_files
from demopool.problem.candidates import Subject
from demopool.problem.vocabulary import DESCRIPTORS, State, Verdict
from demopool.trials import jobs

LONG = "newton-schulz+moment"


def row(route: str, verdict: Verdict, seconds: float, ratio: float, **more: Any) -> Ranked:
    return Ranked(
        "numba:cpu",
        route,
        State.OK,
        verdict,
        median_s=seconds,
        low_s=seconds,
        high_s=seconds,
        ratio=ratio,
        ratio_low=0.9 * ratio,
        ratio_high=1.1 * ratio,
        rounds=21,
        first_call_s=1.5,
        peak_host_bytes=8.2e3,
        error=1e-7,
        **more,
    )


def choice(case: Case) -> Choice:
    return Choice(
        case=case,
        state=Verdict.FASTEST,
        backend="numba:cpu",
        route=LONG,
        sentence="Use numba:cpu/newton-schulz+moment: 2.1x faster than the next, 8.2 kB.",
        rows=(
            row(LONG, Verdict.FASTEST, 0.012, 1.0),
            row("eigh+moment", Verdict.SLOWER, 0.0251, 2.13),
            Ranked(
                "numba:cpu",
                "svd+fft",
                State.TIMEOUT,
                Verdict.SLOWER,
                reason="given up after 2 s: its first call had not ended",
                at_least_s=2.0,
            ),
            Ranked("cupy:cuda", "", State.UNAVAILABLE, reason="no GPU can be seen"),
            Ranked("numba:cuda", "", State.UNAVAILABLE, reason="no GPU can be seen"),
        ),
        threads=2,
        seconds=12.0,
        rounds=21,
        setup_s=3.0,
        others_cores=1.4,
        warnings=("The load was 3.0 on 2 usable cores before the start.",),
    )


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """``choose`` answers at once, and what it was asked for is kept."""
    asked: list[dict[str, Any]] = []

    def choose(case: Case, **options: Any) -> Choice:
        asked.append({"case": case, **options})
        return choice(case)

    monkeypatch.setattr(command, "choose", choose)
    return asked


def run(*arguments: str, columns: int = 80) -> Result:
    return CliRunner().invoke(
        command.choose_command,
        arguments,
        env={"COLUMNS": str(columns)},
        standalone_mode=False,
        prog_name="demopool choose",
    )


@pytest.mark.parametrize("columns", [40, 80, 100, 200])
def test_nothing_of_the_table_is_cut_off(told: list[Any], columns: int) -> None:
    found = run(columns=columns)
    assert found.exception is None
    assert found.output.isascii()
    rows = [line for line in found.output.splitlines() if line.startswith("numba:cpu/")]
    if columns >= 80:
        assert all(line.endswith(("fastest", "slower")) for line in rows)
    assert all(len(line) <= columns for line in rows)
    assert f"numba:cpu/{LONG}" in found.output
    assert choice(Case()).sentence in found.output
    assert "2.13" in found.output or columns < 80
    assert "8.2 kB" in found.output


def test_the_ratio_has_its_interval_and_is_explained(told: list[Any]) -> None:
    found = run().output
    assert "1.92-2.34" in found
    assert "x best: its time over that of the best in the same round" in found
    assert "> 166.7" in found  # of the one that was given up, by what is known
    assert all(len(line) <= 80 for line in printing.LEGEND)
    assert "cupy:cuda, numba:cuda: no GPU can be seen" in found
    assert "12 s in all, 3 s of them to set up libraries, others used 1.4 cores" in found


def test_json_has_the_numbers_of_the_table(told: list[Any]) -> None:
    (result,) = json.loads(run("--json").output)["results"]
    shown = choice(Case())
    for candidate, of_table in zip(result["candidates"], shown.rows, strict=True):
        for name in ("ratio", "ratio_low", "ratio_high", "median_s", "at_least_s", "verdict"):
            assert candidate[name] == getattr(of_table, name)
    assert (result["setup_s"], result["others_cores"]) == (3.0, 1.4)


def test_printing_an_answer_gives_the_sentence_and_the_table() -> None:
    text = str(choice(Case(descriptor="sketched-power")))
    assert choice(Case()).sentence in text
    assert f"numba:cpu/{LONG}" in text
    assert "k=8192" in text
    assert "Ranked(" not in text


def test_a_warning_is_given_once(told: list[Any]) -> None:
    found = run("--descriptor", "all")
    assert found.output.count("The load was 3.0") == 1
    swept = run("--sweep", "n=1,2", "d=3,4")
    assert swept.output.count("The load was 3.0") == 1


def test_the_budget_is_for_the_whole_command(told: list[dict[str, Any]]) -> None:
    """What one case leaves over is there for the others: here each takes 9 s of its share."""
    run("--descriptor", "all", "--budget", "120")
    shares = [asked["budget"] for asked in told]
    assert len(shares) == len(DESCRIPTORS)
    assert shares[0] == pytest.approx(120 / len(DESCRIPTORS))
    assert shares[-1] == pytest.approx(120 - 9 * (len(DESCRIPTORS) - 1))
    told.clear()
    run("--descriptor", "all")
    assert told[0]["budget"] == 60
    told.clear()
    run("--sweep", "n=1,2", "d=3,4")
    assert told[0]["budget"] == 10
    told.clear()
    run("--sweep", "n=1,2", "d=3,4", "--budget", "8")
    assert told[0]["budget"] == 2


def test_help_fits_80_columns() -> None:
    found = run("--help", columns=200).output
    assert max(len(line) for line in found.splitlines()) <= 80
    assert "all cases together" in " ".join(found.split())


def test_a_picture_without_matplotlib_is_refused_before_measuring(
    told: list[Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(command, "find_spec", lambda name: None)
    found = run("--sweep", "n=1,2", "d=3,4", "--png", str(tmp_path / "map.png"))
    assert isinstance(found.exception, InvalidInput)
    assert "--png needs Matplotlib" in str(found.exception)
    assert "pip install '.[report]'" in str(found.exception)
    assert not told


def test_a_line_every_few_seconds_without_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of the whole command: cases that take less than that are told of too."""
    monkeypatch.setattr(command, "LINE_SECONDS", 0.05)
    lines, deadline = "", time.monotonic() + 10
    with command._progress() as begin:
        while lines.count("\n") < 2 and time.monotonic() < deadline:
            with begin("democratic", 30.0) as report:
                report(3.0, "round 7, 2 left")
                time.sleep(0.01)
            lines += capsys.readouterr().err
    assert "democratic: 3 of 30 s, round 7, 2 left\n" in lines


def test_warnings_of_a_sweep_name_their_cells(
    told: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = command.choose

    def disturbed(case: Case, **options: Any) -> Choice:
        found = answers(case, **options)
        more = ("The times drift.",) if case.n == 2 else ()
        return replace(found, warnings=(*found.warnings, *more))

    monkeypatch.setattr(command, "choose", disturbed)
    swept = run("--sweep", "n=1,2", "d=3,4", columns=200).output
    assert "Warning: n=2 d=3, n=2 d=4: The times drift." in swept
    assert "Warning: The load was 3.0" in swept
    assert len({tuple(asked["warnings"]) for asked in told}) == 1


def test_wrong_use_is_said_before_the_file_is_described(told: list[Any], tmp_path: Path) -> None:
    path = tmp_path / "features.npy"
    np.save(path, np.zeros((2, 3, 4), "f4"))
    for wrong in (["--sweep", "n=1", "d=2"], ["--max-memory", "lots"], ["--backends", "numpy:gpu"]):
        found = run("--like", str(path), *wrong)
        assert found.exception is not None
        assert "Only sizes and dtype" not in found.output
    assert "Only sizes and dtype" in run("--like", str(path)).output


def test_a_map_too_wide_for_the_screen_is_a_list() -> None:
    cells = [
        crossover.MapCell(n, d, Verdict.FASTEST, "numba:cpu", LONG, 1.3)
        for n in (49, 196)
        for d in (64, 256, 1024)
    ]
    wide = list(crossover.text(cells, 200))
    assert len(wide) == 4
    narrow = list(crossover.text(cells, 80))
    assert "n=196 d=1024: numba:cpu/newton-schulz+moment 1.3x" in narrow
    assert all(len(line) <= 80 for line in narrow)


# --- somebody's own features ---


@pytest.mark.parametrize(
    ("shape", "layout", "expected"),
    [
        ((30, 8), None, (1, 30, 8)),
        ((5, 30, 8), None, (5, 30, 8)),
        ((2000, 30, 8), "nd", (8, 30, 8)),
        ((2000, 8, 5, 6), "nchw", (8, 30, 8)),
        ((3, 5, 6, 8), "nhwc", (3, 30, 8)),
        ((8, 5, 6), "nchw", (1, 30, 8)),
        ((5, 6, 8), "nhwc", (1, 30, 8)),
    ],
)
def test_sizes_of_a_file(
    told: list[dict[str, Any]],
    tmp_path: Path,
    shape: tuple[int, ...],
    layout: str | None,
    expected: tuple[int, int, int],
) -> None:
    path = tmp_path / "features.npy"
    np.save(path, np.zeros(shape, np.float16))
    arguments = ["--like", str(path), *(("--layout", layout) if layout else ())]
    found = run(*arguments)
    assert found.exception is None, found.exception
    case = told[0]["case"]
    assert (case.batch, case.n, case.d) == expected
    assert case.dtype == "float16"
    assert str(shape) in found.output
    assert "Only sizes and dtype are taken from it" in found.output
    if shape[0] == 2000:
        assert "2000 images, of which 8 at a time are timed" in found.output
    told.clear()
    other = run(*arguments, "--batch", "32", "--dtype", "float32").output
    assert "Only sizes are taken from it; what is timed is noise in float32" in " ".join(
        other.split()
    )
    assert (told[0]["case"].batch, told[0]["case"].dtype) == (32, "float32")


@pytest.mark.parametrize(
    ("shape", "dtype", "layout", "sentence"),
    [
        ((2, 3, 4, 5), "f4", None, r"has the shape \(2, 3, 4, 5\): give --layout nchw or nhwc"),
        ((2, 3), "f4", "nchw", r"3 or 4 axes for --layout nchw; got \(2, 3\)"),
        ((5,), "f4", None, r"got shape \(5,\)"),
        ((0, 3, 4), "f4", None, r"empty: its shape is \(0, 3, 4\)"),
        ((2, 3, 4), "u1", None, "holds uint8, and features are .*: give --dtype, the"),
    ],
)
def test_files_that_do_not_fit(
    tmp_path: Path, shape: tuple[int, ...], dtype: str, layout: str | None, sentence: str
) -> None:
    path = tmp_path / "features.npy"
    np.save(path, np.zeros(shape, dtype))
    with pytest.raises(InvalidInput, match=sentence):
        feature_files.read(path, layout)


def test_formats_that_are_not_read_are_named(tmp_path: Path) -> None:
    archive = tmp_path / "features.npz"
    np.savez(archive, left=np.zeros(3), right=np.zeros(3))
    with pytest.raises(InvalidInput, match=r"zip archive, such as .npz .*It holds left, right; np"):
        feature_files.read(archive)
    hdf = tmp_path / "features.h5"
    hdf.write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(100))
    with pytest.raises(InvalidInput, match=r"is an HDF5 file \(.h5\); --like takes one array"):
        feature_files.read(hdf)
    for number, other in enumerate((b"1,2\n", pickle.dumps([1, 2], protocol=0), b"")):
        path = tmp_path / f"{number}.npy"
        path.write_bytes(other)
        with pytest.raises(InvalidInput, match=r"cannot be read: it is not a \.npy file\.$"):
            feature_files.read(path)


# --- noise and units ---


@pytest.mark.parametrize(("n", "d"), [(784, 8), (49, 4), (12544, 14), (100, 1)])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_no_row_of_the_noise_is_zero(n: int, d: int, dtype: str) -> None:
    case = Case(batch=2, n=n, d=d, dtype=dtype)
    X = jobs.inputs(Subject("descriptor", "democratic"), case)["X"]
    assert X.any(axis=-1).all()
    assert (X >= 0).all()
    noise = np.random.default_rng((2, n, d)).standard_normal((2, n, d), dtype=np.float32)
    before = np.maximum(noise, 0).astype(dtype)
    kept = before.any(axis=-1)
    np.testing.assert_array_equal(X[kept], before[kept])  # what was measured can be joined


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (8192, "memory", "8.19 kB"),
        (512, "memory", "512 B"),
        (999_900, "memory", "1 MB"),
        (1.02e7, "memory", "10.2 MB"),
        (3.7e10, "memory", "37 GB"),
        (1.6e13, "memory", "16 TB"),
        (1.6e16, "memory", "16,000 TB"),
        (0.99999, "time", "1 s"),
        (900, "time", "900 s"),
        (1800, "time", "30 min"),
        (5400, "time", "1.5 h"),
        (3.6e7, "time", "10,000 h"),
        (2.5e-5, "time", "25 us"),
    ],
)
def test_values_in_the_unit_that_suits_them(value: float, kind: str, text: str) -> None:
    assert readable(value, kind) == text


def test_the_shell_completes_options() -> None:
    from click.shell_completion import BashComplete

    complete = BashComplete(cli, {}, "demopool", "_DEMOPOOL_COMPLETE")
    found = complete.get_completions(["choose"], "--sw")
    assert [item.value for item in found] == ["--sweep"]
