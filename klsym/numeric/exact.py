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

import zlib
from collections.abc import Iterable, Mapping
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
    Instance,
    Ratio,
    Scope,
    Sized,
    System,
    from_certificate,
    random_model,
    refuse_unless,
)
from klsym.statements import (
    Atom,
    Bregman,
    Context,
    Covariance,
    Divergence,
    E,
    ExpectedGradient,
    Gradient,
    Point,
    PointGradient,
    Side,
    Statement,
)

if TYPE_CHECKING:  # a theorem is data here
    from klsym.kernel import Theorem

TOLERANCE = 1e-10  # relative difference of sides that are equal
WIDTH = Fraction(1, 10**15)  # of the enclosure of left - right
SEPARATION = 1e-6  # relative difference of sides that are not
THETAS = (0.0, 0.5, -0.5, 1.0)  # steps along u at which premises are compared


# ---------------------------------------------------------------------------- sides and atoms
def _side(side: Side, at: Frame) -> Sized:
    total = at.constant(0)
    for coefficient, atoms in side.terms:
        constant = coefficient.names() <= set(at.context.parameters)
        refuse_unless(constant, "a random coefficient stands outside its expectation")
        product = at.polynomial(coefficient).at(0)
        for atom in atoms:
            product = product * _atom(atom, at)
        total = total + product
    return total


def _atom(atom: Atom, at: Frame) -> Sized:
    x = at.model.outcome
    match atom:
        case E(m, a, score):
            return (at.density(m).power(1) * _scores(score, at) * at.polynomial(a)).sum()
        case Point(a, score):
            return (_scores(score, at) * at.polynomial(a)).at(x)
        case ExpectedGradient(m, loss):
            return _slope((at.density(m).power(1) * at.moved().polynomial(loss)).sum(), at)
        case PointGradient(loss):
            return _slope(at.moved().polynomial(loss).at(x), at)
        case Gradient(of):
            return _slope(_side(of, at.moved()), at)
        case Divergence(kind, first, second):
            return _divergence(kind, at.density(first), at.density(second))
        case Covariance(m, a, b):
            return _covariance(at.density(m).power(1), at.polynomial(a), at.polynomial(b))
        case Bregman(phi):
            return _bregman(phi, at)
    raise UsageError(f"oracle: unknown atom {type(atom).__name__}")


def _scores(score: tuple[str, ...], at: Frame) -> Sized:
    refuse_unless(set(score) <= {"x"}, f"score {list(score)}: only single samples are evaluated")
    product = at.constant(1)
    for _ in score:
        product = product * at.score()
    return product


def _slope(quantity: Sized, at: Frame) -> Sized:
    return Sized(at.system.slope(quantity.value), FLOAT.slope(quantity.size))


def _divergence(kind: str, a: Ratio, b: Ratio) -> Sized:
    """KL = sum a log(a/b), chi2 = sum (a - b)^2 / b, J = KL(a||b) + KL(b||a)."""
    match kind:
        case "KL":
            return (a.power(1) * a.over(b).log()).sum()
        case "chi2":
            gap = a.power(1) - b.power(1)
            return (gap * gap * b.power(-1)).sum()
        case "J":
            return _divergence("KL", a, b) + _divergence("KL", b, a)
    raise UsageError(f"oracle: unknown divergence {kind!r}")


def _covariance(m: Sized, a: Sized, b: Sized) -> Sized:
    """sum_x m (a - E_m a)(b - E_m b)."""
    return (m * (a - (m * a).sum()) * (b - (m * b).sum())).sum()


def _bregman(phi: ExpPoly, at: Frame) -> Sized:
    """phi(r) - phi(1) - phi'(1)(r - 1) at one sample; phi is given in k1 = -log r."""
    refuse_unless(phi.names() <= {"k1", *at.context.parameters}, "bregman: a function of r alone")
    one, x = at.system.lift([1]), at.model.outcome
    none, all_ = np.zeros(1), at.system.magnitude(one)
    near_one = Ratio(at.system, 1 / (one + at.system.step), none, all_)  # r = 1 + t
    slope = _slope(Scope(at.model, at.system, {"k1": near_one}).polynomial(phi).at(0), at)
    exactly_one = Ratio(at.system, one, none, none)
    at_one = Scope(at.model, at.system, {"k1": exactly_one}).polynomial(phi).at(0)
    line = slope * (at.ratios["k1"].power(-1).at(x) - at.constant(1))
    return at.polynomial(phi).at(x) - at_one - line


# ---------------------------------------------------------------------------- generic functions
def default_function(name: str) -> Any:
    """A smooth function for a generic one: sin(a.x) + exp(b.x)/2 + (c.x)^2/4, by its name.

    >>> g, h = default_function("g"), default_function("h")
    >>> bool(g(1.0) != h(1.0))
    True

    name: what chooses a, b, c.  The function takes its arguments as arrays, shape (n,) each.
    """
    seed = zlib.crc32(name.encode())
    a, b, c = np.random.default_rng(seed).uniform(0.2, 0.9, size=(3, 8)) * [[1], [0.5], [1]]

    def function(*arguments: Any) -> Any:
        ax, bx, cx = (sum(w * x for w, x in zip(v, arguments, strict=False)) for v in (a, b, c))
        return np.sin(ax) + np.exp(bx) / 2 + cx**2 / 4

    return function


