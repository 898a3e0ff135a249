"""Questions of research as functions: where training ends, and the losses of a divergence."""

from __future__ import annotations

from collections.abc import Iterable

from klsym.engine.options.option_table import Credit, Level, Sampling, Use, Weights
from klsym.engine.options.settings import checked_setting
from klsym.errors import UsageError
from klsym.render.printing import as_printed
from klsym.study.questions import divergence_losses, optimum_of_loss, token_optimum_of_loss
from klsym.study.render.descents import PrintedDescents
from klsym.study.render.optima import PrintedOptimum
from klsym.study.render.token_optima import PrintedTokenOptimum


def optimum(
    penalty: object,
    beta: object,
    rewards: Iterable[object],
    reference: Iterable[object] | None = None,
    behaviour: Iterable[object] | None = None,
    sampling: Sampling = "on-policy",
    use: Use = "loss",
    level: Level = "sample",
    credit: Credit | None = None,
    weights: Weights | None = None,
    words: object = None,
) -> PrintedOptimum | PrintedTokenOptimum:
    """Say where training with a reward and a penalty ends.

    All stationary policies of E_q[R] - beta (penalty) on a few outcomes, their stability, and the policies
    on the boundary that attract.  With level token, the outcomes are sequences of words, the penalty is that
    of each token, and the logits after each prefix are free.

    Parameters
    ----------
    penalty : str or sympy.Expr
        The penalty, as in `explain`, without the reward.
    beta : int, float, Fraction or str
        The coefficient of the penalty; text such as "2/3" is exact.
    rewards : iterable of numbers or str, of length n
        The reward of each outcome; of each sequence in the order 11, 12, 21, 22.
    reference, behaviour : iterable of numbers or str, of length n, optional
        Probabilities p and mu of the outcomes; uniform by default.
    sampling : {"on-policy", "off-policy", "truncated"}
        As in `explain`.
    use : {"loss", "reward"}
        Whether the penalty is differentiated, or a part of the reward.
    level : {"sample", "token"}
        Whether the penalty applies to each outcome, or to each token of a sequence.
    credit, weights : str, optional
        As in `explain`, with level token.
    words : int, optional
        The number of words, with level token; 2 by default.

    Returns
    -------
    PrintedOptimum or PrintedTokenOptimum
        With `optimum.stationary` and `optimum.boundary`; printing it shows the table.

    Raises
    ------
    UsageError
        A penalty with rewards or parameters in it, or outside the decidable core; numbers that do not fit.

    Examples
    --------
    >>> answer = optimum("k2", "1/2", ["1", "0"])
    >>> len(answer.optimum.stationary), answer.optimum.stationary[0].stable
    (1, True)
    >>> optimum("k3", "1/2", [1, 0, 0, 0], level="token").optimum.unique
    True
    """
    options = {"sampling": sampling, "use": use, "level": level, "credit": credit, "weights": weights}
    if not checked_setting(**options).is_of_sample:
        if behaviour is not None:
            raise UsageError("behaviour: has no effect with level token, where no end depends on mu")
        tokens = token_optimum_of_loss.compute_token_optimum(
            penalty, beta, rewards, reference, words=words, **options
        )
        return as_printed(PrintedTokenOptimum, tokens)
    if words is not None:
        raise UsageError("words: needs level token")
    answer = optimum_of_loss.compute_optimum(
        penalty, beta, rewards, reference, behaviour=behaviour, sampling=sampling, use=use
    )
    return as_printed(PrintedOptimum, answer)


def divergence(f: str, parameters: Iterable[str] = (), sampling: str | None = None) -> PrintedDescents:
    """Return the losses that estimate a divergence E_q[f(r)], and those that descend it.

    Parameters
    ----------
    f : str
        A name (reverse-kl, forward-kl, jeffreys, pearson-chi2, neyman-chi2, squared-hellinger,
        jensen-shannon, alpha, alpha=1/2), or f as a function of r = p/q in the loss grammar, "r*log(r)".
    parameters : iterable of str
        Names of further parameters, besides those of the grammar.
    sampling : {"on-policy", "off-policy"}, optional
        Both by default.

    Returns
    -------
    PrintedDescents
        With `gradients`, `values` and `wrong`, each row with its `loss` and its proof.

    Raises
    ------
    UsageError
        `f` is neither a name nor a function of r, or E_q[f(r)] is the same for all q.

    Examples
    --------
    >>> [row.loss for row in divergence("forward-kl", sampling="on-policy").gradients]
    ['k3', 'rho*(1 - r*k1 - r)', '1 - r']
    """
    return as_printed(PrintedDescents, divergence_losses.losses_of(f, parameters, sampling))
