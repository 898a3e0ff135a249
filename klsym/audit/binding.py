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

import sympy

from klsym.audit.code import Code
from klsym.audit.expressions import normalise_text
from klsym.audit.terms import VOCABULARY, mask, offsets, sequence_mask, token
from klsym.errors import UsageError
from klsym.language import expressions as language
from klsym.language.expressions import parameter
from klsym.language.parser import parse, parse_asked
from klsym.language.pasted.text import parse_python
from klsym.language.sums import OverPositions, Whole
from klsym.language.training_names import (
    BEHAVIOUR,
    OLD,
    REFERENCE,
    TRAINED,
    expand_name,
    find_density,
    find_meaning,
    is_training_setting,
    split_words,
)

MASKS = re.compile(r"(\w+_)?masks?$")
TOKENS = re.compile(r"(\w+_)?(labels?|ids|tokens?|responses?|actions?|targets?|index)$")
OFFSETS = re.compile(r"cu_?seq_?lens?(_[qk])?")
NO_POLICY = {"critic", "reward", "rewards", "rm", "value", "values", "judge", "scorer"}  # other models
COUNTS = {"num", "count", "counts", "n", "window", "max", "min", "total", "avg", "valid"}
NO_TOKENS = COUNTS | {"ignore"}
NUMBERS = {"float", "int", "<class 'float'>", "<class 'int'>"}
POLICIES = {"new", "old", "ref"}  # arguments of one function: log densities
OF_VOCABULARY = {f"{x.name}": x for x in VOCABULARY}
PROBABILITIES = {x.name.removeprefix("log_"): sympy.exp(x) for x in VOCABULARY}  # such as q[v]
OF_VOCABULARY |= PROBABILITIES
WORDS = {"true": True, "false": False, "none": None}
STRUCTURE = {x.name: x for x in (mask, token, sequence_mask, offsets)}  # roles that are no densities
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
    tempered: dict[str, Any] = field(default_factory=dict)  # divided logits -> those of q
    defaulted: list[str] = field(
        default_factory=list
    )  # arguments with the names of densities, at their defaults

    def guess(self, name: str, text: str) -> None:
        """Take a name for what it says: a role, or NUMBER for any number."""
        if text == NUMBER:
            self.free[name] = parameter(_choose_symbol_name(_find_telling_word(name), self))
            return
        self.roles[name], self.texts[name] = parse_role(text), text
        self.guessed.append(name)
        _rename_old_policy(self)

    def replace_roles(self, texts: Mapping[str, str]) -> Bindings:
        """Return the bindings with these roles."""
        bindings = self.copy()
        bindings.texts.update(texts)
        bindings.roles.update({name: parse_role(text) for name, text in texts.items()})
        return bindings

    def keep(self, names: Collection[str]) -> None:
        """Forget what was guessed of other names, which the code does not use in the end."""
        for name in [name for name in self.guessed if name not in names]:
            del self.roles[name], self.texts[name]
            self.guessed.remove(name)

    def copy(self) -> Bindings:
        """Return a copy with containers of its own."""
        fields = {name: type(value)(value) for name, value in vars(self).items()}
        return replace(self, **fields)

    def sort_by(self, names: Iterable[str]) -> Bindings:
        """Return the bindings in the order of these names; other names come last."""
        places = {name: n for n, name in enumerate(names)}

        def sort_names(keys: Iterable[str]) -> list[str]:
            return sorted(keys, key=lambda name: places.get(name, len(places)))

        roles, texts = ({k: d[k] for k in sort_names(d)} for d in (self.roles, self.texts))
        return replace(self, roles=roles, texts=texts, guessed=sort_names(self.guessed))

    def take_as_sampled(self) -> list[str]:
        """Take guessed probabilities as those of the sampled tokens, not of all words; return their names."""
        names = [name for name in self.guessed if self.texts[name] in PROBABILITIES]
        self.texts.update({name: f"exp(log_{self.texts[name].removesuffix('[v]')})" for name in names})
        self.roles.update({name: parse_role(self.texts[name]) for name in names})
        return names

    def scale(self, names: Iterable[str], every: Any, factor: Any) -> None:
        """Make these arguments logits of a policy that has a temperature."""
        for name in names:
            if self.roles.get(name) == every:
                self.tempered[name] = every
                self.roles[name] = factor * every
                self.texts[name] = f"({factor})*{every}"

    def cool(self) -> Bindings:
        """Return the bindings with the logits of the policies at temperature 1."""
        texts = {name: str(every) for name, every in self.tempered.items()}
        return replace(self, roles={**self.roles, **self.tempered}, texts={**self.texts, **texts})

    def as_numbers(self, names: Iterable[str]) -> Bindings:
        """Return the bindings with these names as parameters, in place of the roles that were guessed."""
        roles = {name: e for name, e in self.roles.items() if name not in names}
        texts = {name: text for name, text in self.texts.items() if name not in names}
        guessed = [name for name in self.guessed if name not in names]
        bindings = replace(self, roles=roles, texts=texts, guessed=guessed, free=dict(self.free))
        for name in names:
            bindings.guess(name, NUMBER)
        return bindings

    @property
    def bound_names(self) -> set[str]:
        """The names with a role or a value, and the arguments that are reported as left."""
        return {*self.roles, *self.options, *self.free, *self.objects, *self.defaulted}

    def list_guessed(self, role: Any) -> list[str]:
        return [name for name in self.guessed if self.roles[name] == role]

    @property
    def symbols(self) -> set[Any]:
        """All symbols that the arguments depend on."""
        formulas = [*self.roles.values(), *self.free.values()]
        return set().union(*(language.unfold(f).free_symbols for f in formulas)) if formulas else set()


