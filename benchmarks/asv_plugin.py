"""Extensions of asv, loaded into asv's own process by asv.conf.json.

The environment type ``borrowed`` is a virtual environment that uses the packages of the Python that
runs asv. Creating it takes a second and no network, where an environment with its own torch takes
minutes and gigabytes. Only demopool is installed into it, so every commit runs with the same
libraries, which are recorded with the results (notes.py). It is pure Python, so its wheel is
unpacked, which takes no time; pip would take seconds to remove one commit and install the next.

The plugin also gives the machine its name, the same for plain ``asv run`` and ``make bench``, and
passes on the folder of the results and asv's process, which benchmarks cannot know otherwise.
"""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path
from typing import Any

from asv.config import Config
from asv.console import log
from asv.machine import Machine, MachineCollection
from asv.plugins.virtualenv import Virtualenv
from asv.util import UserError

from . import checkout, notes
from .machine_name import machine_name

MEASURING = {"run", "continuous", "find", "profile"}
"""The commands of asv that measure commits."""


class Borrowed(Virtualenv):
    """A virtual environment that borrows the packages of the Python that runs asv."""

    tool_name = "borrowed"

    def _setup(self) -> None:
        home, own = Path(self._path), self._own
        subprocess.run([self._executable, "-m", "venv", "--without-pip", home], check=True)
        lent = sorted({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})
        # Files are read in order of name: first the paths, then the libraries' start-up code.
        (own / "00-borrowed.pth").write_text("".join(f"{folder}\n" for folder in lent))
        for folder in lent:
            for start in Path(folder).glob("*.pth"):
                # demopool itself is installed here, not borrowed; plug-ins are.
                if not start.name.startswith("__editable__.demopool-"):
                    (own / start.name).write_bytes(start.read_bytes())
        # asv considers an environment without pip broken and recreates it for every run.
        pip = home / "bin" / "pip"
        pip.write_text('#!/bin/sh\nexec "$(dirname "$0")/python" -m pip "$@"\n')
        pip.chmod(0o755)

    @property
    def _own(self) -> Path:
        return Path(sysconfig.get_path("purelib", "venv", {"base": str(self._path)}))

    def install_project(self, conf: Any, repo: Any, commit_hash: str) -> None:
        # The last measurement of the commit before this one needs counters after it.
        if notes.FOLDER_VARIABLE in os.environ:
            notes.end(Path(os.environ[notes.FOLDER_VARIABLE]))
        super().install_project(conf, repo, commit_hash)

    def _install_project(self, repo: Any, commit_hash: str, build_dir: str) -> None:
        (wheel,) = Path(self._global_env_vars["ASV_BUILD_CACHE_DIR"]).glob("*.whl")
        with zipfile.ZipFile(wheel) as packed:
            packed.extractall(self._own)

    def _uninstall_project(self) -> None:
        self._set_installed_commit_hash(None)
        for folder in self._own.glob(f"{self._project}*"):
            shutil.rmtree(folder)


def setup() -> None:
    """Called by asv when it loads this file."""
    # The name that asv takes unless --machine gives another.
    Machine.hardcoded_machine_name = machine_name()
    if not MEASURING & set(sys.argv[1:]):
        return
    _look_at_the_clone()
    name = _option("--machine", "-m") or Machine.hardcoded_machine_name
    _register(name)
    if {"-n", "--dry-run"} & set(sys.argv):
        return  # a dry run has no results to annotate
    # By now asv has changed to the folder of its configuration.
    config = Config.load(Path(_option("--config") or "asv.conf.json").name)
    folder = Path(config.results_dir, name).absolute()
    os.environ[notes.FOLDER_VARIABLE] = str(folder)
    os.environ[notes.PROCESS_VARIABLE] = str(os.getpid())
    atexit.register(notes.end, folder)


def _look_at_the_clone() -> None:
    try:
        checkout.head()
        for sentence in checkout.warnings():
            log.warning(sentence)
    except checkout.NoCommit as problem:
        raise UserError(str(problem)) from None


def _register(name: str) -> None:
    """As ``asv machine --yes`` does; for an unknown name asv takes the only one it knows."""
    try:
        known = MachineCollection.load(name)["machine"] == name
    except UserError:
        known = False
    if not known:
        MachineCollection.save(name, {**Machine.get_defaults(), "machine": name})


def _option(*names: str) -> str | None:
    """The value of an option on asv's command line."""
    for argument, following in zip(sys.argv, [*sys.argv[1:], None], strict=True):
        if argument in names:
            return following
        name, equals, value = argument.partition("=")
        if equals and name in names:
            return value
    return None
