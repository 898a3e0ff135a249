"""Derivatives, detached copies and densities: what the rules share.  Trusted; standard library only."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from klsym.errors import Refused
from klsym.names import MEASURES, THETA_FREE, attach_name, parse_name
from klsym.normal_form import ONE, ZERO, Exponent, ExpPoly, Monomial
from klsym.statements import Context, Side

Hypothesis = tuple[Any, ...]
Outcome = tuple[Side, set[Hypothesis]]
Data = dict[str, Any]

LOG_RATIOS = ("k1", "w", "log_q")
K1, W, LOG_Q = (ExpPoly.variable(name) for name in LOG_RATIOS)
# log density of each measure: log p = log q - k1, log mu = log q - w
LOG_DENSITY = {"q": LOG_Q, "p": LOG_Q - K1, "mu": LOG_Q - W, "count": ZERO}


def refuse_unless(condition: bool, reason: str) -> None:
    if not condition:
        raise Refused(reason)


def expect(data: Data, *keys: str) -> None:
    """Refuse other keys than these; `part` may always be among them if it is listed."""
    refuse_unless(set(data) == set(keys), f"data: expected {sorted(keys)}, got {sorted(data)}")


def measure_in(data: Data, key: str) -> str:
    refuse_unless(data.get(key) in MEASURES, f"{key}: one of {MEASURES} expected, got {data.get(key)!r}")
    return str(data[key])


@lru_cache(maxsize=4096)
def derivative_of_name(name: str) -> ExpPoly:
    """d/d log q of a sample variable: 1 for k1, w, log q; f' for f; 0 for what is detached or theta-free."""
    parsed = parse_name(name)
    if parsed.detached or parsed.base in THETA_FREE:
        return ZERO
    if parsed.base in LOG_RATIOS:
        return ONE
    return ExpPoly.variable(name.replace("[", "'[") if "[" in name else name + "'")


def d_log_q(element: ExpPoly, context: Context) -> ExpPoly:
    """The derivative along log q, with sg(.) held constant (chain and product rule)."""
    return element.derive(lambda n: ZERO if n in context.parameters else derivative_of_name(n))


def attach(element: ExpPoly, context: Context) -> ExpPoly:
    """The value of a coefficient: sg(x) is x."""
    return element.rename(lambda n: n if n in context.parameters else attach_name(n))


def given_bases(context: Context) -> set[str]:
    """The rewards whose values a statement gives, at a sample or at a step."""
    return {parse_name(name).base for name, _ in context.given}


def density_ratio(over: str, under: str) -> ExpPoly:
    """exp(log over - log under), for example p/q = exp(-k1)."""
    return (LOG_DENSITY[over] - LOG_DENSITY[under]).exp()


def sample_part(monomial: Monomial, exponent: Exponent, context: Context) -> ExpPoly:
    """The factor of a term that changes from sample to sample."""
    powers = tuple((n, p) for n, p in monomial if context.is_sample(n))
    inside = tuple((m, v) for m, v in exponent if any(context.is_sample(n) for n, _ in m))
    return ExpPoly({(powers, inside): 1})
