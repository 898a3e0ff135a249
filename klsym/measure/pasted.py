"""Pasted statements as a loss of one batch: their free names are its fields, or numbers."""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import dedent
from typing import Any, NamedTuple

from klsym.errors import UsageError, spell_option
from klsym.language.library_calls import list_unknown_calls
from klsym.language.pasted.asked_names import ask_for_value
from klsym.language.pasted.function import PastedFunction, is_pasted, write_function
from klsym.language.pasted.names import (
    REDUCING,
    has_call,
    is_padding_mask,
    is_told_by_name,
    list_chain,
    list_summed_names,
    names_mask,
    split_operands,
)
from klsym.language.pasted.rewards_of_tokens import list_spread_names
from klsym.language.pasted.text import find_assigned_name, parse_python
from klsym.language.read_names import read_names
from klsym.language.spellings import read_loss
from klsym.language.training_names import (
    AMBIGUOUS,
    REFERENCE,
    find_logits,
    is_coefficient,
    is_training_setting,
    names_drawn_word,
    names_state_value,
    split_words,
)
from klsym.language.typeset.own_samples import refuse_own_samples
from klsym.language.typeset.plain_text import is_formula_of_papers, spell_means_as_code
from klsym.language.typeset.tokens import is_latex, quote_part
from klsym.language.typeset.translating import translate
from klsym.measure.batch import Batch
from klsym.measure.binding import BoundLoss, Shape, bind_loss, guess_field, load_function
from klsym.measure.libraries import Loss
from klsym.measure.measurement import Setting

NUMBERS = {
    "eps": 0.2, "epsilon": 0.2, "clip": 0.2, "low": 0.2, "high": 0.28, "temperature": 2.0, "T": 2.0,
    "tau": 0.5, "cap": 2.0, "max": 2.0, "C": 2.0, "c": 3.0,
}  # fmt: skip
"""The last word of a coefficient, and a usual value of it; 0.1 for others."""

LETTERS = {"p": "ref_probs", "q": "probs"}
OF_POLICIES = {
    "logp", "ref_logp", "old_logp", "logits", "ref_logits", "old_logits", "probs", "ref_probs", "old_probs",
    "prob", "ref_prob", "old_prob",
}  # fmt: skip
OF_REFERENCE = {"ref_logp": "logp", "ref_logits": "logits", "ref_probs": "probs", "ref_prob": "prob"}
OF_OLDER = {"old_logp", "old_logits", "old_probs", "old_prob", "ratio"}
OF_WORDS = {"logp": "logits", "ref_logp": "ref_logits", "old_logp": "old_logits", "probs": "probs",
            "ref_probs": "ref_probs", "old_probs": "old_probs"}  # fmt: skip


def bind_code(loss: Any, map: Mapping[str, str], set: Mapping[str, Any]) -> BoundLoss:
    """Return a loss as a function of one batch: of a function, of its place, or of pasted statements."""
    if isinstance(loss, str) and (is_latex(loss) or is_formula_of_papers(loss)):
        loss = _write_formula_as_code(loss)
    is_text = isinstance(loss, str) and is_pasted(loss)
    return bind_pasted(loss, map, set) if is_text else bind_loss(loss, map, set)


def _write_formula_as_code(text: str) -> str:
    """Return the code of a formula of papers, or of the mean of code that is typed as E[..]."""
    try:
        formula = translate(text)
    except UsageError:
        of_code = spell_means_as_code(text)
        if of_code == text or not is_pasted(of_code):
            raise
        return of_code
    refuse_own_samples(quote_part(text), read_loss(formula.text).expression, formula.sampler)
    return formula.code


class Plan(NamedTuple):
    """How pasted statements become a loss: the function, the fields of its names, numbers, and its shape."""

    pasted: PastedFunction
    fields: dict[str, str]
    numbers: dict[str, float]
    shape: Shape


