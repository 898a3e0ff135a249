"""What is to be audited: FILE.py:FUNC, FILE.py:Class.method, FILE.py:120-128, MODULE:FUNC, or a function.

A function's arguments, and whatever else the code reads from outside (`self.beta`, `inputs["ref_logps"]`),
are
named as the code writes them.  Each of these expressions can be given a value: in the compiled copy it is
replaced by a name.
"""

from __future__ import annotations

import ast
import builtins
import copy
import importlib
import inspect
import re
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from klsym.audit.expressions import Outside, Renamed, normal, placed, replaced, written
from klsym.audit.source import File, Missing, names_read, opened
from klsym.errors import UsageError

FREE = "is free: bind it with --map or --set"
GRAD_OFF = ("no_grad", "inference_mode")
BLOCKS = ("body", "orelse", "finalbody")  # of statements, within a statement
LINES = re.compile(r"\d{1,9}(-\d{1,9})?", re.ASCII)


@dataclass(frozen=True)
class Argument:
    """An argument of the function: its name, and what the code says about it."""

    name: str
    has_default: bool = False
    annotation: str = ""


@dataclass
class Code:
    """Code that has been found, before it is given values.

    outside: what it reads from outside, as it is written.  build: those of them that have a value, each
    with the
    name that replaces it -> the function that takes the arguments by name, and its namespace.
    """

    name: str
    file: str
    lines: tuple[int, int]
    arguments: tuple[Argument, ...]
    outside: tuple[str, ...]
    build: Callable[[dict[str, str]], tuple[Callable[..., Any], dict[str, Any]]]
    notes: list[str] = field(default_factory=list)
    files: set[str] = field(default_factory=set)
    texts: frozenset[str] = frozenset()  # every expression in it
    body: tuple[ast.stmt, ...] = ()

    def still_read(self, keys: Iterable[str]) -> set[str]:
        """The names that are read once these expressions have values."""
        if not self.body:
            return {a.name for a in self.arguments}
        left = [Renamed(dict.fromkeys(keys, "_")).visit(copy.deepcopy(s)) for s in self.body]
        return set().union(*(names_read(s) for s in left))


def shown(name: str) -> str:
    """A name in a message; what cannot be printed in ASCII.

    >>> shown("f"), shown(chr(0))
    ('f', "'\\\\x00'")
    """
    return name if name.isprintable() and len(name) <= 60 else ascii(name[:60])


def read(target: Any, result: str | None = None) -> Code:
    """Find the code; raises UsageError in one line where there is none."""
    if callable(target):
        return _of_callable(target, result)
    place, colon, name = str(target).rpartition(":")
    if not colon or not place or not name:
        raise UsageError(f"{str(target)[:80]!r}: FILE.py:FUNC, FILE.py:120-128 or MODULE:FUNC expected")
    if not place.endswith(".py"):
        return _of_module(place, name, result)
    file = opened(Path(place))
    try:
        return (_of_lines if LINES.fullmatch(name) else _of_function)(file, name, result)
    except RecursionError:
        raise UsageError(f"{str(target)[:80]!r}: its code is nested too deeply to be read") from None


# ---------------------------------------------------------------------------- functions and methods
def _of_function(file: File, name: str, result: str | None) -> Code:
    owner, _, method = name.rpartition(".")
    holder = _class(file, owner) if owner else None
    node = _method(file, holder, method) if holder else file.definitions.get(name)
    if not isinstance(node, ast.FunctionDef):
        raise UsageError(f"{file.path}: no function {shown(name)} ({_known(file, holder)})")
    node = copy.deepcopy(node)
    arguments = _arguments(node)
    if holder and not _is_static(node):
        arguments = arguments[1:]
    inner = Outside({a.name for a in arguments} | ({"self", "cls"} if holder else set()))
    inner.visit(ast.Module(node.body, []))

    def build(slots: dict[str, str]) -> tuple[Callable[..., Any], dict[str, Any]]:
        made = replaced(copy.deepcopy(node), slots, result)
        if holder:
            _provide_class(file, holder, made, slots)
            stub = _instance(file.namespace[holder.name])
            return getattr(stub, made.name), file.namespace
        file.definitions[made.name] = made
        file.done.discard(made.name)
        file.provide([made.name])
        return file.namespace[made.name], file.namespace

    lines = (node.lineno, node.end_lineno or node.lineno)
    return Code(
        name,
        str(file.path),
        lines,
        arguments,
        _beyond(inner, arguments),
        build,
        file.notes,
        file.files,
        _texts(node.body),
        tuple(node.body),
    )


def _beyond(inner: Outside, arguments: tuple[Argument, ...]) -> tuple[str, ...]:
    """What is read from outside that is no argument itself."""
    return tuple(x for x in inner.found if x not in {a.name for a in arguments})


