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
from functools import cache
from pathlib import Path
from shlex import quote
from types import SimpleNamespace
from typing import Any

from klsym.audit.blocks import read_lines
from klsym.audit.code import Argument, Code, collect_stored, collect_texts, set_result, show_name
from klsym.audit.compiled import in_code
from klsym.audit.compiled.rewriting import IMPORTED, IN_CODE, rewrite_function
from klsym.audit.compiled.running import ABSENT, find_bound
from klsym.audit.compiled.unread import UnreadValue
from klsym.audit.notebooks import NOTEBOOK, find_cell
from klsym.audit.options.fields import Method, read_declarations
from klsym.audit.options.initial import find_defaults_of_self, find_method, find_parts_of_self, list_defaults
from klsym.audit.source import FUTURE, File, collect_names_read, open_file
from klsym.engine.answers.loss_hints import suggest_explain
from klsym.errors import UsageError, spell_option

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
        return _read_callable(target, result)
    place, colon, name = str(target).rpartition(":")
    if not colon or not place or not name:
        wanted = f"{str(target)[:80]!r}: FILE.py:FUNC, FILE.py:120-128 or MODULE:FUNC expected"
        is_path = Path(str(target)).exists()
        scan = f"; to list its functions: klsym audit --scan {quote(str(target))}"
        raise UsageError(wanted + (scan if is_path else suggest_explain(str(target))))
    if not place.endswith((".py", NOTEBOOK)):
        return _read_module_function(place, name, result)
    file = open_file(Path(place))
    if place.endswith(NOTEBOOK) and name.isascii() and name.isdigit():
        name = find_cell(file, int(name))
    try:
        return (read_lines if LINES.fullmatch(name) else _read_function)(file, name, result)
    except RecursionError:
        raise UsageError(f"{str(target)[:80]!r}: its code is nested too deeply to be read") from None


# ---------------------------------------------------------------------------- functions and methods
def _read_function(file: File, name: str, result: str | None) -> Code:
    owner, _, method = name.rpartition(".")
    if "." in owner or (owner and isinstance(file.definitions.get(owner), ast.FunctionDef)):
        return _read_inner_function(file, method, result)
    holder = _find_class(file, owner) if owner else None
    node = find_method(file, holder, method) if holder else file.definitions.get(name)
    if node is None and not owner:
        return _read_inner_function(file, name, result)
    if not isinstance(node, ast.FunctionDef):
        raise UsageError(f"{file.path}: no function {show_name(name)} ({_describe_functions(file, holder)})")
    node = copy.deepcopy(node)
    arguments = _list_arguments(node)
    if holder and not _is_static(node):
        arguments = arguments[1:]
    file.notes += set_result(node, result)
    if node.args.kwarg and node.args.kwarg.arg in collect_names_read(ast.Module(node.body, [])):
        file.notes.append(f"**{node.args.kwarg.arg} is read as empty")

    def build(keys: Collection[str]) -> tuple[Callable[..., Any], dict[str, Any]]:
        """Compile the function, or its class; keys: expressions that are arguments now, and are replaced."""
        if holder:
            _compile_class(file, holder, node, keys)
            stub = _make_instance(file.namespace[holder.name], file, holder)
            return getattr(stub, node.name), file.namespace
        function = rewrite_function(node, keys=keys)
        file.definitions[function.name] = function
        file.prepared.add(function.name)
        file.compiled.discard(function.name)
        file.compile_names([function.name])
        return file.namespace[function.name], file.namespace

    code = _build_code(name, file, node, arguments, build)
    declarations = read_declarations(file, node, holder)
    code.defaults = {**declarations.defaults, **(find_defaults_of_self(file, holder) if holder else {})}
    code.numbers, code.origin = frozenset(declarations.numbers), declarations.origin
    code.methods = {path: _build_method(path, method) for path, method in declarations.methods.items()}
    return code


def _build_code(
    name: str, file: File, node: ast.FunctionDef, arguments: tuple[Argument, ...], build: Any
) -> Code:
    lines = (node.lineno, node.end_lineno or node.lineno)
    texts, stored = collect_texts(node.body), collect_stored(node.body)
    return Code(name, str(file.path), lines, arguments, build, file.notes, file.files, texts, stored)


