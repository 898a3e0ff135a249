"""Names of the author's own in scripts: what is assumed of regions, and instances of the rules on names."""

from __future__ import annotations

from typing import Any

from klsym.kernel.definitions import LET, LOG, REGION
from klsym.kernel.derivatives import attach, is_live, list_moving_names
from klsym.kernel.names import parse_name
from klsym.kernel.regions import list_moving_regions
from klsym.kernel.ring import ONE, ZERO, ExpPoly
from klsym.kernel.statements import Gradient, Mean, MeanGradient
from klsym.study.rocq.terms import Outside, Words, write_list

Instance = tuple[int, str]  # 1, or -1 for an instance that is used backwards, and the instance of a rule
CROSSING = ("off", "apart")  # hypotheses, each of which says that no sample crosses the bound of a region


def write_crossings(atom: Gradient, words: Words, hypotheses: list[Any]) -> list[str]:
    """That no sample crosses the bounds of the regions in means whose gradient is taken, as hypotheses say.

    The checker asks less of it than the kernel: that no region changes at a sample, nothing of e itself.
    """
    context, facts = words.context, list[str]()
    for mean in (mean for _, atoms in atom.of.terms for mean in atoms if isinstance(mean, Mean)):
        for name in sorted(list_moving_regions(mean.coefficient, context)):
            e = context.find_definition(name)
            assert e is not None
            if not any(h[0] in CROSSING and h[1:] == [mean.measure, e.to_json()] for h in hypotheses):
                raise Outside("a region whose bound may be crossed")
            facts.append(
                f"Settled {_swap(words.place(mean.index, mean.measure))} ({words.write_variable(name)})"
            )
    return facts


def write_logs(names: set[str], at: Mean | MeanGradient, words: Words, hypotheses: list[Any]) -> list[str]:
    """That e > 0 at each sample for l = log(e), where a hypothesis says so; elsewhere the checker sees it."""
    arguments = (words.context.find_definition(name, LOG) for name in sorted(names))
    positive = [e for e in arguments if e is not None and ["above", at.measure, e.to_json()] in hypotheses]
    return [f"Positive {_swap(words.place(at.index, at.measure))} {words.write_element(e)}" for e in positive]


def write_slopes(atom: Gradient | MeanGradient, words: Words, hypotheses: list[Any]) -> list[str]:
    """The same of the logs that move in what is differentiated."""
    if isinstance(atom, MeanGradient):
        return write_logs(list_moving_names(atom.loss, words.context), atom, words, hypotheses)
    means = [mean for _, atoms in atom.of.terms for mean in atoms if isinstance(mean, Mean)]
    return [
        fact
        for mean in means
        for fact in write_logs(list_moving_names(mean.coefficient, words.context), mean, words, hypotheses)
    ]


def _swap(place: str) -> str:
    """
    >>> _swap("Single Mq")
    'Mq Single'
    """
    index, measure = place.split()
    return f"{measure} {index}"


# ---------------------------------------------------------------------------- slopes of logs and elements
def list_slopes(atom: MeanGradient, words: Words) -> list[Instance]:
    """What replaces the slopes that a chain rule leaves: e' exp(-l) for l = log(e), and e' for v = e."""
    at = words.place(atom.index, atom.measure)
    return _list_slopes(atom.loss, ONE, at, words)


def _list_slopes(loss: ExpPoly, times: ExpPoly, at: str, words: Words) -> list[Instance]:
    instances, context = list[Instance](), words.context
    for name in sorted(loss.names()):
        e = context.find_definition(name, LOG, LET)
        plain = ExpPoly.from_variable(parse_name(name).base)
        if (
            e is None
            or parse_name(name).detached
            or not context.is_sample(name)
            or not is_live(plain, context)
        ):
            continue
        factor = times * attach(loss.derive(lambda n, name=name: ONE if n == name else ZERO))  # type: ignore[misc]
        instances.append((1, f"NameSlope {at} {_locate(name, words)} {words.write_element(factor)}"))
        is_log = context.find_definition(name, LOG) is not None
        inner = factor * ((-ExpPoly.from_variable(name)).exp() if is_log else ONE)
        instances += _list_slopes(e, inner, at, words)
    return instances


