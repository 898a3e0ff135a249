"""The first two lines of an answer: the loss and its use, and what an update with it does.

>>> from klsym.engine.explain import explain
>>> title(explain("k1", sampling="off-policy")), does(explain("k1", sampling="off-policy"))
('k1: off-policy loss', 'minimises -KL(mu||q): it pushes q away from the sampling policy')
>>> does(explain("k3")), does(explain("-A*log_q + beta*k2"))
('minimises KL(p||q), the forward KL', 'maximises E_q[A] - beta*KL(q||p)')
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sympy

from klsym.engine.answers.is_correct import read_next_token_kl as kl_of_next_tokens
from klsym.engine.answers.term_analysis import find_zero_regions
from klsym.engine.verdicts.verdict import TargetReading, Verdict
from klsym.kernel.ring import ExpPoly
from klsym.language.convert import to_sympy
from klsym.language.expressions import SLOTTED, A, R, V, V_next, Weight, length
from klsym.notation.values import shown
from klsym.render.divergences import generated_text
from klsym.render.objective import VERB, describe_multiples, describe_objective
from klsym.render.sentences import sentence

NAMED = ("reverse-kl", "forward-kl", "combination")
KL = {"reverse-kl": "the reverse KL", "forward-kl": "the forward KL"}
KL_NAMES = {"KL(q||p)": KL["reverse-kl"], "KL(p||q)": KL["forward-kl"]}
PLACES = {"token": " at each token", "sequence": " of whole sequences"}
MAX_TYPED = 60  # characters of a pasted loss in the title; a longer one is shown as it was read
HELD = "with M and S held as they are at theta, "
# Codes that say why a target is open.
REASONS = ("open-", "adds-a-curl", "time-is-up", "too-many-regions", "outside-the-core")
TRUST = {"kernel": "proved", "sympy": "rests on SymPy", "numeric": "supported by numbers only"}


def trust_word(verdict: Verdict) -> str:
    """How far the target is known: one or two words."""
    return "open" if verdict.target is None else TRUST[verdict.trust]


def title(verdict: Verdict) -> str:
    """The loss as it was typed, and how it is used."""
    loss = verdict.read_as if verdict.read_as and len(verdict.loss) > MAX_TYPED else verdict.loss
    return f"{loss}: {use_words(verdict.asked or verdict.setting)}"


def use_words(setting: Any) -> str:
    """off-policy loss at each token, weights prefix."""
    first = f"{setting.sampling} {setting.use}{PLACES.get(setting.level, '')}"
    more = [f"credit {setting.credit}"] if setting.credit else []
    more += [f"weights {setting.weights}"] if setting.weights not in ("", "token") else []
    more += {"mean": ["divided by T"], "batch": ["over all tokens of the batch"]}.get(setting.aggregate, [])
    more += [f"batch {setting.batch}"] if setting.batch != "none" else []
    return ", ".join([first, *more])


def does(verdict: Verdict, ascends: bool | None = None) -> str:
    """What an update with the loss does: it descends a loss or a penalty, and ascends a reward.

    ascends: that of the reward of which the loss is a term.
    """
    ascends = verdict.ascends if ascends is None else ascends
    if verdict.target is None:
        return f"open: {_reason(verdict)}"
    if verdict.target == "zero":
        noise = "has zero expected gradient: it only adds noise"
        return "has zero gradient at every sample" if not verdict.pushes else noise
    penalty = verdict.setting.use == "reward" and not ascends and verdict.target != "none"
    return f"{'taken off the reward, ' * penalty}{HELD * verdict.setting.truncated}{_does(verdict, ascends)}"


def _does(verdict: Verdict, ascends: bool) -> str:
    if verdict.target in NAMED:
        return combination(verdict.gradient, ascends)
    beyond = no_gradient(verdict)
    inside = verdict.inside_clamps
    if inside is not None and inside.target in NAMED and inside.multiples and not inside.rest:
        said = combination(inside, ascends)
        return f"{said}{',' * (', ' in said)} where no bound binds{beyond}"
    return f"{_other(verdict, ascends)}{beyond}"


def combination(reading: TargetReading, ascends: bool) -> str:
    """A sum of multiples of the two KLs and of rewards, with the sign that reads best."""
    said = describe_multiples(reading.multiples, ascends)
    single = KL_NAMES.get(said.partition(" ")[2])
    policy_gradient = set(reading.multiples) == {"reward"} and said.startswith("maximises")
    return f"{said}, {single}" if single else said + " (a policy gradient)" * policy_gradient


def no_gradient(verdict: Verdict) -> str:
    """Where a bound takes the gradient away."""
    if verdict.setting.use == "reward":
        return ""
    return "".join(f"; {sentence(message)}" for message in find_zero_regions(verdict))


def _other(verdict: Verdict, ascends: bool) -> str:
    """An objective that is no combination of the KLs, or none at all."""
    kept = next_tokens(verdict)
    if verdict.target == "none":
        none = "has no objective: its expected gradient is not the gradient of any function"
        return f"{'ascends' if ascends else 'descends'} {kept}; it has no objective" if kept else none
    if (verdict.per_sample_cases or not ascends) and (gradient := policy_gradient(verdict, ascends)):
        return gradient  # between bounds an antiderivative of a reward says less
    if kept:
        return f"{VERB[ascends]} {kept}"
    turned = ascends != verdict.ascends  # a term that alone would be used the other way
    of_r = verdict.generated
    if of_r is not None and of_r.f is not None and not (of_r.reward and turned):
        return _few_pieces(of_r) if of_r.reward else f"{VERB[turned]} {_few_pieces(of_r)}"
    if said := describe_objective(verdict, ascends):
        pushes = any(m.code == "pushes-from-mu" and m.values["alone"] for m in verdict.messages)
        return f"{said}{': it pushes q away from the sampling policy' * pushes}"
    if verdict.shown:
        return f"has the expected gradient {verdict.shown}"
    if verdict.target == "f-divergence":
        return f"{VERB[ascends]} E_q[f(r)] with an f that has no formula here"
    return f"{VERB[ascends]} an objective that is no KL and has no name here"


def next_tokens(verdict: Verdict) -> str:
    """The KL of each next token, where the expected gradient is that of nothing else."""
    found = kl_of_next_tokens(verdict)
    if found is None:
        return ""
    times, name, of = found
    return f"{times} {KL[name]} of each next token, at prefixes of {of}".lstrip()


def _few_pieces(generated: Any) -> str:
    """f by a formula, or the number of its pieces where there are many."""
    whole = generated_text(generated)
    pieces = len(generated.pieces)
    return (
        f"E_q[f(r)] with an f of {pieces} pieces (--full shows it)"
        if pieces > 1 and len(whole) > 90
        else whole
    )


def _reason(verdict: Verdict) -> str:
    """Why the target is not known."""
    told = [m for m in (*verdict.remarks, *verdict.messages) if m.code.startswith(REASONS)]
    return (
        sentence(told[0]).removeprefix("open: ") if told else "neither a named objective nor shown to be none"
    )


def policy_gradient(verdict: Verdict, ascends: bool) -> str:
    """The gradient of a reward or advantage alone, with a weight: what it raises, and how it is weighed."""
    sign = 1 if ascends else -1
    values = [h for on, h in verdict.per_sample_cases if h != 0] or [_plain(verdict.h)]
    for reward in (A, R):
        weights = [sign * h / reward for h in values if h is not None and h.has(reward)]
        if not weights or len(weights) < len(values) or any(not _is_weight(w) for w in weights):
            continue
        of_prefixes = verdict.setting.level == "token" and not verdict.setting.on_policy
        if len(set(weights)) == 1 and of_prefixes and shown(weights[0]) == "rho_now":
            return f"maximises E[{reward}] of each token, at prefixes of mu"
        weighed = " or ".join(dict.fromkeys(map(shown, weights)))
        return f"a policy gradient: {reward} times the score, with the weight {weighed}"
    return ""


def _plain(h: Any) -> Any:
    """What multiplies the score of the sample or token itself; None where there is more."""
    if isinstance(h, Mapping):
        h = h["now"] if set(h) == {"now"} else None
    return to_sympy(h) if isinstance(h, ExpPoly) else h if isinstance(h, sympy.Expr) else None


def _is_weight(w: Any) -> bool:
    """Is it a positive factor of the ratio, the length and parameters alone?"""
    rest = w.replace(lambda e: isinstance(e, Weight), lambda e: sympy.Dummy("ratio", positive=True))
    bases = {x.name.partition("[")[0] for x in rest.free_symbols}
    varying = {x.name for x in (*SLOTTED, A, V, V_next) if x != length}
    return not bases & varying and not w.could_extract_minus_sign()
