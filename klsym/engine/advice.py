"""Warnings: what an engineer should know before using a loss.  Each is a condition and a sentence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import sympy

from klsym.engine.targets import recognise
from klsym.language import Weight, log_mu, rho, sg
from klsym.normal_form import ExpPoly

if TYPE_CHECKING:
    from klsym.engine.verdict import Verdict


@dataclass(frozen=True)
class Facts:
    """What the warnings look at.

    vanishes: the gradient is zero at every sample.  weighted: it mentions the sampler.  attached: the
    loss holds rho outside sg.  noisy: a multiple of rho s stands beside the rest.  heavy: r in c.
    """

    vanishes: bool
    weighted: bool
    attached: bool
    noisy: bool = False
    heavy: bool = False


def facts_of(loss: ExpPoly, per_sample: ExpPoly, c: ExpPoly, on_policy: bool) -> Facts:
    """The facts of a loss in the ring."""
    weight = ExpPoly.variable("w").exp()
    unweighted = per_sample if on_policy else per_sample * weight.inverse()
    return Facts(
        vanishes=not per_sample,
        weighted="w" in per_sample.names(),
        attached=any("w" in dict(m) for _, exponent in loss.terms for m, _ in exponent),
        noisy=bool(recognise(unweighted).constant),
        heavy=any(v < 0 for _, exponent in c.terms for m, v in exponent if dict(m).get("k1")),
    )


def facts_outside(loss: Any, per_sample: Any) -> Facts:
    """The facts of a loss outside the ring."""
    attached = loss.replace(lambda e: isinstance(e, sg), lambda e: sympy.Integer(1))
    return Facts(per_sample == 0, per_sample.has(Weight, log_mu), attached.has(rho))


def warnings_for(verdict: Verdict, facts: Facts) -> tuple[str, ...]:
    """All warnings that apply."""
    return tuple(text for text in (check(verdict, facts) for check in CHECKS) if text)


def outside_the_core(verdict: Verdict, facts: Facts) -> str:
    if verdict.trust == "kernel":
        return ""
    return f"outside the decidable core: this verdict is not proved, it {RESTS[verdict.trust]}"


RESTS = {"sympy": "rests on SymPy", "numeric": "is supported by numbers only"}


def zero_gradient(verdict: Verdict, facts: Facts) -> str:
    if verdict.target != "zero":
        return ""
    if facts.vanishes:
        return f"{verdict.loss} has zero gradient at every sample: it does nothing"
    kind = "a" if verdict.setting.use == "reward" else f"an {verdict.setting.sampling}"
    return f"{verdict.loss} as {kind} {verdict.setting.use} has zero expected gradient: it only adds noise"


def value_is_not_gradient(verdict: Verdict, facts: Facts) -> str:
    if verdict.unbiased_for("reverse-kl") and verdict.target != "reverse-kl":
        what = {"zero": "is zero", "forward-kl": "is that of KL(p||q)"}
        end = what.get(verdict.target, "is not that of KL(q||p)")
        return f"the value is unbiased for KL(q||p), but the expected gradient {end}"
    return ""


def missing_weight(verdict: Verdict, facts: Facts) -> str:
    setting = verdict.setting
    if setting.on_policy or facts.vanishes or facts.weighted:
        return ""
    fix = "multiply by rho" if setting.use == "reward" else "use rho*k3 or sg(rho)*k2"
    return f"no importance weight: samples come from mu, not from q ({fix} to target grad KL(q||p))"


def literal_weight(verdict: Verdict, facts: Facts) -> str:
    if not verdict.setting.on_policy or verdict.setting.use == "reward" or not facts.attached:
        return ""
    return (
        "on-policy rho has the value 1 but not the gradient 0: build it as "
        "exp(log_q - log_q.detach()); the literal 1 gives another target"
    )


def mean_zero_noise(verdict: Verdict, facts: Facts) -> str:
    if verdict.target == "zero" or not facts.noisy:
        return ""
    shown = "s" if verdict.setting.on_policy else "rho*s"
    return f"a multiple of {shown} has mean zero: it changes no expectation, only the variance"


def wrong_sign(verdict: Verdict, facts: Facts) -> str:
    if verdict.setting.use == "reward":
        return ""
    names = {"reverse-kl": "KL(q||p)", "forward-kl": "KL(p||q)"}
    found = [names[n] for n, v in verdict.gradient.multiples.items() if n in names and v.startswith("-")]
    return f"descending this loss increases {' and '.join(found)}" if found else ""


def heavy_tail(verdict: Verdict, facts: Facts) -> str:
    return (
        "r = p/q is unbounded where q << p: expect heavy tails far from the reference" if facts.heavy else ""
    )


CHECKS: tuple[Callable[[Verdict, Facts], str], ...] = (
    outside_the_core, zero_gradient, value_is_not_gradient, missing_weight, literal_weight,
    mean_zero_noise, wrong_sign, heavy_tail,
)  # fmt: skip
