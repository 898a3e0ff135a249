"""The kernel: the part of klsym that has to be believed.  Standard library only; it never searches.

>>> from klsym.kernel import check
>>> check({"format": "klsym-certificate/1"})
Traceback (most recent call last):
    ...
klsym.errors.Refused: a certificate has the keys ['claim', 'digest', 'format', 'parts']
"""

from klsym.kernel.replay import FORMAT, Theorem, apply_step, certify, check, check_part, digest
from klsym.kernel.rules import RULES, Rule

__all__ = ["FORMAT", "RULES", "Rule", "Theorem", "apply_step", "certify", "check", "check_part", "digest"]
