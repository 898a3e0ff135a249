"""The limits of finite models, one at a time; what they are worth is tested in test_kernel_trees."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pytest

from klsym.errors import Refused
from klsym.kernel import certify
from klsym.kernel.definitions import LET, Definition
from klsym.kernel.intervals import LARGEST_EXPONENT, Interval
from klsym.kernel.models import Model, Position, enclose, enclose_coefficient
from klsym.kernel.names import REWARDS
from klsym.kernel.ring import ExpPoly, set_budget
from klsym.kernel.statements import Context, Mean
from support.certificates.faulty_certificates import (
    NOTHING,
    Draft,
    Em,
    R,
    V,
    beta,
    constant,
    f,
    k1,
    k2,
    lam,
    w,
)
from support.certificates.small_trees import HALF, chain, close, node


def read(tree: Any, **parameters: str) -> Model:
    data = {"tree": tree, "path": [0], "parameters": parameters}
    return Model.from_json(data, Context(("beta", "n", "lam")))


ONE_TOKEN = node([None, None], q=["2/3", "1/3"], p=HALF, mu=["1/3", "2/3"])


def test_the_work_of_a_tree_is_bounded():
    """Ten sequences of 100 tokens are 100,000 units of work, one of a single token is one too many."""
    ten = node([None] * 10)
    full = chain(99, ten)
    model = Model.from_json({"tree": full, "path": [], "parameters": {}}, Context())
    assert len(model.sequences) == 10 and {len(path) for path in model.sequences} == {100}
    with pytest.raises(Refused, match="too long ones"):
        Model.from_json({"tree": node([None, chain(98, ten)]), "path": [], "parameters": {}}, Context())
    with pytest.raises(Refused, match="2000 sequences"):
        Model.from_json({"tree": node([None] * 2001), "path": [], "parameters": {}}, Context())


def test_each_term_is_paid_for():
    at = Position((), 0, {"beta": Fraction(2)})
    with set_budget(20), pytest.raises(Refused, match="budget"):
        enclose_coefficient(beta, at)
    with set_budget(30):
        assert enclose_coefficient(beta, at) == Interval.from_number(2)


def test_a_third_policy_has_a_row_of_its_own():
    """E_q[q/old] = (2/3)(4/3) + (1/3)(2/3); without the row there is no such ratio."""
    mean = Mean("", "q", V("o").exp())
    with_old = node([None, None], q=["2/3", "1/3"], old=HALF)
    assert read(with_old).enclose_mean(mean) == Interval.from_number(Fraction(10, 9))
    with pytest.raises(Refused, match="no row old, which o needs"):
        read(ONE_TOKEN).enclose_mean(mean)
    for row in (["1", "0"], ["1/2", "1/3"], ["3/2", "-1/2"]):
        with pytest.raises(Refused, match="old is no full-support distribution"):
            read(node([None, None], old=row))
    with pytest.raises(Refused, match="a node has the keys"):
        read(node([None, None], new=HALF))


def test_a_node_may_pay_every_reward():
    paid = {name: ["2", "4"] for name in REWARDS}
    model = read(node([None, None], rewards=paid))
    for name in paid:
        assert model.enclose_mean(Mean("", "q", V(name))) == Interval.from_number(3)
    with pytest.raises(Refused, match="rewards:"):
        read(node([None, None], rewards=paid | {"B": ["1", "1"]}))


def test_what_follows_is_a_list():
    with pytest.raises(Refused, match="next: a list expected"):
        read(node([None, None], next={"a": None, "b": None}))


def test_where_theta_moves_an_element():
    """Of two tokens the first is paid 3; k1 is 0 throughout.  At the last token k1[future] does not move."""
    tree = chain(1, node([None])) | {"rewards": {"R": ["3"]}}
    model = Model.from_json({"tree": tree, "path": [], "parameters": {}}, Context())
    later, before, paid = V("k1[future]"), V("k1[past]"), V("R[past]")
    for element, moving, everywhere in (
        (later, [0], [0, 0]), (later + paid, [0], [0, 3]), (later + before, [0, 0], [0, 0]),
        (before + paid, [3], [0, 3]), (paid, [], [0, 3]),
    ):  # fmt: skip
        assert [*model.enclose_values(element, moving=True)] == [*map(Interval.from_number, moving)], element
        assert [*model.enclose_values(element)] == [*map(Interval.from_number, everywhere)], element


def test_a_product_of_abbreviations():
    """c = 2 k1 and d = 3 k1: c**2 d = 12 k1**3 at k1 = log 4/3."""
    context = Context(definitions=(Definition("c", LET, k1 * 2), Definition("d", LET, k1 * 3)))
    found = enclose_coefficient(V("c") * V("c") * V("d"), Position(read(ONE_TOKEN).sample, 0, {}, context))
    assert close(found, 12 * math.log(4 / 3) ** 3)


def test_a_batch_has_two_samples_or_more():
    assert read(ONE_TOKEN).parameters == {} and read(ONE_TOKEN, n="2").parameters == {"n": 2}
    for size in ("1", "0", "-3", "5/2"):
        with pytest.raises(Refused, match="a batch of size"):
            read(ONE_TOKEN, n=size)


def test_a_node_needs_tokens():
    with pytest.raises(Refused, match="no full-support distribution"):
        read(node([]))


def at(model: Model) -> Position:
    return Position(model.sample, 0, model.parameters)


def test_exponents():
    """k1 = log 4/3 and w = log 2 at the first token; parameters scale and powers bend an exponent."""
    model = read(ONE_TOKEN, beta="3/2", lam="2")
    first, second = math.log(4 / 3), math.log(2)
    cases = {
        k1.exp(): 4 / 3,
        (k1 * lam).exp(): (4 / 3) ** 2,
        (k2 * 2).exp(): math.exp(first**2),
        (k1 * beta + w * beta).exp(): math.exp(1.5 * (first + second)),
        (k1 * beta - w * lam).exp() * k1: math.exp(1.5 * first - 2 * second) * first,
        (k1 * Fraction(1, 2)).exp(): math.sqrt(4 / 3),
        (k1 * w + k1).exp(): math.exp(first * second + first),
    }
    for element, value in cases.items():
        assert close(enclose_coefficient(element, at(model)), value), element
    assert enclose_coefficient((k1 * 3 - w).exp(), at(model)) == Interval.from_number(Fraction(32, 27))


def test_the_largest_exponent():
    model = read(node([None, None], q=HALF, p=["1/3", "2/3"], mu=HALF))
    for sign in (1, -1):
        found = enclose_coefficient((k1 * sign * LARGEST_EXPONENT).exp(), at(model))
        assert found == Interval.from_number(Fraction(3, 2) ** (sign * LARGEST_EXPONENT))
        with pytest.raises(Refused, match="a power beyond"):
            enclose_coefficient((k1 * sign * (LARGEST_EXPONENT + 1)).exp(), at(model))


def test_what_has_no_value():
    model = read(ONE_TOKEN)
    for element in (k1, R, f, ExpPoly.from_variable("length")):
        with pytest.raises(Refused, match="outside of a mean"):
            enclose_coefficient(element, Position((), 0, model.parameters))
    for element in (R, f, ExpPoly.from_variable("f'"), ExpPoly.from_variable("A")):
        with pytest.raises(Refused, match="no value for"):
            enclose_coefficient(element, at(model))
    with pytest.raises(Refused, match="R has no such slot"):  # a model of one sample has no others
        enclose_coefficient(ExpPoly.from_variable("R[others]"), at(model))


def test_enclosing_costs():
    """Each term of a coefficient is charged at each token, beside all arithmetic with its numbers."""
    model, side = read(ONE_TOKEN), Em("q", sum((k1**i * (i + 1) for i in range(1, 12)), k1 * 0))
    with set_budget(2800), pytest.raises(Refused, match="budget"):
        enclose(side, model)
    with set_budget(2900):
        enclose(side, model)


def refuted(value: str | None) -> Draft:
    """E_p[k1] E_q[w], divided by beta and multiplied again, is not 0 in a model with this beta."""
    draft = Draft(Em("p", k1).multiply(Em("q", w)), NOTHING, parameters=("beta",))
    draft.step("linearity", constant=beta).step("linearity", constant=beta.invert())
    model = {"tree": ONE_TOKEN, "path": [], "parameters": {} if value is None else {"beta": value}}
    found = enclose(draft.sides["left"], read(ONE_TOKEN))
    ends = [str(found.lower), str(found.upper)]
    return draft.close("finite model", model=model, left=ends, right=["0", "0"])


@pytest.mark.parametrize("value", ["1", "-1", "1/2", "-3"])
def test_a_model_in_which_divisors_are_not_zero(value):

    assert certify(refuted(value).part, {})[1].kind == "refuted"


@pytest.mark.parametrize("value", [None, "0"])
def test_a_model_in_which_a_step_divides_by_zero_refutes_nothing(value):

    with pytest.raises(Refused, match="the model has beta = 0"):
        certify(refuted(value).part, {})


def test_a_constant_needs_no_sample():
    assert enclose(constant(3), read(ONE_TOKEN)) == Interval.from_number(3)
