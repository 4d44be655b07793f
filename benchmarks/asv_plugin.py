"""What asv itself lacks; loaded into asv's own process by asv.conf.json.

The environment type ``borrowed``: a virtual environment without packages that sees those of the
Python that runs asv. It needs no network and a second, where an environment with its own torch
takes minutes and gigabytes. Only demopool is installed into it, so every commit runs with the same
libraries; which ones is written down with the results (notes.py).

And the folder the results go to, which benchmarks cannot know otherwise.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

from asv.config import Config
from asv.machine import Machine, MachineCollection
from asv.plugins.virtualenv import Virtualenv
from asv.util import UserError

from .notes import FOLDER_VARIABLE


class Borrowed(Virtualenv):
    """See the top of this file."""

    tool_name = "borrowed"

    def _setup(self) -> None:
        home = Path(self._path)
        subprocess.run([self._executable, "-m", "venv", "--without-pip", home], check=True)
        own = Path(sysconfig.get_path("purelib", "venv", {"base": str(home)}))
        lent = sorted({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})
        # Read in the order of their names: first the path, then what libraries do at the start.
        (own / "00-borrowed.pth").write_text("".join(f"{folder}\n" for folder in lent))
        for folder in lent:
            for start in Path(folder).glob("*.pth"):
                if "editable" not in start.name:  # demopool is installed here, not borrowed
                    (own / start.name).write_bytes(start.read_bytes())
        # asv takes an environment without it for a broken one and makes it anew for every run.
        pip = home / "bin" / "pip"
        pip.write_text('#!/bin/sh\nexec "$(dirname "$0")/python" -m pip "$@"\n')
        pip.chmod(0o755)


def setup() -> None:
    """Called by asv when it loads this file."""
    if {"-n", "--dry-run"} & set(sys.argv):
        return  # a dry run leaves no results to take notes on
    # asv is in the folder of its configuration by now, whatever path it was given.
    config = Config.load(Path(_option("--config") or "asv.conf.json").name)
    folder = Path(config.results_dir, _machine(_option("--machine", "-m")))
    os.environ[FOLDER_VARIABLE] = str(folder.absolute())


def _machine(given: str | None) -> str:
    """The name asv files results under: that of the only machine it knows, if there is one."""
    name = given or Machine.get_unique_machine_name()
    try:
        return str(MachineCollection.load(name)["machine"])
    except UserError:
        return name


def _option(*names: str) -> str | None:
    """The value of an option on asv's command line."""
    for argument, following in zip(sys.argv, [*sys.argv[1:], None], strict=True):
        if argument in names:
            return following
        name, equals, value = argument.partition("=")
        if equals and name in names:
            return value
    return None
