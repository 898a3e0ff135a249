"""The loss of pasted code as a whole: what it is the mean of, and what makes it none that can be read."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from shlex import quote
from typing import Any

from sympy import Add, Heaviside, S, Symbol, exp, expand_mul

from klsym.errors import UsageError
from klsym.language.expressions import (
    ATOMS,
    DENSITIES,
    REWARDS,
    OverPositions,
    log_mu,
    log_old,
    log_p,
    log_q,
    remove_sg,
    sg,
    unfold,
)
from klsym.language.messages import TEMPERATURE_SQUARED
from klsym.language.parser import SHOWN
from klsym.language.pasted.action_values import OF_LOSSES, names_policy_loss, settle_action_values
from klsym.language.pasted.asked_names import OUT_OF_SCOPE, SECOND_READING
from klsym.language.pasted.assumed_names import AssumedNameReader
from klsym.language.pasted.averages import OfWords
from klsym.language.pasted.names import count_reductions, list_chain, list_words_typed
from klsym.language.pasted.rewards_of_tokens import list_spread_names, refuse_reversed, settle_rewards
from klsym.language.pasted.separate_terms import separate_terms
from klsym.language.recognition import recognise
from klsym.language.reductions import (
    ACTION_VALUE,
    LOGITS,
    ONE_HOT,
    WORDS,
    Flat,
    Misplaced,
    flatten,
    has_other_factors,
    has_words,
    is_probability,
    sum_over_words,
)
from klsym.language.training_names import LOGS, find_meaning, is_coefficient, split_words

OF_LABELS = (
    "for labels of a data set type -log_q off-policy, where mu is the distribution of the data; for words"
    " drawn from the policy its expected gradient is 0"
)

OF_REWARDS_ALONE = (
    "it computes a reward or an advantage; add the line of the loss, as in loss = -(logp*{}).mean()"
)

SUM = Symbol("a sum over tokens", positive=True)
OBJECTIVES = {"obj", "objective"}
OF_COEFFICIENT = (
    "it sets {0} between updates; within an update {0} is a number, so add the line of the loss that it"
    " multiplies a term of, as in loss = -A*logp + {0}*k3"
)
OF_LOGS_ALONE = "it computes a log-probability; add the line of the loss, as in loss = -(A*{}).mean()"
OF_WEIGHTS = {"ratio", "ratios", "weight", "weights", "importance", "iw", "tis", "mis", "rho", "rhos", "w"}
SYMBOLS_OF_LOGS = tuple(str(x) for x in DENSITIES)


class WholeLossReader(AssumedNameReader):
    """A reader that knows what the mean of a whole loss is of."""

    def __init__(self, text: str, parameters: Iterable[str], of_words: frozenset[str]) -> None:
        super().__init__(text, parameters, of_words)
        self.last = ""  # the name that the last line assigns
        self.is_scaled = False  # by the square of the temperature?
        self.factor = S.One  # of the mean over samples
        self.counts_samples = False  # by len(..)
        self.is_of_each_token = False  # though a sum over the tokens of a sequence stands in it?
        self.gathers = False  # is a value of every word read at the drawn word?

    def read_whole(self, value: Any, statements: list[ast.stmt]) -> Any:
        """Return the loss of one sample, whose mean is the value.

        Raises UsageError: the value is no mean of a loss; OfWords: names have values of every word.
        """
        self.refuse_logits(value, statements)
        value = self.take_logged(value, statements)
        refuse_reversed(value, self.text)
        self.is_scaled = self.squares_temperature(value)
        flat = self.flatten_whole(value)
        self.factor = flat.factor
        if flat.loss.has(ONE_HOT):
            reason = f"a one-hot vector that is not summed in {self.text[:SHOWN]!r}"
            raise UsageError(f"{reason}: sum the product over the vocabulary, or type log_q")
        weight, at_labels = flat.loss.as_independent(log_q, as_Add=False)
        if self.labels_typed and at_labels == log_q and not weight.has(*REWARDS):
            raise UsageError(f"-log_q of {self.labels_typed[0]}: {OF_LABELS}")
        loss = self.replace_action_values(self.settle_rewards(flat.loss, statements))
        if self.has_critic and not unfold(loss).has(*DENSITIES):
            raise UsageError(f"no policy in {self.text[:SHOWN]!r}: {OUT_OF_SCOPE}")
        if find_meaning(self.last) in ("A", "R") and not unfold(loss).has(*DENSITIES):
            raise UsageError(f"no policy in {self.text[:SHOWN]!r}: {OF_REWARDS_ALONE.format(self.last)}")
        if self.is_log_probability(loss, statements):
            raise UsageError(f"no loss in {self.text[:SHOWN]!r}: {OF_LOGS_ALONE.format(self.last)}")
        self.is_of_each_token = self.multiplies_each_token(loss)
        self.refuse_two_names()
        self.refuse_second_name_of_drawn()
        self.refuse_count_of_samples()
        if self.probabilities and is_probability(loss) and has_other_factors(loss):
            self.restart_if_over_vocabulary(loss, statements)
        self.refuse_probability_factor(loss)
        if names_weight(self.last) and is_weight(loss):
            loss = self.assume_weighted_advantage(loss)
        words = {*split_words(self.last)}
        if self.last == "J" or (words & OBJECTIVES and not words & {"loss", "losses"}):
            self.assumed = (
                *self.assumed,
                f"{self.last} is maximised, as its name says: the loss is -{self.last}",
            )
            loss = -loss
        return recognise(loss)

    def take_logged(self, value: Any, statements: list[ast.stmt]) -> Any:
        """Return what a number that is logged, x.item(), is the mean of; another value as it is."""
        last = getattr(statements[-1], "value", None) if statements else None
        match last:
            case ast.Call(ast.Attribute(_, "item"), []) if isinstance(value, sg):
                self.note_assumption(
                    ".item() makes a number to log: what counts is its value, not its gradient"
                )
                return value.args[0]
        return value

    def assume_weighted_advantage(self, weight: Any) -> Any:
        """Return the loss of an advantage times a weight; a weight that is held multiplies A*log_q."""
        is_held = not weight.replace(sg, lambda x: S.One).has(log_q)
        written = f"-sg({self.last})*A*log_q" if is_held else f"-{self.last}*A"
        self.note_assumption(f"{self.last} is a weight, and no loss: the loss is {written}")
        return -sg(weight) * ATOMS["A"] * log_q if is_held else -weight * ATOMS["A"]

    def refuse_second_name_of_drawn(self) -> None:
        """Refuse prob_a beside pi.gather(1, a): of two values of q at the drawn word one is old."""
        selected = {find_density(value) for value in self.drawn_values} - {""}
        for typed, value in self.read_as.items():
            density = find_density(value)
            if density in selected and typed not in ATOMS:
                instead = str(value).replace(density, SECOND_READING.get(density, "..."))
                raise UsageError(
                    f"{typed[:SHOWN]!r} and a value selected at the drawn word would both be read as {value}:"
                    f" assign one of them first, as in `{typed.split('.')[-1][:SHOWN]} = {instead}; ...`"
                )

    def refuse_coefficient(self, statements: list[ast.stmt]) -> None:
        """Refuse code whose last line sets a coefficient between updates, as a controller of the KL does."""
        match statements[-1:]:
            case [ast.Assign([ast.Attribute() as target]) | ast.AugAssign(target)] if len(statements) > 1:
                name = next(iter(list_chain(target)[-1:]), "")
                if is_coefficient(name):
                    raise UsageError(
                        f"no loss in {self.text[:SHOWN]!r}: {OF_COEFFICIENT.format(name[:SHOWN])}"
                    )

    def multiplies_each_token(self, loss: Any) -> bool:
        """Does a sum over the tokens of a sequence, as of a ratio, multiply values of each token?

        Raises UsageError: a term has values of each token, and another one such sums alone.
        """
        terms = [_take_at_token(term) for term in Add.make_args(expand_mul(recognise(loss)))]
        if not self.sums_tokens or not any(x.has(*DENSITIES) for x in terms):
            return False
        if all(x.has(*DENSITIES) or not x.has(SUM) for x in terms):
            return True
        averaged = self.token_sums.find_aggregate(self.factor)
        aggregate = f" --aggregate {averaged}" * bool(averaged)
        options = f"--level token{aggregate}{' --sampling off-policy' * loss.has(log_mu)}"
        reason = f"values of each token beside a sum over the tokens of a sequence in {self.text[:SHOWN]!r}"
        raise UsageError(f"{reason}: klsym explain {options} -- {quote(_write_formula(loss))}")

    def is_log_probability(self, loss: Any, statements: list[ast.stmt]) -> bool:
        """Is what the last line assigns a log-probability, as its name says, and no loss?"""
        return loss in DENSITIES and find_meaning(self.last) in SYMBOLS_OF_LOGS and len(statements) > 1

    def holds_policy(self, loop: ast.stmt) -> bool:
        """Does a loop add up values that depend on the policy, as rewards with a KL do?"""
        values = (self.names[x] for x in list_words_typed(loop) if x in self.assigned and x in self.names)
        return any(unfold(value).has(*DENSITIES) for value in values)

    def flatten_whole(self, value: Any) -> Flat:
        try:
            of_samples = sum_over_words(value) / WORDS if has_words(value) else value
            flat = flatten(self.take_at_one_state(of_samples))
            self.assumed += () if self.sums_tokens else self.token_sums.list_assumptions()
            return flat
        except Misplaced as error:
            raise UsageError(f"{error.reason} in {self.text[:SHOWN]!r}: {error.hint}") from None

    @property
    def aggregate(self) -> str:
        """How a loss of tokens adds them up; "" for other losses."""
        is_of_sequence = self.sums_tokens and not self.is_of_each_token
        return "" if is_of_sequence else self.token_sums.find_aggregate(self.factor)

    @property
    def factor_left_out(self) -> Any:
        """The factor of the mean over samples that neither the loss nor its aggregate has."""
        return self.factor if self.sums_tokens else self.token_sums.find_factor(self.factor)

    def settle_rewards(self, loss: Any, statements: list[ast.stmt]) -> Any:
        """Return a loss of tokens with whole(R) for a reward that the code spreads over them."""
        if not self.aggregate:
            return loss
        settled = settle_rewards(loss, self.read_as, list_spread_names(statements, self.trees))
        self.assumed += settled.assumed
        return settled.loss

    def replace_action_values(self, loss: Any) -> Any:
        """Return the loss with R for the values of actions that a critic gives."""
        if not loss.has(ACTION_VALUE):
            return loss
        names = [typed for typed, symbol in self.read_as.items() if symbol == ACTION_VALUE]
        settled = settle_action_values(loss, names, names_policy_loss(self.last))
        if settled is None:
            raise UsageError(f"{names[0][:SHOWN]!r} in {self.text[:SHOWN]!r}: {OUT_OF_SCOPE}")
        self.assumed = (*self.assumed, settled.assumed)
        return settled.loss

    def refuse_count_of_samples(self) -> None:
        """Refuse len(..) beside a sum over the tokens of each sample, which is not their number."""
        if self.counts_samples and self.sums_tokens and any(self.axes.values()):
            reason = f"len(..) counts samples in {self.text[:SHOWN]!r}, and a sum is over an axis"
            raise UsageError(f"{reason}: divide by mask.sum(-1), or by T for the length of a sequence")

    def refuse_logits(self, value: Any, statements: list[ast.stmt]) -> None:
        """Refuse logits outside softmax, and two temperatures."""
        if value.has(*LOGITS.values()):
            raise UsageError(f"logits outside softmax in {self.text[:SHOWN]!r}: type log_softmax(logits)")
        if len(self.temperatures) > 1:
            both = " and ".join(repr(logits[:SHOWN]) for logits in [*self.temperatures.values()][:2])
            reason = f"{both} have different temperatures: klsym reads policies at one temperature"
            terms = [term.write_command() for term in separate_terms(statements)]
            commands = f": {' and '.join(terms)}" if len(terms) > 1 else ""
            factor = f"; {TEMPERATURE_SQUARED}" if self.squares_temperature(value) else ""
            raise UsageError(f"{reason}: explain each term by itself{commands}{factor}")

    def squares_temperature(self, value: Any) -> bool:
        """Is the square of a temperature a factor?"""
        values = [self.read_as.get(typed, self.names.get(typed)) for typed in self.temperatures]
        return any(x is not None and x.is_Symbol and value.has(x**2) for x in values)

    def restart_if_over_vocabulary(self, value: Any, statements: list[ast.stmt]) -> None:
        """Raise OfWords where nothing is averaged: a product such as q*log(q) is one of all words."""
        names = frozenset(self.densities_typed - self.of_words)
        if value.has(*REWARDS, OverPositions):
            return
        if names and not any(map(count_reductions, statements)):
            raise OfWords(names)


def _take_at_token(term: Any) -> Any:
    """Return a term with a symbol in place of its sums over the tokens of a sequence."""
    return unfold(term).replace(lambda e: isinstance(e, OverPositions), lambda _: SUM)


def _write_formula(loss: Any) -> str:
    """Return a loss as the grammar has it.

    >>> from klsym.language.expressions import A, above, rho
    >>> _write_formula(A * above(rho, 3))
    'A*where(rho - 3 > 0, 1, 0)'
    """
    typed = {
        step: Symbol(f"where({recognise(step.args[0])} {'>=' if step.args[1] == 1 else '>'} 0, 1, 0)")
        for step in loss.atoms(Heaviside)
    }
    return str(recognise(loss.replace(sg, lambda x: x if x in typed else sg(x)).xreplace(typed)))


def find_density(value: Any) -> str:
    """Return the log density whose value, probability or negative a value is; "" for another value.

    >>> [find_density(x) for x in (log_q, exp(log_mu), -log_q, 2 * log_q)]
    ['log_q', 'log_mu', 'log_q', '']
    """
    return next((str(x) for x in DENSITIES if value in (x, -x, exp(x))), "")


def names_weight(name: str) -> bool:
    """Is it a usual name of an importance weight?

    >>> [x for x in ("importance_ratio", "w_t", "tis_weights", "log_ratio", "ratio_loss") if names_weight(x)]
    ['importance_ratio', 'w_t', 'tis_weights']
    """
    words = {*split_words(name)}
    is_value = bool(words & (LOGS | OF_LOSSES | {"log", "kl"}))
    return bool(words & OF_WEIGHTS) and not is_value


def is_weight(value: Any) -> bool:
    """Is it a function of q/mu alone that is 1, or a number, where q is mu?"""
    plain = unfold(value)
    has_others = plain.has(*REWARDS, log_p)
    at_mu = remove_sg(plain).subs({log_q: log_mu, log_old: log_mu})
    return (
        not has_others
        and (plain.has(log_mu, log_old) or value.has(sg))
        and at_mu != 0
        and not at_mu.has(*DENSITIES)
    )