def _read_inner_function(file: File, name: str, result: str | None) -> Code:
    """Return a function within another one as code: what it reads of that is free."""
    inner = [n for n in ast.walk(file.tree) if isinstance(n, ast.FunctionDef) and n.name == name]
    if len(inner) != 1:
        raise UsageError(f"{file.path}: no function {show_name(name)} ({_describe_functions(file, None)})")
    node = copy.deepcopy(inner[0])
    file.notes += set_result(node, result)
    arguments = _list_arguments(node)
    argument_names = {a.name for a in arguments}
    known_names = {*file.definitions, *dir(builtins), *argument_names, *collect_stored(node.body)}
    free = sorted(set().union(*(collect_names_read(s) for s in node.body)) - known_names)
    node.args.kwonlyargs = [*node.args.kwonlyargs, *(ast.arg(x) for x in free)]
    node.args.kw_defaults = [*node.args.kw_defaults, *([None] * len(free))]
    node = file.drop_foreign_decorators(node)

    def build(keys: Collection[str]) -> tuple[Callable[..., Any], dict[str, Any]]:
        function = rewrite_function(node, keys=keys)
        file.compile_names(collect_names_read(function) - argument_names - {*free})
        file.run([function])
        return file.namespace[name], file.namespace

    return _build_code(name, file, node, (*arguments, *(Argument(x) for x in free)), build)


def _describe_functions(file: File, holder: ast.ClassDef | None) -> str:
    statements = holder.body if holder else [*file.definitions.values()]
    names = [n.name for n in statements if isinstance(n, ast.FunctionDef)]
    return f"there are {', '.join(names[:12])}" if names else "there are no functions"


def _find_class(file: File, name: str) -> ast.ClassDef:
    node = file.definitions.get(name)
    if not isinstance(node, ast.ClassDef):
        raise UsageError(f"{file.path}: no class {show_name(name)}")
    return node


def _is_static(node: ast.FunctionDef) -> bool:
    return any(ast.unparse(d) == "staticmethod" for d in node.decorator_list)


def _list_arguments(node: ast.FunctionDef) -> tuple[Argument, ...]:
    a = node.args
    plain = [*a.posonlyargs, *a.args]
    with_default = {x.arg for x, _ in list_defaults(a)}
    attributes = [n for n in ast.walk(node) if isinstance(n, ast.Attribute) and n.attr not in OF_TENSORS]
    of_objects = {n.value.id for n in attributes if isinstance(n.value, ast.Name)}
    none = {x.arg for x, d in list_defaults(a) if isinstance(d, ast.Constant) and d.value is None}
    texts = {x.arg: ast.unparse(d) for x, d in list_defaults(a)}

    def make_argument(x: ast.arg) -> Argument:
        is_required = x.arg in none & of_objects  # an object that the code needs, though it may be left out
        annotation = ast.unparse(x.annotation) if x.annotation else ""
        default = texts.get(x.arg, "")
        return Argument(x.arg, x.arg in with_default and not is_required, x.arg in none, annotation, default)

    return tuple(make_argument(x) for x in [*plain, *a.kwonlyargs])


def _compile_class(
    file: File, holder: ast.ClassDef, method: ast.FunctionDef, keys: Collection[str], scope: str = ""
) -> None:
    """Compile the class with the methods and constants that the method uses, and without its bases."""
    methods = {method.name: method}
    waiting = [method]
    while waiting:
        node = waiting.pop()
        for used in _collect_class_attributes(node, holder.name) - set(methods):
            definition = find_method(file, holder, used)
            if isinstance(definition, ast.FunctionDef):
                methods[used] = definition
                waiting.append(definition)
    body: dict[str, ast.stmt] = {
        name: rewrite_function(node, scope if node is method else f"{name}.", keys, methods.values())
        for name, node in methods.items()
    }
    for stated in holder.body:
        for target in stated.targets if isinstance(stated, ast.Assign) else []:
            if isinstance(target, ast.Name) and any(
                target.id in _collect_attributes(n) for n in body.values()
            ):
                body[target.id] = stated
    plain = [file.drop_foreign_decorators(n) for n in body.values()]
    for statement in plain:
        file.compile_names(collect_names_read(statement) - {holder.name})
    whole = ast.parse(f"class {holder.name}: pass").body[0]
    assert isinstance(whole, ast.ClassDef)
    whole.body = plain
    _copy_lines(whole, holder)
    file.run([whole])


def _collect_class_attributes(node: ast.FunctionDef, name: str) -> set[str]:
    """Return the attributes of self, of the class, and of what super() and type(..) give."""
    attributes = [n for n in ast.walk(node) if isinstance(n, ast.Attribute)]
    own_attributes = [
        n for n in attributes if isinstance(n.value, ast.Name) and n.value.id in ("self", "cls", name)
    ]
    called = [
        n
        for n in attributes
        if isinstance(n.value, ast.Call) and ast.unparse(n.value.func) in ("super", "type")
    ]
    return {n.attr for n in (*own_attributes, *called)}


