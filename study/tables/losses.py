"""Rows that speak of one loss: what the ledger says of it, else what `explain` proves on the spot."""

from __future__ import annotations

from typing import Any

from klsym.api import Verdict, ask
from klsym.engine.options.choices import is_reward
from klsym.engine.proof.quantities import Quantity, expectation, expected_gradient, mu, q
from klsym.language.expressions import k, k1, k2, k3, lam, rho, s, sg
from klsym.notation.losses import show
from klsym.notation.printers import LATEX, TEXT
from klsym.study.tables.writing.ledger_lookup import Quote, find_equation
from klsym.study.tables.writing.table import Cell, cite_claims, math

ESTIMATORS = (k1, k2, k3, k(lam))
ON, OFF = "on-policy", "off-policy"


def find_verdict(loss: Any, sampling: str, use: str) -> Verdict:
    """What `klsym explain` says of a loss.

    >>> find_verdict(rho * k3, OFF, "loss").target
    'reverse-kl'
    """
    return ask(show(loss, TEXT), sampling=sampling, use=use)


def build_gradient(loss: Any, sampling: str, use: str) -> Quantity:
    """The expected gradient: E_m[grad L], or E_m[w sg(h) s] for a reward h with a weight w."""
    under = q if sampling == ON else mu
    if not is_reward(use):
        return expected_gradient(loss, under=under)
    weight = rho if loss.has(rho) else 1
    return expectation(weight * sg(loss / weight) * s, under=under)


def find_gradient_quote(loss: Any, sampling: str, use: str) -> Quote:
    """The theorem on the expected gradient: the ledger's, or one proved on the spot without a claim.

    >>> find_gradient_quote(k3, ON, "loss").text, find_gradient_quote(k(lam), OFF, "reward").claims
    ('E_q[grad k3] = grad KL(p||q)', ())
    """
    quoted = find_equation(build_gradient(loss, sampling, use))
    return quoted or Quote(find_verdict(loss, sampling, use).proof.theorems[0], ())


def mean(loss: Any, sampling: str) -> Quote | None:
    """The theorem on the expected value, if the ledger has one.

    >>> mean(k3, ON).text
    'E_q[k3] = KL(q||p)'
    """
    return find_equation(expectation(loss, under=q if sampling == ON else mu))


def write_loss(loss: Any) -> Cell:
    """The loss, with k(lam) by its name.

    >>> write_loss(rho * k(lam)).pieces
    (('math', '\\\\rho\\\\,k(\\\\lambda)'),)
    """
    named = show(k(lam), LATEX)
    short = rf"k({LATEX.name('lam')})"
    return math(show(loss, LATEX).replace(rf"\left({named}\right)", short).replace(named, short))


def list_tags(loss: Any, sampling: str, use: str) -> tuple[str, ...]:
    """What chooses a row: the loss, the estimator in it, the sampling, the use, the weight.

    >>> list_tags(sg(rho) * k2, OFF, "loss")
    ('sg(rho)*k2', 'k2', 'off-policy', 'loss', 'detached')
    """
    names = {k1: "k1", k2: "k2", k3: "k3", k(lam): "k(lam)"}
    estimator = next((name for e, name in names.items() if loss in (e, rho * e, sg(rho) * e)), "")
    weight = "detached" if loss.has(sg(rho)) else "attached" if loss.has(rho) else "unweighted"
    return (show(loss, TEXT), *([estimator] if estimator else []), sampling, use, weight)


def cite_quote(found: Quote | None) -> Cell:
    """The most special claim that says so; a dash where `explain` proved it.

    >>> cite_quote(find_gradient_quote(k3, ON, "loss")).pieces, cite_quote(None).pieces
    ((('code', 'gradient.k3-loss'),), (('words', '–'),))
    """
    return cite_claims(found.claims[:1] if found else ())
