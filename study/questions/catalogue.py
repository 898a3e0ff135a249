"""The catalogue: how many different losses there are, what they target, and which have the gradient of a KL.

Every spelling up to a size (spellings.py), in each setting, sorted by normal forms:

    loss                what it is worth at a sample and its gradient there, (v, a)
    value               v
    mean value          E_m[v], modulo E_q[r] = 1 and E_q[1/rho] = 1
    gradient            a, of the gradient a s at a sample; in the reward, a is the loss itself
    expected gradient   c of E_m[a s] = E_q[c s], modulo constants, by which `targets` recognises it

By completeness c = k1 + b, with any constant b, is all that has the reverse KL's expected gradient, so that a
gradient at a sample that has it is rho (k1 + b): what is listed of a KL is one loss for each b.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any

from klsym.engine.divergences.f_divergence import differentiate_in_log_q, substitute_reference
from klsym.engine.fields.named_terms import R_RATIO, NamedParts, recognise_coefficient
from klsym.engine.options.choices import is_on_policy, is_reward
from klsym.engine.questions.candidates import (
    Catalogue,
    CatalogueChoice,
    CatalogueSearch,
    contains_reference_ratio,
)
from klsym.kernel.ring import ONE, ZERO, ExpPoly, Key
from klsym.language.convert import VK1, VW
from klsym.notation import formulas
from klsym.study.questions.loss_enumeration import (
    DETACHED,
    LEAVES,
    OPERATORS,
    SizeLevel,
    ValueAndScore,
    compute_pair,
    count_spellings,
    negate_code,
    write_infix,
)

COMMAND = "klsym catalogue --size {} -o {}"
SETTINGS = (
    ("on-policy", "loss"), ("off-policy", "loss"), ("on-policy", "reward"), ("off-policy", "reward"),
)  # fmt: skip
COUNTED_KINDS = ("losses", "values", "mean_values", "gradients", "expected_gradients")
# What E_q of it is the divergence; and c, of E_q[c s], for its gradient.
KL_VALUES = {"reverse-kl": VK1, "forward-kl": -VK1 * R_RATIO}
COEFFICIENTS = {"reverse-kl": VK1, "forward-kl": -R_RATIO}
ONE_KEY: Key = ((), ())
RHO, UNIT = "A", "1"  # letters of leaves
Needs = tuple[Any, ...]  # no more is better, in each place
AVERAGE_ONE = (R_RATIO, (-VW).exp())  # r and 1/rho under q


def as_json(catalogue: Catalogue) -> dict[str, Any]:
    return {
        "made by": COMMAND.format(catalogue.size, "FILE"),
        "leaves": [str(leaf) for leaf in LEAVES.values()],
        "operations": ["sg(.)", *(sign.strip() for sign in OPERATORS.values())],
        "size": catalogue.size,
        "spellings": catalogue.spellings,
        "settings": [asdict(search) for search in catalogue.settings],
    }


def write_catalogue(catalogue: Catalogue) -> str:
    """The text of the file that holds it: what holds no lists or rows stands on one line."""
    return _format_value(as_json(catalogue), "") + "\n"


def _format_value(value: Any, margin: str) -> str:
    inside = list(value.values()) if isinstance(value, dict) else value
    if not isinstance(value, dict | list | tuple) or not any(
        isinstance(x, dict | list | tuple) for x in inside
    ):
        return json.dumps(value)
    names = [f"{json.dumps(name)}: " for name in value] if isinstance(value, dict) else [""] * len(value)
    rows = [
        margin + " " + name + _format_value(x, margin + " ") for name, x in zip(names, inside, strict=True)
    ]
    first, last = "{}" if isinstance(value, dict) else "[]"
    return "\n".join([first, ",\n".join(rows), margin + last])


# ---------------------------------------------------------------------------- one setting
def catalogue(levels: Sequence[SizeLevel]) -> Catalogue:
    """The catalogue of all spellings of these levels, the first of size 1.

    >>> from klsym.study.questions.loss_enumeration import levels as enumerated
    >>> found = catalogue(enumerated(3)).of("off-policy", "loss")
    >>> found.counts["losses"], found.targets["reverse-kl"]
    ([9, 15, 150], [0, 0, 2])
    """
    counts = cumulate_counts(count_spellings(len(levels)))
    return Catalogue(len(levels), counts, tuple(_search_setting(levels, *setting) for setting in SETTINGS))


@dataclass
class Entry:
    """A loss: the size and the first of its shortest spellings, and how many spellings there are."""

    size: int
    code: str
    count: int

    def add_spellings(self, size: int, code: str, count: int) -> None:
        """Sizes come in their order."""
        self.count += count
        self.code = min(self.code, code) if size == self.size else self.code


def collect_entries(levels: Sequence[SizeLevel], sampling: str, use: str) -> dict[ValueAndScore, Entry]:
    """The losses (v, a) that the spellings are in a setting.

    On-policy w = 0 once differentiated; detached, a loss is what multiplies the score.
    """
    view = View(is_on_policy(sampling))
    entries_by_pair: dict[ValueAndScore, Entry] = {}
    for size, level in enumerate(levels, start=1):
        for (v, a), (count, code) in level.items():
            key = (view(v), view(v if is_reward(use) else a))
            if key in entries_by_pair:
                entries_by_pair[key].add_spellings(size, code, count)
            else:
                entries_by_pair[key] = Entry(size, code, count)
    return entries_by_pair


class View(dict[ExpPoly, ExpPoly]):
    """Elements as a setting has them, each worked out once."""

    def __init__(self, on_policy: bool) -> None:
        self.on_policy = on_policy

    def __missing__(self, element: ExpPoly) -> ExpPoly:
        self[element] = element.substitute({"w": ZERO}) if self.on_policy else element
        return self[element]

    def __call__(self, element: ExpPoly) -> ExpPoly:
        return self[element]


def divide_by_weight(element: ExpPoly, sampling: str) -> ExpPoly:
    """E_m[x] = E_q[x/rho], with rho = 1 on-policy."""
    return element if is_on_policy(sampling) else element * AVERAGE_ONE[1]


def mean_value(v: ExpPoly, sampling: str) -> ExpPoly:
    """What E_m[v] is under q, with r and 1/rho written 1, which they are on average.

    >>> mean_value(VK1 + R_RATIO - 1, "on-policy") == VK1
    True
    """
    under_q = divide_by_weight(v, sampling)
    for factor in AVERAGE_ONE:
        [key] = factor.terms
        under_q = under_q + (ONE - factor) * under_q.terms.get(key, 0)
    return under_q


def to_canonical_coefficient(a: ExpPoly, sampling: str) -> ExpPoly:
    """c of E_m[a s] = E_q[c s], less its constant, since E_q[s] = 0."""
    c = divide_by_weight(a, sampling)
    return c - c.terms.get(ONE_KEY, 0)


def _search_setting(levels: Sequence[SizeLevel], sampling: str, use: str) -> CatalogueSearch:
    entries_of_setting = collect_entries(levels, sampling, use)
    firsts: dict[str, dict[Any, int]] = {kind: {} for kind in COUNTED_KINDS}
    targets: Counter[tuple[str, int]] = Counter()
    named_coefficients: dict[ExpPoly, tuple[ExpPoly, NamedParts]] = {}  # a -> c and what it is
    means: dict[ExpPoly, ExpPoly] = {}
    for (v, a), entry in entries_of_setting.items():
        if a not in named_coefficients:
            c = to_canonical_coefficient(a, sampling)
            named_coefficients[a] = c, recognise_coefficient(c)
        if v not in means:
            means[v] = mean_value(v, sampling)
        for kind, key in zip(COUNTED_KINDS, ((v, a), v, means[v], a, named_coefficients[a][0]), strict=True):
            firsts[kind].setdefault(key, entry.size)
        targets[named_coefficients[a][1].target, entry.size] += 1
    sizes = range(1, len(levels) + 1)
    setting_key = levels, sampling, use
    right = {
        kl: _list_candidates(*setting_key, lambda x: named_coefficients[x[1]][0], kl, c)
        for kl, c in COEFFICIENTS.items()
    }
    exact = {kl: _list_candidates(*setting_key, lambda x: means[x[0]], kl, v) for kl, v in KL_VALUES.items()}
    return CatalogueSearch(
        sampling,
        use,
        counts={kind: _cumulate_sizes(Counter(first.values()), sizes) for kind, first in firsts.items()},
        targets={
            name: _cumulate_sizes({n: targets[name, n] for n in sizes}, sizes)
            for name in sorted({t for t, _ in targets})
        },
        choices={
            kl: _list_choices(entries_of_setting, named_coefficients, means, kl, sampling=sampling)
            for kl in COEFFICIENTS
        },
        best={
            kl: select_least((x.measure_gradient_needs(sampling, use), x.loss) for x in rows)
            for kl, rows in right.items()
        },
        estimates={k: select_least((x.measure_value_needs(), x.loss) for x in exact[k]) for k in exact},
    )


def _cumulate_sizes(new: dict[int, int], sizes: range) -> list[int]:
    return cumulate_counts([new.get(size, 0) for size in sizes])


def cumulate_counts(new: Sequence[int]) -> list[int]:
    """How many there are up to each place.

    >>> cumulate_counts([9, 6, 135])
    [9, 15, 150]
    """
    return [sum(new[: i + 1]) for i in range(len(new))]


def _list_choices(
    found: dict[ValueAndScore, Entry],
    of: dict[ExpPoly, tuple[ExpPoly, NamedParts]],
    means: dict[ExpPoly, ExpPoly],
    kl: str,
    sampling: str,
) -> tuple[CatalogueChoice, ...]:
    """The gradients at a sample whose expectation is that of the KL, by their shortest losses."""
    groups: dict[ExpPoly, list[tuple[ExpPoly, Entry]]] = {}
    for (v, a), entry in found.items():
        if of[a][0] == COEFFICIENTS[kl]:
            groups.setdefault(a, []).append((v, entry))
    constants = {a: Fraction(divide_by_weight(a, sampling).terms.get(ONE_KEY, 0)) for a in groups}
    near = find_nearest(constants.values())
    choices = [
        (
            _place(min((entry for _, entry in group), key=_place)),
            _build_choice(
                a, group, [e for v, e in group if means[v] == KL_VALUES[kl]], constants[a], near=near
            ),
        )
        for a, group in groups.items()
    ]
    return tuple(choice for _, choice in sorted(choices, key=lambda item: item[0]))


def find_nearest(constants: Iterable[Fraction]) -> dict[Fraction, tuple[str | None, str | None]]:
    """From where to where each of them is the nearest: half way to its neighbours.

    >>> find_nearest([Fraction(0), Fraction(-1), Fraction(1, 2)])[Fraction(0)]
    ('-1/2', '1/4')
    """
    order = sorted(constants)
    middles = [None, *(str((x + y) / 2) for x, y in pairwise(order)), None]
    return {x: (middles[i], middles[i + 1]) for i, x in enumerate(order)}


def _build_choice(
    a: ExpPoly,
    group: list[tuple[ExpPoly, Entry]],
    unbiased: list[Entry],
    constant: Fraction,
    near: dict[Fraction, tuple[str | None, str | None]],
) -> CatalogueChoice:
    first = min((entry for _, entry in group), key=_place)
    correct = min(unbiased, key=_place, default=None)
    return CatalogueChoice(
        constant=str(constant),
        gradient=formulas.show_element(a),
        loss=write_infix(first.code),
        size=first.size,
        unbiased=None if correct is None else write_infix(correct.code),
        losses=len(group),
        spellings=sum(entry.count for _, entry in group),
        nearest=near[constant],
    )


def _place(entry: Entry) -> tuple[int, str]:
    return entry.size, entry.code


# ---------------------------------------------------------------------------- of which none asks for as much
def select_least(rows: Iterable[tuple[Needs, str]]) -> tuple[str, ...]:
    """The losses of which none asks for as much as another in every respect, the shortest first.

    >>> select_least([((0, 3), "x"), ((1, 2), "y"), ((1, 3), "z"), ((1, 2), "v")])
    ('v', 'x')
    """
    least_rows: list[tuple[Needs, str]] = []
    for needs, loss in sorted(rows, key=lambda row: (sum(row[0]), row)):  # what asks for less stands before
        if not any(
            all(x <= y for x, y in zip(other_needs, needs, strict=True)) for other_needs, _ in least_rows
        ):
            least_rows.append((needs, loss))
    return tuple(loss for _, loss in sorted(least_rows, key=lambda row: (row[0][-1], row[1])))


@dataclass(frozen=True)
class CatalogueLoss:
    """A loss, or its negative, that has the gradient or the value of a KL.

    v, a: what it is worth at a sample and its gradient there, in the setting.  size: a minus counts, too.
    """

    kl: str
    v: ExpPoly
    a: ExpPoly
    code: str
    minus: bool
    size: int

    @property
    def loss(self) -> str:
        return negate_code(self.code) if self.minus else write_infix(self.code)

    def measure_gradient_needs(self, sampling: str, use: str) -> Needs:
        """How far b is from the best one at q = p.  Does it rest on the gradient of a weight whose value is
        1, on that of a weight, has it another value, does it hold r?  And its size."""
        b = divide_by_weight(self.a, sampling).terms.get(ONE_KEY, 0)
        best = -substitute_reference(COEFFICIENTS[self.kl]).terms.get(ONE_KEY, 0)
        return (
            abs(Fraction(b - best)),
            not is_reward(use) and is_on_policy(sampling) and self._with(UNIT) != self._with(RHO),
            not is_reward(use) and self._with(DETACHED + RHO, fixed=True) != self._with(RHO, fixed=True),
            mean_value(self.v, sampling) != KL_VALUES[self.kl],
            contains_reference_ratio(self.v) or contains_reference_ratio(self.a),
            self.size,
        )

    def _with(self, weight: str, fixed: bool = False) -> ExpPoly:
        """The gradient at a sample with another spelling for rho; in the mean on-policy, unless `fixed`."""
        a = compute_pair(self.code.replace(RHO, weight))[1]
        return a if fixed else to_canonical_coefficient(View(True)(a), "on-policy")

    def measure_value_needs(self) -> Needs:
        """Is it of first order in log q/p at q = p = mu, where a KL is of second?  r in it, and its size."""
        return (
            bool(substitute_reference(differentiate_in_log_q(self.v.substitute({"w": ZERO})))),
            contains_reference_ratio(self.v),
            self.size,
        )


def _list_candidates(
    levels: Sequence[SizeLevel],
    sampling: str,
    use: str,
    is_: Callable[[ValueAndScore], ExpPoly],
    kl: str,
    wanted: ExpPoly,
) -> Iterator[CatalogueLoss]:
    """On-policy rho*sg(k1) and k2 - sg(k2 - k1) are one loss, and ask for different things: as spelled."""
    view = View(is_on_policy(sampling))
    for size, level in enumerate(levels, start=1):
        for (v, a), (_, code) in level.items():
            viewed_pair = view(v), view(v if is_reward(use) else a)
            candidate_element = is_(viewed_pair)
            if candidate_element == wanted:
                yield CatalogueLoss(kl, *viewed_pair, code, False, size)
            elif candidate_element == -wanted:
                yield CatalogueLoss(
                    kl, v=-viewed_pair[0], a=-viewed_pair[1], code=code, minus=True, size=size + 1
                )
