"""``pool_files``: rows in the order of the input, whatever happens on the way."""

from __future__ import annotations

import csv
import errno
import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import zarr
from numpy.typing import NDArray

import demopool as dp
from demopool import InvalidInput, PoolResult, Unfinished, Unsupported, features
from demopool.datasets import index, journal, measuring, output, planning, pooling, units

SKETCHED: dict[str, Any] = {"k": 32, "memory": 4e9}
RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def _small_units(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two images each, so that a few images are several units."""
    monkeypatch.setattr(planning, "MAX_ROWS", 2)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Eleven images of five files and three sizes."""
    made = tmp_path / "in"
    made.mkdir()
    np.save(made / "a.npy", _images(4, 6))
    np.save(made / "b.npy", _images(1, 9)[0])
    np.savez(made / "c.npz", one=_images(1, 6)[0], two=_images(2, 7))
    np.save(made / "d.npy", _images(2, 6))
    np.save(made / "e.npy", _images(1, 9))
    return made


def _images(count: int, n: int, d: int = 4) -> NDArray[Any]:
    return RNG.standard_normal((count, n, d)).astype(np.float16)


def _pool(folder: Path, name: str = "out.npy", **options: Any) -> PoolResult:
    path = folder.parent / name
    return dp.pool_files(folder, path, "sketched-democratic", **(SKETCHED | options))


def _bytes(folder: Path, name: str = "out.npy") -> bytes:
    return (folder.parent / name).read_bytes()


def _expected(folder: Path, **options: Any) -> NDArray[Any]:
    images = features.open(folder)
    rows = [dp.describe(x, "sketched-democratic", k=32, **options) for x in images]
    return np.stack(rows)


def test_rows_are_the_descriptors_in_the_order_of_the_input(folder: Path) -> None:
    result = _pool(folder)
    assert np.array_equal(np.load(folder.parent / "out.npy"), _expected(folder))
    assert (result.images, result.computed, result.failed) == (11, 11, {})
    assert sorted(p.name for p in folder.parent.iterdir()) == [
        "in",
        "out.npy",
        "out.npy.index.parquet",
        "out.npy.json",
    ]


def test_zarr_has_the_same_rows_in_chunks_of_units(folder: Path) -> None:
    _pool(folder, "out.zarr")
    array = zarr.open_array(folder.parent / "out.zarr", mode="r")
    assert np.array_equal(array[:], _expected(folder))
    assert array.chunks == (2, 32)


def test_the_output_has_the_dtype_that_is_asked_for(folder: Path) -> None:
    _pool(folder, dtype="float16")
    found = np.load(folder.parent / "out.npy")
    assert np.array_equal(found, _expected(folder, dtype="float16"))
    assert found.dtype == np.float16


def test_conv_maps(tmp_path: Path) -> None:
    maps = RNG.standard_normal((5, 4, 3, 2)).astype(np.float16)
    np.save(tmp_path / "a.npy", maps[:3])
    np.save(tmp_path / "b.npy", maps[3:])
    given = [tmp_path / "b.npy", tmp_path / "a.npy"]
    dp.pool_files(given, tmp_path / "o.npy", "sum", layout="nchw", memory=4e9)
    want = dp.describe(maps[[3, 4, 0, 1, 2]], "sum", layout="nchw")
    assert np.array_equal(np.load(tmp_path / "o.npy"), want)


@pytest.mark.parametrize("has_parquet", [True, False])
def test_the_table_says_which_image_a_row_is(
    folder: Path, monkeypatch: pytest.MonkeyPatch, has_parquet: bool
) -> None:
    monkeypatch.setattr(index, "has_parquet", lambda: has_parquet)
    monkeypatch.setattr(pooling, "has_parquet", lambda: has_parquet)
    path = _pool(folder).index
    if has_parquet:
        import pyarrow.parquet as pq

        rows = pq.read_table(path).to_pylist()
    else:
        rows = list(csv.DictReader(path.read_text().splitlines()))
    assert [int(row["row"]) for row in rows] == list(range(11))
    sixth = {name: str(value) for name, value in rows[6].items()}
    of_file = {"file": str(folder / "c.npz"), "key": "two", "image": "0", "shape": "7x4"}
    assert sixth == {"row": "6", **of_file, "state": "ok", "reason": ""}


def test_the_notes_say_how_it_was_made(folder: Path) -> None:
    _pool(folder)
    notes = json.loads((folder.parent / "out.npy.json").read_text())
    assert notes["settings"]["descriptor"] == "sketched-democratic"
    assert notes["settings"]["k"] == 32
    assert {one["backend"] for one in notes["decisions"]} == {"numpy:cpu"}
    assert notes["hashes"] == 1
    assert notes["versions"]["numpy"] == np.__version__


# --- going on ---


class _Stop(Exception):
    pass


def _stopped_after(
    monkeypatch: pytest.MonkeyPatch, folder: Path, count: int, **options: Any
) -> None:
    """A run that ends after so many units, without a word."""
    append, seen = journal.Journal.append, [0]

    def stop(self: journal.Journal, record: units.Record) -> None:
        if seen[0] == count:
            raise _Stop
        append(self, record)
        seen[0] += 1

    with monkeypatch.context() as patch:
        patch.setattr(journal.Journal, "append", stop)
        with pytest.raises(_Stop):
            _pool(folder, **options)


@pytest.mark.parametrize("name", ["out.npy", "out.zarr"])
def test_a_run_goes_on_where_it_was_stopped(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    _stopped_after(monkeypatch, folder, 3, name=name)
    computed: list[int] = []
    compute = units.compute

    def counted(loaded: units.Loaded, *arguments: Any) -> Any:
        computed.append(loaded.unit.number)
        return compute(loaded, *arguments)

    monkeypatch.setattr("demopool.datasets.pipeline.compute", counted)
    result = _pool(folder, name=name)
    assert computed == [3, 4, 5]
    assert (result.images, result.computed) == (11, 5)
    assert "6 were there before" in result.sentence
    path = folder.parent / name
    found = np.load(path) if name == "out.npy" else zarr.open_array(path)[:]
    assert np.array_equal(found, _expected(folder))


def test_half_a_line_of_the_journal_is_a_unit_that_is_not_finished(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _stopped_after(monkeypatch, folder, 3)
    path = folder.parent / "out.npy.journal"
    path.write_bytes(path.read_bytes()[:-10])
    assert _pool(folder).computed == 7
    assert np.array_equal(np.load(folder.parent / "out.npy"), _expected(folder))


def test_a_run_that_was_killed_before_its_last_step(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the file had its name, before the journal was gone."""
    with monkeypatch.context() as patch:
        patch.setattr(journal.Journal, "remove", _raise_stop_if_finished)
        with pytest.raises(_Stop):
            _pool(folder)
    assert _pool(folder).computed == 0
    assert np.array_equal(np.load(folder.parent / "out.npy"), _expected(folder))
    assert not (folder.parent / "out.npy.journal").exists()


def _raise_stop_if_finished(self: journal.Journal) -> None:
    if self.finished:
        raise _Stop


def test_the_plan_is_that_of_the_first_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever has been measured, or become free, in the meantime."""
    _stopped_after(monkeypatch, folder, 1)
    monkeypatch.setattr(planning, "MAX_ROWS", 4096)
    monkeypatch.setattr(pooling, "make_plan", None)
    assert _pool(folder).computed == 9


def test_the_same_command_again_does_nothing(folder: Path) -> None:
    _pool(folder)
    before = os.stat(folder.parent / "out.npy").st_mtime_ns
    result = _pool(folder)
    assert result.computed == 0
    assert "is whole already: 11 images" in result.sentence
    assert os.stat(folder.parent / "out.npy").st_mtime_ns == before


@pytest.mark.parametrize("stopped", [True, False])
def test_other_settings_and_changed_files_are_not_gone_on_with(
    folder: Path, monkeypatch: pytest.MonkeyPatch, stopped: bool
) -> None:
    if stopped:
        _stopped_after(monkeypatch, folder, 2)
    else:
        _pool(folder)
    with pytest.raises(InvalidInput, match=r"begun with gamma=0.5, and this is gamma=0.25.*fresh"):
        _pool(folder, gamma=0.25)
    with monkeypatch.context() as patch:
        patch.setattr(journal, "__version__", "99")
        with pytest.raises(InvalidInput, match="the code of demopool has changed"):
            _pool(folder)
    np.save(folder / "b.npy", _images(1, 9)[0])
    with pytest.raises(InvalidInput, match=r"the input has changed\. --fresh"):
        _pool(folder)
    np.save(folder / "f.npy", _images(1, 9)[0])
    with pytest.raises(InvalidInput, match=r"\(5 files then, 6 now\)"):
        _pool(folder)
    assert _pool(folder, gamma=0.25, fresh=True).computed == 12
    found = np.load(folder.parent / "out.npy")
    assert np.array_equal(found, _expected(folder, gamma=0.25))


def test_a_strangers_file_is_not_overwritten(folder: Path) -> None:
    (folder.parent / "out.npy").write_text("mine")
    with pytest.raises(InvalidInput, match="does not say how it was made"):
        _pool(folder)
    assert _bytes(folder) == b"mine"


def test_two_processes_do_not_write_one_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _stopped_after(monkeypatch, folder, 1)
    held = journal.Journal(folder.parent / "out.npy")
    held.open()
    for fresh in (False, True):
        with pytest.raises(Unfinished, match="another process is writing"):
            _pool(folder, fresh=fresh)
    held.close()
    assert _pool(folder).computed == 9


def test_a_damaged_journal_is_said(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _stopped_after(monkeypatch, folder, 1)
    (folder.parent / "out.npy.journal").write_text("{}\n")
    with pytest.raises(InvalidInput, match="journal is damaged or gone: --fresh"):
        _pool(folder)
    _stopped_after(monkeypatch, folder, 1, fresh=True)
    (folder.parent / "out.npy.partial").unlink()
    with pytest.raises(InvalidInput, match="partial is damaged or gone: --fresh"):
        _pool(folder)


# --- what fails ---


def test_a_nan_is_named_and_the_rest_stays(folder: Path) -> None:
    images = np.load(folder / "d.npy")
    images[1, 4, 2] = np.nan
    np.save(folder / "d.npy", images)
    with pytest.raises(Unfinished, match=r"d.npy, image 1: X must be finite; .* row 4") as found:
        _pool(folder)
    assert "--keep-going" in str(found.value)
    result = _pool(folder, keep_going=True)
    assert result.computed <= 5  # four units were finished
    assert list(result.failed) == [9]
    assert "1 image failed" in result.sentence
    rows = np.load(folder.parent / "out.npy")
    assert np.isnan(rows[9]).all()
    np.save(folder / "d.npy", np.nan_to_num(images))
    assert np.array_equal(np.delete(rows, 9, 0), np.delete(_expected(folder), 9, 0))


def test_a_file_that_shrinks_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After it was opened, before it was read."""
    opened = pooling.open_images

    def shrink(*arguments: Any, **options: Any) -> Any:
        images = opened(*arguments, **options)
        content = (folder / "a.npy").read_bytes()
        (folder / "a.npy").write_bytes(content[: -6 * 4 * 2])
        return images

    monkeypatch.setattr(pooling, "open_images", shrink)
    with pytest.raises(Unfinished, match=r"a.npy, image 0: .*a.npy is cut off"):
        _pool(folder)


def test_a_file_that_cannot_be_read_is_left_out_when_asked(folder: Path) -> None:
    (folder / "b.npy").write_bytes(b"nothing")
    with pytest.raises(InvalidInput, match=r"b.npy cannot be read"):
        _pool(folder)
    result = _pool(folder, keep_going=True)
    assert result.images == 10
    assert list(result.skipped) == [str(folder / "b.npy")]


@pytest.mark.parametrize("failing", ["pwrite", "fsync"])
def test_a_full_disk_keeps_what_was_finished(
    folder: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    real, calls = getattr(os, failing), [0]

    def full(*arguments: Any) -> Any:
        calls[0] += 1
        if calls[0] == 4:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(os, failing, full)
        with pytest.raises(Unfinished, match=r"No space left on device\. What was"):
            _pool(folder)
    assert _pool(folder).computed < 11
    assert np.array_equal(np.load(folder.parent / "out.npy"), _expected(folder))


def test_a_disk_that_is_too_small_is_said_at_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = type("", (), {"free": 1000})
    monkeypatch.setattr(output.shutil, "disk_usage", lambda path: usage)
    with pytest.raises(Unfinished, match=r"out.npy needs 1.41 kB, and the disk has 1 kB"):
        _pool(folder)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gamma": 2}, "gamma must be"),
        ({"color": 1}, "no parameter color"),
        ({"zero_rows": "warn"}, "zero_rows must be"),
        ({"backend": "numpy:gpu"}, "numpy:gpu"),
        ({"name": "out.txt"}, "must end in .npy or .zarr"),
        ({"name": "no/such/out.npy"}, "no such folder"),
        ({"memory": 1e6}, "memory must be at least"),
    ],
)
def test_bad_arguments_are_said_before_anything_is_written(
    folder: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(dp.DemopoolError, match=message):
        _pool(folder, **options)
    assert [path.name for path in folder.parent.iterdir()] == ["in"]


def test_features_of_different_length_only_if_sketched(folder: Path) -> None:
    np.save(folder / "f.npy", _images(1, 5, d=3))
    _pool(folder)
    with pytest.raises(InvalidInput, match=r"f.npy has features of length 3, and .*a.npy of 4"):
        dp.pool_files(folder, folder.parent / "o.npy", "democratic")


def test_a_zero_row_is_an_error_when_asked(folder: Path) -> None:
    images = np.load(folder / "d.npy")
    images[0, 2] = 0
    np.save(folder / "d.npy", images)
    with pytest.raises(Unfinished, match=r"d.npy, image 0: X has rows of zeros \(row 2"):
        _pool(folder, zero_rows="error")


def test_progress_ends_with_all_images(folder: Path) -> None:
    seen: list[tuple[int, int]] = []
    _pool(folder, progress=lambda done, total, what: seen.append((done, total)))
    assert seen[-1] == (11, 11)
    assert seen == sorted(seen)


# --- the plan ---


def test_sizes_are_padded_where_the_model_says_that_it_pays(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "MAX_ROWS", 4096)
    settings = planning.Settings("sketched-democratic", k=32)
    images = features.open(folder)

    def padded(call_s: float) -> dict[int, int]:
        def seconds(settings: Any, candidate: Any, batch: float, size: planning.Size) -> float:
            return call_s + batch * size.n

        monkeypatch.setattr(planning, "_seconds", seconds)
        plan = planning.make_plan(images, settings, 4 * 10**9)
        return {one.n: one.padded for one in plan.decisions}

    assert padded(0.0) == {6: 6, 7: 7, 9: 9}
    assert padded(1e9) == {6: 9, 7: 9, 9: 9}
    _pool(folder)
    found = np.load(folder.parent / "out.npy")
    np.testing.assert_allclose(found, _expected(folder), rtol=0, atol=_rounding(found))


def _rounding(found: NDArray[Any]) -> float:
    """Of the sum of 9 x 9 terms and a square root, which at worst doubles the digits lost."""
    return float(np.sqrt(81 * np.finfo(found.dtype).eps) * np.abs(found).max())


def test_triangles_of_covariances_are_never_padded(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "MAX_ROWS", 16)
    options: dict[str, Any] = {"center": True, "vectorize": "upper", "memory": 4e9}
    result = dp.pool_files(folder, folder.parent / "upper.npy", "sum", **options)
    assert all(one.padded == one.n for one in result.decisions)
    found = np.load(result.output)
    assert found.shape == (11, 4 * 5 // 2)
    for row, image in zip(found, features.open(folder), strict=True):
        expected = dp.describe(image, "sum", center=True, vectorize="upper")
        np.testing.assert_allclose(row, expected, rtol=0, atol=_rounding(expected))
    with pytest.raises(Unsupported, match="only a matrix has a triangle"):
        dp.pool_files(folder, folder.parent / "x.npy", "sketched-sum", vectorize="upper")


def test_units_fit_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "MAX_ROWS", 4096)
    monkeypatch.setattr(planning, "resident_bytes", lambda: 50_000_000)
    np.save(tmp_path / "a.npy", np.zeros((400, 100, 64), np.float32))
    np.save(tmp_path / "b.npy", np.zeros((2, 10_000, 64), np.float32))
    images, settings = features.open(tmp_path), planning.Settings("sum")
    small, large = (planning.make_plan(images, settings, memory) for memory in (70_000_000, 10**9))
    assert small.rows < large.rows
    assert 50_000_000 + small.needed_bytes <= 70_000_000
    with pytest.raises(InvalidInput, match=r"memory must be at least 6\d.* MB .* got 51 MB"):
        planning.make_plan(images, settings, 51_000_000)


def test_choose_measures_on_the_images_first(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raced: list[tuple[int, float]] = []

    def race(case: Any, backends: Any, budget: float, images: Path, progress: Any) -> Any:
        of_size = [image for image in features.open(folder) if len(image) == case.n]
        assert np.array_equal(np.load(images), of_size[: case.batch])
        raced.append((case.n, budget))
        progress(1.0, "round 1")
        return SimpleNamespace(interrupted=False)

    monkeypatch.setattr(measuring, "choose", race)
    _pool(folder, choose=True)
    assert [n for n, _ in raced] == [6, 9, 7]
    assert sum(budget for _, budget in raced) == pytest.approx(measuring.SECONDS)


def test_ctrl_c_while_measuring_ends_the_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupted = SimpleNamespace(interrupted=True)
    monkeypatch.setattr(measuring, "choose", lambda *_, **__: interrupted)
    with pytest.raises(KeyboardInterrupt):
        _pool(folder, choose=True)


def test_images_without_a_descriptor_are_not_raced_on(tmp_path: Path) -> None:
    batch = RNG.standard_normal((5, 4, 3)).astype(np.float16)
    batch[0, 1, 1], batch[1], batch[3] = np.nan, 0.0, 60_000.0
    np.save(tmp_path / "x.npy", batch)
    images, settings = features.open(tmp_path), planning.Settings("sum")
    size, file = planning.Size(4, 3, "float16"), tmp_path / "first.npy"
    assert measuring.write_first(images, size, settings.case(8, *size), file) == 2
    assert np.array_equal(np.load(file), batch[[2, 4]])
