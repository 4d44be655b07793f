"""Which backends the tests run on, and a summary that cannot hide a skip."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator

import hypothesis
import pytest

from demopool import places, registry

# No time limits (machines are noisy), and the same examples on every run.
hypothesis.settings.register_profile(
    "demopool", deadline=None, derandomize=True, max_examples=25, database=None
)
hypothesis.settings.load_profile("demopool")

# A child process of a test must not fail because of what CI asks of this one.
REQUIRED = registry.required()


# A background job of a script starts with SIGINT ignored, and so would every process that a test
# starts and interrupts: a child inherits "ignored", but not a handler.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_report_header() -> list[str]:
    return [
        f"backends usable here: {', '.join(registry.available())}",
        f"backends required by {registry.REQUIRED_VARIABLE}: {', '.join(REQUIRED) or 'none'}",
    ]


def pytest_sessionstart() -> None:
    """A required backend that is absent fails the run, it does not skip its tests."""
    for name in REQUIRED:
        registry.demand(name)


_EMULATING = ("test_ptx_", "test_cupy_")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that execute GPU code on the CPU are slow, and measure nothing: several processes may
    run them, which ``make unit`` does."""
    for item in items:
        in_gpu = item.path.parent.name == "gpu"
        if in_gpu or item.path.name.startswith(_EMULATING) or ":ptx-" in item.name:
            item.add_marker("emulated")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reasons = Counter(
        str(report.longrepr[2]) if isinstance(report.longrepr, tuple) else str(report.longrepr)
        for report in terminalreporter.stats.get("skipped", [])
    )
    terminalreporter.write_line(f"{sum(reasons.values())} skipped")
    for reason, count in reasons.most_common():
        terminalreporter.write_line(f"  {count} x {reason}")


# GPU code executed from its PTX is slow: it is judged cell by cell (test_conformance.py), and has
# test files of its own.
WRITTEN = [
    name
    for name in registry.names()
    if registry.entry(name).capabilities and not name.endswith(":ptx")
]


@pytest.fixture(
    params=[
        pytest.param(name, marks=[pytest.mark.gpu] if name.endswith(":cuda") else [])
        for name in WRITTEN
    ]
)
def usable(request: pytest.FixtureRequest) -> str:
    """Each backend that is written; one that is absent is skipped with its reason."""
    found = registry.probe(request.param)
    if found.state != "ok":
        pytest.skip(f"{request.param}: {found.reason}")
    return str(request.param)


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test reads what this user has measured, or writes into it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(places.VARIABLE, str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """For child processes: no terminal settings and no required backends."""
    for name in (registry.REQUIRED_VARIABLE, "COLUMNS", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    return dict(os.environ)
