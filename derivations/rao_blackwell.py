"""Exact next-token divergences in place of sampled log ratios (AM): unbiased, but not always less noisy.

Source: AM = Amini, Vieira & Cotterell 2025, "Better Estimation of the KL Divergence Between Language Models".
"""

import math
from fractions import Fraction

import numpy as np

from klsym.calculus import KL, claim, derive, p, q, token_KL
from klsym.derivations.tools.sequence_examples import offset_pair, offset_variances
from klsym.ledger.evidence import Evidence
from klsym.notation.spelling import LATEX
from klsym.numeric.autoregressive import (
    enumerate_sequences,
    log_probabilities,
    random_autoregressive,
    token_kl,
    token_log_probabilities,
)
from klsym.numeric.checks.sequence_fields import kl_variances

STEPS = (
    "y is drawn from q; KL_t is KL(q(.|y_<t)||p(.|y_<t)) at the prefix drawn, l_t = log q/p of the token",
)
SMALL = Fraction(1, 10)  # q(token|start) of the model that refutes the order
TOLERANCE = 1e-12  # relative, of sums over at most some hundred sequences


@claim(
    "neighbour.rao-blackwell",
    verdict="corrected",
    source="AM",
    reading=(
        "printed: the variance of the sum of exact next-token KLs is never above that of sum_t l_t",
        "KL_u depends on what was drawn before u, so the sum is no conditional mean of sum_t l_t",
        "at each step alone Var KL_t <= Var l_t, since KL_t = E[l_t | y_<t]; near q = p so for the sums",
    ),
)
def exact_steps():
    """The tower rule gives the mean; the noise of each step goes, and covariances may come."""
    return derive(KL(q, p)).equals(token_KL(q, p)), _difference(), _counterexample()


def _variance(of, tall=True):
    """tall: of a sum over t."""
    return LATEX.covariance("q", of, of, tall)


GAP, LATER = r"l_t - \mathrm{KL}_t", r"\mathrm{KL}_u"
SAMPLED, EXACT = r"\sum_t l_t", r"\sum_t \mathrm{KL}_t"
GAPS = rf"\sum_t ({GAP})"
NOISE = LATEX.expectation("q", r"\sum_t " + _variance(r"l_t \mid y_{<t}", tall=False))


def _difference():
    return Evidence(
        "exact",
        "Var(sum_t l_t) - Var(sum_t KL_t) = sum_t E[Var(l_t | y_<t)] + 2 sum_{t<u} Cov(l_t - KL_t, KL_u)",
        rf"{_variance(SAMPLED)} - {_variance(EXACT)} = {NOISE}"
        rf" + 2\sum_{{t<u}} {LATEX.covariance('q', GAP, LATER)}",
        "sympy",
        (*STEPS, "both variances are finite"),
        _check,
        (
            ("l_t - KL_t has mean 0 given y_<t", f"{_variance(GAPS)} = {NOISE}"),
            ("and for u <= t KL_u is known by then",
             rf"{LATEX.covariance('q', GAP, LATER)} = 0\quad(u \le t)"),
        ),
    )  # fmt: skip


def _counterexample():
    sampled, exact = offset_variances(SMALL)
    odds = 1 / SMALL - 1
    values = f"{exact} log({odds})^2 > {sampled} log({odds})^2"
    return Evidence(
        "refuted",
        "Var(sum_t KL_t) <= Var(sum_t l_t) for all q and p",
        rf"{_variance(EXACT)} \le {_variance(SAMPLED)}\quad\forall q, p",
        "sympy",
        (
            *STEPS,
            f"one token or stop, at most two tokens; q(token) is {SMALL} at the start and {1 - SMALL} after a"
            f" token, p(token) 1/2 and {SMALL}: the variances are {values}",
        ),
        _measured,
        (
            (
                "the variances",
                rf"\tfrac{{{exact.numerator}}}{{{exact.denominator}}}\log^2 {odds}"
                rf" > \tfrac{{{sampled.numerator}}}{{{sampled.denominator}}}\log^2 {odds}",
            ),
        ),
        holds=exact > sampled,
    )


def _check():
    """Both sides by enumeration of all sequences of random models."""
    worst = 0.0
    for seed in range(12):
        pair = [random_autoregressive(seed + 100 * i, 1 + seed % 3, seed % 2, 3 + seed % 2) for i in range(2)]
        left, right = _both_sides(*pair)
        worst = max(worst, abs(left - right) / (abs(left) + abs(right)))
    return worst < TOLERANCE, f"enumeration of 12 models: largest relative difference {worst:.1e}"


def _both_sides(model, reference):
    y = enumerate_sequences(model)
    weight = np.exp(log_probabilities(model, y))
    drawn = token_log_probabilities(model, y) - token_log_probabilities(reference, y)
    exact = exact_at_each_step(model, reference, y)

    def covariance(a, b):
        return float(weight @ (a * b) - (weight @ a) * (weight @ b))

    noise = drawn - exact
    left = covariance(drawn.sum(axis=1), drawn.sum(axis=1)) - covariance(exact.sum(axis=1), exact.sum(axis=1))
    steps = range(y.symbols.shape[1])
    within = sum(float(weight @ noise[:, t] ** 2) for t in steps)
    later = sum(covariance(noise[:, t], exact[:, u]) for t in steps for u in steps if u > t)
    return left, within + 2 * later


def exact_at_each_step(model, reference, y):
    """KL_t at each step of each sequence; 0 once it has ended, and at a forced stop."""
    kl, found = token_kl(model, reference), np.zeros(y.symbols.shape)
    for row, (symbols, length) in enumerate(zip(y.symbols, y.lengths, strict=True)):
        state = 0
        for t in range(min(length, model.max_length - 1)):
            found[row, t] = kl[state]
            if symbols[t] != model.stop:
                state = model.successors[state, symbols[t]]
    return found


def _measured():
    """The dynamic program on the same model, in floats."""
    found, unit = kl_variances(*offset_pair()), math.log(1 / SMALL - 1) ** 2
    stated = [float(value) * unit for value in offset_variances(SMALL)]
    gaps = [abs(a - b) for a, b in zip((found.sampled, found.exact_steps), stated, strict=True)]
    passed = max(gaps) < TOLERANCE and found.exact_steps > found.sampled
    return passed, f"dynamic programming: {found.exact_steps:.6f} > {found.sampled:.6f}"
