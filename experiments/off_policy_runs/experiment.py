"""Does a KL penalty stabilise learning from old samples?  Bandits, with and without importance weights.

Shah et al. report that KL regularisation stabilises the off-policy training of language models.  Here the
sampler is the policy of up to 100 updates ago.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby, product
from typing import Any

from klsym.experiments.off_policy_runs.runs import Run, Setup, run_together
from klsym.experiments.softmax import Counted
from klsym.experiments.summaries import NumberTable, Ticker, below
from klsym.study.ledger.experiment_result import Finding

AGES, BETAS, STEPS = (1, 10, 100), (0.0, 0.03, 0.1, 0.3), (2.0, 8.0)
SAMPLES = 8  # of an update
NEGLIGIBLE = 0.001  # of a reward
FALL = 0.1  # of what a run had gained at its best: if it has lost more at its end, it has fallen
STAND_IN = "bandits"  # Shah et al. trained language models
Key = tuple[bool, float, int, float]  # weighted, step, age, beta


@dataclass(frozen=True, eq=False)
class OffPolicyRuns:
    """Everything the experiment computed: the runs by (weighted, step, age, beta).

    exact: those of the exact update, at the first step, without a penalty and with beta = 0.1.
    """

    seed: int
    repeats: int
    runs: dict[Key, Run]
    exact: dict[Key, Run]

    @property
    def setup(self) -> str:
        """One line on the set-up."""
        s = next(iter(self.runs.values())).setup
        return (
            f"{s.arms} arms, log p and R of spread 1, start at p, {s.updates} updates of step"
            f" {' or '.join(f'{x:g}' for x in STEPS)} from n = {s.n} samples of a sampler that is renewed"
            f" every {', '.join(map(str, AGES))} updates; k1 in the reward; {self.repeats} repeats, seed"
            f" {self.seed}"
        )

    def find_regret(self, weighted: bool, age: int, beta: float, step: float = STEPS[0]) -> Any:
        """max R - E_q[R] at the end; shape (repeats,)."""
        return self.runs[weighted, step, age, beta].regret

    def find_fallen(self, weighted: bool, age: int, beta: float, step: float = STEPS[-1]) -> float:
        """The share of runs that have lost more than a tenth of what they had gained."""
        return float((self.runs[weighted, step, age, beta].fallen > FALL).mean())

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What the runs show, beside what the paper says."""
        return (
            _find_shortfall(self, weighted=False),
            _find_shortfall(self, weighted=True),
            _find_falls(self, weighted=False),
            _find_falls(self, weighted=True),
            _find_price(self),
            _find_bias(self),
        )

    def table(self) -> NumberTable:
        """The mean shortfall of the reward, and the per cent of runs that have fallen, for each set-up."""
        header = ("weights", "step", "age", "beta", "max R - E_q[R]", "fallen", "entropy")
        rows: list[tuple[str, ...]] = [
            (
                "q/mu" if weighted else "none", f"{step:g}", f"{age}", f"{beta:g}",
                f"{one.regret.mean():.3f}", f"{(one.fallen > FALL).mean():.0%}", f"{one.entropy.mean():.2f}",
            )
            for (weighted, step, age, beta), one in self.runs.items()
        ]  # fmt: skip
        return header, rows


# ---------------------------------------------------------------------------- findings
SAYS = "KL regularisation stabilises off-policy training"


def _name(weighted: bool) -> str:
    return "with weights q/mu" if weighted else "without weights"


def _find_shortfall(data: OffPolicyRuns, weighted: bool) -> Finding:
    """Compare the reward at the end without and with a penalty of beta = 0.1."""
    pairs = [[data.find_regret(weighted, age, beta) for beta in (0.0, 0.1)] for age in AGES]
    texts = [
        f"{none.mean():.3f} and {penalised.mean():.3f} at age {age}"
        for age, (none, penalised) in zip(AGES, pairs, strict=True)
    ]
    is_better = [below(penalised, none) for none, penalised in pairs]
    none, penalised = pairs[-1]
    return Finding(
        f"{_name(weighted)}, step {STEPS[0]:g}: the reward at the end falls short of the best arm's by"
        f" {', '.join(texts)}, without a penalty and with beta = 0.1",
        holds=bool(none.mean() > penalised.mean()),
        paper=SAYS,
        agrees=bool(is_better[-1]) or None,
        stand_in=STAND_IN,
    )


