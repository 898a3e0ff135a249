"""Assertions for test suites of training code: the build fails if a loss changes its target.

from klsym.testing import assert_minimises, assert_targets

def test_the_penalty():
    assert_targets(my_trainer.kl_penalty, "reverse-kl", sampling="off-policy")

def test_the_loss():
    assert_minimises(my_trainer.loss, "-E[R] + 0.04*reverse-kl", sampling="off-policy", group=2)
"""

from __future__ import annotations

from typing import Any


def assert_targets(function: Any, target: str, **options: Any) -> None:
    """Assert that code has a target, such as "reverse-kl".  With the other sign it is another target.

    >>> import pytest; torch = pytest.importorskip("torch")
    >>> def penalty(logp, ref_logp):
    ...     return 0.5 * (logp - ref_logp) ** 2
    >>> assert_targets(penalty, "reverse-kl")

    function: a function, or "FILE.py:FUNC" and the like.  It is run.
    target: a name such as "reverse-kl", "next-token-reverse-kl" or "policy-gradient", times any positive
      number; a kind, "zero", "combination", "f-divergence", "own-mean", "objective" or "no-objective"; or a
      sum such as "-E[A] + 0.04*reverse-kl", "E_mu[k3/T]" or "reverse-kl inside clamps".
    options: those of `klsym.audit`: sampling, use, map, set, result, ...
    Raises AssertionError: the code has another target, which the first line of the message names.
    Raises UsageError: the target is unknown (checked before any code is run), or the code cannot be read.
    """
    __tracebackhide__ = True  # pytest shows the line of the test
    from klsym.audit.audits import audit
    from klsym.engine.answers.objectives import read_objective
    from klsym.errors import KlsymError
    from klsym.render.headline import describe_update

    try:
        read_objective(target)
        found = audit(function, **options)
    except KlsymError as error:
        raise error.with_traceback(None) from None
    if not found.meets(target):
        raise AssertionError(
            f"{found.code.name} {describe_update(found.verdict)}; expected {target}\n\n{found}"
        )


def assert_minimises(loss: Any, objective: str, **options: Any) -> None:
    """Assert that the expected gradient of code is that of an objective, on every sample of small worlds.

    >>> import pytest; torch = pytest.importorskip("torch")
    >>> def loss(batch):
    ...     return -(batch.logp * batch.mask).sum(-1) @ batch.rewards
    >>> assert_minimises(loss, "-E[R]")

    loss: what `klsym.measure` takes.  It is run.
    objective: words and sums as in `assert_targets`, with multiples as they are: "-E[R] + 0.04*reverse-kl".
    options: those of `klsym.measure`: sampling, group, map, set, ...
    Raises AssertionError: the expected gradient is another one, or has no objective.
    Raises UsageError: the objective is unknown, or the code cannot be measured.
    """
    __tracebackhide__ = True  # pytest shows the line of the test
    from klsym.errors import KlsymError
    from klsym.measure.measuring import measure

    try:
        answer = measure(loss, expect=objective, **options)
    except KlsymError as error:
        raise error.with_traceback(None) from None
    assert answer.expected is not None
    is_gradient = answer.has_objective is not False or answer.expected.is_of_kind is not None
    if not (answer.expected.ok and is_gradient):
        raise AssertionError(f"the loss {answer.summary}; expected {objective}\n\n{answer}")
