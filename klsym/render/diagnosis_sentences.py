"""The sentences of diagnostics: what a code says of one loss."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from klsym.notation import losses
from klsym.notation.combination import objective_text
from klsym.notation.printers import TEXT
from klsym.notation.values import shown

CHANGES = {
    "KL003": "with the weight attached, {} would minimise KL(q||p)",
    "KL015": "with the weight detached, {} would minimise KL(q||p)",
    "KL016": "with the ratio the other way round it would be {}, which estimates KL(q||p)",
}


def _descends_forward(
    value: Mapping[str, str], constant: Any, gradient: Mapping[str, str], tokens: bool, bounded: bool,
    beside: bool,
) -> str:  # fmt: skip
    """The value of the penalty, with its multiple and constant, and whose gradient it has."""
    estimated = objective_text(value)
    if constant:
        told = shown(constant)
        estimated += f" - {told.removeprefix('-')}" if told.startswith("-") else f" + {told}"
    where = "where no bound binds, " * bounded
    descended = "the forward KL of each next token" if tokens else objective_text(gradient)
    of = " of the penalty" * beside
    return f"{where}the value{of} estimates {estimated}, the gradient is that of {descended}"


def _unused(of: Sequence[str]) -> str:
    verb = "does" if len(of) == 1 else "do"
    return f"{' and '.join(of)} {verb} not appear in the gradient"


def _overflows(found: Sequence[Any]) -> str:
    places: dict[int, list[str]] = {}
    for one in found:
        value = f"{one.value:g}".replace("nan", "not a number")
        places.setdefault(one.at, []).append(f"the {one.what} is {value}")
    said = [f"at log q - log p = {at} {' and '.join(what)}" for at, what in places.items()]
    return f"in float32, {'; '.join(said)}"


def _overflows_in_code(found: Sequence[tuple[int, str]]) -> str:
    return f"in float32, {'; '.join(f'at log q - log p = {at} {what}' for at, what in found)}"


def _cancels(at: float, value: float, exact: float) -> str:
    return (
        f"in float32 terms cancel near q = p: at log q - log p = {at:g} the value is {value:.1g}, and not"
        f" {exact:.1g} (expm1 and log1p keep the digits)"
    )


def _bias(cases: Sequence[Any]) -> str:
    """What the samples beyond the bounds would add to the gradient."""
    values = {shown(b) for _, b in cases}
    what = f"b = {values.pop()}" if len(values) == 1 else "b by region (--full)"
    return f"samples beyond the bounds have no gradient; this adds the bias E[b*s] over them, {what}"


def _clamped_words(of: Sequence[Any]) -> str:
    """The gradient of a constant c at a word y is c grad q(y)."""
    bounds = ", ".join(losses.show(one, TEXT) for one in of)
    return (
        f"a bound acts on the term of each word ({bounds}): a word beyond it keeps the gradient of its"
        " probability alone, so that descent can lead away from p"
    )


def _curl(trust: str) -> str:
    """Numbers alone do not prove it."""
    how = {"kernel": "has", "sympy": "has, as SymPy calculates,"}.get(trust, "has, as numbers show,")
    return f"the expected gradient {how} a curl: it is not the gradient of any function"


SENTENCES: dict[str, str | Callable[..., str]] = {
    "descends-forward": _descends_forward,
    "one-change-away": lambda kind, of: CHANGES[kind].format(losses.show(of, TEXT)),
    "no-reward-of-kl": "in the reward only k1, up to a constant, has the gradient of KL(q||p)",
    "has-a-curl": _curl,
    "not-in-gradient": _unused,
    "other-f": "E_q[f(r)] is neither KL",
    "no-update": lambda penalty: (
        f"{'no penalty' if penalty else 'nothing'} acts on the policy, whatever the value of the loss"
    ),
    "drops": _bias,
    "clamps-words": _clamped_words,
    "against-reward": lambda of: (
        f"descending this loss makes a sample less likely the larger its {losses.show(of, TEXT)} is"
    ),
    "other-objective": "the objective is not a KL, although the loss compares q with p",
    "overflows": _overflows,
    "overflows-in-code": _overflows_in_code,
    "cancels": _cancels,
    "divided-by-std": "the penalty is divided by the standard deviation of the batch",
}
