"""Say whether an update minimises or maximises an objective, from its terms with their signs.

The headline and the line of each term take their verb and their signs from here.

>>> from klsym.engine.explain import explain
>>> [describe_objective(explain(text, use="reward"), True) for text in ("A - k1", "-A", "-k1")]
['maximises E_q[A] - KL(q||p)', 'minimises E_q[A]', 'minimises KL(q||p)']
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from sympy import Dummy, Expr, Heaviside, cancel, expand, factor, fraction, sign

from klsym.diagnostics.reward_signs import is_never_negative
from klsym.engine.verdicts.verdict import UNNAMED, TargetReading, Verdict
from klsym.kernel.ring import ExpPoly
from klsym.language.convert import to_sympy
from klsym.language.expressions import A, M, R, log_q
from klsym.notation import formulas
from klsym.notation.combination import build_mean, build_objective_terms
from klsym.notation.estimators import with_k3
from klsym.notation.losses import Written
from klsym.notation.printers import LATEX, TEXT, Text, is_sum
from klsym.notation.ratios import rewrite_in_r
from klsym.notation.steps import find_bound, iterate_values, list_jumps, open_steps
from klsym.notation.tree import Formula, Mean, Minus, Number, Product, Sum, add_terms, negate
from klsym.notation.values import build_tree, show_value

KL_OF = {"reverse-kl": "KL(policy || reference)", "forward-kl": "KL(reference || policy)"}
VERB = {False: "minimises", True: "maximises"}


@dataclass(frozen=True)
class Aim:
    """An objective, and whether an update maximises or minimises it."""

    is_maximised: bool
    formula: Formula

    @property
    def verb(self) -> str:
        return VERB[self.is_maximised]

    @property
    def sampler(self) -> str:
        """The sampler, if the objective is a sum of expectations under one; else empty."""
        terms = self.formula.terms if isinstance(self.formula, Sum) else (self.formula,)
        samplers = set(map(_find_sampler, terms))
        return samplers.pop() if len(samplers) == 1 else ""

    def __str__(self) -> str:
        return f"{self.verb} {TEXT(self.formula)}"


def _find_sampler(term: Formula) -> str:
    """Return mu of a multiple of E_mu[..]; empty for any other term."""
    term = term.of if isinstance(term, Minus) else term
    term = term.factors[-1] if isinstance(term, Product) else term
    return term.measure if isinstance(term, Mean) else ""


def list_objective_terms(verdict: Verdict, spell: Text) -> list[Formula]:
    """Return the terms of the objective, a mean reward first; none if no objective is known."""
    objective = verdict.objective
    if verdict.target in (None, "no-objective"):
        return []
    if objective.quantity is not None:
        formula = build_objective_formula(verdict, spell)
        return list(formula.terms) if isinstance(formula, Sum) else [formula]
    if objective.formula is not None:
        return [objective.formula]
    if verdict.target == "zero":
        return [Number(0)]
    if verdict.target not in UNNAMED:
        return build_objective_terms(verdict.gradient.multiples)
    if objective.generator is None or objective.generator.f is None:
        return []
    f = Mean("q", rewrite_in_r(objective.generator.f, sums=spell.positions))
    reward = objective.generator.reward
    terms = [*([negate(build_mean(build_tree(reward)))] if reward else []), f]
    return [negate(row) for row in terms] if verdict.is_ascended else terms


def build_objective_formula(verdict: Verdict, spell: Text) -> Formula:
    """Build the quantity of the objective; elements with regions are written as typed, or in steps."""
    quantity = verdict.objective.quantity
    assert quantity is not None
    labels = {
        of: label
        for of, label in quantity.labels.items()
        if isinstance(label, Written) or label.has(Heaviside, sign)
    }
    return with_k3(formulas.build_tree(quantity.side, labels, spell.positions))


def write_objective_latex(verdict: Verdict) -> str | None:
    """Return LaTeX of the objective of which the expected gradient is the gradient; None if none is known."""
    rows = list_objective_terms(verdict, LATEX)
    return LATEX(add_terms(*rows)) if rows else None


def choose_sense(terms: Sequence[Formula], ascends: bool, rewards: bool) -> tuple[bool, Formula]:
    """Return whether the objective is maximised, and the objective.

    terms: of the objective whose gradient is the expected gradient, with its rewards first if there are any.
    ascends: does the update follow this gradient?  Else it goes against it.

    A reward is maximised unless all that the update does is to lower its terms; a loss is minimised unless it
    lowers minus a reward.
    """
    lowered = [negate(term) for term in terms] if ascends else list(terms)
    deciding = lowered if ascends else lowered[: int(rewards)]
    maximised = any(isinstance(term, Minus) for term in deciding)
    return maximised, add_terms(*(negate(term) for term in lowered) if maximised else lowered)


def describe_terms(terms: Sequence[Formula], ascends: bool, rewards: bool) -> str:
    """Return text such as "maximises E_q[A] - KL(q||p)"."""
    return str(Aim(*choose_sense(terms, ascends, rewards)))


def find_aim(verdict: Verdict, ascends: bool) -> Aim | None:
    """Return what an update does to the objective of a verdict; None if no objective is known."""
    terms = list_objective_terms(verdict, TEXT)
    named = verdict.objective.quantity is None and verdict.objective.formula is None
    rewards = named and "reward" in verdict.gradient.multiples
    return Aim(*choose_sense(terms, ascends, rewards)) if terms else None


def aim_at_sampler_kl(verdict: Verdict, ascends: bool) -> Aim | None:
    """Return the aim of an update that lowers KL(mu||q) inside the clip range; None for any other update.

    >>> from klsym.engine.explain import explain
    >>> [str(aim_at_sampler_kl(explain(f"{sign}clip(log_q - log_mu, -5, 5)", sampling="off-policy"), False))
    ...  for sign in "-+"]
    ['minimises KL(mu||q)', 'None']
    """
    quantity = verdict.objective.inside
    if quantity is None or not verdict.objective.is_sampler_kl_inside or verdict.target == "no-objective":
        return None
    aim = Aim(*choose_sense([formulas.build_tree(quantity.side)], ascends, rewards=False))
    return None if aim.is_maximised or isinstance(aim.formula, Minus) else aim


def describe_objective(verdict: Verdict, ascends: bool) -> str:
    """Describe what an update does to the objective of a verdict; empty if none is known."""
    return str(find_aim(verdict, ascends) or "")


def orient_multiples(reading: TargetReading, ascends: bool = True) -> dict[str, str]:
    """Return the multiples, with a minus before those that are negative for every n >= 2 and positive
    parameters, and before a reward with bounds that falls as R or A rises.

    ascends: does an update follow the gradient?  A loss whose sign depends on the parameters is read as minus
    a reward.

    >>> from klsym.engine.explain import explain
    >>> orient_multiples(explain("-rho*sg(centred(R))", level="sequence").gradient)
    {'reward': '-(R - R/n)'}
    >>> orient_multiples(explain("-min(R, 1)*log_q").gradient)
    {'reward': '-(R*where(R < 1, 1, 0) - where(R < 1, 1, 0))'}
    >>> orient_multiples(explain("-R*log_q/(n - 1)").gradient)
    {'reward': '-R/(n - 1)'}
    >>> orient_multiples(explain("R - beta*k1", use="reward", batch="mean").gradient)["reverse-kl"]
    '-beta*(1 - 1/n)'
    """
    return {
        name: _show_negated(_simplify(-value))
        if (is_sum(text) or not text.startswith("-"))
        and (_falls(value) or (not ascends and needs_condition(value)))
        else text
        for (name, value), text in zip(reading.parts.items(), reading.multiples.values(), strict=True)
    }


def find_sign(value: Any) -> int:
    """Return the sign of a multiple for rewards of 1, n >= 2 and positive parameters; 0 if it has none.

    Of several rewards no two may have opposite signs; nor may it where a mask M is 1, and where it is 0.

    >>> from klsym.language.expressions import beta
    >>> find_sign(-R / (beta + 1)), find_sign(beta * R - R), find_sign(beta * A - A - R), find_sign(A - R)
    (-1, 0, -1, 0)
    >>> [find_sign(value) for value in ((M - 1) * A, (1 + M) * A, (1 - 2 * M) * A)]
    [-1, 1, 0]
    >>> from sympy import exp
    >>> [find_sign(value) for value in (exp(-R), R**3, R**2, 1 / (1 + exp(-R)))]
    [-1, 1, 0, 1]
    """
    slopes = (slope.subs(M, kept) for slope in _list_multiples(value) for kept in (0, 1))
    signs = {_find_sign_of_slope(slope) for slope in slopes} - {0}
    return signs.pop() if len(signs) == 1 else 0


def _find_sign_of_slope(slope: Any) -> int:
    """Return the sign of a slope for every reward; of one that is 0 somewhere, that of the others."""
    if slope.has(R, A):
        return int(is_never_negative(slope)) - int(is_never_negative(-slope))
    sizes = {x: 2 + Dummy(integer=True, nonnegative=True) for x in slope.free_symbols if x.name == "n"}
    others = {x: Dummy(positive=True) for x in slope.free_symbols if x not in sizes}
    e = factor(expand(slope.xreplace(sizes))).xreplace(others)
    return 1 if e.is_positive else -1 if e.is_negative else 0


def needs_condition(value: Any) -> str:
    """Return the factor whose sign decides whether minus the multiple is a reward; "" if none does.

    >>> from klsym.language.expressions import beta
    >>> needs_condition(beta * R - R), needs_condition(-R), needs_condition(R - A)
    ('1 - beta', '', '')
    """
    slopes = _list_multiples(value)
    if len(slopes) != 1 or find_sign(value) or slopes[0].has(R, A, M):
        return ""
    above, below = fraction(cancel(-slopes[0]))
    return show_value(expand(above * below if below.free_symbols else above))


def _list_multiples(value: Any) -> list[Any]:
    """Return the slopes in R and A of a multiple without steps, in factors; without rewards the multiple."""
    e = to_sympy(value) if isinstance(value, ExpPoly) else value
    if not isinstance(e, Expr) or e.has(Heaviside, sign) or log_q in e.free_symbols:
        return []
    opened = expand(e)
    return [factor(opened.diff(x)) for x in (R, A) if opened.has(x)] or [factor(opened)]


def _simplify(value: Any) -> Any:
    """Return a multiple in which (n - 1)/(n - 1)**2 is 1/(n - 1), and no minus stands before 1/(n - 1)."""
    if isinstance(value, ExpPoly) or not isinstance(value, Expr) or value.has(Heaviside, sign):
        return value
    above, below = fraction(cancel(value))
    turned = -1 if above.could_extract_minus_sign() and below.is_Add else 1
    return (turned * above) / expand(turned * below)


def _show_negated(value: Any) -> str:
    shown = show_value(value)
    return f"-({shown})" if is_sum(shown) or shown.startswith("-") else f"-{shown}"


def falls_with_reward(value: Any) -> bool:
    """Does a multiple in steps fall somewhere as R or A rises, in a region or at a bound, and rise nowhere?

    >>> [falls_with_reward(x) for x in (-Heaviside(R, 0), Heaviside(R, 0), R - 5 * Heaviside(R, 0))]
    [True, False, False]
    """
    changes = [-change for change in (*_list_slopes(value), *_list_jumps(value))]
    return bool(changes) and all(map(is_never_negative, changes))


def turns_with_reward(value: Any) -> bool:
    """Does a multiple in steps rise in one region as R or A rises, and fall in another one?

    >>> from klsym.engine.explain import explain
    >>> losses = ("abs(A)*log_q", "max(A, 0)*log_q", "A/(abs(A) + 1)*log_q")
    >>> [turns_with_reward(explain(loss).gradient.parts["reward"]) for loss in losses]
    [True, False, False]
    """
    slopes = _list_slopes(value)
    return any(map(is_never_negative, slopes)) and any(is_never_negative(-slope) for slope in slopes)


def turns_with_mask(value: Any) -> bool:
    """Has a multiple without steps another sign where a mask M is 1 than where it is 0?

    >>> [turns_with_mask(value) for value in ((1 - 2 * M) * A, (1 - M) * A, -M * A)]
    [True, False, False]
    """
    slopes = (x.subs(M, kept) for x in _list_multiples(value) if x.has(M) for kept in (0, 1))
    return {1, -1} <= {_find_sign_of_slope(slope) for slope in slopes}


def _list_slopes(value: Any) -> list[Any]:
    """Return the slopes of a multiple in steps in R and A, other than 0, region by region."""
    if not _has_steps(value):
        return []
    regions = [v for signed in _split_at_bounds(open_steps(value)) for v in iterate_values(signed.expand())]
    rewards = [(factor(v), x) for v in regions for x in v.free_symbols if x.name in (R.name, A.name)]
    return [slope for v, x in rewards if (slope := factor(v.diff(x))) != 0]


def _list_jumps(value: Any) -> list[Any]:
    """Return by how much a multiple rises at the single bound of its only reward with bounds, unless by 0."""
    if not _has_steps(value) or len(bounds := _find_bounds(e := open_steps(value))) != 1:
        return []
    return [jump for jump in list_jumps(e, *bounds) if jump != 0 and not jump.has(Heaviside)]


def _falls(value: Any) -> bool:
    return find_sign(value) < 0 or falls_with_reward(value)


def _is_nonlinear(value: Any) -> bool:
    """Is it another function of a reward than a multiple?"""
    return _has_steps(value) or any(slope.has(R, A) for slope in _list_multiples(value))


def _has_steps(value: Any) -> bool:
    return isinstance(value, Expr) and value.has(Heaviside, sign)


def _split_at_bounds(e: Any) -> Iterator[Any]:
    """Yield an expression where each reward with a single bound lies above it, and where it lies below.

    The reward is then bound + d, d a positive or a negative Dummy of the same name, with the same slope.
    """
    bounds = _find_bounds(e)
    for sides in product(("positive", "negative"), repeat=len(bounds)):
        distances = [Dummy(x.name, **{side: True}) for x, side in zip(bounds, sides, strict=True)]
        yield e.xreplace({x: bound + d for (x, bound), d in zip(bounds.items(), distances, strict=True)})


def _find_bounds(e: Any) -> dict[Any, Any]:
    """Return where the steps of each reward are, of those whose steps are all at one place."""
    steps = {step.args[0] for step in e.atoms(Heaviside)}
    places = {x: {find_bound(step, x) for step in steps} - {None} for x in (R, A)}
    return {x: values.pop() for x, values in places.items() if len(values) == 1}


def aim_at_multiples(multiples: dict[str, str], ascends: bool) -> Aim:
    """Return what an update does to a sum of multiples of the KLs and rewards."""
    return Aim(*choose_sense(build_objective_terms(multiples), ascends, "reward" in multiples))


def name_combination(reading: TargetReading, ascends: bool) -> str:
    """Name a sum of multiples of the two KLs and of rewards; a multiple that is a parameter is positive.

    >>> from klsym.engine.explain import explain
    >>> name_combination(explain("(1 - beta)*k2").gradient, ascends=False)
    'a penalty on KL(policy || reference) if 1 - beta > 0'
    """
    multiples = orient_multiples(reading, ascends)
    penalty = _name_penalty(reading, multiples, ascends)
    if "reward" not in multiples:
        return penalty
    gradient = _name_policy_gradient(reading.parts["reward"], multiples, ascends)
    return " with ".join(filter(None, (gradient, penalty)))


def _name_policy_gradient(value: Any, multiples: dict[str, str], ascends: bool) -> str:
    """Name the gradient of a multiple or a function of a reward, by whether it raises the reward."""
    if not ascends and (positive := needs_condition(value)):
        return f"a policy gradient if {positive} > 0"
    if turns_with_reward(value):
        return "a policy gradient whose sign changes with the reward"
    if turns_with_mask(value):
        return "a policy gradient whose sign changes with the mask M"
    if _is_nonlinear(value):
        raised = value if ascends else -value  # the function of the reward whose mean rises
        if not _falls(raised) and not _falls(-raised):
            return "a policy gradient of a function of the reward"
        is_raised = _falls(-raised)
    else:
        is_raised = aim_at_multiples(multiples, ascends).is_maximised
    return "a policy gradient" if is_raised else "the wrong sign for a policy gradient"


def _name_penalty(reading: TargetReading, multiples: dict[str, str], ascends: bool) -> str:
    """Name the KLs in a sum of multiples; "" if there are none."""
    kls = [name for name in KL_OF if name in multiples]
    is_raised = [multiples[name].startswith("-") != ascends for name in kls]
    if len(kls) != 1:
        sums = "a difference of the two KLs" if len({*is_raised}) > 1 else "a sum of the two KLs"
        return sums if kls else ""
    value = reading.parts[kls[0]]
    if positive := needs_condition(value if ascends else -value):
        return f"a penalty on {KL_OF[kls[0]]} if {positive} > 0"
    return f"{'the wrong sign for a penalty' if is_raised[0] else 'a penalty'} on {KL_OF[kls[0]]}"
