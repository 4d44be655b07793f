"""Profiles, the fitted model, and what ``auto`` takes because of them."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from races import CASE, HERE, TIMES, choice

import demopool as dp
from demopool.choosing.answer_types import Choice, Ranked
from demopool.contract import Probe, registry
from demopool.errors import InvalidInput, Unsupported
from demopool.machine.system import usual_threads
from demopool.measurement.code_identity import code_key
from demopool.pooling import description
from demopool.problem import vocabulary
from demopool.problem.candidates import Candidate, Subject
from demopool.problem.cases import Case
from demopool.problem.vocabulary import State, Verdict
from demopool.profiles import auto, costs, estimates, store
from demopool.profiles.store import Decided, Measured

pytestmark = pytest.mark.usefixtures("empty_profile")


def test_without_measurements_the_array_stays_at_home() -> None:
    found = dp.explain((2, 40, 12))
    assert (found.backend, found.because) == ("numpy:cpu", "default")
    assert {option.backend for option in found.options} == {"numpy:cpu"}


def test_a_measured_case_is_taken_as_recommended() -> None:
    assert store.remember(choice(CASE, TIMES, "numpy:cpu/matrix-free")) == ""
    found = dp.explain((2, 40, 12), gamma=0.3)  # which the time does not depend on
    assert (found.backend, found.route, found.because) == ("numpy:cpu", "matrix-free", "measured")
    assert "measured here, fastest among 3" in found.sentence
    measured = {(o.backend, o.route): o.measured_s for o in found.options}
    assert measured["numpy:cpu", "dense"] == 3e-4
    assert dp.explain((2, 40, 12), iterations=20).because == "model"
    assert dp.explain((2, 40, 13)).because == "model"


def test_describe_goes_where_auto_says(monkeypatch: pytest.MonkeyPatch) -> None:
    X = np.random.default_rng(0).random((2, 40, 12), dtype=np.float32)
    store.remember(choice(CASE, TIMES, "numba:cpu/dense"))
    used: list[str] = []
    genuine = description.operations_of
    monkeypatch.setattr(
        description, "operations_of", lambda name: used.append(name) or genuine(name)
    )
    y = dp.describe(X, "democratic")
    assert "numba:cpu" in used
    assert isinstance(y, np.ndarray)
    np.testing.assert_allclose(y, dp.describe(X, "democratic", backend="numpy:cpu"), atol=1e-5)


def test_a_tensor_stays_in_torch() -> None:
    torch = pytest.importorskip("torch")
    store.remember(choice(CASE, TIMES, "numba:cpu/dense"))
    X = torch.rand(2, 40, 12, requires_grad=True)
    assert isinstance(dp.describe(X, "democratic"), torch.Tensor)


def test_a_tensor_goes_to_another_backend_for_its_kind_of_array(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a GPU, as choose measured it there: to Triton's kernels, not to CuPy's."""
    monkeypatch.setattr(registry, "probe", lambda name: Probe(State.OK))
    case = replace(CASE, data="device")
    names = ("torch:cuda/dense", "triton:cuda/dense", "cupy:cuda/dense")
    times = dict(zip(names, (3e-4, 2e-4, 1e-4), strict=True))
    store.remember(choice(case, times, "cupy:cuda/dense"))
    assert auto.pick(case, home="torch:cuda") == ("triton:cuda", "dense")
    assert auto.pick(case, home="torch:cuda", backend="torch:cuda").backend == "torch:cuda"
    assert auto.pick(case, home="cupy:cuda") == ("cupy:cuda", "dense")
    assert auto.pick(case, home="numba:cuda").backend == "numba:cuda"
    found = dp.explain((2, 40, 12), home="torch:cuda")
    assert found.backend == "triton:cuda"
    assert "measured here (200 us), the lowest of 2;" in found.sentence
    alone = dp.explain((2, 40, 12), home="torch:cuda", backend="torch:cuda")
    assert "measured here (300 us), as no other in the choice was;" in alone.sentence


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # in make_dual
def test_a_tensor_that_only_torch_can_work_on_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    asked: list[str] = []

    def pick(case: Case, *, backend: str, **how: str) -> tuple[str, str]:
        asked.append(backend)
        return "torch:cpu", "dense"

    monkeypatch.setattr(description.auto, "pick", pick)
    X = torch.rand(2, 40, 12)
    dp.describe(X, "democratic")
    dp.describe(X.clone().requires_grad_(), "democratic")
    torch.func.vmap(lambda x: dp.describe(x, "democratic", check=False))(X[None])
    dp.describe(torch._neg_view(X), "democratic")
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(X, torch.ones_like(X))
        dp.describe(dual, "democratic", check=False, normalize="none")
    assert asked == ["auto", *["torch:cpu"] * 4]