def _texts(body: list[ast.stmt]) -> frozenset[str]:
    """All expressions, as Python writes them."""
    return frozenset(written(n) for s in body for n in ast.walk(s) if isinstance(n, ast.expr))


def _known(file: File, holder: ast.ClassDef | None) -> str:
    of = holder.body if holder else [*file.definitions.values()]
    names = [n.name for n in of if isinstance(n, ast.FunctionDef)]
    return f"there are {', '.join(names[:12])}" if names else "there are no functions"


def _class(file: File, name: str) -> ast.ClassDef:
    node = file.definitions.get(name)
    if not isinstance(node, ast.ClassDef):
        raise UsageError(f"{file.path}: no class {shown(name)}")
    return node


def _method(file: File, holder: ast.ClassDef, name: str) -> ast.stmt | None:
    """The method, of the class or of its bases in the file."""
    for node in reversed(holder.body):
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return node
    for base in holder.bases:
        other = file.definitions.get(ast.unparse(base))
        if isinstance(other, ast.ClassDef) and other is not holder:
            found = _method(file, other, name)
            if found:
                return found
    return None


def _is_static(node: ast.FunctionDef) -> bool:
    return any(ast.unparse(d) == "staticmethod" for d in node.decorator_list)


def _arguments(node: ast.FunctionDef) -> tuple[Argument, ...]:
    a = node.args
    plain = [*a.posonlyargs, *a.args]
    with_default = {x.arg for x in plain[len(plain) - len(a.defaults) :]}
    with_default |= {x.arg for x, d in zip(a.kwonlyargs, a.kw_defaults, strict=True) if d is not None}

    def made(x: ast.arg) -> Argument:
        return Argument(x.arg, x.arg in with_default, ast.unparse(x.annotation) if x.annotation else "")

    return tuple(made(x) for x in [*plain, *a.kwonlyargs])


def _provide_class(file: File, holder: ast.ClassDef, made: ast.FunctionDef, slots: dict[str, str]) -> None:
    """The class with the methods and constants that the method uses, and without its bases."""
    body: dict[str, ast.stmt] = {made.name: made}
    waiting = [made]
    while waiting:
        node = waiting.pop()
        for used in {n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)} - set(body):
            found = _method(file, holder, used)
            if isinstance(found, ast.FunctionDef):
                body[used] = copied = replaced(copy.deepcopy(found), slots, None)
                waiting.append(copied)
    for stated in holder.body:
        for target in stated.targets if isinstance(stated, ast.Assign) else []:
            if isinstance(target, ast.Name) and any(target.id in _attributes(n) for n in body.values()):
                body[target.id] = stated
    plain = [file.without_foreign_decorators(n) for n in body.values()]
    for statement in plain:
        file.provide(names_read(statement) - {holder.name})
    whole = ast.parse(f"class {holder.name}: pass").body[0]
    assert isinstance(whole, ast.ClassDef)
    whole.body = plain
    _placed_alone(whole, holder)
    file.run([whole])


def _placed_alone(node: ast.ClassDef, like: ast.ClassDef) -> None:
    node.lineno, node.end_lineno = like.lineno, like.end_lineno


def _attributes(node: ast.AST) -> set[str]:
    return {n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)}


