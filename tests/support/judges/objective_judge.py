"""The judge of objectives: is what an answer says to be minimised or maximised what the update moves?

Every headline, every line of a term and every JSON objective is read literally by `support.oracle.objectives`
and differentiated; its gradient is compared with that of the loss, in direction and size.  A sentence without
an objective is not judged, and counted.  An update ascends a reward that depends on R or A; it descends all
other losses.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from support.judges.cut_worlds import cut_samples, cut_trees
from support.judges.loss_worlds import at_points, constants_of, flat, forest, in_batch, scales, settings
from support.losses.random_losses import Case
from support.oracle.losses import PARAMETERS, Node, Setting, trees
from support.oracle.objectives import NotRead, worth
from support.oracle.slots import Slotted

AGREE = 1e-8
VERBS = {"minimises": 1, "descends": 1, "maximises": -1, "ascends": -1}
SENSES = {"minimised": 1, "maximised": -1}
HELD = "with M and S held as they are at theta, "
PENALTY = "subtracted from the reward, "
INSIDE = re.compile(r",? (inside the clip range|where [^(;][^;]*)$")
SUFFIXES = re.compile(
    r", the (reverse|forward) KL$| \(a policy gradient\)$|, which pushes the policy away from mu$"
)
F = re.compile(r"E_q\[f\(r\)\] with f = (.*?)(?:(, convex|; a kink|; f''|; if ).*)?$")
KINDS = {"the reverse KL": "KL(q_t||p_t)", "the forward KL": "KL(p_t||q_t)"}
WITHOUT_FORMULA = ("no KL and has no name", "(--full", "with an f that has no formula")
NEXT = re.compile(r"(.*?) ?(the (?:reverse|forward) KL) of each next token, at prefixes of (q|mu)$")
NEAR = 1e-3  # of the logits, in worlds where no bound of a moderate size binds


@dataclass(frozen=True)
class Said:
    """An objective and which way it is said to be moved; inside: of the samples inside the clip range."""

    place: str
    text: str
    sign: int
    inside: bool = False


def spoken(place: str, sentence: str) -> Said | None:
    """The objective in a sentence; None where it names none.

    >>> spoken("headline", "maximises E_q[A] - KL(q||p), a note; no gradient where k1 > 2")
    >>> spoken("headline", "minimises KL(q||p), the reverse KL, inside the clip range; a gradient only")
    Said(place='headline', text='KL(q||p)', sign=1, inside=True)
    """
    clause = sentence.removeprefix(PENALTY).removeprefix(HELD)
    f = F.search(clause)
    clause = clause if f else clause.partition(";")[0]
    verb, _, text = clause.partition(" ")
    if verb not in VERBS or any(words in text for words in WITHOUT_FORMULA):
        return None
    if f:
        return Said(place, text.replace(f[0], f"E_q[{by_pieces(f[1])}]"), VERBS[verb])
    text, number = INSIDE.subn("", text)
    text = SUFFIXES.sub("", text)
    if kept := NEXT.fullmatch(text):
        times, measure = f"{kept[1]}*" if kept[1] else "", "held" if kept[3] == "q" else "mu"
        return Said(place, f"{times}E_{measure}[sum_t {KINDS[kept[2]]}]", VERBS[verb])
    if " of each token, " in text or ", " in re.sub(r"\([^()]*(\([^()]*\)[^()]*)*\)", "", text):
        return None
    return Said(place, text, VERBS[verb], bool(number))


def by_pieces(f: str) -> str:
    """f between bounds as one formula.

    >>> by_pieces("0 where r <= 1; r - 1 where 1 <= r <= 2; r where r >= 2")
    '(0)*where(r <= 1, 1, 0) + (r - 1)*where(1 <= r, 1, 0)*where(r <= 2, 1, 0) + (r)*where(r >= 2, 1, 0)'
    """
    pieces = [piece.split(" where ") for piece in f.split("; ") if " where " in piece]
    if not pieces:
        return f.partition(";")[0]
    total = []
    for value, region in pieces:
        left, *middle = re.split(r" (<=|>=|<|>) ", region)
        bounds = [left, *middle]
        steps = (" ".join(bounds[i : i + 3]) for i in range(0, len(bounds) - 2, 2))
        total.append(f"({value})" + "".join(f"*where({step}, 1, 0)" for step in steps))
    return " + ".join(total)


# ---------------------------------------------------------------------------- worlds
def is_ascended(case: Case) -> bool:
    """A reward is ascended, a penalty that is subtracted from it is descended; R - R is no reward."""
    if case.use != "reward" or not re.search(r"\b(R|A|gae)\b", case.text):
        return False
    stream = np.random.default_rng(3)
    names = ("log_q", "log_p", "log_mu", "log_old", "R", "A", "M")
    values = dict(zip(names, stream.normal(size=(len(names), 200)), strict=True))
    other = {**values, "R": values["R"] + 1, "A": values["A"] - 0.7}
    try:
        return not np.allclose(*(at_points(case.text, n=2.0, **x) for x in (values, other)), equal_nan=True)
    except (KeyError, ValueError):  # sums over tokens or samples, and parameters that are declared
        return True


def written_out(text: str) -> str:
    """The exact divergences of the grammar as sums over the vocabulary."""
    log = {"q": "log_q", "p": "log_p", "mu": "log_mu", "old": "log_old"}
    over_q = {name: f"exp({of} - log_q)" for name, of in log.items()}

    def kl(a: str, b: str) -> str:
        return f"full({over_q[a]}*({log[a]} - {b}))"

    def js(found: re.Match[str]) -> str:
        a, b = found.groups()
        mixed = f"log((exp({log[a]}) + exp({log[b]}))/2)"
        return f"({kl(a, mixed)}/2 + {kl(b, mixed)}/2)"

    text = re.sub(r"\bfull_kl\((\w+), ?(\w+)\)", lambda m: kl(m[1], log[m[2]]), text)
    text = re.sub(r"\bjs\((\w+), ?(\w+)\)", js, text)
    return re.sub(r"\bH\((\w+)\)", lambda m: f"(-1*{kl(m[1], '0')})", text)


class _Unclamped(ast.NodeTransformer):
    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        return node.args[0] if isinstance(node.func, ast.Name) and node.func.id == "clip" else node


def unclamped(text: str) -> str:
    """The loss with x for clip(x, lo, hi)."""
    return ast.unparse(_Unclamped().visit(ast.parse(text, mode="eval")))


def _near(node: Node) -> Node:
    def close(log: Any) -> Any:
        q = np.exp(node.logits * NEAR + NEAR * np.asarray(log))
        return np.log(q / q.sum())

    after = tuple(x and _near(x) for x in node.after)
    old = None if node.log_old is None else close(node.log_old)
    return replace(node, logits=node.logits * NEAR, log_p=close(node.log_p), log_mu=close(node.log_mu),
                   log_old=old, after=after)  # fmt: skip


@cache
def near_worlds(level: str, sampling: str) -> Slotted:
    """Worlds in which all policies are nearly the same."""
    shape = ((), (), ()) if level == "sample" else (((), (), ((), ())), ((), ()))
    return Slotted([replace(tree, root=_near(tree.root)) for tree in trees(5, shape, 4)], (sampling,))


@cache
def with_parameters(where: Slotted, names: tuple[str, ...]) -> Slotted:
    values = {name: 0.31 + 0.17 * i for i, name in enumerate(names)}
    worlds = [replace(tree, parameters={**tree.parameters, **values}) for tree in where.worlds]
    return Slotted(worlds, (where.sampling,), where.second)


def worlds_of(case: Case, names: tuple[str, ...], near: bool) -> tuple[Slotted, list[Setting], str]:
    """Where a loss is judged, how it is used there, and the loss as it is there."""
    more = tuple(name for name in names if name not in PARAMETERS)
    if case.sampling == "truncated":
        where = cut_trees(7) if case.level == "token" else cut_samples(7)
        text = re.sub(r"\brho\b", "exp(log_q - sg(log_q))", case.text)
        text = re.sub(r"\blog_mu\b", "sg(log_q)", text)
        off = replace(case, sampling="off-policy")
        return (with_parameters(where, more) if more else where), settings(off), text
    where = near_worlds(case.level, case.sampling) if near else forest(case)
    return (with_parameters(where, more) if more else where), settings(case), case.text


# ---------------------------------------------------------------------------- the judge
@dataclass(frozen=True)
class Judged:
    """What was said, and what is wrong with it; unread: why it was not judged."""

    said: Said
    complaint: str = ""
    unread: str = ""


def statements(answer: dict[str, Any], headline: str) -> Iterator[Said]:
    """Of the whole loss: the headline, and the objective in JSON."""
    if (said := spoken("headline", headline)) is not None:
        yield said
    if (found := answer["objective"]) is not None:
        yield Said("json", found["text"], SENSES[found.get("sense", "minimised")])


def judged(case: Case, said: Said, parameters: tuple[str, ...] = (), ascended: bool | None = None) -> Judged:
    """Compare the gradient of what is said with the update of the loss."""
    turned = -1 if (is_ascended(case) if ascended is None else ascended) else 1
    case = replace(case, text=written_out(case.text))
    where, used, text = worlds_of(case, parameters, said.inside)
    for setting in used:
        if setting.aggregate == "batch":
            return Judged(said, unread="a batch of tokens")
        constants = constants_of(case, setting) if in_batch(case) else {}
        try:
            gradient = flat(worth(said.text, where, setting, **constants).a, where)
        except (NotRead, KeyError, IndexError) as error:
            return Judged(said, unread=f"{type(error).__name__}: {error}"[:80])
        exact = turned * flat(where.field(text, setting).a, where)
        known = np.isfinite(exact).all(axis=0)  # such as log(full(M)) where the mask keeps a word
        gradient, exact = gradient[:, known], exact[:, known]
        if not known.any() or (said.inside and binds(text, where, setting, turned * exact)):
            return Judged(said, unread="no value, or the policies agree outside the clip range")
        floor = 1e-9 if said.inside else 1e-2
        scale = scales(replace(case, text=text), where, setting)[known] - 1e-2 + floor
        error = (np.abs(said.sign * gradient - exact) / (scale + np.abs(gradient).max(axis=0))).max()
        if said.inside:
            opposite = np.abs(said.sign * gradient + exact).max() < 0.05 * np.abs(exact).max()
            if opposite:
                return Judged(said, f"{said.text}: turned round (n = {setting.n})")
            if not error < 0.05:
                return Judged(said, unread="the policies agree outside the clip range")
        elif not error < AGREE:
            return Judged(said, f"{said.text}: off by {error:.1e} (n = {setting.n})")
    return Judged(said)


def binds(text: str, where: Slotted, setting: Setting, exact: np.ndarray) -> bool:
    """Does a clip change the gradient here?"""
    bare = flat(where.field(unclamped(text), setting).a, where)
    return bare.shape != exact.shape or not np.allclose(bare, exact, rtol=1e-6, atol=1e-12)


def wrong_objectives(case: Case, answer: dict[str, Any]) -> Iterator[str]:
    """One line for each objective that the update does not move as it is said."""
    for found in judge(case, answer, answer["summary"]):
        if found.complaint:
            yield f"{found.said.place}: {found.complaint}"


def judge(
    case: Case, answer: dict[str, Any], headline: str, parameters: tuple[str, ...] = ()
) -> Iterator[Judged]:
    """All that an answer says of objectives, its terms in the use of the whole."""
    if not headline.startswith("term by term"):
        yield from (judged(case, said, parameters) for said in statements(answer, headline))
    elif answer["objective"] is not None:
        yield from (judged(case, said, parameters) for said in statements(answer, ""))
    level = answer["level"]  # a loss of whole sequences may be written for each token
    of_tokens = case.use == "reward" and level == "token"
    credit = answer["credit"] or "same-token" * of_tokens  # a loss that says itself what is summed has none
    of_term = replace(case, credit=credit, level=level, weights=answer["weights"] or "")
    for term in answer["gradient"]["terms"] or ():
        if (said := spoken(f"term {term['loss']}", term["summary"])) is not None:
            yield judged(replace(of_term, text=term["loss"]), said, parameters, is_ascended(case))
