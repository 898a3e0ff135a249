"""What `explain` refuses, in one printable line that says why and what to write."""

from __future__ import annotations

import re
from typing import Any

import pytest
import sympy
from sympy import Function, Piecewise, Symbol

import klsym
from klsym import calculus
from klsym.api import explain
from klsym.errors import UsageError
from klsym.language.expressions import k1, k2, log_q, s
from klsym.language.parser import parse
from klsym.study.api import divergence as losses_of
from support.losses.cases import options

PREFIX, ALONE = "not known at the prefix", "the next token alone"
LATER = "sum over tokens of what depends on later tokens too"
NOT_OF_SAMPLE, WEIGHT = "no sample's own score is there", "write rho in front"
# how a loss is used: a loss, what is said, as a regular expression
REFUSED: dict[str, dict[str, str]] = {
    "": {
        "k9": "unknown name 'k9' at character 1", "har*k1": r"parameters=\['har'\]", "": "empty",
        "1/k1": "divi",
        "k1/(k3 - r + 1 - k1)": "division by zero",
        "1/(min(k1, k2) + max(k1, k2) - k1 - k2)": "division by zero",
        "1/(sqrt(1 + 2*r + r**2) - 1 - r)": "division by zero", "past(k1)": "a single sample has none",
        "R/T": "the length of a sequence, and a single sample has none: choose level",
        "loo(k3)": "is differentiated here, and is no sum of k1, log q, R and constants: not handled; sg",
        "loo(loo(k1))": r"loo\(..\) inside loo\(..\)", "min(others(k3), 1)": "is differentiated here",
        "clip(normalised(R - k1), 0, 1)": "of what is differentiated is not read",
        "loo(full(k1))": NOT_OF_SAMPLE, "abs(k1)*full(k1)": "only sums of products",
        "exp(R*full(k1))": "only sums of", "log(full(k1))": "need not be positive",
        "log(full(M*k1))": "need not be positive", "full_kl(q)": "takes 2 policies among q, p, mu, old",
        "full_kl(q, q)": "two different policies", "H(k1)": "takes 1 policy",
        "js(p, mu)": "js is of q and another", "js(q, p, 1)": "b between 0 and 1",
        "js(q, p, R)": "a parameter b", "js(q, p, n)": "a parameter b",
        "[rho]": "a list is not part of the loss grammar",
        "disc(lam, R)": "a number g between 0 and 1", "disc(1, R)": "a number g between 0 and 1",
        "q": "'q' is a probability.*type exp", "whole": "whole is a function",
        "full(k1, r)": "full takes 1 argument",
    },
    "reward": {"1/R": "divi"},
    "to-go": {"k1": "credit: needs level token"}, "prefix": {"k1": "weights: needs level token"},
    "/T": {"k1": "aggregate: a single sample has no length"},
    "mean": {"k1/(k1 - k1)": "division by zero", "loo(k1)": "says itself what is centred; leave batch out",
             "full(k1)": NOT_OF_SAMPLE},
    "reward mean": {"R*full(k1)": "add it instead"},
    "std": {"sqrt(k2)": "batch std takes exponential polynomials alone"},
    "off std": {"min(rho*A, A)": "batch std takes exponential polynomials alone"},
    "sequence": {"past(k1)": "choose level token", "full(k1)": "choose level token",
                 "M*whole(k3)": "no function of the sequence as one sample: choose level token"},
    "sequence own": {"k1": "weights: needs level token"},
    "sequence reward total": {"k1": "credit: needs level token"},
    "sequence /T": {"1/k1": "division by k1"},
    "token": {
        "1/k1": "divi", "k1/(k1 - k1)": "division by zero", "k9": "unknown name 'k9'",
        "whole(k3)**2": "differentiated here: write the loss of each token", "past": "past is a function",
        "past(k1, r)": "past takes 1 argument", "loo(k1)": "choose level sequence or sample",
        "min(future(k3), 1)": "is differentiated here: write the loss of each token",
        "future(full(k1))": r"put sg\(..\) around it", "whole(full(k1))": r"put sg\(..\) around it",
        "sg(future(full(k1)))*sg(future(k1))*log_q": PREFIX, "full(past(k1))": ALONE, "full(full(k1))": ALONE,
        "full(T)": ALONE, "full(A*k1)": ALONE, "A/whole(max(seqmean(T), alpha/M))": LATER,
        "log_q*whole(sg(k1*future(R)))": LATER, "log_q*future(sg(clip(whole(k1)*k1, 0, 1)))": LATER,
    },
    "token to-go": {"k1": "credit: a differentiated loss pushes on its own token"},
    "token mean": {"k1": "batch: samples are centred whole"},
    "token std": {"k1": "batch: samples are centred whole"},
    "token reward /T": {"full(k1)": "1/T is not known"},
    "off token": {"sg(full(k1))*log_q": WEIGHT},
    "token reward": {
        "A*k1": "A times something random", "A**2*k1": "A times something random",
        "past(rho)": "a sum of ratios, one for each token",
        "full(k1)**2": "no function of it is one", "exp(full(k1))": "no function of it is one",
        "min(full(k1), 1)": "no function of it is one", "1/full(k3)": "no function of it is one",
        "full(k1)*full(k3)": "no mean of a product", "M*full(k1)": PREFIX, "A*full(k1)": PREFIX,
        "R*full(k1)": "level sample says what it does", "full(k1)/T": "1/T is not known there",
    },
    "token reward to-go": {"togo(k1)": "says itself which tokens are summed; leave credit out"},
    "off token reward": {"rho*A": "A times something random .* choose credit same-token", "full(k1)": WEIGHT,
                         "rho**2*full(k1)": PREFIX},
    "off token reward whole": {"(rho + rho**2)*A*k1": "A times something random",
                               "clip(0, rho*r - sg(r), 0.3)*R": LATER},
}  # fmt: skip
ROWS = [(loss, options(words), said) for words, rows in REFUSED.items() for loss, said in rows.items()]
CHOICES: list[tuple[Any, dict[str, Any], str]] = [  # what no options of the table say
    ("k1", {"sampling": "sometimes"}, "one of on-policy, off-policy, truncated expected"),
    ("k1", {"use": "penalty"}, "use='penalty': one of loss, reward"),
    ("k1", {"level": "word"}, "level='word': one of sample, token, sequence expected"),
    ("k1", {"batch": "median"}, "batch='median': one of none, mean, leave-one-out, std"),
    ("k1", {"level": "token",
    "weights": "words"}, "weights='words': one of token, prefix, sequence expected"),
    ("k1", {"level": "token", "use": "reward",
    "credit": "later"}, "credit='later': one of to-go, same-token"),
    ("k1", {"level": "token", "aggregate": "max"}, "aggregate='max': one of sum, mean"),
    ("har*k1", {"parameters": "har"}, "parameters"), ("k1", {"parameters": [3]}, "parameter"),
    ("s*k1", {"parameters": ["s"], "use": "reward"}, "parameter"),
    ("k1*H", {"parameters": ["H"]}, "a new plain name expected"),  # in answers H is a function of the sample
    ("m*k1", {"batch": "leave-one-out", "parameters": ("m",)}, "m in 'm.k1' stands for n - 1"),
    (None, {}, "expression expected"), (float("inf"), {}, "oo is not part"),
    (b"k1", {}, "expression expected"), (k1 > 0, {}, "expression expected"),
    (Symbol("k1") * k2, {}, "klsym's own"),
    (Symbol("w") * k2, {}, "klsym's own"), (s * k1, {}, "score"), (Function("g")(k1), {}, "g"),
    (sympy.nan, {}, "nan|number"), (sympy.oo * k1, {}, "oo|infinite"), (sympy.I * k1, {}, "I|real"),
    (k1 / 0, {}, "zoo|zero|infinite"), (sympy.Derivative(k1, log_q), {}, "Derivative"),
]  # fmt: skip


