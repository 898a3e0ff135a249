"""The numbers behind the pictures of the notebooks: printed, and held against what the pages say of them.

Each function prints a table and raises AssertionError if the table is not what its page says.
"""

from __future__ import annotations

from collections.abc import Callable
from math import exp
from typing import Any

import numpy as np

from klsym.study.ledger.settle_claim import recall

ODDS = np.array([-5.0, -2.0, -0.5, 0.5, 2.0, 5.0])  # log odds of q less those of p
PRECISE = 1e-12  # what exact formulas in floats differ by


def print_gaussians() -> None:
    """The spread of k1, k2 and k3 between Gaussians, exact and sampled."""
    from mpmath import betainc

    from klsym.experiments.catalogue import result
    from klsym.experiments.gaussians.experiment import BATCHES

    data = result("gaussian-estimators")
    _, rows = data.table()
    print(f"{'p':12}{'KL':>10}  {'':4}{'bias/KL':>9}{'sd/KL':>8}  sampled sd")
    for p, kl, estimator, bias, _, sd, sampled, error in rows:
        agrees = abs(float(sampled) - float(sd)) < 7 * float(error)
        assert agrees or estimator == "k3"
        verdict = "within 7 standard errors" if estimator != "k3" else "heavy-tailed: not judged"
        print(f"{p:12}{kl:>10}  {estimator:4}{bias:>9}{sd:>8}  {verdict}")
    assert all(finding.holds for finding in data.findings)
    free, judged = BATCHES - 1, sum(row[2] != "k3" for row in rows)  # errors of batches: Student's law
    chance = judged * betainc(free / 2, 0.5, 0, free / (free + 7**2), regularized=True)
    print(f"{judged} verdicts, a false alarm in any of them with probability {float(chance):.0e}")


def print_on_policy() -> None:
    """The means and the expected gradients of k1, k2 and k3 beside both divergences, on two outcomes."""
    from klsym.experiments.gallery import REFERENCE, on_policy_theorems
    from klsym.experiments.pictures.onpolicy import targets

    losses, value, gradients = on_policy_theorems()
    logged = targets({"KL(q||p)": value}, REFERENCE, ODDS)
    names = {"reverse": "grad KL(q||p)", "forward": "grad KL(p||q)"}
    followed = {names[n]: row for n, row in targets(gradients, REFERENCE, ODDS).items()}
    for name, loss in losses.items():
        logged[name], followed[f"grad {name}"] = loss.curves(REFERENCE, ODDS)
    print(f"{'log odds less those of p':26}" + "".join(f"{t:+9.1f}" for t in ODDS))
    for rows in (logged, followed):
        for name, row in rows.items():
            print(f"{name:26}" + "".join(f"{round(x, 6) + 0.0:9.4f}" for x in row))

    def agree(curve: Any, target: Any) -> bool:
        return bool(np.abs(curve - target).max() < PRECISE)

    assert [name for name in losses if agree(logged[name], logged["KL(q||p)"])] == ["k1", "k3"]
    assert agree(followed["grad k1"], 0) and agree(followed["grad k2"], followed["grad KL(q||p)"])
    assert agree(followed["grad k3"], followed["grad KL(p||q)"])


def print_off_policy() -> None:
    """How far each weighted loss is from the reverse KL, and where its descent with a reward ends."""
    from klsym.experiments.gallery import off_policy_runs
    from klsym.experiments.pictures.offpolicy import errors

    unbiased = ("rho*k1", "rho*k3", "sg(rho)*k2")
    runs = off_policy_runs()
    apart = errors(runs.penalties, runs.penalties["rho*k3"], runs.model, (0.0, 0.5, 1.0))
    print(f"{'':12}relative distance from grad KL(q||p)   descent ends at")
    print(f"{'loss':12}{'mu = q':>8}{'half way':>11}{'mu':>8}")
    for name, (path, rests) in runs.paths.items():
        distances = "".join(f"{value:9.4f}" for value in apart[name])
        end = ", ".join(f"{value:.3f}" for value in path[-1])
        print(f"{name:12}{distances}            ({end}){'' if rests else ' still moving'}")
        assert (apart[name].max() < PRECISE) == (name in unbiased)
        assert (np.abs(path[-1] - runs.optimum).max() < 1e-5) == (name in unbiased)
    print(f"{'the optimum':51}({', '.join(f'{value:.3f}' for value in runs.optimum)})")


