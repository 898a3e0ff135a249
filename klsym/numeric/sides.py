"""What sides, atoms and generic functions are worth on a model, from what they literally mean.

A gradient along u is d/dt at t = 0, with sg(.) at theta; a divergence is its own sum over outcomes.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

from klsym.abbreviations import (
    Atom,
    Bregman,
    Context,
    Covariance,
    Curl,
    Divergence,
    E,
    ExpectedGradient,
    Gradient,
    Indexed,
    IndexedGradient,
    MeanVariance,
    Point,
    PointGradient,
    Side,
    TokenDivergence,
)
from klsym.errors import UsageError
from klsym.numeric.curl import curl
from klsym.numeric.frames import Frame
from klsym.numeric.indexed import indexed, indexed_gradient, means_of_batches, token_divergence
from klsym.numeric.systems import FLOAT, Ratio, Sized, refuse_unless
from klsym.numeric.values import Functions, Instance, Scope
from klsym.ring import ExpPoly


# ---------------------------------------------------------------------------- sides and atoms
def side_value(side: Side, at: Frame) -> Sized:
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
            return (at.density(m).power(1) * at.moved().polynomial(loss)).sum().slope(at.system)
        case PointGradient(loss):
            return at.moved().polynomial(loss).at(x).slope(at.system)
        case Gradient(of):
            return side_value(of, at.moved()).slope(at.system)
        case Divergence(kind, first, second):
            return _divergence(kind, at.density(first), at.density(second))
        case Covariance(m, a, b):
            return _covariance(at.density(m).power(1), at.polynomial(a), at.polynomial(b))
        case Bregman(phi):
            return _bregman(phi, at)
    return _slotted_atom(atom, at)


def _slotted_atom(atom: Atom, at: Frame) -> Sized:
    match atom:
        case Indexed(index, m, a, score):
            return indexed(index, m, a, score, at)
        case IndexedGradient(index, m, loss):
            return indexed_gradient(index, m, loss, at)
        case TokenDivergence(m, first, second, gradient):
            return token_divergence(m, first, second, gradient, at)
        case Curl("t", m, loss):
            return curl(m, loss, at)
        case MeanVariance(m, a, score):
            mean = means_of_batches(a, score, at)
            return _covariance(at.rows("i").density(m).power(1), mean, mean)
    raise UsageError(f"oracle: unknown atom {type(atom).__name__}")


def _scores(score: tuple[str, ...], at: Frame) -> Sized:
    refuse_unless(set(score) <= {"x"}, f"score {list(score)}: only single samples are evaluated")
    product = at.constant(1)
    for _ in score:
        product = product * at.score()
    return product


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
