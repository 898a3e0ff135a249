"""Verification of the ledger: every identity exactly, by sampling, and, where one is installed, by autograd.

All sampled comparisons of a run share one false-alarm rate, so the trials are arranged first, counted,
then run together, on this machine or on a Dask cluster, and judged in the end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from klsym.study.ledger.settle_all import judge
from klsym.study.ledger.settle_claim import Settled
from klsym.study.sampling.finite import FiniteSampler
from klsym.study.sampling.identities import Identity, Options, identities
from klsym.study.sampling.monte_carlo_check import Trial, TrialResult
from klsym.study.sampling.runner import Heard, run_all
from klsym.study.sampling.statistics import FALSE_ALARM, Level, TooFew, written

CELL = 22  # width of a column of the table
SHOWN = 4  # sides with too few samples that are named one by one
PATIENCE = 4  # times the samples asked for are drawn where a check needs them
AGREEMENT = 1e-10  # of autograd with the symbolic per-sample gradient, relative to its terms


@dataclass
class Checked:
    """What the verification of one identity found; a text says why a check was not made.

    few: sides that would need more samples.
    """

    identity: Identity
    exact: tuple[bool, str]
    finite: list[TrialResult] | str = "not sampled"
    gaussian: list[TrialResult] | str = "not sampled"
    autograd: float | None = None
    few: list[tuple[str, TooFew]] = field(default_factory=list)

    @property
    def outcomes(self) -> list[TrialResult]:
        return [o for group in (self.finite, self.gaussian) if not isinstance(group, str) for o in group]

    @property
    def passed(self) -> bool:
        agrees = self.autograd is None or self.autograd <= AGREEMENT
        return self.exact[0] and agrees and all(outcome.passed for outcome in self.outcomes)


@dataclass
class Report:
    """A whole verification: what was checked, at which level, and which claims did not settle."""

    options: Options
    level: Level | None
    checked: list[Checked] = field(default_factory=list)
    unsettled: list[Settled] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        return not self.failed

    @property
    def failed(self) -> list[str]:
        """The claims that did not settle, and the identities that do not agree."""
        disagreeing = [one.identity.name for one in self.checked if not one.passed]
        return [*(one.claim.id for one in self.unsettled), *disagreeing]

    @property
    def outcomes(self) -> list[TrialResult]:
        return [outcome for one in self.checked for outcome in one.outcomes]


def verify(
    settled: list[Settled],
    options: Options,
    scheduler: str | None = None,
    progress: Heard | None = None,
    false_alarm: float = FALSE_ALARM,
    exactly: Callable[[Identity], tuple[bool, str]] | None = None,
) -> Report:
    """Cross-check settled claims; `report.passed` says whether everything agrees.

    settled: claims; experiments are no identities, and are left out.
    scheduler: the address of a Dask scheduler; the numbers are the same wherever the work is done.
    progress: called with (done, total) as trials end.  false_alarm: of the whole run.
    Raises UsageError: no such scheduler, too many samples.
    """
    chosen = [one for one in settled if one.claim.verdict != "computed"]
    every = [identity for i, one in enumerate(chosen) for identity in identities(one, i, options)]
    trials = [trial for identity in every for trial in identity.trials]
    comparisons = sum(trial.comparisons for trial in trials)
    level = Level(comparisons, false_alarm) if comparisons else None
    if level is not None:
        for identity in every:
            identity.finite = _enlarged(identity.finite, level)
            identity.gaussian = _enlarged(identity.gaussian, level)
    work = [request for identity in every for trial in identity.trials for request in trial.requests()]
    results = iter(run_all(work, scheduler=scheduler, progress=progress))
    report = Report(options, level, unsettled=[one for one in chosen if one.error])
    for identity in every:
        checked = Checked(identity, exactly(identity) if exactly else judge(identity.part, identity.claim))
        checked.finite = _judged(identity.finite, level, results, checked.few)
        checked.gaussian = _judged(identity.gaussian, level, results, checked.few)
        checked.autograd = _autograd(identity, options)
        report.checked.append(checked)
    return report


def _enlarged(trials: list[Trial] | str, level: Level) -> list[Trial] | str:
    return trials if isinstance(trials, str) else [trial.enlarged(level, PATIENCE) for trial in trials]


def _judged(
    trials: list[Trial] | str, level: Level | None, results: Any, few: list[tuple[str, TooFew]]
) -> list[TrialResult] | str:
    if isinstance(trials, str) or level is None:
        return trials if isinstance(trials, str) else "nothing to sample"
    found: list[TrialResult] = []
    for trial in trials:
        given = [next(results) for _ in trial.requests()]
        try:
            found.append(trial.judge(level, given))
        except TooFew as error:
            few.append((trial.name, error))
    return found or "too few samples"


# ---------------------------------------------------------------------------- autograd
def _autograd(identity: Identity, options: Options) -> float | None:
    """The largest difference of autograd and the symbolic gradient on the same counts, over their size."""
    if options.on.name == "numpy" or isinstance(identity.finite, str) or not identity.losses:
        return None
    trial = identity.finite[0]
    # NumPy's maximum, unlike Python's, never hides a nan
    return float(np.max([_difference(trial, measure, loss, options) for measure, loss, _ in identity.losses]))


def _difference(trial: Trial, measure: str, loss: Any, options: Options) -> float:
    from klsym.language.abbreviations import ExpectedGradient, Side
    from klsym.language.convert import to_ring
    from klsym.study.sampling.autograd import expected_gradient
    from klsym.study.sampling.means import means_of

    sampler = trial.sampler
    assert isinstance(sampler, FiniteSampler)
    shares = sampler.counts(measure, trial.samples, trial.stream) / trial.samples
    p, model = sampler.probabilities, sampler.model
    on_policy = sampler.context.on_policy  # then log mu is log q, detached
    rewards = {name: np.array([float(x) for x in row]) for name, row in model.rewards.items()}
    values = {"log_p": np.log(p["p"]), **rewards, **sampler.parameters}
    values |= {} if on_policy else {"log_mu": np.log(p["mu"])}
    values |= {"log_old": np.log(p["old"])} if "old" in p else {}
    found = expected_gradient(
        loss, np.log(p["q"]), shares, values, backend=options.on.name, device=options.on.device,
        sampling="on-policy" if on_policy else "off-policy",
    )  # fmt: skip
    side = Side.from_atom(ExpectedGradient(measure, to_ring(loss)))
    [(_, (mean,))] = means_of(side, sampler.context)
    rows = sampler.along(np.eye(model.size)).rows(mean)
    size = float(np.max(np.abs(rows) @ shares))
    return float(np.max(np.abs(found - rows @ shares))) / size if size else float(np.max(np.abs(found)))


# ---------------------------------------------------------------------------- the table
def table(report: Report) -> str:
    """One line an identity: exact difference, z and power of both samplings, the controls, autograd."""
    names = [one.identity.name for one in report.checked]
    width = max(map(len, names), default=8)
    head = f"{'identity':<{width}}  {'finite model':^{CELL}}  {'Gaussians':^{CELL}}  controls  "
    head += "autograd  exact oracle" if _has_autograd(report) else "exact oracle"
    lines = [head, "-" * (width + 2 * CELL + 44)]
    for name, one in zip(names, report.checked, strict=True):
        cells = [name.ljust(width), _cell(one.finite), _cell(one.gaussian), _controls(one).rjust(8)]
        if _has_autograd(report):
            cells.append(("-" if one.autograd is None else f"{one.autograd:.0e}").rjust(8))
        cells.append(one.exact[1] if one.exact[0] else f"FAILED: {one.exact[1]}")
        lines.append("  ".join(cells) + ("" if one.passed else "   <-- FAILED"))
    return "\n".join(lines)


def _has_autograd(report: Report) -> bool:
    return any(one.autograd is not None for one in report.checked)


def _cell(outcomes: list[TrialResult] | str) -> str:
    """The z nearest to a rejection, or a refutation's difference, and the smallest bias seen."""
    if isinstance(outcomes, str):
        return "-".center(CELL)
    worst = max(outcomes, key=lambda o: o.strain)
    return f"z {worst.z:+8.2g} sees {max(o.sees for o in outcomes):6.0e}".center(CELL)


