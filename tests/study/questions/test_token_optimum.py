"""Where token penalties end, against sums over all sequences, Newton's method and ascent; all in floats."""

from __future__ import annotations

import json
import math
from itertools import product

import numpy as np
import pytest

from klsym.cli import main
from klsym.errors import UsageError
from klsym.study.api import optimum
from support.scale import scaled

pytestmark = pytest.mark.usefixtures("without_copies")

K1, K2, K3 = (lambda k: k), (lambda k: k**2 / 2), (lambda k: np.expm1(-k) + k)
ONE = np.ones_like
TOKEN, PREFIX = {"level": "token"}, {"level": "token", "weights": "prefix"}
REWARD, SAME = {**TOKEN, "use": "reward"}, {**TOKEN, "use": "reward", "credit": "same-token"}
TOTAL = {**REWARD, "credit": "total"}
NONE = np.zeros_like
# penalty, options -> what multiplies the score of a token: a function of its own k, and of each later k
PENALTIES = {
    "k1 in the loss": ("k1", TOKEN, ONE, NONE),
    "k2 in the loss": ("k2", TOKEN, K1, NONE),
    "k3 in the loss": ("k3", TOKEN, lambda k: -np.expm1(-k), NONE),
    "k(1/2) in the loss": ("k(0.5)", TOKEN, lambda k: 1 - np.exp(-k) / 2 - 0.5, NONE),
    "rho*k3 with the weight of the prefix": ("rho*k3", PREFIX, K1, K1),
    "rho*k2 with the weight of the prefix": ("rho*k2", PREFIX, lambda k: k + K2(k), K2),
    "the entropy": ("log_q*sg(log_q)", TOKEN, None, NONE),
    "k1 to-go": ("k1", REWARD, K1, K1),
    "k1 for its own token": ("k1", SAME, K1, NONE),
    "k3 to-go": ("k3", REWARD, K3, K3),
    "k3 for its own token": ("k3", SAME, K3, NONE),
    "k2 for all tokens": ("k2", TOTAL, K2, K2),
    "k1 and k3 to-go": ("k1 - k3/2", REWARD, lambda k: k - K3(k) / 2, lambda k: k - K3(k) / 2),
}  # fmt: skip
SHAPES = ((2, 2), (3, 2), (2, 3), (2, 1), (4, 1))  # words, tokens
MANY = {"rho*k2 with the weight of the prefix": (2, 2)}  # up to nine stationary policies at two tokens


class Sequences:
    """The update of all logits as a sum over all sequences."""

    def __init__(self, words, length, rewards, reference, beta, own, later):
        self.words, self.length, self.beta = words, length, beta
        self.own, self.later = own, later
        self.all = list(product(range(words), repeat=length))
        self.rewards = np.array([*rewards], float)
        self.prefixes = [h for t in range(length) for h in product(range(words), repeat=t)]
        self.p = {}
        for h in self.prefixes:
            masses = [
                sum(x for x, y in zip(reference, self.all, strict=True) if y[: len(h) + 1] == (*h, w))
                for w in range(words)
            ]
            self.p[h] = np.array(masses) / sum(masses)

    def policy(self, logits):
        return {
            h: np.exp(z - z.max()) / np.exp(z - z.max()).sum()
            for h, z in zip(self.prefixes, logits, strict=True)
        }

    def chances(self, q):
        return np.array([math.prod(q[y[:t]][w] for t, w in enumerate(y)) for y in self.all])

    def field(self, logits):
        """E_q[sum_t s_t (R - beta (own(k_t) + sum_{u>t} later(k_u)))], shape (prefixes, words)."""
        q = self.policy(logits)
        total = np.zeros((len(self.prefixes), self.words))
        for y, chance, reward in zip(self.all, self.chances(q), self.rewards, strict=True):
            words = [q[y[:t]][w] for t, w in enumerate(y)]
            k = np.log(words) - np.log([self.p[y[:t]][w] for t, w in enumerate(y)])
            for t, w in enumerate(y):
                own = np.log(words[t]) if self.own is None else self.own(k[t])
                pays = reward - self.beta * (own + sum(self.later(x) for x in k[t + 1 :]))
                row = self.prefixes.index(y[:t])
                total[row] += chance * pays * ((np.arange(self.words) == w) - q[y[:t]])
        return total

    def jacobian(self, logits, step=1e-6):
        columns = []
        for unit in np.eye(logits.size):
            move = step * unit.reshape(logits.shape)
            columns.append((self.field(logits + move) - self.field(logits - move)).ravel() / (2 * step))
        return np.array(columns).T

    def newton(self, logits):
        """A zero of the field from these logits, or None."""
        for _ in range(60):
            slope = self.jacobian(logits)
            move = np.linalg.lstsq(slope, -self.field(logits).ravel(), rcond=1e-7)[0].reshape(logits.shape)
            logits = logits + np.clip(move, -1, 1)
            if not np.abs(logits).max() < 15:
                return None
            if np.abs(move).max() < 1e-10:
                policy = self.chances(self.policy(logits))
                settled = np.abs(self.field(logits)).max() < 1e-12 and policy.min() > 1e-4
                return policy if settled else None
        return None


