"""Names that pasted code does not define, read by what they usually are; the answer prints each as assumed.

pg_loss beside other terms       -A*log_q
mean_grouped_rewards, reward_std the mean and the standard deviation of R over a group
greedy_reward                    a number that does not depend on the sample
"""

from __future__ import annotations

import ast
import re
from typing import Any, NamedTuple

from klsym.language.expressions import ATOMS, DENSITIES, clip, eps, parameter
from klsym.language.pasted.averages import OF_SEQUENCE
from klsym.language.pasted.log_ratios import write_before
from klsym.language.pasted.mean_divisions import OtherSampleReader
from klsym.language.reductions import KEPT, ONE_HOT, Std
from klsym.language.training_names import (
    ADVANTAGES,
    MASKS,
    METRICS,
    REWARDS,
    find_meaning,
    names_state_value,
    split_words,
)

MEANS, DEVIATIONS = {"mean", "means", "avg"}, {"std", "stds", "stdev", "stddev"}
OF_POLICIES = {"pg", "policy", "actor", "reinforce", "pi", "gradient"}
OF_ACTIONS = {"action", "actions", "act", "acts", "a", "onehot"}
OF_LENGTHS = {"resp", "response", "responses", "completion", "completions", "seq", "sequence", "output"}
OF_REWARDS = METRICS | REWARDS | {"score", "return"}
OF_GROUPS = OF_REWARDS | ADVANTAGES | {"group", "grouped", "batch", "r", "adv", "advs"}
KINDS: dict[str, tuple[tuple[set[str], ...], set[str] | None]] = {
    "policy loss": (({"loss", "losses"}, OF_POLICIES), {"max"}),
    "token loss": (({"loss", "losses"}, {"mat", "matrix", "token"}), {"per", "pg", "policy"}),
    "policy gain": (({"gain", "gains"}, OF_POLICIES | {"action"}), set()),
    "length": (({"len", "lens", "length", "lengths"}, OF_LENGTHS), None),
    "drawn word": ((OF_ACTIONS,), {"one", "hot", "b", "batch", "taken", "ph"}),
    "greedy reward": (({"greedy", "baseline"}, OF_REWARDS), None),
    "mean": ((MEANS,), OF_GROUPS),
    "standard deviation": ((DEVIATIONS,), OF_GROUPS),
}
"""For each kind: sets of words of which a name has one each, and the further words allowed (None: any)."""


def names_sampling_temperature(name: str) -> bool:
    """Is it the name of a temperature, by which logits are divided?

    >>> [names_sampling_temperature(x) for x in ("temperature", "self_temperature", "tau")]
    [True, True, False]
    """
    return "temperature" in split_words(name)


def find_kind(name: str) -> str:
    """Return which of KINDS a name is; "" for others.

    >>> [find_kind(x) for x in ("pg_loss", "policy_kl_loss", "greedy_rouge", "greedy_ids", "reward_std")]
    ['policy loss', '', 'greedy reward', '', 'standard deviation']
    """
    words = {*split_words(name)}
    if words & {"max", "maximum", "limit"} and words & OF_LENGTHS:
        return "constant"
    for kind, (needed, allowed) in KINDS.items():
        if all(words & group for group in needed) and (allowed is None or words <= allowed.union(*needed)):
            return kind
    return ""


OF_RATIO = ": for the ratio to an old policy write `r = exp(logp - old_logp); ...`, for a reward `r = R; ...`"
CENTRED_LETTER = re.compile(r"\br\s*-\s*(?:\w+\.)?(?:r\.mean\(|mean\(r\))")  # r - r.mean(), r - np.mean(r)
SIZE_OF_GROUP = re.compile(r"\bG\s*/\s*\(G\s*-\s*1\)|/\s*\(G\s*-\s*1\)")
RETURNS_AT_STEPS = {"vt", "tf_vt"}  # where they multiply alone; elsewhere a critic's values
OF_LABELS = {"y", "label", "labels", "target", "targets", "onehot", "true"}


class Surrogate(NamedTuple):
    """A policy loss before the mean, as it is written and as a value."""

    text: str
    value: Any


