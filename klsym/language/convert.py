"""SymPy expressions to exponential polynomials, and back.

The coordinates are k1 = log q - log p, w = log q - log mu, o = log q - log old and log q, so that
log p = log q - k1, log mu = log q - w and log old = log q - o.  What is no exponential polynomial raises
NotInRing with the subexpression.

>>> from klsym.language.expressions import k3, rho
>>> to_ring(rho * k3) == VW.exp() * ((-VK1).exp() - 1 + VK1)
True
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fractions import Fraction
from functools import lru_cache, reduce
from operator import add, mul
from typing import Any

import sympy
from sympy.core.function import AppliedUndef

from klsym.errors import NotInRing, UsageError
from klsym.kernel.names import SAMPLE_BASES, THETA_FREE, attach_name, detach_name, parse_name
from klsym.kernel.ring import ONE, ZERO, Exponent, ExpPoly, Monomial, Number
from klsym.kernel.slots import name_in_slot
from klsym.language.defined import OF_LOGS
from klsym.language.expressions import (
    GIVEN,
    K1,
    REWARDS,
    SLOTTED,
    Estimator,
    Log,
    OldWeight,
    Ratio,
    Region,
    Slot,
    Weight,
    as_expression,
    length,
    log_mu,
    log_old,
    log_p,
    log_q,
    s,
    sg,
)

VK1, VW, VQ, VO = (ExpPoly.from_variable(name) for name in ("k1", "w", "log_q", "o"))
SYMBOLS = {log_q: VQ, log_p: VQ - VK1, log_mu: VQ - VW, log_old: VQ - VO}
# other estimators are converted by their definitions
ESTIMATORS = {K1: VK1, Ratio: (-VK1).exp(), Weight: VW.exp(), OldWeight: VO.exp()}
BELOW = {Weight: log_mu, OldWeight: log_old}  # log q less this; the others are relative to log p
# how a generic function is written -> the coordinates it may depend on
ARGUMENTS = {(K1(log_q, log_p),): ("k1",), (log_q, log_p, log_mu): ("k1", "log_q", "w")}


def to_ring(expression: Any) -> ExpPoly:
    """Return the normal form of a SymPy expression; raises NotInRing outside the ring."""
    return _convert(as_expression(expression))


@lru_cache(maxsize=16384)
def _convert(e: Any) -> ExpPoly:
    if e.is_Symbol:
        return _convert_symbol(e)
    if e.is_Rational:
        return ExpPoly.from_number(Fraction(int(e.p), int(e.q)))
    if e is sympy.E:
        return ONE.exp()
    if e.is_Add or e.is_Mul:
        return reduce(add if e.is_Add else mul, map(_convert, e.args))
    if isinstance(e, Estimator):
        is_plain = e.args == (log_q, BELOW.get(type(e), log_p))
        return ESTIMATORS[type(e)] if is_plain and type(e) in ESTIMATORS else _convert(e.definition())
    if isinstance(e, sg):
        functions = {call.func.__name__ for call in e.atoms(AppliedUndef)}
        return detach(_convert(e.args[0]), functions)
    if isinstance(e, sympy.exp):
        return _convert(e.args[0]).exp()
    if isinstance(e, sympy.log):
        return _convert_log(_convert(e.args[0]), e)
    if e.is_Pow:
        return _convert_power(_convert(e.base), e.exp, e)
    if isinstance(e, AppliedUndef):
        return ExpPoly.from_variable(_name_function(e))
    if isinstance(e, sympy.Subs):
        return ExpPoly.from_variable(_name_derivative(e))
    raise NotInRing(f"{e} is no exponential polynomial")


def is_in_ring(e: Any) -> bool:
    try:
        to_ring(e)
    except NotInRing:
        return False
    return True


def is_in_core(e: Any) -> bool:
    """Is e an exponential polynomial, even if it is too large to be multiplied out?

    >>> is_in_core((k1_ := K1(log_q, log_p)) ** 2), is_in_core(sympy.Max(k1_, 1))
    (True, False)
    """
    if e.is_Add or e.is_Mul or isinstance(e, sg):
        return all(map(is_in_core, e.args))
    if e.is_Pow and e.exp.is_Integer and e.exp > 0:
        return is_in_core(e.base)
    return is_in_ring(e)


def _convert_symbol(e: Any) -> ExpPoly:
    if e in SYMBOLS:
        return SYMBOLS[e]
    if isinstance(e, Region):
        return ExpPoly.from_variable(e.name)
    base, slot = _split_slot(e)
    if slot:
        plain = SYMBOLS.get(base) or ExpPoly.from_variable(base.name)
        return plain.rename(lambda name: name_in_slot(name, slot))
    if e.name in SAMPLE_BASES and e not in (*REWARDS, *GIVEN, length):
        raise UsageError(f"the symbol {e.name} is klsym's own: take it from klsym.language.expressions")
    if not (e.name.isidentifier() and e.name.isascii()):
        raise UsageError(f"the symbol {e.name!r} has no plain name: letters, digits and _ only")
    return ExpPoly.from_variable(e.name)


def _split_slot(e: Any) -> tuple[Any, str]:
    """Return the one-sample symbol that a symbol of a slot is a copy of, and the slot."""
    name, bracket, slot = e.name.partition("[")
    slot = slot.removesuffix("]") if bracket else ""
    one_sample = next((symbol for symbol in SLOTTED if symbol.name == name), None) if slot else e
    if one_sample is None:
        raise UsageError(f"the symbol {e.name!r} has no plain name: letters, digits and _ only")
    return one_sample, slot


def detach(element: ExpPoly, functions: Iterable[str] = ()) -> ExpPoly:
    """Return sg(.): whatever depends on theta becomes its detached copy; rewards and parameters stay."""
    moving = ({*SAMPLE_BASES} - {*THETA_FREE}) | {*functions}

    def detach_variable(name: str) -> str:
        base = parse_name(name).base
        return detach_name(name) if base in moving or base.startswith(OF_LOGS) else name

    return element.rename(detach_variable)


def _name_function(call: Any) -> str:
    """Return the name of a generic function, which is one random variable: its arguments are fixed."""
    name = str(call.func.__name__)
    if name in SAMPLE_BASES or name == s.name:
        raise UsageError(f"{call}: the name {name} is klsym's own")
    slots = {_split_slot(symbol)[1] for argument in call.args for symbol in argument.free_symbols}
    if len(slots) != 1 or _as_one_sample(call.args) not in ARGUMENTS:
        raise UsageError(f"{call}: a generic function is written {name}(k1) or {name}(log_q, log_p, log_mu)")
    return name_in_slot(name, slots.pop() or "x")


def _as_one_sample(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(a.xreplace({symbol: _split_slot(symbol)[0] for symbol in a.free_symbols}) for a in arguments)


def _name_derivative(e: Any) -> str:
    """Return the name g' of g(k1).diff(log_q), which SymPy writes as Subs(Derivative(g(x), x), x, k1)."""
    call = _find_function(e)
    name, bracket, slot = _name_function(call).partition("[")
    return name + "'" * int(e.expr.derivative_count) + bracket + slot


