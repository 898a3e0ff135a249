"""The divergence behind a smooth c(r) outside the ring, such as log(1 + r) or sqrt(1 + r).  Untrusted.

f'' = -c'/r and -r g' = c are solved by an ansatz: products of powers of x = r with the logarithms, roots and
inverses that are there.  Derivatives are compared as rational functions in which each logarithm, root or
parametric power is a letter of its own.  So what is found has the derivative that is asked for, exactly, and
where nothing is found the answer is open; no integration algorithm is run.  The trust is `sympy`.

>>> antiderivative(1 / (X * (1 + X)), 1)
log(x) - log(x + 1)
>>> antiderivative(sympy.log(1 + X) / X, 1) is None  # a dilogarithm
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

from klsym.engine.divergences.f_divergence import Generated, Inequality, Where, generator, nonnegative_where
from klsym.errors import NotInRing
from klsym.kernel.names import SAMPLE_BASES, parse_name
from klsym.kernel.ring import ONE, ZERO, ExpPoly, Key
from klsym.language.convert import to_ring, to_sympy
from klsym.language.expressions import DENSITIES, A, OfRow, R, Ratio, Weight, k1, log_mu, log_p, log_q, r
from klsym.language.messages import Message
from klsym.language.sums import mixing
from klsym.notation.losses import show
from klsym.notation.printers import TEXT

X = sympy.Symbol("x", positive=True)  # r = p/q
CONSTANT_KEY: Key = ((), ())
POWERS = (-2, -1, 0, 1, 2)
MOST_LETTERS, MOST_BASIS, MOST_WORK = 3, 60, 40


def in_x(expression: Any) -> Any | None:
    """A smooth expression in the loss grammar as one in x = r; None where it holds more than r."""
    found = expression.replace(lambda e: isinstance(e, OfRow), lambda e: e.row.formula(-sympy.log(X), X))
    found = found.replace(Ratio, lambda *_: X)
    outer = found.has(log_q, log_p, log_mu, R, A, Weight, sympy.Heaviside, sympy.Piecewise)
    return None if outer or found.has(sympy.Min, sympy.Max, sympy.Abs, sympy.sign) else found


def in_r(expression: Any, with_k1: bool = False) -> Any:
    """The same in the loss grammar."""
    found = expression.xreplace({sympy.log(X): -k1}) if with_k1 else expression
    return found.xreplace({X: r})


# ---------------------------------------------------------------------------- the ansatz
@lru_cache(maxsize=256)
def antiderivative(rhs: Any, order: int) -> Any | None:
    """F(x) with d^order F/dx^order = rhs; None where none is found."""
    rhs, back = in_odds(rhs)
    rhs = sympy.together(rhs)
    basis = _basis(rhs) if rhs.count_ops() <= MOST_WORK else []
    if not 0 < len(basis) <= MOST_BASIS:
        return None
    unknown = sympy.symbols(f"a_0:{len(basis)}")
    equations = _equations([rhs, *(-sympy.diff(b, X, order) for b in basis)], [sympy.S.One, *unknown])
    for solution in sympy.linsolve(equations, unknown) if equations else ():
        values = [value.xreplace(dict.fromkeys(unknown, sympy.S.Zero)) for value in solution]
        return back(sum((a * b for a, b in zip(values, basis, strict=True)), sympy.S.Zero))
    return None


def in_odds(e: Any) -> tuple[Any, Callable[[Any], Any]]:
    """The same with w = 1/(1 + z), z > 0, for mixtures w x + 1 - w in logs and below, and the way back.

    Their logs and inverses exist at all x > 0 for 0 <= w <= 1 alone.
    """
    powers = {power.base for power in e.atoms(sympy.Pow) if power.exp.could_extract_minus_sign()}
    inside = powers | {log.args[0] for log in e.atoms(sympy.log)}
    odds = {w: sympy.Dummy(positive=True) for of in inside if of.has(X) for w in mixing(of)}
    if not odds:
        return e, lambda found: found
    found = e.xreplace({w: 1 / (1 + z) for w, z in odds.items()}).replace(sympy.log, log_of_factors)

    def back(of: Any) -> Any:
        of = of.xreplace({z: 1 / w - 1 for w, z in odds.items()}).replace(sympy.log, _log_of_quotient)
        return sympy.expand(of, multinomial=False)

    return sympy.factor(found), back


def _log_of_quotient(of: Any) -> Any:
    """log(1/w - 1) is log(1 - w) - log(w)."""
    above, below = sympy.fraction(sympy.together(of))
    return sympy.log(sympy.expand(above)) - sympy.log(below)


def log_of_factors(of: Any) -> Any:
    """log(1 + 1/x) is log(1 + x) - log(x)."""
    return sympy.expand_log(sympy.log(sympy.factor(of)), force=True)


def _letters(e: Any) -> list[Any]:
    """Logarithms and exponentials of more than x, roots of sums, and parametric powers of x that it holds."""
    roots = {a for a in e.atoms(sympy.Pow) if a.has(X) and not a.exp.is_Integer}
    found = {a for a in e.atoms(sympy.log, sympy.exp) if a.has(X) and a != sympy.log(X)}
    found |= {a.base ** (a.exp % 1) if a.exp.is_Rational else a for a in roots if not _is_root_of_x(a)}
    return sorted(found, key=sympy.default_sort_key)


def _is_root_of_x(e: Any) -> bool:
    return bool(e.is_Pow and e.base == X and e.exp.is_Rational)


def _basis(rhs: Any) -> list[Any]:
    """Powers of x times 1, log x and the letters of the integrand; inverses and logs of its denominator."""
    letters = _letters(rhs)
    if len(letters) > MOST_LETTERS or any(_letters(a.args[0]) for a in letters):
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


def _equations(terms: list[Any], multiples: list[Any]) -> list[Any]:
    """Return linear equations that make sum_i multiples_i terms_i zero; none if a term is not rational.

    The variables are a root y of x and the letters; squares of square roots are reduced.  Parameters and
    constants such as log(2) belong to the field of coefficients.
    """
    terms = [sympy.expand_power_exp(e) for e in terms]
    root = lcm(1, *(int(p.exp.q) for e in terms for p in e.atoms(sympy.Pow) if _is_root_of_x(p)))
    y, names = sympy.Symbol("y", positive=True), dict[Any, Any]()
    shown = [_with_names(e, names).xreplace({X: y**root}) for e in terms]
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
        found = [fractions.from_expr(sympy.powdenest(e, force=True)) for e in shown]
        relations = [(fractions.from_expr(letter**2 - of)).numer for letter, of in squares]
    except (ValueError, CoercionFailed):
        return []
    below = reduce(lambda a, b: a.lcm(b), (e.denom for e in found))
    back = {letter: e for e, letter in names.items()}
    equations: dict[Any, Any] = {}
    for e, multiple in zip(found, multiples, strict=True):
        above = e.numer * below.exquo(e.denom)
        for monomial, value in (above.rem(relations) if relations else above).terms():
            number = domain.to_sympy(value).xreplace(back)
            equations[monomial] = equations.get(monomial, sympy.S.Zero) + multiple * number
    return list(equations.values()) or [sympy.S.Zero]


def _with_names(e: Any, names: dict[Any, Any]) -> Any:
    """Replace logarithms, exponentials, roots and parametric powers by letters."""

    def named(of: Any) -> Any:
        if isinstance(of, sympy.log | sympy.exp) or not of.exp.is_Rational:
            return names.setdefault(of, sympy.Symbol(f"L_{len(names)}", positive=True))
        part = of.exp % 1
        base = names.setdefault(of.base**part, sympy.Symbol(f"L_{len(names)}", positive=True))
        return base * of.base ** (of.exp - part)

    return e.xreplace({part: named(part) for part in _by_size(e) if not _is_root_of_x(part)})


def _by_size(e: Any) -> list[Any]:
    """Logarithms, exponentials and powers that are none of integers."""
    powers = {a for a in e.atoms(sympy.Pow) if not a.exp.is_Integer}
    return sorted(e.atoms(sympy.log, sympy.exp) | powers, key=lambda a: -a.count_ops())


# ---------------------------------------------------------------------------- f, and where it is convex
def generated_outside(coefficient: Any) -> Generated | None:
    """f and its shape for a score coefficient outside the ring; None where c is no smooth function of r."""
    c = in_x(coefficient)
    if c is None or not c.has(X):
        return None
    f = antiderivative(-sympy.diff(c, X) / X, 2)
    found = shape_outside(None if f is None else without_affine_part(f), c)
    return None if found.f is None and found.where is None else found


def generated_at_powers(c: ExpPoly) -> Generated | None:
    """f of c(r) with powers r^l whose l holds parameters, such as r**alpha; None where there are none.

    c = r^l:  f'' = -l r^(l-2),  f = (r^l - l (r - 1) - 1)/(1 - l),  and at l = 1 that of the forward KL.

    >>> show(generated_at_powers(to_ring(r ** sympy.Symbol("alpha", real=True))).f, TEXT)
    '(alpha*(r - 1) + 1 - r**alpha)/(alpha - 1)'
    """
    if {parse_name(name).base for name in c.names()} & {*SAMPLE_BASES} - {"k1"}:
        return None
    powers = [key for key in c.terms if _rate(key).names() and "k1" not in dict(key[0])]
    plain = ExpPoly({key: value for key, value in c.terms.items() if key not in powers})
    rest = generator(plain)
    if not powers or rest is None:
        return None
    f = in_x(to_sympy(rest))
    for key in powers:
        rate = to_sympy(_rate(key))
        front = to_sympy(ExpPoly({(key[0], ()): c.terms[key]}))
        f += -front * (X**rate - rate * (X - 1) - 1) / (rate - 1)
    found = shape_outside(f, in_x(to_sympy(c)))
    return replace(found, cases=tuple(_cases(c, powers)))


def _rate(key: Key) -> ExpPoly:
    """l of r^l = exp(-l k1)."""
    inside = {tuple(x for x in m if x != ("k1", 1)): -v for m, v in key[1] if ("k1", 1) in m}
    return ExpPoly({(m, ()): v for m, v in inside.items()})


def _along(name: str) -> Callable[[str], ExpPoly]:
    return lambda n: ONE if n == name else ZERO


def _cases(c: ExpPoly, powers: list[Key]) -> Iterator[tuple[str, Fraction, ExpPoly | None]]:
    """Where a power is r or 1: f of what c is there."""
    for rate in dict.fromkeys(map(_rate, powers)):
        slopes = {name: rate.derive(_along(name)) for name in rate.names()}
        for name, slope in slopes.items() if len(slopes) == 1 else ():
            start = rate.substitute({name: ZERO}).terms.get(CONSTANT_KEY, 0)
            for wanted in (0, 1) if not slope.names() else ():
                at = Fraction(wanted - start) / slope.terms[CONSTANT_KEY]
                if at or name not in c.inverted():
                    there = c.substitute({name: ExpPoly.number(at)})
                    yield name, at, generator(there) if there.names() & {"k1"} else None


def shape_outside(f: Any | None, c: Any) -> Generated:
    """What follows of f and c = f - r f' in x = r."""
    slope = sympy.diff(c, X)
    where = where_positive(-sympy.diff(in_odds(c)[0], X))
    where = where_positive(-slope) if where is None or isinstance(where, Inequality) else where
    shown = None if f is None else in_r(f)
    return Generated(shown, where, sympy.simplify(-slope.subs(X, 1)), unbounded=None)


