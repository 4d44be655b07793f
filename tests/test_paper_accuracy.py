"""Accuracy in `demopool paper`: labels, dot products, paired tests, and a whole run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

pytest.importorskip("matplotlib")
pytest.importorskip("sklearn")

import demopool as dp
from demopool.commands import cli
from demopool.datasets.images import open_images
from demopool.errors import InvalidInput
from demopool.paper import accuracy, labels, svm
from demopool.paper.accuracy import PLAIN, ROOTED
from demopool.paper.comparing import holm, paired

D, CLASSES, IMAGES = 6, 3, 12


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Classes that differ in which channels occur together."""
    base = tmp_path_factory.mktemp("classes")
    rng = np.random.default_rng(0)
    for label in range(CLASSES):
        mix = np.eye(D) + 0.8 * np.roll(np.eye(D), label + 1, axis=1)
        (base / f"class{label}").mkdir()
        for number in range(IMAGES):
            X = np.maximum(rng.standard_normal((15, D)) @ mix, 0.0) + 0.01
            np.save(base / f"class{label}" / f"{label}-{number}.npy", X.astype(np.float32))
    return base


# --- labels ---


def test_folders_are_labels_and_half_of_every_class_is_drawn(folder: Path) -> None:
    images = open_images(str(folder))
    found, again, other = (labels.read("folders", images, seed) for seed in (0, 0, 1))
    assert set(found.labels) == {"class0", "class1", "class2"}
    for label in set(found.labels):
        own = found.test[np.array(found.labels) == label]
        assert (int(own.sum()), len(own)) == (IMAGES // 2, IMAGES)
    np.testing.assert_array_equal(found.test, again.test)
    assert (found.test != other.test).any()


def test_a_table_says_labels_and_parts_by_how_paths_end(folder: Path, tmp_path: Path) -> None:
    table = tmp_path / "labels.csv"
    lines = ["file,label,split"]
    for label in range(CLASSES):
        for number, part in enumerate(("train", "train", "test", "val")):
            lines.append(f"class{label}/{label}-{number}.npy,l{label},{part}")
    table.write_text("\n".join(lines))
    images = open_images(str(folder))
    found = labels.read(str(table), images, 0)
    names = [Path(images.place(row)[0].file).name for row in found.rows]
    assert names == [f"{label}-{n}.npy" for label in range(CLASSES) for n in range(3)]
    assert found.test.tolist() == [False, False, True] * CLASSES
    assert "3 images are in neither" in found.sentence
    assert f"{CLASSES * (IMAGES - 4)} have no label" in found.sentence


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name,label\na,b\n", "columns file and label"),
        ("file,label\nelsewhere.npy,b\n", "names none of the files"),
        ("file,label\n0-0.npy,a\n0-0.npy,b\n", "two things"),
        ("file,label\n0-0.npy,a\n0-1.npy,a\n", "two classes"),
        ("file,label\n0-0.npy,a\n1-0.npy,b\n1-1.npy,b\n", "class 'a' has 1"),
        ("file,label,image\n0-0.npy,a,x\n", "is a number"),
    ],
)
def test_a_table_that_cannot_be_used_is_one_sentence(
    folder: Path, tmp_path: Path, text: str, words: str
) -> None:
    table = tmp_path / "labels.csv"
    table.write_text(text)
    with pytest.raises(InvalidInput, match=words):
        labels.read(str(table), open_images(str(folder)), 0)


# --- numbers ---


