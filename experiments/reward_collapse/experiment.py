"""k1, k2 and k3 as a detached penalty in the reward of bandits: which runs keep their arms, which collapse.

Shah et al. report that with language models k1 in the reward is stable and k3 unstable, to the point of
collapse.  The mechanism is worked out in klsym.experiments.reward_collapse.theory and run in
klsym.experiments.reward_collapse.runs; here are the experiment and what it shows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from klsym.experiments.reward_collapse.runs import Paths, Setup, flow, run
from klsym.experiments.reward_collapse.theory import growth, stationary_points
from klsym.experiments.softmax import PENALTIES, Counted, is_count, log_softmax, refuse_unless
from klsym.experiments.summaries import NumberTable, Ticker
from klsym.study.ledger.experiment_result import Finding, compare_with_source

EXACT = Setup("base")
SAMPLED = replace(EXACT, name="step 0.1, n = 4", step=0.1)
FREE = replace(EXACT, name="R = 0, start 1", reward=0.0, start=1.0)
OTHERS = (  # one or two things changed at a time
    FREE,
    replace(FREE, name="R = 0, start 3", start=3.0),
    replace(FREE, name="R = 0, start 0.3", start=0.3),
    replace(FREE, name="R = 0, start 0.1", start=0.1),
    replace(EXACT, name="start 1", start=1.0),
    replace(EXACT, name="R/β 0.1", reward=0.1),
    replace(EXACT, name="R/β 3", reward=3.0),
    replace(EXACT, name="3 arms", arms=3),
    replace(EXACT, name="50 arms", arms=50),
    replace(EXACT, name="p uniform", reference=0.0),
    replace(EXACT, name="p of spread 3", reference=3.0),
    replace(EXACT, name="horizon 30", horizon=30.0),
    replace(EXACT, name="horizon 1000", horizon=1000.0),
    replace(SAMPLED, name="R = 0, start 1", reward=0.0, start=1.0),
    replace(SAMPLED, name="R/β 10", beta=0.1, step=1.0),
    replace(SAMPLED, name="50 arms", arms=50),
    replace(SAMPLED, name="n = 16", n=16),
    replace(SAMPLED, name="n = 1, no baseline", n=1, baseline=False),
    replace(SAMPLED, name="step 1", step=1.0),
    replace(SAMPLED, name="step 3", step=3.0),
    replace(SAMPLED, name="step 10", step=10.0),
)
RECORDS = 61
PORTRAIT_P = (0.45, 0.33, 0.22)
PORTRAIT_TIMES = np.concatenate([[0.0], np.geomspace(0.1, 300.0, 120)])
CRITERIA = ("an arm lost", "low entropy", "farther from q*")
STAND_IN = "bandits"  # Shah et al. ran language models


@dataclass(frozen=True, eq=False)
class Portrait:
    """Flows without reward, three arms.  q: shape (penalties, times, 3, starts).  p: shape (3,)."""

    p: Any
    q: Any


@dataclass(frozen=True, eq=False)
class Points:
    """Interior stationary points of random three-arm bandits, for one penalty.

    largest: the largest p_x of the bandit of each point.  rate: the growth rate of the point, negative
    where stable.
    bandits: how many bandits have no arm above one half, and how many do.
    """

    name: str
    largest: Any
    rate: Any
    bandits: tuple[int, int]


@dataclass(frozen=True, eq=False)
class RewardCollapse:
    """Everything the experiment computed.

    exact, sampled: the base set-up along the flow and by sampled updates.  others: at the start and the
    end.
    rows: all set-ups, the flows first.  falling: of the arms that k3 lost in the base flow, the speed at
    which log q falls at the horizon, over its prediction.
    """

    seed: int
    repeats: int
    exact: Paths
    sampled: Paths
    others: tuple[Paths, ...]
    portrait: Portrait
    points: tuple[Points, ...]
    falling: Any

    @property
    def rows(self) -> tuple[Paths, ...]:
        """Every set-up, those that follow the flow first."""
        return tuple(sorted((self.exact, self.sampled, *self.others), key=lambda p: p.setup.step is not None))

    @property
    def setup(self) -> str:
        """One line on the set-up."""
        s = self.exact.setup
        return (
            f"{s.arms} arms, log p of spread {s.reference:g}, rewards of spread {s.reward:g}, beta = "
            f"{s.beta:g}, start at p, horizon {s.horizon:g}/beta; the exact update, and sampled ones of "
            f"step {self.sampled.setup.step:g} from n = {self.sampled.setup.n} samples; "
            f"{self.repeats} repeats, seed {self.seed}"
        )

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What the runs show, beside what the papers say."""
        return (
            _without_reward(self),
            *(_with_reward(paths) for paths in (self.exact, self.sampled)),
            _squared(self),
            _stationary(self),
            _falling(self),
            _survivors(self),
            _when_k1_fails(self),
            _sensitivity(self),
        )

    def table(self) -> NumberTable:
        """Percentages of runs that meet each criterion at the horizon, for k1, k2, k3."""
        header = ["set-up", "update", "median KL(start||q*)"]
        header += [f"{what}: {', '.join(PENALTIES)}" for what in CRITERIA] + [
            "median KL(q||q*)",
            "median arms left",
        ]
        rows = []
        for paths in self.rows:
            s = paths.setup
            how = "flow" if s.step is None else f"step {s.step:g}, n = {s.n}"
            row = [s.name, how, f"{np.median(paths.kl[0, 0]):.3g}"]
            row += [", ".join(f"{100 * x:.0f}%" for x in part) for part in paths.shares()]
            row.append(", ".join(f"{x:.2g}" for x in np.median(paths.kl[:, -1], axis=-1).round(3)))
            row.append(", ".join(f"{x:g}" for x in np.median(paths.arms_left[:, -1], axis=-1)))
            rows.append(tuple(row))
        return tuple(header), rows


