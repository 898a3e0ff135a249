"""Products of means, E_m[a] E_m[b s], which what is taken off in a batch leaves.  Untrusted."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from fractions import Fraction
from itertools import islice
from typing import Any

from klsym.abbreviations import Indexed, Side
from klsym.engine.derivation import Derivation, Proof, derive
from klsym.engine.quantities import Quantity
from klsym.engine.witness import completed, tree_models
from klsym.engine.witness import models as models_of_samples
from klsym.errors import ProofError
from klsym.kernel.derivatives import in_slot
from klsym.kernel.sums import SUMS
from klsym.ring import ONE, ZERO, ExpPoly
from klsym.slots import SEQUENCE, at_slot
from klsym.statements import Context

# q, p, mu and two directions on three sequences of one token: one sample; two are equally likely, or none
ONE_TOKEN = {
    "q": ["1/2", "1/4", "1/4"], "p": ["1/4", "1/2", "1/4"], "mu": ["1/5", "2/5", "2/5"],
    "u": ["1", "0", "0"], "v": ["0", "1", "0"], "rewards": {"R": ["0", "1", "2"]},
    "next": [None, None, None],
}  # fmt: skip
UNEVEN = ONE_TOKEN | {"mu": ["1/5", "3/10", "1/2"]}
BATCH = {"n": "3", "m": "2"}
SAMPLES = 8  # models of one token that are tried beside them
LENGTHS = 8  # trees of sequences of one and two tokens that are tried


def _any(context: Context) -> Iterator[dict[str, Any]]:
    """Sequences of one token with any densities and rewards, along the logits of the first two."""
    wide = (model["tree"] for model in models_of_samples(context) if len(model["tree"]["q"]) > 2)
    for tree in islice(wide, SAMPLES):
        size = len(tree["q"])
        yield tree | {"u": ["1", *["0"] * (size - 1)], "v": ["0", "1", *["0"] * (size - 2)]}


def of_tokens(e: ExpPoly, context: Context) -> ExpPoly:
    """A function of a sample in the slots of a token.

    Without a length each sample is a sequence of one token; with one, x = x_past + x_now + x_future.
    """
    if "length" not in e.names():
        return in_slot(e, "now", context)

    def summed(name: str) -> ExpPoly:
        return sum((ExpPoly.variable(at_slot(name, slot)) for slot in SEQUENCE), ZERO)

    return e.substitute({name: summed(name) for name in e.names() & {*SUMS} - {"length"}})


def curl(slope: ExpPoly, b: ExpPoly, under: str, scale: ExpPoly = ONE) -> Quantity:
    """E_m[slope s].u E_m[b s].v - E_m[slope s].v E_m[b s].u, in the slots of a token.

    It is the curl of E_m[a] E_m[b s] for grad E_m[a] = E_m[slope s], where E_m[b s] has none.
    """

    def mean(of: ExpPoly, along: str) -> Indexed:
        return Indexed("t", under, of, (along,))

    along, across = (mean(slope, "now"), mean(b, "now'")), (mean(slope, "now'"), mean(b, "now"))
    return Quantity(Side.of((scale, along), (-scale, across)))


def turning(
    total: Quantity, refuted: Quantity, names: Collection[str], evaluate: bool = False
) -> tuple[str | None, tuple[Proof, ...]]:
    """Is a field with this curl a gradient?  The target, and the theorem that says so; None: it is open.

    refuted: the same with the values that models hold, one A, of these names.
    """
    try:
        return "separable", (derive(total).equals(0, evaluate=evaluate),)
    except ProofError:
        pass
    start = derive(refuted)
    numbers = {name: str(Fraction(2 + i, 3)) for i, name in enumerate(start.context.parameters)}
    numbers |= {name: value for name, value in BATCH.items() if name in numbers}
    trees = (ONE_TOKEN, UNEVEN, *_any(start.context))
    models = [{"tree": tree, "path": [], "parameters": numbers} for tree in trees]
    if "length" in names:
        models = [{**model, "parameters": numbers} for model in islice(tree_models(start.context), LENGTHS)]
    for model in models:
        try:
            model = completed(model, names)
            return "none", (start.differs_from(0, model=model),)
        except ProofError:
            continue
    return None, ()


def of_batch(left: Derivation, right: Quantity) -> Proof:
    """left = right; off-policy means are multiplied out, and (n - 1)/m is 1 by the premise."""
    if left.context.premises:
        return left.equals(right, using=[(0, None)])
    try:
        return left.equals(right)
    except ProofError:
        return left.equals(right, evaluate=True)