def bind(code: Code, maps: Mapping[str, str], options: Mapping[str, Any]) -> Bindings:
    """Return the names that the user bound with --map and --set; others are asked for when they are used."""
    bindings = Bindings()
    for key in (*maps, *options):
        roots = {n.id for n in ast.walk(ast.parse(normalise_text(key))) if isinstance(n, ast.Name)}
        known_names = {*code.argument_names, *code.texts, *code.stored, "self", *CONDITIONS}
        if code.texts and not roots & known_names:
            raise _make_unknown_error(code, key)
    for key, text in maps.items():
        name = normalise_text(key)
        if str(text).strip() == NUMBER:
            bindings.free[name] = parameter(_choose_symbol_name(find_last_word(name), bindings))
        elif str(text).strip() == OBJECT:
            bindings.objects.append(name)
        else:
            bindings.roles[name], bindings.texts[name] = parse_role(text), str(text)
    for key, value in options.items():
        name = normalise_text(key)
        if name in bindings.roles or name in bindings.free:
            raise UsageError(f"{key!r} is bound twice, by map and by set: leave one out")
        bindings.options[name] = value
    bound = bindings.bound_names
    bindings.defaulted = [
        a.name
        for a in code.arguments
        if a.has_default
        and a.name not in bound
        and (guess_role(a.name) or (a.is_none and is_training_setting(a.name)))
    ]
    return bindings


def refuse_unused(code: Code, bindings: Bindings, bound_names: Iterable[str], used: Iterable[str]) -> None:
    """Raise UsageError for a name that was bound and that the code does not have."""
    code_names = {*used, *code.argument_names, *code.texts, *code.stored}
    for key in bound_names:
        if normalise_text(key) not in code_names:
            raise _make_unknown_error(code, key)


def _make_unknown_error(code: Code, key: str) -> UsageError:
    near = get_close_matches(key, sorted(code.texts - code.argument_names), 6, 0.4)
    reads = ", ".join([*(a.name for a in code.arguments), *near][:TOO_MANY]) or "nothing"
    return UsageError(f"{code.name} reads no {key!r} (it reads {reads})")


def _rename_old_policy(bindings: Bindings) -> None:
    """Make log_mu of a name with "old" log_old if another name is log_mu: samples come from that one."""
    guessed = [name for name in bindings.guessed if bindings.texts[name] == "log_mu"]
    old = [name for name in guessed if "old" in find_last_word(name).lower()]
    if old and any(text == "log_mu" for name, text in bindings.texts.items() if name not in old):
        bindings.texts.update(dict.fromkeys(old, "log_old"))
        bindings.roles.update(dict.fromkeys(old, parse_role("log_old")))


