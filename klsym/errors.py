"""The errors klsym raises: each message is one line that says what is wrong, where, and what to do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

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


class UsageError(KlsymError, ValueError):
    """The input cannot be read: unknown name, bad syntax, missing file, impossible option.

    place: of code that cannot be read, its file, the line, and the reason alone.
    unknown: the name that has no meaning, if that is what is wrong.
    """

    place: tuple[str, int, str] | None = None
    unknown = ""

    def located(self, file: str, line: int, reason: str) -> UsageError:
        """The same error, at this place unless it has one."""
        self.place = self.place or (file, line, reason)
        return self


_OF_COMMAND = ContextVar("of_command", default=False)


@contextmanager
def speak_of_flags() -> Iterator[None]:
    """Let messages name options as they are typed on the command line, not as arguments of functions."""
    before = _OF_COMMAND.set(True)
    try:
        yield
    finally:
        _OF_COMMAND.reset(before)


def spell_option(name: str, value: str = "") -> str:
    """Return an option as the caller writes it: a flag of a command, or an argument of a function.

    >>> spell_option("map"), spell_option("level", "token"), spell_option("set", "beta=0.1")
    ('map=', "level='token'", "set={'beta': '0.1'}")
    >>> with speak_of_flags():
    ...     spell_option("set", "beta=0.1")
    '--set beta=0.1'
    """
    if _OF_COMMAND.get():
        return f"--{name.replace('_', '-')} {value}".rstrip()
    if name == "param":  # given once for each name
        return f"parameters=[{value!r}]" if value else "parameters="
    key, equals, entry = value.partition("=")
    return f"{name}={{{key!r}: {entry!r}}}" if equals else f"{name}={value!r}" if value else f"{name}="


def choose_spelling(typed: str, called: str) -> str:
    """Return what is typed on the command line, or what is called in Python."""
    return typed if _OF_COMMAND.get() else called


def spell_switch(name: str) -> str:
    """Return an option without a value, which prints more of an answer, as the caller writes it.

    >>> spell_switch("full")
    'full=True'
    >>> with speak_of_flags():
    ...     spell_switch("full")
    '--full'
    """
    return choose_spelling(f"--{name}", f"{name}=True")


def spell_command(name: str, argument: str) -> str:
    """Return a command with its argument, as the caller writes it.

    >>> spell_command("rule", "KL004")
    "klsym.rule('KL004')"
    >>> with speak_of_flags():
    ...     spell_command("rule", "KL004")
    'klsym rule KL004'
    """
    return choose_spelling(f"klsym {name} {argument}", f"klsym.{name}({argument!r})")


def add_options(loss: str, options: Mapping[str, str]) -> str:
    """Return a loss with options, as the caller writes them.

    >>> add_options("rho*k3", {"weights": "prefix"}), add_options("k2", {})
    ("rho*k3 with weights='prefix'", 'k2')
    >>> with speak_of_flags():
    ...     add_options("rho*k3", {"weights": "prefix"})
    'rho*k3 --weights prefix'
    """
    spelled = [spell_option(name, value) for name, value in options.items()]
    return choose_spelling(
        " ".join([loss, *spelled]), f"{loss} with {', '.join(spelled)}" if spelled else loss
    )


def spell_values(values: Mapping[str, object]) -> str:
    """Return the option `set` with these values, as the caller writes it.

    >>> spell_values({"beta": 0.1, "kind": "k3"})
    "set={'beta': 0.1, 'kind': 'k3'}"
    """
    if not _OF_COMMAND.get():
        return f"set={dict(values)!r}"
    from shlex import quote  # the kernel imports this module

    return " ".join(spell_option("set", quote(f"{name}={value}")) for name, value in values.items())
