"""What the kernel prints: theorems that differ differ in print, and nothing that they rest on is left out."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from klsym.errors import Refused
from klsym.kernel import Theorem, check, read, show
from klsym.kernel.definitions import Definition
from klsym.kernel.printer import CONVENTIONS, OF_MEANS, OF_REGIONS, show_element, show_hypothesis, show_side
from klsym.kernel.statements import Context, Curl, Gradient, Mean, MeanGradient, Side, Statement
from support.certificates.faulty_certificates import *
from support.certificates.printer_strategies import CONTEXTS, HYPOTHESIS, THEOREMS, atoms, sides
from support.certificates.region_certificates import clamped_k3_no_ties, icepop, mask_objective
from support.certificates.valid_certificates import PROOFS
from support.faulty.closings import QUADRATIC, apart, sold, solved, witness
from support.faulty.derivations import TABLE
from support.faulty.inequalities import BETA, tangent
from support.scale import scaled

MANY = settings(
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=scaled(40, 15),
    suppress_health_check=list(HealthCheck),
)


def theorem_of(draft: Draft) -> Theorem:
    [theorem] = check(draft.certificate())
    return theorem


def lines(draft: Draft, full: bool = True) -> list[str]:
    return [line.strip() for line in show(theorem_of(draft), full).splitlines()]


# ---------------------------------------------------------------------------- injective
def content(theorem: Theorem) -> Any:
    """What a theorem says; an independence says that its left side is no combination."""
    statement = theorem.statement
    right = (statement.right, statement.relation) if theorem.kind == "proved" else None
    return theorem.kind, statement.left, right, statement.context, theorem.hypotheses, theorem.zeros


@MANY
@given(st.lists(THEOREMS, min_size=2, max_size=12))
def test_theorems_that_differ_differ_in_print(found):
    printed = {content(theorem): show(theorem, full=True) for theorem in found}
    assert len(set(printed.values())) == len(printed)


@MANY
@given(st.lists(CONTEXTS, min_size=2, max_size=30))
def test_contexts_that_differ_differ_in_print(found):
    """In the short form too, but for parameters and functions, which the full form alone lists."""
    theorems = [Theorem("proved", Statement(NOTHING, NOTHING, context), (), (), {}) for context in found]
    assert len({show(theorem, full=True) for theorem in theorems}) == len(set(found))
    short = {(c.premises, c.definitions, c.facts) for c in found}
    assert len({show(theorem) for theorem in theorems}) == len(short)


@MANY
@given(st.lists(sides(), min_size=2, max_size=40))
def test_sides_that_differ_differ_in_print(found):
    assert len({show_side(side) for side in found}) == len(set(found))


@MANY
@given(st.lists(atoms(), min_size=2, max_size=60))
def test_atoms_that_differ_differ_in_print(found):
    assert len({show_side(Side.from_atom(atom)) for atom in found}) == len(
        {Side.from_atom(atom) for atom in found}
    )


@MANY
@given(st.lists(HYPOTHESIS, min_size=2, max_size=40))
def test_hypotheses_that_differ_differ_in_print(found):
    assert len({show_hypothesis(hypothesis) for hypothesis in found}) == len(set(found))


ALIKE = [  # pairs that a careless notation prints alike
    (Em("q", k1), Em("p", k1)),
    (Em("q", k1), point(k1)),
    (Em("q", k1), Em("count", k1)),
    (Em("q", k1), Em("q", sg(k1))),
    (Em("q", k1), Em("q", k1, 1)),
    (Em("q", ONE, 1), Em("q", ONE, 2)),
    (Em("q", k1 + 1, 1), Em("q", k1) + Em("q", ONE, 1)),
    (mean("", "q", ONE, "x", "x"), mean("", "q", ONE, "x", "x'")),
    (mean("t", "q", ONE, "now"), mean("t", "q", ONE, "now'")),
    (Em("q", k1), mean("t", "q", k1)),
    (mean("t", "q", k1), mean("t", "q", V("k1[now]"))),
    (mean("i", "q", V("k1[self]")), mean("ij", "q", V("k1[self]"))),
    (mean("i", "q", V("k1[self]")), mean("i", "sample", V("k1[self]"))),
    (mean("t", "q", V("k1[now]"), "past"), mean("t", "q", V("k1[past]"), "now")),
    (grad(QP), mean_grad("", "q", k1)),
    (curl("", "q", k1), mean_grad("", "q", k1)),
    (mean_grad("", "q", k1), mean_grad("", "sample", k1)),
    (grad(QP + PQ), grad(QP) + PQ),
    (grad(QP * 2), grad(QP) * 3),
    (QP.multiply(PQ), QP + PQ),
    (QP.multiply(QP), Em("q", k1 * k1)),
    (constant(beta), Em("q", beta)),
    (constant(2), Em("q", number(2))),
    (Em("q", (k1 * 2).exp()), Em("q", k1.exp() * 2)),
    (Em("q", (k1 + w).exp()), Em("q", k1.exp() + w)),
    (Em("q", (k1 * k1).exp()), Em("q", k1.exp() ** 2)),
    (Em("q", k1 * Fraction(1, 2)), Em("q", k1 * number(2))),
    (Em("q", f), Em("q", V("f'"))),
    (Em("q", V("sg(f')")), Em("q", V("f'"))),
    (NOTHING, constant(1)),
]


@pytest.mark.parametrize("left, right", ALIKE)
def test_what_looks_alike_differs_in_print(left, right):
    assert left != right and show_side(left) != show_side(right)


@pytest.mark.parametrize(
    "side, shown",
    [
        (NOTHING, "0"),
        (Em("q", k1) + Em("p", -w), "E_p[-w] + E_q[k1]"),
        (QP.multiply(PQ) * beta, "(-beta) * E_p[k1] * E_q[k1]"),
        (constant(beta - 1), "(-1 + beta)"),
        (Em("q", (k1 - w) * 2, 1), "E_q[(2*k1 - 2*w)*s]"),
        (Em("count", (log_q * 2 - 1).exp()) + point(R), "total[exp(-1 + 2*log_q)] + value[R]"),
        (mean("t", "mu", V("sg(k1[now])"), "past", "x"), "E_mu[sum_t sg(k1[now])*s[past]*s]"),
        (mean("t", "q", ONE, "now'", "x"), "E_q[sum_t 1*(v.s[now])*(u.s)]"),
        (mean("it", "q", V("k1[others]") ** 2), "E_q[mean_i sum_t k1[others]^2]"),
        (mean("i", "p", V("f'[self]")), "E_p[mean_i f'[self]]"),
        (mean("ij", "q", V("R[rest]"), "other"), "E_q[mean_ij R[rest]*s[other]]"),
        (curl("", "q", k2), "curl E_q[grad(1/2*k1^2)]"),
    ],
)
def test_a_side_in_print(side, shown):
    assert show_side(side) == shown


def test_nothing_is_0():
    """As a family of functions, and as what a variance is 0 by."""
    assert show_element(ZERO) == "0" and show_element(-ONE) == "-1"


# ---------------------------------------------------------------------------- sentences
SENTENCES = [
    (("support", "p", "q"), "p << q: wherever p > 0, also q > 0"),
    (("support", "count", "q"), "q > 0 at every outcome"),
    (
        ("exchange", Mean("", "q", k1)),
        "grad may be taken inside E_q[k1]: its sum has a dominated derivative near theta",
    ),
    (("exists", Mean("", "mu", k1, ("x", "x"))), "E_mu[k1*s*s] exists"),
    (("exists", Mean("t", "mu", k1, ("now",))), "E_mu[sum_t |k1*s[now]|] is finite"),
    (("exists", MeanGradient("", "q", k1)), "E_q[grad(k1)] exists"),
    (("exists", Gradient(QP)), "grad(E_q[k1]) exists"),
    (("exists", Curl("t", "q", k1)), "curl E_q[sum_t grad(k1)] exists"),
    (
        ("lipschitz", Mean("t", "mu", k1)),
        "grad may be taken inside E_mu[sum_t k1]: near theta its terms are Lipschitz, "
        "with constants that have a sum",
    ),
    (("away", "q", k1 - 1), "no sample from q lies where -1 + k1 = 0"),
    (("away", "count", k1), "no outcome lies where k1 = 0"),
    (("away", "sample", k1), "the sample does not lie where k1 = 0"),
    (("off", "mu", w - 1), "no sample from mu lies where -1 + w = 0 and it moves with theta"),
    (
        ("apart", "mu", w - 1),
        "at every theta' near theta, no sample from mu lies where -1 + w = 0 and it moves with theta",
    ),
    (
        ("apart", "sample", w),
        "at every theta' near theta, the sample does not lie where w = 0 and it moves with theta",
    ),
    (("above", "mu", w - 1), "no sample from mu lies where -1 + w <= 0"),
    (("fact", R - 1), "-1 + R >= 0"),
    (("ends", "p"), "after any prefix, sequences from p end with probability 1"),
    (("batch", "mu"), "a batch holds n independent samples from mu, n a whole number, at least 2"),
    (("nonzero", "beta"), "beta is not 0"),
    (("positive", "beta"), "beta > 0"),
    (("generic", "beta"), "beta takes none of the isolated values at which terms merge or vanish"),
    (("nonnegative", "q", k1 + 1), "1 + k1 >= 0 wherever q > 0"),
    (("nonnegative", "count", k1 + 1), "1 + k1 >= 0 at every outcome"),
    (("equal", QP, PQ), "E_q[k1] = E_p[-k1]"),
    (("premise", QP, PQ), "for every theta, E_q[k1] = E_p[-k1]"),
]


@pytest.mark.parametrize("hypothesis, sentence", SENTENCES)
def test_a_hypothesis_has_its_sentence(hypothesis, sentence):
    assert show_hypothesis(hypothesis) == sentence


def test_every_kind_of_hypothesis_has_a_sentence():
    honest = [
        tangent(NOTHING, Em("q", beta * k3), scale=beta, **BETA),
        apart((beta - 1) * k2, beta * k2, **BETA),
        icepop(),
        mask_objective(),
        clamped_k3_no_ties(),
    ]
    recorded = {hypothesis[0] for draft in honest for hypothesis in theorem_of(draft).hypotheses}
    for bad in TABLE:
        try:
            parts = read(bad.text())["parts"]
            recorded |= {h[0] for part in parts for h in part["hypotheses"] if len(h) > 1}
        except (Refused, TypeError, KeyError):  # mistakes of the file
            continue
    assert recorded == {hypothesis[0] for hypothesis, _ in SENTENCES}


def test_an_unknown_hypothesis_is_not_passed_over():
    with pytest.raises(ValueError, match="unknown hypothesis"):
        show_hypothesis(("plausible", "beta"))


# ---------------------------------------------------------------------------- the whole theorem
def test_the_full_form_holds_all_that_a_theorem_rests_on():
    draft = Draft(
        grad(QP) * beta.invert(), grad(Em("q", f)) * beta.invert(), premises=((QP, Em("q", f)), (PQ, QP)),
        parameters=("beta", "a"), functions=(*ANY_F, *G),
    )  # fmt: skip
    draft.equation(0, times=constant(beta.invert()), gradient=1)
    assert lines(draft) == [
        "(beta^-1) * grad(E_q[k1]) = (beta^-1) * grad(E_q[f])",
        "under the premise E_q[k1] = E_q[f]",
        "under the premise E_p[-k1] = E_q[k1]",
        "for every number beta, a",
        "for every differentiable function f(k1, log_q, w), g(k1)",
        "if beta is not 0",
        "if for every theta, E_q[k1] = E_q[f]",
        *CONVENTIONS,
    ]
    assert lines(draft, full=False) == [
        "(beta^-1) * grad(E_q[k1]) = (beta^-1) * grad(E_q[f])",
        "under the premise E_q[k1] = E_q[f]",
        "under the premise E_p[-k1] = E_q[k1]",
        "if beta is not 0",
        "if for every theta, E_q[k1] = E_q[f]",
    ]


@pytest.mark.parametrize(
    "draft, line",
    [
        (Draft(Em("q", k3), QP).step("ratio mean one", part=r, of="p", slot="x"),
            "E_q[-1 + exp(-k1) + k1] = E_q[k1]"),
        (Draft(constant(beta), constant(1), premises=((constant(beta), constant(1)),), **BETA).equation(0),
            "(beta) = (1)"),
        (Draft(QP, QP), "E_q[k1] = E_q[k1]"),
        (sold(Em("p", r), constant(1), witness("5/4", "1")), "not in general: E_p[exp(-k1)] = (1)"),
        (solved(g1 - k1, QUADRATIC, "ba"),
            "E_q[(g' - k1)*s] = 0 for all q, p, mu if and only if g = a*k1 + b + 1/2*k1^2, for any b, a"),
        (apart(beta * k2, beta * k2 * 1, **BETA),
            "E_q[1/2*beta*k1^2*s] is no combination of grad KL(q||p), grad KL(p||q) and grad E_q[h(R, A)]"),
    ],
)  # fmt: skip
def test_the_short_form_states_the_theorem(draft, line):
    assert lines(draft, full=False)[0] == line


def test_a_refutation_shows_its_model():
    draft = sold(
        Em("p", beta * r), constant(1), witness("5/2", "1", parameters={"beta": "2"}), parameters=("beta",)
    )
    [shown] = [line for line in lines(draft) if line.startswith("in the model")]
    for piece in ('"p": ["1/4", "3/4"]', '"parameters": {"beta": "2"}', '"path": [0]', '"rewards": {"R"'):
        assert piece in shown
    assert shown.endswith("the left side is within ['5/2', '5/2'], the right side within ['1', '1']")

    assert shown.startswith('in the model {"parameters": {"beta": "2"}, "path": [0], "tree": {"mu": ["1/3"')
    assert '"next": [null, null], "p": ' in shown and shown.count("}} the left side is within") == 1


@pytest.mark.parametrize(
    "said",
    ["names exists, over t with the sum of absolute values", "q alone moves with theta; R, A, H and M are",
     "(M need not be 0 or 1)", "s = grad log q", "o = log q/old", "holds sg(..) constant", "density is 0",
     "where q, p, mu and old are positive", "the same one at each sample of a batch", "one i of a batch",
     "each token after any prefix", "the sum of V over the positions in it",
     "sums over its steps, each of the tokens up to it", "of the sequence as a whole"],
)  # fmt: skip
def test_what_every_theorem_presupposes_is_said_once(said):
    assert " ".join(CONVENTIONS).count(said) == 1


def test_a_premise_is_shown_in_the_short_form_too():
    draft = Draft(constant(beta), constant(1), premises=((constant(beta), constant(1)),), **BETA).equation(0)
    shown = "(beta) = (1)"
    assert lines(draft, full=False)[1:] == [f"under the premise {shown}", f"if {shown}"]


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("name", PROOFS)
def test_every_hypothesis_of_a_theorem_is_printed(name, full):
    """One line for each, in the short form too."""
    theorem = theorem_of(PROOFS[name]())
    said = [line for line in show(theorem, full).splitlines() if line.startswith("  if ")]
    assert said == [f"  if {show_hypothesis(hypothesis)}" for hypothesis in theorem.hypotheses]


DEFINING = {
    "parameters": ("beta",), "facts": (1 - V("M"), V("R[now]") - beta), "witness": (),
    "definitions": (Definition("up", "region", k1 - beta), Definition("inv", "log", 1 + V("up"))),
}  # fmt: skip
DEFINED = [
    "where up = 1 if -beta + k1 > 0, else 0",
    "where inv = log(1 + up)",
]  # fmt: skip
GIVEN = [
    "given that 1 - M >= 0 at every sample or step",
    "given that R[now] - beta >= 0 at every sample or step",
]


def test_definitions_and_facts_are_shown_in_both_forms():
    """In the order in which they are declared, since each speaks of those before it."""
    theorem = Theorem("proved", Statement(QP, PQ, Context(**DEFINING)), (), (("away", "q", k1 - beta),), {})
    short = [line.strip() for line in show(theorem).splitlines()]
    away = "if no sample from q lies where -beta + k1 = 0"
    assert short == ["E_q[k1] = E_p[-k1]", *DEFINED, *GIVEN, away]
    assert [line.strip() for line in show(theorem, full=True).splitlines()] == [
        "E_q[k1] = E_p[-k1]",
        *DEFINED,
        *GIVEN,
        "for every number beta",
        away,
        *CONVENTIONS,
        OF_REGIONS,
    ]


def test_what_grad_holds_constant_is_said_where_something_is_defined():
    assert OF_REGIONS not in show(Theorem("proved", Statement(QP, QP), (), (), {}), full=True)
    said = "grad(..) of a loss holds constant what is 1 where something is positive, as autograd does."
    assert said == OF_REGIONS


def test_an_expectation_that_has_a_name_is_shown_and_said_to_move():
    a = V("a")
    names = Context(definitions=(Definition("a", "E_q", k1), Definition("c", "log", 1 - a)))
    lines = show(Theorem("proved", Statement(QP, PQ, names), (), (), {}), full=True).splitlines()
    assert [line.strip() for line in lines[1:3]] == ["where a = E_q[k1]", "where c = log(1 - a)"]
    assert [line.strip() for line in lines[-2:]] == [OF_REGIONS, OF_MEANS]
    without = Statement(QP, PQ, Context(**DEFINING))
    assert OF_MEANS not in show(Theorem("proved", without, (), (), {}), full=True)
    said = "grad(..) moves what is defined as an expectation, the same number at each sample, with theta."
    assert said == OF_MEANS


def test_the_short_form_is_what_is_shown_unless_all_is_asked_for():
    """All but the statement is indented; what is quantified over stands there if there is any."""
    theorem = theorem_of(Draft(QP, QP))
    assert show(theorem) == show(theorem, full=False) == "E_q[k1] = E_q[k1]"
    _, *more = show(theorem, full=True).splitlines()
    assert more == [f"  {line}" for line in CONVENTIONS]
    named = theorem_of(Draft(QP, QP, parameters=("beta",), functions=(("f", ("k1",)),)))
    assert show(named, full=True).splitlines()[1:3] == [
        "  for every number beta",
        "  for every differentiable function f(k1)",
    ]