def _refuse_unless_analytic(name: str, function: Any, arguments: Any) -> None:
    """Complex steps need f(x + ih) = f(x) + ih f'(x); abs, maximum and comparisons break it."""
    h = 1e-5
    real = [np.real(argument) for argument in arguments]
    above, below = function(*(x + h for x in real)), function(*(x - h for x in real))
    central = (np.asarray(above) - np.asarray(below)) / (2 * h)
    step = FLOAT.slope(function(*(x + FLOAT.step for x in real)))
    scale = 1 + np.max(np.abs(central)) + np.max(np.abs(above))
    close = bool(np.all(np.abs(central - step) <= 1e-4 * scale))
    refuse_unless(close, f"function {name}: not smooth in complex arithmetic, or not finite")


def _instances(context: Context, functions: Functions | None) -> Functions:
    """An instance for every generic function of a statement; callables check what they are given."""
    given = dict(functions or {})
    undeclared = sorted(set(given) - set(context.function_arguments))
    refuse_unless(not undeclared, f"the statement has no function {', '.join(undeclared)}")
    chosen = {name: given.get(name) for name in context.function_arguments}
    return {name: _checked(name, default_function(name) if f is None else f) for name, f in chosen.items()}


def _checked(name: str, function: Instance) -> Instance:
    if isinstance(function, ExpPoly):
        return function

    def checked(*arguments: Any) -> Any:
        if any(np.iscomplexobj(argument) for argument in arguments):
            _refuse_unless_analytic(name, function, arguments)
        return function(*arguments)

    return checked


# ---------------------------------------------------------------------------- both sides
def _sides(
    statement: Statement, model: FiniteModel, functions: Functions | None, system: System
) -> tuple[Sized, Sized]:
    context, known = statement.context, _instances(statement.context, functions)
    model.check(context)
    check_premises(context, model, functions)
    at = Frame(model, system, context, known)
    with np.errstate(all="ignore"):  # what is not finite is reported as such
        return _side(statement.left, at), _side(statement.right, at)


def check_premises(context: Context, model: FiniteModel, functions: Functions | None) -> None:
    """Refuse functions that do not satisfy the premises of a statement, F = G at theta + t u.

    >>> from klsym.engine.quantities import KL, expectation
    >>> from klsym.language import k1
    >>> pair = (KL("q", "p").side, expectation(k1, under="q").side)
    >>> check_premises(Context(premises=(pair,)), random_model(0, 3), {})

    functions: name -> callable or ExpPoly; t is 0, 1/2, -1/2 and 1.
    Raises UsageError: a premise that fails, with its two values.
    """
    known = _instances(context, functions)
    for number, pair in enumerate(context.premises, start=1):
        for t in THETAS:
            at = Frame(model.moved(t, context), FLOAT, context, known)
            left, right = (_side(side, at) for side in pair)
            gap, size = abs(left.value - right.value), abs(left.size) + abs(right.size)
            if not gap <= TOLERANCE * size:
                values = f"{float(np.real(left.value)):.6g} != {float(np.real(right.value)):.6g}"
                reason = f"premise {number} fails on this model ({values} at t = {t})"
                raise UsageError(f"oracle: {reason}: pass functions= that satisfy it")


def evaluate(
    statement: Statement, model: FiniteModel, functions: Functions | None = None
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
    Raises UsageError: a name without a value; a model or functions that the statement forbids.
    Source: Squire & Trapp 1998, Using complex variables to estimate derivatives of real functions.
    """
    left, right = _sides(statement, model, functions, FLOAT)
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
    statement: Statement, models: Iterable[FiniteModel], functions: Functions | None = None
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

    functions and errors as in `evaluate`.  A side that is not finite differs by infinity.
    """
    gaps = [_gap(*_sides(statement, model, functions, FLOAT)) for model in models]
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

    proved       the relation holds to 1e-10, and in enclosures 1e-15 wide
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
    raise UsageError(f"oracle: unknown kind of theorem {theorem.kind!r}")


def _models(context: Context, seeds: Iterable[int], exact: bool = False) -> list[FiniteModel]:
    return [random_model(seed, 2 + seed % 5, context, exact) for seed in seeds]


def _check_proved(theorem: Theorem, seeds: list[int], functions: Functions) -> Check:
    statement, equal = theorem.statement, theorem.statement.relation == "="
    found = agreement(statement, _models(statement.context, seeds), functions)
    measured = found.difference if equal else max(found.excess, 0.0)
    passed, width, enclosed = measured <= TOLERANCE, 0.0, 0
    instances = [functions.get(name) for name, _ in statement.context.functions]
    if all(isinstance(instance, ExpPoly) for instance in instances):
        for model in _models(statement.context, (1, 3), exact=True):
            holds, wide = _enclosed(statement, model, functions)
            passed, width, enclosed = passed and holds, max(width, wide), enclosed + 1
    what = "difference" if equal else "excess"
    text = f"largest relative {what} {measured:.1e} over {found.models} models"
    text += f", enclosures {width:.1e} wide on {enclosed}" if enclosed else ""
    return Check(passed, "proved", {"difference": measured, "width": width}, text)


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
            both = (_side(target, at) for target in targets)
            rows.append([left.value - right.value, *(side.value for side in both)])
            sizes.append(left.size + right.size)
    table, scale = np.real(rows), float(np.linalg.norm(sizes))
    fit = np.linalg.lstsq(table[:, 1:], table[:, 0], rcond=None)[0]
    rest = float(np.linalg.norm(table[:, 0] - table[:, 1:] @ fit))
    residual = rest / scale if scale else 0.0
    text = f"relative residual {residual:.1e} of a fit by both KL gradients on {len(rows)} rows"
    return Check(residual >= SEPARATION, "independent", {"residual": residual}, text)
