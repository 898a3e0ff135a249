"""The errors klsym raises: each message is one line that says what is wrong, where, and what to do."""


class KlsymError(Exception):
    """Base of every error that klsym raises on purpose.

    >>> issubclass(ProofError, KlsymError) and issubclass(UsageError, KlsymError)
    True
    """


class ProofError(KlsymError):
    """A derivation is wrong: a rule does not apply, or two sides do not meet."""


class Refused(ProofError):
    """The kernel refuses a certificate; `where` names the part and the step."""

    def __init__(self, reason: str, where: str = "") -> None:
        self.reason, self.where = reason, where
        super().__init__(f"{where}: {reason}" if where else reason)


class NotInRing(KlsymError):
    """An expression is no exponential polynomial; the message names the subexpression."""


class UsageError(KlsymError):
    """The input cannot be read: unknown name, bad syntax, missing file, impossible option."""
