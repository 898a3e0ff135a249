"""The objective of a function of exact means, proved with a name for each mean.  Untrusted.

    L(F) with F_i = full(x_i) = E_q[x_i]:    E_m[grad L(F)] = grad E_m[L(F)],    F the same at every sample

In a certificate the name of F_i moves with theta, and logs and quotients of such names are elements.

>>> from klsym.language.expressions import M, k1
>>> loss = OverVocabulary(M * k1) / OverVocabulary(M)
>>> prove_objective(loss, on_policy=True).trust
'kernel'
"""

from __future__ import annotations

from typing import Any

import sympy

from klsym.engine.proof.derivation import Proof, derive
from klsym.engine.proof.quantities import expectation, expected_gradient, grad
from klsym.errors import KlsymError
from klsym.kernel.definitions import LOG, Definition
from klsym.kernel.ring import ExpPoly
from klsym.kernel.statements import Context
from klsym.language.convert import to_ring
from klsym.language.defined import OF_EXPECTATIONS, name_definition
from klsym.language.expressions import parameter
from klsym.language.sums import OverVocabulary


def prove_objective(loss: Any, on_policy: bool) -> Proof | None:
    """Return a proof that the loss, of exact means and parameters alone, is its own objective.

    None: a mean or a function of means has no certificate.
    """
    names = MeanNames()
    try:
        element = names.write(loss)
        under = "q" if on_policy else "mu"
        start = derive(expected_gradient(element, under=under), on_policy=on_policy, defined=names.context)
        return start.equals(grad(expectation(element, under=under)))
    except KlsymError:
        return None


class MeanNames:
    """The names of expectations, and of logs of what they make up, in the order of their definition."""

    def __init__(self) -> None:
        self.definitions: dict[str, Definition] = {}

    @property
    def context(self) -> Context:
        """The context of a statement that uses the names."""
        return Context(definitions=tuple(self.definitions.values()))

    def write(self, e: Any) -> Any:
        """Return an expression with names for exact means and for logs; 1/u is exp(-log u)."""
        if isinstance(e, OverVocabulary):
            return self._define(OF_EXPECTATIONS, to_ring(e.args[0]))
        if isinstance(e, sympy.log):
            return self._name_log(e.args[0])
        if e.is_Pow and not (e.exp.is_Integer and e.exp > 0) and e.base.has(OverVocabulary):
            return sympy.exp(self.write(e.exp) * self._name_log(e.base))
        return e.func(*map(self.write, e.args)) if e.has(OverVocabulary) else e

    def _name_log(self, u: Any) -> Any:
        return self._define(LOG, to_ring(self.write(u)))

    def _define(self, kind: str, element: ExpPoly) -> Any:
        name = name_definition(kind, element)
        self.definitions.setdefault(name, Definition(name, kind, element))
        return parameter(name)
