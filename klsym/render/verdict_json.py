"""A verdict as JSON, schema 3: docs/explain.schema.json describes it.

>>> from klsym.api import explain
>>> found = build_verdict_json(explain("k3"))
>>> found["schema"], found["target"], [d["code"] for d in found["diagnostics"]]
(3, 'forward-kl', ['KL002', 'KL014'])
"""

from __future__ import annotations

from typing import Any

from klsym.engine.answers.dispatch import as_written
from klsym.engine.answers.is_correct import DENSITIES_OF_KL, prove_choice
from klsym.errors import UsageError
from klsym.notation.printers import TEXT
from klsym.notation.tree import add_terms
from klsym.render.answer import write_summary
from klsym.render.diagnoses import format_message
from klsym.render.divergences import build_generator_json
from klsym.render.headline import describe_update
from klsym.render.objective import SENSE
from klsym.render.sentences import write_sentences
from klsym.render.snippets import write_snippet

SCHEMA = 3


def build_verdict_json(verdict: Any) -> dict[str, Any]:
    """Return the verdict as a dictionary: the answer first, then the fields of format 2."""
    trust = "open" if verdict.target is None else verdict.trust
    answer = {
        "schema": SCHEMA, "target": verdict.target or "open", "summary": write_summary(verdict),
        "objective": _build_objective(verdict), "trust": trust,
        "diagnostics": [
            {"code": d.code.code, "name": d.code.name, "message": format_message(d),
             "theorem": d.code.theorem or None}
            for d in verdict.diagnostics
        ],
        "remedy": _build_remedy(verdict), "expect": None,
        "loss": verdict.loss, "read_as": verdict.read_as or None,
        **(verdict.asked or verdict.setting).to_json(),
        "gradient": _build_gradient(verdict), "value": _build_value(verdict),
        "hypotheses": list(verdict.hypotheses),
        "steps": [{"rule": rule or "statement", "latex": latex} for rule, latex in verdict.steps_in_latex],
        "witness": verdict.witness, "warnings": [*verdict.warnings, *verdict.advice],
        "names": verdict.names, "expansion": verdict.expansion,
    }  # fmt: skip
    return answer if verdict.check is None else {**answer, "check": verdict.check}


def _build_objective(verdict: Any) -> dict[str, str] | None:
    """Return the objective, and whether an update minimises or maximises it; None if it is not known."""
    terms = verdict.list_objective_terms(TEXT)
    if not terms:
        return None
    return {"text": TEXT(add_terms(*terms)), "latex": verdict.objective, "sense": SENSE[verdict.ascends]}


def _build_remedy(verdict: Any) -> dict[str, Any] | None:
    """Return the suggested loss, its options, and code for it."""
    suggestion = verdict.instead
    if suggestion is None:
        return None
    options = {name: value for name, value in suggestion.setting.to_json().items() if value}
    return {"loss": suggestion.loss, "options": options, "snippet": _write_snippet(suggestion)}


def _write_snippet(suggestion: Any) -> str | None:
    """Return PyTorch code for a suggestion, or None if it cannot be written."""
    target = next((name for name, kl in DENSITIES_OF_KL.items() if kl == suggestion.kl), None)
    if target is None:
        return None
    verdict = prove_choice(suggestion.loss, suggestion.setting, target, suggestion.setting.use)
    try:
        return write_snippet(as_written(suggestion.loss, ()), verdict, "torch", suggestion.setting.use)
    except UsageError:
        return None


def _build_gradient(verdict: Any) -> dict[str, Any]:
    return {
        "per_sample": verdict.per_sample or None, "coefficient": verdict.coefficient,
        "target": verdict.target or "open", "combination": verdict.gradient.complete or None,
        "objective": verdict.objective, **build_generator_json(verdict.generated),
        "cases": verdict.cases_json(),
        "inside_clamps": verdict.inside_clamps.to_json() if verdict.inside_clamps else None,
        "terms": [_build_term(term, verdict.ascends) for term in verdict.terms] or None,
    }  # fmt: skip


def _build_value(verdict: Any) -> dict[str, Any]:
    return {
        "target": verdict.value.target or "open", "combination": verdict.value.complete or None,
        "constant": None if verdict.value.target is None else verdict.value_constant,
        "unbiased_for_reverse_kl": verdict.unbiased_for("reverse-kl"),
        "unbiased_for_forward_kl": verdict.unbiased_for("forward-kl"),
        "hypotheses": list(write_sentences(verdict.value.assumptions)),
    }  # fmt: skip


def _build_term(term: Any, ascends: bool) -> dict[str, Any]:
    says = "; ".join(write_sentences(term.messages))
    return {
        "loss": term.loss,
        "target": term.target or "open",
        "summary": describe_update(term.verdict, ascends),
        "says": says,
    }
