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
from klsym.audit.compiled.rewriting import IMPORTED, IN_CODE, prepared
from klsym.audit.compiled.unread import Unread
from klsym.audit.terms import Refused
from klsym.errors import UsageError
from klsym.files import read_text
from klsym.language.parser import syntax

LOADED = frozenset(sys.stdlib_module_names) | {"torch", "numpy", "jax"}
DROPPED = {"torch.compile", "torch.jit.script", "torch.jit.ignore", "torch.compiler.disable", "jax.jit",
           "overload",
           "abstractmethod", "typing.overload"}  # fmt: skip
LARGEST = 5_000_000  # bytes of a file
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
    done: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    files: set[str] = field(default_factory=set)
    opened: dict[Path, File] = field(default_factory=dict)  # other files of the package
    prepared: set[str] = field(default_factory=set)  # functions that are compiled as they stand here
    depth: int = 0

    def provide(self, names: Iterable[str]) -> None:
        """Compile what these names stand for in the file, and what that uses."""
        wanted: list[ast.stmt] = []
        for name in sorted(set(names)):
            self._collect(name, wanted)
        for node in sorted(wanted, key=lambda n: n.lineno):
            self.run([node])

    def _collect(self, name: str, wanted: list[ast.stmt]) -> None:
        node = self.definitions.get(name)
        if node is None or name in self.done:
            return
        self.done.add(name)
        changes = [f"line {line} changes {name}, and is left out" for line in _changes(self.tree.body, name)]
        if isinstance(node, ast.Import | ast.ImportFrom):
            self.namespace[name] = found = _imported(self, node, name)
            self.notes += changes if isinstance(found, Elsewhere) else []
            return
        self.notes += changes
        lines = _given(self.tree.body, name)
        if len({*lines}) > 1 and any(inner for _, inner in lines):
            told = ", ".join(str(line) for line, _ in lines)
            raise Refused(f"{name} is given a value in lines {told}, by a condition: --set {name}=VALUE")
        node = self.ready(self.without_foreign_decorators(node))
        if node not in wanted:
            wanted.append(node)
            self.definitions[name] = node
        if isinstance(node, ast.Assign | ast.AnnAssign) and ast.unparse(node.value or node) in (
            "{}",
            "dict()",
        ):
            for other in self.registered():
                self._collect(other, wanted)
        for used in names_read(node):
            self._collect(used, wanted)

    def without_foreign_decorators(self, node: Any) -> Any:
        """Decorators that compile are dropped; those of packages that are not loaded are named in a note."""
        kept = []
        for decorator in getattr(node, "decorator_list", ()):
            text = ast.unparse(decorator.func if isinstance(decorator, ast.Call) else decorator)
            if text in DROPPED or (text.endswith("partial") and "jit" in ast.unparse(decorator)):
                continue
            if self.is_foreign(text.partition(".")[0]):
                where = f"line {decorator.lineno}"
                self.notes.append(f"the decorator @{text} ({where}) is left out: it is not imported")
            else:
                kept.append(decorator)
        if hasattr(node, "decorator_list"):
            node.decorator_list = kept
        return node

    def registered(self) -> list[str]:
        """The functions that a decorator of this file may enter into a table."""
        functions = [d for d in self.definitions.values() if isinstance(d, ast.FunctionDef)]
        own = {f.name for f in functions}
        return [f.name for f in functions if any(names_read(d) & own for d in f.decorator_list)]

    def ready(self, node: Any) -> Any:
        """A function or a class as it is compiled."""
        if isinstance(node, ast.FunctionDef) and node.name not in self.prepared:
            return prepared(node, f"{node.name}.")
        if isinstance(node, ast.ClassDef):
            inner = [self.ready(n) if isinstance(n, ast.FunctionDef) else n for n in node.body]
            node = copy.copy(node)
            node.body = inner
        return node

    def is_foreign(self, name: str) -> bool:
        """Is it neither defined here nor imported from what is loaded?"""
        node = self.definitions.get(name)
        if isinstance(node, ast.Import | ast.ImportFrom):
            self._collect(name, [])
            return isinstance(self.namespace[name], Unread)
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


