r"""The text of a comparison: what each of two losses minimises, and in what they agree.

>>> from klsym.api import compare
>>> print("\n".join(compare("k1", "k2").text().splitlines()[:4]))
k1 and k2 as losses, on-policy
  Different expected gradients: E_q[grad k1] != E_q[grad k2] in general                       proved
  k1       No effect: its expected gradient is zero, it only adds noise                       proved
  k2       A penalty on KL(policy || reference): minimises KL(q||p), the reverse KL           proved
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from klsym.engine.explain import SELECTION
from klsym.engine.questions.comparison import Multiple
from klsym.errors import spell_switch
from klsym.kernel.ring import ONE
from klsym.language.messages import WITHOUT_MASK
from klsym.language.training_names import names_state_value
from klsym.notation import formulas
from klsym.notation.decimals import choose_decimals
from klsym.notation.losses import show
from klsym.notation.printers import TEXT, is_sum
from klsym.notation.text import show_interval, show_statement
from klsym.render.answer import (
    LABEL,
    MAX_FORMULA,
    MAX_LINES,
    MAX_NAME,
    MAX_NARROW,
    NARROW,
    WIDTH,
    add_label,
    add_trust,
    describe_verdict,
    wrap_text,
    write_gradient,
)
from klsym.render.headline import TRUST, list_option_words, name_trust
from klsym.render.listing import format_list, list_model_lines
from klsym.render.option_words import DIVISORS, SAMPLED_FROM, find_words
from klsym.render.question import describe_term
from klsym.render.questions.sentences import READINGS
from klsym.render.sentences import write_sentence

if TYPE_CHECKING:
    from klsym.render.questions.compare import PrintedAnswer, PrintedComparison, PrintedSpread

LETTERS = ("A", "B")  # names of losses that are long
MAX_STATEMENT = 70  # characters of a theorem in a short answer
ASSUMED = ("sampling-assumed", "settings-assumed", SELECTION)
FACTORS = ("factor-left-out", "scale-left-out")
SAID = ("neither-proof-nor-model", "order-of-variances", "used-differently")  # that other rows say
CANCELS = ", as all terms of the gradient cancel"
AT_OPTIMUM = {
    True: "{} has the gradient 0 at every batch",
    False: "{} is noisy",
    None: "the noise of {} is not decided",
}
OFF_BOUNDS = " that lies on no bound"
SAME = ("A", "B", "equal")  # orders of the variances that hold in every model
SAME_GRADIENT = "Training goes to the same policy"
OTHER_OBJECTIVE, OTHER_GRADIENT = "Different objectives", "Different expected gradients"
MULTIPLE = "The same up to a constant: the expected gradient of {} is {} times that of {}"
OPPOSITE = "Opposite directions: the expected gradient of {} is {} times that of {}"
OTHER_USES = "No theorem compares losses with such different options; what each of them does"
NOT_DECIDED = "Not decided: the expected gradients may be the same or different"
WITHOUT_OBJECTIVE = ("zero", "no-objective", None)
ON_AVERAGE = {True: "the same on average", False: "different on average", None: "not decided"}
AT_A_SAMPLE: dict[tuple[bool | None, bool | None], str] = {
    (True, True): "the same at each sample",
    (False, True): "the same on average, different at a sample",
    (False, False): "different on average and at a sample",
    (None, True): "the same on average; at a sample not decided",
    (None, False): "different on average; at a sample not decided",
}
NOISE = {
    "A": "{A} is never noisier than {B}, for any policies",
    "B": "{B} is never noisier than {A}, for any policies",
    "equal": "the same for all policies",
    "depends": "which is less noisy depends on the policies",
    "open": "open: no order is proved, and no models were found both ways",
}


def format_comparison(found: PrintedComparison, width: int = WIDTH, whole: bool = False) -> str:
    """Format the question, the verdict, what each loss minimises, and in what they agree.

    whole: leave out no statement and no reading, however long the answer becomes.
    """
    limit = MAX_LINES if width >= NARROW else MAX_NARROW
    regions = _list_regions(found, _choose_names(found))
    for most, reads, rows, shown in (
        (MAX_STATEMENT, True, 2, regions),
        (0, True, 1, regions),
        (MAX_STATEMENT, True, 2, []),
        (MAX_STATEMENT, True, 1, []),
        (0, True, 1, []),
        (0, False, 1, regions),
        (0, False, 1, []),
    ):
        lines = _list_lines(
            found, width, most, reads, rows=rows + (width < NARROW), whole=whole, regions=shown
        )
        if whole or len(lines) <= limit:
            break
    return "\n".join(lines)


def _list_lines(
    found: PrintedComparison,
    width: int,
    most: int,
    reads: bool,
    rows: int,
    whole: bool,
    regions: list[tuple[str, str]],
) -> list[str]:
    """Return the lines of an answer.

    most: characters of a statement that is shown.  reads: are readings shown?  rows: lines for each loss.
    regions: the gradient of each loss by regions, if it is shown.
    """
    write, names = choose_decimals(" ".join(found.losses)), _choose_names(found)

    def state(words: str, answer: PrintedAnswer) -> str:
        is_shown = answer.statement and (whole or len(answer.statement) <= most)
        return f"{words}: {answer.statement}" if is_shown else words

    use = "with the usual options of each" if found.settings else f"as {_describe_use(found.setting)}"
    lines = wrap_text(f"{names[0]} and {names[1]}{',' * bool(found.settings)} {use}", "", "  ", width)
    trust = TRUST.get(found.gradient.trust, "open")
    does = describe_training(found)
    lines += add_trust(write(does if found.multiple else state(does, found.gradient)), trust, width)
    labelled = _list_readings(found, names, whole, reads)
    lines += [line for name, text in labelled for line in add_label(name, write(text), width)]
    lines += _format_losses(found, names, write, width=width, rows=rows)
    sameness = (found.per_sample.same, found.gradient.same)
    at_a_sample = AT_A_SAMPLE.get(sameness, "not decided")
    is_asked = not found.settings or found.gradient.same is not None
    answers = [
        ("value", state(ON_AVERAGE[found.value.same], found.value)),
        ("gradient", state(at_a_sample + OFF_BOUNDS * found.per_sample.is_off_bounds, found.per_sample)),
    ]
    labelled = [
        *list_uses(found, names),
        *(answers if is_asked else []),
        *regions,
        *list_factors(found, names),
        *list_masks(found, names),
        *list_unmasked_means(found, names),
        *list_critics(found),
        *(_list_noise_rows(found, names) if whole or most or not regions else []),
        ("details", f"{spell_switch('full')}; {spell_switch('proof')}"),
    ]
    return lines + [line for name, text in labelled for line in add_label(name, write(text), width)]


def _list_noise_rows(found: PrintedComparison, names: tuple[str, str]) -> list[tuple[str, str]]:
    """Return which gradient varies less, and what is open."""
    return [
        *list_noise(found, dict(zip(LETTERS, names, strict=True))),
        *list_noise_at_optimum(found, names),
        *(("open", write_sentence(m)) for m in found.open_questions if m.code not in SAID),
    ]


def list_factors(found: PrintedComparison, names: tuple[str, str]) -> list[tuple[str, str]]:
    """Return the constant factors that the reading of the losses left out, if they differ."""
    left_out = [
        next((write_sentence(m) for m in written.notes if m.code in FACTORS), "") for written in found.written
    ]
    rows = [(name, text) for name, text in zip(names, left_out, strict=True) if text]
    return [("factor", f"{name}: {text}") for name, text in rows] if len({*left_out}) > 1 else []


def list_masks(found: PrintedComparison, names: tuple[str, str]) -> list[tuple[str, str]]:
    """Return which loss alone has a mask, that was taken for one of padding and left out."""
    masks = [
        next((m.values["names"] for m in written.notes if m.code == "masks-left-out"), ())
        for written in found.written
    ]
    if bool(masks[0]) == bool(masks[1]):
        return []
    [(name, typed)] = [(name, typed) for name, typed in zip(names, masks, strict=True) if typed]
    mask = f"{name} alone has a mask, {typed[0]}, which is taken for one of padding"
    return [("mask", f"{mask}: a mask of other tokens changes the gradient")]


def list_unmasked_means(found: PrintedComparison, names: tuple[str, str]) -> list[tuple[str, str]]:
    """Say that one loss alone has a mean without its mask, which code takes over the padding, too."""
    assumed = [
        [
            condition.removesuffix(WITHOUT_MASK).strip()
            for message in written.notes
            if message.code == "settings-assumed"
            for condition in message.values["conditions"]
            if condition.endswith(WITHOUT_MASK)
        ]
        for written in found.written
    ]
    if bool(assumed[0]) == bool(assumed[1]):
        return []
    [(name, means)] = [(name, means) for name, means in zip(names, assumed, strict=True) if means]
    mean = f"{name} alone has {means[0]} without the mask, taken over the tokens that the mask keeps"
    as_typed = "as typed it divides by the padding, too: a term that is 0 there is then smaller by the share"
    return [("mask", f"{mean}: {as_typed} of tokens that the mask keeps, and the losses differ")]


def list_critics(found: PrintedComparison) -> list[tuple[str, str]]:
    """Say that a critic's values are held: what flows into the critic is not compared."""
    declared = [
        m.values["names"] for one in found.written for m in one.notes if m.code == "parameters-declared"
    ]
    values = [name for names in declared for name in names if names_state_value(name)]
    sentence = "is held: the gradient of the policy is compared, not what flows into the critic"
    return [("critic", f"{values[0]} {sentence}")] if values else []