def draw(name, seed):
    """A penalty on a random tree: the answer, and the update as a sum over sequences."""
    loss, options, own, later = PENALTIES[name]
    words, length = MANY.get(name) or SHAPES[seed % len(SHAPES)]
    rng = np.random.default_rng([seed, 57])
    size = words**length
    rewards = [f"{x:.2f}" for x in rng.normal(size=size)]
    weights = rng.integers(1, 9, size=size)
    reference = [f"{w}/{weights.sum()}" for w in weights]
    beta = ["0.3", "0.7", "2"][seed % 3]
    found = optimum(loss, beta, rewards, reference, words=words, **options)
    sums = Sequences(words, length, map(float, rewards), weights / weights.sum(), float(beta), own, later)
    return found, sums


def take_logits(sums, end):
    return np.log([end.tokens[h].policy for h in sums.prefixes])


@pytest.mark.parametrize("seed", range(scaled(15, 5)))
@pytest.mark.parametrize("name", PENALTIES)
@pytest.mark.share(3)
def test_each_end_is_stationary_and_as_stable_as_its_jacobian(name, seed):
    found, sums = draw(name, seed)
    for end in found.optimum.stationary:
        logits = take_logits(sums, end)
        assert np.abs(sums.chances(sums.policy(logits)) - end.policy).max() < 1e-12
        assert np.abs(sums.field(logits)).max() < 1e-9
        slopes = np.linalg.eigvals(sums.jacobian(logits))
        assert np.abs(slopes.imag).max() < 1e-6
        moving = sorted(
            sorted(slopes.real, key=abs)[len(sums.prefixes) :]
        )  # one logit of each prefix is free
        assert np.allclose(moving, end.eigenvalues, rtol=1e-4, atol=1e-7)
        assert end.stable is (max(end.eigenvalues) < 0)


@pytest.mark.parametrize("seed", range(scaled(10, 3)))
@pytest.mark.parametrize("name", PENALTIES)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.share(3)
def test_newton_finds_no_other_policy(name, seed):
    found, sums = draw(name, seed)
    assert found.optimum.complete
    rng = np.random.default_rng(seed)
    shape = (len(sums.prefixes), sums.words)
    for _ in range(4):
        policy = sums.newton(rng.normal(size=shape) * 1.5)
        assert policy is None or any(
            np.abs(policy - end.policy).max() < 1e-6 for end in found.optimum.stationary
        )


@pytest.mark.parametrize(
    "name", ["k2 in the loss", "k3 in the loss", "k1 to-go", "k1 in the loss", "k3 to-go"]
)
@pytest.mark.share(3)
def test_ascent_ends_where_the_list_says(name):
    found, sums = draw(name, 3 if name == "k3 to-go" else 0)
    ends = [*found.optimum.stationary, *found.optimum.boundary]
    logits = np.log([sums.p[h] for h in sums.prefixes])
    for _ in range(4000):
        logits = logits + 4 * np.clip(sums.field(logits), -0.5, 0.5)
        if np.abs(logits).max() > 40:
            break
    last = sums.chances(sums.policy(logits))
    assert any(end.stable and np.abs(last - end.policy).max() < 2e-3 for end in ends), (last, ends)


# ---------------------------------------------------------------------------- the ends of the ledger's tree
REWARDS, P = ["1.0", "-0.5", "0.3", "0.8"], ["0.18", "0.12", "0.14", "0.56"]


