"""The exact oracle: both sides of a statement on a finite model, from what they literally mean.

It shares nothing with the rules that prove statements.  A gradient along u is d/dt at t = 0 of

    E_m[grad L]    sum_x m(x) L(live at theta + t u, sg(.) at theta)       m held fixed
    grad E_q[a]    sum_x q_t(x) a(live at theta + t u, sg(.) at theta)     q moves, p and mu do not
    grad KL(a||b)  sum_x a log(a/b), and other divergences from their own formulas

with q_t the softmax model; on-policy, mu is a frozen copy of q.  One evaluator serves two number
systems: floats with a complex step (`evaluate`), and rational enclosures with dual numbers
(`enclose`).  Everything carries its size, the sum of the absolute values of its terms, by which
differences are judged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from klsym.errors import UsageError
from klsym.kernel.intervals import Interval
from klsym.normal_form import ExpPoly
from klsym.numeric.models import (
    COUNTS,
    EXACT,
    FLOAT,
    FiniteModel,
    Frame,
    Functions,
    Sized,
    System,
    from_certificate,
    random_model,
    refuse_unless,
)
from klsym.numeric.regions import drawn_into
from klsym.numeric.sides import default_function, instances, side_value
from klsym.statements import Context, Divergence, Gradient, Side, Statement, elements

if TYPE_CHECKING:  # a theorem is data here
    from klsym.kernel import Theorem

TOLERANCE = 1e-10  # relative difference of sides that are equal
WIDTH = Fraction(1, 10**15)  # of the enclosure of left - right
SEPARATION = 1e-6  # relative difference of sides that are not
THETAS = (0.0, 0.5, -0.5, 1.0)  # steps along u at which premises are compared

__all__ = [
    "Agreement", "Check", "agreement", "allowed", "check_premises", "check_theorem", "default_function",
    "enclose", "evaluate", "thetas_of",
]  # fmt: skip


# ---------------------------------------------------------------------------- both sides
def _sides(
    statement: Statement,
    model: FiniteModel,
    functions: Functions | None,
    system: System,
    thetas: Iterable[float] = THETAS,
) -> tuple[Sized, Sized]:
    context, known = statement.context, instances(statement.context, functions)
    model.check(context)
    check_premises(context, model, functions, thetas)
    at = Frame(model, system, context, known)
    with np.errstate(all="ignore"):  # what is not finite is reported as such
        return side_value(statement.left, at), side_value(statement.right, at)


def check_premises(
    context: Context,
    model: FiniteModel,
    functions: Functions | None,
    thetas: Iterable[float] = THETAS,
) -> None:
    """Refuse what does not satisfy the premises of a statement, F = G at theta + t u.

    >>> from klsym.engine.quantities import KL, expectation
    >>> from klsym.language import k1
    >>> pair = (KL("q", "p").side, expectation(k1, under="q").side)
    >>> check_premises(Context(premises=(pair,)), random_model(0, 3), {})

    functions: name -> callable or ExpPoly.  thetas: the values of t.
    Raises UsageError: a premise that fails, with its two values.
    """
    known = instances(context, functions)
    for number, pair in enumerate(context.premises, start=1):
        for t in thetas:
            at = Frame(model.moved(t, context), FLOAT, context, known)
            left, right = (side_value(side, at) for side in pair)
            gap, size = abs(left.value - right.value), abs(left.size) + abs(right.size)
            if not gap <= TOLERANCE * size:
                values = f"{float(np.real(left.value)):.6g} != {float(np.real(right.value)):.6g}"
                reason = f"premise {number} fails on this model ({values} at t = {t})"
                raise UsageError(f"oracle: {reason}: pass functions= that satisfy it")


def evaluate(
    statement: Statement,
    model: FiniteModel,
    functions: Functions | None = None,
    thetas: Iterable[float] = THETAS,
) -> tuple[float, float]:
    """The two sides of a statement on a finite model, in floats.

    Gradients are Im F(theta + i h u) / h with h = 1e-30 (complex step), so nothing cancels.

    >>> from klsym.engine.quantities import KL, expected_gradient, grad
    >>> from klsym.language import k3
    >>> left, right = expected_gradient(k3, under="q"), grad(KL("p", "q"))
    >>> a, b = evaluate(Statement(left.side, right.side), random_model(0, 4))
    >>> bool(abs(a - b) < 1e-15 < abs(a))
    True

    functions: generic function name -> a callable of its arguments (arrays, shape (n,)), made of
    NumPy functions that are smooth in complex arithmetic; or an ExpPoly.  Others get a default.
    thetas: as in `check_premises`.
    Raises UsageError: a name without a value; a model or functions that the statement forbids.
    Source: Squire & Trapp 1998, Using complex variables to estimate derivatives of real functions.
    """
    left, right = _sides(statement, model, functions, FLOAT, thetas)
    return float(np.real(left.value)), float(np.real(right.value))


def enclose(
    statement: Statement, model: FiniteModel, functions: Functions | None = None
) -> tuple[Interval, Interval]:
    """The two sides of a statement on a rational model, each in a rational interval.

    Gradients are slopes of dual numbers; without logarithms the intervals are points.

    >>> from klsym.engine.quantities import chi2, expectation
    >>> from klsym.language import r
    >>> statement = Statement(chi2("p", "q").side, expectation(r**2 - 1, under="q").side)
    >>> left, right = enclose(statement, random_model(0, 3, exact=True))
    >>> left == right and left.lower == left.upper
    True

    functions: as in `evaluate`, but ExpPoly only.
    Raises UsageError: a model of floats, a function known as a callable only.
    Source: Moore, Kearfott & Cloud 2009, Introduction to interval analysis.
    """
    if not model.exact:
        raise UsageError("oracle: enclosures need a model of rational numbers")
    left, right = _sides(statement, model, functions, EXACT)
    return left.value.value, right.value.value


@dataclass(frozen=True)
class Agreement:
    """How far two sides are apart: |left - right| / size, and (left - right) / size, at most."""

    difference: float
    excess: float
    models: int


def agreement(
    statement: Statement,
    models: Iterable[FiniteModel],
    functions: Functions | None = None,
    thetas: Iterable[float] = THETAS,
) -> Agreement:
    """The largest relative difference of the two sides over models.

    |left - right| / size, where size sums the absolute values of the terms of both sides: a result
    that is tiny because large terms cancel is not judged by its own size.

    >>> from klsym.engine.quantities import expectation
    >>> from klsym.language import r
    >>> one = expectation(1, under="q")
    >>> statement = Statement(expectation(r, under="q").side, one.side)
    >>> agreement(statement, [random_model(seed, 3) for seed in range(4)]).difference < 1e-15
    True

    functions and errors as in `evaluate`, thetas as in `check_premises`.  A side that is not finite
    differs by infinity.
    """
    gaps = [_gap(*_sides(statement, model, functions, FLOAT, thetas)) for model in models]
    refuse_unless(bool(gaps), "agreement: no models")
    return Agreement(max(map(abs, gaps)), max(gaps), len(gaps))


def _gap(left: Sized, right: Sized) -> float:
    gap = float(np.real(left.value - right.value))
    size = float(np.real(left.size + right.size))
    if not np.isfinite(gap + size):
        return float("inf")
    return gap / size if size else gap


# ---------------------------------------------------------------------------- theorems
@dataclass(frozen=True)
class Check:
    """What a check of a theorem found: did it pass, what was measured, and one line of text."""

    passed: bool
    kind: str
    measured: Mapping[str, float]
    text: str


def check_theorem(
    theorem: Theorem, seeds: Iterable[int] = range(8), functions: Functions | None = None
) -> Check:
    """Judge what a theorem says by this oracle, on random models of 2 to 6 outcomes.

    proved       the relation holds to 1e-10, and in enclosures 1e-15 wide, on models in its region; an
                 inequality is an equality just where the terms of its proof vanish
    iff          the inequality holds for this parameter at every outcome, and for others it fails near r = 1
    refuted      its own model separates the sides, in enclosures
    unique       equality for the family, and for no other function that is tried
    independent  least squares on grad KL(q||p) and grad KL(p||q) leaves a residual

    >>> from klsym.engine.derivation import derive
    >>> from klsym.engine.quantities import KL, expected_gradient, grad
    >>> from klsym.language import k3
    >>> proof = derive(expected_gradient(k3, under="q")).equals(grad(KL("p", "q")))
    >>> check_theorem(proof.theorem).passed
    True

    seeds: one random model each.  functions: as in `evaluate`; others than the theorem's are left out.
    Raises UsageError: premises that the functions do not satisfy; never for a claim that fails.
    """
    seeds, declared = list(seeds), theorem.statement.context.function_arguments
    functions = {n: instance for n, instance in (functions or {}).items() if n in declared}
    match theorem.kind:
        case "proved":
            return _check_proved(theorem, seeds, functions)
        case "refuted":
            return _check_refuted(theorem)
        case "unique":
            return _check_unique(theorem, seeds)
        case "independent":
            return _check_independent(theorem, seeds)
        case "iff":
            return _check_iff(theorem, seeds)
    raise UsageError(f"oracle: unknown kind of theorem {theorem.kind!r}")


def _models(context: Context, seeds: Iterable[int], exact: bool = False) -> list[FiniteModel]:
    return [random_model(seed, 2 + seed % 5, context, exact) for seed in seeds]


def allowed(theorem: Theorem, model: FiniteModel, functions: Functions) -> FiniteModel:
    """The model in the region of the theorem, with parameters that the hypotheses allow: positive ones,
    and one for each premise.
    """
    context = theorem.statement.context
    positive = {h[1] for h in theorem.hypotheses if h[0] == "positive"}
    signed = {name: abs(v) if name in positive else v for name, v in model.parameters.items()}
    model = drawn_into(replace(model, parameters=signed), regions_of(theorem))
    for number in _used_here(theorem):
        left, right = context.premises[number]
        names = {n for e in elements(left - right) for n in e.names()} & set(context.parameters)
        if len(names) == 1:
            model = _rooted(
                model, names.pop(), lambda at, gap=left - right: side_value(gap, at), theorem, functions
            )
    return model


def regions_of(theorem: Theorem) -> list[tuple[str, ExpPoly]]:
    """Where the theorem assumes that a function of k1 and w is at least 0."""
    return [(str(h[1]), h[2]) for h in theorem.hypotheses if h[0] == "nonnegative"]


def _used_here(theorem: Theorem) -> list[int]:
    """The premises that are used at one theta, for their values."""
    return [h[1] for h in theorem.hypotheses if h[0] == "equal"]


def thetas_of(theorem: Theorem) -> tuple[float, ...]:
    everywhere = any(h[0] == "premise" for h in theorem.hypotheses)
    return THETAS if everywhere or not _used_here(theorem) else THETAS[:1]


def _rooted(
    model: FiniteModel, name: str, function: Any, theorem: Theorem, functions: Functions
) -> FiniteModel:
    """The model with the root of a function that is affine in one parameter; as it was if there is none."""
    context = theorem.statement.context
    at = [replace(model, parameters={**model.parameters, name: value}) for value in (1.0, 2.0)]
    known = instances(context, functions)
    one, two = (float(np.real(function(Frame(m, FLOAT, context, known)).value)) for m in at)
    root = 1 - one / (two - one) if two != one else model.parameters[name]
    return replace(model, parameters={**model.parameters, name: root})


def _check_proved(theorem: Theorem, seeds: list[int], functions: Functions) -> Check:
    statement, equal = theorem.statement, theorem.statement.relation == "="
    models = [allowed(theorem, m, functions) for m in _models(statement.context, seeds)]
    found = agreement(statement, models, functions, thetas_of(theorem))
    measured = found.difference if equal else max(found.excess, 0.0)
    passed, width, enclosed = measured <= TOLERANCE, 0.0, 0
    exact = all(isinstance(functions.get(name), ExpPoly) for name, _ in statement.context.functions)
    for model in _models(statement.context, (1, 3) if exact and not _used_here(theorem) else (), exact=True):
        holds, wide = _enclosed(statement, allowed(theorem, model, functions), functions)
        passed, width, enclosed = passed and holds, max(width, wide), enclosed + 1
    what = "difference" if equal else "excess"
    text = f"largest relative {what} {measured:.1e} over {found.models} models"
    text += f", enclosures {width:.1e} wide on {enclosed}" if enclosed else ""
    rows = [] if equal else _terms(theorem.close)
    if rows:
        special = _special(theorem, models, functions)
        wrong = sum(not _equal_where_claimed(theorem, rows, m, functions) for m in special)
        passed, text = passed and not wrong, text + f", equality misjudged on {wrong}"
    return Check(passed, "proved", {"difference": measured, "width": width}, text)


def _terms(close: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The terms of an inequality; all of them vanish where it is an equality."""
    if close.get("by") == "square":
        return [{**close, "at": close["measure"], "constant": True}]
    return close["terms"] if close.get("by") in ("tangent", "sum of squares") else []


