"""Compile Python for the page.  Runs inside Pyodide, so that the bytecode fits its interpreter.

`bundle` packs the modules of SymPy, mpmath, klsym and the page, `standard_library` packs the modules of
Python without those that no page needs.  Both return the bytes of a zip file.
"""

import ast
import importlib._bootstrap_external as bootstrap
import io
import zipfile
from pathlib import Path
from types import CodeType

EPOCH = (1980, 1, 1, 0, 0, 0)  # one time for all files: the same sources give the same bytes
# klsym's folders that answer no question of the page: only the modules that the corpus loads are packed.
NOT_WHOLE = {
    "audit", "confirmed", "derivations", "experiments", "fixing", "lint", "measure", "numeric", "paper",
    "study", "worlds",
}  # fmt: skip
DATA = {".toml", ".json"}
NO_LINE, NO_LINE_SPAN = b"\xff", 8  # an entry of co_linetable: these 8 instructions have no line
# Parts of the standard library for servers, mail, tests, terminals and debuggers.
UNUSED = {
    "_pyrepl", "bdb", "cProfile", "curses", "doctest", "email", "ensurepip", "ftplib", "http", "idlelib",
    "imaplib", "mailbox", "multiprocessing", "optparse", "pdb", "pickletools", "poplib", "pstats", "pydoc",
    "pydoc_data", "smtplib", "socketserver", "sqlite3", "tarfile", "turtle", "unittest", "venv", "wsgiref",
    "xml",
    "xmlrpc", "__hello__", "__phello__",
}  # fmt: skip


def bundle(modules, site, repository):
    """The modules that answer, uncompressed: the caller compresses the whole file."""
    wanted, packed = set(modules), _Packed(zipfile.ZIP_STORED)
    for package in ("sympy", "mpmath"):
        for path in sorted(Path(site, package).rglob("*.py")):
            if _name(path, Path(site)) in wanted:
                packed.add_module(path.relative_to(site), path.read_text(), documented=False)
    beside = ("derivations", "experiments", "paper", "study")
    places = {"klsym": Path(repository, "klsym")}
    places |= {f"klsym/{name}": Path(repository, name) for name in beside}
    for prefix, folder in places.items():
        for path in sorted(folder.rglob("*")):
            target = Path(prefix, path.relative_to(folder))
            if not _belongs(target, wanted):
                continue
            if path.suffix == ".py":
                packed.add_module(target, path.read_text())
            elif path.suffix in DATA:
                packed.add(target, path.read_bytes())
    for path in sorted(Path(repository, "web", "try").glob("*.py")):
        packed.add_module(Path(path.name), path.read_text())
    return packed.bytes()


def standard_library(source):
    """The modules of Python's own library, compiled and compressed."""
    packed = _Packed(zipfile.ZIP_DEFLATED)
    with zipfile.ZipFile(io.BytesIO(bytes(source))) as archive:
        for name in sorted(archive.namelist()):
            if not name.endswith(".py") or Path(name).parts[0].removesuffix(".py") in UNUSED:
                continue
            packed.add_module(Path(name), archive.read(name).decode(), documented=False)
    return packed.bytes()


class _Packed:
    """A zip file of compiled modules and data."""

    def __init__(self, method):
        self.buffer = io.BytesIO()
        self.archive = zipfile.ZipFile(self.buffer, "w", method, compresslevel=9)

    def add(self, target, data):
        entry = zipfile.ZipInfo(str(target), EPOCH)
        entry.compress_type = self.archive.compression
        self.archive.writestr(entry, data)

    def add_module(self, target, source, documented=True):
        tree = ast.parse(source)
        if not documented:
            _drop_docstrings(tree)
        compiled = _without_lines(compile(tree, str(target), "exec", dont_inherit=True, optimize=0))
        self.add(target.with_suffix(".pyc"), bootstrap._code_to_timestamp_pyc(compiled, 0, 0))

    def bytes(self):
        self.archive.close()
        return self.buffer.getvalue()


def _name(path, root):
    return ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")


def _belongs(target, wanted):
    """Is a file of klsym packed?"""
    folder = target.parts[1]
    if "__pycache__" in target.parts:
        return False
    if target.suffix == ".py" and (folder in NOT_WHOLE or len(target.parts) == 2):
        return _name(target, Path()) in wanted
    return target.suffix == ".py" or folder not in NOT_WHOLE


def _without_lines(code):
    """The same code without line numbers: they are a fifth of it, and the page shows no traceback."""
    constants = tuple(_without_lines(one) if isinstance(one, CodeType) else one for one in code.co_consts)
    whole, rest = divmod(len(code.co_code) // 2, NO_LINE_SPAN)
    table = NO_LINE * whole + bytes([NO_LINE[0] - NO_LINE_SPAN + rest] if rest else [])
    return code.replace(co_linetable=table, co_consts=constants)


def _drop_docstrings(tree):
    """Asserts stay; klsym's own docstrings stay, too, as it reads some of them."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        first = node.body[0] if node.body else None
        if not (isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)):
            continue
        if isinstance(first.value.value, str):
            needed = len(node.body) == 1 and not isinstance(node, ast.Module)
            node.body = [ast.copy_location(ast.Pass(), first)] if needed else node.body[1:]
