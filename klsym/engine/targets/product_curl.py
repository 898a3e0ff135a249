"""Decide whether products of means are a gradient, by the curl of E_m[a] E_m[b s].  Untrusted.

    d_u E_m[a] E_m[b s].v - d_v E_m[a] E_m[b s].u

The kernel proves that it is 0, or refutes that on a model.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from fractions import Fraction
from itertools import islice
from typing import Any

from klsym.engine.fields.in_trees import REWARD, substitute_in_context
from klsym.engine.proof.counterexamples import generate_models as models_of_samples
from klsym.engine.proof.counterexamples import generate_tree_models
from klsym.engine.proof.derivation import Derivation, Proof, derive
from klsym.engine.proof.quantities import Quantity
from klsym.errors import ProofError
from klsym.kernel.derivatives import move_to_slot
from klsym.kernel.names import parse_name
from klsym.kernel.ring import ZERO, ExpPoly
from klsym.kernel.slots import SEQUENCE, name_in_slot
from klsym.kernel.statements import Context
from klsym.kernel.sums import SUMS
from klsym.language.abbreviations import E, Indexed, Side, walk_elements
from klsym.language.unfolding import differentiate_in_log_q
from klsym.worlds.draw import add_rows

# q, p, mu and two directions on three sequences of one token: one sample; two are equally likely, or none
ONE_TOKEN = {
    "q": ["1/2", "1/4", "1/4"], "p": ["1/4", "1/2", "1/4"], "mu": ["1/5", "2/5", "2/5"],
    "u": ["1", "0", "0"], "v": ["0", "1", "0"], "rewards": {"R": ["0", "1", "2"]},
    "next": [None, None, None],
}  # fmt: skip
UNEVEN = ONE_TOKEN | {"mu": ["1/5", "3/10", "1/2"]}
OF_BOTH_SIGNS = ONE_TOKEN | {"mu": ["2/5", "3/10", "3/10"], "rewards": {"R": ["-1", "-2", "1"]}}
BATCH = {"n": "3", "m": "2"}
SAMPLES = 8  # models of one token that are tried beside them
SHORT_TREES = 8  # trees of sequences of one and two tokens that are tried


def decide_products(
    products: Collection[tuple[ExpPoly, ExpPoly]], under: str, defined: Context
) -> tuple[str | None, tuple[Proof, ...]]:
    """Decide whether sum_k E_m[a_k] E_m[b_k s] is a gradient: the target with its theorem; None if open."""
    total = Quantity(Side())
    for a, b in products:
        total = total + _build_product_curl(a, b, under, defined)
    expressions = [*walk_elements(total.side), *(definition.e for definition in defined.definitions)]
    bases = {parse_name(name).base for of in expressions for name in of.names()}
    try:
        return "objective", (derive(total, defined=defined).equals(0, evaluate=under == "q"),)
    except ProofError:
        pass
    start = derive(_replace_advantages(total), defined=substitute_in_context(defined, {"A": REWARD}))
    bases = {"R" if base == "A" else base for base in bases}
    for model in _list_models(start, bases):
        try:
            return "no-objective", (start.differs_from(0, model=add_rows(model, bases)),)
        except ProofError:
            continue
    return None, ()


def _list_models(start: Derivation, names: Collection[str]) -> Any:
    numbers = {name: str(Fraction(2 + i, 3)) for i, name in enumerate(start.context.parameters)}
    numbers |= {name: value for name, value in BATCH.items() if name in numbers}
    if "length" in names:
        return [
            {**model, "parameters": numbers}
            for model in islice(generate_tree_models(start.context), SHORT_TREES)
        ]
    trees = (ONE_TOKEN, UNEVEN, OF_BOTH_SIGNS, *_generate_models(start.context))
    return [{"tree": tree, "path": [], "parameters": numbers} for tree in trees]


def _generate_models(context: Context) -> Iterator[dict[str, Any]]:
    """Yield sequences of one token with random densities and rewards, and the logits of the first two."""
    wide = (model["tree"] for model in models_of_samples(context) if len(model["tree"]["q"]) > 2)
    for tree in islice(wide, SAMPLES):
        size = len(tree["q"])
        yield tree | {"u": ["1", *["0"] * (size - 1)], "v": ["0", "1", *["0"] * (size - 2)]}


def _replace_advantages(total: Quantity) -> Quantity:
    """Replace A by R, for which models have values."""

    def replace_in_atom(atom: Any) -> Any:
        names = {
            x: ExpPoly.from_variable(x.replace("A", "R", 1))
            for x in atom.coefficient.names()
            if parse_name(x).base == "A"
        }
        return Indexed(atom.index, atom.measure, atom.coefficient.substitute(names), atom.score)

    return Quantity(Side.combine(*((k, tuple(map(replace_in_atom, atoms))) for k, atoms in total.side.terms)))


def _build_product_curl(a: ExpPoly, b: ExpPoly, under: str, defined: Context) -> Quantity:
    """Return d_u E_m[a] E_m[b s].v - d_v E_m[a] E_m[b s].u, in the slots of a token."""
    context = derive(Quantity(Side.from_atom(E(under, a * b))), defined=defined).context
    derivative = differentiate_in_log_q(a, context) + (a if under == "q" else ZERO)
    slope, factor = (rewrite_in_token_slots(x, context) for x in (derivative, b))

    def build_mean(integrand: ExpPoly, score_slot: str) -> Indexed:
        return Indexed("t", under, integrand, (score_slot,))

    along, across = (
        (build_mean(slope, "now"), build_mean(factor, "now'")),
        (build_mean(slope, "now'"), build_mean(factor, "now")),
    )
    return Quantity(Side.combine((1, along), (-1, across)))


def rewrite_in_token_slots(e: ExpPoly, context: Context) -> ExpPoly:
    """Return a function of a sample in the slots of a token.

    Without a length each sample is a sequence of one token; with one, x = x_past + x_now + x_future.
    """
    if "length" not in e.names():
        return move_to_slot(e, "now", context)

    def sum_slots(name: str) -> ExpPoly:
        return sum((ExpPoly.from_variable(name_in_slot(name, slot)) for slot in SEQUENCE), ZERO)

    return e.substitute({name: sum_slots(name) for name in e.names() & {*SUMS} - {"length"}})