# ---------------------------------------------------------------------------- findings
def _count(flags: Any) -> str:
    return f"{int(flags.sum())} of {flags.size}"


def _find(data: RewardCollapse, setup: Setup) -> Paths | None:
    return next((paths for paths in data.others if paths.setup == setup), None)


def _without_reward(data: RewardCollapse) -> Finding:
    paths = _find(data, FREE)
    if paths is None:
        return Finding("no set-up without reward was run", holds=False)
    back, lost = paths.kl[0, -1] / paths.kl[0, 0], paths.lost[2, -1]
    return compare_with_source(
        f"without reward k1 returns to p from every start: at the horizon at most {back.max():.0%} of the KL "
        f"are left, {np.median(back):.0e} in the median; k3 loses an arm in {_count(lost)} runs",
        bool(back.max() < 0.5 and np.median(back) < 0.01 and lost.mean() > 0.5),
        "k1 is stable, k3 can collapse",
        STAND_IN,
    )


def _with_reward(paths: Paths) -> Finding:
    how = "the exact update" if paths.setup.step is None else f"sampled updates (n = {paths.setup.n})"
    one, three = paths.shares()[:, 0], paths.shares()[:, 2]
    numbers = "; ".join(
        f"{what} {a:.0%} and {b:.0%}" for what, a, b in zip(CRITERIA, one, three, strict=True)
    )
    return compare_with_source(
        f"with reward and {how}, k1 and k3 at the horizon: {numbers} of the runs",
        bool(one.max() == 0 and three[0] > 0.5),
        "k1 in the reward is stable, k3 becomes unstable and can collapse",
        STAND_IN,
    )


def _squared(data: RewardCollapse) -> Finding:
    lost, low, far = data.exact.shares()[:, 1]
    return Finding(
        f"k2 in the reward collapses too, but slowly: {lost:.0%} of runs have lost an arm at the horizon, "
        f"{low:.0%} have low entropy and {far:.0%} are farther from q* than at the start",
        bool(low > 0.2 and far > 0.5 and lost < 0.1),
        "biased",
        bool(far > 0.5),
    )


def _stationary(data: RewardCollapse) -> Finding:
    texts, none = [], True
    for points in data.points:
        stable, flat = points.rate < 0, points.largest <= 0.5
        none &= not bool((stable & flat).any())
        texts.append(
            f"{points.name}: {int((stable & flat).sum())} of {int(flat.sum())} stable where no arm of p "
            f"exceeds 1/2, {int((stable & ~flat).sum())} of {int((~flat).sum())} where one does"
        )
    return Finding("interior stationary points, " + "; ".join(texts), none)


def _falling(data: RewardCollapse) -> Finding:
    if not data.falling.size:
        return Finding("no run was down to one arm at the horizon", holds=False)
    low, high = float(data.falling.min()), float(data.falling.max())
    return Finding(
        "a lost arm is pushed out for ever, at a speed that does not fade with q_x (log q_x falls at beta "
        f"(p_x + 1 - p_0) once arm 0 is alone): measured over predicted {low:.2f} to {high:.2f}",
        bool(abs(low - 1) < 0.01 and abs(high - 1) < 0.01),
    )


def _survivors(data: RewardCollapse) -> Finding:
    left = [np.median(paths.arms_left[2, -1]) for paths in (data.exact, data.sampled)]
    single = [(paths.arms_left[2, -1] == 1).mean() for paths in (data.exact, data.sampled)]
    return Finding(
        f"under k3 the arms go one after the other: of {data.exact.setup.arms} the exact update leaves one "
        f"in {single[0]:.0%} of runs, sampled updates in {single[1]:.0%}: an arm never drawn stops pushing",
        bool(left[0] == 1 and single[1] <= single[0]),
    )