def bind_pasted(text: str, map: Mapping[str, str], set: Mapping[str, Any]) -> BoundLoss:
    """Return pasted statements as a function of one batch.

    A coefficient gets a usual number, which the answer says; a loss that the code does not reduce is added up
    over the tokens of a sequence, and averaged over samples.

    >>> bind_pasted("-logp*adv + self.beta*ref_logp", {}, {}).describe("on-policy")[0]
    'guessed from the name: adv is rewards'
    """
    plan = plan_pasted(text, map, set)
    with TemporaryDirectory() as folder:
        path = Path(folder, "pasted.py")
        path.write_text(plan.pasted.source, encoding="utf-8")
        function = load_function(f"{path}:{plan.pasted.name}")
    bound = bind_loss(function, {**plan.fields, **map}, {**plan.numbers, **set})
    guessed = {**bound.guessed, **{name: field for name, field in plan.fields.items() if name not in map}}
    wrapped = wrap_as_batch_loss(function, bound.fields, {**plan.numbers, **set}, plan)
    return BoundLoss(
        wrapped, bound.fields, guessed, plan.numbers, shape=plan.shape, assumed=plan.pasted.assumed
    )


def plan_pasted(text: str, map: Mapping[str, str], set: Mapping[str, Any]) -> Plan:
    """Return what the names of pasted statements are; nothing is run.

    Raises UsageError: a name whose field is unknown, or two names for one policy.
    """
    reading, left_out = read_names(text), frozenset[str]()
    while True:
        pasted = write_function(text, left_out)
        of_words = reading.of_words | pasted.of_words
        named = {name: _guess(name, of_words) for name in pasted.arguments}
        named |= dict.fromkeys(reading.ratios & named.keys(), "ratio")
        numbers = {
            name: NUMBERS.get(name, NUMBERS.get((split_words(name) or [""])[-1], 0.1))
            for name, field in named.items()
            if name not in (*map, *set) and field is None and is_number(name)
        }
        fields = {name: field for name, field in named.items() if field and name not in set} | {**map}
        unknown = [name for name in pasted.arguments if name not in (*fields, *numbers, *set)]
        if not unknown:
            break
        given = list_names_computed_from(text, unknown[0]) - left_out
        if not given:
            raise UsageError(_ask_for(unknown[0]))
        left_out |= given
    policies = [(field, name) for name, field in fields.items() if field in OF_POLICIES and name not in map]
    for field in dict(policies):
        if len(same := [name for one, name in policies if one == field]) > 1:
            option = spell_option("map", f"{same[0]}=FIELD")
            raise UsageError(f"{' and '.join(same)} would both be {field}: say what they are with {option}")
    refuse_without_policy(policies, {*fields.values()})
    padded = not pasted.arguments or "mask" in fields.values()
    per_token = list_masked_names(text) - pasted.per_sample if padded else frozenset()
    per_sample = {*named} if not padded else pasted.per_sample | (pasted.averaged - per_token)
    fields |= {name: "rewards[t]" for name in per_token - {*map} if fields.get(name) == "rewards"}
    fields |= {name: "rewards" for name in per_sample if fields.get(name) == "rewards[t]" and name not in map}
    compares = any(fields.get(name) in ("rewards", "rewards[t]") for name in pasted.averaged)
    one_token = not padded and not sums_over_tokens(text, of_words)
    guessed = {name: field for name, field in fields.items() if name not in map}
    has_older = bool({*fields.values()} & OF_OLDER)
    two_valued = any(fields.get(name, "").startswith("rewards") for name in list_equated_names(text))
    return Plan(
        pasted, guessed, numbers, Shape(one_token, padded, compares, has_older, two_valued=two_valued)
    )