def _special(theorem: Theorem, models: list[FiniteModel], functions: Functions) -> Iterator[FiniteModel]:
    """The models, those in which densities or parameters agree, and those in which a factor is zero."""
    context = theorem.statement.context
    premises = [element for pair in context.premises for side in pair for element in elements(side)]
    free = sorted(set(context.parameters) - {name for element in premises for name in element.names()})
    for model in models:
        yield model
        mu = model.mu if not context.on_policy else model.q
        turned = _turned(model.q, model.outcome)
        for p, sampler in ((model.q, mu), (model.p, model.q), (model.q, model.q), (turned, mu)):
            yield allowed(theorem, replace(model, p=p, mu=sampler), functions)
        for name in free:
            for value in {1, *model.parameters.values()}:
                changed = replace(model, parameters={**model.parameters, name: value})
                yield allowed(theorem, changed, functions)
        for row in _terms(theorem.close):
            factor = ExpPoly.from_json(row.get("factor", []))
            for name in sorted(factor.names() & set(free)):
                yield _rooted(model, name, lambda at, a=factor: at.polynomial(a).at(0), theorem, functions)


def _turned(q: Sequence[Any], x: int) -> list[Any]:
    """The probabilities q, changed everywhere but at x."""
    rest = [value for y, value in enumerate(q) if y != x]
    rest = [*rest[1:], *rest[:1]]
    return [*rest[:x], q[x], *rest[x:]]


