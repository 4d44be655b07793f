"""Batches, units and paddings within the memory; what ``--choose`` measures on."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import demopool as dp
from demopool import InvalidInput, Unsupported, features
from demopool.datasets import measuring, planning

from .small import RNG, expected_of, pooled


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
    pooled(folder)
    found = np.load(folder.parent / "out.npy")
    np.testing.assert_allclose(found, expected_of(folder), rtol=0, atol=_rounding(found))


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
    pooled(folder, choose=True)
    assert [n for n, _ in raced] == [6, 9, 7]
    assert sum(budget for _, budget in raced) == pytest.approx(measuring.SECONDS)


def test_ctrl_c_while_measuring_ends_the_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupted = SimpleNamespace(interrupted=True)
    monkeypatch.setattr(measuring, "choose", lambda *_, **__: interrupted)
    with pytest.raises(KeyboardInterrupt):
        pooled(folder, choose=True)


def test_images_without_a_descriptor_are_not_raced_on(tmp_path: Path) -> None:
    batch = RNG.standard_normal((5, 4, 3)).astype(np.float16)
    batch[0, 1, 1], batch[1], batch[3] = np.nan, 0.0, 60_000.0
    np.save(tmp_path / "x.npy", batch)
    images, settings = features.open(tmp_path), planning.Settings("sum")
    size, file = planning.Size(4, 3, "float16"), tmp_path / "first.npy"
    assert measuring.write_first(images, size, settings.case(8, *size), file) == 2
    assert np.array_equal(np.load(file), batch[[2, 4]])
