"""Numbers as they were typed: decimals where the loss has decimals.

>>> write_decimals("E_mu[r/25] - 1/25 KL(mu||q), rho > 6/5, 1/(25*T) - r_now/(25*T), k1**2/3")
'E_mu[0.04*r] - 0.04 KL(mu||q), rho > 1.2, 0.04/T - 0.04*r_now/T, k1**2/3'
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from fractions import Fraction

from klsym.notation.tree import format_decimal

DECIMAL = re.compile(r"(?<![\w.])(\d+\.\d*|\.\d+|\d+e-\d+)")
DIVISOR = re.compile(r"/(\d+)(?![\w.]|\*\*)|/\((\d+)\*([^()+\s-]+)\)(?!\*\*)")  # by 25, or by (25*T)
JUXTAPOSED = re.compile(r"(\d|\bbeta|\blam|\balpha|\beps) (KL\(|E_\w+\[)")
FACTOR = re.compile(r"\w+(\*\*\w+)?")  # needs no brackets below a fraction bar
LEADING = re.compile(r"(\d+)(?:\*(?!\*)|$)")
PAIRS = {")": "(", "]": "["}


def choose_decimals(loss: str, always: bool = False) -> Callable[[str], str]:
    """Return what rewrites the text of an answer: with decimals if the loss has them, with * before a KL.

    >>> choose_decimals("0.04*k3")("-1/25 KL(mu||q)"), choose_decimals("k3/25")("-1/25 KL(mu||q)")
    ('-0.04*KL(mu||q)', '-1/25*KL(mu||q)')
    """
    has_decimals = always or bool(DECIMAL.search(loss))
    return lambda text: JUXTAPOSED.sub(r"\1*\2", write_decimals(text) if has_decimals else text)


def write_decimals(text: str) -> str:
    """Write each quotient by a number as a multiple, if that is a finite decimal."""
    position = 0
    while divisor := DIVISOR.search(text, position):
        start = _find_start(text, divisor.start())
        written = _multiply(text[start : divisor.start()], int(divisor[1] or divisor[2]), divisor[3])
        if written is None or text[start - 1 : start] in ("/", "^"):
            position = divisor.end()
            continue
        text = text[:start] + written + text[divisor.end() :]
        position = start + len(written)
    return text


def _multiply(factors: str, divisor: int, under: str | None) -> str | None:
    """Return factors/divisor as a decimal multiple; None if it is no finite decimal, as of 0/0.

    >>> _multiply("3*x", 25, None), _multiply("0", 0, None), _multiply("1", 3, None)
    ('0.12*x', None, None)
    """
    if not divisor:
        return None
    leading = LEADING.match(factors)
    value = Fraction(int(leading[1]) if leading else 1, divisor)
    if not factors or _remove_factors(value.denominator) != 1:
        return None
    product = "*".join(
        filter(None, (format_decimal(value), factors[leading.end() :] if leading else factors))
    )
    if not under:
        return product
    return f"{product}/{under}" if FACTOR.fullmatch(under) else f"{product}/({under})"


def _remove_factors(number: int) -> int:
    for prime in (2, 5):
        while number % prime == 0:
            number //= prime
    return number


def _find_start(text: str, end: int) -> int:
    """Return where the product that ends at this position starts."""
    at = end
    while at > 0:
        sign = text[at - 1]
        if sign in PAIRS:
            at = _find_opening(text, at - 1)
        elif sign.isalnum() or sign in "_.*":
            at -= 1
        else:
            break
    return at


def _find_opening(text: str, at: int) -> int:
    """Return the position of the bracket that is closed at this position."""
    depth = 0
    for position in range(at, -1, -1):
        depth += (text[position] in PAIRS) - (text[position] in PAIRS.values())
        if depth == 0:
            return position
    return 0


def write_objective(multiples: Mapping[str, float], digits: int = 7, times: str = "*") -> str:
    """Return named objectives with their coefficients as a sum.

    >>> write_objective({"policy-gradient": -1.0, "reverse-kl": 0.04})
    '-policy-gradient + 0.04*reverse-kl'
    """
    text = ""
    for name, value in multiples.items():
        size = f"{abs(value):.{digits}g}"
        term = name if size == "1" else f"{size}{times}{name}"
        sign = "-" if value < 0 else "+"
        text += f" {sign} {term}" if text else f"{'-' * (value < 0)}{term}"
    return text or "0"
