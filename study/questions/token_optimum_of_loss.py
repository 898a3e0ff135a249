"""Where training on sequences ends: a penalty on each token, a reward at the end of each sequence.

>>> found = compute_token_optimum("k3", "1/2", ["1", "0", "0", "0"])
>>> [round(x, 4) for x in found.optimum.stationary[0].policy], found.optimum.unique
([0.63, 0.1487, 0.1106, 0.1106], True)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from klsym.engine.fields.field import ReducedGradient
from klsym.engine.options.settings import Setting, checked_setting
from klsym.errors import UsageError
from klsym.kernel.ring import ZERO, ExpPoly
from klsym.language.messages import Message
from klsym.study.questions.optimum_of_loss import (
    read_number,
    read_penalty_question,
    reduce_penalty,
)
from klsym.study.questions.token_optimum import TokenOptimum, Tree, find_token_optimum

MOST_WORDS, MAX_SEQUENCES = 5, 32
OWN, EARLIER = "now", "past"  # whose scores a token's penalty multiplies
PER_SEQUENCE = "level: an outcome can be a whole sequence: leave the level at sample"
OF_MU = "weighs tokens by their chances under mu: choose weights prefix, or sampling on-policy"
OF_LENGTH = "divides by T: here all sequences have one length, so divide beta by it"


@dataclass(frozen=True)
class TokenOptimumAnswer:
    """What was asked, with exact numbers, and what was found; `klsym.study.render.token_optima` prints it.

    own, earlier: the shares of a token's penalty for its own score and for those of earlier tokens.
    messages: what else is to be known.
    """

    loss: str
    setting: Setting
    beta: Fraction
    tree: Tree
    own: ExpPoly
    earlier: ExpPoly
    optimum: TokenOptimum
    messages: tuple[Message, ...]


def compute_token_optimum(
    loss: object,
    beta: object,
    rewards: Iterable[object],
    reference: Iterable[object] | None = None,
    words: object = None,
    **options: Any,
) -> TokenOptimumAnswer:
    """All stationary policies of a reward less a penalty on each token; see `klsym.study.api.optimum`."""
    setting = checked_setting(**{"level": "token", **options})
    if setting.is_of_sequence:
        raise UsageError(PER_SEQUENCE)
    asked = read_penalty_question(loss, beta, rewards, reference)
    tree = _build_tree(asked.rewards, asked.reference, _read_words(words))
    own, earlier = _read_shares(asked.written.text, reduce_penalty(asked.written, setting))
    found = find_token_optimum(tree, own, earlier, asked.beta)
    is_no_penalty = not own.names() | earlier.names()
    messages = (*asked.written.notes, *_list_messages(asked.beta, found, is_no_penalty))
    return TokenOptimumAnswer(
        asked.written.text,
        setting,
        asked.beta,
        tree,
        own=own,
        earlier=earlier,
        optimum=found,
        messages=messages,
    )


def _read_words(words: object) -> int:
    """The number of words; 2 where nothing is said."""
    count = Fraction(2) if words is None else read_number("words", words)
    if count.denominator != 1 or not 2 <= count <= MOST_WORDS:
        raise UsageError(f"words: a number from 2 to {MOST_WORDS} expected, got {words}")
    return int(count)


def _build_tree(rewards: tuple[Fraction, ...], reference: tuple[Fraction, ...], words: int) -> Tree:
    """The tree of all sequences of one length; there are words**length of them."""
    sizes = {words**t: t for t in range(1, MAX_SEQUENCES) if words**t <= MAX_SEQUENCES}
    if len(rewards) not in sizes:
        counts = ", ".join(map(str, sizes))
        raise UsageError(
            f"rewards: one for each sequence of {words} words expected ({counts}), got {len(rewards)}"
        )
    return Tree(words, sizes[len(rewards)], rewards, reference)


def _read_shares(text: str, reduced: ReducedGradient) -> tuple[ExpPoly, ExpPoly]:
    """c of a token's own score and b of the scores of earlier tokens, in k1 and log q of the token."""
    shares = {slot: c.rename(_name_own) for slot, c in reduced.coefficients.items() if c}
    names = {name for c in shares.values() for name in c.names()}
    reason = ""
    if any(name.startswith("w") for name in names):
        reason = OF_MU
    elif any(name.startswith("length") for name in names):
        reason = OF_LENGTH
    elif reduced.canonical_form is None or shares.keys() - {OWN, EARLIER} or _list_others(names):
        reason = "depends on other tokens"
    elif names - {"k1", "log_q"}:
        reason = "is no exponential polynomial: it holds cases, logs or roots"
    if reason:
        raise UsageError(f"optimum: {text[:60]!r} {reason}")
    return shares.get(OWN, ZERO), shares.get(EARLIER, ZERO)


def _name_own(name: str) -> str:
    return name.removesuffix(f"[{OWN}]")


def _list_others(names: Iterable[str]) -> list[str]:
    """Names of other tokens."""
    return [name for name in names if name.endswith("]")]


def _list_messages(beta: Fraction, found: TokenOptimum, is_no_penalty: bool) -> Iterator[Message]:
    """What the penalty does not do, and what a list of isolated policies does not say."""
    ends = (*found.stationary, *found.boundary)
    if is_no_penalty:
        yield Message("rewards-alone-decide")
    if beta < 0:
        yield Message("penalty-is-rewarded")
    if len([end for end in ends if end.stable]) > 1:
        yield Message("start-decides-the-end")
    for prefix in found.tied:
        yield Message("words-not-isolated", prefix=prefix)
    if found.complete is None:
        yield Message("policies-may-be-missing")
    if any(end.stable is None for end in ends):
        yield Message("stability-open")
    if found.boundary_complete is None:
        yield Message("boundary-may-be-missing")
