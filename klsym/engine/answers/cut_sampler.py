"""explain for sums over tokens of a sampler that is cut off at every token.  Untrusted.

M is 1 at each word that is drawn.  The sampler mu = M q/S is held as it is at theta; S is the mass that M
keeps after the prefix.  The verdict is that of an off-policy loss under any mu << q, with rho = q/sg(q) in
the loss.  A verdict that needs q << mu is open, because no weight recovers a word with M = 0.  All
counterexamples have M = 1, where mu is q: a finite model of the kernel has no word that is never drawn.

>>> from klsym.language.expressions import k2
>>> setting = Setting("truncated", level="token", weights="token")
>>> rewrite_under_mu(Written("rho*k2", rho * k2), setting)[0].text
'exp(log_q - sg(log_q))*k2'
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from itertools import islice

import sympy

from klsym.engine.fields.field import reduce_typed_loss
from klsym.engine.fields.in_trees import choose_tree_values, substitute_in_context, substitute_tree_values
from klsym.engine.options.settings import Setting
from klsym.engine.proof.counterexamples import choose_rows, generate_tree_models
from klsym.engine.proof.derivation import derive
from klsym.engine.proof.sequence_quantities import curl
from klsym.engine.proof.shown_counterexample import describe_counterexample
from klsym.engine.targets.counterexample import find_counterexample
from klsym.engine.verdicts.lazy import Chain, Search
from klsym.engine.verdicts.verdict import (
    WITHOUT_NAME,
    Counterexample,
    ExpectedValue,
    TargetReading,
    Verdict,
)
from klsym.errors import ProofError, Refused
from klsym.kernel.names import parse_name
from klsym.language.convert import to_ring
from klsym.language.expressions import M, Weight, exp, log_mu, log_q, rho, sg
from klsym.language.messages import Message
from klsym.notation import losses
from klsym.notation.losses import Written
from klsym.notation.printers import TEXT
from klsym.worlds.draw import add_rows

UNMET = Message("support", first="q", second="mu")
MOST_TREES = 40  # that are tried for a curl
WEIGHED = ("missing-weight", "prefixes-of-mu")  # of weights that would bring samples back to q


def restrict_to_drawn_words(written: Written) -> Written:
    """Return the loss at a word that is drawn, where M is 1.

    >>> restrict_to_drawn_words(Written("M**2*log_q", M**2 * log_q)).text
    'log_q'
    """
    e = written.expression.xreplace({M: sympy.S.One})
    if e == written.expression:
        return written
    notes = (*written.notes, Message("drawn-words-are-kept"))
    return Written(losses.show(e, TEXT), e, written.typed or written.text, notes)


def rewrite_under_mu(written: Written, setting: Setting) -> tuple[Written, Setting]:
    """Return the off-policy loss for a sampler that is cut off at each token."""
    e = written.expression.xreplace({rho: setting.weighting.typed})
    e = e.replace(lambda x: isinstance(x, Weight), lambda x: exp(x.args[0] - x.args[1]))
    e = e.xreplace({log_mu: sg(log_q)})
    text = written.text if e == written.expression else losses.show(e, TEXT)
    notes = (*written.notes, Message("cut-at-tokens"))
    reading = Written(text, e, written.typed or written.text, notes)
    return reading, replace(setting, sampling="off-policy", weights=setting.weights and "token")


def restrict_to_cut_sampler(verdict: Verdict, written: Written) -> Verdict:
    """Return the verdict under mu = M q/S; open where it needs q << mu."""
    verdict = _keep_objective_theorem(verdict)
    if UNMET in verdict.assumptions:
        return _make_open(verdict)
    if verdict.target == "no-objective":
        verdict = _prove_curl_without_cut(verdict, written)
    messages = tuple(message for message in verdict.messages if message.code not in WEIGHED)
    value_is_known = UNMET not in verdict.value.assumptions
    search = verdict.counterexample.source
    if isinstance(search, Search) and verdict.target != "no-objective":
        whole = Search(find_counterexample, *search.arguments, True)
        verdict = verdict.revise(counterexample=Counterexample(whole))
    return verdict.revise(
        messages=(*messages, Message("words-never-drawn")),
        value=verdict.value if value_is_known else ExpectedValue(),
    )


def _make_open(verdict: Verdict) -> Verdict:
    """Return an open verdict with the gradient at a token, where the theorems need q << mu."""
    assumptions = tuple(message for message in verdict.assumptions if message != UNMET)
    return verdict.revise(
        gradient=TargetReading(),
        canonical_coefficient=None,
        in_quantities=None,
        remarks=(Message("open-support"),),
        terms=(),
        value=ExpectedValue(),
        formula=None,
        quantity=None,
        trust="open",
        assumptions=assumptions,
        messages=(Message("words-never-drawn"),),
        theorems=(),
        steps=(),
        counterexample=Counterexample(),
    )


def _keep_objective_theorem(verdict: Verdict) -> Verdict:
    """Keep the theorem that it is the gradient of a mean under mu, if only others need q << mu."""
    usable = tuple(proof for proof in verdict.proof.theorems if UNMET not in proof.assumptions)
    if UNMET not in verdict.assumptions or not usable or verdict.target not in WITHOUT_NAME:
        return verdict
    dropped = {message for proof in verdict.proof.theorems for message in proof.assumptions}
    dropped -= {message for proof in usable for message in proof.assumptions}
    return verdict.revise(
        canonical_coefficient=None,
        gradient=TargetReading(verdict.target),
        steps=Chain(usable[0]),
        theorems=usable,
        assumptions=tuple(message for message in verdict.assumptions if message not in dropped),
    )


def _prove_curl_without_cut(verdict: Verdict, written: Written) -> Verdict:
    """Return the verdict with a certified curl at M = 1, or an open one."""
    field = reduce_typed_loss(written, verdict.setting)
    if field.attached_loss is not None:
        values = choose_tree_values(field.loss)
        one_advantage = substitute_tree_values(field.attached_loss, values)
        start = derive(curl(one_advantage, "mu"), defined=substitute_in_context(field.loss.defined, values))
        names = {parse_name(name).base for name in to_ring(one_advantage).names()}
        for model in islice(generate_tree_models(start.context, on_policy=True), MOST_TREES):
            with suppress(ProofError, Refused):
                refutation = start.differs_from(0, model=add_rows(model, choose_rows(names, start.context)))
                return verdict.revise(
                    theorems=(verdict.proof.theorems[0], refutation),
                    counterexample=Counterexample(describe_counterexample(refutation)),
                    trust="kernel",
                )
    return verdict.revise(
        gradient=TargetReading(),
        trust="open",
        in_quantities=None,
        counterexample=Counterexample(),
        remarks=(*verdict.gradient.remarks, Message("open-no-tree")),
    )
