"""Distillation by descending estimates of the sequence KL: a stand-in for figure 8 of Tang & Munos 2025.

There an 8B language model is distilled from a 70B one; here a tabular policy descends KL(q||p) over
sequences to a reference, with the exact KL and gradient at hand.  Two questions that the paper's figure
leaves open are
answered beside its own: does the order of the estimators hold at the best step size of each, and does it
depend on whether the policy can equal the reference?  It must: the token-level losses have another
stationary point than the sequence KL unless the policy can equal the reference, where every one of the
fields vanishes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from klsym.experiments.distillation.models import ESTIMATORS
from klsym.experiments.distillation.reward import RewardAgainstKL, reward_against_kl
from klsym.experiments.distillation.runs import FIELDS, Setup, descend, noise
from klsym.experiments.softmax import Counted, check_runs, refuse_unless
from klsym.experiments.summaries import NumberTable, Ticker
from klsym.study.ledger.experiment_result import Finding, compare_with_source

STEPS = 10.0 ** np.arange(-2.0, 1.25, 0.5)  # step sizes; Adam's are a tenth of them
EVERY = 3  # iterations between two records
SMALL = 1  # which of the step sizes is small: too small to converge within the horizon
LITTLE = 0.75  # of the KL at the start: if more is left, little progress was made
STAND_IN = "a small model"
CLEAR = 3.0  # standard errors that make a difference count
BASE = (Setup("base"), Setup("base", student_memory=2))
_OUT, _IN = BASE
OTHERS = (  # one thing changed at a time
    replace(_OUT, name="length 5", max_length=5),
    replace(_OUT, name="length 30", max_length=30, stop=-3.0),
    replace(_OUT, name="10 tokens", vocabulary=10),
    replace(_OUT, name="policy sees nothing", student_memory=0),
    replace(_OUT, name="reference sees 3", memory=3),
    replace(_OUT, name="spread p 3, q 3", policy=3.0),
    replace(_OUT, name="spread p 1, q 3", reference=1.0, policy=3.0),
    replace(_OUT, name="spread p 1, q 1", reference=1.0),
    replace(_OUT, name="n = 16", n=16),
    replace(_OUT, name="240 iterations", iterations=240),
    replace(_OUT, name="Adam", adam=True),
    replace(_IN, name="length 30", max_length=30, stop=-3.0),
    replace(_IN, name="10 tokens, both see 1", vocabulary=10, memory=1, student_memory=1),
    replace(_IN, name="spread p 1, q 3", reference=1.0, policy=3.0),
    replace(_IN, name="p's logits + 1 N(0,1)", reference=1.0, near=True),
    replace(_IN, name="p's logits + 3 N(0,1)", reference=1.0, policy=3.0, near=True),
    replace(_IN, name="n = 16", n=16),
    replace(_IN, name="240 iterations", iterations=240),
    replace(_IN, name="Adam", adam=True),
)
# What the paper's figure 8 shows, as pairs (ends lower, ends higher).
CLAIMS = (
    ("token vanilla", "token k3"),
    ("sequence vanilla", "token vanilla"),
    ("leave-one-out", "sequence vanilla"),
    ("cumulative", "sequence vanilla"),
)


@dataclass(frozen=True, eq=False)
class Comparison:
    """One claim in one set-up: log(KL of the one said to end lower / KL of the other), and its error."""

    log_ratio: float
    error: float

    @property
    def verdict(self) -> int:
        """1 the claim holds, -1 the reverse does, 0 the difference is not clear."""
        return -int(np.sign(self.log_ratio)) * int(abs(self.log_ratio) > CLEAR * self.error)


def compare(final: Any, lower: str, higher: str, at: Sequence[int]) -> Comparison:
    """The ratio of two mean KLs, its error by the delta method from runs paired by repeat.

    log ratio = log mean a - log mean b      error = sd(a/mean a - b/mean b) / sqrt(repeats)

    final: shape (estimators, steps, repeats).  at: which step size each is taken at.
    """
    names = list(ESTIMATORS)
    a, b = (final[names.index(name), i] for name, i in zip((lower, higher), at, strict=True))
    spread = (a / a.mean() - b / b.mean()).std(ddof=1)
    return Comparison(float(np.log(a.mean() / b.mean())), float(spread / np.sqrt(len(a))))


@dataclass(frozen=True, eq=False)
class Runs:
    """All estimators in one set-up.

    kl: shape (fields, records, steps, repeats), nats; the fields are FIELDS or its first five, the first
    record is the start and the last the end.  steps: shape (steps,).
    """

    setup: Setup
    steps: Any
    kl: Any

    @property
    def share(self) -> Any:
        """Mean final KL as a share of the mean KL at the start, shape (fields, steps)."""
        return self.kl[:, -1].mean(axis=-1) / self.kl[:, 0].mean(axis=-1)

    @property
    def best(self) -> Any:
        """The step size, by number, with the lowest final KL of each field."""
        return self.share.argmin(axis=1)

    @property
    def common(self) -> int:
        """The one step size, by number, that serves the five estimators best: the lowest sum of log KL."""
        return int(np.log(self.share[: len(ESTIMATORS)]).sum(axis=0).argmin())

    def comparisons(self, own: bool) -> tuple[Comparison, ...]:
        """Every claim, at the best step size of each estimator or at the common one."""
        names, final = list(ESTIMATORS), self.kl[: len(ESTIMATORS), -1]
        places = [tuple(self.best[names.index(n)] if own else self.common for n in pair) for pair in CLAIMS]
        return tuple(compare(final, *pair, at=at) for pair, at in zip(CLAIMS, places, strict=True))

    def lowest(self, name: str) -> float:
        """Final share at the best step size of this field."""
        return float(self.share[FIELDS.index(name)].min())


@dataclass(frozen=True, eq=False)
class Figure8:
    """The distillation runs: the two base set-ups in full, the others at their end, and figure 7's stand-in.

    base: out of reach, within reach.  others: with two records, the start and the end.
    iterations: of the records of `base`.  noise: for each base set-up, noise over signal of each estimator
    at the start, and the cosine between its mean and the gradient.
    """

    seed: int
    repeats: int
    iterations: Any
    base: tuple[Runs, Runs]
    others: tuple[Runs, ...]
    noise: tuple[dict[str, tuple[float, float]], ...]
    low: RewardAgainstKL

    @property
    def rows(self) -> tuple[Runs, ...]:
        """Every set-up, those out of reach first."""
        every = (*self.base, *self.others)
        return tuple(sorted(every, key=lambda runs: runs.setup.within_reach))

    @property
    def setup(self) -> str:
        """One line on the set-up."""
        s, within = self.base[0].setup, self.base[1].setup
        return (
            f"{s.vocabulary} tokens and stop, length up to {s.max_length}, reference sees {s.memory} tokens, "
            f"the policy {s.student_memory} (out of reach) or {within.student_memory} (within reach), "
            f"n = {s.n}, {s.iterations} iterations, {self.repeats} repeats, seed {self.seed}"
        )

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What the runs show, beside what the paper says."""
        found = (*_orders(self), _progress(self), *_reasons(self), *_sensitivity(self), *self.low.findings)
        return tuple(replace(finding, stand_in=STAND_IN) for finding in found)

    def table(self) -> NumberTable:
        """Final KL as a share of the start, at the common and at each estimator's best step size."""
        header = ["set-up", "within reach", "start KL", "common step"]
        header += [f"{name}: common, best (step)" for name in ESTIMATORS]
        rows = []
        for runs in self.rows:
            start = runs.kl[0, 0, 0].mean()
            row = [runs.setup.name, "yes" if runs.setup.within_reach else "no", f"{start:.3g}"]
            row.append(f"{runs.steps[runs.common]:.2g}")
            for share, best in zip(runs.share[: len(ESTIMATORS)], runs.best, strict=False):
                row.append(f"{share[runs.common]:.2f}, {share[best]:.2f} ({runs.steps[best]:.2g})")
            rows.append(tuple(row))
        return tuple(header), rows


