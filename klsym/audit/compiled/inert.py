"""Statements that can be passed over: what they would have done is no matter, or is marked as unread.

All statements of a function are compiled and run.  Where a branch or a loop cannot be decided, it is passed
over if it does nothing but give values to variables, which then are unread, report something, or fill a
container that nothing reads.

>>> [test] = ast.parse("if flag:\\n    seen = kl.mean().item()\\n    print(seen)").body
>>> list_lost_variables(test, dead=set())
['seen']
>>> [test] = ast.parse("if flag:\\n    losses.append(kl)").body
>>> list_lost_variables(test, dead=set()) is None, list_lost_variables(test, dead={"losses"})
(True, [])
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator

QUIET = {  # calls that change nothing that is read
    "print", "info", "debug", "warning", "warn", "error", "exception", "log_metrics", "add_scalar",
    "log_metric", "warn_once", "warning_once", "info_once",
}  # fmt: skip
PURE = {  # functions and methods without an effect
    "mean", "sum", "item", "detach", "float", "int", "bool", "max", "min", "clamp", "exp", "log", "abs",
    "cpu", "numpy", "tolist", "std", "var", "size", "numel", "get", "keys", "values", "items", "gather",
    "gather_for_metrics", "reduce", "nanmean", "nansum", "to", "view", "reshape", "squeeze", "unsqueeze",
    "any", "all", "median", "quantile", "square", "sqrt", "flatten", "sort", "round", "len", "str",
    "sorted", "zip", "range", "enumerate", "isinstance", "getattr", "hasattr", "dim", "type", "clone",
    "isnan", "isinf", "isfinite", "masked_mean", "count_nonzero", "unique", "format", "join", "startswith",
    "endswith", "split", "lower", "upper", "strip", "topk", "masked_select", "tuple", "list", "dict",
    "set", "pow", "neg", "log1p", "expm1", "sigmoid", "softmax", "log_softmax", "logsumexp", "norm", "cumsum",
    "prod", "argmax", "argmin", "nonzero", "gt", "lt", "ge", "le", "eq", "ne", "where", "masked_fill",
    "nan_to_num", "floor", "ceil", "sign", "rsqrt", "long", "double", "half", "expand", "permute",
    "transpose", "contiguous", "type_as", "entropy", "log_prob",
}  # fmt: skip
SHAPES, SIZES = {"shape", "ndim"}, {"dim", "size", "numel", "nelement"}  # attributes, and methods
LIBRARIES = {"torch", "np", "numpy", "math", "F", "jnp", "jax"}
FRESH = {"dict", "list", "defaultdict", "set", "OrderedDict", "Counter"}


def is_guard(node: ast.stmt) -> bool:
    """Is it an if that does nothing but raise an error?"""
    return isinstance(node, ast.If) and not node.orelse and all(isinstance(s, ast.Raise) for s in node.body)


def is_of_shape(test: ast.expr) -> bool:
    """Is the condition about the shape of a tensor?

    >>> tests = ("x.dim() == 2", "len(x.shape) > 1", "x == 2", "cfg.dim == 2")
    >>> [is_of_shape(ast.parse(x, mode="eval").body) for x in tests]
    [True, True, False, False]
    """
    called = {id(n.func) for n in ast.walk(test) if isinstance(n, ast.Call)}
    attributes = [n for n in ast.walk(test) if isinstance(n, ast.Attribute)]
    return any(n.attr in SHAPES or (n.attr in SIZES and id(n) in called) for n in attributes)


def is_pure(value: ast.AST | None) -> bool:
    """Does an expression change nothing?"""
    return find_unknown_calls(value) == set()


def find_unknown_calls(value: ast.AST | None) -> set[str] | None:
    """Return the functions that decide whether an expression changes nothing; None where it does, or may.

    >>> find_unknown_calls(ast.parse("nanmin(x).item()")), find_unknown_calls(ast.parse("losses.pop(0)"))
    ({'nanmin'}, None)
    """
    names: set[str] = set()
    for node in ast.walk(value) if value is not None else ():
        if isinstance(node, ast.NamedExpr | ast.Await | ast.Yield | ast.YieldFrom):
            return None
        if isinstance(node, ast.Call) and not _is_pure_call(node):
            if not isinstance(node.func, ast.Name):
                return None
            names.add(node.func.id)
    return names


def find_unknown_effects(node: ast.FunctionDef) -> set[str] | None:
    """Return the functions that decide whether a function changes its variables alone; None if not."""
    containers = find_dead_containers(node)
    names: set[str] = set()
    for part in ast.walk(node):
        if isinstance(part, ast.Global | ast.Nonlocal | ast.Delete | ast.With | ast.Try):
            return None
        if isinstance(part, ast.Assign | ast.AugAssign | ast.AnnAssign):
            targets = part.targets if isinstance(part, ast.Assign) else [part.target]
            if isinstance(part, ast.AugAssign) or any(
                _list_stored(target, containers) is None for target in targets
            ):
                return None
        if isinstance(part, ast.Expr) and not _is_inert_call(part.value, containers):
            return None
    for statement in node.body:
        called = find_unknown_calls(statement)
        if called is None:
            return None
        names |= called
    return names - {node.name}


def _is_pure_call(call: ast.Call) -> bool:
    if any(keyword.arg in ("out", "inplace") for keyword in call.keywords):
        return False
    match call.func:
        case ast.Name(name):
            return name in PURE or name in QUIET
        case ast.Attribute(value, name):
            first = value
            while isinstance(first, ast.Attribute):
                first = first.value
            library = isinstance(first, ast.Name) and first.id in LIBRARIES and not name.startswith("set_")
            return (library and not name.endswith("_")) or name in PURE or name in QUIET
    return False


def list_lost_variables(node: ast.stmt, dead: set[str]) -> list[str] | None:
    """Return the variables that a statement sets, if it does nothing else that is read; else None.

    dead: containers that nothing reads.
    """
    variables: list[str] = []
    for statement in (
        [node] if not isinstance(node, ast.If | ast.For | ast.While) else [*node.body, *node.orelse]
    ):
        match statement:
            case ast.Pass() | ast.Raise() | ast.Assert():
                continue
            case ast.Assign(targets, value) if is_pure(value):
                names = [_list_stored(target, dead) for target in targets]
            case ast.AugAssign(ast.Name() as target, value=value) | ast.AnnAssign(target, value=value) if (
                is_pure(value)
            ):
                names = [_list_stored(target, dead)]
            case ast.Expr(value):
                names = [[] if _is_inert_call(value, dead) else None]
            case ast.If(test=test) if is_pure(test):
                names = [list_lost_variables(statement, dead)]
            case ast.For(target=target, iter=value) if is_pure(value):
                names = [_list_stored(target, dead), list_lost_variables(statement, dead)]
            case _:
                return None
        if any(listed is None for listed in names):
            return None
        variables += [name for listed in names for name in listed or ()]
    return list(dict.fromkeys(variables))


def find_carried(node: ast.For) -> tuple[list[str], list[str]]:
    """Return the variables that a round of a loop reads before it sets them, and containers that it fills.

    >>> [loop] = ast.parse("for x in xs:\\n    total += x\\n    y = x\\n    seen.append(y)").body
    >>> find_carried(loop)
    (['total'], ['seen', 'total'])
    """
    loop_variables = {n.id for n in ast.walk(node.target) if isinstance(n, ast.Name)}
    names = [n for s in node.body for n in ast.walk(s) if isinstance(n, ast.Name)]
    stored = {n.id for n in names if isinstance(n.ctx, ast.Store)} - loop_variables
    set_before: set[str] = set()
    carried: set[str] = set()
    for statement in node.body:
        inside = [n for n in ast.walk(statement) if isinstance(n, ast.Name)]
        added = {t.id for n in ast.walk(statement) if isinstance(n, ast.AugAssign)
                 for t in [n.target] if isinstance(t, ast.Name)}  # fmt: skip
        read = {n.id for n in inside if isinstance(n.ctx, ast.Load)} | added
        carried |= (read & stored) - set_before
        if isinstance(statement, ast.Assign | ast.AnnAssign):
            set_before |= {n.id for n in inside if isinstance(n.ctx, ast.Store)}
    filled = {name for s in node.body for n in ast.walk(s) for name in iterate_filled(n)} - {
        "",
        *loop_variables,
    }
    return sorted(carried), sorted({name for name in filled if "." not in name} | carried)


def is_pure_return(node: ast.If) -> bool:
    """Does an if do nothing but return, either way, what changes nothing?

    >>> [test] = ast.parse("if x.shape[1] == 1: return x.mean()\\nelse: return x.sum() / n").body
    >>> is_pure_return(test)
    True
    """

    def is_return(body: list[ast.stmt]) -> bool:
        match body:
            case [ast.Return(value)]:
                return is_pure(value)
            case [ast.If() as inner]:
                return is_pure(inner.test) and is_pure_return(inner)
        return False

    return is_return(node.body) and is_return(node.orelse)


def _list_stored(target: ast.expr, dead: set[str]) -> list[str] | None:
    """Return the names that an assignment binds; none for a place in a container that nothing reads."""
    match target:
        case ast.Name(name):
            return [name]
        case ast.Tuple(parts) | ast.List(parts):
            listed = [_list_stored(part, dead) for part in parts]
            return None if None in listed else [name for names in listed for name in names or ()]
        case ast.Subscript() | ast.Attribute():
            return [] if find_root(target) in dead else None
    return None


def _is_inert_call(value: ast.expr, dead: set[str]) -> bool:
    return find_report_calls(value, dead) == set()


def find_report_calls(value: ast.expr, dead: set[str]) -> set[str] | None:
    """Return as `find_unknown_calls`, for a statement that reports or fills a container nothing reads."""
    if isinstance(value, ast.Constant):
        return set()
    if not isinstance(value, ast.Call):
        return None
    calls = [find_unknown_calls(part) for part in [*value.args, *(k.value for k in value.keywords)]]
    fills = isinstance(value.func, ast.Attribute) and find_root(value.func.value) in dead
    if None in calls or not (fills or _is_pure_call(value)):
        return None
    return {name for names in calls for name in names or ()}


def find_root(node: ast.AST) -> str:
    """Return x for x[0].y, self.x for self.x["y"]."""
    last = ""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        if isinstance(node, ast.Call):
            node = node.func
            continue
        last = node.attr if isinstance(node, ast.Attribute) else last
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    return f"self.{last}" if node.id == "self" and last else node.id


def find_dead_containers(node: ast.FunctionDef, siblings: Iterable[ast.FunctionDef] = ()) -> set[str]:
    """Return new containers that are filled and never read; attributes of self that no other method reads."""
    arguments = {a.arg for a in ast.walk(node.args) if isinstance(a, ast.arg)}
    alone = {
        name
        for name in _find_unread_containers([node])
        if not name.startswith("self.") and name not in arguments
    }
    methods = [node, *(sibling for sibling in siblings if sibling is not node)]
    return alone | {name for name in _find_unread_containers(methods) if name.startswith("self.")}


def _find_unread_containers(nodes: list[ast.FunctionDef]) -> set[str]:
    filled: Counter[str] = Counter()
    loads: Counter[str] = Counter()
    fresh: dict[str, bool] = {}
    selves = 0
    for part in (inner for node in nodes for inner in ast.walk(node)):
        if isinstance(part, ast.Assign | ast.AnnAssign):
            targets = part.targets if isinstance(part, ast.Assign) else [part.target]
            for target in targets:
                if isinstance(target, ast.Name):
                    fresh[target.id] = fresh.get(target.id, True) and _is_fresh(part.value)
        for name in iterate_filled(part):
            filled[name] += 1
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load):
            loads[part.id] += 1
        if isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name) and part.value.id == "self":
            loads[f"self.{part.attr}"] += 1
            selves += 1
    whole = loads["self"] > selves  # it is handed on as a whole: who knows what is read
    return {
        name for name, times in filled.items()
        if loads[name] == times and (fresh.get(name, False) or (name.startswith("self.") and not whole))
    }  # fmt: skip


def iterate_filled(node: ast.AST) -> Iterator[str]:
    """Yield the root of x[..] = y, x.y = z and of the statement x.append(y)."""
    match node:
        case ast.Assign(targets):
            yield from (x for t in targets if not isinstance(t, ast.Name) if (x := find_root(t)))
        case ast.AugAssign(ast.Subscript() | ast.Attribute() as target):
            yield find_root(target)
        case ast.Expr(ast.Call(ast.Attribute(value))):
            yield find_root(value)


def _is_fresh(value: ast.expr | None) -> bool:
    if isinstance(value, ast.Call):
        return getattr(value.func, "attr", getattr(value.func, "id", "")) in FRESH
    return isinstance(value, ast.Dict | ast.List | ast.Set)
