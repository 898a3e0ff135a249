"""Reading a function, a method or a block of lines out of a file, without running the rest of the file.

Of the file only these lines are compiled, with the definitions, constants, decorators and imports that they
use.  Imported are the standard library, torch, numpy and jax; what comes from another file of the same
package
is read out of that file in the same way; other packages are not loaded, and using them is refused by name.
"""

from __future__ import annotations

import ast
import builtins
import copy
import importlib
import itertools
import sys
import types
import weakref
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from klsym.audit.compiled import in_code
from klsym.audit.compiled.rewriting import IMPORTED, IN_CODE, rewrite_function
from klsym.audit.compiled.sources import read_source
from klsym.audit.compiled.unread import UnreadValue
from klsym.audit.notebooks import NOTEBOOK, join_cells, list_lasting
from klsym.audit.terms import Refused
from klsym.errors import UsageError, spell_option
from klsym.language.pasted.text import parse_python

LOADED = frozenset(sys.stdlib_module_names) | {"torch", "numpy", "jax"}
DROPPED = {"torch.compile", "torch.jit.script", "torch.jit.ignore", "torch.compiler.disable", "jax.jit",
           "overload",
           "abstractmethod", "typing.overload"}  # fmt: skip
DEEPEST = 12  # files that import one another
FUTURE = __import__("__future__").annotations.compiler_flag
OF_FIELDS = {"typing", "dataclasses", "ClassVar", "InitVar", "KW_ONLY"}
_OPENED = itertools.count()


@dataclass
class File:
    """A parsed file: its definitions by name, and what has been compiled of it."""

    path: Path
    text: str
    tree: ast.Module
    definitions: dict[str, ast.stmt]
    namespace: dict[str, Any] = field(default_factory=dict)
    compiled: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    files: set[str] = field(default_factory=set)
    opened: dict[Path, File] = field(default_factory=dict)  # other files of the package
    prepared: set[str] = field(default_factory=set)  # functions that are compiled as they stand here
    depth: int = 0

    def compile_names(self, names: Iterable[str]) -> None:
        """Compile the definitions of these names in the file, and what they use."""
        wanted: list[ast.stmt] = []
        for name in sorted(set(names)):
            self._collect(name, wanted)
        for node in sorted(wanted, key=lambda n: n.lineno):
            self.run([node])

    def _collect(self, name: str, wanted: list[ast.stmt]) -> None:
        node = self.definitions.get(name)
        if node is None or name in self.compiled:
            return
        self.compiled.add(name)
        changes = [
            f"line {line} changes {name}, and is left out" for line in _find_changes(self.tree.body, name)
        ]
        if isinstance(node, ast.Import | ast.ImportFrom):
            self.namespace[name] = value = _load_import(self, node, name)
            self.notes += changes if isinstance(value, PackageModule) else []
            return
        self.notes += changes
        lines = _find_assignments(self.tree.body, name)
        if len({*lines}) > 1 and any(inner for _, inner in lines):
            numbers = ", ".join(str(line) for line, _ in lines)
            choice = spell_option("set", f"{name}=VALUE")
            raise Refused(f"{name} is given a value in lines {numbers}, by a condition: {choice}")
        node = self.rewrite_definition(self.drop_foreign_decorators(node))
        if node not in wanted:
            wanted.append(node)
            self.definitions[name] = node
        if isinstance(node, ast.Assign | ast.AnnAssign) and ast.unparse(node.value or node) in (
            "{}",
            "dict()",
        ):
            for function_name in self.list_registered():
                self._collect(function_name, wanted)
        for used in collect_names_read(node):
            self._collect(used, wanted)

    def drop_foreign_decorators(self, node: Any) -> Any:
        """Drop decorators that compile, and those of packages that are not loaded, which a note names."""
        decorators = []
        for decorator in getattr(node, "decorator_list", ()):
            text = ast.unparse(decorator.func if isinstance(decorator, ast.Call) else decorator)
            if text in DROPPED or (text.endswith("partial") and "jit" in ast.unparse(decorator)):
                continue
            if self.is_foreign(text.partition(".")[0]):
                where = f"line {decorator.lineno}"
                self.notes.append(f"the decorator @{text} ({where}) is left out: it is not imported")
            else:
                decorators.append(decorator)
        if hasattr(node, "decorator_list"):
            node.decorator_list = decorators
        return node

    def list_registered(self) -> list[str]:
        """Return the functions that a decorator of this file may enter into a table."""
        functions = [d for d in self.definitions.values() if isinstance(d, ast.FunctionDef)]
        names = {f.name for f in functions}
        return [f.name for f in functions if any(collect_names_read(d) & names for d in f.decorator_list)]

    def rewrite_definition(self, node: Any) -> Any:
        """Return a function or a class as it is compiled."""
        if isinstance(node, ast.FunctionDef) and node.name not in self.prepared:
            return rewrite_function(node, f"{node.name}.")
        if isinstance(node, ast.ClassDef):
            inner = [self.rewrite_definition(n) if isinstance(n, ast.FunctionDef) else n for n in node.body]
            node = copy.copy(node)
            node.body = inner
        return node

    def is_foreign(self, name: str) -> bool:
        """Is it neither defined here nor imported from what is loaded?"""
        node = self.definitions.get(name)
        if isinstance(node, ast.Import | ast.ImportFrom):
            self._collect(name, [])
            return isinstance(self.namespace[name], UnreadValue)
        return node is None and not hasattr(builtins, name)

    def run(self, nodes: list[ast.stmt]) -> None:
        """Compile these statements, with the lines that they have in the file, and run them."""
        module = ast.fix_missing_locations(ast.Module(nodes, []))
        code = compile(module, str(self.path), "exec", flags=FUTURE, dont_inherit=True)
        decorated: list[Any] = [n for n in nodes if getattr(n, "decorator_list", ())]
        try:
            exec(code, self.namespace)
        except Refused as refusal:
            if not decorated:
                raise
            for node in decorated:
                self.notes.append(f"the decorators of {node.name} are left out: {refusal.reason}")
                node.decorator_list = []
            self.run(nodes)


