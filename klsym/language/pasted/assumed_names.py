"""Names that pasted code does not define, read by what they usually are; the answer prints each as assumed.

pg_loss beside other terms       -A*log_q
mean_grouped_rewards, reward_std the mean and the standard deviation of R over a group
greedy_reward                    a number that does not depend on the sample
"""

from __future__ import annotations

import ast
from typing import Any

from klsym.language.expressions import ATOMS
from klsym.language.pasted.averages import AverageReader
from klsym.language.reductions import Std
from klsym.language.training_names import ADVANTAGES, METRICS, REWARDS, split_words

MEANS, DEVIATIONS = {"mean", "means", "avg"}, {"std", "stds", "stdev", "stddev"}
OF_POLICIES = {"pg", "policy", "actor", "reinforce", "pi", "gradient"}
OF_REWARDS = METRICS | REWARDS | {"score", "return"}
OF_GROUPS = OF_REWARDS | ADVANTAGES | {"group", "grouped", "batch", "r", "adv", "advs"}
KINDS: dict[str, tuple[tuple[set[str], ...], set[str] | None]] = {
    "policy loss": (({"loss", "losses"}, OF_POLICIES), set()),
    "greedy reward": (({"greedy", "baseline"}, OF_REWARDS), None),
    "mean": ((MEANS,), OF_GROUPS),
    "standard deviation": ((DEVIATIONS,), OF_GROUPS),
}
"""What a name is, the words of which it has one each, and the others that it may have, all if None."""


def find_kind(name: str) -> str:
    """Return which of KINDS a name is; "" for others.

    >>> [find_kind(x) for x in ("pg_loss", "policy_kl_loss", "greedy_rouge", "greedy_ids", "reward_std")]
    ['policy loss', '', 'greedy reward', '', 'standard deviation']
    """
    words = {*split_words(name)}
    for kind, (needed, allowed) in KINDS.items():
        if all(words & one for one in needed) and (allowed is None or words <= allowed.union(*needed)):
            return kind
    return ""


class AssumedNameReader(AverageReader):
    """A reader that takes for granted what some names usually are."""

    def read_usual_name(self, typed: str, name: str, node: ast.expr, is_setting: bool = False) -> Any:
        kind = "" if is_setting else find_kind(name)
        if kind == "policy loss" and name in self.terms:
            self.note_assumption(f"{typed} is -A*log_q, a policy gradient")
            return -ATOMS["A"] * ATOMS["log_q"]
        if kind == "greedy reward":
            return self.declare_parameter(typed, name, node)
        has_both = bool(self.names_typed & MEANS and self.names_typed & DEVIATIONS)
        if kind in ("mean", "standard deviation") and (has_both or name not in MEANS | DEVIATIONS):
            return self.read_statistic(kind, typed)
        return super().read_usual_name(typed, name, node, is_setting)

    def read_statistic(self, kind: str, typed: str) -> Any:
        """Return the mean or the standard deviation of the rewards, or advantages, of a group."""
        of, symbol = ("advantages", "A") if {*split_words(typed)} & ADVANTAGES else ("rewards", "R")
        self.note_assumption(f"{typed} is the {kind} of {of} of a group")
        if kind == "mean":
            return self.reduce_to_mean("mean", ATOMS[symbol], "mean")
        self.note_axis(deviation := Std(ATOMS[symbol]), None)
        return deviation

    def note_assumption(self, condition: str) -> None:
        """Note what the answer prints as taken for granted."""
        self.is_foreign, self.assumed = True, (*self.assumed, condition)
