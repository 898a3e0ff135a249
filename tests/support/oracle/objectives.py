"""Objectives as answers print them, read literally: their value in each world, with its gradient.

    E_q[x] E_mu[x] E_p[x]         means over whole sequences; q moves with theta, mu and p do not
    E_m[sum_t x]  E_m[mean_i x]   of sums over tokens, and of means over all batches
    E_held[x]                     under q, held as it is at theta
    KL(q||p)  Cov_m(x, y)  Var_m(x)  KL(q_t||p_t)

>>> from support.oracle import losses
>>> where = Slotted(losses.samples(seed=1, copies=2), ("off-policy",))
>>> kl = worth("E_q[A] - 2*KL(q||mu)", where, Setting(sampling="off-policy")).a
>>> field = where.field("rho*A - 2*rho*(log_q - log_mu)").a
>>> bool(abs(kl - field).max() < 1e-12)
True
"""

from __future__ import annotations

import ast
import re
from typing import Any

from .grammar import BINARY, FUNCTIONS, SLOTS, Names, jet, parsed, sg, walked
from .losses import PARAMETERS, Rows, Setting
from .numbers import Jet, exp
from .slots import OF_SAMPLES, Found, Slotted, holds

MEAN = re.compile(r"\b(E|Cov|Var)_(q|mu|p|held)$")
DENSITY = {"q": "log_q", "p": "log_p", "mu": "log_mu", "held": "log_q"}
OF_BATCH = re.compile(r"_self\b")
OF_OTHERS = re.compile(r"\b(\w+)_others\b")


class NotRead(Exception):
    """Part of an objective that this oracle has no reading for."""


def worth(text: str, where: Slotted, setting: Setting, **given: Any) -> Jet:
    """The value of an objective in each world; `a` is its gradient along every logit."""
    try:
        at = parsed(as_python(text))
    except SyntaxError as error:
        raise NotRead(text) from error
    return jet(_Reader(where, setting, given).read(at))


def as_python(text: str) -> str:
    """Brackets of means as those of calls; KL(q||p) as KL_q_p.

    >>> as_python("2 KL(q||p) - E_mu[sum_t k3_now]"), as_python("E_q[sum_t KL(p_t||q_t)]")
    ('2 * KL_q_p - E_mu(sum_t( k3_now))', 'E_q(sum_t( full(-r*k1)))')
    """
    text = text.replace("KL(q_t||p_t)", "full(k1)").replace("KL(p_t||q_t)", "full(-r*k1)")
    text = re.sub(r"KL\((\w+)\|\|(\w+)\)", r"KL_\1_\2", text)
    text = re.sub(r"(?<=[\w)]) (?=(?:E|Cov|Var|KL)_)", " * ", text)
    closing: list[str] = []
    found = ""
    for part in re.split(r"(\[sum_t |\[mean_i |\[|\])", text):
        if part.startswith("["):
            name = part[1:].strip()
            found += f"({name}( " if name else "("
            closing.append("))" if name else ")")
        elif part == "]":
            found += closing.pop() if closing else "]"
        else:
            found += part
    return found


class _Reader:
    def __init__(self, where: Slotted, setting: Setting, given: dict[str, Any]) -> None:
        self.where, self.setting, self.given = where, setting, given

    def read(self, at: ast.expr) -> Any:
        match at:
            case ast.Constant(int() | float() as value):
                return float(value)
            case ast.UnaryOp(ast.USub(), operand):
                return self.read(operand) * -1
            case ast.BinOp(left, operator, right):
                return BINARY[type(operator)](self.read(left), self.read(right))
            case ast.Name(name) if name.startswith("KL_"):
                return self.divergence(*name.split("_")[1:])
            case ast.Name(name):
                return self.constant(name)
            case ast.Call(ast.Name(name), arguments) if MEAN.match(name):
                kind, measure = name.split("_")
                return getattr(self, kind.lower())(measure, *arguments)
            case ast.Call(ast.Name(name), arguments) if name in FUNCTIONS:
                return FUNCTIONS[name](*map(self.read, arguments))
        raise NotRead(ast.unparse(at))

    def constant(self, name: str) -> Any:
        known = {**PARAMETERS, **self.where.worlds[0].parameters, **self.given}
        if name not in known:
            raise NotRead(name)
        return known[name]

    def divergence(self, first: str, second: str) -> Any:
        log = f"{DENSITY[first]} - {DENSITY[second]}"
        return self.mean(self.where.whole, first, walked(parsed(log), self.names(self.where.whole), None))

    def e(self, measure: str, of: ast.expr) -> Any:
        match of:
            case ast.Call(ast.Name("sum_t"), [inner]):
                rows = self.where.steps
            case ast.Call(ast.Name("mean_i"), [inner]):
                return self.batches(measure, inner)
            case inner if holds(ast.unparse(inner), OF_SAMPLES):
                return self.batches(measure, inner)
            case inner:
                rows = self.where.whole
        return self.mean(rows, measure, walked(inner, self.names(rows), None))

    def cov(self, measure: str, first: ast.expr, second: ast.expr) -> Any:
        mean = {x: self.e(measure, x) for x in (first, second)}
        return self.e(measure, ast.BinOp(first, ast.Mult(), second)) - jet(mean[first]) * mean[second]

    def var(self, measure: str, of: ast.expr) -> Any:
        return self.cov(measure, of, of)

    def batches(self, measure: str, of: ast.expr) -> Any:
        """Batches are drawn from what samples are drawn from, which does not move."""
        if measure != "mu" or self.where.on_policy:
            raise NotRead("a batch that is drawn from q")
        text = OF_OTHERS.sub(r"others(\1)", OF_BATCH.sub("", ast.unparse(of)))
        return self.where.of_batches(text, Setting(n=self.setting.n))

    def mean(self, rows: Rows, measure: str, value: Any) -> Any:
        mass = jet(exp(self.where.atom(DENSITY[measure], rows, "x")))
        mass = sg(mass) if measure == "held" else mass
        return self.where.mean(rows, mass * value)

    def names(self, rows: Rows) -> Found:
        """Names without a slot are of the whole sequence; inside sums and full(..) they are of a token."""
        level = "token" if rows is self.where.steps else "sequence"
        at_token = self.named(self.where.steps, "now")
        return Found(self.named(rows, "x"), self.where.finder(rows, Setting(level=level), at_token).sums)

    def named(self, rows: Rows, bare: str) -> Names:
        names = self.where.names(rows, **{"T": rows.length, **self.given})

        def find(name: str, inner: str | None = None) -> Any:
            base, _, slot = name.rpartition("_")
            base, slot = (base, slot) if slot in SLOTS else (name, inner or bare)
            if base == "s":
                raise NotRead("a score in an objective")
            if base == "T" and slot != "x":
                return self.where.atom("T", rows, slot)
            return names(base, slot) if slot != "x" else names(base)

        return find
