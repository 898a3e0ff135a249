"""Two routes to dL/dlog q at random points, and what their difference is measured against.

The symbolic route is klsym's own: in the ring `differentiate_in_log_q`, outside it the expression that
`explain` prints as the per-sample gradient.  Both are evaluated here by code of the tests alone.  The other
route is automatic differentiation by a library.

Both routes round, and terms may cancel, so a difference is measured against the *size* of the derivative:
the sum of the absolute values of all the terms that the chain and product rules make of the loss as it
stands, none of them cancelled.  Rounding is then a few 1e-16 of the size for each operation, and AGREE
leaves three digits for long sums and for exponents of a few units.  A wrong detach moves the derivative by
whole terms, and even a factor of 1 + 1e-9 on the loss is seen.

    python -m support.judges.autograd_judge --count 1000
"""

from __future__ import annotations

import argparse
import random
import sys
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Any

import numpy as np
import sympy

from klsym.engine.fields.field import reduce_typed_loss
from klsym.engine.options.settings import Setting
from klsym.engine.regions.in_steps import to_steps
from klsym.kernel.derivatives import attach
from klsym.kernel.ring import ZERO, ExpPoly
from klsym.language.abbreviations import Context
from klsym.language.convert import substitute_on_policy, to_ring
from klsym.language.expressions import Estimator, clip, log_mu, log_q, remove_sg, rho, sg
from klsym.language.parser import parse
from klsym.language.unfolding import differentiate_in_log_q
from klsym.notation import losses
from klsym.notation.losses import Written
from klsym.notation.printers import TEXT
from klsym.study.sampling.autograd import differentiate_samples, estimate_expected_gradient
from support.losses import loss_oracle as oracle
from support.losses import random_losses
from support.losses.random_losses import Case

AGREE = 1e-12
POINTS = 24
SMOOTH = (
    "log(1 + r)", "sqrt(1 + k2)*sg(rho)", "rho*log(r + 1) - k1", "1/(1 + rho)", "exp(-k2)", "exp(r/4)*A",
    "(1 + k2)**(2/3)", "log(r + sg(r))", "sg(log(1 + r))*rho", "k3/(1 + sg(k3))", "2**k1", "(1 + r)**lam",
)  # fmt: skip
PIECEWISE = (
    "min(rho*A, clip(rho, 0.8, 1.2)*A)", "max(k1, 0)", "clip(k1, -0.5, 0.5)*rho", "abs(k1)", "abs(k1)*rho*A",
    "sg(min(rho, 2))*k3", "min(k3, 1/2, r)", "clip(sg(rho), 0.9, 1.1)*log_q", "max(min(k1, 1), -1)**2",
    "clip(r, 1 - eps, 1 + eps)", "clip(k2, sg(k1), r + 2)", "abs(abs(k1) - 1/2)", "min(k1, sg(k1) + A)",
)  # fmt: skip
WRAPS = (
    "clip({a}, -0.4, 0.9)", "abs({a})", "min({a}, {b})", "max({a}, {b}, 1/3)", "sg(clip({a}, -1, 1))*({b})",
    "clip({a}, {b}, {b} + 1)*rho", "log(1 + abs({a}))", "sqrt(1 + ({a})**2)",
)  # fmt: skip


# ---------------------------------------------------------------------------- points
@cache
def rows() -> tuple[np.ndarray, ...]:
    """log q, log p, log mu within a few units of each other, and R, A of both signs."""
    return tuple(np.random.default_rng(81).normal(scale=0.8, size=(5, POINTS)))


def atoms(sampling: str) -> oracle.Names:
    """The atoms of the grammar at the points; on-policy log mu is log q."""
    log_q, log_p, log_mu, R, A = rows()
    return oracle.names(log_q, log_p, log_q if sampling == "on-policy" else log_mu, R, A)


def given(names: oracle.Names, sampling: str) -> dict[str, Any]:
    """What `klsym.study.sampling.autograd` takes beside log q."""
    wanted = ("log_p", "R", "A", *oracle.PARAMETERS, *(("log_mu",) if sampling == "off-policy" else ()))
    return {name: names[name] for name in wanted}


def autograd(loss: Any, case: Case, backend: str) -> np.ndarray:
    """The real thing."""
    setting = {"sampling": case.sampling, "use": case.use}
    names = atoms(case.sampling)
    return differentiate_samples(
        loss, names["log_q"], given(names, case.sampling), backend=backend, **setting
    )


