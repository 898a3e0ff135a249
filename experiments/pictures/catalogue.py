"""Every loss of a small grammar: how many there are, what they target, and which varies least."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from klsym.engine.questions.candidates import Catalogue, CatalogueChoice, CatalogueSearch
from klsym.numeric.evaluation import evaluate
from klsym.numeric.models import FiniteModel
from klsym.study.figures.style import BLACK, COLOURS, GREY, ORANGE, PAGE, PURPLE, SKY, label_ends, open_panels
from klsym.study.render.catalogue import TARGETS

# One colour and one mark a setting.
MARKS = {
    ("on-policy", "loss"): (SKY, "o"), ("off-policy", "loss"): (PURPLE, "s"),
    ("on-policy", "reward"): (ORANGE, "^"), ("off-policy", "reward"): (BLACK, "v"),
}  # fmt: skip
GROWN = {"losses": "losses", "gradients": "gradients", "expected_gradients": "in the mean"}
NAMED = {"rho*k3": r"$\rho\,k_3$", "rho*k1": r"$\rho\,k_1$"}
WORDS = {"reverse-kl": "reverse KL", "forward-kl": "forward KL", "f-divergence": "other $f$",
         "combination": "combination", "objective": r"under $\mu$"}  # fmt: skip
REACH = 2.4  # of b_star either way


def draw(catalogue: Catalogue, theorem: Any, models: Sequence[FiniteModel]) -> Any:
    """(a) Losses off-policy by size.  (b) Losses by target.  (c) (b - b_star)^2 against b_star, by b.

    theorem: V(b) - V(a) = (b - a)(a + b - 2 b_star) E_mu[rho^2 s^2], where b_star is the mean that the
    premise says.  Each model gives a point on each curve, V(b) - V(b_star) over E_mu[rho^2 s^2], literally.
    """
    found = catalogue.of("off-policy", "loss")
    with open_panels(PAGE, 2.7, 1, 3, width_ratios=[0.9, 1, 1.1]) as (figure, (left, middle, right)):
        _growth(left, catalogue, found)
        _targets(middle, catalogue)
        _excess(right, [c for c in found.choices["reverse-kl"] if c.size <= 5], theorem, models)
        handles, names = middle.get_legend_handles_labels()
        figure.legend(handles, names, loc="outside lower center", ncols=4, handletextpad=0.2)
    return figure


def _growth(ax: Any, catalogue: Catalogue, found: CatalogueSearch) -> None:
    sizes = range(1, catalogue.size + 1)
    lines = {"expressions": catalogue.spellings, **{GROWN[kind]: found.counts[kind] for kind in GROWN}}
    shades = (GREY, PURPLE, SKY, BLACK)  # of no estimator
    for (_, counts), colour in zip(lines.items(), shades, strict=True):
        ax.plot(sizes, counts, "o-", color=colour, ms=2.5)
    ax.set(yscale="log", xlabel="leaves and operations, off-policy loss", xticks=sizes)
    ax.set_title("(a) Many spellings, few gradients", loc="left")
    ends = [(counts[-1], n, c) for (n, counts), c in zip(lines.items(), shades, strict=True)]
    label_ends(ax, ends, catalogue.size, 0.12)


def _targets(ax: Any, catalogue: Catalogue) -> None:
    rows = list(reversed(TARGETS))
    for number, found in enumerate(catalogue.settings):
        colour, mark = MARKS[found.sampling, found.use]
        counts = [found.targets[target][-1] for target in rows]
        places = np.arange(len(rows)) + 0.12 * (1.5 - number)
        label = f"{found.sampling}, in the {found.use}"
        ax.plot(counts, places, mark, color=colour, ms=4, label=label)
    ax.set_yticks(range(len(rows)), [WORDS.get(target, target) for target in rows])
    ax.set(xscale="log", xlabel=f"losses of size up to {catalogue.size}")
    ax.grid(axis="y", lw=0.3, color=GREY, alpha=0.5)
    ax.set_title("(b) Few have a KL's gradient", loc="left")


def _excess(ax: Any, choices: Sequence[CatalogueChoice], theorem: Any, models: Sequence[FiniteModel]) -> None:
    """The excess of the variance over the least one, over E_mu[rho^2 s^2]."""
    x = np.linspace(-REACH, REACH, 241)
    for choice in choices:
        b = float(Fraction(choice.constant))
        colour = {"rho*k3": COLOURS["k3"], "rho*k1": COLOURS["k1"]}.get(choice.loss, GREY)
        strong = choice.loss in NAMED
        ax.plot(x, (x - b) ** 2, color=colour, lw=1.4 if strong else 0.6, zorder=3 if strong else 1)
        points = [point(theorem, model, Fraction(choice.constant)) for model in models]
        ax.plot(*np.array(points).T, "o", color=colour, ms=1.8, zorder=4 if strong else 2)
        if strong:
            ax.annotate(
                NAMED[choice.loss], (b, 0), (0, -3), textcoords="offset points", ha="center", va="top",
                fontsize=8, color=colour, annotation_clip=False,
            )  # fmt: skip
    ax.set(xlim=(-REACH, REACH), ylim=(0, 1.2))
    ax.tick_params(axis="x", pad=11)
    ax.set_xlabel(r"the best constant $b_\star$ in a model")
    ax.set_ylabel("variance above the least one")
    ax.set_title("(c) No $b$ is always best", loc="left")


def point(theorem: Any, model: FiniteModel, b: Fraction) -> tuple[float, float]:
    """b_star in a model, and (V(b) - V(b_star))/E_mu[rho^2 s^2], both from the two sides of what is stated.

    The premise b_star S = -E_mu[rho^2 k1 s^2] has S on its left at b_star = 1.
    """
    [(left, right)] = theorem.statement.context.premises
    square, mean = _sides(theorem, model, left, right, {"b_star": 1, "a": 0, "b": 0})
    best = mean / square
    known = {"b_star": best, "a": best, "b": b}
    excess, _ = _sides(theorem, model, theorem.statement.left, theorem.statement.right, known)
    return best, excess / square


def _sides(theorem: Any, model: FiniteModel, left: Any, right: Any, known: Any) -> tuple[float, float]:
    context = replace(theorem.statement.context, premises=())
    statement = replace(theorem.statement, left=left, right=right, context=context)
    return evaluate(statement, replace(model, parameters={**model.parameters, **known}))
