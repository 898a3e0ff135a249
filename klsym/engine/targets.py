"""Recognition: what a score coefficient or a value is, read off its normal form.  Untrusted.

c = k1 is grad KL(q||p), c = -r is grad KL(p||q), c = h(R, A) is grad E_q[h]; constants drop.  By
completeness nothing else is any of these, so reading the normal form decides the question.  The random
length of a sequence is no reward: c = 1/T is part of the rest.

>>> from klsym.convert import to_ring
>>> from klsym.language import k3
>>> recognise(to_ring(k3)).target
'combination'
"""

from __future__ import annotations

from dataclasses import dataclass

from klsym.names import SAMPLE_BASES, THETA_FREE, parse_name
from klsym.ring import ZERO, ExpPoly

K1 = ExpPoly.variable("k1")
R_RATIO = (-K1).exp()
LENGTH = frozenset({"length"})  # the number of tokens of a sequence, which is random


@dataclass(frozen=True)
class Target:
    """Multiples of the named parts, and the rest that is none of them."""

    reverse: ExpPoly
    forward: ExpPoly
    reward: ExpPoly
    constant: ExpPoly
    rest: ExpPoly

    @property
    def target(self) -> str:
        """zero, reverse-kl, forward-kl, combination, f-divergence or separable."""
        if self.rest:
            return "f-divergence" if self._in_r_alone() else "separable"
        present = [name for name in ("reverse", "forward", "reward") if getattr(self, name)]
        return {(): "zero", ("reverse",): "reverse-kl", ("forward",): "forward-kl"}.get(
            tuple(present), "combination"
        )

    def _in_r_alone(self) -> bool:
        return not self.reward and {parse_name(n).base for n in _sample_names(self.rest)} <= {"k1"}

    @property
    def unnamed(self) -> ExpPoly:
        """What is left of a coefficient beside the rewards: the KL divergences are not worth naming alone."""
        return self.reverse * K1 - self.forward * R_RATIO + self.rest

    @property
    def unnamed_value(self) -> ExpPoly:
        """The same of a value."""
        return (self.reverse - self.forward * R_RATIO) * K1 + self.rest

    @property
    def multiples(self) -> dict[str, ExpPoly]:
        named = {"reverse-kl": self.reverse, "forward-kl": self.forward, "reward": self.reward}
        return {name: value for name, value in named.items() if value}


def _sample_names(element: ExpPoly) -> set[str]:
    return {n for n in element.names() if parse_name(n).base in SAMPLE_BASES}


Names = frozenset[str]
NONE: Names = frozenset()


def recognise(c: ExpPoly, rewards: Names = NONE, random: Names = NONE) -> Target:
    """The parts of a score coefficient: E_q[c s] with c = a k1 - b r + h(R, A) + constant + rest.

    rewards: names that stand for functions of the rewards, beside R and A.
    random: names of other random variables, such as indicators.
    """
    return _sorted_into(c, {"reverse": K1, "forward": -R_RATIO}, rewards, random)


def recognise_value(v: ExpPoly, rewards: Names = NONE, random: Names = NONE) -> Target:
    """The parts of a value: E_q[v] with v = a k1 - b r k1 + h(R, A) + constant + rest."""
    return _sorted_into(v, {"reverse": K1, "forward": -R_RATIO * K1}, rewards, random)


def _sorted_into(element: ExpPoly, patterns: dict[str, ExpPoly], rewards: Names, random: Names) -> Target:
    parts = dict.fromkeys(("reverse", "forward", "reward", "constant", "rest"), ZERO)
    for key, value in element.terms.items():
        term = ExpPoly({key: value})
        name = "rest" if term.names() & (random | LENGTH) else _part_of(term, patterns, rewards)
        parts[name] = parts[name] + (_over(term, patterns[name]) if name in patterns else term)
    return Target(**parts)


def _part_of(term: ExpPoly, patterns: dict[str, ExpPoly], rewards: frozenset[str]) -> str:
    densities = {n for n in _sample_names(term) if parse_name(n).base not in THETA_FREE}
    rewarded = term.names() & rewards or _sample_names(term) - densities
    if not densities:
        return "reward" if rewarded else "constant"
    if rewarded:
        return "rest"
    matching = (name for name, p in patterns.items() if not _sample_names(_over(term, p)))
    return next(matching, "rest")


def _over(term: ExpPoly, pattern: ExpPoly) -> ExpPoly:
    """term / pattern, where negative powers show that the pattern is no factor."""
    return term * pattern.inverse()
