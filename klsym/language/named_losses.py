"""Losses by the names that trainers and papers give them, read from named_losses.toml.

>>> find_named_loss("Dr-GRPO").loss, find_named_loss("K3").loss, find_named_loss("k5")
('-rho*sg(centred(R))', 'k3', None)
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from klsym.errors import UsageError
from klsym.language.pasted.text import QUOTED_OR_COMMENT
from klsym.language.training_names import find_meaning

TABLE = Path(__file__).with_suffix(".toml")
WORD = re.compile(
    r"(?<![\w.])[A-Za-z]\w*(?!\w|\s*\(|\s*\.(?!\s*\w+\s*\())"
)  # no function, and no x of x.y but in x.mean()
NAME = re.compile(r"[A-Za-z]\w*\+{0,2}([- _][A-Za-z]\w*)*\+{0,2}")
TRAINER = re.compile(r"(trl|verl|openrlhf|slime|areal|unsloth|axolotl|nemo)[- ](?=\w)", re.IGNORECASE)
ASSIGNED = re.compile(r"\b([A-Za-z]\w*)\s*[-+*/]?=(?!=)")
PLACE = re.compile(r"^(.*\S)\s+(?:in|as)\s+(?:the\s+|a\s+)?(loss|reward)s?$", re.IGNORECASE | re.DOTALL)
MANY_WORDS = 3  # of a sentence


@dataclass(frozen=True)
class NamedLoss:
    """A loss with its usual options.

    whose: the trainer or paper that has the name.  gallery: the row of the study's table of trainers.
    in_formula: the expression that replaces the name inside a formula; "" if the name may not be used there.
    """

    names: tuple[str, ...]
    loss: str
    whose: str
    says: str
    options: Mapping[str, str] = field(default_factory=dict)
    gallery: str = ""
    in_formula: str | None = None

    @property
    def name(self) -> str:
        """The name that is printed."""
        return self.names[0]

    @property
    def option_words(self) -> str:
        """The options as they are typed."""
        return " ".join(f"--{name} {value}" for name, value in self.options.items())


@cache
def load_named_losses() -> tuple[NamedLoss, ...]:
    """Return the rows of the table, in its order."""
    return tuple(NamedLoss(**{**row, "names": tuple(row["names"])}) for row in _read_table()["loss"])


@cache
def _read_table() -> dict[str, Any]:
    import tomllib

    return tomllib.loads(TABLE.read_text(encoding="utf-8"))


def normalise_name(text: str) -> str:
    """Return a name in lower case without - _ and spaces; a + at the end stays.

    >>> normalise_name(" Low-Var_KL "), normalise_name("REINFORCE++")
    ('lowvarkl', 'reinforce++')
    """
    return re.sub(r"[-_\s]+", "", text.lower())


@cache
def _index_names() -> dict[str, NamedLoss]:
    return {normalise_name(name): row for row in load_named_losses() for name in row.names}


def list_names() -> list[str]:
    """Return the first name of each row."""
    return [row.name for row in load_named_losses()]


def is_like_a_name(text: str) -> bool:
    """Has a text the form of a name?  k3-k2, a formula, has it, too.

    >>> is_like_a_name("Dr-GRPO"), is_like_a_name("-k2"), is_like_a_name("k3/2")
    (True, False, False)
    """
    return bool(NAME.fullmatch(text.strip()))


def find_named_loss(text: str) -> NamedLoss | None:
    """Return the row with this name, or None; raises UsageError for a name that has no single reading."""
    if not is_like_a_name(text):
        return None
    trainer = TRAINER.match(text.strip())
    wanted = normalise_name(text.strip()[trainer.end() :] if trainer else text)
    for row in _read_table()["ambiguous"]:
        if wanted in map(normalise_name, row["names"]):
            commands = "; or ".join(f"klsym explain {reading}" for reading in row["readings"])
            raise UsageError(f"{text.strip()!r} is ambiguous: type {commands}")
    for row in _read_table()["unread"]:
        names = {normalise_name(name): name for name in row["names"]}
        if wanted in names:
            raise UsageError(f"{names[wanted]} cannot be read: {row['why']}; try {row['instead']}")
    row = _index_names().get(wanted)
    if row and trainer and trainer[1].lower() not in row.whose.lower():
        hint = f"klsym explain {row.name}, or name its code: klsym audit FILE.py:FUNC"
        raise UsageError(f"{text.strip()!r}: {row.name} here is that of {row.whose}; type {hint}")
    return row


def drop_setting(text: str) -> str:
    """Return the name of a loss without the option that it is the value of.

    >>> drop_setting("kl_penalty=low_var_kl"), drop_setting("loss = k3/2"), drop_setting("x = y")
    ('low_var_kl', 'loss = k3/2', 'x = y')
    """
    name, sign, value = text.partition("=")
    is_name = (
        bool(sign)
        and name.strip().isidentifier()
        and is_like_a_name(value)
        and normalise_name(value) in _index_names()
    )
    return value.strip() if is_name else text


def split_place(text: str) -> tuple[str, str]:
    """Return a loss without the words that say where it is used, and the choice of use; "" if none is said.

    >>> split_place("k1 in the reward"), split_place("k3 as a loss"), split_place("k2")
    (('k1', 'reward'), ('k3', 'loss'), ('k2', ''))
    """
    match = None if re.search(r"[#;=\n]", text) else PLACE.match(text.strip())  # in code it is a comment
    return (match[1], match[2].lower()) if match else (text, "")


def multiplies_reward(name: re.Match[str]) -> bool:
    """Does a name multiply a reward or an advantage, so that it is a number and no loss?"""
    after = re.match(r"\s*\*\s*(?:\w+\.)*(\w+)", name.string[name.end() :])
    before = re.search(r"(\w+)\s*\*\s*$", name.string[: name.start()])
    return any(found is not None and find_meaning(found[1]) in ("A", "R") for found in (after, before))


def expand_names(text: str, known: Iterable[str]) -> tuple[str, tuple[NamedLoss, ...]]:
    """Replace the names of losses in a formula, and return the rows that were used.

    known: names that keep their meaning, such as k3.

    >>> expand_names("gpg + 0.04*K3", ("k3",))[0]
    '(-A*log_q) + 0.04*(k3)'
    >>> expand_names("-max(min(rho*A, 2), dual_clip*adv)", ())[0]
    '-max(min(rho*A, 2), dual_clip*adv)'
    >>> expand_names("loss = -A*logp; loss - 0.01*entropy  # entropy", ())[0]
    'loss = -A*logp; loss - 0.01*(H(q))  # entropy'
    """
    used: list[NamedLoss] = []
    kept = {*known, *ASSIGNED.findall(text)}  # code with assignments has names of its own

    def replace_name(match: re.Match[str]) -> str:
        row = None if match[0] in kept else _index_names().get(normalise_name(match[0]))
        if row is None or multiplies_reward(match):
            return match[0]
        if row.in_formula == "":
            raise UsageError(f"{match[0]!r} is not read inside a formula: type {row.loss}")
        used.append(row)
        return f"({row.loss if row.in_formula is None else row.in_formula})"

    parts = re.split(f"({QUOTED_OR_COMMENT.pattern})", text)  # a quotation or a comment at each odd place
    replaced = "".join(part if i % 2 else WORD.sub(replace_name, part) for i, part in enumerate(parts))
    return replaced, tuple({row.name: row for row in used}.values())


def refuse_sentence(text: str) -> None:
    """Raise UsageError for words without a sign of a formula, with the two nearest examples."""
    if "\\" in text:
        return  # LaTeX, which is refused as a formula
    words = re.findall(r"[\w+-]+", text)
    is_formula = re.search(r"[=*/()\[\]\n;]|\s[-+]\s", text) and not text.rstrip().endswith("?")
    if len(words) < MANY_WORDS or is_formula:
        return
    normalised = [normalise_name(word) for word in words]
    names = list(dict.fromkeys(_index_names()[word].name for word in normalised if word in _index_names()))
    off_policy = re.search(r"off[-_ ]?policy", text, re.IGNORECASE)
    option = " --sampling off-policy" if off_policy else ""
    commands = {_find_subject(command): command for command in _find_commands_for(normalised, names)}
    for name in (*names, "k3", "grpo"):
        commands.setdefault(name, f"klsym explain {name}{option}")
    nearest = " or ".join([*commands.values()][:2])
    raise UsageError(f"klsym reads formulas and code, not sentences: type {nearest}")


def _find_commands_for(words: list[str], names: list[str]) -> Iterator[str]:
    """Yield the commands of the rows of the table that have a word of the sentence."""
    for row in _read_table()["sentence"]:
        if any(word.startswith(start) for word in words for start in row["words"]):
            for command in row["commands"]:
                if "{1}" not in command or len(names) > 1:
                    yield command.format(*names)


def _find_subject(command: str) -> str:
    """Return the loss that a command explains; of another command the whole."""
    _, verb, subject, *_ = command.split()
    return subject if verb == "explain" else command
