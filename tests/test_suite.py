"""The asv suite's own rules. That it runs is shown by ``make suite``, with asv itself."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import (
    baselines,
    descriptors,
    gradients,
    inputs,
    notes,
    operations,
    profiles,
    scaling_d,
    scaling_n,
    suite,
)
from benchmarks.harness import NAME
from benchmarks.harness import jobs as harness_jobs
from benchmarks.harness import reference as harness_reference
from demopool import reference
from demopool.problem import cases
from demopool.problem.candidates import SUBJECTS, Candidate, Subject
from demopool.problem.routes import Sizes
from demopool.problem.vocabulary import DESCRIPTORS, TIMED_BACKENDS, Dtype
from demopool.profiles import eligibility

ROOT = Path(__file__).parent.parent

MODULES = profiles.MODULES
OF_DESCRIPTORS = (descriptors, scaling_n, scaling_d, gradients)


def _classes(module: Any) -> dict[str, Any]:
    return {n: c for n, c in vars(module).items() if isinstance(c, type) and n[0] != "_"}


def test_there_is_a_class_for_every_descriptor_and_operation_with_a_choice() -> None:
    for module in OF_DESCRIPTORS:
        assert [c.subject.name for c in _classes(module).values()] == list(DESCRIPTORS)
    with_choice = [s for s in SUBJECTS if s.kind == "operation" and len(s.routes()) > 1]
    found = [tuple(c.subject) for c in _classes(operations).values()]
    assert found == [tuple(subject) for subject in with_choice]


def test_sizes_are_numbers_over_two_decades_on_each_axis() -> None:
    for module, axis in ((scaling_n, "n"), (scaling_d, "d")):
        for made in _classes(module).values():
            assert made.param_names == ("candidate", axis)
            assert made.time_call.params[1] == cases.AXES[axis].sizes
            assert made.track_peak_host_bytes.params == made.time_call.params
            assert made.track_peak_device_bytes.params[1] == made.time_call.params[1]
        sizes = cases.AXES[axis].sizes
        assert len(sizes) >= 6
        assert all(isinstance(size, int) for size in sizes)
        assert max(sizes) >= 100 * min(sizes)
    for module in (descriptors, operations):
        for made in _classes(module).values():
            assert made.param_names == ("candidate", "case")
            assert made.time_call.params[1] == cases.NETWORKS


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda s: f"{s.kind} {s.name}")
def test_candidates_are_the_baseline_and_those_that_some_machine_can_have(subject: Subject) -> None:
    """By the capability table of this tree; the suite must not depend on what it measures."""
    first, *found = suite.candidates_of(subject)
    assert first == "baseline/plain"
    possible = [
        str(candidate)
        for candidate in subject.candidates()
        if not eligibility.unsupported(
            candidate.backend, subject.steps(candidate.route), Dtype("float32"), 2, Sizes()
        )
    ]
    assert found == possible


def test_device_memory_and_transfers_are_asked_of_gpus_only() -> None:
    for module in (descriptors, scaling_n, scaling_d):
        for made in _classes(module).values():
            every = made.time_call.params[0]
            on_gpus = tuple(c for c in every if Candidate.parse(c).backend.on_gpu)
            assert 0 < len(on_gpus) < len(every)
            assert made.track_peak_device_bytes.params[0] == on_gpus
            if module is descriptors:
                assert made.track_with_transfer_s.params[0] == on_gpus


def test_the_harness_is_the_working_tree_and_not_what_is_installed() -> None:
    assert harness_jobs.__name__ == f"{NAME}.trials.jobs"
    assert Path(harness_jobs.__file__) == ROOT / "src" / "demopool" / "trials" / "jobs.py"
    assert Path(harness_reference.__file__) == ROOT / "reference" / "__init__.py"


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda s: f"{s.kind} {s.name}")
def test_baselines_give_the_reference_answer(subject: Any) -> None:
    import demopool

    case = demopool.Case(batch=2, n=20, d=6, k=32, dtype="float64")
    given = harness_jobs.inputs(subject, case)
    with_hashes = {**given, "hashes": demopool.hashes(6, 32)}
    found = baselines.BASELINES[subject.kind, subject.name](with_hashes, case)
    wanted = harness_jobs.expected(reference, demopool, subject, case, given)
    assert harness_jobs.relative_error(np.asarray(found), wanted) < 1e-6


@pytest.mark.parametrize("profile", profiles.PROFILES)
def test_profiles_select_by_asvs_rule(profile: str) -> None:
    """A pattern must match nothing outside its slice, whatever asv puts the pattern to."""
    parts = profiles.slices(profile, ("numpy:cpu", "torch:cuda"))
    assert parts
    cells = [cell for part in parts for cell in part.cells]
    assert len(cells) == len(set(cells))
    for part in parts:
        assert all(benchmark.startswith(f"{part.title}.") for benchmark, _, _ in part.cells)
        for pattern in part.patterns:
            re.compile(pattern)
    backends = {Candidate.parse(candidate).backend for _, candidate, _ in cells}
    assert backends <= {"baseline", "numpy:cpu", "torch:cuda"}
    assert "baseline" in backends
    on_device = {Candidate.parse(c).backend for b, c, _ in cells if "peak_device" in b}
    assert on_device == ({"torch:cuda"} if profile != "counts" else set())
    if profile == "gpu":
        assert "numpy:cpu" not in backends
    assert all(re.search(profiles.pattern_of(*cell), _asv_name(*cell)) for cell in cells[::7])


def _asv_name(benchmark: str, candidate: str, case: str) -> str:
    """The text that asv puts patterns to."""
    axis = {"scaling_n": "n", "scaling_d": "d"}.get(benchmark.split(".")[0], "case")
    size = case if axis == "case" else getattr(cases.from_name(case), axis)
    return f"{benchmark}({candidate!r}, {size!r})"


def test_every_class_is_in_a_profile_and_every_cell_in_the_full_one() -> None:
    parts = profiles.slices("full", tuple(TIMED_BACKENDS))
    count = sum(
        len(method.params[0]) * len(method.params[1])
        for module in MODULES
        for made in _classes(module).values()
        for method in vars(made).values()
        if hasattr(method, "params")
    )
    assert sum(len(part.cells) for part in parts) == count


def test_the_smallest_profile_has_every_class() -> None:
    titles = {part.title for part in profiles.slices("smallest", TIMED_BACKENDS)}
    assert titles == {
        f"{module.__name__.rpartition('.')[2]}.{name}"
        for module in MODULES
        for name in _classes(module)
    }


def test_what_cannot_run_is_skipped_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(notes.FOLDER_VARIABLE, str(tmp_path / "results" / "host"))
    monkeypatch.setenv("ASV_COMMIT", "0123456789abcdef")
    monkeypatch.setenv("ASV_ENV_NAME", "borrowed-py3.11")
    power = descriptors.Power()
    with pytest.raises(NotImplementedError, match="predicted to take"):
        power.setup("numpy:cpu/newton-schulz", "resnet-b8")
    with pytest.raises(NotImplementedError, match="singular"):
        power.setup("numpy:cpu/newton", "resnet-b1")
    over_n = scaling_n.Power()
    over_n.setup("numpy:cpu/gram", 49)
    with pytest.raises(NotImplementedError, match="no device memory"):
        over_n.track_peak_device_bytes("numpy:cpu/gram", 49)
    monkeypatch.setattr(suite, "_job", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        power.setup("numpy:cpu/gram", "vgg-b1")
    lines = (tmp_path / "results" / "host" / "01234567-borrowed-py3.11.jsonl").read_text()
    rows = [json.loads(line) for line in lines.splitlines() if '"load"' not in line]
    assert [row["kind"] for row in rows] == ["fingerprint", *["skip"] * 3, "failure"]
    assert len(rows[0]["key"]) == 16
    assert rows[1]["state"] == "timeout"
    assert rows[1]["benchmark"] == "descriptors.Power"
    assert rows[2]["state"] == "unsupported"
    assert rows[3]["benchmark"] == "scaling_n.Power.track_peak_device_bytes"
    assert rows[3]["case"] == "n49-d512"
    assert rows[4]["reason"] == "ZeroDivisionError: division by zero"


class Slow:
    """A job on a device that has work left when a call returns."""

    def __init__(self, result: Any = None) -> None:
        self.device, self.result, self.calls, self.waited = self, result, 0, 0

    def run(self) -> Any:
        self.calls += 1
        return self.result

    def synchronize(self) -> None:
        self.waited = self.calls

    def to_numpy(self, result: Any) -> Any:
        return result


def test_the_timed_call_waits_for_the_device() -> None:
    for module, method in ((descriptors, "time_call"), (gradients, "time_forward_backward")):
        made = module.Power()
        made.job = Slow()
        getattr(made, method)("torch:cuda/gram", "vgg-b1")
        assert made.job.waited == made.job.calls == 1


def test_a_failing_call_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(notes.FOLDER_VARIABLE, str(tmp_path))
    monkeypatch.setenv("ASV_COMMIT", "0" * 40)
    monkeypatch.setenv("ASV_ENV_NAME", "e")
    made = descriptors.Power()
    made.job = Slow()
    made.job.run = lambda: 1 / 0
    with pytest.raises(ZeroDivisionError):
        made.time_call("numpy:cpu/gram", "vgg-b1")
    last = json.loads((tmp_path / "00000000-e.jsonl").read_text().splitlines()[-1])
    assert (last["kind"], last["benchmark"]) == ("failure", "descriptors.Power.time_call")
    assert last["reason"] == "ZeroDivisionError: division by zero"


class Fixed:
    """Inputs with one answer."""

    def __init__(self, wanted: Any) -> None:
        self.wanted, self.changes = wanted, 0

    def next(self) -> None:
        self.changes += 1

    def expected(self) -> Any:
        return self.wanted


def test_a_wrong_result_has_an_error_and_one_that_is_not_finite_fails() -> None:
    wanted = np.eye(3)[np.newaxis]
    made = operations.Power()
    made.inputs = Fixed(wanted)
    for wrong, error in ((0.0, 0.0), (0.25, 0.25)):
        made.job = Slow(wanted + wrong * np.ones((3, 3)))
        assert made.track_error("numpy:cpu/eigh", "vgg-b1") == error
        assert made.job.calls == suite.JUDGED_CALLS
    assert made.inputs.changes == 2 * (suite.JUDGED_CALLS - 1)
    made.job = Slow(wanted * np.nan)
    with pytest.raises(ArithmeticError, match="not finite"):
        made.track_error("numpy:cpu/eigh", "vgg-b1")


CANDIDATES = ("baseline/plain", "numpy:cpu/dense", "torch:cpu/dense")


@pytest.mark.parametrize("candidate", CANDIDATES)
@pytest.mark.parametrize("module", [descriptors, operations])
def test_no_two_calls_in_a_row_have_the_same_array_and_errors_are_small(
    module: Any, candidate: str
) -> None:
    made = module.Weights() if module is operations else module.Democratic()
    places, contents = [], []
    for _ in range(6):
        made.setup(candidate, "vgg-b1")
        X = made.job.to_numpy(made.job.data.placed["X"])
        places.append(X.__array_interface__["data"][0])
        contents.append(X.tobytes())
        np.testing.assert_array_equal(X, made.job.data.host["X"])
    assert all(one != other for one, other in pairwise(places))
    assert 1 < len(set(places)) <= 3
    assert len(set(contents)) >= (6 if module is descriptors else 2)
    assert made.track_error(candidate, "vgg-b1") < 1e-4


@pytest.mark.parametrize("module", [descriptors, operations])
def test_a_result_that_is_remembered_has_a_large_error(module: Any) -> None:
    made = module.Weights() if module is operations else module.Democratic()
    made.setup("numpy:cpu/dense", "vgg-b1")
    first = made.job.run()
    stale = Slow(first)
    stale.data, stale.place = made.job.data, made.job.place
    made.job = stale
    assert made.track_error("numpy:cpu/dense", "vgg-b1") > 0.01


@pytest.mark.parametrize("candidate", ["torch:cpu/dense", "baseline/plain"])
def test_gradients_have_another_input_for_every_call(candidate: str) -> None:
    made = gradients.Democratic()
    found = []
    for _ in range(3):
        made.setup(candidate, "vgg-b1")
        made.time_forward_backward(candidate, "vgg-b1")
        found.append(made.job.data.placed["X"].grad.numpy().copy())
    assert all(np.isfinite(gradient).all() and gradient.any() for gradient in found)
    assert not np.array_equal(found[0], found[1])
    assert not np.array_equal(found[1], found[2])


def test_the_baseline_of_a_gradient_goes_through_the_same_descriptor() -> None:
    """Its target is a constant for the derivative, so only what goes forward is compared."""
    import torch

    subject, case = gradients.Democratic.subject, suite.cases.named("vgg-b1")
    X = torch.from_numpy(suite.jobs.inputs(subject, case)["X"])
    ours = suite.demopool.describe(X, "democratic", backend="torch:cpu", route="dense")
    found = suite.GRADIENTS["democratic"](X, case)
    assert suite.jobs.relative_error(found.numpy(), ours.numpy()) < 1e-4


def test_the_judge_does_not_come_from_the_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hashes of a broken commit must not make its sketches right, or its baseline wrong."""
    import demopool

    monkeypatch.setattr(demopool, "hashes", lambda *_: 1 / 0)
    sketched = descriptors.SketchedSum()
    sketched.setup("baseline/plain", "vgg-b1")
    assert sketched.job.run().shape == (1, 8192)
    assert inputs.hashing.__name__ == f"{NAME}.problem.hashing"
    assert inputs.reference.weights.__module__ == f"{NAME}.reference.democratic"


