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
from klsym.study.sampling.identities import Identity, Options, list_identities
from klsym.study.sampling.monte_carlo_check import Trial, TrialResult
from klsym.study.sampling.runner import Heard, run_all
from klsym.study.sampling.statistics import FALSE_ALARM, Level, TooFew, write_number

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
        disagreeing = [entry.identity.name for entry in self.checked if not entry.passed]
        return [*(entry.claim.id for entry in self.unsettled), *disagreeing]

    @property
    def outcomes(self) -> list[TrialResult]:
        return [outcome for check_row in self.checked for outcome in check_row.outcomes]


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
    chosen = [claim_or_part for claim_or_part in settled if claim_or_part.claim.verdict != "computed"]
    every = [
        identity
        for i, claim_or_part in enumerate(chosen)
        for identity in list_identities(claim_or_part, i, options)
    ]
    trials = [trial for identity in every for trial in identity.trials]
    comparisons = sum(trial.comparisons for trial in trials)
    level = Level(comparisons, false_alarm) if comparisons else None
    if level is not None:
        for identity in every:
            identity.finite = _enlarge_trials(identity.finite, level)
            identity.gaussian = _enlarge_trials(identity.gaussian, level)
    work = [request for identity in every for trial in identity.trials for request in trial.list_requests()]
    results = iter(run_all(work, scheduler=scheduler, progress=progress))
    report = Report(
        options, level, unsettled=[claim_or_part for claim_or_part in chosen if claim_or_part.error]
    )
    for identity in every:
        checked = Checked(identity, exactly(identity) if exactly else judge(identity.part, identity.claim))
        checked.finite = _judge_trials(identity.finite, level, results, checked.few)
        checked.gaussian = _judge_trials(identity.gaussian, level, results, checked.few)
        checked.autograd = _measure_autograd_error(identity, options)
        report.checked.append(checked)
    return report


def _enlarge_trials(trials: list[Trial] | str, level: Level) -> list[Trial] | str:
    return trials if isinstance(trials, str) else [trial.enlarge(level, PATIENCE) for trial in trials]


def _judge_trials(
    trials: list[Trial] | str, level: Level | None, results: Any, few: list[tuple[str, TooFew]]
) -> list[TrialResult] | str:
    if isinstance(trials, str) or level is None:
        return trials if isinstance(trials, str) else "nothing to sample"
    trial_results: list[TrialResult] = []
    for trial in trials:
        trial_samples = [next(results) for _ in trial.list_requests()]
        try:
            trial_results.append(trial.judge(level, trial_samples))
        except TooFew as error:
            few.append((trial.name, error))
    return trial_results or "too few samples"


# ---------------------------------------------------------------------------- autograd
def _measure_autograd_error(identity: Identity, options: Options) -> float | None:
    """The largest difference of autograd and the symbolic gradient on the same counts, over their size."""
    if options.on.name == "numpy" or isinstance(identity.finite, str) or not identity.losses:
        return None
    trial = identity.finite[0]
    # NumPy's maximum, unlike Python's, never hides a nan
    return float(
        np.max([_measure_difference(trial, measure, loss, options) for measure, loss, _ in identity.losses])
    )


def _measure_difference(trial: Trial, measure: str, loss: Any, options: Options) -> float:
    from klsym.language.abbreviations import ExpectedGradient, Side
    from klsym.language.convert import to_ring
    from klsym.study.sampling.autograd import estimate_expected_gradient
    from klsym.study.sampling.means import expand_side

    sampler = trial.sampler
    assert isinstance(sampler, FiniteSampler)
    shares = sampler.draw_counts(measure, trial.samples, trial.stream) / trial.samples
    p, model = sampler.probabilities, sampler.model
    on_policy = sampler.context.on_policy  # then log mu is log q, detached
    rewards = {name: np.array([float(x) for x in row]) for name, row in model.rewards.items()}
    values = {"log_p": np.log(p["p"]), **rewards, **sampler.parameters}
    values |= {} if on_policy else {"log_mu": np.log(p["mu"])}
    values |= {"log_old": np.log(p["old"])} if "old" in p else {}
    autograd_gradient = estimate_expected_gradient(
        loss, np.log(p["q"]), shares, values, backend=options.on.name, device=options.on.device,
        sampling="on-policy" if on_policy else "off-policy",
    )  # fmt: skip
    side = Side.from_atom(ExpectedGradient(measure, to_ring(loss)))
    [(_, (mean,))] = expand_side(side, sampler.context)
    rows = sampler.replace_directions(np.eye(model.size)).compute_rows(mean)
    size = float(np.max(np.abs(rows) @ shares))
    return (
        float(np.max(np.abs(autograd_gradient - rows @ shares))) / size
        if size
        else float(np.max(np.abs(autograd_gradient)))
    )


