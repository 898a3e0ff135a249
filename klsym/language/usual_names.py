"""Usual names in training code, read as what they stand for; an ambiguous one is asked for.

logp is read as log_q, ref_logp as log_p, old_logp as log_mu, advantages as A, self.beta as beta.  A ratio
that only multiplies, clipped or not, or stands beside an old log-probability, is read as q/mu, which the
answer says.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from typing import Any

from klsym.errors import UsageError, spell_option
from klsym.kernel.names import is_declarable
from klsym.language.expressions import ATOMS, COUNTS, PARAMETERS, exp, parameter, remove_sg, unfold
from klsym.language.messages import Message
from klsym.language.parser import FUNCTIONS, PARAMETER, SHOWN, Reader, is_of_answers
from klsym.language.pasted.action_values import names_action_value, names_policy_loss
from klsym.language.pasted.asked_names import (
    OF_SECOND_RATIO,
    ask_beside_ratio,
    ask_for_negated,
    ask_for_value,
    find_example,
    suggest_distinct_values,
    suggest_for_top_words,
)
from klsym.language.pasted.log_ratios import (
    DEFINITIONS,
    Places,
    find_places,
    settle_log_ratio,
    spell_examples,
    spell_value,
    write_commands,
)
from klsym.language.pasted.names import (
    is_padding_mask,
    list_clipped,
    list_distributions,
    list_divisors_of_logits,
    list_factors,
    list_logged,
    list_multipliers_of_advantage,
    list_terms,
)
from klsym.language.reductions import (
    ACTION_VALUE,
    LOGITS,
    MASK,
    WORD_LOGS,
    average_over_words,
    is_probability,
)
from klsym.language.sums import DENSITIES, build_entropy
from klsym.language.training_names import (
    AMBIGUOUS,
    LOG_WEIGHT,
    RATIO,
    REWARD_OR_RATIO,
    expand_name,
    find_density,
    find_logits,
    find_meaning,
    find_negative_density,
    is_coefficient,
    name_same_value,
    names_entropy,
    names_state_value,
    split_words,
)

SETTINGS = {"args", "cfg", "config", "conf", "hparams", "hp", "opt", "opts", "training_args", "script_args"}
PROBABILITIES, LOG_PROBABILITIES = "exp(log_q), exp(log_p) or exp(log_mu)", "log_q, log_p or log_mu"
LETTERS_OF_POLICIES = {
    "p": "log_p",
    "q": "log_q",
    "policy": "log_q",
}  # probabilities, as in (q * (q.log() - p.log())).sum(-1)
PAIRS_OF_LETTERS = ({"P": "log_p", "Q": "log_q"}, {"T": "log_p", "S": "log_q"})  # T, S: teacher and student
OF_TEMPERATURES = {"kl_div", "KLDivLoss", "softmax", "log_softmax"}  # functions of logits over self.T
STORES = {"sample", "samples", "batch", "rollout", "buffer", "memory", "storage", "data", "transition"}
WEIGHT_OF_OLD = exp(ATOMS["log_old"] - ATOMS["log_mu"])
OF_TWO_POLICIES = (
    "rho_old for q/old (`{0} = (logp - {1}).exp(); ...`) or rho for q/mu (`{0} = (logp - {2}).exp(); ...`)"
)
MEANINGS = (
    find_meaning, find_density, find_logits, find_negative_density, is_coefficient, names_state_value,
    names_action_value,
)  # fmt: skip


def remove_underscore(name: str) -> str:
    """Return clip for _clip; __class__ stays."""
    return name[1:] if re.fullmatch("_[^_].*", name) else name


def names_old(name: str) -> bool:
    """Is it a name of the policy before the update, which may be another one than the sampler?"""
    return bool({*split_words(name)} & {"old", "prev", "previous"})


class NameReader(Reader):
    """A reader of the grammar that knows the usual names.

    is_foreign: is something read that the grammar has not?  read_as: the symbol of each name that is typed.
    """

    def __init__(self, text: str, parameters: Iterable[str], of_words: frozenset[str]) -> None:
        super().__init__(text, parameters, {})
        self.of_words = of_words  # names of values of every word of the vocabulary
        self.densities_typed: set[str] = set()  # names of log-probabilities and probabilities
        self.trees: dict[str, list[ast.expr]] = {}  # assigned name -> its value as typed
        self.labels_typed: list[str] = []  # indices that may be those of a data set
        self.slices: set[str] = set()  # indices such as [:, :-1]
        self.steps: set[str] = set()  # indices such as [i]
        self.unread: dict[str, UsageError] = {}  # name -> why its value is not read
        self.computed_by_call: set[str] = set()  # those that a function gives, made of nothing that is read
        self.told: set[str] = set()  # those of them whose names say what they are
        self.has_critic = False  # is a name read as a value that a critic gives to a state?
        self.divisors: set[str] = set()  # names by which logits are divided
        self.is_foreign = False
        self.read_as: dict[str, Any] = {}
        self.declared: dict[str, None] = {}
        self.assumed: tuple[str, ...] = ()
        self.assigned: dict[str, int] = {}  # name -> how deep its value is nested
        self.names_typed: set[str] = set()  # names, attributes and keys in the whole text
        self.values_typed: list[str] = []  # names of values, in their order
        self.factors: frozenset[str] = frozenset()  # names that only multiply
        self.clipped: frozenset[str] = frozenset()  # names that are bounded from both sides
        self.logged: frozenset[str] = frozenset()  # names of which a log is taken, and nothing else
        self.distributions: frozenset[str] = frozenset()  # names inside a log or a divergence
        self.places = Places(frozenset(), frozenset())  # of names inside exp
        self.source = text
        self.terms: frozenset[str] = frozenset()  # names that stand in a sum, with or without a coefficient
        self.probabilities: dict[str, ast.expr] = {}  # names that are read as one, where each stands
        self.later: set[str] = set()  # names that are assigned further below
        self.target = ""  # the name that the line assigns
        self.used: set[str] = set()  # assigned names that later lines read

    def collect_names(self, tree: ast.AST) -> None:
        """Note the names in the whole text, by which some of them are read."""
        for node in ast.walk(tree):
            match node:
                case ast.Name(name, context):
                    self.names_typed.add(name)
                    self.values_typed += [name] if isinstance(context, ast.Load) else []
                case ast.Attribute(_, name) | ast.Subscript(_, ast.Constant(str(name))):
                    self.names_typed.add(name)
        self.divisors = list_divisors_of_logits(tree)
        self.factors = list_factors(tree) | list_multipliers_of_advantage(tree)
        self.terms = list_terms(tree)
        self.logged = list_logged(tree)
        self.distributions = list_distributions(tree)
        self.places = find_places(tree)
        self.clipped = list_clipped(tree)

    def read_name(self, name: str, node: ast.expr) -> Any:
        if name in self.unread and name not in self.names and not self.is_told(name):
            raise self.unread[name]
        if name in self.later and name not in self.names and not self.has_meaning(name):
            self.is_foreign = True
            reason = f"{name[:SHOWN]!r} is used before it is assigned"
            raise self.make_error_with_hint(reason, self.ask_for_input(name), node)
        if self.find_letter(name) and name not in LETTERS_OF_POLICIES:
            return self.read_usual_name(name, name, node)
        if name in self.divisors and (name == "T" or not (name in self.names or self.has_meaning(name))):
            return self.declare_parameter(name, "temperature" if name == "T" else name, node)
        if name in self.names:
            if name in ATOMS:
                self.read_as[name] = self.read_at_words(name, self.names[name])
            return self.read_as.get(name, self.names[name]) if name in ATOMS else self.names[name]
        return self.read_usual_name(name, name, node)

    def ask_for_input(self, name: str) -> str:
        return f": {self.ask_for_value(name)}".rstrip(": ")

    def read_at_words(self, typed: str, value: Any) -> Any:
        """Return a value of log densities, of every word where the name stands for that."""
        if not value.has(*WORD_LOGS):
            return value
        self.densities_typed.add(typed)
        return value.xreplace(WORD_LOGS) if typed in self.of_words else value

    def is_told(self, name: str) -> bool:
        """Is a name whose value is not read taken for what it says?"""
        return name in self.told and self.has_meaning(name)

    def has_meaning(self, name: str) -> bool:
        is_named = is_padding_mask(name) or names_entropy(name)
        return is_named or (name not in AMBIGUOUS and any(find(name) for find in MEANINGS))

    def read_usual_name(self, typed: str, name: str, node: ast.expr, is_setting: bool = False) -> Any:
        """Return the symbol for a usual name of a log-probability, an advantage, a mask or a coefficient."""
        if (settled := self.settle_ambiguous(name, node)) is not None:
            self.is_foreign, self.read_as[typed] = True, settled
            return settled
        if is_padding_mask(name):
            symbol = MASK
        elif name == "q" and self.is_critics_letter():
            symbol = ACTION_VALUE
        elif find_density(name) is not None or self.find_letter(name):
            symbol = self.read_probability(name, node)
        elif (negative := find_negative_density(name)) is not None:
            symbol = -ATOMS[self.choose_older_policy(name, negative)]
        elif (meaning := find_meaning(expand_name(name, self.names_typed))) is not None:
            meaning = "log_mu" if meaning == "log_q" and self.is_stored_beside_new(typed) else meaning
            symbol = self.read_density(name, meaning, node)
        elif {"prob", "probs"} & {*split_words(name)}:
            symbol = self.read_probability(name, node)
        elif is_setting or is_coefficient(name) or name in {*self.known} - {*ATOMS, *PARAMETERS}:
            return self.declare_parameter(typed, name, node)
        elif typed != name == "T" and self.names_typed & OF_TEMPERATURES:  # and not the length of a sequence
            return self.declare_parameter(typed, "temperature", node)
        elif names_state_value(name):
            self.has_critic = True
            return self.declare_parameter(typed, name, node)
        elif names_action_value(name) and self.names_density():
            symbol = ACTION_VALUE
        elif names_entropy(name):
            self.read_as[typed], self.is_foreign = (symbol := build_entropy("q")), True
            return symbol
        elif (density := find_logits(typed.replace(".", "_"))) is not None:
            self.is_foreign = True
            return LOGITS[ATOMS[density]]
        elif typed != name:
            declare = f"type {name[:SHOWN]} for a number that is the same for all samples, with"
            other = f", or what it is in a line before, such as `{name[:SHOWN]} = logp`"
            others = self.ask_for_others(name)
            hint = ask_for_value(name) or f"{declare} {spell_option('param', name[:SHOWN])}{other}"
            raise self.make_unknown(name, f": {hint}{others}", node, typed)
        else:
            return super().read_name(name, node)  # refuses it
        self.is_foreign = True
        self.read_as[typed] = symbol = self.read_at_words(typed, symbol)
        return symbol

    def settle_ambiguous(self, name: str, node: ast.expr) -> Any:
        """Return what an ambiguous name is by its place, such as rho for a ratio that multiplies; else None.

        Raises UsageError: an ambiguous name that its place does not settle.
        """
        if find_meaning(name) == "rho" and (pair := self.find_older_policies()):
            self.is_foreign = True
            if any(unfold(remove_sg(value)).has(WEIGHT_OF_OLD) for value in self.names.values()):
                self.assumed = (*self.assumed, f"{name} is q/old, as a weight old/mu stands beside it")
                return ATOMS["rho_old"]
            hint = f": type {OF_TWO_POLICIES.format(name, *pair)}"
            raise self.make_error_with_hint(f"ambiguous name {name[:SHOWN]!r}", hint, node)
        if self.is_read_as_rho(name):
            return ATOMS["rho"]
        if name == "G" and name in self.factors:
            return ATOMS["R"]
        if (settled := settle_log_ratio(name, self.places, self.names_typed)) is not None:
            self.assumed = (*self.assumed, settled.assumed)
            return settled.value
        if name in AMBIGUOUS:
            self.is_foreign = True
            typed = {*self.values_typed} - self.later - self.assigned.keys()
            commands = write_commands(name, self.source, self.list_examples(name), typed)
            hint = f": type {AMBIGUOUS[name].format(name)}{commands or self.ask_for_others(name)}"
            raise self.make_error_with_hint(f"ambiguous name {name!r}", hint, node)
        return None

    def list_examples(self, name: str) -> dict[str, str]:
        """Return an example of each other name of the text whose value has to be asked for."""
        names = [x for x in dict.fromkeys(self.values_typed) if x != name and self.is_unsettled(x)]
        examples = {x: DEFINITIONS.get(AMBIGUOUS.get(x, ""), (find_example(x),))[0] for x in names}
        return {x: example for x, example in examples.items() if example}

    def is_stored_beside_new(self, typed: str) -> bool:
        """Is it batch["log_probs"] beside a log-probability of no batch?  Then it is that of the sampler."""
        others = {name for name in self.values_typed if find_meaning(name) == "log_q"}
        return typed.split(".")[0] in STORES and "." in typed and bool(others)

    def is_read_as_rho(self, name: str) -> bool:
        """Is a ratio read as rho: it only multiplies, or an advantage, or the text names an old policy?

        It could be p/q as well; the answer says how it was read.
        """
        if AMBIGUOUS.get(name) == REWARD_OR_RATIO:
            return bool({"clip", "clamp"} & self.names_typed)
        is_ratio = AMBIGUOUS.get(name) == RATIO
        multiplies = name in self.factors or name in self.clipped
        return is_ratio and (multiplies or "log_mu" in map(find_meaning, self.names_typed))

    def find_letter(self, name: str) -> str | None:
        """Return the log density of a letter that stands for a policy.

        P and Q, S and T do so only together, where a log or a divergence is of both, and T divides no logits.
        """
        pairs = (pair for pair in PAIRS_OF_LETTERS if pair.keys() <= self.distributions - self.divisors)
        of_pair = next((pair[name] for pair in pairs if name in pair), None)
        return of_pair or LETTERS_OF_POLICIES.get(name)

    def is_critics_letter(self) -> bool:
        """Is q what a critic says, as in probs*(alpha*log_probs - q), and no probability?

        It is where another name is a probability of the trained policy that multiplies, and no log is of q.
        """
        others = self.names_typed - {"q"}
        return (
            "p" not in others
            and "q" not in self.logged
            and any(find_density(name) == "log_q" for name in others - self.logged)
        )

    def names_density(self) -> bool:
        """Has the text a log-probability or a probability of the trained policy, or a loss of it by name?"""
        finders = (find_meaning, find_density, find_logits)
        is_given = any(find(name) == "log_q" for name in self.names_typed for find in finders)
        return is_given or any(map(names_policy_loss, self.names_typed))

    def is_unsettled(self, name: str) -> bool:
        """Is it a name whose value has to be asked for?"""
        if name in {*self.names, *self.later, *self.unread, *DENSITIES}:  # q and p stand in H(q)
            return False
        if self.is_read_as_rho(name) or self.has_meaning(name):
            return False
        return name in AMBIGUOUS or bool(ask_for_value(name))

    def ask_for_others(self, name: str) -> str:
        """Return what to type for the other names of the text whose values have to be asked for."""
        others = [x for x in dict.fromkeys(self.values_typed) if x != name and self.is_unsettled(x)]
        asked = ((x, AMBIGUOUS.get(x, "").format(x) or self.ask_for_value(x)) for x in others)
        hints = [(x, hint) for x, hint in asked if hint != self.ask_for_value(name)]
        return "".join(f"; for {x[:SHOWN]}: {hint}" for x, hint in hints if not suggest_for_top_words(x))

    def suggest_name(self, name: str) -> str:
        others = self.ask_for_others(name) if ask_for_value(name) else ""
        self.is_foreign |= bool(others)
        hint = super().suggest_name(name)
        if ask_for_value(name):
            hint = hint.replace(ask_for_value(name), self.ask_for_value(name))
        return spell_examples(hint, self.list_unassigned_names()) + others

    def ask_for_value(self, name: str) -> str:
        """Return what to write for a name; beside a ratio to the old policy, a second one is old/mu."""
        hint = ask_for_negated(ask_for_value(name), name, self.source)
        others = [x for x in self.values_typed if x != name]
        if ratios := [x for x in others if self.is_read_as_rho(x) or find_meaning(x) == "rho"]:
            self.is_foreign, hint = True, ask_beside_ratio(hint, ratios[0])
        return hint

    def list_unassigned_names(self) -> list[str]:
        """Return the names of values that the text does not assign, and that say what they are."""
        return [x for x in self.values_typed if x not in AMBIGUOUS and x not in self.assigned]

    def find_older_policies(self) -> tuple[str, str] | None:
        """Return the names of log_old and of log_mu, if the text has names of both."""
        named = {
            self.choose_older_policy(name, meaning): name
            for name in sorted(self.names_typed)
            if (meaning := find_meaning(name)) in ("log_mu", "log_old")
        }
        return (named["log_old"], named["log_mu"]) if len(named) == 2 else None

    def choose_older_policy(self, name: str, meaning: str) -> str:
        """Return the meaning of a name; old_logp is log_old if another policy is named as the sampler."""
        if meaning != "log_mu" or not names_old(name):
            return meaning
        samplers = (candidate for candidate in self.names_typed if find_meaning(candidate) == "log_mu")
        return meaning if all(map(names_old, samplers)) else "log_old"

    def read_probability(self, name: str, node: ast.expr) -> Any:
        """Return exp(log_q) for probs, exp(log_p) for ref_probs: those of the sampled token."""
        density = self.find_letter(name) or find_density(expand_name(name, self.names_typed))
        self.probabilities.setdefault(name, node)
        if density is None:
            return self.read_density(name, PROBABILITIES, node)  # refuses it
        return exp(ATOMS[self.choose_older_policy(name, density)])

    def refuse_probability_factor(self, e: Any, is_summed: bool = False) -> None:
        """Raise UsageError for a probability that multiplies: it may be one of the whole vocabulary."""
        if self.probabilities and is_probability(e):
            name, node = next(iter(self.probabilities.items()))
            exact = str(average_over_words(e)) if is_summed else "full_kl(q, p) or H(q)"
            self.read_density(name, PROBABILITIES, node, exact)

    def read_density(
        self, name: str, meaning: str, node: ast.expr, exact: str = "full_kl(q, p) or H(q)"
    ) -> Any:
        if meaning == LOG_WEIGHT:
            return ATOMS["log_q"] - ATOMS["log_mu"]
        if meaning not in ATOMS:
            self.is_foreign = True
            is_log = "log" in split_words(name) and meaning == PROBABILITIES
            kind, wanted = ("log-probability", LOG_PROBABILITIES) if is_log else ("probability", meaning)
            if of_top_words := suggest_for_top_words(name):
                raise self.make_error_with_hint(f"{name!r} is a {kind}", f": {of_top_words}", node)
            over_words = f"; for a sum over the vocabulary type {exact}" * (meaning == PROBABILITIES)
            raise self.make_error_with_hint(f"{name!r} is a {kind}", f": type {wanted}{over_words}", node)
        return ATOMS[self.choose_older_policy(name, meaning)]

    def declare_parameter(self, typed: str, name: str, node: ast.expr) -> Any:
        """Return the parameter for a coefficient that is not declared."""
        self.is_foreign = True
        if name in FUNCTIONS:  # a number called clip
            name = f"{name}_value"
        elif name in ("V", "v", "value"):  # of a critic
            name = f"{name}_of_state"
        elif is_of_answers(name):
            name = f"{name}1"
        is_plain = PARAMETER.fullmatch(name) and not is_of_answers(name) and is_declarable(name)
        if not is_plain or name in COUNTS:
            hint = f": assign its value to another name, or declare one with {spell_option('param')}"
            raise self.make_error_with_hint(f"no parameter can be called {name[:SHOWN]!r}", hint, node)
        symbol = self.read_as[typed] = parameter(name)
        if name not in PARAMETERS:
            self.declared[name] = None
        return symbol

    def refuse_two_names(self) -> None:
        """Refuse two names for one thing: of logprobs and new_logprobs one is the old policy's.

        An assigned ratio is one name of rho.
        """
        rho = ATOMS["rho"]
        first = {value: name for name, value in self.names.items() if value == rho and name not in ATOMS}
        is_bounded = bool({"min", "minimum"} & self.names_typed)  # the smaller of two critics' values
        for typed, symbol in self.read_as.items():
            first_name = first.setdefault(symbol, typed)
            is_same = name_same_value(first_name, typed) or (symbol == ACTION_VALUE and is_bounded)
            if not is_same and (typed not in ATOMS or first_name in self.read_as):
                self.is_foreign = True
                both = f"{first_name[:SHOWN]!r} and {typed[:SHOWN]!r} would both be read as {symbol}"
                pair = [first_name, typed]
                if symbol == rho:
                    pair.sort(key=self.order_ratio)
                raise UsageError(f"{both}: {suggest_distinct_values(pair[0], pair[1], str(symbol))}")

    def order_ratio(self, name: str) -> tuple[bool, bool]:
        """Put a name that is assigned, or that is a plain ratio, before a weight."""
        is_weight = AMBIGUOUS.get(name) != RATIO or bool({*split_words(name)} & OF_SECOND_RATIO)
        return is_weight, name in self.read_as

    def list_names_read(self) -> Iterator[Message]:
        """Yield what was read as what."""
        values = {x: symbol for x, symbol in self.read_as.items() if symbol != MASK and x != str(symbol)}
        pairs = tuple((x, "R" if y == ACTION_VALUE else spell_value(y)) for x, y in values.items())
        if self.is_foreign and "r" in self.read_as:
            pairs = (*pairs, ("r", "p/q"))
        if pairs:
            yield Message("names-read", pairs=pairs)
        if self.declared:
            yield Message("parameters-declared", names=tuple(self.declared))
        if masks := tuple(typed for typed, symbol in self.read_as.items() if symbol == MASK):
            yield Message("masks-left-out", names=masks)
