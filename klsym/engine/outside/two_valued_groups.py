"""The objective where a sample's coefficient depends on the group by the number of ones alone.  Untrusted.

Let h be 0 or 1 and independent of theta, and P = E_q[h].  On-policy let a sample with h = 1 have the
coefficient a_1(K), and one with h = 0 have a_0(K), K the number of ones among the other n - 1.  Then, since
the others are independent of it, and E_q[h s] = grad P = -E_q[(1 - h) s],

    E_q[mean_i a_i s_i] = E[a_1(K) - a_0(K)] grad P,    K binomial(n - 1, P),

which is the gradient of a function Phi of P, with Phi'(P) = E[a_1(K) - a_0(K)].

>>> from klsym.language.parser import parse
>>> explain_counts(Written("", parse("-sg((R > 0)/(1 + groupsum(R > 0)))*log_q")), Setting()).target
'objective'
"""

from __future__ import annotations

from typing import Any, NamedTuple

import sympy

from klsym.engine.fields.position_sums import n
from klsym.engine.options.settings import Setting
from klsym.engine.outside.as_typed import substitute_policy
from klsym.engine.outside.two_values import give_objective
from klsym.engine.regions.piecewise import KINKED
from klsym.engine.targets.ring import explain_ring
from klsym.engine.verdicts.verdict import Verdict
from klsym.language.expressions import SLOTTED, A, M, OverPositions, R, length, log_q, remove_sg, sg, unfold
from klsym.language.messages import Message
from klsym.language.recognition import MOST_SWITCHES, choose_switches, list_switches
from klsym.language.sums import OfOthers
from klsym.notation import losses
from klsym.notation.losses import Written
from klsym.notation.printers import LATEX, TEXT
from klsym.notation.tree import Words

ONES, ZEROS = (sympy.Dummy(name, integer=True, nonnegative=True) for name in ("ones", "zeros"))
K = sympy.Symbol("K", real=True)


class Counted(NamedTuple):
    """h, and Phi'(P) as the mean of a slope at so many ones and zeros among the other samples."""

    h: Any
    slope: Any

    @property
    def sign(self) -> str:
        """The sign of the slope at every K, where SymPy knows: "-", "+" or ""."""
        if len(list_switches(self.slope)) > MOST_SWITCHES:
            return ""
        values = [sympy.factor_terms(value) for _, value in choose_switches(self.slope)]
        if all(value.is_nonpositive for value in values):
            return "-"
        return "+" if all(value.is_nonnegative for value in values) else ""

    def describe(self, same_length: bool = False) -> Message:
        """Return the remark on Phi; same_length: it holds of responses of one length T, divided by T."""
        slope = self.slope.subs({ONES: K, ZEROS: n - 1 - K})
        random = [x for x in SLOTTED if self.h.has(x)]
        rises = random in ([R], [A]) and sympy.diff(self.h.args[0], random[0]).is_positive
        return Message(
            "slope-of-counts",
            of=losses.show(self.h, TEXT),
            slope=losses.show(slope, TEXT),
            sign=self.sign,
            rises=bool(rises),
            same_length=same_length,
        )


def explain_counts(written: Written, setting: Setting) -> Verdict:
    """Return the verdict on a loss that compares the samples of a group; on-policy with such an objective."""
    verdict = explain_ring(written, setting)
    is_plain = setting.on_policy and not (setting.is_centred or setting.averaged)
    if not is_plain or not (verdict.target is None or verdict.trust == "numeric"):
        return verdict
    c = _find_coefficient(written.expression, setting)
    if c is None:
        return verdict
    if not c.has(length):
        counted = _find_counted(c) if verdict.target is None else None
        return verdict if counted is None else _add_objective(verdict, counted)
    undivided = c.xreplace({length: sympy.S.One})
    counted = _find_counted(undivided) if sympy.simplify(c - undivided / length) == 0 else None
    remarks = () if counted is None else (counted.describe(same_length=True),)
    return verdict.revise(remarks=(*remarks, *verdict.gradient.remarks))


