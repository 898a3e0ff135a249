"""explain for batches of n independent samples whose score coefficients are centred.  Untrusted.

With h the coefficient that one sample would have, E_m[h s], a batch has

    mean            E_m[mean_i (h_i - (h_i + sum_{j != i} h_j)/n) s_i] = (1 - 1/n) (E_m[h s] - E_m[h] E_m[s])
    leave-one-out   E_m[mean_i (h_i - sum_{j != i} h_j/(n - 1)) s_i] = E_m[h s] - E_m[h] E_m[s]

On-policy E_q[s] = 0.  Off-policy E_mu[s] = -grad KL(mu||q), and what is taken off stays.  Where h is not
linear in k1 and rewards it is written H, whose value at each sample is given.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from klsym.abbreviations import E, Side
from klsym.convert import to_ring, to_sympy
from klsym.engine.advice import batch_warnings, facts_of
from klsym.engine.derivation import Derivation, Proof, derive
from klsym.engine.explain_samples import (
    Canonical,
    aggregated,
    canonical_form,
    hypotheses_of,
    named_gradient,
    unproved,
    uses_sampler,
    with_objective,
    with_shape,
    witness_against_reverse_kl,
)
from klsym.engine.explain_setting import Setting
from klsym.engine.explain_spread import explain_spread
from klsym.engine.indexed import mean_over_i
from klsym.engine.objectives import at_policy
from klsym.engine.products import curl, of_batch, of_tokens, turning
from klsym.engine.quantities import KL, Quantity, covariance, expectation, grad, sample, sample_gradient
from klsym.engine.shorthands import expansion
from klsym.engine.targets import Target, recognise
from klsym.engine.verdict import Chain, Meaning, Search, Verdict
from klsym.language import H, log_q, others, own, parameter, s
from klsym.names import LOG_RATIOS, SAMPLE_BASES
from klsym.render import formulas
from klsym.render.coefficients import coefficient
from klsym.render.losses import Written
from klsym.render.tree import product
from klsym.render.values import Made, less_mean, less_others
from klsym.ring import ONE, ZERO, ExpPoly
from klsym.unfolding import d_log_q

n, m = parameter("n"), parameter("m")
SIZE = ((n, m + 1),)
READINGS = {
    "mean": "x_1..x_n are independent samples, n at least 2; others is the sum over the other n - 1",
    "leave-one-out": "x_1..x_n are independent samples, n at least 2; others is the sum over the other"
    " m = n - 1",
}


@dataclass(frozen=True)
class Centred:
    """A centred coefficient: as written, the factor of its gradient, h, and what it pushes."""

    derivation: Derivation
    scale: Any
    h: ExpPoly
    pushed: Made | ExpPoly


def explain_batch(written: Written, setting: Setting) -> Verdict:
    """The verdict; raises NotInRing outside the ring."""
    whole = aggregated(written, setting)
    form = canonical_form(whole, setting)
    single = with_shape(unproved(written, whole, form, setting), form.coefficient, form.found)
    h = _coefficient_of(form, setting)
    if setting.use == "loss":
        single = replace(single, expansion=expansion(written, setting, coefficient(h)))
    if setting.batch == "std" and any(name in SAMPLE_BASES for name in h.names()):
        return explain_spread(single, h, READINGS["mean"])
    centred = _centred(form, setting)
    link = _at_one_sample(whole, form, setting)
    mean = ZERO if setting.on_policy else _constant_mean(centred.h)
    if mean is None:
        verdict = _biased(single, form, centred, link)
    else:  # E_mu[h] is a number: so much less of E_mu[s] = E_q[s/rho]
        c = form.coefficient - mean * (-ExpPoly.variable("w")).exp()
        verdict = _one_term(single, Canonical(form.derivation, c, recognise(c)), centred, link)
    facts = facts_of(to_ring(whole.expression), form.per_sample, form.coefficient, setting.on_policy)
    facts = replace(facts, vanishes=facts.vanishes or not verdict.pushes)
    return replace(verdict, warnings=batch_warnings(verdict, facts))


def _centred(form: Canonical, setting: Setting) -> Centred:
    h, under = _coefficient_of(form, setting), "q" if setting.on_policy else "mu"
    linear = _is_linear(h)
    value = to_sympy(h) if linear else H
    given = {} if linear else {"H": to_sympy(h)}
    parts = to_ring(own(value)), to_ring(others(value))
    pushed: Made | ExpPoly
    if _reading(setting) == "mean":
        centred, scale = own(value) - (own(value) + others(value)) / n, 1 - 1 / n
        pushed = less_mean(*parts)
    else:
        centred, scale = own(value) - others(value) / m, 1
        pushed = less_others(*parts)
    if not any(name in SAMPLE_BASES for name in h.names()):
        pushed = ZERO  # equal numbers less their mean
    premises = SIZE if setting.batch == "leave-one-out" else ()
    start = mean_over_i(centred * own(s), under)
    return Centred(derive(start, given=given, premises=premises), scale, h, pushed)


def _coefficient_of(form: Canonical, setting: Setting) -> ExpPoly:
    return at_policy(form.per_sample) if setting.on_policy else form.per_sample


def _is_linear(h: ExpPoly) -> bool:
    """Constants times k1 or a token reward, of which a sum over samples can be written."""
    for monomial, exponent in h.terms:
        inside = [name for inner, _ in exponent for name, _ in inner if name in SAMPLE_BASES]
        random = [(name, power) for name, power in monomial if name in SAMPLE_BASES]
        if inside or len(random) != 1 or random[0] not in (("k1", 1), ("R", 1), ("log_q", 1)):
            return False
    return bool(h)


def _at_one_sample(written: Written, form: Canonical, setting: Setting) -> tuple[Proof, ...]:
    """grad L = h s at each sample: the coefficient that is centred."""
    if setting.use == "reward":
        return ()
    element = to_ring(written.expression)
    start = derive(sample_gradient(written.expression), on_policy=uses_sampler(element, setting))
    return (start.equals(sample(to_sympy(form.per_sample) * s)),)


def _batched(single: Verdict, centred: Centred, proofs: tuple[Proof, ...]) -> Verdict:
    """The verdict on one sample, with the theorem of the batch in front."""
    return replace(
        single,
        h=centred.pushed,
        trust="kernel",
        hypotheses=(*_readings(single), *hypotheses_of(proofs)),
        steps=Chain(proofs[0]),
        proofs=proofs,
        implied=None,
        generated=None,
        shown="",
    )


def _reading(setting: Setting) -> str:
    """With std what is left here is constant: it is 0 less its mean, and 0/0 is read as 0."""
    return "leave-one-out" if setting.batch == "leave-one-out" else "mean"


def _readings(single: Verdict) -> tuple[str, ...]:
    centred = "what is centred is the coefficient h in grad L = h s, detached"
    return (READINGS[_reading(single.setting)], *((centred,) if single.setting.use == "loss" else ()))


# ---------------------------------------------------------------------------- E[s] = 0, or E[h] is a number
def _one_term(single: Verdict, form: Canonical, centred: Centred, link: tuple[Proof, ...]) -> Verdict:
    """E_q[c s], times 1 - 1/n where a sample stands in its own mean."""
    scale = to_ring(centred.scale)
    found = _scaled(form.found, scale)
    named = named_gradient(found)
    plain = Quantity(Side.atom(E("q", form.coefficient, ("x",))))
    right = plain * centred.scale if named is None else named
    proofs: tuple[Proof, ...] = (of_batch(centred.derivation, right),)
    proofs += () if named is not None else (derive(right).is_no_combination(),)
    verdict = replace(
        _batched(single, centred, (*proofs, *link)),
        c=_times(scale, form.coefficient),
        gradient=Meaning.of(found),
        model=None if _is_reverse(found) else Search(_witness, centred, right, found.reward),
    )
    return with_objective(verdict, found, derive(right))


def _witness(centred: Centred, right: Quantity, reward: ExpPoly) -> dict[str, Any] | None:
    """A model for the batch or, where H is given by premises, which bind no model, for what it is worth."""
    start = derive(right) if centred.derivation.context.given else centred.derivation
    return witness_against_reverse_kl(start, reward)


def _is_reverse(found: Target) -> bool:
    """grad KL(q||p), and the policy gradient of rewards beside it or alone."""
    return found.target == "reverse-kl" or (found.target == "combination" and not found.forward)


def _times(scale: ExpPoly, c: ExpPoly) -> ExpPoly | Made:
    """(1 - 1/n) c."""
    return c if scale == ONE or not c else Made(product, (scale, c))


def _scaled(found: Target, scale: ExpPoly) -> Target:
    return Target(**{part.name: getattr(found, part.name) * scale for part in fields(Target)})


# ---------------------------------------------------------------------------- where it is not
MEAN = "mean_h"
UNDECIDED = (
    "open: no model that was tried gives E_mu[h] grad KL(mu||q) a curl, and that it has none is not proved"
)
APART = "E_mu[h] and KL(mu||q) move along different directions, so that E_mu[h] grad KL(mu||q) has a curl"


def _biased(single: Verdict, form: Canonical, centred: Centred, link: tuple[Proof, ...]) -> Verdict:
    """What is taken off is E_mu[h] E_mu[s] = -E_mu[h] grad KL(mu||q)."""
    mean = expectation(to_sympy(centred.h), "mu")
    named = named_gradient(form.found)
    first = Quantity(form.derivation.left) if named is None else named
    objective, moved = _covariances(centred.h) or (None, first + mean * grad(KL("mu", "q")))
    right, scale = moved * centred.scale, to_ring(centred.scale)
    target, proofs = _turning(centred.h)
    c = form.coefficient - ExpPoly.variable(MEAN) * (-ExpPoly.variable("w")).exp()
    told = (of_batch(centred.derivation, right), *link)  # a refutation on one model assumes nothing of others
    verdict = _batched(single, centred, told)
    return replace(
        verdict,
        proofs=(told[0], *proofs, *told[1:]),
        c=_times(scale, c),
        gradient=Meaning(target, {}, c * scale),
        model=Search(_witness, centred, right, ZERO),
        hypotheses=(f"{MEAN} stands for {mean}", *verdict.hypotheses),
        implied=objective * centred.scale if objective else None,
        shown=formulas.side((grad(objective) * centred.scale if objective else right).side),
        notes=tuple(
            words
            for words, holds in (
                (f"{APART} on a finite model", target == "none"),
                (UNDECIDED, target is None),
                (PRODUCT_RULE, objective),
            )
            if holds
        ),
    )


def _covariances(h: ExpPoly) -> tuple[Quantity, Quantity] | None:
    """Cov_mu(h, log q) and its gradient E_mu[h s] - E_mu[h] E_mu[s], for h = sum_x a_x x + b.

    a_x: constants, x: k1, log q or log q - log mu.  b: what is free of theta.

        sum_x a_x (grad E_mu[x^2]/2 - E_mu[x] grad E_mu[x]) + grad E_mu[b log q] - E_mu[b] grad E_mu[log q]
    """
    context = derive(expectation(to_sympy(h), "mu")).context
    objective, gradient, free = Quantity(Side()), Quantity(Side()), h
    for name in LOG_RATIOS:
        x = ExpPoly.variable(name)
        a = sum(
            (ExpPoly({key: value}) for key, value in h.terms.items() if dict(key[0]).get(name) == 1), ZERO
        )
        free, a, of = free - a, a * x.inverse(), to_sympy(x)
        if any(base in SAMPLE_BASES for base in a.names()):
            return None
        turned = grad(expectation(of**2 / 2, "mu")) - expectation(of, "mu") * grad(expectation(of, "mu"))
        objective = objective + covariance(of, of, "mu") * (to_sympy(a) / 2)
        gradient = gradient + turned * to_sympy(a)
    if d_log_q(free, context):
        return None
    if any(base in SAMPLE_BASES for base in free.names()):
        b = to_sympy(free)
        objective = objective + covariance(b, log_q, "mu")
        gradient = gradient + grad(expectation(b * log_q, "mu"))
        gradient = gradient - expectation(b, "mu") * grad(expectation(log_q, "mu"))
    return objective, gradient


PRODUCT_RULE = (
    "grad Var_mu(x)/2 = grad E_mu[x**2]/2 - E_mu[x] grad E_mu[x] and, for b free of theta,"
    " grad Cov_mu(b, log_q) = grad E_mu[b*log_q] - E_mu[b] grad E_mu[log_q]"
)


def _constant_mean(h: ExpPoly) -> ExpPoly | None:
    """E_mu[h], where it is a number."""
    side = derive(expectation(to_sympy(h), "mu")).reduce().left
    constant = sum((c for c, atoms in side.terms if not atoms), ZERO)
    return constant if all(not atoms for _, atoms in side.terms) else None


def _turning(h: ExpPoly) -> tuple[str | None, tuple[Proof, ...]]:
    """Is g grad G a gradient, for g = E_mu[h] and G = -KL(mu||q)?  If so d_u g d_v G - d_v g d_u G = 0."""
    one_A = h.substitute({"A": ExpPoly.variable("R")})
    return turning(_curl_of_product(h), _curl_of_product(one_A), h.names())


def _curl_of_product(h: ExpPoly) -> Quantity:
    """d_u g d_v G - d_v g d_u G."""
    context = derive(expectation(to_sympy(h), "mu")).context
    slope = of_tokens(d_log_q(h, context), context)
    constant = ExpPoly({k: v for k, v in slope.terms.items() if context.is_constant(ExpPoly({k: v}))})
    return curl(ONE, ONE, "mu", constant) + curl(slope - constant, ONE, "mu")
