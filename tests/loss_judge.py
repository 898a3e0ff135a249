"""The judge: does a verdict of `klsym.explain` agree with the independent oracle?

`complaints` returns one line for each disagreement, none when all is well.  The judge decides for
itself what a loss targets: it fits the exact gradient vectors by a grad KL(q||p) + b grad KL(p||q) +
a policy gradient of the rewards, and only then looks at what the verdict says.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any

import loss_oracle as oracle
import numpy as np
from random_losses import Case

AGREE = 1e-9  # relative to the sum of the absolute contributions of the outcomes
DIFFER = 1e-6  # a misfit between the two is no answer, and is complained about
# The least size that errors are measured against: losses are of order one, and where they cancel
# altogether, what is left is rounding.
FLOOR = 1e-2
NAMED = ("zero", "reverse-kl", "forward-kl", "combination")
SEED = 20250

Check = Callable[[Case, Any], Iterator[str]]


@cache
def models(rewards: str) -> tuple[oracle.Models, ...]:
    """The same models for every loss: 16 of sizes 2 to 5."""
    return tuple(oracle.random_models(SEED, rewards=rewards))


@dataclass(frozen=True)
class Outcome:
    """A loss, the target that klsym names, and all that is wrong with the verdict."""

    case: Case
    target: str
    complaints: tuple[str, ...]


def examine(case: Case, checks: tuple[Check, ...] | None = None) -> Outcome:
    """Let klsym explain a loss and judge the verdict; a crash is a complaint too."""
    import klsym

    try:
        verdict = klsym.explain(case.text, sampling=case.sampling, use=case.use)
        return Outcome(case, verdict.target, tuple(complaints(case, verdict, checks)))
    except Exception as error:
        return Outcome(case, "crashed", (f"{type(error).__name__}: {error}",))


def complaints(case: Case, verdict: Any, checks: tuple[Check, ...] | None = None) -> list[str]:
    """All that the oracle holds against a verdict."""
    return [line for check in checks or (*NUMERIC, _proofs) for line in check(case, verdict)]


def _scale(contributions: np.ndarray) -> np.ndarray:
    """What rounding is measured against, for each model: (models, 1)."""
    return np.abs(contributions).sum(axis=-1).max(axis=-1, keepdims=True) + FLOOR


# ---------------------------------------------------------------------------- the coefficient
def _coefficient(case: Case, verdict: Any) -> Iterator[str]:
    """E_q[c s] is the expected gradient, and the per-sample gradient is right at each outcome."""
    worst = {"coefficient": 0.0, "per_sample": 0.0}
    for stack in models("generic"):
        exact = oracle.contributions(case.text, stack, case.sampling, case.use)
        form = oracle.score_form(verdict.coefficient, stack, case.sampling)
        scale = _scale(exact) + _scale(form)
        error = np.abs(form.sum(axis=-1) - exact.sum(axis=-1)) / scale
        worst["coefficient"] = max(worst["coefficient"], error.max())
        weight = (stack.under(case.sampling).mu / stack.q)[:, None, :]
        pointwise = oracle.score_form(verdict.per_sample, stack, case.sampling) * weight
        error = np.abs(pointwise - exact) / scale[..., None]
        worst["per_sample"] = max(worst["per_sample"], error.max())
    for name, size in worst.items():
        if not size < AGREE:
            yield f"{name} {getattr(verdict, name)!r}: off by {size:.1e} of the gradient"


def _dependence(case: Case, verdict: Any) -> Iterator[str]:
    """c depends on r alone exactly for an f-divergence, among the targets without a name."""
    if verdict.target in NAMED:
        return
    alone = _depends_on_r_alone(verdict.coefficient)
    if alone != (verdict.target == "f-divergence"):
        depends = "r alone" if alone else "more than r"
        yield f"target {verdict.target}, but the coefficient depends on {depends}"


def _depends_on_r_alone(coefficient: str) -> bool:
    """Shift log q and log p together, replace mu, R and A: does c stay?"""
    stream = np.random.default_rng(SEED)
    log_q, log_p, log_mu, R, A = stream.normal(size=(5, 40))
    before = oracle.evaluate(coefficient, oracle.names(log_q, log_p, log_mu, R, A))
    log_mu, R, A, shift = stream.normal(size=(4, 40))
    after = oracle.evaluate(coefficient, oracle.names(log_q + shift, log_p + shift, log_mu, R, A))
    return bool(np.all(np.abs(after - before) < AGREE * (1 + np.abs(before))))


# ---------------------------------------------------------------------------- the target
@dataclass(frozen=True)
class Fit:
    """The best a, b and function of the rewards, and how far it is from the exact vectors."""

    reverse: float
    forward: float
    rewards: tuple[float, ...]  # in the cells of (R, A), the first one subtracted
    misfit: float

    @property
    def target(self) -> str | None:
        """The name of the target; None when there is none, "undecided" between the two bounds."""
        if self.misfit > DIFFER:
            return None
        if self.misfit > AGREE:
            return "undecided"
        rewards = max(map(abs, self.rewards))
        parts = {"reverse-kl": self.reverse, "forward-kl": self.forward, "reward": rewards}
        present = tuple(name for name, value in parts.items() if abs(value) > DIFFER)
        named = {(): "zero", ("reverse-kl",): "reverse-kl", ("forward-kl",): "forward-kl"}
        return named.get(present, "combination")


@cache
def _basis(rewards: str) -> tuple[np.ndarray, ...]:
    """For each stack the columns grad KL(q||p), grad KL(p||q), and the policy gradient of each cell."""
    found = []
    for stack in models(rewards):
        columns = [oracle.grad_reverse_kl(stack), oracle.grad_forward_kl(stack)]
        columns += [oracle.grad_mean(cell, stack) for cell in _cells(stack)[1:]]
        found.append(np.stack(columns, axis=-1))
    return tuple(found)


def _cells(stack: oracle.Models) -> list[np.ndarray]:
    """The indicators of the four pairs of values of (R, A)."""
    pairs = itertools.product(*oracle.CELLS)
    return [np.isclose(stack.R, first) * np.isclose(stack.A, second) * 1.0 for first, second in pairs]


def fit_gradient(case: Case) -> Fit:
    """Fit the exact gradients on all models at once; each model's rows are scaled by its size."""
    rows, values = [], []
    for stack, basis in zip(models("cells"), _basis("cells"), strict=True):
        parts = oracle.contributions(case.text, stack, case.sampling, case.use)
        scale = _scale(parts)
        rows.append((basis / scale[..., None]).reshape(-1, basis.shape[-1]))
        values.append((parts.sum(axis=-1) / scale).reshape(-1))
    return _solve(rows, values)