def list_masked_names(text: str) -> frozenset[str]:
    """Return the names of values that a mask multiplies one by one, and that nothing spreads over tokens.

    >>> sorted(list_masked_names("m = a.mean(); x = (a - m)**2*mask; y = b[:, None]*mask; z = c.sum()*mask"))
    ['a']
    """
    tree = parse_python(dedent(text).strip())
    trees: dict[str, list[ast.expr]] = {}
    products: list[tuple[ast.expr, ast.expr]] = []
    for node in ast.walk(tree):
        match node:
            case ast.Assign([ast.Name(name)], value):
                trees.setdefault(name, []).append(value)
            case ast.BinOp(left, ast.Mult(), right):
                products += [(left, right), (right, left)]
    masked = (x for x, mask in products if names_mask(mask) and not has_call(mask))
    names = (name for x in masked for name in list_summed_names(x, trees))
    return frozenset(name.rpartition(".")[2] for name in names) - list_spread_names(tree.body, trees)


def list_equated_names(text: str) -> frozenset[str]:
    """Return the names that are compared with == or !=.

    >>> sorted(list_equated_names("where(R == 1, x, y)*(a > 0)"))
    ['R']
    """
    compared = [
        node for node in ast.walk(parse_python(dedent(text).strip())) if isinstance(node, ast.Compare)
    ]
    equated = (node.left for node in compared if isinstance(node.ops[0], ast.Eq | ast.NotEq))
    return frozenset(name for node in equated for name in list_chain(node)[-1:])


def is_runnable(text: str) -> bool:
    """Is it code of a policy, all names of which are known?  Nothing is run.

    >>> is_runnable("torch.cumsum(logp, 0).sum()"), is_runnable("logp*unknown"), is_runnable("k3 +")
    (True, False, False)
    """
    try:
        plan = plan_pasted(text, {}, {})
    except UsageError:
        return False
    return bool({*plan.fields.values()} & OF_POLICIES)


def list_names_computed_from(text: str, unknown: str) -> frozenset[str]:
    """Return the names that are assigned what is computed of an unknown one, and that say what they are.

    >>> list_names_computed_from("lp = net(x)\\nd = lp - y\\nloss = d*adv", "x")
    frozenset({'lp'})
    >>> list_names_computed_from("A = (x - x.mean())/x.std()\\nloss = -A*logp", "x")
    frozenset()
    """
    lines = [line for line in parse_python(text.strip()).body if isinstance(line, ast.Assign)]
    results: set[str] = set()
    assigned: set[str | None] = set()
    for line in lines:
        name = find_assigned_name(line)
        names = {x.id for x in ast.walk(line.value) if isinstance(x, ast.Name)}
        is_formula = any(isinstance(x, ast.BinOp) for x in ast.walk(line.value)) and not list_unknown_calls(
            line
        )
        is_told = name and not is_formula and is_told_by_name(name, line.value) and _guess(name, ())
        if name and unknown in names and not names & assigned and is_told:
            results.add(name)
        assigned.add(name)
    return frozenset(results)


def _guess(name: str, of_words: Collection[str]) -> str | None:
    """Return the field of a name: of all words if the code adds it up over them, else of the drawn one."""
    if name in AMBIGUOUS:
        return None
    field = (
        LETTERS.get(name)
        or guess_field(name)
        or ("tokens" if names_drawn_word(name) and not is_number(name) else None)
    )
    if (field == "mask" and not is_padding_mask(name)) or (field == "tokens" and not names_drawn_word(name)):
        return None
    if name in of_words:
        return OF_WORDS.get(field or "", field)
    return field.removesuffix("s") if field in ("probs", "ref_probs", "old_probs") else field


def _ask_for(name: str) -> str:
    if name == "tf":
        return "TensorFlow's code is not run, PyTorch's and JAX's is: klsym explain reads it"
    example = (
        AMBIGUOUS.get(name, "").format(name)
        or ask_for_value(name)
        or f"such as `{name} = logp; ..` or `{name} = R; ..`"
    )
    options = f"{spell_option('map', f'{name}=FIELD')} or {spell_option('set', f'{name}=VALUE')}"
    return f"what is {name!r}?  A line before says it, {example}; or {options}"