# ---------------------------------------------------------------------------- findings
def _percent(share: float) -> str:
    return f"{100 * share:.0f}%"


def _list(runs: Runs, names: tuple[str, ...]) -> str:
    return ", ".join(f"{name} {_percent(runs.lowest(name))}" for name in names)


def _orders(data: Figure8) -> tuple[Finding, ...]:
    paper = "slowest first: token k3, token vanilla, sequence vanilla, leave-one-out and cumulative"
    names = tuple(ESTIMATORS)
    texts, hold, agree = [], [], {}  # agree: where the reference is -> is the order that of the paper?
    for runs in data.base:
        token, sequence = ([runs.lowest(n) for n in part] for part in (names[:2], names[2:]))
        order = tuple(sorted(names, key=runs.lowest, reverse=True))
        verdicts = [c.verdict for c in runs.comparisons(own=True)]
        holds, leaders, where = max(sequence) < min(token), "the sequence estimates", "out of reach"
        if runs.setup.within_reach:
            holds, leaders, where = max(token) < min(sequence) / 2, "the token-level losses", "within reach"
        text = f"with the reference {where} and each estimator at its best step, {leaders} end lowest: "
        text += f"the KL falls to {_list(runs, order)} of the start; {verdicts.count(1)} of the paper's "
        text += f"{len(CLAIMS)} gaps are clear, {verdicts.count(-1)} clearly reversed"
        texts.append(text)
        hold.append(holds)
        agree[where] = -1 not in verdicts and order[:3] == names[:3]
    apart = " or ".join(where for where, same in agree.items() if not same)
    aside = f"but not with the reference {apart}" if apart else ""
    agrees = any(agree.values())
    return Finding("; ".join(texts), all(hold), paper, agrees, exception=aside), _small_step(data)


