"""Settings and targets in words."""

from __future__ import annotations

from typing import Any

from klsym.engine.verdicts.verdict import Verdict
from klsym.notation.combination import combination_text
from klsym.notation.printers import TEXT
from klsym.render.divergences import generated_text

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


def setting_words(setting: Any, of: tuple[str, str] = ("as a loss", "as a detached reward")) -> list[str]:
    """How a loss is used, in words; of: how one that is differentiated and one that is detached is called."""
    words = [setting.sampling, of[setting.use == "reward"]]
    words += {"token": ["per token"], "sequence": ["per sequence"]}.get(setting.level, [])
    words += [f"credit {setting.credit}"] if setting.credit else []
    words += [f"{setting.weights} weights"] if setting.weights not in ("", "token") else []
    words += {"mean": ["over T"], "batch": ["over all tokens of the batch"]}.get(setting.aggregate, [])
    return words + ([f"batch {setting.batch}"] if setting.batch != "none" else [])


def target_words(verdict: Verdict, of: Any = None) -> str:
    """What is targeted, in words; of: the meaning of another gradient, such as that inside the clamps."""
    gradient = verdict.gradient if of is None else of
    if of is None and is_objective(verdict):
        return verdict.shown
    if gradient.target not in ("reverse-kl", "forward-kl", "combination"):
        return TARGETS[gradient.target]
    return TARGETS[gradient.target] if gradient.single else combination_text(gradient.multiples)


def reason(verdict: Verdict) -> str:
    """What the target is, in words and as a formula: why a loss is not what was asked for."""
    if verdict.gradient.target == "f-divergence" and verdict.generated is not None:
        return generated_text(verdict.generated)
    if verdict.gradient.target == "separable" and verdict.implied is not None:
        return verdict.format_implied(TEXT)
    if verdict.coefficient_cases:
        from klsym.notation.cases import lines

        cases = (" ".join(line.split()) for line in lines(verdict.coefficient_cases))
        return f"no KL: pushes with c = {'; '.join(cases)}"
    return target_words(verdict)


def is_objective(verdict: Verdict) -> bool:
    """Is what is shown the gradient of something named?  A mean that holds scores is the gradient itself."""
    named = verdict.gradient.target == "combination" or verdict.objective is not None
    return bool(verdict.shown) and verdict.gradient.target in ("combination", "separable") and named
