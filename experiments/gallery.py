"""The pictures of the notebooks by name: each drawn from proof objects, at the set-up of its notebook.

>>> list(GALLERY)[0], len(GALLERY)
('off-policy', 8)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

Losses = dict[str, tuple[Any, Any]]  # name -> (loss, what its expected gradient is)


@dataclass(frozen=True)
class Picture:
    """What a picture shows, in words, and the function that makes its figure."""

    caption: str
    make: Callable[[], Any]


def _targets() -> Losses:
    """The weighted losses and their targets, as theorems will have it."""
    from klsym.calculus import KL, expectation, grad, k1, k2, k3, mu, p, q, rho, sg

    reverse = grad(KL(q, p))
    return {
        "rho*k1": (rho * k1, reverse),
        "rho*k3": (rho * k3, reverse),
        "sg(rho)*k2": (sg(rho) * k2, reverse),
        "rho*k2": (rho * k2, grad(expectation(k2, under=q))),
        "sg(rho)*k3": (sg(rho) * k3, grad(KL(p, q))),
        "sg(rho)*k1": (sg(rho) * k1, 0 * reverse),
        "k1": (k1, -grad(KL(mu, q))),
        "k2": (k2, grad(expectation(k2, under=mu))),
        "k3": (k3, grad(expectation(k3, under=mu))),
    }


@dataclass(frozen=True)
class OffPolicyRuns:
    """Theorems about penalties and rewarded losses by name, a model, and the descents from q = mu."""

    penalties: dict[str, Any]
    model: Any
    paths: dict[str, Any]
    optimum: Any


@cache
def off_policy_runs() -> OffPolicyRuns:
    """Return the descents of the weighted losses with a reward, on three outcomes."""
    import numpy as np

    from klsym.calculus import R, beta, derive, expectation, expected_gradient, grad, mu, q, rho
    from klsym.experiments.pictures.offpolicy import descend
    from klsym.experiments.tang_munos.bandits import optimum
    from klsym.numeric.models import FiniteModel

    gain = grad(expectation(R, under=q))
    penalties, losses = {}, {}
    for name, (loss, target) in _targets().items():
        penalties[name] = derive(expected_gradient(loss, under=mu)).differentiate().equals(target)
        whole = derive(expected_gradient(beta * loss - rho * R, under=mu)).differentiate()
        losses[name] = whole.equals(beta * target - gain)
    rewards, strength = [0, 0, 1], 0.5
    known: Any = {"u": [1, 0, 0], "parameters": {"beta": strength}, "rewards": {"R": rewards}}
    p, mu_weights = [0.8, 0.1, 0.1], [0.1, 0.2, 0.7]
    model = FiniteModel(q=[0.4, 0.5, 0.1], p=p, mu=mu_weights, **known)
    start = FiniteModel(q=mu_weights, p=p, mu=mu_weights, **known)
    paths = {name: descend(proof, start, rate=1.5, steps=300) for name, proof in losses.items()}
    best = np.exp(optimum(np.log(model.p), np.array(rewards, float), strength))
    return OffPolicyRuns(penalties, model, paths, best)


REFERENCE = (0.25, 0.75)  # p on two outcomes
VALUES = {"k1": "value.k1-unbiased", "k2": "value.k2-biased", "k3": "value.k3-unbiased"}  # claims


@cache
def on_policy_theorems() -> tuple[Any, Any, Any]:
    """Return a pair of theorems for each loss, one on KL(q||p), and those on the gradients of both KLs."""
    from klsym.experiments.pictures.onpolicy import Loss
    from klsym.study.ledger.settle_claim import recall

    values = {name: recall(claim).proofs[0] for name, claim in VALUES.items()}
    gradients = {name: recall(f"gradient.{name}-loss").proofs[0] for name in VALUES}
    losses = {name: Loss(values[name], gradients[name]) for name in VALUES}
    return losses, values["k1"], {"reverse": gradients["k2"], "forward": gradients["k3"]}


def on_policy() -> Any:
    """k1, k2 and k3 in the loss: the number that is logged, and the gradient that is descended."""
    import numpy as np

    from klsym.experiments.pictures.onpolicy import draw

    return draw(*on_policy_theorems(), REFERENCE, np.linspace(-5, 5, 101))


def off_policy() -> Any:
    """Weighted losses: their distance from the reverse KL, and where descent with a reward ends."""
    import numpy as np

    from klsym.experiments.pictures.offpolicy import draw

    runs = off_policy_runs()
    right = runs.penalties["rho*k3"]
    return draw(runs.penalties, right, runs.model, np.linspace(0, 1, 21), runs.paths, runs.optimum)


@cache
def reward_penalties() -> dict[str, Any]:
    """Return the theorems on k1, k2 and k3 in the reward."""
    from klsym.experiments.pictures.rewards import Penalty
    from klsym.study.ledger.settle_claim import recall

    return {
        name: Penalty(value=recall(value).proofs[0], push=recall(f"reward.{name}").proofs[0])
        for name, value in VALUES.items()
    }


def rewards() -> Any:
    """k1, k2 and k3 in the reward: the number that is logged, and the push that is followed."""
    import numpy as np

    from klsym.experiments.pictures.rewards import draw

    return draw(reward_penalties(), np.linspace(0, 2, 41), REFERENCE, np.linspace(-5, 5, 101))


def variance() -> Any:
    """Which of two gradients with one mean varies less, and the best baseline."""
    from klsym.experiments.pictures.variance import draw
    from klsym.language.abbreviations import Context
    from klsym.numeric.models import random_model

    return draw(random_model(3, 8, Context(on_policy=True)))


def batches() -> Any:
    """How much of the penalty centring leaves, and whether leave-one-out pays."""
    from klsym.experiments.pictures.batches import draw
    from klsym.numeric.models import FiniteModel
    from klsym.study.ledger.settle_claim import recall

    names = {"none": "no-centering", "mean": "mean-centering", "leave-one-out": "leave-one-out"}
    proofs = {key: recall(f"batch.{name}").proofs[0] for key, name in names.items()}
    loo, gain = (recall(f"variance.{name}").proofs[0] for name in ("loo", "loo-not-always-better"))
    small = FiniteModel(q=["1/2", "1/4", "1/4"], p=["1/4", "1/4", "1/2"], u=[1, 0, 0])
    references = (["1/6", "1/3", "1/2"], ["1/20", "1/20", "9/10"])
    near, far = (FiniteModel(q=["1/3"] * 3, p=p, u=[1, 0, 0]) for p in references)
    return draw(proofs, loo, gain, small, (near, far))


def sequences() -> Any:
    """Which pairs of tokens an estimate keeps, and what 1/T does to lengths."""
    from klsym.experiments.pictures.sequences import draw
    from klsym.study.sequences.autoregressive import random_autoregressive

    model, reference = random_autoregressive(10, 2, 2, 6), random_autoregressive(11, 2, 2, 6)
    starts = [random_autoregressive(seed, 2, 1, 12) for seed in range(3)]
    return draw(model, reference, starts, rate=1.0, steps=60)


@cache
def coefficient_verdicts() -> dict[str, Any]:
    """Return the verdicts on losses in use, by the names of their curves."""
    from klsym.api import explain

    clamped = "clip(exp(clip(-k1, -20, 20)) - clip(-k1, -20, 20) - 1, -10, 10)"
    return {
        "k1": explain("k1"),
        "reverse: k2": explain("k2"),
        "forward: k3": explain("k3"),
        "k3 clamped": explain(clamped),
        "abs": explain("abs(k1)"),
        "k3 as reward": explain("k3", use="reward"),
    }


def coefficients() -> Any:
    """The score coefficients of losses in use, against r."""
    from klsym.study.figures.coefficients import draw

    too_often = "(a) Drawn too often: the forward KL pushes below 1"
    return draw(coefficient_verdicts(), titles=(too_often, "(b) Drawn too rarely: $k_3$ as a reward repels"))


def phase_portraits() -> Any:
    """The flow on three outcomes with rewards, for k1, k2 and k3; losses of one gradient share a panel."""
    from klsym.engine.explain import as_written
    from klsym.engine.fields.field import reduce_loss
    from klsym.engine.fields.slot_loss import build_slot_loss
    from klsym.engine.options.settings import checked_setting
    from klsym.study.figures.phase_portraits import draw

    settings: Any = {
        ("", "loss"): {},
        (r"\rho\,", "loss"): {"sampling": "off-policy"},
        ("", "reward"): {"use": "reward"},
    }
    found: dict[Any, dict[str, list[str]]] = {}  # coefficient -> place -> losses
    for (weight, place), setting in settings.items():
        for number in "123":
            written = as_written(f"{'rho*' if weight else ''}k{number}", ())
            field = reduce_loss(build_slot_loss(written, checked_setting(**setting)))
            found.setdefault(field.c, {}).setdefault(place, []).append(f"${weight}k_{number}$")
    titles = ("\n".join(f"{', '.join(names)} in the {place}" for place, names in same.items())
              for same in found.values())  # fmt: skip
    placements = {f"({letter}) {title}": c for letter, title, c in zip("abcdef", titles, found, strict=True)}
    return draw(placements, [0, 0.4, 1], [0.5, 0.3, 0.2], 0.5, 3)


def catalogue() -> Any:
    """Every loss of a small grammar, and which of those with the reverse KL's gradient varies least."""
    from klsym.engine.questions.candidates import load_catalogue
    from klsym.experiments.pictures.catalogue import draw
    from klsym.language.abbreviations import Context
    from klsym.numeric.models import random_model
    from klsym.study.ledger.settle_claim import recall

    models = [random_model(seed, 2 + seed % 3, Context()) for seed in range(12)]
    return draw(load_catalogue(), recall("catalogue.order").theorems[0], models)


