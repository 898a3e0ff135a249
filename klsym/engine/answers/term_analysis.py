"""What each term of a sum does: its target, where a bound drops it, how far its weight goes.  Untrusted.

The gradient of a sum is the sum of the gradients, so that each term may be explained on its own, in the same
setting.  Said of sums that have no name as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import sympy

from klsym.engine.regions.piecewise import is_piecewise
from klsym.engine.verdicts.verdict import Verdict
from klsym.errors import UsageError
from klsym.language.expressions import DENSITIES, REWARDS, A, Estimator, OverPositions, R, rho, rho_old, sg
from klsym.language.messages import Message
from klsym.notation.losses import Written, show
from klsym.notation.printers import TEXT
from klsym.records import record

MAX_SHOWN_TERMS = 6  # terms that are told
NEAR_BOUND = sympy.Rational(1, 10**9)  # how far from a bound it is looked at
LARGE_RATIO = sympy.Integer(10) ** 12  # a ratio beyond any bound
MISSING = {"missing-weight": Message("no-weight"), "weighed-by-old": Message("old-weight")}
NAMED = ("zero", "reverse-kl", "forward-kl", "combination")


@record
class Term:
    """One term, its verdict, and what it does."""

    loss: str
    verdict: Verdict
    messages: tuple[Message, ...]

    @property
    def target(self) -> str | None:
        return self.verdict.target


def explain_terms(addends: Sequence[Written], explained: Callable[[Any], Verdict]) -> tuple[Term, ...]:
    """Return the terms of a sum in their order, if there are a few that each have a verdict."""
    terms = add_up_rewards([term for term in addends if not term.expression.is_number])
    if not 1 < len(terms) <= MAX_SHOWN_TERMS:
        return ()
    try:
        return tuple(_build_term(term, explained(term.expression)) for term in terms)
    except UsageError:  # a term alone may be no loss of a token, or have no value
        return ()


def add_up_rewards(terms: Sequence[Written]) -> list[Written]:
    """Add up the terms with the same reward or advantage, if a bound or a condition divides one of them.

    In a region the terms may cancel: the sign of one alone is not that of the update.
    """
    addends = list(terms)
    for reward in (A, R):
        of_reward = [term for term in addends if term.expression.has(reward)]
        if len(of_reward) > 1 and any(is_piecewise(term.expression) for term in of_reward):
            expression = sympy.Add(*(term.expression for term in of_reward))
            addends[addends.index(of_reward[0])] = Written(show(expression, TEXT), expression)
            addends = [term for term in addends if term not in of_reward]
    return addends


def _build_term(term: Written, verdict: Verdict) -> Term:
    return Term(term.text, verdict, (describe_effect(term.expression, verdict), *list_limits(verdict)))


def list_limits(verdict: Verdict) -> tuple[Message, ...]:
    """Return where a bound drops the gradient, how far a weight goes, and which weight is missing."""
    messages = [MISSING[message.code] for message in verdict.messages if message.code in MISSING]
    return (*find_zero_regions(verdict), *find_largest_weight(verdict), *messages[:1])


def describe_effect(e: Any, verdict: Verdict) -> Message:
    """Return the target of a term; of a clamped term, that inside the clip range."""
    if verdict.target == "zero":
        return Message("no-expected-gradient")
    inside = verdict.gradient.inside_clamps
    if inside is not None and inside.target in NAMED and inside.multiples and verdict.target not in NAMED:
        return Message("targets-inside", of=verdict)
    named = verdict.target in (*NAMED, "f-divergence", "no-objective", None)
    if not named and verdict.gradient.in_quantities is None:
        if not verdict.setting.on_policy and verdict.setting.is_differentiated and not e.has(sg):
            return _describe_sampler_gradient(e)
        if verdict.objective.quantity is not None:
            return Message("gradient-of-objective", of=verdict.objective.quantity.side)
    return Message("targets", of=verdict)


def _describe_sampler_gradient(e: Any) -> Message:
    """Return beta grad E_mu[k3], where the sampler does not depend on theta."""
    front, factor = e.as_independent(*e.atoms(Estimator), *DENSITIES, *REWARDS, as_Add=False)
    return Message("gradient-at-sampler", times=front, of=factor)


def find_zero_regions(verdict: Verdict) -> Iterator[Message]:
    """Yield where the gradient of a clamped term is zero."""
    rows = [on for on, h in verdict.gradient.score_cases if h == 0]
    if () in rows:  # the last case, of what no other one says
        yield Message("zero-but-where", where=tuple(on for on, h in verdict.gradient.score_cases if h != 0))
    elif rows:
        yield Message("zero-where", where=tuple(rows))


def find_largest_weight(verdict: Verdict) -> Iterator[Message]:
    """Yield the largest weight of a reward that no bound drops, for either sign of the reward.

    For h = w(ratio) X with one ratio and one reward X; the bounds are those of the cases.
    """
    rows, baselines = _replace_sums(verdict.gradient.score_cases)
    symbols = {x for on, h in rows for e in (h, *(c.x for c in on)) for x in e.free_symbols}
    by_name = {symbol.name: symbol for symbol in symbols}
    gains = [*(by_name[x.name] for x in (A, R) if x.name in by_name), *baselines]
    ratios = _find_ratios(rows)
    if len(gains) != 1 or len(ratios) != 1 or verdict.gradient.scores_named[0]:
        return
    [gain], [ratio] = gains, ratios
    above, below = (_find_largest(rows, ratio, gain, sign) for sign in (1, -1))
    if above is not None and below is not None:
        yield Message("largest-weight", of=baselines.get(gain, gain), above=above, below=below)


def _replace_sums(rows: Any) -> tuple[Any, dict[Any, Any]]:
    """Return the cases with a symbol in place of each sum such as loo(R), and symbol -> sum."""
    sums = {element for on, h in rows for e in (h, *(c.x for c in on)) for element in e.atoms(OverPositions)}
    symbols = {element: sympy.Dummy(real=True) for element in sorted(sums, key=sympy.default_sort_key)}
    shown = [
        (tuple(replace(c, x=c.x.xreplace(symbols)) for c in on), h.xreplace(symbols))
        for on, h in rows
        if symbols
    ]
    return shown or rows, {symbol: element for element, symbol in symbols.items()}


def _find_ratios(rows: Any) -> list[Any]:
    """Return the ratios in the cases, if these depend on no other log density."""
    every = [e for on, h in rows for e in (h, *(c.x for c in on))]
    ratios = {e for row in every for e in row.atoms(type(rho), type(rho_old))}
    marks = {ratio: sympy.Symbol(f"ratio{i}", positive=True) for i, ratio in enumerate(ratios)}
    names = {x.name for x in DENSITIES}
    remaining = {x for row in every for x in row.xreplace(marks).free_symbols}
    return [] if any(x.name.partition("[")[0] in names for x in remaining) else list(ratios)


def _find_largest(rows: Any, ratio: Any, gain: Any, sign: int) -> Any | None:
    """Return the largest |h| at |X| = 1: infinite if it grows with the ratio, else at a bound."""
    x = sympy.Symbol("ratio", positive=True)
    others = {s for on, h in rows for e in (h, *(c.x for c in on)) for s in e.free_symbols}
    others -= {gain, *ratio.free_symbols}
    if any(s.name.partition("[")[0] in {r.name for r in REWARDS} for s in others):
        return None
    fixed = {s: sympy.Rational(1, 5) for s in others} | {gain: sympy.Integer(sign)}
    table = [
        (tuple((c.x.xreplace({ratio: x}), c.signs) for c in on), h.xreplace({ratio: x})) for on, h in rows
    ]

    def find_size_at(value: Any) -> Any | None:
        values = fixed | {x: value}
        for on, h in table:
            if all(int(sympy.sign(e.xreplace(values))) in signs for e, signs in on):
                return abs(h.xreplace(values))
        return None

    far = find_size_at(LARGE_RATIO)
    if far is None:
        return None
    if far >= LARGE_RATIO / 10**6:
        return sympy.oo
    bounds = {e: x - e for on, _ in table for e, _ in on if e.has(x) and not (x - e).has(x)}
    sizes: list[tuple[Any, Any, Any]] = []
    for bound in bounds.values():
        value = bound.xreplace(fixed)
        near = (
            [find_size_at(value * (1 + side * NEAR_BOUND)) for side in (1, -1)] if value > 0 else []
        )  # no tie
        sizes += [(size, value, bound) for size in near if size is not None]
    if not sizes:
        return None
    size, value, bound = max(sizes, key=lambda row: row[0])
    if far > size * (1 + 2 * NEAR_BOUND):
        return None
    is_at_bound = abs(size - value) <= 2 * NEAR_BOUND * value
    return bound if is_at_bound else None if others else float(size)
