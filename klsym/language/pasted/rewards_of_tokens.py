"""Rewards in a loss of tokens: one of each token, R, one of the response, whole(R), or sums over tokens.

(logp * reward * mask).sum()                    R, which the answer says: reward is of each token
(logp * reward.unsqueeze(-1) * mask).sum()      whole(R): one number for all tokens of a response
(logp * advantages * mask).sum()                A, which the answer says: one number for the whole response
rewards.cumsum(-1)                              past(R) + now(R)
rewards.flip(-1).cumsum(-1).flip(-1)            togo(R), the reward-to-go
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from sympy import Function, S

from klsym.errors import UsageError
from klsym.language.expressions import A, OverPositions, R
from klsym.language.parser import SHOWN
from klsym.language.pasted.calls import Call, Row
from klsym.language.pasted.names import is_new_axis, list_summed_names
from klsym.language.reductions import MASK, Mean, has_words
from klsym.language.sums import Before, Here, OverBatch, Whole, togo
from klsym.language.training_names import split_words

# ---------------------------------------------------------------------------- of a token or a response
OF_LAST_AXIS = {"1", "-1", "2"}  # of unsqueeze
COPYING = {"expand_as", "expand", "broadcast_to"}  # methods that repeat a value along an axis
OF_COLUMNS = {"view", "reshape"}  # x.view(-1, 1)
PER_TOKEN = {"token", "tokens"}
OF_RETURNS = {"return", "returns", "ret", "rets", "rtg", "togo", "discounted"}
OF_LATER_TOKENS = (
    "{0} is the sum of the rewards from each token on, with gamma = 1; type R for those of each token alone"
)
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
    >>> settle_rewards(-R * log_q, {"returns": R}, frozenset()).loss
    -log_q*(future(R) + now(R))
    """
    rewards = [name for name, symbol in names.items() if symbol == R and name != "R"]
    advantages = [name for name, symbol in names.items() if symbol == A and name != "A"]
    is_summed = any(part.has(R) for part in loss.atoms(OverPositions) if not isinstance(part, OverBatch))
    assumed = []
    if loss.has(R) and rewards and not is_summed:
        name = rewards[0][:SHOWN]
        if {*rewards} <= spread and not any(map(names_each_token, rewards)):
            loss, assumed = loss.xreplace({R: Whole(R)}), [OF_RESPONSE.format(name)]
        elif all(map(names_return, rewards)) and not loss.atoms(OverBatch):
            loss, assumed = loss.xreplace({R: togo(R)}), [OF_LATER_TOKENS.format(name)]
        elif not any(map(names_each_token, rewards)):
            assumed = [OF_EACH_TOKEN.format(name)]
    if loss.has(A) and advantages and not {*advantages} <= spread:
        assumed.append(OF_WHOLE.format(advantages[0][:SHOWN]))
    return SettledRewards(loss, (*assumed,))


def names_return(name: str) -> bool:
    """Says a name that its value is the sum of the rewards from a step on?

    >>> [names_return(x) for x in ("returns", "discounted_rewards", "G", "rewards", "token_returns")]
    [True, True, True, False, True]
    """
    return name == "G" or bool({*split_words(name)} & OF_RETURNS)


def names_each_token(name: str) -> bool:
    """Says a name that its value is of each token?

    >>> [names_each_token(x) for x in ("token_level_rewards", "rewards_per_token", "reward")]
    [True, True, False]
    """
    return bool({*split_words(name)} & PER_TOKEN)


# ---------------------------------------------------------------------------- sums over tokens
LAST = ("-1", "1", "2", "[-1]", "[1]", "(-1,)", "(1,)")  # the axis of the tokens, of a batch of sequences
FIRST = ("0", "[0]", "(0,)")  # that of the steps of one episode


class Reversed(Function):
    """A value of each token, the last token first."""

    nargs = 1
    is_real = True

    @classmethod
    def eval(cls, x: Any) -> Any:
        return x.args[0] if isinstance(x, cls) else None


def read_token_values(reader: Any, call: Call, given: dict[str, ast.expr], depth: int) -> Any:
    """Return the argument of a function along the axis of the tokens; other axes are refused."""
    axis, x = ast.unparse(given["axis"]), reader.build(given["x"], depth)
    reader.token_sums.axes.add(axis in FIRST)
    of_token = not (x.has(Mean) or has_words(x)) and (isinstance(x, Reversed) or not x.has(OverPositions))
    if axis not in (*LAST, *FIRST) or not of_token or len(reader.token_sums.axes) > 1:
        reason = f"{call.name} of other values than one of each token, along their axis"
        hint = ": type togo(x) for a sum over this and later tokens"
        raise reader.make_error_with_hint(reason, hint, call.node)
    if axis in FIRST:
        reader.note_assumption(f"axis 0 of {call.name}(..) is that of the steps of one episode")
    return x


def _build_reversed(reader: Any, call: Call, given: dict[str, ast.expr], depth: int) -> Any:
    """Return x with the last token first."""
    return Reversed(read_token_values(reader, call, given, depth))


def _build_cumulative(reader: Any, call: Call, given: dict[str, ast.expr], depth: int) -> Any:
    """Return the sum up to each token; of a reversed value, the sum from each token on, reversed."""
    x = read_token_values(reader, call, given, depth).xreplace({MASK: S.One})
    reader.token_sums.accumulates = True
    return Reversed(togo(x.args[0])) if isinstance(x, Reversed) else Before(x) + Here(x)


def refuse_reversed(value: Any, text: str) -> None:
    """Refuse a loss in which a value of each token meets one of another token.

    >>> refuse_reversed(Reversed(Reversed(R)), "x.flip(-1).flip(-1)")
    >>> refuse_reversed(Reversed(R), "x.flip(-1)")
    Traceback (most recent call last):
    klsym.errors.UsageError: an axis is turned round once in 'x.flip(-1)': type togo(x) for later tokens
    """
    if value.has(Reversed):
        raise UsageError(f"an axis is turned round once in {text[:SHOWN]!r}: type togo(x) for later tokens")


CUMULATIVE = {
    "flip": Row(("x", "axis"), _build_reversed),
    "cumsum": Row(("x", "axis"), _build_cumulative),
}