def _equal_where_claimed(
    theorem: Theorem, rows: list[Mapping[str, Any]], model: FiniteModel, functions: Functions
) -> bool:
    """Are the sides equal on this model just if every term of the inequality vanishes there?"""
    statement = theorem.statement
    at = Frame(model, FLOAT, statement.context, instances(statement.context, functions))
    gap = -_gap(*_sides(statement, model, functions, FLOAT, thetas_of(theorem)))
    return abs(gap) <= TOLERANCE if all(_vanishes(row, at) for row in rows) else gap > TOLERANCE


def _vanishes(row: Mapping[str, Any], at: Frame) -> bool:
    """f = 0; or u = 0, b s^k = 0 at the sample or at each outcome; of a variance: b s^k is constant."""
    values = at.polynomial(ExpPoly.from_json(row["u"] if "u" in row else row["b"]))
    if "nonnegative" in row:
        values = values * at.polynomial(ExpPoly.from_json(row["nonnegative"]))
    for _ in row.get("score", []):
        values = values * at.score()
    numbers = np.real(values.value)
    if row["at"] == "sample":
        numbers = numbers[at.model.outcome]
    elif row.get("constant"):
        numbers = numbers - numbers[0]
    factor = at.polynomial(ExpPoly.from_json(row["factor"])).at(0).value if "factor" in row else 1.0
    return bool(np.max(np.abs(numbers)) * abs(factor) <= TOLERANCE)


