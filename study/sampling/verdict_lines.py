"""What a verification says on every machine: verdicts, error rates, visible biases, but no drawn number."""

from __future__ import annotations

from collections.abc import Iterable

from klsym.study.ledger.settle_claim import Settled
from klsym.study.sampling.backends import choose_fastest
from klsym.study.sampling.identities import Options
from klsym.study.sampling.verify import Checked, Report, summarise, verify


def cross_check(settled: Iterable[Settled], drawn: int = 500_000) -> str:
    """Check settled claims on finite models and by sampling, and return the result in three lines.

    drawn: samples of a trial.
    Raises AssertionError: an identity does not agree, or a wrong coefficient is not detected.

    >>> from klsym.study.ledger.settle_claim import recall
    >>> print(cross_check([recall("gradient.k3-loss")], drawn=100_000))  # doctest: +ELLIPSIS
    identities: 1; the exact oracle agrees with each
    sampled: 1, in 4 trials; all ... comparisons agree, at a false-alarm rate of 1e-06 for the whole run
    wrong coefficients (k1/10 added): 4 of 4 detected; relative biases above ... would be seen in each trial
    """
    report = verify(list(settled), Options(choose_fastest(), drawn=drawn))
    outcomes = report.outcomes
    assert report.passed and report.level is not None, list_verdict_lines(report)
    assert all(outcome.rejected for outcome in outcomes), list_verdict_lines(report)
    sampled, seen = sum(bool(check_row.outcomes) for check_row in report.checked), [o.sees for o in outcomes]
    return (
        f"identities: {len(report.checked)}; the exact oracle agrees with each\n"
        f"sampled: {sampled}, in {len(outcomes)} trials; all {report.level.comparisons} comparisons agree, at"
        f" a false-alarm rate of {report.level.false_alarm:.0e} for the whole run\n"
        f"wrong coefficients (k1/10 added): {len(outcomes)} of {len(outcomes)} detected; relative biases"
        f" above {max(seen):.0e} would be seen in each trial"
    )


def list_verdict_lines(report: Report) -> list[str]:
    """One line an identity and the summary, the same text whatever the backend draws.

    sees: the smallest bias, relative to the size of what is estimated, that would have been noticed; it
    comes from exact standard errors.

    >>> from klsym.study.ledger.settle_claim import recall
    >>> from klsym.study.sampling.backends import choose_backend
    >>> from klsym.study.sampling.identities import Options
    >>> from klsym.study.sampling.verify import verify
    >>> report = verify([recall("gradient.per-sample")], Options(choose_backend(), drawn=1000))
    >>> list_verdict_lines(report)[0]
    'gradient.per-sample 1/4  exact oracle agrees; not sampled'
    """
    width = max((len(check_row.identity.name) for check_row in report.checked), default=0)
    lines = [
        f"{check_row.identity.name:<{width}}  {describe_verdict(check_row)}" for check_row in report.checked
    ]
    summary_lines = summarise(report)
    return (
        [*lines, *summary_lines]
        if report.level is None
        else [*lines, describe_rates(report), *summary_lines[1:]]
    )


def describe_rates(report: Report) -> str:
    """How many comparisons share which rates.

    The thresholds are left out: the table of `klsym verify` quotes that of the worst direction, which is a
    matter of what was drawn.
    """
    assert report.level is not None
    return (
        f"{report.level.comparisons} comparisons in {len(report.outcomes)} trials share a false-alarm rate of"
        f" {report.level.false_alarm:.0e}; a bias of the size shown is seen with probability"
        f" 1 - {report.level.miss:.0e}"
    )


def describe_verdict(one: Checked) -> str:
    """What the exact oracle, the trials and their controls say of one identity, in words."""
    exact = f"exact oracle {'agrees' if one.exact[0] else 'DISAGREES'}"
    outcomes = one.outcomes
    if not outcomes:
        return f"{exact}; not sampled"
    agree, rejected = sum(o.passed for o in outcomes), sum(o.rejected for o in outcomes)
    trials, controls = (_describe_share(count, len(outcomes)) for count in (agree, rejected))
    return f"{exact}; {trials} trials agree, {controls} controls rejected, sees {_describe_visible_bias(one)}"


def _describe_share(count: int, of: int) -> str:
    return f"{of}" if count == of else f"ONLY {count} of {of}"


def _describe_visible_bias(one: Checked) -> str:
    """The smallest visible bias of the worst trial, on finite models and on Gaussians."""
    groups = (("finite models", one.finite), ("Gaussians", one.gaussian))
    seen = [
        f"{max(outcome.sees for outcome in group):.0e} on {where}"
        for where, group in groups
        if not isinstance(group, str)
    ]
    return ", ".join(seen)
