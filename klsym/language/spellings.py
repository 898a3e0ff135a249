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
from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import Any, NamedTuple

from sympy import Integer, S

from klsym.errors import UsageError, spell_option
from klsym.language.expressions import DENSITIES, REWARDS, log_q
from klsym.language.library_calls import FUNCTIONS as CALLS
from klsym.language.library_calls import (
    Call,
    bind_arguments,
    names_kl_module,
    suggest_instead,
    unfold_module,
)
from klsym.language.messages import Message
from klsym.language.parser import (
    FUNCTIONS,
    MAX_DEPTH,
    MAX_LENGTH,
    OF_DENSITIES,
    OPERATORS,
    SHOWN,
    parse_asked,
    parse_python,
)
from klsym.language.pasted_text import (
    as_python,
    find_assigned_name,
    find_setting,
    is_condition,
    list_assumed_settings,
    suggest_statements,
)
from klsym.language.recognition import leave_out_floors, name_floors, recognise
from klsym.language.reductions import (
    KEPT,
    LOGITS,
    WORDS,
    Mean,
    Misplaced,
    Std,
    TokenSums,
    divide_by_std,
    flatten,
    has_words,
    is_small,
    reduce_to_mean,
    subtract_mean,
    sum_over_words,
    take_over_tokens,
)
from klsym.language.sums import Centred
from klsym.language.usual_names import LIBRARIES, OF_DISTRIBUTIONS, NameReader
from klsym.records import record

MAX_NODES = 2000  # of a loss, its assigned names written out
OF_GRAMMAR = {*FUNCTIONS, *OF_DENSITIES, "where"}
FLOORED = {"min", "max", "clip"}  # functions that bound a value
NO_VALUE = {  # methods that change no value
    "unsqueeze", "squeeze", "float", "contiguous", "clone", "view", "reshape", "flatten", "repeat_interleave",
    "expand", "expand_as", "to", "double", "half", "bfloat16",
}  # fmt: skip


@record
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
    reader = SpelledReader(text, names)
    try:
        expression = reader.read()
    except UsageError:
        if reader.is_foreign:
            raise
        raise refusal from None
    except (RecursionError, MemoryError):
        raise UsageError("the loss is nested too deeply to be read") from None
    return Reading(expression, False, tuple(reader.list_notes()))


class SplitCall(NamedTuple):
    """A call as it is typed: the name of the function, and its arguments, of a method x.f(y) with x first."""

    name: str
    arguments: list[ast.expr]
    is_from_library: bool


