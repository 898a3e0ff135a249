"""What Rocq is asked is what the certificate says: the term of every part, read back and compared."""

from __future__ import annotations

import re
from fractions import Fraction

import pytest

from klsym.kernel.ring import ZERO, ExpPoly
from klsym.kernel.statements import Context
from klsym.study.ledger.settle_claim import recall
from klsym.study.rocq.accepted import read_accepted
from klsym.study.rocq.export import export

BASES = {"K1": "k1", "Any": "A", "W": "w", "LogQ": "log_q", "Length": "length", "Score": "s", "ToOld": "o"}
REWARDS = ["R", "A", "H", "M", "H2", "H3", "H4"]  # Given 0 to Given 6
INDICES = {"Single": "", "Batch": "i", "Pair": "ij", "Steps": "t", "BatchSteps": "it"}
SLOTS = {"Whole": "x", "Self": "self", "Other": "other", "Others": "others", "Rest": "rest"}
SLOTS |= {"Past": "past", "Now": "now", "Future": "future"}
MEASURES = {"Mq": "q", "Mp": "p", "Mmu": "mu", "Mcount": "count", "Msample": "sample"}
RELATIONS = {"Equal": "=", "AtMost": "<="}
TOKEN = re.compile(r"[\[\];(),]|[^\s\[\];(),]+")
DENSITIES = ("q", "p", "mu", "old", "u", "v")  # of a node of a model, and two directions
STANDING = {"Region": "region", "Log": "log", "Let": "let"}
NOWHERE = "defined_nowhere"  # a name whose definition is none of the certificate
ASSUMED = {
    "Settled": ("off", "apart"),
    "Apart": ("away",),
    "AtLeastZero": ("fact",),
    "Positive": ("above",),
}  # by which hypotheses


