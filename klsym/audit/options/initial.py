"""Read __init__: the defaults of options, and the parts that it makes from constants."""

from __future__ import annotations

import ast
import builtins
import copy
from collections.abc import Callable, Collection, Iterator
from typing import Any

from klsym.audit.compiled import running
from klsym.audit.compiled.inert import find_root, iterate_filled
from klsym.audit.compiled.unread import UnreadValue
from klsym.audit.source import FUTURE, File, collect_names_read

HOOKS = {"__setattr__", "__getattribute__"}  # with these, an attribute may have any value


def find_defaults_of_self(file: File, holder: ast.ClassDef) -> dict[str, Any]:
    """Return defaults of attributes: __init__ has self.x = y once, for an argument y with a plain default."""
    plain = _find_plain_defaults(file, holder)
    assigned = {
        name: value.id for name, value in iterate_set_once(file, holder) if isinstance(value, ast.Name)
    }
    return {
        f"self.{name}": ast.literal_eval(plain[argument])
        for name, argument in assigned.items()
        if argument in plain
    }


def find_parts_of_self(file: File, holder: ast.ClassDef) -> dict[str, Callable[[File], Any]]:
    """Return builders of the objects that __init__ makes of constants and of plain defaults."""
    plain = _find_plain_defaults(file, holder)
    arguments = {
        n: v.id for n, v in iterate_set_once(file, holder) if isinstance(v, ast.Name) and v.id in plain
    }
    plain |= {f"self.{name}": plain[argument] for name, argument in arguments.items()}
    own_names = _collect_names(file, holder)
    attributes = {name for name, _ in iterate_set_once(file, holder)}

    def is_plain(call: ast.Call) -> bool:
        arguments = [*call.args, *(k.value for k in call.keywords if k.arg)]
        named = len(arguments) == len(call.args) + len(call.keywords)
        is_known = all(
            is_constant(x) or ast.unparse(x) in plain or is_option(x, attributes) for x in arguments
        )
        return named and is_known and not collect_names_read(call.func) & {"self", *own_names, *dir(builtins)}

    objects = [(name, value) for name, value in iterate_set_once(file, holder) if isinstance(value, ast.Call)]
    changed = _find_changed(file, holder)
    return {n: _make_builder(n, v, plain) for n, v in objects if is_plain(v) and n not in changed}


def _make_builder(name: str, value: ast.Call, plain: dict[str, ast.expr]) -> Callable[[File], Any]:
    def build(file: File) -> Any:
        call = copy.deepcopy(value)
        call.args = [plain.get(ast.unparse(x), x) for x in call.args]
        for keyword in call.keywords:
            keyword.value = plain.get(ast.unparse(keyword.value), keyword.value)
        file.compile_names(collect_names_read(call))
        if not _is_known(_evaluate(call.func, file)) or _is_trained(part := _evaluate(call, file)):
            return UnreadValue._from_name(f"self.{name}")
        statement = f"self.{name} is {ast.unparse(call)}, as __init__ makes it"
        running.add_note(f"{statement}; klsym assumes that nothing changes it later")
        return part

    return build


def _evaluate(node: ast.expr, file: File) -> Any:
    code = compile(ast.fix_missing_locations(ast.Expression(node)), str(file.path), "eval", FUTURE)
    return eval(
        code, file.namespace, {"self": UnreadValue._from_name("self")}
    )  # the code of the file that is audited


def _is_known(maker: Any) -> bool:
    """Is it of PyTorch, or of the user's files?  Other calls, such as subprocess.run, may do anything."""
    home = str(getattr(maker, "__module__", ""))
    return not isinstance(maker, UnreadValue) and home.startswith(("torch.", "klsym_audited_"))


def _is_trained(part: Any) -> bool:
    """Has a module of PyTorch parameters, which training changes?"""
    parameters = getattr(part, "parameters", None)
    of_torch = any(base.__module__.startswith("torch.") for base in type(part).__mro__)
    return of_torch and callable(parameters) and any(True for _ in parameters())


def _find_plain_defaults(file: File, holder: ast.ClassDef) -> dict[str, ast.expr]:
    """Return the arguments of __init__ with a plain default, to which it gives no other value."""
    node = find_method(file, holder, "__init__")
    if not isinstance(node, ast.FunctionDef):
        return {}
    names = [n for n in ast.walk(node) if isinstance(n, ast.Name)]
    stored = {n.id for n in names if not isinstance(n.ctx, ast.Load)}
    return {x.arg: d for x, d in list_defaults(node.args) if is_constant(d) and x.arg not in stored}


