"""``demopool ptx``: what it says, what it keeps, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

pytest.importorskip("cuda.bindings.nvrtc")

from ptx_samples.cases import SOURCE

from demopool import ptx
from demopool.commands import cli
from demopool.errors import DemopoolError

TOTAL = ("--kernel", "total", "--grid", "3", "--block", "128", "--arg", "i32=300")


def _run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["ptx", str(SOURCE), *arguments])


def _total(size: int = 300, *more: str) -> Result:
    arrays = ("--arg", f"f64[{size}]", "--arg", "f64[1]=zeros")
    return _run(*TOTAL[:6], *arrays, *TOTAL[6:], *more)


def test_without_a_kernel_it_says_what_each_needs_on_every_architecture() -> None:
    done = _run("--instance", "squared_gram<float>", "--json")
    assert done.exit_code == 0, done.output
    rows = json.loads(done.output)["kernels"]
    assert {row["arch"] for row in rows} == set(ptx.ARCHITECTURES)
    assert {"squared_gram<float>", "total", "transpose"} <= {row["kernel"] for row in rows}
    assert all(row["spilled_bytes"] == 0 and row["registers"] > 0 for row in rows)
    table = _run("--arch", "sm_80").output
    assert "last_block_sum" in table
    assert "Occupancy is theoretical" in table


def test_a_launch_is_counted_and_what_it_made_is_kept(tmp_path: Path) -> None:
    kept = tmp_path / "sum.npy"
    done = _total(300, "--counts", "--save", f"1={kept}")
    assert done.exit_code == 0, done.output
    for words in ("no fault", "global sectors", "argument 0: 2,400 bytes loaded", "A100"):
        assert words in done.output
    expected = np.random.default_rng(0).standard_normal(300).sum()
    assert np.load(kept)[0] == pytest.approx(expected)
    counts = json.loads(_total(300, "--json").output)["counts"]
    assert counts["atomics"] == 3


def test_a_fault_is_one_sentence_with_the_place() -> None:
    done = _total(200)
    assert isinstance(done.exception, ptx.Fault)
    assert "byte 1600 of argument 0" in str(done.exception)
    assert "samples.cu:" in str(done.exception)


def test_only_the_corners_of_a_grid() -> None:
    arguments = ("--arg", "f32[160,160]", "--arg", "f32[160,160]=empty")
    sizes = ("--arg", "i32=160", "--arg", "i32=160", "--grid", "10,10", "--block", "16,16")
    done = _run("--kernel", "transpose", *arguments, *sizes, "--corners", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.output)["counts"]["barriers"] == 9


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--kernel", "total"), "needs --grid and --block"),
        (("--counts",), "--kernel names what to run"),
        ((*TOTAL, "--arg", "300"), "--arg must be like"),
        ((*TOTAL, "--arg", "q32=3"), "--arg must be like"),
        ((*TOTAL, "--arg", "i32=three"), "needs a number of its type"),
        ((*TOTAL, "--arg", "i8=300"), "needs a number of its type"),
        ((*TOTAL, "--arg", "f32[3]=ones"), "=zeros, =empty or random"),
        ((*TOTAL, "--arg", "@absent.npy"), "absent.npy cannot be read"),
        ((*TOTAL, "--save", "0=x.npy"), "number of an array"),
        ((*TOTAL,), "takes 3 arguments, 1 were given"),
        (("--kernel", "no", "--grid", "1", "--block", "1"), "There is no kernel 'no'"),
        (("--kernel", "no", "--grid", "x", "--block", "1"), "--grid must be like"),
    ],
)
def test_bad_use_is_one_sentence(arguments: tuple[str, ...], sentence: str) -> None:
    done = _run(*arguments)
    assert done.exit_code != 0
    if isinstance(done.exception, DemopoolError):
        assert sentence in str(done.exception)
    else:
        assert sentence in done.output
