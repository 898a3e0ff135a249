"""Name the parts of an expected gradient or of a value: one table of named terms for each index.  Untrusted.

    ""  E_q[c s]                       k1: grad KL(q||p)    -r: grad KL(p||q)    h(R, A): grad E_q[h]
    t   E_q[sum_t sum_z c_z s_z]       such as grad KL(q||p) = E_q[sum_t k1_now (s_now + s_past)]

Each term has a lead: a coefficient with which no later term of its table multiplies the same score.
`decompose` reads the multiple of the term off its lead.  At one sample the named terms are complete.

>>> from klsym.language.convert import to_ring
>>> from klsym.language.expressions import k3
>>> recognise_coefficient(to_ring(k3)).target
'combination'
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

from klsym.engine.fields.term_table import (
    NamedTerm,
    Slots,
    build_mean,
    list_sample_terms,
    list_token_terms,
)
from klsym.engine.proof.quantities import Quantity
from klsym.kernel.derivatives import select_sample_part
from klsym.kernel.names import REWARDS, SAMPLE_BASES, THETA_FREE, parse_name
from klsym.kernel.ring import ONE, ZERO, Exponent, ExpPoly, Key, Monomial
from klsym.kernel.statements import Context as Plain
from klsym.language.abbreviations import Context, Indexed, Side
from klsym.language.convert import to_sympy
from klsym.language.unfolding import PLAIN
from klsym.notation import formulas

Names = frozenset[str]


class RandomNames(NamedTuple):
    """Names of defined random variables: rewards, functions of the rewards alone, and random, all others.

    beyond_r: those of random that depend on more than r.
    """

    rewards: Names = frozenset()
    random: Names = frozenset()
    beyond_r: Names = frozenset()

    @property
    def all(self) -> Names:
        return self.rewards | self.random


NO_NAMES = RandomNames()
KLS = ("reverse-kl", "forward-kl")
K1 = ExpPoly.from_variable("k1")
R_RATIO = (-K1).exp()
LENGTH = frozenset({"length"})  # the number of tokens of a sequence, which is random: no reward
_PAST, _NOW = (ExpPoly.from_variable(f"k1[{slot}]") for slot in ("past", "now"))
FORWARD_VALUE = -(-_PAST - _NOW).exp() * _NOW  # -r k1: KL(p||q), as tokens to come average to 1


# ---------------------------------------------------------------------------- one sample
@dataclass(frozen=True)
class NamedParts:
    """Multiples of the named parts at one sample, and the remainder."""

    reverse: ExpPoly
    forward: ExpPoly
    reward: ExpPoly
    constant: ExpPoly
    remainder: ExpPoly
    random_names: RandomNames = NO_NAMES

    @property
    def target(self) -> str:
        """zero, reverse-kl, forward-kl, combination, f-divergence or objective."""
        if self.remainder:
            return "f-divergence" if self._is_function_of_r() else "objective"
        return name_target([name for name in ("reverse", "forward", "reward") if getattr(self, name)])

    def _is_function_of_r(self) -> bool:
        """Is c a function of r = exp(-k1) alone, as in the gradient E_q[c(r) s] of an f-divergence?"""
        names = {parse_name(n).base for n in _collect_sample_names(self.remainder)}
        return (
            not self.reward
            and names <= {"k1"}
            and not self.remainder.names() & (self.random_names.beyond_r | self.random_names.rewards)
        )

    @property
    def unnamed(self) -> ExpPoly:
        """Return the coefficient without its rewards; beside a rest the KL divergences are not named."""
        return self.reverse * K1 - self.forward * R_RATIO + self.remainder

    @property
    def unnamed_value(self) -> ExpPoly:
        """The integrand of a value without its rewards: KL(q||p) is E_q[k1], KL(p||q) is E_q[-r k1]."""
        return (self.reverse - self.forward * R_RATIO) * K1 + self.remainder

    @property
    def multiples(self) -> dict[str, ExpPoly]:
        named = {"reverse-kl": self.reverse, "forward-kl": self.forward, "reward": self.reward}
        return {name: value for name, value in named.items() if value}


def name_target(present: list[str]) -> str:
    """Return the target of a coefficient with these named parts and no remainder."""
    names = [name.removesuffix("-kl") for name in present]
    return "zero" if not names else f"{names[0]}-kl" if names in (["reverse"], ["forward"]) else "combination"


def _collect_sample_names(element: ExpPoly) -> set[str]:
    return {n for n in element.names() if parse_name(n).base in SAMPLE_BASES}


def sort_random_names(context: Plain) -> RandomNames:
    """Sort the names that a context defines by what they depend on; constants are left out."""
    names_of_kind: dict[str, Names] = {"rewards": frozenset(), "random": frozenset(), "beyond_r": frozenset()}
    for name, _, e in context.definitions:
        names = {n for inner in context.walk_definitions(e) for n in inner.names() if context.is_sample(n)}
        bases = {parse_name(n).base for n in names if context.find_definition(n) is None}
        kind = "rewards" if bases and bases <= {*THETA_FREE} - LENGTH else "random" if bases else ""
        kinds = {kind, "beyond_r"} if kind == "random" and not bases <= {"k1"} else {kind} - {""}
        for key in kinds:
            names_of_kind[key] = names_of_kind[key] | {name}
    return RandomNames(**names_of_kind)


def recognise_coefficient(c: ExpPoly, names: RandomNames = NO_NAMES) -> NamedParts:
    """Split a score coefficient: E_q[c s] with c = a k1 - b r + h(R, A) + constant + remainder."""
    return _split_by_patterns(c, {"reverse": K1, "forward": -R_RATIO}, names)


def recognise_value(v: ExpPoly, names: RandomNames = NO_NAMES) -> NamedParts:
    """Split a value: E_q[v] with v = a k1 - b r k1 + h(R, A) + constant + remainder."""
    return _split_by_patterns(v, {"reverse": K1, "forward": -R_RATIO * K1}, names)


def _split_by_patterns(element: ExpPoly, patterns: dict[str, ExpPoly], names: RandomNames) -> NamedParts:
    parts = dict.fromkeys(("reverse", "forward", "reward", "constant", "remainder"), ZERO)
    for term in split_terms(element):
        name = (
            "remainder"
            if term.names() & (names.random | LENGTH)
            else _name_part(term, patterns, names.rewards)
        )
        parts[name] = parts[name] + (term * patterns[name].invert() if name in patterns else term)
    if any(_is_reward_in_region(term, names) for term in split_terms(parts["remainder"])):
        parts |= {"remainder": parts["remainder"] + parts["reward"], "reward": ZERO}
    return NamedParts(**parts, random_names=names)


def _is_reward_in_region(term: ExpPoly, names: RandomNames) -> bool:
    """Is it a reward times an indicator?  Then no part of the coefficient is the reward's alone."""
    rewards = {n for n in term.names() if parse_name(n).base in REWARDS} | (term.names() & names.rewards)
    return bool(rewards and term.names() & names.random)


