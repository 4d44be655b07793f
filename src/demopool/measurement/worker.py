"""The worker: a separate process for calls that may crash, hang or run out of memory.

It is a fresh interpreter, never a fork. Its thread counts are fixed before any library is imported,
and it has the same ``sys.path`` as its parent. It runs one importable function after another; state
that a function keeps in its module is there for the next one. Between requests it blocks in a read.

Every outcome is an :class:`Answer`. A death or a timeout is reported once; a death between two
requests is reported by the second. The next request gets a new process without the old state.

Requests and answers use a private socket and are numbered. Output of the worker, on stdout or
stderr, goes to an unnamed file, which every request empties and which is quoted if the worker dies.
The worker has its own session: Ctrl-C does not reach it, and the processes it started die with it.
POSIX only.
"""

from __future__ import annotations

import faulthandler
import os
import pickle
import re
import select
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from io import BytesIO
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from tempfile import TemporaryFile
from threading import Thread
from typing import Any, NamedTuple, Self

from ..errors import BackendUnavailable, InvalidInput, Unsupported
from ..problem.vocabulary import State

THREAD_VARIABLES = tuple(f"{name}_NUM_THREADS" for name in ("OMP", "OPENBLAS", "MKL", "NUMBA"))
FULL_PRECISION = {"NVIDIA_TF32_OVERRIDE": "0"}
"""Makes float32 on a GPU mean float32 in every library, whatever the library's own setting."""
START_SECONDS = 60.0  # maximum for the interpreter to start; not part of a request's timeout
SETUP_SECONDS = 60.0  # maximum for a library to load and compile, apart from its other calls
REAP_SECONDS = 5.0  # a killed process ends at once, unless a driver holds it
STACK_SECONDS = 1.0  # maximum for a hanging worker to write its stack

# Not every library has an exception for it: torch raises RuntimeError on the host, C++ aborts.
_NO_MEMORY = re.compile("out.?of.?memory|bad_alloc|alloc_failed|n[o']t allocate memory", re.I)
# The output of faulthandler, up to the innermost frame.
_STACK = re.compile(
    r"^(?:Stack|Current thread .*) \(most recent call first\):\n"
    r'(?:  File "(.*)", line (\d+) in (.+))?',
    re.M,
)


class _Unasked(Exception):
    """Something in the worker wrote into the channel."""


class Answer(NamedTuple):
    """The outcome of one request: a value if the state is ok, else the reason why there is none.

    ``asked`` is False if no process could be started; the outcome then says nothing about the
    request.
    """

    state: State
    value: Any = None
    reason: str = ""
    asked: bool = True


def thread_environment(threads: int) -> dict[str, str]:
    """Environment variables that give every library this number of threads."""
    if threads < 1:
        raise InvalidInput(f"threads must be 1 or more; got {threads}.")
    return dict.fromkeys(THREAD_VARIABLES, str(threads)) | FULL_PRECISION


