"""The target that a user expects of a loss, and whether a verdict meets it.

>>> from klsym.engine.explain import explain
>>> [is_met(explain("-A*log_q + 0.04*k2"), read_expectation(text))
...  for text in ("-E[A] + 0.04*reverse-kl", "-E[A] + 0.05*reverse-kl", "combination")]
[True, False, True]
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

import sympy

from klsym.engine.answers.is_correct import NEXT_TOKENS, is_next_token_kl
from klsym.engine.verdicts.verdict import TargetReading, Verdict
from klsym.errors import UsageError
from klsym.kernel.ring import ExpPoly
from klsym.language.convert import to_sympy
from klsym.language.expressions import REWARDS, parameter
from klsym.language.parser import parse

KLS = ("reverse-kl", "forward-kl")
TARGETS = ("zero", *KLS, *NEXT_TOKENS, "combination", "f-divergence", "separable", "none", "open")
INSIDE = " inside clamps"
MEAN = re.compile(r"\bE(?:_q)?\[([^\[\]]+)\]")
WORD = re.compile(r"[A-Za-z][A-Za-z_-]*")


@dataclass(frozen=True)
class Expectation:
    """The target that a user expects: a target by its name alone, or an objective by its multiples.

    text: as it was written.  multiples: of each KL, and the reward.  inside: only inside the clip range.
    """

    text: str
    target: str = ""
    multiples: dict[str, Any] = field(default_factory=dict)
    inside: bool = False


def read_expectation(text: str) -> Expectation:
    """Read an expectation; raises UsageError for what names no target, with the near ones.

    >>> read_expectation("0.04*reverse-kl").multiples
    {'reverse-kl': 1/25}
    """
    whole = text.strip()
    inside, objective = whole.endswith(INSIDE), whole.removesuffix(INSIDE).strip()
    if objective in TARGETS:
        return Expectation(whole, objective, inside=inside)
    means: dict[str, str] = {}

    def name_mean(found: re.Match[str]) -> str:
        return f"({means.setdefault(found[1], f'mean{len(means)}')})"

    replaced = MEAN.sub(name_mean, objective)
    for kl in KLS:
        replaced = replaced.replace(kl, kl.replace("-", "_"))
    names = {kl: parameter(kl.replace("-", "_")) for kl in KLS}
    try:
        expression = parse(replaced, [*(x.name for x in names.values()), *means.values()])
        rewards = {parameter(name): parse(mean) for mean, name in means.items()}
    except UsageError:
        raise UsageError(_describe_unknown_target(objective)) from None
    multiples = _read_multiples(expression, names, rewards)
    if multiples is None:
        raise UsageError(_describe_unknown_target(objective))
    return Expectation(whole, "", multiples, inside)


def _read_multiples(expression: Any, names: dict[str, Any], rewards: dict[Any, Any]) -> dict[str, Any] | None:
    """Return the multiple of each KL, and the reward; None if it is no sum of such terms."""
    expression = sympy.expand(expression)
    multiples = {kl: expression.coeff(x) for kl, x in names.items()}
    factors = {x: expression.coeff(x) for x in rewards}
    remainder = (
        expression
        - sum(multiples[kl] * x for kl, x in names.items())
        - sum(c * x for x, c in factors.items())
    )
    if sympy.expand(remainder) != 0 or any(
        c.has(*names.values(), *rewards) for c in (*multiples.values(), *factors.values())
    ):
        return None
    reward = sympy.expand(sum(c * rewards[x] for x, c in factors.items()))
    if reward and not reward.has(*REWARDS):
        return None
    return {name: value for name, value in {**multiples, "reward": reward}.items() if value != 0}


def _describe_unknown_target(text: str) -> str:
    words = [word for word in WORD.findall(text) if word not in TARGETS]
    near = [match for word in words for match in get_close_matches(word, TARGETS, 2, 0.5)]
    hint = f"; did you mean {' or '.join(dict.fromkeys(near))}?" if near else ""
    return (
        f"{text[:60]!r} is no target{hint or ';'} Known: {', '.join(TARGETS)}, and objectives such as"
        " '-E[A] + 0.04*reverse-kl' or 'reverse-kl inside clamps'"
    )


def is_met(verdict: Verdict, wanted: Expectation) -> bool:
    """Does the verdict say what is expected?  A KL by its name alone may have any positive multiple."""
    reading = (
        verdict.gradient.inside_clamps
        if wanted.inside and verdict.gradient.inside_clamps
        else verdict.gradient
    )
    if wanted.target in NEXT_TOKENS and not verdict.setting.is_of_sample:
        return is_next_token_kl(verdict, wanted.target)
    if wanted.target:
        target = NEXT_TOKENS.get(wanted.target, wanted.target)  # of one token, the KL of the sample
        is_negated = reading.multiples.get(target, "").startswith("-")
        return (reading.target or "open") == target and not is_negated
    return not reading.rest and reading.target is not None and _has_multiples(reading, wanted.multiples)


def _has_multiples(reading: TargetReading, multiples: dict[str, Any]) -> bool:
    if set(reading.parts) != set(multiples):
        return False
    values = {name: to_sympy(x) if isinstance(x, ExpPoly) else x for name, x in reading.parts.items()}
    return all(sympy.expand(values[name] - multiples[name]) == 0 for name in multiples)
