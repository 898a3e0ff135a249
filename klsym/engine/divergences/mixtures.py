"""Divergences of two policies from a mixture of them, such as the Jensen-Shannon divergence.

    full(x) = a KL(p||m) + b KL(q||m),  m = d p + (1 - d) q

It is js(q, p, d) if a = d and b = 1 - d; with a = 1 - d the weights are swapped.

>>> from klsym.language.sums import build_jensen_shannon
>>> find_mixture(build_jensen_shannon("q", "p", sympy.Rational(9, 10)))
Mixture(of_other=9/10, of_policy=1/10, weight=9/10, other='p', scale=1)
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import sympy

from klsym.language.expressions import log_q, unfold
from klsym.language.sums import DENSITIES, OverVocabulary

T, LOG = sympy.Dummy("t", positive=True), sympy.Dummy("log", real=True)


class Mixture(NamedTuple):
    """scale times of_other KL(other||m) + of_policy KL(q||m), with m = weight other + (1 - weight) q."""

    of_other: Any
    of_policy: Any
    weight: Any
    other: str
    scale: Any

    @property
    def is_jensen_shannon(self) -> bool:
        """Are both divergences weighted as the mixture is?"""
        return bool(self.of_other == self.weight)

    @property
    def is_even(self) -> bool:
        """Is it a mixture of equal parts?"""
        return bool(self.weight == sympy.S.Half)

    @property
    def is_swapped(self) -> bool:
        """Has each divergence the weight of the other policy in the mixture?"""
        return bool(self.of_policy == self.weight != self.of_other)

    @property
    def strength(self) -> Any:
        """f''(1), 1 for a KL: of_other (1 - weight)^2 + of_policy weight^2; w (1 - w) of js(q, p, w)."""
        return self.scale * (self.of_other * (1 - self.weight) ** 2 + self.of_policy * self.weight**2)


@lru_cache(maxsize=256)
def find_mixture(e: Any) -> Mixture | None:
    """Return the divergences from a mixture that a multiple of full(..) is; None for other expressions."""
    scale, over = e.as_independent(OverVocabulary, as_Add=False)
    if not isinstance(over, OverVocabulary) or not scale.is_Rational:
        return None
    x = unfold(over.args[0])
    logs = [log for log in x.atoms(sympy.log) if log.has(*DENSITIES.values())]
    others = [name for name, density in DENSITIES.items() if name != "q" and x.has(density)]
    if len(logs) != 1 or len(others) != 1:
        return None
    [log], log_other = logs, DENSITIES[others[0]]
    of_q = log_q if log.args[0].has(sympy.exp(log_q)) else sympy.S.Zero  # log(c q + d p) or log(c + d t)
    argument = _write_in_ratio(log.args[0] * sympy.exp(-of_q), log_other)
    body = _write_in_ratio(x.xreplace({log: LOG + of_q}), log_other)
    weights = _read_weights(argument)
    pair = _read_multiples(body, log_other)
    if weights is None or pair is None:
        return None
    total = sum(pair)
    return Mixture(
        of_other=pair[0] / total,
        of_policy=pair[1] / total,
        weight=weights[1] / sum(weights),
        other=others[0],
        scale=scale * total,
    )


def _write_in_ratio(e: Any, log_other: Any) -> Any:
    """Return an expression with t for the ratio of the other policy to q."""
    ratios = {
        sympy.exp(log_other - log_q): T,
        sympy.exp(log_q - log_other): 1 / T,
        sympy.exp(log_other): T * sympy.exp(log_q),
    }
    return sympy.expand(sympy.expand(e, power_exp=False).xreplace(ratios))


def _read_weights(argument: Any) -> tuple[Any, Any] | None:
    """Return c and d of c + d t; None for other functions of t."""
    if not argument.is_polynomial(T) or argument.free_symbols != {T}:
        return None
    coefficients = sympy.Poly(argument, T).all_coeffs()
    if len(coefficients) != 2 or not all(x.is_Rational and x > 0 for x in coefficients):
        return None
    return coefficients[1], coefficients[0]


def _read_multiples(body: Any, log_other: Any) -> tuple[Any, Any] | None:
    """Return a and b of a t (log p - log q - log m) - b log m, up to constants and multiples of t."""
    names = (T, LOG, log_q, log_other)
    if not body.is_polynomial(*names):
        return None
    terms = sympy.Poly(body, *names).as_dict()
    a, b = (-terms.get(key, sympy.S.Zero) for key in ((1, 1, 0, 0), (0, 1, 0, 0)))
    free = {(0, 0, 0, 0), (1, 0, 0, 0)}
    wanted = {(1, 1, 0, 0): -a, (0, 1, 0, 0): -b, (1, 0, 1, 0): -a, (1, 0, 0, 1): a}
    is_of_form = {key: value for key, value in terms.items() if key not in free} == wanted
    return (a, b) if is_of_form and a.is_Rational and b.is_Rational and a > 0 and b > 0 else None