def _list_readings(
    found: PrintedComparison, names: tuple[str, str], whole: bool, reads: bool
) -> list[tuple[str, str]]:
    """Return what A and B stand for, and how the losses were read; whole: also whose names they have.

    What was assumed of the samples, and of a selection, is shown without reads, too.
    """
    labelled = [*zip(LETTERS, found.losses, strict=True)] if names == LETTERS and reads else []
    shown = [
        m for m in found.readings
        if m.code in ASSUMED or (reads and m.code in READINGS and (whole or m.code != "named-loss"))
    ]  # fmt: skip
    sentences = dict.fromkeys(map(write_sentence, shown))  # both losses may be read with the same assumption
    return labelled + [("" if i else "read as", text) for i, text in enumerate(sentences)]


def _choose_names(found: PrintedComparison) -> tuple[str, str]:
    """Return the losses as they were typed, if both are short; else A and B."""
    first, second = (written.typed or written.text for written in found.written)
    return (first, second) if max(len(first), len(second)) <= MAX_NAME and first != second else LETTERS


def _format_losses(
    found: PrintedComparison, names: tuple[str, str], write: Callable[[str], str], width: int, rows: int
) -> Iterator[str]:
    """Yield what each loss does, in at most so many lines."""
    pad = max(LABEL, *map(len, names))
    for name, verdict in zip(names, found.verdicts, strict=bool(found.verdicts)):
        kind, trust = describe_term(verdict, verdict.is_ascended), name_trust(verdict)
        for text in (describe_verdict(verdict, MAX_FORMULA), f"{kind[0].upper()}{kind[1:]}"):
            lines = add_trust(f"{name:<{pad}} {write(text)}", trust, width, " " * (LABEL + 3))
            if len(lines) <= rows:
                break
        yield from lines


