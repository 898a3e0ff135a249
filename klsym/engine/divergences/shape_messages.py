"""Messages on objectives that are no divergence: where they push q away from p, or fall without end."""

from __future__ import annotations

from klsym.engine.divergences.f_divergence import Functional, Generated, Inequality, Where
from klsym.kernel.names import SAMPLE_BASES
from klsym.language.messages import Message


def generated_messages(found: Generated) -> tuple[Message, ...]:
    """For a coefficient c(r) = f(r) - r f'(r)."""
    said = []
    if found.strength is not None and not found.strength:
        said.append(Message("no-restoring-force"))
    if found.where and not found.is_divergence and not _for_weights(found.where):
        said.append(Message("pushes-away", where=found.where))
    if found.unbounded:
        said.append(Message("unbounded-below"))
    return tuple(said)


def functional_message(found: Functional) -> tuple[Message, ...]:
    """Where c does not rise with log q."""
    if found.is_convex is not False or (found.where and _for_weights(found.where)):
        return ()
    return (Message("held-weakly", where=found.where, of=found.of),)


def _for_weights(where: Where) -> bool:
    """Is it everywhere for positive parameters, as weights are?  Or a matter of their signs alone?"""
    if not isinstance(where, Inequality) or where.always is None:
        return False
    of_sample = where.element.names() & {*SAMPLE_BASES}
    return not (of_sample and any(v < 0 for e in where.always for v in e.terms.values()))
