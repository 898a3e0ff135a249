"""The options of the commands of the study; `run` of what is parsed names the function that runs."""

from __future__ import annotations

from typing import Any

from klsym.commands.option_groups import (
    GRAMMAR,
    add_format,
    add_more,
    add_parameters,
    add_setting,
    add_time_limit,
)
from klsym.study.tables.catalogue import NAMES  # loads no more than its own list
from klsym.study.tables.writing.notation import NOTATIONS, USUAL


def add_commands(commands: Any, asked: str = "") -> None:
    """Add the commands; of one about losses the others are left out."""
    of_losses = {"optimum": _add_optimum, "catalogue": _add_catalogue, "divergence": _add_divergence}
    for add in (of_losses[asked],) if asked in of_losses else (*of_losses.values(), _add_ledger_commands):
        add(commands)


def _add_optimum(commands: Any) -> None:
    optimum = commands.add_parser(
        "optimum",
        help="where training with a reward and a penalty ends",
        description="All stationary policies of E_q[R] - beta (penalty), their stability, and those on the"
        " boundary that attract; with --level token, of a penalty on each token of a sequence.",
        epilog=GRAMMAR,
    )
    optimum.add_argument("loss", metavar="LOSS", help="the penalty, such as k3, without the reward")
    optimum.add_argument("--beta", required=True, metavar="B", help="what the penalty is multiplied with")
    optimum.add_argument(
        "--rewards", required=True, metavar="R1,R2,..", help="the reward of each outcome, such as 1,-1/2,0.5"
    )
    optimum.add_argument(
        "--words", metavar="N", help="with --level token: words (2); rewards of the sequences 11,12,21,22"
    )
    for name, policy_letter in (("reference", "p"), ("behaviour", "mu")):
        optimum.add_argument(
            f"--{name}", metavar="P1,P2,..", help=f"{policy_letter}: a probability for each outcome (uniform)"
        )
    add_setting(optimum, only=("sampling", "use", "level", "credit", "weights"))
    optimum.add_argument(
        "-o", "--output", metavar="FILE", help="a phase portrait, .pdf or .png (three outcomes)"
    )
    add_format(optimum)
    add_time_limit(optimum)
    optimum.set_defaults(run="klsym.study.commands.optima:show_optimum")


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
    add_format(catalogue)
    catalogue.set_defaults(run="klsym.study.commands.catalogue:show_catalogue")


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
    add_format(divergence)
    add_more(divergence)
    add_parameters(divergence)
    add_time_limit(divergence)
    divergence.set_defaults(run="klsym.study.commands.divergences:show_losses")


def _add_ledger_commands(commands: Any) -> None:
    prove = commands.add_parser(
        "prove",
        help="settle the ledger",
        description="Prove the claims and check each on exact finite models.",
    )
    prove.add_argument("ids", nargs="*", metavar="ID", help="claims or areas (all)")
    prove.add_argument("--certificates", metavar="DIR", help="write one certificate a claim into DIR")
    prove.set_defaults(run="klsym.study.commands.ledger:prove")
    claims = commands.add_parser(
        "claims", help="list the ledger", description="List the claims and their status."
    )
    claims.add_argument("ids", nargs="*", metavar="ID", help="claims or areas (all)")
    claims.add_argument("--json", action="store_true", help="a JSON list")
    claims.set_defaults(run="klsym.study.commands.ledger:list_claims")
    _add_export(commands)
    _add_verify(commands)
    figures = commands.add_parser(
        "figures",
        help="run the experiments and draw them",
        description="Run the experiments; write each figure as PDF and PNG, and its numbers as CSV.",
    )
    figures.add_argument("ids", nargs="*", metavar="ID", help="experiments, such as tm-fig2 (all)")
    figures.add_argument("-o", "--output", default="figures", metavar="DIR", help="where to (figures)")
    figures.set_defaults(run="klsym.study.commands.numbers:draw_figures")
    _add_tables(commands)
    _add_write_ups(commands)
    axioms = commands.add_parser(
        "axioms", help="what a claim rests on", description="Every rule and hypothesis that a claim rests on."
    )
    axioms.add_argument("id", metavar="ID")
    axioms.set_defaults(run="klsym.study.commands.ledger:show_grounds")


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
    export.set_defaults(run="klsym.study.commands.ledger:export_to_rocq")


def _add_tables(commands: Any) -> None:
    tables = commands.add_parser(
        "tables",
        help="the tables for write-ups",
        description="Tables made from the claims. LaTeX needs booktabs and amsmath only.",
        epilog=f"Tables, which --list describes: {', '.join(NAMES)}.",
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
    tables.set_defaults(run="klsym.study.commands.write_ups:write_tables")


def _add_write_ups(commands: Any) -> None:
    report = commands.add_parser(
        "report",
        help="settle, cross-check, draw, and write it all up as one page",
        description="Settle the whole ledger, cross-check it, run and draw the experiments, make the tables,"
        " and write one HTML page that needs nothing else, with the certificates and figures beside it.",
    )
    report.add_argument("-o", "--output", default="report", metavar="DIR", help="where to (report)")
    report.set_defaults(run="klsym.study.commands.write_ups:write_report")
    paper = commands.add_parser(
        "paper",
        help="the theorems as LaTeX",
        description="Write the generated parts of a paper: theorems with derivations and certificate digests,"
        " the rules, the bibliography, the tables and figures.",
    )
    paper.add_argument("-o", "--output", default="paper", metavar="DIR", help="where to (paper)")
    paper.set_defaults(run="klsym.study.commands.write_ups:write_paper")


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
    verify.set_defaults(run="klsym.study.commands.numbers:verify_identities")
