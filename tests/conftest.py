"""The backends that the tests run on, and a summary that names every skip."""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from demopool.choosing import racing, rule
from demopool.choosing.conforming import Conformance
from demopool.commands import main
from demopool.common import places
from demopool.contract import registry
from demopool.problem.candidates import Candidate
from demopool.problem.vocabulary import BACKENDS
from demopool.profiles import file_format, store

# No time limits (machines are noisy), and the same examples on every run.
hypothesis.settings.register_profile(
    "demopool", deadline=None, derandomize=True, max_examples=25, database=None
)
hypothesis.settings.load_profile("demopool")

# Read now: tests remove the variable, so that it does not make their child processes fail.
REQUIRED = registry.required()


# A background job starts with signals ignored, and so would every process that a test starts and
# interrupts: a child inherits "ignored", but not a handler. The tests themselves go on after a
# closed terminal, as nohup promises.
for number, handler in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGQUIT, lambda *_: None),
    (signal.SIGHUP, lambda *_: None),
):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)


def pytest_report_header() -> list[str]:
    return [
        f"backends usable here: {', '.join(registry.available())}",
        f"backends required by {registry.REQUIRED_VARIABLE}: {', '.join(REQUIRED) or 'none'}",
    ]


def pytest_sessionstart() -> None:
    """Fail the run if a required backend is absent, instead of skipping its tests."""
    for name in REQUIRED:
        registry.demand(name)


_EMULATING = ("test_ptx_", "test_cupy_", "test_triton")
_EMULATED = tuple(name for name in BACKENDS if name.is_emulated)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that execute GPU code on the CPU can be run, or left out, by themselves."""
    for item in items:
        in_gpu = item.path.parent.name == "gpu"
        named = any(name in item.name for name in _EMULATED)
        if in_gpu or named or item.path.name.startswith(_EMULATING):
            item.add_marker("emulated")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reasons = Counter(
        str(report.longrepr[2]) if isinstance(report.longrepr, tuple) else str(report.longrepr)
        for report in terminalreporter.stats.get("skipped", [])
    )
    terminalreporter.write_line(f"{sum(reasons.values())} skipped")
    for reason, count in reasons.most_common():
        terminalreporter.write_line(f"  {count} x {reason}")


# GPU code executed on the CPU is slow: it is checked cell by cell (test_conformance.py), and has
# its own test files.
WRITTEN = [
    name for name in registry.names() if registry.entry(name).capabilities and name not in _EMULATED
]


@pytest.fixture(
    params=[
        pytest.param(name, marks=[pytest.mark.gpu] if name.endswith(":cuda") else [])
        for name in WRITTEN
    ]
)
def usable(request: pytest.FixtureRequest) -> str:
    """Each implemented backend; an absent one is skipped with its reason."""
    found = registry.probe(request.param)
    if found.state != "ok":
        pytest.skip(f"{request.param}: {found.reason}")
    return str(request.param)


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Use a separate cache: no test reads or changes this user's measurements."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(places.VARIABLE, str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(autouse=True, scope="session")
def _ours_conform() -> Iterator[None]:
    """Races of tests do not judge our backends again, as test_conformance.py does."""
    judged = Conformance.refusal

    def refusal(self: Conformance, candidate: Candidate, *rest: Any) -> Any:
        return None if candidate.backend in BACKENDS else judged(self, candidate, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Conformance, "refusal", refusal)
        yield


@pytest.fixture(autouse=True)
def _fresh_look() -> None:
    """Tests have caches of their own, and do not wait until a process looks again where it is."""
    store.forget()


@pytest.fixture
def empty_profile(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing was measured on this machine, and every warning of a file is given again."""
    monkeypatch.setenv(places.VARIABLE, str(tmp_path))
    monkeypatch.setattr(file_format, "_warned", set())


@pytest.fixture
def seeded_torch() -> Iterator[None]:
    """The same random tensors for every test, and one thread."""
    import torch

    torch.manual_seed(0)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """An environment for child processes, without terminal settings and required backends."""
    for name in (registry.REQUIRED_VARIABLE, "COLUMNS", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    return dict(os.environ)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Rounds of one turn, without pauses, on a machine that nobody else uses."""
    monkeypatch.setattr(rule, "ROUND_SECONDS", 0.0)
    monkeypatch.setattr(racing, "PAUSE", 0.0)
    monkeypatch.setattr(racing.Others, "cores", lambda self: 0.0)
    monkeypatch.setenv(places.VARIABLE, str(tmp_path))


@pytest.fixture
def command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """``demopool`` in this process: exit code, output, errors."""
    monkeypatch.setenv("COLUMNS", "120")

    def called(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["demopool", *map(str, arguments)])
        with pytest.raises(SystemExit) as done:
            main()
        code = done.value.code
        assert isinstance(code, int)
        return code, *capsys.readouterr()

    return called


@pytest.fixture
def run(
    command: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[int, str, str]]:
    """``demopool history`` in a project (made_history.py), its output on one line."""

    def called(project: Any, *arguments: object) -> tuple[int, str, str]:
        monkeypatch.chdir(project.folder)
        code, out, errors = command("history", *arguments)
        return code, " ".join(out.split()), errors

    return called
