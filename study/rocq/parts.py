"""One part of a certificate as a script of rocq/rules/Checker.v.

Each step replaces F by G within a side, which adds m (G - F) to it.  A script lists the multiples m and the
instances F = G of rules, and the checker adds up left - right + sum_i m_i (F_i - G_i), which is then 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

from klsym.kernel.assumptions import Assumptions
from klsym.kernel.closings import read_row
from klsym.kernel.densities import build_density_ratio
from klsym.kernel.derivatives import move_to_slot
from klsym.kernel.meta import differentiate, read_score_coefficient
from klsym.kernel.names import parse_name
from klsym.kernel.ring import ONE, ZERO, ExpPoly, read_number
from klsym.kernel.slots import SEQUENCE, name_in_slot
from klsym.kernel.statements import Context, Curl, Gradient, Mean, MeanGradient, Side
from klsym.kernel.sums import apply_parts_of_a_sum
from klsym.study.rocq.terms import GIVEN, SLOTS, Outside, Words, base, listed, place, rational

Bodies = dict[str, list[dict[str, Any]]]  # digest -> the parts that are cited by it
Place = tuple[str, int]  # a digest, and the number of a part
Instance = tuple[int, str]  # 1, or -1 for an instance that is used backwards, and the instance of a rule
KNOWN = {  # hypotheses that a script tells, or that finite settings satisfy
    "support", "exchange", "exists", "ends", "batch", "nonzero", "positive", "nonnegative", "equal",
    "premise",
}  # fmt: skip


def script_of(part: dict[str, Any], known: Bodies) -> str:
    """The script of one part, those that it cites included.

    Raises Outside: what the verified checker does not reach.
    """
    assumed = Assumed.of(part)
    field = _curl_of(part)
    if field is not None and part["close"]["by"] == "finite model":
        at, loss = assumed.words.place(field.index, field.measure).split(), assumed.words.element(field.loss)
        model = assumed.model(part["close"]["model"])
        return f"Script {assumed.term()}\n [] (Curled {at[1]} {at[0]} {loss}\n {model})"
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
        context = Context.from_json(part["context"])
        if context.definitions:
            raise Outside("regions and logs")
        if context.facts:
            raise Outside("facts about rewards and parameters")
        positive = tuple(h[1] for h in found if h[0] == "positive")
        nonzero = frozenset([*positive, *(h[1] for h in found if h[0] == "nonzero")])
        if any(h[0] == "generic" for h in found):
            raise Outside("isolated values of parameters")
        if unknown := sorted({h[0] for h in found} - KNOWN):
            raise Outside(f"the hypothesis {unknown[0]}")
        return Assumed(
            Words(context, nonzero),
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
        left, right = (Side.from_json(side).to_json() for side in premise)
        return same.index((left, right))

    def part(self, part: dict[str, Any], places: list[Place]) -> str:
        """Both sides, the rows, and the zeros that bridge the two."""
        words, close = self.words, part["close"]
        sides = {name: Side.from_json(part[name]) for name in ("left", "right")}
        shown = " ".join(words.side(side) for side in sides.values())
        rows = [self.row(row) for row in close.get("rows", [])]
        for row in close.get("rows", []):
            sides["left"] += read_row(row, Assumptions(words.context))[0]
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
        if "jumps" in data:
            raise Outside("regions and logs")
        coefficient, atoms = side.terms[step["term"]]
        atom = atoms[step["factor"]]
        others = atoms[: step["factor"]] + atoms[step["factor"] + 1 :]
        multiple = {n: self.words.side(Side(((n * sign * coefficient, others),))) for n in (1, -1)}
        return [f"({multiple[n]}, {instance})" for n, instance in self._instances(rule, data, atom)]

    def _equation(self, data: dict[str, Any], context: dict[str, Any], places: list[Place]) -> str:
        if isinstance(data["of"], list):
            return f"Cited {places.index(tuple(data['of']))}"
        premise = context["premises"][data["of"]]
        if data["gradient"]:
            return f"PremiseGradient {self._number('premise', premise)}"
        return f"Premise {self._number('equal', premise)}"

    def _instances(self, rule: str, data: dict[str, Any], atom: Any) -> list[Instance]:
        """Instances of a rule that together change an atom as a step does, some of them backwards."""
        words = self.words
        if isinstance(atom, MeanGradient):
            return [(1, f"ChainRule {words.place(atom.index, atom.measure)} {words.element(atom.loss)}")]
        if isinstance(atom, Gradient):
            return [(1, f"LogDerivative {words.combination(atom.of)}")]
        if not isinstance(atom, Mean):
            raise Outside("the curl of a field")
        part = ExpPoly.from_json(data["part"]) if "part" in data else atom.coefficient
        mean = Mean(atom.index, atom.measure, part, atom.score)
        words.mean(mean)
        match rule:
            case "linearity":
                return []
            case "independence":
                return self._independence(mean)
            case "parts of a sum":
                found = apply_parts_of_a_sum(mean, data, Assumptions(words.context))
                others = [
                    (-1, other) for _, atoms in found.terms for other in atoms if isinstance(other, Mean)
                ]
                return [(n, f"PartsOfASum {words.mean(one)}") for n, one in [(1, mean), *others]]
            case "sum over t":
                return [(1, self._sum_over_t(mean, data["of"]))]
            case "exchange of sums":
                return [self._exchange(mean, data["now"], data["other"], data["slot"])]
        return [(1, self._on_mean(rule, data, mean))]

    def _independence(self, mean: Mean) -> list[Instance]:
        """One instance a term."""
        words = self.words
        for name in mean.coefficient.names() - {*words.context.parameters}:
            parsed = parse_name(name)
            if parsed.base == "length" and parsed.slot not in ("x", *SEQUENCE):
                raise Outside("a length in a batch")
        at = words.place(mean.index, mean.measure)
        terms = sorted(mean.coefficient.terms.items())
        return [(1, f"Independence {at} ({words.term(key, value, mean.score)})") for key, value in terms]

    def _sum_over_t(self, mean: Mean, of: str) -> str:
        """E_m[a V] = E_m[sum_t a V_t], told by V and a."""
        rest = without(mean, of, "x")
        element = self.words.element(rest.coefficient, rest.score)
        return f"SumOverSteps {place(mean.measure)} {base(of)} {element}"

    def _exchange(self, mean: Mean, x: str, y: str, slot: str) -> Instance:
        """sum_t X_t sum_{u>t} Y_u = sum_u Y_u sum_{t<u} X_t, backwards where Y is past."""
        rest = without(without(mean, x, "now"), y, slot)
        n, first, second = (1, x, y) if slot == "future" else (-1, y, x)
        at = self.words.place(mean.index, mean.measure)
        shown = self.words.element(rest.coefficient, rest.score)
        return n, f"Exchange {at} {base(first)} {base(second)} {shown}"

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
            ratio = move_to_slot(build_density_ratio(mean.measure, data["of"]), data["slot"], words.context)
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
                known = ExpPoly.from_json(row["nonnegative"]).to_json()  # as hypotheses are written
                region = f"(Some {self.regions.index((measure, known))})"
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
            return f"(Refuted {self.model(close['model'])})"
        if close["by"] == "completeness":
            return self.family(part)
        if close["by"] == "independence":
            return self.witness(part)
        raise Outside(f"the closing {close['by']}")

    def family(self, part: dict[str, Any]) -> str:
        """The coefficient c of E_q[c s] = 0, and the family of functions of k1 that make it constant."""
        close = part["close"]
        along = {"k1": "false", "w": "true"}.get(close["coordinate"])
        if along is None:
            raise Outside(f"a condition along {close['coordinate']}")
        k1, constants = ExpPoly.from_variable("k1"), close["constants"]
        free = sum((ExpPoly.from_variable(a) * k1**i for i, a in enumerate(constants)), ZERO)
        known = ExpPoly.from_json(close["family"]) - free
        c = _scored(part)
        numbers = listed(str(self.words.context.parameters.index(name)) for name in constants)
        told = [self.words.element(a) for a in (c, ExpPoly.from_json(close["unit"]), known)]
        return f"(Unique (Family {told[0]} {along} {told[1]} {close['order']} {told[2]} {numbers}))"

    def witness(self, part: dict[str, Any]) -> str:
        """The coefficient c of E_q[c s], and derivatives that leave one term of it, none of 1, k1 and r."""
        c, context = _scored(part), self.words.context
        further = [m for n in range(5) for m in product(("k1", "w"), repeat=n)]
        for along_w, more in product((True, False), further):
            a = c
            for coordinate in ("w",) if along_w else ("k1", "k1"):
                a = differentiate(a, coordinate, context)
            a = a if along_w else a + differentiate(a, "k1", context)
            for coordinate in more:
                a = differentiate(a, coordinate, context)
            if len(a.terms) == 1 and all({n for n, _ in m} <= self.words.nonzero for m, _ in a.terms):
                told = listed(str(coordinate == "w").lower() for coordinate in more)
                return f"(Independent (Witness {self.words.element(c)} {str(along_w).lower()} {told}))"
        raise Outside("a coefficient of which no derivative is a single term")

    def model(self, model: dict[str, Any]) -> str:
        nodes = listed(
            f"({listed(map(str, prefix))}, {node(data)})" for prefix, data in _nodes(model["tree"], ())
        )
        parameters = numbers([model["parameters"].get(name, "1") for name in self.words.context.parameters])
        path = listed(map(str, model["path"] or [0]))
        return f"(Model {nodes}\n  {path} {parameters})"


def _curl_of(part: dict[str, Any]) -> Curl | None:
    """The field of which a part says that its curl is not 0."""
    match Side.from_json(part["left"]).terms:
        case ((c, (Curl() as field,)),) if c == ONE and part["right"] == [] and part["relation"] == "=":
            return field
    return None


def _scored(part: dict[str, Any]) -> ExpPoly:
    """The coefficient c of what a part has become, E_q[c s] = 0."""
    left = [part["left"], *(step["result"] for step in part["steps"] if step["side"] == "left")][-1]
    return read_score_coefficient(Side.from_json(left), Side())


def without(mean: Mean, name: str, slot: str) -> Mean:
    """A mean less one factor of a slot; the length of a step is 1."""
    if name == "s":
        score = list(mean.score)
        score.remove(slot)
        return Mean(mean.index, mean.measure, mean.coefficient, tuple(score))
    one = (name, slot) == ("length", "now")
    factor = ONE if one else ExpPoly.from_variable(name_in_slot(name, slot)).invert()
    return Mean(mean.index, mean.measure, mean.coefficient * factor, mean.score)


def _nodes(tree: Any, prefix: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], Any]]:
    """The nodes of a tree, each with the branches that lead to it."""
    yield prefix, tree
    for branch, after in enumerate(tree["next"]):
        if after is not None:
            yield from _nodes(after, (*prefix, branch))


def node(tree: Any) -> str:
    """Next-token probabilities, two directions of logits, rewards."""
    rows = " ".join(numbers(tree[name]) for name in ("q", "p", "mu", "u", "v"))
    nothing = ["0"] * len(tree["q"])
    return f"Node {rows} {listed(numbers(tree['rewards'].get(name, nothing)) for name in GIVEN)}"


def numbers(texts: list[str]) -> str:
    return listed(rational(read_number(text)) for text in texts)