def vanishes(gap: Any) -> bool:
    """Is a difference of coefficients the same at all samples?"""
    found = in_x(sympy.expand(gap))
    return found is not None and bool(sympy.simplify(sympy.diff(found, X)) == 0)


def without_affine_part(f: Any) -> Any:
    """f(1) = f'(1) = 0, multiplied out."""
    f = f - f.subs(X, 1) - sympy.diff(f, X).subs(X, 1) * (X - 1)
    return sympy.expand(f, multinomial=False)


def has_no_elementary(rhs: Any) -> bool:
    """Has it no elementary antiderivative, by Risch's algorithm?  Asked with one logarithm alone.

    >>> has_no_elementary(sympy.log(1 + X) / X), has_no_elementary(sympy.log(1 + X))
    (True, False)
    """
    roots = [p for p in rhs.atoms(sympy.Pow) if p.has(X) and not p.exp.is_Integer]
    if roots or len([a for a in rhs.atoms(sympy.log, sympy.exp) if a.has(X)]) != 1:
        return False
    y = sympy.Symbol("y")
    return bool(risch_integrate(sympy.expand(rhs.xreplace({X: y})), y).has(NonElementaryIntegral))


def must_not_vanish(f: Any) -> tuple[Message, ...]:
    """Parameters in denominators, as in r**lam/(lam - 1), with what they may not be."""
    factors = sympy.factor(sympy.denom(sympy.together(f))).as_powers_dict()
    named = (d for d in factors if d.free_symbols and not d.has(X, *DENSITIES))
    return tuple(Message("nonzero", of=show(d, TEXT)) for d in named)


def where_positive(e: Any) -> Where | None:
    """Where a function of x is not negative: factors with a sign drop, the rest is decided in the ring."""
    core = sympy.S.One
    for factor, power in sympy.factor(sympy.together(e)).as_powers_dict().items():
        if factor.is_positive or not (power.is_Integer and power % 2):  # a real root is not negative
            continue
        core *= -1 if factor.is_negative else factor
    try:
        return nonnegative_where(to_ring(in_r(core)))
    except NotInRing:
        return None
