"""The rule `equation` on a side: premises, cited theorems, their multipliers and what those cost."""

from __future__ import annotations

from typing import Any

import pytest

from klsym.errors import NotInRing, Refused
from klsym.kernel import apply_step, certify, check, check_part, digest
from klsym.kernel.ring import ONE
from klsym.kernel.statements import Context, Side
from support.certificates.faulty_certificates import (
    NOTHING,
    Draft,
    Em,
    R,
    V,
    beta,
    constant,
    g,
    grad,
    k1,
    k2,
    k3,
    mean,
    r,
    rho,
    sg,
    w,
)
from support.certificates.kernel_words import PLAIN, Mg, signed, step
from support.certificates.slot_helpers import lone, now
from support.certificates.valid_certificates import (
    certificate,
    forward,
    one_sample,
    reverse_gradient,
    squares,
)
from support.oracle.values import same, worth
from support.oracle.worlds import DEEP, THREE, TWO, softmax_world

REVERSE, FORWARD = (Em("q", k1), Em("q", k3)), (Em("p", -k1), Em("q", -k1 * r))
DETACHED = (Em("q", sg(k1)), Em("q", k1))
FACTS = Context(("beta",), (), (REVERSE, FORWARD, DETACHED))  # true in every world, for every theta


def added(before: Side, of: Any = 0, times: Side | None = None, gradient: Any = 0, **change: Any) -> Any:
    """What an equation makes of a side, and what it assumes."""
    taken = step("equation", of=of, times=constant(1) if times is None else times, gradient=gradient)
    return apply_step({"left": before}, {**taken, **change}, FACTS, {})


# ---------------------------------------------------------------------------- premises
EQUAL, FOR_EVERY = ("equal", *REVERSE), ("premise", *REVERSE)
USED: dict[str, tuple[Side, dict[str, Any], Side, set[Any]]] = {
    "once": (Em("q", k1), {}, Em("q", k3), {EQUAL}),
    "backwards": (Em("q", k3), {"times": constant(-1)}, Em("q", k1), {EQUAL}),
    "where nothing fits": (Em("mu", w), {}, Em("mu", w) + Em("q", k3) - Em("q", k1), {EQUAL}),
    "a multiple": (Em("q", k1 * beta), {"times": constant(beta)}, Em("q", k3 * beta), {EQUAL}),
    "a quotient": (Em("q", k1), {"times": constant(beta.invert())},
        Em("q", k1) + (Em("q", k3) - Em("q", k1)) * beta.invert(), {EQUAL, ("nonzero", "beta")}),
    "times a mean": (
        Em("q", k1).multiply(Em("p", R)), {"times": Em("p", R)}, Em("q", k3).multiply(Em("p", R)),
        {EQUAL, ("exists", lone(Em("p", R)))}),
    "times a value": (Em("q", k1).multiply(Em("sample", R)), {"times": Em("sample", R)},
        Em("q", k3).multiply(Em("sample", R)), {EQUAL}),
    "times a constant mean": (Em("q", k1).multiply(Em("p", beta)), {"times": Em("p", beta)},
        Em("q", k3).multiply(Em("p", beta)), {EQUAL}),
    "times a mean of a score": (NOTHING, {"times": Em("q", ONE, 1)},
        Em("q", k3).multiply(Em("q", ONE, 1)) - Em("q", k1).multiply(Em("q", ONE, 1)),
        {EQUAL, ("exists", lone(Em("q", ONE, 1)))}),
    "times a sum over t": (NOTHING, {"times": mean("t", "p", ONE)},
        Em("q", k3).multiply(mean("t", "p", ONE)) - Em("q", k1).multiply(mean("t", "p", ONE)),
        {EQUAL, ("exists", lone(mean("t", "p", ONE)))}),
    "nothing": (Em("q", k1), {"times": NOTHING}, Em("q", k1), {EQUAL}),
    "the second": (Em("p", -k1), {"of": 1}, Em("q", -k1 * r), {("equal", *FORWARD)}),
    "the third, detached": (Em("q", sg(k1)), {"of": 2}, Em("q", k1), {("equal", *DETACHED)}),
    "a gradient": (grad(Em("q", k1)), {"gradient": 1}, grad(Em("q", k3)), {FOR_EVERY}),
    "a gradient times a mean": (grad(Em("q", k1)).multiply(Em("p", R)), {"gradient": 1, "times": Em("p", R)},
        grad(Em("q", k3)).multiply(Em("p", R)), {FOR_EVERY, ("exists", lone(Em("p", R)))}),
}  # fmt: skip


