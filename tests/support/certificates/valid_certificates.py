"""Certificates that the kernel accepts, one for each rule and each closing, at several indices."""

from __future__ import annotations

from functools import cache
from typing import Any

from klsym.kernel.models import Model, enclose
from klsym.kernel.ring import ONE
from support.certificates.faulty_certificates import *
from support.certificates.faulty_certificates import T as length
from support.certificates.faulty_certificates import constant as C
from support.certificates.kernel_words import Mg, row
from support.certificates.slot_helpers import at, future, n, now, others, own, past

ONE_NODE = {
    "q": ["1/2", "1/3", "1/6"], "p": ["1/4", "1/4", "1/2"], "mu": ["1/5", "2/5", "2/5"],
    "u": ["1", "-2", "3"], "v": ["0", "1", "2"], "rewards": {"R": ["1", "0", "-1/2"]},
    "next": [None, None, None],
}  # fmt: skip
LAST = {**ONE_NODE, "q": ["2/3", "1/6", "1/6"]}
TWO_NODES = {**ONE_NODE, "next": [LAST, None, None]}


def refuted(proof: Draft, tree: Any, path: Any = (), **parameters: str) -> Draft:
    """Closed by a finite model, with the enclosures that the kernel finds."""
    model = {"tree": tree, "path": list(path), "parameters": parameters}
    found = Model.from_json(model, proof.context)
    ends = {name: enclose(side, found) for name, side in proof.sides.items()}
    return proof.close(
        "finite model", model=model, **{k: [str(x.lower), str(x.upper)] for k, x in ends.items()}
    )


def reverse_gradient() -> Draft:
    """grad KL(q||p) = E_q[k1 s]"""
    proof = Draft(grad(Em("q", k1)), Em("q", k1, 1))
    proof.step("log-derivative")
    proof.step("chain rule", term=1)
    return proof.step("score mean zero", slot="x", part=ONE)


def cited() -> Draft:
    """E_mu[grad (sg(rho) k2)] = grad KL(q||p), by way of the theorem above."""
    proof = Draft(Mg("mu", sg(rho) * k2), grad(Em("q", k1)), cites=(reverse_gradient(),))
    proof.step("chain rule").step("change of measure", to="q")
    return proof.equation(0, cited=0, side="right")


def forward() -> Draft:
    """E_q[grad k3] = grad KL(p||q), beta times"""
    proof = Draft(Mg("q", beta * k3), grad(Em("p", -beta * k1)), parameters=("beta",))
    proof.step("chain rule").step("score mean zero", slot="x", part=beta)
    proof.step("log-derivative", side="right").step("chain rule", side="right")
    return proof.step("change of measure", side="right", to="q")


def value() -> Draft:
    """E_mu[rho (r - 1 + k1)] + 1 = E_q[k1] + E_p[1]"""
    proof = Draft(Em("mu", rho * k3) + C(1), Em("q", k1) + Em("p", ONE))
    proof.step("change of measure", to="q", term=1)
    proof.step("ratio mean one", of="p", slot="x", part=r, term=1)
    return proof.step("normalisation", side="right", part=ONE)


def premised() -> Draft:
    """Under E_q[k1] = E_q[R]: grad E_q[k1] + beta = E_q[R s] + beta"""
    context = {"parameters": ("beta",), "premises": ((Em("q", k1), Em("q", R)),)}
    proof = Draft(grad(Em("q", k1)) + C(beta), Em("q", R, 1) + C(beta), **context)
    proof.equation(0, gradient=1).step("log-derivative", term=1)
    return proof.step("chain rule", term=2)


def product() -> Draft:
    """Under E_q[k1 - R] = 0: E_p[w] E_q[k1 - R] + E_q[sg(k1)] = E_q[k1]"""
    zero = Em("q", k1 - R)
    proof = Draft(Em("p", w).multiply(zero) + Em("q", sg(k1)), Em("q", k1), premises=((zero, NOTHING),))
    return proof.equation(0, times=Em("p", w)).step("stop-gradient")


def sequence() -> Draft:
    """E_q[sum_t k1_now (s_now + s_future)] = E_q[sum_t k1_now s_now]"""
    left = mean("t", "q", now(k1), "now") + mean("t", "q", now(k1), "future")
    proof = Draft(left, mean("t", "q", now(k1), "now"))
    return proof.step("score mean zero", term=0, slot="future")


def exchanged() -> Draft:
    """E_mu[sum_t w_now sum_{u<t} k1_u] = E_mu[sum_t k1_now sum_{u>t} w_u]"""
    proof = Draft(mean("t", "mu", now(w) * past(k1)), mean("t", "mu", now(k1) * future(w)))
    return proof.step("exchange of sums", now="w", other="k1", slot="past")


