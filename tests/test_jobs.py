"""Candidates and jobs: what is measured is what it is said to be."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import demopool
from demopool import Case, InvalidInput, reference
from demopool.contract import registry
from demopool.errors import BackendUnavailable
from demopool.problem import cases
from demopool.problem.candidates import SUBJECTS, Candidate, Subject
from demopool.problem.vocabulary import TIMED_BACKENDS, State
from demopool.profiles.eligibility import CallLimits, ineligible, predicted_bytes, predicted_seconds
from demopool.trials import jobs

SMALL = Case(batch=3, n=20, d=8, k=64, dtype="float64")
DEMOCRATIC = Subject("descriptor", "democratic")


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda s: f"{s.kind} {s.name}")
def test_every_job_gives_the_reference_answer(usable: str, subject: Subject) -> None:
    wanted = jobs.expected(reference, demopool, subject, SMALL, jobs.inputs(subject, SMALL))
    for candidate in subject.candidates((usable,)):
        if ineligible(subject, candidate, SMALL, package=demopool):
            continue
        job = jobs.prepare(demopool, subject, candidate, SMALL)
        result = job.to_numpy(job.run())
        assert result.shape == subject.output_shape(SMALL)
        # A power's error goes with a root of the rounding; the tolerances are conformance's affair.
        assert jobs.relative_error(result, wanted) < 1e-5, candidate
        np.testing.assert_allclose(job.run_from_host(), result, rtol=1e-6, atol=0)


def test_candidates_are_the_same_whatever_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    before = [subject.candidates() for subject in SUBJECTS]
    monkeypatch.setattr(registry, "probe", lambda name: 1 / 0)
    assert [subject.candidates() for subject in SUBJECTS] == before
    listed = {str(c) for c in Subject("descriptor", "sketched-democratic").candidates()}
    assert "torch:cpu/dense+fft" in listed
    assert not any(name in one for one in listed for name in ("cupy:ptx", "triton:interpreter"))
    assert len(listed) == 4 * len(TIMED_BACKENDS)


def test_a_candidate_is_read_as_it_is_written() -> None:
    for subject in SUBJECTS:
        for candidate in subject.candidates():
            assert Candidate.parse(str(candidate)) == candidate
    for wrong in ("numpy:cpu", "numpy:cpu/", "/dense", ""):
        with pytest.raises(InvalidInput, match="candidate must be"):
            Candidate.parse(wrong)


def test_what_is_ineligible_has_a_state_and_a_reason() -> None:
    numpy_dense = Candidate("numpy:cpu", "dense")
    assert ineligible(DEMOCRATIC, numpy_dense, SMALL, package=demopool) is None
    far = Case(n=50176, d=64)
    found = ineligible(DEMOCRATIC, numpy_dense, far, CallLimits(bytes=1e9), package=demopool)
    assert found is not None
    assert found.state is State.OUT_OF_MEMORY
    assert found.reason == "predicted to need 10.1 GB, may use 1 GB"
    found = ineligible(DEMOCRATIC, numpy_dense, far, CallLimits(seconds=0.01), package=demopool)
    assert found is not None
    assert found.state is State.TIMEOUT
    power = Subject("descriptor", "power")
    found = ineligible(power, Candidate("numpy:cpu", "newton"), Case(n=5, d=9), package=demopool)
    assert found is not None
    assert found.state is State.UNSUPPORTED
    assert "singular" in found.reason
    found = ineligible(
        DEMOCRATIC, Candidate("numpy:cpu", "dense"), Case(dtype="bfloat16"), package=demopool
    )
    assert found is not None
    assert found.state is State.UNSUPPORTED


def test_a_package_that_lacks_a_backend_or_an_operation() -> None:
    """An older commit, as the benchmarks meet it."""

    def package(backend: Any) -> Any:
        return SimpleNamespace(
            backend=backend, BackendUnavailable=BackendUnavailable, InvalidInput=InvalidInput
        )

    def absent(name: str) -> Any:
        raise BackendUnavailable(name, "no GPU")

    def unheard_of(name: str) -> Any:
        raise InvalidInput(f"backend must be numpy:cpu; got {name}")

    candidate = Candidate("torch:cuda", "dense")
    found = ineligible(DEMOCRATIC, candidate, SMALL, package=package(absent))
    assert found == (State.UNAVAILABLE, "no GPU")
    found = ineligible(DEMOCRATIC, candidate, SMALL, package=package(unheard_of))
    assert found is not None
    assert found.state is State.UNSUPPORTED


def test_predictions_grow_with_the_case() -> None:
    for subject in SUBJECTS:
        for candidate in subject.candidates(("numpy:cpu",)):
            for predicted in (predicted_seconds, predicted_bytes):
                small, large = cases.named("n196-d256"), cases.named("resnet-b8")
                assert predicted(subject, candidate, small) > 0
                assert predicted(subject, candidate, small) < predicted(subject, candidate, large)


def test_error_of_a_wrong_last_image_shows() -> None:
    wanted = np.stack([np.eye(3), 2 * np.eye(3)])
    right = np.stack([wanted[0], 7 * np.eye(3), wanted[1]])
    assert jobs.relative_error(right, wanted) == 0
    wrong = right.copy()
    wrong[-1, 0, 1] = 0.5
    assert jobs.relative_error(wrong, wanted) == pytest.approx(0.25)


def test_inputs_are_the_same_every_time() -> None:
    for subject in SUBJECTS:
        first, second = jobs.inputs(subject, SMALL), jobs.inputs(subject, SMALL)
        for name in first:
            np.testing.assert_array_equal(first[name], second[name])
            assert first[name].dtype == SMALL.dtype


def test_forward_and_backward_runs_what_it_says() -> None:
    """With a small stand-in for a backend whose tensors carry gradients."""
    torch = pytest.importorskip("torch")
    ops = SimpleNamespace(
        asarray=torch.from_numpy, to_numpy=lambda t: t.detach().numpy(), implementation=None
    )

    def describe(X: Any, descriptor: str, **options: Any) -> Any:
        assert (options["backend"], options["route"]) == ("torch:cpu", "direct")
        return (X.mT @ X).flatten(-2)

    package = SimpleNamespace(backend=lambda name: ops, describe=describe)
    subject = Subject("descriptor", "sum")
    job = jobs.prepare_gradient(package, subject, Candidate("torch:cpu", "direct"), SMALL)
    once = job.to_numpy(job.run()).copy()
    X = jobs.inputs(subject, SMALL)["X"]
    G = np.random.default_rng(1).standard_normal((3, 64)).reshape(3, 8, 8)
    np.testing.assert_allclose(once, X @ (G + np.swapaxes(G, -1, -2)))
    np.testing.assert_allclose(job.to_numpy(job.run()), once)  # gradients do not pile up


def test_named_cases() -> None:
    assert cases.named("vgg-b8", descriptor="power") == Case(descriptor="power", batch=8)
    assert set(cases.NETWORKS) <= set(cases.NAMED)
    with pytest.raises(InvalidInput, match=r"case must be one of vgg-b1.*got 'vgg'"):
        cases.named("vgg")
    for name in cases.NAMED:
        cases.named(name)
