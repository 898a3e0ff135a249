"""Relations between regions and logs, each as a step of the kernel's rules.  Untrusted.

A region is 1 where e > 0 and 0 elsewhere.  That a choice of regions and complements is met by no sample is
shown by rows that are at least 0 there and add up to 0, one of them positive; on two regions

    (1, 1) impossible    B C = 0              (1, 0) impossible    B C = B
    (0, 0) impossible    B C = B + C - 1      both (1, 1) and (0, 0): C = 1 - B

and where neither v > 0 nor -v > 0, v is 0: v = v [v > 0] + v [-v > 0], where that leaves fewer terms.
Those of logs are in `logs`.  `reduced` brings an element into a form in which none of these is left to use;
where no certificate is found, regions stay as they are.

>>> from klsym.kernel.ring import ExpPoly as E
>>> from klsym.kernel.statements import Definition
>>> w, A = E.variable("w").exp(), E.variable("A")
>>> high, low = Definition("high", REGION, w - 2), Definition("low", REGION, 1 - w)
>>> context = Context(definitions=(high, low))
>>> reduced(E.variable("high") * (E.variable("low") + A), context) == E.variable("high") * A
True
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache
from itertools import combinations, product
from typing import Any

from klsym.engine.regions.logs import log_step, quotient
from klsym.engine.regions.positivity import positive_sum
from klsym.engine.regions.root_isolation import joint
from klsym.kernel.derivatives import is_live
from klsym.kernel.names import LOG_RATIOS
from klsym.kernel.regions import idempotent, moving_regions
from klsym.kernel.ring import ONE, ZERO, ExpPoly, Key, Number
from klsym.kernel.statements import REGION, Context
from klsym.language.convert import to_ring

Data = dict[str, Any]
Step = tuple[str, Data, ExpPoly]
Cell = dict[str, int]
Proposal = tuple[Cell, ExpPoly, ExpPoly, list[Data], bool]  # cell, of, times, rows, apart
MAX_STEPS = 200


def reduced(
    element: ExpPoly,
    context: Context,
    moving: bool = True,
    off_bounds: bool = False,
    roots: bool = False,
) -> ExpPoly:
    """The element in its last form; moving: it is yet to be differentiated; off_bounds: at no bound.

    roots: what excludes what is told by isolated zeros too, which no theorem follows.
    """
    for _ in range(MAX_STEPS):
        found = next_step(element, context, moving, off_bounds, roots)
        if found is None:
            break
        element = found[2]
    return element


@lru_cache(maxsize=4096)
def next_step(
    element: ExpPoly, context: Context, moving: bool, off_bounds: bool = False, roots: bool = False
) -> Step | None:
    """The first relation that changes the element; off_bounds: no sample need lie on a bound."""
    plain = idempotent(element, context)
    if plain != element:
        return "region", _data({}, ONE, ZERO, []), plain
    if (found := log_step(element, context)) is not None:
        return "definition", *found
    regions = (name for name in element.names() if context.defined(name, REGION) is not None)
    names = sorted(regions, reverse=True)
    for cell, of, times, rows, apart in _proposals(element, names, context, moving, roots):
        if times and (off_bounds or not apart):
            vanishing = times * of
            for name, value in cell.items():
                held = ExpPoly.variable(name)
                vanishing = vanishing * (held if value else 1 - held)
            left = idempotent(element - vanishing, context)
            return "region", _data(cell, of, times, rows, apart), left
    return None


def _data(cell: Cell, of: ExpPoly, times: ExpPoly, rows: list[Data], apart: bool = False) -> Data:
    """apart: no sample lies on the bounds of the regions that are 0."""
    bounds = [name for name, value in cell.items() if apart and not value]
    return {"cell": cell, "of": of.to_json(), "times": times.to_json(), "rows": rows, "apart": bounds}


def _proposals(
    element: ExpPoly, names: list[str], context: Context, moving: bool, roots: bool
) -> Iterator[Proposal]:
    """Cells that are impossible, or in which `of` is 0, and what multiplies them in the element."""
    for name in names:
        for value in (1, 0):
            if (rows := _excluded(((name, value),), context, roots)) is not None:
                beside = _beside(element, {name})
                yield {name: value}, ONE, beside if value else -beside, rows, False
        root = None if moving else square_root(context.defined(name, REGION) or ZERO)
        if root and (g := quotient(_beside(element, {name}), root)) is not None:
            yield {name: 0}, root, -g, [_row(ONE, [name])], False
    for one, other in combinations(names, 2):
        together = _beside(element, {one, other})
        for a, b in product((1, 0), repeat=2) if together else ():
            if (rows := _excluded(((one, a), (other, b)), context, roots)) is not None:
                yield {one: a, other: b}, ONE, together if a == b else -together, rows, False
        yield from _complements(element, one, other, context, moving, roots)
    for name in names if not moving else ():
        e = context.defined(name, REGION)
        if e is not None and (found := _nonnegative(e, context)) is not None:
            if (g := quotient(_beside(element, {name}), e)) is not None:  # -e times what e is made of: -e^2
                rows = [{**row, "factors": [name, *row["factors"]]} for row in found[0]]
                yield {name: 0}, e, -g, rows, False
            yield {name: 0}, ONE, -_beside(element, {name}), [_row(ONE, [name]), *found[0]], True


def _complements(
    element: ExpPoly, one: str, other: str, context: Context, moving: bool, roots: bool
) -> Iterator[Proposal]:
    """1 - B for C where that is so, or v (1 - B) for v C."""
    if not _opposite(one, other, context, roots):
        return
    v = context.defined(one, REGION)
    assert v is not None
    rows = _excluded(((one, 0), (other, 0)), context, roots)
    beside = _beside(element, {other})
    if rows is not None:
        yield {one: 0, other: 0}, ONE, -beside, rows, False
    elif not (moving and is_live(v, context)):
        added = (_added if len(v.terms) == 1 else _added_sum)(element, one, other, v)
        yield {one: 0, other: 0}, v, -added, [_row(ONE, [one, other])], False


@lru_cache(maxsize=1024)
def square_root(e: ExpPoly) -> ExpPoly | None:
    """x where e = x^2 for a sum x, which is 0 outside of the region."""
    rows = positive_sum(e)
    if rows is None or rows.tangents or len(rows.squares) != 1:
        return None
    [row] = rows.squares
    x = to_ring(row["b"])
    return x if e == x * x and len(x.terms) > 1 else None


def _added(element: ExpPoly, one: str, other: str, v: ExpPoly) -> ExpPoly:
    """t with the fewest terms in a + t v (1 - B - C), where B C = 0."""
    groups: dict[Key, dict[str, Number]] = {}
    for (monomial, exponent), value in sorted(element.terms.items()):
        held = [name for name, _ in monomial if name in (one, other)]
        term = ExpPoly({(tuple(item for item in monomial if item[0] not in held), exponent): 1})
        if len(held) < 2 and _holds(term, v):
            [key] = (term * v.inverse()).terms
            groups.setdefault(key, {})["".join(held)] = value
    found: dict[Key, Number] = {}
    lead = v.terms[min(v.terms)]
    for key, values in groups.items():
        a, b, c = (values.get(name, 0) for name in ("", one, other))
        t = min((0, -a, b, c), key=lambda t: sum(map(bool, (a + t, b - t, c - t))))
        if t:
            found[key] = t / lead if isinstance(t, Fraction) else Fraction(t) / lead
    return ExpPoly({key: t if t.denominator > 1 else t.numerator for key, t in found.items()})


def _added_sum(element: ExpPoly, one: str, other: str, v: ExpPoly) -> ExpPoly:
    """The same for a sum v: all of what stands beside B or C is a multiple of it."""
    both = 1 - ExpPoly.variable(one) - ExpPoly.variable(other)
    for name in (other, one):
        t = quotient(_beside(element, {name}), v)
        if t and len((element + t * v * both).terms) < len(element.terms):
            return t
    return ZERO


def _opposite(one: str, other: str, context: Context, roots: bool) -> bool:
    return _excluded(((one, 1), (other, 1)), context, roots) is not None and (
        context.defined(one, REGION) == -(context.defined(other, REGION) or ZERO)
        or _excluded(((one, 0), (other, 0)), context, roots) is not None
    )


def _holds(term: ExpPoly, v: ExpPoly) -> bool:
    """Is a variable a factor of a term?"""
    [(monomial, _)] = term.terms
    [(inner, exponent)] = v.terms
    powers = dict(monomial)
    return not exponent and bool(inner) and all(powers.get(name, 0) >= power > 0 for name, power in inner)


def _beside(element: ExpPoly, names: set[str]) -> ExpPoly:
    """What stands beside the product of some regions."""
    found = {}
    for (monomial, exponent), value in sorted(element.terms.items()):
        if names <= {name for name, _ in monomial}:
            found[tuple(item for item in monomial if item[0] not in names), exponent] = value
    return ExpPoly(found)


# ---------------------------------------------------------------------------- continuity
def continuity(element: ExpPoly, context: Context) -> dict[str, ExpPoly]:
    """region -> g where it moves with theta and the element changes by g e at e = 0."""
    found: dict[str, ExpPoly] = {}
    if any(moving_regions(context.defined(name) or ZERO, context) for name in element.names()):
        return found
    for name in sorted(moving_regions(element, context)):
        e = context.defined(name, REGION)
        assert e is not None
        up, down = (element.substitute({name: value}) for value in (ONE, ZERO))
        g = quotient(idempotent(up - down, context), e)
        if g is not None:
            found[name] = g
    return found


def jumping(element: ExpPoly, context: Context) -> bool:
    """Is there a bound at which it is not known to be continuous?"""
    return moving_regions(element, context) != set(continuity(element, context))


# ---------------------------------------------------------------------------- certificates
def _excluded(cell: tuple[tuple[str, int], ...], context: Context, roots: bool) -> list[Data] | None:
    """Rows that exclude the cell; none where zeros alone do."""
    found = impossible(cell, context)
    return [] if found is None and roots and _is_never_met(cell, context) else found


def _is_never_met(cell: tuple[tuple[str, int], ...], context: Context) -> bool:
    """Is the cell empty, but for zeros, as those of functions of one log ratio tell?"""
    elements = tuple(context.defined(name, REGION) or ZERO for name, _ in cell)
    found = joint(elements) if all(e.names() <= {*LOG_RATIOS} for e in elements) else None
    wanted = tuple(1 if value else -1 for _, value in cell)
    return found is not None and wanted not in found


@lru_cache(maxsize=16384)
def impossible(cell: tuple[tuple[str, int], ...], context: Context) -> list[Data] | None:
    """Rows that add up to 0 in the cell, one of them positive; None if none are found."""
    elements = [(context.defined(name, REGION) or ZERO, value) for name, value in cell]
    found = contradiction(tuple((e if value else -e, bool(value)) for e, value in elements), context)
    if found is None:
        return None
    scales, rows = found
    return [_row(scale, [name]) for (name, _), scale in zip(cell, scales, strict=True)] + rows


@lru_cache(maxsize=16384)
def contradiction(
    signed: tuple[tuple[ExpPoly, bool], ...], context: Context
) -> tuple[tuple[ExpPoly, ...], list[Data]] | None:
    """Multiples of what is above 0 (True) or at least 0, and rows, that add up to 0, one of them positive."""
    for scales in _scales([e for e, _ in signed]):
        gap = -sum((e * scale for (e, _), scale in zip(signed, scales, strict=True)), ZERO)
        found = _nonnegative(gap, context)
        if found is None:
            continue
        rows, positive = found
        if positive or any(strict for _, strict in signed):
            return scales, rows
    return None


def _scales(signed: list[ExpPoly]) -> Iterator[tuple[ExpPoly, ...]]:
    """Positive multiples with which a term of two elements cancels."""
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
                yield ONE, ExpPoly.number(scale)


def _nonnegative(element: ExpPoly, context: Context) -> tuple[list[Data], bool] | None:
    """Rows that add up to the element, and is one of them positive?"""
    rest, rows = element, []
    for number, fact in enumerate(context.facts):
        key = min(key for key, value in fact.terms.items() if value > 0 and key != ((), ()))
        scale = Fraction(rest.terms.get(key, 0)) / fact.terms[key]
        if scale > 0:
            rest = rest - fact * scale
            rows.append(_row(ExpPoly.number(scale), [number]))
    if not rest:
        return rows, False
    found = positive_sum(rest)
    if found is None:
        return None
    for row in found.squares:
        rows.append(_row(_weight(row), [], square=to_ring(row["b"])))
    for row in found.tangents:
        rows.append(_row(_weight(row), [], tangent=to_ring(row["u"])))
    return rows, any(to_ring(row["b"]) == ONE for row in found.squares)


def _weight(row: Data) -> ExpPoly:
    return to_ring(row["scale"]) * to_ring(row["v"]).exp()


def _row(weight: ExpPoly, factors: list[Any], square: ExpPoly = ONE, tangent: ExpPoly = ZERO) -> Data:
    return {
        "weight": weight.to_json(),
        "factors": factors,
        "square": square.to_json(),
        "tangent": tangent.to_json(),
    }
