"""Commands in broken surroundings: a sentence or silence, and the right exit code."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from effort import cases

from demopool.common import places

COMMANDS = {
    "backends": ("backends", "--json"),
    "check": ("check", "numpy:cpu", "--quick", "--operation", "pool"),
    "choose": ("choose", "--help"),
    "explain": ("explain",),
    "history": ("history",),
    "report": ("report", "-o", "out"),
}
CODES = {"history": 2}
"""There is nothing to read, which it says; all others are fine."""


@pytest.fixture
def env(plain_environment: dict[str, str], tmp_path: Path) -> dict[str, str]:
    return {**plain_environment, places.VARIABLE: str(tmp_path / "cache")}


def in_shell(line: str, env: dict[str, str], cwd: Path) -> subprocess.CompletedProcess[str]:
    """A line of bash in which ``demopool`` is the command; its code is that of the pipe."""
    line = f'demopool() {{ "{sys.executable}" -m demopool "$@"; }}; set -o pipefail; {line}'
    return subprocess.run(
        ["bash", "-c", line],
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_in_broken_surroundings(
    name: str, env: dict[str, str], tmp_path: Path
) -> None:
    """One process after the other, each in another kind of trouble."""
    pytest.importorskip("pandas")
    pytest.importorskip("matplotlib")
    command, fine = "demopool " + " ".join(COMMANDS[name]), CODES.get(name, 0)
    full = "No space left on device" if fine == 0 else "There are no asv results"
    gone = "mkdir gone && cd gone && rmdir ../gone && "
    # What is done, its exit code, and what the sentence on standard error says, if there is one.
    troubles = [
        (f"{command} >/dev/full", fine or 1, full),
        (f"{command} | true", fine, ""),  # as `| head -1`, but before the first line
        (f"{command} >&-", fine, ""),
        (f"{command} <&- >&- 2>&-", fine, ""),
        (f"{command} 2>/dev/full", fine, ""),
        (f"{gone}{command}", 2 if name == "report" else fine, ""),
    ]
    # A draw has two for each command, and each for two commands.
    first = list(COMMANDS).index(name) % 3
    for line, code, sentence in cases(troubles, troubles[first::3]):
        done = in_shell(line, env, tmp_path)
        assert done.returncode == code, (line, done)
        assert sentence in " ".join(done.stderr.split()), (line, done)
        # `check` writes a line for every cell.
        told = [said for said in done.stderr.splitlines() if not said.startswith("numpy:cpu ")]
        assert len(told) == (code != 0 and "2>" not in line), (line, done)


def test_what_is_opened_does_not_take_the_place_of_a_closed_stream(
    env: dict[str, str], tmp_path: Path
) -> None:
    done = in_shell(
        "demopool check numpy:cpu --quick --operation pool --output f >&-", env, tmp_path
    )
    assert done.returncode == 0
    assert (tmp_path / "f").read_text().startswith("{")


def test_a_terminal_that_knows_only_ascii(env: dict[str, str], tmp_path: Path) -> None:
    done = in_shell("demopool explain", {**env, "PYTHONIOENCODING": "ascii"}, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


# --- signals ---


SLOW = """
import sys, time
import {before}

class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == {name!r}:
            print("importing", flush=True)
            time.sleep(60)

sys.meta_path.insert(0, Slow())
sys.argv = ["demopool", "backends"]
{start}
"""


@pytest.mark.parametrize("start", ["script", "module"])
def test_ctrl_c_while_importing(start: str, env: dict[str, str]) -> None:
    """As the installed script imports it, and as ``python -m`` does."""
    line = {
        "script": "from demopool.__main__ import main; main()",
        "module": "import runpy; runpy.run_module('demopool', run_name='__main__')",
    }[start]
    code = SLOW.format(before="os", name="rich.console", start=line)
    child = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env
    )
    assert child.stdout is not None
    assert child.stdout.readline() == b"importing\n"
    child.send_signal(signal.SIGINT)
    _, errors = child.communicate(timeout=60)
    assert (child.returncode, errors) == (130, b"demopool: interrupted\n")


def test_children_of_tests_get_every_signal() -> None:
    """Wherever the tests were started: ``nohup make test &`` ignores some, which is inherited."""
    code = (
        "import signal as s\n"
        "print(*(n.name for n in (s.SIGINT, s.SIGHUP, s.SIGQUIT) if s.getsignal(n) is s.SIG_IGN))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_the_package_is_light_until_something_is_used() -> None:
    """Else Ctrl-C could come before the command line is reached."""
    code = "import sys, demopool; print('numpy' in sys.modules, demopool.describe.__module__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "demopool.pooling.description"]


def test_every_public_name_is_there() -> None:
    import demopool

    for name in demopool.__all__:
        assert getattr(demopool, name) is not None
    assert demopool.conformance.check is demopool.check
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        demopool.nonsense  # noqa: B018


def test_sigterm_gives_the_cursor_back(env: dict[str, str], tmp_path: Path) -> None:
    code = (
        "import time, sys\n"
        "from demopool.commands import output, streams\n"
        "streams.prepare()\n"
        "with output.progress('waiting') as report:\n"
        "    report(1, 2, 'x')\n"
        "    time.sleep(60)\n"
    )
    master, terminal = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-c", code], env={**env, "TERM": "xterm"}, stderr=terminal
    )
    os.close(terminal)
    seen = b""
    while b"\x1b[?25l" not in seen:
        seen += os.read(master, 1000)
    time.sleep(0.2)
    child.terminate()
    assert child.wait(timeout=60) == -signal.SIGTERM
    while True:
        try:
            more = os.read(master, 1000)
        except OSError:  # the other end is closed
            break
        if not more:
            break
        seen += more
    os.close(master)
    assert seen.rindex(b"\x1b[?25h") > seen.rindex(b"\x1b[?25l")