def test_a_baseline_that_does_not_fit_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patience:
        patience.setattr(suite, "CALL_SECONDS", 0.1)
        with pytest.raises(NotImplementedError, match="would take over"):
            descriptors.Power().setup("baseline/plain", "resnet-b1")
    small = suite.eligibility.CallLimits(bytes=1e7)
    monkeypatch.setattr(suite.eligibility, "limits_here", lambda *_: small)
    with pytest.raises(NotImplementedError, match="would hold"):
        scaling_n.Democratic().setup("baseline/plain", 3136)


def test_the_fingerprint_is_noted_again_when_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(notes.FOLDER_VARIABLE, str(tmp_path))
    monkeypatch.setenv("ASV_COMMIT", "0" * 40)
    monkeypatch.setenv("ASV_ENV_NAME", "e")
    for key in ("aaaa", "aaaa", "bbbb", "aaaa"):
        monkeypatch.setattr(notes, "_fingerprint", lambda key=key: (key, {"x": key}))
        notes.start("one")
    rows = map(json.loads, (tmp_path / "00000000-e.jsonl").read_text().splitlines())
    assert [row["key"] for row in rows if "key" in row] == ["aaaa", "bbbb", "aaaa"]


def test_nothing_is_noted_without_asv(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(notes.FOLDER_VARIABLE, raising=False)
    with pytest.raises(NotImplementedError):
        descriptors.Power().setup("numpy:cpu/newton", "resnet-b1")


def test_every_tracked_value_is_a_number() -> None:
    made = descriptors.Democratic()
    for candidate in ("baseline/plain", "numpy:cpu/dense"):
        made.setup(candidate, "vgg-b1")
        for measure in ("first_call_s", "with_transfer_s", "peak_host_bytes"):
            assert getattr(made, f"track_{measure}")(candidate, "vgg-b1") >= 0
        made.time_call(candidate, "vgg-b1")


def test_importing_the_suite_imports_no_backend_library() -> None:
    """asv's fork server does, for the CPU; nothing else may, and nobody may touch a GPU."""
    program = """
import sys
{server}
import benchmarks.descriptors, benchmarks.gradients, benchmarks.profiles
heavy = [name for name in ("torch", "numba", "cupy") if name in sys.modules]
torch = sys.modules.get("torch")
assert torch is None or not torch.cuda.is_initialized()
assert "libcuda.so" not in open("/proc/self/maps").read()
print(heavy)
"""
    for server, expected in (("", "[]\n"), ("sys.argv.append('run_server')", None)):
        done = subprocess.run(
            [sys.executable, "-c", program.format(server=server)],
            cwd=ROOT,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=True,
        )
        assert expected is None or done.stdout == expected
