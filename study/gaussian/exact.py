"""Both sides of a statement on Gaussians, from what they literally mean.

The parameters theta of q are its mean and its log scale.  A gradient along one of them is the complex
step Im F(theta + 1e-30 i) / 1e-30 of the closed form, with what is detached, and the measure of an
expected gradient, held at theta.  Nothing is shared with the rules that prove statements.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from klsym.errors import UsageError
from klsym.kernel.ring import ExpPoly
from klsym.language.abbreviations import (
    Atom,
    Context,
    Covariance,
    Divergence,
    E,
    ExpectedGradient,
    Gradient,
    Side,
    Statement,
)
from klsym.study.gaussian.floats import GaussianSetting

H = 1e-30
DIRECTIONS = ("mean", "log scale")
LOG_Q, K1, W = (ExpPoly.from_variable(name) for name in ("log_q", "k1", "w"))
LOG_DENSITIES = {"q": LOG_Q, "p": LOG_Q - K1, "mu": LOG_Q - W}


@dataclass(frozen=True)
class GaussianModel:
    """Gaussians q, p, mu and parameters, each Gaussian a pair (mean, variance) of floats.

    >>> from klsym.engine.proof.quantities import KL, expected_gradient, grad
    >>> from klsym.language.expressions import k3
    >>> model = GaussianModel((0.0, 1.0), (0.2, 0.9), (-0.1, 1.2))
    >>> statement = Statement(expected_gradient(k3, under="q").side, grad(KL("p", "q")).side)
    >>> left, right = model.evaluate(statement)
    >>> bool(np.allclose(left, right, rtol=1e-13, atol=0)) and left.shape
    (2,)

    mu None stands for q itself, detached (on-policy).
    """

    q: tuple[float, float]
    p: tuple[float, float]
    mu: tuple[float, float] | None = None

    def build_setting(self, parameters: Mapping[str, Any] | None = None) -> GaussianSetting:
        """The setting at theta in which real expectations are taken."""
        numbers = {name: float(value) for name, value in (parameters or {}).items()}
        return GaussianSetting(self.q, self.p, self.mu, numbers)

    def evaluate(self, statement: Statement, parameters: Mapping[str, Any] | None = None) -> tuple[Any, Any]:
        """The two sides along the mean and the log scale of q, each of shape (2,).

        parameters: name -> number.  Raises Divergent: an expectation is infinite.
        UsageError: rewards, generic functions, samples, premises: what has no closed form here.
        """
        refuse_unless_gaussian(statement.context)
        base_setting = self.build_setting(parameters)
        rows = []
        for i in range(len(DIRECTIONS)):
            at = _Place(base_setting, _move_parameter(base_setting, i), i)
            rows.append([at.evaluate_side(side, False) for side in (statement.left, statement.right)])
        first, right = np.real(rows).T
        return first, right


def refuse_unless_gaussian(context: Context) -> None:
    """Raise UsageError where a statement speaks of what Gaussians have no closed form for."""
    if context.functions or context.given or context.premises:
        raise UsageError("generic functions, given values and premises have no Gaussian closed form")


def _move_parameter(still: GaussianSetting, direction: int) -> GaussianSetting:
    """theta + i H: the mean, or the log scale, variance exp(2 log scale)."""
    m, v = still.q
    q = (m + 1j * H, v + 0j) if direction == 0 else (complex(m), v * (1 + 2j * H))
    return replace(still, q=q, still=still)


@dataclass(frozen=True)
class _Place:
    base_setting: GaussianSetting
    moving: GaussianSetting
    direction: int

    def evaluate_side(self, side: Side, moves: bool) -> Any:
        total: Any = 0.0
        for coefficient, atoms in side.terms:
            product = self.base_setting.compute_expectation("q", coefficient)
            for atom in atoms:
                product = product * self.evaluate_atom(atom, moves)
            total = total + product
        return total

    def evaluate_atom(self, atom: Atom, moves: bool) -> Any:
        setting = self.moving if moves else self.base_setting
        match atom:
            case E(m, a, score) if m != "count" and not (moves and score):
                return setting.compute_expectation(m, a, (self.direction,) * len(score))
            case ExpectedGradient(m, loss) if not moves:
                return self.moving.compute_expectation(f"sg({m})", loss).imag / H
            case Gradient(of) if not moves:
                return complex(self.evaluate_side(of, True)).imag / H
            case Divergence(kind, a, b):
                return _compute_divergence(kind, a, b, setting)
            case Covariance(m, a, b):
                return setting.compute_expectation(m, a * b) - setting.compute_expectation(
                    m, a
                ) * setting.compute_expectation(m, b)
        raise UsageError(f"{type(atom).__name__} has no Gaussian closed form here")


def _compute_divergence(kind: str, a: str, b: str, setting: GaussianSetting) -> Any:
    """KL = (log(v_b/v_a) + (v_a + (m_a - m_b)^2)/v_b - 1)/2, chi2 = E_b[(a/b)^2] - 1, J both KLs."""
    if kind == "J":
        return _compute_divergence("KL", a, b, setting) + _compute_divergence("KL", b, a, setting)
    if kind == "chi2":
        ratio = (LOG_DENSITIES[a] - LOG_DENSITIES[b]).exp()
        return setting.compute_expectation(b, ratio * ratio) - 1
    (m, v), (n, u) = setting.get_density(a), setting.get_density(b)
    return (np.log(u / v) + (v + (m - n) ** 2) / u - 1) / 2