def print_variance() -> None:
    """The variance at three baselines; then both squared coefficients from small r to large."""
    from klsym.experiments.gallery import GALLERY
    from klsym.experiments.pictures.variance import baseline_curve
    from klsym.language.abbreviations import Context
    from klsym.numeric.models import random_model

    _, _, points = baseline_curve(random_model(3, 8, Context(on_policy=True)))
    for name, (b, variance) in points.items():
        print(f"{name:6} b = {b:7.4f}   total variance {variance:7.4f}")
    assert points["b*"][1] < points["KL"][1] < points["none"][1]
    first, second = GALLERY["variance"].make().axes[0].lines[:2]
    curves = list(zip(first.get_xdata(), first.get_ydata(), second.get_ydata(), strict=True))
    for ratio, k1_size, k3_size in curves[::40]:
        order = "above" if k1_size > k3_size else "below"
        print(f"r = {ratio:8.4f}   {k1_size:8.4f} {order} {k3_size:8.4f}")
    assert all((k1_size > k3_size) == (ratio < exp(1 / 2)) for ratio, k1_size, k3_size in curves)


def print_rewards() -> None:
    """The logged value and the update of k1, k2 and k3 in the reward, for Gaussians and on two outcomes."""
    from klsym.experiments.gallery import REFERENCE, reward_penalties
    from klsym.experiments.pictures.rewards import back, between_gaussians

    print("Gaussians: the number logged, and the push along mean and log scale")
    for shift in (0.5, 1.0, 2.0):
        for name, penalty in reward_penalties().items():
            value, push = between_gaussians(penalty, shift)
            along = "  ".join(f"{where} {round(x, 6) + 0.0:.4f}" for where, x in push.items())
            print(f"  d = {shift}  {name}  logged {value:.4f}   {along}")
            assert (name == "k3") == (abs(push["mean"]) < PRECISE)
    print("\nTwo outcomes: the pull back to p at log odds", ", ".join(f"{t:+.1f}" for t in ODDS))
    for name, penalty in reward_penalties().items():
        pull = back(penalty, REFERENCE, ODDS)
        print(f"  {name}", " ".join(f"{x:+8.4f}" for x in pull))
        assert (name == "k1") == bool((pull > 0).all())


def print_batches() -> None:
    """What centring leaves of the penalty, and the variance of leave-one-out."""
    from klsym.experiments.pictures.batches import share_left, variance_ratio
    from klsym.numeric.models import FiniteModel

    names = {"none": "no-centering", "mean": "mean-centering", "leave-one-out": "leave-one-out"}
    proofs = {key: recall(f"batch.{name}").proofs[0] for key, name in names.items()}
    small = FiniteModel(q=["1/2", "1/4", "1/4"], p=["1/4", "1/4", "1/2"], u=[1, 0, 0])
    far = FiniteModel(q=["1/3"] * 3, p=["1/20", "1/20", "9/10"], u=[1, 0, 0])
    for size in (2, 3, 5, 8):
        shares = {key: share_left(proof, proofs["none"], small, size) for key, proof in proofs.items()}
        assert all(abs(shares[key] - 1) < PRECISE for key in ("none", "leave-one-out"))
        assert abs(shares["mean"] - (1 - 1 / size)) < PRECISE
        print(f"n = {size}: " + "  ".join(f"{key} {share:.6f}" for key, share in shares.items()))
    loo, gain = (recall(f"variance.{name}").proofs[0] for name in ("loo", "loo-not-always-better"))
    ratios = {size: variance_ratio(loo, gain, far, size) for size in (2, 4, 8, 64)}
    assert ratios[2] > 1 > ratios[8] > ratios[64]
    print("total variance against no centring, p far off:", {k: round(v, 4) for k, v in ratios.items()})


