"""The options that the code's annotations declare: fields of dataclasses and numbers of __init__.

    def loss(logp, config: ActorConfig): ..     config.clip is a number, config.mode is "token" by default

A default decides a branch, and a note says so; a number without a branch on it becomes a parameter.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from klsym.audit.options.initial import HOOKS, find_method, is_constant, iterate_set_once
from klsym.audit.source import File, PackageModule, find_module_file
from klsym.errors import KlsymError

NUMBERS = {"float", "int"}
CONTAINERS: dict[str, Any] = {"dict": dict, "list": list}
DEEPEST = 3  # dataclasses within one another
MOST_FILES = 12  # that star imports lead to


class Method(NamedTuple):
    """A method of an object that an argument is annotated with."""

    file: File
    holder: ast.ClassDef
    node: ast.FunctionDef


@dataclass
class Declarations:
    """Names as the code writes them, such as config.beta: their defaults, and which of them are numbers."""

    defaults: dict[str, Any] = field(default_factory=dict)
    numbers: set[str] = field(default_factory=set)
    origin: dict[str, str] = field(default_factory=dict)  # name -> the class that has the default
    methods: dict[str, Method] = field(default_factory=dict)  # config.penalty -> where it is defined


def read_declarations(file: File, node: ast.FunctionDef, holder: ast.ClassDef | None) -> Declarations:
    """Return what the annotations of a function's arguments, and of its class's __init__, say of options."""
    declarations = Declarations()
    for argument in _list_arguments(node):
        _add_fields(declarations, file, argument.arg, argument.annotation, 0)
    if holder is None:
        return declarations
    start = find_method(file, holder, "__init__")
    arguments = {a.arg: a for a in _list_arguments(start)} if isinstance(start, ast.FunctionDef) else {}
    options = Declarations()
    for name, argument in arguments.items():
        _add_fields(options, file, name, argument.annotation, 0)
    for name, value in iterate_set_once(file, holder):
        match value:
            case ast.Name(argument_name) if argument_name in arguments:
                if _show_annotation(arguments[argument_name].annotation) in NUMBERS:
                    declarations.numbers.add(f"self.{name}")
                _add_fields(declarations, file, f"self.{name}", arguments[argument_name].annotation, 0)
            case ast.Attribute(ast.Name(argument_name)) if argument_name in arguments:
                _copy_option(declarations, options, ast.unparse(value), f"self.{name}")
    return declarations


def _copy_option(declarations: Declarations, options: Declarations, old: str, new: str) -> None:
    """Give an option its second name: self.beta = args.beta."""
    if old in options.defaults:
        declarations.defaults[new], declarations.origin[new] = options.defaults[old], options.origin[old]
    if old in options.numbers:
        declarations.numbers.add(new)


def _list_arguments(node: ast.FunctionDef) -> list[ast.arg]:
    return [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]


def _show_annotation(annotation: ast.expr | None) -> str:
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        return annotation.value.strip()
    return ast.unparse(annotation) if annotation is not None else ""


def _find_class_name(annotation: ast.expr | None) -> str:
    """Return the class of `C`, `"C"`, `Optional[C]` and `C | None`; "" for anything else."""
    text = _show_annotation(annotation).replace(" ", "")
    for start in ("Optional[", "typing.Optional["):
        text = text.removeprefix(start).removesuffix("]") if text.startswith(start) else text
    text = text.removesuffix("|None")
    return text if text.isidentifier() else ""


def _add_fields(
    declarations: Declarations, file: File, prefix: str, annotation: ast.expr | None, depth: int
) -> None:
    """Add the fields of the dataclass that an argument is annotated with, as prefix.field."""
    name = _find_class_name(annotation)
    place = _find_class(file, name) if name and depth < DEEPEST else None
    if place is None:
        return
    for home, base in _iterate_bases(*place):
        changed = _find_changed_fields(base)
        for statement in base.body if _is_dataclass(base) else ():
            match statement:
                case ast.AnnAssign(ast.Name(option), kind, value) if option not in changed:
                    _add_field(declarations, home, f"{prefix}.{option}", kind, value, (name, depth))
                case ast.FunctionDef(called) if called != "get" and not statement.decorator_list:
                    declarations.methods.setdefault(f"{prefix}.{called}", Method(home, base, statement))


def _add_field(
    declarations: Declarations,
    file: File,
    path: str,
    kind: ast.expr,
    value: ast.expr | None,
    owner: tuple[str, int],
) -> None:
    if path in declarations.defaults or path in declarations.numbers:
        return  # the class itself comes before its bases
    default = _find_default(value)
    if default is not None:
        declarations.defaults[path], declarations.origin[path] = default[0], owner[0]
    if _show_annotation(kind) in NUMBERS:
        declarations.numbers.add(path)
    _add_fields(declarations, file, path, kind, owner[1] + 1)


def _find_default(value: ast.expr | None) -> tuple[Any] | None:
    """Return the default of a field: of `= 0.1`, `= field(default=0.1)`, `= field(default_factory=dict)`.

    Field(0.1) of pydantic has its default first.
    """
    match value:
        case ast.Call(ast.Name("field" | "Field") | ast.Attribute(attr="field" | "Field"), first, keywords):
            options = {"default": first[0] if first else None, **{k.arg: k.value for k in keywords}}
            if isinstance(factory := options.get("default_factory"), ast.Name) and factory.id in CONTAINERS:
                return (CONTAINERS[factory.id](),)
            return _find_default(options.get("default"))
        case ast.expr() if is_constant(value):
            return (ast.literal_eval(value),)
    return None


def _is_dataclass(node: ast.ClassDef) -> bool:
    """Has a class its fields as annotations: a dataclass, or a model of pydantic?"""
    called = [d.func if isinstance(d, ast.Call) else d for d in node.decorator_list]
    made = {ast.unparse(d).rpartition(".")[2] for d in called}
    return "dataclass" in made or any(
        ast.unparse(b).endswith(("BaseModel", "BaseSettings")) for b in node.bases
    )


def _find_changed_fields(node: ast.ClassDef) -> set[str]:
    """Return the fields that a method of the class changes, such as __post_init__; all if not visible."""
    within = [n for method in node.body if isinstance(method, ast.FunctionDef) and method.name not in HOOKS
              for n in ast.walk(method)]  # fmt: skip
    fields = {n.attr for n in within if isinstance(n, ast.Attribute) and not isinstance(n.ctx, ast.Load)}
    for call in within:
        match call:
            case ast.Call(
                ast.Name("setattr") | ast.Attribute(attr="__setattr__"), [*_, ast.Constant(str(name)), _]
            ):
                fields.add(name)
            case ast.Call(ast.Name("setattr" | "vars") | ast.Attribute(attr="__setattr__")):
                stated = (s.target for s in node.body if isinstance(s, ast.AnnAssign))
                return {target.id for target in stated if isinstance(target, ast.Name)}
    return fields


def _iterate_bases(file: File, node: ast.ClassDef) -> Iterator[tuple[File, ast.ClassDef]]:
    """Yield a class and its bases, as far as they can be found."""
    waiting, seen = [(file, node)], set()
    while waiting:
        home, cls = waiting.pop(0)
        if id(cls) in seen:
            continue
        seen.add(id(cls))
        yield home, cls
        places = (_find_class(home, ast.unparse(base)) for base in cls.bases)
        waiting += [place for place in places if place is not None]


def _find_class(file: File, name: str) -> tuple[File, ast.ClassDef] | None:
    """Return the class of this name in a file, or in the file of the package that it is imported from."""
    waiting, seen = [(file, name)], 0
    while waiting and seen < MOST_FILES:
        home, name = waiting.pop(0)
        seen += 1
        node = home.definitions.get(name)
        if isinstance(node, ast.ClassDef):
            return home, node
        if isinstance(node, ast.ImportFrom):
            alias = next(a for a in node.names if (a.asname or a.name) == name)
            waiting += [(module, alias.name) for module in _open_module(home, node)]
        stars = [s for s in home.tree.body if isinstance(s, ast.ImportFrom) and s.names[0].name == "*"]
        waiting += [(module, name) for star in stars if node is None for module in _open_module(home, star)]
    return None


def _open_module(file: File, node: ast.ImportFrom) -> list[File]:
    path = find_module_file(file, node.module or "", node.level)
    try:
        return [PackageModule(file, path)._file] if path is not None else []
    except KlsymError:
        return []  # not Python, or too many imports away: its classes stay unknown