def compute_end(kind):
    """Chances of the words by backward induction in floats, a bisection for each prefix with k3."""
    beta, p = 0.7, {(): (0.3, 0.7), (0,): (0.6, 0.4), (1,): (0.2, 0.8)}
    values, q = {(0, 0): 1.0, (0, 1): -0.5, (1, 0): 0.3, (1, 1): 0.8}, {}
    for h in ((0,), (1,), ()):
        below = [values[(*h, w)] for w in (0, 1)]
        if kind == "k3":
            low, high = max(below), max(below) + beta
            for _ in range(200):
                nu = (low + high) / 2
                mass = sum(beta * x / (nu - V) for x, V in zip(p[h], below, strict=True))
                low, high = (nu, high) if mass > 1 else (low, nu)
            q[h] = [beta * x / (nu - V) for x, V in zip(p[h], below, strict=True)]
        else:
            weights = [x * math.exp(V / beta) for x, V in zip(p[h], below, strict=True)]
            q[h] = [w / sum(weights) for w in weights]
        values[h] = sum(x * V for x, V in zip(q[h], below, strict=True))
        if kind == "to-go":
            values[h] -= beta * sum(x * math.log(x / y) for x, y in zip(q[h], p[h], strict=True))
    return [q[()][a] * q[a,][b] for a, b in product((0, 1), repeat=2)]


@pytest.mark.parametrize(
    ("kind", "loss", "options"),
    [("k2", "k2", TOKEN), ("k2", "k1", SAME), ("k3", "k3", TOKEN), ("to-go", "k1", REWARD)],
)
def test_the_ends_of_the_claim(kind, loss, options):
    """beyond.token-penalty-optimum."""
    found = optimum(loss, "0.7", REWARDS, P, **options)
    [end] = found.optimum.stationary
    assert end.stable and found.optimum.unique and not found.optimum.boundary and not found.warnings
    assert np.abs(np.array(end.policy) - compute_end(kind)).max() < 1e-12


def test_only_the_penalty_to_go_ends_at_the_best_policy():
    gaps = {}
    for name, (loss, options) in {"k2": ("k2", TOKEN), "k3": ("k3", TOKEN), "to-go": ("k1", REWARD)}.items():
        row = (answer := optimum(loss, "0.7", REWARDS, P, **options).to_json())["stationary"][0]
        gaps[name] = answer["best"] - (row["reward"] - 0.7 * row["kl"])
    assert abs(gaps["to-go"]) < 1e-12 < 1e-4 < gaps["k2"] < gaps["k3"]


def test_one_token_is_one_sample():
    for loss, use in (("k3", "loss"), ("k2", "loss"), ("k3", "reward"), ("k2 - k3", "reward")):
        a = optimum(loss, "0.5", ["1", "0", "0.4"], ["0.2", "0.3", "0.5"], use=use).optimum
        b = optimum(
            loss, "0.5", ["1", "0", "0.4"], ["0.2", "0.3", "0.5"], use=use, level="token", words=3
        ).optimum
        for one, other in ((a.stationary, b.stationary), (a.boundary, b.boundary)):
            assert len(one) == len(other)
            for x, y in zip(one, other, strict=True):
                assert np.allclose(x.policy, y.policy, atol=1e-12) and x.stable is y.stable


# ---------------------------------------------------------------------------- what is asked and printed
ASKED = ["--beta", "0.5", "--rewards", "1,0,0.3,-0.2", "--level", "token"]


