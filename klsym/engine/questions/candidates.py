"""Losses among which `recommend` chooses, and those that training code writes by mistake.

For single samples they come out of the catalogue: of all expressions of its grammar that are right, those of
which none asks for as much as another.  What lies beyond that grammar stands here: rho f(r), by the theorem
for every f, and sums over tokens.  Nothing here says which of them is right: the engine judges each one.

>>> from klsym.engine.options.settings import Setting
>>> [(one.loss, one.source) for one in list_candidates("forward-kl", Setting(use="reward"), "reward")]
[('-r', 'catalogue'), ('1 - r', 'catalogue')]

The stored catalogue: in each setting, the losses of a small grammar that have the gradient of a KL.

`klsym.study.questions.catalogue` makes it, by enumeration; `recommend` chooses among its losses.

>>> search = load_catalogue().of("off-policy", "loss")
>>> [(choice.loss, choice.constant) for choice in search.choices["reverse-kl"][:2]]
[('rho*k1', '1'), ('rho*k3', '0')]
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from klsym.engine.answers.is_correct import NEXT_TOKENS
from klsym.engine.fields.slot_loss import has_token_sum
from klsym.engine.options.choices import is_differentiated, is_reward
from klsym.engine.options.option_table import CHOICES
from klsym.engine.options.settings import Setting
from klsym.files import read_text
from klsym.kernel.names import parse_name
from klsym.kernel.ring import ExpPoly
from klsym.language.convert import to_ring
from klsym.language.estimators import NAMES
from klsym.language.expressions import rho
from klsym.language.parser import parse
from klsym.records import record

STORED = Path(__file__).with_name("catalogue.json")
MAX_BYTES = 10_000_000  # of a file that is read


@record
class CatalogueChoice:
    """The gradient a s at a sample that has the expected gradient of a KL, with c = k1 + b or -r + b.

    constant: b.  gradient: a.  loss: the first of the shortest losses that have it, of that size.
    unbiased: the first of the shortest whose value estimates the same KL, or None.  losses, spellings: how
    many have it.  nearest: from where to where b is the nearest to a number of all that are listed, None for
    no end.  Of two constants the one nearer to b_star varies less, by the claim catalogue.order:
    b_star = -E_m[rho^2 k1 s^2]/E_m[rho^2 s^2], and for the forward KL the same of -r.
    """

    constant: str
    gradient: str
    loss: str
    size: int
    unbiased: str | None
    losses: int
    spellings: int
    nearest: tuple[str | None, str | None]


@record
class CatalogueSearch:
    """What there is in one setting.

    counts: kind (KINDS) -> how many there are up to each size.  targets: target -> how many losses up to
    each size have it.  choices: "reverse-kl" and "forward-kl" -> the gradients that have it, shortest first.
    best, estimates: of what has the gradient of a KL, and of what has its value, the losses of which none
    asks for as much as another; here an expression may start with a minus.
    """

    sampling: str
    use: str
    counts: dict[str, list[int]]
    targets: dict[str, list[int]]
    choices: dict[str, tuple[CatalogueChoice, ...]]
    best: dict[str, tuple[str, ...]]
    estimates: dict[str, tuple[str, ...]]


@record
class Catalogue:
    """All settings, for spellings up to a size.

    spellings: how many expressions there are up to each size.
    """

    size: int
    spellings: list[int]
    settings: tuple[CatalogueSearch, ...]

    def of(self, sampling: str, use: str) -> CatalogueSearch:
        """What there is in a setting.

        Raises KeyError: there is no such setting.
        """
        return {(found.sampling, found.use): found for found in self.settings}[sampling, use]

    @staticmethod
    def from_json(data: dict[str, Any]) -> Catalogue:
        return Catalogue(
            data["size"], data["spellings"], tuple(_read_search(row) for row in data["settings"])
        )


def _read_search(row: dict[str, Any]) -> CatalogueSearch:
    choices = {kl: tuple(map(_read_choice, rows)) for kl, rows in row["choices"].items()}
    lists = {name: {kl: tuple(losses) for kl, losses in row[name].items()} for name in ("best", "estimates")}
    return CatalogueSearch(**{**row, "choices": choices, **lists})


def _read_choice(row: dict[str, Any]) -> CatalogueChoice:
    low, high = row["nearest"]
    return CatalogueChoice(**{**row, "nearest": (low, high)})


@lru_cache(maxsize=1)
def load_catalogue() -> Catalogue:
    """Return the catalogue that klsym brings along.

    >>> load_catalogue().of("on-policy", "reward").choices["reverse-kl"][0].loss
    'k1'
    """
    return Catalogue.from_json(json.loads(read_text(STORED, MAX_BYTES)))


def contains_reference_ratio(element: ExpPoly) -> bool:
    """Return whether it holds a positive power of r = exp(-k1), which overflows before log r does?"""
    rates = ((m, rate) for _, exponent in element.terms for m, rate in exponent)
    return any(rate < 0 and any(parse_name(name).base == "k1" for name, _ in m) for m, rate in rates)


# f(r) with E_q[f(r)] = KL and f(1) = f'(1) = 0: for every f, rho f has the value and gradient of E_q[f(r)]
EXACT_LOSSES = {"reverse-kl": "full_kl(q, p)", "forward-kl": "full_kl(p, q)"}  # sums over all words
OPTIMAL_LOSSES = {"reverse-kl": "k3", "forward-kl": "1 - r - r*k1"}
# grad KL(p||q) = -E_q[sum_t r_past r_now s_now]: each token is weighed by the ratio of those before it
TO_PREFIX_OF_Q_TEXT = "exp(-past(k1))"
TOKEN_LOSSES = {
    ("forward-kl", "loss"): ("sg({})*k3",),
    ("forward-kl", "reward"): ("{}*(1 - r)",),
    ("forward-kl", "value"): ("{}*(1 - r - r*k1)", "-{}*r*k1"),
}
BARE, ATTACHED, DETACHED_WEIGHT = "{}", "rho*{}", "sg(rho)*{}"  # how a weight may stand there
CALLED_KL = (*NAMES, "abs(k1)", "clip(k3, -10, 10)", "-r*k1")  # what training code calls a KL


@record
class Candidate:
    """A loss, a setting in which it may be right, and its source: catalogue, generator, tokens or exact."""

    loss: str
    setting: Setting
    source: str


def list_candidates(target: str, setting: Setting, use: str = "loss") -> Iterator[Candidate]:
    """Losses with the settings in which they may be right: each is for the engine to judge.

    target: "reverse-kl" or "forward-kl", or one of these of each next token.
    use: "loss", "reward" or "value".
    setting: sampling and level are taken as they are; credit and weights, if they are empty, vary.
    """
    exact = {EXACT_LOSSES[NEXT_TOKENS[target]]: "exact"} if target in NEXT_TOKENS else {}
    target = NEXT_TOKENS.get(target, target)
    if setting.truncated:
        return
    search = load_catalogue().of(setting.sampling, setting.use)
    listed = dict.fromkeys((search.estimates if use == "value" else search.best)[target], "catalogue")
    if not is_reward(use):
        text = _write_generated_loss(target, setting, use)
        equal_losses = [loss for loss in listed if to_ring(parse(loss)) == to_ring(parse(text))]
        listed[text] = (
            "catalogue" if equal_losses else "generator"
        )  # with r - 1 in it, for the digits of expm1
        listed = {loss: source for loss, source in listed.items() if loss == text or loss not in equal_losses}
    listed = exact | listed
    if setting.is_per_token and not exact:
        before = TO_PREFIX_OF_Q_TEXT if setting.on_policy else ATTACHED.format(TO_PREFIX_OF_Q_TEXT)
        listed |= {loss.format(before): "tokens" for loss in TOKEN_LOSSES.get((target, use), ())}
    for loss, source in listed.items():
        for place in list_placements(setting, loss):
            yield Candidate(loss, place, source)


def _write_generated_loss(target: str, setting: Setting, use: str) -> str:
    f = OPTIMAL_LOSSES[target]
    return f if use == "value" and setting.on_policy else ATTACHED.format(f"({f})" if " " in f else f)


def list_tempting_losses(setting: Setting, use: str) -> Iterator[str]:
    """What is written for a KL penalty in such a setting: each estimator, unweighted and weighted."""
    for pattern in _list_patterns(setting, use):
        for estimate in CALLED_KL if pattern == BARE else NAMES:
            yield pattern.format(estimate)


def _list_patterns(setting: Setting, use: str) -> tuple[str, ...]:
    """Detached, sg says nothing; on-policy the weight of what is detached is 1."""
    if is_differentiated(use):
        return BARE, ATTACHED, DETACHED_WEIGHT
    return (BARE,) if setting.on_policy else (BARE, ATTACHED)


def list_placements(setting: Setting, loss: str) -> Iterator[Setting]:
    """The settings of tokens that agree with this one: which rewards a score meets, and what rho is."""
    if not setting.is_per_token:
        yield setting
        return
    credits = CHOICES["credit"] if setting.is_reward and not setting.credit else [setting.credit]
    expression = parse(loss)
    for credit in [""] if has_token_sum(expression) else credits:  # it says itself which tokens are summed
        weighted = expression.has(rho) and not setting.weights
        for weights in CHOICES["weights"] if weighted else [setting.weights]:
            yield replace(setting, credit=credit, weights=weights or CHOICES["weights"][0])
