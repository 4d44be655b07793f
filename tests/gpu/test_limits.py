"""The table of limits on paper: from sizes of launches, counts and data sheets."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("cuda.bindings.nvrtc")
pytest.importorskip("cuda.pathfinder")

from click.testing import CliRunner

from tools import gpu, gpu_limits

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "gpu-on-paper.md"


def test_the_page_has_the_table_of_the_command() -> None:
    done = CliRunner().invoke(gpu.main, ["limits"])
    assert done.exit_code == 0, done.output
    assert done.output in PAGE.read_text()


def test_products_are_whole_tiles_and_nothing_is_said_of_a_cache() -> None:
    """One tile of K and one of A, for 64 columns each."""
    assert gpu_limits._product(1, 64) == 8 * 2 * 64**3
    assert gpu_limits._product(65, 64) == 3 * gpu_limits._product(64, 64)
    (t4, *_) = gpu_limits.ptx.DEVICES
    assert gpu_limits._streamed(t4, t4.l2_bytes // 32, 10**9) == "-"
    assert gpu_limits._streamed(t4, t4.l2_bytes // 32 + 1, 10**7) == "1000"