def _name_part(term: ExpPoly, patterns: dict[str, ExpPoly], rewards: Names) -> str:
    names = _collect_sample_names(term)
    densities = {n for n in names if parse_name(n).base not in THETA_FREE}
    rewarded = term.names() & rewards or names - densities
    if not densities:
        return "reward" if rewarded else "constant"
    random = set() if rewarded else {_select_random_part(*key) for key in term.terms}
    matching = (name for name, pattern in patterns.items() if random == {*pattern.terms})
    return next(matching, "remainder")


@lru_cache(maxsize=8192)
def _select_random_part(monomial: Monomial, exponent: Exponent) -> Key:
    """Return the factor of a term that changes from sample to sample."""

    def is_random(power: Monomial) -> bool:
        return any(parse_name(name).base in SAMPLE_BASES for name, _ in power)

    return tuple(x for x in monomial if is_random((x,))), tuple(x for x in exponent if is_random(x[0]))


def split_terms(element: ExpPoly) -> Iterator[ExpPoly]:
    return (ExpPoly({key: value}) for key, value in element.terms.items())


# ---------------------------------------------------------------------------- values of tokens
def recognise_token_term(term: ExpPoly, defined: RandomNames = NO_NAMES) -> tuple[str, ExpPoly]:
    """Return the part to which a term of sum_t v_t belongs, and its multiple: R A for sum_t R_t A.

    defined: names of regions.  Those of the whole sequence are random, too: sum_t 1(A > 0) k1_t is no KL.
    """
    if term.names() & defined.random:
        return "remainder", term
    in_region = term.names() & defined.rewards
    names = {name for name in term.names() if parse_name(name).slot != "x" or name in SAMPLE_BASES}
    [(monomial, exponent)] = term.terms
    fixed = not names & {name for part, _ in exponent for name, _ in part}  # exp(lam) is a constant
    if names == {"k1[now]"} and ("k1[now]", 1) in monomial and fixed and not in_region:
        return "reverse", term * ExpPoly.from_variable("k1[now]").invert()
    forward = term * FORWARD_VALUE.invert()
    if not forward.names():
        return "forward", forward
    once = any(names - {"A"} == {of} and (of, 1) in monomial for of in ("R[now]", "M[now]"))
    return (
        ("reward", term.rename(lambda name: name.removesuffix("[now]")))
        if fixed and once
        else ("remainder", term)
    )