def _solve(rows: list[np.ndarray], values: list[np.ndarray]) -> Fit:
    matrix, target = np.concatenate(rows), np.concatenate(values)
    sizes = np.linalg.norm(matrix, axis=0)
    solution = np.linalg.lstsq(matrix / sizes, target, rcond=None)[0] / sizes
    misfit = float(np.abs(matrix @ solution - target).max())
    return Fit(float(solution[0]), float(solution[1]), tuple(solution[2:]), misfit)


def _target(case: Case, verdict: Any) -> Iterator[str]:
    judged = fit_gradient(case).target
    claimed = verdict.target if verdict.target in NAMED else None
    if judged != claimed:
        yield f"target {verdict.target}, judged {judged or 'no combination of the KL gradients'}"


def _multiples(case: Case, verdict: Any) -> Iterator[str]:
    """The gradient is the stated combination; beside a rest only a reward may be stated."""
    multiples = verdict.gradient.multiples
    if verdict.target not in NAMED:
        if set(multiples) - {"reward"}:
            yield f"multiples {multiples} for the target {verdict.target}"
        return
    expected = {"zero": set(), "reverse-kl": {"reverse-kl"}, "forward-kl": {"forward-kl"}}
    if set(multiples) != expected.get(verdict.target, set(multiples)):
        yield f"multiples {multiples} for the target {verdict.target}"
    worst = 0.0
    for stack in models("generic"):
        exact = oracle.contributions(case.text, stack, case.sampling, case.use)
        stated = _combination(multiples, stack)
        scale = _scale(exact) + np.abs(stated).max(axis=-1, keepdims=True)
        worst = max(worst, float((np.abs(exact.sum(axis=-1) - stated) / scale).max()))
    if not worst < AGREE:
        yield f"multiples {multiples}: off by {worst:.1e} of the gradient"


def _combination(multiples: dict[str, str], stack: oracle.Models) -> np.ndarray:
    """a grad KL(q||p) + b grad KL(p||q) + grad E_q[h], from the strings."""
    names = oracle.fixed_names(stack)
    total = oracle.evaluate(multiples.get("reverse-kl", "0"), names) * oracle.grad_reverse_kl(stack)
    total = total + oracle.evaluate(multiples.get("forward-kl", "0"), names) * oracle.grad_forward_kl(stack)
    reward = oracle.evaluate(multiples.get("reward", "0"), names)
    return total + oracle.grad_mean(np.broadcast_to(reward, stack.q.shape), stack)


