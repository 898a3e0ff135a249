"""One part of a certificate as a script of rocq/Checker.v.

Each step replaces F by G within a side, which adds m (G - F) to it.  A script lists the multiples m and the
instances F = G of rules, and the checker adds up left - right + sum_i m_i (F_i - G_i), which is then 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from klsym.kernel.closings import read_row
from klsym.kernel.derivatives import density_ratio, in_slot
from klsym.kernel.meta import score_coefficient
from klsym.names import parse_name
from klsym.ring import ONE, ZERO, ExpPoly, read_number
from klsym.rocq.terms import GIVEN, SLOTS, Outside, Words, listed, place, rational
from klsym.statements import Context, Gradient, Mean, MeanGradient, Side

Bodies = dict[str, list[dict[str, Any]]]  # digest -> the parts that are cited by it
Place = tuple[str, int]  # a digest, and the number of a part


def script_of(part: dict[str, Any], known: Bodies) -> str:
    """The script of one part, those that it cites included.

    Raises Outside: what the verified checker does not reach.
    """
    assumed = Assumed.of(part)
    places = _cited(part, known)
    parts = [known[digest][number] for digest, number in places] + [part]
    terms = [assumed.part(body, places) for body in parts]
    return f"Script {assumed.term()}\n {listed(terms)}\n {assumed.ending(part)}"


def _cited(part: dict[str, Any], known: Bodies) -> list[Place]:
    """What a part cites, each before those that cite it."""
    places: list[Place] = []
    for step in part["steps"]:
        of = step["data"].get("of")
        if step["rule"] == "equation" and isinstance(of, list):
            digest, number = of
            for place in (*_cited(known[digest][number], known), (digest, number)):
                if place not in places:
                    places.append(place)
    return places


@dataclass(frozen=True)
class Assumed:
    """What the script of a part assumes, and the names in which it is written."""

    words: Words
    equal: tuple[tuple[str, Any, Any], ...]  # kind, left, right
    positive: tuple[str, ...]
    regions: tuple[tuple[str, Any], ...]  # measure, element
    batch: bool

    @staticmethod
    def of(part: dict[str, Any]) -> Assumed:
        found = part["hypotheses"]
        positive = tuple(h[1] for h in found if h[0] == "positive")
        nonzero = frozenset([*positive, *(h[1] for h in found if h[0] == "nonzero")])
        if any(h[0] == "generic" for h in found):
            raise Outside("isolated values of parameters")
        return Assumed(
            Words(Context.from_json(part["context"]), nonzero),
            tuple((h[0], h[1], h[2]) for h in found if h[0] in ("equal", "premise")),
            positive,
            tuple((h[1], h[2]) for h in found if h[0] == "nonnegative"),
            "n" in part["context"]["parameters"] and any(h[0] == "batch" for h in found),
        )

    def term(self) -> str:
        """The assumptions: premises here, premises for every theta, positive parameters, regions."""
        words = self.words
        now, always = [], []
        for kind, left, right in self.equal:
            sides = (Side.from_json(left), Side.from_json(right))
            if kind == "equal":
                now.append("({}, {})".format(*map(words.side, sides)))
            else:
                always.append("({}, {})".format(*map(words.combination, sides)))
        positive = listed(str(words.context.parameters.index(name)) for name in self.positive)
        regions = listed(f"({place(m)}, {words.element(ExpPoly.from_json(a))})" for m, a in self.regions)
        return f"(Assume (Premises {listed(now)} {listed(always)} {self.size()}) {positive} {regions})"

    def size(self) -> str:
        """The parameter that is the size of a batch, where a theorem speaks of one."""
        if not self.batch:
            return "None"
        return (
            f"(Some ({self.words.context.parameters.index('n')}, {str('n' in self.words.nonzero).lower()}))"
        )

    def _number(self, kind: str, premise: Any) -> int:
        same = [(left, right) for k, left, right in self.equal if k == kind]
        return same.index(tuple(premise))

    def part(self, part: dict[str, Any], places: list[Place]) -> str:
        """Both sides, the rows, and the zeros that bridge the two."""
        words, close = self.words, part["close"]
        sides = {name: Side.from_json(part[name]) for name in ("left", "right")}
        shown = " ".join(words.side(side) for side in sides.values())
        rows = [self.row(row) for row in close.get("rows", [])]
        for row in close.get("rows", []):
            sides["left"] += read_row(row, words.context)[0]
        zeros = []
        for step in part["steps"]:
            zeros += self.step(step, sides[step["side"]], part["context"], places)
            sides[step["side"]] = Side.from_json(step["result"])
        relation = {"=": "Equal", "<=": "AtMost"}[part["relation"]]
        return f"(Part {shown} {relation} {listed(rows)}\n  {listed(zeros)})"

    def step(
        self, step: dict[str, Any], side: Side, context: dict[str, Any], places: list[Place]
    ) -> list[str]:
        """What one step adds: nothing (linearity, which the normal form does), or one zero."""
        sign = ONE * (1 if step["side"] == "right" else -1)
        rule, data = step["rule"], step["data"]
        if rule == "equation":
            times = Side.as_written(data["times"]) * sign
            return [f"({self.words.side(times)}, {self._equation(data, context, places)})"]
        coefficient, atoms = side.terms[step["term"]]
        atom = atoms[step["factor"]]
        others = atoms[: step["factor"]] + atoms[step["factor"] + 1 :]
        multiple = self.words.side(Side(((sign * coefficient, others),)))
        return [f"({multiple}, {instance})" for instance in self._instances(rule, data, atom)]

    def _equation(self, data: dict[str, Any], context: dict[str, Any], places: list[Place]) -> str:
        if isinstance(data["of"], list):
            return f"Cited {places.index(tuple(data['of']))}"
        premise = context["premises"][data["of"]]
        if data["gradient"]:
            return f"PremiseGradient {self._number('premise', premise)}"
        return f"Premise {self._number('equal', premise)}"

    def _instances(self, rule: str, data: dict[str, Any], atom: Any) -> list[str]:
        """Instances of a rule that together change an atom as a step does."""
        words = self.words
        if isinstance(atom, MeanGradient):
            return [f"ChainRule {words.place(atom.index, atom.measure)} {words.element(atom.loss)}"]
        if isinstance(atom, Gradient):
            return [f"LogDerivative {words.combination(atom.of)}"]
        if not isinstance(atom, Mean):
            raise Outside("the curl of a field")
        part = ExpPoly.from_json(data["part"]) if "part" in data else atom.coefficient
        mean = Mean(atom.index, atom.measure, part, atom.score)
        words.mean(mean)
        if rule == "linearity":
            return []
        if rule == "independence":
            if any(parse_name(name).base == "length" for name in part.names() - {*words.context.parameters}):
                raise Outside("a length in a batch")
            at = words.place(mean.index, mean.measure)
            terms = (words.term(key, value, mean.score) for key, value in sorted(part.terms.items()))
            return [f"Independence {at} ({term})" for term in terms]
        return [self._on_mean(rule, data, mean)]

    def _on_mean(self, rule: str, data: dict[str, Any], mean: Mean) -> str:
        words, index = self.words, self.words.place(mean.index, mean.measure).split()[0]
        slot = SLOTS.get(data.get("slot", ""), "")
        if rule == "stop-gradient":
            return f"StopGradient {words.mean(mean)}"
        if rule == "change of measure":
            element = words.element(mean.coefficient, mean.score)
            return f"ChangeOfMeasure {index} {place(mean.measure)} {place(data['to'])} {element}"
        if rule == "score mean zero":
            score = list(mean.score)
            score.remove(data["slot"])
            return f"ScoreMeanZero {index} {slot} {words.element(mean.coefficient, tuple(score))}"
        if rule == "normalisation":
            return f"Normalisation {words.mean(mean)}"
        if rule == "ratio mean one":
            ratio = in_slot(density_ratio(mean.measure, data["of"]), data["slot"], words.context)
            rest = words.element(mean.coefficient * ratio, mean.score)
            return f"RatioMeanOne {index} {slot} {place(mean.measure)} {place(data['of'])} {rest}"
        raise Outside(f"the rule {rule}")

    def row(self, row: dict[str, Any]) -> str:
        """What is never negative."""
        words = self.words
        index, measure = row["at"]
        scale, factor, v, of = (ExpPoly.from_json(row[key]) for key in ("scale", "factor", "v", "of"))
        at = self.words.place(index, measure)
        kind = row["kind"].capitalize()
        if kind == "Square":
            region = "None"
            if "nonnegative" in row:
                region = f"(Some {self.regions.index((measure, row['nonnegative']))})"
            kind = f"(Square {region})"
        [(key, value)] = scale.terms.items()
        shown = f"({words.term(key, value)}) {words.element(factor)} {at} {words.element(v)}"
        return f"Row {kind} {shown} {words.element(of, tuple(row['score']))}"

    def ending(self, part: dict[str, Any]) -> str:
        """How the script ends: proved, a model that refutes its last part, or the only solutions."""
        close = part["close"]
        if close["by"] == "equality":
            return "Proved"
        if close["by"] == "finite model":
            return self.model(close["model"])
        if close["by"] == "completeness":
            return self.family(part)
        raise Outside(f"the closing {close['by']}")

    def family(self, part: dict[str, Any]) -> str:
        """The coefficient c of E_q[c s] = 0, and the family of functions of k1 that make it constant."""
        close, left = part["close"], part["left"]
        along = {"k1": "false", "w": "true"}.get(close["coordinate"])
        if along is None:
            raise Outside(f"a condition along {close['coordinate']}")
        for step in part["steps"]:
            left = step["result"] if step["side"] == "left" else left
        k1, constants = ExpPoly.variable("k1"), close["constants"]
        free = sum((ExpPoly.variable(a) * k1**i for i, a in enumerate(constants)), ZERO)
        known = ExpPoly.from_json(close["family"]) - free
        c = score_coefficient(Side.from_json(left), Side())
        numbers = listed(str(self.words.context.parameters.index(name)) for name in constants)
        told = [self.words.element(a) for a in (c, ExpPoly.from_json(close["unit"]), known)]
        return f"(Unique (Family {told[0]} {along} {told[1]} {close['order']} {told[2]} {numbers}))"

    def model(self, model: dict[str, Any]) -> str:
        tree, path = model["tree"], model["path"]
        if any(after is not None for after in tree["next"]):
            raise Outside("a model of sequences")

        def numbers(texts: list[str]) -> str:
            return listed(rational(read_number(text)) for text in texts)

        rows = " ".join(numbers(tree[name]) for name in ("q", "p", "mu", "u"))
        count = len(tree["q"])
        paid = listed(numbers(tree["rewards"].get(name, ["0"] * count)) for name in GIVEN)
        parameters = numbers([model["parameters"].get(name, "1") for name in self.words.context.parameters])
        here = path[0] if path else 0
        return f"(Refuted (Model {rows}\n  {paid} {here} {parameters}))"
