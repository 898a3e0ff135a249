"""What the arguments of the code are: --map says it of those that depend on the sample, --set of options.

    --map logprob=log_q --map log_weights="log_q - log_mu" --map response_mask=mask --map logits=log_q[v]

What is not said is guessed from the usual names, and the guess is printed.  A coefficient without a value,
such as
self.beta, becomes a parameter: the answer holds for every value of it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from klsym import language
from klsym.audit.reading import Argument, Code, normal
from klsym.audit.terms import VOCABULARY, mask, token
from klsym.errors import UsageError
from klsym.language import meant_by, parameter
from klsym.parser import parse, syntax

MASKS = re.compile(r"(\w+_)?masks?$")
TOKENS = re.compile(r"(\w+_)?(labels?|ids|tokens?|responses?|actions?|targets?|index)$")
COEFFICIENT = re.compile(
    r"(^|_)(beta|coefs?|coeffs?|eps|epsilon|clip|lam|lambda|alpha|gamma|tau|delta|temperature|weight|scale|cap|ctl|"
    r"threshold|low|high|min|max|c|norm|len|length)(_|\d*$)"
)
NUMBERS = {"float", "int", "<class 'float'>", "<class 'int'>"}
OF_VOCABULARY = {f"{x.name}": x for x in VOCABULARY}
WORDS = {"true": True, "false": False, "none": None}
DENSITIES = ("log_q", "log_p", "log_mu", "log_old")
TOO_MANY = 40


@dataclass
class Bindings:
    """roles: formulas of arguments, as text and as expressions; options: values; free: parameters."""

    roles: dict[str, Any] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    guessed: list[str] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)
    free: dict[str, Any] = field(default_factory=dict)
    idle: list[str] = field(default_factory=list)  # read by the code, and bound to nothing
    unused: list[str] = field(default_factory=list)  # arguments that are not read themselves
    left: list[str] = field(default_factory=list)  # arguments with the names of densities, at their defaults

    @property
    def symbols(self) -> set[Any]:
        """All symbols that the arguments depend on."""
        formulas = [*self.roles.values(), *self.free.values()]
        return set().union(*(language.unfold(f).free_symbols for f in formulas)) if formulas else set()


def bind(code: Code, maps: Mapping[str, str], options: Mapping[str, Any]) -> Bindings:
    """Everything that the code reads, with what it stands for; raises UsageError for what stays unclear."""
    found = Bindings()
    for key, text in maps.items():
        name = _known(code, key)
        found.roles[name], found.texts[name] = role(text), str(text)
    for key, value in options.items():
        found.options[_known(code, key)] = value
    unclear: list[str] = []
    outside = [Argument(name) for name in code.outside]
    own = "log_q" in {_last(a.name) for a in [*code.arguments, *outside]}
    for argument in [*code.arguments, *outside]:
        name = argument.name
        if name in found.roles or name in found.options or _is_part_bound(name, found):
            continue
        if argument.has_default:
            found.left += [name] if _meant(name) else []
            continue
        if not _guess(argument, found, own):
            (found.idle if argument in outside else unclear).append(name)
    _old_beside_sampler(found)
    read = code.still_read([*found.roles, *found.options, *found.free])
    found.unused = [name for name in unclear if name not in read or _is_root(name, code.outside)]
    unclear = [name for name in unclear if name not in found.unused]
    if unclear:
        named = ", ".join(unclear[:TOO_MANY])
        raise UsageError(
            f"{code.name}: left free: {named}; bind each with --map NAME=log_q or --set NAME=VALUE"
        )
    return found


def _old_beside_sampler(found: Bindings) -> None:
    """Samples come from the old policy, unless the one that they come from is named beside it."""
    guessed = [name for name in found.guessed if found.texts[name] == "log_mu"]
    old = [name for name in guessed if "old" in _last(name).lower()]
    if old and any(text == "log_mu" for name, text in found.texts.items() if name not in old):
        found.texts.update(dict.fromkeys(old, "log_old"))
        found.roles.update(dict.fromkeys(old, role("log_old")))


def _known(code: Code, key: str) -> str:
    name = normal(key)
    if name in {a.name for a in code.arguments} or name in code.outside or name in code.texts:
        return name
    there = [a.name for a in code.arguments] + list(code.outside)
    raise UsageError(f"{code.name} reads no {key!r} (it reads {', '.join(there[:TOO_MANY]) or 'nothing'})")


def _is_part_bound(name: str, found: Bindings) -> bool:
    """x.y where x is bound."""
    return any(name.startswith((f"{key}.", f"{key}[")) for key in [*found.roles, *found.options])


def _is_root(name: str, keys: Iterable[str]) -> bool:
    return any(key.startswith((f"{name}.", f"{name}[")) for key in keys)


def role(text: str) -> Any:
    """What an argument stands for.

    >>> role("log_q - log_mu"), role("log_p[v]"), role("mask")
    (-log_mu + log_q, log_p[v], mask)

    Raises UsageError: no expression of the grammar.
    """
    plain = str(text).replace(" ", "")
    if plain in ("mask", "token"):
        return mask if plain == "mask" else token
    if plain in OF_VOCABULARY:
        return OF_VOCABULARY[plain]
    return parse(str(text))


def _guess(argument: Argument, found: Bindings, own: bool = False) -> bool:
    """By the usual names: log densities, ratios, advantages, masks, logits; coefficients become
    parameters.

    own: the words are those of the loss grammar; else log_p is usually the policy, as logp is.
    """
    last = _last(argument.name)
    meant = last if own and last in DENSITIES else _meant(last)
    if meant:
        found.roles[argument.name], found.texts[argument.name] = role(meant), meant
        found.guessed.append(argument.name)
        return True
    if argument.annotation in NUMBERS or COEFFICIENT.search(last.lower()):
        found.free[argument.name] = parameter(_symbol_name(last, found))
        return True
    return False


def _meant(name: str) -> str | None:
    """A role by its name.

    >>> _meant("ref_logits"), _meant("response_mask"), _meant("old_log_probs"), _meant("config")
    ('log_p[v]', 'mask', 'log_mu', None)
    """
    if MASKS.fullmatch(name.lower()):
        return "mask"
    if TOKENS.fullmatch(name.lower()):
        return "token"
    if "logits" in name.lower():
        spelled = re.sub("logits", "logps", name, flags=re.IGNORECASE)
        return f"{meant_by(spelled) or 'log_q'}[v]"
    meant = meant_by(name)
    return meant if meant and " " not in meant else None


def _last(name: str) -> str:
    """The last word of self.args.beta or inputs['ref_logps'].

    >>> _last("self.args.beta"), _last("inputs['ref_logps']")
    ('beta', 'ref_logps')
    """
    return re.findall(r"\w+", name)[-1]


def _symbol_name(name: str, found: Bindings) -> str:
    taken = {x.name for x in found.free.values()} | set(language.ATOMS) | {"s", "w", "mask"}
    plain = re.sub(r"\W", "_", name).strip("_")[:24] or "c"
    if plain in taken or not plain[0].isalpha():
        plain = f"c_{plain}"
    while plain in taken:
        plain += "_"
    return plain


def option(text: str) -> Any:
    """The value of an option as it is typed: a Python literal, else a word.

    >>> option("0.04"), option("low_var_kl"), option("true"), option("None")
    (0.04, 'low_var_kl', True, None)
    """
    if text.lower() in WORDS:
        return WORDS[text.lower()]
    try:
        return ast.literal_eval(syntax(text.lstrip(" \t"), mode="eval"))
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):  # TypeError: {[]: 1}
        return text


def pair(text: str, flag: str) -> tuple[str, str]:
    """NAME=VALUE, split at the first equality sign.

    >>> pair("self.beta=0.04", "--set")
    ('self.beta', '0.04')
    """
    name, sign, value = text.partition("=")
    if not sign or not name.strip() or not value.strip():
        raise UsageError(f"{flag} {text[:60]!r}: NAME=VALUE expected")
    return name.strip(), value.strip()