def test_only_backends_that_were_right_and_measured_come_into_question() -> None:
    store.remember(choice(CASE, {"numpy:cpu/dense": 1e-4}, "numpy:cpu/dense"))
    found = dp.explain((8, 100, 20))
    assert {option.backend for option in found.options} == {"numpy:cpu"}


def test_what_is_named_is_respected() -> None:
    store.remember(choice(CASE, TIMES, "numba:cpu/dense"))
    assert dp.explain((2, 40, 12), backend="numpy:cpu").backend == "numpy:cpu"
    assert dp.explain((2, 40, 12), route="matrix-free").route == "matrix-free"
    assert dp.explain((50, 20), "power", route="newton").route == "newton"
    with pytest.raises(Unsupported):
        dp.explain((2, 40, 12), "power", p=0.3, route="polar")


def _route(descriptor: str) -> str:
    return dp.explain((1, 12, 2048), descriptor, backend="numpy:cpu").route


def test_the_fitted_model_decides_what_was_not_measured() -> None:
    """Measurements that say scatters are cheap here change an answer, also for a descriptor that
    was never measured; deleting the coefficients changes that one back."""
    assert (_route("sketched-sum"), _route("sketched-democratic")) == ("fft", "dense+fft")
    measured = Case(descriptor="sketched-sum", batch=1, n=16, d=2048, k=8192)
    times = {"numpy:cpu/fft": 5e-2, "numpy:cpu/moment": 1e-4}
    store.remember(choice(measured, times, "numpy:cpu/moment"))
    after = dp.explain((1, 12, 2048), "sketched-sum", backend="numpy:cpu")
    assert (after.route, after.because) == ("moment", "model")
    assert _route("sketched-democratic") == "dense+moment"
    path = store.path_here()
    stored = json.loads(path.read_text())
    stored["coefficients"] = {}
    path.write_text(json.dumps(stored))
    store.forget()
    assert _route("sketched-democratic") == "dense+fft"


def test_what_the_model_missed_nearby_corrects_it() -> None:
    """The model says dense is cheaper at these sizes; two measured neighbours say it is not, and
    sizes far from them are left to the model."""
    for n in (90, 110):
        case = Case(batch=1, n=n, d=64)
        dense, free = (
            costs.seconds("numpy:cpu", "weights", route, case) for route in ("dense", "matrix-free")
        )
        assert dense < free
        times = {"numpy:cpu/dense": 100 * free, "numpy:cpu/matrix-free": free / 100}
        store.remember(choice(case, times, "numpy:cpu/matrix-free"))
    profile = store.here()
    near, far = Case(batch=1, n=100, d=64), Case(batch=64, n=6400, d=64)
    name = Candidate("numpy:cpu", "dense")
    assert estimates.correction(name, near, profile) > 3 * estimates.correction(name, far, profile)
    assert estimates.correction(name, far, profile) < 1.1
    assert dp.explain((1, 100, 64), backend="numpy:cpu").route == "matrix-free"


def test_operations_take_the_fitted_route(monkeypatch: pytest.MonkeyPatch) -> None:
    sketched = Case(descriptor="sketched-sum", batch=1, n=16, d=600, k=512)
    store.remember(
        choice(sketched, {"numpy:cpu/fft": 9e-2, "numpy:cpu/moment": 1e-5}, "numpy:cpu/moment")
    )
    prices = estimates.prices("numpy:cpu", "float32")
    assert prices != costs.coefficients("numpy:cpu", "float32")
    shape = (1, sketched.n, sketched.d)
    assert auto.pick_route("numpy:cpu", "pool_sketch", shape, "float32", k=512) == "moment"


