"""The verdict as HTML: klsym's short answer, with its formulas as MathML, and the proof in folded parts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from html import escape
from typing import Any

from klsym.errors import KlsymError
from klsym.language.parser import parse
from klsym.language.roles import ROLES
from klsym.notation.losses import show
from klsym.render.answer import build_answer
from klsym.render.details import hypotheses_of, list_counterexample_lines, list_gradient_rows
from klsym.render.divergences import describe_effects
from klsym.render.headline import describe_use
from klsym.render.mathml import DISPLAYED, MATHML, mathml
from klsym.render.sentences import write_sentence
from klsym.render.verdict_json import build_verdict_json

BADGES = {
    "proved": "proved", "rests on SymPy": "sympy", "supported by numbers only": "numeric", "open": "open",
}  # fmt: skip
TITLES = {
    "proved": "The kernel of klsym has replayed the proof step by step.",
    "rests on SymPy": "The answer lies outside the decidable core and rests on SymPy.",
    "supported by numbers only": "Exact models and sampling support the answer; there is no proof.",
    "open": "klsym has neither proved nor refuted it.",
}


def verdict_html(verdict: Any) -> str:
    """The short answer, then the derivation, the counterexample, the hypotheses, the code and all facts."""
    answer = build_answer(verdict)
    parts = [_head(verdict, answer), _diagnostics(answer), _terms(answer), _facts(verdict, answer)]
    parts += [items(answer.notes, "notes")]
    parts += [folded(name, inner) for name, inner in _proof(verdict) if inner]
    return "\n".join(part for part in parts if part)


# ---------------------------------------------------------------------------- parts that all answers share
def badge(trust: str) -> str:
    """How far an answer is known: proved, rests on SymPy, supported by numbers only, open."""
    shown, title = BADGES.get(trust, "open"), escape(TITLES.get(trust, ""))
    return f'<span class="badge {shown}" title="{title}">{escape(trust)}</span>'


def formula(loss: str, parameters: Iterable[str] = ()) -> str:
    """A loss of the grammar as MathML; as code where it has no formula."""
    try:
        return str(show(parse(loss, parameters), MATHML))
    except KlsymError:
        return f"<code>{escape(loss)}</code>"


def latex(text: str) -> str:
    """A formula that klsym has in LaTeX, as MathML that may break at its relations; as code otherwise."""
    try:
        return mathml(text, display=True, breaking=True)
    except KlsymError:
        return f"<code>{escape(text)}</code>"


def ask_button(loss: str, options: Mapping[str, Any], shown: str) -> str:
    """A button that asks for the verdict on this loss."""
    question = {"kind": "explain", "loss": loss, "options": {k: v for k, v in options.items() if v}}
    return (
        f'<button type="button" class="ask" data-question="{escape(json.dumps(question))}">{shown}</button>'
    )


def folded(title: str, inner: str) -> str:
    return f"<details><summary>{title}</summary><div>{inner}</div></details>" if inner else ""


def items(lines: Iterable[str], kind: str = "") -> str:
    shown = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f'<ul class="{kind}">{shown}</ul>' if shown else ""


def rows(pairs: Iterable[tuple[str, str]]) -> str:
    """A list of names and descriptions; the descriptions are HTML."""
    shown = "".join(f"<div><dt>{escape(name)}</dt><dd>{inner}</dd></div>" for name, inner in pairs)
    return f'<dl class="facts">{shown}</dl>' if shown else ""


def roles_html(roles: Mapping[str, str], asking: bool = False) -> str:
    """A select for the role of each name; asking: a name without a role has none chosen."""
    if not roles:
        return ""
    labels = "".join(_role(name, role) for name, role in roles.items())
    said = "Choose the role of each name:" if asking else "klsym reads these names as follows:"
    return f'<div class="roles"><p>{said}</p>{labels}</div>'


def _role(name: str, role: str) -> str:
    if role and role not in ROLES:
        choices: tuple[str, ...] = (role, *ROLES)
    else:
        choices = ROLES if role else ("", *ROLES)
    options = "".join(_choice(one, one == role) for one in choices)
    shown = escape(name)
    return f'<label><code>{shown}</code> is <select data-role="{shown}">{options}</select></label>'


def _choice(role: str, is_chosen: bool) -> str:
    chosen = " selected" if is_chosen else ""
    return f'<option value="{escape(role)}"{chosen}>{escape(role or "choose")}</option>'


# ---------------------------------------------------------------------------- of a verdict
def _head(verdict: Any, answer: Any) -> str:
    loss = show(verdict.loss.written.expression, DISPLAYED)
    head = f'<p class="loss">{loss} <span class="use">{escape(describe_use(verdict.setting))}</span></p>'
    said = f'<p class="does">{escape(answer.update)} {badge(answer.trust)}</p>'
    return f"<header>{head}{said}{_equation(verdict)}</header>"


def _equation(verdict: Any) -> str:
    """The expected gradient of the loss = what it is the gradient of, if the derivation ends there."""
    steps = list(verdict.proof.steps)
    if len(steps) < 2 or verdict.target in (None, "none"):
        return ""
    return f'<p class="formula">{latex(f"{steps[0][2]} = {steps[-1][2]}")}</p>'


def _diagnostics(answer: Any) -> str:
    shown = "".join(
        f'<li><button type="button" class="code" data-code="{code}" aria-expanded="false">{code}</button> '
        f"<b>{escape(name)}</b> {escape(text)}</li>"
        for code, name, text in answer.findings
    )
    return f'<ul class="diagnostics">{shown}</ul>' if shown else ""


def _terms(answer: Any) -> str:
    shown = "".join(
        f"<li>{formula(term.loss)} {escape(term.text)} {badge(term.trust)}</li>" for term in answer.terms
    )
    return f'<ul class="terms">{shown}</ul>' if shown else ""


def _facts(verdict: Any, answer: Any) -> str:
    told: list[tuple[str, str]] = []
    if answer.whole_reading:
        told.append(("read as", f"<code>{escape(answer.whole_reading[0])}</code>"))
        unsaid = (
            note for note in verdict.loss.written.notes if note.code != "names-read"
        )  # the form shows those
        told.append(("", "<br>".join(escape(write_sentence(note)) for note in unsaid)))
    formulas = {text: shown for _, text, shown in verdict.proof.steps}
    for name, text in answer.facts:
        told.append((name, latex(formulas[text]) if text in formulas else f"<code>{escape(text)}</code>"))
    for text, trust in answer.fixes:
        fix, shown = verdict.fix, escape(text)
        if fix is not None and text.startswith(fix.loss):
            button = ask_button(fix.loss, _remedy(verdict)["options"], formula(fix.loss))
            shown = f"{button}{escape(text.removeprefix(fix.loss))}"
        told.append(("fix", f"{shown} {badge(trust)}"))
    return rows(pair for pair in told if pair[1])


def _remedy(verdict: Any) -> dict[str, Any]:
    return dict(build_verdict_json(verdict)["remedy"])


def _proof(verdict: Any) -> Iterable[tuple[str, str]]:
    yield "Derivation", _derivation(verdict)
    model = list_counterexample_lines(verdict.counterexample.model, verdict.setting.level)[1:]
    yield "Counterexample", f"<pre>{escape(chr(10).join(model))}</pre>" if model else ""
    hypotheses = hypotheses_of(verdict)
    yield f"Hypotheses ({len(hypotheses)})", items(hypotheses)
    if verdict.fix is not None:
        snippet = _remedy(verdict).get("snippet")
        yield "Code to write instead", f"<pre>{escape(snippet)}</pre>" if snippet else ""
    facts = [
        *list_gradient_rows(verdict),
        *(("effect", line) for line in describe_effects(verdict.objective.effects)),
    ]
    listed = rows((name, f"<code>{escape(text)}</code>") for name, text in facts)
    yield "All facts", listed + items(verdict.notes)


def _derivation(verdict: Any) -> str:
    lines = (
        f"<td>{'=' if position else ''}</td><td>{latex(text)}</td><td class='rule'>{escape(rule)}</td>"
        for position, (rule, _, text) in enumerate(verdict.proof.steps)
    )
    shown = "".join(f"<tr>{line}</tr>" for line in lines)
    return f'<div class="wide" tabindex="0"><table class="derivation">{shown}</table></div>' if shown else ""