def parse_role(text: str) -> Any:
    """Return the formula that --map gives to an argument.

    >>> parse_role("log_q - log_mu"), parse_role("log_p[v]"), parse_role("p[v]"), parse_role("mask")
    (-log_mu + log_q, log_p[v], exp(log_p[v]), mask)

    Raises UsageError: no expression of the grammar.
    """
    plain = str(text).replace(" ", "")
    if plain in STRUCTURE:
        return STRUCTURE[plain]
    if plain in OF_VOCABULARY:
        return OF_VOCABULARY[plain]
    expression = parse(str(text))
    if any(not isinstance(e, Whole) for e in expression.atoms(OverPositions)):
        hint = "map the argument to log_q[v], log_p[v] or log_mu[v], or to whole(..)"
        raise UsageError(f"{str(text)[:60]!r} is a sum over other words, tokens or samples: {hint}")
    return expression


def make_guesser(code: Code) -> Callable[[str, str, bool], tuple[str, str] | None]:
    """Return the function (path, alias, is it without gradient) -> name and role, by the usual names.

    Where the words of the loss grammar are used, log_p is the reference; else it is usually the policy.
    """
    has_grammar_words = "log_q" in {find_last_word(name) for name in [*code.argument_names, *code.stored]}
    numbers = {a.name for a in code.arguments if a.annotation in NUMBERS} | code.numbers

    def guess(path: str, alias: str, without_gradient: bool) -> tuple[str, str] | None:
        name = path if path and not path.endswith("(..)") else alias
        if not name:
            return None
        last = expand_short_name(find_last_word(name), code.argument_names)
        if isinstance(code.defaults.get(name), str | bool):
            return None  # an option
        meant = last if has_grammar_words and last in DENSITIES else guess_role(last)
        if meant and (name in code.numbers or (name in numbers and meant in ("mask", "token"))):
            meant = None
        if meant and path and not _is_consistent(meant, path, alias):
            alias_role = guess_role(find_last_word(alias)) if alias else None
            return (name, alias_role) if alias_role in DENSITIES and is_unspecific(last) else None
        if meant == "log_q" and without_gradient:
            meant = "sg(log_q)"
        if name != path:  # it is computed, and cannot be read: its name has to be clear
            clear = meant in ("sg(log_q)", *DENSITIES)
            return (name, meant) if meant and clear else None
        if meant:
            return name, meant
        counted = is_training_setting(_find_telling_word(name)) or is_count(last)
        return (name, NUMBER) if name in numbers or counted else None

    return guess


def _is_consistent(meant: str, path: str, alias: str) -> bool:
    """Does neither the rest of the name nor the variable that keeps the value name another policy?"""
    words = {*split_words(path)} if "(..)" in path else set()
    if words & NO_POLICY:
        return False
    policies = {"log_p": words & REFERENCE, "log_mu": words & BEHAVIOUR}
    others = {name for name, marks in policies.items() if marks and not meant.startswith(name)}
    alias_role = guess_role(find_last_word(alias)) if alias else None
    return not others and (
        alias_role is None or alias_role.startswith(meant[:5]) or meant.startswith(alias_role[:5])
    )


def guess_role(name: str) -> str | None:
    """Return the role that a name says.

    >>> [guess_role(name) for name in ("ref_logits", "response_mask", "old_log_probs", "config")]
    ['log_p[v]', 'mask', 'log_mu', None]
    >>> guess_role("teacher_probs")
    'p[v]'
    """
    if MASKS.fullmatch(name.lower()):
        return "mask"
    if OFFSETS.fullmatch(name.lower()):
        return "offsets"
    if TOKENS.fullmatch(name.lower()):
        return None if {*split_words(name)} & NO_TOKENS else "token"
    if "logits" in name.lower() or "logit" in split_words(name):
        spelled = re.sub("logits?", "logps", name, flags=re.IGNORECASE)
        return f"{find_meaning(spelled) or 'log_q'}[v]"
    if "neglog" in name.lower():  # -log q
        meant = find_meaning(re.sub("neglog", "log", name, flags=re.IGNORECASE))
        return f"-{meant}" if meant in DENSITIES else None
    if re.fullmatch(r"log_(importance_)?weights?", name):
        return "log_q-log_mu"
    if (density := find_density(name)) is not None:
        return f"{density.removeprefix('log_')}[v]"
    meant = find_meaning(name)
    return meant if meant and " " not in meant else None


