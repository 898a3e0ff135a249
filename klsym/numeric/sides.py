"""What sides, atoms and generic functions are worth on a model, from what they literally mean.

A gradient along u is d/dt at t = 0, with sg(.) at theta; a divergence is its own sum over outcomes.  The
curl of the field F.u(theta) = E_m[grad_u L] is d/ds F.u(theta + s v) - d/ds F.v(theta + s u) at s = 0; the
field is that of theta + s v throughout: sg(.), the on-policy sampler and m = q are those of that theta.
Rewards, given or not, and regions do not move.
"""

from __future__ import annotations

import zlib
from fractions import Fraction
from typing import Any

import numpy as np

from klsym.errors import UsageError
from klsym.kernel.ring import ExpPoly
from klsym.language.abbreviations import (
    Atom,
    Bregman,
    Context,
    Covariance,
    Curl,
    Divergence,
    Gradient,
    Mean,
    MeanGradient,
    MeanVariance,
    Side,
    TokenDivergence,
)
from klsym.numeric.indices import PREFIX
from klsym.numeric.model_variables import Frame, Functions, Instance, Scope
from klsym.numeric.number_systems import FLOAT, NESTED, OUTER, Ratio, Sized, refuse_unless

STEP = 0.02  # by which no log q moves more: a central difference of order 8 errs by about STEP^8 / 630
WEIGHTS = (4 / 5, -1 / 5, 4 / 105, -1 / 280)  # of F(k h) - F(-k h), k = 1..4
# Source: Fornberg 1988, Generation of finite difference formulas on arbitrarily spaced grids, table 1.


# ---------------------------------------------------------------------------- sides and atoms
def side_value(side: Side, at: Frame) -> Sized:
    total = at.constant(0)
    for coefficient, atoms in side.terms:
        refuse_unless(
            at.context.is_constant(coefficient), "a random coefficient stands outside its expectation"
        )
        product = at.whole.polynomial(coefficient).at(0)
        for atom in atoms:
            product = product * _atom(atom, at)
        total = total + product
    return total


def _atom(atom: Atom, at: Frame) -> Sized:
    match atom:
        case Mean(index, m, a, score):
            rows = at.rows(index)
            return rows.mean(m, rows.scored(a, score))
        case MeanGradient(index, m, loss):
            return _expected_gradient(index, m, loss, at)
        case Gradient(of):
            return side_value(of, at.moved(kinks_refused=True)).slope(at.system)
        case Curl(index, m, loss):
            return _curl(index, m, loss, at)
        case Divergence(kind, first, second):
            return _divergence(kind, at.whole.density(first), at.whole.density(second))
        case TokenDivergence(m, first, second, gradient):
            return _token_divergence(m, first, second, gradient, at)
        case Covariance(m, a, b):
            return _covariance(at.whole.density(m).power(1), at.whole.polynomial(a), at.whole.polynomial(b))
        case MeanVariance(m, a, score):
            mean = _means_of_batches(a, score, at)
            return _covariance(at.rows("i").density(m).power(1), mean, mean)
        case Bregman(phi):
            return _bregman(phi, at)
    raise UsageError(f"oracle: unknown atom {type(atom).__name__}")


def _expected_gradient(index: str, m: str, loss: ExpPoly, at: Frame, along: str = "u") -> Sized:
    """d/dt of the mean of L, m held fixed."""
    moved = at.moved(along).rows(index).polynomial(loss)
    return at.rows(index).mean(m, moved).slope(at.system)


def _means_of_batches(a: ExpPoly, score: tuple[str, ...], at: Frame) -> Sized:
    """For each batch, the mean over i of a s..s with x_i as self and the rest as others."""
    rows = at.rows("i")
    values, turns = rows.scored(a, score), rows.where.turns()
    each = [values.at(turn) for turn in turns]
    total = Sized(np.sum([v.value for v in each], axis=0), np.sum([v.size for v in each], axis=0))
    return total * at.constant(Fraction(1, len(turns)))


def _token_divergence(m: str, first: str, second: str, gradient: bool, at: Frame) -> Sized:
    """The sum over tokens of m(prefix) a log(a/b); for its gradient, only a and b move."""
    live = (at.moved() if gradient else at).tokens
    a, b = live.density(first), live.density(second)
    total = at.rows(PREFIX).mean(m, a.power(1) * a.over(b).log())
    return total.slope(at.system) if gradient else total


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
    slope = Scope(at.model, at.system, {"k1": near_one}).polynomial(phi).at(0).slope(at.system)
    exactly_one = Ratio(at.system, one, none, none)
    at_one = Scope(at.model, at.system, {"k1": exactly_one}).polynomial(phi).at(0)
    r = at.whole.density("p").over(at.whole.density("q")).power(1).at(x)
    line = slope * (r - at.constant(1))
    return at.whole.polynomial(phi).at(x) - at_one - line


# ---------------------------------------------------------------------------- the curl of a field
def _curl(index: str, measure: str, loss: ExpPoly, at: Frame) -> Sized:
    """By central differences in floats, by nested dual numbers in enclosures."""
    refuse_unless(not at.moving, "the gradient of a curl is not evaluated")
    refuse_unless(at.model.v is not None, "the model has no direction 'v'")
    along_v, along_u = (
        (_difference if at.system is FLOAT else _exact)(index, measure, loss, at, *pair)
        for pair in (("u", "v"), ("v", "u"))
    )
    return along_v - along_u


def _difference(index: str, measure: str, loss: ExpPoly, at: Frame, along: str, over: str) -> Sized:
    """d/ds of F along one direction, s along the other; the size is that of the differences' terms."""
    fastest = float(np.max(np.abs(at.whole.score(over).value)))
    h = STEP / (fastest or 1.0)
    total = at.constant(0)
    for k, weight in enumerate(WEIGHTS, start=1):
        for sign in (1, -1):
            there = at.model.moved(sign * k * h, at.context, over)
            moved = Frame(there, FLOAT, at.context, at.functions, origin=at)
            field, scale = _expected_gradient(index, measure, loss, moved, along), sign * weight / h
            total = total + Sized(field.value * scale, field.size * abs(scale))
    return total


def _exact(index: str, measure: str, loss: ExpPoly, at: Frame, along: str, over: str) -> Sized:
    origin = Frame(at.model, NESTED, at.context, at.functions)
    tilted = Frame(at.model, NESTED, at.context, at.functions, tilt=((OUTER, over),), origin=origin)
    field = _expected_gradient(index, measure, loss, tilted, along)
    return Sized(field.value.slope, field.size)


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


def instances(context: Context, functions: Functions | None) -> Functions:
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