class Reader:
    """A term of Rocq as the JSON of a certificate; it shares nothing with what wrote it."""

    def __init__(self, text: str, context: Context) -> None:
        self.tokens, self.context = TOKEN.findall(text), context
        self.functions = sorted(context.function_arguments)
        self.parameters = [*context.parameters, *(d.name for d in context.definitions)]  # some are constant
        self.named: list[str] = []  # of what defines the names, by number
        self.facts: list[tuple[str, ...]] = []
        self.marked: dict[str, bool] = {}  # which parameters are said not to be 0

    def take(self, *expected: str) -> str:
        token = self.tokens.pop(0)
        assert not expected or token in expected, (token, expected)
        return token

    def within(self, *reads):
        """What stands in brackets, with commas between."""
        self.take("(")
        found = []
        for read in reads:
            found.append(read())
            if self.tokens[0] == ",":
                self.take(",")
        self.take(")")
        return found

    def items(self, read):
        found = []
        self.take("[")
        while self.tokens[0] != "]":
            found.append(read())
            if self.tokens[0] == ";":
                self.take(";")
        self.take("]")
        return found

    def skip(self) -> None:
        """What proves is no part of what is stated."""
        depth = 0
        while True:
            token = self.take()
            depth += (token in "([") - (token in ")]")
            if depth == 0:
                return

    # -------------------------------------------------------------------- elements and sides
    def integer(self) -> int:
        [digits] = self.within(self.take) if self.tokens[0] == "(" else [self.take()]
        if self.tokens[0] == "%Z":
            self.take()
        return int(digits.removesuffix("%Z"))

    def rational(self) -> str:
        _, top, bottom = self.within(lambda: self.take("Qmake"), self.integer, self.integer)
        return str(Fraction(top, bottom))

    def flag(self) -> bool:
        return self.take("true", "false") == "true"

    def parameter(self) -> str:
        name = self.parameters[self.integer()]
        self.marked[name] = self.flag()
        return name

    def base(self) -> str:
        if self.tokens[0] != "(":
            return BASES[self.take()]
        self.take("(")
        if self.take("Given", "Fn") == "Given":
            name = REWARDS[self.integer()]
        else:
            number, order = self.integer(), self.integer()
            name = (self.functions[number] if self.functions else "s'") + "'" * order
        self.take(")")
        return name

    def variable(self) -> str:
        kind = self.take("Par", "Sample", "Named")
        if kind == "Par":
            return self.parameter()
        if kind == "Named":
            return self.name()
        slot, name = SLOTS[self.take()], self.base()
        name += "" if slot == "x" else f"[{slot}]"
        return f"sg({name})" if self.flag() else name

    def name(self) -> str:
        """A name of the author's own, in the slots that it is said to speak of."""
        slots, number = self.items(lambda: SLOTS[self.take()]), self.integer()
        moves = self.take("Moving", "Still") == "Moving"
        base = self.named[number].partition("[")[0]
        if base == NOWHERE:
            return base + str(self.flag())
        assert moves <= (self.context.find_definition(base, "region") is None)
        places = (base, *(f"{base}[{slot}]" for slot in slots if slot != "x"))
        [name] = {n for n in places if self.context.find_slots(n) == {*slots}}
        return f"sg({name})" if self.flag() else name

    def definition(self):
        """What defines the next name: the one of the certificate that is so, whole or of a token."""
        self.take("Define")
        slots, kind, element = self.items(lambda: SLOTS[self.take()]), STANDING[self.take()], self.element()
        plain = (n for d in self.context.definitions for n in (d.name, f"{d.name}[now]"))
        same = [
            name
            for name in plain
            if (e := self.context.find_definition(name, kind)) is not None and e.to_json() == element
        ]
        self.named.append(next((n for n in same if self.context.find_slots(n) == {*slots}), NOWHERE))
        return kind, element

    def fact(self):
        """What is assumed of samples: of the bound of a region, of an element, or of a parameter."""
        kind = self.take(*ASSUMED, "Above")
        if kind == "Above":
            return kind, self.parameters[self.integer()]
        measure, index = MEASURES[self.take()], INDICES[self.take()]
        if kind != "Settled":
            return kind, measure, index, self.element()
        [name] = self.within(self.variable)
        return kind, measure, index, self.context.find_definition(name, "region").to_json()

    def powers(self):
        return dict(self.items(lambda: self.within(self.variable, self.integer)))

    def element(self):
        def term():
            value, powers, exponent = self.within(self.rational, self.powers, lambda: self.items(inner))
            return [value, powers, *([exponent] if exponent else [])]

        def inner():
            return self.within(self.rational, self.powers)

        return self.items(term)

    def atom(self):
        kind = self.take("Mean", "MeanGradient", "Gradient")
        if kind == "Gradient":
            return [kind, self.combination()]
        index, measure, element = INDICES[self.take()], MEASURES[self.take()], self.element()
        scores = [sorted(self.scores(term[1])) for term in element]
        assert all(found == scores[0] for found in scores)
        return [kind, index, measure, element, *scores[: kind == "Mean"]]

    @staticmethod
    def scores(powers) -> list[str]:
        """The score functions among the powers of a term, which they leave."""
        names = [(name, found) for name in powers if (found := re.fullmatch(r"s('?)(?:\[(\w+)\])?", name))]
        return [(found[2] or "x") + found[1] for name, found in names for _ in range(powers.pop(name))]

    def under(self):
        if self.take("Some", "None") == "None":
            return []
        index, measure, element = self.within(self.take, self.take, self.element)
        return [["Mean", INDICES[index], MEASURES[measure], element, []]]

    def combination(self):
        return self.items(lambda: self.within(self.element, self.under))

    def side(self):
        return self.items(lambda: self.within(self.element, lambda: self.items(self.atom)))

    # -------------------------------------------------------------------- scripts
    def script(self):
        """What is assumed, the last part, and how it ends."""
        self.take("Script")
        assumed, parts = self.assumed(), self.items(self.part)
        ending = self.ending()
        assert not self.tokens
        return assumed, parts[-1] if parts else None, ending

    def assumed(self):
        self.take("("), self.take("Assume"), self.take("("), self.take("Premises")
        self.define_ahead()
        found = [["equal", *two] for two in self.items(lambda: self.within(self.side, self.side))]
        pairs = self.items(lambda: self.within(self.combination, self.combination))
        found += [["premise", *two] for two in pairs]
        size = self.within(self.size)[0] if self.tokens[0] == "(" else self.take("None")
        self.skip()  # the definitions, which were read before
        self.facts = self.items(self.fact)
        self.take(")")
        found += [["positive", self.parameters[i]] for i in self.items(self.integer)]
        regions = self.items(lambda: self.within(self.take, self.element))
        found += [["nonnegative", MEASURES[measure], element] for measure, element in regions]
        self.take(")")
        return found, size

    def define_ahead(self) -> None:
        """Read the definitions, so that premises may speak of names; then go back."""
        behind = [*self.tokens]
        self.skip(), self.skip()
        self.skip() if self.tokens[0] == "(" else self.take("None")
        self.items(lambda: self.within(self.definition))
        self.tokens = behind

    def size(self) -> str:
        self.take("Some")
        name, marked = self.within(lambda: self.parameters[self.integer()], self.flag)
        assert self.marked.setdefault(name, marked) == marked
        return name

    def part(self):
        self.take("("), self.take("Part")
        found = self.side(), self.side(), RELATIONS[self.take()]
        self.skip(), self.skip(), self.take(")")
        return found

    def ending(self):
        if self.tokens[0] == "Proved":
            return [self.take()]
        return self.within(self.outcome)[0]

    def outcome(self):
        kind = self.take("Refuted", "Crossed", "Unique", "Independent", "Curled")
        if kind in ("Refuted", "Crossed"):
            return [kind, self.model()]
        if kind == "Curled":
            measure, index = MEASURES[self.take()], INDICES[self.take()]
            return [kind, index, measure, self.element(), self.model()]
        if kind == "Independent":  # the witness is of the proof: the part is no combination, by any witness
            self.skip()
            return [kind]
        self.take("("), self.take("Family"), self.skip()
        along, unit, order = ("w" if self.flag() else "k1"), self.element(), self.integer()
        known, constants = self.element(), [self.parameters[i] for i in self.items(self.integer)]
        self.take(")")
        return [kind, along, unit, order, known, constants]

    def model(self):
        self.take("("), self.take("Model")
        nodes = self.items(lambda: self.within(lambda: tuple(self.items(self.integer)), self.node))
        path, values = self.items(self.integer), self.items(self.rational)
        self.take(")")
        return dict(nodes), path, dict(zip(self.context.parameters, values, strict=True))

    def node(self):
        self.take("Node")
        rows = {name: self.items(self.rational) for name in DENSITIES}
        given = self.items(lambda: self.items(self.rational))
        return rows | {"rewards": dict(zip(REWARDS, given, strict=True))}