@pytest.mark.parametrize("name", USED)
def test_a_premise_is_used(name):
    side, data, expected, assumed = USED[name]
    assert added(side, **data) == (expected, assumed)
    for seed in range(3):
        world = softmax_world(seed, (DEEP, THREE, TWO)[seed])
        assert same(worth(side, world), worth(expected, world))


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "there is none": ({"of": 3}, "premise 3: there are 3"),
    "a negative number": ({"of": -1}, "premise -1: there are 3"),
    "a truth value": ({"of": False}, "premise False: there are 3"),
    "a text": ({"of": "0"}, "premise 0: there are 3"),
    "nothing": ({"of": None}, "premise None: there are 3"),
    "another power of grad": ({"gradient": 2}, "gradient: 0 or 1"),
    "a text for grad": ({"gradient": "1"}, "gradient: 0 or 1"),
    "the gradient of what is detached": ({"of": 2, "gradient": 1}, "premise: it holds a detached quantity"),
    "times a gradient": ({"times": grad(Em("q", k1))}, "times: constants and means expected"),
    "times a mean of gradients": ({"times": Mg("q", k1)}, "times: constants and means expected"),
    "times what is random": (
        {"times": Side.combine((k1, ()))}, "a random coefficient stands outside its mean"),
    "times an unknown name": ({"times": constant(V("c"))}, "unknown name 'c'"),
    "times a quotient of samples": ({"times": Em("q", k1.invert())}, "division by the random variable k1"),
    "times another slot": ({"times": Em("q", now(k1))}, "unknown slot 'now'"),
    "a term": ({"term": 0}, "term and factor: null expected"),
    "a factor": ({"factor": 0}, "term and factor: null expected"),
    "a side that is none": ({"side": "middle"}, "side: 'left' or 'right' expected"),
    "more data": ({"data": {"of": 0, "times": [], "gradient": 0, "part": []}}, "data: expected"),
    "less data": ({"data": {"of": 0, "gradient": 0}}, "data: expected \\['gradient', 'of', 'times'\\]"),
    "no data": ({"data": []}, "data: an object expected"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_premise_is_not_used(name):
    data, message = REFUSED[name]
    with pytest.raises((Refused, NotInRing), match=message):
        added(Em("q", k1), **data)


def test_the_gradient_of_a_premise_differs_from_its_value():
    """At one theta E_q[k1] = E_q[R] says nothing of gradients: each use has a hypothesis of its own."""
    premise = (Em("q", k1), Em("q", R))
    kinds = []
    for gradient, side in ((0, Em("q", k1)), (1, grad(Em("q", k1)))):
        right = Em("q", R) if not gradient else grad(Em("q", R))
        draft = Draft(side, right, premises=(premise,)).equation(0, gradient=gradient)
        (theorem,) = check(draft.certificate())
        kinds += [kind for kind, *_ in theorem.hypotheses]
    assert kinds == ["equal", "premise"]


# ---------------------------------------------------------------------------- citations
def cites(
    *drafts: Draft, left: Side, right: Side, of: Any = 0, cited: int = 0, **context: Any
) -> dict[str, Any]:
    """A certificate of one step that uses a theorem, as the author believes."""
    draft = Draft(left, right, cites=drafts, **context)
    draft.equation(of, right, cited=cited)
    return draft.certificate()


GRADIENT = {"left": grad(Em("q", k1)), "right": Em("q", k1, 1)}


def refusal(changed: Any) -> str:
    with pytest.raises(Refused) as found:
        check(changed)
    assert "\n" not in str(found.value)
    return str(found.value)


def test_a_theorem_is_cited_with_its_hypotheses():
    (theorem,) = check(cites(reverse_gradient(), **GRADIENT))
    (own,) = check(certificate("reverse"))
    assert set(theorem.hypotheses) == set(own.hypotheses) and theorem.rules == ("equation", "equality")
    assert theorem.statement == own.statement


def test_what_a_citation_brings_in_exists():
    """Both sides of the theorem are new on this side, or one of them."""
    left, right = Em("mu", w), Em("mu", w) + Em("q", k1, 1) - grad(Em("q", k1))
    (theorem,) = check(cites(reverse_gradient(), left=left, right=right))
    (own,) = check(certificate("reverse"))
    new = {("exists", lone(side)) for side in (grad(Em("q", k1)), Em("q", k1), Em("q", k1, 1))}
    assert set(theorem.hypotheses) == set(own.hypotheses) | new
    less = cites(reverse_gradient(), left=left, right=right)
    less["parts"][0]["hypotheses"] = [h for h in less["parts"][0]["hypotheses"] if h[0] != "exists"]
    assert "hypotheses: the proof uses" in refusal(signed(less["parts"], less["cites"]))


NOT_CITED: dict[str, tuple[Any, str]] = {
    "another part": (lambda: cites(reverse_gradient(), **GRADIENT, of=1), "part 1: there are 1"),
    "a negative part": (lambda: cites(reverse_gradient(), **GRADIENT, of=-1), "part -1: there are 1"),
    "a truth value": (lambda: cites(reverse_gradient(), **GRADIENT, of=False), "a text or an integer"),
    "an inequality": (lambda: cites(squares(), left=NOTHING, right=NOTHING), "only equations that are"),
    "a refutation": (
        lambda: cites(one_sample(), left=NOTHING, right=NOTHING), "only equations that are proved"),
    "an undeclared parameter": (
        lambda: cites(forward(), left=NOTHING, right=NOTHING), "it speaks of names or premises not declared"),
    "a premise that is not ours": (
        lambda: cites(PREMISED, left=Em("q", k1), right=Em("q", R)), "names or premises not declared"),
    "a parameter that is a function here": (
        lambda: cites(NAMED, left=V_G, right=NOTHING, functions=(("beta", ("k1",)),)), "not declared"),
    "a function of more": (
        lambda: cites(OF_K1, left=NOTHING, right=NOTHING, functions=(("g", ("k1", "w")),)), "not declared"),
    "a function of other arguments": (
        lambda: cites(OF_K1, left=NOTHING, right=NOTHING, functions=(("g", ("w",)),)), "not declared"),
    "a function that is a parameter here": (
        lambda: cites(OF_K1, left=NOTHING, right=NOTHING, parameters=("g",)), "not declared"),
}  # fmt: skip
PREMISED = Draft(Em("q", k1), Em("q", R), premises=((Em("q", k1), Em("q", R)),)).equation(0)
NAMED = Draft(Mg("q", beta * k1), Em("q", beta, 1), parameters=("beta",)).step("chain rule")
OF_K1 = Draft(Mg("q", g), Em("q", V("g'"), 1), functions=(("g", ("k1",)),)).step("chain rule")
V_G = Mg("q", beta * k1)


@pytest.mark.parametrize("name", NOT_CITED)
def test_what_may_not_be_cited(name):
    build, message = NOT_CITED[name]
    assert message in refusal(build())


@pytest.mark.parametrize(
    ("draft", "context"),
    [
        (PREMISED, {"premises": ((Em("p", w), NOTHING), (Em("q", k1), Em("q", R)))}),
        (NAMED, {"parameters": ("lam", "beta")}),
        (OF_K1, {"functions": (("f", ("k1", "log_q", "w")), ("g", ("k1",)))}),
    ],
)
def test_a_wider_context_may_cite(draft, context):
    left, right = draft.statement.left, draft.statement.right
    (theorem,) = check(cites(draft, left=left, right=right, **context))
    (own,) = check(draft.certificate())
    assert set(theorem.hypotheses) == set(own.hypotheses) | {("exists", lone(right))}


def test_a_citation_is_by_content():
    """An unknown digest, another part of the file, a changed body, a later one, itself."""
    good = cites(reverse_gradient(), **GRADIENT)
    assert check(good)
    assert "no theorem" in refusal({**good, "cites": []})
    changed = [{**good["cites"][0][0], "left": Em("q", k2).to_json()}]
    assert refusal({**good, "cites": [changed]}).startswith("cited 1, part 1")
    spare = [{**good["cites"][0][0]}, {**good["cites"][0][0]}]
    assert "no theorem" in refusal({**good, "cites": [spare]})
    itself = {**good, "cites": [good["parts"]]}
    assert "cited 1, part 1, step 1: of: no theorem" in refusal(itself)
    assert check({**good, "cites": [*good["cites"], *good["cites"]]})


def chain(depth: int) -> dict[str, Any]:
    """A certificate whose theorem cites one that cites one, and so on; each has one parameter more."""
    first = Draft(Mg("q", k2), Em("q", k1, 1)).step("chain rule")
    bodies, known = [[certify(first.part, {})[0]]], {}
    for n in range(depth):
        known[digest(bodies[-1])] = tuple(check_part(part, known, "cited") for part in bodies[-1])
        context = {**first.context.to_json(), "parameters": [f"c{i}" for i in range(n + 1)]}
        taken = step("equation", of=[digest(bodies[-1]), 0], times=constant(1), gradient=0)
        steps = [{**taken, "result": first.part["right"]}]
        bodies.append([certify({**first.part, "context": context, "steps": steps}, known)[0]])
    return signed(bodies[-1], bodies[:-1])


def test_citations_of_citations_come_in_order():
    last = chain(4)
    bodies = last["cites"]
    assert len(bodies) == 4 and check(last)
    assert "cited 1, part 1, step 1: of: no theorem" in refusal({**last, "cites": bodies[::-1]})
    for missing in range(4):
        less = [body for i, body in enumerate(bodies) if i != missing]
        assert "no theorem" in refusal({**last, "cites": less})  # though it has been checked before


def test_a_long_chain_is_no_deep_one(at_most):
    """Nothing is nested: each body stands once."""
    with at_most(10):
        last = chain(60)
        (theorem,) = check(last)
    assert len(last["cites"]) == 60 and theorem.statement.left == Mg("q", k2)


def test_a_theorem_has_no_gradient():
    """It may hold at one theta alone."""
    draft = Draft(
        grad(Mg("q", k2)),
        grad(Em("q", k1, 1)),
        cites=(Draft(Mg("q", k2), Em("q", k1, 1)).step("chain rule"),),
    )
    draft.equation(0, grad(Em("q", k1, 1)), cited=0, gradient=1)
    assert "a theorem may hold at one theta alone: it has no gradient" in refusal(draft.certificate())


@pytest.mark.parametrize("of", [["", 0], ["ab", 0], [None, 0], [0, 0], ["ab"], [], ["ab", 0, 0], [["ab"], 0]])
def test_a_malformed_citation_is_refused(of):
    with pytest.raises(Refused, match="of: "):
        apply_step({"left": NOTHING}, step("equation", of=of, times=[], gradient=0), PLAIN, {})


def test_a_cited_theorem_is_multiplied():
    """lam times, or by a mean, which then exists."""
    left, right = grad(Em("q", k1)).multiply(Em("mu", rho * R)), Em("q", k1, 1).multiply(Em("mu", rho * R))
    draft = Draft(left, right, cites=(reverse_gradient(),), parameters=("lam",))
    draft.equation(0, cited=0, times=Em("mu", rho * R))
    (theorem,) = check(draft.certificate())
    (own,) = check(certificate("reverse"))
    assert set(theorem.hypotheses) - set(own.hypotheses) == {("exists", lone(Em("mu", rho * R)))}