# ---------------------------------------------------------------------------- values
def _values(case: Case, verdict: Any) -> Iterator[str]:
    """The flags say whether E[L] is the KL on every model; the value's target is fitted like a gradient."""
    misfit = {"reverse-kl": 0.0, "forward-kl": 0.0}
    for stack in models("generic"):
        value = oracle.expected_value(case.text, stack, case.sampling)
        for name, exact in (("reverse-kl", oracle.reverse_kl), ("forward-kl", oracle.forward_kl)):
            error = np.abs(value - exact(stack)) / _value_scale(case, stack)
            misfit[name] = max(misfit[name], float(error.max()))
    for name, size in misfit.items():
        if AGREE <= size <= DIFFER or (size < AGREE) != verdict.unbiased_for(name):
            yield f"unbiased for {name}: {verdict.unbiased_for(name)}, yet the value is off by {size:.1e}"
    judged = fit_value(case).target
    claimed = verdict.value.target if verdict.value.target in NAMED else None
    if judged != claimed:
        yield f"value target {verdict.value.target}, judged {judged or 'none'}"


def _value_scale(case: Case, stack: oracle.Models) -> np.ndarray:
    """E_m|L|, and at least the KL it is compared with."""
    moved = stack.under(case.sampling)
    size = np.abs(oracle.evaluate(case.text, oracle.fixed_names(moved)))
    return (moved.mu * size).sum(axis=-1) + oracle.reverse_kl(stack) + oracle.forward_kl(stack)


def fit_value(case: Case) -> Fit:
    """E[L] = a KL(q||p) + b KL(p||q) + E_q[h(R, A)] + constant."""
    rows, values = [], []
    for stack in models("cells"):
        scale = _value_scale(case, stack)
        columns = [oracle.reverse_kl(stack), oracle.forward_kl(stack)]
        columns += [(stack.q * cell).sum(axis=-1) for cell in _cells(stack)[1:]]
        columns.append(np.ones_like(scale))
        rows.append(np.stack(columns, axis=-1) / scale[:, None])
        values.append(oracle.expected_value(case.text, stack, case.sampling) / scale)
    fit = _solve(rows, values)
    return Fit(fit.reverse, fit.forward, fit.rewards[:-1], fit.misfit)  # a constant has no name


# ---------------------------------------------------------------------------- proofs and witness
def _proofs(case: Case, verdict: Any) -> Iterator[str]:
    """Each proof replays from its JSON text alone, and has the kind that the target calls for."""
    from klsym.errors import Refused
    from klsym.kernel import check, read

    if verdict.trust != "kernel":
        yield f"trust {verdict.trust!r}, not 'kernel'"
    try:
        texts = [json.dumps(proof.certificate()) for proof in verdict.proofs]
        replayed = tuple(theorem for text in texts for theorem in check(read(text)))
        theorems = tuple(proof.theorem.proved for proof in verdict.proofs)
    except Refused as refusal:
        yield f"proofs: {refusal}"
        return
    wanted = ("proved",) if verdict.target in NAMED else ("proved", "independent")
    kinds = tuple(theorem.kind for theorem in replayed)
    if replayed != theorems or kinds != wanted:
        yield f"proofs {kinds} for the target {verdict.target}, {wanted} expected"


def _witness(case: Case, verdict: Any) -> Iterator[str]:
    """The witness is a model whose two sides, recomputed here, lie in the recorded enclosures."""
    witness = verdict.witness
    if witness is None:
        if verdict.target not in ("reverse-kl", "combination"):
            yield f"no witness for the target {verdict.target}"
        return
    stack, direction = _witness_model(witness)
    reward = {name: value for name, value in verdict.gradient.multiples.items() if name == "reward"}
    sides = {
        "left": oracle.expected_gradient(case.text, stack, case.sampling, case.use),
        "right": _combination({**reward, "reverse-kl": "1"}, stack),
    }
    values = {name: float((side @ direction).item()) for name, side in sides.items()}
    for name, value in values.items():
        low, high = (float(Fraction(end)) for end in witness[name])
        if not low - AGREE * (1 + abs(low)) <= value <= high + AGREE * (1 + abs(high)):
            yield f"witness {name}: {value} recomputed, recorded [{low}, {high}]"
    if not abs(values["left"] - values["right"]) > 1e-12:
        yield "witness: the two sides are equal"


NUMERIC: tuple[Check, ...] = (_coefficient, _target, _multiples, _dependence, _values, _witness)


def _witness_model(witness: dict[str, Any]) -> tuple[oracle.Models, np.ndarray]:
    """The model of a witness and its direction; what the equation does not mention may be anything."""

    def numbers(items: list[str]) -> np.ndarray:
        return np.array([[float(Fraction(item)) for item in items]])

    q = numbers(witness["q"])
    rewards = {name: numbers(row) for name, row in witness.get("rewards", {}).items()}
    R, A = (rewards.get(name, np.zeros_like(q)) for name in ("R", "A"))
    parameters = {name: float(Fraction(value)) for name, value in witness.get("parameters", {}).items()}
    mu = numbers(witness.get("mu", witness["q"]))
    stack = oracle.Models(q, numbers(witness["p"]), mu, R, A, oracle.PARAMETERS | parameters)
    return stack, numbers(witness["u"])[0]
