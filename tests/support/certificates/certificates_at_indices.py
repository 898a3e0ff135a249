"""Certificates about sequences and batches that the kernel accepts: baselines, variances, fields."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from klsym.kernel.statements import Mean, Side
from support.certificates.faulty_certificates import *
from support.certificates.slot_helpers import future, mean_i, n, now, other, others, own, past, spread, sum_t
from support.certificates.valid_certificates import refuted
from support.faulty.trees import node

TO_GO, m = now(k1) + future(k1), V("m")
BASELINE = own(k1) - others(k1) * m.invert()
BATCH: dict[str, Any] = {"parameters": ("m", "n")}
TWO_STEPS = node(q=["1/3", "2/3"], next=[None, node(u=["2", "0"])])


# ---------------------------------------------------------------------------- derivations
def reduced_gradient(draft: Draft, scale: Any = 1) -> Draft:
    """On the right side, grad KL(q||p) as a sum over t of k1_now + k1_future, times s_now."""
    draft.right("log-derivative").right("chain rule", term=1)
    draft.right("score mean zero", slot="x", part=scale * ONE)
    return draft.right("sum over t", of="s").right("parts of a sum", of=["k1"]).right(
        "score mean zero", slot="now", part=scale * past(k1))  # fmt: skip


def to_go() -> Draft:
    right = grad(KL("q", "p") * -beta)
    return reduced_gradient(Draft(sum_t("q", -beta * TO_GO, "now"), right, parameters=("beta",)), -beta)


def baseline() -> Draft:
    draft = Draft(mean_i("q", BASELINE, "self"), Em("q", k1, 1), **BATCH)
    return draft.step("score mean zero", slot="self", part=BASELINE - own(k1)).step("independence")


def sequences() -> Draft:
    whole = past(k1) + TO_GO - others(k1) * m.invert()
    draft = Draft(mean("it", "q", whole, "now"), grad(KL("q", "p")), **BATCH)
    draft.step("score mean zero", slot="now", part=whole - TO_GO).step("independence")
    return reduced_gradient(draft)


def prefix() -> Draft:
    weight = past(sg(rho)) * now(sg(rho))
    draft = Draft(mean_grad("t", "mu", weight * now(k2)), sum_t("q", now(k1), "now"))
    return draft.step("chain rule").step("change of measure", to="q").step(
        "ratio mean one", of="mu", slot="future")  # fmt: skip


def count() -> Draft:
    draft = Draft(sum_t("sample", past(T) * 2), point(T * (T - 1))).right("sum over t", of="length")
    return draft.right("parts of a sum", of=["length"]).right(
        "exchange of sums", now="length", other="length", slot="future", part=future(T))  # fmt: skip


def variance() -> Draft:
    right = Em("q", k1 * k1 * n.invert()) - Em("q", k1).multiply(Em("q", k1)) * n.invert()
    draft = Draft(spread("q", own(k1), other(k1)), right, parameters=("n",))
    while place := next(iter(of_batches(draft.sides["left"])), None):
        draft.step("independence", term=place[0], factor=place[1])
    return draft


def of_batches(side: Side) -> Iterator[tuple[int, int]]:
    for term, (_, atoms) in enumerate(side.terms):
        for factor, atom in enumerate(atoms):
            if isinstance(atom, Mean) and "i" in atom.index:
                yield term, factor


def square() -> Draft:
    zero = {"scale": ONE, "factor": beta, "v": own(k1), "of": own(R) - others(R), "score": ["self"]}
    right = mean_i("p", (own(R) - others(R)) ** 2 * own(k1).exp() * beta * beta, "self", "self")
    draft = Draft(NOTHING, right, "<=", parameters=("beta",))
    return draft.rows({"kind": "square", "at": ["i", "p"], **zero})


def chain_rule_of_kl() -> Draft:
    """A true premise, for every theta."""
    fact = (sum_t("q", now(k1)), Em("q", k1))
    return Draft(grad(fact[0]), grad(fact[1]), premises=(fact,)).equation(0, gradient=1)


def cited() -> Draft:
    left = mean_i("q", BASELINE, "self").multiply(sum_t("mu", now(R)))
    right = Em("q", k1, 1).multiply(sum_t("mu", now(R)))
    draft = Draft(left, right, cites=(baseline(),), **BATCH)
    return draft.equation(0, cited=0, times=sum_t("mu", now(R)))


def field() -> Draft:
    return refuted(Draft(curl("t", "q", now(k2)), NOTHING).step("curl"), TWO_STEPS, [0])


def pairs() -> Draft:
    left, right = mean_i("q", own(R) * others(R)), Em("q", R).multiply(Em("q", R)) * n
    return refuted(Draft(left, right, parameters=("n",)).step("independence"), TWO_STEPS, [0], n="3")


DRAFTS = (
    to_go, baseline, sequences, prefix, count, variance, square, chain_rule_of_kl, cited, field, pairs,
)  # fmt: skip
AT_INDICES: dict[str, Callable[[], Draft]] = {
    f"{draft.__name__.replace('_', ' ')} at an index": draft for draft in DRAFTS
}