# ---------------------------------------------------------------------------- what names stand for, and cells
def write_definition(data: dict[str, Any], mean: Mean, words: Words) -> str:
    """E_m[b (e exp(-l) - 1)] = 0, or E_m[b (v - e)] = 0."""
    name, times = data["name"], ExpPoly.from_json(data["times"])
    place = _locate(name, words)
    case = words.write_variable(name).split()[-2]
    element = words.write_element(times, mean.score)
    return f"ByDefinition {words.place(mean.index, mean.measure)} {place} {case} {element}"


def _locate(name: str, words: Words) -> str:
    """Where a name speaks, and its number, as `[Now; Future] 0`."""
    if not words.context.is_sample(name):
        raise Outside("what a name of parameters stands for")
    variable = words.write_variable(name)
    return f"{variable[variable.index('[') : variable.index(']') + 1]} {words.number(name)}"


def list_region_instances(data: dict[str, Any], mean: Mean, words: Words) -> list[Instance]:
    """E_m[b P x] = 0 for the product P of a cell, and E_m[a] with B for each B^n."""
    x, times = (ExpPoly.from_json(data[key]) for key in ("of", "times"))
    for name in sorted(mean.coefficient.names() | times.names()):
        if words.context.find_definition(name, REGION) is not None:
            _locate(name, words)
    product = times * x
    for name, value in data["cell"].items():
        indicator = ExpPoly.from_variable(name)
        product = product * (indicator if value else 1 - indicator)
    at, changed = words.place(mean.index, mean.measure), mean.coefficient - product
    instances = [(1, f"Indicators {at} {words.write_element(changed, mean.score)}")]
    if times:
        rows = write_list(_write_cell_row(row, data["cell"], words) for row in data["rows"])
        cell = write_list(_write_choice(name, value, words) for name, value in data["cell"].items())
        b = words.write_element(times, mean.score)
        instances.append((1, f"InCell {at} {b} {words.write_element(x)} {cell} {rows}"))
    return instances


def _write_choice(name: str, value: int, words: Words) -> str:
    return f"(Choose {_locate(name, words)} {'true' if value else 'false'})"


def _write_cell_row(row: dict[str, Any], cell: dict[str, int], words: Words) -> str:
    weight, square, tangent = (ExpPoly.from_json(row[key]) for key in ("weight", "square", "tangent"))
    [(key, value)] = weight.terms.items()
    bounds = write_list(
        f"Fact {words.write_element(words.context.facts[factor])}"
        if isinstance(factor, int)
        else f"Of {_write_choice(factor, cell[factor], words)}"
        for factor in row["factors"]
    )
    elements = " ".join(map(words.write_element, (square, tangent)))
    return f"(CellRow ({words.write_term(key, value)}) {bounds} {elements})"


def write_cell_facts(data: dict[str, Any], mean: Mean, words: Words, hypotheses: list[Any]) -> list[str]:
    """What a step in a cell assumes of samples: that e is not 0, facts, and that parameters are positive."""
    at, context = _swap(words.place(mean.index, mean.measure)), words.context

    def require(*hypothesis: Any) -> None:
        if [*hypothesis] not in hypotheses:
            raise Outside(f"what is not recorded: {hypothesis[0]}")

    facts = []
    for name in data["apart"]:
        e = context.find_definition(name, REGION)
        assert e is not None
        require("away", mean.measure, e.to_json())
        facts.append(f"Apart {at} {words.write_element(e)}")
    for row in data["rows"]:
        for factor in (factor for factor in row["factors"] if isinstance(factor, int)):
            require("fact", context.facts[factor].to_json())
            facts.append(f"AtLeastZero {at} {words.write_element(context.facts[factor])}")
        weight = ExpPoly.from_json(row["weight"])
        odd = {name for monomial, _ in weight.terms for name, power in monomial if power % 2}
        for name in sorted(odd & {*context.parameters}):
            require("positive", name)
            facts.append(f"Above {context.parameters.index(name)}")
    return facts
