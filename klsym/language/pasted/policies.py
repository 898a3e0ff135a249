"""Policies in pasted code: logits, distributions, and what is drawn from them."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import Any

from sympy import S

from klsym.language.expressions import ATOMS
from klsym.language.parser import SHOWN
from klsym.language.pasted.entries import EntryReader
from klsym.language.pasted.names import (
    FAMILIES,
    REDUCING,
    WITHOUT_GRADIENT,
    list_chain,
    list_words_typed,
    names_distribution,
    split_operands,
)
from klsym.language.pasted.text import parse_python
from klsym.language.reductions import LOGITS, WORD_LOGS
from klsym.language.sums import build_entropy
from klsym.language.training_names import (
    BEHAVIOUR,
    NOT_DRAWN,
    OF_TARGETS,
    OLD,
    REFERENCE,
    expand_name,
    find_logits,
    find_meaning,
    find_policy,
    names_critic,
    names_policy,
    split_words,
)
from klsym.language.usual_names import LOG_PROBABILITIES

OF_OTHERS = ": klsym reads the word that was drawn; klsym measure FILE.py:FUNC runs the code"
OF_DISTRIBUTIONS = {
    "log_prob",
    "get_log_prob",
    "get_log_probs",
    "log_probs",
    "entropy",
}  # methods of torch.distributions, and their like
OF_UNKNOWN_LOGITS = (
    ": assign them first, as in `student_logits = ..`, `ref_logits = ..` or `old_logits = ..`, or type"
    " full_kl(q, p) for a sum over the vocabulary; klsym audit runs functions"
)


class PolicyReader(EntryReader):
    """A reader that knows logits and distributions."""

    def __init__(self, text: str, parameters: Iterable[str], of_words: frozenset[str]) -> None:
        super().__init__(text, parameters, of_words)
        self.logits_typed: set[str] = set()  # arguments of softmax
        self.temperatures: dict[str, str] = {}  # of softmax, "" for none -> its argument
        self.policies: dict[str, str | None] = {}  # name of a distribution -> its log density

    def read_logits(self, node: ast.expr, call: Any) -> Any:
        """Return the log density of the policy whose logits are the argument of softmax.

        The name of the logits says which policy it is, or else the name that the line assigns.
        """
        self.is_foreign, temperature = True, ""
        if any(split_operands(x)[0] in REDUCING for x in ast.walk(node) if isinstance(x, ast.Call)):
            reason = f"{call.name}(..) of {ast.unparse(node)[:SHOWN]!r}, logits that are averaged"
            raise self.make_error_with_hint(reason, OF_UNKNOWN_LOGITS, call.node)
        typed = ast.unparse(node)
        for name in list_words_typed(node) & self.unread.keys() - self.told:
            raise self.unread[name]
        match node:
            case ast.BinOp(logits, ast.Div(), divisor):
                node, temperature = logits, ast.unparse(divisor)
        assigned = self.names.get(node.id, S.Zero) if isinstance(node, ast.Name) else S.Zero
        if densities := [density for density, logits in LOGITS.items() if assigned.has(logits)]:
            [density] = densities
            self.used |= {*list_chain(node)}
            factor = LOGITS[density] / assigned
            temperature = temperature if factor == 1 else str(factor)
        else:
            named = "_".join(list_chain(node))
            named = expand_name(named, self.names_typed)
            meaning = find_logits(f"{named}_logits") if named else None
            if meaning is None and names_policy(self.target):
                meaning = find_logits(f"{self.target}_logits")
            if meaning is None and OF_TARGETS & {*split_words(named)}:
                meaning = "log_p"
            if meaning is None and named and self.has_logits_of_other_policy():
                meaning = "log_q"
            if meaning is None and named and "cross_entropy" in call.name and self.is_only_policy(named):
                meaning = "log_q"
                self.assumed = (*self.assumed, f"{typed[:SHOWN]} are the logits of the policy")
            if meaning not in ATOMS:
                reason = f"{call.name}(..) of {typed[:SHOWN]!r}, the logits of an unknown policy"
                raise self.make_error_with_hint(reason, OF_UNKNOWN_LOGITS, call.node)
            density = ATOMS[meaning]
        self.read_as.setdefault(typed, WORD_LOGS[density])
        self.logits_typed.add(ast.unparse(node))
        self.temperatures.setdefault(temperature, typed)
        return density

    def has_logits_of_other_policy(self) -> bool:
        """Has the text logits of a reference or an older policy?  Other logits are q's then."""
        if any(OF_TARGETS & {*split_words(name)} for name in self.names_typed):
            return True
        meanings = (find_logits(f"{name}_logits") for name in self.names_typed)
        return any(meaning in ATOMS and meaning != "log_q" for meaning in meanings)

    def is_only_policy(self, named: str) -> bool:
        """Are logits with a name of their own the only values of a policy in the text?"""
        meanings = {name: find_meaning(name) or find_logits(name) or "" for name in self.values_typed}
        others = {name for name, meaning in meanings.items() if meaning.startswith("log_")}
        return not {*others} - {named} and not names_critic(named)

    def read_method_of_policy(self, method: str, receiver: ast.expr, node: ast.expr) -> Any:
        """Return log_q for dist.log_prob(a), log_p for ref_policy.log_prob(a), H(q) for dist.entropy()."""
        self.is_foreign = True
        last = next(iter(list_chain(receiver)[-1:]), "a policy")
        if last in self.unread:
            raise self.unread[last]
        drawn = {
            word
            for x in getattr(node, "args", ())
            for name in list_words_typed(x)
            for word in split_words(name)
        }
        if drawn & NOT_DRAWN:
            raise self.make_error_with_hint(f"{method}(..) of words that were not drawn", OF_OTHERS, node)
        self.refuse_computed_draw(method, node)
        meaning = self.find_policy_of(receiver)
        if meaning is None:
            hint = f": type {LOG_PROBABILITIES}"
            raise self.make_error_with_hint(
                f"{method}(..) of {last[:SHOWN]!r}, an unknown policy", hint, node
            )
        if method == "entropy":
            return build_entropy(meaning.removeprefix("log_"))
        self.read_as[f"{last}.{method}()"] = ATOMS[meaning]
        return ATOMS[meaning]

    def refuse_computed_draw(self, method: str, node: ast.expr) -> None:
        """Refuse the log-probability of a value that the code computes: it may depend on theta, too."""
        drawn = node.args[0] if isinstance(node, ast.Call) and node.args else None
        if not isinstance(drawn, ast.Name) or "no_grad" in self.source:
            return
        for line in ast.walk(parse_python(self.source)):
            match line:
                case ast.Assign([ast.Name(drawn.id)], ast.BinOp() as tree) if not _is_held(tree):
                    hint = (
                        f": type {drawn.id} = ({ast.unparse(tree)}).detach() if it is held, as what is drawn"
                    )
                    raise self.make_error_with_hint(
                        f"{method}(..) of {drawn.id}, which is computed", hint, node
                    )

    def find_policy_of(self, policy: ast.expr, assigned: str = "") -> str | None:
        """Return the log density of a distribution, by its name or what it is built of; None if unknown."""
        last = assigned or next(iter(list_chain(policy)[-1:]), "")
        if last in self.policies:
            return self.policies[last]
        if isinstance(policy, ast.Call) and (assigned or names_distribution(policy)):
            typed = list_words_typed(policy)
            words = {word for name in typed for word in split_words(name)} - {"mu"}
            if typed & WITHOUT_GRADIENT:
                return None
            older = {find_policy(word) for word in words & (REFERENCE | BEHAVIOUR | OLD)}
            if older:
                return older.pop() if len(older) == 1 else None
        return find_policy(last) if last and last not in FAMILIES else "log_q"

    def is_logits_argument(self, node: ast.expr) -> bool:
        """Is it the name of logits, or of a value of every word?"""
        return ast.unparse(node) in self.logits_typed


def _is_held(tree: ast.expr) -> bool:
    """Is a value made of what is drawn or detached?

    >>> values = ("2*dist.sample()", "mu + noise", "dist.rsample() + 1")
    >>> [_is_held(ast.parse(value, mode="eval").body) for value in values]
    [True, False, False]
    """
    return any(isinstance(x, ast.Attribute) and x.attr in ("sample", "detach") for x in ast.walk(tree))