def test_the_fit_finds_the_coefficients_of_recorded_times() -> None:
    """A machine with other speeds, four cases per kind of work, and 3 % of noise."""
    rng = np.random.default_rng(0)
    shipped = costs.coefficients("numpy:cpu", "float32")
    true = {
        kind: value * factor
        for (kind, value), factor in zip(
            shipped.items(), (0.5, 2.0, 3.0, 1.0, 0.4, 2.5, 1.7, 0.8, 1.2), strict=True
        )
    }
    decided = []
    for descriptor in vocabulary.DESCRIPTORS:
        subject = Subject("descriptor", descriptor)
        for n, d in ((49, 64), (196, 512), (784, 128), (3136, 64), (300, 300)):
            case = Case(descriptor=descriptor, n=n, d=d)
            measured = []
            for route in subject.routes():
                if "newton" in route and n < d:
                    continue
                counts = costs.counts_of("numpy:cpu", subject.steps(route), case)
                seconds = sum(true[kind] * count for kind, count in counts.items())
                noisy = float(seconds * np.exp(rng.normal(0, 0.03)))
                measured.append(Measured("numpy:cpu", route, noisy, "slower"))
            decided.append(Decided(case, 2, "fastest", "numpy:cpu", "x", tuple(measured)))
    fitted = store.fit(tuple(decided))["numpy:cpu"]["float32"]
    wrong_before = wrong_after = total = 0
    for answer in decided:
        subject = Subject("descriptor", answer.case.descriptor)
        for m in answer.candidates:
            counts = costs.counts_of("numpy:cpu", subject.steps(m.route), answer.case)
            for prices, how in ((shipped, "before"), (fitted, "after")):
                predicted = sum(prices[kind] * count for kind, count in counts.items())
                off = not 1 / 1.3 < predicted / m.seconds < 1.3
                if how == "before":
                    wrong_before += off
                else:
                    wrong_after += off
            total += 1
    assert wrong_before > total / 2
    assert wrong_after < total / 20


def test_a_foreign_profile_is_set_aside_with_a_warning() -> None:
    store.remember(choice(CASE, TIMES, "numba:cpu/dense", fingerprint="another"))
    assert store.here() == store.Profile()
    store._path("another").rename(store.path_here())
    store.forget()
    with pytest.warns(RuntimeWarning, match="another machine"):
        assert store.here() == store.Profile()


def test_a_backend_that_went_away_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    store.remember(choice(CASE, {**TIMES, "gone:cpu/dense": 1e-6}, "gone:cpu/dense"))
    with pytest.raises(dp.InvalidInput):
        registry.probe("gone:cpu")
    assert dp.explain((2, 40, 12)).backend in ("numpy:cpu", "numba:cpu")


def test_an_answer_does_not_make_way_for_less() -> None:
    """Neither for that of a restricted or interrupted race, nor for a doubt; but for a new one."""
    store.remember(choice(CASE, TIMES, "numba:cpu/dense"))
    few = {"numpy:cpu/dense": 3e-4, "numpy:cpu/matrix-free": 4e-4}
    store.remember(choice(CASE, few, "numpy:cpu/dense", whole=False))
    store.remember(choice(CASE, TIMES, "numpy:cpu/dense", state=Verdict.UNKNOWN))
    assert dp.explain((2, 40, 12)).backend == "numba:cpu"
    store.remember(choice(CASE, TIMES, "numpy:cpu/dense"))
    assert dp.explain((2, 40, 12)).backend == "numpy:cpu"


def test_a_restricted_race_gives_times_but_no_answer() -> None:
    store.remember(choice(CASE, {"numpy:cpu/matrix-free": 4e-4}, "numpy:cpu/dense", whole=False))
    found = dp.explain((2, 40, 12))
    assert found.because == "model"
    assert store.here().coefficients


def test_what_was_measured_of_other_code_does_not_count() -> None:
    codes = {name: code_key(name) for name in ("numpy:cpu", "numba:cpu")}
    assert len(set(codes.values())) == 2
    store.remember(choice(CASE, TIMES, "numba:cpu/dense", codes=codes))
    assert dp.explain((2, 40, 12)).because == "measured"
    store.remember(choice(CASE, TIMES, "numba:cpu/dense", codes={**codes, "numba:cpu": "old"}))
    found = dp.explain((2, 40, 12))
    assert (found.backend, found.because) == ("numpy:cpu", "model")


