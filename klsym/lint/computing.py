"""What a function computes, by its syntax tree alone: log-probabilities, their differences, ratios, a KL.

Each expression gets a kind: log-probabilities come from usual names, from log_softmax, log_prob and their
like; a difference of two is a log ratio, exp of one a ratio.  What is made of a log ratio, a ratio times an
advantage, or the call of a KL is followed to what the function returns, or to a call of backward.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from klsym.audit.binding import guess_role
from klsym.language.training_names import ADVANTAGES, LOGS, REWARDS, split_words

LOGP, PROBABILITY, LOGITS, DIFFERENCE, RATIO, ADVANTAGE, PENALTY = range(1, 8)  # kinds; 0 for any other value
KL = {"kl", "kld", "kldiv", "kls", "jsd", "fkl", "rkl", "kullback"}
OF_LIBRARIES = {"kl_div", "kl_divergence", "KLDivLoss", "kl_divergence_with_log_targets"}
OF_LOSSES = {"loss", "losses", "penalty", "surrogate", "objective", "ratio", "ratios", "divergence"} | KL
SAMPLED_KL = {"per", "token", "approx", "div", "divergence", "value", "values", "estimate", "penalty", "seq"}
RESULTS = {"loss", "losses"} | REWARDS | ADVANTAGES
REPORTS = {
    "metric", "metrics", "stat", "stats", "info", "infos", "logs", "logger", "logging", "history", "writer",
    "wandb", "aux", "status", "report",
}  # fmt: skip
TAKEN_OUT = {
    "item", "tolist", "numpy", "format", "zeros_like", "ones_like", "full_like", "isnan", "isinf", "isfinite",
    "any", "all",
}  # fmt: skip
PARTS = {"T", "mT", "data", "at", "values"}  # attributes of an array
BUILTINS = {"float", "int", "str", "len", "print", "bool", "repr"}  # no methods, which are casts
LOGARITHMS = {
    "log", "log1p", "log2", "log10", "logsumexp", "logaddexp", "logcumsumexp", "log_softmax", "logsigmoid",
}  # fmt: skip


@dataclass(frozen=True)
class Value:
    """What is known of a value: its kind, the texts that it comes from, the lines of what it is made of."""

    kind: int = 0
    roots: frozenset[str] = frozenset()
    lines: frozenset[int] = frozenset()

    def join(self, other: Value) -> Value:
        """Return what is known of a value that is made of both, or is one of both."""
        return Value(self.kind or other.kind, self.roots | other.roots, self.lines | other.lines)


NOTHING = Value()


def find_lines(function: ast.FunctionDef) -> tuple[int, ...]:
    """Return the lines with what a penalty or a policy loss is made of; () if the function is no such loss.

    >>> [find_lines(ast.parse(f"def f(logp, ref_logp): {body}").body[0]) for body in (
    ...     "return (logp - ref_logp).exp()", "print(logp - ref_logp)", "return logp + ref_logp")]
    [(1,), (), ()]
    """
    if _is_of_pairs(function):
        return ()
    walk = _Walk()
    walk.run_block(function.body)
    return tuple(sorted(walk.results))


def _is_of_pairs(function: ast.FunctionDef) -> bool:
    """Does it compare a chosen and a rejected answer?  Such losses are out of scope."""
    names = [n.arg for n in ast.walk(function) if isinstance(n, ast.arg)]
    names += [n.id for n in ast.walk(function) if isinstance(n, ast.Name)]
    words = {word for name in names for word in split_words(name)}
    return {"chosen", "rejected"} <= words


@dataclass
class _Walk:
    """One pass over the statements; results: the lines of what is returned, or descended."""

    values: dict[str, Value] = field(default_factory=dict)
    results: set[int] = field(default_factory=set)
    depth: int = 0  # of branches and loops, in which a variable keeps what it had

    # -- statements ---------------------------------------------------------------------------
    def run_block(self, body: Iterable[ast.stmt]) -> None:
        for statement in body:
            self.run_statement(statement)

    def run_statement(self, statement: ast.stmt) -> None:
        match statement:
            case ast.Assign(targets, value):
                for target in targets:
                    self.assign(target, value)
            case ast.AnnAssign(target, _, value) if value is not None:
                self.assign(target, value)
            case ast.AugAssign(target, _, value):
                self.store(target, self.look(target).join(self.look(value)))
            case ast.Return(value) if value is not None:
                self.results |= self.find_result(value)
            case ast.Expr(value):
                self.look(value)
            case ast.FunctionDef() | ast.ClassDef() | ast.AsyncFunctionDef():
                return  # judged by itself
            case _:
                self.run_branches(statement)

    def run_branches(self, statement: ast.stmt) -> None:
        """Run what a loop, a condition, a with or a try has, in the order of the text."""
        match statement:
            case ast.For(ast.Tuple(targets), ast.Call(function, sources)) if "zip" in ast.unparse(function):
                for target, source in zip(targets, sources, strict=False):
                    self.store(target, self.look(source))
            case ast.For(target):
                self.store(target, NOTHING)
        for item in getattr(statement, "items", ()):
            self.look(item.context_expr)
        self.depth += 1
        for block in ("body", "handlers", "orelse", "finalbody", "cases"):
            for inner in getattr(statement, block, ()):
                self.run_block(inner.body if not isinstance(inner, ast.stmt) else [inner])
        self.depth -= 1

    def assign(self, target: ast.expr, value: ast.expr) -> None:
        pairs = [(target, value)]
        if (
            isinstance(target, ast.Tuple)
            and isinstance(value, ast.Tuple)
            and len(target.elts) == len(value.elts)
        ):
            pairs = [*zip(target.elts, value.elts, strict=True)]
        for part, source in [(part, self.look(source)) for part, source in pairs]:
            self.store(part, source)

    def store(self, target: ast.expr, value: Value) -> None:
        match target:
            case ast.Tuple(elements) | ast.List(elements):
                for element in elements:
                    self.store(element, replace(value, kind=0))
            case ast.Starred(inner):
                self.store(inner, value)
            case ast.Name() | ast.Attribute():
                name = _get_text(target)
                before = self.values.get(name, NOTHING) if self.depth else NOTHING
                self.values[name] = value.join(before)
            case ast.Subscript(base, key):
                self.fill(base, key, value)

    def fill(self, base: ast.expr, key: ast.expr, value: Value) -> None:
        """Keep what x[..] = value puts into x; what is reported under the name of no result is left out."""
        while isinstance(base, ast.Subscript | ast.Attribute):
            base = base.value
        named = isinstance(key, ast.Constant) and isinstance(key.value, str)
        is_result = not named or bool({*split_words(key.value)} & RESULTS)  # type: ignore[attr-defined]
        name = ast.unparse(base)
        if is_result and not _is_report(name):
            self.values[name] = replace(self.values.get(name, NOTHING).join(value), kind=0)

    def find_result(self, node: ast.expr) -> frozenset[int]:
        """Return the lines of what is returned as a value, and not as a report."""
        match node:
            case ast.Tuple(elements) | ast.List(elements):
                return frozenset().union(*map(self.find_result, elements))
            case ast.Dict(keys, values):
                pairs = zip(keys, values, strict=True)
                named = [v for k, v in pairs if isinstance(k, ast.Constant) and _is_result(str(k.value))]
                return frozenset().union(*(self.look(value).lines for value in named))
            case ast.Name(name) if _is_report(name):
                return frozenset()
        return self.look(node).lines

    # -- expressions --------------------------------------------------------------------------
    def look(self, node: Any) -> Value:
        """Return what is known of an expression."""
        match node:
            case ast.Name() | ast.Attribute():
                return self.look_name(node)
            case ast.Subscript(base, ast.Constant(str(key))):
                return self.values.get(_get_text(node)) or _read_name(key, _get_text(node))
            case ast.Subscript(base, _) | ast.Starred(base) | ast.Await(base) | ast.UnaryOp(_, base):
                return self.look(base)
            case ast.NamedExpr(target, value):
                self.assign(target, value)
                return self.look(value)
            case ast.BinOp(left, operator, right):
                return self.look_operation(node, operator, self.look(left), self.look(right))
            case ast.Call():
                return self.look_call(node)
            case ast.Compare() | ast.JoinedStr() | ast.Lambda() | ast.Constant() | None:
                return NOTHING
            case ast.Dict(_, values):
                return replace(self.join_all(values), kind=0)
            case ast.ListComp(element) | ast.GeneratorExp(element) | ast.SetComp(element):
                return self.look(element)
        return self.join_all(ast.iter_child_nodes(node))

    def join_all(self, nodes: Iterable[Any]) -> Value:
        value = NOTHING
        for node in nodes:
            value = value.join(self.look(node)) if isinstance(node, ast.expr) else value
        return value

    def look_name(self, node: ast.Name | ast.Attribute) -> Value:
        text = _get_text(node)
        name = node.id if isinstance(node, ast.Name) else node.attr
        value, stored = _read_name(name, text), self.values.get(text)
        if stored is not None:
            return stored if stored.kind or not value.kind else replace(value, lines=stored.lines)
        if isinstance(node, ast.Attribute) and not value.kind:
            is_part = node.attr in PARTS or not isinstance(node.value, ast.Name | ast.Attribute)
            return self.look(node.value) if is_part else value
        return value

    def look_operation(self, node: ast.expr, operator: ast.operator, left: Value, right: Value) -> Value:
        """Return what an operation gives: a difference of two densities, a ratio times an advantage."""
        whole, kinds, here = left.join(right), {left.kind, right.kind}, frozenset((node.lineno,))
        if isinstance(operator, ast.Sub) and left.kind in (LOGITS, LOGP) and "logsumexp" in ast.unparse(node):
            return replace(left, kind=LOGP)
        if isinstance(operator, ast.Sub) and kinds == {LOGP}:
            is_event = left.roots != right.roots
            return Value(DIFFERENCE, whole.roots, whole.lines | (here if is_event else frozenset()))
        if isinstance(operator, ast.Add | ast.Sub) and kinds == {ADVANTAGE, PENALTY}:
            return Value(ADVANTAGE, whole.roots, whole.lines | here)
        if isinstance(operator, ast.Div) and kinds == {PROBABILITY} and left.roots != right.roots:
            return Value(RATIO, whole.roots, whole.lines | here)
        if isinstance(operator, ast.Mult) and kinds == {PROBABILITY, LOGP} and left.roots != right.roots:
            return Value(0, whole.roots, whole.lines | here)
        if isinstance(operator, ast.Mult) and ADVANTAGE in kinds and kinds & {RATIO, LOGP}:
            return Value(0, whole.roots, whole.lines | here)
        return replace(
            whole, kind=next((k for k in (left.kind, right.kind) if k and k != ADVANTAGE), whole.kind)
        )

    def look_call(self, node: ast.Call) -> Value:
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        arguments = [self.look(a) for a in [*node.args, *(k.value for k in node.keywords)]]
        owner = self.look(node.func.value) if isinstance(node.func, ast.Attribute) else NOTHING
        if isinstance(node.func, ast.Call):  # nn.KLDivLoss()(p, q)
            name = getattr(node.func.func, "attr", getattr(node.func.func, "id", ""))
        whole = owner
        for argument in arguments:
            whole = whole.join(argument)
        if "backward" in split_words(name):
            self.results |= whole.lines
        if name in ("append", "extend") and isinstance(node.func, ast.Attribute):
            self.fill(node.func.value, ast.Constant(0), whole)
        if (
            name in TAKEN_OUT
            or (name in BUILTINS and isinstance(node.func, ast.Name))
            or {*split_words(ast.unparse(node.func))} & (REPORTS - {"aux"})
        ):
            return NOTHING
        return self.name_call(node, name, whole, [value for value in (owner, *arguments) if value.kind])

    def name_call(self, node: ast.Call, name: str, whole: Value, values: list[Value]) -> Value:
        """Return what a call gives, by the name of what is called and what it is given."""
        words, text = {*split_words(name)}, frozenset((ast.unparse(node),))
        kinds, made_here = {value.kind for value in values}, whole.lines | {node.lineno}
        densities = {value.roots for value in values if value.kind in (LOGP, LOGITS, PROBABILITY)}
        is_penalty = bool(words & KL) and (name in OF_LIBRARIES or bool(densities))
        if is_penalty or (words & OF_LOSSES and len(densities) > 1):
            return Value(0, whole.roots, made_here)
        if "softmax" in words:
            return Value(LOGP if "log" in words else PROBABILITY, whole.roots or text, whole.lines)
        if name == "cross_entropy" or (_is_log_density(name) and name not in LOGARITHMS):
            return Value(LOGP, text, whole.lines)
        if name in ("exp", "expm1") and DIFFERENCE in kinds:
            return Value(RATIO, whole.roots, made_here if len(whole.roots) > 1 else whole.lines)
        if name in ("exp", "log"):
            kind = {LOGP: PROBABILITY} if name == "exp" else {PROBABILITY: LOGP}
            return replace(whole, kind=kind.get(whole.kind, whole.kind))
        if name in ("sub", "subtract") and [value.kind for value in values] == [LOGP, LOGP]:
            return Value(DIFFERENCE, whole.roots, made_here)
        is_weighed = ADVANTAGE in kinds and bool(kinds & {RATIO, LOGP})
        return Value(0, whole.roots, made_here) if words & {"mul", "multiply"} and is_weighed else whole


def _get_text(node: ast.expr) -> str:
    """Return an expression as Python writes it."""
    return node.id if isinstance(node, ast.Name) else ast.unparse(node)


def _is_report(name: str) -> bool:
    return name == "log" or bool({*split_words(name)} & REPORTS)


def _is_result(name: str) -> bool:
    return bool({*split_words(name)} & RESULTS)


@cache
def _is_log_density(name: str) -> bool:
    """Is it a usual name of log-probabilities, of whatever policy?"""
    words = {*split_words(name)}
    return bool(words & (LOGS - {"log"} | {"neglog", "neglogp", "neglogps"})) or (
        "log" in words and bool(words & {"prob", "probs", "pi", "p", "q", "mu", "probabilities"})
    )


def _read_name(name: str, text: str) -> Value:
    """Return what a name says of a value that nothing else is known of."""
    kind = _find_kind(name)
    roots = frozenset((text, f"the other of {text}") if kind == DIFFERENCE else (text,))
    return Value(kind, roots) if kind else NOTHING


@cache
def _find_kind(name: str) -> int:
    words, role = {*split_words(name)}, guess_role(name)
    if role == "rho" or (
        words & {"ratio", "ratios"} and not words & {"log", "clip", "low", "high", "eps", "kl"}
    ):
        return RATIO
    if "logratio" in words or {"log", "ratio"} <= words or role == "log_q-log_mu":
        return DIFFERENCE
    if words & {"logits", "logit"}:
        return LOGITS
    if _is_log_density(name):
        return LOGP
    if words & (ADVANTAGES | {"reward", "rewards", "returns"}) and role in ("A", "R", None):
        return 0 if words & {"mask", "fn", "func", "model"} else ADVANTAGE
    return PENALTY if words & KL and words <= KL | SAMPLED_KL else 0


def list_functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef]]:
    """Yield the functions of a file with the names by which an audit finds them: f, Class.f, an inner f."""
    every = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)]
    named: list[tuple[str, ast.FunctionDef]] = [
        (n.name, n) for n in tree.body if isinstance(n, ast.FunctionDef)
    ]
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            named += [(f"{node.name}.{n.name}", n) for n in node.body if isinstance(n, ast.FunctionDef)]
    known = {id(n) for _, n in named}
    names = [n.name for n in every]
    yield from named
    for node in every:
        if id(node) not in known and names.count(node.name) == 1:
            yield node.name, node