class Worker:
    """One process at a time, started by the first request. Several workers can coexist."""

    def __init__(self, threads: int, *, environment: Mapping[str, str] | None = None) -> None:
        """``environment`` is added to that of this process and overrides it."""
        self.threads = threads
        self._variables = thread_environment(threads) | dict(environment or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._held = ExitStack()
        self._number = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    @property
    def alive(self) -> bool:
        """Whether there is a process; an idle channel is readable only if the process has ended."""
        return self._process is not None and not self._channel.poll()

    def ask(
        self,
        function: Callable[..., Any],
        *arguments: Any,
        timeout: float,
        words: str = "",
        **options: Any,
    ) -> Answer:
        """Run an importable function in the worker; ``timeout`` includes importing its module.

        ``words`` describe the request if there is no answer; the default is the function's name.
        """
        what = f"{function.__module__}.{getattr(function, '__qualname__', function)}"
        try:
            request = pickle.dumps((function, arguments, options))
        except Exception as problem:
            raise InvalidInput(f"a worker cannot be sent {what}: {problem}.") from problem
        asked = False
        try:
            if self._process is None:
                self._start()
            asked = True
            self._printed.seek(0)
            self._printed.truncate()
            self._number += 1
            self._channel.send_bytes(pickle.dumps(self._number) + request)
            return self._receive(timeout)
        except (EOFError, ConnectionError):
            answer = self._death(f"in {words}" if words else f"before it answered {what}")
        except TimeoutError as late:
            answer = Answer(State.TIMEOUT, None, f"{words or what} {late}{self._place_of_hang()}")
        except _Unasked:
            answer = Answer(State.ERROR, None, "it answered a question that was not asked")
        except OSError as problem:
            answer = Answer(State.ERROR, None, f"the worker could not be started: {problem}")
        except BaseException:
            self.close()
            raise
        self.close()
        return answer._replace(asked=asked)

    def close(self) -> None:
        """Kill the process and its children; harmless if there is none."""
        self._held.close()
        process, self._process = self._process, None
        if process is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            with suppress(subprocess.TimeoutExpired):
                process.wait(REAP_SECONDS)

    def _start(self) -> None:
        self._channel, theirs = Pipe()
        self._held.enter_context(self._channel)
        self._printed = self._held.enter_context(TemporaryFile(buffering=0))  # noqa: SIM115
        serving = f"from {__name__} import serve; serve({theirs.fileno()})"
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-u", "-c", f"import sys; sys.path[:] = {sys.path}; {serving}"],
                env=os.environ | self._variables,
                stdin=subprocess.DEVNULL,
                stdout=self._printed,
                stderr=self._printed,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self._number = 0
        self._receive(START_SECONDS)

    def _receive(self, seconds: float) -> Answer:
        if not self._channel.poll(seconds):
            raise TimeoutError(f"gave no answer within {seconds:g} s")
        received = self._channel.recv_bytes()
        try:
            number, answer = pickle.loads(received)
            answer = Answer(*answer)
        except Exception as problem:
            return Answer(State.ERROR, None, f"its result cannot be read here: {problem}")
        if number != self._number:
            raise _Unasked
        return answer

    def _death(self, when: str) -> Answer:
        """An answer that says how the process ended, after its channel has closed."""
        assert self._process is not None
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(REAP_SECONDS)
        code = self._process.returncode
        place, printed = self._last_words()
        no_memory = code == -signal.SIGKILL or _NO_MEMORY.search(printed)
        if code is None:
            how = "closed its channel"
        elif code == -signal.SIGKILL:
            how = "was killed by the system, most likely for lack of memory,"
        elif code < 0:
            how = f"died of signal {-code} ({signal.strsignal(-code)})"
        else:
            how = f"exited with code {code}"
        reason = f"the worker {how} {when}{place}{printed}"
        return Answer(State.OUT_OF_MEMORY if no_memory else State.ERROR, None, reason)

    def _place_of_hang(self) -> str:
        """Where it hangs: faulthandler writes the stack on this signal, even in native code."""
        assert self._process is not None
        self._process.send_signal(signal.SIGUSR1)
        deadline = time.monotonic() + STACK_SECONDS
        while not (place := self._last_words()[0]) and time.monotonic() < deadline:
            time.sleep(0.01)
        return place

    def _last_words(self) -> tuple[str, str]:
        """Where the worker was, if faulthandler wrote a stack, and what it printed before."""
        file = self._printed.fileno()
        tail = os.pread(file, 1 << 16, max(0, os.fstat(file).st_size - (1 << 16)))
        text = tail.decode(errors="replace")
        stack = _STACK.search(text)
        place = ""
        if stack and stack[1]:
            place = f", at {'/'.join(Path(stack[1]).parts[-2:])}:{stack[2]} in {stack[3]}"
        lines = text[: stack.start() if stack else None].strip().splitlines()
        return place, f"; it printed last: {_line(' '.join(lines[-3:]))}" if lines else ""


def serve(descriptor: int) -> None:
    """Run the worker's side: report that it has started, then answer until the parent has gone."""
    faulthandler.enable(all_threads=False)
    faulthandler.register(signal.SIGUSR1, all_threads=False)
    channel = Connection(descriptor)
    # Only this process may hold the channel; otherwise its death would not close it.
    os.set_inheritable(descriptor, False)
    os.register_at_fork(after_in_child=channel.close)
    Thread(target=_leave_with_parent, args=(descriptor,), daemon=True).start()
    channel.send_bytes(pickle.dumps((0, Answer(State.OK))))
    with suppress(EOFError, ConnectionError):
        while True:
            channel.send_bytes(_answer(channel.recv_bytes()))


def _leave_with_parent(descriptor: int) -> None:
    """End with the parent, in a thread because the parent may die during a long request."""
    hangup = select.poll()
    hangup.register(descriptor, 0)
    hangup.poll()
    os.killpg(0, signal.SIGKILL)


def _answer(request: bytes) -> bytes:
    """Run one request; only state that the function keeps in its module outlives it."""
    stream = BytesIO(request)
    number = pickle.load(stream)
    try:
        function, arguments, options = pickle.load(stream)
        return pickle.dumps((number, Answer(State.OK, function(*arguments, **options))))
    except Unsupported as problem:
        answer = Answer(State.UNSUPPORTED, None, problem.reason)
    except BackendUnavailable as problem:
        answer = Answer(State.UNAVAILABLE, None, problem.reason)
    except BaseException as problem:
        message = _line("".join(traceback.format_exception_only(problem)))
        no_memory = isinstance(problem, MemoryError) or _NO_MEMORY.search(message)
        state = State.OUT_OF_MEMORY if no_memory else State.ERROR
        answer = Answer(state, None, f"it raised {message}")
    return pickle.dumps((number, answer))


def _line(text: str, longest: int = 300) -> str:
    text = " ".join(text.split())
    return text if len(text) <= longest else text[: longest - 4] + " ..."
