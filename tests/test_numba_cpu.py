"""What only numba:cpu has to show: its cache, its threads, and loops that meet their edges."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("numba")

import demopool as dp
from demopool.implementations.numba_cpu import compiled, pool, products, sketch, weights

OPS = dp.backend("numba:cpu")
PLAIN = dp.backend("numpy:cpu")

# Every kernel there is, in both dtypes, by what users call; then how many were compiled here and
# how many came from the cache.
EVERY_KERNEL = """
import json
import numpy as np
import numba
import demopool as dp
from demopool.implementations.numba_cpu import compiled, pool, products, sketch, weights

ops = dp.backend("numba:cpu")
for dtype in ("float32", "float64"):
    for batch, n, d in ((3, 60, 50), (3, 60, 5), (1, 600, 8), (2, 3, 1500)):
        X = np.random.default_rng(0).standard_normal((batch, n, d)).astype(dtype)
        a = ops.weights(X, route="dense")
        ops.weights(X, route="matrix-free")
        ops.weights(X, route="dense", order=1)
        A = ops.pool(X, a)
        ops.pool(X, a, order=1)
        for kind in ("signed-sqrt-l2", "l2"):
            ops.normalize(A, kind=kind, axes=2)
            ops.normalize(A[:1], kind=kind, axes=2)
        hashes = ops.prepare(dp.hashes(d, 64))
        for route in ("fft", "moment"):
            ops.pool_sketch(X, hashes, a, route=route)
found = {"hits": 0, "compiled": [], "kernels": 0}
for module in (pool, products, sketch, weights):
    for name, kernel in vars(module).items():
        if isinstance(kernel, numba.core.registry.CPUDispatcher):
            found["kernels"] += 1
            found["hits"] += sum(kernel.stats.cache_hits.values())
            found["compiled"] += [name] * sum(kernel.stats.cache_misses.values())
