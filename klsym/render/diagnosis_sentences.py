"""The sentences of diagnostics for one loss."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from klsym.errors import spell_switch
from klsym.notation import losses
from klsym.notation.combination import format_objective
from klsym.notation.printers import TEXT
from klsym.notation.values import describe_conditions, show_value
from klsym.render.words import describe_place

CHANGES = {
    "KL003": "with the weight attached, {} would minimise KL(q||p)",
    "KL015": "with the weight detached, {} would minimise KL(q||p)",
    "KL016": "with the ratio the other way round it would be {}, which estimates KL(q||p)",
    "weight": "the weight is mu/q; with q/mu it would be {}, a policy gradient",
}


def _describe_forward_descent(
    value: Mapping[str, str], constant: Any, gradient: Mapping[str, str], tokens: bool, clipped: Any,
    beside: bool,
) -> str:  # fmt: skip
    """Say what the value estimates, with multiple and constant, and what the gradient is.

    clipped: the verdict, if this is so inside the clip range alone; else None.
    """
    estimated = format_objective(value)
    if constant:
        constant_text = show_value(constant)
        estimated += (
            f" - {constant_text.removeprefix('-')}"
            if constant_text.startswith("-")
            else f" + {constant_text}"
        )
    where = f"{describe_place(clipped)}, " if clipped is not None else ""
    descended = "the forward KL of each next token" if tokens else format_objective(gradient)
    of = " of the penalty" * beside
    return f"{where}the value{of} estimates {estimated}, the gradient is that of {descended}"


def _describe_unused(of: Sequence[str], is_ratio_one: bool) -> str:
    verb = "does" if len(of) == 1 else "do"
    not_clipped = ": on-policy rho is 1, with the gradient s" * is_ratio_one
    return f"{' and '.join(of)} {verb} not appear in the gradient{not_clipped}"


def _describe_overflows(found: Sequence[Any], of: str) -> str:
    places: dict[int, list[str]] = {}
    for overflow in found:
        value = f"{overflow.value:g}".replace("nan", "not a number")
        places.setdefault(overflow.at, []).append(f"the {overflow.what} is {value}")
    clauses = [f"at {of} = {at} {' and '.join(values)}" for at, values in places.items()]
    return f"in float32, {'; '.join(clauses)}"


def _describe_overflows_in_code(found: Sequence[tuple[int, str]]) -> str:
    return f"in float32, {'; '.join(f'at log q - log p = {at} {value}' for at, value in found)}"


def _describe_cancellation(at: float, value: float, exact: float) -> str:
    return (
        f"in float32 terms cancel near q = p: at log q - log p = {at:g} the value is {value:.1g}, and not"
        f" {exact:.1g} (expm1 and log1p keep the digits)"
    )


def _describe_bias(cases: Sequence[Any]) -> str:
    """Say where the gradient of a sample is zero, and give the bias E[b*s] of the expected gradient."""
    values = {show_value(b) for _, b in cases}
    bias = f"b = {values.pop()}" if len(values) == 1 else "b by region"
    regions = _unite_regions([on for on, _ in cases])
    few = f"where {', or where '.join(map(describe_conditions, regions))}" if len(regions) < 3 else ""
    place = few or f"in {len(regions)} regions"
    listed = f" ({spell_switch('full')})" * (not few or bias == "b by region")
    return f"the gradient is zero {place}; the bias is E[b*s], {bias}{listed}"


def _describe_truncation(inside: Any, beyond: Sequence[Any]) -> str:
    """Say what multiplies the score beyond the bounds, and what would without them."""
    start = "biased: the score is multiplied by"
    if len(beyond) > 2:
        return (
            f"{start} other factors than {show_value(inside)} outside the clip range ({spell_switch('full')})"
        )
    factors = (f"{show_value(h)} where {describe_conditions(on)}" for on, h in beyond)
    return f"{start} {', and by '.join(factors)}, not by {show_value(inside)}"


def _unite_regions(regions: Sequence[Any]) -> Sequence[Any]:
    """Write the regions x = 0 and x > 0 as x >= 0."""
    first, *others = regions
    if len(first) != 1 or any(len(on) != 1 or on[0].x != first[0].x for on in others):
        return regions
    signs = tuple(sorted({sign for on in regions for sign in on[0].signs}))
    return regions if len(signs) == 3 else [(replace(first[0], signs=signs),)]


def _describe_clamped_words(of: Sequence[Any]) -> str:
    """Warn of a clip in full(..): the gradient of a constant c at a word y is c grad q(y), not 0."""
    bounds = ", ".join(losses.show(term, TEXT) for term in of)
    return (
        f"a bound acts on the term of each word ({bounds}): a word beyond it keeps the gradient of its"
        " probability alone, so that descent can lead away from p"
    )


def _describe_turned_sign(where: Sequence[Any], lasts: bool) -> str:
    """Say beyond which bound descent lowers q though q is below p; lasts: all the way."""
    place = f"where {describe_conditions(where)}" if lasts else f"next to {describe_conditions(where)}"
    return f"{place} the bound reverses the gradient: descent lowers q, which is too small there"


def _describe_curl(trust: str) -> str:
    """Say that the Jacobian is not symmetric, and whether that is proved."""
    source = {"kernel": "", "sympy": ", as SymPy calculates"}.get(trust, ", as numbers show")
    return f"no objective has this gradient (its Jacobian is not symmetric{source})"


def _describe_critic_bias(weight: Any) -> str:
    """Say how far gae(lambda) is off the policy gradient, with the trust of the claim that says so."""
    value, rest = (show_value(x) for x in (weight, 1 - weight))
    return (
        f"ascends grad E_q[R] + {rest}*E_q[sum_t s_t*sum_(u>=t) {value}^(u-t)*(V - V^q)], unbiased if V is"
        " the value V^q of q (by SymPy on three tokens, klsym claims beyond.gae-bias); with V = 0 it is"
        " proved that no lambda below 1 has an objective, on sequences of at most two tokens"
    )


SENTENCES: dict[str, str | Callable[..., str]] = {
    "descends-forward": _describe_forward_descent,
    "one-change-away": lambda kind, of: CHANGES[kind].format(losses.show(of, TEXT)),
    "reward-unbounded": (
        "the penalty is unbounded below: at every beta > 0 it falls without end as q goes to 0 somewhere"
    ),
    "sign-turns": _describe_turned_sign,
    "no-reward-of-kl": "in the reward only k1, up to a constant, has the gradient of KL(q||p)",
    "has-a-curl": _describe_curl,
    "biased-by-critic": _describe_critic_bias,
    "not-in-gradient": _describe_unused,
    "other-f": "E_q[f(r)] is neither KL",
    "no-update": lambda penalty: (
        f"{'no penalty' if penalty else 'nothing'} acts on the policy, whatever the value of the loss"
    ),
    "drops": _describe_bias,
    "truncates": _describe_truncation,
    "clamps-words": _describe_clamped_words,
    "against-reward": lambda of: (
        f"descending this loss makes a sample less likely the larger its {losses.show(of, TEXT)} is"
    ),
    "against-reference": (
        "descending this loss favours what the reference finds unlikely over what it finds likely"
    ),
    "other-objective": "the objective is not a KL, although the loss compares q with p",
    "overflows": _describe_overflows,
    "overflows-in-code": _describe_overflows_in_code,
    "cancels": _describe_cancellation,
    "divided-by-std": "the penalty is divided by the standard deviation of the batch",
}