def find_whole_reward(element: ExpPoly, defined: RandomNames = NO_NAMES) -> ExpPoly | None:
    """Return F with sum_t v_t = F(R), R the rewards of all tokens; None if v is no such difference.

    v_t = F(R_past + R_now) - F(R_past), F(0) = 0;  R_now**2 + 2*R_now*R_past is that of F = R**2
    """
    now, past = (ExpPoly.from_variable(f"R[{slot}]") for slot in ("now", "past"))
    first = element.substitute({"R[past]": ZERO})
    difference = first.substitute({"R[now]": now + past}) - first.substitute({"R[now]": past})
    slots = {parse_name(name).slot for name in element.names() if name in ("R[now]", "R[past]")}
    others = {name for name in element.names() if parse_name(name).slot != "x" or name in SAMPLE_BASES}
    allowed = {"R[now]", "R[past]", "A"}
    if difference != element or not slots or others - allowed or element.names() & defined.random:
        return None
    return first.rename(lambda name: name.removesuffix("[now]"))


# ---------------------------------------------------------------------------- decomposition
@dataclass(frozen=True)
class Decomposition:
    """Multiples of named terms, and the remainder."""

    named: tuple[tuple[NamedTerm, ExpPoly], ...]
    remainder: Slots

    def sum_quantities(
        self, quantity_of_term: Callable[[NamedTerm], Quantity | None] = lambda t: t.quantity
    ) -> Quantity | None:
        """Sum the multiples of the named terms, or of their objectives; None if one of them has none."""
        total = Quantity(Side())
        for term, multiple in self.named:
            value = quantity_of_term(term)
            if value is None:
                return None
            total = total + value * to_sympy(multiple)
        return total

    @property
    def whole_quantity(self) -> Quantity:
        """Everything, the remainder included."""
        total = self.sum_quantities()
        assert total is not None
        for slot, c in self.remainder.items():
            index = "" if slot == "x" else "t"
            total = total + Quantity(Side.from_atom(Indexed(index, "q", c, (slot,))))
        return total

    @property
    def objective(self) -> Quantity | None:
        """The objective; None if a term is no gradient, or there is a remainder."""
        return None if self.remainder else self.named_objective

    @property
    def named_objective(self) -> Quantity | None:
        """Return the objective of the named terms; None if one of them has no objective."""
        return self.sum_quantities(lambda term: term.objective)

    @property
    def multiples(self) -> dict[str, ExpPoly]:
        return {term.name: multiple for term, multiple in self.named}

    @property
    def combination(self) -> dict[str, ExpPoly]:
        """The multiples that a verdict prints, rewards as functions of the whole sample."""
        multiples_of_parts: dict[str, ExpPoly] = {}
        for term, multiple in self.named:
            if term.part:
                multiples_of_parts[term.part] = multiples_of_parts.get(term.part, ZERO) + multiple * term.h
        return {part: multiples_of_parts[part] for part in (*KLS, "reward") if part in multiples_of_parts}

    def subtract_rewards(self, slots: Slots) -> Slots:
        """Subtract the policy gradient of the rewards from the coefficients of the scores."""
        for term, multiple in self.named:
            slots = _subtract_term(slots, term, multiple) if term.part == "reward" else slots
        return {slot: c for slot, c in slots.items() if c}


def _subtract_term(slots: Slots, term: NamedTerm, multiple: ExpPoly) -> Slots:
    subtrahend = {slot: c * multiple for slot, c in term.canonical.items()}
    return {slot: slots.get(slot, ZERO) - subtrahend.get(slot, ZERO) for slot in {*slots, *subtrahend}}


