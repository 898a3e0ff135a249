"""Losses among which `recommend` chooses, and those that training code writes by mistake.

For single samples they come out of the catalogue: of all expressions of its grammar that are right, those of
which none asks for as much as another.  What lies beyond that grammar stands here: rho f(r), by the theorem
for every f, and sums over tokens.  Nothing here says which of them is right: the engine judges each one.

>>> from klsym.engine.options.settings import Setting
>>> [(one.loss, one.source) for one in list_candidates("forward-kl", Setting(use="reward"), "reward")]
[('-r', 'catalogue'), ('1 - r', 'catalogue')]
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from klsym.engine.answers.is_correct import NEXT_TOKENS
from klsym.engine.fields.slot_loss import has_token_sum
from klsym.engine.options.option_table import CHOICES
from klsym.engine.options.settings import Setting
from klsym.engine.questions.stored_catalogue import load_catalogue
from klsym.language.convert import to_ring
from klsym.language.estimators import NAMES
from klsym.language.expressions import rho
from klsym.language.parser import parse

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


@dataclass(frozen=True)
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
    if use != "reward":
        text = _write_generated_loss(target, setting, use)
        equal_losses = [loss for loss in listed if to_ring(parse(loss)) == to_ring(parse(text))]
        listed[text] = (
            "catalogue" if equal_losses else "generator"
        )  # with r - 1 in it, for the digits of expm1
        listed = {loss: source for loss, source in listed.items() if loss == text or loss not in equal_losses}
    listed = exact | listed
    if setting.level == "token" and not exact:
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
    if use == "loss":
        return BARE, ATTACHED, DETACHED_WEIGHT
    return (BARE,) if setting.on_policy else (BARE, ATTACHED)


def list_placements(setting: Setting, loss: str) -> Iterator[Setting]:
    """The settings of tokens that agree with this one: which rewards a score meets, and what rho is."""
    if setting.level != "token":
        yield setting
        return
    credits = CHOICES["credit"] if setting.use == "reward" and not setting.credit else [setting.credit]
    expression = parse(loss)
    for credit in [""] if has_token_sum(expression) else credits:  # it says itself which tokens are summed
        weighted = expression.has(rho) and not setting.weights
        for weights in CHOICES["weights"] if weighted else [setting.weights]:
            yield replace(setting, credit=credit, weights=weights or CHOICES["weights"][0])
