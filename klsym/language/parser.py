"""Text to expression by a whitelist; nothing that is typed is ever evaluated.

Python's `ast` gives the tree; only names, exact numbers, + - * / ** and a few functions are read, and
each is built from `klsym.language.expressions`.  Decimals are exact, and size and depth are bounded.

>>> parse("sg(rho) * k2 + 0.1")
k2*sg(rho) + 1/10
>>> parse("k1 + kk")  # doctest: +ELLIPSIS
Traceback (most recent call last):
klsym.errors.UsageError: unknown name 'kk' at character 6 of 'k1 + kk' (known: ...)
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Mapping
from keyword import iskeyword
from typing import Any

from sympy import Abs, Max, Min, Mul, Pow, Rational, exp, log, sqrt

from klsym.errors import UsageError, spell_option, suggest_nearest
from klsym.kernel.names import PROBABILITIES, is_declarable
from klsym.language.defined import OF_CONSTANTS, OF_FULL, OF_LOGS
from klsym.language.expressions import (
    ATOMS,
    COUNTS,
    OF_REGIONS,
    PARAMETERS,
    above,
    clip,
    k,
    parameter,
    sg,
    where,
)
from klsym.language.named_losses import list_names
from klsym.language.pasted.asked_names import ask_for_value, names_token_advantage, suggest_for_function
from klsym.language.pasted.text import parse_python, suggest_statements
from klsym.language.recognition import is_indicator
from klsym.language.sums import (
    DENSITIES,
    After,
    Before,
    Centred,
    Here,
    LeftOut,
    Normalised,
    OfOthers,
    OverBatch,
    OverVocabulary,
    Relative,
    Scaled,
    Whole,
    build_advantage_estimate,
    build_entropy,
    build_jensen_shannon,
    centre_again,
    full_kl,
    has_logarithm,
    seqmean,
    sum_discounted,
    sum_group,
    togo,
)
from klsym.language.training_names import find_meaning, find_policy_named, names_temperature

MAX_LENGTH = 20_000  # characters
MAX_DEPTH = 60  # nested operations
MAX_POWER = 64
MAX_EXP = 1000  # of a plain number, as in exp(2)
MAX_BITS = 4096  # of a number
SHOWN = 60  # characters of a name in a message
MAX_DIGITS = 1000  # of a number as it is written; fewer than MAX_BITS allow
NUMBER = re.compile(r"\d+(\.\d*)?([eE][+-]?\d{1,3})?|\.\d+([eE][+-]?\d{1,3})?")
PARAMETER = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,31}")
OF_NEITHER = "a parameter depends on neither the sample nor theta"
OTHER_WORDS = ("full_kl", "js", "s", "w", "o")
OF_ANSWERS = frozenset({"b", "c", "e", "f", "h", "std", "K", "P", "Phi"})  # as in r <= e


def is_of_answers(name: str) -> bool:
    """Is it a name that answers use?

    >>> is_of_answers("h"), is_of_answers("is_high"), is_of_answers("hi")
    (True, True, False)
    """
    return name in OF_ANSWERS or name.startswith((OF_REGIONS, OF_LOGS, OF_CONSTANTS, OF_FULL))


def is_free_name(name: str) -> bool:
    """May a parameter have this name, which neither the grammar nor answers use?"""
    taken = name in ATOMS or name in (*FUNCTIONS, *OTHER_WORDS) or is_of_answers(name)
    return bool(PARAMETER.fullmatch(name)) and not taken and is_declarable(name)


def parse(text: str, parameters: Iterable[str] = (), others: Mapping[str, Any] | None = None) -> Any:
    """Read a loss; raises UsageError that points at the character that is wrong.

    parameters: names declared beside lam, beta, eps, alpha, n, T.  others: further names and their
    values, such as rho_now in a printed formula.
    """
    return Reader(text, parameters, others or {}).read()


def parse_asked(text: str, parameters: Iterable[str] = ()) -> Any:
    """Return what `parse` returns, where no parameter has a name that answers use."""
    names = parameters if isinstance(parameters, str) else tuple(parameters)
    expression = parse(text, names)
    for name in names:
        if not is_free_name(name):
            raise UsageError(f"parameter {name!r}: a new plain name expected: answers use it; type {name}1")
        if advice := ask_for_value(name):
            raise UsageError(f"parameter {name!r}: {OF_NEITHER}; {advice}")
    return expression


class Reader:
    """One pass over one text; `klsym.language.spellings` adds PyTorch, JAX and NumPy."""

    def __init__(self, text: str, parameters: Iterable[str], others: Mapping[str, Any]) -> None:
        self.text, self.lead = text, 0
        self.names = dict(ATOMS) | {name: parameter(name) for name in PARAMETERS} | dict(others)
        if isinstance(parameters, str):
            raise UsageError("parameters: a list of names expected")
        for name in parameters:
            plain = isinstance(name, str) and PARAMETER.fullmatch(name) and not iskeyword(name)
            if not plain or name in ATOMS or name in (*FUNCTIONS, *OTHER_WORDS):
                raise UsageError(f"parameter {str(name)[:40]!r}: a new plain name expected")
            meant = find_meaning(name)
            if meant:
                raise UsageError(f"parameter {name!r}: {OF_NEITHER}; write {meant}")
            self.names[name] = parameter(name)
        self.known = tuple(self.names)

    def read(self) -> Any:
        if not self.text.strip():
            raise UsageError("an empty loss: write for example 'sg(rho)*k2'")
        if len(self.text) > MAX_LENGTH:
            raise UsageError(f"the loss has {len(self.text)} characters, the limit is {MAX_LENGTH}")
        for position, character in enumerate(self.text):
            if not (character.isascii() and (character.isprintable())) or character in "#;\\'\"`":
                raise self.make_error_of_character(character, position)
        lead = len(self.text) - len(self.text.lstrip())
        try:
            tree = parse_python(self.text.strip(), mode="eval")
        except SyntaxError as error:
            open_end = self.text.rstrip()[-1] in "+-*/(,"
            end = len(self.text.rstrip()) + 1 if open_end else 1
            position = (lead + error.offset if error.offset else end) - 1
            reading = self.make_error(f"cannot be read ({error.msg})", position)
            raise UsageError(f"{reading}{suggest_statements(self.text)}") from None
        except (RecursionError, MemoryError, ValueError):
            raise UsageError("the loss is nested too deeply to be read") from None
        self.lead = lead
        return self.build(tree.body, 0)

    def make_error(self, reason: str, position: int) -> UsageError:
        excerpt = self.text if len(self.text) <= 60 else self.text[max(0, position - 25) :][:50]
        return UsageError(f"{reason} at character {position + 1} of {excerpt!r}")

    def make_error_of_character(self, character: str, position: int) -> UsageError:
        hint = ": type the formula without LaTeX, as in log_q - log_p" if character == "\\" else ""
        return UsageError(f"{self.make_error(f'unexpected {character!r}', position)}{hint}")

    def make_error_at(self, reason: str, node: ast.expr) -> UsageError:
        return self.make_error(reason, self.lead + node.col_offset)

    def build(self, node: ast.expr, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise self.make_error_at(f"nested more than {MAX_DEPTH} deep", node)
        match node:
            case ast.Constant():
                return self.read_number(node)
            case ast.Name(name):
                return self.read_name(name, node)
            case ast.UnaryOp(ast.USub() | ast.UAdd() as sign, operand):
                value = self.build(operand, depth + 1)
                return -value if isinstance(sign, ast.USub) else value
            case ast.BinOp(_, operator, _) if type(operator) in OPERATORS:
                return self.build_chain(node, depth)
            case ast.Compare() | ast.BoolOp() | ast.UnaryOp(ast.Not() | ast.Invert()):
                return self.build_condition(node, depth)
            case ast.List([ast.Compare() | ast.BoolOp() | ast.UnaryOp(ast.Not() | ast.Invert()) as one]):
                return self.build_condition(one, depth)  # [rho < 2] of a paper
            case ast.BinOp(_, ast.BitAnd() | ast.BitOr()):
                return self.build_condition(node, depth)
            case ast.Call(ast.Name("where"), [when, one, other], []):
                condition = self.build_condition(when, depth + 1)
                values = (self.build(item, depth + 1) for item in (one, other))
                return self.check_size(where(condition, *values), node)
            case ast.Call(ast.Name("js"), [first, second, strength], []):
                a, b = self.read_policies("js", [first, second], node)
                return build_jensen_shannon(a, b, self.read_strength(strength, depth))
            case ast.Call(ast.Name(name), arguments, []) if name in OF_DENSITIES:
                return OF_DENSITIES[name][0](*self.read_policies(name, arguments, node))
            case ast.Call(ast.Name(name), arguments, []) if name in FUNCTIONS:
                return self.call_function(name, [self.build(item, depth + 1) for item in arguments], node)
            case ast.Call(ast.Name(name)) if name not in FUNCTIONS:
                known = " ".join(sorted({*FUNCTIONS, *OF_DENSITIES}, key=str.lower))
                reason = f"unknown function {name[:SHOWN]!r} (known: {known})"
                raise self.make_error_with_hint(reason, suggest_for_function(name), node)
            case ast.Call(ast.Attribute()):
                raise self.make_error_at(f"{FOREIGN[ast.Attribute]} is not part of the loss grammar", node)
        if isinstance(node, ast.BinOp):
            raise self.make_operator_error(node)
        raise self.make_error_at(f"{FOREIGN.get(type(node), 'this')} is not part of the loss grammar", node)

    def build_condition(self, node: ast.expr, depth: int) -> Any:
        """Return 1 where a comparison holds and 0 elsewhere; detached, as what is chosen has slope 0."""
        if depth > MAX_DEPTH:
            raise self.make_error_at(f"nested more than {MAX_DEPTH} deep", node)
        match node:
            case ast.Compare(first, signs, others) if all(type(sign) in COMPARISONS for sign in signs):
                values = [self.build(item, depth + 1) for item in (first, *others)]
                links = zip(signs, values, values[1:], strict=False)
                return Mul(*(COMPARISONS[type(sign)](a, b) for sign, a, b in links))
            case ast.Name() if is_indicator(value := self.build(node, depth + 1)):
                return value
            case ast.UnaryOp(ast.Not() | ast.Invert(), of):
                return 1 - self.build_condition(of, depth + 1)
            case ast.BoolOp(sign, of):
                conditions = [self.build_condition(item, depth + 1) for item in of]
            case ast.BinOp(one, ast.BitAnd() | ast.BitOr() as sign, other):
                conditions = [self.build_condition(item, depth + 1) for item in (one, other)]
            case _:
                raise self.make_error_at(f"{NO_COMPARISON}: a comparison such as rho > 2 expected", node)
        if isinstance(sign, ast.And | ast.BitAnd):
            return Mul(*conditions)
        return 1 - Mul(*(1 - item for item in conditions))

    def make_operator_error(self, node: ast.BinOp) -> UsageError:
        position = self.lead + (node.left.end_col_offset or 0)
        while self.text[position] in " )":
            position += 1
        sign = self.text[position : position + 2].rstrip("0123456789 (")
        hint = "; powers are written **" if sign == "^" else ""
        return self.make_error(f"the operator {sign} is not part of the loss grammar{hint}", position)

    def build_chain(self, node: ast.BinOp, depth: int) -> Any:
        """Return a + b + c + ..., a left-deep tree: walked in a loop, so that long sums are not deep."""
        links: list[ast.BinOp] = []
        first: ast.expr = node
        while isinstance(first, ast.BinOp) and type(first.op) in OPERATORS:
            links.append(first)
            first = first.left
        total = self.build(first, depth + 1)
        for link in reversed(links):
            right = self.build(link.right, depth + 1)
            total = self.check_size(self.apply_operator(link.op, total, right, link), link)
        return total

    def read_number(self, node: ast.Constant) -> Any:
        start = self.lead + node.col_offset
        source = self.text[start : self.lead + (node.end_col_offset or 0)]
        if not NUMBER.fullmatch(source):
            raise self.make_error_at(f"{source[:20]!r} is no number", node)
        if len(source) > MAX_DIGITS:
            raise self.make_error_at(f"a number of more than {MAX_DIGITS} characters", node)
        return self.check_size(Rational(source), node)

    def read_name(self, name: str, node: ast.expr) -> Any:
        if name not in self.names:
            raise self.make_unknown(name, self.suggest_name(name), node)
        return self.names[name]

    def suggest_name(self, name: str) -> str:
        if name in (*FUNCTIONS, *OF_DENSITIES):
            return f" ({name} is a function)"
        if name in PROBABILITIES:
            return f": write log_{name} for the log density"
        if find_meaning(name):
            return f": write {find_meaning(name)}"
        if log := find_policy_named(name):
            return f": of a policy, type {log} for the log-probability or exp({log}) for the probability"
        if name in list_names():
            return f": write its formula, which klsym examples {name} shows"
        names = " ".join(sorted(self.known, key=str.lower))
        nearest, declare = suggest_nearest(name, (*self.known, *list_names())), ""
        if ask_for_value(name):
            near = "" if names_temperature(name) or names_token_advantage(name) else nearest
            return f"{near}: {ask_for_value(name)}"
        if is_free_name(name):
            number = f"for a number write {spell_option('param', name)}"
            declare = f"; {number}, else what it is, such as `{name} = logp; ...` or `{name} = R; ...`"
        elif is_free_name(f"{name}1"):
            number = f"with {spell_option('param', f'{name}1')} for a number"
            value = f"else what it is, such as `{name}1 = logp; ...` or `{name}1 = R; ...`"
            declare = f"; answers use {name}: type {name}1 in its place, {number}, {value}"
        return f"{nearest} (known: {names}{declare})"

    def make_error_with_hint(self, reason: str, hint: str, node: ast.expr) -> UsageError:
        return UsageError(str(self.make_error_at(reason, node)) + hint)

    def make_unknown(self, name: str, hint: str, node: ast.expr, typed: str = "") -> UsageError:
        """Return the error of a name that has no meaning; typed: as in self.name."""
        error = self.make_error_with_hint(f"unknown name {(typed or name)[:SHOWN]!r}", hint, node)
        error.unknown = name
        return error

    def check_size(self, value: Any, node: ast.expr) -> Any:
        if value.is_Rational and max(abs(value.p), value.q).bit_length() > MAX_BITS:
            raise self.make_error_at("a number too large", node)
        for power in value.atoms(Pow):
            if power.exp.is_Rational and abs(power.exp) > MAX_POWER:
                raise self.make_error_at(f"a power beyond {MAX_POWER}", node)
        for inner in value.atoms(exp):
            x = inner.args[0]
            nested = any(y.args[0].is_number for y in x.atoms(exp))
            if nested or (x.is_number and not (x.is_Rational and abs(x) <= MAX_EXP)):
                raise self.make_error_at(f"exp of a number beyond {MAX_EXP}", node)
        return value

    def apply_operator(self, operator: ast.operator, left: Any, right: Any, node: ast.expr) -> Any:
        if isinstance(operator, ast.Div) and right.is_zero:
            raise self.make_error_at("division by zero", node)
        if isinstance(operator, ast.Pow):
            return self.build_power(left, right, node)
        return OPERATORS[type(operator)](left, right)

    def build_power(self, base: Any, exponent: Any, node: ast.expr) -> Any:
        if exponent.is_Rational and abs(exponent) > MAX_POWER:
            raise self.make_error_at(f"a power beyond {MAX_POWER}", node)
        if base.is_zero and (exponent.is_negative or not exponent.is_Rational):
            raise self.make_error_at("division by zero", node)
        bits = max(abs(base.p), base.q).bit_length() if base.is_Rational else 0
        if bits and exponent.is_Rational and bits * abs(exponent) > MAX_BITS:
            raise self.make_error_at("a number too large", node)
        if not exponent.is_Integer and not base.is_nonnegative:
            raise self.make_error_at(f"a fractional power of {base}, which may be negative", node)
        return base**exponent

    def call_function(self, name: str, arguments: list[Any], node: ast.expr) -> Any:
        function, count = FUNCTIONS[name]
        if len(arguments) not in count:
            upper = " or more" if len(arguments) < min(count) else f" to {max(count)}"
            wanted = f"{min(count)}" + (upper if len(count) > 1 else "")
            plural = "" if wanted == "1" else "s"
            raise self.make_error_at(f"{name} takes {wanted} argument{plural}, got {len(arguments)}", node)
        x = arguments[0]
        if name == "gae" and not all(g.is_Rational and 0 <= g <= 1 for g in arguments):
            raise self.make_error_at(
                "gae(lam, g) takes numbers from 0 to 1: lam, and the discount g, which is 1", node
            )
        if name == "disc" and not (x.is_Rational and 0 < x < 1):
            raise self.make_error_at(
                "disc(g, x) takes a number g between 0 and 1, the discount of one token", node
            )
        if name in (Centred.name, Normalised.name) and isinstance(x, Centred | Normalised):
            return centre_again(x, divided=name == Normalised.name)
        if name in (*OF_TOKENS, *OF_SAMPLES):
            self.refuse_sums_of_samples(name, x, node)
        if name == "log" and not has_logarithm(x):
            raise self.make_error_at(f"log of {x}, which need not be positive", node)
        if name == "sqrt" and not x.is_nonnegative:
            raise self.make_error_at(f"sqrt of {x}, which may be negative", node)
        if name in EXPONENTIALS and x.is_number and not (x.is_Rational and abs(x) <= MAX_EXP):
            raise self.make_error_at(f"{name} of a number beyond {MAX_EXP}", node)
        if name == "clip" and all(item.is_number for item in arguments[1:]) and arguments[1] > arguments[2]:
            raise self.make_error_at("clip with lo above hi", node)
        return self.check_size(function(*arguments), node)

    def read_policies(self, name: str, arguments: list[ast.expr], node: ast.expr) -> list[str]:
        """Return the names of policies: full_kl(q, p), H(q)."""
        policies = [item.id for item in arguments if isinstance(item, ast.Name) and item.id in DENSITIES]
        count, choices = OF_DENSITIES[name][1], ", ".join(DENSITIES)
        if len(arguments) != count or len(policies) != count:
            plural = "policy" if count == 1 else "policies"
            raise self.make_error_at(
                f"{name} takes {count} {plural} among {choices}, as in {name}({EXAMPLE[count]})", node
            )
        if len(set(policies)) < count:
            raise self.make_error_at(f"{name}({', '.join(policies)}) is 0: of two different policies", node)
        if name == "js" and "q" not in policies:
            raise self.make_error_at("js is of q and another policy", node)
        return policies

    def read_strength(self, node: ast.expr, depth: int) -> Any:
        """Return the weight of the second policy in js(q, p, 1/10)."""
        value = self.build(node, depth + 1)
        between = value.is_Rational and 0 < value < 1
        if not between and not (value.is_Symbol and value not in ATOMS.values() and value.name not in COUNTS):
            expected = "a number or a parameter b between 0 and 1"
            raise self.make_error_at(f"js(q, p, b) takes {expected}, the weight of p in the mixture", node)
        return value

    def refuse_sums_of_samples(self, name: str, x: Any, node: ast.expr) -> None:
        """Refuse sums of sums over samples; a sum over samples may hold sums over the tokens of each."""
        inner = {function.name for function in x.atoms(OverBatch)}
        if inner:
            raise self.make_error_at(
                f"{min(inner)}(..) inside {name}(..): a sum of sums over samples is not read", node
            )


OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a / b,
    ast.Pow: lambda a, b: a**b,
}
NO_COMPARISON = "this is not part of the loss grammar"
COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Gt: above,
    ast.GtE: lambda a, b: above(a, b, or_equal=True),
    ast.Lt: lambda a, b: above(b, a),
    ast.LtE: lambda a, b: above(b, a, or_equal=True),
}
FOREIGN: dict[type[ast.expr], str] = {
    ast.Attribute: "an attribute (x.y)",
    ast.Subscript: "an index (x[y])",
    ast.Lambda: "a lambda",
    ast.IfExp: "if and else",
    ast.UnaryOp: "this sign",
    ast.Tuple: "a tuple",
    ast.List: "a list",
    ast.Call: "a call with named or starred arguments",
    ast.Starred: "a starred argument",
    ast.NamedExpr: "an assignment",
    ast.Set: "a set",
    ast.Dict: "a dict",
}
EXAMPLE = {1: "q", 2: "q, p"}
OF_DENSITIES: dict[str, tuple[Callable[..., Any], int]] = {
    "full_kl": (full_kl, 2), "H": (build_entropy, 1), "js": (build_jensen_shannon, 2),
}  # fmt: skip
ONE_ARGUMENT, SEVERAL = range(1, 2), range(2, 9)
OF_TOKENS = {"past": Before, "now": Here, "future": After, "whole": Whole, "togo": togo, "seqmean": seqmean}
OF_SAMPLES: dict[str, Callable[..., Any]] = {"groupsum": sum_group}
OF_SAMPLES |= {of.name: of for of in (OfOthers, LeftOut, Centred, Normalised, Relative, Scaled)}
EXPONENTIALS = ("exp", "sigmoid", "logsigmoid")
FUNCTIONS: dict[str, tuple[Callable[..., Any], range]] = {
    "sg": (sg, ONE_ARGUMENT),
    "exp": (exp, ONE_ARGUMENT),
    "log": (log, ONE_ARGUMENT),
    "sqrt": (sqrt, ONE_ARGUMENT),
    "sigmoid": (lambda x: 1 / (1 + exp(-x)), ONE_ARGUMENT),
    "logsigmoid": (lambda x: -log(1 + exp(-x)), ONE_ARGUMENT),
    "abs": (Abs, ONE_ARGUMENT),
    "k": (k, ONE_ARGUMENT),
    "min": (Min, SEVERAL),
    "max": (Max, SEVERAL),
    "clip": (clip, range(3, 4)),
    "disc": (sum_discounted, range(2, 3)),
    "gae": (build_advantage_estimate, range(1, 3)),
    **{name: (function, ONE_ARGUMENT) for name, function in (OF_TOKENS | OF_SAMPLES).items()},
    **{OverVocabulary.name: (OverVocabulary, ONE_ARGUMENT)},
}