def decompose(
    index: str, coefficients: Slots, parameters: tuple[str, ...], defined: Plain = PLAIN
) -> Decomposition:
    """Subtract multiples of the named terms, one after the other."""
    if index == "":
        return _decompose_sample(
            recognise_coefficient(coefficients.get("x", ZERO), sort_random_names(defined))
        )
    fixed = [name for name, _, e in defined.definitions if defined.is_constant(e)]
    context, table = Context(parameters=(*parameters, *fixed)), list_token_terms()
    named = []
    for term in (*_generate_reward_terms(coefficients, context, defined), *table):
        multiple = _find_multiple(coefficients.get(term.slot, ZERO), term.lead, context)
        difference = _subtract_term(coefficients, term, multiple) if multiple else coefficients
        if multiple and (
            term in table
            or _count_terms(coefficients) - _count_terms(difference) >= _count_terms(term.canonical)
        ):
            coefficients = difference
            named.append((term, multiple))
    return Decomposition(tuple(named), {slot: c for slot, c in sorted(coefficients.items()) if c})


def _decompose_sample(parts: NamedParts) -> Decomposition:
    """Decompose a coefficient at one sample, where any h(R, A) is named: E_q[h s] = grad E_q[h]."""
    named = [
        (t, multiple)
        for t, multiple in zip(list_sample_terms(), (parts.reverse, parts.forward), strict=True)
        if multiple
    ]
    if parts.reward:
        h = parts.reward
        term = NamedTerm("reward", "x", h, build_mean(to_sympy(h)), part="reward", h=h)
        named.append((term, ONE))
    return Decomposition(tuple(named), {"x": parts.remainder} if parts.remainder else {})


def _count_terms(slots: Slots) -> int:
    return sum(len(c.terms) for c in slots.values())


def _generate_reward_terms(coefficients: Slots, context: Context, defined: Plain) -> Iterator[NamedTerm]:
    """Yield named terms grad E_q[h] that the coefficients may contain, for h that are not in the table."""
    known_leads = {term.lead for term in list_token_terms() if term.objective is not None}
    rewards = sort_random_names(defined).rewards
    declared = replace(defined, parameters=tuple(dict.fromkeys((*defined.parameters, *context.parameters))))
    for slot in ("past", "now"):
        for monomial, exponent in coefficients.get(slot, ZERO).terms:
            lead = select_sample_part(monomial, exponent, context)
            h = _find_sample_reward(lead, slot, rewards, frozenset(context.parameters))
            if h is None or lead in known_leads:
                continue
            known_leads = known_leads | {lead}
            name, objective = f"advantage {formulas.show_element(h)}", build_mean(to_sympy(h))
            yield NamedTerm(name, slot, lead, objective, part="reward", h=h, defined=declared)


def _find_sample_reward(
    lead: ExpPoly, slot: str, regions: Names = frozenset(), parameters: Names = frozenset()
) -> ExpPoly | None:
    """Return h(R, A), perhaps over T, with the term `lead` in grad E_q[h] = E_q[sum_t h s_t]; else None.

    regions: those of A, and logs of functions of A; where they are of R no sum over tokens remains.

    R = R_past + R_now + R_future, and sum_t R_future s_t = sum_t R_t s_past.
    """
    [(monomial, exponent)] = lead.terms
    powers, known = dict(monomial), {"A", "length", *regions, *parameters}
    rewards = {name: powers.pop(name) for name in [*powers] if parse_name(name).base == "R"}
    whole = powers.keys() <= {"A", "length", *regions} and powers.get("length", -1) == -1
    once = slot == "past" and rewards == {"R[now]": 1}
    often = slot == "now" and (not rewards or (rewards.keys() == {"R[future]"} and rewards["R[future]"] > 1))
    if not whole or not (once or often) or not {name for part, _ in exponent for name, _ in part} <= known:
        return None
    powers |= {"R": sum(rewards.values())} if rewards else {}
    return ExpPoly({(tuple(sorted(powers.items())), exponent): 1})


def _find_multiple(coefficient: ExpPoly, lead: ExpPoly, context: Context) -> ExpPoly:
    """Return the constant c of the terms c * lead of a coefficient."""
    inverse_lead = lead.invert()
    return sum(
        (
            term * inverse_lead
            for term in split_terms(coefficient)
            if context.is_constant(term * inverse_lead)
        ),
        ZERO,
    )
