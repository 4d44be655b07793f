"""What is installed is what is in the repository."""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_every_package_is_declared() -> None:
    """The package list is written out because three folders map to one package."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    found = set()
    for package, folder in settings["package-dir"].items():
        for init in (ROOT / folder).rglob("__init__.py"):
            inner = init.parent.relative_to(ROOT / folder).parts
            found.add(".".join((package, *inner)))
    assert set(settings["packages"]) == found


def test_every_file_that_is_not_python_is_installed_too() -> None:
    """Kernels in CUDA C, styles, features, fitted numbers."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    declared = {
        (package, Path(pattern).suffix)
        for package, patterns in settings["package-data"].items()
        for pattern in patterns
    }
    for package in settings["packages"]:
        root = max((p for p in settings["package-dir"] if package.startswith(p)), key=len)
        inner = package.removeprefix(root).strip(".").replace(".", "/")
        for file in (ROOT / settings["package-dir"][root] / inner).iterdir():
            if file.is_file() and file.suffix not in (".py", ".pyc"):
                assert (package, file.suffix) in declared, file.name


def test_every_pinned_extra_is_in_the_constraints() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"]]
    for name in ("torch", "numba", "files", "scale", "report", "bench", "gpu-proof", "dev"):
        wanted += extras[name]
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pinned = {line.partition("==")[0].lower().replace("_", "-") for line in lines if "==" in line}
    for requirement in wanted:
        name = requirement.partition("[")[0].partition(">")[0].partition("<")[0]
        assert name.lower() in pinned, f"{name} has no version in constraints.txt"
    assert "torch==2.13.0" in lines


def test_the_file_that_makes_types_visible_is_installed() -> None:
    import demopool

    assert (Path(demopool.__file__).parent / "py.typed").exists()
