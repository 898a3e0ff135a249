"""Pasted statements as a function of the names that they use, which `klsym measure` runs.

    loss = -logp*batch["adv"] + self.beta*kl      def loss(logp, adv, beta, kl):
                                           ->         loss = -logp*adv + beta*kl
                                                      return loss

>>> print(write_function("x = torch.exp(logp - self.ref_logp)\\nloss = x.mean()").source, end="")
import torch
def loss(logp, ref_logp):
    x = torch.exp(logp - ref_logp)
    loss = x.mean()
    return loss
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import reduce
from textwrap import dedent

from klsym.errors import UsageError
from klsym.language.pasted.names import FAMILIES, has_call, list_chain, names_mask, split_operands
from klsym.language.pasted.statements import assign_defaults, changes_no_value
from klsym.language.pasted.text import find_assigned_name, is_addition_to_itself, parse_python
from klsym.language.training_names import find_policy, is_index_of_samples, names_drawn_word

IMPORTS = {
    "torch": "import torch", "th": "import torch as th", "nn": "import torch.nn as nn",
    "F": "import torch.nn.functional as F",
    "np": "import numpy as np", "numpy": "import numpy", "math": "import math", "jax": "import jax",
    "jnp": "import jax.numpy as jnp", "lax": "from jax import lax",
    **{name: f"from torch.distributions import {name}" for name in FAMILIES},
    "kl_divergence": "from torch.distributions import kl_divergence",
}  # fmt: skip
"""What pasted code calls libraries, and the line that imports each."""

MASKED_MEAN = """def masked_mean(x, mask, dim=None, axis=None):
    dim = axis if dim is None else dim
    return (x * mask).sum() / mask.sum() if dim is None else (x * mask).sum(dim) / mask.sum(dim)
"""
OF_TWO = """def {0}(x, y):
    return torch.{0}imum(torch.as_tensor(x), torch.as_tensor(y))
