"""Attributes and entries in pasted code: self.beta, batch["advantages"], logp[mask], log_probs[:, tokens]."""

from __future__ import annotations

import ast
from typing import Any

from sympy import Rational, S

from klsym.language.expressions import ATOMS
from klsym.language.parser import MAX_DEPTH, PARAMETER, SHOWN
from klsym.language.pasted.names import (
    BOUNDS_OF_TWO,
    LIBRARIES,
    list_chain,
    list_words_typed,
    names_mask,
    split_operands,
)
from klsym.language.recognition import is_indicator
from klsym.language.reductions import MASK, select_drawn_word
from klsym.language.training_names import (
    AMBIGUOUS,
    MASKS,
    STEPS_OF_LOOPS,
    TRAINED,
    find_meaning,
    is_coefficient,
    is_index_of_samples,
    names_drawn_word,
    names_state_value,
    split_words,
)
from klsym.language.usual_names import SETTINGS, NameReader, remove_underscore

WHOLE_AXES = {":", "...", "None", "np.newaxis", "jnp.newaxis", "tf.newaxis"}

OF_FLOAT32 = Rational("1.1920929e-07")  # np.finfo(np.float32).eps, the step from 1 to the next number
NUMBERS = {"pi": "3.14159", "e": "2.71828"}


def is_selection(value: Any) -> bool:
    """Is it 1 for the entries that stay, and 0 for the others?"""
    return value is not None and is_indicator(value.xreplace({MASK: S.One}))


