"""Random theorems, contexts, sides and hypotheses that are often alike, for the printer."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from hypothesis import strategies as st

from klsym.kernel import Theorem
from klsym.kernel.closings import Zero
from klsym.kernel.definitions import Definition
from klsym.kernel.statements import Context, Curl, Gradient, Mean, MeanGradient, Side, Statement
from support.certificates.faulty_certificates import *

NAMES = st.sampled_from(["k1", "w", "sg(k1)", "R", "sg(R)", "beta", "b_star", "f", "f'", "sg(f')", "length"])
SLOTTED = st.sampled_from(["k1[now]", "sg(k1[now])", "k1[past]", "k1", "f'[future]", "beta", "A[now]"])
NUMBERS = st.sampled_from([Fraction(n) for n in (1, -1, 2, 12)] + [Fraction(1, 2), Fraction(-2, 3)])


@st.composite
def elements(draw: Any, names: Any = NAMES) -> Any:
    """Sums of few terms of few names, so that two of them are often alike."""
    total = number(0)
    for _ in range(draw(st.integers(1, 2))):
        term = number(draw(NUMBERS))
        for _ in range(draw(st.integers(0, 2))):
            term = term * V(draw(names)) ** draw(st.integers(1, 2))
        if draw(st.integers(0, 3)) == 0:
            term = term * (V(draw(names)) * draw(NUMBERS)).exp()
        total = total + term
    return total


MEASURE = st.sampled_from(["q", "p", "mu", "sample", "count"])


@st.composite
def atoms(draw: Any, depth: int = 1) -> Any:
    index = draw(st.sampled_from(["", "", "t"]))
    measure = draw(MEASURE) if not index else draw(st.sampled_from(["q", "sample"]))
    of = draw(elements(SLOTTED if index else NAMES))
    entries = ["x", "x'"] if not index else ["x", "now", "past", "now'"]
    score = tuple(sorted(draw(st.lists(st.sampled_from(entries), max_size=2))))
    kind = draw(st.sampled_from([Mean, Mean, MeanGradient, Curl, Gradient]))
    if kind is Mean:
        return Mean(index, measure, of, score)
    if kind is Gradient:
        return Gradient(draw(sides(depth - 1)) if depth else Side.from_atom(Mean(index, measure, of)))
    return kind(index, measure, of)


@st.composite
def sides(draw: Any, depth: int = 1) -> Side:
    total = NOTHING
    for _ in range(draw(st.integers(0, 2))):
        of = tuple(draw(st.lists(atoms(depth), max_size=2)))
        total = total + Side.combine((draw(elements(st.just("beta"))), of))
    return total


def named(*names: str) -> Any:
    """Elements in some names, and in one of them at least."""
    return elements(st.sampled_from(names)).filter(lambda element: element.names())


FACT = named("R", "M", "length", "beta")  # in none of the names of a region of an inequality
HYPOTHESIS = st.one_of(
    st.tuples(st.just("support"), st.sampled_from(["q", "p", "count"]), st.sampled_from(["q", "mu"])),
    st.tuples(
        st.sampled_from(["exchange", "lipschitz"]),
        st.builds(Mean, st.just(""), MEASURE, elements(), st.just(())),
    ),
    st.tuples(st.sampled_from(["away", "off", "apart", "above"]), MEASURE, elements()),
    st.tuples(st.just("fact"), FACT),
    st.tuples(st.just("exists"), atoms()),
    st.tuples(st.sampled_from(["ends", "batch"]), st.sampled_from(["q", "p"])),
    st.tuples(st.sampled_from(["nonzero", "positive", "generic"]), st.sampled_from(["beta", "b_star"])),
    st.tuples(st.just("nonnegative"), MEASURE, named("k1", "w")),
    st.tuples(st.sampled_from(["equal", "premise"]), sides(), sides()),
)
ZEROS = st.builds(
    Zero, st.sampled_from(["", "t"]), MEASURE, elements(st.just("w")), elements(),
    st.sampled_from([(), ("x",)]),
    st.sampled_from([beta, beta - 1, beta**2]), st.booleans(),
)  # fmt: skip
DEFINITION = st.builds(
    Definition, st.sampled_from(["up", "inv"]), st.sampled_from(["region", "log", "let"]), elements()
)
CONTEXTS = st.builds(
    Context,
    st.sampled_from([(), ("beta",), ("beta", "b_star")]),
    st.sampled_from([(), (("f", ()),), (("f", ("k1",)),), (("f", ("k1", "w")),), (("f", ()), ("g", ("w",)))]),
    st.lists(st.tuples(sides(), sides()), max_size=1).map(tuple),
    st.lists(DEFINITION, max_size=2).map(tuple),
    st.lists(FACT, max_size=2).map(tuple),
)
THEOREMS = st.builds(
    Theorem, st.sampled_from(["proved", "proved", "independent"]),
    st.builds(Statement, sides(), sides(), CONTEXTS, st.sampled_from(["=", "<="])), st.just(()),
    st.lists(HYPOTHESIS, max_size=2, unique=True).map(tuple), st.just({}),
    st.lists(ZEROS, max_size=1).map(tuple),
)  # fmt: skip
