"""Batches: the oracle against sums over all batches written out here, with nothing shared."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from klsym.errors import UsageError
from klsym.kernel.intervals import Interval
from klsym.kernel.slots import SLOTS
from klsym.numeric.exact import enclose, evaluate
from klsym.numeric.indices import STRUCTURES, Structure
from klsym.numeric.models import FiniteModel, from_certificate
from klsym.numeric.random_models import Needs, needs_of
from support.oracle_atoms import V, claim, grad, gradient_over, k1, k2, mean, over_i, r, rho, sg, variance
from support.oracle_atoms import at as slot

ROWS = {"q": [0.5, 0.2, 0.3], "p": [0.25, 0.25, 0.5], "mu": [0.3, 0.6, 0.1], "u": [1.0, -0.5, 0.25]}
R, A = [1.0, -2.0, 0.5], [0.5, 3.0, -1.0]
N = 3
MODEL = FiniteModel(**ROWS, parameters={"n": N}, rewards={"R": R, "A": A}, outcome=1)
BATCHES = list(product(range(3), repeat=N))
MEAN_U = sum(q * u for q, u in zip(ROWS["q"], ROWS["u"], strict=True))


def K(x):
    return math.log(ROWS["q"][x] / ROWS["p"][x])


def S(x):
    return ROWS["u"][x] - MEAN_U


def weight(batch, m):
    return math.prod(ROWS[m][x] for x in batch)


def mean_over_i(batch, f):
    """(1/n) sum_i f(x_i, the others), literally."""
    return sum(f(batch[i], batch[:i] + batch[i + 1 :]) for i in range(N)) / N


# E_m[mean_i f(self, others)]
VALUES = {
    "self": (k1("self"), (), "q", lambda x, o: K(x)),
    "others": (k1("others"), ("self",), "p", lambda x, o: sum(map(K, o)) * S(x)),
    "product of the others": (
        r("others") * k1("self"), (), "mu", lambda x, o: math.exp(-sum(map(K, o))) * K(x)
    ),
    "square of a sum": (k1("others") ** 2, (), "q", lambda x, o: sum(map(K, o)) ** 2),
    "score of the others": (k1("self"), ("others", "others"), "mu", lambda x, o: K(x) * sum(map(S, o)) ** 2),
    "rewards": (
        slot("R", "self") * slot("R", "others"), ("self",), "mu",
        lambda x, o: R[x] * sum(R[y] for y in o) * S(x),
    ),
    "A of self": (slot("A", "self"), ("self",), "p", lambda x, o: A[x] * S(x)),
    "n": (V("n").inverse() * k1("others"), (), "mu", lambda x, o: sum(map(K, o)) / N),
}  # fmt: skip


@pytest.mark.parametrize("name", VALUES)
def test_means_over_batches(name):
    a, score, m, literal = VALUES[name]
    found, _ = evaluate(claim(over_i(a, *score, m=m), parameters=("n",)), MODEL)
    expected = sum(weight(x, m) * mean_over_i(x, literal) for x in BATCHES)
    assert found == pytest.approx(expected, rel=1e-12, abs=1e-13)


@pytest.mark.parametrize("name", VALUES)
def test_the_variance_of_a_mean_is_that_of_the_means_of_all_batches(name):
    a, score, m, literal = VALUES[name]
    found, _ = evaluate(claim(variance(a, *score, m=m), parameters=("n",)), MODEL)
    values = np.array([mean_over_i(x, literal) for x in BATCHES])
    weights = np.array([weight(x, m) for x in BATCHES])
    expected = weights @ (values - weights @ values) ** 2
    assert found == pytest.approx(expected, rel=1e-12, abs=1e-13)


def test_pairs():
    found, _ = evaluate(claim(mean("ij", "mu", k1("self") * k1("rest") * r("other"), "other")), MODEL)
    expected = sum(weight((x, y, z), "mu") * K(x) * K(z) * math.exp(-K(y)) * S(y) for x, y, z in BATCHES)
    assert found == pytest.approx(expected, rel=1e-12)


def test_nobody_is_left_of_a_pair():
    """n = 2: sums over the rest are 0, products are 1."""
    pair = replace(MODEL, parameters={"n": 2})
    assert evaluate(claim(mean("ij", "q", k1("rest"))), pair)[0] == 0
    assert evaluate(claim(mean("ij", "q", r("rest"))), pair)[0] == pytest.approx(1, rel=1e-15)
    exact = FiniteModel(["1/2", "1/2"], ["1/4", "3/4"], [1, 0], parameters={"n": 2})
    assert enclose(claim(mean("ij", "q", r("rest") + k1("rest"))), exact)[0] == Interval.exact(1)


def test_a_pair_in_fractions():
    """E_q[mean_i r_others s_self^2] = E_q[r] E_q[s^2] = 1 * 1/4; E_p: r_others has the mean 5/4."""
    exact = FiniteModel(["1/2", "1/2"], ["1/4", "3/4"], [1, 0], mu=["1/3", "2/3"], parameters={"n": 2})
    assert enclose(claim(over_i(r("others"), "self", "self")), exact)[0] == Interval.exact(Fraction(1, 4))
    r_mean = Fraction(1, 4) * Fraction(1, 2) + Fraction(3, 4) * Fraction(3, 2)
    found = enclose(claim(over_i(r("others"), m="p")), exact)[0]
    assert found == Interval.exact(r_mean) == Interval.exact(Fraction(5, 4))
    both = (Fraction(1, 3) * Fraction(1, 2) + Fraction(2, 3) * Fraction(3, 2)) / 3
    off = [Fraction(1, 2) - 3 * both, Fraction(3, 2) - 3 * both]
    half = (off[0] ** 2 / 3 + off[1] ** 2 * Fraction(2, 3)) / 2  # Var(r)/n
    assert enclose(claim(variance(r("self"), m="mu")), exact)[0] == Interval.exact(half)


LOSSES = {
    "baseline": (
        (k1("self") - k1("others") * Fraction(1, 2)) * slot("log_q", "self"), "q",
        lambda x, d, i: (x[i] - (sum(x) - x[i]) / 2), True,
    ),
    "detached": (
        sg(k1("self") - k1("others") * Fraction(1, 2)) * slot("log_q", "self"), "q",
        lambda x, d, i: (d[i] - (sum(d) - d[i]) / 2), True,
    ),
    "under mu": (k2("self") * k1("others") * sg(k1("others")), "mu",
                 lambda x, d, i: x[i] ** 2 / 2 * (sum(x) - x[i]) * (sum(d) - d[i]), False),
}  # fmt: skip


@pytest.mark.parametrize("name", LOSSES)
def test_gradients_of_batches_are_central_differences(name):
    loss, m, literal, times_log_q = LOSSES[name]

    def value(t):
        weights = [q * math.exp(t * u) for q, u in zip(ROWS["q"], ROWS["u"], strict=True)]
        q = [w / sum(weights) for w in weights]
        live = [math.log(a / b) for a, b in zip(q, ROWS["p"], strict=True)]
        total = 0.0
        for batch in BATCHES:
            x, d = [live[y] for y in batch], [K(y) for y in batch]
            each = [literal(x, d, i) * (math.log(q[batch[i]]) if times_log_q else 1) for i in range(N)]
            total += weight(batch, m) * sum(each) / N
        return total

    found, _ = evaluate(claim(gradient_over("i", loss, m=m)), MODEL)
    assert found == pytest.approx((value(1e-5) - value(-1e-5)) / 2e-5, rel=1e-7, abs=1e-9)


def test_the_measure_of_all_samples_moves():
    """grad E_q[mean_i k_self k_others] = 2 (n - 1) E[k] E[k s], since E[s] = 0."""
    found, _ = evaluate(claim(grad(over_i(k1("self") * k1("others")))), MODEL)
    first = sum(q * K(x) for x, q in enumerate(ROWS["q"]))
    second = sum(q * K(x) * S(x) for x, q in enumerate(ROWS["q"]))
    assert found == pytest.approx(2 * (N - 1) * first * second, rel=1e-12)


def test_one_batch():
    """The batch that starts with the outcome and goes on in order; its value is that at the first."""
    found, _ = evaluate(claim(mean("i", "sample", k1("others") * r("self"), "self")), MODEL)
    assert found == pytest.approx((K(2) + K(0)) * math.exp(-K(1)) * S(1), rel=1e-13)
    found, _ = evaluate(claim(gradient_over("i", k2("self") * sg(k1("others")), m="sample")), MODEL)
    assert found == pytest.approx(K(1) * S(1) * (K(2) + K(0)), rel=1e-13)


def test_generic_functions_are_summed_over_positions():
    context = {"functions": (("f", ("k1",)), ("g", ("k1", "w")))}
    functions = {"f": lambda x: np.exp(x / 2) + x**2, "g": lambda x, w: x * w**2}
    a = slot("f", "others") * slot("g", "self")
    found, slope = evaluate(
        claim(over_i(a, m="p"), over_i(V("f'[self]"), "self"), **context), MODEL, functions
    )

    def f(x):
        return math.exp(K(x) / 2) + K(x) ** 2

    def g(x):
        return K(x) * math.log(ROWS["q"][x] / ROWS["mu"][x]) ** 2

    def at_batch(x, o):
        return sum(map(f, o)) * g(x)

    assert found == pytest.approx(sum(weight(x, "p") * mean_over_i(x, at_batch) for x in BATCHES), rel=1e-12)
    expected = sum(q * (math.exp(K(x) / 2) / 2 + 2 * K(x)) * S(x) for x, q in enumerate(ROWS["q"]))
    assert slope == pytest.approx(expected, rel=1e-12)


# ---------------------------------------------------------------------------- batches of sequences
NODE = {
    "q": [0.3, 0.7],
    "p": [0.5, 0.5],
    "mu": [0.6, 0.4],
    "u": [1, 0],
    "v": [0, 1],
    "R": [1, 4],
    "next": [None, None],
}
LATER = {
    "q": [0.9, 0.1],
    "p": [0.2, 0.8],
    "mu": [0.5, 0.5],
    "u": [0, 2],
    "v": [1, 0],
    "R": [-1, 2],
    "next": [None, None],
}
TREE = from_certificate({"tree": {**NODE, "next": [None, LATER]}, "parameters": {"n": 2}})
PATHS = [[(NODE, 0)], [(NODE, 1), (LATER, 0)], [(NODE, 1), (LATER, 1)]]


def of(path, name):
    return math.prod(node[name][i] for node, i in path)


def ratio(path):
    return math.log(of(path, "q") / of(path, "p"))


def score(path):
    return sum(
        node["u"][i] - sum(a * b for a, b in zip(node["q"], node["u"], strict=True)) for node, i in path
    )


def test_steps_of_one_of_two_sequences():
    """k_others is that of the whole other sequence; past, now and x are those of the first."""
    a = k1("others") * k1("now") * rho("past")
    found, _ = evaluate(claim(mean("it", "mu", a, "others", "x")), TREE)
    expected = sum(
        of(x, "mu") * of(y, "mu") * ratio(y) * ratio(x[t : t + 1]) * of(x[:t], "q") / of(x[:t], "mu")
        * score(x) * score(y)
        for x in PATHS for y in PATHS for t in range(len(x))
    )  # fmt: skip
    assert found == pytest.approx(expected, rel=1e-12)


def test_one_batch_of_sequences():
    model = replace(TREE, outcome=1)
    found, _ = evaluate(claim(mean("it", "sample", k1("others") * k1("now"), "now")), model)
    own, other = PATHS[1], PATHS[2]
    assert found == pytest.approx(sum(ratio(other) * ratio([x]) * score([x]) for x in own), rel=1e-12)


def test_whole_sequences_are_samples_of_a_batch():
    found, _ = evaluate(
        claim(over_i(k1("others") * slot("length", "self") * slot("R", "others"), "self")), TREE
    )
    expected = sum(
        of(x, "q") * of(y, "q") * ratio(y) * len(x) * sum(node["R"][i] for node, i in y) * score(x)
        for x in PATHS for y in PATHS
    )  # fmt: skip
    assert found == pytest.approx(expected, rel=1e-12)


def test_a_slot_structure_is_one_row_of_a_table(monkeypatch):
    """Three samples of a batch: E[k1_i k1_j k1_l] = KL^3; a statement about them needs a batch."""
    monkeypatch.setitem(SLOTS, "ijl", ("self", "other", "third", "rest"))
    monkeypatch.setitem(STRUCTURES, "ijl", Structure(("self", "other", "third"), "rest"))
    product = k1("self") * k1("other") * slot("k1", "third")
    statement = claim(mean("ijl", "q", product), mean("ijl", "q", product + slot("k1", "rest"), "third"))
    kl = sum(q * K(x) for x, q in enumerate(ROWS["q"]))
    assert evaluate(statement, MODEL)[0] == pytest.approx(kl**3, rel=1e-12)
    assert needs_of(statement) == Needs(False, True)
    with pytest.raises(UsageError, match="no two samples"):
        evaluate(statement, replace(MODEL, parameters={"n": 2}))


# ---------------------------------------------------------------------------- refusals
REFUSED = {
    "half a sample": (claim(over_i(k1("self"))), {"n": Fraction(5, 2)}, "a whole number of samples"),
    "no sample": (claim(over_i(k1("self"))), {"n": 0}, "a whole number of samples"),
    "no pair": (claim(mean("ij", "q", k1("other"))), {"n": 1}, "no two samples"),
    "too many": (claim(over_i(k1("self"))), {"n": 20}, "rows are too many"),
    "a slot of pairs": (claim(over_i(k1("other"))), {"n": 2}, "'i' has no such slot"),
    "a score of pairs": (claim(over_i(1, "rest")), {"n": 2}, "'i' has no such slot"),
    "a slot of sequences": (claim(over_i(k1("past"))), {"n": 2}, "'i' has no such slot"),
    "a second direction": (claim(over_i(1, "self'")), {"n": 2}, "no direction 'v'"),
    "division by a sum": (claim(over_i(k1("others").inverse())), {"n": 2}, "division by"),
    "a second derivative": (claim(grad(over_i(1, "self"))), {"n": 2}, "gradient of a score function"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_makes_no_sense_is_refused(name):
    statement, parameters, message = REFUSED[name]
    with pytest.raises(UsageError, match=message):
        evaluate(statement, replace(MODEL, parameters=parameters))


def test_without_a_size_a_batch_is_a_pair():
    open_ = replace(MODEL, parameters={})
    both = [
        evaluate(claim(over_i(k1("others"), m="p")), x)[0]
        for x in (open_, replace(MODEL, parameters={"n": 2}))
    ]
    assert both[0] == both[1] != 0
    with pytest.raises(UsageError, match="no value for the parameter n"):
        evaluate(claim(over_i(k1("self")), parameters=("n",)), open_)


def test_a_of_the_others_is_some_function_of_them():
    """Not of self; not a sum; constant where A is."""
    statement = claim(
        over_i(slot("A", "others") * k1("self"), "self"), over_i(slot("A", "others") * k1("others"))
    )
    assert evaluate(statement, MODEL)[0] != 0
    level = replace(MODEL, rewards={"R": R, "A": [2.0] * 3})
    kl = sum(q * K(x) for x, q in enumerate(ROWS["q"]))
    assert evaluate(statement, level)[1] == pytest.approx(2.0 * (N - 1) * kl, rel=1e-12)
    with pytest.raises(UsageError, match="no value for A"):
        evaluate(statement, replace(MODEL, rewards={}))
