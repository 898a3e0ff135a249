"""The sentences of diagnostics: what a code says of one loss."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from klsym.notation import losses
from klsym.notation.printers import TEXT
from klsym.notation.values import shown

CHANGES = {
    "KL003": "with the weight attached, {} would minimise KL(q||p)",
    "KL015": "with the weight detached, {} would minimise KL(q||p)",
    "KL016": "with the ratio the other way round it would be {}, which estimates KL(q||p)",
}


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


def _bias(cases: Sequence[Any]) -> str:
    """What the samples beyond the bounds would add to the gradient."""
    values = {shown(b) for _, b in cases}
    what = f"b = {values.pop()}" if len(values) == 1 else "b by region (--full)"
    return f"samples beyond the bounds have no gradient; this adds the bias E[b*s] over them, {what}"


def _curl(trust: str) -> str:
    """Numbers alone do not prove it."""
    how = {"kernel": "has", "sympy": "has, as SymPy calculates,"}.get(trust, "has, as numbers show,")
    return f"the expected gradient {how} a curl: it is not the gradient of any function"


SENTENCES: dict[str, str | Callable[..., str]] = {
    "descends-forward": lambda tokens: (
        "the value estimates KL(q||p), the gradient is that of "
        + ("the forward KL of each next token" if tokens else "KL(p||q)")
    ),
    "one-change-away": lambda kind, of: CHANGES[kind].format(losses.show(of, TEXT)),
    "no-reward-of-kl": "in the reward only k1, up to a constant, has the gradient of KL(q||p)",
    "has-a-curl": _curl,
    "not-in-gradient": _unused,
    "other-f": "E_q[f(r)] is neither KL",
    "no-update": lambda penalty: (
        f"{'no penalty' if penalty else 'nothing'} acts on the policy, whatever the value of the loss"
    ),
    "drops": _bias,
    "other-objective": "the objective is not a KL, although the loss compares q with p",
    "overflows": _overflows,
    "divided-by-std": "the penalty is divided by the standard deviation of the batch",
}
