"""Random atoms at an index, and rule data that a rule may well accept."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from hypothesis import strategies as st

from klsym.kernel.ring import ZERO, ExpPoly
from klsym.kernel.slots import PARTS, SINGLE, SLOTS, find_slot, name_in_slot
from klsym.kernel.statements import Context, Curl, Gradient, Mean, MeanGradient, Side
from support.certificates.faulty_certificates import ONE, V, beta, k1, number, plain, r, rho, w
from support.certificates.region_words import DEFINED, KNOWN, bound, cell
from support.certificates.slot_helpers import n

FUNCTIONS = (("f", ("k1", "log_q", "w")), ("g", ("k1",)))
PLAIN = Context(parameters=("beta", "nu", "n"), functions=FUNCTIONS, **KNOWN)
SUMS = ("k1", "w", "log_q", "R", "H", "length")
BASES = (*SUMS, "A", "f", "g", "f'", "sg(k1)", "sg(w)", "sg(R)", "sg(f)")
OF_ONE = ("up", "pos", "high", "inv", "share", "sg(inv)", "sg(up)")
OF_MEANS = ("mass", "theirs", "cost", "spare", "sg(mass)")  # the same at each position
SMALL = st.sampled_from([-2, -1, 1, 2, Fraction(1, 2), Fraction(-3, 2)])
PROBABILITY = st.sampled_from(["q", "q", "p", "mu"])
INDEX = st.sampled_from(["t", "t", "i", "ij", "it", ""])
# what does not depend on a slot, as the tests know it: what comes before, and other samples
BEFORE = {
    ("", "x"): (),
    ("t", "now"): ("past",), ("t", "future"): ("past", "now"),
    ("i", "self"): ("others",), ("i", "others"): ("self",),
    ("ij", "self"): ("other", "rest"), ("ij", "other"): ("self", "rest"), ("ij", "rest"): ("self", "other"),
    ("it", "now"): ("past", "others"), ("it", "future"): ("past", "now", "others"),
    ("it", "others"): ("past", "now", "future", "x"),
}  # fmt: skip


def in_slots(slots: Any, bases: Any = (*BASES, *OF_ONE)) -> list[str]:
    """Names of variables in slots; what is defined stands at one position."""
    names = [name_in_slot(base, z) for z in slots for base in bases if base not in OF_ONE or z in SINGLE]
    return [*names, *(OF_MEANS if set(OF_ONE) <= set(bases) else ())]


@st.composite
def elements(draw: Any, names: Any, largest: int = 2) -> ExpPoly:
    """A sum of products of powers of names and exp of small multiples of them."""
    total = ZERO
    for _ in range(draw(st.integers(1, largest))):
        term = number(draw(SMALL))
        for name in draw(st.lists(st.sampled_from(names), max_size=2)) if names else ():
            term = term * V(name)
        for name in draw(st.lists(st.sampled_from(names), max_size=1)) if names else ():
            term = term * (V(name) * draw(SMALL) * Fraction(1, 2)).exp()
        if draw(st.integers(0, 3)) == 0:
            term = term * draw(st.sampled_from([beta, beta.invert(), n, V("nu")]))
        if "length" in names and draw(st.integers(0, 3)) == 0:
            term = term * V("length").invert()
        total = total + term
    return total


def scores(index: str, most: int = 2, second: bool = False) -> Any:
    slots = [*SLOTS[index], *(slot + "'" for slot in SLOTS[index] if second)]
    return st.lists(st.sampled_from(slots), max_size=most).map(lambda found: tuple(sorted(found)))


def some_scores(slots: Any) -> Any:
    """At most one score function of some slots, along either direction."""
    found = [*slots, *(slot + "'" for slot in slots)]
    return st.lists(st.sampled_from(found), max_size=1) if found else st.just([])


CONSTANTS = elements(["beta", "nu", "n"], 2)


def of_one(factor: ExpPoly, slot: str) -> ExpPoly:
    return factor.rename(lambda name: name_in_slot(name, slot))


@st.composite
def atoms(draw: Any) -> Any:
    """Any atom, at any index."""
    index = draw(INDEX)
    names = in_slots(SLOTS[index])
    under = st.one_of(PROBABILITY, st.just("sample"), *([] if index else [st.just("count")]))
    match draw(st.sampled_from(["mean", "mean", "mean", "loss", "gradient", "curl"])):
        case "mean":
            return Mean(index, draw(under), draw(elements(names)), draw(scores(index, 2, True)))
        case "loss":
            return MeanGradient(index, draw(under), draw(elements(names)))
        case "curl":
            return draw(likely("curl")).atom
    inner = st.builds(Mean, st.just(index), under, elements(names))
    return Gradient(Side.combine(*((draw(SMALL), (draw(inner),)) for _ in range(draw(st.integers(1, 2))))))


class Case:
    """An atom and the data of a rule."""

    def __init__(self, atom: Any, **data: Any) -> None:
        self.atom, self.data = atom, plain(data)

    def __repr__(self) -> str:
        return f"Case({self.atom}, {self.data})"


@st.composite
def likely(draw: Any, rule: str) -> Case:
    """An atom of the kind that a rule works on, with data that suit it: some of them only nearly."""
    return draw(MAKERS[rule](draw(INDEX), draw(PROBABILITY)))


@st.composite
def _summed(draw: Any, index: str, m: str) -> Case:
    base = draw(st.sampled_from([*SUMS, "s"]))
    a = draw(elements(in_slots(["x"])))
    score = ("x",) * draw(st.integers(0, 2) if base != "s" else st.integers(0, 3).map(lambda k: k and 1))
    a = a * V(base) if base != "s" else a
    extra = draw(elements(in_slots(["x"]), 1))
    match draw(st.sampled_from(["whole", "whole", "part", "point", "more", "of A"])):
        case "part":
            return Case(Mean("", m, a + extra, score), of=base, part=a)
        case "point":
            return Case(Mean("", "sample", a, score), of=base)
        case "more":
            return Case(Mean("", m, a + extra, score), of=base)
        case "of A":
            return Case(Mean("", m, a * V("A"), score), of="A")
    return Case(Mean("", m, a, score), of=base)


@st.composite
def _in_parts(draw: Any, index: str, m: str) -> Case:
    index, m = draw(st.sampled_from(["t", "t", "it", "i"])), draw(st.sampled_from([m, "sample"]))
    whole = [V(base) for base in draw(st.lists(st.sampled_from(SUMS), max_size=2))]
    a = draw(elements(in_slots(PARTS[index] if index == "i" else ("x", "now"))))
    for factor in whole if index != "i" else ():
        a = a * draw(st.sampled_from([factor, (factor * Fraction(1, 2)).exp()]))
    of = draw(st.lists(st.sampled_from([*SUMS, "s", "s", "k1"]), unique=True, max_size=3))
    of = draw(st.sampled_from([of, of, of, [*of, "A"], [*of, "f"]]))
    score = draw(st.lists(st.sampled_from(SLOTS[index][-1:] + SLOTS[index]), max_size=2))
    extra = draw(elements(in_slots(SLOTS[index]), 1))
    part = {"part": a} if draw(st.integers(0, 3)) == 0 else {}
    return Case(Mean(index, m, a + extra if part else a, tuple(sorted(score))), of=of, **part)


@st.composite
def _swapped(draw: Any, index: str, m: str) -> Case:
    index, m = draw(st.sampled_from(["t", "it"])), draw(st.sampled_from([m, "sample"]))
    fixed = [slot for slot in SLOTS[index] if slot not in PARTS["t"]]
    x, y = (draw(st.sampled_from([*SUMS, "f", "f'", "g'", "s", "s"])) for _ in range(2))
    slot = draw(st.sampled_from(["past", "future"]))
    nearly = draw(st.integers(0, 3)) == 0
    names = in_slots(SLOTS[index] if nearly else fixed)
    a, score = draw(elements(names)), draw(st.lists(st.sampled_from(fixed), max_size=1))
    for name, where in ((x, "now"), (y, slot)):
        score = [*score, where] if name == "s" else score
        a = a * V(name_in_slot(name, where)) if name != "s" and (name, where) != ("length", "now") else a
    extra = draw(elements(in_slots(SLOTS[index]), 1))
    part = {"part": a} if draw(st.integers(0, 3)) == 0 else {}
    atom = Mean(index, m, a + extra if part else a, tuple(sorted(score)))
    return Case(atom, now=x, other=y, slot=draw(st.sampled_from([slot] * 5 + ["now"])), **part)


@st.composite
def _mean_zero(draw: Any, index: str, m: str) -> Case:
    slot = draw(st.sampled_from([z for i, z in BEFORE if i == index]))
    known = BEFORE[index, slot] if draw(st.integers(0, 2)) else SLOTS[index]
    a = draw(elements(in_slots(known)))
    beside = draw(some_scores(known))
    score = tuple(sorted([slot, *beside]))
    m = draw(st.sampled_from(["q", "q", "q", m]))
    slot = draw(st.sampled_from([slot] * 6 + ["past", "x", "now", "self"]))
    if draw(st.integers(0, 3)) == 0:
        more = a + draw(elements(in_slots(SLOTS[index]), 1))
        return Case(Mean(index, m, more, score), slot=slot, part=a)
    return Case(Mean(index, m, a, score), slot=slot)


RATIO = {  # log of over/under
    ("q", "q"): ZERO, ("p", "q"): -k1, ("mu", "q"): -w, ("q", "p"): k1, ("q", "mu"): w,
    ("p", "mu"): w - k1, ("mu", "p"): k1 - w, ("p", "p"): ZERO, ("mu", "mu"): ZERO,
}  # fmt: skip


@st.composite
def _mean_one(draw: Any, index: str, m: str) -> Case:
    slot = draw(st.sampled_from([z for i, z in BEFORE if i == index]))
    known = BEFORE[index, slot] if draw(st.integers(0, 2)) else SLOTS[index]
    over, of = draw(PROBABILITY), draw(st.sampled_from(["q", "p", "mu", "mu", "mu", "count"]))
    over = draw(st.sampled_from([of, of, of, over])) if of != "count" else over
    a = draw(elements(in_slots(known))) * of_one(RATIO[over, m].exp(), slot)
    score = draw(some_scores(known))
    slot = draw(st.sampled_from([slot] * 6 + ["past", "x"]))
    if draw(st.integers(0, 3)) == 0:
        more = a + draw(elements(in_slots(SLOTS[index]), 1))
        return Case(Mean(index, m, more, tuple(score)), slot=slot, part=a, of=of)
    return Case(Mean(index, m, a, tuple(score)), slot=slot, of=of)


@st.composite
def _moved(draw: Any, index: str, m: str) -> Case:
    a = draw(elements(in_slots(SLOTS[index])))
    for slot in draw(st.lists(st.sampled_from(PARTS[index]), max_size=3)):
        a = a * of_one(draw(st.sampled_from([r, rho, (-w).exp()])), slot)
    part = {"part": draw(st.sampled_from([a, ONE]))} if draw(st.integers(0, 3)) == 0 else {}
    m = draw(st.sampled_from([m, m, m, "sample", *["count"] * (2 * (index == ""))]))
    atom = Mean(index, m, a, draw(scores(index)))
    return Case(atom, to=draw(st.sampled_from(["q", "p", "mu", "mu", "count", "sample"])), **part)


@st.composite
def _independent(draw: Any, index: str, m: str) -> Case:
    index, total = draw(st.sampled_from(["i", "ij", "it", "i", "t"])), ZERO
    groups = {"i": ("self", "others"), "ij": ("self", "other", "rest"), "it": ("now", "others")}
    for _ in range(draw(st.integers(1, 2))):
        term = number(draw(SMALL)) * draw(st.sampled_from([ONE, beta, n]))
        for slot in groups.get(index, ("now",)):
            own = SLOTS["t"] if slot == "now" else (slot,)
            if slot in ("others", "rest"):
                for base in draw(st.lists(st.sampled_from([*SUMS, *BASES]), max_size=2)):
                    term = term * V(name_in_slot(base, slot))
            else:
                term = term * draw(elements(in_slots(own), 1))
        total = total + term
    extra = draw(elements(in_slots(SLOTS[index]), 1))
    m = draw(st.sampled_from([m, m, m, m, "sample"]))
    score = draw(scores(index, 1, draw(st.integers(0, 4)) == 0))
    match draw(st.sampled_from(["whole", "whole", "part", "more"])):
        case "part":
            return Case(Mean(index, m, total + extra, score), part=total)
        case "more":
            return Case(Mean(index, m, total + extra, score))
    return Case(Mean(index, m, total, score))


@st.composite
def _curled(draw: Any, index: str, m: str) -> Case:
    small = [z for z in SLOTS[index] if z in SINGLE]
    live = in_slots(SLOTS[index], SUMS) + in_slots(small, ("A", "f", "g", "sg(k1)", "sg(f)"))
    hidden = in_slots(SLOTS[index], ("f", "sg(f)", "sg(w)", "A"))
    names = live + hidden * 3 if draw(st.booleans()) else live
    return Case(Curl(index, draw(st.sampled_from([m, m, m, "sample"])), draw(elements(names))))


@st.composite
def _loss(draw: Any, index: str, m: str) -> Case:
    at_one = in_slots([z for z in SLOTS[index] if z in (*SINGLE, "x")])
    sums = in_slots(SLOTS[index], ("k1", "w", "R", "A", "sg(k1)", "sg(f)", "length"))
    nearly = in_slots(SLOTS[index], ("f", "g'"))
    names = at_one + sums + (nearly * 3 if draw(st.booleans()) else [])
    atom = MeanGradient(index, draw(st.sampled_from([m, "sample"])), draw(elements(names)))
    means = [Mean(index, m, atom.loss), Gradient(Side.from_atom(Mean(index, m, atom.loss)))]
    return Case(draw(st.sampled_from([atom] * 6 + means)))


@st.composite
def _product(draw: Any, index: str, m: str) -> Case:
    """The gradient of a product of two or three means, at times with a single mean, a score or a sample."""
    product = Side.from_constant(draw(CONSTANTS))
    for _ in range(draw(st.sampled_from([2, 2, 2, 3]))):
        at = draw(st.sampled_from([index, index, ""]))
        under = draw(st.sampled_from([m, m, m, m, "p", "sample"]))
        score = (SLOTS[at][0],) if draw(st.integers(0, 12)) == 12 else ()
        product = product.multiply(
            Side.from_atom(Mean(at, under, draw(elements(in_slots(SLOTS[at]))), score))
        )
    single = Side.from_atom(Mean(index, m, draw(elements(in_slots(SLOTS[index])))))
    return Case(Gradient(product + single if draw(st.booleans()) else product))


@st.composite
def _gradient(draw: Any, index: str, m: str) -> Case:
    inner = Side()
    for _ in range(draw(st.integers(1, 2))):
        index = draw(st.sampled_from([index, index, index, ""]))
        under = draw(st.sampled_from([m, m, m, "sample"]))
        score = (SLOTS[index][0],) if draw(st.integers(0, 9)) == 9 else ()
        mean = Mean(index, under, draw(elements(in_slots(SLOTS[index]))), score)
        inner = inner + Side.combine((draw(CONSTANTS), (mean,)))
    product = inner.multiply(inner) if draw(st.integers(0, 9)) == 9 else inner
    return Case(Gradient(product + Side.from_constant(draw(CONSTANTS))))


@st.composite
def _mean(draw: Any, index: str, m: str) -> Case:
    """For the rule that drops sg(.)."""
    m = draw(st.sampled_from([m, "sample"]))
    a, score = draw(elements(in_slots(SLOTS[index], (*BASES, "w", "sg(H)")))), draw(scores(index))
    atom = draw(st.sampled_from([Mean(index, m, a, score)] * 3 + [MeanGradient(index, m, a)]))
    return Case(atom, **draw(st.sampled_from([{}] * 8 + [{"to": "q"}])))


@st.composite
def _constant(draw: Any, index: str, m: str) -> Case:
    """For the rules about constants."""
    m = draw(st.sampled_from([m, m, "sample"]))
    c = draw(
        st.sampled_from([CONSTANTS, CONSTANTS, elements(in_slots(SLOTS[index]), 1)]).flatmap(lambda x: x)
    )
    extra, score = draw(elements(in_slots(SLOTS[index]), 1)), draw(scores(index, 1))
    score = draw(st.sampled_from([(), (), score]))
    if draw(st.integers(0, 2)) == 0:
        return Case(Mean(index, m, c + extra, score), part=c)
    return Case(Mean(index, m, c, score))


@st.composite
def _scaled(draw: Any, index: str, m: str) -> Case:
    case = draw(_mean(index, m))
    c = draw(st.one_of(elements(["beta", "nu", "n"], 1), CONSTANTS, elements(in_slots(SLOTS[index]), 1)))
    a = getattr(case.atom, "coefficient", ONE)
    part = {"part": a * c} if draw(st.integers(0, 3)) == 0 else {}
    m = draw(st.sampled_from([m, "sample"]))
    return Case(Mean(index, m, a, getattr(case.atom, "score", ())), constant=c, **part)


# cell, rows, of, apart: what holds of the definitions at each position of one sample
COMPARISONS: tuple[tuple[dict[str, int], tuple[Any, ...], ExpPoly, tuple[str, ...]], ...] = (
    ({"up": 1, "down": 1}, (bound("up"), bound("down")), ONE, ()),
    ({"up": 0, "down": 0}, (bound("up", "down"),), k1, ()),
    ({"up": 0, "down": 0}, (bound("up"), bound("down")), ONE, ("down",)),
    ({"below": 1}, (bound("below"), bound(tangent=-k1)), ONE, ()),
    ({"high": 1, "low": 1}, (bound("high"), bound("low"), bound(0, weight=number(2))), ONE, ()),
    ({"some": 0}, (bound("some"), bound(square=V("R")), bound()), ONE, ()),
    ({"flip": 1, "up": 0}, (bound("flip"), bound()), ONE, ()),
    ({}, (), ZERO, ()),
)
SINGLES = {index: [z for z in SLOTS[index] if z in SINGLE] for index in SLOTS}


def _spoken_at(slot: str, data: Any) -> Any:
    """What is said of one sample, said of a slot."""
    if isinstance(data, dict):
        return {_spoken_at(slot, key): _spoken_at(slot, value) for key, value in data.items()}
    if isinstance(data, list):
        return [_spoken_at(slot, item) for item in data]
    known = {name for name, _, _ in DEFINED} | {"k1", "R"}
    return name_in_slot(data, slot) if data in known else data


@st.composite
def _compared(draw: Any, index: str, m: str) -> Case:
    values, rows, of, apart = draw(st.sampled_from(COMPARISONS))
    slot = draw(st.sampled_from(SINGLES[index]))
    rows = rows[: len(rows) - (draw(st.integers(0, 9)) == 9)]
    b = draw(elements(in_slots(SLOTS[index]), 1)) if values else ZERO
    data = cell(values, *rows, of=of, apart=apart)
    data = {**_spoken_at(slot, data), "times": b}
    product = b * ExpPoly.from_json(data["of"])
    for name, value in data["cell"].items():
        product = product * (V(name) if value else 1 - V(name))
    names = [
        *in_slots(SLOTS[index], ("k1", "R")),
        *(name_in_slot(name, slot) for name in ("up", "pos", "inv")),
    ]
    a = draw(elements([*names, *{"i": ["win"], "t": ["over"], "it": ["over"]}.get(index, [])]))
    a = a * a + product if draw(st.booleans()) else a + product
    part = {"part": product} if draw(st.integers(0, 5)) == 0 else {}
    m = draw(st.sampled_from([m, m, "sample", *["count"] * (index == "")]))
    return Case(Mean(index, m, a, draw(scores(index, 1))), **data, **part)


@st.composite
def _divided(draw: Any, index: str, m: str) -> Case:
    slot = draw(st.sampled_from(SINGLES[index]))
    name = draw(st.sampled_from(["inv", "quot", "inv", "quot", "up"]))
    a, b = (draw(elements([*in_slots(SLOTS[index]), name_in_slot(name, slot)])) for _ in range(2))
    m = draw(st.sampled_from([m, m, "sample", *["count"] * (index == "")]))
    return Case(Mean(index, m, a, draw(scores(index, 1))), name=name_in_slot(name, slot), times=b)


MAKERS: dict[str, Any] = {
    "sum over t": _summed, "parts of a sum": _in_parts, "exchange of sums": _swapped,
    "independence": _independent, "curl": _curled, "chain rule": _loss, "stop-gradient": _mean,
    "log-derivative": _gradient, "product rule": _product, "change of measure": _moved,
    "score mean zero": _mean_zero, "ratio mean one": _mean_one, "normalisation": _constant,
    "linearity": _scaled, "region": _compared, "definition": _divided,
}  # fmt: skip


@st.composite
def data_for(draw: Any, rule: str, atom: Any) -> dict[str, Any]:
    """Data for an atom that was not made for the rule."""
    of = st.sampled_from([*SUMS, "s"])
    scored = [find_slot(z) for z in getattr(atom, "score", ())]
    slot = st.sampled_from(scored or ["now", "others", "past"])
    a = getattr(atom, "coefficient", ONE)
    terms = [ExpPoly(dict([term])) for term in sorted(a.terms.items())]
    data: dict[str, Any] = {}
    match rule:
        case "sum over t":
            data = {"of": draw(of)}
        case "parts of a sum":
            data = {"of": draw(st.lists(of, unique=True, max_size=3))}
        case "exchange of sums":
            data = {"now": draw(of), "other": draw(of), "slot": draw(slot)}
        case "score mean zero":
            data = {"slot": draw(slot)}
        case "ratio mean one":
            data = {"slot": draw(slot), "of": draw(PROBABILITY)}
        case "change of measure":
            data = {"to": draw(PROBABILITY)}
        case "linearity":
            data = {"constant": draw(elements(["beta", "nu"], 1)).to_json()}
    if terms and isinstance(atom, Mean) and draw(st.booleans()):
        data["part"] = draw(st.sampled_from(terms)).to_json()
    return data
