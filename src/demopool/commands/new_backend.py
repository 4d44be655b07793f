"""``demopool new-backend``: a distribution that brings a backend, to begin from."""

from __future__ import annotations

import keyword
import re
import shutil
import tempfile
from importlib.resources import files
from pathlib import Path

import click

from ..contract import CONTRACT_VERSION
from ..errors import InvalidInput
from ..problem.vocabulary import BACKENDS
from .output import emit, envelope, json_option

SCHEMA = 1

_TEMPLATES = {
    "pyproject.toml": "pyproject.toml",
    "README.md": "README.md",
    "src/demopool_NAME/__init__.py": "specification.py",
    "src/demopool_NAME/implementation.py": "implementation.py",
    "src/demopool_NAME/kernels.py": "kernels.py",
    "tests/test_conformance.py": "test_conformance.py",
    ".github/workflows/ci.yml": "ci.yml",
}
"""Files of a distribution, and the templates that they are made from."""


@click.command()
@click.argument("name")
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(),
    help="Where to make it; the current folder by default.",
)
@json_option
def new_backend(name: str, folder: Path, as_json: bool) -> None:
    """Make a distribution that brings the backend NAME:cpu, to begin from.

    NAME is the library as it is imported: tinygrad. The folder demopool-NAME gets a pyproject.toml
    with the entry point, a specification, kernels for weights, pool and normalize, tests and a
    workflow. As it comes it computes with NumPy and conforms; its README says what to replace, step
    by step. Nothing is overwritten.

    \b
    demopool new-backend tinygrad
    pip install --editable demopool-tinygrad
    demopool check tinygrad:cpu
    """
    made = write_distribution(name, folder)
    if as_json:
        emit(envelope(SCHEMA, {"folder": str(made), "files": list(_distribution(name))}))
        return
    emit(
        f"{made} is a backend that conforms, with NumPy in the place of {name}.\n"
        f"Next: pip install --editable {made} && demopool check {name}:cpu\n"
        f"Then follow {made / 'README.md'}."
    )


def write_distribution(name: str, folder: Path = Path()) -> Path:
    """Write ``demopool-NAME`` into a folder, whole or not at all, and return its path."""
    _check_name(name)
    target = folder / f"demopool-{name}"
    if not folder.is_dir():
        raise InvalidInput(f"{folder} must be a folder; there is none of this name.")
    if target.exists() or target.is_symlink():
        raise InvalidInput(f"{target} is there already, and nothing is overwritten.")
    draft = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=folder))
    try:
        draft.chmod(0o755)  # mkdtemp makes folders for the owner alone
        for file, text in _distribution(name).items():
            path = draft / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        draft.rename(target)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    return target


def _distribution(name: str) -> dict[str, str]:
    """The text of every file, by its path."""
    templates = files(__package__) / "template"
    made = {}
    for file, template in _TEMPLATES.items():
        text = (templates / f"{template}.in").read_text(encoding="utf-8")
        text = text.replace("contract=CONTRACT,", f"contract={CONTRACT_VERSION},")
        made[file.replace("NAME", name)] = text.replace("NAME", name)
    return made


def _check_name(name: str) -> None:
    """It becomes a module's name, and the part of a backend's name before the colon."""
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,39}", name) or keyword.iskeyword(name):
        raise InvalidInput(
            "NAME must be the library as it is imported, in lower-case letters, digits and _ "
            f"(tinygrad); got {name!r}."
        )
    if name in {backend.library for backend in BACKENDS}:
        raise InvalidInput(
            f"NAME must be a library that demopool does not have; {name} is one of its own."
        )