# ---------------------------------------------------------------------------- losses
def ring_cases(seed: int, count: int) -> list[Case]:
    return [random_losses.generate("core", seed, number) for number in range(count)]


def outside_cases(seed: int, count: int) -> list[Case]:
    """The written losses in each setting, then random ones inside clip, min, max, abs, log and sqrt."""
    settings = random_losses.SETTINGS
    cases = [Case(text, *setting) for text in SMOOTH + PIECEWISE for setting in settings]
    for number in range(count):
        stream = random.Random(f"{seed}/{number}")
        parts = {name: random_losses.written("loose2", stream) for name in "ab"}
        cases.append(Case(stream.choice(WRAPS).format(**parts), *settings[number % len(settings)]))
    return cases


# ---------------------------------------------------------------------------- the symbolic route
@dataclass(frozen=True)
class Gradient:
    """A derivative, and the size of its terms."""

    value: np.ndarray
    size: np.ndarray

    def misses(self, other: np.ndarray) -> float:
        """The largest difference in units of the size; 0 where both are 0."""
        assert np.isfinite(self.size).all() and np.shape(other) == np.shape(self.value)
        difference = np.abs(self.value - other)
        with np.errstate(divide="ignore", invalid="ignore"):
            return float(np.where(difference == 0, 0.0, difference / self.size).max())


def slope(loss: Any, case: Case) -> ExpPoly:
    """The per-sample coefficient in the ring."""
    element, context = to_ring(loss), Context(parameters=tuple(oracle.PARAMETERS))
    slope = attach(differentiate_in_log_q(element, context) if case.use == "loss" else element)
    return slope.substitute({"w": ZERO}) if case.sampling == "on-policy" else slope


def ring_gradient(case: Case, names: oracle.Names | None = None) -> Gradient:
    loss, names = parse(case.text), names or atoms(case.sampling)
    return Gradient(ring_value(slope(loss, case), names), size(loss, case.use, names))


def outside_gradient(case: Case) -> Gradient:
    """The printed per-sample gradient, read by the oracle."""
    loss, names = parse(case.text), atoms(case.sampling)
    field = reduce_typed_loss(Written(case.text, loss), Setting(case.sampling, case.use))
    per_sample = attach(field.score_coefficients.get("x", ZERO))
    per_sample = substitute_on_policy(per_sample) if case.sampling == "on-policy" else per_sample
    value = oracle.evaluate(losses.show(to_steps(per_sample, field.loss.defined), TEXT), names)
    return Gradient(np.broadcast_to(value, POINTS), size(loss, case.use, names))


def ring_value(element: ExpPoly, names: oracle.Names) -> np.ndarray:
    """Each term c prod x^n exp(sum d prod y^m), added up."""
    values = {**names, "w": names["log_q"] - names["log_mu"]}

    def polynomial(terms: Any) -> Any:
        return sum(float(c) * prod(values[name] ** float(n) for name, n in powers) for powers, c in terms)

    parts = [
        polynomial([(powers, c)]) * np.exp(polynomial(exponent))
        for (powers, exponent), c in element.terms.items()
    ]
    return np.broadcast_to(sum(parts, start=0.0), names["log_q"].shape)


# ---------------------------------------------------------------------------- the size
def size(loss: Any, use: str, names: oracle.Names) -> np.ndarray:
    """The sum of the absolute values of the terms of dL/dlog q; for a reward, of the loss."""
    value, change = _bound(loss, names)
    return np.broadcast_to(change if use == "loss" else value, names["log_q"].shape)


def _value(e: Any, names: oracle.Names) -> Any:
    return np.abs(oracle.evaluate(losses.show(e, TEXT), names))


def _bound(e: Any, names: oracle.Names) -> tuple[Any, Any]:
    """For |e| and for |de/dlog q|: the sum of the absolute values of all terms."""
    if e.is_Atom:
        return abs(names[e.name] if e.is_Symbol else float(e)), float(e == log_q)
    if isinstance(e, Estimator):
        return _bound(e.definition(), names)
    parts = [_bound(argument, names) for argument in e.args]
    values, changes = zip(*parts, strict=True)
    if isinstance(e, sg):
        return values[0], 0.0
    if e.is_Mul:
        others = [prod(values[:i] + values[i + 1 :]) for i in range(len(values))]
        return prod(values), sum(change * other for change, other in zip(changes, others, strict=True))
    if e.is_Add or isinstance(e, sympy.Min | sympy.Max | clip | sympy.Abs):
        return sum(values), sum(changes)
    here = _value(e, names)
    if isinstance(e, sympy.exp):
        return here, here * changes[0]
    if isinstance(e, sympy.log):
        inner = _value(e.args[0], names)
        return here + values[0] / inner, changes[0] / inner
    base, exponent = e.args
    if exponent.is_Integer and exponent > 0:
        return values[0] ** int(exponent), int(exponent) * values[0] ** (int(exponent) - 1) * changes[0]
    inner = _value(base, names)
    return here, here * (values[1] * changes[0] / inner + np.abs(np.log(inner)) * changes[1])


