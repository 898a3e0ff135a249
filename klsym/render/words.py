"""Settings and targets in words, and the meaning of names that the loss grammar does not have.

These are names of slots, sizes and given values.

>>> describe_names(("k1_now*s_past",))
{'k1_now': 'k1 of token t given its prefix', 's_past': 'the sum of s over the tokens before t'}
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import sympy

from klsym.engine.verdicts.verdict import WITHOUT_NAME, Verdict
from klsym.kernel.names import HELD
from klsym.language.estimators import NAMES
from klsym.language.expressions import DENSITIES, OF_REGIONS, REWARDS, Estimator, clip
from klsym.notation import losses
from klsym.notation.combination import format_combination
from klsym.notation.printers import TEXT
from klsym.notation.values import describe_conditions
from klsym.render.divergences import describe_generator
from klsym.render.objective import build_objective_formula, write_objective_latex
from klsym.render.option_words import DIVISORS, LEVELS, find_words

TARGETS: dict[str | None, str] = {
    "zero": "nothing: the expected gradient is zero",
    "reverse-kl": "the reverse KL, KL(q||p)",
    "forward-kl": "the forward KL, KL(p||q)",
    "combination": "a combination",
    "f-divergence": "neither KL nor a combination of the two: some E_q[f(r)]",
    **dict.fromkeys(
        WITHOUT_NAME, "neither KL nor a combination of the two, and it depends on more than r = p/q"
    ),
    "no-objective": "no objective: the expected gradient is the gradient of no function",
    None: "open: neither a named objective nor shown to be none",
}
TRUST = {
    "kernel": "proved, replayed by the kernel",
    "sympy": "calculated by SymPy; the kernel cannot replay this proof",
    "numeric": "supported by numbers only, not proved",
}


CLIP_RANGE = "inside the clip range"
OF_REWARDS = {str(x) for x in REWARDS}


def describe_setting(
    setting: Any, use_names: tuple[str, str] = ("as a loss", "as a detached reward")
) -> list[str]:
    """Describe how a loss is used; use_names: the words for a loss and for a detached reward."""
    words = [setting.sampling, use_names[setting.is_reward]]
    words += find_words(LEVELS, "level", setting.level).described
    words += [f"credit {setting.credit}"] if setting.credit else []
    words += [f"{setting.weights} weights"] if setting.weighs_by_other_tokens else []
    words += find_words(DIVISORS, "aggregate", setting.aggregate).described
    return words + ([f"batch {setting.batch}"] if setting.is_centred else [])


def describe_target(verdict: Verdict, reading: Any = None) -> str:
    """Name the target of the loss; reading: of another gradient, such as that inside the clip range."""
    gradient = verdict.gradient if reading is None else reading
    if reading is None and is_objective(verdict):
        return verdict.gradient.quantities_text
    if gradient.target not in ("reverse-kl", "forward-kl", "combination"):
        return TARGETS[gradient.target]
    return TARGETS[gradient.target] if gradient.single else format_combination(gradient.multiples)


def list_open_cases(cases: Sequence[Any]) -> list[tuple[Any, Any]]:
    """Return the regions with a gradient, without the ties, at which a bound is met exactly."""
    return [(on, h) for on, h in cases if h != 0 and not any(part.signs == (0,) for part in on)]


def describe_place(verdict: Verdict) -> str:
    """Say where a clip keeps the gradient; with the sign of the reward if no other sample has one."""
    rewards = [
        tuple(part for part in on if {str(x).partition("_")[0] for x in part.x.free_symbols} <= OF_REWARDS)
        for on, _ in list_open_cases(verdict.gradient.score_cases)
    ]
    place = _describe_bounds(verdict)
    if not rewards or not rewards[0] or any(row != rewards[0] for row in rewards):
        return place
    return f"only where {describe_conditions(rewards[0])}, {place}"


def _describe_bounds(verdict: Verdict) -> str:
    """Say where no bound acts: "where rho < 2" for min(rho, 2), else "inside the clip range"."""
    written = verdict.loss.written
    bounds = written.expression.atoms(clip, sympy.Min, sympy.Max) if written is not None else set()
    if len(bounds) == 1 and not isinstance(bound := bounds.pop(), clip):
        constants = [x for x in bound.args if not x.has(Estimator, *DENSITIES, *REWARDS)]
        values = [x for x in bound.args if x not in constants]
        if len(constants) == len(values) == 1:
            sign = "<" if isinstance(bound, sympy.Min) else ">"
            return f"where {losses.show(values[0], TEXT)} {sign} {losses.show(constants[0], TEXT)}"
    return CLIP_RANGE


def describe_reason(verdict: Verdict) -> str:
    """Describe the target in words and as a formula, to explain why a loss is not what was asked for."""
    if verdict.gradient.target == "f-divergence" and verdict.objective.generator is not None:
        return describe_generator(verdict.objective.generator)
    if verdict.gradient.target in WITHOUT_NAME and verdict.objective.quantity is not None:
        return TEXT(build_objective_formula(verdict, TEXT))
    if verdict.gradient.canonical_cases:
        from klsym.notation.values import format_lines

        cases = (" ".join(line.split()) for line in format_lines(verdict.gradient.canonical_cases))
        return f"no KL: pushes with c = {'; '.join(cases)}"
    return describe_target(verdict)


def is_objective(verdict: Verdict) -> bool:
    """Is the formula shown the gradient of a named objective, and not a mean that contains scores?"""
    named = verdict.gradient.target == "combination" or write_objective_latex(verdict) is not None
    return (
        bool(verdict.gradient.quantities_text)
        and verdict.gradient.target in ("combination", *WITHOUT_NAME)
        and named
    )


NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
SLOT = re.compile(
    rf"({'|'.join(NAMES)}|r|rho|rho_old|log_q|log_p|log_mu|log_old|R|A|M|{'|'.join(HELD)}|T|s)"
    r"_(past|now|future|self|others)"
)
SLOT_AT_END = re.compile("_(past|now|future|self|others)$")
OF_ONE = {"now": "{} of token t given its prefix", "self": "{} of sample i"}
OF_MANY = {
    "past": "the {} of {} over the tokens before t",
    "future": "the {} of {} over the tokens after t",
    "others": "the {} of {} over the other n - 1 samples",
}
COUNTED = {
    "past": "the number of tokens before t", "future": "the number of tokens after t",
    "self": "the random length of sample i",
    "others": "the sum of the random lengths of the other n - 1 samples",
}  # fmt: skip
MEANINGS = {
    "n": "the size of the batch", "m": "n - 1",
    "std": "the standard deviation over the batch, std^2 = mean_i (H_i - mean H)^2",
    "mean_h": "the mean under mu of the coefficient of the score",
    "V": "a critic: any function of t and of the tokens before t",
    "V_next": "a critic: any function of t and of the tokens up to t",
}  # fmt: skip
KEPT = "1 on what the sampler keeps, 0 elsewhere; 1 at each word that is drawn"
CUT = {
    "sample": {
        "M": KEPT,
        "S": "E_q[M], the mass of what the sampler keeps",
        "mu": "q, held as it is at theta; samples come from M*mu/S",
        "rho": "q/mu, 1 with the gradient s",
    },
    "token": {
        "M": KEPT,
        "S": "the mass under q of what the sampler keeps after a prefix",
        "mu": "the sampler: M*q/S after each prefix, held as it is at theta",
        "rho": "q/mu in the answer; in the loss it is q/sg(q)",
    },
}
CUT["sequence"] = CUT["sample"]
VOCABULARY = {
    "full": "full(x) is the sum of q(y)*x over all next tokens or outcomes y; s in it is the score of y",
}
REWARD_NAMES = ("R", "A", "M")
ANY = "any quantity that is free of theta, in a theorem that holds for all"
LENGTH = "the random length of a sequence"


def describe_names(
    texts: Sequence[str],
    hypotheses: Sequence[str] = (),
    level: str = "token",
    loss: str | None = None,
    given: str = "",
    truncated: bool = False,
) -> dict[str, str]:
    """Return the meaning of each name.

    given: the hypothesis that says what H is.  truncated: the sampler is cut off, to where M = 1.
    level: sample, where n is a parameter like others, or token, sequence or batch.
    loss: what was typed; a reward that it has not is one of a theorem.
    """
    typed_names = set(NAME.findall(loss)) if loss is not None else {*REWARD_NAMES}
    typed_names |= {"R"} if "gae" in typed_names else set()
    meanings = dict(CUT.get(level, CUT["token"])) if truncated else {}
    for name in dict.fromkeys(name for text in (*texts, *hypotheses) for name in NAME.findall(text)):
        meaning = ANY if name in REWARD_NAMES and name not in typed_names else _describe_name(name, level)
        meaning = meaning or _find_in_hypotheses(name, hypotheses)
        if meaning:
            meaning = f"{meaning}; {given}" if given and name.split("_")[0] in HELD else meaning
            meanings.setdefault(name, meaning)
    return dict(sorted(meanings.items()))


def _find_in_hypotheses(name: str, hypotheses: Sequence[str]) -> str:
    """Return the definition of a region's name in the hypotheses, whatever its slot; else empty."""
    if not name.startswith(OF_REGIONS):
        return ""
    base = SLOT_AT_END.sub("", name)
    return next((x.removeprefix(f"{base} is ") for x in hypotheses if x.startswith(f"{base} is ")), "")


