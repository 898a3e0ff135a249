"""Rewards in a loss of tokens: one of each token, R, or one of the whole response, whole(R).

(logp * reward * mask).sum()                    R, which the answer says: reward is of each token
(logp * reward.unsqueeze(-1) * mask).sum()      whole(R): one number for all tokens of a response
(logp * advantages * mask).sum()                A, which the answer says: one number for the whole response
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from klsym.language.expressions import A, OverPositions, R
from klsym.language.parser import SHOWN
from klsym.language.pasted.names import is_new_axis, list_summed_names
from klsym.language.sums import OverBatch, Whole
from klsym.language.training_names import split_words

OF_LAST_AXIS = {"1", "-1", "2"}  # of unsqueeze
COPYING = {"expand_as", "expand", "broadcast_to"}  # methods that repeat a value along an axis
OF_COLUMNS = {"view", "reshape"}  # x.view(-1, 1)
PER_TOKEN = {"token", "tokens"}
OF_RESPONSE = "{0} is one number for the whole response, as its shape says; type R for one of each token"
OF_EACH_TOKEN = "{0} is of each token; for one of the whole response type {0}.unsqueeze(-1)"
OF_WHOLE = "{0} is one number for the whole response; for one of each token type R"


class SettledRewards(NamedTuple):
    """A loss of tokens with whole(R) for rewards of responses, and the assumptions behind it."""

    loss: Any
    assumed: tuple[str, ...]


def list_spread_names(lines: Iterable[ast.stmt], trees: Mapping[str, list[ast.expr]]) -> frozenset[str]:
    """Return the names of values with one number for a sequence, which are spread over its tokens.

    trees: what stands for an assigned name.

    >>> code = ast.parse("x = a.unsqueeze(-1) + b[:, None] + c.view(-1, 1) + d.expand_as(e) + f.view(-1)")
    >>> sorted(list_spread_names(code.body, {}))
    ['a', 'b', 'c', 'd']
    """
    names: set[str] = set()
    for node in (inner for line in lines for inner in ast.walk(line)):
        match node:
            case ast.Call(ast.Attribute(receiver, "unsqueeze"), [axis]) if ast.unparse(axis) in OF_LAST_AXIS:
                names |= list_summed_names(receiver, trees)
            case ast.Call(ast.Attribute(receiver, method)) if method in COPYING:
                names |= list_summed_names(receiver, trees)
            case ast.Call(ast.Attribute(receiver, method), [*_, ast.Constant(1)]) if method in OF_COLUMNS:
                names |= list_summed_names(receiver, trees)
            case ast.Subscript(receiver, ast.Tuple([*_, last])) if is_new_axis(last):
                names |= list_summed_names(receiver, trees)
    return frozenset(names)


def settle_rewards(loss: Any, names: Mapping[str, Any], spread: frozenset[str]) -> SettledRewards:
    """Return a loss of tokens with whole(R) in place of R where the code spreads its reward over the tokens.

    names: what each name is read as.  spread: names of one number for a sequence.

    >>> from klsym.language.expressions import log_q
    >>> from klsym.language.sums import Centred
    >>> settle_rewards(-R * log_q, {"reward": R}, frozenset({"reward"})).loss
    -log_q*whole(R)
    >>> settle_rewards(-R * log_q, {"reward": R}, frozenset()).assumed
    ('reward is of each token; for one of the whole response type reward.unsqueeze(-1)',)
    >>> settle_rewards(-Centred(R) * log_q, {"reward": R}, frozenset({"reward"})).loss
    -log_q*centred(whole(R))
    """
    rewards = [name for name, symbol in names.items() if symbol == R and name != "R"]
    advantages = [name for name, symbol in names.items() if symbol == A and name != "A"]
    is_summed = any(part.has(R) for part in loss.atoms(OverPositions) if not isinstance(part, OverBatch))
    assumed = []
    if loss.has(R) and rewards and not is_summed:
        name = rewards[0][:SHOWN]
        if {*rewards} <= spread and not any(map(names_each_token, rewards)):
            loss, assumed = loss.xreplace({R: Whole(R)}), [OF_RESPONSE.format(name)]
        elif not any(map(names_each_token, rewards)):
            assumed = [OF_EACH_TOKEN.format(name)]
    if loss.has(A) and advantages and not {*advantages} <= spread:
        assumed.append(OF_WHOLE.format(advantages[0][:SHOWN]))
    return SettledRewards(loss, (*assumed,))


def names_each_token(name: str) -> bool:
    """Says a name that its value is of each token?

    >>> [names_each_token(x) for x in ("token_level_rewards", "rewards_per_token", "reward")]
    [True, True, False]
    """
    return bool({*split_words(name)} & PER_TOKEN)
