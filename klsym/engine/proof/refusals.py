"""The message of a refused derivation, for notebooks and guides that show one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from klsym.errors import KlsymError


def refuses(step: Callable[..., Any], *arguments: Any, **options: Any) -> str:
    """Return the message with which klsym refuses a step of a derivation.

    Raises AssertionError if klsym accepts the step.

    >>> from klsym.calculus import KL, derive, expected_gradient, grad, k3, p, q
    >>> print(refuses(derive(expected_gradient(k3, under=q)).differentiate().equals, grad(KL(q, p))))
    the two sides differ: the left one is E_q[-r*s], the right one E_q[k1*s]
    """
    try:
        accepted = step(*arguments, **options)
    except KlsymError as error:
        return str(error)
    raise AssertionError(f"klsym accepts it: {accepted}")