def _instance(cls: Any) -> Any:
    """An object of the class that was never initialised: what is not bound is refused by name."""

    def absent(self: Any, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Missing(f"self.{name}", FREE)

    return object.__new__(type(cls.__name__, (cls,), {"__getattr__": absent}))


# ---------------------------------------------------------------------------- blocks of lines
def _of_lines(file: File, name: str, result: str | None) -> Code:
    first, _, last = name.partition("-")
    start, end = int(first), int(last or first)
    inside = _statements(file.tree.body, start, end, str(file.path))
    if not inside:
        raise UsageError(f"{file.path}: no statement in lines {start} to {end}")
    chosen = normal(result) if result else _last_assigned(inside)
    off = _gradients_off_around(file.tree, start, end)
    assigned = {
        n.id for s in inside for n in ast.walk(s) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }
    known = set(file.definitions) | set(dir(builtins)) | assigned
    free = set().union(*(names_read(s) for s in inside)) - known
    early = assigned & _read_first(inside)
    inner = Outside(free | early)
    inner.visit(ast.Module(copy.deepcopy(inside), []))

    def build(slots: dict[str, str]) -> tuple[Callable[..., Any], dict[str, Any]]:
        lead = [ast.parse(f"{root} = {slots[root]}").body[0] for root in sorted(early & set(slots))]
        left = {key: value for key, value in slots.items() if key not in early}
        body = [*lead, *copy.deepcopy(inside), ast.Return(ast.parse(chosen, mode="eval").body)]
        node = ast.parse("def block(): pass").body[0]
        assert isinstance(node, ast.FunctionDef)
        node.body = [Renamed(left).visit(s) for s in body]
        for s in [*lead, node.body[-1]]:
            ast.increment_lineno(s, end - 1) if s in lead else placed(s, end)
        node.body = [ast.With([ast.withitem(off)], node.body)] if off is not None else node.body
        file.namespace.update({x: Missing(x, FREE) for x in free - set(slots)})
        file.provide(names_read(node) - assigned)
        file.run([node])
        return file.namespace["block"], file.namespace

    lines = (start, end)
    outside = tuple(inner.found)
    return Code(
        f"lines {start}-{end}", str(file.path), lines, (), outside, build, file.notes, file.files,
        _texts(inside), tuple(inside),
    )  # fmt: skip


def _statements(body: list[ast.stmt], start: int, end: int, path: str) -> list[ast.stmt]:
    """The largest statements within the lines."""
    found: list[ast.stmt] = []
    for node in body:
        first, last = node.lineno, node.end_lineno or node.lineno
        if start <= first and last <= end:
            found.append(node)
        elif first <= end and last >= start:
            inner = [s for name in BLOCKS for s in getattr(node, name, [])]
            inner += [s for h in getattr(node, "handlers", []) for s in h.body]
            deeper = _statements(inner, start, end, path)
            if not deeper or start <= first:
                raise UsageError(
                    f"{path}: lines {start} to {end} cut the statement of lines {first} to {last}"
                )
            found += deeper
    return found


def _read_first(body: list[ast.stmt], before: Iterable[str] = ()) -> set[str]:
    """Names that are read before they are assigned, in the order of statements.

    >>> sorted(_read_first(ast.parse("if a:\\n    b = c\\n    b += 1\\nd = d + b").body))
    ['a', 'c', 'd']
    """
    seen, found = set(before), set()
    for node in body:
        blocks = [getattr(node, name, []) for name in BLOCKS]
        inner = {part for block in blocks for s in block for part in ast.walk(s)}
        own = {n for n in ast.walk(node) if isinstance(n, ast.Name) and n not in inner}
        found |= {n.id for n in own if isinstance(n.ctx, ast.Load)} - seen
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            found |= {node.target.id} - seen
        for block in blocks:
            found |= _read_first(block, seen)
        seen |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return found


def _last_assigned(body: list[ast.stmt]) -> str:
    for node in reversed(body):
        match node:
            case ast.Assign(targets=[ast.Name(name)]) | ast.AugAssign(target=ast.Name(name)):
                return name
            case ast.AnnAssign(target=ast.Name(name)) if node.value is not None:
                return name
            case ast.Return(value) if value is not None:
                return ast.unparse(value)
            case ast.If(body=inside) | ast.With(body=inside):
                with suppress(UsageError):
                    return _last_assigned(inside)
    raise UsageError("the last of these lines assigns no name: say with --result what is the loss")


def _gradients_off_around(tree: ast.Module, start: int, end: int) -> Any:
    """The no_grad() of a `with` that stands around the lines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.With) and node.lineno < start and (node.end_lineno or 0) >= end:
            for item in node.items:
                if any(word in ast.unparse(item.context_expr) for word in GRAD_OFF):
                    return copy.deepcopy(item.context_expr)
    return None


# ---------------------------------------------------------------------------- functions that are there
def _of_module(module: str, name: str, result: str | None) -> Code:
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (Exception, SystemExit) as error:  # the module is run: anything may happen
        reason = str(error).splitlines()[:1] or [""]
        raise UsageError(
            f"{module}:{name} cannot be imported: {type(error).__name__}: {reason[0][:160]}"
        ) from None
    if not callable(found):
        raise UsageError(f"{module}:{name} is no function")
    return _of_callable(found, result)


def _of_callable(function: Callable[..., Any], result: str | None) -> Code:
    inner = inspect.unwrap(getattr(function, "_torchdynamo_orig_callable", function))
    called = getattr(function, "_torchdynamo_orig_callable", function)
    name = getattr(inner, "__qualname__", type(inner).__name__)
    if result is not None and not result.isdigit():
        raise UsageError("--result of a function that is imported: a number expected, such as 0")
    try:
        signature = inspect.signature(inner)
        lines, first = inspect.getsourcelines(inner)
        path, span = inspect.getsourcefile(inner) or "", (first, first + len(lines) - 1)
    except (TypeError, ValueError, OSError):
        signature, path, span = inspect.signature(function), "", (0, 0)
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    arguments = tuple(
        Argument(p.name, p.default is not p.empty, "" if p.annotation is p.empty else str(p.annotation))
        for p in signature.parameters.values()
        if p.kind not in kinds
    )
    code = getattr(inner, "__code__", SimpleNamespace(co_filename=path))
    return Code(name, path, span, arguments, (), lambda slots: (called, {}), files={code.co_filename})
