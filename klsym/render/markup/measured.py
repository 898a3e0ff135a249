r"""Named objectives, and sums of them, as formulas.

>>> "<math" in typeset_objective({"policy-gradient": -1.0, "reverse-kl": 0.04, "E_mu[k3]": 1.0})
True
>>> typeset_objective({"reverse-kl/N": 0.5})
'<code>0.5*reverse-kl/N</code>'
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from klsym.errors import UsageError
from klsym.language.parser import parse
from klsym.notation.decimals import write_objective
from klsym.notation.losses import show
from klsym.notation.printers import LATEX
from klsym.render.markup.parts import format_formula, format_rows, typeset_latex

# Of whole sequences y, and of the next token after each prefix h_t that the sampler mu draws.
NAMED = {
    "policy-gradient": r"\mathbb{E}_{q}[R]",
    "token-policy-gradient": r"\mathbb{E}_{\mu}[\sum_t \rho_t\, R]",
    "reverse-kl": r"\mathrm{KL}(q \Vert p)",
    "forward-kl": r"\mathrm{KL}(p \Vert q)",
    "sampler-kl": r"\mathrm{KL}(\mu \Vert q)",
    "sampler-reverse-kl": r"\mathrm{KL}(q \Vert \mu)",
    "entropy": r"\mathrm{H}(q)",
    "log-likelihood": r"\mathbb{E}_{\mu}[R\, \log q]",
    "length": r"\mathbb{E}_{q}[T]",
    "inverse-length": r"\mathbb{E}_{q}[1/T]",
    "next-token-reverse-kl": r"\mathbb{E}_{\mu}[\sum_t \mathrm{KL}(q_t \Vert p_t)]",
    "next-token-forward-kl": r"\mathbb{E}_{\mu}[\sum_t \mathrm{KL}(p_t \Vert q_t)]",
    "next-token-entropy": r"\mathbb{E}_{\mu}[\sum_t \mathrm{H}(q_t)]",
}


def typeset_objective(multiples: dict[str, float]) -> str:
    """Return a sum of named objectives as MathML; as code if one of them has no formula."""
    names = [_write_name(name) for name in multiples]
    if not all(names):
        return f"<code>{escape(write_objective(multiples))}</code>"
    formulas = dict(zip(names, multiples.values(), strict=True))
    return typeset_latex(write_objective(formulas, times=r"\,"), display=False)


def _write_name(name: str) -> str:
    """A name in LaTeX; empty where it has no formula in the loss grammar."""
    if name.endswith("/T") and (formula := NAMED.get(name[:-2], "")).endswith("]"):
        start, _, inner = formula.partition("[")
        return rf"{start}[\frac{{{inner[:-1]}}}{{T}}]"
    if name.startswith("E_mu[") and name.endswith("]"):
        try:
            return rf"\mathbb{{E}}_{{\mu}}[{show(parse(name[5:-1]), LATEX)}]"
        except UsageError:
            return ""
    return NAMED.get(name, "")


def format_measurement_html(
    headline: str, setting: str, multiples: dict[str, float], rows: Iterable[tuple[str, str]]
) -> str:
    """Return what was measured: how it was run, the verdict, the objective as a formula, and further rows."""
    formula = typeset_objective(multiples) if multiples else ""
    head = (
        f'<p class="use">{escape(setting)}</p><p class="does"><b>{escape(headline)}</b> <i>measured</i></p>'
    )
    formula_line = "" if "<code" in formula else format_formula(formula)
    return f"<header>{head}{formula_line}</header>{format_rows((name, escape(text)) for name, text in rows)}"
