"""What to write instead of a loss, each with its trust.

>>> from klsym.api import explain
>>> list_fixes(explain("k3")), list_fixes(explain("A*log_q"))
([('k2: minimises KL(q||p) = KL(policy || reference)', 'proved')], [('-A*log_q: maximises E_q[A]', 'proved')])
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import sympy

from klsym.diagnostics.reward_signs import find_opposed_reward
from klsym.engine.answers.dispatch import as_written, explain_written
from klsym.engine.answers.suggestion import has_penalty
from klsym.engine.regions.extremes import take_larger_losses
from klsym.errors import KlsymError, add_options
from klsym.language.expressions import ATOMS, A, R, log_mu, log_old, log_p, rho, unfold
from klsym.language.pasted.text import is_statements, parse_python
from klsym.language.recognition import recognise
from klsym.notation import losses
from klsym.notation.printers import TEXT, is_sum
from klsym.render.headline import TRUST, UNNAMED, find_update, name_trust
from klsym.render.question import ENTROPY, describe_kind, find_old_penalty, write_kl

if TYPE_CHECKING:
    from klsym.notation.losses import Written
    from klsym.render.verdict import PrintedVerdict

MAX_PENALTY = 24  # characters of a term that is named in its fix
OF_OLD = "(log_q - log_old)**2/2"
K3 = "{exp}({p} - {q}) - ({p} - {q}) - 1"
SPELLINGS = {
    "k1": "{q} - {p}",
    "k2": "0.5*({q} - {p})**2",
    "k3": K3,
    "rho*k3": f"{{exp}}({{q}} - {{mu}})*({K3})",
    "rho*k1": "{exp}({q} - {mu})*({q} - {p})",
}
GRADIENT = "a policy gradient"
WRONG_SIGN = "the wrong sign"
LOWERING = ("lowers", "lowers-rising-reward")


def list_fixes(verdict: PrintedVerdict) -> list[tuple[str, str]]:
    """Return the losses to write instead, with what they do, and how far that is known."""
    return [
        *_fix_sign(verdict),
        *_fix_inverted_weight(verdict),
        *_fix_ratio_to_reference(verdict),
        *_fix_penalty(verdict),
        *_fix_entropy(verdict),
        *_fix_penalty_to_old(verdict),
    ]


def _fix_penalty(verdict: PrintedVerdict) -> Iterator[tuple[str, str]]:
    instead = verdict.fix
    if instead is None or find_old_penalty(verdict, verdict.is_ascended):
        return
    spelled, place = spell_loss(instead.loss, verdict), ""
    times = "-" * verdict.is_ascended  # of a penalty that is added to the reward
    if instead.beside:
        penalty = _find_penalty(verdict)
        if penalty is not None and penalty.loss == instead.loss:  # a term that is right, beside others
            return
        times = "" if penalty is None else _find_coefficient(penalty)
        times = "-" * (verdict.setting.is_reward and penalty is not None) + times
        place = f" in place of {'the penalty' if penalty is None else penalty.loss}"
    loss, code = (f"{times}{_bracket(text) if times else text}" for text in (instead.loss, spelled))
    name = f"{code} ({loss})" if spelled else loss
    options = dict(change.split() for change in instead.changed)
    a, b = instead.kl
    yield f"{add_options(name, options)}{place}: minimises KL({a}||{b}) = {write_kl(a, b)}", "proved"


def _bracket(text: str) -> str:
    return f"({text})" if is_sum(text) else text


def _find_penalty(verdict: PrintedVerdict) -> Any:
    """Return the one term of a sum that has a reference and no reward; None where there are others."""
    terms = [term for term in verdict.gradient.terms if (typed := term.verdict.loss.written) is not None
             and typed.expression.has(log_p) and not typed.expression.has(R, A)]  # fmt: skip
    return terms[0] if len(terms) == 1 and len(terms[0].loss) <= MAX_PENALTY else None


def _find_coefficient(term: Any) -> str:
    """Return the numbers and parameters that a term is a multiple of, without a sign: "0.04*" of "-0.04*k3".

    >>> from klsym.api import explain
    >>> [_find_coefficient(term) for term in explain("A*log_q - 0.04*k3 + beta*rho*k2").gradient.terms]
    ['', '1/25*', 'beta*']
    """
    factors = sympy.Mul.make_args(term.verdict.loss.written.expression)
    kept = (abs(x) for x in factors if x.is_number or (x.is_Symbol and x.name not in ATOMS))
    coefficient = sympy.Mul(*kept).replace(sympy.Abs, lambda x: x)
    return "" if coefficient == 1 else f"{losses.show(coefficient, TEXT)}*"


def spell_loss(loss: str, verdict: PrintedVerdict) -> str:
    """Write a short loss in the names of a pasted one; empty where it was typed in the grammar.

    >>> from klsym.api import explain
    >>> spell_loss("k2", explain("(ref_logp - logp).exp() - (ref_logp - logp) - 1"))
    '0.5*(logp - ref_logp)**2'
    """
    names = _find_typed_names(verdict)
    exp = next(
        (f"{library}.exp" for library in ("torch", "jnp", "np") if f"{library}." in verdict.loss.text), "exp"
    )
    if loss not in SPELLINGS or not {"log_q", "log_p"} <= {*names}:
        return ""
    text = SPELLINGS[loss].format(q=names["log_q"], p=names["log_p"], mu=names.get("log_mu", ""), exp=exp)
    return "" if "mu}" in SPELLINGS[loss] and "log_mu" not in names else text


def _find_typed_names(verdict: PrintedVerdict) -> dict[str, str]:
    """Return the name that was typed for each symbol of the grammar."""
    written = verdict.loss.written
    notes = written.notes if written is not None else ()
    pairs = (pair for m in notes if m.code == "names-read" for pair in m.values["pairs"])
    return {role: typed for typed, role in pairs}


def _fix_sign(verdict: PrintedVerdict) -> Iterator[tuple[str, str]]:
    """Put a minus before the terms with the wrong sign, if the rewards of the loss then rise."""
    written = verdict.loss.written
    if written is None or not any(_is_against_reward(m) for d in verdict.diagnostics for m in d.messages):
        return
    try:
        expressions = {t: t.verdict.loss.written or as_written(t.loss, ()) for t in verdict.gradient.terms}
    except KlsymError:  # a term has parameters that were declared
        return
    rewards = [term for term, typed in expressions.items() if typed.expression.has(R, A)]
    wrong = [
        t for t in expressions if t in rewards or WRONG_SIGN in describe_kind(t.verdict, verdict.is_ascended)
    ]
    kept = [term for term in expressions if term not in wrong]
    e = written.expression - sum(expressions[term].expression for term in kept)
    try:
        changed = explain_written(as_written(take_larger_losses(-e), ()), verdict.setting)
    except KlsymError:
        return
    if WRONG_SIGN not in describe_kind(changed):
        update = replace(find_update(changed, changed.is_ascended), remark="", beyond="")
        says, trust = update.write_as_clause() if kept else update.write(), name_trust(changed)
        if UNNAMED in says:  # that its sign is turned is all there is to say
            if (reward := find_opposed_reward(verdict)) is None:
                return
            says, trust = f"makes a sample more likely the larger its {reward} is", TRUST["sympy"]
        yield f"{_flip_terms(verdict, wrong)}: {'without the penalty, ' * bool(kept)}{says}", trust


def _fix_inverted_weight(verdict: PrintedVerdict) -> Iterator[tuple[str, str]]:
    """Write q/mu for mu/q, in the names of a pasted loss."""
    messages = [m for d in verdict.diagnostics for m in d.messages if m.code == "one-change-away"]
    loss = next((m.values["of"] for m in messages if m.values["kind"] == "weight"), None)
    if loss is None:
        return
    changed = explain_written(as_written(loss, ()), verdict.setting)
    update = replace(find_update(changed, changed.is_ascended), remark="", beyond="")
    names = _find_typed_names(verdict)
    text = swap_differences(verdict.loss.text, names.get("log_mu", "log_mu"), names.get("log_q", "log_q"))
    try:
        is_read = bool(text) and as_written(text, ()).expression == loss
    except KlsymError:  # it has parameters that were declared
        is_read = False
    yield f"{text if is_read else losses.show(loss, TEXT)}: {update.write()}", name_trust(changed)


def _fix_ratio_to_reference(verdict: PrintedVerdict) -> Iterator[tuple[str, str]]:
    """Write q/mu for q/p where it weights a reward and no term is a penalty."""
    written = verdict.loss.written
    if written is None or verdict.setting.is_reward or has_penalty(written):
        return
    if describe_kind(verdict).startswith(GRADIENT):  # as that of -A*k1, whose score alone counts
        return
    e = written.expression
    if not (e.has(R, A) and e.has(log_p)) or e.has(log_mu, rho):
        return
    loss = recognise(unfold(e).xreplace({log_p: log_mu}))
    try:
        changed = explain_written(as_written(loss, ()), replace(verdict.setting, sampling="off-policy"))
    except KlsymError:  # it has parameters that were declared
        return
    if describe_kind(changed).startswith(GRADIENT):
        update = replace(find_update(changed, changed.is_ascended), remark="", beyond="")
        text = f"{losses.show(loss, TEXT)}, the ratio to the old policy in place of that to the reference"
        yield f"{text}: {update.write()}", name_trust(changed)


def swap_differences(text: str, first: str, second: str) -> str:
    """Return code with second - first for each first - second; empty if there is none.

    >>> swap_differences("-torch.exp(old_logp - logp)*A", "old_logp", "logp")
    '-torch.exp(logp - old_logp)*A'
    """
    try:
        nodes = [*ast.walk(parse_python(text))]
    except (SyntaxError, RecursionError, MemoryError, ValueError):
        return ""
    swapped = text
    for node in nodes:
        if (
            isinstance(node, ast.BinOp)
            and isinstance(node.op, ast.Sub)
            and node.lineno == node.end_lineno == 1
        ):
            pair = [ast.get_source_segment(text, side) for side in (node.left, node.right)]
            start, end = node.col_offset, node.end_col_offset
            if pair == [first, second]:  # the names have the same length in all, so that places stay
                middle = text[node.left.end_col_offset : node.right.col_offset]
                swapped = f"{swapped[:start]}{second}{middle}{first}{swapped[end:]}"
    return swapped if swapped != text else ""


def _flip_terms(verdict: PrintedVerdict, flipped: Sequence[Any]) -> str:
    """Return the loss as it was typed, with the other sign for these terms; for the whole without terms."""
    terms = verdict.gradient.terms
    if len(terms) == len(flipped):
        return _write_flipped(verdict.loss.text, verdict.loss.written)
    texts = (_write_flipped(x.loss, x.verdict.loss.written) if x in flipped else x.loss for x in terms)
    return " + ".join(texts).replace("+ -", "- ")


def _write_flipped(text: str, written: Written | None) -> str:
    """Return a loss with the other sign, as it was typed where that is a formula with a minus before it."""
    if written is None:
        return _negate(text)
    flipped = take_larger_losses(-written.expression)
    if flipped != -written.expression:
        return losses.show(flipped, TEXT)
    return _negate(losses.show(written.expression, TEXT) if is_statements(text) else text)


def _is_against_reward(message: Any) -> bool:
    if message.code == "against-reward":
        return True
    does = message.values.get("does", ())
    return message.code == "wrong-sign" and any(kind in LOWERING for (kind, _), _ in does)


def _negate(text: str) -> str:
    if text.startswith("-") and not is_sum(text[1:]):
        return text[1:]
    return f"-({text})" if is_sum(text) else f"-{text}"


def _fix_entropy(verdict: PrintedVerdict) -> Iterator[tuple[str, str]]:
    """Put a minus before the entropy where it makes the policy deterministic."""
    flipped = [t for t in verdict.gradient.terms if describe_kind(t.verdict, verdict.is_ascended) == ENTROPY]
    if flipped or describe_kind(verdict) == ENTROPY:
        yield f"{_flip_terms(verdict, flipped)}: an entropy bonus", name_trust(verdict)


def _fix_penalty_to_old(verdict: PrintedVerdict) -> Iterator[tuple[str, str]]:
    """Suggest a loss for KL(q||old), where the loss takes log_old as a reference and has no gradient."""
    written = verdict.loss.written
    if written is None or verdict.target != "zero" or not written.expression.has(log_old):
        return
    if written.expression.has(log_p, R, A) or verdict.setting.is_per_token or not verdict.setting.on_policy:
        return
    instead = explain_written(as_written(OF_OLD, ()), verdict.setting)
    if find_old_penalty(instead, instead.is_ascended):
        yield f"{OF_OLD}: minimises KL(q||old) = {write_kl('q', 'old')}", name_trust(instead)