def _collect_names(file: File, holder: ast.ClassDef) -> set[str]:
    """Return the arguments and variables of __init__."""
    node = find_method(file, holder, "__init__")
    nodes = [*ast.walk(node)] if node else []
    stored = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return stored | {n.arg for n in nodes if isinstance(n, ast.arg)}


def is_option(node: ast.expr, attributes: Collection[str]) -> bool:
    """Is it self.args.clip, self.args.clip[0] or self.args.mode == "a", for an attribute that stays?"""
    if isinstance(node, ast.Compare):
        return is_option(node.left, attributes) and all(map(is_constant, node.comparators))
    inside = [
        n for n in ast.walk(node) if not isinstance(n, ast.Attribute | ast.Subscript | ast.expr_context)
    ]
    plain = all(isinstance(n, ast.Constant) or (isinstance(n, ast.Name) and n.id == "self") for n in inside)
    return plain and find_root(node).removeprefix("self.") in attributes


def is_constant(node: ast.expr) -> bool:
    """Is it a number or a word, with a sign or without, or several of them?"""
    if isinstance(node, ast.Tuple | ast.List):
        return all(map(is_constant, node.elts))
    return isinstance(node.operand if isinstance(node, ast.UnaryOp) else node, ast.Constant)


def iterate_set_once(file: File, holder: ast.ClassDef) -> Iterator[tuple[str, ast.expr]]:
    """Yield the attributes of self that __init__ sets, once, and nothing else in the file changes."""
    node = find_method(file, holder, "__init__")
    within = [n for cls in _list_bases(file, holder) for n in ast.walk(cls)]
    if any(map(_is_dynamic_access, within)):
        return
    attributes = [n for n in within if isinstance(n, ast.Attribute)]
    attributes += [n for n in ast.walk(file.tree) if isinstance(n, ast.Attribute) and not _is_of_self(n)]
    changed = {id(n): n.attr for n in attributes if not isinstance(n.ctx, ast.Load)}
    stored = [*changed.values()]
    for statement in getattr(node, "body", []):
        match statement:
            case ast.Assign([ast.Attribute(ast.Name("self"), name)], value) if stored.count(name) == 1:
                yield name, value


def _is_of_self(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id == "self"


def _is_dynamic_access(node: ast.AST) -> bool:
    """Is it setattr(self, ..), vars(self), self.__dict__, or a method that replaces attribute access?"""
    match node:
        case ast.FunctionDef(name):
            return name in HOOKS
        case ast.Attribute(attr=name):
            return name in {*HOOKS, "__dict__"}
        case ast.Call(ast.Name("setattr" | "delattr" | "vars"), [target, *_]):
            return find_root(target).partition(".")[0] == "self"
    return False


def _find_changed(file: File, holder: ast.ClassDef) -> set[str]:
    """Return the attributes of self that __init__ reads, or that a method changes or has changed."""
    node = find_method(file, holder, "__init__")
    read = {n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute) and _is_of_self(n)
            and isinstance(n.ctx, ast.Load)} if node else set()  # fmt: skip
    filled = [x for cls in _list_bases(file, holder) for n in ast.walk(cls) for x in iterate_filled(n)]
    return read | {x.removeprefix("self.") for x in filled if filled.count(x) > 1}


def _list_bases(file: File, holder: ast.ClassDef) -> list[ast.ClassDef]:
    """Return the class and its bases in the file."""
    classes = [holder]
    for cls in classes:
        bases = [file.definitions.get(ast.unparse(base)) for base in cls.bases]
        classes += [base for base in bases if isinstance(base, ast.ClassDef) and base not in classes]
    return classes


def find_method(file: File, holder: ast.ClassDef, name: str) -> ast.stmt | None:
    """Return the method, of the class or of its bases in the file."""
    for node in reversed(holder.body):
        if isinstance(node, ast.FunctionDef) and node.name == name and not _is_setter(node):
            return node
    for base in holder.bases:
        base_class = file.definitions.get(ast.unparse(base))
        if isinstance(base_class, ast.ClassDef) and base_class is not holder:
            method = find_method(file, base_class, name)
            if method:
                return method
    return None


def _is_setter(node: ast.FunctionDef) -> bool:
    """Is it the setter of a property, which has the name of its getter?"""
    return any(isinstance(d, ast.Attribute) and d.attr in ("setter", "deleter") for d in node.decorator_list)


def list_defaults(a: ast.arguments) -> list[tuple[ast.arg, ast.expr]]:
    plain = [*a.posonlyargs, *a.args]
    by_name = [(x, d) for x, d in zip(a.kwonlyargs, a.kw_defaults, strict=True) if d is not None]
    return [*zip(plain[len(plain) - len(a.defaults) :], a.defaults, strict=True), *by_name]