def _enclosed(statement: Statement, model: FiniteModel, functions: Functions | None) -> tuple[bool, float]:
    """Does the enclosure of left - right allow the relation, and how wide is it, relatively?"""
    left, right = enclose(statement, model, functions)
    gap = left + right * Interval.exact(-1)
    scale = max(Fraction(1), abs(left.lower), abs(right.lower))
    wide = (gap.upper - gap.lower) / scale
    allowed = gap.lower <= 0 and (gap.upper >= 0 or statement.relation == "<=")
    return allowed and wide < WIDTH, float(wide)


def _check_refuted(theorem: Theorem) -> Check:
    statement = theorem.statement
    left, right = enclose(statement, from_certificate(theorem.close["model"]))
    above, below = left.lower > right.upper, left.upper < right.lower
    gap = float(max(left.lower - right.upper, right.lower - left.upper))
    text = f"the sides are {gap:.3g} apart on the recorded model"
    return Check(above or (below and statement.relation == "="), "refuted", {"gap": gap}, text)


def _check_unique(theorem: Theorem, seeds: list[int]) -> Check:
    """Other functions must fail for every value of the parameters that the hypotheses allow."""
    statement, name = theorem.statement, theorem.close["function"]
    family = ExpPoly.from_json(theorem.close["family"])
    models = _models(statement.context, seeds)
    same = agreement(statement, models, {name: family}).difference
    settings = {"": models}
    for parameter in sorted(_may_vanish(theorem) - family.inverted()):
        values = [replace(m, parameters={**m.parameters, parameter: 0}) for m in models]
        settings[f" when {parameter} = 0"] = values
    apart, where = min(
        (agreement(statement, values, {name: other}).difference, label)
        for label, values in settings.items()
        for other in _outside(family, int(theorem.close["order"]))
    )
    text = f"family: largest relative difference {same:.1e}; others: at least {apart:.1e}{where}"
    passed = same <= TOLERANCE and apart >= SEPARATION
    return Check(passed, "unique", {"difference": same, "others": apart}, text)


