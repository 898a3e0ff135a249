"""Pasted text as Python's parser takes it: without comments and indentation, with ** for ^ and KL(q, p).

>>> as_python("KL(q||p)  # exact\\n  + k1^2")
'KL(q, p)\\n+ k1**2'
"""

from __future__ import annotations

import ast
import copy
import re

from klsym.errors import UsageError
from klsym.language.training_names import find_meaning, is_coefficient

QUOTED_OR_COMMENT = re.compile(r"'[^'\n]*'|\"[^\"\n]*\"|#[^\n]*")
BRANCH = re.compile(r"(if|elif|else|for|while|with|def|try|except)\b.*:")
CONDITION = re.compile(r"\s*if (((?:\w+\.)*)(\w+)( (?:!=|>) 0(?:\.0*)?)?( is not None)?)\s*:\s*")
OWNERS = {  # of settings; of other objects a part may be data
    "self", "args", "arg", "config", "cfg", "conf", "opt", "opts", "options", "hparams", "params", "flags",
    "settings", "trainer", "script_args", "training_args", "model_args", "algo_config", "algorithm",
}  # fmt: skip
DIVERGENCE = re.compile(r"\b(KL|kl)\(\s*(\w+)\s*\|\|\s*(\w+)\s*\)")


def as_python(text: str) -> str:
    """Return statements, one a line; a backslash at the end of a line joins it to the next.

    An `if` of a setting that is on, such as `if self.beta != 0:`, is left out, and its lines stay.
    """
    lines = _remove_comments(text.replace("\r\n", "\n").replace("\t", " ")).split("\n")
    statements = lines if list_branches(text) else [line for line in lines if not find_setting(line)]
    source = "\n".join(line.strip() for line in statements).strip().replace("\\\n", " ")
    return DIVERGENCE.sub(r"\1(\2, \3)", source).replace("^", "**")


def list_assumed_settings(text: str) -> tuple[str, ...]:
    """Return the conditions that `as_python` takes to be true.

    >>> list_assumed_settings("loss = k1\\nif self.beta != 0.0:\\n    loss = loss + self.beta*k3")
    ('self.beta != 0.0',)
    """
    conditions = filter(None, map(find_setting, _remove_comments(text).splitlines()))
    return () if list_branches(text) else tuple(conditions)


def find_setting(line: str) -> str:
    """Return the condition of a line that asks whether a setting is on; "" for other lines.

    >>> conditions = ("kl_coef > 0", "args.use_kl", "mask is not None", "logp > 0", "x", "batch.score > 0")
    >>> [find_setting(f"if {condition}:") for condition in conditions]
    ['kl_coef > 0', 'args.use_kl', 'mask is not None', '', '', '']
    """
    match = CONDITION.fullmatch(line)
    if match is None:
        return ""
    condition, owner, name, _, is_given = match.groups()
    is_owned = bool({*owner.lower().split(".")} & OWNERS) and not find_meaning(name)
    is_setting = is_given or is_coefficient(name) or is_owned
    return condition if is_setting else ""


def list_branches(text: str) -> list[str]:
    """Return the lines that choose among statements, apart from those of a setting that is on.

    >>> list_branches("if self.beta > 0:\\n  x = k3")
    []
    >>> list_branches("if mode == 'a':\\n  x = k3\\nelse:\\n  x = k2")
    ["if mode == 'a':", 'else:']
    """
    lines = [line.strip() for line in _remove_comments(text).splitlines()]
    branches = [line for line in lines if BRANCH.fullmatch(line)]
    has_other = any(not line.startswith("if ") for line in branches)
    return branches if has_other else [line for line in branches if not find_setting(line)]


def join_lines(text: str) -> str:
    """Return a text of several lines in one.

    >>> join_lines("d = (log_q  # of tokens\\n  - log_p)\\nloss = d**2")
    'd = (log_q - log_p); loss = d**2'
    """
    line, is_open = "", False
    for part in filter(None, (part.strip() for part in _remove_comments(text).splitlines())):
        line += (" " if is_open else "; ") * bool(line) + (part if is_open else part.rstrip("; "))
        is_open = line.count("(") + line.count("[") > line.count(")") + line.count("]")
    return line


def _remove_comments(text: str) -> str:
    return QUOTED_OR_COMMENT.sub(lambda found: "" if found[0][0] == "#" else found[0], text)


def suggest_statements(text: str) -> str:
    """Return what to type in place of a formula with a definition behind a comma; empty for others.

    >>> suggest_statements("r*k2, r = pi/pi_old"), suggest_statements("k1 +")
    ('; type what a name is first: r = ..; the formula', '')
    """
    if branches := list_branches(text):
        return f": type the lines that run, without {branches[0][:60]!r}, or audit the function"
    match = re.search(r",\s*(?:where\s+)?(\w+)\s*=(?!=)", text)
    return f"; type what a name is first: {match[1][:60]} = ..; the formula" if match else ""


