"""The result of a measurement, as values, text and JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from klsym.engine.answers.objectives import KLS, read_objective
from klsym.errors import UsageError
from klsym.measure.expectation import NOT_MEASURED, build_gradient, read_multiples, write_objective
from klsym.measure.field import Turning
from klsym.measure.fit import CLEAR, Fit, find_reward_cosine, has_reward
from klsym.measure.world import Array, MeasuredWorld

SCHEMA = 1
TRUST = "measured"
WIDTH = 100
REWARDS = {
    "policy-gradient": "a policy gradient", "log-likelihood": "a policy gradient without weights",
    "token-policy-gradient": "a policy gradient with the weight of each token",
    "entropy": "an entropy bonus", "next-token-entropy": "an entropy bonus",
}  # fmt: skip
OF_REWARD = {f"policy-gradient{count}": f"E[R{count}]" for count in ("", "/T", "/N")}
KINDS = {
    "zero": "its expected gradient is 0",
    "own-mean": "minimises the mean of the loss itself, which has no name here",
    "objective": "its expected gradient is the gradient of some function, which has no name here",
    "no-objective": "has no objective: its expected gradient is not the gradient of any function",
    "undecided": "is not decided: the numerical errors are too large to tell whether it has an objective",
}
HEADLINES = {
    "zero": "No effect: its expected gradient is 0",
    "own-mean": "No objective with a name: minimises the mean of the loss itself",
    "objective": "No objective with a name: its expected gradient is the gradient of some function",
    "no-objective": "No objective: its expected gradient is not the gradient of any function",
    "undecided": "Not decided: the numerical errors are too large to tell whether it has an objective",
}


@dataclass(frozen=True)
class Setting:
    """How a loss was run: sampler, samples a group, words, steps, prompts; third: is there a third policy?

    fixed_length: does no word end a sequence?  tool: does the last word call a tool?
    parameters: of the network that is the policy; 0: the logits are.
    """

    sampling: str = "on-policy"
    group: int = 1
    words: int = 3
    length: int = 2
    prompts: int = 1
    third: bool = False
    fixed_length: bool = False
    tool: bool = False
    parameters: int = 0

    def describe(self) -> str:
        """Return the setting in words."""
        samples = "one sample" if self.group == 1 else f"groups of {self.group} samples"
        prompts = f" after each of {self.prompts} prompts" if self.prompts > 1 else ""
        third = ", the ratio taken to a third policy" if self.third else ""
        third += ", with the words of a tool" if self.tool else ""
        third += f", in the {self.parameters} parameters of a network" if self.parameters else ""
        length = f"{self.length}" if self.fixed_length else f"at most {self.length}"
        return f"{self.sampling}, {samples} of {length} out of {self.words} words{prompts}{third}"


@dataclass(frozen=True)
class Comparison:
    """How near an expected gradient is to that of an objective.

    error: the largest difference, relative to the largest entry of the objective's gradient.  It and the
    cosine are over all worlds; errors, cosines: of each world.  Of a kind of answer, such as "own-mean",
    is_of_kind says whether it is this one, and there are no numbers.
    """

    wanted: str
    error: float | None = None
    cosine: float | None = None
    errors: tuple[float, ...] = ()
    cosines: tuple[float, ...] = ()
    tolerance: float = 0.0
    is_of_kind: bool | None = None

    @property
    def ok(self) -> bool:
        return bool(self.is_of_kind) if self.error is None else self.error < self.tolerance

    def describe(self) -> str:
        """Return whether it is the wanted one, and how near."""
        numbers = "" if self.error is None else f", relative error {self.error:.2g}, cosine {self.cosine:.4f}"
        return f"{self.wanted}: {'yes' if self.ok else 'no'}{numbers}"

    def to_json(self) -> dict[str, Any]:
        return {"wanted": self.wanted, "ok": self.ok, "error": self.error, "cosine": self.cosine}


@dataclass(frozen=True)
class Measurement:
    """The answer of `klsym.measure`.

    kind: "zero", "named", "own-mean", "objective", "no-objective" or "undecided".
    multiples: of named gradients, the fewest that fit; {} if none do.  residual: what they leave, relative.
    alternatives: other sets of as few names that fit as well.  curl: relative; None if it was not measured.
    turning: how the gradient changes with theta.  notes: what running the code showed.
    runs: of how many groups the loss was computed.  gradients: of each world, [rows, V] in the logits of q,
      or [D] in the parameters of a network.
    named: of each world, the gradients of the named objectives.  worlds: on which it ran.
    variance: of the gradient of one group, summed over the logits or parameters, in the first world.
    cosines: to the nearest names, where none fit.  is_inside: did some bound of the code have no effect, so
    that the names are those inside its clip range?  is_ascended: is the gradient followed upwards, as that of
    a reward?
    """

    setting: Setting
    kind: str
    multiples: dict[str, float]
    residual: float | None
    turning: Turning | None
    notes: tuple[str, ...]
    runs: int
    tolerance: float
    gradients: tuple[Array, ...] = field(repr=False)
    named: tuple[dict[str, Array], ...] = field(repr=False)
    worlds: tuple[MeasuredWorld, ...] = field(repr=False)
    alternatives: tuple[Fit, ...] = ()
    cosines: dict[str, float] = field(default_factory=dict)
    variance: float | None = None
    versus: float | None = None
    expected: Comparison | None = None
    is_ascended: bool = False
    is_inside: bool = False

    @property
    def curl(self) -> float | None:
        return None if self.turning is None else self.turning.curl

    @property
    def has_objective(self) -> bool | None:
        """Is the expected gradient that of a function?  None: not decided, or not measured."""
        if self.kind == "zero":
            return True
        verdict = "" if self.turning is None else self.turning.verdict
        return {"objective": True, "no-objective": False}.get(verdict)

    @property
    def ok(self) -> bool:
        """Is the expected gradient that of the objective that was asked for, if any?"""
        return self.expected is None or self.expected.ok

    def compare(self, objective: str) -> Comparison:
        """Return how near the expected gradient is to that of an objective, "-E[R] + 0.04*reverse-kl", say.

        Of a kind of answer, such as "own-mean", it returns whether it is this one.
        Raises UsageError: text that names no objective, or one that is not measured.
        """
        asked = read_objective(objective)
        if asked.is_kind:
            return Comparison(objective, is_of_kind=self._is_of_kind(asked.word))
        multiples = read_multiples(asked, self.named[0])
        wanted = [
            build_gradient(multiples, asked, *pair) for pair in zip(self.worlds, self.named, strict=True)
        ]
        pairs = [*zip(self.gradients, wanted, strict=True)]
        whole = np.concatenate([g.ravel() for g, _ in pairs]), np.concatenate([w.ravel() for _, w in pairs])
        return Comparison(
            objective,
            *_compare(*whole),
            errors=tuple(_compare(*pair)[0] for pair in pairs),
            cosines=tuple(_compare(*pair)[1] for pair in pairs),
            tolerance=self.tolerance,
        )

    def meets(self, objective: str) -> bool:
        """Is the expected gradient that of this objective, on all worlds?"""
        return self.compare(objective).ok

    def _is_of_kind(self, kind: str) -> bool:
        """Would `klsym.explain` say so of this gradient?  It has names for the KLs and the reward alone."""
        is_kl_or_reward = {*self.multiples} <= {*KLS, "policy-gradient"} and self.kind == "named"
        is_unnamed = self.has_objective is True and self.kind != "zero" and not is_kl_or_reward
        turning = self.turning
        is_own_mean = turning is not None and turning.own_mean < turning.noise
        match kind:
            case "f-divergence":
                raise UsageError(f"{kind} {NOT_MEASURED[kind]}")
            case "combination":
                is_one_kl = len(self.multiples) == 1 and {*self.multiples} <= {*KLS}
                return is_kl_or_reward and self.has_objective is True and not is_one_kl
            case "own-mean" | "objective":
                return is_unnamed and is_own_mean == (kind == "own-mean")
            case "no-objective":
                return self.has_objective is False
        return self.kind == ("undecided" if kind == "open" else kind)

    # -- what is printed -------------------------------------------------------------------
    @property
    def summary(self) -> str:
        """One sentence on what minimising the loss does, or maximising the reward."""
        if self.kind != "named":
            return KINDS[self.kind].replace("minimises", self._verb)
        objective = write_objective(self.multiples) + " inside the clip range" * self.is_inside
        if self.has_objective is False:
            return f"has at each theta the gradient of {objective}, and no objective"
        if self.has_objective is None:
            return f"has the gradient of {objective}; whether it has a curl is not decided"
        return self._write_goal()

    @property
    def _verb(self) -> str:
        return "maximises" if self.is_ascended else "minimises"

    def _write_goal(self) -> str:
        """Say what is maximised if the first multiple is negative, as of -E[R]; else what is minimised."""
        sign = -1 if next(iter(self.multiples.values())) < 0 else 1
        verb = "maximises" if self.is_ascended == (sign > 0) else "minimises"
        goal = {OF_REWARD.get(name, name): sign * value for name, value in self.multiples.items()}
        return f"{verb} {write_objective(goal)}{' inside the clip range' * self.is_inside}"

    @property
    def headline(self) -> str:
        """The kind of objective in words, then the objective."""
        if self.kind != "named":
            return HEADLINES[self.kind].replace("minimises", self._verb)
        objective = write_objective(self.multiples) + " inside the clip range" * self.is_inside
        if self.has_objective:
            kind = describe_multiples(self.multiples, self.is_ascended, self.reward_cosine)
            return f"{kind}: {self._write_goal()}"
        kind = "No objective" if self.has_objective is False else "Not decided whether it has an objective"
        return f"{kind}: at each theta it has the gradient of {objective}"

    @cached_property
    def reward_cosine(self) -> float | None:
        """The cosine of the terms with the reward to the gradient of E[R]; None unless they are several."""
        columns = {
            name: np.concatenate([named[name].ravel() for named in self.named]) for name in self.named[0]
        }
        return find_reward_cosine(self.multiples, columns)

    def _list_rows(self) -> list[tuple[str, str]]:
        """Return what is to be known beside the headline, the most important first."""
        rows = []
        if self.expected is not None:
            rows.append(("expected", self.expected.describe()))
        if self.reward_cosine is not None:
            rows.append(
                (
                    "together",
                    f"the terms with the reward have the cosine {self.reward_cosine:+.3f} to policy-gradient",
                )
            )
        rows += [("also", write_objective(fit.multiples)) for fit in self.alternatives[:3]]
        if self.cosines:
            nearest = ", ".join(f"{value:+.3f} {name}" for name, value in self.cosines.items())
            rows.append(("nearest", f"cosines {nearest}"))
        notes = [*self.notes]
        if self.setting.sampling != "off-policy" and any("E_mu" in name for name in self.multiples):
            notes.append("E_mu[..] holds the samples, drawn from q, fixed where it is differentiated")
        return [*rows, *(("note", note) for note in notes)]

    def _list_details(self) -> list[str]:
        """Return the numbers behind the headline."""
        details = []
        if self.residual is not None:
            details.append(f"residual {self.residual:.1g}")
        if self.curl is not None and self.kind != "zero":
            details.append(f"curl {self.curl:.2g}")
        if self.variance is not None:
            ratio = "" if self.versus is None else f", {self.versus:.4g} times that of the other code"
            details.append(f"variance of the gradient of one group {self.variance:.6g}{ratio}")
        return [*details, f"the loss was run {self.runs} times; exact on these worlds, no theorem"]

    def text(self, name: str = "", width: int = WIDTH) -> str:
        """Format the answer for a terminal; name: of the code."""
        from klsym.render.questions.layout import format_rows

        title = f"{name or 'the loss'}, run {self.setting.describe()}"
        details = "; ".join(self._list_details())
        return format_rows(title, self.headline, TRUST, self._list_rows(), details=details, width=width)

    def __str__(self) -> str:
        return self.text()

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from klsym.render.markup.measured import format_measurement_html
        from klsym.render.markup.parts import format_for_notebook

        rows = [*self._list_rows(), ("details", "; ".join(self._list_details()))]
        setting = self.setting.describe()
        return format_for_notebook(format_measurement_html(self.headline, setting, self.multiples, rows))

    def to_json(self) -> dict[str, Any]:
        """Return the answer as JSON data, as `klsym measure --json` prints it."""
        return {
            "schema": SCHEMA,
            "kind": self.kind,
            "multiples": self.multiples,
            "residual": self.residual,
            "curl": self.curl,
            "has_objective": self.has_objective,
            "worlds": len(self.gradients),
            "setting": vars(self.setting),
            "alternatives": [fit.multiples for fit in self.alternatives],
            "nearest": self.cosines,
            "variance": self.variance,
            "versus": self.versus,
            "expect": None if self.expected is None else self.expected.to_json(),
            "notes": list(self.notes),
            "runs": self.runs,
            "trust": "measured",
        }


def describe_multiples(
    multiples: Mapping[str, float], ascends: bool = False, reward_cosine: float | None = None
) -> str:
    """Say in words what kind of objective it is.

    reward_cosine: of the terms with the reward together, to the gradient of E[R], where there are several.

    >>> describe_multiples({"policy-gradient": -1.0, "reverse-kl": 0.04})
    'A policy gradient with a penalty on KL(policy || reference)'
    """
    from klsym.render.question import KL_OF

    kinds = []
    for name, value in multiples.items():
        if reward_cosine is not None and has_reward(name):
            kinds.append(_describe_rewards(-reward_cosine if ascends else reward_cosine))
            continue
        base, is_lowered = name.partition("/")[0], (value > 0) != ascends
        kl, next_token = KL_OF.get(base.removeprefix("next-token-")), base.startswith("next-token-")
        if kl is not None:
            kind, is_right = f"a penalty on {kl}{' of each next token' * next_token}", is_lowered
        elif base in REWARDS:
            kind, is_right = REWARDS[base], not is_lowered
        else:
            kind, is_right = "an objective without a common name", True
        kinds.append(kind if is_right else f"the wrong sign for {kind}")
    text = " with ".join(dict.fromkeys(kinds))
    return f"{text[0].upper()}{text[1:]}"


def _describe_rewards(cosine: float) -> str:
    """Say which way several terms with the reward go together; cosine: of what is minimised."""
    if abs(cosine) < CLEAR:
        return "a sum of rewards without a clear sign"
    return f"{'the wrong sign for ' * (cosine > 0)}a policy gradient with its own weights"


def _compare(gradient: Array, wanted: Array) -> tuple[float, float]:
    """Return the relative error and the cosine."""
    size = max(float(np.abs(wanted).max()), 1e-300)
    lengths = float(np.linalg.norm(gradient) * np.linalg.norm(wanted))
    cosine = float((gradient * wanted).sum()) / lengths if lengths else math.nan
    error = float(np.abs(gradient - wanted).max()) / size if np.abs(wanted).max() > 0 else math.inf
    return (0.0, 1.0) if not np.abs(gradient).max() and not np.abs(wanted).max() else (error, cosine)
