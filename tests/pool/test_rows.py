"""``pool_files``: rows in the order of the input, and what is written beside them."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import zarr

import demopool as dp
from demopool.datasets import index, pooling

from .small import RNG, expected_of, pooled


def test_rows_are_the_descriptors_in_the_order_of_the_input(folder: Path) -> None:
    result = pooled(folder)
    assert np.array_equal(np.load(folder.parent / "out.npy"), expected_of(folder))
    assert (result.images, result.computed, result.failed) == (11, 11, {})
    assert sorted(p.name for p in folder.parent.iterdir()) == [
        "in",
        "out.npy",
        "out.npy.index.parquet",
        "out.npy.json",
    ]


def test_zarr_has_the_same_rows_in_chunks_of_units(folder: Path) -> None:
    pooled(folder, "out.zarr")
    array = zarr.open_array(folder.parent / "out.zarr", mode="r")
    assert np.array_equal(array[:], expected_of(folder))
    assert array.chunks == (2, 32)


def test_the_output_has_the_dtype_that_is_asked_for(folder: Path) -> None:
    pooled(folder, dtype="float16")
    found = np.load(folder.parent / "out.npy")
    assert np.array_equal(found, expected_of(folder, dtype="float16"))
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
    path = pooled(folder).index
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
    pooled(folder)
    notes = json.loads((folder.parent / "out.npy.json").read_text())
    assert notes["settings"]["descriptor"] == "sketched-democratic"
    assert notes["settings"]["k"] == 32
    assert {one["backend"] for one in notes["decisions"]} == {"numpy:cpu"}
    assert notes["hashes"] == 1
    assert notes["versions"]["numpy"] == np.__version__


def test_progress_ends_with_all_images(folder: Path) -> None:
    seen: list[tuple[int, int]] = []
    pooled(folder, progress=lambda done, total, what: seen.append((done, total)))
    assert seen[-1] == (11, 11)
    assert seen == sorted(seen)
