"""Pictures, numbers, checks and lists for notebooks, as `klsym.notebook`.

>>> import klsym
>>> print(klsym.notebook.draw_picture("training").alt[:47])
Three curves of E_q[R] - beta KL(q||p) during t
"""

from __future__ import annotations

import contextlib
import html
import importlib
import io
import shlex
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from klsym.errors import UsageError
from klsym.experiments.catalogue import EXPERIMENTS, SETTINGS, count_failures, print_findings
from klsym.experiments.gallery import GALLERY, on_policy
from klsym.study.notebook.alternative_texts import ALTERNATIVE_TEXTS

__all__ = [
    "check_exactly",
    "count_failures",
    "cross_check",
    "draw_distances",
    "draw_picture",
    "list_corrected",
    "list_hypotheses",
    "load_counts",
    "load_measured",
    "load_survey",
    "make_world",
    "print_findings",
    "print_numbers",
    "print_sources",
    "run_command",
    "show_table",
    "train",
]  # fmt: skip

_MADE = {  # pictures that are no figure of the paper: the module of each
    "training": "klsym.experiments.pictures.training",
    "token-ends": "klsym.experiments.pictures.token_ends",
    "distillation": "klsym.experiments.pictures.distillation",
    "masks": "klsym.experiments.pictures.masks",
    "errata": "klsym.experiments.pictures.errata",
    "network": "klsym.experiments.pictures.network",
}
_COUNTED = {"survey": "draw_survey", "trainers": "draw_trainers", "questions": "draw_questions",
            "measured": "draw_measured"}  # of klsym.study.notebook.counted  # fmt: skip
WIDTH = 112  # of a printed line


def draw_picture(name: str) -> Any:
    """Draw a picture from proofs or data, with words for those who do not see it in its attribute `alt`.

    Raises UsageError: a name of no picture.
    """
    figure = _draw(name)
    figure.alt = ALTERNATIVE_TEXTS[name]
    return figure


def _draw(name: str) -> Any:
    if name == "on-policy":
        return on_policy()
    if name in GALLERY:
        return GALLERY[name].make()
    if name in _MADE:
        return importlib.import_module(_MADE[name]).draw()
    if name in _COUNTED:
        return getattr(importlib.import_module("klsym.study.notebook.counted"), _COUNTED[name])()
    experiment = EXPERIMENTS.get(name.removesuffix(SETTINGS))
    if experiment is None:
        raise UsageError(f"no picture has the name {name[:60]!r}")
    from klsym.experiments.catalogue import picture as draw_experiment

    figure = draw_experiment(name)
    if name == name.removesuffix(SETTINGS) and name != "gaussian-estimators":
        figure.suptitle(_write_title(experiment.point), fontsize=9, x=0.01, ha="left")
    return figure


def _write_title(point: str) -> str:
    """A finding as a title: a capital, and the estimators as formulas."""
    from klsym.study.figures.coefficients import write_estimators

    title = write_estimators(point)
    return textwrap.fill(title[:1].upper() + title[1:], 62)


def draw_distances(distances: Mapping[str, float]) -> Any:
    """Draw how far the gradients of losses are from that of the objective that is meant.

    distances: `klsym.measure(loss).compare(objective).error` by name.
    """
    from klsym.study.notebook.counted import GREEN, draw_distances

    green = [name for name, distance in distances.items() if distance < GREEN]
    verb = "passes" if len(green) == 1 else "pass"
    figure = draw_distances(distances, f"{len(green)} of {len(distances)} versions {verb} the gate")
    figure.alt = (
        f"Bars on a log axis: the distance of the gradient of {len(distances)} versions of a loss from the"
        f" intended one. Those of {', '.join(green) or 'none'} are rounding; all others are far larger."
    )
    return figure


def print_numbers(name: str) -> None:
    """Print the numbers behind a picture, and check the statements of its page about them.

    Raises AssertionError: a statement of the page does not hold.
    """
    from klsym.study.notebook.numbers import NUMBERS

    NUMBERS[name]()


def cross_check(*claims: Any, drawn: int = 500_000) -> None:
    """Print whether identities hold on finite models, by an oracle and by sampling; wrong ones must fail.

    claims: names of claims, or verdicts of `klsym.explain` with theorems.  drawn: samples of a trial.
    Raises AssertionError: an identity does not agree, or a wrong coefficient is not detected.
    """
    from klsym.study.sampling.verdict_lines import cross_check as check

    print(check([_settle(claim, number) for number, claim in enumerate(claims)], drawn=drawn))