def prefix() -> Draft:
    """E_mu[sum_t rho_past rho_now k1_now] = E_q[sum_t k1_now]"""
    left = mean("t", "mu", past(rho) * now(rho) * now(k1))
    proof = Draft(left, mean("t", "q", now(k1)))
    proof.step("change of measure", to="q")
    proof.step("parts of a sum", of=["w"])
    return proof.step("ratio mean one", of="mu", slot="future")


def batch() -> Draft:
    """E_q[mean_i (k1_i - sum_{j != i} k1_j / (n - 1)) s_i] = E_q[k1 s], times n - 1"""
    weight = (n - 1) * own(k1) - others(k1)
    proof = Draft(mean("i", "q", weight, "self"), Em("q", (n - 1) * k1, 1), parameters=("n",))
    proof.step("score mean zero", slot="self", part=-others(k1))
    return proof.step("independence")


def pairs() -> Draft:
    """E_mu[mean_ij R_i w_j] = E_mu[R] E_mu[w]"""
    left = mean("ij", "mu", own(R) * at("other", w))
    return Draft(left, Em("mu", R).multiply(Em("mu", w)), parameters=("n",)).step("independence")


def batch_of_sequences() -> Draft:
    """E_q[mean_i sum_t R_others s_now] = 0"""
    proof = Draft(mean("it", "q", others(R), "now"), NOTHING, parameters=("n",))
    return proof.step("score mean zero", slot="now")


def straight() -> Draft:
    """The field E_mu[grad k2] is the gradient of a function."""
    return Draft(curl("", "mu", sg(rho) * k2), NOTHING).step("curl")


def squares() -> Draft:
    """0 <= (a - b)^2 E_q[exp(w) k1^2 s s] under a region, and a variance at index i."""
    region = 2 * k1 + 1
    first = row("square", k1, ("", "q"), "x", factor=a - b, v=w, nonnegative=region)
    second = row("variance", own(R), ("i", "q"), "self", scale=beta)
    one = Em("q", w.exp() * k1 * k1 * region * (a - b) ** 2, 2)
    two = mean("i", "q", own(R) ** 2 * beta, "self", "self")
    two = two - mean("i", "q", own(R), "self").multiply(mean("i", "q", own(R), "self")) * beta
    return Draft(NOTHING, one + two, "<=", parameters=("a", "b", "beta")).rows(first, second)


def tangents() -> Draft:
    """0 <= E_q[k1] + E_q[sum_t w_now (exp(w_now) - 1) - ...]: two tangents"""
    first, second = (
        row("tangent", -k1, ("", "sample")),
        row("tangent", now(w), ("t", "mu"), scale=number(3)),
    )
    one, two = Em("sample", k3), mean("t", "mu", (now(rho) - 1 - now(w)) * 3)
    return Draft(NOTHING, one + two, "<=").rows(first, second)


def unique() -> Draft:
    """E_q[grad g(k1)] = grad KL(q||p) for g = k2 + a k1 + b only."""
    proof = Draft(Mg("q", g) - Em("q", k1, 1), NOTHING, parameters=("a", "b"), functions=G)
    proof.step("chain rule", term=1)
    return proof.close(
        "completeness",
        function="g",
        family=k2 + a * k1 + b,
        unit=ONE,
        coordinate="k1",
        order=2,
        constants=["b", "a"],
    )


def independent() -> Draft:
    """beta E_q[k1^2 s] is no combination."""
    proof = Draft(Mg("q", beta * k1**3), NOTHING, parameters=("beta",)).step("chain rule")
    return proof.close("independence", term=k1 * k1 * beta * 3)


def one_sample() -> Draft:
    """Not in general: E_q[R k2] = E_p[exp(k1^2)]"""
    return refuted(Draft(Em("q", k2 * R), Em("p", (k1 * k1).exp())), ONE_NODE)


def two_steps() -> Draft:
    """Not in general: E_q[sum_t k1_past s_now'] = the value at one sequence."""
    left = mean("t", "q", now(R) * (-now(k1)).exp() + length * past(log_q).exp(), "now'", "x")
    return refuted(
        Draft(left, mean("t", "sample", now(k1) * lam), parameters=("lam",)), TWO_NODES, [0, 1], lam="1/3"
    )


PROOFS = {
    "reverse": reverse_gradient, "cited": cited, "forward": forward, "value": value, "premised": premised,
    "product": product, "sequence": sequence, "exchanged": exchanged, "prefix": prefix,
    "batch": batch, "pairs": pairs, "batch of sequences": batch_of_sequences, "straight": straight,
    "squares": squares, "tangents": tangents, "unique": unique, "independent": independent,
    "one sample": one_sample, "two steps": two_steps,
}  # fmt: skip


@cache
def certificate(name: str) -> dict[str, Any]:
    return PROOFS[name]().certificate()
