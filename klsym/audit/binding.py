"""What the arguments of the code are: --map says it of those that depend on the sample, --set of options.

    --map logprob=log_q --map log_weights="log_q - log_mu" --map response_mask=mask --map logits=log_q[v]

What is not said is guessed from the usual names, and the guess is printed.  A coefficient without a value,
such as
self.beta, becomes a parameter: the answer holds for every value of it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any

from klsym.audit.code import Code
from klsym.audit.expressions import normal
from klsym.audit.terms import VOCABULARY, mask, token
from klsym.errors import UsageError
from klsym.language import expressions as language
from klsym.language.expressions import parameter
from klsym.language.parser import parse, parse_asked, syntax
from klsym.language.sums import OverPositions, Whole
from klsym.language.training_names import BEHAVIOUR, OLD, REFERENCE, TRAINED, is_number, meant_by, words_of

MASKS = re.compile(r"(\w+_)?masks?$")
TOKENS = re.compile(r"(\w+_)?(labels?|ids|tokens?|responses?|actions?|targets?|index)$")
NO_POLICY = {"critic", "reward", "rewards", "rm", "value", "values", "judge", "scorer"}  # other models
COUNTS = {"num", "count", "counts", "n", "window", "max", "min", "total", "avg", "valid"}
NO_TOKENS = COUNTS | {"ignore"}
NUMBERS = {"float", "int", "<class 'float'>", "<class 'int'>"}
SHORT = {"t": "teacher", "s": "student"}
POLICIES = {"new", "old", "ref"}  # arguments of one function: log densities
OF_VOCABULARY = {f"{x.name}": x for x in VOCABULARY}
WORDS = {"true": True, "false": False, "none": None}
DENSITIES = ("log_q", "log_p", "log_mu", "log_old")
TOO_MANY = 40
CONDITIONS = ("isinstance", "hasattr")  # of variables of other functions: whether they are read is seen later
NUMBER = "number"  # a role: any number, which is the same for all samples
OBJECT = "object"  # a role: any object, whose parts are known by their names


@dataclass
class Bindings:
    """roles: formulas of arguments, as text and as expressions; options: values; free: parameters."""

    roles: dict[str, Any] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    guessed: list[str] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)
    free: dict[str, Any] = field(default_factory=dict)
    objects: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)  # arguments with the names of densities, at their defaults

    def guess(self, name: str, text: str) -> None:
        """Take a name for what it says: a role, or NUMBER for any number."""
        if text == NUMBER:
            self.free[name] = parameter(_symbol_name(_counted(name), self))
            return
        self.roles[name], self.texts[name] = role(text), text
        self.guessed.append(name)
        _old_beside_sampler(self)

    def with_roles(self, texts: Mapping[str, str]) -> Bindings:
        """The same, with these roles."""
        found = self.copy()
        found.texts.update(texts)
        found.roles.update({name: role(text) for name, text in texts.items()})
        return found

    def keep(self, names: Collection[str]) -> None:
        """Forget what was guessed of other names, which the code does not use in the end."""
        for name in [name for name in self.guessed if name not in names]:
            del self.roles[name], self.texts[name]
            self.guessed.remove(name)

    def copy(self) -> Bindings:
        """The same, which may grow apart."""
        own = {name: type(value)(value) for name, value in vars(self).items()}
        return replace(self, **own)

    def in_order(self, names: Iterable[str]) -> Bindings:
        """The same, in the order of these names; what is none of them comes last."""
        places = {name: n for n, name in enumerate(names)}

        def sorted_by(found: Iterable[str]) -> list[str]:
            return sorted(found, key=lambda name: places.get(name, len(places)))

        roles, texts = ({k: d[k] for k in sorted_by(d)} for d in (self.roles, self.texts))
        return replace(self, roles=roles, texts=texts, guessed=sorted_by(self.guessed))

    def scale(self, names: Iterable[str], every: Any, factor: Any) -> None:
        """These arguments are logits of a policy that has a temperature."""
        for name in names:
            if self.roles.get(name) == every:
                self.roles[name] = factor * every
                self.texts[name] = f"({factor})*{every}"

    def as_numbers(self, names: Iterable[str]) -> Bindings:
        """The same, but with these names as parameters, in place of the roles that were guessed."""
        left = {name: e for name, e in self.roles.items() if name not in names}
        texts = {name: text for name, text in self.texts.items() if name not in names}
        guessed = [name for name in self.guessed if name not in names]
        found = replace(self, roles=left, texts=texts, guessed=guessed, free=dict(self.free))
        for name in names:
            found.guess(name, NUMBER)
        return found

    @property
    def known(self) -> set[str]:
        """The names with a role or a value, and the arguments that are reported as left."""
        return {*self.roles, *self.options, *self.free, *self.objects, *self.left}

    def guessed_as(self, role: Any) -> list[str]:
        return [name for name in self.guessed if self.roles[name] == role]

    @property
    def symbols(self) -> set[Any]:
        """All symbols that the arguments depend on."""
        formulas = [*self.roles.values(), *self.free.values()]
        return set().union(*(language.unfold(f).free_symbols for f in formulas)) if formulas else set()


def bind(code: Code, maps: Mapping[str, str], options: Mapping[str, Any]) -> Bindings:
    """The names that the user bound with --map and --set; the others are asked for when they are used."""
    found = Bindings()
    for key in (*maps, *options):
        roots = {n.id for n in ast.walk(ast.parse(normal(key))) if isinstance(n, ast.Name)}
        known = {*code.own, *code.texts, *code.stored, "self", *CONDITIONS}
        if code.texts and not roots & known:
            raise _unknown(code, key)
    for key, text in maps.items():
        name = normal(key)
        if str(text).strip() == NUMBER:
            found.free[name] = parameter(_symbol_name(last_word(name), found))
        elif str(text).strip() == OBJECT:
            found.objects.append(name)
        else:
            found.roles[name], found.texts[name] = role(text), str(text)
    for key, value in options.items():
        name = normal(key)
        if name in found.roles or name in found.free:
            raise UsageError(f"{key!r} is bound twice, by map and by set: leave one out")
        found.options[name] = value
    bound = found.known
    found.left = [
        a.name
        for a in code.arguments
        if a.has_default and a.name not in bound and (meaning(a.name) or (a.is_none and is_number(a.name)))
    ]
    return found


def refuse_unused(code: Code, bindings: Bindings, given: Iterable[str], used: Iterable[str]) -> None:
    """Raise UsageError for a name that was bound and that the code does not hold."""
    there = {*used, *code.own, *code.texts, *code.stored}
    for key in given:
        if normal(key) not in there:
            raise _unknown(code, key)


def _unknown(code: Code, key: str) -> UsageError:
    near = get_close_matches(key, sorted(code.texts - code.own), 6, 0.4)
    reads = ", ".join([*(a.name for a in code.arguments), *near][:TOO_MANY]) or "nothing"
    return UsageError(f"{code.name} reads no {key!r} (it reads {reads})")


def _old_beside_sampler(found: Bindings) -> None:
    """Samples come from the old policy, unless the one that they come from is named beside it."""
    guessed = [name for name in found.guessed if found.texts[name] == "log_mu"]
    old = [name for name in guessed if "old" in last_word(name).lower()]
    if old and any(text == "log_mu" for name, text in found.texts.items() if name not in old):
        found.texts.update(dict.fromkeys(old, "log_old"))
        found.roles.update(dict.fromkeys(old, role("log_old")))


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
    found = parse(str(text))
    if any(not isinstance(e, Whole) for e in found.atoms(OverPositions)):
        hint = "map the argument to log_q[v], log_p[v] or log_mu[v], or to whole(..)"
        raise UsageError(f"{str(text)[:60]!r} is a sum over other words, tokens or samples: {hint}")
    return found


def guesser(code: Code) -> Callable[[str, str, bool], tuple[str, str] | None]:
    """path, alias, is it without gradient -> the name, and what it says: by the usual names.

    Where the words of the loss grammar are used, log_p is the reference; else it is usually the policy.
    """
    own = "log_q" in {last_word(name) for name in [*code.own, *code.stored]}
    numbers = {a.name for a in code.arguments if a.annotation in NUMBERS} | code.numbers

    def guess(path: str, alias: str, off: bool) -> tuple[str, str] | None:
        name = path if path and not path.endswith("(..)") else alias
        if not name:
            return None
        last = spelled_out(last_word(name), code.own)
        if isinstance(code.defaults.get(name), str | bool):
            return None  # an option
        meant = last if own and last in DENSITIES else meaning(last)
        if meant and (name in code.numbers or (name in numbers and meant in ("mask", "token"))):
            meant = None
        if meant and path and not _agree(meant, path, alias):
            kept = meaning(last_word(alias)) if alias else None
            return (name, kept) if kept in DENSITIES and is_unspecific(last) else None
        if meant == "log_q" and off:
            meant = "sg(log_q)"
        if name != path:  # it is computed, and cannot be read: its name has to be clear
            clear = meant in ("sg(log_q)", *DENSITIES)
            return (name, meant) if meant and clear else None
        if meant:
            return name, meant
        counted = is_number(_counted(name)) or is_count(last)
        return (name, NUMBER) if name in numbers or counted else None

    return guess


def _agree(meant: str, path: str, alias: str) -> bool:
    """Does nothing else in its name, or the name that it is kept under, speak of another policy?"""
    words = {*words_of(path)} if "(..)" in path else set()
    if words & NO_POLICY:
        return False
    said = {"log_p": words & REFERENCE, "log_mu": words & BEHAVIOUR}
    others = {name for name, found in said.items() if found and not meant.startswith(name)}
    kept = meaning(last_word(alias)) if alias else None
    return not others and (kept is None or kept.startswith(meant[:5]) or meant.startswith(kept[:5]))


def meaning(name: str) -> str | None:
    """A role by its name.

    >>> meaning("ref_logits"), meaning("response_mask"), meaning("old_log_probs"), meaning("config")
    ('log_p[v]', 'mask', 'log_mu', None)
    """
    if MASKS.fullmatch(name.lower()):
        return "mask"
    if TOKENS.fullmatch(name.lower()):
        return None if {*words_of(name)} & NO_TOKENS else "token"
    if "logits" in name.lower() or "logit" in words_of(name):
        spelled = re.sub("logits?", "logps", name, flags=re.IGNORECASE)
        return f"{meant_by(spelled) or 'log_q'}[v]"
    if "neglog" in name.lower():  # -log q
        meant = meant_by(re.sub("neglog", "log", name, flags=re.IGNORECASE))
        return f"-{meant}" if meant in DENSITIES else None
    if re.fullmatch(r"log_(importance_)?weights?", name):
        return "log_q-log_mu"
    meant = meant_by(name)
    return meant if meant and " " not in meant else None


def spelled_out(name: str, beside: Collection[str]) -> str:
    """The full name of an argument that is short for one, as the arguments beside it show.

    >>> spelled_out("t_logits", {"s_logits", "t_logits"}), spelled_out("new", {"new", "old", "ref"})
    ('teacher_logits', 'new_logps')
    >>> spelled_out("t_logits", {"t_logits"}), spelled_out("old", {"new", "old"})
    ('t_logits', 'old')
    """
    for one, rest, form in ((name[:1], name[2:], "{}_{}"), (name[-1:], name[:-2], "{1}_{0}")):
        pair = {form.format(letter, rest) for letter in SHORT}
        if rest and one in SHORT and name in pair and pair <= {*beside}:
            return f"{SHORT[one]}_{rest}"
    return f"{name}_logps" if name in POLICIES and {*beside} >= POLICIES else name


def is_unspecific(name: str) -> bool:
    """Is it a log density of no policy in particular?  Then the variable it is kept in may say more.

    >>> is_unspecific("token_logprobs"), is_unspecific("old_logprobs")
    (True, False)
    """
    return meaning(name) == "log_q" and not {*words_of(name)} & (TRAINED | BEHAVIOUR | REFERENCE | OLD)


def is_count(name: str) -> bool:
    """Is it how many tokens there are?

    >>> is_count("_window_action_tokens"), is_count("tokens"), is_count("ignore_index")
    (True, False, False)
    """
    return bool(TOKENS.fullmatch(name.lower()) and {*words_of(name)} & COUNTS)


def _counted(name: str) -> str:
    """The last word that says something: of kl_ctl.value, kl_ctl; of eps_low_high[0], eps_low_high."""
    words = [word for word in re.findall(r"\w+", name) if not word.isdigit()] or [name]
    return words[-2] if words[-1] in ("value", "item") and len(words) > 1 else words[-1]


def last_word(name: str) -> str:
    """The last word of self.args.beta or inputs['ref_logps'].

    >>> last_word("self.args.beta"), last_word("inputs['ref_logps']")
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
    """NAME=VALUE, split at the last equality sign.

    >>> pair("self.beta=0.04", "--set"), pair("labels != -100=mask", "--map")
    (('self.beta', '0.04'), ('labels != -100', 'mask'))
    """
    name, sign, value = text.rpartition("=")
    if not sign or not name.strip() or not value.strip():
        raise UsageError(f"{flag} {text[:60]!r}: NAME=VALUE expected")
    return name.strip(), value.strip()