def _settle(claim: Any, number: int) -> Any:
    from klsym.study.ledger.registry import Claim
    from klsym.study.ledger.settle_claim import recall, settle

    if isinstance(claim, str):
        return recall(claim)
    return settle(
        Claim(f"loss {number}", "proved", "this page", explanation="", build=lambda: claim.proof.theorems)
    )


def check_exactly(verdict: Any) -> str:
    """Compare a verdict with the literal loss on finite models, in exact arithmetic; what was compared.

    Raises AssertionError: they differ.
    """
    from klsym.language.parser import parse
    from klsym.numeric.checks.cross_check import with_check

    checked = with_check(verdict, parse(verdict.loss.text))
    check = checked.proof.check or {}
    assert check["passed"], check["text"]
    theorems = checked.proof.theorems
    return f"theorems: {len(theorems)}" if theorems else "the literal loss"


class Hypotheses:
    """A list of hypotheses: lines in a terminal, a folded list in Jupyter."""

    def __init__(self, lines: Iterable[str]) -> None:
        self.lines = sorted(set(lines))

    def __repr__(self) -> str:
        return "\n".join(f"- {line}" for line in self.lines)

    def _repr_html_(self) -> str:
        items = "".join(f"<li>{html.escape(line)}</li>" for line in self.lines)
        return f"<details><summary>{len(self.lines)} hypotheses</summary><ul>{items}</ul></details>"


def list_hypotheses(*results: Any) -> Hypotheses:
    """List the hypotheses of proofs, claims (also by name) or verdicts, each once."""
    from klsym.study.ledger.settle_claim import recall

    settled = (recall(result) if isinstance(result, str) else result for result in results)
    return Hypotheses(line for result in settled for line in result.hypotheses)


def print_sources() -> None:
    """Print the sources that claims name."""
    from klsym.study.write_up.bibliography import listing

    print(listing())


def show_table(name: str, only: Sequence[str] = (), columns: Sequence[str] = ()) -> Any:
    """Show a table of `klsym tables`, or some of its rows and columns.

    only: rows that contain one of these names.  columns: their keys.
    """
    from IPython.display import Markdown

    from klsym.study.tables.catalogue import build
    from klsym.study.tables.writing.layouts import markdown

    built = build(name)
    built = built.select_rows(tuple(only)) if only else built
    built = built.with_columns(tuple(columns)) if columns else built
    return Markdown(markdown(built))


def load_survey() -> Sequence[Mapping[str, Any]]:
    """Return what `make survey` has read in released packages, a row for each function and choice."""
    from klsym.study.tables.survey import stored

    return stored()


def load_measured() -> Sequence[Mapping[str, Any]]:
    """Return what was measured of released trainers, a row for each setting and sampling."""
    from klsym.study.tables.measured_data import read_trainers

    return read_trainers()


def load_counts(sampling: str, use: str) -> Any:
    """Return the stored counts of all losses of a small grammar, and the best losses of each target."""
    from klsym.engine.questions.candidates import load_catalogue

    return load_catalogue().of(sampling, use)


def list_corrected() -> list[str]:
    """Return the names of the claims whose printed form is refuted."""
    from klsym.study.ledger import registry

    return [claim.id for claim in registry.corrected()]


def make_world(**options: Any) -> Any:
    """Return a small transformer, its reference and its sampler, with all their sequences; needs PyTorch.

    options: seed, vocabulary, longest, parameters as `klsym.experiments.network.network.World` takes them.
    """
    from klsym.experiments.network.network import World

    return World(**options)


def train(world: Any, loss: str, beta: str, rewards: Sequence[str], **options: Any) -> Any:
    """Train the policy of a world with a penalty and rewards of its sequences; where it ends."""
    from klsym.experiments.network.training import train as train_world

    return train_world(world, loss, beta, rewards, **options)


def run_command(line: str) -> int:
    """Run a command line of klsym, print what it prints and then its exit code; return that code.

    >>> run_command("klsym explain k9")  # doctest: +ELLIPSIS
    klsym: unknown name 'k9' ...
    exit code 2
    2
    """
    from klsym.cli import main

    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        code = main(shlex.split(line)[1:])
    print(out.getvalue().rstrip())
    print(f"exit code {code}")
    return code
