"""A loss on trees of tokens, differentiated by PyTorch: a second judge beside the jets of `oracle`.

The logits of every prefix are a tensor, log q its log-softmax; a loss is evaluated at every token, or
sequence, or batch, and weighted by its mass under the sampler, detached.  What autograd then gives is
E_m[grad L]; it is held against the coefficient that klsym prints, added up over the same tree by the oracle
(where none is printed, against the oracle's own field).
"""

from __future__ import annotations

import re
from itertools import product
from typing import Any

import numpy as np
import sympy
from array_api_compat import torch as xp

from klsym.language.expressions import A, R, log_mu, log_old, log_p, log_q, rho, sg
from klsym.language.parser import parse
from klsym.language.sums import OverBatch, OverVocabulary, Summed
from klsym.numeric.array_losses import evaluate
from support.judges.loss_judge import mean_h
from support.judges.loss_worlds import constants_of, flat, settings, worlds
from support.losses.random_losses import Case
from support.oracle.losses import PARAMETERS, Rows, Setting, Tree
from support.oracle.slots import Slotted

AGREE = 1e-9
NAMES = {log_p: "log_p", log_mu: "log_mu", log_old: "log_old", R: "R", sympy.Symbol("M", real=True): "M"}
OWN = tuple(sympy.Symbol(name, real=True) for name in ("own", "rest"))
SUMS = (Summed, OverVocabulary, OverBatch)


