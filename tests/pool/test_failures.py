"""What fails is named, and what was finished stays."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import demopool as dp
from demopool import InvalidInput, Unfinished
from demopool.datasets import output, pooling

from .small import expected_of, pooled, some_images


def test_a_nan_is_named_and_the_rest_stays(folder: Path) -> None:
    images = np.load(folder / "d.npy")
    images[1, 4, 2] = np.nan
    np.save(folder / "d.npy", images)
    with pytest.raises(Unfinished, match=r"d.npy, image 1: X must be finite; .* row 4") as found:
        pooled(folder)
    assert "--keep-going" in str(found.value)
    result = pooled(folder, keep_going=True)
    assert result.computed <= 5  # four units were finished
    assert list(result.failed) == [9]
    assert "1 image failed" in result.sentence
    rows = np.load(folder.parent / "out.npy")
    assert np.isnan(rows[9]).all()
    np.save(folder / "d.npy", np.nan_to_num(images))
    assert np.array_equal(np.delete(rows, 9, 0), np.delete(expected_of(folder), 9, 0))


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
        pooled(folder)


def test_a_file_that_cannot_be_read_is_left_out_when_asked(folder: Path) -> None:
    (folder / "b.npy").write_bytes(b"nothing")
    with pytest.raises(InvalidInput, match=r"b.npy cannot be read"):
        pooled(folder)
    result = pooled(folder, keep_going=True)
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
            pooled(folder)
    assert pooled(folder).computed < 11
    assert np.array_equal(np.load(folder.parent / "out.npy"), expected_of(folder))


def test_a_disk_that_is_too_small_is_said_at_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = type("", (), {"free": 1000})
    monkeypatch.setattr(output.shutil, "disk_usage", lambda path: usage)
    with pytest.raises(Unfinished, match=r"out.npy needs 1.41 kB, and the disk has 1 kB"):
        pooled(folder)


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
        pooled(folder, **options)
    assert [path.name for path in folder.parent.iterdir()] == ["in"]


def test_features_of_different_length_only_if_sketched(folder: Path) -> None:
    np.save(folder / "f.npy", some_images(1, 5, d=3))
    pooled(folder)
    with pytest.raises(InvalidInput, match=r"f.npy has features of length 3, and .*a.npy of 4"):
        dp.pool_files(folder, folder.parent / "o.npy", "democratic")


def test_a_zero_row_is_an_error_when_asked(folder: Path) -> None:
    images = np.load(folder / "d.npy")
    images[0, 2] = 0
    np.save(folder / "d.npy", images)
    with pytest.raises(Unfinished, match=r"d.npy, image 0: X has rows of zeros \(row 2"):
        pooled(folder, zero_rows="error")


@pytest.mark.parametrize("given", ["a.npy", "."])
def test_features_are_never_overwritten(folder: Path, given: str) -> None:
    before = (folder / "a.npy").read_bytes()
    for fresh in (False, True):
        with pytest.raises(InvalidInput, match=r"a.npy is one of the inputs; give another output"):
            dp.pool_files(folder / given, folder / "a.npy", "sketched-sum", k=32, fresh=fresh)
    assert (folder / "a.npy").read_bytes() == before


@pytest.mark.parametrize("name", ["out.npy", "out.zarr"])
def test_an_output_among_the_features_is_none_of_them(folder: Path, name: str) -> None:
    for fresh, computed in ((False, 11), (False, 0), (True, 11)):
        result = dp.pool_files(folder, folder / name, "sketched-sum", k=32, fresh=fresh)
        assert (result.images, result.computed) == (11, computed)


@pytest.mark.parametrize("name", ["out.npy", "out.zarr"])
def test_a_folder_with_other_things_is_not_removed(folder: Path, name: str) -> None:
    mine = folder.parent / name / "mine.txt"
    mine.parent.mkdir()
    mine.write_text("mine")
    with pytest.raises(InvalidInput, match="is a folder with other things in it"):
        pooled(folder, name, fresh=True)
    assert mine.read_text() == "mine"


def test_nothing_is_begun_without_dask(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dask", None)
    with pytest.raises(InvalidInput, match=r"need Dask: pip install 'demopool\[scale\]'"):
        pooled(folder, jobs=2)
    assert [path.name for path in folder.parent.iterdir()] == ["in"]
