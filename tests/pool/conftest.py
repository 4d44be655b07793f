"""A folder of features, and units so small that a few images are several."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from demopool.datasets import planning

from .small import some_images


@pytest.fixture(autouse=True)
def small_units(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two images each, so that a few images are several units."""
    monkeypatch.setattr(planning, "MAX_ROWS", 2)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Eleven images of five files and three sizes."""
    made = tmp_path / "in"
    made.mkdir()
    np.save(made / "a.npy", some_images(4, 6))
    np.save(made / "b.npy", some_images(1, 9)[0])
    np.savez(made / "c.npz", one=some_images(1, 6)[0], two=some_images(2, 7))
    np.save(made / "d.npy", some_images(2, 6))
    np.save(made / "e.npy", some_images(1, 9))
    return made
