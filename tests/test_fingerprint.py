"""The fingerprint: what it holds, what its key depends on, and what it warns of."""

from __future__ import annotations

import copy
import getpass
import json
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from demopool.contract import registry
from demopool.machine import fingerprint as module
from demopool.machine import system
from demopool.machine.fingerprint import fingerprint, key, warnings

GPU = {
    "index": 0,
    "name": "NVIDIA A",
    "memory_bytes": 80 * 2**30,
    "compute_capability": "9.0",
    "driver": "580.65.06",
    "cuda": "13.0",
    "ecc": True,
    "power_limit_milliwatts": 700_000,
}
CACHE = {"level": 3, "type": "Unified", "size_bytes": 2**25, "shared_by": 8}
BLAS = {
    "name": "openblas",
    "version": "0.3.30",
    "threads": 2,
    "threading_layer": "pthreads",
    "architecture": "Haswell",
    "package": "scipy",
}
NOT_IN_THE_KEY = {
    "blas.0.threads",
    "cpu.smt",
    "cpu.virtual",
    "frequency",
    "gpus.0.index",
    "gpus.0.power_limit_milliwatts",
    "kernel",
    "libraries.demopool",
    "environment",
    "load_average",
}

Place = tuple[str | int, ...]


@pytest.fixture(scope="module")
def here() -> dict[str, Any]:
    return fingerprint()


@pytest.fixture
def complete(here: dict[str, Any]) -> dict[str, Any]:
    """This machine's, with what it may not have: a GPU, caches, a BLAS, a plug-in."""
    found = copy.deepcopy(here)
    found["cpu"]["caches"] = [dict(CACHE)]
    found["memory"] = {"total_bytes": 64 * 2**30, "limit_bytes": None}
    found["gpus"] = [dict(GPU)]
    found["blas"] = [dict(BLAS)]
    found["libraries"] |= {"torch": "2.6.0", "some-plugin": "1.0"}
    return found


def _leaves(value: Any, place: Place = ()) -> Iterator[Place]:
    if isinstance(value, dict):
        for name, inside in value.items():
            yield from _leaves(inside, (*place, name))
    elif isinstance(value, list):
        for number, inside in enumerate(value):
            yield from _leaves(inside, (*place, number))
    else:
        yield place


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from (text for inside in value.values() for text in _strings(inside))
        yield from value
    elif isinstance(value, list):
        yield from (text for inside in value for text in _strings(inside))
    elif isinstance(value, str):
        yield value


def _changed(found: dict[str, Any], place: Place) -> dict[str, Any]:
    """A copy with another value at this place; sizes in bytes move by more than a rounding."""
    other = copy.deepcopy(found)
    inside: Any = other
    for step in place[:-1]:
        inside = inside[step]
    old = inside[place[-1]]
    if isinstance(old, bool):
        new: Any = not old
    elif isinstance(old, int | float):
        new = old + 2**31
    else:
        new = 2**31 if old is None else f"{old}-other"
    inside[place[-1]] = new
    return other


def _child(code: str, **variables: str) -> str:
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", **variables}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_it_is_strict_json_and_survives_a_file(complete: dict[str, Any]) -> None:
    again = json.loads(json.dumps(complete, allow_nan=False))
    assert again == complete
    assert key(again) == key(complete)


def test_it_tells_what_there_is(here: dict[str, Any]) -> None:
    assert here["cpu"]["name"] == system.processor()
    assert here["cpu"]["usable_cores"] == system.usable_cores()
    assert here["python"] == platform.python_version()
    assert here["libraries"].keys() >= {"demopool", "numpy", "scipy"}
    assert here["environment"].keys() >= {"OMP_NUM_THREADS", "NUMBA_NUM_THREADS"}


def test_it_names_no_path_no_user_and_no_host(here: dict[str, Any]) -> None:
    private = [str(Path.home()), getpass.getuser(), platform.node()]
    for text in [*_strings(here), *_strings(module.machine())]:
        assert not text.startswith(("/", "\\", "~"))
        assert not re.match(r"[A-Za-z]:[\\/]", text)
        for word in filter(None, private):
            assert not re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", text), text


def test_it_is_quick(here: dict[str, Any]) -> None:
    seconds = []
    for _ in range(3):
        before = time.perf_counter()
        fingerprint()
        seconds.append(time.perf_counter() - before)
    assert min(seconds) < 0.3


def test_it_imports_no_other_heavy_library() -> None:
    code = """
import sys
from demopool.machine.fingerprint import fingerprint
fingerprint()
print([name for name in ("torch", "numba", "cupy", "pandas", "matplotlib") if name in sys.modules])
"""
    assert _child(code) == "[]"


def test_measurement_package_works_under_another_name() -> None:
    """As the benchmarks load it, to measure other commits with the same instruments."""
    folder = str(Path(module.__file__).parent)
    code = f"""
import sys, types
package = types.ModuleType("elsewhere")
package.__path__ = [{folder!r}]
sys.modules["elsewhere"] = package
from elsewhere.fingerprint import fingerprint, key, machine, warnings
machine(), warnings(fingerprint()), key(fingerprint())
print([name for name in sys.modules if name.startswith("demopool")])
"""
    assert _child(code) == "[]"


def test_plugins_are_looked_up_where_the_registry_does() -> None:
    assert module._PLUGINS == registry.GROUP


def test_versions_of_plugins_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    class Distribution:
        name, version = "some-plugin", "1.5"

    class Point:
        dist: Distribution | None = Distribution()

    class Homeless:
        dist = None

    monkeypatch.setattr(module, "entry_points", lambda group: [Point(), Homeless()])
    assert module._libraries()["some-plugin"] == "1.5"


