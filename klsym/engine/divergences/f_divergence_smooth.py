"""The divergence behind a smooth c(r) outside the ring, such as log(1 + r) or sqrt(1 + r).  Untrusted.

f'' = -c'/r and -r g' = c are solved by an ansatz: products of powers of x = r with the logarithms, roots and
inverses that are there.  Derivatives are compared as rational functions in which each logarithm, root or
parametric power is a letter of its own.  So what is found has the derivative that is asked for, exactly, and
where nothing is found the answer is open; no integration algorithm is run.  The trust is `sympy`.

>>> find_antiderivative(1 / (X * (1 + X)), 1)
log(x) - log(x + 1)
>>> find_antiderivative(sympy.log(1 + X) / X, 1) is None  # a dilogarithm
True
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache, reduce
from itertools import product
from math import lcm
from typing import Any

import sympy
from sympy.integrals.risch import NonElementaryIntegral, risch_integrate
from sympy.polys.fields import field
from sympy.polys.polyerrors import CoercionFailed

from klsym.engine.divergences.f_divergence import (
    Generated,
    Inequality,
    Where,
    find_nonnegative_region,
    generator,
)
from klsym.errors import NotInRing
from klsym.kernel.names import SAMPLE_BASES, parse_name
from klsym.kernel.ring import ONE, ZERO, ExpPoly, Key
from klsym.language.convert import to_ring, to_sympy
from klsym.language.expressions import DENSITIES, A, OfRow, R, Ratio, Weight, k1, log_mu, log_p, log_q, r
from klsym.language.messages import Message
from klsym.language.sums import list_mixture_weights
from klsym.notation.losses import show
from klsym.notation.printers import TEXT

X = sympy.Symbol("x", positive=True)  # r = p/q
CONSTANT_KEY: Key = ((), ())
POWERS = (-2, -1, 0, 1, 2)
MOST_LETTERS, MOST_BASIS, MOST_WORK = 3, 60, 40


def convert_to_x(expression: Any) -> Any | None:
    """Return a smooth expression of the loss grammar in x = r; None where it holds more than r."""
    function = expression.replace(lambda e: isinstance(e, OfRow), lambda e: e.row.formula(-sympy.log(X), X))
    function = function.replace(Ratio, lambda *_: X)
    outer = function.has(log_q, log_p, log_mu, R, A, Weight, sympy.Heaviside, sympy.Piecewise)
    return None if outer or function.has(sympy.Min, sympy.Max, sympy.Abs, sympy.sign) else function


def convert_to_r(expression: Any, with_k1: bool = False) -> Any:
    """Return the expression in the loss grammar."""
    result = expression.xreplace({sympy.log(X): -k1}) if with_k1 else expression
    return result.xreplace({X: r})


# ---------------------------------------------------------------------------- the ansatz
@lru_cache(maxsize=256)
def find_antiderivative(rhs: Any, order: int) -> Any | None:
    """Return F(x) with d^order F/dx^order = rhs; None where none is found."""
    rhs, back = substitute_odds(rhs)
    rhs = sympy.together(rhs)
    basis = _build_basis(rhs) if rhs.count_ops() <= MOST_WORK else []
    if not 0 < len(basis) <= MOST_BASIS:
        return None
    unknown = sympy.symbols(f"a_0:{len(basis)}")
    equations = _build_equations([rhs, *(-sympy.diff(b, X, order) for b in basis)], [sympy.S.One, *unknown])
    for solution in sympy.linsolve(equations, unknown) if equations else ():
        values = [value.xreplace(dict.fromkeys(unknown, sympy.S.Zero)) for value in solution]
        return back(sum((a * b for a, b in zip(values, basis, strict=True)), sympy.S.Zero))
    return None


def substitute_odds(e: Any) -> tuple[Any, Callable[[Any], Any]]:
    """Put w = 1/(1 + z), z > 0, for mixtures w x + 1 - w in logs and below; return the inverse map, too.

    Their logs and inverses exist at all x > 0 only for 0 <= w <= 1.
    """
    powers = {power.base for power in e.atoms(sympy.Pow) if power.exp.could_extract_minus_sign()}
    inside = powers | {log.args[0] for log in e.atoms(sympy.log)}
    odds = {
        w: sympy.Dummy(positive=True)
        for argument in inside
        if argument.has(X)
        for w in list_mixture_weights(argument)
    }
    if not odds:
        return e, lambda substituted: substituted
    substituted = e.xreplace({w: 1 / (1 + z) for w, z in odds.items()}).replace(
        sympy.log, expand_log_of_factors
    )

    def restore_weights(argument: Any) -> Any:
        argument = argument.xreplace({z: 1 / w - 1 for w, z in odds.items()}).replace(
            sympy.log, _expand_log_of_quotient
        )
        return sympy.expand(argument, multinomial=False)

    return sympy.factor(substituted), restore_weights


def _expand_log_of_quotient(argument: Any) -> Any:
    """Write log(1/w - 1) as log(1 - w) - log(w)."""
    above, below = sympy.fraction(sympy.together(argument))
    return sympy.log(sympy.expand(above)) - sympy.log(below)


def expand_log_of_factors(argument: Any) -> Any:
    """Write log(1 + 1/x) as log(1 + x) - log(x)."""
    return sympy.expand_log(sympy.log(sympy.factor(argument)), force=True)


def _collect_letters(e: Any) -> list[Any]:
    """Return the logs and exponentials of more than x, roots of sums, and parametric powers of x."""
    roots = {a for a in e.atoms(sympy.Pow) if a.has(X) and not a.exp.is_Integer}
    letters = {a for a in e.atoms(sympy.log, sympy.exp) if a.has(X) and a != sympy.log(X)}
    letters |= {a.base ** (a.exp % 1) if a.exp.is_Rational else a for a in roots if not _is_root_of_x(a)}
    return sorted(letters, key=sympy.default_sort_key)


def _is_root_of_x(e: Any) -> bool:
    return bool(e.is_Pow and e.base == X and e.exp.is_Rational)


def _build_basis(rhs: Any) -> list[Any]:
    """Return powers of x times 1, log x and the letters; and inverses and logs of the denominator."""
    letters = _collect_letters(rhs)
    if len(letters) > MOST_LETTERS or any(_collect_letters(a.args[0]) for a in letters):
        return []
    factors = sympy.factor(sympy.denom(rhs)).as_powers_dict()
    below = [d for d in factors if d.is_polynomial(X) and d.has(X) and d != X and d.is_positive]
    known = [a.args[0] for a in letters if isinstance(a, sympy.log)]
    new = [d for d in below if not any(not sympy.cancel(d / u).has(X) for u in known)]
    logs = [sympy.log(X), *(sympy.log(d) for d in new if sympy.degree(d, X) == 1)]
    shifts = sorted({sympy.S.Zero, *(p.exp % 1 for p in rhs.atoms(sympy.Pow) if _is_root_of_x(p))})
    powers = [X ** (n + shift) for n in POWERS for shift in shifts]
    return [
        *(a * b for a, b in product(powers, [sympy.S.One, *logs, logs[0] ** 2, *letters])),
        *(1 / d for d in below),
    ]


def _build_equations(terms: list[Any], multiples: list[Any]) -> list[Any]:
    """Return linear equations that make sum_i multiples_i terms_i zero; none if a term is not rational.

    The variables are a root y of x and the letters; squares of square roots are reduced.  Parameters and
    constants such as log(2) belong to the field of coefficients.
    """
    terms = [sympy.expand_power_exp(e) for e in terms]
    root = lcm(1, *(int(p.exp.q) for e in terms for p in e.atoms(sympy.Pow) if _is_root_of_x(p)))
    y, names = sympy.Symbol("y", positive=True), dict[Any, Any]()
    shown = [_replace_by_letters(e, names).xreplace({X: y**root}) for e in terms]
    squares = [
        (letter, e.base.xreplace({X: y**root}))
        for e, letter in names.items()
        if e.is_Pow and e.exp == sympy.Rational(1, 2) and e.has(X)
    ]
    variables = [y, *(letter for e, letter in names.items() if e.has(X))]
    constants = {x for e in shown for x in e.free_symbols} - {*variables}
    domain = sympy.QQ.frac_field(*sorted(constants, key=str)) if constants else sympy.QQ
    try:
        fractions = field(variables, domain)[0]
        quotients = [fractions.from_expr(sympy.powdenest(e, force=True)) for e in shown]
        relations = [(fractions.from_expr(letter**2 - square)).numer for letter, square in squares]
    except (ValueError, CoercionFailed):
        return []
    below = reduce(lambda a, b: a.lcm(b), (e.denom for e in quotients))
    back = {letter: e for e, letter in names.items()}
    equations: dict[Any, Any] = {}
    for e, multiple in zip(quotients, multiples, strict=True):
        above = e.numer * below.exquo(e.denom)
        for monomial, value in (above.rem(relations) if relations else above).terms():
            number = domain.to_sympy(value).xreplace(back)
            equations[monomial] = equations.get(monomial, sympy.S.Zero) + multiple * number
    return list(equations.values()) or [sympy.S.Zero]


def _replace_by_letters(e: Any, names: dict[Any, Any]) -> Any:
    """Replace logarithms, exponentials, roots and parametric powers by letters."""

    def write_in_letters(of: Any) -> Any:
        """x^(5/2) is L x^2 with L = x^(1/2): all powers of one root share its letter."""
        if isinstance(of, sympy.log | sympy.exp) or not of.exp.is_Rational:
            return names.setdefault(of, sympy.Symbol(f"L_{len(names)}", positive=True))
        part = of.exp % 1
        letter = names.setdefault(of.base**part, sympy.Symbol(f"L_{len(names)}", positive=True))
        return letter * of.base ** (of.exp - part)

    return e.xreplace({part: write_in_letters(part) for part in _sort_by_size(e) if not _is_root_of_x(part)})


def _sort_by_size(e: Any) -> list[Any]:
    """Return logarithms, exponentials and non-integer powers, the largest first."""
    powers = {a for a in e.atoms(sympy.Pow) if not a.exp.is_Integer}
    return sorted(e.atoms(sympy.log, sympy.exp) | powers, key=lambda a: -a.count_ops())


# ---------------------------------------------------------------------------- f, and where it is convex
def find_smooth_divergence(coefficient: Any) -> Generated | None:
    """Return f and its shape for c outside the ring; None where c is no smooth function of r."""
    c = convert_to_x(coefficient)
    if c is None or not c.has(X):
        return None
    f = find_antiderivative(-sympy.diff(c, X) / X, 2)
    divergence = describe_shape(None if f is None else remove_affine_part(f), c)
    return None if divergence.f is None and divergence.where is None else divergence


def find_power_divergence(c: ExpPoly) -> Generated | None:
    """Return f of a c(r) with powers r^l whose l holds parameters, such as r**alpha; else None.

    c = r^l:  f'' = -l r^(l-2),  f = (r^l - l (r - 1) - 1)/(1 - l),  and at l = 1 that of the forward KL.

    >>> show(find_power_divergence(to_ring(r ** sympy.Symbol("alpha", real=True))).f, TEXT)
    '(alpha*(r - 1) + 1 - r**alpha)/(alpha - 1)'
    """
    if {parse_name(name).base for name in c.names()} & {*SAMPLE_BASES} - {"k1"}:
        return None
    powers = [key for key in c.terms if _read_rate(key).names() and "k1" not in dict(key[0])]
    plain = ExpPoly({key: value for key, value in c.terms.items() if key not in powers})
    plain_generator = generator(plain)
    if not powers or plain_generator is None:
        return None
    f = convert_to_x(to_sympy(plain_generator))
    for key in powers:
        rate = to_sympy(_read_rate(key))
        front = to_sympy(ExpPoly({(key[0], ()): c.terms[key]}))
        f += -front * (X**rate - rate * (X - 1) - 1) / (rate - 1)
    divergence = describe_shape(f, convert_to_x(to_sympy(c)))
    return replace(divergence, cases=tuple(_iterate_special_cases(c, powers)))


def _read_rate(key: Key) -> ExpPoly:
    """Return l of r^l = exp(-l k1)."""
    inside = {tuple(x for x in m if x != ("k1", 1)): -v for m, v in key[1] if ("k1", 1) in m}
    return ExpPoly({(m, ()): v for m, v in inside.items()})


def _differentiate_along(name: str) -> Callable[[str], ExpPoly]:
    return lambda n: ONE if n == name else ZERO


def _iterate_special_cases(c: ExpPoly, powers: list[Key]) -> Iterator[tuple[str, Fraction, ExpPoly | None]]:
    """Yield the parameters at which a power is 1 or r, with f of the coefficient there."""
    for rate in dict.fromkeys(map(_read_rate, powers)):
        slopes = {name: rate.derive(_differentiate_along(name)) for name in rate.names()}
        for name, slope in slopes.items() if len(slopes) == 1 else ():
            start = rate.substitute({name: ZERO}).terms.get(CONSTANT_KEY, 0)
            for wanted in (0, 1) if not slope.names() else ():
                at = Fraction(wanted - start) / slope.terms[CONSTANT_KEY]
                if at or name not in c.collect_divisors():
                    special_coefficient = c.substitute({name: ExpPoly.from_number(at)})
                    yield (
                        name,
                        at,
                        generator(special_coefficient) if special_coefficient.names() & {"k1"} else None,
                    )


def describe_shape(f: Any | None, c: Any) -> Generated:
    """Return f with its convexity and strength, from f and c = f - r f' in x = r."""
    slope = sympy.diff(c, X)
    where = find_positive_region(-sympy.diff(substitute_odds(c)[0], X))
    where = find_positive_region(-slope) if where is None or isinstance(where, Inequality) else where
    shown = None if f is None else convert_to_r(f)
    return Generated(shown, where, sympy.simplify(-slope.subs(X, 1)), unbounded=None)