# ---------------------------------------------------------------------------- expected gradients
def softmax_form(case: Case, names: oracle.Names, weights: np.ndarray) -> Gradient:
    """sum_x weights_x c(x) (1[x = j] - q_j), from the per-sample coefficient c."""
    sample, q = ring_gradient(case, names), np.exp(names["log_q"])
    score = np.eye(len(q)) - q[:, None]  # of logit j at outcome x
    return Gradient(score @ (weights * sample.value), np.abs(score) @ (weights * sample.size))


def softmax_misses(case: Case, models: oracle.Models, backend: str) -> float:
    """Autograd through log_softmax: exact weights against both forms, frequencies against the first."""
    stack = models.under(case.sampling)
    names = oracle.names(*(np.log(row[0]) for row in (stack.q, stack.p, stack.mu)), stack.R[0], stack.A[0])
    exact = stack.mu[0]
    counts = np.random.default_rng(len(case.text)).multinomial(50, exact)
    setting = {"sampling": case.sampling, "use": case.use, "backend": backend}
    found = {}
    for kind, weights in (("exact", exact), ("frequencies", counts / 50)):
        rest = given(names, case.sampling)
        gradient = estimate_expected_gradient(
            parse(case.text), names["log_q"] + 0.3, weights, rest, **setting
        )
        found[kind] = softmax_form(case, names, weights).misses(gradient)
        if kind == "exact":
            literal = oracle.expected_gradient(case.text, models, case.sampling, case.use)[0]
            found["literal"] = Gradient(literal, softmax_form(case, names, weights).size).misses(gradient)
    return max(found.values())


# ---------------------------------------------------------------------------- wrong detaches
def drop_sg(loss: Any, case: Case) -> Any:
    return remove_sg(loss)


def detach_rho(loss: Any, case: Case) -> Any:
    return loss.xreplace({rho: sg(rho)})


def live_sampler(loss: Any, case: Case) -> Any:
    """On-policy, log mu moves with log q."""
    return loss.xreplace({log_mu: log_q}) if case.sampling == "on-policy" else loss


def detach_all(loss: Any, case: Case) -> Any:
    return sg(loss)


def slightly_scaled(loss: Any, case: Case) -> Any:
    return loss * (1 + sympy.Rational(1, 10**9))


WRONG = {f.__name__: f for f in (drop_sg, detach_rho, live_sampler, detach_all, slightly_scaled)}


def judge_wrong(case: Case, wrong: Any, backend: str) -> tuple[bool, bool]:
    """Is a wrong loss another one, by the exact normal forms, and does autograd of it look wrong?"""
    loss = parse(case.text)
    names = atoms(case.sampling)
    sizes = size(loss, case.use, names) + size(wrong, case.use, names)
    right = Gradient(ring_gradient(case).value, sizes)
    flagged = right.misses(autograd(wrong, case, backend)) > AGREE
    return slope(loss, case) != slope(wrong, case), flagged


# ---------------------------------------------------------------------------- many losses
def _disagreements(cases: list[Case], gradient: Any, backend: str) -> dict[Case, float]:
    found = {case: gradient(case).misses(autograd(parse(case.text), case, backend)) for case in cases}
    return {case: misses for case, misses in found.items() if not misses < AGREE}


def ring_disagreements(cases: list[Case], backend: str) -> dict[Case, float]:
    return _disagreements(cases, ring_gradient, backend)


def outside_disagreements(cases: list[Case], backend: str) -> dict[Case, float]:
    return _disagreements(cases, outside_gradient, backend)


def main() -> int:
    parser = argparse.ArgumentParser(description="random losses against real automatic differentiation")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--backend", choices=("torch", "jax"), default="torch")
    options = parser.parse_args()
    found = ring_disagreements(ring_cases(options.seed, options.count), options.backend)
    found |= outside_disagreements(outside_cases(options.seed, options.count), options.backend)
    print(
        f"{options.backend}: {2 * options.count} random losses, {len(found)} disagreements", *found, sep="\n"
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
