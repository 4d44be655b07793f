"""Sphinx settings: `make docs` builds these pages, without network, and any warning is an error."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import demopool

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))

project = "demopool"
author = "the demopool authors"
version = release = demopool.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx_copybutton",
    "command_help",
    "docstring_columns",
    "mathml",
]
exclude_patterns = ["_build"]

html_theme = "furo"
html_title = "demopool"
html_static_path = ["_static"]
html_css_files = ["demopool.css"]
html_math_renderer = "mathml"
html_show_sourcelink = False
html_show_copyright = False

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 80

copybutton_prompt_text = r"\$ |>>> |\.\.\. "
copybutton_prompt_is_regexp = True
copybutton_line_continuation_character = "\\"


def _readable_default(*event: Any) -> tuple[str | None, str | None]:
    """The default of a dataclass's dict is no expression, so that Sphinx would not parse any."""
    signature, returned = event[-2:]
    return signature and signature.replace("<factory>", "{}"), returned


def setup(app: Any) -> None:
    app.connect("autodoc-process-signature", _readable_default)