class SpelledReader(NameReader):
    """One pass over statements: assignments, then the loss."""

    zero, one, two = S.Zero, S.One, Integer(2)

    def __init__(self, text: str, parameters: Iterable[str]) -> None:
        super().__init__(text, parameters)
        self.source = as_python(text)
        self.text = self.source.replace("\n", " ")
        self.is_foreign = self.source != text.strip()
        self.assumed = list_assumed_settings(text)
        self.assigned: dict[str, int] = {}  # name -> depth
        self.sizes: dict[str, int] = {}
        self.left_out: Counter[str] = Counter()  # means, and methods that change no value
        self.mean_names: dict[Any, str] = {}
        self.centred: dict[Any, None] = {}  # x of each x - x.mean()
        self.divides_by_std = False
        self.std_guard: Fraction | str = ""  # 1e-4 of R.std() + 1e-4, or its name
        self.axes: dict[Any, str] = {}  # mean or standard deviation -> its axis as typed, "" for all
        self.size = self.deepest = 0
        self.last, self.factor = "", S.One
        self.floors: dict[Any, Any] = {}  # probability -> the bound below it that is left out
        self.modules: dict[str, list[ast.keyword]] = {}  # name of nn.KLDivLoss(..) -> its arguments
        self.token_sums = TokenSums()
        self.counts_samples = False  # by len(..)
        self.gathers = False  # is a value of every word read at the drawn word?
        self.sums_tokens = False  # is a mean or a sum read as one over the tokens of a sequence?

    # ------------------------------------------------------------------------ statements
    def read(self) -> Any:
        """Return the loss: the last expression, or the last name that is assigned."""
        statements = self.parse_statements()
        targets = [find_assigned_name(statement) for statement in statements]
        value = S.Zero
        for number, statement in enumerate(statements):
            self.later = set(filter(None, targets[number:])) - self.assigned.keys()
            value = self.read_statement(statement, number == len(statements) - 1)
        self.refuse_logits(value)
        try:
            flat = flatten(sum_over_words(value) / WORDS if has_words(value) else value)
        except Misplaced as error:
            raise UsageError(f"{error.reason} in {self.text[:SHOWN]!r}: {error.hint}") from None
        self.factor = flat.factor
        self.refuse_two_names()
        self.refuse_count_of_samples()
        self.refuse_probability_factor(flat.loss)
        return recognise(flat.loss)

    def refuse_count_of_samples(self) -> None:
        """Refuse len(..) beside a sum over the tokens of each sample, which is not their number."""
        if self.counts_samples and self.sums_tokens and any(self.axes.values()):
            reason = f"len(..) counts samples in {self.text[:SHOWN]!r}, and a sum is over an axis"
            raise UsageError(f"{reason}: divide by mask.sum(-1), or by T for the length of a sequence")

    def refuse_logits(self, value: Any) -> None:
        """Refuse logits outside softmax, and two temperatures."""
        if value.has(*LOGITS.values()):
            raise UsageError(f"logits outside softmax in {self.text[:SHOWN]!r}: type log_softmax(logits)")
        if len(self.temperatures) > 1:
            both = " and ".join(repr(logits[:SHOWN]) for logits in [*self.temperatures.values()][:2])
            both += " have different temperatures"
            raise UsageError(f"{both}: klsym reads policies at one temperature, such as q and p at T")

    def parse_statements(self) -> list[ast.stmt]:
        for position, character in enumerate(self.text):
            if not (character.isascii() and character.isprintable()) or character in "\\`":
                raise self.make_error(f"unexpected {character!r}", position)
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
        self.collect_names(tree)
        if not tree.body:
            raise UsageError("an empty loss: write for example 'sg(rho)*k2'")
        self.is_foreign |= len(tree.body) > 1 or not isinstance(tree.body[0], ast.Expr)
        return tree.body

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
        self.size, self.deepest, self.target = 0, 0, find_assigned_name(node) or ""
        match node:
            case ast.Assign([ast.Name(name)], ast.Call(_, [], keywords) as of) if names_kl_module(of):
                self.modules[name], self.last = keywords, name
                return S.Zero
            case ast.Assign(targets, of) if all(isinstance(target, ast.Name) for target in targets):
                value = self.build(of, 0)
                for target in targets:
                    self.assign(target.id, value)  # type: ignore[attr-defined]
                return value
            case ast.Assign([ast.Attribute(ast.Name("self"), name)], of):  # later lines read self.NAME
                value = self.build(of, 0)
                self.assign(name, value)
                return value
            case ast.AugAssign(ast.Name(name), operator, of) if type(operator) in OPERATORS:
                start = self.build(ast.copy_location(ast.Name(name), node), 1)
                value = self.apply_operator(operator, start, self.build(of, 1), of)
                self.assign(name, value)
                return value
            case ast.Expr(of) | ast.Return(of) if is_last and of is not None:
                self.last = ""
                return self.build(of, 0)
            case ast.Expr(of):
                raise self.make_error_at(
                    "a formula that is not used: each line but the last needs NAME =", of
                )
        reason = "only NAME = ... and the loss are read, one a line"
        raise self.make_error(f"a statement that is not read ({reason})", node.col_offset)

    def assign(self, name: str, value: Any) -> None:
        """Give a name its value, with which later lines are read."""
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
        return super().build_condition(node, depth)

    def build_foreign_call(self, node: ast.Call, depth: int) -> Any:
        """Return the value of a function of a library, or of a method: x.exp() is exp(x)."""
        node = unfold_module(node, self.modules)
        name, arguments, is_from_library = self.split_call(node)
        if name in OF_DISTRIBUTIONS and not is_from_library and isinstance(node.func, ast.Attribute):
            return self.read_method_of_policy(name, node.func.value, node)
        if name in NO_VALUE and not is_from_library and isinstance(node.func, ast.Attribute):
            self.is_foreign = True
            self.left_out[name] += 1
            receiver = node.func.value
            return (
                self.build_condition(receiver, depth + 1)
                if is_condition(receiver)
                else self.build(receiver, depth + 1)
            )
        call = CALLS.get(name)
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

    def split_call(self, node: ast.Call) -> SplitCall:
        match node.func:
            case ast.Name(name):
                return SplitCall(name, node.args, is_from_library=False)
            case ast.Attribute(of, name):
                chain = self.split_chain(of)
                if chain is not None and (chain[0] in LIBRARIES or name.startswith("masked_")):
                    return SplitCall(name, node.args, is_from_library=True)
                return SplitCall(name, [of, *node.args], is_from_library=False)
        raise self.make_error_at("this call is not part of the loss grammar", node)

    # ------------------------------------------------------------------------ values
    def apply_operator(self, operator: ast.operator, left: Any, right: Any, node: ast.expr) -> Any:
        if isinstance(operator, ast.Add) and KEPT in (left, right) and (left.is_number or right.is_number):
            return KEPT  # mask.sum() + 1e-8
        if isinstance(operator, ast.Add) and isinstance(left, Std) and is_small(right):
            self.std_guard = Fraction(int(right.p), int(right.q)) if right.is_number else str(right)
            return left  # R.std() + 1e-8
        if isinstance(operator, ast.Sub) and isinstance(right, Mean):
            return self.subtract_mean(left, right, node)
        if isinstance(operator, ast.Mult):
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

    def sum_beside_reward(self, x: Any, factor: Any) -> Any:
        """Return x with the means and sums of log-probabilities over tokens, if a reward multiplies them."""
        is_alone = x.as_independent(Mean, as_Add=False)[1] == Mean(log_q)
        is_of_sequence = is_alone and factor.has(*REWARDS) and not factor.has(*DENSITIES, Mean)
        over_tokens = take_over_tokens(x) if is_of_sequence else x
        self.sums_tokens |= over_tokens != x
        return over_tokens

    def subtract_mean(self, x: Any, mean: Any, node: ast.expr) -> Any:
        """Return centred(x) for x - x.mean(), which leaves out no mean."""
        difference = subtract_mean(x, mean)
        if difference == x:  # centred already
            self.refuse_two_axes(Mean(*x.args), mean, node)
        elif isinstance(difference, Centred):
            self.centred[x] = None
        else:
            return difference
        self.left_out[self.mean_names[mean]] -= 1
        return difference

    def call_function(self, name: str, arguments: list[Any], node: ast.expr) -> Any:
        if KEPT in arguments and all(item == KEPT or item.is_number for item in arguments):
            return KEPT  # mask.sum().clamp(min=1)
        if name == "exp" and (over_tokens := [take_over_tokens(x) for x in arguments]) != arguments:
            self.sums_tokens, arguments = True, over_tokens
        value = super().call_function(name, arguments, node)
        if name not in FLOORED:
            return value
        value, floors = leave_out_floors(value)
        self.floors |= {x: max(floor, self.floors.get(x, floor)) for x, floor in floors.items()}
        return value

    def reduce_to_mean(self, kind: str, value: Any, name: str, over_axis: bool = False) -> Any:
        self.refuse_probability_factor(value, is_summed=kind == "sum")
        self.left_out[name] += not (over_axis and has_words(value))
        mean = reduce_to_mean(kind, value, over_axis)
        self.mean_names[mean] = name
        return mean

    # ------------------------------------------------------------------------ notes
    def list_notes(self) -> Iterator[Message]:
        """Yield what was read as what, and what was left out."""
        yield from self.list_names_read()
        if temperature := "".join(self.temperatures):
            yield Message("temperature-read", temperature=temperature)
        if self.assumed:
            yield Message("settings-assumed", conditions=self.assumed)
        if self.floors:
            yield Message("floors-left-out", floors=name_floors(self.floors))
        left_out = [name for name, count in self.left_out.items() if count]
        averages = tuple(name for name in left_out if name not in NO_VALUE)
        if self.centred:
            names = tuple(map(str, self.centred))
            yield Message("batch-mean-read", names=names, divided=self.divides_by_std, guard=self.std_guard)
        if self.sums_tokens:
            yield Message("over-tokens")
        elif averages:
            yield Message("averages-left-out", names=averages)
        aggregate = "" if self.sums_tokens else self.token_sums.find_aggregate(self.factor)
        if averages and aggregate:
            yield Message("tokens-added-up", aggregate=aggregate)
        if unchanged := tuple(name for name in left_out if name in NO_VALUE):
            yield Message("calls-left-out", names=unchanged)
        if self.factor != 1 and not aggregate:
            yield Message("factor-left-out", factor=str(self.factor))
        if unused := tuple(name for name in self.assigned if name not in self.used and name != self.last):
            yield Message("names-unused", names=unused, loss=self.last)
