"""Sphinx reads the pages that `python -m generate` has written; formulas become MathML.

`make site` runs both.
"""

import os
import re
import sys
import tomllib

from docutils import nodes

sys.path.insert(0, os.environ["KLSYM_DOCS"])

from generate.formulas import html_of
from generate.sources import HOME, find_source
from klsym import __version__

URLS = tomllib.loads((HOME / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]

project, author, release = "klsym", "The klsym authors", __version__
html_title = f"klsym {release}"
extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinxext.opengraph",
]
nb_execution_mode = "off"  # the stored outputs are the tested ones
nb_render_markdown_format = "myst"  # else formulas in outputs stay LaTeX, without a warning
nb_merge_streams = True
smartquotes = False  # options keep their two hyphens
myst_enable_extensions = ["dollarmath", "amsmath", "deflist"]
myst_heading_anchors = 3
source_suffix = {".md": "myst-nb", ".ipynb": "myst-nb"}
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
napoleon_google_docstring = False
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
ogp_site_url, ogp_site_name = URLS["Documentation"], "klsym"
ogp_image = "_static/social.png"
ogp_image_alt = "What k1, k2 and k3 minimise as a loss"
ogp_social_cards = {"enable": False}
html_theme = "furo"
templates_path = [str(HOME / "docs" / "templates")]
html_favicon = "_static/favicon.svg"
html_theme_options = {
    "announcement": "tasks",  # templates/page.html has the links
    "top_of_page_buttons": ["edit"],
    "footer_icons": [{"name": "Repository", "url": URLS["Repository"], "html": "Repository", "class": ""}],
}
html_static_path = ["_static"]
html_css_files, html_js_files = ["site.css"], ["instant.js"]
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
    """The first paragraph as a text, the rest as it is written, where napoleon has found no sections."""
    has_sections = any(line.startswith((":param", ":returns", ":raises", ".. rubric::")) for line in lines)
    if what == "module" or has_sections:
        return
    cut = lines.index("") if "" in lines else len(lines)
    first, rest = (re.sub(r"([*|\\_`])", r"\\\1", line) for line in lines[:cut]), lines[cut:]
    literal = ["", ".. code-block:: text", "", *(f"   {line}" for line in rest)] if any(rest) else []
    lines[:] = [*first, *literal, ""]


def link_source(app, pagename, templatename, context, doctree):
    """A page of the repository can be edited there; one that is generated has no such link."""
    if source := find_source(pagename):
        context["theme_source_edit_link"] = f"{URLS['Repository']}/edit/main/{source}"
    else:
        context["theme_top_of_page_buttons"] = []


def setup(app):
    app.connect("html-page-context", link_source)
    app.connect("autodoc-process-docstring", docstring)
    app.add_html_math_renderer("mathml", (inline, None), (display, None))
