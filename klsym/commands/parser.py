"""The options of every command; `run` of what is parsed names the function that runs."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from klsym import __version__
from klsym.commands.arguments import parse_seconds
from klsym.engine.options.settings import DEFAULTS, OPTIONS
from klsym.errors import UsageError
from klsym.language.estimators import NAMES

FORMATS = ("text", "latex", "markdown", "json")
FRAMEWORKS = ("torch", "jax", "numpy")
SECONDS = 10.0  # of a question
AUDIT_SECONDS, AUDIT_GIGABYTES = 60.0, 4.0
GRAMMAR = (
    f"Grammar: log_q log_p log_mu {' '.join(NAMES)} k(lam) r rho R A, numbers, + - * / **, "
    "sg exp log sqrt abs min max clip(x, lo, hi), where(rho > 2, x, y), parameters lam beta eps alpha n. "
    "r is p/q. "
    "Of sequences: T, their length; past(x) now(x) future(x) whole(x), sums over tokens; "
    "togo(h) = now(h) + future(h), disc(g, h) = sum_{u>=t} g**(u-t)*h_u, "
    "seqmean(x) = whole(x)/T. Of a batch of n samples: "
    "others(x), a sum over the others; loo(h) = h - others(h)/(n - 1), centred(h), normalised(h). "
    "Exact means over the next token: full(x) = sum_y q(y) x(y), full_kl(q, p), H(q), js(q, p), "
    "js(q, p, beta), 0 < beta < 1. LOSS is differentiated through all that is not in sg(..); with --use"
    " reward nothing is. "
    "PyTorch, JAX and NumPy spellings are read, too: 'd = ref_logp - logp; loss = d.exp() - 1 - d'."
)


class Parser(argparse.ArgumentParser):
    """argparse with one-line errors."""

    def error(self, message: str) -> Any:
        raise UsageError(f"{message} (see {self.prog} --help)")


def build_parser(asked: str = "") -> Parser:
    """All commands with their options; `run` of what is parsed says which function of klsym.commands runs.

    asked: the command; of one about losses the others are left out.
    """
    parser = Parser(prog="klsym", description="Proves what a KL penalty really optimises.")
    parser.add_argument("--version", action="version", version=f"klsym {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    of_losses = {
        "explain": _add_explain, "compare": _add_compare, "optimum": _add_optimum,
        "catalogue": _add_catalogue, "divergence": _add_divergence, "recommend": _add_recommend,
        "audit": _add_audit,
    }  # fmt: skip
    for add in (of_losses[asked],) if asked in of_losses else (*of_losses.values(), _add_ledger_commands):
        add(commands)
    return parser


def _add_explain(commands: Any) -> None:
    explain = commands.add_parser(
        "explain",
        help="derive what a loss targets",
        description="Derive what LOSS targets: the verdict, the proof, the hypotheses, the warnings.",
        epilog=GRAMMAR,
    )
    explain.add_argument(
        "loss", metavar="LOSS", help="a loss such as 'sg(rho)*k2'; - reads one a line from stdin"
    )
    _add_setting(explain)
    _add_format(explain, FORMATS)
    _add_more(explain)
    _add_parameters(explain)
    explain.add_argument(
        "--check", action="store_true",
        help="cross-check on exact finite models and on both sides of every bound; exit 1 if it fails",
    )  # fmt: skip
    _add_time_limit(explain, ": the target is then open; a stream goes on with the next line")
    explain.set_defaults(run="losses:explain_loss")


READ_FROM_CODE = {
    "sampling": "off-policy if the code has old log-probabilities, else on-policy",
    "level": "as the code adds up tokens",
}  # fmt: skip


def _add_setting(
    command: argparse.ArgumentParser,
    without: tuple[str, ...] = (),
    only: tuple[str, ...] = (),
    defaults: Mapping[str, str] | None = None,
) -> None:
    """Add the options that say how the loss is used; defaults: what the help says of a default instead."""
    for option in OPTIONS:
        if option.name not in without and (not only or option.name in only):
            command.add_argument(
                f"--{option.name}", choices=option.choices, default=DEFAULTS[option.name],
                help=f"{option.meaning} ({(defaults or {}).get(option.name, option.choices[0])})",
            )  # fmt: skip


def _add_format(
    command: argparse.ArgumentParser, formats: tuple[str, ...] = ("text", "json"), lines: str = ""
) -> None:
    command.add_argument("--format", choices=formats, default="text")
    command.add_argument(
        "--json", action="store_const", const="json", dest="format", help=f"same as --format json{lines}"
    )


def _add_more(command: argparse.ArgumentParser) -> None:
    said = "also print the derivation, the counterexample and the hypotheses"
    command.add_argument("--proof", action="store_true", help=said)
    command.add_argument("--full", action="store_true", help="print all that is known")


def _add_time_limit(command: argparse.ArgumentParser, then: str = "") -> None:
    command.add_argument(
        "--time-limit", type=parse_seconds, default=SECONDS, metavar="SECONDS",
        help=f"give up after so many seconds of CPU time{then} ({SECONDS:g}; 0 for no limit)",
    )  # fmt: skip


def _add_parameters(command: argparse.ArgumentParser) -> None:
    command.add_argument("--param", action="append", default=[], metavar="NAME", help="declare a parameter")


def _add_compare(commands: Any) -> None:
    compare = commands.add_parser(
        "compare",
        help="put two losses beside one another",
        description="Say whether two losses have the same value, gradient and expected gradient, and which"
        " one has the lower variance where.",
        epilog=GRAMMAR,
    )
    for name in ("A", "B"):
        compare.add_argument(f"loss_{name.lower()}", metavar=f"LOSS_{name}", help="such as 'rho*k3'")
    _add_setting(compare, without=("batch",))
    _add_format(compare)
    _add_more(compare)
    _add_parameters(compare)
    _add_time_limit(compare)
    compare.set_defaults(run="losses:compare_losses")


def _add_optimum(commands: Any) -> None:
    optimum = commands.add_parser(
        "optimum",
        help="where training with a reward and a penalty ends",
        description="All stationary policies of E_q[R] - beta (penalty), their stability, and those on the"
        " boundary that attract.",
        epilog=GRAMMAR,
    )
    optimum.add_argument("loss", metavar="LOSS", help="the penalty, such as k3, without the reward")
    optimum.add_argument("--beta", required=True, metavar="B", help="what the penalty is multiplied with")
    optimum.add_argument(
        "--rewards", required=True, metavar="R1,R2,..", help="the reward of each outcome, such as 1,-1/2,0.5"
    )
    for name, of in (("reference", "p"), ("behaviour", "mu")):
        optimum.add_argument(
            f"--{name}", metavar="P1,P2,..", help=f"{of}: a probability for each outcome (uniform)"
        )
    _add_setting(optimum, only=("sampling", "use"))
    optimum.add_argument(
        "-o", "--output", metavar="FILE", help="a phase portrait, .pdf or .png (three outcomes)"
    )
    _add_format(optimum)
    _add_time_limit(optimum)
    optimum.set_defaults(run="optima:show_optimum")


def _add_catalogue(commands: Any) -> None:
    catalogue = commands.add_parser(
        "catalogue",
        help="all losses of a small grammar: how many differ, and which have the gradient of a KL",
        description="All expressions in k1, k2, k3, r, rho, log_q, 1/2, 1, 2 with sg, +, -, * up to a size,"
        " in each setting: how many differ, what they target, which have the expected gradient of a KL.",
    )
    catalogue.add_argument(
        "--size", metavar="N", help="leaves and operations, counted anew (without it: what klsym has stored)"
    )
    catalogue.add_argument("--scheduler", metavar="ADDRESS", help="a Dask scheduler, such as tcp://host:8786")
    catalogue.add_argument("-o", "--output", metavar="FILE", help="write it as JSON")
    _add_format(catalogue)
    catalogue.set_defaults(run="catalogue:show_catalogue")


def _add_divergence(commands: Any) -> None:
    divergence = commands.add_parser(
        "divergence",
        help="from a divergence to the losses that descend it",
        description="The losses that estimate E_q[f(r)] and that descend it, in each setting, with proofs;"
        " and those that look as if they did.",
        epilog="F is reverse-kl, forward-kl, jeffreys, pearson-chi2, neyman-chi2, squared-hellinger,"
        " jensen-shannon, jensen-shannon=1/10 or =beta, alpha, alpha=1/2, tsallis=2 or =alpha; or f as a"
        " function of r = p/q, such as 'r*log(r)'. " + GRAMMAR,
    )
    divergence.add_argument("divergence", metavar="F", help="a name such as jeffreys, or f(r)")
    divergence.add_argument(
        "--sampling", choices=("on-policy", "off-policy"), help="samples from q or from mu (both)"
    )
    _add_format(divergence)
    _add_more(divergence)
    _add_parameters(divergence)
    _add_time_limit(divergence)
    divergence.set_defaults(run="divergences:show_losses")


def _add_recommend(commands: Any) -> None:
    recommend = commands.add_parser(
        "recommend",
        help="what to write for a KL penalty",
        description="The correct choices, best first, each with what is proved of it; the tempting wrong"
        " ones; code for the best.",
    )
    recommend.add_argument(
        "--target",
        required=True,
        choices=("reverse-kl", "forward-kl", "next-token-reverse-kl", "next-token-forward-kl"),
        help="KL(q||p) or KL(p||q), or that of each next token at the prefixes that are drawn (distillation)",
    )
    _add_setting(recommend, only=("sampling", "level"))
    recommend.add_argument(
        "--use", choices=("loss", "reward", "value"), default="loss",
        help="differentiated, detached in the reward, or a number that is logged (loss)",
    )  # fmt: skip
    recommend.add_argument("--framework", choices=FRAMEWORKS, default="torch", help="of the code (torch)")
    _add_format(recommend, ("text", "markdown", "json"))
    _add_more(recommend)
    _add_time_limit(recommend)
    recommend.set_defaults(run="recommend:recommend_loss")


def _add_audit(commands: Any) -> None:
    audit = commands.add_parser(
        "audit",
        help="read real PyTorch, JAX or NumPy code and say what it optimises",
        description="Trace the code that computes a loss, confirm the trace with real tensors and autograd,"
        " and explain it. THIS RUNS THE CODE that is named (the function or lines, and the definitions of the"
        " file that they use; nothing else of a file), in a process of its own with a time and a memory"
        " limit, but with all your rights: audit only code that you would run. Several targets, or several"
        " values of one option, give a table.",
        epilog="Roles: log_q (trained), log_p (reference), log_mu (behaviour), R, A, an expression of these"
        " in the loss grammar, mask (1 at tokens that count), token (the word that was sampled),"
        " and log_q[v], log_p[v] for log-probabilities"
        " or logits of the whole vocabulary. Without --level, code that aggregates over tokens is asked"
        " at level token.",
    )
    audit.add_argument(
        "targets", nargs="*", metavar="CODE",
        help="FILE.py:FUNC, FILE.py:Class.method, FILE.py:120-128 (with --result), or MODULE:FUNC, which"
        " imports MODULE; without any, the targets of klsym.toml or of [tool.klsym] in pyproject.toml",
    )  # fmt: skip
    _add_names(audit)
    _add_setting(audit, defaults=READ_FROM_CODE)
    audit.set_defaults(**dict.fromkeys(DEFAULTS))  # what is not said is left to the code
    audit.add_argument(
        "--expect", metavar="OBJECTIVE",
        help="exit 1 if the code minimises anything else: a target such as reverse-kl, 'reverse-kl inside"
        " clamps', or '-E[A] + 0.04*reverse-kl'",
    )  # fmt: skip
    _add_limits(audit)
    _add_format(audit, lines="; several answers one a line", formats=("text", "json", "sarif", "github"))
    _add_lint(audit)
    audit.set_defaults(run="audit:audit_code")


def _add_names(audit: Any) -> None:
    audit.add_argument(
        "--map", action="append", default=[], metavar="NAME=ROLE",
        help="what an argument, or an expression as the code writes it, stands for: 'batch.ref_logps=log_p'"
        " (guessed from usual names)",
    )  # fmt: skip
    audit.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE",
        help="the value of an option, such as kl_penalty=k3 or self.beta=0.04; given again, a further value",
    )  # fmt: skip
    audit.add_argument(
        "--result",
        metavar="NAME",
        help="the name that holds the loss, or which of several returned values (0)",
    )


def _add_limits(audit: Any) -> None:
    audit.add_argument(
        "--time-limit", type=parse_seconds, default=AUDIT_SECONDS, metavar="SECONDS",
        help=f"end the code after so many seconds ({AUDIT_SECONDS:g})",
    )  # fmt: skip
    audit.add_argument(
        "--memory-limit", type=float, default=AUDIT_GIGABYTES, metavar="GB",
        help=f"memory beyond that of the libraries ({AUDIT_GIGABYTES:g})",
    )  # fmt: skip


def _add_lint(audit: argparse.ArgumentParser) -> None:
    """What a linter has."""
    audit.add_argument(
        "--scan", metavar="PATH",
        help="run nothing; list the functions of a file or folder whose names speak of a KL or of a ratio",
    )  # fmt: skip
    audit.add_argument("--write", action="store_true", help="with --scan: enter them into klsym.toml")
    audit.add_argument(
        "--baseline", metavar="FILE", help="findings that are known and do not count; it shrinks by itself"
    )
    audit.add_argument("--write-baseline", action="store_true", help="store what is found as the baseline")
    audit.add_argument("--exit-zero", action="store_true", help="exit 0 whatever is found")
    audit.add_argument("--quiet", action="store_true", help="findings alone, no summary")


def _add_rules(commands: Any) -> None:
    rule = commands.add_parser(
        "rule",
        help="what a diagnostic code means",
        description="The page of one code: what it means, why it matters, an example, what to write instead,"
        " and the theorem behind it.",
    )
    rule.add_argument("code", metavar="CODE", help="a code or its name: KL004, missing-weight")
    _add_format(rule)
    rule.set_defaults(run="rules:show_rule")

    said = "list the diagnostic codes"
    rules = commands.add_parser("rules", help=said, description="All diagnostic codes, one a line.")
    _add_format(rules)
    rules.set_defaults(run="rules:list_rules")


def _add_ledger_commands(commands: Any) -> None:
    _add_rules(commands)
    prove = commands.add_parser(
        "prove",
        help="settle the ledger",
        description="Prove the claims and check each on exact finite models.",
    )
    prove.add_argument("ids", nargs="*", metavar="ID", help="claims or areas (all)")
    prove.add_argument("--certificates", metavar="DIR", help="write one certificate a claim into DIR")
    prove.set_defaults(run="ledger:prove")
    check = commands.add_parser(
        "check", help="replay certificates", description="Replay certificates with the kernel alone."
    )
    check.add_argument("files", nargs="+", metavar="FILE", help="certificate files, or folders of them")
    check.add_argument("--full", action="store_true", help="also print quantifiers, models and conventions")
    check.set_defaults(run="ledger:replay")
    claims = commands.add_parser(
        "claims", help="list the ledger", description="List the claims and their status."
    )
    claims.add_argument("ids", nargs="*", metavar="ID", help="claims or areas (all)")
    claims.add_argument("--json", action="store_true", help="a JSON list")
    claims.set_defaults(run="ledger:list_claims")
    _add_export(commands)
    _add_verify(commands)
    figures = commands.add_parser(
        "figures",
        help="run the experiments and draw them",
        description="Run the experiments; write each figure as PDF and PNG, and its numbers as CSV.",
    )
    figures.add_argument("ids", nargs="*", metavar="ID", help="experiments, such as tm-fig2 (all)")
    figures.add_argument("-o", "--output", default="figures", metavar="DIR", help="where to (figures)")
    figures.set_defaults(run="numbers:figures")
    _add_tables(commands)
    _add_write_ups(commands)
    axioms = commands.add_parser(
        "axioms", help="what a claim rests on", description="Every rule and hypothesis that a claim rests on."
    )
    axioms.add_argument("id", metavar="ID")
    axioms.set_defaults(run="ledger:show_grounds")


def _add_export(commands: Any) -> None:
    export = commands.add_parser(
        "export",
        help="certificates for the verified checker",
        description="Write certificates as terms for the checker in rocq/, which Rocq has proved sound, and"
        " list the parts that it does not reach. `make rocq` has them checked.",
    )
    export.add_argument(
        "files", nargs="*", metavar="FILE", help="certificate files, or folders of them (those of the ledger)"
    )
    export.add_argument("--rocq", required=True, metavar="DIR", help="where to")
    export.set_defaults(run="ledger:export_to_rocq")


def _add_tables(commands: Any) -> None:
    from klsym.tables.catalogue import NAMES  # loads no more than its own list
    from klsym.tables.writing.notation import NOTATIONS, USUAL

    tables = commands.add_parser(
        "tables",
        help="the tables for write-ups",
        description="Tables made from the claims. LaTeX needs booktabs and amsmath only.",
        epilog="tables:\n" + "\n".join(f"  {name:<12} {shows}" for name, shows in NAMES.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    tables.add_argument("names", nargs="*", metavar="TABLE", help="which tables (all)")
    tables.add_argument("--list", action="store_true", help="list the tables with their columns, make none")
    tables.add_argument("-o", "--output", metavar="DIR", help="one file a table into DIR (all to stdout)")
    tables.add_argument("--format", choices=("latex", "markdown", "html"), default="latex")
    tables.add_argument(
        "--only", nargs="+", default=[], metavar="ROW",
        help="rows that have this loss, claim, area or word, such as k3, reward.k1, off-policy",
    )  # fmt: skip
    tables.add_argument("--columns", nargs="+", default=[], metavar="COLUMN", help="columns, in this order")
    tables.add_argument("--no-claims", action="store_true", help="leave out the ids of the claims")
    tables.add_argument(
        "--notation", choices=tuple(NOTATIONS), default=USUAL, help="q, p, mu (default), or pi, pi_ref, mu"
    )
    tables.set_defaults(run="write_ups:write_tables")


def _add_write_ups(commands: Any) -> None:
    report = commands.add_parser(
        "report",
        help="settle, cross-check, draw, and write it all up as one page",
        description="Settle the whole ledger, cross-check it, run and draw the experiments, make the tables,"
        " and write one HTML page that needs nothing else, with the certificates and figures beside it.",
    )
    report.add_argument("-o", "--output", default="report", metavar="DIR", help="where to (report)")
    report.set_defaults(run="write_ups:write_report")
    paper = commands.add_parser(
        "paper",
        help="the theorems as LaTeX",
        description="Write the generated parts of a paper: theorems with derivations and certificate digests,"
        " the rules, the bibliography, the tables and figures.",
    )
    paper.add_argument("-o", "--output", default="paper", metavar="DIR", help="where to (paper)")
    paper.set_defaults(run="write_ups:write_paper")


def _add_verify(commands: Any) -> None:
    verify = commands.add_parser(
        "verify",
        help="cross-check every identity exactly and by sampling",
        description="Cross-check the claims: exactly on finite models, by sampling finite models (multinomial"
        " counts) and Gaussians, and by automatic differentiation where the backend has it. One false-alarm"
        " rate for the whole run; every check has a negative control.",
    )
    verify.add_argument("ids", nargs="*", metavar="ID", help="claims or areas (all)")
    verify.add_argument("--backend", default="numpy", metavar="NAME", help="numpy (default), torch or jax")
    verify.add_argument("--device", metavar="D", help="cpu (default), cuda, cuda:1, ...")
    verify.add_argument(
        "--samples", metavar="N",
        help="samples of each check, such as 1e6 (default: 1e12 by counting, 2e6 drawn one by one; drawn"
        " one by one are 1e9 at most)",
    )  # fmt: skip
    verify.add_argument("--seed", default="0", metavar="S", help="what all random streams come from (0)")
    verify.add_argument("--scheduler", metavar="ADDRESS", help="a Dask scheduler, such as tcp://host:8786")
    verify.set_defaults(run="numbers:cross_check")