@pytest.mark.parametrize("normalize", [ROOTED, PLAIN])
@pytest.mark.parametrize("block", [1, 10**9])
def test_dot_products_are_those_of_whole_descriptors(
    folder: Path, tmp_path: Path, normalize: str, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(svm, "BLOCK_BYTES", block)
    path, rows = tmp_path / "out.npy", (0, 3, 20, 21)
    how: dict[str, Any] = {"normalize": "none", "vectorize": "upper"}
    dp.pool_files(str(folder), path, "power", **how)
    images = open_images(str(folder))
    whole = np.stack([dp.reference.describe(images[r], "power", normalize=normalize) for r in rows])
    scale = accuracy._triangle_scale(D)
    found = svm.gram(path, rows, scale, rooted=normalize == ROOTED)
    np.testing.assert_allclose(found, whole @ whole.T, rtol=1e-4)


def test_C_is_chosen_without_the_test_part() -> None:
    """Other labels of the test part change what is right, and nothing else."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 5))
    given = np.array(["a", "b"])[(X[:, 0] > 0).astype(int)]
    test = np.arange(40) >= 28
    first = svm.fit(X @ X.T, given, test, 0)
    turned = np.where(test, np.where(given == "a", "b", "a"), given)
    second = svm.fit(X @ X.T, turned, test, 0)
    assert (first.C, first.validated) == (second.C, second.validated)
    np.testing.assert_array_equal(first.right, ~second.right)
    assert first.right.mean() > 0.7


def test_a_paired_test_counts_what_only_one_gets_right() -> None:
    one = np.array([True] * 10 + [False] * 2 + [True] * 8)
    other = np.array([False] * 10 + [True] * 2 + [True] * 8)
    found = paired(one, other)
    assert (found.only_one, found.only_other) == (10, 2)
    assert found.difference == pytest.approx(0.4)
    assert found.p_value == pytest.approx(2 * (1 + 12 + 66) / 2**12)
    assert found.low < 0.4 < found.high
    assert paired(one, one).p_value == 1.0


def test_the_adjustment_for_many_comparisons_is_holms() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == [1.0, 1.0]


# --- a whole run ---


def test_an_interrupted_run_goes_on(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing finished is done again, by the same run; another seed begins anew."""
    images = open_images(str(folder))
    given = labels.read("folders", images, 0)
    pooled: list[str] = []

    def pool_files(inputs: Any, path: Path, descriptor: str, **how: Any) -> Any:
        pooled.append(descriptor)
        if len(pooled) == interrupted_at:
            raise KeyboardInterrupt
        return dp.pool_files(inputs, path, descriptor, **how)

    def measure(seed: int = 0) -> accuracy.Accuracies:
        pooled.clear()
        partial = tmp_path / "partial.json"
        return accuracy.measure(images, str(folder), given, seed, lambda *_: None, partial)

    monkeypatch.setattr(accuracy, "pool_files", pool_files)
    every = len(list(accuracy.settings(D)))
    interrupted_at = 4
    with pytest.raises(KeyboardInterrupt):
        measure()
    interrupted_at = 0
    found = measure()
    assert len(pooled) == every - 3
    measure(seed=1)
    assert len(pooled) == every
    (tmp_path / "partial.json").write_text('{"run": ')
    again = measure()
    assert len(pooled) == every
    for one, other in zip(found.rows, again.rows, strict=True):
        assert (one.setting, one.normalize, one.fitted.C) == (
            *(other.setting, other.normalize, other.fitted.C),
        )
        np.testing.assert_array_equal(one.fitted.right, other.fitted.right)


def test_the_table_has_every_aggregator_and_the_protocol_above(
    folder: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    given = ["paper", str(folder), "--labels", "folders", "-o", str(out), "--sample", "2", "--json"]
    done = CliRunner().invoke(cli, given)
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    (table,) = [t for t in told["tables"] if t["name"] == "accuracy"]
    assert len(table["rows"]) == 2 * len(list(accuracy.settings(D)))
    for row in table["rows"]:
        beside = dict(zip(table["columns"], row, strict=True))
        assert 0 <= beside["accuracy %"] <= 100
        assert (beside["p"] is None) == (beside["aggregator"] == "sum")
    page = (out / "paper.html").read_text()
    assert not list(out.glob("*partial*"))
    assert page.index("Protocol, fixed before the run") < page.index("cross-validation %")
    assert table["title"] in page
    said = [s for s in told["statements"] if "Table 1" in s["where"]]
    assert len(said) == 8
    assert all(s["number"] is not None for s in said)


def test_without_labels_accuracy_cannot_be_said(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.random.default_rng(0).random((9, 5)))
    given = ["paper", str(tmp_path / "a.npy"), "-o", str(tmp_path / "out"), "--json"]
    told = json.loads(CliRunner().invoke(cli, given).stdout)
    said = [s for s in told["statements"] if "Table 1" in s["where"]]
    assert {s["verdict"] for s in said} == {"cannot be said"}


def test_labels_need_files() -> None:
    assert CliRunner().invoke(cli, ["paper", "--labels", "folders"]).exit_code == 2
