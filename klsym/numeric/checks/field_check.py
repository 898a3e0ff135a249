"""Compare the formulas of a verdict with the literal loss, over all sequences and batches of finite models.

    tokens    E_m[sum_t grad L_t], or E_m[sum_t h_u s_t] over u = t, u >= t or all u
    samples   E_m[grad L] or E_m[L s], of whole sequences likewise
    batches   E_m[mean_i (h_i - b_i) s_i], b_i the mean of h over the others or over all, or that over std

The comparison covers the gradient per sample, the expected gradient (E_q[sum_t c s_t] or E_q[c s]), the
target (a combination of grad KL and policy gradients), the objective and the expected value.  It uses the
printed formulas alone, not the derivation of the verdict.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

import mpmath
import sympy

from klsym.errors import UsageError
from klsym.language.abbreviations import Context
from klsym.language.expressions import (
    ATOMS,
    GIVEN,
    A,
    M,
    OverPositions,
    Slot,
    future,
    k1,
    length,
    now,
    others,
    own,
    parameter,
    past,
    r,
    rho,
    s,
)
from klsym.language.parser import parse
from klsym.language.sums import OverBatch
from klsym.notation.values import show_value
from klsym.numeric.checks.printed_objective import differentiate_objective
from klsym.numeric.models import FiniteModel, random_model, random_tree
from klsym.numeric.random_models import with_first_kept
from klsym.worlds.losses import LossWorld, replace_sums
from klsym.worlds.world import Place, take_logs

if TYPE_CHECKING:
    from klsym.engine.verdicts.verdict import Verdict

Known = TypeVar("Known")
MODELS, SEEDS = 4, range(24)  # models that are compared, among these seeds
DIGITS = 50
TOLERANCE = 1e-20  # relative to the size of the terms
STD = 0.7  # of a batch; verdicts treat it as a given number
WHOLE, N = Slot("x"), parameter("n")
SLOTS = {slot.name: slot for slot in (past, now, future, own, others)}
IN_A_SLOT = re.compile(rf"\b([a-zA-Z]\w*?)_({'|'.join(SLOTS)})\b")
MEAN = re.compile(r"E_(\w+)\[(.+)\]")
# Written anew: what is judged says what the options mean in klsym.engine.options.choices.
IS_REWARD = {"loss": False, "reward": True}
IS_PER_TOKEN = {"sample": False, "token": True, "sequence": False}
HAS_TOKENS = {"sample": False, "token": True, "sequence": True}
IS_CENTRED = {"none": False, "mean": True, "leave-one-out": True, "std": True}
WEIGHT = {
    "": rho,
    "token": rho,
    "prefix": past(rho) * now(rho),
    "sequence": past(rho) * now(rho) * future(rho),
}
CREDITED = {"to-go": lambda u, t: u >= t, "same-token": lambda u, t: u == t, "total": lambda u, t: True}
CREDITS_OTHERS = {"": False, "to-go": True, "same-token": False, "total": True}
DIVIDED = {"": "nothing", "sum": "nothing", "mean": "own length", "batch": "all lengths"}
DIVERGENCES = {"reverse-kl": k1, "forward-kl": -r * k1}
SCORES = {slot(s).name for slot in (*SLOTS.values(), WHOLE)} | {s.name}


def find_known(table: Mapping[str, Known], option: str, choice: str) -> Known:
    """Return what a choice means to the check.  Raises UsageError: it does not know the choice."""
    if choice not in table:
        raise UsageError(f"check does not know {option} {choice}")
    return table[choice]


def enumerate_model(model: FiniteModel, parameters: Mapping[str, float], on_policy: bool) -> LossWorld:
    """Return the sequences of a finite model, in mpmath's current precision, 30 digits or more.

    >>> from klsym.language.expressions import k1, r
    >>> with mpmath.workdps(50):
    ...     world = enumerate_model(random_tree(0), {}, on_policy=False)
    ...     print(abs(world.compute_mean(r) - 1) < 1e-45, abs(world.differentiate_mean(r)) < 1e-45)
    ...     print(abs(world.differentiate_mean(k1)) < 1e-45)
    True True
    False

    parameters: name -> value.  on_policy: mu is q, held fixed.
    """
    layout, rewards = model.layout, {name: _lift(row) for name, row in model.rewards.items()}
    rows = {f"log_{name}": take_logs([*map(float, row)], layout) for name, row in model.rows.items()}
    return LossWorld(
        layout,
        {**rows, **{name: rewards[name] for name in ("R", "M") if name in rewards}},
        {"u": _lift(model.u)},
        on_policy=on_policy,
        parameters={name: mpmath.mpf(value) for name, value in parameters.items()},
        advantages=rewards.get("A", ()),
    )


def _lift(row: Sequence[Any]) -> list[Any]:
    return [mpmath.mpf(float(x)) for x in row]


@dataclass(frozen=True)
class Literal:
    """A loss and its setting, averaged as training code averages it."""

    loss: Any
    setting: Any

    @property
    def of_tokens(self) -> bool:
        return find_known(IS_PER_TOKEN, "level", self.setting.level)

    @property
    def is_reward(self) -> bool:
        return find_known(IS_REWARD, "use", self.setting.use)

    @property
    def is_centred(self) -> bool:
        return find_known(IS_CENTRED, "batch", self.setting.batch)

    @property
    def weight(self) -> Any:
        return find_known(WEIGHT, "weights", self.setting.weights) if self.of_tokens else rho

    @property
    def divided(self) -> str:
        """What the sum over tokens is divided by."""
        return find_known(DIVIDED, "aggregate", self.setting.aggregate)

    @cached_property
    def weighted(self) -> Any:
        """The loss, with rho replaced by the importance weight that the option `weights` names."""
        return self.loss.xreplace({rho: self.weight})

    @property
    def batched(self) -> bool:
        options = self.is_centred or self.divided == "all lengths" or self.loss.has(N)
        return options or bool(self.loss.atoms(OverBatch))

    def build_world(self, seed: int, parameters: Mapping[str, float]) -> LossWorld:
        context = Context((), on_policy=self.setting.on_policy)
        if not find_known(HAS_TOKENS, "level", self.setting.level):
            model = random_model(seed, 3, context)
        else:
            model = random_tree(seed, context, tokens=2 if self.batched else 3 - seed % 2)
            divided = (e.base for e in self.loss.atoms(sympy.Pow) if e.exp.could_extract_minus_sign())
            model = with_first_kept(model) if any(e.has(M) for e in divided) else model
        return enumerate_model(model, parameters, self.setting.on_policy)

    def choose_batch_size(self, seed: int) -> int:
        return 2 + seed % 2 if self.batched else 1

    def compute_share(self, world: LossWorld, batch: tuple[int, ...], i: int) -> Any:
        """Return the weight of sequence i in the average over its batch."""
        lengths = [len(world.paths[k]) for k in batch]
        if self.divided == "all lengths":
            return mpmath.mpf(1) / sum(lengths)
        return mpmath.mpf(1) / len(batch) / (lengths[i] if self.divided == "own length" else 1)

    def list_places(self, world: LossWorld, batch: tuple[int, ...]) -> Iterator[tuple[Any, list[Place]]]:
        """Yield, for each sequence of a batch, its weight and the places where the loss is evaluated."""
        for i, k in enumerate(batch):
            steps = range(len(world.paths[k])) if self.of_tokens else (None,)
            yield self.compute_share(world, batch, i), [Place(batch, i, t) for t in steps]

    def compute_value(self, world: LossWorld, batch: tuple[int, ...]) -> Any:
        """Return the loss of a batch."""
        return mpmath.fsum(
            share * world.evaluate_at(self.weighted, place).value
            for share, places in self.list_places(world, batch)
            for place in places
        )

    def list_gradient_terms(self, world: LossWorld, batch: tuple[int, ...]) -> list[Any]:
        """Return the terms whose sum is the gradient of a batch along u."""
        if self.is_centred:
            return self._list_centred_terms(world, batch)
        list_terms = self._list_credited_terms if self.is_reward else self._list_slopes
        return [
            share * term
            for share, places in self.list_places(world, batch)
            for term in list_terms(world, places)
        ]

    def _list_slopes(self, world: LossWorld, places: list[Place]) -> list[Any]:
        return [world.evaluate_at(self.weighted, place).slope for place in places]

    def _list_credited_terms(self, world: LossWorld, places: list[Place]) -> list[Any]:
        """Return h s of each token: A meets the score of its token, other rewards those of `credit`."""
        whole = [world.evaluate_at(self.weighted, place).value for place in places]
        credit = self.setting.credit
        meets = find_known(CREDITED, "credit", credit) if self.of_tokens and credit else None
        if meets is None:
            return [h * world.compute_score(place) for h, place in zip(whole, places, strict=True)]
        without = self.weighted.xreplace({A: sympy.S.Zero})
        plain = [world.evaluate_at(without, place).value for place in places]
        terms = []
        for t, place in enumerate(places):
            earned = mpmath.fsum(x for u, x in enumerate(plain) if meets(u, t))
            terms.append((whole[t] - plain[t] + earned) * world.compute_score(place))
        return terms

    @property
    def credited_h(self) -> Callable[[LossWorld, Place], Any] | None:
        """The quantity that a verdict calls H if an option centres or credits it, else None."""
        if self.loss.atoms(OverPositions):
            return None
        if self.is_centred:
            return self.compute_coefficient
        credits_others = find_known(CREDITS_OTHERS, "credit", self.setting.credit)
        if self.of_tokens and credits_others and not self.weight.has(future(rho)):
            per_token = self.weighted.xreplace({A: sympy.S.Zero, parameter("T"): sympy.S.One})
            return lambda world, place: world.evaluate_at(per_token, place).value
        return None

    def compute_coefficient(self, world: LossWorld, place: Place) -> Any:
        """Return h of a sequence: the reward, or the derivative of the loss in log q of that sequence."""
        weighted = world.evaluate_at(self.weighted, replace(place, alone=True))
        return weighted.value if self.is_reward else weighted.slope

    def _list_centred_terms(self, world: LossWorld, batch: tuple[int, ...]) -> list[Any]:
        rows = list(self.list_places(world, batch))
        h = [self.compute_coefficient(world, place) for _, [place] in rows]
        total = mpmath.fsum(h)
        match self.setting.batch:
            case "leave-one-out":
                centred = [x - (total - x) / (len(h) - 1) for x in h]
            case "mean":
                centred = [x - total / len(h) for x in h]
            case "std":
                centred = [(x - total / len(h)) / world.parameters["std"] for x in h]
            case unknown:
                raise UsageError(f"check does not know batch {unknown}")
        return [
            share * x * world.compute_score(place) for x, (share, [place]) in zip(centred, rows, strict=True)
        ]


def has_scores(c: Any) -> bool:
    """Does a coefficient contain score functions of its own?"""
    return any(x.name in SCORES for x in c.free_symbols)


@dataclass(frozen=True)
class Printed:
    """The formulas of a verdict, parsed."""

    verdict: Verdict
    literal: Literal
    declared: frozenset[str]

    def read(self, text: str, at_position: bool = False) -> Any:
        """Parse a formula; a name without a slot refers to the position or to the whole sequence."""
        text = re.sub(r"\bs\b", "s_x", text)
        given_symbols = {x.name: x for x in GIVEN}
        atoms = {**ATOMS, **given_symbols, "s": s, "T": length}
        regions = {str(x.values["of"]).partition("_now")[0] for x in self.find_messages("region")}
        slotted = {a + "_" + z: SLOTS[z](atoms[a]) for a, z in IN_A_SLOT.findall(text) if a in atoms}
        slotted |= {x + "_" + z: sympy.Symbol(f"{x}[{z}]", real=True) for x in regions for z in SLOTS}
        expression = parse(
            text, {*self.declared, *regions, "std", "mean_h", "m"}, {**slotted, **given_symbols, "s_x": s}
        )
        expression = expression.xreplace({parameter("T"): length})
        return expression if at_position else self._apply_to_sequence(expression)

    def _apply_to_sequence(self, found: Any) -> Any:
        """Return an expression for a sequence: at level token, names outside of sums refer to all of it."""
        if not self.literal.of_tokens:
            return found
        plain, sums = replace_sums(found)
        back = {sympy.Symbol(name, real=True): node for name, node in sums}
        return WHOLE(plain).xreplace(back)

    def list_gradient_terms(self, c: Any, world: LossWorld, batch: tuple[int, ...]) -> list[Any]:
        """Return the terms of mean_i sum_t c s_t for one batch; c may contain its score functions."""
        scored = has_scores(c)
        return [
            value * (1 if scored else world.compute_score(place)) / len(batch)
            for place, value in self.list_coefficients(c, world, batch)
        ]

    def list_coefficients(
        self, c: Any, world: LossWorld, batch: tuple[int, ...]
    ) -> Iterator[tuple[Place, Any]]:
        """Yield the value of c at each position of each sample, or at each sample."""
        for i, k in enumerate(batch):
            for t in range(len(world.paths[k])) if self.literal.of_tokens else (None,):
                place = Place(batch, i, t)
                yield place, world.evaluate_at(c, place).value

    def sum_gradient_terms(self, c: Any, worlds: Sequence[LossWorld], batch: tuple[int, ...]) -> list[float]:
        """Return mean_i sum_t c s_t for one batch, in worlds that differ in the direction of the scores."""
        if has_scores(c):
            return [math.fsum(map(float, self.list_gradient_terms(c, world, batch))) for world in worlds]
        rows = [(place, float(value)) for place, value in self.list_coefficients(c, worlds[0], batch)]
        return [
            math.fsum(value * float(world.compute_score(place)) for place, value in rows) / len(batch)
            for world in worlds
        ]

    def compute_expected_gradient(self, c: Any, world: LossWorld) -> tuple[Any, Any]:
        """Return E_q[sum_t c s_t] and the expected sum of the absolute values of its terms."""
        total = size = mpmath.mpf(0)
        for batch, mass in world.enumerate_batches(1, "q"):
            parts = self.list_gradient_terms(c, world, batch)
            total, size = total + mass * mpmath.fsum(parts), size + mass * mpmath.fsum(map(abs, parts))
        return total, size

    def set_definitions(self, world: LossWorld) -> None:
        """Set H, regions and mean_h in a world to the definitions that the verdict states."""
        if self.literal.is_centred:
            world.formulas["H"] = self.literal.compute_coefficient, False
        for message in self.find_messages("region"):
            name, where = message.values["of"].partition("_now")[0], message.values["where"]
            element = self.read(show_value(where.x), at_position=True)
            world.regions[name] = element, self._apply_to_sequence(element), where.signs
        for message in self.find_messages("given"):
            for name, value in message.values["rows"]:
                world.formulas[name.partition("_")[0]] = self.read(value), self.literal.of_tokens
        for message in self.find_messages("given-std"):
            world.formulas["H"] = self.read(show_value(message.values["of"])), False
        for message in self.find_messages("mean-h"):
            if match := MEAN.fullmatch(message.values["of"]):
                world.parameters["mean_h"] = world.compute_mean(self.read(match[2]), match[1])

    def find_messages(self, code: str) -> Iterator[Any]:
        return (message for message in self.verdict.assumptions if message.code == code)

    def evaluate_target(self, meaning: Any, world: LossWorld, slope: bool) -> Any | None:
        """Return the value of a named target, or its gradient along u; None if a part of it has no name."""
        if meaning.target not in ("zero", "combination", *DIVERGENCES):
            return None
        total = mpmath.mpf(0)
        for name, text in meaning.multiples.items():
            factor = self.read(text)
            if name in DIVERGENCES:
                divergence = DIVERGENCES[name]
                alone = world.evaluate_at(factor, Place((0,))).value
                total += alone * (
                    world.differentiate_mean(divergence) if slope else world.compute_mean(divergence)
                )
            else:
                total += world.differentiate_mean(factor) if slope else world.compute_mean(factor)
        return total


def check_formulas(verdict: Verdict, loss: Any, parameters: Mapping[str, float]) -> tuple[bool, str]:
    """Check that the printed gradient, coefficient, target and value agree with the literal loss.

    parameters: name -> value; the values satisfy the hypotheses.  Returns whether all agree, and one line
    with the largest difference, relative to 1 plus the sum of the absolute values of the terms.
    Raises KlsymError: a formula that cannot be read.
    """
    literal = Literal(loss, verdict.setting)
    printed = Printed(verdict, literal, frozenset(parameters) - {"n", "T"})
    with mpmath.workdps(DIGITS):
        tried = (_measure_gaps(literal, printed, seed, parameters) for seed in SEEDS)
        gaps_by_model = list(islice((gaps for gaps in tried if gaps is not None), MODELS))
    if not gaps_by_model:
        return False, "the literal loss has no value in any model that was tried"
    worst = {name: max(gaps[name] for gaps in gaps_by_model) for name in gaps_by_model[0]}
    wrong = [name for name, gap in worst.items() if not gap <= TOLERANCE]
    text = f"literal loss on {len(gaps_by_model)} models: largest difference {float(max(worst.values())):.1e}"
    return not wrong, text + (f" (in the {' and the '.join(wrong)})" if wrong else "")


def _measure_gaps(
    literal: Literal, printed: Printed, seed: int, parameters: Mapping[str, float]
) -> dict[str, Any] | None:
    """Return the largest relative difference for each name; None if a formula has no value in this model."""
    world = literal.build_world(seed, {**parameters, "std": STD})
    world.size = literal.choose_batch_size(seed)
    worst: dict[str, Any] = {}
    try:
        printed.set_definitions(world)
        for name, gap, size in _list_gaps(literal, printed, world):
            worst[name] = max(worst.get(name, mpmath.mpf(0)), abs(gap) / (1 + size))
    except UsageError:
        raise
    except (ArithmeticError, ValueError):
        return None
    return worst


def _list_gaps(literal: Literal, printed: Printed, world: LossWorld) -> Iterator[tuple[str, Any, Any]]:
    """Yield a name, a difference and the size of the terms behind it."""
    verdict, total, value, size = printed.verdict, mpmath.mpf(0), mpmath.mpf(0), mpmath.mpf(0)
    per_sample = printed.read(verdict.gradient.score_text)
    for batch, mass in world.enumerate_batches(world.size, "mu"):
        parts = literal.list_gradient_terms(world, batch)
        printed_terms = printed.list_gradient_terms(per_sample, world, batch)
        gradient, largest = mpmath.fsum(parts), mpmath.fsum(map(abs, parts + printed_terms))
        yield "gradient", gradient - mpmath.fsum(printed_terms), largest
        total, size = total + mass * gradient, size + mass * largest
        value += mass * literal.compute_value(world, batch)
    if "H" in world.formulas and (h := literal.credited_h) is not None:
        for batch, _ in world.enumerate_batches(1, "q"):
            for place in (place for _, places in literal.list_places(world, batch) for place in places):
                yield "H", world.evaluate_name("H[now]", place).value - h(world, place), mpmath.mpf(0)
    if verdict.gradient.canonical_text is not None:
        under_q, scale = printed.compute_expected_gradient(
            printed.read(verdict.gradient.canonical_text), world
        )
        yield "coefficient", total - under_q, size + scale
    if (target := printed.evaluate_target(verdict.gradient, world, slope=True)) is not None:
        yield "target", total - target, size
    if (slope := differentiate_objective(verdict, printed.read, world)) is not None:
        yield "objective", total - slope, size
    if (named := printed.evaluate_target(verdict.value, world, slope=False)) is not None:
        constant = world.evaluate_at(printed.read(verdict.value.constant_text), Place((0,))).value
        yield "value", value - named - constant, abs(value)
