"""The working tree's own harness, whatever commit is being measured.

asv installs one commit after another as ``demopool``, and takes the benchmarks from the working
tree. Cases, candidates, cost model, instruments and the reference must be the same for all commits,
or a change of the ruler would show as a change of the code. So they are loaded from this tree under
a name of their own, and ``demopool`` is used only for what is measured.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parent.parent
NAME = "demopool_harness"


def _load(name: str, folder: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        name, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


# Not demopool's __init__, which would import everything: its modules import each other as needed.
_package = ModuleType(NAME)
_package.__path__ = [str(ROOT / "src" / "demopool")]
sys.modules[NAME] = _package


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"{NAME}.{name}")


reference = _load(f"{NAME}.reference", ROOT / "reference")
arrays = _module("common.arrays")
candidates = _module("problem.candidates")
cases = _module("problem.cases")
hashing = _module("problem.hashing")
operations = _module("problem.operations")
vocabulary = _module("problem.vocabulary")
device = _module("contract.device")
fingerprint = _module("machine.fingerprint")
clock = _module("measurement.clock")
counting = _module("measurement.counting")
memory = _module("measurement.memory")
others = _module("measurement.others")
eligibility = _module("profiles.eligibility")
jobs = _module("trials.jobs")
measures = _module("trials.measures")
streams = _module("trials.streams")
