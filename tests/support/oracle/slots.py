"""Losses that sum over tokens, or over the samples of a batch, read literally: each sum is added up.

    past(x) now(x) future(x) whole(x) togo(x)    sums of x at each token, with seqmean(x) = whole(x)/T
    disc(g, x)                                   sum_{u >= t} g^(u - t) x_u at token t
    gae(x, g)                                    sum_{u >= t} (g x)^(u - t) (R_u + g V_{u+1} - V_u)
    others(x) groupsum(x) loo(x) centred(x) normalised(x)    over a batch, all batches of n enumerated
    full(x)                                      sum_y q(y) x(y) over the branches of the node, q moving too

>>> from support.oracle import losses
>>> forest = Slotted(losses.trees(1, ((), ((), ())), 2))
>>> whole = forest.field("exp(whole(log_q - sg(log_q))/T)*A", Setting(level="sequence")).a
>>> bool(np.allclose(whole, forest.slope("A/T").a, rtol=1e-12))
True
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np

from .grammar import Names, evaluate, jet, parsed, plain, sg, walked
from .losses import Forest, Rows, Setting, centred
from .numbers import Jet, exp

OF_TOKENS = ("past", "now", "future", "whole", "togo", "seqmean", "disc", "gae")
OF_SAMPLES = ("others", "groupsum", "loo", "centred", "normalised")


def holds(text: str, names: tuple[str, ...]) -> bool:
    calls = (node for node in ast.walk(parsed(text)) if isinstance(node, ast.Call))
    return any(isinstance(call.func, ast.Name) and call.func.id in names for call in calls)


class Found:
    """What names stand for, and what functions of a whole expression do."""

    def __init__(self, names: Names, sums: dict[str, Callable[[ast.expr], Any]]) -> None:
        self.names, self.sums = names, sums

    def __call__(self, name: str, inner: str | None = None) -> Any:
        return self.names(name, inner) if inner else self.names(name)


def added(x: Any, matrix: np.ndarray) -> Any:
    """Each part of a jet, added up over what a column of the matrix marks."""
    return jet(x).map(lambda part: np.broadcast_to(part, (*np.shape(part)[:-1], len(matrix))) @ matrix)


class Slotted(Forest):
    """Worlds in which losses may sum over tokens and over samples."""

    def loss(self, text: str, setting: Setting, A: float = 1.0) -> tuple[Rows, Any]:
        if setting.level == "sample" and not holds(text, ("full",)):
            return super().loss(text, setting, A)
        rows = self.steps if setting.level == "token" else self.whole
        more = {"A": A * self.A[rows.path]} if A != 1 else {}
        more |= {"n": float(setting.n)} if setting.batch != "none" else {}
        return rows, evaluate(text, self.finder(rows, setting, **more))

    def finder(self, rows: Rows, setting: Setting, inner: Names | None = None, **more: Any) -> Found:
        """Names at a token, or of a whole sequence, with sums over tokens; inner: the names in those."""
        token, steps = rows is self.steps, self.steps
        weights = (setting.weights or "token") if token else None
        found = Found(self.names(rows, "now" if token else "x", weights, T=rows.length, **more), {})
        at_steps = found if token else self.finder(steps, setting)
        at_steps = at_steps if inner is None else Found(inner, found.sums)
        same = steps.path[:, None] == rows.path
        marks = {"whole": same}
        if token:
            before, after = steps.step[:, None] < rows.step, steps.step[:, None] > rows.step
            marks |= {"past": same & before, "now": same & ~before & ~after, "future": same & after,
                      "togo": same & ~before}  # fmt: skip

        def over(mark: np.ndarray) -> Callable[[ast.expr], Any]:
            return lambda argument: added(walked(argument, at_steps, None), mark * 1.0)

        found.sums |= {name: over(mark) for name, mark in marks.items()}
        if token:
            later = np.maximum(steps.step[:, None] - rows.step, 0)
            found.sums["disc"] = lambda argument, g: over(marks["togo"] * float(g) ** later)(argument)

            def estimate(x: float, g: float = 1.0) -> Any:
                error = walked(parsed(f"R + {g}*V_next - V"), at_steps, None)
                return added(error, marks["togo"] * float(g * x) ** later)

            found.sums["gae"] = estimate
        found.sums["full"] = lambda argument: self.over_branches(argument, at_steps)
        found.sums["seqmean"] = lambda argument: found.sums["whole"](argument) * (1 / rows.length)
        return found

    def over_branches(self, argument: ast.expr, at_steps: Found) -> Any:
        """sum_y q(y) x(y) at each step; a branch that many sequences take is read where any of them does."""
        steps = self.steps
        token = [self.paths[k][t] for k, t in zip(steps.path, steps.step, strict=True)]
        node = np.array([id(self.token[number][0]) for number in token])
        count = np.bincount(token)[token]
        beside = (node[:, None] == node) / count[:, None]
        return added(exp(self.atom("log_q", steps, "now")) * jet(walked(argument, at_steps, None)), beside)

    def _credited(self, text: str, setting: Setting, rows: Rows, found: Any) -> Any:
        if holds(text, OF_TOKENS):
            return found
        return super()._credited(text, setting, rows, found)

    def form(self, text: str, measure: str = "q", **more: Any) -> Any:
        """As it is printed, with sums over tokens and branches: full(k1*s) adds up k1 s of every branch."""
        if not holds(text, ("full", *OF_TOKENS)):
            return super().form(text, measure, **more)
        rows, found = self.steps, Found(self.printed("x", **more), {})
        found.sums |= self.finder(rows, Setting(level="token")).sums
        inside = Found(self.printed("now", **more), {})
        found.sums["full"] = lambda argument: plain(self.over_branches(argument, inside))
        named = {x.id.split("_")[0] for x in ast.walk(parsed(text)) if isinstance(x, ast.Name)}
        slot = "now" if holds(text, OF_TOKENS) else "x"
        score = 1.0 if "s" in named else self.atom("log_q", rows, slot).a
        values = self.chance(rows, measure).value * plain(evaluate(text, found)) * score
        return Jet(self.mean(rows, np.abs(values).max(axis=(0, 1))).value, self.mean(rows, values).value)

    def printed(self, bare: str, **more: Any) -> Names:
        """Names of an answer: k1_now, s_past; those without a slot are of the slot `bare`."""

        def find(name: str, inner: str | None = None) -> Any:
            base, _, slot = name.rpartition("_")
            base, slot = (base, slot) if slot in ("past", "now", "future") else (name, bare)
            if base == "s":
                return self.atom("log_q", self.steps, slot).a
            if base == "T":
                return self.atom("T", self.steps, slot)
            return plain(self.names(self.steps, slot, **more)(base))

        return find

    # ------------------------------------------------------------------ batches
    def field(self, text: str, setting: Setting | None = None) -> Any:
        setting = setting or Setting()
        return self.of_batches(text, setting) if holds(text, OF_SAMPLES) else super().field(text, setting)

    def of_batches(self, text: str, setting: Setting) -> Any:
        """E over all batches of mean_i grad L_i, or of mean_i L_i s_i."""
        rows, batches = self.whole, self.batches(setting.n)
        total: Any = 0.0
        for i in range(setting.n):
            loss = self.loss_in_batch(text, setting, i)
            if setting.use == "reward":
                loss = sg(jet(loss)) * self.taken(self.atom("log_q", rows, "x"), batches[:, i])
            total = jet(total) + loss
        return self.over_batches(total, batches)

    def of_batches_in_value(self, text: str, setting: Setting) -> tuple[Any, Any]:
        """E over all batches of mean_i L_i, and of mean_i |L_i|."""
        batches = self.batches(setting.n)
        values = [jet(self.loss_in_batch(text, setting, i)).value for i in range(setting.n)]
        means = (self.over_batches(jet(sum(x)), batches) for x in (values, [abs(x) for x in values]))
        mean, size = (found.value for found in means)
        return mean, size

    def batches(self, n: int) -> np.ndarray:
        world = self.whole.world
        return np.array([batch for k in range(len(self.worlds))
                         for batch in product(np.flatnonzero(world == k), repeat=n)])  # fmt: skip

    def taken(self, value: Any, rows: np.ndarray) -> Any:
        """A value of whole sequences, at these."""
        size = len(self.whole.path)
        return jet(value).map(lambda part: np.broadcast_to(part, (*np.shape(part)[:-1], size))[..., rows])

    def over_batches(self, total: Any, batches: np.ndarray) -> Any:
        n, world = batches.shape[1], self.whole.world
        for i in range(n):
            total = total * self.taken(self.chance(self.whole), batches[:, i])
        member = (world[batches[:, 0]][:, None] == np.arange(len(self.worlds))) / n
        size = len(batches)
        return total.map(lambda part: np.broadcast_to(part, (*np.shape(part)[:-1], size)) @ member)

    def loss_in_batch(self, text: str, setting: Setting, i: int) -> Any:
        """L_i in each batch, over T_i where that is the aggregate."""
        n, batches = setting.n, self.batches(setting.n)
        names = self.finder(self.whole, setting, n=float(n))

        def each(argument: ast.expr) -> list[Any]:
            return [self.taken(walked(argument, names, None), batches[:, j]) for j in range(n)]

        def others(argument: ast.expr) -> Any:
            found = each(argument)
            rest = found[:i] + found[i + 1 :]
            return sum(rest[1:], rest[0])

        def group(argument: ast.expr) -> Any:
            first, *rest = each(argument)
            return sum(rest, first)

        def left(batch: str) -> Callable[[ast.expr], Any]:
            return lambda argument: centred(each(argument), batch)[i]

        def mine(name: str) -> Callable[[ast.expr], Any]:
            return lambda argument: self.taken(names.sums[name](argument), batches[:, i])

        sums = {"others": others, "groupsum": group, "loo": left("leave-one-out"), "centred": left("mean"),
                "normalised": left("std"), **{name: mine(name) for name in names.sums}}  # fmt: skip
        at_i = Found(lambda name, inner=None: self.taken(names(name, inner), batches[:, i]), sums)
        loss = evaluate(text, at_i)
        averaged = setting.aggregate == "mean"
        return loss * self.taken(1 / self.whole.length, batches[:, i]) if averaged else loss

    def size(self, text: str, setting: Setting) -> Any:
        if holds(text, OF_SAMPLES):
            return np.abs(
                np.broadcast_to(self.of_batches(text, setting).a, (self.logits, 1, len(self.worlds)))
            ).max(axis=(0, 1))
        return super().size(text, setting)
