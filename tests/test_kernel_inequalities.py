"""Inequalities and evaluations: what the kernel accepts is true in numbers, and it accepts what is."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
from bad_inequalities import contact, var
from drafts import NOTHING, ONE, Em, beta, k1, k2, k3, lam, number, point, r, w
from hypothesis import given
from hypothesis import strategies as st
from test_kernel_refusals import accepts, assumed, values
from test_kernel_rules import CHECK, MEASURE, PLAIN, SCORE, World, elements, same, sides

from klsym.errors import NotInRing, Refused
from klsym.kernel.evaluation import evaluated
from klsym.kernel.inequalities import SAMPLE
from klsym.normal_form import ExpPoly
from klsym.statements import Context, Divergence, E, Point, Side, Statement


def assert_at_most(left: Side, right: Side, found: set[Any]) -> None:
    """left <= right in worlds whose beta is any value that the hypotheses allow."""
    allowed = [0.7] if ("positive", "beta") in found else [0.7, -1.3]
    for seed in range(4):
        for beta_is in allowed:
            world = World(seed)
            world.parameters["beta"] = beta_is
            draw_into_the_region(world, found)
            x, y = values(left, right, world)
            assert x <= y + 1e-9 * (1 + abs(x) + abs(y)), beta_is


def draw_into_the_region(world: World, found: set[Any]) -> None:
    """p and mu move towards q until what is assumed to be nonnegative is so at every outcome."""
    q = np.exp(world.theta) / np.exp(world.theta).sum()
    regions = [h[2] for h in found if h[0] == "nonnegative"]
    while any(np.min(world.value(region, world.theta)) < 0 for region in regions):
        world.p, world.mu = 0.9 * world.p + 0.1 * q, 0.9 * world.mu + 0.1 * q


ERRORS = st.sampled_from([NOTHING, NOTHING, Em("q", k1), Em("p", r), Em("q", r) - Side.constant(1)])
POSITIVE = [
    number(1),
    number(2),
    number(3),
    number(Fraction(1, 2)),
    beta,
    beta**2,
    beta.inverse(),
    beta.exp(),
]
SCALES = st.sampled_from([*POSITIVE, *POSITIVE, number(0), -ONE, -beta, beta - 1, k1])
REGIONS = [2 * k1 + 1, 1 - w, 2 - r, 1 + k1 - w, k1, r - 3, k1 + beta, -ONE]  # the last four are refused
PLACES = st.one_of(MEASURE, st.just(SAMPLE))


def placed(at: str, element: ExpPoly, score: tuple[str, ...] = ()) -> Side:
    return Side.atom(Point(element, score) if at == SAMPLE else E(at, element, score))


def claims_an_inequality(by: str, total: Side, rows: list[Any], data: Any) -> bool:
    """Is left <= left + total + error accepted?  Then it is true; and never as an equation."""
    left, error = Em("q", data.draw(elements())), data.draw(ERRORS)
    right = left + total + error
    close = {"by": by, "premises": [], "terms": [{k: json_of(v) for k, v in row.items()} for row in rows]}
    found = assumed(by, left, right, close, Statement(left, right, PLAIN, "<="))
    if found is not None:
        assert_at_most(left, right, found)
    assert not accepts(by, left, right, close, Statement(left, right, PLAIN, "="))
    return found is not None


def json_of(value: Any) -> Any:
    return value.to_json() if isinstance(value, ExpPoly) else value


def counted(run: Any, least: int = 10) -> None:
    """Draw many; both answers must occur."""
    counts: Counter[bool] = Counter()

    @CHECK
    @given(st.data())
    def draw(data: Any) -> None:
        counts[run(data)] += 1

    draw()
    assert min(counts[True], counts[False]) >= least, counts


def test_what_tangent_accepts_is_an_inequality():
    def run(data: Any) -> bool:
        total, rows = NOTHING, []
        for _ in range(data.draw(st.integers(1, 2))):
            scale, at = data.draw(SCALES), data.draw(PLACES)
            u, v = (data.draw(st.sampled_from([k1, -k1, w * 2, k2, beta * w])) for _ in range(2))
            total = total + placed(at, v.exp() * (u.exp() - 1 - u) * scale)
            rows.append({"scale": scale, "at": at, "u": u, "v": v})
        return claims_an_inequality("tangent", total, rows, data)

    counted(run)


def test_what_is_a_sum_of_squares_is_an_inequality():
    def run(data: Any) -> bool:
        total, rows = NOTHING, []
        for _ in range(data.draw(st.integers(1, 2))):
            scale, at, score = data.draw(SCALES), data.draw(PLACES), data.draw(SCORE)
            b, v = data.draw(elements()), data.draw(st.sampled_from([number(0), k1, w * 2]))
            factor = data.draw(st.sampled_from([ONE, ONE, beta - 1, beta.inverse(), k1]))
            other = data.draw(st.sampled_from([score + score] * 4 + [score]))
            region = data.draw(st.sampled_from([ONE] * 4 + REGIONS))
            total = total + placed(at, scale * factor**2 * v.exp() * b**2 * region, other)
            rows.append({"scale": scale, "factor": factor, "at": at, "v": v, "b": b, "score": list(score)})
            if region != ONE:
                rows[-1]["nonnegative"] = region
        return claims_an_inequality("sum of squares", total, rows, data)

    counted(run)


@CHECK
@given(
    elements(), MEASURE, SCORE, SCORE, st.sampled_from([NOTHING, NOTHING, Em("q", k1), Em("p", r)]), SCALES
)
def test_what_square_accepts_is_an_inequality(element, measure, score, other, error, scale):
    mean = Side.atom(E(measure, element, score))
    left, right = mean.times(mean), Side.atom(E(measure, element * element, score + other)) + error
    if scale != k1:
        left, right = left * scale, right * scale
    data = {"b": element.to_json(), "measure": measure, "score": list(score), "scale": scale.to_json()}
    found = assumed("square", left, right, data | {"premises": []}, Statement(left, right, PLAIN, "<="))
    fits = (other == score or not element) and not error.terms
    assert (found is not None) == (measure != "count" and fits and scale in POSITIVE)
    if found is not None:
        assert_at_most(left, right, found)


def test_a_side_is_worth_what_it_is_worth():
    """Named values, means of constants and of ratios put in, products multiplied out; the rest stays."""

    def run(data: Any) -> bool:
        context = Context(("beta", "nu"), PLAIN.functions, data.draw(st.booleans()))
        side = data.draw(sides())
        if data.draw(st.booleans()):
            side = side.times(Em(data.draw(MEASURE), data.draw(elements()) + r + beta))
        try:
            worth, _ = evaluated(side, context)
        except (Refused, NotInRing):
            return False
        for seed in range(3):
            world = World(seed, context)
            assert same(*values(side, worth, world))
        return worth != side

    counted(run)


def test_means_are_recognised():
    """What is worth the same is accepted, under its hypotheses; what is not is refused."""
    chi2, J = (Side.atom(Divergence(kind, "p", "q")) for kind in ("chi2", "J"))
    K_BETA = k1 + beta * (r - 1)
    SUPPORTS = {("support", "p", "q"), ("support", "q", "p")}
    for left, right, found in (
        (Em("q", r), Side.constant(1), {("support", "p", "q")}),
        (Em("mu", w.exp() * 2 + beta), Side.constant(beta + 2), {("support", "q", "mu")}),
        (chi2 + Side.constant(1), Em("q", r * r), {("support", "p", "q")}),
        (Em("p", ONE).times(Em("q", k1)), Em("q", k1), set()),
        (
            Em("q", beta * k1 + r).times(Em("p", k2)),
            (Em("q", k1).times(Em("q", r * k2))) * beta + Em("q", r * k2),
            {("support", "p", "q"), ("moment", E("q", k1))},
        ),
        (
            chi2.times(var(K_BETA)),
            chi2.times(var(k1)) - J.times(J) + (chi2 * beta - J).times(chi2 * beta - J),
            SUPPORTS | {("moment", E("q", of)) for of in (k1, r * r, r * k1, k1 * k1, K_BETA)},
        ),
        (Em("q", k1 * r), Em("q", k1).times(Em("q", r)), None),
        (Em("count", ONE), Side.constant(1), None),
        (Em("q", r * r), Side.constant(1), None),
        (Em("p", r), Side.constant(1), None),
        (Em("q", r, 1), Side.constant(1), None),
    ):
        statement = Statement(left, right, PLAIN)
        assert assumed("evaluation", left, right, {"premises": []}, statement) == found


# ---------------------------------------------------------------------------- contact
BENDS = [k3, k1 * k1, k1.exp() - 1 - k1, (k1 * 2).exp() - 1 - k1 * 2]  # positive sums for contact, and rows
BEND_ROWS = [{"u": -k1}, {"b": k1}, {"u": k1}, {"u": k1 * 2}]
SLOPES = [
    k1,
    r - 1,
    k1 + k1 * k1,
    (k1 * beta).exp() - 1,
    k1 * beta,
    k1 * k1,
    r,
    k1 * beta.exp(),
    k1 * (beta - 1),
]
VALUES_OF_LAM = [number(1), number(0), number(-2), beta, beta.inverse(), beta.exp(), beta - 1]


def scalar(element: ExpPoly, at: dict[str, Any]) -> Any:
    """An element in numbers; a name that has none is an error."""

    def product(powers: Any) -> Any:
        total = np.ones_like(at["k1"])
        for name, power in powers:
            total = total * np.asarray(at[name], float) ** power
        return total

    total = 0 * product(())
    for (powers, exponent), c in element.terms.items():
        total = total + float(c) * product(powers) * np.exp(sum(float(v) * product(m) for m, v in exponent))
    return total


NEAR = np.array([sign * 10.0**-n for n in range(6) for sign in (1, -1)] + [0.0, 2.0, -2.0, 4.0, -4.0])


def negative_somewhere(c: ExpPoly, lam_is: float, beta_is: float) -> bool:
    return bool(np.min(scalar(c, {"k1": NEAR, "lam": lam_is, "beta": beta_is})) < -1e-13)


def test_contact_is_for_one_value_only():
    def run(data: Any) -> bool:
        value, slope = data.draw(st.sampled_from(VALUES_OF_LAM)), data.draw(st.sampled_from(SLOPES))
        index = data.draw(st.integers(0, len(BENDS) - 1))
        error = data.draw(st.sampled_from([number(0)] * 5 + [k1, ONE, lam * k1, -k1 * k1]))
        scale = data.draw(st.sampled_from([ONE, ONE, beta, beta.inverse(), -ONE, beta**2]))
        power = data.draw(st.sampled_from([1, 1, 1, 2, 3]))
        c = BENDS[index] * scale + (lam - value) ** power * slope + error
        draft = contact(c, value, {**BEND_ROWS[index], "scale": scale})
        statement = Statement(NOTHING, point(c), draft.context, "<=")
        found = assumed("contact", NOTHING, statement.right, draft.part["close"], statement)
        if found is None:
            return False
        zero = ("nonzero", "beta") in found or ("positive", "beta") in found or "beta" in c.inverted()
        negative = [] if ("positive", "beta") in found else [-0.6]
        for beta_is in [0.8, 1.0, *negative, *([] if zero else [0.0])]:
            exact = float(scalar(value, {"k1": 0.0, "beta": beta_is}))
            assert not negative_somewhere(c, exact, beta_is)
            assert all(
                negative_somewhere(c, exact + step, beta_is) for step in (0.1, -0.1, 0.01, -0.01, 1, -1)
            )
        return True

    counted(run)
