"""The choice of pairs: a loss with the options and parameters it is asked with.

The choice is the same in every run on one tree.  It reads notebooks, derivations and tables, and may change
with them; the corpus holds its own pairs, and only `--write` chooses anew.

>>> print(pairs()[0])
klsym explain "k1" --sampling on-policy --use loss --level sample --batch none
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from klsym.engine.options.option_table import CHOICES
from klsym.language.expressions import ATOMS, PARAMETERS
from klsym.language.parser import FUNCTIONS, OF_DENSITIES
from klsym.study.tables.trainers import trainers
from support.losses.random_losses import Quantity, generate, quantity

from . import written

ROOT = Path(__file__).parents[3]
SEED = 7
COUNTS = {"anywhere": 420, "sums": 320, "tokens": 160, "clamped": 200, "ties": 60}
LONGEST = 300  # letters of a loss
OF_EXPLAIN = ("explain", "verdict", "ask")
NAME = re.compile(r"[A-Za-z]\w*")


@dataclass(frozen=True)
class Pair:
    """A loss, and how it is used; source: where it comes from."""

    text: str
    options: tuple[tuple[str, str], ...] = ()
    parameters: tuple[str, ...] = ()
    source: str = ""

    @property
    def key(self) -> str:
        """A short name that is the same in every run."""
        whole = json.dumps([self.text, self.options, self.parameters])
        return hashlib.sha256(whole.encode()).hexdigest()[:8]

    @property
    def names(self) -> set[str]:
        """The names of the grammar in the loss."""
        return set(NAME.findall(self.text))

    def option(self, name: str) -> str:
        """The choice that holds, where it is said or goes without saying; else empty."""
        always = {"sampling": "on-policy", "use": "loss", "level": "sample", "batch": "none"}
        return dict(self.options).get(name, always.get(name, ""))

    def __str__(self) -> str:
        words = [f"--{name} {value}" for name, value in self.options]
        return " ".join(
            (f'klsym explain "{self.text}"', *words, *(f"--param {name}" for name in self.parameters))
        )


def pair(text: str, options: Mapping[str, str], parameters: Sequence[str], source: str) -> Pair:
    """A pair with its options in their order; those without a value are left out."""
    order = [*CHOICES, *(name for name in options if name not in CHOICES)]
    kept = tuple((name, options[name]) for name in order if options.get(name))
    return Pair(text, kept, tuple(parameters), source)


@cache
def pairs() -> tuple[Pair, ...]:
    """All pairs, each once, under the first of its sources."""
    sources = {
        "settings": written.in_every_setting(),
        "grammar": written.of_the_grammar(),
        "refused": written.refused(),
        "trainers": of_trainers(),
        "questions": of_questions(),
        "calls": of_calls(),
        **{name: of_generator(name) for name in COUNTS},
    }
    found: dict[Pair, Pair] = {}
    for source, rows in sources.items():
        for text, options, parameters in rows:
            if len(text) <= LONGEST or source == "refused":
                one = pair(text, options, parameters, source)
                found.setdefault(Pair(one.text, one.options, one.parameters), one)
    return tuple(found.values())


def of_trainers() -> Iterator[written.Row]:
    """The losses of the gallery and of its table, with their KL terms."""
    for one in trainers():
        if one.loss:
            yield one.loss, dict(one.options), ()
        if one.kl:
            yield one.kl, dict(one.kl_options or one.options), ()


def of_questions() -> Iterator[written.Row]:
    """The losses of the questions that people asked."""
    text = (ROOT / "study/write_up/questions.toml").read_text(encoding="utf-8")
    for row in tomllib.loads(text)["question"]:
        for one in (row, row.get("against", {})):
            if isinstance(one.get("loss"), str):
                yield one["loss"], one.get("options", {}), ()


def of_calls() -> Iterator[written.Row]:
    """The calls of `explain` in derivations, tables, figures and notebooks, and in the tests of `explain`."""
    for folder in ("derivations", "experiments", "study/tables", "study/figures"):
        for file in sorted((ROOT / folder).rglob("*.py")):
            yield from calls(file.read_text(encoding="utf-8"))
    for file in sorted((ROOT / "notebooks").glob("*.ipynb")):
        for cell in json.loads(file.read_text(encoding="utf-8"))["cells"]:
            if cell["cell_type"] == "code":
                yield from calls("".join(cell["source"]))
    for file in sorted((ROOT / "tests/engine/explain").glob("test_*.py")):
        yield from list(calls(file.read_text(encoding="utf-8")))[::2]


def calls(source: str) -> Iterator[written.Row]:
    """The calls of `explain` in a text of Python whose arguments are constants.

    >>> list(calls("klsym.explain('k3', sampling='off-policy')"))
    [('k3', {'sampling': 'off-policy'}, ())]
    """
    try:
        nodes = list(ast.walk(ast.parse(source)))
    except SyntaxError:  # a cell with a command of the notebook
        return
    for node in nodes:
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "id", getattr(node.func, "attr", ""))
        values = [loss_in(argument) for argument in node.args[:1]] + [constant(x) for x in node.args[1:]]
        if name in OF_EXPLAIN and values and isinstance(values[0], str) and values[0].strip():
            named = {word.arg: constant(word.value) for word in node.keywords}
            options = dict(zip(CHOICES, values[1:], strict=False)) | {
                x: named.get(x) for x in CHOICES if x in named
            }
            if all(value is None or value in CHOICES[name] for name, value in options.items()):
                parameters = named.get("parameters") or ()
                yield values[0], {x: y for x, y in options.items() if y}, tuple(parameters)


def loss_in(node: ast.expr) -> Any:
    """The text of a loss, typed or as an expression in names of the grammar; None for anything else."""
    known = {*ATOMS, *GRAMMAR, *PARAMETERS}
    names = {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}
    return ast.unparse(node) if names and names <= known else constant(node)


def constant(node: ast.expr) -> Any:
    """The value of a constant; None for anything else."""
    return node.value if isinstance(node, ast.Constant) else None


def of_generator(name: str) -> Iterator[written.Row]:
    """The losses of a random generator, from a fixed seed."""
    for number in range(COUNTS[name]):
        if name == "tokens":
            yield of_tokens(quantity(SEED, number))
        else:
            case = generate(name, SEED, number)
            yield case.text, {option: getattr(case, option) for option in CHOICES}, ()


def of_tokens(case: Quantity) -> written.Row:
    """A loss of the generator for sequences, in the grammar of losses."""
    text = re.sub(r"\b(past|future|now)\(length\)", r"\1(1)", case.text)
    text = re.sub(r"\blength\b", "T", re.sub(r"\bw\b", "(log_q - log_mu)", text))
    level = "sequence" if case.kind == "sequence" else "token"
    return (
        text,
        {"sampling": case.sampling, "use": "reward" if case.kind == "reward" else "loss", "level": level},
        (),
    )


GRAMMAR = frozenset({*FUNCTIONS, *OF_DENSITIES})