def test_key_is_short_hex(here: dict[str, Any]) -> None:
    assert re.fullmatch(r"[0-9a-f]{16}", key(here))


def test_key_is_the_same_in_every_call_and_process(here: dict[str, Any]) -> None:
    """Also where somebody has imported a library that brings an OpenMP of its own."""
    assert key(fingerprint()) == key(here)
    code = "from demopool.machine.fingerprint import *; print(key(fingerprint()))"
    first = _child(code, PYTHONHASHSEED="1")
    second = _child(f"import sklearn.cluster; {code}", PYTHONHASHSEED="2")
    assert first == second


def test_the_key_is_the_same_for_any_number_of_threads() -> None:
    """What ``choose`` measured must be found by a process that was started with other threads."""
    code = "from demopool.machine.fingerprint import *; print(key(fingerprint()))"
    one, two = (_child(code, OPENBLAS_NUM_THREADS=threads) for threads in ("1", "2"))
    assert one == two


def test_usual_threads_follow_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    assert system.usual_threads() == system.usable_cores()
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert system.usual_threads() == 1
    monkeypatch.setenv("OMP_NUM_THREADS", "many")
    assert system.usual_threads() == system.usable_cores()


def test_every_value_is_in_the_key_unless_it_is_known_not_to_be(complete: dict[str, Any]) -> None:
    before = key(complete)
    for place in _leaves(complete):
        names = [".".join(map(str, place[:length])) for length in range(1, len(place) + 1)]
        left_out = not NOT_IN_THE_KEY.isdisjoint(names)
        assert (key(_changed(complete, place)) == before) is left_out, names[-1]


def test_libraries_and_gpus_that_come_or_go_change_the_key(complete: dict[str, Any]) -> None:
    before = key(complete)
    without_gpu = {**complete, "gpus": []}
    two_gpus = {**complete, "gpus": [GPU, GPU | {"index": 1}]}
    kept = {name: v for name, v in complete["libraries"].items() if name != "some-plugin"}
    without_plugin = {**complete, "libraries": kept}
    keys = {before, *(key(found) for found in (without_gpu, two_gpus, without_plugin))}
    assert len(keys) == 4


def test_key_is_not_moved_by_a_bit_of_memory(complete: dict[str, Any]) -> None:
    other = copy.deepcopy(complete)
    complete["memory"] = {"total_bytes": 64 * 2**30 - 10**8, "limit_bytes": None}
    other["memory"] = {"total_bytes": 64 * 2**30 - 2 * 10**8, "limit_bytes": None}
    assert key(other) == key(complete)
    other["memory"]["limit_bytes"] = 8 * 2**30
    assert key(other) != key(complete)


def test_blas_of_another_package_does_not_move_the_key(complete: dict[str, Any]) -> None:
    """Scenario: torch was imported in one process and not in the other."""
    other = copy.deepcopy(complete)
    other["blas"].append(BLAS | {"package": "torch"})
    assert key(other) == key(complete)
    other["blas"].append(BLAS | {"package": None, "name": "mkl"})
    assert key(other) != key(complete)


@pytest.mark.parametrize(
    ("file", "package"),
    [
        ("/x/lib/python3.11/site-packages/numpy.libs/libscipy_openblas64_.so", "numpy"),
        ("/x/lib/python3.11/site-packages/scipy/.dylibs/libopenblas.dylib", "scipy"),
        ("/x/lib/python3.11/site-packages/torch/lib/libopenblas.so.0", "torch"),
        ("/x/lib/libmkl_rt.so.2", None),
        ("/usr/lib/x86_64-linux-gnu/openblas-pthread/libopenblas.so.0", None),
    ],
)
def test_blas_is_told_by_whose_it_is_not_by_where_it_is(file: str, package: str | None) -> None:
    assert module._package(file) == package


@pytest.fixture
def quiet(complete: dict[str, Any]) -> dict[str, Any]:
    complete["cpu"] |= {"usable_cores": 8, "physical_cores": 8, "quota_cores": None}
    complete["frequency"]["governor"] = "performance"
    complete["load_average"] = [0.5, 9.0, 9.0]
    return complete


def test_quiet_machine_is_not_complained_about(quiet: dict[str, Any]) -> None:
    assert warnings(quiet, busy=0.05) == []


@pytest.mark.parametrize(
    ("part", "values", "sentence"),
    [
        ("frequency", {"governor": "powersave"}, "governor is powersave"),
        ("cpu", {"usable_cores": 4}, "Only 4 of 8 cores"),
        ("cpu", {"quota_cores": 2.5}, "the time of 2.5 cores and 8"),
    ],
)
def test_disturbances_are_told(
    quiet: dict[str, Any], part: str, values: dict[str, Any], sentence: str
) -> None:
    quiet[part] |= values
    (told,) = warnings(quiet)
    assert sentence in told


def test_load_and_others_at_work_are_told(quiet: dict[str, Any]) -> None:
    quiet["load_average"] = [4.2, 0.0, 0.0]
    load, busy = warnings(quiet, busy=0.4)
    assert "load was 4.2 on 8" in load
    assert "40%" in busy


def test_different_gpus_without_an_order_are_told(quiet: dict[str, Any]) -> None:
    quiet["gpus"] = [GPU, GPU | {"index": 1, "name": "NVIDIA B"}]
    quiet["environment"]["CUDA_DEVICE_ORDER"] = None
    (told,) = warnings(quiet)
    assert "CUDA_DEVICE_ORDER" in told
    quiet["environment"]["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    assert warnings(quiet) == []
