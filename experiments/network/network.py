"""A small transformer in PyTorch: what is proved for every density holds for its gradients.

The network gives next-token distributions q(y_t | y_<t); token 0 ends a sequence, and the longest ones end by
themselves, so that all sequences can be listed.  `compare` sets three numbers side by side, along random
directions v of the network's parameters:

    predicted   E_q[sum_t c s_t.v], c the coefficient that `explain` prints, with exact next-token means
    exact       sum_y mu(y) grad L(y).v, each grad L(y) by autograd, with real `detach`
    sampled     the mean of grad L(y).v over sequences drawn token by token, as training code has it

The finite model of the prediction is the tree of prefixes with the network's probabilities; along v its
logits move as those of the network do.  The sampled mean is judged by `statistics.Level`, with the standard
error, skewness and kurtosis that follow from the list; as a control, k1/10 is added to the coefficient.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import mpmath
import numpy as np
import sympy

from klsym.api import explain
from klsym.engine.options.settings import Setting
from klsym.errors import UsageError
from klsym.experiments.network.transformer import (
    Parameters,
    Tensor,
    draw_sequences,
    mask_of,
    network,
    next_logs,
    one_thread,
    token_logs,
)
from klsym.language.expressions import k1, log_q, rho, sg
from klsym.language.parser import parse
from klsym.numeric import array_losses as losses
from klsym.numeric.checks.field_check import DIGITS, Literal, Printed, enumerate_model
from klsym.numeric.models import FiniteModel
from klsym.study.sampling.statistics import Level
from klsym.worlds.words import WordTree

DIRECTIONS = 3
TOLERANCE = 1e-9  # of the exact gradient, relative to the largest prediction
NO_NOISE = 1e-24  # variance of the gradient at a sample
CONTROL = k1 / 10  # added to the coefficient, it must be noticed
LOG_WEIGHT = sympy.Symbol("log_weight", real=True)


# ---------------------------------------------------------------------------- all sequences
@dataclass(frozen=True)
class Everything:
    """All sequences of a vocabulary, in the order of `worlds.tree.build_layout`."""

    vocabulary: int
    longest: int

    @cached_property
    def tree(self) -> WordTree:
        """All sequences of the words; word 0 ends one."""
        return WordTree(self.vocabulary, self.longest)

    @cached_property
    def tokens(self) -> Tensor:
        """Every sequence, padded with 0, shape (sequences, longest)."""
        import torch

        return torch.tensor(self.tree.tokens)

    def branches(self, net: Parameters) -> Tensor:
        """log q of each branch of the tree."""
        import torch

        padded = torch.tensor([prefix + (0,) * (self.longest - len(prefix)) for prefix in self.tree.prefixes])
        logs = next_logs(net, padded)
        return torch.cat([logs[row, len(prefix)] for row, prefix in enumerate(self.tree.prefixes)])


# ---------------------------------------------------------------------------- a loss, as it is trained
@dataclass(frozen=True)
class Batch:
    """What training code holds of some sequences: log densities of tokens, rewards, and the mask.

    log_q, log_p, log_mu, R: shape (sequences, longest).  A: shape (sequences,).
    """

    log_q: Tensor
    log_p: Tensor
    log_mu: Tensor
    R: Tensor
    A: Tensor
    mask: Tensor

    def total(self, x: Tensor) -> Tensor:
        return (x * self.mask).sum(1)


def batch_loss(loss: Any, setting: Setting, of: Batch, parameters: Mapping[str, float]) -> Tensor:
    """The loss of each sequence, as it is differentiated; rewards are detached before a score."""
    return (_of_tokens if setting.level == "token" else _of_sequences)(loss, setting, of, parameters)


def _of_sequences(loss: Any, setting: Setting, of: Batch, parameters: Mapping[str, float]) -> Tensor:
    values = {name: of.total(getattr(of, name)) for name in ("log_q", "log_p", "log_mu", "R")}
    whole = loss if setting.use == "loss" else sg(loss) * log_q
    return _evaluated(whole, {**values, "A": of.A, **parameters})


def _of_tokens(loss: Any, setting: Setting, of: Batch, parameters: Mapping[str, float]) -> Tensor:
    steps = (of.log_q - of.log_mu) * of.mask
    weight = {"token": steps, "prefix": steps.cumsum(1), "sequence": steps.sum(1, keepdim=True)}
    values = {name: getattr(of, name) for name in ("log_q", "log_p", "log_mu", "R")}
    values |= {"A": of.A[:, None], "log_weight": weight[setting.weights] + 0 * steps, **parameters}
    each = _evaluated(loss.xreplace({rho: sympy.exp(LOG_WEIGHT)}), values) * of.mask
    if setting.use == "reward":
        h = each.detach()
        credited = {"same-token": h, "total": h.sum(1, keepdim=True), "to-go": h.flip(1).cumsum(1).flip(1)}
        each = credited[setting.credit] * of.log_q * of.mask
    return each.sum(1) / (of.mask.sum(1) if setting.averaged else 1)


def _evaluated(loss: Any, values: Mapping[str, Any]) -> Tensor:
    from array_api_compat import torch as xp

    return losses.evaluate(loss, values, xp, lambda x: x.detach())


# ---------------------------------------------------------------------------- predicted, exact, sampled
@dataclass(frozen=True)
class Sampled:
    """The mean of a sample along one direction, judged.

    z, control: its distance from the prediction, and from a wrong one, in standard errors; threshold: beyond
    it an estimate is rejected; visible: the smallest bias that would have been seen.
    """

    mean: float
    z: float
    control: float
    threshold: float
    visible: float


@dataclass(frozen=True)
class Along:
    """The numbers along one direction; sampled: None where nothing was drawn."""

    predicted: float
    exact: float
    sampled: Sampled | None


@dataclass(frozen=True)
class Comparison:
    """One loss on one network."""

    loss: str
    setting: Setting
    target: str | None
    along: tuple[Along, ...]

    @property
    def difference(self) -> float:
        """The largest difference of the exact autograd gradient from the prediction."""
        return max(abs(a.exact - a.predicted) for a in self.along)

    @property
    def samples(self) -> list[Sampled]:
        return [a.sampled for a in self.along if a.sampled is not None]

    @property
    def agrees(self) -> bool:
        scale = max(1.0, *(abs(a.predicted) for a in self.along))
        return self.difference <= TOLERANCE * scale and all(abs(a.z) <= a.threshold for a in self.samples)

    @property
    def noticed(self) -> bool:
        """Was the wrong coefficient rejected along some direction?"""
        return any(abs(a.control) > a.threshold for a in self.samples)


@dataclass(frozen=True)
class World:
    """Three networks on the same sequences, and rewards of tokens and of sequences.

    >>> import pytest; torch = pytest.importorskip("torch")
    >>> found = World(seed=1).compare("rho*k3", sampling="off-policy", level="sequence", samples=None)
    >>> found.agrees, found.target
    (True, 'reverse-kl')

    seed: of the parameters, rewards, directions and samples.  vocabulary, longest: as in `network`.
    parameters: values of lam, beta, ..., for the losses.
    """

    seed: int
    vocabulary: int = 3
    longest: int = 3
    parameters: Mapping[str, float] = field(default_factory=dict)

    @cached_property
    def all(self) -> Everything:
        return Everything(self.vocabulary, self.longest)

    @cached_property
    def nets(self) -> dict[str, Parameters]:
        names = ("q", "p", "mu")
        return {
            name: network(3 * self.seed + i, self.vocabulary, self.longest) for i, name in enumerate(names)
        }

    @cached_property
    def rewards(self) -> tuple[Tensor, Tensor]:
        """R of each branch, A of each sequence."""
        import torch

        stream = np.random.default_rng([self.seed, 1])
        branches = len(self.all.tree.prefixes) * self.vocabulary
        found = stream.normal(size=branches), stream.normal(size=len(self.all.tokens))
        return torch.from_numpy(found[0]), torch.from_numpy(found[1])

    @cached_property
    def places(self) -> Tensor:
        """The branch of each token of each sequence, and 0 behind its end."""
        import torch

        numbers = {prefix: row * self.vocabulary for row, prefix in enumerate(self.all.tree.prefixes)}
        rows = []
        for sequence in self.all.tokens.tolist():
            size = sequence.index(0) + 1 if 0 in sequence else self.longest
            row = [numbers[tuple(sequence[:t])] + sequence[t] for t in range(size)]
            rows.append(row + [0] * (self.longest - size))
        return torch.tensor(rows)

    @cached_property
    def directions(self) -> list[Parameters]:
        return [network(10_007 * self.seed + i, self.vocabulary, self.longest) for i in range(DIRECTIONS)]

    def batch(self, rows: Tensor, live: Parameters, on_policy: bool) -> Batch:
        """The sequences of these numbers; only log q is differentiated."""
        import torch

        tokens, (R, A) = self.all.tokens[rows], self.rewards
        logs = token_logs(live, tokens)
        with torch.no_grad():
            p, mu = (token_logs(self.nets[name], tokens) for name in ("p", "mu"))
        mu = logs.detach() if on_policy else mu
        return Batch(logs, p, mu, R[self.places[rows]], A[rows], mask_of(tokens))

    def compare(
        self, loss: str, samples: int | None = 20_000, comparisons: int = DIRECTIONS, **options: str
    ) -> Comparison:
        """The gradient of a loss on the network: predicted, exact and, unless samples is None, sampled.

        options: as of `klsym.explain`; batches are not among them.  comparisons: of the whole run.
        Raises UsageError: a loss outside the decidable core, PyTorch missing, too few samples.
        """
        verdict = explain(loss, parameters=tuple(self.parameters), **options)  # type: ignore[arg-type]
        bounds = any(proof.theorem.statement.context.definitions for proof in verdict.proof.theorems)
        if (
            not verdict.proof.theorems
            or bounds
            or verdict.gradient.canonical_text is None
            or verdict.setting.batch != "none"
        ):
            raise UsageError(f"{loss[:60]!r}: no proved coefficient of one sequence to compare with")
        return self._compared(loss, verdict, samples, Level(comparisons))

    @one_thread()
    def _compared(self, loss: str, verdict: Any, samples: int | None, level: Level) -> Comparison:
        expression, setting = parse(loss, self.parameters), verdict.setting
        each, sampler = self.per_sequence(expression, setting), "q" if setting.on_policy else "mu"
        weights = self.probabilities(sampler)
        rows = None if samples is None else self.drawn(sampler, samples)
        along = []
        for number, direction in enumerate(self.directions):
            right, wrong = self.predicted(verdict, expression, direction)
            exact = float(weights @ each[number])
            judged = None
            if rows is not None:
                judged = _judged((right, wrong), exact, each[number], weights, rows, level)
            along.append(Along(right, exact, judged))
        return Comparison(loss, setting, verdict.target, tuple(along))

    @one_thread()
    def per_sequence(self, loss: Any, setting: Setting) -> np.ndarray:
        """grad L(y).v for each direction and each sequence, by reverse-mode autograd."""
        import torch

        live = {name: x.clone().requires_grad_() for name, x in self.nets["q"].items()}
        of = self.batch(torch.arange(len(self.all.tokens)), live, setting.on_policy)
        values = batch_loss(loss, setting, of, dict(self.parameters))
        found = np.zeros((DIRECTIONS, len(values)))
        for row, value in enumerate(values):
            if not value.requires_grad:
                break
            gradient = torch.autograd.grad(value, [*live.values()], retain_graph=True, allow_unused=True)
            parts = {name: g for name, g in zip(live, gradient, strict=True) if g is not None}
            for number, v in enumerate(self.directions):
                found[number, row] = sum(float((g * v[name]).sum()) for name, g in parts.items())
        return found

    def probabilities(self, name: str) -> np.ndarray:
        """Of each sequence, under q, p or mu."""
        return self.probabilities_of(self.nets[name])

    def probabilities_of(self, net: Parameters) -> np.ndarray:
        tokens = self.all.tokens
        logs = (token_logs(net, tokens) * mask_of(tokens)).sum(1)
        return np.asarray(logs.detach().exp())

    def drawn(self, name: str, samples: int) -> np.ndarray:
        """The numbers of sequences that the network draws."""
        import torch

        stream = torch.Generator().manual_seed(7919 * self.seed + 1)
        tokens = draw_sequences(self.nets[name], samples, stream).tolist()
        number = {tuple(row): i for i, row in enumerate(self.all.tokens.tolist())}
        return np.array([number[tuple(row)] for row in tokens])

    def model(self, direction: Parameters) -> FiniteModel:
        """The tree of prefixes with the network's probabilities, whose logits move as along the direction."""
        import torch

        slope = torch.func.jvp(self.all.branches, (self.nets["q"],), (direction,))[1]
        probabilities = {name: self.all.branches(net).exp() for name, net in self.nets.items()}
        q, p, mu = (_summing(probabilities[name], self.vocabulary) for name in ("q", "p", "mu"))
        R, A = (row.tolist() for row in self.rewards)
        return FiniteModel(
            q=q, p=p, mu=mu, u=slope.tolist(), shape=self.all.tree.shape,
            parameters=dict(self.parameters), rewards={"R": R, "A": A},
        )  # fmt: skip

    def predicted(self, verdict: Any, loss: Any, direction: Parameters) -> tuple[float, float]:
        """E_q[sum of c s] along a direction, c as printed, and with the control in c."""
        printed = Printed(verdict, Literal(loss, verdict.setting), frozenset(self.parameters))
        coefficients = (printed.read(verdict.gradient.canonical_text), CONTROL)
        with mpmath.workdps(DIGITS):
            world = enumerate_model(self.model(direction), self.parameters, verdict.setting.on_policy)
            right, by = (float(printed.compute_expected_gradient(c, world)[0]) for c in coefficients)
        return right, right + by


def _summing(probabilities: Tensor, vocabulary: int) -> list[float]:
    """Rows that sum to 1 to the last digit."""
    rows = probabilities.reshape(-1, vocabulary)
    return list(np.asarray(rows / rows.sum(1, keepdim=True)).ravel())


def _judged(
    targets: tuple[float, float],
    mean: float,
    each: np.ndarray,
    weights: np.ndarray,
    rows: np.ndarray,
    level: Level,
) -> Sampled:
    """targets: right and wrong; each: grad L(y).v of every sequence, of these weights; rows: those drawn."""
    second, third, fourth = (float(weights @ (each - mean) ** k) for k in (2, 3, 4))
    if second < NO_NOISE:
        raise UsageError("the gradient is the same at every sample: there is nothing to sample")
    error, shape = (second / len(rows)) ** 0.5, (third / second**1.5, fourth / second**2 - 3)
    threshold = level.find_threshold(len(rows), *shape)
    found = float(each[rows].mean())
    z, control = ((found - target) / error for target in targets)
    visible = level.find_detectable_bias(threshold, len(rows), *shape) * error
    return Sampled(found, z, control, threshold, visible)
