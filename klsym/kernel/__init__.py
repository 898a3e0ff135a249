"""The kernel: the part of klsym that has to be believed.  Standard library only; it never searches.

>>> from klsym.kernel import check
>>> check({"format": "klsym-certificate/2"})
Traceback (most recent call last):
    ...
klsym.errors.Refused: a certificate has the keys ['cites', 'digest', 'format', 'parts']
"""

from klsym.kernel.printer import show
from klsym.kernel.replay import (
    CLOSINGS,
    EQUATION,
    FORMAT,
    RULES,
    Theorem,
    apply_step,
    certify,
    check,
    check_part,
    digest,
    read,
)

__all__ = [
    "CLOSINGS", "EQUATION", "FORMAT", "RULES", "Theorem", "apply_step", "certify", "check", "check_part",
    "digest", "read", "show",
]  # fmt: skip
