"""The divergence behind a score coefficient c(r): its generator, its name, where it is one, how strong it is.

    E_q[c s] = grad E_q[f(r)]  with  f'' = -c'(r)/r,  f(1) = 0 and f'(1) = 0        Untrusted.

Constants of c drop, since E_q[s] = 0, and so may r - 1, whose mean is 0 for every theta.  f is convex, and
then an f-divergence, where c falls with r; along log q, that is with k1 = -log r, it rises.

>>> from klsym.language.convert import to_ring
>>> from klsym.language.expressions import k1, r
>>> generator(to_ring(k1)) == to_ring(k1 + r - 1), strength(to_ring(1 - r)) == to_ring(1)
(True, True)

Objectives that are no divergence get messages: where they push q away from p, or fall without end.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import Any, NamedTuple

import mpmath
from mpmath import iv

from klsym.engine.fields.named_terms import K1 as K1
from klsym.engine.fields.primitives import find_objective_under
from klsym.engine.regions.positivity import drop_positive_factors, find_positive_sum
from klsym.engine.regions.root_isolation import Zero, find_sign_intervals, find_signs
from klsym.kernel.names import LOG_RATIOS, SAMPLE_BASES, parse_name
from klsym.kernel.ring import ONE, ZERO, ExpPoly, Number
from klsym.language.messages import Message

R = (-K1).exp()
FREE_NAMES = ("k1", "w", "log_q")


def differentiate_in_log_q(element: ExpPoly) -> ExpPoly:
    """Return d/dlog q of an element without generic functions."""
    return element.derive(lambda name: ONE if name in LOG_RATIOS else ZERO)


def substitute_reference(element: ExpPoly) -> ExpPoly:
    """Return the value of a function of k1 where q = p."""
    return element.substitute({"k1": ZERO})


def generator(c: ExpPoly) -> ExpPoly | None:
    """Return f(r), written in k1 = -log r, with E_q[c s] = grad E_q[f(r)], f(1) = 0 and f'(1) = 0.

    None where c depends on more than k1 and parameters, or the ring holds no f.
    """
    if {parse_name(name).base for name in c.names()} & {*SAMPLE_BASES} - {"k1"}:
        return None
    f = find_objective_under(c, "q")
    if f is None:
        return None
    f = f - substitute_reference(f)
    return f + substitute_reference(differentiate_in_log_q(f)) * (R - 1)  # df/dk1 = -f'(1) at r = 1


def strength(c: ExpPoly) -> ExpPoly:
    """Return f''(1) = -c'(1): 1 for KL.

    Near q = p the objective is half of this times the Fisher quadratic form.
    """
    return substitute_reference(differentiate_in_log_q(c))


def compute_third_derivative(c: ExpPoly) -> ExpPoly:
    """Return f'''(1) = -(c_kk + 2 c_k), c_k = dc/dk1: -2 for the reverse KL, -1 for the forward KL."""
    first = differentiate_in_log_q(c)
    return -substitute_reference(differentiate_in_log_q(first) + first * 2)


# ---------------------------------------------------------------------------- names
def build_alpha_generator(a: Fraction) -> ExpPoly:
    """Return (r^a - a r + a - 1) / (a (a - 1)), whose mean under q is the alpha divergence of p from q."""
    return ((K1 * -a).exp() - R * a + (a - 1)) * (1 / (a * (a - 1)))


# KL(q||p), KL(p||q), their sum, chi2(p||q), chi2(q||p), sum (sqrt p - sqrt q)^2
NAMED_GENERATORS = {
    "reverse-kl": K1 + R - 1,
    "forward-kl": ONE - R - K1 * R,
    "jeffreys": K1 - K1 * R,
    "pearson-chi2": (R - 1) ** 2,
    "neyman-chi2": K1.exp() + R - 2,
    "squared-hellinger": R - (K1 * Fraction(-1, 2)).exp() * 2 + 1,
}


def name_divergence(f: ExpPoly) -> tuple[str, ExpPoly] | None:
    """Return the name of a generator and its multiple; None for a generator without a name.

    >>> name, multiple = name_divergence((R - 1) ** 2 * 3)
    >>> name, multiple == ONE * 3
    ('pearson-chi2', True)
    """
    rates = [-dict(exponent).get((("k1", 1),), 0) for _, exponent in f.terms]
    alphas = {f"alpha={a}": build_alpha_generator(Fraction(a)) for a in rates if a not in (0, 1)}
    for name, known in (NAMED_GENERATORS | alphas).items():
        multiple = _find_multiple(f, known)
        if multiple and f == known * multiple:
            return name, multiple
    return None


def _find_multiple(f: ExpPoly, known: ExpPoly) -> ExpPoly:
    """Return the coefficient in f of one term of the known generator: constants and numbers."""
    (monomial, exponent), value = next(iter(known.terms.items()))
    power = dict(monomial).get("k1", 0)
    total = ZERO
    for (powers, inside), factor in f.terms.items():
        if inside == exponent and dict(powers).get("k1", 0) == power:
            constants = tuple(item for item in powers if item[0] != "k1")
            total = total + ExpPoly({(constants, ()): Fraction(factor) / value})
    return total


# ---------------------------------------------------------------------------- where it restores
@dataclass(frozen=True)
class Stretch:
    """An interval of k1 = -log r between zeros, each enclosed by rationals; None is infinity."""

    lower: Zero | None
    upper: Zero | None

    @property
    def everywhere(self) -> bool:
        return self.lower is None is self.upper


@dataclass(frozen=True)
class Inequality:
    """element >= 0, in k1 and parameters; where that is everywhere: `always`, each of which is >= 0 then.

    always: elements of parameters alone; None where no parameters make it hold everywhere.
    """

    element: ExpPoly
    always: tuple[ExpPoly, ...] | None


Where = tuple[Stretch, ...] | Inequality


def find_convex_region(c: ExpPoly) -> Where | None:
    """Return where q f(p/q) is convex in q, that is where c rises with k1; None if undecided.

    >>> from klsym.language.convert import to_ring
    >>> from klsym.language.expressions import k1, k2, lam, r
    >>> find_convex_region(to_ring(k1 + k2))  # k1 >= -1, that is r <= e
    (Stretch(lower=(Fraction(-1, 1), Fraction(-1, 1)), upper=None),)
    >>> where = find_convex_region(to_ring(k1 + lam * r))  # 1 - lam r >= 0, everywhere if -lam >= 0
    >>> where.element == to_ring(1 - lam * r), where.always == (to_ring(-lam),)
    (True, True)
    """
    return find_nonnegative_region(differentiate_in_log_q(c))


def find_nonnegative_region(element: ExpPoly) -> Where | None:
    """Return where a function of k1 and parameters is not negative; None if undecided."""
    if not element.names():
        value = element.terms.get(((), ()), 0)
        return (Stretch(None, None),) if value >= 0 else ()
    if element.names() - {"k1"}:
        return _solve_under_parameters(drop_positive_factors(element))
    sign_intervals = find_sign_intervals(element)
    if sign_intervals is None:
        possible = find_signs(element)
        return None if possible is None or len(possible) > 1 else (Stretch(None, None),) * (possible == (1,))
    intervals: list[Stretch] = []
    for sign, (lower, upper) in sign_intervals:
        if (
            sign > 0 and intervals and intervals[-1].upper == lower
        ):  # both sides of a zero that is only touched
            intervals[-1] = Stretch(intervals[-1].lower, upper)
        elif sign > 0:
            intervals.append(Stretch(lower, upper))
    return tuple(intervals)


def _solve_under_parameters(element: ExpPoly) -> Where | None:
    """Return where a sum of a(parameters) k1^n exp(-b k1) is not negative; None if undecided.

    The ratio of two exponentials takes all values above 0.
    """
    by_term: dict[tuple[Number, int], ExpPoly] = {}
    for (monomial, exponent), value in element.terms.items():
        rates = dict(exponent)
        rate, power = rates.pop((("k1", 1),), 0), dict(monomial).get("k1", 0)
        if any(name == "k1" for m in rates for name, _ in m):
            return None
        constants = tuple(item for item in monomial if item[0] != "k1")
        term = ExpPoly({(constants, tuple(sorted(rates.items()))): value})
        by_term[rate, power] = by_term.get((rate, power), ZERO) + term
    needed = _collect_conditions(by_term)
    if needed is None:
        return None
    open_ = [e for e in needed if not _is_never_negative(e)]
    if not open_:
        return (Stretch(None, None),)
    never = any(not e.names() or find_positive_sum(-e) for e in open_)
    return Inequality(element, None if never else tuple(dict.fromkeys(map(drop_positive_factors, open_))))


def _collect_conditions(by_term: dict[tuple[Number, int], ExpPoly]) -> list[ExpPoly] | None:
    """Return elements whose being nonnegative is equivalent to the sum being so; None if undecided."""
    rows = [by_term[key] for key in sorted(by_term)]
    powers = {power for _, power in by_term}
    if powers == {0}:
        return [rows[0], rows[-1]] if all(map(_is_never_negative, rows[1:-1])) else None
    if len({rate for rate, _ in by_term}) > 1:
        return None
    if powers == {0, 1} or powers == {1}:
        return [*rows, -rows[-1]]  # a + b k1 with b = 0
    return rows if powers <= {0, 2} else None


def _is_never_negative(element: ExpPoly) -> bool:
    """Is it a nonnegative number, or a sum of squares of parameters?"""
    if not element.names():
        return element.terms.get(((), ()), 0) >= 0
    return find_positive_sum(element) is not None


# ---------------------------------------------------------------------------- all of it
@dataclass(frozen=True)
class Generated:
    """The f-divergence E_q[f(r)] whose gradient is E_q[c s], c = c(r): f, its convexity, f''(1), boundedness.

    where: where f is convex, None if undecided.
    unbounded: E_q[f(r)] = sum p f(r)/r falls without end as q(x) goes to 0 somewhere; None if undecided.
    f and strength are elements of the ring, or SymPy expressions in r outside it; f may be None there.
    reward: the reward whose mean is ascended while E_q[f(r)] is descended.
    cases: parameters at which f is another one, such as ("alpha", 1); None for no f, where c is constant.
    pieces: f between the bounds of a clamp, where as one formula it holds steps.
    """

    f: Any
    where: Where | None
    strength: Any
    unbounded: bool | None
    reward: ExpPoly = ZERO
    cases: tuple[tuple[str, Fraction, ExpPoly | None], ...] = ()
    pieces: tuple[tuple[Stretch, ExpPoly], ...] = ()

    @property
    def is_divergence(self) -> bool | None:
        """Is f convex everywhere, whatever the parameters are?"""
        return _is_everywhere(self.where)


def _is_everywhere(where: Where | None) -> bool | None:
    if where is None or isinstance(where, Inequality):
        return None if where is None else False
    return any(stretch.everywhere for stretch in where)


def find_divergence(c: ExpPoly) -> Generated | None:
    """Return the divergence of a coefficient c(r); None for a constant, or if c depends on more than r.

    >>> k3_as_reward = find_divergence(R - 1 + K1)
    >>> k3_as_reward.is_divergence, k3_as_reward.strength == ZERO, k3_as_reward.unbounded
    (False, True, True)
    """
    f = generator(c) if differentiate_in_log_q(c) else None
    if f is None:
        return None
    return build_divergence(f, c)


def build_divergence(f: ExpPoly, c: ExpPoly) -> Generated:
    """Return the divergence with generator f and the coefficient c = f - r f'."""
    return Generated(f, find_convex_region(c), strength(c), _is_unbounded_below(f))


def _is_unbounded_below(f: ExpPoly) -> bool | None:
    """Does f(r)/r go to minus infinity with r?  A weight that all of f shares is meant to be positive."""
    weights = {tuple(item for item in monomial if item[0] != "k1") for monomial, _ in f.terms}
    if len(weights) != 1:
        return None
    plain = f * ExpPoly({(weights.pop(), ()): 1}).invert() * K1.exp()
    return None if plain.names() - {"k1"} else find_limit(plain) == -math.inf


# ---------------------------------------------------------------------------- beyond c(r)
@dataclass(frozen=True)
class Functional:
    """sum_x Phi(q; p, mu) with dPhi/dq = c: where it is convex in q, which is where c rises with log q.

    where: intervals of minus the log ratio that `of` names, or a condition; None is open.
    """

    where: Where | None
    of: str = "r"

    @property
    def is_convex(self) -> bool | None:
        return _is_everywhere(self.where)


def find_convexity(c: ExpPoly) -> Functional:
    """Return where, at each p and mu, the objective with the gradient E_q[c s] is convex in q.

    >>> from klsym.language.convert import to_ring
    >>> from klsym.language.expressions import k1, rho
    >>> find_convexity(to_ring(k1 / rho)).where  # k1 <= 1: r >= 1/e
    (Stretch(lower=None, upper=(Fraction(1, 1), Fraction(1, 1))),)
    >>> find_convexity(to_ring(rho * (k1 + 1))).of, find_convexity(to_ring(1 / rho)).is_convex
    ('r', False)
    """
    rising = drop_positive_factors(differentiate_in_log_q(c))
    names = {name for name in rising.names() if parse_name(name).base in SAMPLE_BASES}
    if names <= {"k1"}:
        return Functional(find_nonnegative_region(rising))
    if names == {"w"}:
        return Functional(find_nonnegative_region(rising.substitute({"w": -K1})), "rho")
    if find_positive_sum(rising):
        return Functional((Stretch(None, None),))
    return Functional(Inequality(rising, None) if _is_negative_somewhere(rising) else None)


def _is_negative_somewhere(element: ExpPoly) -> bool:
    """Is the element negative at one of a few points, by enclosures?  log q is negative there."""
    if element.names() - {*FREE_NAMES}:
        return False
    ratios: tuple[Number, ...] = (-5, -1, Fraction(1, 3), 1, 5)
    for at in product(ratios, ratios, (-9, -1)):
        point = dict(zip(FREE_NAMES, at, strict=True))
        if _is_plainly_positive(element, point):
            continue
        if _enclose(element.substitute({n: ExpPoly.from_number(x) for n, x in point.items()})).b < 0:
            return True
    return False


def _is_plainly_positive(element: ExpPoly, point: dict[str, Number]) -> bool:
    """Do floats decide that the element is positive at a point?  Exponents are small there."""
    at, total, size = {name: float(x) for name, x in point.items()}, 0.0, 0.0
    with suppress(OverflowError):
        for (monomial, exponent), value in element.terms.items():
            power = sum(float(v) * math.prod(at[name] ** n for name, n in m) for m, v in exponent)
            term = float(value) * math.prod(at[name] ** n for name, n in monomial) * math.exp(power)
            total, size = total + term, size + abs(term) * (1 if abs(power) < 300 else math.inf)
        return total > 1e-9 * size
    return False


def _enclose(value: ExpPoly) -> Any:
    """Enclose a sum of rationals times exponentials of rationals in an interval."""
    total = iv.mpf(0)
    for (_, exponent), number in value.terms.items():
        power = Fraction(dict(exponent).get((), 0))
        total += _to_interval(number) * iv.exp(_to_interval(power))
    return total


def _to_interval(value: Number) -> Any:
    return iv.mpf(value.numerator) / value.denominator


def find_limit(element: ExpPoly) -> float:
    """Return the limit of a function of k1 as k1 goes to minus infinity."""
    rate, power, factor = find_leading_term(element)
    if rate > 0 or not factor:
        return 0.0
    if rate == power == 0:
        return factor
    return math.copysign(math.inf, factor * (-1) ** power)


class LeadingTerm(NamedTuple):
    """The term factor k1^power exp(rate k1)."""

    rate: Fraction
    power: int
    factor: float


def find_leading_term(element: ExpPoly) -> LeadingTerm:
    """Return the term that dominates as k1 goes to minus infinity.

    >>> find_leading_term(K1 + 2 * R + R * K1)
    LeadingTerm(rate=Fraction(-1, 1), power=1, factor=1.0)
    """
    lasting: dict[tuple[Fraction, int], Any] = {}
    for (monomial, exponent), value in element.terms.items():
        rates = dict(exponent)
        key = Fraction(rates.get((("k1", 1),), 0)), -dict(monomial).get("k1", 0)
        size = mpmath.exp(_to_real(rates.get((), 0)))  # beyond floats for large numbers
        lasting[key] = lasting.get(key, mpmath.mpf(0)) + _to_real(value) * size
    (rate, power), factor = min(lasting.items(), default=((Fraction(1), 0), mpmath.mpf(0)))
    return LeadingTerm(rate, -power, float(factor))


def _to_real(value: Number) -> Any:
    return mpmath.mpf(value.numerator) / value.denominator


def list_divergence_messages(divergence: Generated) -> tuple[Message, ...]:
    """Return the messages on a coefficient c(r) = f(r) - r f'(r)."""
    messages = []
    if divergence.strength is not None and not divergence.strength:
        messages.append(Message("no-restoring-force"))
    if divergence.where and not divergence.is_divergence and not _is_convex_for_weights(divergence.where):
        messages.append(Message("pushes-away", where=divergence.where))
    if divergence.unbounded:
        messages.append(Message("unbounded-below"))
    return tuple(messages)


def list_convexity_messages(convexity: Functional) -> tuple[Message, ...]:
    """Return the message that c does not rise with log q everywhere, if so."""
    if convexity.is_convex is not False or (convexity.where and _is_convex_for_weights(convexity.where)):
        return ()
    return (Message("held-weakly", where=convexity.where, of=convexity.of),)


def _is_convex_for_weights(where: Where) -> bool:
    """Is it everywhere for positive parameters, as weights are?  Or a matter of their signs alone?"""
    if not isinstance(where, Inequality) or where.always is None:
        return False
    of_sample = where.element.names() & {*SAMPLE_BASES}
    return not (of_sample and any(v < 0 for e in where.always for v in e.terms.values()))
