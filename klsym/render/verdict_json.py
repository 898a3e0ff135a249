"""A verdict as JSON, schema 3: docs/explain.schema.json describes it.

>>> from klsym.api import explain
>>> found = verdict_json(explain("k3"))
>>> found["schema"], found["target"], [d["code"] for d in found["diagnostics"]]
(3, 'forward-kl', ['KL002', 'KL014'])
"""

from __future__ import annotations

from typing import Any

from klsym.engine.answers.dispatch import as_written
from klsym.engine.answers.is_correct import DENSITIES_OF_KL, prove_choice
from klsym.errors import UsageError
from klsym.notation.printers import TEXT
from klsym.notation.tree import total
from klsym.render.answer import summary
from klsym.render.diagnoses import message_text
from klsym.render.divergences import generated_json
from klsym.render.headline import does
from klsym.render.objective import SENSE
from klsym.render.sentences import sentences
from klsym.render.snippets import snippet

SCHEMA = 3


def verdict_json(verdict: Any) -> dict[str, Any]:
    """The answer first; then the fields of format 2 under their names."""
    trust = "open" if verdict.target is None else verdict.trust
    answer = {
        "schema": SCHEMA, "target": verdict.target or "open", "summary": summary(verdict),
        "objective": _objective(verdict), "trust": trust,
        "diagnostics": [
            {"code": d.code.code, "name": d.code.name, "message": message_text(d),
             "theorem": d.code.theorem or None}
            for d in verdict.diagnostics
        ],
        "remedy": _remedy(verdict), "expect": None,
        "loss": verdict.loss, "read_as": verdict.read_as or None,
        **(verdict.asked or verdict.setting).to_json(),
        "gradient": _gradient(verdict), "value": _value(verdict), "hypotheses": list(verdict.hypotheses),
        "steps": [{"rule": rule or "statement", "latex": latex} for rule, latex in verdict.steps_in_latex],
        "witness": verdict.witness, "warnings": [*verdict.warnings, *verdict.advice],
        "names": verdict.names, "expansion": verdict.expansion,
    }  # fmt: skip
    return answer if verdict.check is None else {**answer, "check": verdict.check}


def _objective(verdict: Any) -> dict[str, str] | None:
    """The objective whose gradient the expected gradient is, and what an update does to it; None: unknown."""
    terms = verdict.list_objective_terms(TEXT)
    if not terms:
        return None
    return {"text": TEXT(total(*terms)), "latex": verdict.objective, "sense": SENSE[verdict.ascends]}


def _remedy(verdict: Any) -> dict[str, Any] | None:
    """The loss to write, its options, and code for it."""
    found = verdict.instead
    if found is None:
        return None
    options = {name: value for name, value in found.setting.to_json().items() if value}
    return {"loss": found.loss, "options": options, "snippet": _snippet(found)}


def _snippet(found: Any) -> str | None:
    """PyTorch code; None where there is none."""
    target = next((name for name, kl in DENSITIES_OF_KL.items() if kl == found.kl), None)
    if target is None:
        return None
    verdict = prove_choice(found.loss, found.setting, target, found.setting.use)
    try:
        return snippet(as_written(found.loss, ()), verdict, "torch", found.setting.use)
    except UsageError:
        return None


def _gradient(verdict: Any) -> dict[str, Any]:
    return {
        "per_sample": verdict.per_sample or None, "coefficient": verdict.coefficient,
        "target": verdict.target or "open", "combination": verdict.gradient.complete or None,
        "objective": verdict.objective, **generated_json(verdict.generated), "cases": verdict.cases_json(),
        "inside_clamps": verdict.inside_clamps.to_json() if verdict.inside_clamps else None,
        "terms": [_term(term, verdict.ascends) for term in verdict.terms] or None,
    }  # fmt: skip


def _value(verdict: Any) -> dict[str, Any]:
    return {
        "target": verdict.value.target or "open", "combination": verdict.value.complete or None,
        "constant": None if verdict.value.target is None else verdict.value_constant,
        "unbiased_for_reverse_kl": verdict.unbiased_for("reverse-kl"),
        "unbiased_for_forward_kl": verdict.unbiased_for("forward-kl"),
        "hypotheses": list(sentences(verdict.value.assumptions)),
    }  # fmt: skip


def _term(term: Any, ascends: bool) -> dict[str, Any]:
    says = "; ".join(sentences(term.messages))
    return {
        "loss": term.loss,
        "target": term.target or "open",
        "summary": does(term.verdict, ascends),
        "says": says,
    }