def expand_short_name(name: str, argument_names: Collection[str]) -> str:
    """Return the full name of an argument that is short for one, as the other arguments show.

    >>> expand_short_name("t_logits", {"s_logits", "t_logits"})
    'teacher_logits'
    >>> expand_short_name("new", {"new", "old", "ref"})
    'new_logps'
    >>> expand_short_name("t_logits", {"t_logits"}), expand_short_name("old", {"new", "old"})
    ('t_logits', 'old')
    """
    if name in POLICIES and {*argument_names} >= POLICIES:
        return f"{name}_logps"
    return expand_name(name, argument_names)


def is_unspecific(name: str) -> bool:
    """Is it a log density of no policy in particular?  Then the variable that keeps it may say more.

    >>> is_unspecific("token_logprobs"), is_unspecific("old_logprobs")
    (True, False)
    """
    return guess_role(name) == "log_q" and not {*split_words(name)} & (TRAINED | BEHAVIOUR | REFERENCE | OLD)


def is_count(name: str) -> bool:
    """Is it a number of tokens?

    >>> is_count("_window_action_tokens"), is_count("tokens"), is_count("ignore_index")
    (True, False, False)
    """
    return bool(TOKENS.fullmatch(name.lower()) and {*split_words(name)} & COUNTS)


def _find_telling_word(name: str) -> str:
    """Return the last word that says something: of kl_ctl.value, kl_ctl; of eps_low_high[0], eps_low_high."""
    words = [word for word in re.findall(r"\w+", name) if not word.isdigit()] or [name]
    return words[-2] if words[-1] in ("value", "item") and len(words) > 1 else words[-1]


def find_last_word(name: str) -> str:
    """Return the last word of self.args.beta or inputs['ref_logps'].

    >>> find_last_word("self.args.beta"), find_last_word("inputs['ref_logps']")
    ('beta', 'ref_logps')
    """
    return re.findall(r"\w+", name)[-1]


def _choose_symbol_name(name: str, bindings: Bindings) -> str:
    used_names = {x.name for x in bindings.free.values()} | {"mask", "token", "n", "T"}
    plain = re.sub(r"\W", "_", name).strip("_")[:24] or "c"
    if plain in used_names or not _is_declared(plain):
        plain = f"c_{plain}"
    while plain in used_names:
        plain += "_"
    return plain


def _is_declared(name: str) -> bool:
    """May a parameter have this name?"""
    try:
        parse_asked(name, [name])
    except UsageError:
        return False
    return True


def parse_option(text: str) -> Any:
    """Return the value of an option as it is typed: a Python literal, else a word.

    >>> parse_option("0.04"), parse_option("low_var_kl"), parse_option("true"), parse_option("None")
    (0.04, 'low_var_kl', True, None)
    """
    if text.lower() in WORDS:
        return WORDS[text.lower()]
    try:
        return ast.literal_eval(parse_python(text.lstrip(" \t"), mode="eval"))
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):  # TypeError: {[]: 1}
        return text


def split_pair(text: str, flag: str) -> tuple[str, str]:
    """Split NAME=VALUE at the last equality sign.

    >>> split_pair("self.beta=0.04", "--set"), split_pair("labels != -100=mask", "--map")
    (('self.beta', '0.04'), ('labels != -100', 'mask'))
    """
    name, sign, value = text.rpartition("=")
    if not sign or not name.strip() or not value.strip():
        raise UsageError(f"{flag} {text[:60]!r}: NAME=VALUE expected")
    return name.strip(), value.strip()
