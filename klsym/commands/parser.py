"""The options of every command of the tool; `run` of what is parsed names the function that runs."""

from __future__ import annotations

import argparse
import importlib
import re
from functools import partial
from typing import Any

from klsym import __version__
from klsym.commands.console import PAGE
from klsym.commands.help_texts import format_examples
from klsym.commands.option_groups import (
    FORMATS,
    GRAMMAR,
    add_format,
    add_more,
    add_parameters,
    add_setting,
    add_time_limit,
    parse_gigabytes,
    parse_seconds,
)
from klsym.commands.wanted_target import suggest_target
from klsym.engine.options.option_table import CHOICES as OPTION_CHOICES
from klsym.engine.options.option_table import DEFAULTS
from klsym.engine.options.synonyms import read_choice, suggest_option
from klsym.errors import UsageError, suggest_nearest

FRAMEWORKS = ("torch", "jax", "numpy")
TARGETS = tuple(
    f"--target {start}{name}-kl" for start in ("", "next-token-") for name in ("reverse", "forward")
)
AUDIT_SECONDS, AUDIT_GIGABYTES = 60.0, 4.0
# The commands of klsym.study, which is looked for when one of them is asked.
STUDY_COMMANDS = (
    "optimum", "catalogue", "divergence", "prove", "claims", "export", "verify", "figures", "tables",
    "report", "paper", "axioms",
)  # fmt: skip


