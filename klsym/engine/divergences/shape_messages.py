"""Messages on objectives that are no divergence: where they push q away from p, or fall without end."""

from __future__ import annotations

from klsym.engine.divergences.f_divergence import Functional, Generated, Inequality, Where
from klsym.kernel.names import SAMPLE_BASES
from klsym.language.messages import Message


def list_divergence_messages(divergence: Generated) -> tuple[Message, ...]:
    """Return the messages on a coefficient c(r) = f(r) - r f'(r)."""
    messages = []
    if divergence.strength is not None and not divergence.strength:
        messages.append(Message("no-restoring-force"))
    if divergence.where and not divergence.is_divergence and not _is_convex_for_weights(divergence.where):
        messages.append(Message("pushes-away", where=divergence.where))
    if divergence.unbounded:
        messages.append(Message("unbounded-below"))
    return tuple(messages)


def list_convexity_messages(convexity: Functional) -> tuple[Message, ...]:
    """Return the message that c does not rise with log q everywhere, if so."""
    if convexity.is_convex is not False or (convexity.where and _is_convex_for_weights(convexity.where)):
        return ()
    return (Message("held-weakly", where=convexity.where, of=convexity.of),)


def _is_convex_for_weights(where: Where) -> bool:
    """Is it everywhere for positive parameters, as weights are?  Or a matter of their signs alone?"""
    if not isinstance(where, Inequality) or where.always is None:
        return False
    of_sample = where.element.names() & {*SAMPLE_BASES}
    return not (of_sample and any(v < 0 for e in where.always for v in e.terms.values()))
