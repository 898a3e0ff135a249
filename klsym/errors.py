"""The errors klsym raises: each message is one line that says what is wrong, where, and what to do."""

from __future__ import annotations

from collections.abc import Iterable

# Packages that `pip install klsym` does not install, and the extra that does.
EXTRAS = {
    **dict.fromkeys(("numpy", "matplotlib", "jinja2", "markupsafe", "array_api_compat"), "report"),
    **{name: name for name in ("torch", "jax", "dask")}, "distributed": "dask", "ipywidgets": "notebook",
}  # fmt: skip


def lacking(error: Exception) -> str | None:
    """Return how to install a missing optional package; None for any other error.

    >>> lacking(ModuleNotFoundError(name="numpy"))
    'this needs numpy: pip install "klsym[report]"'
    """
    name = error.name if isinstance(error, ModuleNotFoundError) else None
    package = (name or "").partition(".")[0]
    return f'this needs {package}: pip install "klsym[{EXTRAS[package]}]"' if package in EXTRAS else None


def suggest_nearest(text: str, choices: Iterable[str]) -> str:
    """Return "; did you mean X?" for the nearest choice, or "".

    >>> suggest_nearest("of-policy", ("on-policy", "off-policy")), suggest_nearest("xyz", ("off-policy",))
    ('; did you mean off-policy?', '')
    """
    from difflib import get_close_matches  # the kernel imports this module, and asks nothing

    names = {choice.lower(): choice for choice in choices if choice != text}
    nearest = get_close_matches(text.lower(), names, n=1, cutoff=0.6)
    return f"; did you mean {names[nearest[0]]}?" if nearest else ""


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
        self.reason, self.where = _one_line(reason), where
        super().__init__(f"{where}: {self.reason}" if where else self.reason)


def _one_line(text: str, limit: int = 600) -> str:
    """What a message quotes may be long, or hold line breaks."""
    text = " ".join(text.split())
    return text if len(text) <= limit else text[: limit - 3] + "..."


class NotInRing(KlsymError):
    """An expression is no exponential polynomial; the message names the subexpression."""


class TooManyRegions(NotInRing):
    """The bounds of a loss divide the samples into more regions than are compared; its target is open."""

    def __init__(self, most: int) -> None:
        self.most = most
        super().__init__(f"more than {most} regions")


class UsageError(KlsymError):
    """The input cannot be read: unknown name, bad syntax, missing file, impossible option.

    place: of code that cannot be read, its file, the line, and the reason alone.
    """

    place: tuple[str, int, str] | None = None

    def located(self, file: str, line: int, reason: str) -> UsageError:
        """The same error, at this place unless it has one."""
        self.place = self.place or (file, line, reason)
        return self