def _list_regions(found: PrintedComparison, names: tuple[str, str]) -> list[tuple[str, str]]:
    """Return the gradient of each loss by regions, where a clip alone tells losses of one kind apart."""
    kinds = {describe_term(verdict, verdict.is_ascended) for verdict in found.verdicts}
    if len(kinds) != 1 or found.per_sample.same or not all(v.gradient.score_cases for v in found.verdicts):
        return []
    rows = (f"{name}: {write_gradient(verdict)}" for name, verdict in zip(names, found.verdicts, strict=True))
    return [("regions", row) for row in rows]


def _describe_use(setting: Any) -> str:
    """Return text such as "losses at each token, samples from an older policy mu"."""
    level, *options = list_option_words(setting)
    kind = "losses" if setting.is_differentiated else "rewards"
    return ", ".join([f"{kind}{level}", find_words(SAMPLED_FROM, "sampling", setting.sampling), *options])


def list_uses(found: PrintedComparison, names: tuple[str, str]) -> list[tuple[str, str]]:
    """Return how each loss is used, and what lengths do to its weights; empty if both are used alike."""
    weights = [_describe_weights(setting) for setting in found.settings]
    differ = len(set(weights)) > 1
    rows = []
    for name, setting, weighs in zip(names, found.settings, weights, strict=False):
        level, *options = list_option_words(setting)
        use = f"{setting.use}{level}, {find_words(SAMPLED_FROM, 'sampling', setting.sampling)}"
        said = f"; {weighs}" if differ and weighs else ""
        rows.append(("used", f"{name}: {', '.join([use, *options])}{said}"))
    return rows


