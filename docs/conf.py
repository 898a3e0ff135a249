"""Sphinx reads the pages that `python -m generate` has written; formulas become MathML.

`make site` runs both.
"""

import os
import re
import sys

from docutils import nodes

sys.path.insert(0, os.environ["KLSYM_DOCS"])

from generate.formulas import html_of
from klsym import __version__

project, author, release = "klsym", "The klsym authors", __version__
html_title = "klsym"
extensions = ["myst_nb", "sphinx.ext.autodoc"]
nb_execution_mode = "off"  # the stored outputs are the tested ones
nb_render_markdown_format = "myst"  # else formulas in outputs stay LaTeX, without a warning
nb_merge_streams = True
smartquotes = False  # options keep their two hyphens
myst_enable_extensions = ["dollarmath", "amsmath", "deflist"]
myst_heading_anchors = 3
source_suffix = {".md": "myst-nb", ".ipynb": "myst-nb"}
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_extra_path = [os.environ["KLSYM_EXTRA"]]
html_show_sourcelink = html_copy_source = html_show_copyright = False
html_math_renderer = "mathml"


def inline(translator, node):
    translator.body.append(html_of(node.astext()))
    raise nodes.SkipNode


def display(translator, node):
    translator.body.append(html_of(node.astext(), display=True))
    raise nodes.SkipNode


def docstring(app, what, name, obj, options, lines):
    """The first paragraph as a text, the rest as it is written: klsym's docstrings are plain text."""
    cut = lines.index("") if "" in lines else len(lines)
    first, rest = (re.sub(r"([*|\\_`])", r"\\\1", line) for line in lines[:cut]), lines[cut:]
    literal = ["", ".. code-block:: text", "", *(f"   {line}" for line in rest)] if any(rest) else []
    lines[:] = [*first, *literal, ""]


def setup(app):
    app.connect("autodoc-process-docstring", docstring)
    app.add_html_math_renderer("mathml", (inline, None), (display, None))