def opened(path: Path, depth: int = 0) -> File:
    """Parse a file; raises UsageError in one line where there is none, or it is no Python."""
    text = read_text(path, LARGEST)
    try:
        tree = syntax(text, filename=str(path))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line, reason = getattr(error, "lineno", None), f"no Python: {getattr(error, 'msg', error)}"
        refusal = UsageError(f"{path}{f', line {line}' if line else ''}: {reason}")
        raise refusal.located(str(path), line or 1, reason) from None
    module = types.ModuleType(f"klsym_audited_{next(_OPENED)}")
    file = File(path, text, tree, _definitions(tree.body), module.__dict__, depth=depth)
    file.files.add(str(path))
    file.opened[path.resolve()] = file  # another file may import this one
    imported = partial(_within, weakref.ref(file))  # sys.modules holds the namespace
    own = {"__file__": str(path), "__builtins__": builtins, IN_CODE: in_code, IMPORTED: imported}
    file.namespace.update(own)
    sys.modules[module.__name__] = module  # where dataclasses and typing look for it
    weakref.finalize(file, sys.modules.pop, module.__name__, None)
    return file


def _definitions(body: list[ast.stmt]) -> dict[str, ast.stmt]:
    """What a module defines, by name; the first branch of a try or an if that defines it counts."""
    found: dict[str, ast.stmt] = {}
    for node in body:
        names: list[str] = []
        match node:
            case ast.FunctionDef(name) | ast.AsyncFunctionDef(name) | ast.ClassDef(name):
                found[name] = node  # the last one counts
            case ast.Import(aliases) | ast.ImportFrom(names=aliases):
                names = [a.asname or a.name.partition(".")[0] for a in aliases]
            case ast.Assign(targets):
                names = [name for target in targets for name in _bound(target)]
            case ast.AnnAssign(ast.Name(name), value=value) if value is not None:
                names = [name]
            case ast.If() | ast.Try() | ast.With():
                inner = [
                    *node.body,
                    *getattr(node, "orelse", []),
                    *(s for h in getattr(node, "handlers", []) for s in h.body),
                ]
                for name, definition in _definitions(inner).items():
                    found.setdefault(name, definition)
        for name in names:
            found[name] = node
    return found


def _bound(target: ast.expr) -> list[str]:
    """a = .. binds a name; a.b = .. and a[0] = .. change what has one."""
    names = [n for n in ast.walk(target) if isinstance(n, ast.Name)]
    return [n.id for n in names if isinstance(n.ctx, ast.Store)]


def _changes(body: list[ast.stmt], name: str) -> list[int]:
    """The lines name.x = .., name[0] = .. and name += .. of a module."""
    changed = [t for node in body if isinstance(node, ast.Assign) for t in node.targets if not _bound(t)]
    changed += [node.target for node in body if isinstance(node, ast.AugAssign)]
    return [t.lineno for t in changed if next(n.id for n in ast.walk(t) if isinstance(n, ast.Name)) == name]


def _given(body: list[ast.stmt], name: str, inner: bool = False) -> list[tuple[int, bool]]:
    """The lines that give a module's name a value, and whether they stand in a branch."""
    found: list[tuple[int, bool]] = []
    for node in body:
        assigned = isinstance(node, ast.Assign) and any(name in _bound(t) for t in node.targets)
        if assigned or (isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name):
            found.append((node.lineno, inner))
        for part in ("body", "orelse") if isinstance(node, ast.If) else ():
            found += _given(getattr(node, part), name, inner=True)
    return found