def _progress(data: Figure8) -> Finding:
    """Does token k3 get anywhere?  At its best step, and at the small one."""
    pairs = [(runs.lowest("token k3"), float(runs.share[0, SMALL])) for runs in data.base]
    best, small = (", ".join(map(_percent, shares)) for shares in zip(*pairs, strict=True))
    vanilla = ", ".join(_percent(runs.lowest("token vanilla")) for runs in data.base)
    lowered = all(share < LITTLE for share, _ in pairs)
    return Finding(
        f"token k3 does lower the sequence KL: to {best} of the start, out of and within reach, at its best "
        f"step, to {small} at step {STEPS[SMALL]:.2g}; token vanilla to {vanilla} at its best",
        lowered,
        "token-level k3 makes little progress on the sequence KL, while token vanilla lowers it",
        all(share > LITTLE for share, _ in pairs),
    )


def _small_step(data: Figure8) -> Finding:
    """Before anything converges, the true gradient is by definition the fastest way down."""
    names = ("leave-one-out", "token vanilla")
    pairs = [[float(runs.share[list(ESTIMATORS).index(name), SMALL]) for name in names] for runs in data.base]
    text = [f"{a:.0%} against {b:.0%}" for a, b in pairs]
    return compare_with_source(
        f"at step {STEPS[SMALL]:.2g}, too small to converge, {names[0]} leads {names[1]} in both: "
        f"{text[0]} out of reach, {text[1]} within",
        all(a < b for a, b in pairs),
        "the sequence estimates are faster",
    )


