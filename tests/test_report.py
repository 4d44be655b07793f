"""The report: what it claims, what it draws, and that it needs nothing from outside."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("matplotlib")
pytest.importorskip("pandas")

from demopool import places, profiles, samples
from demopool.answers import Choice, Row
from demopool.cases import Case, named
from demopool.report import build, claims, data
from demopool.report.data import Fact
from demopool.samples import Sample
from demopool.vocabulary import State, Verdict


def _fact(candidate: str, case: Case, value: float, measure: str = "call_s") -> Fact:
    backend, _, route = candidate.partition("/")
    return Fact("m", backend, route, case, measure, value)


VGG_POWER = named("vgg-b1", descriptor="power")
RESNET = {d: named("resnet-b1", descriptor=d) for d in ("power", "sketched-democratic")}


def test_claims_are_judged_from_what_was_measured() -> None:
    facts = [
        _fact("numpy:cpu/dense", named("vgg-b1"), 0.005),
        _fact("numpy:cpu/newton", VGG_POWER, 0.060),
        _fact("numpy:cpu/eigh", VGG_POWER, 0.004),
        _fact("numpy:cpu/gram", RESNET["power"], 90e6, "peak_host_bytes"),
        _fact("numpy:cpu/dense+fft", RESNET["sketched-democratic"], 6e6, "peak_host_bytes"),
    ]
    newton, exact, *_, sketched = claims.judged(facts, here="m")
    assert newton.holds is True
    assert "12.0x faster" in newton.here
    assert exact.holds is False
    assert "1.2x slower" in exact.here
    assert "[on" not in newton.here
    assert sketched.holds is None
    assert "demopool choose --descriptor sketched-power --case resnet-b1" in sketched.here
    by_claim = {j.claim: j for j in claims.judged(facts)}
    memory = next(j for c, j in by_claim.items() if "two orders" in c)
    assert memory.holds is False
    assert "15.0x less" in memory.here


def test_times_of_two_machines_are_not_compared_with_each_other() -> None:
    facts = [
        _fact("numpy:cpu/dense", named("vgg-b1"), 0.005),
        _fact("numpy:cpu/newton", VGG_POWER, 0.060)._replace(machine="another"),
    ]
    assert claims.judged(facts)[0].holds is None


def test_a_claim_judged_by_another_machine_names_it() -> None:
    source = "asv, commit 12345678"
    facts = [
        _fact("numpy:cpu/dense", named("vgg-b1"), 0.005)._replace(source=source),
        _fact("numpy:cpu/newton", VGG_POWER, 0.060)._replace(source=source),
    ]
    assert claims.judged(facts, here="x")[0].here.endswith(f"[on m, {source}]")


def test_times_of_other_races_and_of_other_code_are_not_mixed() -> None:
    case = Case(n=9, d=9)

    def sample(measure: str, value: float, **of: Any) -> Sample:
        return Sample("numpy:cpu", "dense", case, measure, value, fingerprint="f", **of)

    old = [sample("lowest_s", 9.0, round=i, session="a", code="old") for i in range(1, 31)]
    new = [sample("lowest_s", 1.0, round=i, session="b", code="new") for i in range(1, 16)]
    (fact,) = data._of_samples([*old, *new])
    assert fact.value == 1.0
    calls = [sample("call_s", value) for value in (1.0, 1.0, 1.0, 1.0, 50.0)]
    (fact,) = data._of_samples(calls)
    assert fact.value == 1.0
    (fact,) = data._of_samples([sample("error", 3.0), sample("error", 2.0)])
    assert fact.value == 2.0


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A cache with races over a grid of sizes, a folder without asv results."""
    cache = tmp_path / "cache"
    monkeypatch.setenv(places.VARIABLE, str(cache))
    monkeypatch.chdir(tmp_path)
    key = profiles._key()
    for n in (49, 196, 784):
        for d in (64, 256, 1024):
            case = Case(n=n, d=d)
            times = {
                "numpy:cpu/dense": 1e-9 * n * n * d,
                "numba:cpu/dense": 2e-9 * n * n * d + 1e-6 * n,
                "numpy:cpu/matrix-free": 1e-9 * n * d * d,
            }
            best = min(times, key=lambda name: times[name])
            rows, kept = [], []
            for name, t in times.items():
                backend, _, route = name.partition("/")
                rows.append(Row(backend, route, State.OK, Verdict.SLOWER, median_s=t))
                common = {"fingerprint": key, "session": "s"}
                for r in (1, 2, 3):
                    kept.append(Sample(backend, route, case, "lowest_s", t, round=r, **common))
                kept.append(Sample(backend, route, case, "peak_host_bytes", 1e6 + n, **common))
            samples.append(cache / "samples" / f"{n}-{d}.jsonl", kept)
            backend, _, route = best.partition("/")
            answer = Choice(
                case, Verdict.FASTEST, backend, route, "", tuple(rows), 2, 1.0, 3, fingerprint=key
            )
            assert profiles.remember(answer) == ""
    return tmp_path / "out"


def test_the_report_is_one_page_with_pictures_beside_it(measured: Path) -> None:
    page, *pictures = build(measured)
    names = {path.name for path in pictures}
    assert {"democratic-over-n.png", "democratic-over-d.png", "democratic-map.png"} <= names
    assert "democratic-pareto.png" in names
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in pictures)
    text = page.read_text()
    for heading in ("Recommendation", "claims", "supported", "Machine", "How it was measured"):
        assert heading in text
    assert "numpy:cpu, dense" in text
    # Nothing from outside: every address is inside the page.
    assert not re.findall(r"""(?:src|href)=["'](?!data:)""", text)
    assert "<script" not in text
    assert text.count("data:image/png") == len(pictures)


def test_a_report_of_nothing_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(places.VARIABLE, str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    (page,) = build(tmp_path / "out")
    assert "Nothing was measured here yet" in page.read_text()
    assert "not measured: demopool choose" in page.read_text()


def test_races_and_asv_results_are_one_list_of_facts(measured: Path) -> None:
    facts, _ = data.gather(())
    case = Case(n=196, d=256)
    found = data.best(facts, "call_s", case, ("dense",))
    assert found is not None
    assert found.candidate == "numpy:cpu/dense"
    assert found.value == pytest.approx(1e-9 * 196 * 196 * 256)


def test_the_command_writes_and_tells(measured: Path, plain_environment: dict[str, str]) -> None:
    command = [sys.executable, "-m", "demopool", "report", "-o", str(measured), "--json"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env=plain_environment
    )
    told = json.loads(done.stdout)
    assert told["schema"] == 1
    assert all(Path(file).is_file() for file in told["files"])
    in_the_way = measured.parent / "file"
    in_the_way.write_text("")
    command[5] = str(in_the_way / "x")
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=plain_environment
    )
    assert done.returncode == 2
    assert "cannot be written" in done.stderr
