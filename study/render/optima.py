r"""Where training ends, in words: the closed form of a stationary policy, and a table of those found.

>>> from klsym.language.convert import to_ring
>>> from klsym.language.expressions import k1, k3
>>> solve_closed_form(to_ring(k1))
'q_j = \\frac{1}{Z}\\, p_j\\, \\exp\\!\\left(\\frac{R_j}{\\beta}\\right)'
>>> solve_closed_form(to_ring(k3)).partition(r"\quad")[0]
'q_j = p_j / r_j,'
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from klsym.engine.divergences.f_divergence import list_divergence_messages
from klsym.kernel.ring import ExpPoly
from klsym.notation.decimals import write_decimals
from klsym.notation.printers import is_sum
from klsym.render.answer import WIDTH
from klsym.render.questions.layout import format_rows
from klsym.render.sentences import write_sentence
from klsym.study.questions.optimum import Optimum, Stationary
from klsym.study.questions.optimum_of_loss import OptimumAnswer

K1, LOG_Q = ((((name, 1),), ()) for name in ("k1", "log_q"))
SQUARE = ((("k1", 2),), ())
RATIO = ((), (((("k1", 1),), -1),))
CONSTANT = ((), ())
STABLE = {True: "stable", False: "not stable", None: "stable or not: not decided"}
DETAILS = "nu is the reward less the penalty, the same for all outcomes with mass"


def solve_closed_form(c: ExpPoly, reward: str = "R_j") -> str | None:
    """q_j from R_j - beta c = nu in LaTeX, where c inverts: in k1 and log q, in r, in both, or a square.

    c: a score coefficient without parameters.  reward: the symbol of R_j.  nu, or the normaliser Z, is what
    gives q its mass.
    """
    terms = {key: Fraction(value) for key, value in c.terms.items() if key != CONSTANT}
    a, b, d, e = (terms.pop(key, Fraction(0)) for key in (K1, RATIO, LOG_Q, SQUARE))
    if terms:
        return None
    match bool(a), bool(b), bool(d), bool(e):
        case (_, False, True, False) if a + d:
            return _solve_tilt(a, d, reward)
        case (True, False, False, False):
            return _solve_tilt(a, d, reward)
        case (False, True, False, False):
            return rf"q_j = \frac{{{_format_factor(-b)}\beta\, p_j}}{{\nu - {reward}}}"
        case (True, True, False, False):
            return _solve_lambert(a, -b, reward)
        case (_, False, False, True):
            return _solve_square(e, a, reward)
    return None


def _solve_tilt(a: Fraction, d: Fraction, reward: str) -> str:
    """a log q/p + d log q = (R - nu)/beta."""
    scale = a + d
    power = "" if a == scale else rf"^{{{_format_number(a / scale)}}}"
    reference = rf"\, p_j{power}" if a else ""
    tilt = rf"\exp\!\left(\frac{{{reward}}}{{{_format_factor(scale)}\beta}}\right)"
    return rf"q_j = \frac{{1}}{{Z}}{reference}\, {tilt}"


def _solve_lambert(a: Fraction, b: Fraction, reward: str) -> str:
    """-a log r - b r = (R - nu)/beta: (b/a) r exp((b/a) r) = (b/a) exp((nu - R)/(a beta))."""
    inner = rf"{_format_factor(b / a)}e^{{(\nu - {reward})/{_wrap_beta(a)}}}"
    branches = r"\ \text{on either branch}" if b / a < 0 else ""
    return rf"q_j = p_j / r_j,\quad r_j = {_format_factor(a / b)}W\!\left({inner}\right){branches}"


def _solve_square(e: Fraction, a: Fraction, reward: str) -> str:
    """e k1^2 + a k1 = (R - nu)/beta."""
    middle = -a / (2 * e)
    start = _format_number(middle) + r" \pm " if middle else r"\pm"
    shift = rf"{_format_number(middle**2)} + " if middle else ""
    inner = rf"{shift}\frac{{{_format_factor(1 / e)}({reward} - \nu)}}{{\beta}}"
    return rf"q_j = p_j\, \exp\!\left({start}\sqrt{{{inner}}}\right)"


def _format_number(value: Fraction) -> str:
    sign, size = "-" if value < 0 else "", abs(value)
    if size.denominator == 1:
        return f"{sign}{size.numerator}"
    return rf"{sign}\tfrac{{{size.numerator}}}{{{size.denominator}}}"


def _format_factor(value: Fraction) -> str:
    """A factor before what follows: nothing for 1, a sign for -1."""
    return {1: "", -1: "-"}.get(value.numerator, "") if abs(value) == 1 else rf"{_format_number(value)}\, "


def _wrap_beta(a: Fraction) -> str:
    return r"\beta" if a == 1 else rf"({_format_factor(a)}\beta)"


# ---------------------------------------------------------------------------- what was found
class PrintedOptimum(OptimumAnswer):
    """The answer of `klsym.optimum`; it prints as text and shows itself in Jupyter."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """What descending the penalty does that no divergence does, and what else is to be known."""
        of_f = list_divergence_messages(self.generated) if self.generated is not None else ()
        return tuple(map(write_sentence, (*of_f, *self.messages)))

    def to_json(self) -> dict[str, Any]:
        """The object of the command-line contract."""
        return {
            "loss": self.loss,
            "beta": float(self.beta),
            "rewards": [float(x) for x in self.rewards],
            "reference": [float(x) for x in self.reference],
            "closed_form": solve_closed_form(self.coefficient),
            "unique": self.optimum.unique,
            "complete": self.optimum.complete,
            "stationary": [policy.to_json() for policy in self.optimum.stationary],
            "boundary": [policy.to_json() for policy in self.optimum.boundary],
            "warnings": list(self.warnings),
        }

    def text(self, width: int = WIDTH) -> str:
        """Format the answer for a terminal, in at most 12 lines."""
        return format_optimum(self.loss, self.beta, self.optimum, self.warnings, width=width)

    def __str__(self) -> str:
        return self.text()

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from klsym.render.markup.parts import format_for_notebook
        from klsym.study.render.html import format_optimum_html

        return format_for_notebook(format_optimum_html(self))


def format_optimum(
    loss: str, beta: Fraction, found: Optimum, warnings: tuple[str, ...], width: int = WIDTH
) -> str:
    """Format the policies at which training can end: probabilities, stability, the multiplier nu."""
    title = f"where training with rewards and the penalty {write_penalty(loss, beta)} ends"
    rows = [("inside", _describe_policy(s, True)) for s in found.stationary]
    rows += [("boundary", _describe_policy(s, False)) for s in found.boundary]
    rows += [("note", warning) for warning in warnings]
    count = count_policies(len(found.stationary), found.complete, "outcome")
    return format_rows(title, count, "numeric", rows, details=DETAILS, width=width)


def write_penalty(loss: str, beta: Fraction) -> str:
    """Return text such as "0.5*k3" or "2*(k1 + k2)"."""
    factor = f"{write_decimals(str(beta))}*" if beta != 1 else ""
    return f"{factor}{f'({loss})' if is_sum(loss) and factor else loss}"


def _describe_policy(policy: Stationary, is_inside: bool) -> str:
    """Return text such as "q = (0.880797, 0.119203), stable, nu = 0.5"."""
    nu = "" if policy.multiplier is None else f", nu = {policy.multiplier:z.6f}"
    return f"q = {format_policy(policy.policy, is_inside)}, {STABLE[policy.stable]}{nu}"


def format_policy(policy: Sequence[float], is_inside: bool) -> str:
    """Return text such as "(0.880797, 0.119203)"."""
    return f"({', '.join(_format_probability(x, is_inside) for x in policy)})"


def _format_probability(value: float, positive: bool) -> str:
    """Six decimals, or two digits of what they would show as 0."""
    if positive and not value:
        return "< 1e-300"
    return f"{value:.6f}" if not 0 < value < 5e-7 else f"{value:.1e}"


def count_policies(inside: int, complete: bool | None, of: str) -> str:
    """How many policies have mass on every outcome, or on every sequence, as far as it is known."""
    if complete is False:
        return f"Infinitely many policies with mass on every {of}"
    count = f"{inside or 'No'} {'policy' if inside < 2 else 'policies'} with mass on every {of}"
    if not complete:
        return f"{count}, others are not excluded (not decided)"
    return f"{count}, and no other" if inside else count
