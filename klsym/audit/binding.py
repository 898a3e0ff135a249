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
from dataclasses import dataclass, field, replace
from typing import Any

import sympy

from klsym.audit.expressions import normal
from klsym.audit.reading import Argument, Code
from klsym.audit.terms import VOCABULARY, Misfit, Refused, Total, mask, outside_totals, token
from klsym.errors import UsageError
from klsym.language import expressions as language
from klsym.language.expressions import parameter
from klsym.language.parser import parse, parse_asked, syntax
from klsym.language.training_names import meant_by

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
SHIFT = sympy.Dummy("shift", real=True)


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

    def as_numbers(self, names: Iterable[str]) -> Bindings:
        """The same, but with these names as parameters, in place of the roles that were guessed."""
        left = {name: e for name, e in self.roles.items() if name not in names}
        texts = {name: text for name, text in self.texts.items() if name not in names}
        guessed = [name for name in self.guessed if name not in names]
        found = replace(self, roles=left, texts=texts, guessed=guessed, free=dict(self.free))
        for name in names:
            found.free[name] = parameter(_symbol_name(_last(name), found))
        return found

    def guessed_as(self, role: Any) -> list[str]:
        return [name for name in self.guessed if self.roles[name] == role]

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
        if any(key.startswith(f"{name}['") for key in code.outside):  # a dict, whatever its name
            unclear.append(name)
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
    number = argument.annotation in NUMBERS
    if meant and not (number and meant in ("mask", "token")):
        found.roles[argument.name], found.texts[argument.name] = role(meant), meant
        found.guessed.append(argument.name)
        return True
    if number or COEFFICIENT.search(last.lower()):
        found.free[argument.name] = parameter(_symbol_name(last, found))
        return True
    return False


# ---------------------------------------------------------------------------- does the use fit the name?
def refuse_misread(formula: Any, journal: Iterable[Any], bindings: Bindings) -> None:
    """Raise Refused where the code uses an argument in a way that its guessed role does not fit."""
    if token in formula.free_symbols:
        raise Misfit("a formula on the numbers of tokens, which are names of words", token)
    if bindings.guessed_as(mask) and all(map(_times_a_mask, sympy.Add.make_args(formula))):
        raise Misfit("a sum over the batch times a mask", mask)
    symbols, why = _of_distributions(formula, journal)
    names = [n for n in bindings.guessed if language.unfold(bindings.roles[n]).free_symbols & symbols]
    if names:
        choices = "; ".join(
            f"--map {n}={bindings.texts[n]}[v] or --map {n}={bindings.texts[n]}" for n in names
        )
        raise Refused(
            f"{why}, as of a whole vocabulary, so names are no guide: {choices}",
            _line_of(journal),
        )


def _times_a_mask(product: Any) -> bool:
    """Is it a mask times what has been summed over the batch?  Then the mask is a number."""
    factors = sympy.Mul.make_args(product)
    sums = [e for e in factors if any("b" in t.axes for t in e.atoms(Total)) and _of_data(e)]
    return mask in factors and any(not _of_data(outside_totals(e)) for e in sums)


def _of_data(e: Any) -> bool:
    return bool(_densities(e))


def _of_distributions(formula: Any, journal: Iterable[Any]) -> tuple[set[Any], str]:
    """The log densities beside a probability that is summed over the last axis, or in kl_div; and which."""
    whole = any(name == "kl_div" for name, _, _ in journal)
    places = [formula] if whole else [e.args[0] for e in formula.atoms(Total) if "t" in e.axes]
    found = {
        x for e in places if any(map(is_probability, e.atoms(sympy.exp, sympy.Pow))) for x in _densities(e)
    }
    return found, "kl_div" if whole else "a sum over the last axis of a probability"


def is_probability(power: Any) -> bool:
    """Does its exponent change when all log densities are shifted alike?  That of a ratio does not.

    >>> from klsym.language.expressions import log_p, log_q
    >>> is_probability(sympy.exp(log_q - log_p)), is_probability(sympy.exp(2 * log_q - log_p))
    (False, True)
    """
    exponent = power.args[0] if isinstance(power, sympy.exp) else power.exp
    exponent = language.without_sg(language.unfold(exponent)).replace(
        lambda e: isinstance(e, Total), lambda e: e.args[0]
    )
    moved = exponent.xreplace({x: x + SHIFT for x in _densities(exponent)})
    return bool(sympy.expand(moved - exponent) != 0)


def _densities(e: Any) -> set[Any]:
    return {x for x in e.free_symbols if x.name in DENSITIES}


def _line_of(journal: Iterable[Any]) -> int | None:
    lines = [line for name, line, _ in journal if name in ("kl_div", "sum", "mean", "reduce_sum") and line]
    return lines[-1] if lines else None


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
    taken = {x.name for x in found.free.values()} | {"mask", "token", "n", "T"}
    plain = re.sub(r"\W", "_", name).strip("_")[:24] or "c"
    if plain in taken or not _is_declared(plain):
        plain = f"c_{plain}"
    while plain in taken:
        plain += "_"
    return plain


def _is_declared(name: str) -> bool:
    """May a parameter be called so?"""
    try:
        parse_asked(name, [name])
    except UsageError:
        return False
    return True


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
