"""What ``make bench`` starts ends with it, however it ends, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from benchmarks.notes import TICKS_VARIABLE
from benchmarks.profiles import Slice
from tools import asv_process

ROOT = Path(__file__).parent.parent

# As asv does: a server in a process group of its own, a child of that, and temporary files.
ASV = """
import os, signal, subprocess, sys, tempfile, time
from pathlib import Path

{on_interrupt}
tempfile.mkdtemp(prefix="asv-forkserver-")
server = '''
import os, signal, subprocess, sys, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(os.getpid(), child.pid, flush=True)
time.sleep(600)
'''
started = subprocess.Popen(
    [sys.executable, "-c", server], stdout=subprocess.PIPE, text=True, process_group=0
)
pids = [os.getpid(), *map(int, started.stdout.readline().split())]
beside = Path({pids!r} + ".partial")
beside.write_text(" ".join(map(str, pids)))
beside.rename({pids!r})
time.sleep(600)
"""
STOPS = ""
IGNORES = "signal.signal(signal.SIGINT, signal.SIG_IGN)"
HESITATES = "signal.signal(signal.SIGINT, lambda *_: (time.sleep(1.5), sys.exit(1)))"

# make bench, as far as it matters here.
BENCH = """
import sys
from pathlib import Path
from tools import asv_process

asv_process.PATIENCE = 0.5 if "ignores" in sys.argv else 10.0
with asv_process.alone(Path(sys.argv[1])) as lock:
    asv_process.follow([sys.executable, sys.argv[2]], lambda *_: None, lock)
"""


class Bench:
    """A run that measures for ten minutes, in a folder for results and one for temporary files."""

    def __init__(self, folder: Path, on_interrupt: str) -> None:
        self.results, self.temporary, pids = (folder / name for name in ("r", "t", "pids"))
        self.temporary.mkdir()
        asv = folder / "asv.py"
        asv.write_text(ASV.format(on_interrupt=on_interrupt, pids=str(pids)))
        mood = ["ignores"] if on_interrupt == IGNORES else []
        self.process = subprocess.Popen(
            [sys.executable, "-c", BENCH, str(self.results), str(asv), *mood],
            cwd=ROOT,
            env=self.environment,
        )
        assert within(120, pids.exists)
        self.pids = [int(pid) for pid in pids.read_text().split()]

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "TMPDIR": str(self.temporary), "PYTHONPATH": str(ROOT)}

    def alive(self) -> list[int]:
        return [pid for pid in self.pids if is_alive(pid)]

    def guard(self) -> int:
        """The parent of asv."""
        return int(Path(f"/proc/{self.pids[0]}/stat").read_text().rpartition(")")[2].split()[1])

    def end(self) -> None:
        for pid in [self.process.pid, *self.alive()]:
            os.kill(pid, signal.SIGKILL)
        self.process.wait()


def is_alive(pid: int) -> bool:
    """A zombie waits only to be counted."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def within(seconds: float, condition: Callable[[], bool]) -> bool:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def is_refused(folder: Path) -> bool:
    try:
        with asv_process.alone(folder):
            return False
    except click.ClickException as problem:
        return "another make bench" in problem.message


linux = pytest.mark.skipif(sys.platform != "linux", reason="processes are looked up in /proc")


@linux
@pytest.mark.parametrize("on_interrupt", [STOPS, IGNORES], ids=["stops", "ignores"])
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT], ids=["kill-9", "ctrl-c"])
def test_nothing_runs_on_and_no_folder_is_left(tmp_path: Path, on_interrupt: str, how: int) -> None:
    run = Bench(tmp_path, on_interrupt)
    assert len(run.alive()) == 3
    assert list(run.temporary.glob(f"{asv_process.PREFIX}*/asv-forkserver-*"))
    assert is_refused(run.results)
    os.kill(run.process.pid, how)
    run.process.wait()
    assert within(60, lambda: not run.alive()), run.end()
    assert within(60, lambda: not any(run.temporary.iterdir()))
    assert within(60, lambda: not is_refused(run.results))


@linux
def test_the_lock_is_kept_while_asv_lives(tmp_path: Path) -> None:
    run = Bench(tmp_path, HESITATES)
    run.process.kill()
    run.process.wait()
    assert is_refused(run.results)
    assert within(60, lambda: not is_refused(run.results)), run.end()
    assert run.alive() == []


@linux
def test_a_killed_guard_leaves_a_folder_that_the_next_run_removes(tmp_path: Path) -> None:
    run = Bench(tmp_path, STOPS)
    for pid in (run.process.pid, run.guard()):
        os.kill(pid, signal.SIGKILL)
    run.process.wait()
    assert within(60, lambda: not is_alive(run.pids[0])), run.end()
    server = run.pids[1]
    assert is_alive(server)  # of asv only its end can be asked for; a real one ends its server
    os.killpg(server, signal.SIGKILL)
    (left,) = run.temporary.iterdir()
    program = BENCH.split("    asv_process.follow")[0] + "    pass"
    subprocess.run(
        [sys.executable, "-c", program, run.results], cwd=ROOT, env=run.environment, check=True
    )
    assert not left.exists()


def test_only_a_folder_of_its_own_kind_is_removed(tmp_path: Path) -> None:
    precious = tmp_path / f"{asv_process.PREFIX}mine"
    precious.mkdir()
    (tmp_path / ".lock").write_text(str(precious))
    with asv_process.alone(tmp_path):
        pass
    assert precious.exists()  # it does not lie in the system's folder for temporary files


def test_progress_is_told_and_an_interrupt_passed_on(tmp_path: Path) -> None:
    program = f"""
import os, time
open(os.environ["{TICKS_VARIABLE}"], "a").write("democratic vgg-b1\\n")
try:
    time.sleep(600)
except KeyboardInterrupt:
    open({str(tmp_path / "ended")!r}, "w").close()
"""
    seen = []

    def interrupt(count: int, what: str) -> None:
        seen.append((count, what))
        if count:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        asv_process.follow([sys.executable, "-c", program], interrupt)
    assert seen[0] == (0, "preparing")
    assert seen[-1] == (1, "democratic vgg-b1")
    assert (tmp_path / "ended").exists()


def test_the_output_and_the_code_of_a_run_that_fails_are_kept() -> None:
    program = "print('no such commit'); raise SystemExit(3)"
    done = asv_process.follow([sys.executable, "-c", program], lambda *_: None)
    assert done == (3, "no such commit\n")


def test_a_command_line_that_asv_does_not_know_is_no_failed_benchmark() -> None:
    program = "import argparse; argparse.ArgumentParser().parse_args(['--unknown'])"
    part = Slice("descriptors.Sum", (), frozenset())
    with pytest.raises(click.ClickException, match=r"asv failed with code 2(.|\n)*--unknown"):
        asv_process.run([(part, [sys.executable, "-c", program])])
    failed = (part, [sys.executable, "-c", "print('one failed'); raise SystemExit(2)"])
    asv_process.run([failed])