def _reasons(data: Figure8) -> tuple[Finding, ...]:
    out, within = data.base
    expected = ("expected token k3", "expected token vanilla", "exact gradient")
    floor = out.lowest("expected token vanilla") / out.lowest("exact gradient")
    inside = within.lowest("expected token vanilla") / within.lowest("exact gradient")
    noise = {name: ratio for name, (ratio, _) in data.noise[1].items()}
    levels = ", ".join(f"{name} {noise[name]:.1f}" for name in ESTIMATORS)
    exact, best = (within.lowest(name) for name in ("exact gradient", "leave-one-out"))
    return (
        Finding(
            f"out of reach it is bias: expected updates (n infinite) end at {_list(out, expected)}; within "
            "reach the token-level fields vanish at p too, and end no higher than the exact gradient",
            bool(floor > 1.5 and inside <= 1),
            "token-level losses give a partial gradient",
            bool(floor > 1.5),
        ),
        Finding(
            f"within reach it is variance: the exact gradient ends at {exact:.0%}, its best estimate at "
            f"{best:.0%}; noise over signal of one estimate at the start: {levels}",
            bool(best > 2 * exact and noise["sequence vanilla"] > 2 * noise["token vanilla"]),
            "variance reduction has significant impact",
            bool(noise["sequence vanilla"] > 1.5 * noise["leave-one-out"]),
        ),
    )


def _counts(data: Figure8, claim: int, own: bool, within: bool) -> str:
    rows = [runs for runs in data.rows if runs.setup.within_reach == within]
    signs = [runs.comparisons(own)[claim].verdict for runs in rows]
    return f"{signs.count(1)} yes, {signs.count(-1)} no of {len(signs)}"


def _sensitivity(data: Figure8) -> tuple[Finding, ...]:
    found = []
    for i, (lower, higher) in enumerate(CLAIMS):
        out, within = (
            [runs.comparisons(True)[i].verdict for runs in data.rows if runs.setup.within_reach is reach]
            for reach in (False, True)
        )
        yes, no = (out + within).count(1), (out + within).count(-1)
        turned = no > 0 and within.count(1) == 0
        where = "out of reach only" if turned else "in most set-ups" if no else "wherever the gap is clear"
        text = f"{lower} ends below {higher} {where}: {_counts(data, i, True, False)} set-ups out of reach, "
        text += f"{_counts(data, i, True, True)} within, each at its best step; at one common step "
        text += f"{_counts(data, i, False, False)}, {_counts(data, i, False, True)}"
        holds = out.count(1) > out.count(-1) if turned else yes > no
        found.append(Finding(text, holds, f"{lower} is faster than {higher}", 5 * no < yes))
    return tuple(found)


# ---------------------------------------------------------------------------- the experiment
def run(setup: Setup, names: tuple[str, ...], repeats: int, seed: int, records: tuple[int, ...]) -> Runs:
    """Descend with every one of the fields at every step size."""
    steps = STEPS / 10 if setup.adam else STEPS
    kl = np.array([descend(setup, name, steps, repeats, seed, records) for name in names])
    return Runs(setup, steps, kl)


def figure8(
    seed: int = 0,
    repeats: int = 100,
    other_repeats: int = 40,
    base: tuple[Setup, Setup] = BASE,
    others: tuple[Setup, ...] = OTHERS,
    progress: Counted = None,
) -> Figure8:
    """Run the experiment.

    repeats: independent starts in the two base set-ups and in figure 7's stand-in, 2 or more.
    other_repeats: in each of the other set-ups.  progress: called with (set-ups done, set-ups in all).
    Raises UsageError: numbers out of range.
    Source: Tang & Munos 2025, figures 7 and 8, section 5.
    """
    check_runs(seed, repeats)
    check_runs(seed, other_repeats)
    same = base[0].iterations == base[1].iterations and [b.within_reach for b in base] == [False, True]
    refuse_unless(same, "base: a set-up out of reach and one within, of as many iterations, expected")
    records = tuple(range(0, base[0].iterations, EVERY))
    tick = Ticker(progress, len(base) + len(others) + 1)
    full = [tick.after(run(setup, FIELDS, repeats, seed, records)) for setup in base]
    rest = [tick.after(run(setup, tuple(ESTIMATORS), other_repeats, seed, (0,))) for setup in others]
    low = tick.after(reward_against_kl(seed, repeats))
    return Figure8(
        seed=seed,
        repeats=repeats,
        iterations=np.array([*records, base[0].iterations]),
        base=(full[0], full[1]),
        others=tuple(rest),
        noise=tuple(noise(setup, repeats, seed) for setup in base),
        low=low,
    )
