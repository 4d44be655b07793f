"""The import graph of demopool, read from the source, for the architecture test and picture.

An arrow points from a module to a module that it imports, lazily or not; imports only for the type
checker do not count. ``make architecture`` draws the packages for the documentation.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from io import StringIO
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = {
    "demopool": ROOT / "src" / "demopool",
    "demopool.implementations": ROOT / "implementations",
    "demopool.reference": ROOT / "reference",
}

ORDER = (
    "errors",
    "common",
    "problem",
    "reference",
    "machine",
    "contract",
    "ptx",
    "implementations",
    "measurement",
    "profiles",
    "pooling",
    "conformance",
    "trials",
    "choosing",
    "datasets",
    "results",
    "report",
    "gpu_report",
    "paper",
    "commands",
)
"""The packages in the order of the data flow. Each imports only itself and earlier ones."""

Graph = Mapping[str, frozenset[str]]


def graph() -> Graph:
    """Every module with the modules of demopool that it imports."""
    files = dict(_modules())
    return {name: frozenset(_imports(name, file, files)) - {name} for name, file in files.items()}


def package_of(module: str) -> str:
    """``problem`` for ``demopool.problem.cases``; ``demopool`` for the public top level."""
    name = module.removeprefix("demopool").strip(".").partition(".")[0]
    return name if name in ORDER else "demopool"


def cycles(arrows: Graph) -> list[list[str]]:
    """Groups of modules that import each other, by Tarjan's algorithm; empty if there are none."""
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    path: list[str] = []
    found = []

    def visit(module: str) -> None:
        number[module] = lowest[module] = len(number)
        path.append(module)
        for target in sorted(arrows[module]):
            if target not in number:
                visit(target)
            if target in path:
                lowest[module] = min(lowest[module], lowest[target])
        if lowest[module] == number[module]:
            start = path.index(module)
            group = path[start:]
            del path[start:]
            if len(group) > 1:
                found.append(sorted(group))

    for module in arrows:
        if module not in number:
            visit(module)
    return found


def against_the_order(arrows: Graph) -> list[str]:
    """Imports of a later package; the public top level may import everything."""
    places = {name: place for place, name in enumerate((*ORDER, "demopool"))}
    return [
        f"{module} imports {target}"
        for module, targets in arrows.items()
        for target in sorted(targets)
        if places[package_of(target)] > places[package_of(module)]
    ]


def packages(arrows: Graph) -> Graph:
    """The same graph between packages."""
    found: dict[str, set[str]] = {name: set() for name in (*ORDER, "demopool")}
    for module, targets in arrows.items():
        found[package_of(module)] |= {package_of(target) for target in targets}
    return {name: frozenset(targets - {name}) for name, targets in found.items()}


def without_detours(arrows: Graph) -> Graph:
    """Only the arrows that no chain of other arrows implies."""

    def reached(start: str) -> set[str]:
        return {start}.union(*(reached(target) for target in arrows[start]))

    return {
        name: frozenset(
            target
            for target in targets
            if not any(target in reached(other) for other in targets - {target})
        )
        for name, targets in arrows.items()
    }


def _modules() -> Iterator[tuple[str, Path]]:
    for prefix, folder in FOLDERS.items():
        for file in sorted(folder.rglob("*.py")):
            parts = (prefix, *file.relative_to(folder).with_suffix("").parts)
            yield ".".join(parts).removesuffix(".__init__"), file


def _imports(module: str, file: Path, known: Mapping[str, Path]) -> Iterator[str]:
    package = module if file.name == "__init__.py" else module.rpartition(".")[0]
    for node in _executed(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        else:
            above = package.split(".")[: len(package.split(".")) - node.level + 1]
            parts = (*(above if node.level else ()), *([node.module] if node.module else ()))
            source = ".".join(parts)
            for alias in node.names:
                target = f"{source}.{alias.name}"
                if target in known:
                    yield target
                elif source in known:
                    yield source


def _executed(tree: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    """Import statements outside ``if TYPE_CHECKING``."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child
        elif not (isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"):
            yield from _executed(child)


def draw(arrows: Graph) -> Any:
    """The packages from first to last, each with one sentence and arrows to what it imports."""
    from matplotlib.figure import Figure
    from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

    drawn = without_detours(packages(arrows))
    names = [*ORDER, "demopool"]
    height = {name: -float(place) for place, name in enumerate(names)}
    figure = Figure(figsize=(10, 0.62 * len(names)), layout="constrained")
    axes = figure.add_subplot()
    for name in names:
        box = FancyBboxPatch((0, height[name] - 0.3), 3.2, 0.6, boxstyle="round,pad=0.02")
        box.set(facecolor="#eef3fa", edgecolor="#4c6a92")
        axes.add_patch(box)
        axes.text(1.6, height[name], name, ha="center", va="center", fontsize=11, weight="bold")
        axes.text(3.5, height[name], sentence(name), va="center", fontsize=9)
    for name, targets in drawn.items():
        for target in sorted(targets):
            gap = height[target] - height[name]
            x, room, bend = 0.0, 0.12, -0.5
            if gap > 1:
                bend = -min(0.55, 0.75 / gap**0.5)
            elif gap == 1:
                x, room, bend = 1.6, 0.32, 0.0
            start, end = (x, height[name] + room), (x, height[target] - room)
            arrow = FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=11)
            arrow.set(color="#4c6a92", linewidth=1, connectionstyle=f"arc3,rad={bend}")
            axes.add_patch(arrow)
    axes.set(xlim=(-3.2, 11.5), ylim=(height["demopool"] - 0.6, 0.6))
    axes.axis("off")
    return figure


def svg(arrows: Graph) -> str:
    """The picture as text: reproducible for the same graph, with searchable labels."""
    import matplotlib

    fixed: Any = {"svg.fonttype": "none", "svg.hashsalt": "demopool"}
    written = StringIO()
    with matplotlib.rc_context(fixed):
        draw(arrows).savefig(written, format="svg", metadata={"Date": None})
    return written.getvalue()


def sentence(package: str) -> str:
    """The first sentence of a package's docstring."""
    name = "demopool" if package == "demopool" else f"demopool.{package}"
    docstring = ast.get_docstring(ast.parse(dict(_modules())[name].read_text())) or ""
    return docstring.split("\n")[0].replace("``", "")


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: python -m tools.import_graph FILE.svg")
    Path(sys.argv[1]).write_text(svg(graph()))


if __name__ == "__main__":
    main()
