"""The asv suite's own rules. That it runs is shown by ``make suite``, with asv itself."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import baselines, descriptors, gradients, notes, operations, profiles, suite
from benchmarks.harness import NAME
from benchmarks.harness import jobs as harness_jobs
from demopool import reference
from demopool.problem import cases
from demopool.problem.candidates import SUBJECTS, Candidate
from demopool.problem.vocabulary import TIMED_BACKENDS

ROOT = Path(__file__).parent.parent

MODULES = (descriptors, operations, gradients)


def _classes(module: Any) -> dict[str, Any]:
    return {n: c for n, c in vars(module).items() if isinstance(c, type) and n[0] != "_"}


def test_there_is_a_class_for_every_subject() -> None:
    found = {c.subject for m in (descriptors, operations) for c in _classes(m).values()}
    assert {tuple(subject) for subject in found} == {tuple(subject) for subject in SUBJECTS}
    assert len(_classes(gradients)) == 6


def test_two_parameters_with_the_baseline_and_every_backend() -> None:
    for module in (descriptors, operations):
        for made in _classes(module).values():
            assert made.param_names == ("candidate", "case")
            candidates, names = made.time_call.params
            assert candidates[0] == "baseline/plain"
            assert names == tuple(cases.NAMED)
            assert {Candidate.parse(c).backend for c in candidates[1:]} == set(TIMED_BACKENDS)
            for measure in suite.measures.ONCE:
                assert getattr(made, f"track_{measure}").params == (candidates, cases.NETWORKS)


def test_the_harness_is_the_working_tree_and_not_what_is_installed() -> None:
    assert harness_jobs.__name__ == f"{NAME}.trials.jobs"
    assert Path(harness_jobs.__file__) == ROOT / "src" / "demopool" / "trials" / "jobs.py"
    assert Path(suite.reference.__file__) == ROOT / "reference" / "__init__.py"


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda s: f"{s.kind} {s.name}")
def test_baselines_give_the_reference_answer(subject: Any) -> None:
    import demopool

    case = demopool.Case(batch=2, n=20, d=6, k=32, dtype="float64")
    given = {**harness_jobs.inputs(subject, case), "hashes": demopool.hashes(6, 32)}
    found = baselines.BASELINES[subject.kind, subject.name](given, case)
    wanted = harness_jobs.expected(reference, demopool, subject, case)
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
    assert "torch:cuda" in on_device
    # Elsewhere it is not asked for where there is none; here it must show as skipped.
    assert (on_device == {"torch:cuda"}) == (profile != "smallest")


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
    power.setup("numpy:cpu/gram", "n49-d64")
    with pytest.raises(NotImplementedError, match="no device memory"):
        power.track_peak_device_bytes("numpy:cpu/gram", "n49-d64")
    monkeypatch.setattr(suite, "_job", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        power.setup("numpy:cpu/gram", "n49-d64")
    lines = (tmp_path / "results" / "host" / "01234567-borrowed-py3.11.jsonl").read_text()
    rows = [json.loads(line) for line in lines.splitlines() if '"load"' not in line]
    assert [row["kind"] for row in rows] == ["fingerprint", *["skip"] * 3, "failure"]
    assert len(rows[0]["key"]) == 16
    assert rows[1]["state"] == "timeout"
    assert rows[1]["benchmark"] == "descriptors.Power"
    assert rows[2]["state"] == "unsupported"
    assert rows[3]["benchmark"] == "descriptors.Power.track_peak_device_bytes"
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


def test_a_wrong_result_has_an_error_and_one_that_is_not_finite_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wanted = np.eye(3)[np.newaxis]
    monkeypatch.setattr(suite, "_expected", lambda *_: wanted)
    made = operations.Pool()
    for wrong, error in ((0.0, 0.0), (0.25, 0.25)):
        made.job = Slow(wanted + wrong * np.ones((3, 3)))
        assert made.track_error("numpy:cpu/direct", "vgg-b1") == error
    made.job = Slow(wanted * np.nan)
    with pytest.raises(ArithmeticError, match="not finite"):
        made.track_error("numpy:cpu/direct", "vgg-b1")


def test_the_judge_does_not_come_from_the_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hashes of a broken commit must not make its sketches right, or its baseline wrong."""
    import demopool

    monkeypatch.setattr(demopool, "hashes", lambda *_: 1 / 0)
    sketched = descriptors.SketchedSum()
    sketched.setup("baseline/plain", "n49-d64")
    assert sketched.job.run().shape == (1, 8192)
    assert suite._expected.__globals__["hashing"].__name__ == f"{NAME}.problem.hashing"
    assert suite.reference.weights.__module__ == f"{NAME}.reference.democratic"


def test_a_baseline_that_does_not_fit_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patience:
        patience.setattr(suite, "CALL_SECONDS", 0.1)
        with pytest.raises(NotImplementedError, match="would take over"):
            descriptors.Power().setup("baseline/plain", "resnet-b1")
    small = suite.eligibility.CallLimits(bytes=1e9)
    monkeypatch.setattr(suite.eligibility, "limits_here", lambda *_: small)
    with pytest.raises(NotImplementedError, match="would hold"):
        descriptors.Democratic().setup("baseline/plain", "n50176-d64")


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
        made.setup(candidate, "n49-d64")
        for measure in ("first_call_s", "with_transfer_s", "peak_host_bytes"):
            assert getattr(made, f"track_{measure}")(candidate, "n49-d64") >= 0
        made.time_call(candidate, "n49-d64")


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