def _copy_lines(node: ast.ClassDef, like: ast.ClassDef) -> None:
    node.lineno, node.end_lineno = like.lineno, like.end_lineno


def _collect_attributes(node: ast.AST) -> set[str]:
    return {n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)}


def _build_method(path: str, method: Method) -> Callable[..., Any]:
    """Return a method of an object that is not there: `config.penalty`; the parts of config have names."""

    @cache
    def compile_method() -> Any:
        file, holder, node = method
        others = dict(file.namespace)
        _compile_class(file, holder, node, (), scope=f"{node.name}.")
        stub = _make_instance(file.namespace[holder.name], file, holder, owner=path.rpartition(".")[0])
        if holder.name in others:
            file.namespace[holder.name] = others[holder.name]  # the class itself, which the code may call
        return getattr(stub, node.name)

    return lambda *arguments, **options: compile_method()(*arguments, **options)


def _make_instance(cls: Any, file: File, holder: ast.ClassDef, owner: str = "self") -> Any:
    """Return an object of the class that was never initialised: what is not bound is refused by name.

    Other objects that __init__ makes for it, such as torch.nn.KLDivLoss(reduction="none"), are made when
    they are called.  owner: the name of the object in the code.
    """
    parts = find_parts_of_self(file, holder) if owner == "self" else {}

    def get_absent(self: Any, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name in parts and find_bound(f"self.{name}") is ABSENT:
            self.__dict__[name] = part = parts[name](file)
            return part
        return getattr(UnreadValue._from_name(owner), name)

    return object.__new__(type(cls.__name__, (cls,), {"__getattr__": get_absent}))


# ---------------------------------------------------------------------------- functions that are there
def _read_module_function(module: str, name: str, result: str | None) -> Code:
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        value: Any = importlib.import_module(module)
        for part in name.split("."):
            value = getattr(value, part)
    except (Exception, SystemExit) as error:  # the module is run: anything may happen
        reason = str(error).splitlines()[:1] or [""]
        raise UsageError(
            f"{module}:{name} cannot be imported: {type(error).__name__}: {reason[0][:160]}"
        ) from None
    if not callable(value):
        raise UsageError(f"{module}:{name} is no function")
    return _read_callable(value, result)


def _read_callable(function: Callable[..., Any], result: str | None) -> Code:
    inner = inspect.unwrap(getattr(function, "_torchdynamo_orig_callable", function))
    called = getattr(function, "_torchdynamo_orig_callable", function)
    name = getattr(inner, "__qualname__", type(inner).__name__)
    try:
        signature = inspect.signature(inner)
        lines, first = inspect.getsourcelines(inner)
        path, span = inspect.getsourcefile(inner) or "", (first, first + len(lines) - 1)
        path = path if Path(path).is_file() else "a cell"  # the file of a notebook's cell is made up
    except (TypeError, ValueError, OSError):
        signature, path, span = inspect.signature(function), "", (0, 0)
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    arguments = tuple(
        Argument(p.name, p.default is not p.empty, p.default is None, _show_annotation(p), _show_default(p))
        for p in signature.parameters.values()
        if p.kind not in kinds
    )
    file = getattr(inner, "__code__", SimpleNamespace(co_filename=path)).co_filename
    node = _find_source(called, span[0])
    if node is None:
        if result is not None and not result.isdigit():
            asked = spell_option("result", result)
            raise UsageError(f"{asked} of {name}, whose source is not at hand: a number expected")
        return Code(name, path, span, arguments, lambda keys: (called, {}), files={file})
    notes = set_result(node, result)

    def build(keys: Collection[str]) -> tuple[Callable[..., Any], dict[str, Any]]:
        module = ast.fix_missing_locations(ast.Module([rewrite_function(node, keys=keys)], []))
        namespace = {**called.__globals__, IN_CODE: in_code, IMPORTED: in_code.make_unimported}
        exec(compile(module, file, "exec", flags=FUTURE, dont_inherit=True), namespace)
        return namespace[node.name], {}

    return Code(
        name, path, span, arguments, build, notes, {file}, collect_texts(node.body), collect_stored(node.body)
    )


def _show_default(p: inspect.Parameter) -> str:
    return "" if p.default is p.empty else repr(p.default)


def _show_annotation(p: inspect.Parameter) -> str:
    return "" if p.annotation is p.empty else str(p.annotation)


def _find_source(function: Callable[..., Any], line: int) -> ast.FunctionDef | None:
    """Return what a function was compiled from; None for methods, closures and what has decorators."""
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
