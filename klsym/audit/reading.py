"""What is to be audited: FILE.py:FUNC, FILE.py:Class.method, FILE.py:120-128, MODULE:FUNC, or a function.

A function's arguments, and whatever else the code reads from outside (`self.beta`, `inputs["ref_logps"]`),
are named as the code writes them.  Each of these expressions, and each variable, can be given a value.
"""

from __future__ import annotations

import ast
import builtins
import copy
import importlib
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Collection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from klsym.audit.blocks import of_lines
from klsym.audit.code import Argument, Code, returned, shown, stored_in, texts_of
from klsym.audit.compiled import in_code
from klsym.audit.compiled.rewriting import IMPORTED, IN_CODE, prepared
from klsym.audit.compiled.running import ABSENT, bound
from klsym.audit.compiled.unread import Unread
from klsym.audit.options.fields import declared
from klsym.audit.options.initial import defaults, defaults_of_self, method_of, parts_of_self
from klsym.audit.source import FUTURE, File, names_read, opened
from klsym.errors import UsageError

OF_TENSORS = {
    "shape", "dtype", "device", "ndim", "data", "T", "size", "dim", "sum", "mean", "exp", "log", "abs",
    "pow", "clamp", "detach", "float", "bool", "to", "view", "reshape", "squeeze", "unsqueeze", "numel",
    "masked_fill", "clone", "contiguous", "gather", "expand", "log_softmax", "softmax", "any", "all",
    "item",
}  # fmt: skip
LINES = re.compile(r"\d{1,9}(-\d{1,9})?", re.ASCII)


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
        return (of_lines if LINES.fullmatch(name) else _of_function)(file, name, result)
    except RecursionError:
        raise UsageError(f"{str(target)[:80]!r}: its code is nested too deeply to be read") from None


# ---------------------------------------------------------------------------- functions and methods
def _of_function(file: File, name: str, result: str | None) -> Code:
    owner, _, method = name.rpartition(".")
    if "." in owner or (owner and isinstance(file.definitions.get(owner), ast.FunctionDef)):
        return _of_inner(file, method, result)
    holder = _class(file, owner) if owner else None
    node = method_of(file, holder, method) if holder else file.definitions.get(name)
    if node is None and not owner:
        return _of_inner(file, name, result)
    if not isinstance(node, ast.FunctionDef):
        raise UsageError(f"{file.path}: no function {shown(name)} ({_known(file, holder)})")
    node = copy.deepcopy(node)
    arguments = _arguments(node)
    if holder and not _is_static(node):
        arguments = arguments[1:]
    file.notes += returned(node, result)
    if node.args.kwarg and node.args.kwarg.arg in names_read(ast.Module(node.body, [])):
        file.notes.append(f"**{node.args.kwarg.arg} is read as empty")

    def build(keys: Collection[str]) -> tuple[Callable[..., Any], dict[str, Any]]:
        if holder:
            _provide_class(file, holder, node, keys)
            stub = _instance(file.namespace[holder.name], file, holder)
            return getattr(stub, node.name), file.namespace
        made = prepared(node, keys=keys)
        file.definitions[made.name] = made
        file.prepared.add(made.name)
        file.done.discard(made.name)
        file.provide([made.name])
        return file.namespace[made.name], file.namespace

    code = _code(name, file, node, arguments, build)
    said = declared(file, node, holder)
    code.defaults = {**said.defaults, **(defaults_of_self(file, holder) if holder else {})}
    code.numbers, code.origin = frozenset(said.numbers), said.origin
    return code


def _code(name: str, file: File, node: ast.FunctionDef, arguments: tuple[Argument, ...], build: Any) -> Code:
    lines = (node.lineno, node.end_lineno or node.lineno)
    texts, stored = texts_of(node.body), stored_in(node.body)
    return Code(name, str(file.path), lines, arguments, build, file.notes, file.files, texts, stored)


def _of_inner(file: File, name: str, result: str | None) -> Code:
    """A function within another one: what it reads of that is free."""
    inner = [n for n in ast.walk(file.tree) if isinstance(n, ast.FunctionDef) and n.name == name]
    if len(inner) != 1:
        raise UsageError(f"{file.path}: no function {shown(name)} ({_known(file, None)})")
    node = copy.deepcopy(inner[0])
    file.notes += returned(node, result)
    arguments = _arguments(node)
    own = {a.name for a in arguments}
    known = {*file.definitions, *dir(builtins), *own, *stored_in(node.body)}
    free = sorted(set().union(*(names_read(s) for s in node.body)) - known)
    node.args.kwonlyargs = [*node.args.kwonlyargs, *(ast.arg(x) for x in free)]
    node.args.kw_defaults = [*node.args.kw_defaults, *([None] * len(free))]
    node = file.without_foreign_decorators(node)

    def build(keys: Collection[str]) -> tuple[Callable[..., Any], dict[str, Any]]:
        made = prepared(node, keys=keys)
        file.provide(names_read(made) - own - {*free})
        file.run([made])
        return file.namespace[name], file.namespace

    return _code(name, file, node, (*arguments, *(Argument(x) for x in free)), build)


def _known(file: File, holder: ast.ClassDef | None) -> str:
    of = holder.body if holder else [*file.definitions.values()]
    names = [n.name for n in of if isinstance(n, ast.FunctionDef)]
    return f"there are {', '.join(names[:12])}" if names else "there are no functions"