def _may_vanish(theorem: Theorem) -> set[str]:
    """The parameters of the equation that no hypothesis makes nonzero."""
    nonzero = {item[1] for item in theorem.hypotheses if item[0] == "nonzero"}
    free = {*theorem.close["constants"], *COUNTS}
    return set(theorem.statement.context.parameters) - nonzero - free


def _outside(family: ExpPoly, order: int) -> list[ExpPoly]:
    """Functions that are not the family plus a combination of 1, ..., k1^(order - 1)."""
    k1 = ExpPoly.variable("k1")
    changes = [
        k1 ** max(order, 3) * Fraction(3, 10), k1**order * Fraction(1, 2),
        (k1 * Fraction(1, 2)).exp() * Fraction(1, 3), (-k1).exp() * Fraction(1, 5),
    ]  # fmt: skip
    combination = all(
        dict(monomial).get("k1", 0) < order and not any("k1" in dict(m) for m, _ in exponent)
        for monomial, exponent in family.terms
    )
    return [family + change for change in changes] + ([] if combination else [ExpPoly({})])


OFFSETS = (0.05, -0.05, 0.5, -0.5, 2.0, -2.0)  # of the parameter from the value that is claimed
NEAR_ONE = tuple(sign * size for size in (0.003, 0.01, 0.03, 0.1, 0.3, 0.6, 1.5) for sign in (1, -1))


def _check_iff(theorem: Theorem, seeds: list[int]) -> Check:
    """At the value: no excess at any outcome.  Next to it: an excess where k1 is one of NEAR_ONE."""
    statement, name = theorem.statement, theorem.close["parameter"]
    value, worst, least = ExpPoly.from_json(theorem.close["value"]), 0.0, float("inf")
    for model in [allowed(theorem, m, {}) for m in _models(statement.context, seeds)]:
        exact = float(np.real(Frame(model, FLOAT, statement.context, {}).polynomial(value).at(0).value))
        near = [_with_k1(model, k1) for k1 in NEAR_ONE]
        outcomes = [replace(model, outcome=x) for x in range(model.size)]

        def excess(models: list[FiniteModel], at: float) -> float:
            changed = [replace(m, parameters={**m.parameters, name: at}) for m in models]
            return agreement(statement, changed).excess

        worst = max(worst, excess(outcomes + near, exact))
        least = min(least, *(excess(near, exact + offset) for offset in OFFSETS))
    text = f"at the value: largest relative excess {worst:.1e}; elsewhere: at least {least:.1e}"
    passed = worst <= TOLERANCE and least >= SEPARATION
    return Check(passed, "iff", {"difference": worst, "others": least}, text)


def _with_k1(model: FiniteModel, k1: float) -> FiniteModel:
    """Two outcomes, k1 = log q/p at the first; on-policy."""
    p = float(np.exp(-k1)) / 5
    rewards = {"R": [0, 1], "A": [1, 0]}
    return FiniteModel([0.2, 0.8], [p, 1 - p], u=[1, 0], parameters=model.parameters, rewards=rewards)


def _check_independent(theorem: Theorem, seeds: list[int]) -> Check:
    """One pair (a, b) for all models, with the same parameters.

    Rewards are constant over outcomes, so that E_q[h(R) s] = 0, but differ between models, so that
    R k1 is no multiple of k1.
    """
    statement, rows, sizes = theorem.statement, [], []
    targets = [Side.atom(Gradient(Side.atom(Divergence("KL", a, b)))) for a, b in ("qp", "pq")]
    models = _models(statement.context, seeds)
    for number, model in enumerate(models):
        levels = {"R": 1 + number / 3, "A": 2 - number / 5}
        rewards = {name: [level] * model.size for name, level in levels.items()}
        for shift in range(3):
            u = [*model.u[shift:], *model.u[:shift]]
            model = replace(model, u=u, parameters=models[0].parameters, rewards=rewards)
            left, right = _sides(statement, model, None, FLOAT)
            at = Frame(model, FLOAT, statement.context, {})
            both = (side_value(target, at) for target in targets)
            rows.append([left.value - right.value, *(side.value for side in both)])
            sizes.append(left.size + right.size)
    table, scale = np.real(rows), float(np.linalg.norm(sizes))
    fit = np.linalg.lstsq(table[:, 1:], table[:, 0], rcond=None)[0]
    rest = float(np.linalg.norm(table[:, 0] - table[:, 1:] @ fit))
    residual = rest / scale if scale else 0.0
    text = f"relative residual {residual:.1e} of a fit by both KL gradients on {len(rows)} rows"
    return Check(residual >= SEPARATION, "independent", {"residual": residual}, text)
