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
def evaluate_side(side: Side, at: Frame) -> Sized:
    total = at.make_constant(0)
    for coefficient, atoms in side.terms:
        refuse_unless(
            at.context.is_constant(coefficient), "a random coefficient stands outside its expectation"
        )
        product = at.whole.evaluate_element(coefficient).select(0)
        for atom in atoms:
            product = product * _evaluate_atom(atom, at)
        total = total + product
    return total


def _evaluate_atom(atom: Atom, at: Frame) -> Sized:
    match atom:
        case Mean(index, m, a, score):
            rows = at.get_rows(index)
            return rows.compute_mean(m, rows.multiply_by_scores(a, score))
        case MeanGradient(index, m, loss):
            return _compute_expected_gradient(index, m, loss, at)
        case Gradient(of):
            return evaluate_side(of, at.move_frame(kinks_refused=True)).take_slope(at.system)
        case Curl(index, m, loss):
            return _compute_curl(index, m, loss, at)
        case Divergence(kind, first, second):
            return _compute_divergence(kind, at.whole.get_density(first), at.whole.get_density(second))
        case TokenDivergence(m, first, second, gradient):
            return _compute_token_divergence(m, first, second, gradient, at=at)
        case Covariance(m, a, b):
            return _compute_covariance(
                at.whole.get_density(m).raise_to(1),
                at.whole.evaluate_element(a),
                at.whole.evaluate_element(b),
            )
        case MeanVariance(m, a, score):
            mean = _compute_batch_means(a, score, at)
            return _compute_covariance(at.get_rows("i").get_density(m).raise_to(1), mean, mean)
        case Bregman(phi):
            return _compute_bregman(phi, at)
    raise UsageError(f"oracle: unknown atom {type(atom).__name__}")


def _compute_expected_gradient(index: str, m: str, loss: ExpPoly, at: Frame, along: str = "u") -> Sized:
    """Return d/dt of the mean of L, m held fixed."""
    moved_loss = at.move_frame(along).get_rows(index).evaluate_element(loss)
    return at.get_rows(index).compute_mean(m, moved_loss).take_slope(at.system)


def _compute_batch_means(a: ExpPoly, score: tuple[str, ...], at: Frame) -> Sized:
    """Return, for each batch, the mean over i of a s..s with x_i as self and the rest as others."""
    rows = at.get_rows("i")
    values, turns = rows.multiply_by_scores(a, score), rows.where.find_rotated_rows()
    values_by_turn = [values.select(turn) for turn in turns]
    total = Sized(
        np.sum([v.value for v in values_by_turn], axis=0), np.sum([v.size for v in values_by_turn], axis=0)
    )
    return total * at.make_constant(Fraction(1, len(turns)))


def _compute_token_divergence(m: str, first: str, second: str, gradient: bool, at: Frame) -> Sized:
    """Return the sum over tokens of m(prefix) a log(a/b); for its gradient, only a and b move."""
    live = (at.move_frame() if gradient else at).tokens
    a, b = live.get_density(first), live.get_density(second)
    total = at.get_rows(PREFIX).compute_mean(m, a.raise_to(1) * a.divide_by(b).take_log())
    return total.take_slope(at.system) if gradient else total


def _compute_divergence(kind: str, a: Ratio, b: Ratio) -> Sized:
    """Return KL = sum a log(a/b), chi2 = sum (a - b)^2 / b, or J = KL(a||b) + KL(b||a)."""
    match kind:
        case "KL":
            return (a.raise_to(1) * a.divide_by(b).take_log()).sum_entries()
        case "chi2":
            gap = a.raise_to(1) - b.raise_to(1)
            return (gap * gap * b.raise_to(-1)).sum_entries()
        case "J":
            return _compute_divergence("KL", a, b) + _compute_divergence("KL", b, a)
    raise UsageError(f"oracle: unknown divergence {kind!r}")


def _compute_covariance(m: Sized, a: Sized, b: Sized) -> Sized:
    """Return sum_x m (a - E_m a)(b - E_m b)."""
    return (m * (a - (m * a).sum_entries()) * (b - (m * b).sum_entries())).sum_entries()


def _compute_bregman(phi: ExpPoly, at: Frame) -> Sized:
    """Return phi(r) - phi(1) - phi'(1)(r - 1) at one sample; phi is given in k1 = -log r."""
    refuse_unless(phi.names() <= {"k1", *at.context.parameters}, "bregman: a function of r alone")
    unit, x = at.system.lift([1]), at.model.outcome
    none, all_ = np.zeros(1), at.system.magnitude(unit)
    near_one = Ratio(at.system, 1 / (unit + at.system.step), none, all_)  # r = 1 + t
    slope = Scope(at.model, at.system, {"k1": near_one}).evaluate_element(phi).select(0).take_slope(at.system)
    exactly_one = Ratio(at.system, unit, none, none)
    at_one = Scope(at.model, at.system, {"k1": exactly_one}).evaluate_element(phi).select(0)
    r = at.whole.get_density("p").divide_by(at.whole.get_density("q")).raise_to(1).select(x)
    line = slope * (r - at.make_constant(1))
    return at.whole.evaluate_element(phi).select(x) - at_one - line


