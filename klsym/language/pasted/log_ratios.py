"""Which two policies a name such as log_ratio or kl compares, by its place in pasted code.

    ratio = exp(log_ratio); -ratio*adv      log_q - log_mu: its exp is a weight of an advantage
    (exp(logr) - 1) - logr                  log_p - log_q: the form of k3
    0.5*log_ratio**2 beside ref_kl_coef     log_q - log_p: the code names a reference, and no older policy

Source of k3: Schulman, Approximating KL Divergence, http://joschu.net/blog/kl-approx.html.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from shlex import quote
from typing import Any, NamedTuple

from klsym.language.expressions import ATOMS
from klsym.language.pasted.names import list_clipped, list_multipliers_of_advantage, split_operands
from klsym.language.pasted.text import is_block, join_lines
from klsym.language.recognition import recognise
from klsym.language.training_names import (
    AMBIGUOUS,
    LOG_RATIO,
    LOG_WEIGHT,
    PENALTY,
    RATIO,
    REFERENCE,
    REWARD_OR_RATIO,
    find_meaning,
    split_words,
)

REWARDS_OF_ANSWERS = ("R", "A")
LONGEST = 120  # characters of code that is printed again
DEFINITIONS = {
    RATIO: ("rho", "r"), LOG_RATIO: ("k1", "log_q - log_mu"), PENALTY: ("k1", "k3"),
    REWARD_OR_RATIO: ("R", "rho"),
}  # fmt: skip
"""What an ambiguous name may be, in the grammar."""


class Places(NamedTuple):
    """Names whose exp is a weight of an advantage, and those in the form of k3, exp(x) - 1 - x."""

    in_weights: frozenset[str]
    in_k3: frozenset[str]


class SettledRatio(NamedTuple):
    """A value of a name, and the assumption behind it."""

    value: Any
    assumed: str


def find_places(tree: ast.AST) -> Places:
    """Return the places of names inside exp.

    >>> find_places(ast.parse("ratio = x.exp(); loss = -ratio*adv + (y.exp() - 1) - y"))
    Places(in_weights=frozenset({'x'}), in_k3=frozenset({'y'}))
    """
    exponents = {
        line.targets[0].id: name
        for line in ast.walk(tree)
        if isinstance(line, ast.Assign) and isinstance(line.targets[0], ast.Name)
        for name in [_find_exponent(line.value)]
        if name
    }
    weights = list_multipliers_of_advantage(tree) | list_clipped(tree)
    in_weights = {exponents[name] for name in weights & exponents.keys()}
    products = [x for x in ast.walk(tree) if isinstance(x, ast.BinOp) and isinstance(x.op, ast.Mult)]
    for product in products:
        for side, factor in ((product.left, product.right), (product.right, product.left)):
            is_advantage = any(find_meaning(x.id) == "A" for x in ast.walk(factor) if isinstance(x, ast.Name))
            in_weights |= {name for name in [_find_exponent(side)] if name and is_advantage}
    in_k3: set[str] = set()
    for node in ast.walk(tree):
        terms = [*_list_terms(node, 1)] if isinstance(node, ast.BinOp) else []
        raised = {_find_exponent(term, exponents) for term, sign in terms if sign > 0}
        in_k3 |= {x.id for x, sign in terms if sign < 0 and isinstance(x, ast.Name) and x.id in raised}
    return Places(frozenset(in_weights), frozenset(in_k3))


def _find_exponent(node: ast.expr, exponents: Mapping[str, str] | None = None) -> str:
    """Return x of exp(x) or expm1(x), or of a name that stands for it; "" for others."""
    if isinstance(node, ast.Name):
        return (exponents or {}).get(node.id, "")
    if not isinstance(node, ast.Call):
        return ""
    called, operands = split_operands(node)
    match operands:
        case [ast.Name(name)] if called in ("exp", "expm1"):
            return name
    return ""


def _list_terms(node: ast.expr, sign: int) -> Iterator[tuple[ast.expr, int]]:
    match node:
        case ast.BinOp(left, ast.Add() | ast.Sub() as operator, right):
            yield from _list_terms(left, sign)
            yield from _list_terms(right, -sign if isinstance(operator, ast.Sub) else sign)
        case _:
            yield node, sign


def settle_log_ratio(name: str, places: Places, names: Collection[str]) -> SettledRatio | None:
    """Return what log_ratio, or kl in the form of k3, stands for by its place; None: it has to be asked for.

    names: those in the whole text.

    >>> settle_log_ratio("logr", Places(frozenset(), frozenset({"logr"})), ()).value
    log_p - log_q
    >>> settle_log_ratio("logr", Places(frozenset(), frozenset()), ("logr", "old_logp"))
    """
    log_q, log_p, log_mu = (ATOMS[x] for x in ("log_q", "log_p", "log_mu"))
    kind = AMBIGUOUS.get(name)
    if kind not in (LOG_RATIO, PENALTY):
        return None
    is_beside_old = any(find_meaning(x) == "log_mu" for x in names)
    is_beside_reference = any(REFERENCE & {*split_words(x)} for x in names if x != name)
    turned = "for the other sign type `{} = {}; ...`"
    if kind == LOG_RATIO and name in places.in_weights:
        return SettledRatio(
            log_q - log_mu, f"{name} is logp - old_logp, as its exp is a weight of an advantage"
        )
    if name in places.in_k3 and not is_beside_old:
        return SettledRatio(
            log_p - log_q, f"{name} is ref_logp - logp, as in k3; {turned.format(name, 'logp - ref_logp')}"
        )
    if kind == LOG_RATIO and is_beside_reference and not is_beside_old and name not in places.in_k3:
        assumed = f"{name} is logp - ref_logp, as the code names a reference and no older policy"
        return SettledRatio(log_q - log_p, f"{assumed}; {turned.format(name, 'ref_logp - logp')}")
    return None


def spell_value(value: Any) -> str:
    """Return what a name is read as, as the answer prints it.

    >>> spell_value(ATOMS["log_p"] - ATOMS["log_q"]), spell_value(ATOMS["log_q"] - ATOMS["log_mu"])
    ('-k1', 'log_q - log_mu')
    """
    return LOG_WEIGHT if value == ATOMS["log_q"] - ATOMS["log_mu"] else str(recognise(value))


def write_before(definitions: str, source: str) -> str:
    """Return a command in which names are defined before the code; of long code the definitions alone.

    >>> write_before("x = R; ", "loss = x*logp"), write_before("x = R; ", "loss = x['a']")
    ("klsym explain 'x = R; loss = x*logp'", '`x = R; ...`')
    """
    code = "" if is_block(source) else join_lines(source)
    is_short = bool(code) and len(code) <= LONGEST and "'" not in code
    return f"klsym explain {quote(f'{definitions}{code}')}" if is_short else f"`{definitions}...`"


def write_commands(name: str, source: str, others: Mapping[str, str], names: Iterable[str] = ()) -> str:
    """Return two commands in which an ambiguous name is defined before the code; "" for long code.

    others: names beside it that have to be asked for, and an example of each.  names: those that the code
    does not assign; its own names of log-probabilities are used.

    >>> write_commands("kl", "loss = a + kl", {})
    ": klsym explain 'kl = k1; loss = a + kl' or klsym explain 'kl = k3; loss = a + kl'"
    >>> write_commands("ratio", "ratio - 1 - logratio", {"logratio": "k1"}).split(" or ")[0]
    ": klsym explain 'ratio = rho; logratio = log(ratio); ratio - 1 - logratio'"
    """
    definitions = DEFINITIONS.get(AMBIGUOUS.get(name, ""), ())
    code = "" if is_block(source) else join_lines(source)
    if not code or not definitions or len(code) > LONGEST or "'" in code:
        return ""
    typed = [x for x in names if x not in AMBIGUOUS]
    examples = {
        x: _follow_ratio(name, x) or spell_with_names(example, typed) for x, example in others.items()
    }
    before = "".join(f"{x} = {example}; " for x, example in examples.items())
    commands = [
        f"klsym explain {quote(f'{name} = {spell_with_names(value, typed)}; {before}{code}')}"
        for value in definitions
    ]
    return f": {' or '.join(commands)}"


def _follow_ratio(name: str, other: str) -> str:
    """Return log(ratio) for a log ratio beside a ratio of that name, exp(logr) for a ratio; "" for others."""
    kinds = AMBIGUOUS.get(name, ""), AMBIGUOUS.get(other, "")
    return {(RATIO, LOG_RATIO): f"log({name})", (LOG_RATIO, RATIO): f"exp({name})"}.get(kinds, "")


def spell_examples(hint: str, names: Sequence[str]) -> str:
    """Return what is to be typed with the names that the code has.

    >>> spell_examples("write what it is, such as `x = logp; ...`", ["per_token_logps"])
    'write what it is, such as `x = per_token_logps; ...`'
    """
    examples = re.compile("(?<=`)([^`=]+ = )([^`;]+)(?=; ...`)")
    return examples.sub(lambda match: match[1] + spell_with_names(match[2], names), hint)


def spell_with_names(formula: str, names: Iterable[str]) -> str:
    """Return a formula with the names that the code has for log-probabilities, rewards and advantages.

    >>> spell_with_names("logp - old_logp", ["per_token_logps"]), spell_with_names("R.mean()", ["rewards"])
    ('per_token_logps - log_mu', 'rewards.mean()')
    """
    typed = {find_meaning(name): name for name in names}
    meanings = [*filter(None, map(find_meaning, re.findall("[A-Za-z_]+", formula)))]
    if len({*meanings}) < len(meanings):  # old_logp - rollout_logp
        return formula

    def name_density(word: re.Match[str]) -> str:
        meaning = word[0] if word[0] in REWARDS_OF_ANSWERS else find_meaning(word[0]) or ""
        is_replaced = meaning.startswith("log_") or meaning in REWARDS_OF_ANSWERS
        return typed.get(meaning, meaning) if is_replaced else word[0]

    return re.sub("[A-Za-z_]+", name_density, formula)
