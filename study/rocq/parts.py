"""One part of a certificate as a script of rocq/rules/Checker.v.

Each step replaces F by G within a side, which adds m (G - F) to it.  A script lists the multiples m and the
instances F = G of rules, and the checker adds up left - right + sum_i m_i (F_i - G_i), which is then 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from klsym.kernel.assumptions import Assumptions
from klsym.kernel.closings import read_row
from klsym.kernel.densities import build_density_ratio
from klsym.kernel.derivatives import move_to_slot
from klsym.kernel.meta import differentiate, read_score_coefficient
from klsym.kernel.names import parse_name
from klsym.kernel.ring import ONE, ZERO, ExpPoly, read_number
from klsym.kernel.slots import SEQUENCE, is_second, name_in_slot
from klsym.kernel.statements import Context, Curl, Gradient, Mean, MeanGradient, Side, walk_atoms
from klsym.kernel.sums import apply_parts_of_a_sum
from klsym.study.rocq.names import (
    Instance,
    list_region_instances,
    list_slopes,
    write_cell_facts,
    write_crossings,
    write_definition,
    write_logs,
    write_slopes,
)
from klsym.study.rocq.terms import GIVEN, SLOTS, Outside, Words, name_base, place, write_list, write_rational

Bodies = dict[str, list[dict[str, Any]]]  # digest -> the parts that are cited by it
Place = tuple[str, int]  # a digest, and the number of a part
KNOWN = {  # hypotheses that a script tells, or that finite settings satisfy
    "support", "exchange", "exists", "ends", "batch", "nonzero", "positive", "nonnegative", "equal",
    "premise", "lipschitz", "off", "apart", "away", "fact", "above",
}  # fmt: skip


def write_script(part: dict[str, Any], known: Bodies) -> str:
    """The script of one part, those that it cites included.

    Raises Outside: what the verified checker does not reach.
    """
    assumed = Assumed.from_part(part)
    field = _find_curl(part)
    if field is not None and part["close"]["by"] == "finite model":
        at, loss = (
            assumed.words.place(field.index, field.measure).split(),
            assumed.words.write_element(field.loss),
        )
        model = assumed.write_model(part["close"]["model"])
        if assumed.words.defined:
            raise Outside("the curl of a field with names")
        return f"Script {assumed.write_assumptions()}\n [] (Curled {at[1]} {at[0]} {loss}\n {model})"
    if _has_second_direction(part):
        return assumed.write_crossed(part)
    places = _list_cited(part, known)
    parts = [known[digest][number] for digest, number in places] + [part]
    terms = [assumed.write_part(body, places) for body in parts]  # before the names in them are defined
    of_samples = [fact for fact in assumed.facts if not fact.startswith("AtLeastZero")]
    if of_samples and part["close"]["by"] != "equality":
        raise Outside("a model of which facts are assumed")
    return f"Script {assumed.write_assumptions()}\n {write_list(terms)}\n {assumed.write_ending(part)}"


def _list_cited(part: dict[str, Any], known: Bodies) -> list[Place]:
    """What a part cites, each before those that cite it."""
    places: list[Place] = []
    for step in part["steps"]:
        cited_part = step["data"].get("of")
        if step["rule"] == "equation" and isinstance(cited_part, list):
            digest, number = cited_part
            for place in (*_list_cited(known[digest][number], known), (digest, number)):
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
    hypotheses: list[Any]
    facts: dict[str, None] = field(default_factory=dict)  # of samples, as steps need them

    @staticmethod
    def from_part(part: dict[str, Any]) -> Assumed:
        hypotheses = part["hypotheses"]
        context = Context.from_json(part["context"])
        positive = tuple(h[1] for h in hypotheses if h[0] == "positive")
        nonzero = frozenset([*positive, *(h[1] for h in hypotheses if h[0] == "nonzero")])
        if any(h[0] == "generic" for h in hypotheses):
            raise Outside("isolated values of parameters")
        if unknown := sorted({h[0] for h in hypotheses} - KNOWN):
            raise Outside(f"the hypothesis {unknown[0]}")
        assumed = Assumed(
            Words(context, nonzero, has_model=part["close"]["by"] == "finite model"),
            equal=tuple((h[0], h[1], h[2]) for h in hypotheses if h[0] in ("equal", "premise")),
            positive=positive,
            regions=tuple((h[1], h[2]) for h in hypotheses if h[0] == "nonnegative"),
            batch="n" in part["context"]["parameters"] and any(h[0] == "batch" for h in hypotheses),
            hypotheses=hypotheses,
        )
        if context.facts and part["close"]["by"] != "equality":  # a model is to satisfy them
            assumed.assume_facts()
        return assumed

    def assume_facts(self) -> None:
        """Assume what is said of parameters, which is the same at every sample."""
        for fact in self.words.context.facts:
            if not self.words.context.is_constant(fact):
                raise Outside("a model of which facts are assumed")
            self.facts[f"AtLeastZero Mq Single {self.words.write_element(fact)}"] = None

    def write_assumptions(self) -> str:
        """The assumptions: premises here, premises for every theta, positive parameters, regions."""
        words = self.words
        local_premises, always = [], []
        for kind, premise_left, right in self.equal:
            sides = (Side.from_json(premise_left), Side.from_json(right))
            if kind == "equal":
                local_premises.append("({}, {})".format(*map(words.write_side, sides)))
            else:
                always.append("({}, {})".format(*map(words.write_combination, sides)))
        positive = write_list(str(words.context.parameters.index(name)) for name in self.positive)
        regions = write_list(
            f"({place(m)}, {words.write_element(ExpPoly.from_json(a))})" for m, a in self.regions
        )
        premises = f"{write_list(local_premises)} {write_list(always)} {self.name_batch_size()}"
        names = f"{words.write_definitions()} {write_list(self.facts)}"
        return f"(Assume (Premises {premises} {names}) {positive} {regions})"

    def write_crossed(self, part: dict[str, Any]) -> str:
        """A script of two directions: a model in which the sides differ as they are stated."""
        if part["close"]["by"] != "finite model":
            raise Outside("a second direction")
        sides = [Side.from_json(part[name]) for name in ("left", "right")]
        if any(not isinstance(atom, Mean) or atom.index not in ("", "t") for atom in walk_atoms(*sides)):
            raise Outside("a second direction in a batch")
        text = f"(Part {' '.join(map(self.words.write_side, sides))} Equal []\n  [])"
        model = self.write_model(part["close"]["model"])
        return f"Script {self.write_assumptions()}\n [{text}]\n (Crossed {model})"

    def name_batch_size(self) -> str:
        """The parameter that is the size of a batch, where a theorem speaks of one."""
        if not self.batch:
            return "None"
        return (
            f"(Some ({self.words.context.parameters.index('n')}, {str('n' in self.words.nonzero).lower()}))"
        )

    def _number_premise(self, kind: str, premise: Any) -> int:
        same_kind = [(premise_left, right) for k, premise_left, right in self.equal if k == kind]
        premise_left, right = (Side.from_json(side).to_json() for side in premise)
        return same_kind.index((premise_left, right))

    def write_part(self, part: dict[str, Any], places: list[Place]) -> str:
        """Both sides, the rows, and the zeros that bridge the two."""
        words, close = self.words, part["close"]
        sides = {name: Side.from_json(part[name]) for name in ("left", "right")}
        sides_text = " ".join(words.write_side(side) for side in sides.values())
        rows = [self.write_row(row) for row in close.get("rows", [])]
        for row in close.get("rows", []):
            sides["left"] += read_row(row, Assumptions(words.context))[0]
        zeros = []
        for step in part["steps"]:
            zeros += self.write_step(step, sides[step["side"]], part["context"], places)
            sides[step["side"]] = Side.from_json(step["result"])
        relation = {"=": "Equal", "<=": "AtMost"}[part["relation"]]
        return f"(Part {sides_text} {relation} {write_list(rows)}\n  {write_list(zeros)})"

    def write_step(
        self, step: dict[str, Any], side: Side, context: dict[str, Any], places: list[Place]
    ) -> list[str]:
        """What one step adds: nothing (linearity, which the normal form does), or one zero."""
        sign = ONE * (1 if step["side"] == "right" else -1)
        rule, data = step["rule"], step["data"]
        if rule == "equation":
            times = Side.as_written(data["times"]) * sign
            return [f"({self.words.write_side(times)}, {self._write_equation(data, context, places)})"]
        coefficient, atoms = side.terms[step["term"]]
        atom = atoms[step["factor"]]
        others = atoms[: step["factor"]] + atoms[step["factor"] + 1 :]
        multiple = {n: self.words.write_side(Side(((n * sign * coefficient, others),))) for n in (1, -1)}
        return [f"({multiple[n]}, {instance})" for n, instance in self._list_instances(rule, data, atom)]

    def _write_equation(self, data: dict[str, Any], context: dict[str, Any], places: list[Place]) -> str:
        if isinstance(data["of"], list):
            return f"Cited {places.index(tuple(data['of']))}"
        premise = context["premises"][data["of"]]
        if data["gradient"]:
            return f"PremiseGradient {self._number_premise('premise', premise)}"
        return f"Premise {self._number_premise('equal', premise)}"

    def _list_instances(self, rule: str, data: dict[str, Any], atom: Any) -> list[Instance]:
        """Instances of a rule that together change an atom as a step does, some of them backwards."""
        words = self.words
        if isinstance(atom, MeanGradient):
            at = words.place(atom.index, atom.measure)
            self.facts.update(dict.fromkeys(write_slopes(atom, words, self.hypotheses)))
            return [(1, f"ChainRule {at} {words.write_element(atom.loss)}"), *list_slopes(atom, words)]
        if isinstance(atom, Gradient):
            facts = write_crossings(atom, words, self.hypotheses) + write_slopes(atom, words, self.hypotheses)
            self.facts.update(dict.fromkeys(facts))
            return [(1, f"LogDerivative {words.write_combination(atom.of)}")]
        if not isinstance(atom, Mean):
            raise Outside("the curl of a field")
        part = ExpPoly.from_json(data["part"]) if "part" in data else atom.coefficient
        mean = Mean(atom.index, atom.measure, part, atom.score)
        words.mean(mean)
        match rule:
            case "linearity":
                return []
            case "independence":
                return self._list_independence(mean)
            case "parts of a sum":
                changed_side = apply_parts_of_a_sum(mean, data, Assumptions(words.context))
                others = [
                    (-1, part_mean)
                    for _, atoms in changed_side.terms
                    for part_mean in atoms
                    if isinstance(part_mean, Mean)
                ]
                return [(n, f"PartsOfASum {words.mean(part_mean)}") for n, part_mean in [(1, mean), *others]]
            case "sum over t":
                return [(1, self._sum_over_t(mean, data["of"]))]
            case "region":
                self.facts.update(dict.fromkeys(write_cell_facts(data, mean, words, self.hypotheses)))
                return list_region_instances(data, mean, words)
            case "definition":
                logs = write_logs({data["name"]}, mean, words, self.hypotheses)
                self.facts.update(dict.fromkeys(logs))
                return [(1, write_definition(data, mean, words))]
            case "exchange of sums":
                return [self._exchange(mean, data["now"], data["other"], data["slot"])]
        return [(1, self._on_mean(rule, data, mean))]

    def _list_independence(self, mean: Mean) -> list[Instance]:
        """One instance a term."""
        words = self.words
        for name in mean.coefficient.names() - {*words.context.parameters}:
            parsed = parse_name(name)
            if parsed.base == "length" and parsed.slot not in ("x", *SEQUENCE):
                raise Outside("a length in a batch")
        at = words.place(mean.index, mean.measure)
        terms = sorted(mean.coefficient.terms.items())
        return [
            (1, f"Independence {at} ({words.write_term(key, value, mean.score)})") for key, value in terms
        ]

    def _sum_over_t(self, mean: Mean, of: str) -> str:
        """E_m[a V] = E_m[sum_t a V_t], told by V and a."""
        reduced_mean = remove_factor(mean, of, "x")
        element = self.words.write_element(reduced_mean.coefficient, reduced_mean.score)
        return f"SumOverSteps {place(mean.measure)} {name_base(of)} {element}"

    def _exchange(self, mean: Mean, x: str, y: str, slot: str) -> Instance:
        """sum_t X_t sum_{u>t} Y_u = sum_u Y_u sum_{t<u} X_t, backwards where Y is past."""
        reduced_mean = remove_factor(remove_factor(mean, x, "now"), y, slot)
        n, first, second = (1, x, y) if slot == "future" else (-1, y, x)
        at = self.words.place(mean.index, mean.measure)
        element_text = self.words.write_element(reduced_mean.coefficient, reduced_mean.score)
        return n, f"Exchange {at} {name_base(first)} {name_base(second)} {element_text}"

    def _on_mean(self, rule: str, data: dict[str, Any], mean: Mean) -> str:
        words, index = self.words, self.words.place(mean.index, mean.measure).split()[0]
        slot = SLOTS.get(data.get("slot", ""), "")
        if rule == "stop-gradient":
            return f"StopGradient {words.mean(mean)}"
        if rule == "change of measure":
            element = words.write_element(mean.coefficient, mean.score)
            return f"ChangeOfMeasure {index} {place(mean.measure)} {place(data['to'])} {element}"
        if rule == "score mean zero":
            score = list(mean.score)
            score.remove(data["slot"])
            return f"ScoreMeanZero {index} {slot} {words.write_element(mean.coefficient, tuple(score))}"
        if rule == "normalisation":
            return f"Normalisation {words.mean(mean)}"
        if rule == "ratio mean one":
            ratio = move_to_slot(build_density_ratio(mean.measure, data["of"]), data["slot"], words.context)
            element_text = words.write_element(mean.coefficient * ratio, mean.score)
            return f"RatioMeanOne {index} {slot} {place(mean.measure)} {place(data['of'])} {element_text}"
        raise Outside(f"the rule {rule}")

    def write_row(self, row: dict[str, Any]) -> str:
        """What is never negative."""
        words = self.words
        index, measure = row["at"]
        scale, factor, v, bounded = (ExpPoly.from_json(row[key]) for key in ("scale", "factor", "v", "of"))
        at = self.words.place(index, measure)
        kind = row["kind"].capitalize()
        if kind == "Square":
            region = "None"
            if "nonnegative" in row:
                nonnegative = ExpPoly.from_json(row["nonnegative"]).to_json()  # as hypotheses are written
                region = f"(Some {self.regions.index((measure, nonnegative))})"
            kind = f"(Square {region})"
        [(key, value)] = scale.terms.items()
        row_text = (
            f"({words.write_term(key, value)}) {words.write_element(factor)} {at} {words.write_element(v)}"
        )
        return f"Row {kind} {row_text} {words.write_element(bounded, tuple(row['score']))}"

    def write_ending(self, part: dict[str, Any]) -> str:
        """How the script ends: proved, a model that refutes its last part, or the only solutions."""
        close = part["close"]
        if close["by"] == "equality":
            return "Proved"
        if close["by"] == "finite model":
            return f"(Refuted {self.write_model(close['model'])})"
        if close["by"] == "completeness":
            return self.write_family(part)
        if close["by"] == "independence":
            return self.write_witness(part)
        raise Outside(f"the closing {close['by']}")

    def write_family(self, part: dict[str, Any]) -> str:
        """The coefficient c of E_q[c s] = 0, and the family of functions of k1 that make it constant."""
        close = part["close"]
        along = {"k1": "false", "w": "true"}.get(close["coordinate"])
        if along is None:
            raise Outside(f"a condition along {close['coordinate']}")
        k1, constants = ExpPoly.from_variable("k1"), close["constants"]
        free = sum((ExpPoly.from_variable(a) * k1**i for i, a in enumerate(constants)), ZERO)
        known_part = ExpPoly.from_json(close["family"]) - free
        c = _find_score_coefficient(part)
        if any(parse_name(name).base == "o" for name in c.names()):
            raise Outside("a condition on a coefficient with a further policy")
        numbers = write_list(str(self.words.context.parameters.index(name)) for name in constants)
        element_texts = [
            self.words.write_element(a) for a in (c, ExpPoly.from_json(close["unit"]), known_part)
        ]
        first, unit, known = element_texts
        return f"(Unique (Family {first} {along} {unit} {close['order']} {known} {numbers}))"

    def write_witness(self, part: dict[str, Any]) -> str:
        """The coefficient c of E_q[c s], and derivatives that leave one term of it, none of 1, k1 and r.

        Those along w are taken where old = mu: along the log ratio to either.
        """
        c, context = _find_score_coefficient(part), self.words.context

        def derive(a: ExpPoly, coordinate: str) -> ExpPoly:
            along_old = differentiate(a, "o", context) if coordinate == "w" else ZERO
            return differentiate(a, coordinate, context) + along_old

        further = [m for n in range(5) for m in product(("k1", "w"), repeat=n)]
        for along_w, further_coordinates in product((True, False), further):
            a = c
            for coordinate in ("w",) if along_w else ("k1", "k1"):
                a = derive(a, coordinate)
            a = a if along_w else a + derive(a, "k1")
            for coordinate in further_coordinates:
                a = derive(a, coordinate)
            if len(a.terms) == 1 and all({n for n, _ in m} <= self.words.nonzero for m, _ in a.terms):
                coordinate_list = write_list(
                    str(coordinate == "w").lower() for coordinate in further_coordinates
                )
                element = self.words.write_element(c)
                return f"(Independent (Witness {element} {str(along_w).lower()} {coordinate_list}))"
        raise Outside("a coefficient of which no derivative is a single term")

    def write_model(self, model: dict[str, Any]) -> str:
        nodes = write_list(
            f"({write_list(map(str, prefix))}, {write_node(data)})"
            for prefix, data in _iterate_nodes(model["tree"], ())
        )
        parameters = write_numbers(
            [model["parameters"].get(name, "1") for name in self.words.context.parameters]
        )
        path = write_list(map(str, model["path"] or [0]))
        return f"(Model {nodes}\n  {path} {parameters})"


def _find_curl(part: dict[str, Any]) -> Curl | None:
    """The field of which a part says that its curl is not 0."""
    match Side.from_json(part["left"]).terms:
        case ((c, (Curl() as field,)),) if c == ONE and part["right"] == [] and part["relation"] == "=":
            return field
    return None


def _has_second_direction(part: dict[str, Any]) -> bool:
    """Does a part speak of score functions along a second direction?"""
    atoms = walk_atoms(*(Side.from_json(part[name]) for name in ("left", "right")))
    return any(is_second(entry) for atom in atoms if isinstance(atom, Mean) for entry in atom.score)


def _find_score_coefficient(part: dict[str, Any]) -> ExpPoly:
    """The coefficient c of what a part has become, E_q[c s] = 0."""
    left_side = [part["left"], *(step["result"] for step in part["steps"] if step["side"] == "left")][-1]
    return read_score_coefficient(Side.from_json(left_side), Side())


def remove_factor(mean: Mean, name: str, slot: str) -> Mean:
    """A mean less one factor of a slot; the length of a step is 1."""
    if name == "s":
        score = list(mean.score)
        score.remove(slot)
        return Mean(mean.index, mean.measure, mean.coefficient, tuple(score))
    is_step_length = (name, slot) == ("length", "now")
    factor = ONE if is_step_length else ExpPoly.from_variable(name_in_slot(name, slot)).invert()
    return Mean(mean.index, mean.measure, mean.coefficient * factor, mean.score)


def _iterate_nodes(tree: Any, prefix: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], Any]]:
    """The nodes of a tree, each with the branches that lead to it."""
    yield prefix, tree
    for branch, after in enumerate(tree["next"]):
        if after is not None:
            yield from _iterate_nodes(after, (*prefix, branch))


def write_node(tree: Any) -> str:
    """Next-token probabilities, two directions of logits, rewards; p for a further policy not told."""
    told = {"old": tree["p"], **tree}
    rows = " ".join(write_numbers(told[name]) for name in ("q", "p", "mu", "old", "u", "v"))
    nothing = ["0"] * len(tree["q"])
    return f"Node {rows} {write_list(write_numbers(tree['rewards'].get(name, nothing)) for name in GIVEN)}"


def write_numbers(texts: list[str]) -> str:
    return write_list(write_rational(read_number(text)) for text in texts)