def _find_function(e: Any) -> Any:
    """Return g(k1), where e is a derivative of g at k1."""
    call = e.expr.expr if isinstance(e.expr, sympy.Derivative) else None
    if not isinstance(call, AppliedUndef) or call.args != tuple(e.variables):
        raise NotInRing(f"{e} is no exponential polynomial")
    return call.func(*e.point)


def _convert_power(base: ExpPoly, exponent: Any, e: Any) -> ExpPoly:
    """Return an integer power; or (exp Q)^a = exp(aQ) for any rational or parameter a."""
    if exponent.is_Integer:
        return base ** int(exponent)
    return (_convert_log(base, e) * _convert(exponent)).exp()


def _convert_log(element: ExpPoly, e: Any) -> ExpPoly:
    match list(element.terms.items()):
        case [(((), exponent), 1)]:
            return ExpPoly({(monomial, ()): value for monomial, value in exponent})
    raise NotInRing(f"{e} is no exponential polynomial")


def find_generic_functions(expression: Any) -> dict[str, tuple[str, ...]]:
    """Return the generic functions of an expression, with what they may depend on.

    >>> from sympy import Function
    >>> from klsym.language.expressions import k1
    >>> find_generic_functions(Function("g")(k1))
    {'g': ('k1',)}
    """
    return dict(_find_generic_functions(as_expression(expression)))


@lru_cache(maxsize=4096)
def _find_generic_functions(expression: Any) -> dict[str, tuple[str, ...]]:
    functions: dict[str, tuple[str, ...]] = {}
    if not expression.has(AppliedUndef):
        return functions
    written = expression.replace(lambda e: isinstance(e, sympy.Subs), _find_function)
    for call in written.atoms(AppliedUndef):
        name, arguments = parse_name(_name_function(call)).base, ARGUMENTS[_as_one_sample(call.args)]
        if functions.setdefault(name, arguments) != arguments:
            raise UsageError(f"the generic function {name} is used with two lists of arguments")
    return dict(sorted(functions.items()))


def split_score(expression: Any) -> dict[int, ExpPoly]:
    """Return the coefficients of the powers of the score function s.

    >>> from klsym.language.expressions import k1
    >>> sorted(split_score(k1 * s + s**2))
    [1, 2]
    """
    parts: dict[int, dict[Any, Any]] = {}
    for (monomial, exponent), value in to_ring(expression).terms.items():
        powers = dict(monomial)
        power = powers.pop(s.name, 0)
        if power < 0 or any(s.name in dict(m) for m, _ in exponent):
            raise UsageError(f"{expression}: the score function s stands in positive powers only")
        parts.setdefault(power, {})[(tuple(sorted(powers.items())), exponent)] = value
    return {power: ExpPoly(terms) for power, terms in parts.items()}


