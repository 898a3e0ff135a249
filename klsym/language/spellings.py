"""Read losses as engineers write them: PyTorch, JAX and NumPy, assignments, usual names.

Python's `ast` gives the tree, and the reader of the grammar builds it; nothing that is typed is evaluated.
A text that the grammar reads is read by it alone.

>>> read_loss("(logp - ref_logp).pow(2)/2").expression
k2
>>> read_loss("d = ref_logp - logp; loss = (torch.exp(d) - 1 - d).mean()").expression
k3
>>> read_loss("-ratio*advantages").expression
-A*rho
>>> read_loss("ratio - 1")  # doctest: +ELLIPSIS
Traceback (most recent call last):
    ...
klsym.errors.UsageError: ambiguous name 'ratio' at character 1 of 'ratio - 1': type rho for q/mu ...
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from sympy import Integer, S

from klsym.errors import UsageError
from klsym.language.expressions import R
from klsym.language.library_calls import FUNCTIONS as CALLS
from klsym.language.library_calls import OF_GRAMMAR, list_unknown_calls
from klsym.language.messages import BY_ITS_NAME, Message
from klsym.language.parser import MAX_DEPTH, MAX_LENGTH, OPERATORS, SHOWN, is_free_name, parse_asked
from klsym.language.pasted.action_values import names_action_value
from klsym.language.pasted.asked_names import OF_PAIRS, ask_for_all_unknown
from klsym.language.pasted.averages import OfWords
from klsym.language.pasted.log_ratios import spell_with_names
from klsym.language.pasted.names import (
    LIBRARIES,
    count_reductions,
    is_told_by_loop,
    is_told_by_name,
    list_chain,
    list_names_filled,
    list_returns_filled,
    list_words_typed,
    names_distribution,
    names_mask,
)
from klsym.language.pasted.notes import IDENTITY_METHODS, list_notes
from klsym.language.pasted.policies import OF_DISTRIBUTIONS
from klsym.language.pasted.selections import has_quantile, hold_entropies_and_selections
from klsym.language.pasted.separate_terms import refuse_written
from klsym.language.pasted.statements import Unrolled, names_loss
from klsym.language.pasted.text import (
    BLOCKS,
    as_python,
    ask_for_lines,
    find_assigned_name,
    find_setting,
    is_addition_to_itself,
    is_condition,
    is_cpp,
    list_assumed_settings,
    parse_python,
    suggest_statements,
)
from klsym.language.pasted.whole_loss import WholeLossReader, names_weight
from klsym.language.recognition import recognise
from klsym.language.reductions import MASK, Misplaced
from klsym.language.training_names import OF_DATA, names_state_value, split_words

MAX_NODES = 2000  # of a loss, its assigned names written out
OF_TRAINERS = {"agg_loss", "kl_penalty", "weighted_mean"}
OF_ACTIONS = {"action", "actions", "act", "acts", "a"}


@dataclass(frozen=True)
class Reading:
    """A loss; in_grammar: is it typed in the grammar?  notes: how other spellings were read."""

    expression: Any
    in_grammar: bool = True
    notes: tuple[Message, ...] = ()


def read_loss(text: str, parameters: Iterable[str] = ()) -> Reading:
    """Read a loss in the grammar, or else in the spelling of PyTorch, JAX and NumPy.

    parameters: as in `parse`.  Raises UsageError: of the grammar for a text without foreign spelling.
    """
    names = parameters if isinstance(parameters, str) else tuple(parameters)
    try:
        return Reading(parse_asked(text, names))
    except UsageError as error:
        if len(text) > MAX_LENGTH or not text.strip():
            raise
        refusal = error
    parse_asked("1", names)  # a wrong parameter is no matter of spelling
    attempt = attempt_reading(text, names)
    if attempt.error is None:
        return Reading(attempt.expression, False, tuple(list_notes(attempt.reader)))
    refusal = attempt.error if attempt.reader.is_foreign else refusal
    spell = partial(spell_with_names, names=attempt.reader.list_unassigned_names())
    raise ask_for_all_unknown(refusal, text, names, read=find_fault, spell=spell) from None


def find_fault(text: str, parameters: Iterable[str]) -> UsageError | None:
    """Return what is wrong with pasted code, or None; raises UsageError for a name that answers use."""
    if not all(map(is_free_name, parameters)):
        raise UsageError("a parameter has a name that answers use")
    return attempt_reading(text, parameters).error


class Attempt(NamedTuple):
    """What became of the reading of pasted code: the expression, or the error."""

    reader: SpelledReader
    expression: Any = None
    error: UsageError | None = None


def attempt_reading(text: str, parameters: Iterable[str] = ()) -> Attempt:
    """Read pasted code, anew each time that names turn out to stand for values of every word."""
    of_words: frozenset[str] = frozenset()
    while True:
        reader = SpelledReader(text, parameters, of_words)
        try:
            return Attempt(reader, reader.read())
        except OfWords as error:
            of_words |= error.names
        except UsageError as error:
            return Attempt(reader, error=error)
        except (RecursionError, MemoryError):
            reader.is_foreign = True
            return Attempt(reader, error=UsageError("the loss is nested too deeply to be read"))


class SplitCall(NamedTuple):
    """A call as it is typed: the name of the function, and its arguments, of a method x.f(y) with x first."""

    name: str
    arguments: list[ast.expr]
    is_from_library: bool


class SpelledReader(WholeLossReader):
    """One pass over statements: assignments, then the loss."""

    zero, one, two = S.Zero, S.One, Integer(2)

    def __init__(self, text: str, parameters: Iterable[str], of_words: frozenset[str] = frozenset()) -> None:
        super().__init__(text, parameters, of_words)
        self.source = as_python(text)
        self.text = self.source.replace("\n", " ")
        self.is_foreign = self.source != text.strip() or is_cpp(text)
        self.assumed = list_assumed_settings(text)
        self.assigned: dict[str, int] = {}  # name -> depth
        self.sizes: dict[str, int] = {}
        self.size = self.deepest = 0
        self.modules: dict[str, ast.Call] = {}  # name of nn.KLDivLoss(..) -> its call

    # ------------------------------------------------------------------------ statements
    def read(self) -> Any:
        """Return the loss: the last expression, or the last name that is assigned."""
        self.refuse_coefficient(statements := self.parse_statements())
        targets = [find_assigned_name(statement) for statement in statements]
        value = S.Zero
        for number, statement in enumerate(statements):
            self.later = set(filter(None, targets[number:])) - self.assigned.keys()
            value = self.read_statement_or_name(statement, number == len(statements) - 1)
        unread = (error for name, error in self.unread.items() if name not in {*self.names, *self.told}
                  and names_loss(name))  # fmt: skip
        for error in unread:
            raise error
        return self.read_whole(self.choose_loss(value), statements)

    def choose_loss(self, value: Any) -> Any:
        """Return the loss of the policy, where the last line is a critic's loss, a weight or a KL to log."""
        losses = [name for name in self.assigned if name not in self.used and "loss" in split_words(name)]
        of_policy = [name for name in losses if not names_state_value(name)]
        is_logged = names_weight(self.last) or "approx" in split_words(self.last)
        if not (self.last and (is_logged or names_state_value(self.last)) and of_policy):
            return value
        self.last = of_policy[-1]
        return self.names[self.last]

    def read_statement_or_name(self, statement: ast.stmt, is_last: bool) -> Any:
        """Return the value of a statement; a name whose value is not read is read by what it says itself."""
        if isinstance(statement, ast.For | ast.While) and not is_last:
            return self.pass_over_loop(statement)
        name = find_assigned_name(statement)
        if is_last or name is None or name in self.names:
            return self.read_statement(statement, is_last)
        counts, read_as, declared = Counter(self.left_out), dict(self.read_as), dict(self.declared)
        try:
            return self.read_statement(statement, is_last)
        except UsageError as error:
            value = getattr(statement, "value", None)
            names = {x.id for x in ast.walk(value or statement) if isinstance(x, ast.Name)}
            is_told = value is not None and is_told_by_name(name, value) and self.has_unknown_call(statement)
            has_pairs = any(OF_PAIRS & {*split_words(x)} for x in names)
            self.left_out, self.read_as, self.declared = counts, read_as, declared
            self.unread[name], self.is_foreign = refuse_written(statement, self.source) or error, True
            made_of = {x for x in names if not {*split_words(x)} & OF_DATA}
            is_made_of_read = bool(made_of & (self.assigned.keys() | self.unread.keys() - self.told))
            if isinstance(value, ast.Call | ast.Subscript) and not is_made_of_read:
                self.computed_by_call.add(name)
            if is_made_of_read or not is_told or has_pairs:
                return S.Zero  # refused where it is used: its name does not say of which values it is made
            self.told.add(name)
            self.assumed += (f"{name} {BY_ITS_NAME}",) if self.has_meaning(name) else ()
            return S.Zero

    def pass_over_loop(self, loop: ast.stmt) -> Any:
        """Note what a loop computes that is not read; it is refused where it is used, or told by its name."""
        try:
            return self.read_statement(loop, is_last=False)
        except UsageError as error:
            for name in list_names_filled(loop):
                self.names.pop(name, None)
                self.assigned.pop(name, None)
                self.unread[name], self.is_foreign = error, True
                if is_told_by_loop(name, loop) and not self.holds_policy(loop):
                    self.told.add(name)
                    self.note_assumption(f"{name} {BY_ITS_NAME}")
                elif name in list_returns_filled(loop) and not self.holds_policy(loop):
                    self.assign(name, R)
                    self.note_assumption(f"{name} is R, the discounted sum of rewards from each step on")
            return S.Zero

    def parse_statements(self) -> list[ast.stmt]:
        for position, character in enumerate(self.text):
            if not (character.isascii() and character.isprintable()) or character in "\\`":
                raise self.make_error_of_character(character, position)
        try:
            tree = parse_python(self.source)
        except SyntaxError as error:
            position = self.find_position(error.lineno or 1, max((error.offset or 1) - 1, 0))
            reading = self.make_error(f"cannot be read ({error.msg})", min(position, len(self.text) - 1))
            raise UsageError(f"{reading}{suggest_statements(self.source)}") from None
        except ValueError:
            raise UsageError("the loss is nested too deeply to be read") from None
        for node in ast.walk(tree):
            if isinstance(node, ast.expr | ast.stmt):
                end = self.find_position(node.end_lineno or 1, node.end_col_offset or 0)
                node.col_offset, node.end_col_offset = self.find_position(node.lineno, node.col_offset), end
        self.is_foreign |= has_quantile(tree)
        self.selection = hold_entropies_and_selections(tree)
        self.collect_names(tree)
        if not tree.body:
            raise UsageError("an empty loss: write for example 'sg(rho)*k2'")
        unrolled = Unrolled(tree.body)
        self.reduces_samples = count_reductions(tree) > 1
        self.assumed = tuple(dict.fromkeys((*self.assumed, *unrolled.assumed)))
        if not unrolled.statements:
            self.is_foreign = True
            raise UsageError("no loss in these statements: write NAME = .., or the loss, in the last line")
        self.is_foreign |= len(tree.body) > 1 or not isinstance(tree.body[0], ast.Expr)
        return unrolled.statements

    def find_position(self, line: int, column: int) -> int:
        """Return where a place of the source stands in the text, which is one line."""
        starts = self.line_starts
        return starts[min(line, len(starts)) - 1] + column

    @property
    def line_starts(self) -> list[int]:
        if not hasattr(self, "_starts"):
            self._starts = [0, *(match.end() for match in re.finditer("\n", self.source))]
        return self._starts

    def read_statement(self, node: ast.stmt, is_last: bool) -> Any:
        """Return the value of an assignment or of the loss."""
        from klsym.language.pasted.vocabulary import names_module

        self.size, self.deepest, self.target = 0, 0, find_assigned_name(node) or ""
        if is_addition_to_itself(node) and self.is_loss_without_start(self.target):
            self.names[self.target], self.assumed = S.Zero, (*self.assumed, f"{self.target} is 0 before")
        match node:
            case ast.Assign([ast.Name(name) | ast.Attribute(ast.Name("self"), name)], ast.Call() as of) if (
                names_module(of) or names_distribution(of)
            ):
                self.last = name
                if names_module(of):
                    self.modules[name] = of
                else:
                    self.policies[name] = self.find_policy_of(of, name)
                return S.Zero
            case ast.Assign(targets, of) if all(isinstance(target, ast.Name) for target in targets):
                value = self.build(of, 0)
                for target in targets:
                    self.assign(target.id, value, of)  # type: ignore[attr-defined]
                return value
            case ast.Assign([ast.Attribute(ast.Name("self"), name)], of):  # later lines read self.NAME
                value = self.build(of, 0)
                self.assign(name, value, of)
                return value
            case ast.AugAssign(ast.Name(name), operator, of) if type(operator) in OPERATORS:
                start = self.build(ast.copy_location(ast.Name(name), node), 1)
                value = self.apply_operator(operator, start, self.build(of, 1), of)
                self.assign(name, value, of)
                return value
            case ast.Expr(of) | ast.Return(of) if is_last and of is not None:
                self.last = ""
                return self.build(of, 0)
            case ast.Expr(of):
                raise self.make_error_at(
                    "a formula that is not used: each line but the last needs NAME =", of
                )
        reason = "only NAME = ... and the loss are read, one a line"
        error = self.make_error(f"a statement that is not read ({reason})", node.col_offset)
        is_block = isinstance(node, BLOCKS)
        raise UsageError(f"{error}{ask_for_lines(ast.unparse(node).split(chr(10))[0]) if is_block else ''}")

    def has_unknown_call(self, statement: ast.stmt) -> bool:
        """Does it call what klsym does not know, or use what it could not read?"""
        names = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
        unknown = list_unknown_calls(statement)
        is_of_library = all({*list_chain(call.func)[:1]} & LIBRARIES for call in unknown)
        is_access = any(isinstance(x, ast.Call | ast.Subscript | ast.Attribute) for x in ast.walk(statement))
        return bool(names & self.unread.keys() and is_access) or not is_of_library

    def is_loss_without_start(self, name: str) -> bool:
        """Is it a loss to which terms are added, and of which the text has no beginning?"""
        is_loss = bool({*split_words(name)} & {"loss", "losses", "cost", "objective"})
        return name not in self.names and not self.has_meaning(name) and is_loss

    def assign(self, name: str, value: Any, *trees: ast.expr) -> None:
        """Give a name its value, with which later lines are read."""
        self.trees.setdefault(name, []).extend(trees)
        if len(name) > SHOWN:
            raise UsageError(f"a name of more than {SHOWN} characters: {name[:SHOWN]!r}")
        self.names[name] = recognise(value)
        self.assigned[name], self.sizes[name], self.last = self.deepest, self.size, name
        self.used.discard(name)

    # ------------------------------------------------------------------------ expressions
    def build(self, node: ast.expr, depth: int) -> Any:
        self.count(1, depth, node)
        match node:
            case ast.Name(name) if name in self.assigned:
                self.count(self.sizes[name], depth + self.assigned[name], node)
                self.used.add(name)
                return self.names[name]
            case ast.Call(ast.Name(name), _, []) if name in OF_GRAMMAR:
                return super().build(node, depth)
            case ast.Call():
                return self.build_foreign_call(node, depth)
            case ast.Attribute(of, name) if name == "data" and self.split_chain(node) is None:
                self.is_foreign = True
                return self.call_function("sg", [self.build(of, depth + 1)], node)
            case ast.Attribute() | ast.Subscript():
                return self.read_attribute(node)
            case ast.Compare() | ast.UnaryOp(ast.Invert()) if names_mask(node):
                self.note_assumption(f"{ast.unparse(node)[:SHOWN]} is the mask of padding")
                return MASK
            case ast.IfExp(ast.Compare(of, [ast.Is()], [ast.Constant(None)]), _, value):
                self.note_assumption(f"{ast.unparse(of)[:SHOWN]} is given")
                return self.build(value, depth + 1)
            case ast.IfExp(condition, value, _) if setting := find_setting(f"if {ast.unparse(condition)}:"):
                self.is_foreign, self.assumed = True, (*self.assumed, setting)
                return self.build(value, depth + 1)
        return super().build(node, depth)

    def count(self, nodes: int, depth: int, node: ast.expr) -> None:
        self.size, self.deepest = self.size + nodes, max(self.deepest, depth)
        if depth > MAX_DEPTH:
            raise self.make_error_at(f"nested more than {MAX_DEPTH} deep", node)
        if self.size > MAX_NODES:
            raise self.make_error_at(
                f"more than {MAX_NODES} operations, the assigned names written out", node
            )

    def build_condition(self, node: ast.expr, depth: int) -> Any:
        self.count(1, depth, node)
        while names_mask(node) and isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            node = node.func.value  # mask.bool()
        if names_mask(node):
            return self.build(node, depth)
        return super().build_condition(node, depth)

    def build_foreign_call(self, node: ast.Call, depth: int) -> Any:
        """Return the value of a function of a library, or of a method: x.exp() is exp(x)."""
        from klsym.language.pasted.vocabulary import is_divergence_of_softmax, name_called, unfold_module

        if is_divergence_of_softmax(node) and name_called(node) not in self.modules:
            self.note_assumption(f"{ast.unparse(node.func)[:SHOWN]} is nn.KLDivLoss(reduction='batchmean')")
        node = unfold_module(node, self.modules)
        name, arguments, is_from_library = call = self.split_call(node)
        if name in OF_DISTRIBUTIONS and not is_from_library and isinstance(node.func, ast.Attribute):
            return self.read_method_of_policy(name, node.func.value, node)
        is_of_mask = name in ("bool", "int", "long") and bool(arguments) and names_mask(arguments[0])
        if (name in IDENTITY_METHODS or is_of_mask) and isinstance(node.func, ast.Attribute) and arguments:
            self.is_foreign = True
            self.left_out[name] += 1
            receiver = arguments[0]
            return (
                self.build_condition(receiver, depth + 1)
                if is_condition(receiver)
                else self.build(receiver, depth + 1)
            )
        return self.build_library_call(call, node, depth)

    def build_library_call(self, split: SplitCall, node: ast.Call, depth: int) -> Any:
        """Return the value of a function that klsym knows; raises UsageError for any other."""
        from klsym.language.pasted.calls import Call, bind_arguments
        from klsym.language.pasted.vocabulary import suggest_instead

        name, arguments, is_from_library = split
        call = CALLS.get(name) or CALLS.get(name.lower())
        words = {word for x in node.args for one in list_words_typed(x) for word in split_words(one)}
        if call is None and self.names_critics_value(name, words):
            is_told = names_state_value(name) and names_action_value(self.target)  # q = critic(state)
            return self.read_usual_name(f"{name}()", self.target if is_told else name, node)
        if call is None:
            instead = suggest_instead(name)
            if isinstance(node.func, ast.Name) and not instead:
                return super().build(node, depth)  # refuses it
            self.is_foreign |= is_from_library or bool(instead)
            reason = f"{name[:SHOWN]}(..) is not part of the loss grammar, and is not read"
            raise self.make_error_with_hint(reason, instead, node)
        self.is_foreign = True
        typed = Call(name, arguments, node, isinstance(node.func, ast.Attribute) and not is_from_library)
        bound = bind_arguments(self, call, typed)
        try:
            return self.check_size(call.build(self, typed, bound, depth + 1), node)
        except Misplaced as error:
            raise self.make_error_with_hint(error.reason, f": {error.hint}", node) from None

    def names_critics_value(self, name: str, words: set[str]) -> bool:
        """Is it a function that gives the value of a state, or of an action?  words: of its arguments."""
        if names_state_value(name):
            return not words & (OF_ACTIONS | {"next"})
        return names_action_value(name) and self.names_density() and "next" not in words

    def split_call(self, node: ast.Call) -> SplitCall:
        match node.func:
            case ast.Name(name):
                return SplitCall(name, node.args, is_from_library=False)
            case ast.Attribute(of, name):
                chain = self.split_chain(of)
                is_module = chain == ["self"] and name.lower() in CALLS  # self.MseLoss(x, y)
                is_module |= name.startswith("masked_") or name in OF_TRAINERS  # core_algos.agg_loss(x, mask)
                if chain is not None and (chain[0] in LIBRARIES or is_module):
                    return SplitCall(name, node.args, is_from_library=True)
                return SplitCall(name, [of, *node.args], is_from_library=False)
        raise self.make_error_at("this call is not part of the loss grammar", node)