def print_sequences() -> None:
    """Which products of a log ratio and a score vanish, and mean lengths before and after descent."""
    from klsym.experiments.pictures.sequences import mean_lengths, products
    from klsym.study.sequences.autoregressive import random_autoregressive

    pairs = products(random_autoregressive(10, 2, 2, 6), random_autoregressive(11, 2, 2, 6))
    assert np.abs(np.tril(pairs, -1)).max() < 1e-14
    share = np.trace(pairs**2) / (pairs**2).sum()
    print(f"nothing below the diagonal; share of the squares on it: {share:.4f}")
    for start in (random_autoregressive(seed, 2, 1, 12) for seed in range(3)):
        lengths = mean_lengths(start, rate=1.0, steps=60)
        assert (np.diff(lengths) > 0).all()
        print(f"mean length {lengths[0]:.3f} -> {lengths[-1]:.3f} of at most {start.max_length}")


def print_coefficients() -> None:
    """The score coefficients of six losses at six ratios, less their value at r = 1."""
    from klsym.experiments.gallery import coefficient_verdicts
    from klsym.study.figures.coefficients import curves

    points = (1 / 20, 1 / 5, 1 / 2, 2, 5, 20)
    values = curves(coefficient_verdicts(), points)
    print(f"{'c(r) - c(1) at r =':20}" + "".join(f"{r:9.2f}" for r in points))
    for name, row in values.items():
        print(f"{name:20}" + "".join(f"{value:9.3f}" for value in row))
    k3 = values["forward: k3"]
    assert (k3[:3] < 1).all() and k3[-1] < 6 * values["reverse: k2"][-1]
    assert abs(values["k3 clamped"][-1]) < PRECISE and (values["k3 as reward"][3:] > 0).all()


def print_catalogue() -> None:
    """How many losses of each size there are, off-policy in the loss; small sizes are counted again."""
    from klsym.engine.questions.candidates import load_catalogue
    from klsym.study.questions.catalogue import COUNTED_KINDS, catalogue
    from klsym.study.questions.loss_enumeration import levels

    stored = load_catalogue()
    for search in catalogue(levels(5)).settings:
        again = stored.of(search.sampling, search.use)
        assert all(again.counts[kind][:5] == search.counts[kind] for kind in COUNTED_KINDS)
    search = stored.of("off-policy", "loss")
    print("off-policy, in the loss, up to each size")
    print(f"{'leaves and operations':24}", *(f"{n:>9}" for n in range(1, stored.size + 1)))
    print(f"{'expressions':24}", *(f"{n:>9}" for n in stored.spellings))
    for kind in COUNTED_KINDS:
        print(f"{kind.replace('_', ' '):24}", *(f"{n:>9}" for n in search.counts[kind]))
    print(f"{stored.spellings[-1] / search.counts['losses'][-1]:.0f} spellings a loss")


def print_errata() -> None:
    """Both sides of each refuted printed form, in the model that refutes it."""
    from klsym.experiments.pictures.errata import list_refuted

    print(f"{'printed form, refuted in its model':36}{'left':>10}{'right':>10}")
    for name, left, right in list_refuted():
        assert left != right
        print(f"{name:36}{left:>10.4f}{right:>10.4f}")


NUMBERS: dict[str, Callable[[], None]] = {
    "gaussian-estimators": print_gaussians, "on-policy": print_on_policy, "off-policy": print_off_policy,
    "variance": print_variance, "rewards": print_rewards, "batches": print_batches,
    "sequences": print_sequences, "coefficients": print_coefficients, "catalogue": print_catalogue,
    "errata": print_errata,
}  # fmt: skip