class EntryReader(NameReader):
    """A reader that knows attributes and entries."""

    drawn_values: list[Any]  # values of every word, read at the drawn word

    def split_chain(self, node: ast.expr) -> list[str] | None:
        """Return the names of x.y["z"], where x is no value: no name of the grammar, and not assigned."""
        names: list[str] = []
        while True:
            match node:
                case ast.Attribute(of, name):
                    names.append(name)
                case ast.Subscript(of, ast.Constant(str(name))):
                    names.append(name)
                case ast.Subscript(of, ast.Attribute(ast.Name(), name)) if name.isupper():
                    names.append(name.lower())  # batch[Keys.ADVANTAGES]
                case ast.Name(name):
                    is_value = name in self.names or find_meaning(name) or name in MASKS or name in AMBIGUOUS
                    return None if is_value else [name, *reversed(names)]
                case _:
                    return None
            node = of

    def read_attribute(self, node: ast.expr) -> Any:
        """Return the value of self.beta, cfg.kl_coef or batch["advantages"], by the last name; of x[:, j]."""
        match node:
            case ast.Attribute(ast.Name("self"), name) if name in self.unread and not self.is_told(name):
                raise self.unread[name]
            case ast.Attribute(ast.Name("self"), name) if name in self.assigned:
                self.used.add(name)
                return self.names[name]
            case ast.Attribute(ast.Call(function), "eps") if list_chain(function)[-1:] == ["finfo"]:
                self.is_foreign = True
                return OF_FLOAT32
            case ast.Subscript() if (entry := self.read_entry(node)) is not None:
                return entry
        chain = self.split_chain(node)
        plain = chain is not None and all(map(PARAMETER.fullmatch, map(remove_underscore, chain)))
        if chain is not None and len(chain) == 2 and chain[0] in LIBRARIES and chain[1] in NUMBERS:
            self.is_foreign = True
            typed = f": type its value, {NUMBERS[chain[1]]}"
            hint = f"{typed}; for the log of a density that is written out type logp"
            raise self.make_error_with_hint(f"the number {'.'.join(chain)} is not read", hint, node)
        if chain is None or not plain or chain[0] in LIBRARIES:
            return super().build(node, MAX_DEPTH)  # refuses it
        self.is_foreign = True
        of_coefficient = chain[-1] == "value" and len(chain) > 1 and is_coefficient(chain[-2])
        name = remove_underscore(chain[-2] if of_coefficient else chain[-1])  # kl_ctl.value is kl_ctl
        return self.read_usual_name(".".join(chain), name, node, bool(SETTINGS & {*chain[:-1]}))

    def read_entry(self, node: ast.Subscript) -> Any | None:
        """Return the value of an entry by its index; None where a name is the index, or it is not read."""
        of, index = node.value, node.slice
        if isinstance(index, ast.Name) and is_selection(self.names.get(index.id)):
            return self.build(of, 1) * self.build(index, 1)
        if list_words_typed(index) & {*self.assigned, *self.unread}:
            hint = ": for a selection multiply by what is 1 at the entries that stay"
            raise self.make_error_with_hint("an index that the code computes", hint, node)
        match of, index:
            case ast.Attribute(_, "shape"), _ if not list_words_typed(index):
                return self.declare_parameter(ast.unparse(node), f"size{ast.unparse(index).strip('-')}", node)
            case ast.Call(), ast.Constant(int(number)):
                value = self.build(of, 1)  # refuses a function that is not read
                is_value = split_operands(of)[0] in BOUNDS_OF_TWO and number == 0  # beside where it stands
                return value if is_value else None
            case _ if names_mask(index):
                self.read_as[ast.unparse(index)] = MASK
                return self.build(of, 1) * MASK
            case _ if is_drawn_word(of, index):
                return self.select_drawn(self.build(of, 1), ast.unparse(index))
            case _, ast.Name(name) if name in STEPS_OF_LOOPS and name not in self.names:
                self.steps.add(name)
                if len(self.steps) > 1:
                    raise self.make_error_at("entries at two places", node)
                self.assumed = (*self.assumed, f"values at [{name}] belong together")
                return self.build(of, 1)
            case _, ast.Name(name) if is_index_of_samples(name):
                self.assumed = (*self.assumed, f"{name} are samples of a minibatch")
                return self.read_stored(of)
            case _, ast.Tuple() | ast.Slice():
                return self.read_slice(node)
        return None

    def read_slice(self, node: ast.Subscript) -> Any | None:
        """Return x for x[:, :-1], the same slice of all values; None for other places."""
        index = node.slice
        if {*ast.unparse(index).strip("()").split(", ")} <= WHOLE_AXES:  # x[:, None] is x.unsqueeze(-1)
            return self.build(node.value, 1)
        self.slices.add(ast.unparse(index))
        if len(self.slices) > 1 or "::" in ast.unparse(index):
            raise self.make_error_at("an index that moves tokens", node)
        places = getattr(index, "elts", [index])
        if not all(isinstance(place, ast.Slice | ast.Name | ast.Constant) for place in places):
            return None
        self.assumed = (*self.assumed, f"{ast.unparse(node)[:SHOWN]} is of the tokens drawn")
        return self.build(node.value, 1)

    def select_drawn(self, of_words: Any, index: str) -> Any:
        """Return a value of every word at the drawn word."""
        self.assume_drawn(index)
        value = select_drawn_word(of_words)
        if value != of_words:
            self.drawn_values.append(value)
        return value

    def assume_drawn(self, index: str) -> None:
        """Note that an index is taken for the word that was drawn."""
        self.is_foreign, self.selects_drawn = True, True
        self.assumed = (*self.assumed, f"{index} is the word that was drawn")
        self.labels_typed += (
            [index] if {*split_words(index)} & {"label", "labels", "target", "targets"} else []
        )

    def read_stored(self, node: ast.expr) -> Any:
        """Return entries of a buffer: beside new log-probabilities, those in a buffer are the sampler's."""
        densities = {name for name in self.names_typed if find_meaning(name) == "log_q"}
        new = {name for name in densities if name.startswith("new") or TRAINED & {*split_words(name)}}
        name = next(iter(list_chain(node)[-1:]), "")
        if new - {name} and name not in self.names and find_meaning(name) == "log_q":
            self.is_foreign, self.read_as[name] = True, ATOMS["log_mu"]
            return ATOMS["log_mu"]
        return self.build(node, 1)


def is_drawn_word(of: ast.expr, index: ast.expr) -> bool:
    """Is the index the word that was drawn, and what it is of no value of a state?

    >>> codes = ("logp[actions]", "values[actions]", "logp[actions == 1]", "batch['actions']")
    >>> nodes = [ast.parse(code, mode="eval").body for code in codes]
    >>> [is_drawn_word(node.value, node.slice) for node in nodes]
    [True, False, False, False]
    """
    is_word = names_drawn_word(ast.unparse(index)) and not isinstance(index, ast.Constant | ast.Compare)
    return is_word and not names_state_value(next(iter(list_chain(of)[-1:]), ""))
