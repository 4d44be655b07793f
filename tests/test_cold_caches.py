"""``choose --cold``: caches are emptied before every timed call, and nothing mixes with warm."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from fake_workers import FakeWorkers, chosen

import demopool as dp
from demopool import pooling
from demopool.choosing import chooser, earlier_samples
from demopool.commands import cli
from demopool.contract import device
from demopool.contract.device import Host
from demopool.problem.candidates import Candidate, Subject
from demopool.problem.cases import Case, from_name, name_of
from demopool.profiles import store
from demopool.trials import jobs, samples, streams
from demopool.trials.streams import ImagePool, Source, Stream

WARM = Case(batch=2, n=30, d=8)
COLD = replace(WARM, caches="cold")
TIMES = {"numpy:cpu/dense": 0.002, "numpy:cpu/matrix-free": 0.005}


class Watched(Host):
    """A GPU, for what it writes down."""

    gpu_index = 0

    def __init__(self, seen: list[str]) -> None:
        self.seen = seen

    def flush_caches(self) -> None:
        self.seen.append("device")


def _seen(case: Case, monkeypatch: pytest.MonkeyPatch, *, on_gpu: bool = False) -> list[str]:
    """What happens in a turn of three calls, after one that is not reported."""
    seen: list[str] = []
    candidate = Candidate("numpy:cpu", "dense")
    job = jobs.prepare(pooling, Subject("descriptor", case.descriptor), candidate, case)

    def run() -> Any:
        seen.append("call")
        return job.run_from_host()

    made = replace(job, run_from_host=run, device=Watched(seen) if on_gpu else job.device)
    monkeypatch.setattr(streams, "_flush_host", lambda: seen.append("host"))
    monkeypatch.setattr(streams, "_waiting", lambda index: None)
    stream = Stream(made, case, Source(ImagePool(3), 2))
    fill = stream._fill
    monkeypatch.setattr(stream, "_fill", lambda slot: (seen.append("features"), fill(slot)))
    assert len(stream.turn(3, 1, thorough=False).seconds) == 3
    return seen


def test_caches_are_emptied_after_features_are_written_and_before_each_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert _seen(WARM, monkeypatch) == 4 * ["features", "call"]
    assert _seen(COLD, monkeypatch) == 4 * ["features", "host", "call"]


def test_a_gpu_has_caches_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _seen(COLD, monkeypatch, on_gpu=True) == 4 * ["features", "host", "device", "call"]
    assert "device" not in _seen(WARM, monkeypatch, on_gpu=True)


def test_every_core_writes_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "host_flush_bytes", lambda: 1 << 16)
    device._flood.cache_clear()
    try:
        before = device._cores()
        for times in (1, 2):
            Host().flush_caches()
            _, shares = device._flood()
            assert [core for core, _ in shares] == before == device._cores()
            assert sum(share.nbytes for _, share in shares) == 1 << 16
            assert all((share == times).all() for _, share in shares)
    finally:
        device._flood.cache_clear()


def test_more_is_written_than_caches_hold() -> None:
    sizes = Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")
    held = [int(size.read_text().strip().removesuffix("K")) * 1024 for size in sizes]
    assert max(held, default=0) < device.host_flush_bytes()


# --- samples and answers ---


def _choose(case: Case, workers: FakeWorkers | None = None) -> Any:
    return chosen(case, workers or FakeWorkers(TIMES))


def test_samples_do_not_mix_and_auto_learns_of_the_warm_alone(quick: None) -> None:
    assert not _choose(COLD).reused
    assert store.here().decided == ()
    assert not _choose(WARM).reused, "a cold race says nothing about a warm one"
    assert [decided.case for decided in store.here().decided] == [WARM]
    assert _choose(COLD).reused
    assert _choose(WARM).reused
    for case in (COLD, WARM):
        kept = list(samples.read(earlier_samples.file(case, 1)))
        assert {sample.case for sample in kept} == {case}


def test_files_of_warm_samples_have_the_name_they_always_had() -> None:
    fields = asdict(WARM)
    assert fields.pop("caches") == "warm"
    digest = hashlib.sha256(json.dumps([fields, 2], sort_keys=True).encode()).hexdigest()[:8]
    assert earlier_samples.file(WARM, 2).stem.endswith(digest)
    assert earlier_samples.file(COLD, 2) != earlier_samples.file(WARM, 2)


def test_a_sample_from_before_is_warm(quick: None) -> None:
    _choose(WARM)
    path = earlier_samples.file(WARM, 1)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for row in rows:
        del row["case"]["caches"]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert _choose(WARM).reused


def test_the_table_of_results_tells_them_apart() -> None:
    names = [name_of(case) for case in (WARM, COLD)]
    assert names == ["batch=2,n=30,d=8", "batch=2,n=30,d=8,caches=cold"]
    assert [from_name(name, "democratic") for name in names] == [WARM, COLD]


def test_a_cold_block_is_one_call_and_discards_none(quick: None) -> None:
    workers = FakeWorkers(TIMES)
    _choose(COLD, workers)
    turns = [seconds for function, _, seconds in workers.asked if function == "run_turn"]
    assert set(turns) == set(TIMES.values())


@pytest.mark.parametrize(
    "times",
    [TIMES, {"numpy:cpu/dense": 0.002, "numpy:cpu/matrix-free": 0.00201}],
    ids=["fastest", "tie"],
)
def test_the_answer_says_that_caches_were_cold(times: dict[str, float], quick: None) -> None:
    workers = FakeWorkers(times)
    found = _choose(COLD, workers)
    assert " with cold caches" in found.sentence
    assert "data on the host, cold caches\n" in str(found)
    assert "Caches were emptied before every timed call" in str(found)
    assert "cold" not in str(_choose(WARM))


def test_an_undecided_answer_says_it_too(quick: None) -> None:
    workers = FakeWorkers({"numpy:cpu/dense": 0.002, "numpy:cpu/matrix-free": 0.0021})
    given: dict[str, Any] = {"workers": workers, "now": workers.clock, "budget": 0.1}
    found = chooser.choose(COLD, backends=("numpy:cpu",), **given)
    assert "Unknown: probably numpy:cpu/dense with cold caches" in found.sentence


# --- with processes ---


def test_a_cold_race_on_a_small_case(empty_profile: None) -> None:
    found = dp.choose(COLD, backends=["numpy:cpu"], budget=2.0, threads=1)
    assert found.case.is_cold
    assert {row.state for row in found.rows} <= {"ok", "timeout"}, str(found)
    assert any(row.median_s for row in found.rows), str(found)
    assert found.as_result()["case"]["caches"] == "cold"


def test_the_option(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Case] = []

    def chosen(case: Case, **options: Any) -> Any:
        asked.append(case)
        return _choose(case)

    monkeypatch.setattr("demopool.commands.choose.choose", chosen)
    for options in ((), ("--cold",)):
        done = CliRunner().invoke(cli, ["choose", "--n", "30", "--d", "8", *options, "--json"])
        (result,) = json.loads(done.stdout)["results"]
        assert result["case"]["caches"] == asked[-1].caches
    assert [case.caches for case in asked] == ["warm", "cold"]
    done = CliRunner().invoke(cli, ["choose", "--sweep", "n=9", "d=4", "--cold"])
    assert "Caches were emptied before every timed call." in done.output