def _describe_weights(setting: Any) -> str:
    """Say what the length of a sequence does to its weight; empty for samples without a length."""
    divisor = find_words(DIVISORS, "aggregate", setting.aggregate)
    of_loss = divisor.of_token if setting.is_per_token else divisor.of_sequence
    return "" if setting.is_of_sample else of_loss


def describe_training(found: PrintedComparison) -> str:
    """Return the first words: two objectives differ if their gradients do."""
    if found.settings and found.gradient.same is None:
        return OTHER_USES
    if found.multiple is not None:
        return describe_multiple(found.multiple, _choose_names(found))
    if found.gradient.same is not False:
        return SAME_GRADIENT if found.gradient.same else NOT_DECIDED
    has_objectives = bool(found.verdicts) and all(
        verdict.target not in WITHOUT_OBJECTIVE and verdict.trust == "kernel" for verdict in found.verdicts
    )
    return OTHER_OBJECTIVE if has_objectives else OTHER_GRADIENT


def describe_multiple(multiple: Multiple, names: tuple[str, str]) -> str:
    """Return by which constant two expected gradients differ.

    >>> import sympy
    >>> from klsym.engine.questions.comparison import OPEN_ANSWER
    >>> describe_multiple(Multiple(sympy.Integer(-2), OPEN_ANSWER), ("k2", "B"))
    'Opposite directions: the expected gradient of B is -2 times that of k2'
    """
    words = OPPOSITE if multiple.factor.could_extract_minus_sign() else MULTIPLE
    return words.format(names[1], show(multiple.factor, TEXT), names[0])


def list_noise(found: PrintedComparison, names: dict[str, str]) -> list[tuple[str, str]]:
    """Return which gradient varies less, and where; nothing where variances are not compared."""
    spread = found.variance
    if spread is None:
        return [("noise", NOISE["equal"])] if found.per_sample.same else []
    text = NOISE[spread.lower].format_map(names)
    where = "" if spread.lower in SAME else f"; {names['B']} has the smaller gradient where {spread.region}"
    return [("noise", f"{text}{where}")]


def list_noise_at_optimum(found: PrintedComparison, names: tuple[str, str]) -> list[tuple[str, str]]:
    """Return whether the gradient of a loss over a batch is noisy where its expectation is 0."""
    by_reward: dict[str, list[str]] = {}
    for name, end in zip(names, found.at_optimum, strict=False):
        if end is not None:
            reward = formulas.show_element(end.reward)
            by_reward.setdefault(reward, []).append(AT_OPTIMUM[end.is_noiseless].format(name))
    texts = [f"at R = {reward}: {' and '.join(said)}" for reward, said in by_reward.items()]
    size = ", m = n - 1" * any("/m" in reward for reward in by_reward)
    return [("optimum", f"{'; '.join(texts)} (nu is a number{size})")] if texts else []


