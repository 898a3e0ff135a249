"""Which KL is a loss likely to mean, and does the engine prove that another is right for it?  Untrusted.

>>> [prove_choice(loss, Setting(), "reverse-kl", "loss") is None for loss in ("k2", "k3")]
[False, True]

>>> from klsym.engine.answers.dispatch import as_written, explain_written
>>> from klsym.engine.verdicts.verdict import Setting
>>> wrong, right = as_written("k3", ()), as_written("k2", ())
>>> [guess_intended_target(explain_written(loss, Setting()), loss) for loss in (wrong, right)]
['reverse-kl', None]
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from klsym.engine.answers.dispatch import as_written, explain_written
from klsym.engine.fields.slot_loss import has_batch_sum, has_token_sum
from klsym.engine.options.settings import Setting
from klsym.engine.targets.ring import is_single_part
from klsym.engine.verdicts.verdict import Verdict
from klsym.language.expressions import A, M, R, Weight, log_mu, log_p, parameter
from klsym.notation.losses import Written
from klsym.notation.tree import Divergence, Formula, Gradient, Mean, Minus, Name, Over, Product

DENSITIES_OF_KL = {"reverse-kl": ("q", "p"), "forward-kl": ("p", "q")}
NEXT_TOKENS = {f"next-token-{name}": name for name in DENSITIES_OF_KL}  # at the prefixes that are drawn


@lru_cache(maxsize=4096)
def prove_choice(text: str, setting: Setting, target: str, use: str) -> Verdict | None:
    """Return the verdict on a loss, if the engine proves that it is right.

    A sequence of one token is a sample: what is wrong for samples is wrong for tokens.
    """
    written = as_written(text, ())
    if target in NEXT_TOKENS:  # given its prefix, a token is a sample
        alone = prove_choice(text, Setting(setting.sampling, setting.use), NEXT_TOKENS[target], use)
        verdict = None if alone is None else explain_written(written, setting)
        return verdict if verdict and verdict.trust == "kernel" and is_right(verdict, target, use) else None
    of_tokens = setting.is_per_token and not has_token_sum(written.expression)
    if of_tokens and not _is_right_for_a_sample(text, Setting(setting.sampling, setting.use), target, use):
        return None
    plain = not setting.averaged and not setting.divisor.over_batch and not setting.divides_by_std
    if use != "value" and plain and not is_single_part(written, setting, target):
        return None  # without a proof, which would cost ten times as much
    verdict = explain_written(written, setting)
    return verdict if verdict.trust == "kernel" and is_right(verdict, target, use) else None


def _is_right_for_a_sample(text: str, setting: Setting, target: str, use: str) -> bool:
    """Is the loss right for sequences of one token, which are samples?  Else it is wrong for tokens.

    The value is proved.  Of the gradient it is enough that the target is the only named part of c, where
    E_q[c s] is the expected gradient: the proof follows for the tokens.
    """
    if use == "value":
        return prove_choice(text, setting, target, use) is not None
    return is_single_part(as_written(text, ()), setting, target)


@dataclass(frozen=True)
class NextTokenKL:
    """A KL of each next token: its multiple (None: once), its name, and the policy of the prefixes."""

    multiple: Formula | None
    name: str
    under: str


def read_next_token_kl(verdict: Verdict) -> NextTokenKL | None:
    """Return the next-token KL whose gradient, times a number, is the expected gradient; None if none is.

    E_m[sum_t grad KL(q_t||p_t)] = grad E_m[sum_t KL(q_t||p_t)] for a measure m that is free of theta.
    """
    multiple, gradient = None, verdict.gradient.in_quantities
    if isinstance(gradient, Product) and len(gradient.factors) == 2:
        multiple, gradient = gradient.factors
    match gradient:
        case Gradient(Mean(under, Over("t", Divergence("KL", first, second)))) | Mean(
            under, Over("t", Gradient(Divergence("KL", first, second)))
        ):
            for name, densities in DENSITIES_OF_KL.items():
                if (first, second) == tuple(Name(density, "t") for density in densities):
                    return NextTokenKL(multiple, name, under)
    return None


def is_next_token_kl(verdict: Verdict, target: str) -> bool:
    """Has the loss the gradient of this KL of each next token, at prefixes of the sampler, times a plus?"""
    kl, under = read_next_token_kl(verdict), "q" if verdict.setting.on_policy else "mu"
    is_kl = kl is not None and (kl.name, kl.under) == (NEXT_TOKENS[target], under)
    return kl is not None and is_kl and not isinstance(kl.multiple, Minus)


def is_right(verdict: Verdict, target: str, use: str) -> bool:
    """Does the verdict say that a loss is what was asked for?"""
    if target in NEXT_TOKENS:
        under = "q" if verdict.setting.on_policy else "mu"
        return read_next_token_kl(verdict) == NextTokenKL(None, NEXT_TOKENS[target], under)
    if use == "value":
        return verdict.value.is_unbiased_for(target)
    return verdict.target == target and verdict.gradient.single


def guess_intended_target(verdict: Verdict, written: Written) -> str | None:
    """Return the KL that a wrong loss is likely to mean: the one that its value estimates, or the reverse.

    None for a loss that is right, that mentions no other policy, or that names what is summed.
    """
    if has_token_sum(written.expression) or has_batch_sum(written.expression):  # said on purpose
        return None
    if verdict.setting.centring is not None and not verdict.setting.centring.keeps_gradient:
        return None
    e = written.expression
    if e.has(M):  # masked on purpose
        return None
    if not e.has(log_p):
        if verdict.setting.on_policy or e.has(R, A):
            return None
        names = e.replace(lambda e: isinstance(e, Weight), lambda e: parameter("weight"))
        return "sampler" if names.has(log_mu) else None
    parts = set(verdict.gradient.multiples) if not verdict.gradient.rest else {"rest"}
    if parts and parts <= {"reward", "reverse-kl"}:
        return None
    values = set(verdict.value.multiples)
    forward = "forward-kl" in values and "reverse-kl" not in values
    if verdict.target == "forward-kl" and "reverse-kl" not in values:
        return None
    if has_right_penalties(verdict):
        return None
    return "forward-kl" if forward else "reverse-kl"


def has_right_penalties(verdict: Verdict) -> bool:
    """Does each term of a sum that compares the policy with the reference descend KL(policy || reference)?

    >>> from klsym.engine.explain import explain
    >>> losses = [f"-min(rho, 2)*A {penalty}" for penalty in ("+ rho*k3", "- rho*k3", "+ k3")]
    >>> [has_right_penalties(explain(loss)) for loss in losses]
    [True, False, False]
    """
    if verdict.target in ("reverse-kl", "forward-kl"):
        return False
    terms = [term.verdict for term in verdict.gradient.terms]
    penalties = [one for one in terms if one.loss.written is None or one.loss.written.expression.has(log_p)]
    return bool(penalties) and all(
        penalty.target == "reverse-kl"
        and penalty.gradient.multiples["reverse-kl"].startswith("-") == verdict.is_ascended
        for penalty in penalties
    )