@pytest.mark.parametrize(("loss", "given", "said"), ROWS + CHOICES, ids=repr)
def test_refused_in_a_line(loss: Any, given: dict[str, Any], said: str, at_most: Any) -> None:
    with at_most(20), pytest.raises(UsageError) as caught:
        explain(loss, **given)
    message = str(caught.value)
    assert re.search(said, message) and message.isprintable() and len(message) < 400, message


# Names that klsym gives to regions, logs, batches and sums in answers, and names of the grammar.
TAKEN = (
    "h", "std", "f", "Phi", "k1_now", "q", "w", "ln_x", "const_x", "is_high", "is_", "e", "c", "b", "x", "mu",
    "theta", "E", "K", "P",
)  # fmt: skip


@pytest.mark.parametrize("name", TAKEN)
def test_parameters_have_no_names_that_answers_use(name: str) -> None:
    """A loss as an expression, and f of a divergence, are held to what text is."""
    for ask in (
        lambda: klsym.explain(Symbol(name, real=True) * calculus.k1),
        lambda: klsym.compare(Symbol(name, real=True) * calculus.k1, calculus.k2),
        lambda: klsym.explain(f"{name}*k1", parameters=[name]),
        lambda: losses_of(f"{name}*r*log(r)", [name]),
    ):
        with pytest.raises(UsageError, match=r"expected|smooth function|klsym's own") as caught:
            ask()
        assert "\n" not in str(caught.value)


BEYOND = [
    sympy.sin(k1),
    sympy.sign(k1),
    sympy.pi * k2,
    sympy.Heaviside(k1) * k2,
    Piecewise((k1, k1 > 0), (0, True)),
]
ODD = (
    "min(k1, k2)", "max(lam, 0)*k1", "-min(rho*A, 1.2*A)", "clip(k1, k2, k3)", "exp(1e9*k1)", "exp(1e99*k1)",
    "((k1**64)**64)**64", "((r**64)**64)**64", "((k1 + k2)**64)**64", "exp(1000)**64*k1", "(k1 + r)**64",
    "max(k2, k3, r)", "sqrt(1 + k2)*sqrt(1 + k3)", "r + clip(k3/A, -1, 5)", "clip(clip(k1, -1, 1), -2, 2)",
    "abs(k1)**lam", "r**(r + 1)", "(k3 + exp(0.5))**-1", "(k1 + sg(k2))**2*abs(k1)",
)  # fmt: skip


@pytest.mark.parametrize("loss", [*BEYOND, *ODD], ids=str)
@pytest.mark.share(3)
def test_odd_losses_are_refused_or_answered_in_the_grammar(loss: Any, at_most: Any) -> None:
    """At worst one clear line, never a crash, never a minute's wait; on-policy and off-policy by turns."""
    sampling = ("on-policy", "off-policy")[len(str(loss)) % 2]
    with at_most(20):
        try:
            verdict = explain(loss, sampling=sampling)
        except UsageError as error:
            assert str(error).isprintable()
            return
    parse(verdict.gradient.score_text)
    parse(verdict.gradient.canonical_text)
