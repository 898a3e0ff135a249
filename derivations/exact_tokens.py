"""The exact KL of the next token: what it costs, and what its sum along a sequence estimates.

Source: RE = the notes "Re-understanding KL Approximation from an RL-for-LLM Lens", which hold that
the sum over a vocabulary is out of reach.
"""

import math
import time

import numpy as np

from klsym.calculus import KL, claim, derive, p, q, token_KL
from klsym.derivations.rao_blackwell import exact_at_each_step
from klsym.ledger.evidence import Evidence
from klsym.numeric.autoregressive import (
    enumerate_sequences,
    log_probabilities,
    random_autoregressive,
    token_log_probabilities,
)

VOCABULARY = 50_000
ROWS, REPEATS = 8, 7  # positions at a time, and how often each is timed
MOST = 5  # times the log-softmax: what is claimed of the cost; what was measured stands in the check
LENGTH = 10


@claim(
    "practice.per-token-sum",
    verdict="computed",
    source="RE (why KL is estimated at all)",
    reading=("y is drawn from q; KL_t is KL(q(.|y_<t)||p(.|y_<t)), a sum over the vocabulary",),
)
def exact_next_token_divergence():
    """The sum over tokens is cheap and unbiased; the sum over sequences is what is out of reach."""
    return _unbiased(), _cost(), _terms()


def _unbiased():
    """The chain rule, a theorem of the kernel, and the same by enumeration."""
    proof = derive(KL(q, p)).equals(token_KL(q, p))
    return Evidence(
        "computed",
        f"sum_t KL_t has the mean KL(q||p) of whole sequences: {proof!r} (kernel, sequence.chain-rule)",
        r"\mathbb{E}_q\!\left[\sum_t \mathrm{KL}_t\right] = \mathrm{KL}(q\,\Vert\,p)",
        "sympy",
        proof.hypotheses,
        _by_enumeration,
        holds=proof.kind == "proved",
    )


def _by_enumeration():
    """sum_y q(y) sum_t KL_t against sum_y q(y) log q(y)/p(y), over all sequences of 12 models."""
    worst = 0.0
    for seed in range(12):
        model, reference = (random_autoregressive(seed + 100 * i, 1 + seed % 3, seed % 2, 4) for i in (0, 1))
        y = enumerate_sequences(model)
        mass = np.exp(log_probabilities(model, y))
        drawn = token_log_probabilities(model, y) - token_log_probabilities(reference, y)
        whole = float(mass @ drawn.sum(axis=1))
        worst = max(
            worst, abs(float(mass @ exact_at_each_step(model, reference, y).sum(axis=1)) - whole) / whole
        )
    return worst < 1e-12, f"all sequences of 12 models: largest relative difference {worst:.1e}"


# ---------------------------------------------------------------------------- what it costs
def _logits():
    """Logits of q and p at some positions, in the precision of training code."""
    return np.random.default_rng(0).normal(size=(2, ROWS, VOCABULARY)).astype(np.float32)


def log_softmax(logits):
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def next_token_kl(log_q, log_p):
    """sum_x q(x) log q(x)/p(x) at each position."""
    return (np.exp(log_q) * (log_q - log_p)).sum(axis=-1)


def _measured():
    """The time of the KL over that of the log-softmax of q and p, without which there is no log q/p."""
    logits = _logits()
    rows = [log_softmax(one) for one in logits]
    return _least(lambda: next_token_kl(*rows)) / _least(lambda: [log_softmax(one) for one in logits])


def _least(work):
    times = []
    for _ in range(REPEATS):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return max(min(times), 1e-9)


def _cost():
    return Evidence(
        "computed",
        f"at V = {VOCABULARY:,} the exact KL of the next token costs less than {MOST} times the"
        " log-softmax of q and p that makes its log probabilities (NumPy, measured in each run)",
        rf"\text{{cost of }} \mathrm{{KL}}_t < {MOST} \times \text{{cost of the log-softmax}}",
        "numeric",
        (f"{ROWS} positions at a time, float32, the least of {REPEATS} runs",),
        _timed,
        holds=_measured() < MOST,
        source_says="a sum over 50,000 tokens is too large (not what klsym finds)",
        agrees=False,
    )


def _timed():
    """The measured multiple; and that what was timed is the KL, against a sum without rounding."""
    log_q, log_p = (log_softmax(one.astype(np.float64)) for one in _logits())
    exact = [
        math.fsum(math.exp(a) * (a - b) for a, b in zip(*rows, strict=True))
        for rows in [(log_q[0], log_p[0])]
    ]
    off = abs(next_token_kl(log_q, log_p)[0] - exact[0])
    ratio = _measured()
    return (
        ratio < MOST and off < 1e-12,
        f"measured here: {ratio:.2f} times the log-softmax; KL within {off:.0e}",
    )


def _terms():
    """What is out of reach: a sum over sequences."""
    tokens, sequences = LENGTH * VOCABULARY, VOCABULARY**LENGTH
    return Evidence(
        "computed",
        f"for {LENGTH} tokens the sums over tokens have {tokens:,} terms, that over sequences"
        f" {sequences:.1e}",
        rf"TV = {tokens},\quad V^T = {sequences:.1e}\quad(T = {LENGTH})",
        "sympy",
        holds=tokens < sequences,
    )  # fmt: skip