# ---------------------------------------------------------------------------- and back
def to_sympy(element: ExpPoly) -> Any:
    """Return a SymPy expression in k1, r, rho, rho_old (and log_q) with the same normal form.

    >>> from klsym.language.expressions import k3
    >>> to_sympy(to_ring(k3))
    k1 + r - 1
    """
    total = sympy.S.Zero
    for (monomial, exponent), value in sorted(element.terms.items()):
        total += _to_rational(value) * _build_monomial(monomial) * _build_exponential(exponent)
    return total


def normalise_expression(e: Any, outside: Callable[[Any], Any] = lambda e: e) -> Any:
    """Return an expression in the form of the ring: exp of log ratios as powers of r, rho and rho_old.

    outside: what is returned of an expression outside the ring; the expression itself by default.

    >>> from klsym.language.expressions import A, k1, log_p, log_q
    >>> normalise_expression(sympy.exp(log_p - log_q)), normalise_expression(sympy.Max(A, k1))
    (r, Max(A, k1))
    """
    try:
        return to_sympy(to_ring(e))
    except NotInRing:
        return outside(e)


def _to_rational(value: Number) -> Any:
    return sympy.Rational(value.numerator, value.denominator)


RATIOS = {"k1": Ratio(log_q, log_p), "w": Weight(log_q, log_mu), "o": OldWeight(log_q, log_old)}


def _to_symbol(name: str) -> Any:
    parsed = parse_name(name)
    logs = {base: sympy.log(ratio) for base, ratio in RATIOS.items() if base != "k1"}
    symbols = {"k1": K1(log_q, log_p), **logs, "log_q": log_q, "length": length}
    if parsed.base.startswith(OF_LOGS):
        log = Log(attach_name(name), real=True)
        return sg(log) if parsed.detached else log
    if parsed.base not in SAMPLE_BASES:
        symbols = (sympy.Symbol if parsed.slot == "x" else Region)(attach_name(name), real=True)
        return sg(symbols) if parsed.detached else symbols
    inner = symbols.get(parsed.base) or sympy.Symbol(parsed.base, real=True)
    return _move_to_slot(sg(inner) if parsed.detached else inner, parsed.slot)


def _move_to_slot(expression: Any, slot: str) -> Any:
    return expression if slot == "x" else Slot(slot)(expression)


def _build_monomial(monomial: Monomial) -> Any:
    return sympy.Mul(*(_to_symbol(name) ** power for name, power in monomial))


def _build_exponential(exponent: Exponent) -> Any:
    return sympy.Mul(*(_build_factor(monomial, value) for monomial, value in exponent))


def _build_factor(monomial: Monomial, value: Number) -> Any:
    """Return exp(value * monomial), with exp(-k1) written r, exp(w) rho and exp(o) rho_old."""
    for name, power in monomial:
        parsed = parse_name(name)
        if power == 1 and parsed.base in RATIOS:
            remainder = tuple(item for item in monomial if item[0] != name)
            ratio = RATIOS[parsed.base]
            sign = -1 if parsed.base == "k1" else 1
            ratio = _move_to_slot(sg(ratio) if parsed.detached else ratio, parsed.slot)
            return ratio ** (sign * _to_rational(value) * _build_monomial(remainder))
    return sympy.exp(_to_rational(value) * _build_monomial(monomial))


def substitute_on_policy(h: ExpPoly) -> ExpPoly:
    """Return the value at a sample from q itself: w = log q - log mu is 0, so that rho is 1."""
    return h.substitute({name: ZERO for name in h.names() if parse_name(name).base == "w"})


def rename(expression: Any, old: Any, new: Any) -> Any:
    """Replace a symbol by another one with the same assumptions, and keep the order in Min and Max.

    `xreplace` compares their arguments again, which is slow.

    >>> a, b = sympy.symbols("a b", positive=True)
    >>> rename(sympy.Min(1 + 1 / a, log_q), a, b)
    Min(log_q, 1 + 1/b)
    """
    if old.assumptions0 != new.assumptions0 or expression.has(new):
        return expression.xreplace({old: new})
    return _rename(expression, old, new)


def _rename(expression: Any, old: Any, new: Any) -> Any:
    if expression == old:
        return new
    arguments = [_rename(x, old, new) for x in expression.args]
    if all(a is b for a, b in zip(arguments, expression.args, strict=True)):
        return expression
    kept = {"evaluate": False} if isinstance(expression, (sympy.Min, sympy.Max)) else {}
    return expression.func(*arguments, **kept)