def names_read(node: ast.AST) -> set[str]:
    """The names that are read within, annotations left out but for those that dataclasses look for."""
    found: set[str] = set()
    stack: list[ast.AST] = [node]
    while stack:
        current = stack.pop()
        if isinstance(current, ast.Name) and isinstance(current.ctx, ast.Load):
            found.add(current.id)
        skipped = [getattr(current, "annotation", None), getattr(current, "returns", None)]
        stack += [child for child in ast.iter_child_nodes(current) if child not in skipped]
        found |= {n.id for a in skipped if a for n in ast.walk(a) if isinstance(n, ast.Name)} & OF_FIELDS
    return found


# ---------------------------------------------------------------------------- imports
def _imported(file: File, node: ast.Import | ast.ImportFrom, name: str) -> Any:
    """What an import binds a name to."""
    alias = next(a for a in node.names if (a.asname or a.name.partition(".")[0]) == name)
    if isinstance(node, ast.Import):
        module = alias.name if alias.asname else alias.name.partition(".")[0]
        return _module(file, module, name, alias.name)
    module = node.module or ""
    if not node.level and module.partition(".")[0] in LOADED:
        try:
            return getattr(importlib.import_module(module), alias.name)
        except (ImportError, AttributeError):
            return _absent(module, alias.name)
    path = beside(file, module, node.level)
    if path is not None and path.name != "__init__.py":
        return Elsewhere(file, path).lookup(alias.name)
    inner = beside(file, f"{module}.{alias.name}".strip("."), node.level)
    if inner is not None:
        return Elsewhere(file, inner)
    return Elsewhere(file, path).lookup(alias.name) if path else _absent(module, alias.name)


def _within(file: weakref.ref[File], module: str, level: int, name: str | None) -> Any:
    """Return the value of `from module import name` within a function, where the module is not installed.

    level: -1 for `import module as name`.
    """
    found = file()
    assert found is not None  # one of its functions runs
    if level < 0 or name is None:
        return _imported(found, ast.Import([ast.alias(module, name)]), name or module.partition(".")[0])
    return _imported(found, ast.ImportFrom(module or None, [ast.alias(name)], level), name)


def _module(file: File, module: str, name: str, whole: str) -> Any:
    if module.partition(".")[0] in LOADED:
        try:
            importlib.import_module(whole)  # `import a.b` loads a.b and binds a
            return importlib.import_module(module)
        except ImportError:
            return Unread.named(name, f"is not here: {module} is not installed")
    path = beside(file, module, 0)
    return Elsewhere(file, path) if path else _absent(module, "")


def _absent(module: str, name: str) -> Unread:
    shown = f"{module}.{name}" if name else module
    return Unread.named(
        shown, "is not imported: map what it gives, or audit MODULE:FUNC, which imports normally"
    )


def beside(file: File, module: str, level: int) -> Path | None:
    """The file of a module of the same package."""
    parts = module.split(".") if module else []
    bases = [file.path.parents[level - 1]] if level else list(file.path.parents)[:8]
    for base in bases:
        for candidate in (base.joinpath(*parts).with_suffix(".py"), base.joinpath(*parts, "__init__.py")):
            if parts and candidate.is_file() and candidate != file.path:
                return candidate
    return None


class Elsewhere(types.ModuleType):
    """A module of the same package: each name is read out of its file when it is used."""

    def __init__(self, of: File, path: Path) -> None:
        super().__init__(path.stem)
        if of.depth >= DEEPEST:
            raise Refused(f"{path.name}: imported through more than {DEEPEST} files")
        file = of.opened.get(path.resolve())
        if file is None:
            file = of.opened[path.resolve()] = opened(path, of.depth + 1)
            file.files, file.notes, file.opened = of.files, of.notes, of.opened
            file.files.add(str(path))
        self.__dict__["_file"] = file

    def lookup(self, name: str) -> Any:
        file = self._file
        file.provide([name])
        return file.namespace[name] if name in file.namespace else _absent(file.path.stem, name)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self.lookup(name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._file.done.add(name)
        self._file.namespace[name] = value
