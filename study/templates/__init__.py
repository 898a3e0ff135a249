"""Templates: how a page or a table is written, in files; what stands in it comes from Python.

>>> build_html_environment({}).from_string("<b>{{ a }}</b>").render(a="1 < 2")
'<b>1 &lt; 2</b>'
>>> build_plain_environment({}).from_string("<% for a in b %>{<< a >>}<% endfor %>").render(b="xy")
'{x}{y}'
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

FOLDER = Path(__file__).parent
SIGNS = {
    "variable_start_string": "<<", "variable_end_string": ">>", "block_start_string": "<%",
    "block_end_string": "%>", "comment_start_string": "<#", "comment_end_string": "#>",
}  # fmt: skip
Filters = Mapping[str, Callable[..., Any]]


def build_html_environment(filters: Filters) -> Environment:
    """For HTML: every text is escaped, unless a filter has made markup of it."""
    return _build_environment(filters, autoescape=True)


def build_plain_environment(filters: Filters) -> Environment:
    """For LaTeX and Markdown, which have braces of their own; whoever hands over a text has escaped it."""
    return _build_environment(filters, autoescape=False, **SIGNS)


def read_source(name: str) -> str:
    """A file that is no template, as it stands."""
    return (FOLDER / name).read_text(encoding="utf-8")


def _build_environment(filters: Filters, **options: Any) -> Environment:
    """What a template asks for and is not given is an error, no empty place."""
    environment = Environment(
        loader=FileSystemLoader(FOLDER), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
        **options,
    )  # fmt: skip
    environment.filters.update(filters)
    return environment
