"""Questions of research: where training ends, and which losses descend a divergence."""

from __future__ import annotations

from collections.abc import Iterable

from klsym.engine.options.option_table import Sampling, Use
from klsym.render.printing import as_printed
from klsym.study.questions import divergence_losses, optimum_of_loss
from klsym.study.render.descents import PrintedDescents
from klsym.study.render.optima import PrintedOptimum


def where_training_ends(
    loss: object,
    beta: object,
    rewards: Iterable[object],
    reference: Iterable[object] | None = None,
    behaviour: Iterable[object] | None = None,
    sampling: Sampling = "on-policy",
    use: Use = "loss",
) -> PrintedOptimum:
    """All stationary policies of E_q[R] - beta (penalty), their stability, and the boundary that attracts.

    >>> print(str(where_training_ends("k2", "1/2", ["1", "0"])).splitlines()[1].strip())
    1 policy with mass on every outcome, and no other                                          numeric

    loss: the penalty, as of `explain`; use says whether it is differentiated.  beta, rewards: numbers, or
    texts such as "2/3".  reference, behaviour: probabilities, uniform where nothing is said.
    Raises UsageError: a penalty outside the ring, with rewards or parameters in it; numbers that do not fit.
    """
    found = optimum_of_loss.where_training_ends(
        loss, beta, rewards, reference, behaviour=behaviour, sampling=sampling, use=use
    )
    return as_printed(PrintedOptimum, found)


def losses_of(
    divergence: str, parameters: Iterable[str] = (), sampling: str | None = None
) -> PrintedDescents:
    """The losses that estimate and descend a divergence, each with its proof.

    >>> [row.loss for row in losses_of("forward-kl", sampling="on-policy").gradients]
    ['k3', 'rho*(1 - r*k1 - r)', '1 - r']

    divergence: a name (reverse-kl, forward-kl, jeffreys, pearson-chi2, neyman-chi2, squared-hellinger,
    jensen-shannon, alpha, alpha=1/2), or f as a function of r = p/q in the loss grammar, such as "r*log(r)".
    sampling: on-policy or off-policy; both where nothing is said.
    Raises UsageError for what is neither, and for an f with E_q[f(r)] the same for all q.
    """
    return as_printed(PrintedDescents, divergence_losses.losses_of(divergence, parameters, sampling))
