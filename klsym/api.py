"""The questions, with answers that print themselves.

>>> print(explain("k3").fix)
write k2: on-policy, as a loss, its expected gradient is grad KL(q||p) (proved)
"""

from __future__ import annotations

from collections.abc import Iterable

from klsym.engine.explain import explain as engine_explain
from klsym.engine.options.option_table import (
    Aggregate,
    Batch,
    Credit,
    Level,
    Sampling,
    Use,
    Weights,
    document_options,
)
from klsym.engine.questions import compare as comparing
from klsym.engine.questions import recommend as recommending
from klsym.engine.questions.recommend import KLTarget, Purpose
from klsym.render.questions.compare import PrintedComparison
from klsym.render.questions.compare import printed as printed_comparison
from klsym.render.questions.recommend import PrintedRecommendation
from klsym.render.questions.recommend import printed as printed_recommendation
from klsym.render.verdict import PrintedVerdict as Verdict
from klsym.render.verdict import printed as printed


@document_options
def explain(
    loss: object,
    sampling: Sampling | None = None,
    use: Use | None = None,
    level: Level | None = None,
    batch: Batch | None = None,
    parameters: Iterable[str] = (),
    credit: Credit | None = None,
    weights: Weights | None = None,
    aggregate: Aggregate | None = None,
) -> Verdict:
    """Derive what a loss targets.

    loss: text in the loss grammar, or a SymPy expression in the atoms of `klsym.language.expressions`.
    parameters: names declared beside lam, beta, eps, alpha, n, T (for text).
    OPTIONS
    Raises UsageError for text that cannot be read, and for options that are unknown or without effect.
    """
    options = {
        "sampling": sampling, "use": use, "level": level, "batch": batch, "credit": credit,
        "weights": weights, "aggregate": aggregate,
    }  # fmt: skip
    return ask(loss, parameters, **options)


def ask(loss: object, parameters: Iterable[str] = (), **options: str | None) -> Verdict:
    """`explain`, with options that are handed on."""
    return printed(engine_explain(loss, parameters, **options))


def compare(
    a: object,
    b: object,
    sampling: Sampling | None = None,
    use: Use | None = None,
    parameters: Iterable[str] = (),
    level: Level | None = None,
    credit: Credit | None = None,
    weights: Weights | None = None,
    aggregate: Aggregate | None = None,
) -> PrintedComparison:
    """Say in what two losses of one sample agree, and which has the less noisy gradient where.

    grad L = a s at a sample from m (q on-policy, mu off-policy), s standing for u.s along any direction u:

        Var_m a s - Var_m b s = E_m[(a^2 - b^2) s^2] - (E_m[a s]^2 - E_m[b s]^2)

    >>> answer = compare("rho*k1", "rho*k3", sampling="off-policy")
    >>> answer.value.same, answer.per_sample.same, answer.gradient.same, answer.variance.lower
    (True, False, True, 'depends')
    >>> answer.variance.region
    '2*k1 + 1 >= 0, that is r <= exp(1/2)'

    a, b: text in the loss grammar, or SymPy expressions in the atoms of `klsym.language.expressions`.
    parameters: names declared beside lam, beta, eps, alpha, n, T (for text).
    sampling, use, credit, weights, aggregate: as in `explain`.
    level: "sample", "sequence" (a sample is a whole sequence), or "token" (the losses of all tokens, summed;
    of these the variances are not compared).
    Raises UsageError for text that cannot be read and for unknown options.
    """
    found = comparing.compare(
        a, b, parameters,
        sampling=sampling, use=use, level=level, credit=credit, weights=weights, aggregate=aggregate,
    )  # fmt: skip
    return printed_comparison(found)


def recommend(
    target: KLTarget, sampling: Sampling = "on-policy", use: Purpose = "loss", level: Level = "sample"
) -> PrintedRecommendation:
    """What to write for a KL penalty or its value, the best first, each with what is proved of it.

    >>> recommend("forward-kl", use="reward").choices[0].loss
    '1 - r'
    >>> print(recommend("reverse-kl").snippet("numpy").splitlines()[0])
    def penalty(log_q, log_p):

    A choice is right where E_m[grad L] (a loss), E_m[sg(L) s] (a reward) is grad KL, E_m[L] (a value) is KL.

    target: "reverse-kl", KL(q||p), or "forward-kl", KL(p||q); "next-token-reverse-kl" or
    "next-token-forward-kl", that of each next token at the prefixes that are drawn, as in distillation.
    sampling, level: as in `explain`.  use: "loss", "reward", or "value", a number that is logged.
    Raises UsageError: an unknown option.
    """
    return printed_recommendation(recommending.recommend(target, sampling, use, level))
