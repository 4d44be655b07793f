"""The plug-in imports what demopool promises to authors, and nothing else of it."""

import ast
import re
from pathlib import Path

HERE = Path(__file__).parents[1]
PAGE = HERE.parents[1] / "docs" / "reference" / "public-modules.md"


def _imported() -> set[str]:
    found = set()
    for file in (HERE / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                found |= {name.name for name in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                found |= {f"{node.module}.{name.name}" for name in node.names}
    return {name for name in found if name.split(".")[0] in ("demopool", "jax")}


def test_nothing_private_is_imported() -> None:
    public = re.findall(r"^\| `(demopool\.[\w.]+)`", PAGE.read_text(), re.MULTILINE)
    assert len(public) > 5
    ours = {name for name in _imported() if name.startswith("demopool.")}
    assert ours
    assert [n for n in ours if not f"{n}.".startswith(tuple(f"{p}." for p in public))] == []
    assert [name for name in _imported() if "._" in name] == []
