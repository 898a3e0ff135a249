"""Where training on sequences ends: the stationary policies of a small tree of tokens.  Untrusted.

Sequences have T tokens out of W words, a reward R at the end, and logits of their own after each prefix h.
The expected gradient of the penalty is E_q[sum_t (c(k_t) s_t + b(k_t) sum_{u<t} s_u)] with k_t = log q_t/p_t:
c is the share of the token itself, b that of the tokens before it.  The update of the logit of the word w is

    q(h) q_w (C_w - sum q C),   C_w = V(hw) - beta c(k_w),   V(h) = sum_w q_w (V(hw) - beta b(k_w))

with V = R at the end.  A policy with mass on every sequence is stationary where all C_w are one number at
each prefix: a problem of `questions.optimum` for each prefix, solved from the last token to the first.
Values carry a bound of their error, which the enclosures of the next prefix allow for.

C_w depends on the logits after h and after longer prefixes, so that the Jacobian is block triangular: its
eigenvalues are those of the blocks q(h) F diag(C_w'/q_w) F, which are symmetric.

>>> from klsym.language.convert import to_ring
>>> from klsym.language.expressions import k1
>>> tree = Tree(words=2, length=2, rewards=(1, 0, 0, 0), reference=(0.25,) * 4)
>>> [end] = find_token_optimum(tree, to_ring(k1), to_ring(k1), 1).stationary
>>> [round(x, 6) for x in end.policy], end.stable  # p exp(R)/Z
([0.475367, 0.174878, 0.174878, 0.174878], True)
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import product

from klsym.errors import UsageError
from klsym.kernel.ring import ExpPoly
from klsym.study.questions.optimum import Optimum, Stationary, find_optimum, substitute_outcome
from klsym.study.questions.outcomes import Number, Outcome, bound_terms, compute_value

MAX_ENDS = 200  # policies that are listed
ROUNDING = 4e-15  # relative rounding error of a value
DIGITS = 9  # in which two policies on the boundary differ
Prefix = tuple[int, ...]


@dataclass(frozen=True)
class Tree:
    """Sequences of `length` words in lexicographic order, with their rewards and reference probabilities."""

    words: int
    length: int
    rewards: tuple[Number, ...]
    reference: tuple[Number, ...]

    def list_sequences(self) -> list[Prefix]:
        return list(product(range(self.words), repeat=self.length))

    def list_prefixes(self) -> list[Prefix]:
        """All prefixes but whole sequences, the shortest first."""
        return [h for t in range(self.length) for h in product(range(self.words), repeat=t)]

    def get_reward(self, sequence: Prefix) -> Number:
        return self.rewards[self._find_first(sequence)]

    def compute_reference(self, prefix: Prefix) -> tuple[Number, ...]:
        """The probabilities of the words after a prefix."""
        masses = [self._compute_mass((*prefix, w)) for w in range(self.words)]
        return tuple(mass / sum(masses) for mass in masses)

    def _compute_mass(self, prefix: Prefix) -> Number:
        first, size = self._find_first(prefix), self.words ** (self.length - len(prefix))
        return sum(self.reference[first : first + size])

    def _find_first(self, prefix: Prefix) -> int:
        """The position of the first sequence with this prefix."""
        size = self.words ** (self.length - len(prefix))
        return size * sum(w * self.words**i for i, w in enumerate(reversed(prefix)))


@dataclass(frozen=True)
class TokenEnd:
    """A policy at which the expected update is 0.

    policy: the probabilities of the sequences.  tokens: of the words after each prefix.  eigenvalues: of the
    Jacobian of the update in the logits, without the directions in which no policy moves; none on the
    boundary.  stable: None: not decided.
    """

    policy: tuple[float, ...]
    tokens: Mapping[Prefix, Stationary]
    eigenvalues: tuple[float, ...]

    @property
    def stable(self) -> bool | None:
        """Does training come back after a small step?  Prefixes that are not reached do not matter."""
        answers = [s.stable for h, s in self.tokens.items() if _compute_reach(self.tokens, h)]
        return False if False in answers else None if None in answers else True


@dataclass(frozen=True)
class TokenOptimum:
    """All stationary policies with mass on every sequence, and policies on the boundary that attract.

    complete: no other policy with mass on every sequence is stationary, or None: not decided.
    boundary_complete: no other policy on the boundary attracts, or None.  tied: prefixes after which
    stationary policies are not isolated.
    """

    stationary: tuple[TokenEnd, ...]
    boundary: tuple[TokenEnd, ...]
    complete: bool | None
    boundary_complete: bool | None
    tied: tuple[Prefix, ...] = ()

    @property
    def unique(self) -> bool | None:
        """Is exactly one policy with mass on every sequence stationary?  None: not decided."""
        return None if self.complete is None else len(self.stationary) == 1


@dataclass(frozen=True)
class _Branch:
    """A choice of policies at a prefix and all longer ones, with V and a bound of its error."""

    tokens: Mapping[Prefix, Stationary]
    value: Number
    error: float


def find_token_optimum(tree: Tree, c: ExpPoly, b: ExpPoly, beta: Number) -> TokenOptimum:
    """The stationary policies of a reward at the end less beta times a penalty on each token.

    c, b: in k1 and log q, without parameters; the shares of the token itself and of each token before it.
    Raises UsageError: more than 200 policies.
    """
    search = _Search(tree, c, b, beta=beta)
    inside = [_build_end(tree, x.tokens, search) for x in search.list_branches((), attracting=False)]
    complete, boundary = search.complete, []
    if not search.is_held_inside():
        for x in search.list_branches((), attracting=True):
            if any(0.0 in s.policy for s in x.tokens.values()):
                boundary.append(_build_end(tree, x.tokens, search))
    return TokenOptimum(
        tuple(inside), tuple(boundary), complete or None,
        boundary_complete=search.is_held_inside() or None, tied=tuple(sorted(search.tied)),
    )  # fmt: skip


@dataclass
class _Search:
    """The problems of all prefixes; complete: False once a policy inside may be missing."""

    tree: Tree
    c: ExpPoly
    b: ExpPoly
    beta: Number
    complete: bool = True
    tied: set[Prefix] = field(default_factory=set)

    def list_branches(self, prefix: Prefix, attracting: bool) -> list[_Branch]:
        """Of stationary policies inside, or of all those that attract, at this prefix and all longer ones."""
        if len(prefix) == self.tree.length:
            return [_Branch({}, self.tree.get_reward(prefix), 0.0)]
        below = [self.list_branches((*prefix, w), attracting) for w in range(self.tree.words)]
        branches: list[_Branch] = []
        for chosen in product(*below):
            found = self._solve_prefix(prefix, chosen)
            ends = (*found.stationary, *found.boundary) if attracting else found.stationary
            for end in ends:
                if not attracting or end.stable is not False:
                    branches += self._join(prefix, end, chosen)
            if attracting:
                branches = self._drop_repeated(prefix, branches)
            if len(branches) > MAX_ENDS:
                raise UsageError(f"optimum: more than {MAX_ENDS} policies: fewer tokens expected")
        return branches

    def _drop_repeated(self, prefix: Prefix, branches: Sequence[_Branch]) -> list[_Branch]:
        """Policies that differ only after prefixes that are not reached from this one are one."""
        distinct: dict[tuple[float, ...], _Branch] = {}
        for branch in branches:
            chances = (_compute_chance(branch.tokens, prefix, y) for y in self.tree.list_sequences())
            distinct.setdefault(tuple(round(x, DIGITS) for x in chances), branch)
        return list(distinct.values())

    def _solve_prefix(self, prefix: Prefix, below: Sequence[_Branch]) -> Optimum:
        found = find_optimum(
            self.c, self.beta, rewards=[x.value for x in below],
            reference=self.tree.compute_reference(prefix), reward_errors=[x.error for x in below],
        )  # fmt: skip
        self.complete = self.complete and found.complete is True
        if found.complete is False or found.continua:
            self.tied.add(prefix)
        return found

    def _join(self, prefix: Prefix, end: Stationary, below: Sequence[_Branch]) -> Iterator[_Branch]:
        """The branch with V = sum_w q_w (V(hw) - beta b(k_w)), unless that is infinite."""
        tokens = {h: s for x in below for h, s in x.tokens.items()} | {prefix: end}
        if 1.0 in end.policy and not self.b.terms:  # exact where that of the word is
            only = below[end.policy.index(1.0)]
            yield _Branch(tokens, only.value, only.error)
            return
        if end.errors is None:
            self.complete = False
        errors = end.errors or (1e-6,) * len(end.policy)
        value = bound = 0.0
        rows = zip(end.policy, errors, below, self.tree.compute_reference(prefix), strict=True)
        for q, q_error, after, p in rows:
            share, share_error = self._compute_share(q, q_error, p)
            value += q * float(after.value) - share
            size = abs(float(after.value))
            bound += q_error * size + q * after.error + share_error + ROUNDING * (q * size + abs(share))
        if math.isfinite(value) and math.isfinite(bound):
            yield _Branch(tokens, value, bound)
        else:
            self.complete = False

    def _compute_share(self, q: float, error: float, p: Number) -> tuple[float, float]:
        """beta q b(k) at k = log q/p, and a bound of its error."""
        if not self.b.terms or not self.beta:
            return 0.0, 0.0
        outcome = Outcome(substitute_outcome(self.b, p, p), self.beta, 0, p)
        if q <= error:
            return outcome.push, math.inf if q else 0.0
        low, high = (math.log(x) - outcome.log_p for x in (q - error, q + error))
        lower, upper = (abs(outcome.beta) * x for x in bound_terms(outcome.terms, low, high))
        largest = max(abs(lower), abs(upper))
        share = outcome.beta * q * compute_value(outcome.terms, math.log(q) - outcome.log_p)[0]
        return share, q * (upper - lower) + error * largest

    def is_held_inside(self) -> bool:
        """Does each word come back as its probability goes to 0, whatever its value is?"""
        outcomes = (
            Outcome(substitute_outcome(self.c, p, p), self.beta, 0, p)
            for h in self.tree.list_prefixes()
            for p in self.tree.compute_reference(h)
        )
        return all(o.push < 0 or (o.push == 0 and o.far == math.inf) for o in outcomes)


def _compute_reach(tokens: Mapping[Prefix, Stationary], prefix: Prefix) -> float:
    """The probability of a prefix."""
    return _compute_chance(tokens, (), prefix)


def _compute_chance(tokens: Mapping[Prefix, Stationary], given: Prefix, sequence: Prefix) -> float:
    """The probability of a sequence after a prefix; 0 if it does not begin with it."""
    start = len(given)
    if sequence[:start] != given:
        return 0.0
    return math.prod(tokens[sequence[:t]].policy[w] for t, w in enumerate(sequence) if t >= start)


def _build_end(tree: Tree, tokens: Mapping[Prefix, Stationary], search: _Search) -> TokenEnd:
    policy = tuple(_compute_reach(tokens, y) for y in tree.list_sequences())
    eigenvalues = () if 0.0 in policy else tuple(sorted(_iterate_eigenvalues(tree, tokens, search)))
    return TokenEnd(policy, {h: tokens[h] for h in tree.list_prefixes()}, eigenvalues)


def _iterate_eigenvalues(tree: Tree, tokens: Mapping[Prefix, Stationary], search: _Search) -> Iterator[float]:
    """Of q(h) F diag(C'/q) F at each prefix, in the directions that sum to 0."""
    import numpy as np

    for prefix, end in tokens.items():
        q = np.array(end.policy)
        rates = []
        for x, p in zip(end.policy, tree.compute_reference(prefix), strict=True):
            outcome = Outcome(substitute_outcome(search.c, p, p), search.beta, 0, p)
            rates.append(-outcome.beta * compute_value(outcome.slopes, math.log(x) - outcome.log_p)[0])
        fisher = np.diag(q) - np.outer(q, q)
        block = fisher @ np.diag(np.array(rates) / q) @ fisher
        centred = np.eye(len(q)) - 1 / len(q)
        basis = np.linalg.eigh(centred)[1][:, 1:]  # orthogonal to (1, .., 1)
        yield from (_compute_reach(tokens, prefix) * np.linalg.eigvalsh(basis.T @ block @ basis)).tolist()


def compute_best_value(tree: Tree, beta: Fraction) -> float:
    """The largest E_q[R] - beta KL(q||p), beta log E_p[exp(R/beta)], for beta > 0."""
    top = float(max(tree.rewards))
    rows = zip(tree.rewards, tree.reference, strict=True)
    mean = sum(float(p) * math.exp((float(R) - top) / float(beta)) for R, p in rows)
    return top + float(beta) * math.log(mean)
