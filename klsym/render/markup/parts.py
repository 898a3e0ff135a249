"""Parts of an answer as HTML, with formulas as MathML: for notebooks, and for the page in a browser.

>>> typeset_loss("rho*k3")
'<math><mi>ρ</mi><mspace width="0.167em"/><msub><mi>k</mi><mn>3</mn></msub></math>'
>>> typeset_loss("no formula")
'<code>no formula</code>'
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from html import escape
from typing import Any

from klsym.errors import KlsymError
from klsym.language.parser import parse
from klsym.notation.losses import show
from klsym.render.headline import TRUST as TRUST
from klsym.render.markup.mathml import MATHML, mathml

# What a page makes of a loss that can be asked about: the loss, its options, and the loss as HTML.
Link = Callable[[str, Mapping[str, Any], str], str]
CLASSES = {name: name if kept == "kernel" else kept for kept, name in TRUST.items()}
MEANING = {
    "proved": "The kernel of klsym has replayed the proof step by step.",
    "by SymPy alone": "The kernel cannot replay this proof; you have to trust SymPy.",
    "supported by numbers only": "Exact models and sampling support the answer; there is no proof.",
    "open": "klsym has neither proved nor refuted it.",
}
STYLE = (  # as pandas does it; the page in a browser has a style sheet, and allows no styles beside it
    "<style scoped>.klsym td, .klsym th {text-align: left; vertical-align: top}"
    " .klsym pre {white-space: pre-wrap; overflow-wrap: anywhere}"
    " .klsym .wide, .klsym .formula, .klsym .loss {overflow-x: auto; max-width: 100%}</style>"
)


def write_formula_alone(loss: str, options: Mapping[str, Any], shown: str) -> str:
    """The link of a page that answers no questions: the formula itself."""
    return shown


def format_for_notebook(markup: str) -> str:
    """An answer with the few styles that a notebook lacks."""
    return f'<div class="klsym">{STYLE}{markup}</div>'


def format_badge(trust: str) -> str:
    """How far an answer is known: proved, by SymPy alone, supported by numbers only, open."""
    name = trust if trust in MEANING else "open"
    title = escape(MEANING[name])
    return f'<span class="badge {CLASSES.get(name, "open")}" title="{title}"><i>{escape(trust)}</i></span>'


def typeset_loss(loss: str, parameters: Iterable[str] = ()) -> str:
    """A loss of the grammar as MathML; as code where it has no formula."""
    try:
        return str(show(parse(loss, parameters), MATHML))
    except KlsymError:
        return f"<code>{escape(loss)}</code>"


def typeset_latex(text: str, display: bool = True) -> str:
    """A formula that klsym has in LaTeX, as MathML that may break at its relations; as code otherwise."""
    try:
        return mathml(text, display=display, breaking=True)
    except KlsymError:
        return f"<code>{escape(text)}</code>"


def format_folded(title: str, inner: str) -> str:
    """Something that a click unfolds; nothing for nothing."""
    return f"<details><summary>{escape(title)}</summary><div>{inner}</div></details>" if inner else ""


def format_items(lines: Iterable[str], kind: str = "") -> str:
    """A list of sentences."""
    return format_markup_items((escape(line) for line in lines), kind)


def format_markup_items(lines: Iterable[str], kind: str = "") -> str:
    """A list of lines that are HTML already."""
    entries = "".join(f"<li>{line}</li>" for line in lines)
    return f'<ul class="{kind}">{entries}</ul>' if entries else ""


def format_code(text: str) -> str:
    """Lines of code, which wrap where the page is narrow."""
    return f"<pre><code>{escape(text)}</code></pre>" if text else ""


def format_rows(pairs: Iterable[tuple[str, str]]) -> str:
    """A table of names and descriptions, which are HTML; rows without a description are left out."""
    cells = (
        f'<tr><th scope="row">{escape(name)}</th><td>{inner}</td></tr>' for name, inner in pairs if inner
    )
    table = "".join(cells)
    return f'<table class="facts">{table}</table>' if table else ""


def format_table(head: Iterable[str], lines: Iterable[Iterable[str]]) -> str:
    """A table of cells in HTML under a head; nothing without lines."""
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>" for cells in lines)
    top = "".join(f"<th>{escape(name)}</th>" for name in head)
    return format_wide(f"<thead><tr>{top}</tr></thead><tbody>{body}</tbody>") if body else ""


def format_formula(markup: str, kind: str = "formula") -> str:
    """A formula in its own line, scrolled sideways where it is wider than the page; nothing for nothing."""
    return f'<p class="{kind}">{markup}</p>' if markup else ""


def format_wide(table: str, kind: str = "") -> str:
    """A table that is scrolled sideways where it is wider than the page."""
    named = f' class="{kind}"' if kind else ""
    return f'<div class="wide" tabindex="0"><table{named}>{table}</table></div>' if table else ""