# ---------------------------------------------------------------------------- what a certificate says
STATED = ("equal", "premise", "positive", "nonnegative")  # other hypotheses hold by themselves there


def stated(part):
    """What the script of a part is to say: what is assumed, the equation or inequality, how it ends."""
    found, close = part["hypotheses"], part["close"]
    several = any(h[0] == "batch" for h in found) and "n" in part["context"]["parameters"]
    assumed = [h for kind in STATED for h in found if h[0] == kind], "n" if several else "None"
    body = part["left"], part["right"], part["relation"]
    match close["by"], part["left"]:
        case "equality", _:
            return assumed, body, ["Proved"]
        case "independence", _:
            return assumed, body, ["Independent"]
        case "completeness", _:
            return assumed, body, family(close)
        case "finite model", [[one, [["Curl", *field]]]]:
            assert one == [["1", {}]] and part["right"] == [] and part["relation"] == "="
            return assumed, None, ["Curled", *field, model(close["model"])]
        case "finite model", left:
            second = any(
                "'" in entry for _, atoms in left for atom in atoms for entry in atom[-1] if atom[0] == "Mean"
            )
            return assumed, body, ["Crossed" if second else "Refuted", model(close["model"])]


def family(close):
    """The functions g = h + a_0 + a_1 k1 + ..: n and h, and which parameters stand for the a_i."""
    k1, constants = ExpPoly.from_variable("k1"), close["constants"]
    free = sum((ExpPoly.from_variable(a) * k1**i for i, a in enumerate(constants)), ZERO)
    known = (ExpPoly.from_json(close["family"]) - free).to_json()
    return ["Unique", close["coordinate"], close["unit"], close["order"], known, constants]