def open_file(path: Path, depth: int = 0) -> File:
    """Return the parsed file; raises UsageError in one line where there is none, or it is no Python."""
    text = read_source(path)
    if path.suffix == NOTEBOOK:
        text = join_cells(path, text)
    try:
        tree = parse_python(text, filename=str(path))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line, reason = getattr(error, "lineno", None), f"no Python: {getattr(error, 'msg', error)}"
        refusal = UsageError(f"{path}{f', line {line}' if line else ''}: {reason}")
        raise refusal.located(str(path), line or 1, reason) from None
    module = types.ModuleType(f"klsym_audited_{next(_OPENED)}")
    body = list_lasting(tree.body) if path.suffix == NOTEBOOK else tree.body
    file = File(path, text, tree, _find_definitions(body), module.__dict__, depth=depth)
    file.files.add(str(path))
    file.opened[path.resolve()] = file  # another file may import this one
    imported = partial(_load_within, weakref.ref(file))  # sys.modules holds the namespace
    entries = {"__file__": str(path), "__builtins__": builtins, IN_CODE: in_code, IMPORTED: imported}
    file.namespace.update(entries)
    sys.modules[module.__name__] = module  # where dataclasses and typing look for it
    weakref.finalize(file, sys.modules.pop, module.__name__, None)
    return file


def _find_definitions(body: list[ast.stmt]) -> dict[str, ast.stmt]:
    """Return what a module defines, by name; the first branch of a try or an if that defines it counts."""
    definitions: dict[str, ast.stmt] = {}
    for node in body:
        names: list[str] = []
        match node:
            case ast.FunctionDef(name) | ast.AsyncFunctionDef(name) | ast.ClassDef(name):
                definitions[name] = node  # the last one counts
            case ast.Import(aliases) | ast.ImportFrom(names=aliases):
                names = [a.asname or a.name.partition(".")[0] for a in aliases]
            case ast.Assign(targets):
                names = [name for target in targets for name in _find_bound_names(target)]
            case ast.AnnAssign(ast.Name(name), value=value) if value is not None:
                names = [name]
            case ast.If() | ast.Try() | ast.With():
                inner = [
                    *node.body,
                    *getattr(node, "orelse", []),
                    *(s for h in getattr(node, "handlers", []) for s in h.body),
                ]
                for name, definition in _find_definitions(inner).items():
                    definitions.setdefault(name, definition)
        for name in names:
            definitions[name] = node
    return definitions


def _find_bound_names(target: ast.expr) -> list[str]:
    """Return the names that an assignment binds: a = .. binds one; a.b = .. and a[0] = .. bind none."""
    names = [n for n in ast.walk(target) if isinstance(n, ast.Name)]
    return [n.id for n in names if isinstance(n.ctx, ast.Store)]


def _find_changes(body: list[ast.stmt], name: str) -> list[int]:
    """Return the lines name.x = .., name[0] = .. and name += .. of a module."""
    changed = [
        t for node in body if isinstance(node, ast.Assign) for t in node.targets if not _find_bound_names(t)
    ]
    changed += [node.target for node in body if isinstance(node, ast.AugAssign)]
    return [t.lineno for t in changed if next(n.id for n in ast.walk(t) if isinstance(n, ast.Name)) == name]