print(json.dumps(found))
"""


def _run(script: str, **environment: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_second_process_compiles_nothing(tmp_path: Path) -> None:
    first = _run(EVERY_KERNEL, NUMBA_CACHE_DIR=str(tmp_path), NUMBA_NUM_THREADS="2")
    assert first["compiled"]
    again = _run(EVERY_KERNEL, NUMBA_CACHE_DIR=str(tmp_path), NUMBA_NUM_THREADS="2")
    assert again["compiled"] == []
    assert again["hits"] > again["kernels"] / 2  # most are called by others, and part of them


def test_a_package_that_cannot_be_written_is_cached_for_the_user(tmp_path: Path) -> None:
    """A file in place of ``__pycache__``: nobody, not even root, can make a folder there."""
    package = tmp_path / "frozen"
    package.mkdir()
    (package / "__pycache__").write_text("")
    source = Path(compiled.__file__).read_text()
    kernel = "\n\n@kernel\ndef double(x: float) -> float:\n    return 2 * x\n"
    (package / "frozen_kernels.py").write_text(source + kernel)
    script = (
        "import sys; sys.dont_write_bytecode = True\n"
        f"sys.path.insert(0, {str(package)!r})\n"
        "import json, frozen_kernels\n"
        "frozen_kernels.double(1.5)\n"
        "print(json.dumps(frozen_kernels.double.stats.cache_path))"
    )
    home = tmp_path / "home"
    home.mkdir()
    kept = dict.fromkeys(("NUMBA_CACHE_DIR",), "")
    where = _run(script, HOME=str(home), XDG_CACHE_HOME=str(home / "cache"), **kept)
    assert Path(where).is_relative_to(home)
    assert list(Path(where).glob("*.nbc"))


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"NUMBA_NUM_THREADS": "3", "OMP_NUM_THREADS": "5"}, 3),
        ({"NUMBA_NUM_THREADS": "", "OMP_NUM_THREADS": "5"}, 5),
        ({"NUMBA_NUM_THREADS": "", "OMP_NUM_THREADS": ""}, None),
    ],
)
def test_threads_obey_the_usual_settings(environment: dict[str, str], expected: int | None) -> None:
    script = (
        "import json\n"
        "from demopool.machine.system import usable_cores\n"
        "from demopool.implementations.numba_cpu import compiled\n"
        "print(json.dumps([compiled.threads(), usable_cores()]))"
    )
    kept = {name: value for name, value in environment.items() if value}
    removed = "import os\n" + "".join(
        f"os.environ.pop({name!r}, None)\n" for name, value in environment.items() if not value
    )
    threads, cores = _run(removed + script, **kept)
    assert threads == (expected or cores)


def test_numba_s_own_setting_has_the_last_word() -> None:
    script = (
        "import json, numba\n"
        "numba.set_num_threads(1)\n"
        "from demopool.implementations.numba_cpu import compiled\n"
        "print(json.dumps(compiled.threads()))"
    )
    assert _run(script, NUMBA_NUM_THREADS="2") == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_process_reads_its_number_of_threads_again() -> None:
    script = (
        "import json, os\n"
        "from demopool.implementations.numba_cpu import compiled\n"
        "before = compiled.threads()\n"
        "os.environ['NUMBA_NUM_THREADS'] = '3'\n"
        "if os.fork() == 0:\n"
        "    os._exit(compiled.threads())\n"
        "print(json.dumps([before, compiled.threads(), os.waitstatus_to_exitcode(os.wait()[1])]))"
    )
    assert _run(script, NUMBA_NUM_THREADS="2") == [2, 2, 3]


@given(st.integers(0, 40), st.integers(1, 6), st.integers(1, 9), st.booleans())
def test_parts_cover_everything_once(size: int, count: int, grain: int, triangle: bool) -> None:
    seen: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled, "threads", lambda: count)
        compiled.spread(
            lambda start, stop: seen.extend(range(start, stop)),
            size,
            grain=grain,
            triangle=triangle,
        )
    assert sorted(seen) == list(range(size))


def test_what_a_thread_raises_arrives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "threads", lambda: 3)

    def part(start: int, stop: int) -> None:
        if start:
            raise ZeroDivisionError(start)

    with pytest.raises(ZeroDivisionError):
        compiled.spread(part, 9)


def test_calls_from_many_python_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "threads", lambda: 3)
    rng = np.random.default_rng(0)
    batches = [rng.standard_normal((4, 60, 50), dtype=np.float32) for _ in range(24)]
    expected = [dp.describe(X, "democratic", backend="numba:cpu") for X in batches]
    with ThreadPoolExecutor(8) as callers:
        found = list(
            callers.map(lambda X: dp.describe(X, "democratic", backend="numba:cpu"), batches * 3)
        )
    for one, other in zip(found, expected * 3, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_has_threads_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "threads", lambda: 3)
    total = np.zeros(9)

    def count(start: int, stop: int) -> None:
        total[start:stop] += 1

    compiled.spread(count, 9)
    child = os.fork()
    if child == 0:
        compiled.spread(count, 9)
        os._exit(0 if (total == 2).all() else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


@given(
    st.integers(1, 70),
    st.integers(1, 60),
    st.sampled_from([np.float32, np.float64]),
    st.integers(1, 3),
)
def test_the_triangle_at_every_size(n: int, d: int, dtype: Any, images: int) -> None:
    """Bands of 48, blocks of three by four, and what is left over."""
    X = np.random.default_rng(n * 100 + d).standard_normal((images, n, d)).astype(dtype)
    K = np.full((n, n), np.nan, dtype)
    for top in range(0, n, products.BAND):
        products.gram_band(X[0], top, min(top + products.BAND, n), K)
    exact = X[0].astype(float) @ X[0].T.astype(float)
    eps = np.finfo(dtype).eps
    lower = np.tril_indices(n)
    norms = np.linalg.norm(X[0].astype(float), axis=1)
    assert (np.abs(K - exact)[lower] <= (4 * d * eps * np.outer(norms, norms))[lower]).all()
    M = products.mirror(K.copy())
    np.testing.assert_array_equal(M, M.T)
    np.testing.assert_array_equal(M[lower], K[lower])


@given(st.integers(1, 40), st.sampled_from([np.float32, np.float64]))
def test_products_with_the_triangle(n: int, dtype: Any) -> None:
    rng = np.random.default_rng(n)
    K = rng.random((n, n)).astype(dtype)
    K += K.T
    a = rng.random(n).astype(dtype)
    for edges in ((0, n), (0, n // 2, n)):
        Ka = np.zeros(n, dtype)
        for start, stop in pairwise(edges):
            weights._times(np.tril(K), start, stop, a, Ka)
        np.testing.assert_allclose(Ka, K @ a, rtol=8 * n * np.finfo(dtype).eps)


def test_one_large_image_and_many_small_ones_agree_with_numpy() -> None:
    """Both ways to share the work: all threads on an image, and an image for every thread."""
    rng = np.random.default_rng(0)
    for shape in ((1, 1100, 40), (2, 1030, 20), (5, 90, 60), (3, 200, 1100)):
        X = rng.standard_normal(shape, dtype=np.float32)
        expected = PLAIN.weights(X, route="dense")
        found = OPS.weights(X, route="dense")
        assert np.abs(found / expected - 1).max() < 1e-4
        A, B = OPS.pool(X, found), PLAIN.pool(X, found)
        assert np.abs(A - B).max() <= 1e-5 * np.abs(B).max()


def test_a_batch_with_one_image_out_of_range() -> None:
    """The others stay with the compiled product; this one is scaled first."""
    X = np.random.default_rng(0).standard_normal((4, 60, 50)).astype(np.float32)
    X[2] *= np.float32(1e-18)
    X[3, 0] *= np.float32(1e-15)  # the first row does not tell the scale
    exact = PLAIN.weights(X.astype(np.float64), route="dense")
    assert np.abs(OPS.weights(X, route="dense") / exact - 1).max() < 1e-4


def test_norms_that_float64_cannot_square() -> None:
    for scale in (1e-300, 1e-160, 1.0, 1e160, 1e300):
        v = np.linspace(-1, 1, 7) * scale
        for kind in ("l2", "signed-sqrt-l2"):
            found = pool.normalize(v, axes=1, kind=kind, overwrite=False)
            expected = pool.normalize(v / scale, axes=1, kind=kind, overwrite=False)
            np.testing.assert_allclose(found, expected, rtol=1e-14)
    assert np.isnan(
        pool.normalize(np.array([1.0, np.nan]), axes=1, kind="l2", overwrite=False)
    ).all()


@given(st.integers(1, 30), st.integers(1, 50))
def test_scattering_half_is_scattering_all(d: int, k: int) -> None:
    rng = np.random.default_rng(d)
    M = rng.standard_normal((d, d))
    M += M.T
    prepared = sketch.prepare(dp.hashes(d, k, seed=d))
    half = sketch._scatter_triangle(np.tril(M), prepared)
    whole = sketch._scatter_rows(M, 0, prepared)
    np.testing.assert_allclose(half, whole, atol=1e-13 * d * d)