def model(close):
    return dict(nodes(close["tree"], ())), close["path"], close["parameters"]


def nodes(tree, prefix):
    """Those of a model; a reward that no term names is 0."""
    nothing = ["0"] * len(tree["q"])
    rewards = {name: tree["rewards"].get(name, nothing) for name in REWARDS}
    told = {"old": tree["p"]} | tree
    yield prefix, {name: told[name] for name in DENSITIES} | {"rewards": rewards}
    for branch, after in enumerate(tree["next"]):
        if after is not None:
            yield from nodes(after, (*prefix, branch))


def read(script, part):
    reader = Reader(script, Context.from_json(part["context"]))
    return reader.script(), reader


def check_names(reader, part):
    """Each fact that is assumed is a hypothesis; so is it that a parameter is not 0."""
    for kind, *about in reader.facts:
        if kind == "Above":
            assert ["positive", *about] in part["hypotheses"]
            continue
        measure, _, element = about
        if kind == "AtLeastZero" and element in part["context"].get(
            "facts", []
        ):  # a model satisfies them all
            continue
        told = [element] if kind == "AtLeastZero" else [measure, element]
        assert any([hypothesis, *told] in part["hypotheses"] for hypothesis in ASSUMED[kind])
    never_zero = {name for name, marked in reader.marked.items() if marked}
    assert never_zero <= {h[1] for h in part["hypotheses"] if h[0] in ("positive", "nonzero")}


@pytest.mark.parametrize("claim", sorted(read_accepted()["claims"]))
def test_what_a_script_states_is_what_the_certificate_states(claim):
    certificate = recall(claim).certificate()
    exported = export({claim: certificate})
    assert exported.parts == len(certificate["parts"])
    assert len(exported.outside) < exported.parts
    for number, part in enumerate(certificate["parts"], start=1):
        if (name := f"{claim} part {number}") in exported.outside:
            continue
        found, reader = read(exported.scripts[name], part)
        assert found == stated(part)
        check_names(reader, part)


@pytest.mark.parametrize(
    ("claim", "written", "slip"),
    [
        ("gradient.k1-loss", "[MeanGradient Single Mq", "[MeanGradient Single Mmu"),
        ("gradient.k2-loss", "[MeanGradient Single Mq", "[Mean Single Mq"),
        ("value.k3-nonnegative", " AtMost ", " Equal "),
        ("value.k2-biased", "(Qmake 1 4); (Qmake 3 4)", "(Qmake 3 4); (Qmake 1 4)"),
        ("sequence.causality", "Sample Past Any", "Sample Future Any"),
        ("sequence.causality", "[Mean Steps", "[Mean BatchSteps"),
        ("sequence.leave-one-out", "(Some (1, false))", "None"),
        ("gradient.k2-unique", "] 2 [", "] 1 ["),
        ("gradient.k2-unique", "[1; 0]", "[0; 1]"),
        ("optimum.reverse", "None [] []) [1] [])", "None [] []) [0] [])"),
        ("sequence.token-field-not-conservative", "Curled Mq", "Curled Mp"),
        ("shipped.ppo-clip", "[Whole] 0 Still", "[Whole] 1 Still"),
        ("shipped.ppo-clip", "(Define [Whole] Region", "(Define [Whole] Let"),
        ("discount.kl-in-reward", "(Sample Now (Fn 0 0) false", "(Sample Now Score false"),
        ("discount.kl-in-reward", "(Crossed ", "(Refuted "),
    ],
)  # fmt: skip
def test_a_slip_of_the_translation_is_seen(claim, written, slip):
    certificate = recall(claim).certificate()
    script, part = export({claim: certificate}).scripts[f"{claim} part 1"], certificate["parts"][0]
    assert read(script, part)[0] == stated(part) and written in script
    assert read(script.replace(written, slip), part)[0] != stated(part)