class AssumedNameReader(OtherSampleReader):
    """A reader that takes for granted what some names usually are."""

    def read_name(self, name: str, node: ast.expr) -> Any:
        is_called = name in self.computed_by_call and name not in self.names
        if is_called and find_kind(name) == "policy loss" and not self.is_told(name):
            self.told.add(name)
            return self.assume_policy_gradient(name)
        if name == "r" and name not in self.assigned and CENTRED_LETTER.search(self.source):
            self.note_assumption("r is the reward R, less its mean, and not p/q")
            return ATOMS["R"]
        if name == "r" and name not in self.assigned and self.has_advantage_alone():
            raise self.make_error_with_hint("r is p/q, and the code names no reference", OF_RATIO, node)
        if name == "G" and SIZE_OF_GROUP.search(self.source):
            self.note_assumption("G is n, the number of samples of a group")
            return parameter("n")
        return super().read_name(name, node)

    def assume_policy_gradient(self, typed: str) -> Any:
        """Return -A*log_q for the loss of a policy; beside an older policy -rho*A, with its weight."""
        names_older = any(
            find_meaning(x) in ("log_mu", "rho") or "old" in split_words(x) for x in self.names_typed
        )
        weighted = "-rho*A, a policy gradient with its importance weight"
        self.note_assumption(f"{typed} is {weighted if names_older else '-A*log_q, a policy gradient'}")
        return -ATOMS["A"] * (ATOMS["rho"] if names_older else ATOMS["log_q"])

    def has_advantage_alone(self) -> bool:
        """Names the text an advantage, and no reference policy?"""
        meanings = {find_meaning(name) for name in self.names_typed}
        is_clipped = "A" in self.names_typed and bool({"clip", "clamp"} & self.names_typed)
        return ("A" in meanings or is_clipped) and not meanings & {"log_p", "p"}

    def read_usual_name(self, typed: str, name: str, node: ast.expr, is_setting: bool = False) -> Any:
        kind = "" if is_setting else find_kind(name)
        if not is_setting and (surrogate := self.find_surrogate(name)) is not None:
            self.note_assumption(f"{typed} is {surrogate.text}")
            return surrogate.value
        if kind == "policy loss" and name in self.terms:
            return self.assume_policy_gradient(typed)
        if kind == "token loss" and self.names_typed & MASKS:
            self.note_assumption(f"{typed} is -A*log_q at each token")
            return -ATOMS["A"] * ATOMS["log_q"]
        if kind == "policy gain" and name in self.terms:
            self.note_assumption(f"{typed} is A*log_q, which is maximised")
            return ATOMS["A"] * ATOMS["log_q"]
        if kind == "drawn word" and name in self.factors:
            self.note_assumption(f"{typed} is one-hot at the word that was drawn")
            return ONE_HOT
        has_critic = any(names_state_value(x) or x == "gamma" for x in self.names_typed)
        if name in RETURNS_AT_STEPS and name in self.factors and not has_critic:
            self.note_assumption(f"{typed} is R, the return from each step on")
            self.read_as[typed] = ATOMS["R"]
            return ATOMS["R"]
        if kind in ("greedy reward", "length", "constant"):
            return self.declare_parameter(typed, name, node)
        if not is_setting and self.names_statistic(name):
            return self.read_statistic(kind, typed)
        return super().read_usual_name(typed, name, node, is_setting)

    def names_statistic(self, name: str) -> bool:
        """Is it the mean or the standard deviation of a group: mean_grouped_rewards, or mean beside std?"""
        has_both = bool(self.names_typed & MEANS and self.names_typed & DEVIATIONS)
        is_statistic = find_kind(name) in ("mean", "standard deviation")
        return is_statistic and (has_both or name not in MEANS | DEVIATIONS)

    def is_unsettled(self, name: str) -> bool:
        return not self.names_statistic(name) and super().is_unsettled(name)

    def ask_for_input(self, name: str) -> str:
        """Return what to type for a name that a line changes in place, and that is an input."""
        plain = f": it is an input: write what it is before, such as `{name[:60]} = R; ...`"
        is_own = name == self.target
        return self.ask_for_labels(name) or super().ask_for_input(name) or (plain if is_own else "")

    def suggest_name(self, name: str) -> str:
        return self.ask_for_labels(name) or super().suggest_name(name)

    def ask_for_labels(self, name: str) -> str:
        """Return what to type for labels that multiply a log, as in a cross entropy; "" for other names."""
        probabilities = [x for x in sorted(self.logged) if not self.has_meaning(x) and x not in self.names]
        if not {*split_words(name)} <= OF_LABELS or name not in self.factors or not self.logged:
            return ""
        before = "".join(f"{x} = probs; " for x in probabilities)
        command = write_before(f"{name} = F.one_hot(actions); {before}", self.source)
        return f": if it is one-hot at the action that was drawn from the policy, type {command}"

    def find_surrogate(self, name: str) -> Surrogate | None:
        """Return what pg_losses or surr1 is beside pg_losses2 or surr2, the loss with the clipped ratio."""
        stem, number = re.fullmatch(r"(.*?)(_?[12]?)", name).groups()  # type: ignore[union-attr]
        is_gain = {*split_words(stem)} & {"surr", "surrogate"}
        if not is_gain and find_kind(stem) != "policy loss":
            return None
        second = number.endswith("2")
        partners = {stem, f"{stem}1", f"{stem}_1"} if second else {f"{stem}2", f"{stem}_2"}
        if not partners & self.names_typed - self.names.keys():
            return None
        rho, advantage = ATOMS["rho"], ATOMS["A"]
        ratio = clip(rho, 1 - eps, 1 + eps) if second else rho
        written = "clip(rho, 1 - eps, 1 + eps)*A" if second else "rho*A"
        return Surrogate(f"{'' if is_gain else '-'}{written}", advantage * ratio * (1 if is_gain else -1))

    def apply_operator(self, operator: ast.operator, left: Any, right: Any, node: ast.expr) -> Any:
        if isinstance(operator, ast.Div) and left in DENSITIES and names_sampling_temperature(str(right)):
            self.divided_logs[f"{left}/{right}"] = str(right)
        if isinstance(operator, ast.Div) and left.has(KEPT) and right.is_Symbol:
            typed = next((typed for typed, symbol in self.read_as.items() if symbol == right), "")
            if find_kind(typed) == "length":
                self.note_assumption(f"{typed} is the number of tokens that the mask keeps of each sequence")
                self.token_sums.counts.add(OF_SEQUENCE)
                del self.read_as[typed], self.declared[typed]
                right = KEPT
        return super().apply_operator(operator, left, right, node)

    def read_statistic(self, kind: str, typed: str) -> Any:
        """Return the mean or the standard deviation of the rewards, or advantages, of a group."""
        averaged, symbol = ("advantages", "A") if {*split_words(typed)} & ADVANTAGES else ("rewards", "R")
        self.note_assumption(f"{typed} is the {kind} of {averaged} of a group")
        if kind == "mean":
            return self.reduce_to_mean("mean", ATOMS[symbol], "mean")
        self.note_axis(deviation := Std(ATOMS[symbol]), None)
        return deviation

    def note_assumption(self, condition: str) -> None:
        """Note what the answer prints as taken for granted."""
        self.is_foreign, self.assumed = True, (*self.assumed, condition)