def test_the_answer_is_short_and_says_what_it_is(capsys):
    assert main(["optimum", "k3", *ASKED]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "where training with rewards and the penalty 0.5*k3 on each token, in the loss, ends"
    assert " ".join(said[1].split()) == "1 policy with mass on every sequence, and no other numeric"
    assert said[2].startswith(
        "  inside   q = (0.604706, 0.142752, 0.178575, 0.073968), stable; eigenvalues -0.311"
    )
    assert "at most 0.500385, at p*exp(R/beta)/Z" in " ".join(" ".join(said[3:5]).split()) and len(said) == 6


@pytest.mark.parametrize("width", [100, 60])
@pytest.mark.parametrize("loss", ["k3", "k1", "rho*k2"])
@pytest.mark.parametrize("size", [4, 32])
def test_the_answer_fits(width, loss, size):
    if loss == "rho*k2" and size > 4:
        with pytest.raises(UsageError, match="more than 200 policies"):
            optimum(loss, 1, [f"{i}/{size}" for i in range(size)], **PREFIX)
        return
    text = optimum(loss, 1, [f"{i}/{size}" for i in range(size)], **PREFIX).text(width)
    lines = text.splitlines()
    assert len(lines) <= (12 if width == 100 else 16) and max(map(len, lines)) <= width


def test_json_and_html(capsys):
    assert main(["optimum", "k3", *ASKED, "--use", "reward", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["credit"] == "to-go" and answer["sequences"] == ["11", "12", "21", "22"]
    assert len(answer["boundary"]) == 4 and answer["complete"] and not answer["stationary"][0]["stable"]
    assert set(answer["stationary"][0]["tokens"]) == {"", "1", "2"}
    assert answer["warnings"][0] == "where training ends depends on where it starts"
    shown = optimum("k3", "0.5", ["1", "0", "0.3", "-0.2"], level="token")._repr_html_()
    assert "q(12)" in shown and "0.142752" in shown and "<math" in shown
    assert repr(optimum("k3", 1, [1, 0], level="token")).startswith("where training")


def test_ties_are_said(capsys):
    assert main(["optimum", "k1", "--beta", "1", "--rewards", "1,1,0,0", "--level", "token"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "the words after 1 are not isolated" in said and "not decided: policies that are" in said


REFUSED = {
    "whole sequences": (["k3", "--level", "sequence"], "leave the level at sample"),
    "a credit without tokens": (["k3", "--use", "reward", "--credit", "to-go"], "credit: needs level token"),
    "words without tokens": (["k3", "--words", "2"], "words: needs level token"),
    "a credit of a loss": (["k3", "--level", "token", "--credit", "total"], "choose use reward"),
    "a behaviour": (["k3", "--level", "token", "--behaviour", "1/4,1/4,1/4,1/4"], "behaviour: has no effect"),
    "samples of mu, unweighted": (
        ["k3", "--level", "token", "--sampling", "off-policy"], "choose weights prefix"),
    "one over the length": (["k3/T", "--level", "token"], "divides by T"),
    "other tokens": (["sg(past(k1))*k3", "--level", "token"], "depends on other tokens"),
    "bounds": (["clip(k1, -1, 1)", "--level", "token"], "cases, logs or roots"),
    "a log": (["log(1 + r)", "--level", "token"], "cases, logs or roots"),
    "a batch": (["loo(k1)*log_q", "--level", "token"], "is no exponential polynomial"),
    "rewards in the penalty": (["R - k1", "--level", "token"], "write the penalty alone"),
    "a parameter": (["lam*k1", "--level", "token"], "a number in place of lam"),
    "a sampler that is cut": (["k1", "--level", "token", "--sampling", "top-p"], "truncated"),
    "three words, four rewards": (
        ["k1", "--level", "token", "--words", "3"], "one for each sequence of 3 words"),
    "one word": (["k1", "--level", "token", "--words", "1"], "from 2 to 5 expected"),
    "half a word": (["k1", "--level", "token", "--words", "2.5"], "from 2 to 5 expected"),
    "no number of words": (["k1", "--level", "token", "--words", "two"], "words: a number expected"),
    "a picture": (["k1", "--level", "token", "-o", "x.png"], "no picture of tokens"),
    "more policies than are listed": (
        ["rho*k2", "--level", "token", "--rewards", "0,0.1,0,0.1,0,0.1,0,0.2"], "fewer tokens expected"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.share(3)
def test_bad_input_is_one_line(name, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    asked, reason = REFUSED[name]
    rewards = [] if "--rewards" in asked else ["--rewards", "1,0,0.3,-0.2"]
    assert main(["optimum", *asked, "--beta", "0.5", *rewards]) == 2
    said = capsys.readouterr()
    assert reason in said.err and said.err.count("\n") == 1 and not said.out and not list(tmp_path.iterdir())


def test_a_level_that_python_does_not_know():
    with pytest.raises(UsageError, match="one of sample, token, sequence expected"):
        optimum("k3", 1, [1, 0], level="word")