# ---------------------------------------------------------------------------- the table
def build_table(report: Report) -> str:
    """One line an identity: exact difference, z and power of both samplings, the controls, autograd."""
    names = [check_row.identity.name for check_row in report.checked]
    width = max(map(len, names), default=8)
    head = f"{'identity':<{width}}  {'finite model':^{CELL}}  {'Gaussians':^{CELL}}  controls  "
    head += "autograd  exact oracle" if _has_autograd(report) else "exact oracle"
    lines = [head, "-" * (width + 2 * CELL + 44)]
    for name, check_row in zip(names, report.checked, strict=True):
        cells = [
            name.ljust(width),
            _format_cell(check_row.finite),
            _format_cell(check_row.gaussian),
            _format_controls(check_row).rjust(8),
        ]
        if _has_autograd(report):
            cells.append(("-" if check_row.autograd is None else f"{check_row.autograd:.0e}").rjust(8))
        cells.append(check_row.exact[1] if check_row.exact[0] else f"FAILED: {check_row.exact[1]}")
        lines.append("  ".join(cells) + ("" if check_row.passed else "   <-- FAILED"))
    return "\n".join(lines)


def _has_autograd(report: Report) -> bool:
    return any(check_row.autograd is not None for check_row in report.checked)


def _format_cell(outcomes: list[TrialResult] | str) -> str:
    """The z nearest to a rejection, or a refutation's difference, and the smallest bias seen."""
    if isinstance(outcomes, str):
        return "-".center(CELL)
    worst = max(outcomes, key=lambda o: o.strain)
    return f"z {worst.z:+8.2g} sees {max(o.sees for o in outcomes):6.0e}".center(CELL)


def _format_controls(one: Checked) -> str:
    outcomes = one.outcomes
    return f"{sum(o.rejected for o in outcomes)}/{len(outcomes)}" if outcomes else "-"


def summarise(report: Report) -> list[str]:
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
    lines += _list_reasons(report)
    lines += [
        f"{unsettled_claim.claim.id} is not settled: {' '.join(unsettled_claim.error.split())}"
        for unsettled_claim in report.unsettled
    ]
    failed = report.failed
    lines.append(f"FAILED: {', '.join(failed)}" if failed else f"all {len(report.checked)} identities agree")
    return lines


def _list_reasons(report: Report) -> list[str]:
    names_by_reason: dict[str, list[str]] = {}
    for check_row in report.checked:
        if isinstance(check_row.finite, str) and check_row.finite == check_row.gaussian:
            names_by_reason.setdefault(f"not sampled: {check_row.finite}", []).append(check_row.identity.name)
            continue
        for where, group in (("finite models", check_row.finite), ("Gaussians", check_row.gaussian)):
            if isinstance(group, str):
                names_by_reason.setdefault(f"not sampled on {where}: {group}", []).append(
                    check_row.identity.name
                )
    for check_row in report.checked:
        for note in check_row.identity.notes:
            names_by_reason.setdefault(f"not sampled: {note}", []).append(check_row.identity.name)
    too_few = [
        (check_row.identity.name, side, error)
        for check_row in report.checked
        for side, error in check_row.few
    ]
    for name, side, error in too_few:
        reason = f"{side}: {error}"
        if len(too_few) > SHOWN:
            most_needed = write_number(max(error.needed for _, _, error in too_few))
            reason = f"too few samples for {len(too_few)} sides: {most_needed} would do for all"
        names_by_reason.setdefault(f"not sampled: {reason}", []).append(name)
    return [
        f"{reason} ({len(names)}: {names[0]}{', ...' if len(names) > 1 else ''})"
        for reason, names in names_by_reason.items()
    ]