def _when_k1_fails(data: RewardCollapse) -> Finding:
    shares = [(paths.setup, paths.shares()[0, 0]) for paths in data.rows if paths.setup.step is not None]
    fails = sorted({s.step * s.beta for s, share in shares if share > 0 and s.step})
    holds = sorted({s.step * s.beta for s, share in shares if share == 0 and s.step})
    words = ", ".join(f"{step:g}" for step in fails) or "none"
    return Finding(
        f"k1 itself loses arms only at steps (times beta) of {words}; up to {max(holds, default=0):g} never",
        bool(fails and holds and min(fails) > max(holds)),
    )


def _sensitivity(data: RewardCollapse) -> Finding:
    shares = np.array([paths.shares()[0] for paths in data.rows])
    low = int(shares[:, 2].argmin())
    return Finding(
        f"over {len(shares)} set-ups k3 loses an arm in {shares[:, 2].min():.0%} "
        f"({data.rows[low].setup.name}) to {shares[:, 2].max():.0%} of runs; k1 ever does in "
        f"{int((shares[:, 0] > 0).sum())} of the set-ups",
        bool((shares[:, 2] > 0.4).all() and (shares[:, 2] > shares[:, 0]).all()),
        "k1 is stable, k3 is not",
        bool((shares[:, 2] > shares[:, 0]).all()),
        STAND_IN,
    )


# ---------------------------------------------------------------------------- the experiment
def _portrait() -> Portrait:
    """Flows without reward from an even grid of starts."""
    grid = np.array([(a, b, 10 - a - b) for a in range(1, 9) for b in range(1, 10 - a)]) / 10.0
    starts, p = np.log(grid.T), np.array(PORTRAIT_P)
    log_p = np.tile(np.log(p)[:, None], starts.shape[1])
    setup = Setup("portrait", arms=3, reward=0.0)
    start = (setup, starts, log_p, np.zeros_like(starts), PORTRAIT_TIMES)
    return Portrait(p, np.exp([flow(name, *start) for name in PENALTIES]))


def random_points(name: str, bandits: int, seed: int) -> Points:
    """Stationary points of random three-arm bandits: log p of spread 1, R/beta of spread 0.03 to 3.

    name: "k2" or "k3".  Raises UsageError: another penalty, numbers out of range.
    """
    fine = is_count(seed, 0) and is_count(bandits, 1) and name in ("k2", "k3")
    refuse_unless(
        fine, f"penalty {name!r}, {bandits!r} bandits, seed {seed!r}: 'k2' or 'k3', 1 and 0 or more"
    )
    stream = np.random.default_rng([seed, 2])
    log_p = log_softmax(stream.normal(size=(3, bandits)), 0)
    reward = stream.normal(size=(3, bandits)) * 10.0 ** stream.uniform(-1.5, 0.5, size=bandits)
    k1, which = stationary_points(name, log_p, reward, 1.0)
    rate = np.array([growth(name, k, log_p[:, j], 1.0) for k, j in zip(k1.T, which, strict=True)])
    largest = np.exp(log_p.max(axis=0))
    flat = int((largest <= 0.5).sum())
    return Points(name, largest[which], rate, (flat, bandits - flat))


def _falling_speed(paths: Paths) -> Any:
    """Speed of log q of lost arms between the last two records, over the prediction, where one arm is left.

    theta_x falls at beta p_x and theta_0 of the arm left rises at beta (1 - p_0): log q_x falls at their sum.
    """
    alone = (paths.arms_left[2, -2:] == 1).all(axis=0)
    before, last = paths.log_q[2, -2:, :, alone].transpose(1, 2, 0)
    p = np.exp(paths.log_p[:, alone])
    left = last.argmax(axis=0)
    predicted = p + 1 - p[left, np.arange(len(left))]
    speed = (before - last) / (paths.times[-1] - paths.times[-2]) / predicted
    return speed[np.arange(len(p))[:, None] != left]


def reward_collapse(
    seed: int = 0,
    repeats: int = 100,
    other_repeats: int = 50,
    bandits: int = 300,
    others: tuple[Setup, ...] = OTHERS,
    progress: Counted = None,
) -> RewardCollapse:
    """Run the experiment.

    repeats: random bandits of the base set-up, 1 or more.  other_repeats: of each of the other set-ups.
    bandits: whose stationary points are found.  progress: called with (set-ups done, set-ups in all).
    Raises UsageError: numbers out of range.
    Source: Shah et al. 2025; Wang & Zhang 2025 (the later version), section 7.1.
    """
    tick = Ticker(progress, len(others) + 2)
    exact, drawn = (tick.after(run(s, repeats, seed, RECORDS)) for s in (EXACT, SAMPLED))
    rest = tuple(tick.after(run(s, other_repeats, seed)) for s in others)
    return RewardCollapse(
        seed=seed,
        repeats=repeats,
        exact=exact,
        sampled=drawn,
        others=rest,
        portrait=_portrait(),
        points=tuple(random_points(name, bandits, seed) for name in ("k2", "k3")),
        falling=_falling_speed(exact),
    )