def _find_falls(data: OffPolicyRuns, weighted: bool) -> Finding:
    """Compare the shares of runs that end below what they had reached, with old samples and large steps."""
    age = AGES[-1]
    shares = [data.find_fallen(weighted, age, beta) for beta in BETAS]
    listed = ", ".join(f"{share:.0%} at beta = {beta:g}" for share, beta in zip(shares, BETAS, strict=True))
    rises, falls = shares[-1] > shares[0] + 0.1, max(shares[1:-1]) < shares[0]
    return Finding(
        f"{_name(weighted)}, step {STEPS[-1]:g}, age {age}: the share of runs that have lost more than a"
        f" tenth of what they had gained is {listed}",
        holds=bool(rises if weighted else falls),
        paper=SAYS,
        agrees=bool(falls and not rises),
        stand_in=STAND_IN,
    )


def _find_price(data: OffPolicyRuns) -> Finding:
    """Say what a strong penalty costs, whatever the age of the samples."""
    costs = [data.find_regret(weighted, age, 0.3).mean() for weighted, age in product((True, False), AGES)]
    return Finding(
        f"with beta = 0.3 the reward falls short by {min(costs):.2f} to {max(costs):.2f} at every age, with"
        " and without weights: the price of the penalty, whose optimum it is",
        bool(max(costs) - min(costs) < 0.02),
    )


def _find_bias(data: OffPolicyRuns) -> Finding:
    """Compare exact updates, in which weights leave nothing of the age of the samples."""

    def list_regrets(weighted: bool, beta: float) -> list[Any]:
        return [data.exact[weighted, STEPS[0], age, beta].regret for age in AGES]

    none, penalised = list_regrets(False, 0.0), list_regrets(False, 0.1)
    weighted = [list_regrets(True, beta) for beta in (0.0, 0.1)]
    apart = max(float(abs(one - of[0]).max()) for of in weighted for one in of)
    return Finding(
        f"with the exact update and without weights, the reward falls short by {none[0].mean():.3f} at"
        f" age {AGES[0]} and {none[-1].mean():.3f} at age {AGES[-1]}, with beta = 0.1 by"
        f" {penalised[0].mean():.3f} and {penalised[-1].mean():.3f}; with weights the age changes no run by"
        f" more than {NEGLIGIBLE:g}",
        holds=bool(none[-1].mean() > 2 * none[0].mean() and apart <= NEGLIGIBLE),
        paper=SAYS,
        agrees=bool(below(penalised[-1], none[-1])) or None,
        stand_in=STAND_IN,
    )


def off_policy_runs(seed: int = 0, repeats: int = 100, progress: Counted = None) -> OffPolicyRuns:
    """Run the experiment.

    repeats: random bandits, 2 or more.  progress: called with (set-ups done, set-ups in all).
    Raises UsageError: numbers out of range.
    Source: Shah et al. 2025, abstract.
    """
    keys = list(product((False, True), STEPS, AGES, BETAS))
    exact_keys = list(product((False, True), STEPS[:1], AGES, (0.0, 0.1)))
    tick = Ticker(progress, len(keys) + len(exact_keys))

    def run_all(chosen: list[Key], n: int) -> dict[Key, Run]:
        runs: dict[Key, Run] = {}
        for _, group in groupby(chosen, key=lambda key: key[0]):  # those with weights run together
            keys_of_group = list(group)
            setups = [Setup(age, beta, weighted, step, n) for weighted, step, age, beta in keys_of_group]
            for key, one in zip(keys_of_group, run_together(setups, repeats, seed), strict=True):
                runs[key] = tick.after(one)
        return runs

    return OffPolicyRuns(seed, repeats, run_all(keys, SAMPLES), run_all(exact_keys, 0))
