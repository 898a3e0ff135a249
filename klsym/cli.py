"""The command line: results on stdout, the rest on stderr; exit 0 done, 1 a claim failed, 2 bad input."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

from klsym import __version__
from klsym.errors import KlsymError, Refused, UsageError

FORMATS = ("text", "latex", "markdown", "json")
GRAMMAR = (
    "Grammar: log_q log_p log_mu k1 k2 k3 k(lam) r rho R A, numbers, + - * / **, "
    "sg exp log sqrt abs min max clip(x, lo, hi), parameters lam beta eps alpha n T. r is p/q."
)


class Parser(argparse.ArgumentParser):
    """argparse with one-line errors."""

    def error(self, message: str) -> Any:
        raise UsageError(f"{message} (see {self.prog} --help)")


def main(argv: list[str] | None = None) -> int:
    """Run one command; the exit code."""
    try:
        options = build_parser().parse_args(_guard_minus(sys.argv[1:] if argv is None else argv))
        run: Callable[[argparse.Namespace], int] = options.run
        code = run(options)
        sys.stdout.flush()
        return code
    except KlsymError as error:
        print(f"klsym: {one_line(str(error))}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader, such as `head`, went away
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print("klsym: interrupted", file=sys.stderr)
        return 130


def _guard_minus(argv: list[str]) -> list[str]:
    """`explain -k1` means the loss -k1: argparse takes what starts with a space for no option."""
    if argv[:1] not in (["explain"], ["compare"]) or "--" in argv:
        return argv
    known = ("-", "-h", *(a for a in argv if a.startswith("--") and a[2:3].isalpha()))
    losses = ("--k", "--r", "--log", "--lam", "--sg", "--R", "--A")  # such as --k1, which is k1
    return [f" {a}" if a.startswith("-") and (a not in known or a.startswith(losses)) else a for a in argv]


def one_line(text: str, limit: int = 400) -> str:
    text = " ".join(text.split())
    return text if len(text) <= limit else text[: limit - 3] + "..."


def build_parser() -> Parser:
    parser = Parser(prog="klsym", description="Proves what a KL penalty really optimises.")
    parser.add_argument("--version", action="version", version=f"klsym {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_explain(commands)
    _add_compare(commands)
    _add_ledger_commands(commands)
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
    _add_level(explain)
    explain.add_argument(
        "--batch",
        choices=("none", "mean", "leave-one-out", "std"),
        default="none",
        help="what the score's coefficient is centred by; std also divides (none)",
    )
    _add_format(explain, FORMATS)
    explain.add_argument("--check", action="store_true", help="cross-check on exact finite models")
    explain.set_defaults(run=run_explain)


def _add_level(command: Any) -> None:
    """What the loss is applied to."""
    options = {
        "--level": (
            ("sample", "token", "sequence"),
            "one sample (default); each token, summed; a whole sequence",
        ),
        "--credit": (
            ("to-go", "same-token", "total"),
            "the rewards that a token's score meets, with --use reward (to-go)",
        ),
        "--weights": (
            ("token", "prefix", "sequence"),
            "what rho means at a token: its own ratio (default), the product up to it, or of all",
        ),
        "--aggregate": (("sum", "mean"), "mean: 1/T in front, T the random length (sum)"),
    }
    for name, (choices, words) in options.items():
        default = {"--level": "sample"}.get(name)
        command.add_argument(name, choices=choices, default=default, help=words)


def _add_setting(command: argparse.ArgumentParser) -> None:
    command.add_argument("--sampling", choices=("on-policy", "off-policy"), default="on-policy")
    command.add_argument(
        "--use", choices=("loss", "reward"), default="loss", help="differentiated, or detached"
    )


def _add_format(command: argparse.ArgumentParser, formats: tuple[str, ...]) -> None:
    command.add_argument("--format", choices=formats, default="text")
    command.add_argument(
        "--json", action="store_const", const="json", dest="format", help="same as --format json"
    )
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
    _add_setting(compare)
    _add_level(compare)
    _add_format(compare, ("text", "json"))
    compare.set_defaults(run=run_compare)


def _add_ledger_commands(commands: Any) -> None:
    prove = commands.add_parser(
        "prove",
        help="settle the ledger",
        description="Prove the claims and check each on exact finite models.",
    )
    prove.add_argument("ids", nargs="*", metavar="ID", help="claims or areas (all)")
    prove.add_argument("--certificates", metavar="DIR", help="write one certificate a claim into DIR")
    prove.set_defaults(run=run_prove)
    check = commands.add_parser(
        "check", help="replay certificates", description="Replay certificates with the kernel alone."
    )
    check.add_argument("files", nargs="+", metavar="FILE", help="certificate files, or folders of them")
    check.set_defaults(run=run_check)
    claims = commands.add_parser(
        "claims", help="list the ledger", description="List the claims and their status."
    )
    claims.add_argument("ids", nargs="*", metavar="ID", help="claims or areas (all)")
    claims.add_argument("--json", action="store_true", help="a JSON list")
    claims.set_defaults(run=run_claims)
    _add_verify(commands)
    figures = commands.add_parser(
        "figures",
        help="run the experiments and draw them",
        description="Run the experiments; write each figure as PDF and PNG, and its numbers as CSV.",
    )
    figures.add_argument("ids", nargs="*", metavar="ID", help="experiments, such as tm-fig2 (all)")
    figures.add_argument("-o", "--output", default="figures", metavar="DIR", help="where to (figures)")
    figures.set_defaults(run=run_figures)
    axioms = commands.add_parser(
        "axioms", help="what a claim rests on", description="Every rule and hypothesis that a claim rests on."
    )
    axioms.add_argument("id", metavar="ID")
    axioms.set_defaults(run=run_axioms)


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
    verify.set_defaults(run=run_verify)


# ---------------------------------------------------------------------------- explain
def run_explain(options: argparse.Namespace) -> int:
    if options.loss == "-":
        return _explain_stream(options)
    print(_render(_explain(options.loss.strip(" "), options), options.format))
    return 0


def _explain(loss: str, options: argparse.Namespace) -> Any:
    from klsym.engine.explain import explain

    verdict = explain(
        loss, options.sampling, options.use, options.level, options.batch, options.param, options.credit,
        options.weights, options.aggregate,
    )  # fmt: skip
    if not options.check:
        return verdict
    from klsym.numeric.cross_check import with_check
    from klsym.parser import parse

    return with_check(verdict, parse(loss, options.param))


def _explain_stream(options: argparse.Namespace) -> int:
    """One JSON object a line, also for a line that cannot be read; then the exit code is 2."""
    code = 0
    reconfigure = getattr(sys.stdin, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="replace")  # a line that is no text is answered like any other bad line
    for line in sys.stdin:
        loss = line.strip()
        if not loss:
            continue
        try:
            answer = _explain(loss, options).to_json()
        except KlsymError as error:
            answer, code = {"loss": loss[:200], "error": one_line(str(error))}, 2
        print(json.dumps(answer), flush=True)
    return code


def _render(verdict: Any, form: str) -> str:
    if form == "json":
        return json.dumps(verdict.to_json())
    from klsym.render.verdict import derivation_latex, verdict_markdown

    if form == "latex":
        return f"\\[\n{derivation_latex(verdict)}\n\\]"
    return verdict_markdown(verdict) if form == "markdown" else str(verdict)


def run_compare(options: argparse.Namespace) -> int:
    from klsym.engine.compare import compare

    losses = (options.loss_a.strip(" "), options.loss_b.strip(" "))
    level = {name: getattr(options, name) for name in ("level", "credit", "weights", "aggregate")}
    found = compare(*losses, options.sampling, options.use, options.param, **level)
    print(json.dumps(found.to_json()) if options.format == "json" else found)
    return 0


# ---------------------------------------------------------------------------- the ledger
def run_prove(options: argparse.Namespace) -> int:
    from klsym.ledger import select
    from klsym.settling import settle_all, table, write_certificates

    claims = select(options.ids)
    folder = Path(options.certificates) if options.certificates else None
    if folder is not None:
        _make_folder(folder)
    results = settle_all(claims, progress=_progress)
    print(table(results))
    failed = [result for result in results if result.error]
    for result in failed:
        print(f"FAILED {result.settled.claim.id}: {one_line(result.error)}")
    if folder is not None:
        try:
            count = write_certificates(results, folder)
        except OSError as error:
            raise UsageError(f"cannot write into {folder}: {error.strerror}") from None
        print(f"{count} certificates in {folder}")
    return 1 if failed else 0


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot write into {folder}: {error.strerror}") from None


def _progress(items: list[Any], describe: Callable[[Any], str]) -> Iterator[Any]:
    """A bar on stderr, silent when stderr is no terminal."""
    from tqdm import tqdm

    with tqdm(
        items, disable=None, leave=False, unit="claim", bar_format="{l_bar}{bar:24}| {n}/{total} {desc}"
    ) as bar:
        for item in bar:
            bar.set_description_str(describe(item))
            yield item


def run_verify(options: argparse.Namespace) -> int:
    from klsym.ledger import select, settle
    from klsym.sampling.backends import backend
    from klsym.sampling.identities import LARGEST_DRAW, Options
    from klsym.sampling.verify import summary, table, verify

    on, seed = backend(options.backend, options.device), _whole("--seed", options.seed, 0)
    chosen = [claim for claim in select(options.ids) if claim.verdict != "computed"]
    if not chosen:
        raise UsageError(
            "experiments are no identities: `klsym prove` runs them, verify has nothing to check"
        )
    settings = Options(on, seed=seed)
    if options.samples is not None:
        samples = _whole("--samples", options.samples, 1)
        settings = Options(on, samples, min(samples, LARGEST_DRAW), seed)
    settled = [settle(claim) for claim in chosen]
    with _bar("sample") as bar:
        report = verify(settled, settings, options.scheduler, bar)
    print(table(report))
    print("\n".join(["", f"sampled with {on.describe()}, seed {seed}", *summary(report)]))
    return 0 if report.passed else 1


def _whole(name: str, text: str, least: int) -> int:
    """A whole number, also written as 1e6."""
    try:
        value = Decimal(text)
        whole = int(value) if value == value.to_integral_value() and abs(value) < 10**18 else None
    except (ArithmeticError, ValueError):
        whole = None
    if whole is None or whole < least:
        raise UsageError(f"{name} {text[:40]!r}: a whole number, {least} or more, expected")
    return whole


@contextmanager
def _bar(unit: str) -> Iterator[Callable[[int, int], None]]:
    """(done, total) -> a bar on stderr, silent when stderr is no terminal."""
    from tqdm import tqdm

    with tqdm(disable=None, leave=False, unit=unit, unit_scale=True) as bar:

        def show(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        yield show


def run_figures(options: argparse.Namespace) -> int:
    from klsym.experiments.catalogue import EXPERIMENTS, draw, result, select

    folder = Path(options.output)
    names = select(options.ids)
    _make_folder(folder)
    for name in _progress(names, str):
        paths = draw(name, folder)
        print(f"{name}: {EXPERIMENTS[name].title}  ({', '.join(path.name for path in paths)})")
        for finding in result(name).findings:
            said = f" [{finding.mark}: {finding.paper}]" if finding.paper else ""
            print(f"  - {finding.text}{said}")
    print(f"{len(names)} figures in {folder}")
    return 0


def run_check(options: argparse.Namespace) -> int:
    from klsym.kernel import check
    from klsym.render.text import show_theorem

    code = 0
    for path in _certificate_files(options.files):
        try:
            certificate = _read_json(path)
            theorems = check(certificate)
        except Refused as refusal:
            print(f"REFUSED {path}: {one_line(str(refusal))}")
            code = max(code, 1)
        except UsageError as error:
            print(f"klsym: {one_line(str(error))}", file=sys.stderr)
            code = 2
        else:
            print(f"ok {certificate['claim']}: " + "; ".join(show_theorem(t) for t in theorems))
    return code


def _certificate_files(names: list[str]) -> Iterator[Path]:
    for name in names:
        path = Path(name)
        if not path.is_dir():
            yield path
            continue
        inside = sorted(path.glob("*.json"))
        if not inside:
            raise UsageError(f"{name}: no certificates (*.json) in this folder")
        yield from inside


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or 'cannot be read'}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path}: not a text file") from None
    except json.JSONDecodeError as error:
        raise UsageError(
            f"{path}: no valid JSON ({error.msg} at line {error.lineno}); half written?"
        ) from None
    except (RecursionError, ValueError):
        raise UsageError(f"{path}: no certificate (nested too deeply, or a number too long)") from None


def run_claims(options: argparse.Namespace) -> int:
    from klsym.ledger import select, settle

    settled = [settle(claim) for claim in _progress(select(options.ids), lambda claim: claim.id)]
    if options.json:
        print(json.dumps([item.to_json() for item in settled], indent=1))
    else:
        width = max(len(item.claim.id) for item in settled)
        for item in settled:
            claim = item.claim
            print(f"{claim.id:<{width}} {claim.verdict:<9} {item.status:<7} {item.trust:<6} {item.statement}")
    return 1 if any(item.error for item in settled) else 0


def run_axioms(options: argparse.Namespace) -> int:
    from klsym.ledger import select, settle
    from klsym.render.axioms import show_axioms

    found = select([options.id])
    if len(found) != 1:
        raise UsageError(f"{options.id!r} is an area; name one claim of it, such as {found[0].id}")
    settled = settle(found[0])
    if settled.error:
        print(f"FAILED {options.id}: {one_line(settled.error)}")
        return 1
    print(show_axioms(settled))
    return 0
