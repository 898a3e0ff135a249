"""Losses of the grammar as PyTorch code, and whether what is measured agrees with what `explain` proves.

The code is the literal meaning of the options: a reward is detached and multiplies the score; rho is the
ratio of a token, of a prefix or of the whole sequence.  At tokens R is a reward of the token.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sympy
import torch

from klsym.api import explain
from klsym.engine.verdicts.verdict import Verdict
from klsym.language.expressions import A, Estimator, R, log_mu, log_p, log_q, rho, sg
from klsym.language.parser import parse
from klsym.measure.measurement import Measurement
from klsym.measure.measuring import measure
from klsym.notation.values import show_value

VALUES = {"beta": 0.3, "lam": 0.7, "eps": 0.15, "alpha": 0.6, "nu": 0.4}
DENSITIES = {log_q, log_p, log_mu, R, A}
GAP = 1e-6


def evaluate(e: Any, values: dict[Any, Any]) -> Any:
    """The value of an expression, all its names being tensors."""
    if e in values:
        return values[e]
    if e.is_number:
        return torch.tensor(float(e), dtype=torch.float64)
    if isinstance(e, sg):
        return evaluate(e.args[0], values).detach()
    if isinstance(e, Estimator):
        return evaluate(e.definition(), values)
    parts = [evaluate(x, values) for x in e.args]
    if e.is_Add:
        return sum(parts[1:], parts[0])
    if e.is_Mul:
        whole = parts[0]
        for x in parts[1:]:
            whole = whole * x
        return whole
    if e.is_Pow:
        return parts[0] ** float(e.exp) if e.exp.is_number else parts[0] ** parts[1]
    if isinstance(e, sympy.exp):
        return parts[0].exp()
    raise NotImplementedError(str(e))


def as_code(text: str, options: dict[str, str]) -> Callable[[Any], Any]:
    """The loss as a function of a batch; raises NotImplementedError for words of sums, batches, bounds."""
    expression = parse(text)
    atoms = expression.free_symbols
    names = {x for x in atoms if x not in DENSITIES and x.name != "T"}
    if expression.has(A) and options["level"] == "token":  # whose mean given the prefix is 0, by convention
        raise NotImplementedError(text)
    if any(x.name not in VALUES for x in names) or options.get("batch", "none") != "none":
        raise NotImplementedError(text)
    if expression.has(sympy.Min, sympy.Max) or any(
        not issubclass(f, sg | sympy.exp | Estimator) for f in _functions(expression)
    ):
        raise NotImplementedError(text)

    def loss(b: Any) -> Any:
        token = options["level"] == "token"
        fields = [x * b.mask for x in (b.logp, b.ref_logp, b.old_logp)]
        q, p, mu = fields if token else (x.sum(-1) for x in fields)
        ratio = {"prefix": (fields[0] - fields[2]).cumsum(-1), "sequence": (fields[0] - fields[2]).sum(-1)}
        weight = ratio.get(options.get("weights", ""), q - mu)
        weight = (weight[:, None] + 0 * q if weight.dim() < q.dim() else weight).exp()
        reward = b.token_rewards * b.mask if token else b.rewards
        values = {log_q: q, log_p: p, log_mu: mu, R: reward, A: reward, rho: weight}
        length = b.mask.sum(-1)
        values |= {x: torch.tensor(VALUES[x.name], dtype=torch.float64) for x in names}
        values |= {x: length[:, None] if token else length for x in atoms if x.name == "T"}
        x = evaluate(expression, values) + 0 * q
        x = x * b.mask if token else x
        if options["use"] == "reward":
            x = x.detach()
            if token and options.get("credit", "to-go") != "same-token":
                total = x.sum(-1, keepdim=True) + 0 * x
                x = total if options.get("credit") == "total" else total - x.cumsum(-1) + x
            x = x * q
        x = x.sum(-1) if token else x
        return (x / length if options.get("aggregate") == "mean" else x).sum()

    return loss


def _functions(e: Any) -> set[Any]:
    return {type(x) for x in sympy.preorder_traversal(e) if isinstance(x, sympy.Function)}


def find_disagreement(text: str, options: dict[str, str], answer: Measurement, verdict: Verdict) -> str:
    """What was measured otherwise than what was proved; empty if they agree, or if nothing was decided."""
    target = verdict.target
    if target is None:
        return ""
    if target == "zero":
        return "" if answer.kind == "zero" else f"zero, measured {answer.summary}"
    if target == "no-objective":
        return "" if answer.has_objective is False else f"{target}, measured {answer.summary} ({answer.curl})"
    turning = answer.turning
    if target == "own-mean" and turning is not None and turning.own_mean > turning.noise:
        return f"{target}, the gradient of the mean is {turning.own_mean:.1e} off"
    if target in ("own-mean", "objective", "f-divergence"):
        return "" if answer.has_objective is not False else f"{target}, measured curl {answer.curl}"
    multiples = {}
    for name, value in verdict.gradient.multiples.items():
        if name == "reward":
            part = parse(value)
            scale = part.subs({R: 1, A: 1})
            if options["level"] == "token" or any(x.name == "T" for x in scale.free_symbols):
                return "" if answer.has_objective is not False else f"{value}, measured curl {answer.curl}"
            if sympy.expand(part - scale * R) != 0 != sympy.expand(part - scale * A):
                return "" if answer.has_objective is not False else f"{value}, measured curl {answer.curl}"
            multiples["policy-gradient"] = scale
        else:
            multiples[name] = parse(value)
    numbers = {sympy.Symbol(name): x for name, x in VALUES.items()}
    by_name = {name: float(e.subs({x: numbers.get(sympy.Symbol(x.name), x) for x in e.free_symbols}))
               for name, e in multiples.items()}  # fmt: skip
    wanted = " + ".join(f"{x!r}*{name}" for name, x in by_name.items()).replace("+ -", "- ")
    error = answer.compare(wanted).error
    return "" if error < GAP else f"{wanted}, measured {answer.summary} ({error})"


def compare(text: str, options: dict[str, str]) -> str:
    """Measure a loss and explain it; the disagreement, or "" for none."""
    loss = as_code(text, options)
    verdict = explain(text, **options)  # type: ignore[arg-type]
    return find_disagreement(text, options, measure(loss, sampling=options["sampling"]), verdict)


__all__ = ["as_code", "compare", "show_value"]
