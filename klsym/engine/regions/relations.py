"""Relations between regions and logs, each as a step of the kernel's rules.  Untrusted.

A region is 1 where e > 0 and 0 elsewhere.  That a choice of regions and complements is met by no sample is
shown by rows that are at least 0 there and add up to 0, one of them positive; on two regions

    (1, 1) impossible    B C = 0              (1, 0) impossible    B C = B
    (0, 0) impossible    B C = B + C - 1      both (1, 1) and (0, 0): C = 1 - B

and where neither v > 0 nor -v > 0, v is 0: v = v [v > 0] + v [-v > 0], where that leaves fewer terms.
Relations of logs are in `logs`.  `reduce_by_relations` applies all relations until none changes the element;
where no certificate is found, regions stay as they are.

>>> from klsym.kernel.ring import ExpPoly as E
>>> from klsym.kernel.definitions import Definition
>>> w, A = E.from_variable("w").exp(), E.from_variable("A")
>>> high, low = Definition("high", REGION, w - 2), Definition("low", REGION, 1 - w)
>>> context = Context(definitions=(high, low))
>>> up, down = E.from_variable("high"), E.from_variable("low")
>>> reduce_by_relations(up * (down + A), context) == up * A
True
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache
from itertools import chain, combinations, product
from typing import Any

from klsym.engine.regions.logs import divide_exactly, find_log_step
from klsym.engine.regions.positivity import find_positive_sum
from klsym.engine.regions.root_isolation import find_joint_signs
from klsym.kernel.definitions import REGION
from klsym.kernel.derivatives import is_live
from klsym.kernel.names import LOG_RATIOS
from klsym.kernel.regions import list_moving_regions, reduce_powers
from klsym.kernel.ring import ONE, ZERO, ExpPoly, Key, Number
from klsym.kernel.statements import Context
from klsym.language.convert import to_ring

Data = dict[str, Any]
Step = tuple[str, Data, ExpPoly]
Cell = dict[str, int]
Proposal = tuple[Cell, ExpPoly, ExpPoly, list[Data], bool]  # cell, of, times, rows, apart
MAX_STEPS = 200


def reduce_by_relations(
    element: ExpPoly,
    context: Context,
    has_gradient: bool = True,
    off_bounds: bool = False,
    roots: bool = False,
) -> ExpPoly:
    """Reduce the element to its last form.

    has_gradient: it is yet to be differentiated.  off_bounds: no sample lies on a bound.
    roots: regions also exclude each other by isolated zeros, for which there is no theorem.
    """
    for _ in range(MAX_STEPS):
        step = find_next_step(element, context, has_gradient, off_bounds, roots=roots)
        if step is None:
            break
        element = step[2]
    return element


@lru_cache(maxsize=4096)
def find_next_step(
    element: ExpPoly,
    context: Context,
    has_gradient: bool,
    off_bounds: bool = False,
    roots: bool = False,
    apart: bool = False,
) -> Step | None:
    """Return the first relation that changes the element; off_bounds: no sample need lie on a bound.

    apart: of two opposite regions that depend on theta one holds, as no sample lies on their bound.
    """
    plain = reduce_powers(element, context)
    if plain != element:
        return "region", _build_data({}, ONE, ZERO, []), plain
    if (step_of_log := find_log_step(element, context, has_gradient)) is not None:
        return "definition", *step_of_log
    regions = (name for name in element.names() if context.find_definition(name, REGION) is not None)
    names = sorted(regions, reverse=True)
    proposals = _iterate_proposals(element, names, context, has_gradient, roots=roots)
    ties = _iterate_ties(element, names, context) if apart and not has_gradient else iter(())
    for cell, factor, multiplier, rows, is_apart in chain(proposals, ties):
        if multiplier and (off_bounds or not is_apart):
            vanishing = multiplier * factor
            for name, value in cell.items():
                region = ExpPoly.from_variable(name)
                vanishing = vanishing * (region if value else 1 - region)
            remainder = reduce_powers(element - vanishing, context)
            return "region", _build_data(cell, factor, multiplier, rows, apart=is_apart), remainder
    return None


def _build_data(
    cell: Cell, factor: ExpPoly, multiplier: ExpPoly, rows: list[Data], apart: bool = False
) -> Data:
    """Return the data of a region step; apart: no sample lies on the bounds of the regions that are 0."""
    bounds = [name for name, value in cell.items() if apart and not value]
    return {
        "cell": cell,
        "of": factor.to_json(),
        "times": multiplier.to_json(),
        "rows": rows,
        "apart": bounds,
    }


def _iterate_proposals(
    element: ExpPoly, names: list[str], context: Context, has_gradient: bool, roots: bool
) -> Iterator[Proposal]:
    """Yield cells that are impossible, or in which a factor is 0, and their multiplier in the element."""
    for name in names:
        for value in (1, 0):
            if (rows := _prove_exclusion(((name, value),), context, roots)) is not None:
                cofactor = _find_cofactor(element, {name})
                yield {name: value}, ONE, cofactor if value else -cofactor, rows, False
        root = None if has_gradient else find_square_root(context.find_definition(name, REGION) or ZERO)
        if root and (g := divide_exactly(_find_cofactor(element, {name}), root)) is not None:
            yield {name: 0}, root, -g, [_build_row(ONE, [name])], False
    for first, second in combinations(names, 2):
        cofactor = _find_cofactor(element, {first, second})
        for a, b in product((1, 0), repeat=2) if cofactor else ():
            if (rows := _prove_exclusion(((first, a), (second, b)), context, roots)) is not None:
                yield {first: a, second: b}, ONE, cofactor if a == b else -cofactor, rows, False
        yield from _iterate_complements(
            element, first, second, context, has_gradient=has_gradient, roots=roots
        )
    for name in names if not has_gradient else ():
        e = context.find_definition(name, REGION)
        if e is not None and (proof := _prove_nonnegative(e, context)) is not None:
            if (
                g := divide_exactly(_find_cofactor(element, {name}), e)
            ) is not None:  # -e times what e is made of: -e^2
                rows = [{**row, "factors": [name, *row["factors"]]} for row in proof[0]]
                yield {name: 0}, e, -g, rows, False
            yield {name: 0}, ONE, -_find_cofactor(element, {name}), [_build_row(ONE, [name]), *proof[0]], True


def _iterate_complements(
    element: ExpPoly, first: str, second: str, context: Context, has_gradient: bool, roots: bool
) -> Iterator[Proposal]:
    """Propose 1 - B for C where the two are equal, or v (1 - B) for v C."""
    if not _is_opposite(first, second, context, roots):
        return
    v = context.find_definition(first, REGION)
    assert v is not None
    rows = _prove_exclusion(((first, 0), (second, 0)), context, roots)
    cofactor = _find_cofactor(element, {second})
    if rows is not None:
        yield {first: 0, second: 0}, ONE, -cofactor, rows, False
    elif not (has_gradient and is_live(v, context)):
        multiplier = (_choose_multiplier if len(v.terms) == 1 else _choose_sum_multiplier)(
            element, first, second, v
        )
        yield {first: 0, second: 0}, v, -multiplier, [_build_row(ONE, [first, second])], False


def _iterate_ties(element: ExpPoly, names: list[str], context: Context) -> Iterator[Proposal]:
    """Propose 1 - B for C, of opposite regions that depend on theta, where no sample lies on their bound."""
    for first, second in combinations(names, 2):
        e, opposite = (context.find_definition(name, REGION) or ZERO for name in (first, second))
        if e + opposite == ZERO and {first, second} <= list_moving_regions(element, context):
            rows = [_build_row(ONE, [first]), _build_row(ONE, [second])]
            yield {first: 0, second: 0}, ONE, -_find_cofactor(element, {second}), rows, True


@lru_cache(maxsize=1024)
def find_square_root(e: ExpPoly) -> ExpPoly | None:
    """Return x if e = x^2 for a sum x, which is 0 outside of the region; else None."""
    rows = find_positive_sum(e)
    if rows is None or rows.tangents or len(rows.squares) != 1:
        return None
    [row] = rows.squares
    x = to_ring(row["b"])
    return x if e == x * x and len(x.terms) > 1 else None


def _choose_multiplier(element: ExpPoly, first: str, second: str, v: ExpPoly) -> ExpPoly:
    """Return t for which a + t v (1 - B - C) has the fewest terms, where B C = 0."""
    groups: dict[Key, dict[str, Number]] = {}
    for (monomial, exponent), value in sorted(element.terms.items()):
        regions = [name for name, _ in monomial if name in (first, second)]
        term = ExpPoly({(tuple(item for item in monomial if item[0] not in regions), exponent): 1})
        if len(regions) < 2 and _has_factor(term, v):
            [key] = (term * v.invert()).terms
            groups.setdefault(key, {})["".join(regions)] = value
    multiples: dict[Key, Number] = {}
    lead = v.terms[min(v.terms)]
    for key, values in groups.items():
        a, b, c = (values.get(name, 0) for name in ("", first, second))
        t = min((0, -a, b, c), key=lambda t: sum(map(bool, (a + t, b - t, c - t))))
        if t:
            multiples[key] = t / lead if isinstance(t, Fraction) else Fraction(t) / lead
    return ExpPoly({key: t if t.denominator > 1 else t.numerator for key, t in multiples.items()})


def _choose_sum_multiplier(element: ExpPoly, first: str, second: str, v: ExpPoly) -> ExpPoly:
    """Return the same for a sum v that divides the whole cofactor of B or C."""
    both = 1 - ExpPoly.from_variable(first) - ExpPoly.from_variable(second)
    for name in (second, first):
        t = divide_exactly(_find_cofactor(element, {name}), v)
        if t and len((element + t * v * both).terms) < len(element.terms):
            return t
    return ZERO


def _is_opposite(first: str, second: str, context: Context, roots: bool) -> bool:
    return _prove_exclusion(((first, 1), (second, 1)), context, roots) is not None and (
        context.find_definition(first, REGION) == -(context.find_definition(second, REGION) or ZERO)
        or _prove_exclusion(((first, 0), (second, 0)), context, roots) is not None
    )


def _has_factor(term: ExpPoly, v: ExpPoly) -> bool:
    """Is the monomial v a factor of a term?"""
    [(monomial, _)] = term.terms
    [(inner, exponent)] = v.terms
    powers = dict(monomial)
    return not exponent and bool(inner) and all(powers.get(name, 0) >= power > 0 for name, power in inner)


def _find_cofactor(element: ExpPoly, names: set[str]) -> ExpPoly:
    """Return the sum that multiplies the product of some regions."""
    terms = {}
    for (monomial, exponent), value in sorted(element.terms.items()):
        if names <= {name for name, _ in monomial}:
            terms[tuple(item for item in monomial if item[0] not in names), exponent] = value
    return ExpPoly(terms)


# ---------------------------------------------------------------------------- continuity
def find_continuous_regions(element: ExpPoly, context: Context) -> dict[str, ExpPoly]:
    """Return region -> g for regions that depend on theta, if the element jumps by g e at e = 0."""
    quotients: dict[str, ExpPoly] = {}
    if any(list_moving_regions(context.find_definition(name) or ZERO, context) for name in element.names()):
        return quotients
    for name in sorted(list_moving_regions(element, context)):
        e = context.find_definition(name, REGION)
        assert e is not None
        up, down = (element.substitute({name: value}) for value in (ONE, ZERO))
        g = divide_exactly(reduce_powers(up - down, context), e)
        if g is not None:
            quotients[name] = g
    return quotients


def has_jump(element: ExpPoly, context: Context) -> bool:
    """Is there a bound at which the element is not known to be continuous?"""
    return list_moving_regions(element, context) != set(find_continuous_regions(element, context))


# ---------------------------------------------------------------------------- certificates
def _prove_exclusion(cell: tuple[tuple[str, int], ...], context: Context, roots: bool) -> list[Data] | None:
    """Return rows that exclude the cell; an empty list where isolated zeros alone do."""
    rows = prove_impossible(cell, context)
    return [] if rows is None and roots and _is_never_met(cell, context) else rows


def _is_never_met(cell: tuple[tuple[str, int], ...], context: Context) -> bool:
    """Is the cell empty except for zeros, by the signs of functions of one log ratio?"""
    elements = tuple(context.find_definition(name, REGION) or ZERO for name, _ in cell)
    joint_signs = find_joint_signs(elements) if all(e.names() <= {*LOG_RATIOS} for e in elements) else None
    wanted = tuple(1 if value else -1 for _, value in cell)
    return joint_signs is not None and wanted not in joint_signs


@lru_cache(maxsize=16384)
def prove_impossible(cell: tuple[tuple[str, int], ...], context: Context) -> list[Data] | None:
    """Return rows that add up to 0 in the cell, one of them positive; None if none are found."""
    elements = [(context.find_definition(name, REGION) or ZERO, value) for name, value in cell]
    proof = find_contradiction(tuple((e if value else -e, bool(value)) for e, value in elements), context)
    if proof is None:
        return None
    scales, rows = proof
    return [_build_row(scale, [name]) for (name, _), scale in zip(cell, scales, strict=True)] + rows


@lru_cache(maxsize=16384)
def find_contradiction(
    signed: tuple[tuple[ExpPoly, bool], ...], context: Context
) -> tuple[tuple[ExpPoly, ...], list[Data]] | None:
    """Return multiples and rows that add up to 0, one of them positive; None if none are found.

    signed: elements that are above 0 (True) or at least 0 (False).
    """
    for scales in _iterate_scales([e for e, _ in signed]):
        gap = -sum((e * scale for (e, _), scale in zip(signed, scales, strict=True)), ZERO)
        proof = _prove_nonnegative(gap, context)
        if proof is None:
            continue
        rows, positive = proof
        if positive or any(strict for _, strict in signed):
            return scales, rows
    return None


def _iterate_scales(signed: list[ExpPoly]) -> Iterator[tuple[ExpPoly, ...]]:
    """Yield positive multiples with which a term of two elements cancels."""
    if len(signed) == 1:
        yield (ONE,)
        return
    first, second = signed
    tried = set()
    for key, value in first.terms.items():
        against = second.terms.get(key, 0)
        if value * against < 0 and key != ((), ()):
            scale = Fraction(-value) / against
            if scale not in tried:
                tried.add(scale)
                yield ONE, ExpPoly.from_number(scale)


def _prove_nonnegative(element: ExpPoly, context: Context) -> tuple[list[Data], bool] | None:
    """Return rows that add up to the element, and whether one of them is positive."""
    remainder, rows = element, []
    for number, fact in enumerate(context.facts):
        key = min(key for key, value in fact.terms.items() if value > 0 and key != ((), ()))
        scale = Fraction(remainder.terms.get(key, 0)) / fact.terms[key]
        if scale > 0:
            remainder = remainder - fact * scale
            rows.append(_build_row(ExpPoly.from_number(scale), [number]))
    if not remainder:
        return rows, False
    terms = find_positive_sum(remainder)
    if terms is None:
        return None
    for row in terms.squares:
        rows.append(_build_row(_compute_weight(row), [], square=to_ring(row["b"])))
    for row in terms.tangents:
        rows.append(_build_row(_compute_weight(row), [], tangent=to_ring(row["u"])))
    return rows, any(to_ring(row["b"]) == ONE for row in terms.squares)


def _compute_weight(row: Data) -> ExpPoly:
    return to_ring(row["scale"]) * to_ring(row["v"]).exp()


def _build_row(weight: ExpPoly, factors: list[Any], square: ExpPoly = ONE, tangent: ExpPoly = ZERO) -> Data:
    return {
        "weight": weight.to_json(),
        "factors": factors,
        "square": square.to_json(),
        "tangent": tangent.to_json(),
    }
