"""Bad input: one clear sentence, the right exception, no traceback, no file left behind."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import demopool as dp
from demopool.contract import registry
from demopool.errors import BackendUnavailable, DemopoolError, InvalidInput, Unsupported

OPS = dp.backend("numpy:cpu")
X = np.random.default_rng(0).standard_normal((2, 5, 4)).astype(np.float32)
A = OPS.pool(X)
H = dp.hashes(4, k=8)
# A machine that has all of them has nothing to show here.
ABSENT = next((row for row in registry.names() if row not in registry.available()), "no:where")
ZERO = np.where(np.arange(5)[:, np.newaxis] == 3, 0, X).astype(np.float32)


def _with(value: float) -> np.ndarray:
    changed = X.copy()
    changed[1, 2, 0] = value
    return changed


def describe(X_: Any = X, descriptor: Any = "democratic", **options: Any) -> Callable[[], Any]:
    return lambda: dp.describe(X_, descriptor, **options)


BAD: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "one axis": (describe(X[0, 0]), InvalidInput, "X must be .*got shape"),
    "no axis": (describe(np.float32(1.0)), InvalidInput, "X must be an array"),
    "four axes without a layout": (describe(X[np.newaxis]), InvalidInput, "layout"),
    "two axes as nchw": (describe(X[0], layout="nchw"), InvalidInput, r"\(C, H, W\) or"),
    "two axes as nhwc": (describe(X[0], layout="nhwc"), InvalidInput, r"\(H, W, C\) or"),
    "an unknown layout": (describe(layout="nwhc"), InvalidInput, "layout must be one of"),
    "n of 0": (describe(X[:, :0]), InvalidInput, "n >= 1"),
    "d of 0": (describe(X[:, :, :0]), InvalidInput, "d >= 1"),
    "NaN": (describe(_with(np.nan)), InvalidInput, "finite.*image 1, row 2"),
    "NaN in several rows": (
        describe(np.full((3, 2), np.nan)),
        InvalidInput,
        "a NaN or an infinity in row 0 and 2 more rows",
    ),
    "infinity": (describe(_with(np.inf)), InvalidInput, "finite"),
    "a zero row": (describe(ZERO, zero_rows="error"), InvalidInput, "rows of zeros.*zero_rows"),
    "a faint row": (
        describe(np.array([[1.0, 0], [0, 1e-12]], np.float32)),
        InvalidInput,
        "so much smaller",
    ),
    "values too large to square": (
        describe(X * np.float32(1e25), normalize="none"),
        InvalidInput,
        "do not fit",
    ),
    "values too small to square": (
        describe(X * np.float32(1e-30), normalize="none"),
        InvalidInput,
        "do not fit",
    ),
    "bfloat16 on NumPy": (describe(dtype="bfloat16"), Unsupported, "no such arrays"),
    "gamma beyond floats": (describe(gamma=10**400), InvalidInput, "gamma"),
    "a backend that is a list": (lambda: dp.backend([]), InvalidInput, "backend must be"),
    "an operation that is a list": (lambda: OPS.supports([]), InvalidInput, "operation"),
    "a masked array to asarray": (
        lambda: OPS.asarray(np.ma.masked_array(X)),
        InvalidInput,
        "MaskedArray",
    ),
    "a case with n of True": (lambda: dp.Case(n=True), InvalidInput, "n must be"),
    "integers": (
        describe(np.ones((3, 2), int)),
        InvalidInput,
        "X must be a dense array .*float64; got int64",
    ),
    "complex numbers": (describe(X.astype(complex)), InvalidInput, "complex128"),
    "booleans": (describe(X > 0), InvalidInput, "bool"),
    "text": (describe("features"), InvalidInput, "X must be an array"),
    "None": (describe(None), InvalidInput, "X must be an array"),
    "ragged lists": (describe([[1.0], [1.0, 2.0]]), InvalidInput, "unequal"),
    "a masked array": (describe(np.ma.masked_array(X)), InvalidInput, "MaskedArray"),
    "an unknown descriptor": (describe(descriptor="mean"), InvalidInput, "descriptor must be one"),
    "gamma above 1": (describe(gamma=1.5), InvalidInput, "gamma must be a number from 0 .*1.5"),
    "gamma below 0": (describe(gamma=-0.1), InvalidInput, "gamma"),
    "gamma of NaN": (describe(gamma=float("nan")), InvalidInput, "gamma"),
    "gamma as text": (describe(gamma="half"), InvalidInput, "gamma.*'half'"),
    "gamma as a boolean": (describe(gamma=True), InvalidInput, "gamma"),
    "tau of 0": (describe(tau=0), InvalidInput, "tau must be a number above 0"),
    "tau above 1": (describe(tau=1.01), InvalidInput, "tau"),
    "p of 0": (describe(descriptor="power", p=0), InvalidInput, "p must be"),
    "p above 1": (describe(descriptor="power", p=2), InvalidInput, "p must be"),
    "negative iterations": (describe(iterations=-1), InvalidInput, "iterations.*>= 0"),
    "fractional iterations": (describe(iterations=2.5), InvalidInput, "iterations"),
    "k of 0": (describe(descriptor="sketched-sum", k=0), InvalidInput, "k must be"),
    "a negative seed": (describe(descriptor="sketched-sum", seed=-1), InvalidInput, "seed"),
    "order 3": (describe(order=3), InvalidInput, "order must be 1 or 2"),
    "order 1 of a power": (describe(descriptor="power", order=1), Unsupported, "first order"),
    "an unknown zero_rows": (describe(zero_rows="drop"), InvalidInput, "zero_rows"),
    "an unknown normalisation": (describe(normalize="l1"), InvalidInput, "normalize"),
    "an unknown dtype": (describe(dtype="int8"), InvalidInput, "dtype must be"),
    "check as text": (describe(check="yes"), InvalidInput, "check"),
    "an unknown backend": (describe(backend="numpy:gpu"), InvalidInput, "backend must be one"),
    "an absent backend": (describe(backend=ABSENT), BackendUnavailable, "not available"),
    "an unknown route": (describe(route="fast"), InvalidInput, "route must be auto or one of"),
    "half a route": (
        describe(descriptor="sketched-democratic", route="dense"),
        InvalidInput,
        "fft",
    ),
    "the route of another descriptor": (describe(route="gram"), Unsupported, "gram"),
    "matrix-free of order 1": (describe(order=1, route="matrix-free"), Unsupported, "order 2"),
    "gram of a given matrix": (
        lambda: OPS.matrix_power(A, route="gram"),
        Unsupported,
        "features X",
    ),
    "newton at another power": (
        lambda: OPS.matrix_power(A, p=0.3, route="newton"),
        Unsupported,
        "p = 0.5 only",
    ),
    "newton with n < d": (lambda: OPS.power(X[:, :2], route="newton"), Unsupported, "singular"),
    "a matrix that is not square": (lambda: OPS.matrix_power(X), InvalidInput, "square"),
    "a matrix in half precision": (
        lambda: OPS.matrix_power(A.astype(np.float16)),
        Unsupported,
        "float16",
    ),
    "a list to an operation": (lambda: OPS.weights(X.tolist()), InvalidInput, "asarray makes one"),
    "weights of another shape": (
        lambda: OPS.pool(X, np.ones(5, np.float32)),
        InvalidInput,
        "shape",
    ),
    "weights of another dtype": (lambda: OPS.pool(X, np.ones((2, 5))), InvalidInput, "float32"),
    "hashes of another d": (lambda: OPS.sketch(X, dp.hashes(5)), InvalidInput, "d = 4"),
    "hashes that are a tuple": (lambda: OPS.sketch(X, (1, 2)), InvalidInput, "demopool.hashes"),
    "hashes out of range": (
        lambda: dp.Hashes(np.array([0, 8]), H.s1[:2], H.h2[:2], H.s2[:2], 8),
        InvalidInput,
        "0..7",
    ),
    "negative hashes": (
        lambda: dp.Hashes(np.array([0, -1]), H.s1[:2], H.h2[:2], H.s2[:2], 8),
        InvalidInput,
        "0..7",
    ),
    "signs that are not signs": (
        lambda: dp.Hashes(H.h1, np.zeros(4, int), H.h2, H.s2, 8),
        InvalidInput,
        "-1 and",
    ),
    "hashes of unequal lengths": (
        lambda: dp.Hashes(H.h1[:3], H.s1, H.h2, H.s2, 8),
        InvalidInput,
        "one length",
    ),
    "hashes for d of 0": (lambda: dp.hashes(0), InvalidInput, "d must be"),
    "more axes than there are": (lambda: OPS.normalize(X, axes=4), InvalidInput, "at least 4 axes"),
    "integers to normalise": (lambda: OPS.normalize(np.arange(3)), InvalidInput, "int64"),
    "an unknown operation": (lambda: OPS.supports("pooling"), InvalidInput, "operation must be"),
    "a case with a negative batch": (lambda: dp.Case(batch=-1), InvalidInput, "batch"),
    "a case with data nowhere": (lambda: dp.Case(data="disk"), InvalidInput, "host, device"),
    "a case with caches in between": (lambda: dp.Case(caches="hot"), InvalidInput, "warm, cold"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_gets_one_sentence(name: str) -> None:
    call, exception, pattern = BAD[name]
    with pytest.raises(exception, match=pattern) as caught:
        call()
    message = str(caught.value)
    assert isinstance(caught.value, DemopoolError)
    assert "\n" not in message
    assert message.endswith((".", "]")) or "Install it" in message
    assert len(message) < 300


def test_bad_input_is_a_value_error_too() -> None:
    with pytest.raises(ValueError, match="gamma"):
        dp.describe(X, "democratic", gamma=2)


COMMANDS: dict[str, tuple[list[str], int, str]] = {
    "an unknown command": (["chek"], 2, "No such command"),
    "an unknown option": (["check", "--fast"], 2, "No such option"),
    "an unknown backend": (["check", "numpy:gpu"], 2, "backend must be one of"),
    "an absent backend": (["check", ABSENT], 1, "not available"),
    "an unknown operation": (["check", "--operation", "pol"], 2, "is not one of"),
    "a folder as output": (
        ["check", "--quick", "--operation", "pool", "--output", "."],
        2,
        "director",
    ),
    "an output in no folder": (
        ["check", "--quick", "--operation", "pool", "--output", "no/such/folder.json"],
        2,
        "cannot be written",
    ),
    "a matrix into no file": (
        ["backends", "--matrix", "--write", "missing.md"],
        2,
        "cannot be read",
    ),
    "a matrix into a file without markers": (
        ["backends", "--matrix", "--write", "plain.md"],
        2,
        "must hold the lines",
    ),
    "--write without --matrix": (["backends", "--write", "plain.md"], 2, "goes with --matrix"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_bad_use_of_the_command_line(
    name: str, tmp_path: Path, plain_environment: dict[str, str]
) -> None:
    arguments, code, text = COMMANDS[name]
    (tmp_path / "plain.md").write_text("# no markers\n")
    done = subprocess.run(
        [sys.executable, "-m", "demopool", *arguments],
        cwd=tmp_path,
        env=plain_environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert text in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert [file.name for file in tmp_path.iterdir()] == ["plain.md"]
    assert (tmp_path / "plain.md").read_text() == "# no markers\n"


def test_a_required_backend_that_is_absent_fails_the_check(
    plain_environment: dict[str, str],
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "demopool", "check", "--quick", "--operation", "pool"],
        env={**plain_environment, "DEMOPOOL_REQUIRE_BACKENDS": f"numpy:cpu, {ABSENT}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert f"{ABSENT} is not available" in done.stderr