class Torch:
    """One tree under one way of sampling, its logits a leaf."""

    def __init__(self, tree: Tree, setting: Setting) -> None:
        import torch

        self.torch, self.setting = torch, setting
        self.where = Slotted([tree], (setting.sampling,))
        self.leaf = self.tensor(self._logits()).requires_grad_()
        parts = {first: len(at.logits) for at, _, first in self.where.token}
        logs = [torch.log_softmax(self.leaf[first : first + n], dim=0) for first, n in sorted(parts.items())]
        self.log_q = torch.cat(logs)[[first + k for _, k, first in self.where.token]]

    def tensor(self, value: Any) -> Any:
        return self.torch.tensor(np.asarray(value, float), dtype=self.torch.float64)

    def _logits(self) -> np.ndarray:
        found = np.zeros(self.where.logits)
        for at, k, first in self.where.token:
            found[first + k] = at.logits[k]
        return found

    def values(self, rows: Rows, slot: str, n: float | None = None) -> dict[str, Any]:
        """What each name stands for at these rows."""
        mark = self.tensor(rows.slots[slot])
        found = {of: self.tensor(self.where.fixed[of]) @ mark for of in NAMES.values()}
        found |= {"log_q": self.log_q @ mark, "A": self.tensor(self.where.A[rows.path])}
        if self.setting.sampling == "on-policy":
            found["log_mu"] = found["log_q"].detach()
        known = PARAMETERS | ({"n": n} if n else {}) | {"T": self.tensor(rows.length)}
        return {**known, **found}

    def at(self, e: Any, rows: Rows, slot: str, weights: str = "", **more: Any) -> Any:
        """A loss at each row; sums first, each as a name of its own."""
        values = {**self.values(rows, slot), **more}
        if weights in ("prefix", "sequence") and e.has(rho):
            slots = ("past", "now") if weights == "prefix" else ("x",)
            ratio = sum(self.at(log_q - log_mu, rows, one) for one in slots)
            e, values = e.xreplace({rho: sympy.Symbol("weight")}), {**values, "weight": self.torch.exp(ratio)}
        for of in [of for of in sympy.preorder_traversal(e) if isinstance(of, sg) and of.atoms(*SUMS)]:
            name = sympy.Symbol(f"sum{len(values)}", real=True)
            values[name.name] = self.at(of.args[0], rows, slot, weights, **more).detach()
            e = e.xreplace({of: name})
        while inner := [of for of in sympy.preorder_traversal(e) if isinstance(of, SUMS)]:
            name = sympy.Symbol(f"sum{len(values)}", real=True)
            values[name.name] = self.summed(inner[0], rows)
            e = e.xreplace({inner[0]: name})
        found = evaluate(e, values, xp, lambda t: t.detach())
        return found.expand(len(rows.path)) if found.ndim == 0 else found

    def summed(self, of: Any, rows: Rows) -> Any:
        """past(x), whole(x), full(x) at each row."""
        steps = self.where.steps
        inner = self.at(of.args[0], steps, "now")
        same = steps.path[:, None] == rows.path
        if isinstance(of, OverVocabulary):
            drawn = [self.where.paths[k][t] for k, t in zip(steps.path, steps.step, strict=True)]
            node = np.array([id(self.where.token[number][0]) for number in drawn])
            count = np.bincount(drawn)[drawn]
            beside = (node[:, None] == node) / count[:, None]
            return (self.torch.exp(self.log_q @ self.tensor(steps.slots["now"])) * inner) @ self.tensor(
                beside
            )
        before = {"past": np.less, "now": np.equal, "future": np.greater}.get(of.slot)
        mark = same & before(steps.step[:, None], rows.step) if before else same
        return inner @ self.tensor(mark)

    def gradient(self, text: str) -> np.ndarray:
        """E_m[grad L] along the logits."""
        e, setting = parse(text), self.setting
        if e.atoms(OverBatch):
            total = self.of_batches(e)
        else:
            token = setting.level == "token"
            rows, slot = (self.where.steps, "now") if token else (self.where.whole, "x")
            mass = self.tensor(self.where.chance(rows, averaged=setting.aggregate == "mean").value)
            loss = self.at(e, rows, slot, setting.weights if token else "")
            if setting.use == "reward":
                credited = self.credited(e, rows, loss) if token and not e.atoms(Summed) else loss
                loss = credited.detach() * (self.log_q @ self.tensor(rows.slots[slot]))
            total = (mass * loss).sum()
        if not total.requires_grad:
            return np.zeros(self.where.logits)
        [found] = self.torch.autograd.grad(total, [self.leaf])
        return found.numpy()

    def credited(self, e: Any, rows: Rows, loss: Any) -> Any:
        """A meets each score once; what is left without it is credited to the tokens before."""
        plain = self.at(e.xreplace({A: sympy.S.Zero}), rows, "now", self.setting.weights)
        same, later = rows.path[:, None] == rows.path, rows.step[:, None] >= rows.step
        meets = {"same-token": np.eye(len(same)), "to-go": same & later, "total": same}[self.setting.credit]
        return loss - plain + plain @ self.tensor(meets)

    def of_batches(self, e: Any) -> Any:
        """E over all batches of mean_i L_i, each sum over the others put in by its values."""
        assert self.setting.use == "loss", "rewards of batches are judged by enumeration alone"
        n, rows = self.setting.n, self.where.whole
        mass = self.tensor(self.where.chance(rows).value)
        sums = sorted(e.atoms(OverBatch), key=str)
        inner = [self.at(of.args[0], rows, "x", n=float(n)) for of in sums]
        total: Any = 0.0
        for batch in product(range(len(rows.path)), repeat=n):
            for i in range(n):
                rest = [j for k, j in enumerate(batch) if k != i]
                put = {
                    of: (of.combine(*OWN), x[batch[i]], x[rest].sum())
                    for of, x in zip(sums, inner, strict=True)
                }
                total = total + self.one_of_batch(e, put, batch[i], n) * mass[list(batch)].prod() / n
        return total

    def one_of_batch(self, e: Any, put: dict[Any, Any], path: int, n: int) -> Any:
        every = self.values(self.where.whole, "x", float(n))
        values = {name: x[path] if getattr(x, "ndim", 0) else x for name, x in every.items()}

        def found(e: Any) -> Any:
            for of in [
                of for of in sympy.preorder_traversal(e) if isinstance(of, sg) and of.atoms(OverBatch)
            ]:
                values[f"held{len(values)}"] = found(of.args[0]).detach()
                e = e.xreplace({of: sympy.Symbol(f"held{len(values) - 1}", real=True)})
            for of, (form, own, rest) in put.items():
                names = [f"own{len(values)}", f"rest{len(values)}"]
                values.update(zip(names, (own, rest), strict=True))
                there = dict(zip(OWN, (sympy.Symbol(name, real=True) for name in names), strict=True))
                e = e.xreplace({of: form.xreplace(there)})
            return evaluate(e, values, xp, lambda t: t.detach())

        return found(e)


def misfit(case: Case, answer: dict[str, Any]) -> float:
    """How far autograd is from E_q[c s] with the printed c, on two trees, in units of their size."""
    setting = settings(case)[0]
    text, worst = answer["gradient"]["coefficient"], 0.0
    if text and case.level == "token" and re.search(r"\bs\b", text):
        text = f"{text} + 0*s_now"  # the same at each token, added up over all of them
    all_of = worlds(case.level, "generic")
    for tree in (all_of[0], all_of[-1]):
        judged = Torch(tree, setting)
        constants = constants_of(case, setting)
        if text:
            constants |= mean_h(text, case, answer, judged.where, setting)
        form = judged.where.form(text, "q", **constants) if text else judged.where.field(case.text, setting)
        printed = flat(form.a, judged.where)[:, 0]
        found = judged.gradient(case.text)
        size = np.abs(found).max() + np.abs(printed).max() + 1e-3
        worst = max(worst, float(np.abs(found - printed).max() / size))
    return worst
