"""What each term of a sum does: its target, where a bound drops it, how far its weight goes.  Untrusted.

The gradient of a sum is the sum of the gradients, so that each term may be explained on its own, in the same
setting.  Said of sums that have no name as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import sympy

from klsym.engine.regions.piecewise import DENSITIES
from klsym.engine.verdicts.verdict import Verdict
from klsym.errors import UsageError
from klsym.language import REWARDS, A, Estimator, R, rho, rho_old, sg
from klsym.notation import formulas, losses
from klsym.notation.cases import where
from klsym.notation.spelling import TEXT
from klsym.notation.told import about
from klsym.render.verdict import target_words

MOST = 6  # terms that are told
FEW = 2  # regions that are told one by one
BESIDE = sympy.Rational(1, 10**9)  # how far from a bound it is looked at
FAR = sympy.Integer(10) ** 12  # a ratio beyond any bound
MISSING = {  # what a warning is about -> in few words
    "missing_weight": "no importance weight",
    "token_weight_missing": "no importance weight",
    "weighed_by_old": "weighed by q/old, not by q/mu",
}
NAMED = ("zero", "reverse-kl", "forward-kl", "combination")


@dataclass(frozen=True)
class Term:
    """One term, and what it does."""

    loss: str
    target: str | None
    says: str

    def to_json(self) -> dict[str, Any]:
        return {"loss": self.loss, "target": self.target or "open", "says": self.says}


def terms_of(expression: Any, explained: Callable[[Any], Verdict]) -> tuple[Term, ...]:
    """The terms of a sum, where there are a few that each have a verdict."""
    addends = [e for e in sympy.Add.make_args(expression) if not e.is_number]
    if not 1 < len(addends) <= MOST:
        return ()
    try:
        return tuple(_term(e, explained(e)) for e in sorted(addends, key=sympy.default_sort_key))
    except UsageError:  # a term alone may be no loss of a token, or have no value
        return ()


def _term(e: Any, verdict: Verdict) -> Term:
    return Term(losses.show(e, TEXT), verdict.target, "; ".join((does(e, verdict), *limits(verdict))))


def limits(verdict: Verdict) -> tuple[str, ...]:
    """Where a bound drops the gradient, how far a weight goes, and which one is missing."""
    found = [MISSING[about(x)] for x in verdict.warnings if about(x) in MISSING]
    return (*dropped(verdict), *reach(verdict), *found[:1])


def does(e: Any, verdict: Verdict) -> str:
    """Its target in words; of a clamp, that where no bound binds."""
    if verdict.target == "zero":
        return "no expected gradient"
    inside = verdict.inside_clamps
    if inside is not None and inside.target in NAMED and inside.multiples and verdict.target not in NAMED:
        return f"{target_words(verdict, inside)} where no bound binds"
    if verdict.target not in (*NAMED, "f-divergence", "none", None) and not verdict.shown:
        if not verdict.setting.on_policy and verdict.setting.use == "loss" and not e.has(sg):
            return _of_the_sampler(e)
        if verdict.implied is not None:
            return f"grad {formulas.side(verdict.implied.side)}"
    return target_words(verdict)


def _of_the_sampler(e: Any) -> str:
    """beta grad E_mu[k3]: the sampler does not move."""
    front, of = e.as_independent(*e.atoms(Estimator), *DENSITIES, *REWARDS, as_Add=False)
    mean = f"grad E_mu[{losses.show(of, TEXT)}]"
    return mean if front == 1 else f"-{mean}" if front == -1 else f"{losses.show(front, TEXT)} {mean}"


def dropped(verdict: Verdict) -> Iterator[str]:
    """Where the gradient of a clamp is zero."""
    rows = [on for on, h in verdict.per_sample_cases if h == 0]
    if () in rows:  # the last case, of what no other one says
        kept = [where(on) for on, h in verdict.per_sample_cases if h != 0]
        told = f"where {', and where '.join(kept)}" if len(kept) <= FEW else f"in {len(kept)} regions"
        yield f"zero gradient but {told}"
    elif rows:
        yield f"zero gradient where {', and where '.join(map(where, rows))}"


def reach(verdict: Verdict) -> Iterator[str]:
    """How large the weight of a reward may be for either sign of it: the largest that no bound drops.

    For h = w(ratio) X with one ratio and one reward X; the bounds are those of the cases.
    """
    rows = verdict.per_sample_cases
    symbols = {x for on, h in rows for e in (h, *(c.x for c in on)) for x in e.free_symbols}
    by_name = {symbol.name: symbol for symbol in symbols}
    gains = [by_name[x.name] for x in (A, R) if x.name in by_name]
    ratios = _ratios(rows)
    if len(gains) != 1 or len(ratios) != 1 or verdict.scores_named[0]:
        return
    [gain], [ratio] = gains, ratios
    said = []
    for sign, words in ((1, ">"), (-1, "<")):
        found = _largest(rows, ratio, gain, sign)
        if found is None:
            return
        said.append(f"{found} where {losses.show(gain, TEXT)} {words} 0")
    yield f"|weight| of {losses.show(gain, TEXT)}: {', '.join(said)}"


def _ratios(rows: Any) -> list[Any]:
    """The ratios that the cases speak of, if they speak of no other log density."""
    every = [e for on, h in rows for e in (h, *(c.x for c in on))]
    found = {e for row in every for e in row.atoms(type(rho), type(rho_old))}
    marks = {ratio: sympy.Symbol(f"ratio{i}", positive=True) for i, ratio in enumerate(found)}
    names = {x.name for x in DENSITIES}
    left = {x for row in every for x in row.xreplace(marks).free_symbols}
    return [] if any(x.name.partition("[")[0] in names for x in left) else list(found)


def _largest(rows: Any, ratio: Any, gain: Any, sign: int) -> str | None:
    """The largest |h| at |X| = 1: unbounded if it grows with the ratio, else at the bounds of the cases."""
    x = sympy.Symbol("ratio", positive=True)
    others = {s for on, h in rows for e in (h, *(c.x for c in on)) for s in e.free_symbols}
    others -= {gain, *ratio.free_symbols}
    if any(s.name.partition("[")[0] in {r.name for r in REWARDS} for s in others):
        return None
    fixed = {s: sympy.Rational(1, 5) for s in others} | {gain: sympy.Integer(sign)}
    table = [
        (tuple((c.x.xreplace({ratio: x}), c.signs) for c in on), h.xreplace({ratio: x})) for on, h in rows
    ]

    def at(value: Any) -> Any | None:
        here = fixed | {x: value}
        for on, h in table:
            if all(int(sympy.sign(e.xreplace(here))) in signs for e, signs in on):
                return abs(h.xreplace(here))
        return None

    far = at(FAR)
    if far is None:
        return None
    if far >= FAR / 10**6:
        return "unbounded"
    bounds = {e: x - e for on, _ in table for e, _ in on if e.has(x) and not (x - e).has(x)}
    found: list[tuple[Any, Any, Any]] = []
    for bound in bounds.values():
        value = bound.xreplace(fixed)
        near = [at(value * (1 + side * BESIDE)) for side in (1, -1)] if value > 0 else []  # no tie
        found += [(size, value, bound) for size in near if size is not None]
    if not found:
        return None
    size, value, bound = max(found, key=lambda row: row[0])
    if far > size * (1 + 2 * BESIDE):
        return None
    same = abs(size - value) <= 2 * BESIDE * value
    shown = losses.show(bound, TEXT) if same else None if others else f"{float(size):.6g}"
    return None if shown is None else f"at most {shown}"