def _class(file: File, name: str) -> ast.ClassDef:
    node = file.definitions.get(name)
    if not isinstance(node, ast.ClassDef):
        raise UsageError(f"{file.path}: no class {shown(name)}")
    return node


def _is_static(node: ast.FunctionDef) -> bool:
    return any(ast.unparse(d) == "staticmethod" for d in node.decorator_list)


def _arguments(node: ast.FunctionDef) -> tuple[Argument, ...]:
    a = node.args
    plain = [*a.posonlyargs, *a.args]
    with_default = {x.arg for x, _ in defaults(a)}
    attributes = [n for n in ast.walk(node) if isinstance(n, ast.Attribute) and n.attr not in OF_TENSORS]
    of_objects = {n.value.id for n in attributes if isinstance(n.value, ast.Name)}
    none = {x.arg for x, d in defaults(a) if isinstance(d, ast.Constant) and d.value is None}
    texts = {x.arg: ast.unparse(d) for x, d in defaults(a)}

    def made(x: ast.arg) -> Argument:
        given = x.arg in none & of_objects  # an object that the code needs, though it may be left out
        annotation = ast.unparse(x.annotation) if x.annotation else ""
        default = texts.get(x.arg, "")
        return Argument(x.arg, x.arg in with_default and not given, x.arg in none, annotation, default)

    return tuple(made(x) for x in [*plain, *a.kwonlyargs])


def _provide_class(file: File, holder: ast.ClassDef, made: ast.FunctionDef, keys: Collection[str]) -> None:
    """The class with the methods and constants that the method uses, and without its bases."""
    methods = {made.name: made}
    waiting = [made]
    while waiting:
        node = waiting.pop()
        for used in _of_class(node, holder.name) - set(methods):
            found = method_of(file, holder, used)
            if isinstance(found, ast.FunctionDef):
                methods[used] = found
                waiting.append(found)
    body: dict[str, ast.stmt] = {
        name: prepared(node, "" if node is made else f"{name}.", keys, methods.values())
        for name, node in methods.items()
    }
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


def _of_class(node: ast.FunctionDef, name: str) -> set[str]:
    """The attributes of self, of the class, and of what super() and type(..) give."""
    found = [n for n in ast.walk(node) if isinstance(n, ast.Attribute)]
    own = [n for n in found if isinstance(n.value, ast.Name) and n.value.id in ("self", "cls", name)]
    called = [
        n for n in found if isinstance(n.value, ast.Call) and ast.unparse(n.value.func) in ("super", "type")
    ]
    return {n.attr for n in (*own, *called)}


def _placed_alone(node: ast.ClassDef, like: ast.ClassDef) -> None:
    node.lineno, node.end_lineno = like.lineno, like.end_lineno


def _attributes(node: ast.AST) -> set[str]:
    return {n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)}


def _instance(cls: Any, file: File, holder: ast.ClassDef) -> Any:
    """An object of the class that was never initialised: what is not bound is refused by name.

    Other objects that __init__ makes for it, such as torch.nn.KLDivLoss(reduction="none"), are made when
    they are called.
    """
    parts = parts_of_self(file, holder)

    def absent(self: Any, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name in parts and bound(f"self.{name}") is ABSENT:
            self.__dict__[name] = made = parts[name](file)
            return made
        return getattr(Unread.named("self"), name)

    return object.__new__(type(cls.__name__, (cls,), {"__getattr__": absent}))


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
    try:
        signature = inspect.signature(inner)
        lines, first = inspect.getsourcelines(inner)
        path, span = inspect.getsourcefile(inner) or "", (first, first + len(lines) - 1)
    except (TypeError, ValueError, OSError):
        signature, path, span = inspect.signature(function), "", (0, 0)
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    arguments = tuple(
        Argument(p.name, p.default is not p.empty, p.default is None, _annotation(p), _default(p))
        for p in signature.parameters.values()
        if p.kind not in kinds
    )
    file = getattr(inner, "__code__", SimpleNamespace(co_filename=path)).co_filename
    node = _source_of(called, span[0])
    if node is None:
        if result is not None and not result.isdigit():
            raise UsageError(f"--result {result} of {name}, whose source is not at hand: a number expected")
        return Code(name, path, span, arguments, lambda keys: (called, {}), files={file})
    notes = returned(node, result)

    def build(keys: Collection[str]) -> tuple[Callable[..., Any], dict[str, Any]]:
        module = ast.fix_missing_locations(ast.Module([prepared(node, keys=keys)], []))
        namespace = {**called.__globals__, IN_CODE: in_code, IMPORTED: in_code.not_imported}
        exec(compile(module, file, "exec", flags=FUTURE, dont_inherit=True), namespace)
        return namespace[node.name], {}

    return Code(name, path, span, arguments, build, notes, {file}, texts_of(node.body), stored_in(node.body))


def _default(p: inspect.Parameter) -> str:
    return "" if p.default is p.empty else repr(p.default)


def _annotation(p: inspect.Parameter) -> str:
    return "" if p.annotation is p.empty else str(p.annotation)


def _source_of(function: Callable[..., Any], line: int) -> ast.FunctionDef | None:
    """What a function was compiled from; None for methods, closures and what has decorators."""
    if not inspect.isfunction(function) or function.__closure__ or not line:
        return None
    try:
        [node] = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    except (OSError, TypeError, SyntaxError, ValueError, RecursionError):
        return None
    if not isinstance(node, ast.FunctionDef) or node.decorator_list or node.name != function.__name__:
        return None
    ast.increment_lineno(node, line - 1)
    return node
