"""Write a loss at one position of an index, its sums over others as variables of slots.  Untrusted.

    index   own slot   other slots             sums in the grammar
    ""      x                                  whole(x), for a sequence as one sample
    i       self       others                  others(x), loo(h), centred(h)
    t       now        past, future, x         past(x), now(x), future(x), whole(x), togo(h), T

The options weights, credit, aggregate and batch are written into the loss here, and mean nothing below.
`position_sums` reads the sums.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

import sympy

from klsym.engine.fields.position_sums import (
    T,
    format_sum,
    is_a_ratio,
    is_summable,
    remove_slots,
    replace_sums,
    simplify_sum,
    sum_over_slot,
)
from klsym.engine.options.choices import Crediting
from klsym.engine.options.settings import Setting
from klsym.engine.regions.bounds_in_order import collect_clip_facts
from klsym.engine.regions.piecewise import Unfolding, keep_used_regions, start_unfolding
from klsym.errors import NotInRing, UsageError
from klsym.kernel.names import SAMPLE_BASES, parse_name
from klsym.kernel.ring import ZERO, ExpPoly
from klsym.kernel.slots import LENGTHS, name_in_slot
from klsym.kernel.statements import Context
from klsym.language.convert import rename, substitute_on_policy, to_ring, to_sympy
from klsym.language.expressions import (
    ATOMS,
    DENSITIES,
    A,
    H,
    M,
    R,
    V,
    V_next,
    length,
    now,
    own,
    parameter,
    past,
    remove_sg,
    rho,
    sg,
)
from klsym.language.parser import MAX_EXP, MAX_POWER
from klsym.language.sums import Here, OverBatch, OverVocabulary, Summed, Whole
from klsym.language.unfolding import PLAIN
from klsym.notation import formulas, losses
from klsym.notation.losses import Written
from klsym.notation.printers import TEXT
from klsym.notation.tree import Name, divide

DRAWN = M / parameter("S")  # what M q/S draws, over q; S = E_q[M]
ADVANTAGE = A  # theta-free, of the whole sequence: the same at each of its tokens
CRITIC = {V: past(A), V_next: now(A)}  # any functions of the prefix before a token, and with it
ONE_TOKEN_SUM = "a sum over the tokens before or after one: choose level token"
SUM_OF_RATIOS = (
    "would be a sum of ratios, one for each token: the ratio of them all is exp({name}(log ratio))"
)
RANDOM_ADVANTAGE = (
    "A times something random cannot be credited to other tokens: write R for token rewards, or choose credit"
    " same-token"
)


@dataclass(frozen=True)
class SlotLoss:
    """A loss at one position.

    expression: what is differentiated, or, if detached, what multiplies the score of the position.
    sums: H, H2, .. -> their values at one position.  detached_q: measure is that of a detached copy of q.
    centred_coefficient: h, if the loss is sg(h - its mean over the batch), by the option batch.
    defined: the regions and logs in it; typed: what is differentiated, before they are put in.
    label: how the loss was written; uncredited: the loss at the position, before rewards are credited.
    """

    index: str
    expression: Any
    measure: str
    detached_q: bool = False
    detached: bool = False
    sums: Mapping[str, Any] = field(default_factory=dict)
    label: Written | None = None
    uncredited: Any = None
    centred_coefficient: ExpPoly | None = None
    defined: Context = PLAIN
    typed: Any = None

    @property
    def own_slot(self) -> str:
        """The slot of the position itself."""
        return {"": "x", "i": "self", "t": "now"}[self.index]

    def build_label(self, expression: Any) -> Written:
        return Written(TEXT(losses.build_tree(remove_slots(expression))), remove_slots(expression))

    @property
    def typed_label(self) -> Written:
        typed = self.typed.replace(lambda e: isinstance(e, OverBatch), remove_slots)
        typed = typed.replace(lambda e: isinstance(e, Summed), simplify_sum)
        return Written(losses.show(typed, TEXT), typed)

    @property
    def element(self) -> ExpPoly:
        return to_ring(self.expression)

    @property
    def elements(self) -> list[ExpPoly]:
        """The loss, and the values of its sums."""
        return [self.element, *map(to_ring, self.sums.values())]


# ---------------------------------------------------------------------------- from a loss as it is written
def build_slot_loss(written: Written, setting: Setting, roots: bool = False) -> SlotLoss:
    """Return the loss at a position; raises NotInRing outside the ring, UsageError for what is not handled.

    roots: regions that zeros of functions show to be empty are left out, which no theorem follows.
    """
    expanded = read_loss(written.expression, setting, roots)
    return _apply_options(written, setting, replace(expanded, regions=expanded.regions.copy()))


def build_slot_losses(losses_as_typed: Sequence[Written], setting: Setting) -> list[SlotLoss]:
    """Several losses; a bound or a log that two of them have gets one name."""
    regions = start_regions(sympy.Tuple(*(typed_loss.expression for typed_loss in losses_as_typed)), setting)
    expanded = [_expand_loss(typed_loss.expression, setting, regions) for typed_loss in losses_as_typed]
    slot_losses = [
        _apply_options(typed_loss, setting, expanded_loss)
        for typed_loss, expanded_loss in zip(losses_as_typed, expanded, strict=True)
    ]
    defined = keep_used_regions(regions.context, *(e for loss in slot_losses for e in loss.elements))
    return [replace(loss, defined=defined) for loss in slot_losses]


def _apply_options(written: Written, setting: Setting, expanded: ExpandedLoss) -> SlotLoss:
    """As a loss or as a reward, credited to tokens and averaged over them."""
    detached, index = setting.is_reward, expanded.index
    expression, sums = expanded.expression, expanded.sums
    refuse_unless_moderate(to_ring(expression), written, {*LENGTHS})
    if detached and index == "t" and setting.credits is not None and setting.credits_other_tokens:
        h = to_ring(remove_sg(expression))
        credited = apply_credit(substitute_on_policy(h) if setting.on_policy else h, setting.credits)
        expression, sums = replace_sums(credited, index, detached, expanded.regions)
    label = divide_by_length(written) if setting.averaged and index != "t" else written
    loss = build_sampled_loss(expression, sums, index, setting, detached=detached, label=label)
    defined = keep_used_regions(expanded.regions.context, *loss.elements)
    typed = expanded.typed if defined.definitions else None
    return replace(loss, uncredited=expanded.expression, defined=defined, typed=typed)


@dataclass(frozen=True)
class ExpandedLoss:
    """A loss at one position: as it is typed, and with its sums and regions written out."""

    index: str
    typed: Any
    expression: Any
    sums: Mapping[str, Any]
    regions: Unfolding


@lru_cache(maxsize=64)
def read_loss(loss: Any, setting: Setting, roots: bool = False, ties: bool = False) -> ExpandedLoss:
    """Expand the sums and regions of a loss; ties: name the slopes at ties that hold at every sample."""
    regions = start_regions(loss, setting)
    regions.roots, regions.ties = roots, {} if ties else None
    return _expand_loss(loss, setting, regions)


def _expand_loss(loss: Any, setting: Setting, regions: Unfolding) -> ExpandedLoss:
    index = choose_index(loss, setting)
    typed = write_at_slot(loss, setting, index)
    expression, sums = replace_sums(typed, index, setting.is_reward, regions)
    if regions.roots or typed.has(sympy.Heaviside):  # a product of comparisons may be empty
        regions.has_gradient = not setting.is_reward  # of the whole loss, not of the region read last
        expression = to_sympy(regions.simplify(to_ring(expression)))
    return ExpandedLoss(index, typed, expression, sums, regions=regions)


def build_sampled_loss(
    expression: Any,
    sums: Mapping[str, Any],
    index: str,
    setting: Setting,
    detached: bool,
    label: Written | None,
) -> SlotLoss:
    """Choose the measure of a loss; on-policy, replace what is detached by its value, where rho is 1."""
    if setting.on_policy:
        sums = {name: to_sympy(substitute_on_policy(to_ring(value))) for name, value in sums.items()}
    if detached and not index:  # one sample is shown as it was written
        expression = sg(expression)
    elif detached:
        expression = remove_sg(expression)
        expression = to_sympy(substitute_on_policy(to_ring(expression))) if setting.on_policy else expression
    element = to_ring(expression)
    detached_q = needs_sampler(element, setting)
    measure = choose_measure(element, setting)
    return SlotLoss(index, expression, measure, detached_q, detached=detached, sums=sums, label=label)


def choose_index(loss: Any, setting: Setting) -> str:
    return setting.position.index or ("i" if has_batch_sum(loss) else "")


def write_at_slot(expression: Any, setting: Setting, index: str) -> Any:
    """Write a loss at one position, with the weights, 1/T and the mask of a truncated sampler."""
    if setting.truncated and (index or setting.is_centred):
        raise UsageError(
            "sampling truncated: a batch of such samples is not handled: choose level sample for one token,"
            " given its prefix, token for sums of them, or sequence for a sampler that is cut off as a whole"
        )
    expression = expression * DRAWN if setting.truncated else expression
    if index == "t":
        expression = expression if setting.is_reward else write_per_token(expression)
        placed = now(expression).xreplace(
            {now(A): ADVANTAGE, now(rho): setting.weighting.at_token, T: length}
        )
        placed = placed.xreplace({now(x): value for x, value in CRITIC.items()})
        _refuse_sums_of_ratios(placed)
    else:
        placed = own(expression / length if setting.averaged else expression) if index == "i" else expression
    return placed / length if setting.averaged and index != "i" else placed


def write_per_token(loss: Any, times: Any = T) -> Any:
    """Replace g whole(x) by times g x for g the same at each token, and multiply other terms by times/T.

    So T g x and g whole(x) have one sum over the tokens.  x has no sum of its own, or times is 1 and g held.
    """
    sums = {
        summed for summed in _iterate_attached_sums(loss) if times != T or not is_summable_over_tokens(summed)
    }
    total = sympy.S.Zero
    for term in sympy.Add.make_args(sympy.expand_mul(loss, deep=False)) if sums else (loss,):
        summands = sorted(
            (summed for summed in sympy.Mul.make_args(term) if summed in sums),
            key=is_summable_over_tokens,
        )
        g = term / summands[0] if summands else term
        is_common = summands and not g.has(*sums) and _is_constant_over_tokens(g)
        if is_common and (sg(g) == g or not is_summable_over_tokens(summands[0])):
            term = T * g * summands[0].args[0]
        total += term * times / T
    return total


def _iterate_attached_sums(e: Any) -> Iterator[Any]:
    """Yield the sums over all tokens that are differentiated."""
    if isinstance(e, Whole):
        yield from (e,) if sg(e) != e else ()
    elif not isinstance(e, sg):
        yield from (token_sum for part in e.args for token_sum in _iterate_attached_sums(part))


def is_summable_over_tokens(token_sum: Summed) -> bool:
    """Is it a sum of k1, log q, R and constants?"""
    element = _convert_token_term(token_sum.args[0])
    return element is not None and is_summable(element, "now")


def _is_constant_over_tokens(g: Any) -> bool:
    """Is it the same at each token?"""
    bare = g.xreplace({whole_sum: sympy.Dummy() for whole_sum in g.atoms(Whole)})
    return not bare.atoms(Summed) and not bare.free_symbols & {*DENSITIES, R, M}


def _refuse_sums_of_ratios(expression: Any) -> None:
    for token_sum in sorted(expression.atoms(Summed), key=str):
        if (
            not isinstance(token_sum, Here)
            and not token_sum.args[0].has(Summed)
            and is_a_ratio(token_sum.args[0])
        ):
            raise UsageError(f"{format_sum(token_sum)} {SUM_OF_RATIOS.format(name=token_sum.name)}")


def apply_credit(h: ExpPoly, crediting: Crediting) -> Any:
    """Return togo(h) or whole(h); terms with A stay, since A belongs to the whole sequence."""
    whole_terms, token_terms = ZERO, ZERO
    for key, value in h.terms.items():
        term = ExpPoly({key: value})
        if "A" not in term.names():
            token_terms = token_terms + term
        elif any(parse_name(name).slot != "x" for name in term.names()):
            raise UsageError(RANDOM_ADVANTAGE)
        else:
            whole_terms = whole_terms + term
    summand = to_sympy(token_terms)
    return to_sympy(whole_terms) + crediting.apply(summand)


def start_regions(expression: Any, setting: Setting) -> Unfolding:
    """Return the object that collects the regions of a loss."""
    parameters = {x.name for x in expression.free_symbols} - {*ATOMS, *SAMPLE_BASES, "T"}
    return start_unfolding(setting.on_policy, parameters, collect_clip_facts(expression))


def build_centred_loss(h: ExpPoly, setting: Setting, defined: Context = PLAIN) -> SlotLoss:
    """Build the loss sg(h - mean of h over the batch), by the option batch."""
    varying_names = collect_random_names(h, defined)  # equal numbers less their mean would be 0 at once
    own_coefficient = h if varying_names else to_ring(H)
    own_coefficient = own_coefficient.rename(
        lambda name: name_in_slot(name, "self") if name in varying_names or name == "H" else name
    )
    assert setting.centring is not None
    expression, sums = replace_sums(setting.centring.subtracts(to_sympy(own_coefficient)), "i", detached=True)
    sums = sums if varying_names else {"H": to_sympy(h)}
    loss = build_sampled_loss(expression, sums, "i", setting, detached=True, label=None)
    return replace(loss, centred_coefficient=h, defined=defined)


def collect_random_names(element: ExpPoly, defined: Context) -> set[str]:
    """Return the names in an element of one sample that change from sample to sample."""
    return {
        n
        for n in element.names()
        if n in SAMPLE_BASES or (defined.find_definition(n) and defined.is_sample(n))
    }


# ---------------------------------------------------------------------------- whole sequences
def rewrite_for_sequence(written: Written) -> Written:
    """Write T as the length of the sequence, and a sum over all tokens as one variable."""
    expression, sequence_sums = written.expression, {}
    for token_sum in expression.atoms(Summed):
        if not isinstance(token_sum, Whole):
            raise UsageError(f"{token_sum} in {written.text[:60]!r}: {ONE_TOKEN_SUM}")
        if not is_summable_over_tokens(token_sum):
            raise UsageError(
                f"{token_sum} in {written.text[:60]!r} is no sum of k1, log q, R and constants, and so it is"
                " no function of the sequence as one sample: choose level token"
            )
        sequence_sums[token_sum] = to_sympy(
            sum_over_slot(to_ring(now(token_sum.args[0]).xreplace({now(A): ADVANTAGE, T: length})), "x")
        )
    whole = (
        expression.xreplace({**sequence_sums, T: length}) if sequence_sums else rename(expression, T, length)
    )
    return Written(written.text, whole)


def _convert_token_term(expression: Any) -> ExpPoly | None:
    try:
        return to_ring(now(expression).xreplace({now(A): ADVANTAGE, T: length}))
    except NotInRing:
        return None


# ---------------------------------------------------------------------------- properties of a loss
@lru_cache(maxsize=1024)
def has_token_sum(expression: Any) -> bool:
    """Does it contain a sum over tokens?"""
    return bool(expression.atoms(Summed))


@lru_cache(maxsize=1024)
def has_batch_sum(expression: Any) -> bool:
    """Does it contain a sum over the other samples of a batch?"""
    return bool(expression.atoms(OverBatch))


def has_vocabulary_sum(expression: Any) -> bool:
    """Does it contain a sum over the vocabulary?"""
    return bool(expression.atoms(OverVocabulary))


def needs_sampler(element: ExpPoly, setting: Setting) -> bool:
    """Does an on-policy loss contain rho or log mu?"""
    return setting.on_policy and any(parse_name(n).base == "w" for n in element.names())


def choose_measure(element: ExpPoly, setting: Setting) -> str:
    """Return the measure of the samples: q on-policy without rho and log mu, else mu."""
    return "q" if setting.on_policy and not needs_sampler(element, setting) else "mu"


def divide_by_length(written: Written) -> Written:
    """Return the loss over the length, printed as T."""
    return Written(TEXT(divide(losses.build_tree(written), Name("T"))), written.expression / length)


def refuse_unless_moderate(element: ExpPoly, written: Written, allowed: set[str] | None = None) -> None:
    """Raise UsageError for division by a random variable, and for powers larger than the grammar allows."""
    random = {n for n in element.collect_divisors() if parse_name(n).base in SAMPLE_BASES} - (
        allowed or set()
    )
    if random:
        name = formulas.show_variable(min(random), TEXT)
        raise UsageError(f"division by {name} in {written.text[:60]!r}: it is 0 at some samples")
    exponents = [(m, v) for _, e in element.terms for m, v in e]
    powers = [Fraction(p) for m, _ in element.terms for _, p in m]
    powers += [Fraction(v) for m, v in exponents if m]
    if any(abs(p) > MAX_POWER for p in powers):
        raise UsageError(f"a power beyond {MAX_POWER} in {written.text[:60]!r}")
    if any(abs(Fraction(v)) > MAX_EXP for m, v in exponents if not m):
        raise UsageError(f"exp of a number beyond {MAX_EXP} in {written.text[:60]!r}")
