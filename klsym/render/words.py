"""Settings and targets in words."""

from __future__ import annotations

from typing import Any

from klsym.engine.verdicts.verdict import Verdict
from klsym.notation.combination import format_combination
from klsym.notation.printers import TEXT
from klsym.render.divergences import describe_generator
from klsym.render.objective import build_objective_formula, write_objective_latex

TARGETS = {
    "zero": "nothing: the expected gradient is zero",
    "reverse-kl": "the reverse KL, KL(q||p)",
    "forward-kl": "the forward KL, KL(p||q)",
    "combination": "a combination",
    "f-divergence": "neither KL nor a combination of the two: some E_q[f(r)]",
    "separable": "neither KL nor a combination of the two, and it depends on more than r = p/q",
    "none": "no objective: the expected gradient is the gradient of no function",
    None: "open: neither a named objective nor shown to be none",
}
TRUST = {
    "kernel": "proved, replayed by the kernel",
    "sympy": "rests on SymPy (outside the decidable core)",
    "numeric": "supported by numbers only, not proved",
}


OVER = {"": [], "sum": [], "mean": ["over T"], "batch": ["over all tokens of the batch"]}


def describe_setting(
    setting: Any, use_names: tuple[str, str] = ("as a loss", "as a detached reward")
) -> list[str]:
    """Describe how a loss is used; use_names: the words for a loss and for a detached reward."""
    words = [setting.sampling, use_names[setting.use == "reward"]]
    words += {"sample": [], "token": ["per token"], "sequence": ["per sequence"]}[setting.level]
    words += [f"credit {setting.credit}"] if setting.credit else []
    words += [f"{setting.weights} weights"] if setting.weights not in ("", "token") else []
    words += OVER[setting.aggregate]
    return words + ([f"batch {setting.batch}"] if setting.batch != "none" else [])


def describe_target(verdict: Verdict, reading: Any = None) -> str:
    """Name the target of the loss; reading: of another gradient, such as that inside the clip range."""
    gradient = verdict.gradient if reading is None else reading
    if reading is None and is_objective(verdict):
        return verdict.gradient.in_quantities
    if gradient.target not in ("reverse-kl", "forward-kl", "combination"):
        return TARGETS[gradient.target]
    return TARGETS[gradient.target] if gradient.single else format_combination(gradient.multiples)


def describe_reason(verdict: Verdict) -> str:
    """Describe the target in words and as a formula, to explain why a loss is not what was asked for."""
    if verdict.gradient.target == "f-divergence" and verdict.objective.generator is not None:
        return describe_generator(verdict.objective.generator)
    if verdict.gradient.target == "separable" and verdict.objective.quantity is not None:
        return TEXT(build_objective_formula(verdict, TEXT))
    if verdict.gradient.canonical_cases:
        from klsym.notation.cases import format_lines

        cases = (" ".join(line.split()) for line in format_lines(verdict.gradient.canonical_cases))
        return f"no KL: pushes with c = {'; '.join(cases)}"
    return describe_target(verdict)


def is_objective(verdict: Verdict) -> bool:
    """Is the formula shown the gradient of a named objective, and not a mean that contains scores?"""
    named = verdict.gradient.target == "combination" or write_objective_latex(verdict) is not None
    return (
        bool(verdict.gradient.in_quantities)
        and verdict.gradient.target in ("combination", "separable")
        and named
    )
