"""A candidate measured in a worker: samples with every measure, and states where there is none."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import demopool
from demopool import Case, results
from demopool.contract.device import Host
from demopool.measurement import code_identity
from demopool.measurement.worker import Worker
from demopool.problem import vocabulary
from demopool.problem.candidates import Candidate, Subject
from demopool.problem.vocabulary import State
from demopool.profiles.eligibility import predicted_seconds
from demopool.trials import jobs, measures, requests, samples

CASE = Case(batch=2, n=40, d=16, k=64)
_run_measure = requests.run_measure


@pytest.fixture
def worker() -> Iterator[Worker]:
    with Worker(1) as made:
        yield made


def not_finite() -> float:
    return jobs.relative_error(np.full((1, 2), np.nan), np.ones((1, 2)))


def failing(*of: Any, measure: str) -> Any:
    """Crashes in one measure and hangs in another."""
    if measure == "first_call_s":
        os._exit(7)
    if measure == "with_transfer_s":
        time.sleep(60)
    return _run_measure(*of, measure=measure)


def test_every_measure_becomes_a_sample(usable: str, worker: Worker, tmp_path: Path) -> None:
    file = tmp_path / "samples.jsonl"
    for sample in requests.measure(Candidate(usable, "dense"), CASE, worker, calls=5):
        samples.append(file, [sample])
    found = list(samples.read(file))
    assert {sample.state for sample in found} == {State.OK}, found
    counts = Counter(sample.measure for sample in found)
    on_host = demopool.backend(usable).implementation.gpu_index is None
    expected = {"first_call_s": 1, "with_transfer_s": 1, "peak_host_bytes": 1, "error": 1}
    expected |= {"call_s": 5} | ({} if on_host else {"peak_device_bytes": 1})
    assert counts == expected
    by_measure = {sample.measure: sample for sample in found}
    assert by_measure["error"].value is not None
    assert by_measure["error"].value < 1e-5
    assert all(sample.threads == 1 and len(sample.fingerprint) == 16 for sample in found)
    assert {sample.code for sample in found} == {code_identity.code_key(usable)}
    frame = results.read(file)
    assert set(frame["candidate"]) == {f"{usable}/dense"}
    assert set(frame["subject"]) == {"democratic"}


def test_memory_is_that_of_a_warm_call(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def metered(call: Any, *_: Any) -> int:
        assert calls, "the first call's memory would count"
        call()
        return 0

    job = SimpleNamespace(run=lambda: calls.append(1), device=Host())
    monkeypatch.setattr(requests, "_job", lambda *_: job)
    monkeypatch.setattr(measures.memory, "peak_host_bytes", metered)
    monkeypatch.setattr(measures.memory, "peak_device_bytes", metered)
    subject = Subject("descriptor", "democratic")
    of = (subject, Candidate("numpy:cpu", "dense"), CASE)
    for measure in ("peak_host_bytes", "peak_device_bytes"):
        calls.clear()
        assert requests.run_measure(*of, measure=measure).value == 0
        assert len(calls) == 2
        assert requests.run_measure(*of, measure=measure, warm=True).value == 0
        assert len(calls) == 3


def test_what_is_compiled_beforehand_is_little_and_of_the_same_kind() -> None:
    for descriptor in vocabulary.DESCRIPTORS:
        subject = Subject("descriptor", descriptor)
        for n, d in ((784, 512), (196, 2048), (12544, 2048), (512, 512), (1, 1)):
            case = Case(descriptor=descriptor, batch=64, n=n, d=d)
            for candidate in subject.candidates(("numba:cpu",)):
                little = requests.little(subject, candidate, case, 2)
                assert predicted_seconds(subject, candidate, little) <= 0.03
                assert little.batch == 2  # an image for every thread, as in the case
                assert (little.n >= little.d) or n < d  # newton is for n >= d only
                assert (little.k, little.dtype) == (case.k, case.dtype)


def test_loading_gives_seconds_or_says_why_it_may_not(usable: str) -> None:
    subject = Subject("descriptor", "democratic")
    assert requests.run_loading(subject, Candidate(usable, "dense"), CASE) >= 0
    power = Case(descriptor="power", n=5, d=9)
    found = requests.run_loading(Subject("descriptor", "power"), Candidate(usable, "newton"), power)
    assert found.state is State.UNSUPPORTED


def test_what_cannot_run_is_one_sample_with_its_state(worker: Worker) -> None:
    power = Case(descriptor="power", n=5, d=9)
    (found,) = requests.measure(Candidate("numpy:cpu", "newton"), power, worker)
    assert found.state is State.UNSUPPORTED
    assert "singular" in found.reason
    (found,) = requests.measure(Candidate("cupy:cuda", "dense"), CASE, worker)
    assert found.state is State.UNAVAILABLE
    assert found.reason
    large = Case(n=50176, d=64)
    (found,) = requests.measure(Candidate("numpy:cpu", "dense"), large, worker, seconds=0.01)
    assert found.state in (State.TIMEOUT, State.OUT_OF_MEMORY)
    assert "predicted" in found.reason


def test_a_result_that_is_not_finite_costs_one_measure(worker: Worker) -> None:
    answer = worker.ask(not_finite, timeout=30)
    assert answer.state is State.ERROR
    assert "not finite" in answer.reason


def test_a_crash_or_a_hang_costs_one_measure(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "run_measure", failing)
    # Long enough for an honest request of a new process, which imports the library again.
    found = list(
        requests.measure(Candidate("numpy:cpu", "dense"), CASE, worker, calls=2, timeout=5)
    )
    states = {sample.measure: sample for sample in found}
    assert states["first_call_s"].state is State.ERROR
    assert "code 7" in states["first_call_s"].reason
    assert states["with_transfer_s"].state is State.TIMEOUT
    assert states["peak_host_bytes"].state is State.OK
    assert states["call_s"].state is State.OK


def test_the_key_of_the_code_follows_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    before = code_identity.code_key("numpy:cpu")
    assert before == code_identity.code_key.__wrapped__("numpy:cpu")
    read = Path.read_bytes

    def changed(self: Path) -> bytes:
        return read(self) + (b"#" if self.name == "weights.py" else b"")

    monkeypatch.setattr(Path, "read_bytes", changed)
    assert before != code_identity.code_key.__wrapped__("numpy:cpu")
