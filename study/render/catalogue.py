"""The catalogue in words: how many losses there are, what they target, which have the gradient of a KL."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from klsym.render.listing import align_columns

if TYPE_CHECKING:
    from klsym.engine.questions.candidates import Catalogue, CatalogueChoice, CatalogueSearch

SHOWN = 6  # choices of one setting
NAMES = {
    "losses": "losses (value and gradient at a sample)",
    "values": "values at a sample",
    "mean_values": "mean values",
    "gradients": "gradients at a sample",
    "expected_gradients": "expected gradients",
}
# its name, the coefficients of its gradient, and what b_star averages
DIVERGENCES = {
    "reverse-kl": ("KL(q||p)", "k1 + b", "-rho^2 k1 s^2"),
    "forward-kl": ("KL(p||q)", "b - r", "rho^2 r s^2"),
}
TARGETS = ("zero", "reverse-kl", "forward-kl", "combination", "f-divergence", "objective")


def summarise(catalogue: Catalogue) -> str:
    """The whole answer of `klsym catalogue`."""
    lines = [
        f"All {catalogue.spellings[-1]:,} expressions of up to {catalogue.size} leaves and operations",
        "in k1, k2, k3, r, rho, log_q, 1/2, 1, 2 with sg, +, -, *",
        "",
        *_list_counts(catalogue),
    ]
    for kl in DIVERGENCES:
        lines += ["", *_list_choices(catalogue, kl)]
    return "\n".join(lines)


def _list_counts(catalogue: Catalogue) -> Iterator[str]:
    """How many differ, and of the losses how many have which target."""
    settings = catalogue.settings
    heads = [["", *(f.sampling for f in settings)], ["different", *(f"in the {f.use}" for f in settings)]]
    rows = [[name, *(f"{f.counts[kind][-1]:,}" for f in settings)] for kind, name in NAMES.items()]
    rows += [["losses with the target", *("" for _ in settings)]]
    for target in TARGETS:
        rows.append([f"  {target}", *(f"{_find_last_count(f, target):,}" for f in settings)])
    return align_columns([*heads, *rows], 1)


def _find_last_count(found: CatalogueSearch, target: str) -> int:
    return found.targets[target][-1] if target in found.targets else 0


def _list_choices(catalogue: Catalogue, kl: str) -> Iterator[str]:
    name, c, square = DIVERGENCES[kl]
    yield f"With the expected gradient of {name}: at a sample ({c}) s, off-policy rho ({c}) s, and no other."
    yield "Shortest losses first. The nearer b is to b_star, the less the gradient varies:"
    yield f"b_star = E_m[{square}]/E_m[rho^2 s^2]; last column: the b_star for which it varies least of all"
    for search in catalogue.settings:
        choices = search.choices[kl]
        yield ""
        yield f"{search.sampling}, in the {search.use}: {len(choices)} gradients at a sample"
        heads = ["b", "loss", "with the right value", "losses", "spellings", "b_star"]
        yield from align_columns([heads, *map(_format_row, choices[:SHOWN])], 3)


def _format_row(choice: CatalogueChoice) -> list[str]:
    right = {None: "-", choice.loss: "the same"}.get(choice.unbiased, choice.unbiased)
    counts = [f"{choice.losses:,}", f"{choice.spellings:,}"]
    return [choice.constant, choice.loss, str(right), *counts, describe_range(choice)]


def describe_range(choice: CatalogueChoice) -> str:
    """Where b is the nearest constant."""
    low, high = choice.nearest
    if low is None or high is None:
        return "anywhere" if low == high else f"below {high}" if low is None else f"above {low}"
    return f"{low} to {high}"
