"""A verdict as JSON, schema 4: docs/explain.schema.json describes it.

>>> from klsym.api import explain
>>> found = build_verdict_json(explain("k3"))
>>> found["schema"], found["target"], [d["code"] for d in found["diagnostics"]]
(4, 'forward-kl', ['KL002', 'KL014'])
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from klsym.engine.answers.dispatch import as_written
from klsym.errors import UsageError
from klsym.notation.printers import TEXT
from klsym.notation.tree import add_terms
from klsym.notation.values import collect_names, describe_conditions, show_coefficient
from klsym.render.answer import write_summary
from klsym.render.diagnoses import format_message
from klsym.render.divergences import build_generator_json
from klsym.render.headline import describe_update
from klsym.render.objective import list_objective_terms, write_objective_latex
from klsym.render.sentences import write_sentence, write_sentences
from klsym.render.snippets import write_snippet
from klsym.render.words import describe_names

if TYPE_CHECKING:
    from klsym.render.verdict import PrintedVerdict

SCHEMA = 4


def build_verdict_json(verdict: PrintedVerdict, proof: bool = True) -> dict[str, Any]:
    """Return the verdict as a dictionary: the answer first, then the fields of format 2.

    proof: with the steps of the proof and the counterexample, which are searched for when they are asked for.
    """
    trust = "open" if verdict.target is None else verdict.trust
    answer = {
        "schema": SCHEMA, "target": verdict.target or "open", "summary": write_summary(verdict),
        "objective": _build_objective(verdict), "trust": trust,
        "diagnostics": [
            {"code": d.code.code, "name": d.code.name, "message": format_message(d),
             "theorem": d.code.theorem or None}
            for d in verdict.diagnostics
        ],
        "remedy": build_remedy(verdict), "expect": None,
        "loss": verdict.loss.text, "read_as": verdict.loss.read_as or None,
        **(verdict.loss.asked or verdict.setting).to_json(),
        "gradient": _build_gradient(verdict), "value": _build_value(verdict),
        "hypotheses": list(verdict.hypotheses),
        **(_build_proof(verdict) if proof else {}),
        "warnings": [*verdict.warnings, *([f"instead: {verdict.fix}"] if verdict.fix else [])],
        "names": list_names(verdict), "expansion": verdict.loss.expansion,
    }  # fmt: skip
    return answer if verdict.proof.check is None else {**answer, "check": verdict.proof.check}


def _build_proof(verdict: PrintedVerdict) -> dict[str, Any]:
    steps = verdict.proof.steps_in_latex
    return {
        "steps": [{"rule": rule or "statement", "latex": latex} for rule, latex in steps],
        "witness": verdict.counterexample.model,
    }


def _build_objective(verdict: PrintedVerdict) -> dict[str, str] | None:
    """Return the objective, and whether an update minimises or maximises it; None if it is not known."""
    terms = list_objective_terms(verdict, TEXT)
    if not terms:
        return None
    return {
        "text": TEXT(add_terms(*terms)),
        "latex": write_objective_latex(verdict) or "",
        "sense": verdict.objective.sense,
    }


def build_remedy(verdict: PrintedVerdict) -> dict[str, Any] | None:
    """Return the suggested loss, its options, and code for it."""
    suggestion = verdict.fix
    if suggestion is None:
        return None
    options = {name: value for name, value in suggestion.setting.to_json().items() if value}
    return {"loss": suggestion.loss, "options": options, "snippet": _write_snippet(suggestion)}


def _write_snippet(suggestion: Any) -> str | None:
    """Return PyTorch code for a suggestion, or None if it cannot be written."""
    if suggestion.verdict is None:
        return None
    try:
        return write_snippet(
            as_written(suggestion.loss, ()), suggestion.verdict, "torch", suggestion.setting.use
        )
    except UsageError:
        return None


def _build_gradient(verdict: PrintedVerdict) -> dict[str, Any]:
    return {
        "per_sample": verdict.gradient.score_text or None, "coefficient": verdict.gradient.canonical_text,
        "target": verdict.target or "open", "combination": verdict.gradient.complete or None,
        "objective": write_objective_latex(verdict), **build_generator_json(verdict.objective.generator),
        "cases": list_cases(verdict) or None,
        "inside_clamps": verdict.gradient.inside_clamps.to_json() if verdict.gradient.inside_clamps else None,
        "terms": [_build_term(term, verdict.is_ascended) for term in verdict.gradient.terms] or None,
    }  # fmt: skip


def _build_value(verdict: PrintedVerdict) -> dict[str, Any]:
    return {
        "target": verdict.value.target or "open", "combination": verdict.value.complete or None,
        "constant": None if verdict.value.target is None else verdict.value.constant_text,
        "unbiased_for_reverse_kl": verdict.value.is_unbiased_for("reverse-kl"),
        "unbiased_for_forward_kl": verdict.value.is_unbiased_for("forward-kl"),
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


def list_cases(verdict: PrintedVerdict) -> list[dict[str, str]]:
    """Return, for each region, its condition and two coefficients as text; empty without regions.

    per_sample: h of E_m[h s], under the policy that samples; coefficient: c of E_q[c s], its canonical form.
    Regions whose c is not known are left out.
    """
    gradient = verdict.gradient
    return [
        {
            "where": describe_conditions(on),
            "per_sample": show_coefficient(h),
            "coefficient": show_coefficient(c),
        }
        for (on, h), (_, c) in zip(gradient.score_cases, gradient.canonical_cases, strict=False)
    ]


def list_names(verdict: PrintedVerdict) -> dict[str, str]:
    """Return the meaning of each name in the answer that the loss grammar does not define."""
    gradient, value, loss = verdict.gradient, verdict.value, verdict.loss
    inside = gradient.inside_clamps.complete.values() if gradient.inside_clamps else ()
    texts = [
        gradient.score_text, gradient.canonical_text or "", value.constant_text, loss.expansion or "",
        *gradient.complete.values(), *value.complete.values(), *inside,
        *(row[of] for row in list_cases(verdict) for of in ("per_sample", "coefficient")),
    ]  # fmt: skip
    names = collect_names(gradient.score_coefficient)
    in_batch = verdict.setting.is_centred or any(x.endswith("[self]") for x in names)
    level = "batch" if in_batch else verdict.setting.level
    given = next((write_sentence(x) for x in verdict.assumptions if x.code in ("given", "given-std")), "")
    typed = loss.read_as or loss.text
    return describe_names(
        texts, verdict.hypotheses, level, loss=typed, given=given, truncated=verdict.is_truncated
    )
