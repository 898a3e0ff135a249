"""The commands as functions, whose results print as on the command line.

>>> print(explain("k3").fix)
write k2: on-policy, as a loss, its expected gradient is grad KL(q||p) (proved)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from klsym.diagnostics.codes import find_code, load_codes
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
from klsym.language.named_losses import NamedLoss, load_named_losses
from klsym.render.diagnoses import PrintedCode
from klsym.render.printing import as_printed
from klsym.render.questions.listing import Listing, build_listing
from klsym.render.verdict import PrintedVerdict as Verdict
from klsym.render.verdict import printed as printed

if TYPE_CHECKING:  # what one verdict does not need is loaded by the function that does
    from klsym.engine.questions.recommend import KLTarget, Purpose
    from klsym.render.questions.compare import PrintedComparison
    from klsym.render.questions.recommend import PrintedRecommendation


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
    """Say what a loss minimises, with a proof or a counterexample.

    The expected gradient E_m[grad L], at samples from m (q on-policy, mu off-policy), is reduced to
    E_q[c s] with s = grad log q, and compared with the gradients of named objectives.

    Parameters
    ----------
    loss : str or sympy.Expr
        A loss in the loss grammar or as a line of PyTorch, JAX or NumPy, a usual name such as "grpo", or an
        expression in the atoms of `klsym.calculus`.
    OPTIONS
    parameters : iterable of str
        Names of further parameters, besides lam, beta, eps, alpha, n, T, in a loss given as text.

    Returns
    -------
    Verdict
        The answer; printing it shows what `klsym explain` prints.

    Raises
    ------
    UsageError
        Text that cannot be read; options that are unknown or without effect.

    Examples
    --------
    >>> verdict = explain("k3", sampling="on-policy")
    >>> verdict.target, verdict.trust
    ('forward-kl', 'kernel')
    >>> verdict.fix.loss
    'k2'
    >>> from klsym.calculus import k1
    >>> explain(0.5 * k1**2) == explain(k1**2 / 2)
    True
    """
    options = {
        "sampling": sampling, "use": use, "level": level, "batch": batch, "credit": credit,
        "weights": weights, "aggregate": aggregate,
    }  # fmt: skip
    return ask(loss, parameters, **options)


def ask(loss: object, parameters: Iterable[str] = (), **options: str | None) -> Verdict:
    """Return what `explain` returns, with the options as keywords."""
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
    batch: Batch | None = None,
) -> PrintedComparison:
    """Compare the values, the gradients and the variances of two losses.

    With grad L = a s at a sample from m (q on-policy, mu off-policy), where s means u.s for any direction u:

        Var_m a s - Var_m b s = E_m[(a^2 - b^2) s^2] - (E_m[a s]^2 - E_m[b s]^2)

    Parameters
    ----------
    a, b : str or sympy.Expr
        The losses, as in `explain`.
    sampling, use, level, credit, weights, aggregate, batch : str, optional
        As in `explain`.  The variances of losses at level token are not compared; those of losses over a
        batch only where training ends.
    parameters : iterable of str
        Names of further parameters, besides lam, beta, eps, alpha, n, T, in losses given as text.

    Returns
    -------
    PrintedComparison
        With `value`, `per_sample`, `gradient` (each with `same`: True, False, or None for open),
        `variance`, `multiple` (the `factor` by which alone the expected gradients differ, or None), and
        `at_optimum` of losses over a batch.

    Raises
    ------
    UsageError
        Text that cannot be read, unknown options, losses that are not compared.

    Examples
    --------
    >>> answer = compare("rho*k1", "rho*k3", sampling="off-policy")
    >>> answer.value.same, answer.per_sample.same, answer.gradient.same, answer.variance.lower
    (True, False, True, 'depends')
    >>> answer.variance.region
    '2*k1 + 1 >= 0, that is r <= exp(1/2)'
    """
    from klsym.engine.questions import compare as comparing
    from klsym.render.questions.compare import printed as print_comparison

    comparison = comparing.compare(
        a, b, parameters,
        sampling=sampling, use=use, level=level, credit=credit, weights=weights, aggregate=aggregate,
        batch=batch,
    )  # fmt: skip
    return print_comparison(comparison)


def recommend(
    target: KLTarget, sampling: Sampling = "on-policy", use: Purpose = "loss", level: Level = "sample"
) -> PrintedRecommendation:
    """List correct losses, rewards or values for a KL, the best first, each with its proof.

    A loss is correct if E_m[grad L] = grad KL, a reward if E_m[sg(L) s] = grad KL, a value if E_m[L] = KL.

    Parameters
    ----------
    target : {"reverse-kl", "forward-kl", "next-token-reverse-kl", "next-token-forward-kl"}
        KL(q||p), KL(p||q), or the KL of each next token at sampled prefixes, as in distillation.
    sampling : {"on-policy", "off-policy"}
        Samples from q, or from an older mu.
    use : {"loss", "reward", "value"}
        Differentiated, a detached reward that multiplies the score, or a number that is logged.
    level : {"sample", "token", "sequence"}
        As in `explain`.

    Returns
    -------
    PrintedRecommendation
        With `choices`, and `snippet(framework)` for "torch", "jax" or "numpy".

    Raises
    ------
    UsageError
        An unknown option.

    Examples
    --------
    >>> recommend("forward-kl", use="reward").choices[0].loss
    '1 - r'
    >>> print(recommend("reverse-kl").snippet("numpy").splitlines()[0])
    def penalty(log_q, log_p):
    """
    from klsym.engine.questions import recommend as recommending
    from klsym.render.questions.recommend import printed as print_recommendation

    return print_recommendation(recommending.recommend(target, sampling, use, level))


def examples() -> Listing[NamedLoss]:
    """Return the losses with common names, such as "grpo", that `explain` reads.

    Returns
    -------
    Listing
        By name; a row has `loss` (in the loss grammar), `options`, `says`, and `whose` name it is.

    Examples
    --------
    >>> examples()["dr_grpo"].loss
    '-rho*sg(centred(R))'
    """
    rows = {row.name: row for row in load_named_losses()}
    return build_listing(rows, ("name", "it is", "whose name"), lambda row: (row.name, row.says, row.whose))


def rule(code: str) -> PrintedCode:
    """Return the explanation of a diagnostic code.

    Parameters
    ----------
    code : str
        "KL004", or the name of the code, "missing-weight".

    Returns
    -------
    PrintedCode
        With `says`, `means`, `matters`, an `example`, what to `write`, and the `theorem` behind it.

    Raises
    ------
    UsageError
        There is no such code.

    Examples
    --------
    >>> rule("KL004").name
    'missing-weight'
    """
    return as_printed(PrintedCode, find_code(code))


def rules() -> Listing[PrintedCode]:
    """Return all diagnostic codes.

    Returns
    -------
    Listing
        By code.

    Examples
    --------
    >>> rules()["KL004"].level
    'error'
    """
    rows = {row.code: as_printed(PrintedCode, row) for row in load_codes()}
    head = ("code", "level", "name", "it says")
    return build_listing(rows, head, lambda row: (row.code, row.level, row.name, row.says))