"""
CALLED = {
    **{
        name: f"from torch import {name}\n"
        for name in ("exp", "log", "sqrt", "clip", "clamp", "where", "sigmoid")
    },
    **{
        name: f"from torch.nn.functional import {name}\n" for name in ("softmax", "log_softmax", "logsigmoid")
    },
    **{name: f"import torch\n{OF_TWO.format(name)}" for name in ("min", "max")},
}
"""Functions that pasted code calls without a library, and the lines that define each."""
LOGITS_OF = {"log_q": "logits", "log_p": "ref_logits", "log_mu": "old_logits"}
OVER_SAMPLES = {
    "mean", "std", "var", "view", "reshape", "median", "max", "min", "quantile", "argsort", "sort", "sum",
}  # fmt: skip
FUNCTIONS_OF_LOGITS = {"softmax", "log_softmax", "gather", "take_along_axis", "cross_entropy", "nll_loss"}
OF_TENSORS = {"shape", "device", "dtype", "data", "T", "ndim", "grad", "logits", "probs"}
MAX_LENGTH = 20_000


@dataclass(frozen=True)
class PastedFunction:
    """The source of a module with one function, its name and the names of its arguments.

    per_sample: advantages that the code itself spreads over the tokens, as in adv.unsqueeze(1).
    averaged: names of which it takes a mean or a standard deviation over samples.
    of_words: names from which it takes entries, or that functions over the vocabulary have.
    indices: masks by which it takes entries.  assumed: what else is taken for granted.
    """

    source: str
    name: str
    arguments: tuple[str, ...] = ()
    per_sample: frozenset[str] = frozenset()
    averaged: frozenset[str] = frozenset()
    of_words: frozenset[str] = frozenset()
    indices: frozenset[str] = frozenset()
    assumed: tuple[str, ...] = ()


def is_pasted(text: str) -> bool:
    """Is it code, and not the place of code: FILE.py:FUNC or MODULE:FUNC?

    >>> is_pasted("loss.py:f"), is_pasted("-(logp*adv).mean()"), is_pasted("a/b.py"), is_pasted("x = 1")
    (False, True, False, True)
    """
    return any(sign in text for sign in "(=*+\n")


def name_code(target: str) -> str:
    """Return the name of a file and a function, or "the code" for pasted statements."""
    return "the code" if is_pasted(target) else target


def write_function(text: str, left_out: Collection[str] = ()) -> PastedFunction:
    """Return pasted statements as the source of a function; a text with a function is taken as it is.

    left_out: assigned names whose values are not computed, but arguments of the function.

    Raises UsageError: no Python, or no loss in it.
    """
    source = dedent(text).strip()
    body = _parse_body(source)
    functions = [node for node in body if isinstance(node, ast.FunctionDef)]
    if functions:
        if len(functions) > 1 or any(not _is_left_out(line) for line in body if line not in functions):
            raise UsageError("a function beside other code: FILE.py:FUNC runs a function of a file")
        if not _returns_at_end(functions[0]):
            return PastedFunction(f"{_write_imports(source)}{source}\n", functions[0].name)
        body = [*assign_defaults(functions[0]), *functions[0].body]
    losses = _list_backward(body)
    body = [line for line in body if not _is_left_out(line) and find_assigned_name(line) not in left_out]
    if not body:
        raise UsageError("no loss in the code: its last line assigns or names it")
    named = _NamedParts(CALLED.keys() & _list_called(source))
    start = _list_starts(body, named)
    lines = [named.visit(line) for line in (*start, *body)]
    if losses and not isinstance(lines[-1], ast.Return):
        total: ast.expr = reduce(lambda x, y: ast.BinOp(x, ast.Add(), y), losses)
        lines.append(ast.Expr(named.visit(total)))
    lines = [*lines[:-1], *_return_last(lines[-1])]
    arguments = ", ".join(named.arguments)
    written = "\n".join(f"    {row}" for line in lines for row in ast.unparse(line).split("\n"))
    function = f"def loss({arguments}):\n{written}\n"
    module = f"{_write_imports(function)}{function}"
    if MASKED_MEAN in module:
        named.assumed["masked_mean(x, mask) is (x*mask).sum()/mask.sum()"] = None
    return PastedFunction(
        module,
        "loss",
        (*named.arguments,),
        per_sample=frozenset(named.per_sample),
        averaged=frozenset(named.averaged),
        of_words=frozenset(named.of_words),
        indices=frozenset(named.indices),
        assumed=(*named.assumed,),
    )


def _list_starts(body: Sequence[ast.stmt], named: _NamedParts) -> list[ast.stmt]:
    """Return the lines before the first one: the policies that it names, and the 0 to which it adds."""
    policies = find_distributions(body)
    named.assumed |= dict.fromkeys(
        f"{name} is Categorical(logits={logits})" for name, logits in policies.items()
    )
    start = [
        f"{name} = torch.distributions.Categorical(logits={logits})" for name, logits in policies.items()
    ]
    start += [f"{find_assigned_name(body[0])} = 0"] if is_addition_to_itself(body[0]) else []
    lines: list[ast.stmt] = parse_python("\n".join(start)).body
    return lines


def find_distributions(body: Sequence[ast.stmt]) -> dict[str, str]:
    """Return the names of distributions that the code does not build, and what their logits are called.

    >>> body = parse_python("old_dist.log_prob(a)*R + dist.entropy() + x.exp()").body
    >>> sorted(find_distributions(body).items())
    [('dist', 'logits'), ('old_dist', 'old_logits')]
    """
    nodes = [node for line in body for node in ast.walk(line)]
    assigned = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    names = [
        node.func.value.id
        for node in nodes
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.attr in ("log_prob", "entropy")
    ]
    return {
        name: LOGITS_OF[density]
        for name in names
        if name not in assigned and (density := find_policy(name) or "") in LOGITS_OF
    }


def _parse_body(source: str) -> list[ast.stmt]:
    """Return the statements; raises UsageError: no Python."""
    try:
        if len(source) > MAX_LENGTH:
            raise ValueError("too long")
        body: list[ast.stmt] = parse_python(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        reason = f"the code cannot be read as Python ({str(error)[:60]})"
        raise UsageError(f"{reason}: FILE.py:FUNC runs a file") from None
    return body


def _returns_at_end(function: ast.FunctionDef) -> bool:
    """Has it one return of one value, in its last line, and no mark?  Then it stands for its lines."""
    returns = [node for node in ast.walk(function) if isinstance(node, ast.Return)]
    is_plain = not function.decorator_list and returns == function.body[-1:]
    return is_plain and not isinstance(returns[0].value, ast.Tuple)


def _write_imports(source: str) -> str:
    names = {node.id for node in ast.walk(parse_python(source)) if isinstance(node, ast.Name)}
    imports = "".join(f"{line}\n" for name, line in IMPORTS.items() if name in names)
    called = "".join(lines for name, lines in CALLED.items() if name in _list_called(source))
    return imports + called + MASKED_MEAN * ("masked_mean" in names)


def _list_called(source: str) -> set[str]:
    """Return the names that are called like functions of two tensors, or of one."""
    calls = [node for node in ast.walk(parse_python(source)) if isinstance(node, ast.Call)]
    named = [call for call in calls if isinstance(call.func, ast.Name)]
    return {
        call.func.id
        for call in named
        if isinstance(call.func, ast.Name) and (call.func.id not in ("min", "max") or len(call.args) == 2)
    }


def _is_left_out(line: ast.stmt) -> bool:
    if isinstance(line, ast.Import | ast.ImportFrom):
        return True
    is_call = isinstance(line, ast.Expr) and isinstance(line.value, ast.Call)
    return is_call and changes_no_value(line.value.func, len(line.value.args))  # type: ignore[attr-defined]


def _list_backward(lines: list[ast.stmt]) -> list[ast.expr]:
    """Return the x of each x.backward(), whose gradients add up."""
    calls = [x.value.func for x in lines if isinstance(x, ast.Expr) and isinstance(x.value, ast.Call)]
    return [x.value for x in calls if isinstance(x, ast.Attribute) and x.attr == "backward"]


def _return_last(line: ast.stmt) -> list[ast.stmt]:
    """Return the last statement so that it returns the loss."""
    match line:
        case ast.Return():
            return [line]
        case ast.Expr(value):
            return [ast.Return(value)]
    name = find_assigned_name(line)
    if name is None:
        raise UsageError("the last line of the code is no loss: it assigns or names it")
    return [line, ast.Return(ast.Name(name, ast.Load()))]


class _NamedParts(ast.NodeTransformer):
    """Writes beta for self.beta, adv for batch["adv"], and collects the names that have no value yet."""

    def __init__(self, functions: Collection[str]) -> None:
        self.known: set[str] = {*IMPORTS, *dir(builtins), *functions, "masked_mean"}
        self.arguments: dict[str, None] = {}
        self.owners: dict[str, list[str]] = {}  # last name of a chain -> the chain
        self.per_sample: set[str] = set()
        self.averaged: set[str] = set()
        self.of_words: set[str] = set()
        self.indices: set[str] = set()
        self.assumed: dict[str, None] = {}

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        node.value = self.visit(node.value)
        node.targets = [self._write_target(target) for target in node.targets]
        return node

    def _write_target(self, target: ast.expr) -> ast.expr:
        name = target.attr if isinstance(target, ast.Attribute) else None
        written = ast.Name(name, ast.Store()) if name else target
        self.known |= {part.id for part in ast.walk(written) if isinstance(part, ast.Name)}
        return written

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id not in self.known and isinstance(node.ctx, ast.Load):
            self.arguments[node.id] = None
        return node

    def visit_For(self, node: ast.For) -> ast.AST:
        node.iter = self.visit(node.iter)
        self.known |= {part.id for part in ast.walk(node.target) if isinstance(part, ast.Name)}
        node.body = [self.visit(line) for line in node.body]
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        match node.func:
            case ast.Name():
                node.func = self.visit(node.func)
            case ast.Attribute(of, method):
                name = next(iter(list_chain(of)[-1:]), "")
                self.per_sample |= {name} if method == "unsqueeze" else set()
                node.func = ast.Attribute(self.visit(of), method, ast.Load())
        called, operands = split_operands(node)
        self.averaged |= {*list_chain(operands[0])[-1:]} if called in OVER_SAMPLES and operands else set()
        values = operands[:2] if called == "kl_div" else operands[:1] if called in FUNCTIONS_OF_LOGITS else []
        values += [keyword.value for keyword in node.keywords if keyword.arg in ("probs", "logits", "target")]
        if called == "where" and operands and names_mask(operands[0]) and not has_call(operands[0]):
            self.indices |= {*list_chain(operands[0])[-1:]}
        self.of_words |= {chain[-1] for value in values if (chain := list_chain(value))}
        node.args = [self.visit(x) for x in node.args]
        node.keywords = [ast.keyword(x.arg, self.visit(x.value)) for x in node.keywords]
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        return self._write_part(node)

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        if isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
            return self._write_part(node)
        if (
            isinstance(node.slice, ast.Name)
            and is_index_of_samples(node.slice.id)
            and (node.slice.id not in self.known)
        ):
            self.assumed[f"{node.slice.id} are samples of a minibatch"] = None
            return self.visit(node.value)
        if isinstance(node.value, ast.Name) and "None" in ast.unparse(node.slice):
            self.per_sample.add(node.value.id)
        if names_mask(node.slice) and not has_call(node.slice):
            self.indices |= {*list_chain(node.slice)[-1:]}
        if names_drawn_word(ast.unparse(node.slice)) and (chain := list_chain(node.value)):
            self.of_words.add(chain[-1])
        return self.generic_visit(node)

    def _write_part(self, node: ast.Attribute | ast.Subscript) -> ast.AST:
        chain = list_chain(node)
        is_part = len(chain) > 1 and chain[0] not in self.known and chain[-1] not in OF_TENSORS
        if not is_part or any(isinstance(inner, ast.Call) for inner in ast.walk(node)):
            return self.generic_visit(node)
        if self.owners.setdefault(chain[-1], chain) != chain:
            typed = " and ".join(".".join(one) for one in (self.owners[chain[-1]], chain))
            raise UsageError(
                f"{typed} would both be {chain[-1]}: give each a name of its own in a line before"
            )
        return self.visit_Name(ast.Name(chain[-1], ast.Load()))