GALLERY: dict[str, Picture] = {
    "off-policy": Picture(
        "With samples of mu, attaching, detaching or omitting the importance weight changes the gradient."
        " (a) The distance of the expected gradient from that of the reverse KL, as the sampler moves from q"
        " to mu; solid: weight attached, dashed: detached, dotted: omitted. (b) Descent with a reward from"
        " q = mu on three outcomes; open ends still move", off_policy),
    "rewards": Picture(
        "In the reward, the value of a penalty does not determine its gradient. (a) The logged value, and"
        " (b) the gradient along the mean of a Gaussian. (c) On two outcomes: above zero the gradient moves q"
        " back to p, below zero it moves q away", rewards),
    "variance": Picture(
        "Of two gradients with the same expectation, neither has the lower variance in every model. (a) The"
        " squared coefficients of grad(rho k1) and grad(rho k3) cross. (b) The variance of (k1 - b) s against"
        " the baseline b", variance),
    "batches": Picture(
        "Subtracting the mean of a batch shrinks the penalty. (a) The expected gradient as a multiple of that"
        " without centring. (b) The variance with the mean of the other samples as a baseline, divided by"
        " that without", batches),
    "sequences": Picture(
        "A token-level loss omits the effect on later tokens, and 1/T favours long sequences. (a) The pairs"
        " of a log ratio and a score that an estimate keeps. (b) The mean length during descent of the k1"
        " loss over T", sequences),
    "coefficients": Picture(
        "Score coefficients of losses against the ratio r, shifted to 0 at r = 1. (a) Samples that q draws"
        " too often, and (b) too rarely", coefficients),
    "phase-portraits": Picture(
        "With a penalty whose gradient is that of a KL, training with a reward ends at a unique policy. k1 in"
        " the loss does not penalise. With rho k2 in the loss, and with k2 or k3 in the reward, the end"
        " depends on the start. Lines: the flow on three outcomes; placements with the same gradient share a"
        " panel", phase_portraits),
    "catalogue": Picture(
        "All losses of a small grammar. (a) Off-policy in the loss, the number of expressions up to a size,"
        " of losses, of gradients at a sample and of expected gradients. (b) The number of losses with each"
        " target. (c) No constant b has the least variance in every model: for the losses with the gradient"
        " of the reverse KL, the variance minus the least one, over E[rho^2 s^2]; points are random models,"
        " and each curve touches 0 at its b", catalogue),
}  # fmt: skip