def _find_coefficient(e: Any, setting: Setting) -> Any | None:
    """Return the factor of a sample's score on-policy; None if sums of others or kinks are differentiated."""
    if setting.is_differentiated:
        names = {x: sympy.Dummy(real=True) for x in e.atoms(sg, OfOthers)}
        opened = unfold(e.xreplace(names))
        totals = e.xreplace({x: names[x] for x in e.atoms(sg)}).atoms(OfOthers)
        if opened.has(*KINKED) or any(unfold(x.args[0]).has(log_q) for x in totals):
            return None
        e = sympy.diff(opened, log_q).xreplace({dummy: held for held, dummy in names.items()})
    e = remove_sg(e).replace(lambda x: isinstance(x, OfOthers), lambda x: OfOthers(_set_policy(x.args[0])))
    return _set_policy(e)


def _set_policy(e: Any) -> Any:
    """Put q in place of the sampler, and 1 - [x > 0] in place of [-x >= 0]."""
    flipped = e.replace(
        lambda x: isinstance(x, sympy.Heaviside) and x.args[0].could_extract_minus_sign(),
        lambda x: 1 - sympy.Heaviside(-x.args[0], 1 - x.args[1]),
    )
    return unfold(substitute_policy(flipped))


def _find_counted(c: Any) -> Counted | None:
    """Return h and the slope of Phi for a coefficient; None if it depends on anything but h and K."""
    totals = {x: sympy.Dummy(real=True) for x in c.atoms(OfOthers)}
    own_parts = (c.xreplace(totals), *(x.args[0] for x in totals))
    switches = {x for e in own_parts for x in _list_own_switches(e)}
    if len(switches) != 1 or unfold(sympy.Tuple(*switches)).has(log_q):
        return None
    [h] = switches
    a_0, a_1 = (_evaluate_with_h(c, h, sympy.Integer(value)) for value in (0, 1))
    if a_0 is None or a_1 is None:
        return None
    return Counted(h, a_1 - a_0)


def _list_own_switches(e: Any) -> list[Any]:
    """Return the mask and the comparisons of a sample, without comparisons of sums over the group."""
    inner = [x for x in list_switches(e) if x == M or not list_switches(sympy.Tuple(*x.args))]
    return [x for x in inner if x.has(*SLOTTED)]


def _evaluate_with_h(c: Any, h: Any, value: Any) -> Any | None:
    """Return the coefficient of a sample whose h has this value; None if it may not exist at some K."""
    at_one, at_zero = ({h: sympy.Integer(end)} for end in (1, 0))
    sums = {
        x: ONES * x.args[0].xreplace(at_one) + ZEROS * x.args[0].xreplace(at_zero) for x in c.atoms(OfOthers)
    }

    def put_in(e: Any) -> Any:
        return e.xreplace(sums).xreplace({h: value}).subs(n, ONES + ZEROS + 1)

    roots = [x.base for x in c.atoms(sympy.Pow) if not x.exp.is_Integer]
    roots += [x.args[0] for x in c.atoms(sympy.log)]
    divisors = [x.base for x in c.atoms(sympy.Pow) if x.exp.is_Integer and x.exp < 0]
    counted = [x for x in map(put_in, divisors) if x.has(ONES, ZEROS) or x == 0]
    exists = all(x.is_nonzero for x in counted) and all(put_in(x).is_positive for x in roots)
    a = put_in(c)
    return a if exists and not a.has(*SLOTTED, OverPositions) else None


def _add_objective(verdict: Verdict, counted: Counted) -> Verdict:
    """Return the verdict with Phi(P), whose gradient is the expected one."""
    text, latex = (spell.expectation("q", losses.show(counted.h, spell)) for spell in (TEXT, LATEX))
    formula = Words(f"Phi({text})", rf"\Phi({latex})")
    return give_objective(verdict, formula, counted.describe(), losses.show(counted.h, TEXT))
