"""The judge of losses under a sampler that is cut off, of a sample and of tokens."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from support.judges import loss_judge
from support.judges.cut_worlds import cut_trees
from support.judges.loss_judge import Outcome, reason_of, written_out
from support.judges.loss_worlds import options
from support.judges.objective_judge import wrong_objectives
from support.losses.random_losses import Case
from support.oracle.grammar import derived, evaluate, plain
from support.oracle.losses import Setting
from support.oracle.numbers import Jet

WORDS, KEPT = 6, np.array([1.0, 1, 0, 1, 0, 1])


def world(seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    q, p = rng.dirichlet([1.0] * WORDS, size=2)
    return {"log_q": np.log(q), "log_p": np.log(p), "R": rng.normal(size=WORDS), "A": rng.normal(size=WORDS)}


def drawn(known: dict[str, np.ndarray]) -> np.ndarray:
    """The chances of the sampler: q where M = 1, over its mass there."""
    weights = np.exp(known["log_q"]) * KEPT
    return weights / weights.sum()


def names(known: dict[str, Any], moved: bool) -> Any:
    def find(name: str, slot: str | None = None) -> Any:
        if name == "log_q" and moved:
            return Jet(known["log_q"], np.ones(WORDS))
        if name == "log_mu":  # on-policy: a copy of q that does not move
            return known["log_q"]
        if name in ("M", "S", "beta"):
            return {"M": KEPT, "S": float(np.exp(known["log_q"]) @ KEPT), "beta": 0.3}[name]
        return known[name] if name in known else derived(name, find)

    return find


def literal(loss: str, use: str, known: dict[str, np.ndarray]) -> np.ndarray:
    """Along each logit: the mean of grad L, or of L s, over what is drawn."""
    value = evaluate(loss, names(known, moved=use == "loss"))
    pushes = np.broadcast_to(getattr(value, "a", 0.0) if use == "loss" else plain(value), WORDS) * drawn(
        known
    )
    return pushes - np.exp(known["log_q"]) * pushes.sum()  # s_i = e_i - q


def printed(coefficient: str, known: dict[str, np.ndarray]) -> np.ndarray:
    """E_q[c s]"""
    q = np.exp(known["log_q"])
    c = np.broadcast_to(plain(evaluate(coefficient, names(known, moved=False))), WORDS)
    return q * (c - q @ c)


def agree(loss: str, use: str, coefficient: str) -> bool:
    return all(
        np.allclose(literal(loss, use, w), printed(coefficient, w), rtol=1e-9, atol=1e-12)
        for w in map(world, range(4))
    )


# ---------------------------------------------------------------------------- the judge
def examined(case: Case) -> Outcome:
    """Let klsym explain a loss, and judge what it prints by the oracle."""
    if case.sampling != "truncated":
        return loss_judge.examine(case)
    import klsym
    from klsym.errors import UsageError

    try:
        verdict = klsym.explain(case.text, **options(case))
    except UsageError as refusal:
        return Outcome(case, "refused", (), str(refusal))
    except Exception as error:
        return Outcome(case, "crashed", (f"{type(error).__name__}: {error}"[:300],))
    answer = verdict.to_json()
    target = answer["gradient"]["target"]
    reason = reason_of(verdict) if target == "open" else ""
    return Outcome(case, target, tuple(complaints(case, answer)), reason, answer["trust"])


def complaints(case: Case, answer: dict[str, Any]) -> Iterator[str]:
    if case.level == "token":
        yield from wrong_objectives(case, answer)
        yield from complaints_at_tokens(case, written_out(answer))
        return
    yield from wrong_objectives(case, answer)
    coefficient = answer["gradient"]["coefficient"] or "0"
    if not agree(case.text, case.use, coefficient):
        yield f"coefficient {coefficient}: not the mean over what is drawn"


def complaints_at_tokens(case: Case, answer: dict[str, Any]) -> list[str]:
    """The printed gradient is that of the loss under M q/S, and it has no curl where it has an objective."""
    where, found = cut_trees(7), []
    setting = Setting(level="token", use=case.use, sampling="off-policy", credit=case.credit or "to-go")
    field = where.field(re.sub(r"\brho\b", "exp(log_q - sg(log_q))", case.text), setting)
    text = answer["gradient"]["per_sample"]
    text = text if re.search(r"\bs_|\bs\b", text) else f"({text})*s_now"
    if not np.allclose(field.a, where.form(text, "m").a, rtol=1e-8, atol=1e-10):
        found.append(f"gradient {text}: not the mean over what is drawn")
    jacobian = np.broadcast_to(field.ab, (where.logits, where.logits, np.shape(field.ab)[-1]))
    turned = np.abs(jacobian - jacobian.transpose(1, 0, 2)).max()
    if answer["gradient"]["target"] not in ("open", "no-objective") and turned > 1e-9:
        found.append(f"curl {turned:.1e} of what is said to have an objective")
    return found
