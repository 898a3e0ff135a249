"""The options that the code's annotations declare: fields of dataclasses and numbers of __init__.

    def loss(logp, config: ActorConfig): ..     config.clip is a number, config.mode is "token" by default

A default decides a branch, and a note says so; a number without a branch on it becomes a parameter.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from klsym.audit.options.initial import HOOKS, is_constant, method_of, set_once
from klsym.audit.source import Elsewhere, File, beside
from klsym.errors import KlsymError

NUMBERS = {"float", "int"}
CONTAINERS: dict[str, Any] = {"dict": dict, "list": list}
DEEPEST = 3  # dataclasses within one another
MOST_FILES = 12  # that star imports lead to


@dataclass
class Declared:
    """Names as the code writes them, such as config.beta: their defaults, and which of them are numbers."""

    defaults: dict[str, Any] = field(default_factory=dict)
    numbers: set[str] = field(default_factory=set)
    origin: dict[str, str] = field(default_factory=dict)  # name -> the class that has the default


def declared(file: File, node: ast.FunctionDef, holder: ast.ClassDef | None) -> Declared:
    """Return what the annotations of a function's arguments, and of its class's __init__, say of options."""
    found = Declared()
    for argument in _arguments(node):
        _add_fields(found, file, argument.arg, argument.annotation, 0)
    if holder is None:
        return found
    start = method_of(file, holder, "__init__")
    given = {a.arg: a for a in _arguments(start)} if isinstance(start, ast.FunctionDef) else {}
    options = Declared()
    for name, argument in given.items():
        _add_fields(options, file, name, argument.annotation, 0)
    for name, value in set_once(file, holder):
        match value:
            case ast.Name(of) if of in given:
                if _written(given[of].annotation) in NUMBERS:
                    found.numbers.add(f"self.{name}")
                _add_fields(found, file, f"self.{name}", given[of].annotation, 0)
            case ast.Attribute(ast.Name(of)) if of in given:
                _renamed(found, options, ast.unparse(value), f"self.{name}")
    return found


def _renamed(found: Declared, options: Declared, old: str, new: str) -> None:
    """self.beta = args.beta: the option has both names."""
    if old in options.defaults:
        found.defaults[new], found.origin[new] = options.defaults[old], options.origin[old]
    if old in options.numbers:
        found.numbers.add(new)


def _arguments(node: ast.FunctionDef) -> list[ast.arg]:
    return [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]


def _written(annotation: ast.expr | None) -> str:
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        return annotation.value.strip()
    return ast.unparse(annotation) if annotation is not None else ""


def _named_by(annotation: ast.expr | None) -> str:
    """The class of `C`, `"C"`, `Optional[C]` and `C | None`; "" for anything else."""
    text = _written(annotation).replace(" ", "")
    for start in ("Optional[", "typing.Optional["):
        text = text.removeprefix(start).removesuffix("]") if text.startswith(start) else text
    text = text.removesuffix("|None")
    return text if text.isidentifier() else ""


def _add_fields(found: Declared, file: File, prefix: str, annotation: ast.expr | None, depth: int) -> None:
    """The fields of the dataclass that an argument is annotated with, as prefix.field."""
    name = _named_by(annotation)
    place = _class_of(file, name) if name and depth < DEEPEST else None
    if place is None:
        return
    for home, one in _bases(*place):
        changed = _changed_by(one)
        for statement in one.body if _is_dataclass(one) else ():
            match statement:
                case ast.AnnAssign(ast.Name(option), kind, value) if option not in changed:
                    _add_field(found, home, f"{prefix}.{option}", kind, value, (name, depth))


def _add_field(
    found: Declared, file: File, path: str, kind: ast.expr, value: ast.expr | None, of: tuple[str, int]
) -> None:
    if path in found.defaults or path in found.numbers:
        return  # the class itself comes before its bases
    default = _default(value)
    if default is not None:
        found.defaults[path], found.origin[path] = default[0], of[0]
    if _written(kind) in NUMBERS:
        found.numbers.add(path)
    _add_fields(found, file, path, kind, of[1] + 1)


def _default(value: ast.expr | None) -> tuple[Any] | None:
    """The default of a field: of `= 0.1`, of `= field(default=0.1)`, of `= field(default_factory=dict)`."""
    match value:
        case ast.Call(ast.Name("field") | ast.Attribute(attr="field"), _, keywords):
            given = {k.arg: k.value for k in keywords}
            if isinstance(of := given.get("default_factory"), ast.Name) and of.id in CONTAINERS:
                return (CONTAINERS[of.id](),)
            return _default(given.get("default"))
        case ast.expr() if is_constant(value):
            return (ast.literal_eval(value),)
    return None


def _is_dataclass(node: ast.ClassDef) -> bool:
    called = [d.func if isinstance(d, ast.Call) else d for d in node.decorator_list]
    return any(ast.unparse(d) in ("dataclass", "dataclasses.dataclass") for d in called)


def _changed_by(node: ast.ClassDef) -> set[str]:
    """The fields that a method of the class changes, such as __post_init__; all where that is not seen."""
    within = [n for method in node.body if isinstance(method, ast.FunctionDef) and method.name not in HOOKS
              for n in ast.walk(method)]  # fmt: skip
    found = {n.attr for n in within if isinstance(n, ast.Attribute) and not isinstance(n.ctx, ast.Load)}
    for call in within:
        match call:
            case ast.Call(
                ast.Name("setattr") | ast.Attribute(attr="__setattr__"), [*_, ast.Constant(str(name)), _]
            ):
                found.add(name)
            case ast.Call(ast.Name("setattr" | "vars") | ast.Attribute(attr="__setattr__")):
                stated = (s.target for s in node.body if isinstance(s, ast.AnnAssign))
                return {target.id for target in stated if isinstance(target, ast.Name)}
    return found


def _bases(file: File, node: ast.ClassDef) -> Iterator[tuple[File, ast.ClassDef]]:
    """A class and its bases, as far as they can be found."""
    waiting, seen = [(file, node)], set()
    while waiting:
        home, one = waiting.pop(0)
        if id(one) in seen:
            continue
        seen.add(id(one))
        yield home, one
        places = (_class_of(home, ast.unparse(base)) for base in one.bases)
        waiting += [place for place in places if place is not None]


def _class_of(file: File, name: str) -> tuple[File, ast.ClassDef] | None:
    """The class of this name in a file, or in the file of the package that it is imported from."""
    waiting, seen = [(file, name)], 0
    while waiting and seen < MOST_FILES:
        home, name = waiting.pop(0)
        seen += 1
        node = home.definitions.get(name)
        if isinstance(node, ast.ClassDef):
            return home, node
        if isinstance(node, ast.ImportFrom):
            alias = next(a for a in node.names if (a.asname or a.name) == name)
            waiting += [(other, alias.name) for other in _file_of(home, node)]
        stars = [s for s in home.tree.body if isinstance(s, ast.ImportFrom) and s.names[0].name == "*"]
        waiting += [(other, name) for star in stars if node is None for other in _file_of(home, star)]
    return None


def _file_of(file: File, node: ast.ImportFrom) -> list[File]:
    path = beside(file, node.module or "", node.level)
    try:
        return [Elsewhere(file, path)._file] if path is not None else []
    except KlsymError:
        return []  # not Python, or too many imports away: its classes stay unknown
