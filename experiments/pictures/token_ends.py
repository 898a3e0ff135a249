"""Where three penalties on tokens end: the policies of a tree of two tokens, and what they are worth."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from klsym.study.api import optimum
from klsym.study.figures.style import BLACK, COLOURS, PAGE, open_panels

PENALTIES: dict[str, dict[str, str]] = {  # those of beyond.token-penalty-optimum
    "k1 to-go": {"penalty": "k1", "use": "reward", "credit": "to-go"},
    "token k2": {"penalty": "k2"},
    "token k3": {"penalty": "k3"},
}
NAMES = {
    "k1 to-go": "$k_1$ to-go, in the reward",
    "token k2": "token $k_2$ in the loss",
    "token k3": "token $k_3$ in the loss",
}
SHADES = {"k1 to-go": COLOURS["k1"], "token k2": COLOURS["k2"], "token k3": COLOURS["k3"]}
SEQUENCES = ("1, 1", "1, 2", "2, 1", "2, 2")
REWARDS, REFERENCE = ("1", "-1/2", "3/10", "4/5"), ("0.18", "0.12", "0.14", "0.56")
BETAS = (0.1, 0.12, 0.14, 0.17, 0.2, 0.24, 0.3, 0.35, 0.42, 0.5, 0.6, 0.7, 0.85, 1, 1.2, 1.5, 2, 2.5, 3)


def compute_end(name: str, beta: str) -> tuple[list[float], float]:
    """The policy at which training ends, and how far E_q[R] - beta KL(q||p) is below its largest value.

    >>> policy, gap = compute_end("k1 to-go", "0.7")
    >>> [round(x, 4) for x in policy], abs(gap) < 1e-12
    ([0.2701, 0.0211, 0.0773, 0.6315], True)
    """
    answer = optimum(
        beta=beta,
        rewards=REWARDS,
        reference=REFERENCE,
        level="token",
        **PENALTIES[name],  # type: ignore[arg-type]
    ).to_json()
    [end] = answer["stationary"]
    return end["policy"], answer["best"] - (end["reward"] - answer["beta"] * end["kl"])


def draw(beta: str = "0.7", betas: Sequence[float] = BETAS) -> Any:
    """Left: the ends on the tree.  Right: what they lack of the best E_q[R] - beta KL(q||p)."""
    with open_panels(PAGE, 2.7, 1, 2, width_ratios=(1.25, 1)) as (figure, (left, right)):
        _draw_policies(left, beta)
        for name, colour in SHADES.items():
            gaps = [compute_end(name, f"{b:g}")[1] for b in betas]
            right.plot(betas, gaps, color=colour, clip_on=False, zorder=3)
        right.set(
            xscale="log", xlim=(betas[0], betas[-1]), ylim=(0, None), xticks=[0.1, 0.3, 1, 3],
            xticklabels=["0.1", "0.3", "1", "3"], xlabel=r"$\beta$",
            ylabel=r"$E_q[R] - \beta\,$KL, below its maximum",
        )  # fmt: skip
        right.minorticks_off()
        right.set_title(r"(b) Only $k_1$ to-go ends at the best policy", loc="left")
    return figure


def _draw_policies(ax: Any, beta: str) -> None:
    places = range(len(REWARDS))
    ax.plot(places, [float(x) for x in REFERENCE], "_", color=BLACK, ms=24, mew=1, label="reference $p$")
    for shift, (name, colour) in zip((-0.2, 0.0, 0.2), SHADES.items(), strict=True):
        policy, _ = compute_end(name, beta)
        ax.bar([x + shift for x in places], policy, width=0.18, color=colour, label=NAMES[name])
    ax.set(ylabel="probability", ylim=(0, 0.95))
    rewards = [f"{word}\n$R = {float(Fraction(R)):g}$" for word, R in zip(SEQUENCES, REWARDS, strict=True)]
    ax.set_xticks(places, rewards)
    ax.set_xlabel(rf"sequence of two words, $\beta = {beta}$")
    ax.set_title("(a) Three penalties end at three policies", loc="left")
    ax.legend(loc="upper left", handlelength=1.2)