# ---------------------------------------------------------------------------- the curl of a field
def _compute_curl(index: str, measure: str, loss: ExpPoly, at: Frame) -> Sized:
    """Return the curl by central differences in floats, by nested dual numbers in enclosures."""
    refuse_unless(not at.moving, "the gradient of a curl is not evaluated")
    refuse_unless(at.model.v is not None, "the model has no direction 'v'")
    along_v, along_u = (
        (_compute_difference if at.system is FLOAT else _compute_exactly)(index, measure, loss, at, *pair)
        for pair in (("u", "v"), ("v", "u"))
    )
    return along_v - along_u


def _compute_difference(index: str, measure: str, loss: ExpPoly, at: Frame, along: str, over: str) -> Sized:
    """Return d/ds F(theta + s v).u at s = 0, F the expected gradient; along, over: the names of u and v.

    A central difference of order 8: sum_k w_k (F(theta + k h v) - F(theta - k h v)).u / h.  The size is the
    sum of the absolute values of its terms, to which rounding errors are relative.
    """
    fastest = float(np.max(np.abs(at.whole.get_score(over).value)))
    h = STEP / (fastest or 1.0)
    total = at.make_constant(0)
    for k, weight in enumerate(WEIGHTS, start=1):
        for sign in (1, -1):
            shifted_model = at.model.move_theta(sign * k * h, at.context, over)
            moved_loss = Frame(shifted_model, FLOAT, at.context, at.functions, origin=at)
            field, scale = (
                _compute_expected_gradient(index, m=measure, loss=loss, at=moved_loss, along=along),
                sign * weight / h,
            )
            total = total + Sized(field.value * scale, field.size * abs(scale))
    return total


def _compute_exactly(index: str, measure: str, loss: ExpPoly, at: Frame, along: str, over: str) -> Sized:
    origin = Frame(at.model, NESTED, at.context, at.functions)
    tilted = Frame(at.model, NESTED, at.context, at.functions, tilt=((OUTER, over),), origin=origin)
    field = _compute_expected_gradient(index, m=measure, loss=loss, at=tilted, along=along)
    return Sized(field.value.slope, field.size)


# ---------------------------------------------------------------------------- generic functions
def build_default_function(name: str) -> Any:
    """Return a smooth function for a generic one: sin(a.x) + exp(b.x)/2 + (c.x)^2/4, by its name.

    >>> g, h = build_default_function("g"), build_default_function("h")
    >>> bool(g(1.0) != h(1.0))
    True

    name: what chooses a, b, c.  The function takes its arguments as arrays, shape (n,) each.
    """
    seed = zlib.crc32(name.encode())
    a, b, c = np.random.default_rng(seed).uniform(0.2, 0.9, size=(3, 8)) * [[1], [0.5], [1]]

    def apply_function(*arguments: Any) -> Any:
        ax, bx, cx = (sum(w * x for w, x in zip(v, arguments, strict=False)) for v in (a, b, c))
        return np.sin(ax) + np.exp(bx) / 2 + cx**2 / 4

    return apply_function


def _refuse_unless_analytic(name: str, function: Any, arguments: Any) -> None:
    """Refuse f without f(x + ih) = f(x) + ih f'(x): abs, maximum and comparisons break complex steps."""
    h = 1e-5
    real = [np.real(argument) for argument in arguments]
    above, below = function(*(x + h for x in real)), function(*(x - h for x in real))
    central = (np.asarray(above) - np.asarray(below)) / (2 * h)
    step = FLOAT.slope(function(*(x + FLOAT.step for x in real)))
    scale = 1 + np.max(np.abs(central)) + np.max(np.abs(above))
    close = bool(np.all(np.abs(central - step) <= 1e-4 * scale))
    refuse_unless(close, f"function {name}: not smooth in complex arithmetic, or not finite")


def choose_instances(context: Context, functions: Functions | None) -> Functions:
    """Return an instance for every generic function of a statement; callables check what they are given."""
    given_functions = dict(functions or {})
    undeclared = sorted(set(given_functions) - set(context.function_arguments))
    refuse_unless(not undeclared, f"the statement has no function {', '.join(undeclared)}")
    chosen = {name: given_functions.get(name) for name in context.function_arguments}
    return {
        name: _wrap_function(name, build_default_function(name) if f is None else f)
        for name, f in chosen.items()
    }


def _wrap_function(name: str, function: Instance) -> Instance:
    if isinstance(function, ExpPoly):
        return function

    def call_checked(*arguments: Any) -> Any:
        if any(np.iscomplexobj(argument) for argument in arguments):
            _refuse_unless_analytic(name, function, arguments)
        return function(*arguments)

    return call_checked