def _find_assignments(body: list[ast.stmt], name: str, inner: bool = False) -> list[tuple[int, bool]]:
    """Return the lines that give a module's name a value, and whether they are in a branch."""
    lines: list[tuple[int, bool]] = []
    for node in body:
        assigned = isinstance(node, ast.Assign) and any(name in _find_bound_names(t) for t in node.targets)
        if assigned or (isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name):
            lines.append((node.lineno, inner))
        for part in ("body", "orelse") if isinstance(node, ast.If) else ():
            lines += _find_assignments(getattr(node, part), name, inner=True)
    return lines


def collect_names_read(node: ast.AST) -> set[str]:
    """Return the names that are read within, without annotations except those that dataclasses look for."""
    names: set[str] = set()
    stack: list[ast.AST] = [node]
    while stack:
        current = stack.pop()
        if isinstance(current, ast.Name) and isinstance(current.ctx, ast.Load):
            names.add(current.id)
        skipped = [getattr(current, "annotation", None), getattr(current, "returns", None)]
        stack += [child for child in ast.iter_child_nodes(current) if child not in skipped]
        names |= {n.id for a in skipped if a for n in ast.walk(a) if isinstance(n, ast.Name)} & OF_FIELDS
    return names


# ---------------------------------------------------------------------------- imports
def _load_import(file: File, node: ast.Import | ast.ImportFrom, name: str) -> Any:
    """Return the value that an import binds to a name."""
    alias = next(a for a in node.names if (a.asname or a.name.partition(".")[0]) == name)
    if isinstance(node, ast.Import):
        module = alias.name if alias.asname else alias.name.partition(".")[0]
        return _load_module(file, module, name, alias.name)
    module = node.module or ""
    if not node.level and module.partition(".")[0] in LOADED:
        try:
            return getattr(importlib.import_module(module), alias.name)
        except (ImportError, AttributeError):
            return _make_absent(module, alias.name)
    path = find_module_file(file, module, node.level)
    if path is not None and path.name != "__init__.py":
        return PackageModule(file, path)._get_name(alias.name)
    inner = find_module_file(file, f"{module}.{alias.name}".strip("."), node.level)
    if inner is not None:
        return PackageModule(file, inner)
    return PackageModule(file, path)._get_name(alias.name) if path else _make_absent(module, alias.name)


def _load_within(file: weakref.ref[File], module: str, level: int, name: str | None) -> Any:
    """Return the value of `from module import name` within a function, where the module is not installed.

    level: -1 for `import module as name`.
    """
    importer = file()
    assert importer is not None  # one of its functions runs
    if level < 0 or name is None:
        return _load_import(importer, ast.Import([ast.alias(module, name)]), name or module.partition(".")[0])
    return _load_import(importer, ast.ImportFrom(module or None, [ast.alias(name)], level), name)


def _load_module(file: File, module: str, name: str, whole: str) -> Any:
    if module.partition(".")[0] in LOADED:
        try:
            importlib.import_module(whole)  # `import a.b` loads a.b and binds a
            return importlib.import_module(module)
        except ImportError:
            return UnreadValue._from_name(name, f"is not here: {module} is not installed")
    path = find_module_file(file, module, 0)
    return PackageModule(file, path) if path else _make_absent(module, "")


def _make_absent(module: str, name: str) -> UnreadValue:
    path = f"{module}.{name}" if name else module
    return UnreadValue._from_name(
        path, "is not imported: map what it gives, or audit MODULE:FUNC, which imports normally"
    )


def find_module_file(file: File, module: str, level: int) -> Path | None:
    """Return the file of a module of the same package."""
    parts = module.split(".") if module else []
    bases = [file.path.parents[level - 1]] if level else list(file.path.parents)[:8]
    for base in bases:
        for candidate in (base.joinpath(*parts).with_suffix(".py"), base.joinpath(*parts, "__init__.py")):
            if parts and candidate.is_file() and candidate != file.path:
                return candidate
    return None


class PackageModule(types.ModuleType):
    """A module of the same package: each name is read out of its file when it is used."""

    def __init__(self, importer: File, path: Path) -> None:
        super().__init__(path.stem)
        if importer.depth >= DEEPEST:
            raise Refused(f"{path.name}: imported through more than {DEEPEST} files")
        file = importer.opened.get(path.resolve())
        if file is None:
            file = importer.opened[path.resolve()] = open_file(path, importer.depth + 1)
            file.files, file.notes, file.opened = importer.files, importer.notes, importer.opened
            file.files.add(str(path))
        self.__dict__["_file"] = file

    def _get_name(self, name: str) -> Any:
        file = self._file
        file.compile_names([name])
        return file.namespace[name] if name in file.namespace else _make_absent(file.path.stem, name)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._get_name(name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._file.compiled.add(name)
        self._file.namespace[name] = value