class Formatter(argparse.HelpFormatter):
    """A page as wide as that of the answers, with the help beside its option."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=24, width=PAGE)

    def format_help(self) -> str:
        """Leave out the empty lines between groups of options: their titles stand at the margin."""
        return re.sub(r"(\n [^\n]*)\n\n(?=[^\n]*:\n  +-)", r"\1\n", super().format_help())


class Parser(argparse.ArgumentParser):
    """argparse with one-line errors, whose help begins with commands to paste."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"formatter_class": Formatter, "add_help": False, **options})
        self.add_argument("-h", "--help", action="help", help=argparse.SUPPRESS)

    def error(self, message: str) -> Any:
        if message.endswith(" required: --target"):
            raise UsageError(f"--target expected: {' or '.join(TARGETS)}, as in klsym recommend {TARGETS[0]}")
        raise UsageError(f"{message} (see {self.prog} --help)")

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:  # type: ignore[override]
        """Say of an unknown option that is a choice, such as --off-policy, which option has it."""
        options, unknown = self.parse_known_args(args, namespace)
        if unknown:
            command = f"{self.prog} {args[0]}" if args else self.prog
            hint = suggest_target(unknown, vars(options)) or suggest_option(unknown[0], vars(options))
            raise UsageError(f"unrecognized arguments: {' '.join(unknown)}{hint} (see {command} --help)")
        return options

    def format_help(self) -> str:
        """Begin with two commands to paste, and keep the usage to one line."""
        examples = format_examples(self.prog.partition(" ")[2])
        if not examples:
            return super().format_help()
        whole, self.usage = self.usage, self._write_short_usage()
        try:
            return f"examples:\n{examples}\n{super().format_help()}"
        finally:
            self.usage = whole

    def _write_short_usage(self) -> str:
        positional = (action for action in self._actions if not action.option_strings)
        names = " ".join(str(action.metavar or action.dest) for action in positional)
        required = (a for a in self._actions if a.option_strings and a.required)
        words = (f"{a.option_strings[0]} {a.metavar or a.dest.upper()}" for a in required)
        return " ".join([self.prog, *filter(None, [names]), *words, "[options]"])

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Say which choice is nearest to one that is unknown, or of a loss which command explains it."""
        is_command = isinstance(action, argparse._SubParsersAction)
        if is_command and value not in (action.choices or ()):
            from klsym.engine.answers.loss_hints import is_loss, write_explain
            from klsym.language.named_losses import refuse_sentence

            refuse_sentence(value)
            if is_loss(value):
                raise UsageError(f"{value[:60]!r} is a loss and no command: type {write_explain(value)}")
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            error.message += suggest_nearest(str(value), [str(choice) for choice in action.choices or ()])
            raise

    def _parse_optional(self, arg_string: str) -> Any:
        """Take -E[R] and -0.5*reverse-kl for values: a short option is one letter that is known."""
        is_long = arg_string.startswith("--") or len(arg_string) < 3
        if not is_long and arg_string[0] == "-" and arg_string[:2] not in self._option_string_actions:
            return None
        return super()._parse_optional(arg_string)


def build_parser(asked: str = "") -> Parser:
    """Return the parser of all commands; `run` of what it parses is "module:function".

    asked: the command; of one of the tool the others are left out.
    """
    parser = Parser(prog="klsym", description="Proves what a KL penalty really optimises.")
    parser.add_argument("--version", action="version", version=f"klsym {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    of_tool = {
        "explain": _add_explain, "compare": _add_compare, "recommend": _add_recommend, "audit": _add_audit,
        "measure": _add_measure, "rule": _add_rule, "rules": _add_rules, "examples": _add_examples,
        "check": _add_check,
    }  # fmt: skip
    for add in (of_tool[asked],) if asked in of_tool else of_tool.values():
        add(commands)
    if asked not in of_tool:
        _add_study_commands(commands, asked)
    return parser


def _add_study_commands(commands: Any, asked: str) -> None:
    """Add the commands of klsym.study, if it is installed.

    Raises UsageError: one of them is asked, and it is not.
    """
    try:
        study = importlib.import_module("klsym.study.commands.parser")
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("klsym.study"):
            raise
        if asked in STUDY_COMMANDS:
            raise UsageError(
                f'klsym {asked} belongs to klsym.study, which is missing here: pip install "klsym[report]"'
            ) from None
    else:
        study.add_commands(commands, asked)


def _add_explain(commands: Any) -> None:
    explain = commands.add_parser(
        "explain",
        help="derive what a loss targets",
        description="Say what minimising LOSS does, with a proof or a counterexample.",
        epilog=GRAMMAR,
    )
    explain.add_argument(
        "loss",
        metavar="LOSS",
        help="'sg(rho)*k2', or a name such as grpo; - reads one a line from stdin",
    )
    add_setting(explain)
    explain.set_defaults(**dict.fromkeys(DEFAULTS))  # a named loss has options of its own
    add_format(explain, FORMATS)
    add_more(explain)
    add_parameters(explain)
    explain.add_argument(
        "--check", action="store_true",
        help="also check on finite models and at every bound; exit 1 if it fails",
    )  # fmt: skip
    add_time_limit(explain)
    explain.set_defaults(run="klsym.commands.losses:explain_loss")


def _add_compare(commands: Any) -> None:
    compare = commands.add_parser(
        "compare",
        help="compare two losses",
        description="Say whether two losses have the same value, gradient and expected gradient, and which"
        " one has the lower variance where.",
        epilog=GRAMMAR,
    )
    for name in ("A", "B"):
        compare.add_argument(f"loss_{name.lower()}", metavar=f"LOSS_{name}", help="such as 'rho*k3'")
    add_setting(compare)
    compare.set_defaults(**{name: None for name in DEFAULTS if name != "batch"})
    add_format(compare)
    add_more(compare)
    add_parameters(compare)
    add_time_limit(compare)
    compare.set_defaults(run="klsym.commands.losses:compare_losses")


def _add_recommend(commands: Any) -> None:
    recommend = commands.add_parser(
        "recommend",
        help="what to write for a KL penalty",
        description="The correct choices, best first, each with its proof; common wrong choices; code for"
        " the best.",
    )
    recommend.add_argument(
        "--target",
        type=str.lower,
        required=True,
        metavar="OBJECTIVE",
        help="reverse-kl, KL(q||p), or forward-kl, KL(p||q); next-token-reverse-kl or next-token-forward-kl,"
        " that of each next token at the prefixes that are drawn (distillation)",
    )
    add_setting(recommend, only=("sampling", "level"))
    recommend.add_argument(
        "--use", choices=("loss", "reward", "value"), default="loss",
        help="differentiated, detached in the reward, or a number that is logged (loss)",
    )  # fmt: skip
    recommend.add_argument("--framework", choices=FRAMEWORKS, default="torch", help="of the code (torch)")
    add_format(recommend, ("text", "markdown", "json"))
    add_more(recommend)
    add_time_limit(recommend)
    recommend.set_defaults(run="klsym.commands.losses:recommend_loss")


READ_FROM_CODE = {  # what the help of `klsym audit` says of an option
    "use": "loss, or reward (if the function is named after rewards or advantages)",
    "sampling": "on-policy, off-policy (if the code has old log-probabilities) or truncated",
    "level": "sample, token (if the code adds up tokens) or sequence",
    "batch": "none, mean, leave-one-out or std: which baseline of a batch is subtracted",
    "credit": "to-go, same-token or total: the rewards that a token is credited with",
    "weights": "token, prefix or sequence: rho of a token",
    "aggregate": "sum, mean or batch: what tokens are divided by",
}  # fmt: skip


def _add_audit(commands: Any) -> None:
    audit = commands.add_parser(
        "audit",
        help="read real PyTorch, JAX or NumPy code and say what it optimises",
        description="Read the code of a loss, check the reading by autograd, and explain it. THIS"
        " RUNS THE CODE that is named, with all your rights: audit only code that you would run.",
        epilog="More: --write-baseline --exit-zero --explain-unread --quiet --memory-limit (docs/audit.md);"
        " roles of --map: docs/guides/audit-a-trainer.md",
    )
    audit.add_argument(
        "targets", nargs="*", metavar="CODE",
        help="FILE.py:FUNC, FILE.py:Class.method, FILE.py:120-128, NOTEBOOK.ipynb:FUNC, MODULE:FUNC;"
        " FILE.py: all its losses; none: the targets of klsym.toml",
    )  # fmt: skip
    _add_names(audit)
    add_setting(audit, says=READ_FROM_CODE)
    audit.set_defaults(**dict.fromkeys(DEFAULTS))  # what is not said is left to the code
    audit.add_argument(
        "--expect", metavar="OBJECTIVE",
        help="exit 1 if the code minimises anything else: reverse-kl (or a multiple), '-E[A] +"
        " 0.04*reverse-kl', 'E_mu[k3/T]', own-mean, no-objective, ..",
    )  # fmt: skip
    _add_limits(audit, shows_memory=False)
    add_format(audit, lines="; several answers one a line", formats=("text", "json", "sarif", "github"))
    audit.add_argument("--full", action="store_true", help="print all that was read and found")
    _add_fixes(audit)
    _add_lint(audit.add_argument_group("of a project"))
    audit.set_defaults(run="klsym.commands.audit:audit_code")


def _add_measure(commands: Any) -> None:
    measure = commands.add_parser(
        "measure",
        help="run any loss code on every sample of a small world, and say what it minimises",
        description="Run the code's own autograd on all sequences of a few words, and compare the expected"
        " gradient with those of named objectives. THIS RUNS THE CODE and its module, with all your rights.",
        epilog="Fields of a batch: docs/guides/measure-your-trainer.md",
    )
    measure.add_argument(
        "target",
        metavar="CODE",
        help="FILE.py:FUNC or MODULE:FUNC; or lines of code, - for those of standard input",
    )
    for flag, form, meaning in (
        ("--map", "NAME=FIELD", "the field of the batch for an argument, such as ref_logps=ref_logp"),
        ("--set", "NAME=VALUE", "the value of an argument, such as beta=0.1"),
    ):
        measure.add_argument(flag, action="append", default=[], metavar=form, help=meaning)
    measure.add_argument(
        "--framework", choices=("torch", "jax"), metavar="NAME", help="torch or jax (read from the code)"
    )
    measure.add_argument("--vs", metavar="CODE", help="compare the variance of the gradients of two losses")
    measure.add_argument(
        "--expect",
        metavar="OBJECTIVE",
        help="the objective expected, such as '-E[R] + 0.04*reverse-kl'; else exit 1",
    )
    _add_limits(measure)
    add_format(measure)
    _add_worlds(measure.add_argument_group("the small worlds"))
    _add_samples(measure.add_argument_group("a real model, from which groups are sampled"))
    measure.set_defaults(run="klsym.commands.measure:measure_code")


def _add_worlds(measure: Any) -> None:
    measure.add_argument(
        "--sampling", type=partial(read_choice, "sampling"), choices=OPTION_CHOICES["sampling"],
        metavar="CHOICE", help="on-policy, off-policy, or truncated: q without its least likely words",
    )  # fmt: skip
    for name, default, text in (
        ("group", 1, "samples in one call of the loss"),
        ("words", 3, "size of the vocabulary; word 0 ends a sequence"),
        ("length", 2, "words of the longest sequence"), ("prompts", 1, "prompts, with unequal probabilities"),
        ("worlds", 4, "random policies and rewards to measure on"),
    ):  # fmt: skip
        measure.add_argument(f"--{name}", type=int, metavar="N", help=f"{text} ({default})")
    for name, text in (
        ("third", "old_logp is of a third policy, neither q nor the sampler"),
        ("tool", "the last word calls a tool: a masked word follows"),
        ("fixed-length", "no word ends a sequence: no padding"),
        ("binary", "rewards are 0 and 1"),
    ):
        measure.add_argument(f"--{name}", action="store_true", default=None, help=text)


def _add_samples(measure: Any) -> None:
    measure.add_argument("--model", metavar="CODE", help="a function that returns a network: the policy")
    measure.add_argument(
        "--samples",
        type=int,
        metavar="N",
        help="sample N groups from --model, with --length words at most (8)",
    )
    for flag, text in (("--ref-model", "the reference"), ("--old-model", "the sampler, off-policy")):
        measure.add_argument(flag, metavar="CODE", help=f"with --samples: a function that returns {text}")
    measure.add_argument(
        "--error-rate",
        type=float,
        metavar="RATE",
        help="with --samples: chance to reject a true answer (0.01)",
    )


def _add_names(audit: Any) -> None:
    audit.add_argument(
        "--map", action="append", default=[], metavar="NAME=ROLE",
        help="what an argument or expression stands for, such as batch.ref_logps=log_p",
    )  # fmt: skip
    audit.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE",
        help="the value of an option of the code, such as kl_penalty=k3",
    )  # fmt: skip
    audit.add_argument(
        "--result",
        metavar="NAME",
        help="the name of the loss, or which of several returned values (0)",
    )


def _add_limits(audit: Any, shows_memory: bool = True) -> None:
    audit.add_argument(
        "--time-limit", type=parse_seconds, default=AUDIT_SECONDS, metavar="SECONDS",
        help=f"end the code after so many seconds ({AUDIT_SECONDS:g})",
    )  # fmt: skip
    audit.add_argument(
        "--memory-limit", type=parse_gigabytes, default=AUDIT_GIGABYTES, metavar="GB",
        help=f"memory beyond that of the libraries ({AUDIT_GIGABYTES:g})" if shows_memory
        else argparse.SUPPRESS,
    )  # fmt: skip


def _add_fixes(audit: argparse.ArgumentParser) -> None:
    changes = audit.add_mutually_exclusive_group()
    changes.add_argument(
        "--diff", action="store_true",
        help="print the smallest change with which the loss is right; 1 if it is wrong",
    )  # fmt: skip
    changes.add_argument("--fix", action="store_true", help="write that change into the file")


def _add_lint(audit: Any) -> None:
    """Add the options of a linter; docs/audit.md explains those that the help leaves out."""
    audit.add_argument(
        "--scan", metavar="PATH", help="run nothing; list the functions that compute a KL or a policy loss"
    )
    audit.add_argument(
        "--write",
        action="store_true",
        help="enter what --scan lists, or CODE, into klsym.toml",
    )
    audit.add_argument("--baseline", metavar="FILE", help="findings that are known and do not count")
    audit.add_argument("--write-baseline", action="store_true", help=argparse.SUPPRESS)
    audit.add_argument("--exit-zero", action="store_true", help=argparse.SUPPRESS)
    audit.add_argument("--explain-unread", action="store_true", help=argparse.SUPPRESS)
    audit.add_argument("--quiet", action="store_true", help=argparse.SUPPRESS)


def _add_rule(commands: Any) -> None:
    rule = commands.add_parser(
        "rule",
        help="what a diagnostic code means",
        description="The page of one code: what it means, why it matters, an example, what to write instead,"
        " and the theorem behind it.",
    )
    rule.add_argument("code", metavar="CODE", help="a code or its name: KL004, missing-weight")
    add_format(rule)
    rule.set_defaults(run="klsym.commands.rules:show_rule")


def _add_rules(commands: Any) -> None:
    text = "list the diagnostic codes"
    rules = commands.add_parser("rules", help=text, description="All diagnostic codes, one a line.")
    add_format(rules)
    rules.set_defaults(run="klsym.commands.rules:list_rules")


def _add_examples(commands: Any) -> None:
    text = "list the losses that have usual names, such as grpo"
    examples = commands.add_parser("examples", help=text, description="The losses of trainers and papers.")
    examples.add_argument("name", nargs="?", metavar="NAME", help="one of them, such as grpo")
    add_format(examples)
    examples.set_defaults(run="klsym.commands.examples:list_examples")


def _add_check(commands: Any) -> None:
    check = commands.add_parser(
        "check", help="replay certificates", description="Replay certificates with the kernel alone."
    )
    check.add_argument("files", nargs="+", metavar="FILE", help="certificate files, or folders of them")
    check.add_argument("--full", action="store_true", help="also print quantifiers, models and conventions")
    check.set_defaults(run="klsym.commands.certificates:replay")
