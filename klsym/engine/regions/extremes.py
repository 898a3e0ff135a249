"""The larger of two losses, which PPO takes, and the smaller one.

    -min(rho A, clip(rho) A) = max(-rho A, -clip(rho) A)     no gradient where rho has moved far as A says
    -max(rho A, clip(rho) A)                                 no gradient where rho has moved against A

Source: Schulman et al., Proximal Policy Optimization Algorithms, arXiv:1707.06347, eq. 7.
"""

from __future__ import annotations

from typing import Any

import sympy

from klsym.language.expressions import DENSITIES, REWARDS, clip, unfold


def is_clipped_pair(extreme: Any) -> bool:
    """Is it of a loss of a reward, and of the same loss with a clip, as in PPO?

    >>> from klsym.language.expressions import A, rho
    >>> clipped = clip(rho, sympy.Rational(4, 5), sympy.Rational(6, 5)) * A
    >>> [is_clipped_pair(sympy.Max(*pair)) for pair in ((rho * A, clipped), (3 * abs(A), clipped))]
    [True, False]
    """
    plain = [x for x in extreme.args if not x.has(clip, sympy.Max, sympy.Min)]
    is_pair = len(extreme.args) == 2 and len(plain) == 1 and extreme.has(*REWARDS)
    return is_pair and bool(unfold(plain[0]).has(*DENSITIES)) and extreme.has(clip)


def take_larger_losses(loss: Any) -> Any:
    """Return the loss with the larger of two losses of a reward wherever it takes the smaller one.

    >>> from klsym.language.expressions import A, clip, rho
    >>> clipped = clip(rho, sympy.Rational(4, 5), sympy.Rational(6, 5)) * A
    >>> take_larger_losses(-sympy.Max(rho * A, clipped)) == -sympy.Min(rho * A, clipped)
    True
    >>> take_larger_losses(-sympy.Min(rho * A, clipped)) == -sympy.Min(rho * A, clipped)
    True
    """
    opposite = {sympy.Max: sympy.Min, sympy.Min: sympy.Max}
    larger = {}
    for extreme in filter(is_clipped_pair, loss.atoms(*opposite)):
        mark = sympy.Dummy()
        factor = sympy.diff(loss.xreplace({extreme: mark}), mark)
        if (factor.is_positive and isinstance(extreme, sympy.Min)) or (
            factor.is_negative and isinstance(extreme, sympy.Max)
        ):
            larger[extreme] = opposite[type(extreme)](*extreme.args)
    return loss.xreplace(larger)