def is_number(name: str) -> bool:
    """Is it the usual name of a number that is the same for all samples, or of what a critic says?"""
    if name in AMBIGUOUS:
        return False
    return is_coefficient(name) or is_training_setting(name) or names_state_value(name) or name == "T"


def sums_over_tokens(text: str, of_words: Collection[str]) -> bool:
    """Has the code a mean or a sum over an axis that is not that of the vocabulary?

    >>> sums_over_tokens("(logp.sum(-1)*R).mean()", ()), sums_over_tokens("(q*logq).sum(-1)", ("q", "logq"))
    (True, False)
    """
    tree = parse_python(text.strip())
    trees: dict[str, list[ast.expr]] = {}
    for node in ast.walk(tree):
        match node:
            case ast.Assign([ast.Name(name)], value) | ast.AugAssign(ast.Name(name), value=value):
                trees.setdefault(name, []).append(value)
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and split_operands(node)[0] in REDUCING):
            continue
        operands = split_operands(node)[1]
        has_axis = len(operands) > 1 or any(keyword.arg in ("dim", "axis") for keyword in node.keywords)
        names = list_summed_names(operands[0], trees) if operands else frozenset()
        if has_axis and not any(name in of_words or find_logits(name) for name in names):
            return True
    return False


def refuse_without_policy(policies: list[tuple[str, str]], fields: Collection[str]) -> None:
    """Refuse guesses that leave a loss with the reference alone, such as log_p for a log-probability.

    policies: field and name of each guess that is of a policy.  fields: all fields of the loss.
    """
    doubtful = [(field, name) for field, name in policies if not {*split_words(name)} & REFERENCE]
    if not doubtful or {*fields} & (OF_POLICIES | OF_OLDER) - OF_REFERENCE.keys():
        return
    field, name = doubtful[0]
    option = spell_option("map", f"{name}={OF_REFERENCE[field]}")
    raise UsageError(
        f"{name} would be {field}, and no other name is of the policy: for that of the policy choose {option}"
    )


def wrap_as_batch_loss(function: Any, fields: Mapping[str, str], set: Mapping[str, Any], plan: Plan) -> Loss:
    """Return the loss of one batch; what the code does not reduce is added up, or averaged over samples."""

    def run(batch: Batch) -> Any:
        values = {name: batch.read_role(role) for name, role in fields.items()}
        values |= {name: values[name] > 0 for name in plan.pasted.indices if name in values}
        if plan.shape.one_token:
            values = {name: x[:, 0] if getattr(x, "ndim", 0) > 1 else x for name, x in values.items()}
        loss = function(**values, **set)
        if getattr(loss, "ndim", 0) > 1 and loss.shape == batch.mask.shape:
            loss = (loss * batch.mask).sum(-1)
        return loss.mean() if getattr(loss, "ndim", 0) > 0 else loss

    run.__wrapped__ = function  # type: ignore[attr-defined]
    return run


class AdaptedWorlds(NamedTuple):
    """The worlds that pasted code needs, and what that takes for granted."""

    setting: Setting
    binary: bool
    assumed: tuple[str, ...]


def adapt_worlds(shape: Shape, setting: Setting, binary: bool, is_typed: bool) -> AdaptedWorlds:
    """Return worlds in which the code can run; is_typed: whether sampling is chosen already."""
    assumed = []
    if shape.has_older and not is_typed:
        on_policy = spell_option("sampling", "on-policy")
        assumed += [f"assumed: samples from an older policy, which the code has; {on_policy}: from q"]
        setting = replace(setting, sampling="off-policy")
    if shape.two_valued and not binary:
        assumed += ["assumed: rewards are 0 or 1, as the code compares them with =="]
    setting = replace(
        setting,
        group=max(setting.group, 3) if shape.compares else setting.group,
        fixed_length=setting.fixed_length or not shape.padded,
        length=1 if shape.one_token else setting.length,
    )
    return AdaptedWorlds(setting, binary or shape.two_valued, tuple(assumed))