def test_answers_of_other_numbers_of_threads_live_side_by_side() -> None:
    for threads, best in ((7, "numpy:cpu/dense"), (usual_threads(), "numba:cpu/dense")):
        store.remember(choice(CASE, TIMES, best, threads=threads))
    assert dp.explain((2, 40, 12)).backend == "numba:cpu"
    other = Case(n=9, d=9)
    store.remember(choice(other, TIMES, "numba:cpu/dense", threads=7))
    assert "(with threads=7)" in dp.explain((9, 9)).sentence


def test_who_was_wrong_or_died_is_not_taken_for_such_cases() -> None:
    wrong = Ranked("numba:cpu", "dense", State.WRONG, reason="its error is 3")
    right = Ranked("numpy:cpu", "dense", State.OK, Verdict.FASTEST, median_s=3e-4)
    other = Case(descriptor="sum", n=9, d=9)
    store.remember(choice(other, {"numba:cpu/direct": 1e-6}, "numba:cpu/direct"))
    store.remember(choice(CASE, {}, "numpy:cpu/dense", rows=(right, wrong)))
    found = dp.explain((3, 50, 30))
    reasons = {(o.backend, o.route): o.reason for o in found.options}
    assert reasons["numba:cpu", "dense"] == "its error is 3"
    assert (found.backend, found.route) != ("numba:cpu", "dense")
    assert dp.explain((9, 9), "sum").backend == "numba:cpu"


def test_a_shape_without_two_sizes_is_refused() -> None:
    with pytest.raises(InvalidInput, match="shape must be"):
        dp.explain((16,))


def test_where_an_array_is_goes_by_its_home() -> None:
    with pytest.raises(InvalidInput, match=r'use home="torch:cuda"'):
        dp.explain((2, 40, 12), data="device")


@pytest.mark.parametrize(
    ("home", "owner"),
    [
        ("numba:cpu", "NumPy arrays belong to numpy:cpu"),
        ("triton:cuda", "torch tensors on a GPU belong to torch:cuda"),
        ("triton:interpreter", "torch tensors on the CPU belong to torch:cpu"),
    ],
)
def test_home_is_the_backend_that_owns_the_array(
    home: str, owner: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "probe", lambda name: Probe(State.OK))
    with pytest.raises(InvalidInput, match=f"{owner}, not to {home}"):
        dp.explain((2, 40, 12), home=home)


def test_describe_asks_for_the_dtype_it_works_in(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    pick = auto.pick
    monkeypatch.setattr(auto, "pick", lambda case, **how: seen.append(case) or pick(case, **how))
    dp.describe(np.ones((2, 4, 3), np.float32), "sum", backend="auto", dtype="float64")
    assert [case.dtype for case in seen] == ["float64"]


def test_nothing_is_kept_of_a_race_without_times() -> None:
    empty = Choice(CASE, Verdict.UNKNOWN, "numpy:cpu", "dense", "", (), 2, 1.0, 0, fingerprint=HERE)
    assert store.remember(empty) == ""
    assert store.here() == store.Profile()


def _explain(*arguments: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "demopool", "explain", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=env, timeout=60)


def test_explain_says_what_is_wrong_with_a_name(plain_environment: dict[str, str]) -> None:
    done = _explain("--route", "foo", env=plain_environment)
    assert done.returncode == 2
    assert "route must be auto or one of dense, matrix-free, dense-cublas, " in done.stderr
    absent = next((b for b in registry.names() if b not in registry.available()), None)
    if absent:
        done = _explain("--backend", absent, env=plain_environment)
        assert done.returncode != 0
        assert f"{absent} is not available: " in done.stderr


def test_explain_takes_the_dtypes_of_the_home(plain_environment: dict[str, str]) -> None:
    pytest.importorskip("torch")
    done = _explain("--dtype", "bfloat16", "--home", "torch:cpu", env=plain_environment)
    assert done.stdout.startswith("torch:cpu/")
    done = _explain("--dtype", "bfloat16", env=plain_environment)
    assert done.returncode == 1
    assert "numpy:cpu takes float16, float32, float64, not bfloat16" in done.stderr


def test_explain_keeps_names_whole_at_80_columns(plain_environment: dict[str, str]) -> None:
    job = ("--descriptor", "sketched-power", "--n", "500000", "--d", "20000")
    done = _explain(*job, env=plain_environment | {"COLUMNS": "80"})
    assert "numpy:cpu/newton-schulz+moment " in done.stdout
    assert max(map(len, done.stdout.splitlines()[1:])) <= 80
    assert "e+0" not in done.stdout
    assert " h " in done.stdout