def _controls(one: Checked) -> str:
    outcomes = one.outcomes
    return f"{sum(o.rejected for o in outcomes)}/{len(outcomes)}" if outcomes else "-"


def summary(report: Report) -> list[str]:
    """What was compared, at which rates, and what could not be sampled and why."""
    outcomes, lines = report.outcomes, []
    if report.level is not None:
        lines.append(
            f"{report.level.comparisons} comparisons in {len(outcomes)} trials; family-wise false-alarm"
            f" rate {report.level.false_alarm:.0e}: |z| up to {max(o.threshold for o in outcomes):.2f} is"
            f" chance. A bias of the size shown is seen with probability 1 - {report.level.miss:.0e}."
            if outcomes else "nothing was sampled"
        )  # fmt: skip
    rejected = sum(outcome.rejected for outcome in outcomes)
    lines.append(f"negative controls (k1/10 added to a coefficient): {rejected} of {len(outcomes)} rejected")
    lines += _reasons(report)
    lines += [f"{one.claim.id} is not settled: {' '.join(one.error.split())}" for one in report.unsettled]
    failed = report.failed
    lines.append(f"FAILED: {', '.join(failed)}" if failed else f"all {len(report.checked)} identities agree")
    return lines


def _reasons(report: Report) -> list[str]:
    found: dict[str, list[str]] = {}
    for one in report.checked:
        if isinstance(one.finite, str) and one.finite == one.gaussian:
            found.setdefault(f"not sampled: {one.finite}", []).append(one.identity.name)
            continue
        for where, group in (("finite models", one.finite), ("Gaussians", one.gaussian)):
            if isinstance(group, str):
                found.setdefault(f"not sampled on {where}: {group}", []).append(one.identity.name)
    for one in report.checked:
        for note in one.identity.notes:
            found.setdefault(f"not sampled: {note}", []).append(one.identity.name)
    few = [(one.identity.name, side, error) for one in report.checked for side, error in one.few]
    for name, side, error in few:
        reason = f"{side}: {error}"
        if len(few) > SHOWN:
            most = written(max(error.needed for _, _, error in few))
            reason = f"too few samples for {len(few)} sides: {most} would do for all"
        found.setdefault(f"not sampled: {reason}", []).append(name)
    return [
        f"{reason} ({len(names)}: {names[0]}{', ...' if len(names) > 1 else ''})"
        for reason, names in found.items()
    ]