def _describe_name(name: str, level: str) -> str:
    slotted = SLOT.fullmatch(name)
    if slotted:
        return _describe_slot(*slotted.groups())
    if name == "T":
        return LENGTH
    if name in VOCABULARY:
        return VOCABULARY[name]
    if name in HELD:
        return "a detached quantity of a sample"
    return MEANINGS.get(name, "") if level == "batch" or find_words(LEVELS, "level", level).names else ""


def _describe_slot(base: str, slot: str) -> str:
    if base == "T":
        return COUNTED[slot]
    if slot in OF_ONE:
        return OF_ONE[slot].format(base)
    return OF_MANY[slot].format("product" if base in ("r", "rho", "rho_old") else "sum", base)


def write_slope_of_counts(of: str, slope: str, sign: str, same_length: bool = False) -> str:
    """Return Phi' as the mean of a slope over the number K of ones, and its sign if it is known.

    >>> write_slope_of_counts("M", "-1/(K + 2)", "-")
    "P = E_q[M], Phi'(P) = E[-1/(K + 2)] <= 0, K binomial(n - 1, P)"
    """
    bound = {"-": " <= 0", "+": " >= 0"}.get(sign, "")
    text = f"P = E_q[{of}], Phi'(P) = E[{slope}]{bound}, K binomial(n - 1, P)"
    return f"for responses of one length T, the objective is Phi(P)/T, {text}" if same_length else text
