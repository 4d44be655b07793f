"""Backends are loaded late, by anybody and after a fork; plug-ins may do what they like."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

import demopool as dp
from demopool.contract import registry


def python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Some lines in a process of their own; one that hangs fails."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_importing_is_light() -> None:
    """Beyond NumPy nothing is imported but a few modules, and of other libraries only pynvml."""
    code = """
        import sys, numpy
        before = set(sys.modules)
        import demopool
        demopool.backends()
        new = set(sys.modules) - before
        print(len(new), *{name.partition(".")[0] for name in new} - sys.stdlib_module_names)
    """
    count, *foreign = python(code).stdout.split()
    assert set(foreign) <= {"demopool", "numpy", "pynvml"}
    assert int(count) < 120


def test_torch_is_loaded_without_its_compiler() -> None:
    """Which takes as long to import as torch itself; a constant is marked as it would mark it."""
    pytest.importorskip("torch")
    code = """
        import sys, numpy, demopool
        demopool.describe(numpy.ones((3, 2)), "democratic", backend="torch:cpu")
        print(*(name for name in ("torch._dynamo", "sympy") if name in sys.modules))
        import torch
        from demopool.implementations.torch_any import tensors
        ours, theirs = (lambda: 0), (lambda: 0)
        tensors.constant(ours), torch.compiler.assume_constant_result(theirs)
        print(vars(ours) == vars(theirs))
    """
    assert python(code).stdout.splitlines() == ["", "True"]


SLOW_LOAD = """
    import signal, sys, threading, time
    import numpy as np, demopool as dp
    from dataclasses import replace
    from demopool.contract import registry

    X = np.ones((3, 2), np.float32)
    listed = registry.entry("numba:cpu").specification
    during = None

    def load(device, threads):
        if during is not None:
            during()
        return listed.load(device, threads)

    registry._entries()["numba:cpu"] = registry.Entry(replace(listed, load=load))
"""


def test_a_signal_handler_may_call_during_the_first_load() -> None:
    """It cannot have the backend that is half loaded, but any other; and nothing hangs."""
    done = python(
        SLOW_LOAD
        + """
    told = []

    def handler(number, frame):
        told.append(dp.describe(X, "sum", backend="numpy:cpu").shape)
        try:
            dp.describe(X, "sum", backend="numba:cpu")
        except dp.BackendUnavailable as problem:
            told.append(str(problem))

    signal.signal(signal.SIGALRM, handler)

    def during():
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        while len(told) < 2:
            time.sleep(0.01)

    print(dp.describe(X, "sum", backend="numba:cpu").shape, *told)
    """
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("(4,) (4,) numba:cpu is not available: it is being loaded")


def test_a_thread_that_is_waited_for_may_load_the_same_backend() -> None:
    done = python(
        SLOW_LOAD
        + """
    made = []

    def other():
        made.append(registry.implementation("numba:cpu"))

    def during():
        if threading.current_thread() is threading.main_thread():
            thread = threading.Thread(target=other)
            thread.start()
            thread.join()

    made.append(registry.implementation("numba:cpu"))
    print(len(made), made[0] is made[1] is registry.implementation("numba:cpu"))
    """
    )
    assert (done.returncode, done.stdout) == (0, "2 True\n"), done.stderr


def test_many_threads_get_one_implementation() -> None:
    done = python(
        """
    from concurrent.futures import ThreadPoolExecutor
    from threading import Barrier
    from demopool.contract import registry

    together = Barrier(8)

    def load(number):
        together.wait()
        return registry.implementation("numba:cpu")

    with ThreadPoolExecutor(8) as pool:
        print(len(set(map(id, pool.map(load, range(8))))))
    """
    )
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr


def _shape(backend: str) -> tuple[int, ...]:
    return tuple(dp.describe(np.ones((3, 2), np.float32), "sum", backend=backend).shape)


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_children_load_and_use_backends(start: str) -> None:
    """Also those that the parent has loaded and used; what ``auto`` takes has tests of its own."""
    names = [name for name in ("numpy:cpu", "numba:cpu") if registry.probe(name).state == "ok"]
    assert [_shape(name) for name in names] == [(4,)] * len(names)
    with multiprocessing.get_context(start).Pool(1) as pool:
        assert pool.map_async(_shape, names).get(timeout=120) == [(4,)] * len(names)


def test_without_a_folder_to_write_numba_runs_uncached_and_says_how_to_help_it() -> None:
    pytest.importorskip("numba")
    done = python(
        """
    import warnings
    import numpy as np, demopool as dp
    from numba.core.caching import CacheImpl

    CacheImpl._locator_classes = []  # as in a read-only install without a home
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        print(dp.describe(np.ones((3, 2), np.float32), "sum", backend="numba:cpu").shape)
    print([str(one.message) for one in caught if "NUMBA_CACHE_DIR" in str(one.message)])
    print(len(caught))
    """
    )
    assert done.returncode == 0, done.stderr
    shape, told, count = done.stdout.splitlines()
    assert shape == "(4,)"
    assert "set NUMBA_CACHE_DIR to one that can" in told
    assert count == "1"


# --- plug-ins ---

UNRULY = """
import sys
from demopool.contract import Capability, Probe, Specification, State

print("hello from a plug-in")


def leave(*arguments):
    print("good bye")
    sys.exit(3)


POOL = (Capability("pool", "direct", (2,), ("float64",)),)
PROBE = Specification("probe", ("cpu",), leave, POOL, leave, leave, 1)
LOAD = Specification("load", ("cpu",), lambda device: Probe(State.OK), POOL, leave, leave, 1)
"""


@pytest.fixture
def unruly(tmp_path: Path) -> str:
    """A folder with an installed plug-in that prints and calls ``sys.exit`` wherever it can."""
    (tmp_path / "unruly.py").write_text(UNRULY)
    (tmp_path / "leaving.py").write_text("print('leaving')\nimport sys\nsys.exit(3)\n")
    information = tmp_path / "unruly-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: unruly\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(
        "[demopool.backends]\nleaving = leaving:SPECIFICATION\n"
        "probe = unruly:PROBE\nload = unruly:LOAD\n"
    )
    return str(tmp_path)


def test_a_plugin_can_neither_end_the_program_nor_print_into_its_json(unruly: str) -> None:
    done = python(
        "import sys, demopool.commands as c; sys.argv = ['', 'backends', '--json']; c.main()",
        PYTHONPATH=unruly,
    )
    assert done.returncode == 0, done.stderr
    listed = {row["backend"]: row for row in json.loads(done.stdout)["backends"]}
    assert listed["leaving:unknown"]["reason"] == "its plug-in failed: SystemExit: 3"
    assert listed["probe:cpu"]["reason"] == "its probe raised SystemExit: 3"
    for word in ("hello from a plug-in", "good bye", "leaving"):
        assert word in done.stderr


def test_a_plugin_that_leaves_while_loading_is_unavailable(unruly: str) -> None:
    done = python(
        """
    import numpy as np, demopool as dp
    try:
        dp.describe(object(), "sum")  # nobody's, and its recognise() leaves
    except dp.InvalidInput as problem:
        print("X must be an array" in str(problem))
    try:
        dp.backend("load:cpu")
    except dp.BackendUnavailable as problem:
        print(problem)
    """,
        PYTHONPATH=unruly,
    )
    told = "load:cpu is not available: loading it raised SystemExit: 3."
    assert (done.returncode, done.stdout) == (0, f"good bye\ngood bye\nTrue\n{told}\n"), done.stderr
