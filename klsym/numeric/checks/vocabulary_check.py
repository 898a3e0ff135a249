"""What a verdict prints of sums over the vocabulary, against the sums themselves on trees of tokens.

At each prefix full(x) is added up over the branches, its slope is sum_y q(y) (x + dx/dlog q) u.s(y): nothing
is drawn, no rule is used.  The printed coefficient must have the same field, E_m[sum_t grad L_t] along u.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import mpmath
import sympy

from klsym.errors import UsageError
from klsym.language.abbreviations import Context
from klsym.language.expressions import A, log_q, s
from klsym.language.sums import OverVocabulary
from klsym.numeric.checks.field_check import Formulas, Literal
from klsym.numeric.evaluation import TOLERANCE
from klsym.numeric.loss_by_definition import at_sample
from klsym.numeric.models import FiniteModel

SEEDS = range(4)
CREDITS = {"to-go": lambda u, t: u >= t, "total": lambda u, t: True}
WEIGHTED = "check: a sum over the vocabulary is added up for weights token alone; leave --check out"


def vocabulary_checked(verdict: Any, loss: Any, parameters: Mapping[str, float]) -> tuple[bool, str]:
    """Does E_q[sum_t c s_t] have the value of the field that the sums have?

    loss: sums over tokens are not read.  parameters: values that meet the hypotheses.  Raises UsageError.
    """
    setting = verdict.setting
    if setting.weights not in ("", "token"):
        raise UsageError(WEIGHTED)
    literal = Literal(loss, setting)
    context = Context(tuple(sorted(parameters)), on_policy=setting.on_policy)
    printed = Formulas(verdict, literal, frozenset(parameters)).read(verdict.coefficient)
    worst = mpmath.mpf(0)
    for seed in SEEDS:
        tree = Tree(literal.model(seed, context, parameters), parameters, setting.on_policy)
        exact, size = tree.field(loss, setting)
        worst = max(worst, abs(exact - tree.printed(printed, setting)) / size)
    said = f"sums over the vocabulary on {len(SEEDS)} trees: largest difference {float(worst):.1e}"
    return bool(worst <= TOLERANCE), said + ("" if worst <= TOLERANCE else " (in the coefficient)")


@dataclass(frozen=True)
class Tree:
    """A finite model along one direction; mu is q on-policy."""

    model: FiniteModel
    parameters: Mapping[str, float]
    on_policy: bool

    @cached_property
    def scores(self) -> list[Any]:
        """u.s of each branch."""
        found: list[Any] = []
        for node in self.model.layout.nodes:
            q, u = ([mpmath.mpf(float(x)) for x in row[node]] for row in (self.model.q, self.model.u))
            mean = mpmath.fsum(a * b for a, b in zip(q, u, strict=True))
            found += [x - mean for x in u]
        return found

    @cached_property
    def branches(self) -> list[dict[str, Any]]:
        """What is drawn at each branch."""
        rows = {
            f"log_{name}": [mpmath.log(mpmath.mpf(float(x))) for x in row]
            for name, row in self.model.rows.items()
        }
        if self.on_policy:
            rows["log_mu"] = rows["log_q"]
        rows.update({name: list(row) for name, row in self.model.rewards.items() if name in ("R", "M")})
        return [
            {name: mpmath.mpf(float(row[b])) for name, row in rows.items()} for b in range(len(self.model.q))
        ]

    def paths(self) -> Iterator[tuple[tuple[int, ...], dict[str, Any]]]:
        """Each sequence, with what is the same at all of its tokens."""
        for number, path in enumerate(self.model.layout.paths):
            fixed = {name: mpmath.mpf(x) for name, x in self.parameters.items()}
            yield path, fixed | {"A": mpmath.mpf(float(self.model.rewards["A"][number]))}

    def chance(self, path: tuple[int, ...], of: str) -> Any:
        return mpmath.exp(mpmath.fsum(self.branches[b][of] for b in path))

    # ------------------------------------------------------------------ the loss itself
    def field(self, loss: Any, setting: Any) -> tuple[Any, Any]:
        """E_m[sum_t grad L_t] or E_m[sum_t s_t sum_u L_u], and what rounding is measured against."""
        total, size = mpmath.mpf(0), mpmath.mpf(1)
        for path, fixed in self.paths():
            mass, pushes = self.chance(path, "log_mu"), []
            if setting.use == "loss":
                pushes = [self.pushed(loss, b, fixed)[1] for b in path]
            else:
                meets = CREDITS.get(setting.credit, lambda u, t: u == t)
                whole = [self.pushed(loss, b, fixed)[0] for b in path]
                plain = [self.pushed(loss.xreplace({A: sympy.S.Zero}), b, fixed)[0] for b in path]
                for t, b in enumerate(path):
                    earned = mpmath.fsum(x for u, x in enumerate(plain) if meets(u, t))
                    pushes.append(self.scores[b] * (whole[t] - plain[t] + earned))
            total += mass * mpmath.fsum(pushes)
            size += mass * mpmath.fsum(map(abs, pushes))
        return total, size

    def pushed(self, loss: Any, branch: int, fixed: dict[str, Any]) -> tuple[Any, Any]:
        """The loss of a token and its slope: that of the token's own log q, and of each sum."""
        sums = {of: sympy.Dummy(f"full{i}", real=True) for i, of in enumerate(loss.atoms(OverVocabulary))}
        plain, values = loss.xreplace(sums), fixed | self.branches[branch]
        slopes = {}
        for of, dummy in sums.items():
            values[dummy.name], slopes[dummy] = self.added(of.args[0], branch, fixed)
        value, own = at_sample(plain, values)
        moved = (at_sample(sympy.diff(plain, d), values)[0] * slope for d, slope in slopes.items())
        return value, own * self.scores[branch] + mpmath.fsum(moved)

    def added(self, x: Any, branch: int, fixed: dict[str, Any]) -> tuple[Any, Any]:
        """sum_y q(y) x(y) and its slope, over the branches of a node."""
        node = next(of for of in self.model.layout.nodes if of.start <= branch < of.stop)
        value, slope = mpmath.mpf(0), mpmath.mpf(0)
        for b in range(node.start, node.stop):
            here, moved = at_sample(x, fixed | self.branches[b])
            q = mpmath.exp(self.branches[b][log_q.name])
            value += q * here
            slope += q * (here + moved) * self.scores[b]
        return value, slope

    # ------------------------------------------------------------------ what is printed
    def printed(self, c: Any, setting: Any) -> Any:
        """E_q[sum_t c s_now], or E_q[sum_t c] where c names its scores."""
        mark = s.name if setting.level == "sample" else f"{s.name}[now]"
        named = any(x.name.partition("[")[0] == s.name for x in c.free_symbols)
        total = mpmath.mpf(0)
        for path, fixed in self.paths():
            for t in range(len(path)):
                values = self.slots(path, t) | fixed
                value = at_sample(c, values)[0] * (1 if named else values[mark])
                total += self.chance(path, "log_q") * value
        return total

    def slots(self, path: tuple[int, ...], t: int) -> dict[str, Any]:
        """Sums over the tokens of each slot, by name."""
        found: dict[str, Any] = {}
        places = {"": path, "[past]": path[:t], "[now]": path[t : t + 1], "[future]": path[t + 1 :]}
        for place, of in places.items():
            for name in self.branches[0]:
                found[name + place] = mpmath.fsum(self.branches[b][name] for b in of)
            found[s.name + place] = mpmath.fsum(self.scores[b] for b in of)
            found["length" + place] = mpmath.mpf(len(of))
        return found
