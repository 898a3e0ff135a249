"""Roles of the names in pasted code: the role that klsym guesses, and the code with other roles.

The reader guesses the roles of usual names: it reads logp as log_q.  A form shows each guess and lets its
user choose another role.

>>> with_roles("(logp - ref_logp).pow(2)/2", {"ref_logp": "log_mu"})
'ref_logp = log_mu\\n(logp - ref_logp).pow(2)/2'
>>> list_names_without_role("ratio - 1 - beta*x.exp()")
('ratio', 'x')
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping

from klsym.errors import UsageError
from klsym.language.messages import Message
from klsym.language.parser import FUNCTIONS, MAX_LENGTH, OF_DENSITIES, SHOWN
from klsym.language.pasted.entries import EntryReader
from klsym.language.pasted.names import LIBRARIES
from klsym.language.pasted.text import as_python, parse_python
from klsym.language.spellings import SpelledReader
from klsym.language.training_names import AMBIGUOUS, find_meaning

ROLES = ("log_q", "log_p", "log_mu", "log_old", "rho", "rho_old", "r", "k1", "k2", "k3", "A", "R", "M")
KNOWN = {*FUNCTIONS, *OF_DENSITIES, *LIBRARIES, "where", "true", "false"}


def collect_roles(notes: Iterable[Message]) -> dict[str, str]:
    """Return the role of each name that was read by its usual meaning, from the notes of a reading.

    The role of a coefficient is the name of its parameter; that of a mask of padding is M.

    >>> from klsym.language.spellings import read_loss
    >>> collect_roles(read_loss("(logp - ref_logp).pow(2)/2").notes)
    {'logp': 'log_q', 'ref_logp': 'log_p'}
    """
    roles: dict[str, str] = {}
    for message in notes:
        if message.code == "names-read":
            roles |= dict(message.values["pairs"])
        elif message.code == "masks-left-out":
            roles |= dict.fromkeys(message.values["names"], "M")
    return roles


def list_names_without_role(text: str, parameters: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the names in the text that klsym does not read without help: ambiguous ones and unknown ones.

    Nothing for a text that is no Python.
    """
    try:
        reader = SpelledReader(text, parameters)
        tree = _parse_tree(as_python(text))
        reader.collect_names(tree)
    except (SyntaxError, ValueError, RecursionError, MemoryError, UsageError):
        return ()
    names: dict[str, None] = {}
    for name, _ in _list_quantities(tree, reader):
        if name not in reader.names and name not in KNOWN and _is_unread(reader, name):
            names[name] = None
    return tuple(names)


def with_roles(text: str, roles: Mapping[str, str]) -> str:
    """Return the same code, in which each of these names has the given role.

    A plain name is assigned in front; an attribute or an entry, such as batch["adv"], is replaced.
    Raises UsageError: a role that is none of ROLES, a name that the code does not use.
    """
    if not roles:
        return text
    source = as_python(text)
    try:
        places = list(_list_quantities(_parse_tree(source), SpelledReader(text, ())))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise UsageError("the loss cannot be read as Python: no role is changed") from None
    for name, role in roles.items():
        if role not in ROLES:
            raise UsageError(f"role {role[:SHOWN]!r}: one of {', '.join(ROLES)} expected")
        if name not in {used_name for used_name, _ in places}:
            raise UsageError(f"the loss uses no name {name[:SHOWN]!r}")
    dotted = {name: role for name, role in roles.items() if not name.isidentifier()}
    ahead = [f"{name} = {role}" for name, role in roles.items() if name not in dotted]
    replaced = [(node, dotted[name]) for name, node in places if name in dotted]
    return "\n".join([*ahead, _replace_places(source, replaced) if replaced else text])


def _parse_tree(source: str) -> ast.Module:
    if len(source) > MAX_LENGTH or not source.isascii():
        raise ValueError("too long, or not ASCII")
    tree: ast.Module = parse_python(source)
    return tree


def _is_unread(reader: EntryReader, name: str) -> bool:
    last = name.rpartition(".")[2]
    if last in AMBIGUOUS:
        return not reader.is_read_as_rho(last)
    return name.isidentifier() and not reader.has_meaning(name) and find_meaning(name) is None


def _list_quantities(tree: ast.AST, reader: EntryReader) -> Iterator[tuple[str, ast.expr]]:
    """Yield each use of a name or of a chain x.y["z"] that is not assigned before, with its place."""
    assigned: set[str] = set()
    for statement in getattr(tree, "body", ()):
        for name, node in _walk_names(statement, reader):
            if name.partition(".")[0] not in assigned:
                yield name, node
        targets = getattr(statement, "targets", ())
        assigned |= {target.id for target in targets if isinstance(target, ast.Name)}


def _walk_names(node: ast.AST, reader: EntryReader) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(node, ast.Call):
        yield from _walk_call(node, reader)
        return
    if isinstance(node, ast.Name):
        if isinstance(node.ctx, ast.Load):
            yield node.id, node
        return
    if isinstance(node, ast.Attribute | ast.Subscript):
        chain = reader.split_chain(node)
        if chain and chain[0] not in LIBRARIES:
            yield ".".join(chain), node
            return
    for child in ast.iter_child_nodes(node):
        yield from _walk_names(child, reader)


def _walk_call(node: ast.Call, reader: EntryReader) -> Iterator[tuple[str, ast.expr]]:
    """Yield the names in the arguments of a function; x in x.exp(), but no name in torch.exp."""
    if isinstance(node.func, ast.Attribute):
        receiver = node.func.value
        chain = reader.split_chain(receiver)
        if not chain or chain[0] not in LIBRARIES:
            yield from _walk_names(receiver, reader)
    for child in (*node.args, *(keyword.value for keyword in node.keywords)):
        yield from _walk_names(child, reader)


def _replace_places(source: str, places: list[tuple[ast.expr, str]]) -> str:
    """Return the text with other words at these places, the last place first."""
    starts = [0]
    for line in source.split("\n"):
        starts.append(starts[-1] + len(line) + 1)
    spans = [
        (
            starts[node.lineno - 1] + node.col_offset,
            starts[(node.end_lineno or 1) - 1] + (node.end_col_offset or 0),
            role,
        )
        for node, role in places
    ]
    for start, end, role in sorted(spans, reverse=True):
        source = source[:start] + role + source[end:]
    return source