def find_assigned_name(node: ast.stmt) -> str | None:
    """Return the name that a statement assigns to; None where it assigns to none."""
    match node:
        case ast.Assign([ast.Name(name), *_]) | ast.AugAssign(ast.Name(name)):
            return name
        case ast.Assign([ast.Attribute(ast.Name("self"), name)]):
            return name
    return None


def is_condition(node: ast.expr) -> bool:
    """Is it a comparison, or are several joined?"""
    return isinstance(node, ast.Compare | ast.BoolOp) or (
        isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd | ast.BitOr)
    )


# ---------------------------------------------------------------------------- selections by a quantile
OPPOSITE: dict[type[ast.cmpop], type[ast.cmpop]] = {ast.Lt: ast.GtE, ast.LtE: ast.Gt}
QUANTILES = {"quantile", "nanquantile", "percentile", "nanpercentile", "kthvalue", "median"}


def hold_selections(tree: ast.Module) -> str:
    """Replace comparisons with a quantile of the batch by the mask M, which is held; return the comparison.

    Assignments that only such comparisons read are left out.  Raises UsageError: there are several masks.

    >>> tree = ast.parse("t = quantile(e, 0.8); keep = (e >= t).float(); -keep*A*log_q")
    >>> hold_selections(tree), ast.unparse(tree).splitlines()
    ('e >= quantile(e, 0.8)', ['keep = M.float()', '-keep * A * log_q'])
    """
    assignments = [line for line in tree.body if isinstance(line, ast.Assign)]
    thresholds = {
        name: line.value
        for line in assignments
        if (name := find_assigned_name(line)) and calls_quantile(line.value) and not _compares(line.value)
    }
    typed = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    holder = _Holder(thresholds)
    holder.visit(tree)
    if not holder.selections:
        return ""
    masks = [*dict.fromkeys(holder.selections), *({"M"} & typed)]
    if len(masks) > 1:
        shown = " and ".join(repr(mask[:60]) for mask in masks[:2])
        raise UsageError(
            f"two masks, {shown}: klsym reads one, M; leave one out, or type M for their product"
        )
    _leave_out_unread(tree, holder.names)
    return masks[0]


def calls_quantile(node: ast.AST) -> bool:
    """Does it call a function for a quantile of a batch?"""
    functions = (call.func for call in ast.walk(node) if isinstance(call, ast.Call))
    return any(getattr(f, "id", getattr(f, "attr", "")) in QUANTILES for f in functions)


def _compares(node: ast.AST) -> bool:
    return any(isinstance(inner, ast.Compare) for inner in ast.walk(node))


def _leave_out_unread(tree: ast.Module, names: set[str]) -> None:
    """Leave out assignments to these names that no line reads, and those that only they read."""
    while True:
        read = {node.id for node in ast.walk(tree)
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}  # fmt: skip
        unread = [line for line in tree.body[:-1] if find_assigned_name(line) in names - read]
        if not unread:
            return
        names = names | {n.id for line in unread for n in ast.walk(line) if isinstance(n, ast.Name)}
        tree.body = [line for line in tree.body if line not in unread]


def _remove_bool(node: ast.expr) -> ast.expr:
    match node:
        case ast.Call(ast.Attribute(value, "bool"), [], []):
            return value
    return node


class _Inliner(ast.NodeTransformer):
    """Write out names by their values."""

    def __init__(self, values: dict[str, ast.expr]) -> None:
        self.values = values

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return self.values.get(node.id, node)


class _Holder(ast.NodeTransformer):
    """selections: the comparisons that were replaced.  names: those in them.

    thresholds: names of quantiles, and what each is.
    """

    def __init__(self, thresholds: dict[str, ast.expr]) -> None:
        self.thresholds = thresholds
        self.selections: list[str] = []
        self.names: set[str] = set()

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        names = {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}
        if not (calls_quantile(node) or names & self.thresholds.keys()):
            return node
        whole = _Inliner(self.thresholds).visit(copy.deepcopy(node))
        opposite = OPPOSITE.get(type(whole.ops[0])) if len(whole.ops) == 1 else None
        whole.ops = [opposite()] if opposite else whole.ops
        self.selections.append(ast.unparse(whole))
        self.names |= names
        held: ast.expr = ast.Name("M", ast.Load())
        if opposite:  # x < y is 1 - M for the mask M of x >= y
            held = ast.UnaryOp(ast.Not(), held)
        return ast.fix_missing_locations(ast.copy_location(held, node))

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.op, ast.BitAnd) and not _compares(node):  # a selection & mask.bool()
            sides = [_remove_bool(side) for side in (node.left, node.right)]
            if "M" in map(ast.unparse, sides):
                node.left, node.op, node.right = sides[0], ast.Mult(), sides[1]
        return node
