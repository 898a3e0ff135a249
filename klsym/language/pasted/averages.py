"""Means and sums of pasted code: over samples, over tokens, over the words of the vocabulary.

A sum of probabilities is one over the vocabulary: what stands in it is of every word, not of the drawn one.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

from sympy import Add, S

from klsym.errors import spell_option
from klsym.language.expressions import DENSITIES, REWARDS, A, M, OverPositions, R, log_q, sg
from klsym.language.messages import OF_OTHERS, WITHOUT_MASK
from klsym.language.pasted.names import list_summed_names
from klsym.language.pasted.policies import PolicyReader
from klsym.language.recognition import leave_out_floors
from klsym.language.reductions import (
    ACTION_VALUE,
    COUNTS,
    KEPT,
    MASK,
    SAMPLES,
    WORD_LOGS,
    Mean,
    Misplaced,
    Std,
    divide_by_std,
    has_words,
    is_exact,
    is_flat,
    is_linear_in,
    is_probability,
    is_random,
    is_small,
    list_averages,
    reduce_to_mean,
    select_drawn_word,
    subtract_mean,
    take_over_tokens,
)
from klsym.language.sums import Centred
from klsym.language.training_names import split_words

TWO_LEVELS = (
    "a mean over the tokens of each sequence beside one over all tokens",
    "average all terms alike, as in (x*mask).sum()/mask.sum()",
)
OF_STEPS = {"reward", "rewards"}  # words of values of one step each
FLOORED = {"min", "max", "clip"}  # functions that bound a value


OF_SEQUENCE, OF_BATCH, OF_POSITION = "the tokens of each sequence", "all tokens", "the samples at a position"


def _name_axis(axis: ast.expr | None) -> str:
    """Return over what a sum over an axis is; None: over all."""
    return OF_BATCH if axis is None else OF_POSITION if ast.unparse(axis) == "0" else OF_SEQUENCE


class TokenSums:
    """Over which axes masked losses and the mask are summed, and the aggregate that follows.

    >>> sums = TokenSums()
    >>> sums.note(MASK * log_q, None), sums.note(MASK, None), sums.find_aggregate(S.One)
    (None, None, 'batch')
    >>> sums.note_mean(log_q, None, "mean"), sums.list_assumptions()
    (None, ('mean() without the mask is over the tokens that the mask keeps',))
    """

    def __init__(self) -> None:
        self.losses: dict[Any, set[str]] = {}  # masked loss -> over what it is summed
        self.counts: set[str] = set()
        self.inside: set[str] = set()  # over what sums inside exp are
        self.accumulates = False  # is a value of each token added up to it, or from it on?
        self.axes: set[bool] = set()  # along which values of each token are added up: is it the first one?
        self.averages = False  # is then a mean taken, which may be of a sequence or of the batch?
        self.unmasked: dict[str, set[str]] = {}  # function that averages a loss without a mask -> over what

    def note_mean(self, x: Any, axis: ast.expr | None, name: str) -> None:
        """Note a mean over tokens, of a loss without a mask."""
        self.averages |= self.accumulates and not x.has(MASK)
        if x.has(*DENSITIES) and not x.has(MASK, Mean, OverPositions):
            self.unmasked.setdefault(name, set()).add(_name_axis(axis))

    def list_assumptions(self) -> tuple[str, ...]:
        """Return what is assumed of means without a mask beside those over the tokens that it keeps.

        Raises Misplaced: some are over each sequence, and others over all tokens.
        """
        if not self.counts:
            return ()
        if {OF_SEQUENCE, OF_BATCH} <= self.counts.union(*self.unmasked.values()):
            raise Misplaced(*TWO_LEVELS)
        return tuple(f"{name}() {WITHOUT_MASK}" for name in self.unmasked)

    def note(self, x: Any, axis: ast.expr | None) -> None:
        """Note a sum over an axis, or over all: of a masked loss, of the mask, or of counts of tokens."""
        over = _name_axis(axis)
        if x.has(KEPT) and not is_random(x):  # the counts of all sequences, added up
            self.counts = {OF_BATCH}
        elif x == MASK:
            self.counts.add(over)
        elif x.has(MASK):
            self.losses.setdefault(x.xreplace({MASK: S.One}), set()).add(over)

    def leave_out(self, means: Iterable[Any]) -> None:
        """Forget sums inside exp, which say nothing of how the tokens of the loss are added up."""
        for mean in means:
            self.inside |= self.losses.pop(mean.args[0], set())

    def find_aggregate(self, factor: Any) -> str:
        """Return the aggregate of the loss; "" if it has none.  factor: of the mean over samples."""
        over = set[str]().union(*self.losses.values())
        if OF_POSITION in over | self.counts:
            return ""
        if factor.has(KEPT):
            return "sum" if not (factor / KEPT).has(KEPT) else ""
        counts = self.counts - self.inside or self.counts
        if counts == {OF_BATCH}:
            return "batch"
        if counts == over == {OF_SEQUENCE}:
            return "mean"
        return "sum" if self.accumulates and not self.averages else ""

    def find_factor(self, factor: Any) -> Any:
        """Return the factor of the loss that remains beside its aggregate."""
        if self.find_aggregate(factor) != "sum" or not factor.has(KEPT):
            return factor
        return factor / KEPT * (SAMPLES if any(OF_BATCH in over for over in self.losses.values()) else 1)


class OfWords(Exception):
    """Names whose values turn out to be of every word of the vocabulary: the text is read anew with them."""

    def __init__(self, names: frozenset[str]) -> None:
        super().__init__(names)
        self.names = names


class AverageReader(PolicyReader):
    """A reader that knows means and sums."""

    def __init__(self, text: str, parameters: Iterable[str], of_words: frozenset[str]) -> None:
        super().__init__(text, parameters, of_words)
        self.selects_drawn = False  # is a value of every word read at the drawn word, by an index?
        self.drawn_values = []
        self.mean_names: dict[Any, str] = {}
        self.centred: dict[Any, None] = {}  # x of each x - x.mean()
        self.divides_by_std = False
        self.std_guard: Fraction | str = ""  # 1e-4 of R.std() + 1e-4, or its name
        self.axes: dict[Any, str] = {}  # mean or standard deviation -> its axis as typed, "" for all
        self.left_out: Counter[str] = Counter()  # means, and methods that change no value
        self.token_sums = TokenSums()
        self.reduces_samples = True  # does the text reduce more than a sum over the vocabulary?
        self.sums_tokens = False  # is a mean or a sum read as one over the tokens of a sequence?
        self.divided_logs: dict[str, str] = {}  # log density/temperature -> the temperature
        self.floors: dict[Any, Any] = {}  # probability -> the bound below it that is left out

    def apply_operator(self, operator: ast.operator, left: Any, right: Any, node: ast.expr) -> Any:
        if (
            isinstance(operator, ast.Add)
            and KEPT in (left, right)
            and any(x.is_number and x <= 1 for x in (left, right))
        ):
            return KEPT  # mask.sum() + 1e-8
        if isinstance(operator, ast.Add) and isinstance(left, Std) and is_small(right):
            self.std_guard = Fraction(int(right.p), int(right.q)) if right.is_number else str(right)
            return left  # R.std() + 1e-8
        if isinstance(operator, ast.Sub) and isinstance(right, Mean):
            return self.subtract_mean(left, right, node)
        if isinstance(operator, ast.Mult):
            left, right = self.sum_rewards_of_steps(left, right), self.sum_rewards_of_steps(right, left)
            left, right = self.sum_beside_factor(left, right), self.sum_beside_factor(right, left)
        if isinstance(operator, ast.Add | ast.Sub):
            left, right = self.sum_beside_reward(left, right), self.sum_beside_reward(right, left)
        value = super().apply_operator(operator, left, right, node)
        if not value.has(Std):
            return value
        divided = divide_by_std(value)
        if divided != value:
            self.divides_by_std = True
            for deviation in value.atoms(Std) - divided.atoms(Std):
                self.refuse_two_axes(Mean(*deviation.args), deviation, node)
        return divided

    def note_axis(self, value: Any, axis: ast.expr | None) -> None:
        """Note over which axis a mean or a standard deviation is."""
        self.axes[value] = "" if axis is None else ast.unparse(axis)

    def refuse_two_axes(self, mean: Any, second: Any, node: ast.expr) -> None:
        """Refuse (R - R.mean(dim=1))/R.std(): a group has the mean, and several groups the deviation."""
        pair = [self.axes.get(x, "") for x in (mean, second)]
        is_turned = "" not in pair and len({axis.startswith("-") for axis in pair}) > 1
        if len({*pair}) == 1 or is_turned:  # 1 and -1 are the same axis of two
            return
        first, last = (f"over dim {axis}" if axis else "over all samples" for axis in pair)
        kind, param = "another mean" if isinstance(second, Mean) else "a standard deviation", "sigma"
        hint = (
            ": klsym reads one group: type normalised(R) for its own standard deviation, or"
            f" centred(R)/sigma, with {spell_option('param', param)}, for one that hardly differs from batch"
            " to batch"
        )
        raise self.make_error_with_hint(f"a mean {first}, and {kind} {last}", hint, node)

    def sum_rewards_of_steps(self, x: Any, factor: Any) -> Any:
        """Return R for a sum of rewards over the steps, beside log-probabilities summed over the same axis.

        R is then the reward of the whole sequence.  A sum of returns, each one from its step on, is none.
        """
        number, total = x.as_independent(Mean, *COUNTS, as_Add=False)
        logs = factor.as_independent(Mean, *COUNTS, as_Add=False)[1]
        names = [typed for typed, symbol in self.read_as.items() if symbol == R]
        is_same_axis = (
            total in (SAMPLES * Mean(R), KEPT * Mean(R))
            and logs in (SAMPLES * Mean(log_q), KEPT * Mean(log_q))
            and {total, logs} <= self.axes.keys()
            and self.axes[total] == self.axes[logs]
        )
        if not is_same_axis or not names or not all({*split_words(name)} & OF_STEPS for name in names):
            return x
        self.assumed = (*self.assumed, "R is the sum of the rewards over the steps of a sequence")
        return number * R

    def sum_beside_factor(self, x: Any, factor: Any) -> Any:
        """Return x with its means and sums of log-probabilities over tokens, if they multiply a reward.

        A sum that multiplies a value of each token is over tokens, too.
        """
        if factor.has(Mean) or not x.has(Mean):
            return x
        is_alone = x.as_independent(Mean, as_Add=False)[1] == Mean(log_q)
        beside_reward = is_alone and factor.has(*REWARDS) and not factor.has(*DENSITIES)
        beside_token = x.has(SAMPLES, KEPT) and not x.is_Add and factor.has(*DENSITIES)
        over_tokens = take_over_tokens(x) if beside_reward or beside_token else x
        self.sums_tokens |= over_tokens != x
        return over_tokens

    def sum_beside_reward(self, x: Any, reward: Any) -> Any:
        """Return x with its sum of log-probabilities over tokens beside the reward of a response."""
        total = x.as_independent(Mean, *COUNTS, as_Add=False)[1]
        is_sum = self.axes.get(total, "") not in ("", "0") and total.has(SAMPLES, KEPT)
        is_of_policies = total.has(*DENSITIES) and not total.has(*REWARDS)
        is_reward = reward.has(*REWARDS) and not reward.has(Mean, Std, *DENSITIES)
        if not (is_sum and is_of_policies and is_reward):
            return x
        self.sums_tokens = True
        return take_over_tokens(x)

    def subtract_mean(self, x: Any, mean: Any, node: ast.expr) -> Any:
        """Return centred(x) for x - x.mean()."""
        difference = subtract_mean(x, mean)
        if difference == x:  # centred already
            self.refuse_two_axes(Mean(*x.args), mean, node)
        elif isinstance(difference, Centred):
            self.centred[x] = None
        else:
            return difference
        self.left_out[self.mean_names.get(mean, "mean")] -= 1
        return difference

    def call_function(self, name: str, arguments: list[Any], node: ast.expr) -> Any:
        if KEPT in arguments and name == "max" and all(x == KEPT or x.is_number for x in arguments):
            return KEPT  # mask.sum().clamp(min=1)
        if KEPT in arguments:
            raise self.make_error_at(f"{name}(..) of the number of tokens", node)
        if name == "exp" and "0" in (self.axes.get(part) for x in arguments for part in list_averages(x)):
            hint = ": for one over the tokens of a sequence type .mean(-1)"
            raise self.make_error_with_hint("a mean over dim 0, the samples, inside exp", hint, node)
        if name == "exp" and (over_tokens := [take_over_tokens(x) for x in arguments]) != arguments:
            self.token_sums.leave_out(mean for x in arguments for mean in x.atoms(Mean))
            self.sums_tokens, arguments = True, over_tokens
        if any(x.has(MASK) and not x.has(Mean) for x in arguments):  # f(mask x) is f(x) where that counts
            return MASK * self.call_function(name, [x.xreplace({MASK: S.One}) for x in arguments], node)
        if name == "log":
            arguments = [self.leave_out_guard(x) for x in arguments]
        if name == "sg":
            arguments = [self.write_held_means(x) for x in arguments]
        value = super().call_function(name, arguments, node)
        if name not in FLOORED:
            return value
        value, floors = leave_out_floors(value)
        self.floors |= {x: max(floor, self.floors.get(x, floor)) for x, floor in floors.items()}
        return value

    def write_held_means(self, x: Any) -> Any:
        """Return a detached value with mean(y) over the batch, beside samples, written as y - centred(y)."""
        means = {mean for mean in x.atoms(Mean) if mean.has(*DENSITIES) and not mean.has(OverPositions)}
        is_alone = not x.xreplace(dict.fromkeys(means, S.Zero)).has(*DENSITIES, *REWARDS)
        if is_alone or not all(map(self.is_over_samples, means)):
            return x
        if not means or not all(is_linear_in(x, mean) and not mean.args[0].has(Mean) for mean in means):
            return x
        for mean in means:
            self.left_out[self.mean_names.get(mean, "mean")] -= 1
            self.centred[mean.args[0]] = None
        return x.xreplace({mean: mean.args[0] - Centred(sg(mean.args[0])) for mean in means})

    def is_over_samples(self, mean: Any) -> bool:
        """Is a mean one over the samples of a batch, and not over tokens or along another axis?"""
        is_over_tokens = bool(self.token_sums.counts or self.token_sums.losses)
        return not is_over_tokens and self.axes.get(mean, "") in ("", "0")

    def is_detached_batch_mean(self, mean: Any) -> bool:
        """Is it a mean over samples of what is detached?"""
        [of] = mean.args
        constants = dict.fromkeys(of.atoms(sg), S.One)
        return bool(constants) and not of.xreplace(constants).has(*DENSITIES) and self.is_over_samples(mean)

    def leave_out_guard(self, x: Any) -> Any:
        """Return q for q + 1e-8, of whose log the small number keeps the code from infinity."""
        small = [term for term in Add.make_args(x) if is_small(term)]
        if len(small) == 1 and (x - small[0]).has(*DENSITIES, *WORD_LOGS.values()):
            self.assumed = (*self.assumed, f"{small[0]} inside log is left out")
            return x - small[0]
        return x

    def reduce_to_mean(self, kind: str, value: Any, name: str, over_axis: bool = False) -> Any:
        self.refuse_probability_factor(value, is_summed=kind == "sum")
        value = self.take_at_one_state(value)
        over_axis = over_axis or not self.reduces_samples
        self.left_out[name] += not (over_axis and has_words(value))
        mean = reduce_to_mean(
            kind, value, over_axis, is_of_drawn=self.selects_drawn and not self.probabilities
        )
        self.mean_names[mean] = name
        return mean

    def take_at_one_state(self, value: Any) -> Any:
        """Return a value in which an exact mean beside a sample is that of its own state.

        A mean of rewards, or of what is detached, beside a sample is that value less the centred one.
        """
        if is_flat(value):
            return value
        value = value.replace(
            lambda x: isinstance(x, sg) and isinstance(x.args[0], Mean), lambda x: Mean(sg(*x.args[0].args))
        )
        exact = {mean: mean.args[0] for mean in value.atoms(Mean) if is_exact(mean)}
        if exact:
            self.assumed = (*self.assumed, "all samples are of one state, and so are their exact means")
        rewards = {
            mean
            for mean in value.atoms(Mean) - exact.keys()
            if not mean.has(OverPositions)
            and (not mean.has(*DENSITIES) or self.is_detached_batch_mean(mean))
            and is_linear_in(value, mean)
        }
        for mean in rewards:
            self.centred[mean.args[0]] = None
            self.left_out[self.mean_names.get(mean, "mean")] -= 1
        at_state = value.xreplace(exact | {mean: mean.args[0] - Centred(*mean.args) for mean in rewards})
        if rewards and at_state.has(SAMPLES) and not is_flat(at_state):
            raise Misplaced(*OF_OTHERS)
        return at_state

    def read_averaged(self, kind: str, node: ast.expr, depth: int) -> Any:
        """Return what a mean or a sum is of.

        Raises OfWords: its names turn out to be those of values of every word.
        """
        value = self.build(node, depth)
        factor, of_words = value.as_independent(*WORD_LOGS.values(), as_Add=False)
        is_of_words = has_words(value) and (of_words.has(*DENSITIES) or is_probability(factor))
        is_of_words |= factor.has(*DENSITIES) and is_probability(select_drawn_word(of_words))
        is_of_words |= (kind == "sum" or value.has(ACTION_VALUE)) and is_probability(value)
        if is_of_words and not value.has(A, R, OverPositions, Mean):
            self.restart_over_vocabulary(node)
        if value.has(M) and has_words(value):
            self.assumed = (*self.assumed, "M is of each word of the vocabulary, as what it multiplies")
        return value

    def read_words(self, node: ast.expr, depth: int) -> Any:
        """Return probabilities of all words.  Raises OfWords: they are read as that of the drawn word."""
        value = self.build(node, depth)
        if value.has(*DENSITIES):
            self.restart_over_vocabulary(node)
        return value

    def restart_over_vocabulary(self, node: ast.expr) -> None:
        """Raise OfWords for the names of densities that are summed one by one, if there are any."""
        names = list_summed_names(node, self.trees) & self.densities_typed - self.of_words
        if names:
            raise OfWords(names)
