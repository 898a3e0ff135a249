"""The options of `explain`: what is offered, each said once.  No module of SymPy is loaded.

The command line, the explorer, the checks and the documentation are made from OPTIONS; what a choice means is
its row in `klsym.engine.options.choices`.
"""

from __future__ import annotations

from collections.abc import Mapping
from inspect import cleandoc
from typing import Literal, TypeVar, get_args

from klsym.records import record

Sampling = Literal["on-policy", "off-policy", "truncated"]
Use = Literal["loss", "reward"]
Level = Literal["sample", "token", "sequence"]
Batch = Literal["none", "mean", "leave-one-out", "std"]
Credit = Literal["to-go", "same-token", "total"]
Weights = Literal["token", "prefix", "sequence"]
Aggregate = Literal["sum", "mean", "batch"]
Documented = TypeVar("Documented")


@record
class Need:
    """An option has an effect only where another one has one of these values."""

    of: str
    among: tuple[str, ...]
    otherwise: str


@record
class Option:
    """An option: its choices, the first one holding where nothing is said; what it means, and where."""

    name: str
    choices: tuple[str, ...]
    meaning: str
    needs: tuple[Need, ...] = ()
    silent: str | None = None  # the value that says nothing

    @property
    def always(self) -> bool:
        """Does it mean something beside all others?"""
        return not self.needs

    def explain_no_effect(self, options: Mapping[str, str | None]) -> str:
        """Return why the option has no effect beside the others; empty if it has one."""
        return next((need.otherwise for need in self.needs if options[need.of] not in need.among), "")


NEEDS_TOKENS = Need("level", ("token",), "needs level token")
OPTIONS = (
    Option(
        "sampling", get_args(Sampling),
        "samples from q, from an older mu, or from q cut to top-p or top-k",
    ),
    Option(
        "use", get_args(Use),
        "differentiated, or a detached reward that multiplies the score",
    ),
    Option(
        "level", get_args(Level),
        "one sample, the sum of the losses of all tokens, or a whole sequence",
    ),
    Option(
        "batch", get_args(Batch),
        "which baseline of a batch is subtracted; std also divides by the deviation",
        (Need("level", ("sample", "sequence"),
              "samples are centred whole; choose level sequence or sample, or batch none"),),
        silent="none",
    ),
    Option(
        "credit", get_args(Credit),
        "the rewards a token is credited with: its own and later ones, its own, all",
        (NEEDS_TOKENS,
         Need("use", ("reward",), "a differentiated loss pushes on its own token; choose use reward")),
    ),
    Option(
        "weights", get_args(Weights),
        "rho of a token: its own ratio, the product up to it, or of all tokens",
        (NEEDS_TOKENS,),
    ),
    Option(
        "aggregate", get_args(Aggregate),
        "mean divides by the length T of a sequence, batch by (T_1 + .. + T_n)/n",
        (Need("level", ("token", "sequence"),
              "a single sample has no length; choose level token or sequence"),),
    ),
)  # fmt: skip
CHOICES = {option.name: option.choices for option in OPTIONS}
DEFAULTS = {option.name: option.choices[0] if option.always else option.silent for option in OPTIONS}


def document_options(function: Documented) -> Documented:
    """Replace the line OPTIONS in the docstring of a function by the options, in NumPy style."""
    rows = [(o.name, ", ".join(f'"{choice}"' for choice in o.choices), o.meaning) for o in OPTIONS]
    text = "\n".join(f"{name} : {{{choices}}}, optional\n    {means}." for name, choices, means in rows)
    function.__doc__ = cleandoc(function.__doc__ or "").replace("OPTIONS\n", f"{text}\n")
    return function
