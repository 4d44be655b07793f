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


def test_products_take_the_arithmetic_or_the_passes_of_the_busiest_multiprocessor() -> None:
    """For a column of a tile. A T4 has 64 lanes for 4096 products, an RTX 4090 128."""
    t4, _, ada, _ = gpu_limits.ptx.DEVICES
    assert gpu_limits._clocks(t4, 18) == pytest.approx(64, rel=0.01)
    assert gpu_limits._clocks(t4, 36) == 72
    assert gpu_limits._clocks(ada, 18) == 36
    assert gpu_limits._passes_of_product() == 18
    # Eight tiles, of which each has a multiprocessor, or several from 256 columns on.
    assert gpu_limits._product(t4, 64, 128) == gpu_limits._product(t4, 1, 128)
    before, now = map(int, gpu_limits._product(t4, 64, 12544))
    assert before > 5 * now


def test_nothing_is_said_of_a_cache() -> None:
    (t4, *_) = gpu_limits.ptx.DEVICES
    assert gpu_limits._streamed(t4, t4.l2_bytes // 32, 10**9) == "-"
    # Of two passes over 32 MiB the second finds the 4 MiB of the cache: 60 MiB at 320 GB/s.
    assert gpu_limits._streamed(t4, 2**20, 2**21) == f"{60 * 2**20 / 0.32e6:.0f}"
