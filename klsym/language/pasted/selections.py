"""What code holds: selections by a quantile of the batch, read as M, and entropies without a gradient."""

from __future__ import annotations

import ast
import copy

from klsym.errors import UsageError
from klsym.language.pasted.text import find_assigned_name, forbids_gradient
from klsym.language.training_names import names_entropy

OPPOSITE: dict[type[ast.cmpop], type[ast.cmpop]] = {ast.Lt: ast.GtE, ast.LtE: ast.Gt}
QUANTILES = {"quantile", "nanquantile", "percentile", "nanpercentile", "kthvalue", "median"}


def hold_entropies_and_selections(tree: ast.Module) -> str:
    """Write sg(..) where entropies without a gradient are used, and M for selections; return what M is.

    >>> tree = ast.parse("entropy = get_entropy(logits, requires_grad=False); loss = -A*log_q - 0.1*entropy")
    >>> hold_entropies_and_selections(tree), ast.unparse(tree).splitlines()
    ('', ['entropy = get_entropy(logits)', 'loss = -A * log_q - 0.1 * sg(entropy)'])
    """
    holder = _EntropyHolder()
    tree.body = [holder.visit_line(line) for line in tree.body]
    return hold_selections(tree)


def remove_hold(value: ast.expr) -> ast.expr:
    """Return the call whose gradient .detach() or requires_grad=False takes away, or the value."""
    match value:
        case ast.Call(ast.Attribute(ast.Call() as inner, "detach"), [], []):
            return inner
        case ast.Call(of, arguments, keywords) if forbids_gradient(value):
            kept = [keyword for keyword in keywords if keyword.arg != "requires_grad"]
            return ast.copy_location(ast.Call(of, arguments, kept), value)
    return value


class _EntropyHolder(ast.NodeTransformer):
    """Writes sg(..) around names, those whose values have no gradient."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def visit_line(self, line: ast.stmt) -> ast.stmt:
        """Return a line with the names that are held in it; note what it assigns."""
        self.visit(line)
        match line:
            case ast.AugAssign(ast.Name(name) as target, operator, value) if name in self.names:
                start = self.visit_Name(ast.copy_location(ast.Name(name, ast.Load()), target))
                line = ast.Assign([target], ast.BinOp(start, operator, value), lineno=line.lineno)
                ast.fix_missing_locations(ast.copy_location(line, value))
        if isinstance(line, ast.Assign):
            assigned = {x.id for target in line.targets for x in ast.walk(target) if isinstance(x, ast.Name)}
            entropies, inner = set(filter(names_entropy, assigned)), remove_hold(line.value)
            self.names -= assigned
            if entropies and inner is not line.value:
                self.names |= entropies
                line.value = inner
        return line

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id not in self.names or not isinstance(node.ctx, ast.Load):
            return node
        held = ast.Call(ast.Name("sg", ast.Load()), [node], [])
        return ast.fix_missing_locations(ast.copy_location(held, node))


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
        if (name := find_assigned_name(line)) and has_quantile(line.value) and not _compares(line.value)
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


def has_quantile(node: ast.AST) -> bool:
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
        if not (has_quantile(node) or names & self.thresholds.keys()):
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
