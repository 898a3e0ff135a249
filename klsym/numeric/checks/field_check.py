"""What a verdict prints of tokens and batches, against the literal field on exact finite models.

    tokens    E_m[sum_t grad L_t], or E_m[sum_t h_u s_t] over u = t, u >= t or all u
    batches   E_m[mean_i (h_i - b_i) s_i], b_i the mean of h over the others or over all, or that over std

What is printed says the same of one sequence or batch (the gradient per sample), of its mean
(E_q[sum_t c s_t] or E_q[c s]) and of the target (a combination of grad KL and policy gradients).  Each is
an equation, and `agreement` judges it: nothing is taken from how the verdict was found.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import mpmath
import numpy as np
import sympy

from klsym.errors import UsageError
from klsym.kernel.ring import ExpPoly
from klsym.language.abbreviations import (
    Context,
    Divergence,
    Gradient,
    Mean,
    MeanGradient,
    Side,
    Statement,
    side_of,
)
from klsym.language.convert import to_ring
from klsym.language.expressions import ATOMS, A, H, future, length, now, others, own, parameter, past, rho, s
from klsym.language.parser import parse
from klsym.language.sums import After, Before
from klsym.notation.values import shown
from klsym.numeric.evaluation import TOLERANCE, agreement, evaluate
from klsym.numeric.loss_by_definition import at_sample
from klsym.numeric.models import FiniteModel, random_model, random_tree

SEEDS = range(6)
DIGITS = 50
SLOTS = {slot.name: slot for slot in (past, now, future, own, others)}
IN_A_SLOT = re.compile(rf"\b([a-zA-Z]\w*?)_({'|'.join(SLOTS)})\b")
MEAN = re.compile(r"E_(\w+)\[(.+)\]")
WEIGHT = {"token": now(rho), "prefix": past(rho) * now(rho), "sequence": rho}
CREDITED = {"to-go": now(H) + future(H), "total": past(H) + now(H) + future(H)}
n, m, std, mean_h = (parameter(name) for name in ("n", "m", "std", "mean_h"))
CENTRED = {
    "leave-one-out": own(H) - others(H) / m,
    "mean": own(H) - (own(H) + others(H)) / n,
    "std": (own(H) - (own(H) + others(H)) / n) / std,
}


@dataclass(frozen=True)
class Literal:
    """A loss in its setting, as training code averages it: at an index, the field under a measure.

    reward: what the statement says that H is at each token; for batches H is a row of the model.
    """

    loss: Any
    setting: Any

    @property
    def batched(self) -> bool:
        return bool(self.setting.batch != "none")

    @property
    def index(self) -> str:
        return "i" if self.batched else "t"

    @cached_property
    def at_t(self) -> Any:
        """LOSS at token t; A is that of the whole sequence."""
        return now(self.loss).xreplace({now(A): A, now(rho): WEIGHT[self.setting.weights]})

    @cached_property
    def front(self) -> Any:
        """What stands in front of a sum of rewards: the weight of the whole sequence, a power of rho."""
        if self.setting.weights != "sequence":
            return sympy.S.One
        weight = sympy.Dummy(positive=True)
        terms = sympy.Add.make_args(sympy.expand(self.at_t.xreplace({rho: weight})))
        return rho ** terms[0].as_coeff_exponent(weight)[1]

    @cached_property
    def reward(self) -> ExpPoly | None:
        """h of a token, less what A adds: that meets each score once."""
        if self.setting.credit not in CREDITED:
            return None
        return to_ring((self.at_t / self.front).xreplace({A: sympy.S.Zero}))

    def field(self, measure: str) -> Side:
        if self.batched:
            return Side.atom(Mean("i", measure, to_ring(CENTRED[self.setting.batch]), ("self",)))
        over = 1 / length if self.setting.averaged else sympy.S.One
        if self.setting.use == "loss":
            return Side.atom(MeanGradient("t", measure, to_ring(over * self.at_t)))
        h = self.at_t
        if self.reward is not None:
            h = h - h.xreplace({A: sympy.S.Zero}) + self.front * CREDITED[self.setting.credit]
        return Side.atom(Mean("t", measure, to_ring(over * h), ("now",)))

    def value(self) -> Side:
        """The expected value of what is averaged."""
        tokens = self.setting.level == "token"
        over = 1 / length if self.setting.averaged else sympy.S.One
        loss = to_ring(over * (self.at_t if tokens else self.loss))
        return Side.atom(Mean("t" if tokens else "", "mu", loss))

    def model(self, seed: int, context: Context, parameters: Mapping[str, float]) -> FiniteModel:
        sequences = self.setting.level != "sample"
        tokens = 2 if self.batched else 3 - seed % 2
        found = random_tree(seed, context, tokens=tokens) if sequences else random_model(seed, 3, context)
        size = 2.0 + seed % 2
        found = replace(found, parameters={**found.parameters, **parameters, "n": size, "m": size - 1})
        return self.rewarded(found) if self.batched else found

    def rewarded(self, model: FiniteModel) -> FiniteModel:
        """The model with H = h, of grad L = h s or the loss itself; a sequence earns it at its end."""
        earned = [0.0] * len(model.q)
        for number, path in enumerate(model.layout.paths):
            logs = {f"log_{x}": sum(np.log(float(row[b])) for b in path) for x, row in model.rows.items()}
            known = {"R": sum(model.rewards["R"][b] for b in path), "A": model.rewards["A"][number]}
            values = {name: mpmath.mpf(x) for name, x in (logs | known | dict(model.parameters)).items()}
            with mpmath.workdps(DIGITS):
                value, slope = at_sample(self.loss, values)
            h = value if self.setting.use == "reward" else slope
            earned[path[-1]] = float(h / (len(path) if self.setting.averaged else 1))
        return replace(model, rewards={**model.rewards, "H": earned})


def several_weights(loss: Any, setting: Any) -> bool:
    """Return whether rewards that are credited to other tokens hold more than one power of the whole rho."""
    reward = Literal(loss, setting).reward
    return reward is not None and "w" in reward.names()


@dataclass(frozen=True)
class Formulas:
    """The formulas of a verdict, as sides of statements."""

    verdict: Any
    literal: Literal
    declared: frozenset[str]

    def read(self, text: str) -> Any:
        """A formula with names such as k1_now and s, T the length."""
        text = re.sub(r"\bs\b", "s_x", text)
        atoms = {**ATOMS, "H": H, "s": s, "T": length}
        slotted = {a + "_" + z: SLOTS[z](atoms[a]) for a, z in IN_A_SLOT.findall(text) if a in atoms}
        meant: dict[Any, Any] = {}
        found = parse(text, {*self.declared, "std", "mean_h"}, {**slotted, "s_x": s, "H": H})
        if self.verdict.setting.level != "sample":
            meant[parameter("T")] = length
        if self.verdict.setting.batch == "leave-one-out":
            meant[n - 1] = m
        return found.xreplace(meant | {of: self._sum_of_H(of) for of in found.atoms(Before, After)})

    def _sum_of_H(self, of: Any) -> Any:
        """The rewards of other tokens."""
        if to_ring(now(of.args[0])) != self.literal.reward:
            raise UsageError(f"{of}: another sum than that of the rewards")
        return SLOTS[of.slot](H)

    def scored(self, text: str, index: str, measure: str, slot: str) -> Side:
        """E_m[sum of c s]; where no score is printed, that of the slot is meant."""
        formula = sympy.expand(self.read(text))
        marks = {"x": s, "past": past(s), "now": now(s), "future": future(s)}
        parts = {z: formula.coeff(mark) for z, mark in marks.items() if formula.has(mark)}
        rest = sympy.expand(formula - sum(c * marks[z] for z, c in parts.items()))
        if parts and rest != 0:
            raise UsageError(f"{text[:60]!r}: some terms have a score, and others have none")
        parts = parts or {slot: formula}
        sides = [Side.atom(Mean(index, measure, to_ring(c), (z,))) for z, c in parts.items() if c != 0]
        return sum(sides, Side())

    def named(self, meaning: Any) -> Side | None:
        """What a target names, where it names all of it."""
        parts = {"reverse-kl": ("q", "p"), "forward-kl": ("p", "q")}
        if meaning.target not in ("zero", "combination", *parts):
            return None
        total = Side()
        for name, text in meaning.multiples.items():
            of = to_ring(self.read(text))
            divergence = side_of(Divergence("KL", *parts[name])) if name in parts else None
            total = total + (Side.atom(Mean("", "q", of)) if divergence is None else divergence * of)
        return total

    def given(self) -> Iterator[Any]:
        for message in self.verdict.assumptions:
            if message.code == "given-std":
                yield self.read(shown(message.values["of"]))
            elif message.code == "given":
                yield from (
                    self.read(value) for name, value in message.values["rows"] if name in ("H", "H_now")
                )

    def equations(self) -> Iterator[tuple[str, Side, Side]]:
        """Name, literal side, printed side."""
        literal, slot = self.literal, "self" if self.literal.batched else "now"
        field = literal.field("mu")
        per_sample = self.scored(self.verdict.per_sample, literal.index, "sample", slot)
        yield "gradient", literal.field("sample"), per_sample
        for formula in self.given():
            index, score = ("", "x") if literal.batched else ("t", "now")
            mine = to_ring(H) if literal.reward is None else literal.reward
            left, right = (Side.atom(Mean(index, "sample", a, (score,))) for a in (mine, to_ring(formula)))
            yield "H", left, right
        if self.verdict.coefficient is not None:
            index, slot = ("", "x") if literal.batched else ("t", "now")
            yield "coefficient", field, self.scored(self.verdict.coefficient, index, "q", slot)
        named = self.named(self.verdict.gradient)
        if named is not None:
            yield "target", field, Side.atom(Gradient(named)) if named.terms else named

    def value(self) -> Iterator[tuple[str, Side, Side]]:
        """The expected value, where it is named."""
        named = self.named(self.verdict.value)
        if named is not None:
            constant = to_ring(self.read(self.verdict.value_constant))
            yield "value", self.literal.value(), named + Side.constant(constant)

    def with_mean(self, model: FiniteModel, context: Context) -> FiniteModel:
        """The value of mean_h, as the verdict explains it."""
        for message in self.verdict.assumptions:
            if message.code == "mean-h" and (found := MEAN.fullmatch(message.values["of"])):
                side = Side.atom(Mean("", found[1], to_ring(self.read(found[2]))))
                value, _ = evaluate(Statement(side, Side(), context), model)
                return replace(model, parameters={**model.parameters, "mean_h": value})
        return model


def field_checked(verdict: Any, loss: Any, parameters: Mapping[str, float]) -> tuple[bool, str]:
    """Do the printed gradient, coefficient and target have the values of the literal field?

    And the printed value that of the loss: of one sample, it alone is compared.
    parameters: values that meet the hypotheses.  Raises KlsymError: a formula that cannot be read.
    """
    literal = Literal(loss, verdict.setting)
    printed = Formulas(verdict, literal, frozenset(parameters) - {"n", "T"})
    names = tuple(sorted({*parameters, "n", "m", "std", "mean_h"} - {"T"}))
    given = () if literal.reward is None else (("H[now]", literal.reward),)
    context = Context(names, on_policy=verdict.setting.on_policy, given=given)
    models = [printed.with_mean(literal.model(seed, context, parameters), context) for seed in SEEDS]
    worst: dict[str, float] = {}
    single = verdict.setting.level != "token" and not literal.batched
    for name, left, right in [*([] if single else printed.equations()), *printed.value()]:
        found = agreement(Statement(left, right, context), models).difference
        worst[name] = max(worst.get(name, 0.0), found)
    if not worst:
        return True, ""
    wrong = [name for name, gap in worst.items() if not gap <= TOLERANCE]
    what = "expected loss" if single else "literal field"
    said = f"{what} on {len(models)} models: largest difference {max(worst.values()):.1e}"
    return not wrong, said + (f" (in the {' and the '.join(wrong)})" if wrong else "")