# ---------------------------------------------------------------------------- proofs
def list_proof_lines(found: PrintedComparison) -> list[str]:
    """Return the variances, the models, the counterexamples and the hypotheses."""
    lines = _spread_lines(found.variance) if found.variance else []
    proofs = [(name, end.proof) for name, end in zip(LETTERS, found.at_optimum, strict=False) if end]
    if rows := [f"  {name}: {proof}{CANCELS * _is_empty(proof)}" for name, proof in proofs if proof]:
        lines += ["", "Where training ends (R is replaced by its value there)", *rows]
    for name, answer in found.named_answers:
        if answer.witness:
            lines += ["", f"Counterexample: {name}, {answer.witness['refutes']}"]
            lines += list_model_lines(answer.witness)
    return lines + format_list("Not decided", found.undecided) + format_list("Hypotheses", found.hypotheses)


def _spread_lines(spread: PrintedSpread) -> list[str]:
    """The difference of the variances, where it is positive, and what is proved about its sign."""
    lines = ["", "Variance of the gradient at a sample (s stands for u.s, along any direction u)"]
    lines += [f"  grad {name} = {_times_s(c)}" for name, c in zip("AB", spread.coefficients, strict=True)]
    minus = f" - {spread.correction}" if spread.correction else ""
    lines += [f"  Var A - Var B = {spread.difference}{minus}"]
    if not spread.exact:
        lines += ["  where the first term is the difference of the second moments"]
    lines += [f"  B adds no more than A to the second moment at a sample: {spread.region}"]
    if spread.lower in ("A", "B"):
        lines += [f"  proved: {_ordered('Var', spread.lower)}"]
    lines += [f"  proved: {_theorem(proof)}" for proof in (*spread.signs, *spread.order) if _told(proof)]
    if spread.regional:
        what = "Var" if spread.exact else "E[(grad {})^2]"
        lines += [f"  proved: {_ordered(what, spread.regional_lower)} if {spread.where}"]
    for name, proof in (("A", spread.a_less), ("B", spread.b_less)):
        if proof:
            lines += _variance_lines(name, spread.witness(proof))
    return lines


def _ordered(what: str, lower: str) -> str:
    pair = ("A", "B") if lower == "A" else ("B", "A")
    return " <= ".join(what.format(name) if "{}" in what else f"{what} {name}" for name in pair)


def _told(proof: Any) -> bool:
    """Var A = Var B with one and the same formula on both sides says nothing."""
    statement = proof.theorem.statement
    return bool(statement.left != statement.right)


def _is_empty(proof: Any) -> bool:
    return not proof.theorem.statement.left.terms


def _theorem(proof: Any) -> str:
    """Where a number would have to be 0 for both sides to be equal, they never are."""
    never = any(_is_never(zero) for zero in proof.theorem.zeros)
    return show_statement(proof.theorem.statement, proof.labels) if never else str(proof)


def _is_never(zero: Any) -> bool:
    varies = zero.constant or zero.score or zero.element.names() or zero.factor.names()
    return bool(not varies and zero.weight == ONE and zero.element)


def _times_s(coefficient: str) -> str:
    if coefficient in ("0", "1", "-1"):
        return {"0": "0", "1": "s", "-1": "-s"}[coefficient]
    return f"({coefficient})*s" if is_sum(coefficient) else f"{coefficient}*s"


def _variance_lines(name: str, witness: dict[str, Any]) -> list[str]:
    """A model; the left side of what it refutes is the larger variance."""
    high, low = show_interval(witness["left"]), show_interval(witness["right"])
    a, b = (low, high) if name == "A" else (high, low)
    return ["", f"{name} varies less here", *list_model_lines(witness)[:-1], f"  Var A = {a}, Var B = {b}"]