def remove_affine_part(f: Any) -> Any:
    """Return f less a multiple of x - 1 and a constant, so that f(1) = f'(1) = 0."""
    f = f - f.subs(X, 1) - sympy.diff(f, X).subs(X, 1) * (X - 1)
    return sympy.expand(f, multinomial=False)


def has_no_elementary_antiderivative(rhs: Any) -> bool:
    """Is it proved by Risch's algorithm that there is none?  Asked with one log alone.

    >>> [has_no_elementary_antiderivative(e) for e in (sympy.log(1 + X) / X, sympy.log(1 + X))]
    [True, False]
    """
    roots = [p for p in rhs.atoms(sympy.Pow) if p.has(X) and not p.exp.is_Integer]
    if roots or len([a for a in rhs.atoms(sympy.log, sympy.exp) if a.has(X)]) != 1:
        return False
    y = sympy.Symbol("y")
    return bool(risch_integrate(sympy.expand(rhs.xreplace({X: y})), y).has(NonElementaryIntegral))


def list_nonzero_conditions(f: Any) -> tuple[Message, ...]:
    """Return messages for parameters in denominators that must not be 0, as in r**lam/(lam - 1)."""
    factors = sympy.factor(sympy.denom(sympy.together(f))).as_powers_dict()
    named = (d for d in factors if d.free_symbols and not d.has(X, *DENSITIES))
    return tuple(Message("nonzero", of=show(d, TEXT)) for d in named)


def find_positive_region(e: Any) -> Where | None:
    """Return where a function of x is not negative; factors with a known sign are dropped."""
    core = sympy.S.One
    for factor, power in sympy.factor(sympy.together(e)).as_powers_dict().items():
        if factor.is_positive or not (power.is_Integer and power % 2):  # a real root is not negative
            continue
        core *= -1 if factor.is_negative else factor
    try:
        return find_nonnegative_region(to_ring(convert_to_r(core)))
    except NotInRing:
        return None
