"""Times klsym against plain SymPy and prints ratios, which mean the same on any machine.

    python benchmarks/run.py [--repeats N] [--profile] [--output build/benchmarks.json]

Both sides of a ratio are measured in the same run, each as the best of several: other work on the
machine can only make a time longer.
"""

from __future__ import annotations

import argparse
import cProfile
import importlib.util
import json
import os
import pstats
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import sympy
from sympy.core.cache import clear_cache

from klsym.errors import NotInRing
from klsym.files import make_folder, write_whole
from klsym.kernel import check
from klsym.kernel import replay as kernel
from klsym.kernel.ring import ExpPoly
from klsym.language.abbreviations import (
    Context,
    Divergence,
    E,
    ExpectedGradient,
    Gradient,
    Point,
    PointGradient,
    Side,
    walk_elements,
)
from klsym.language.convert import to_ring, to_sympy
from klsym.language.expressions import log_mu, log_p, log_q, sg, unfold
from klsym.study.ledger.registry import load
from klsym.study.ledger.settle_claim import Settled, settle

Row = tuple[str, str, str]  # what, measured, aim
WORDS = {
    "prove_warm": "proof found and replayed, warm",
    "prove_cold": "proof found and replayed, cold",
    "replay_warm": "proof replayed, warm",
    "replay_cold": "proof replayed, cold",
    "decide_cold": "normal form alone, cold",
}
EXPLAIN = ("-m", "klsym", "explain", "rho*k3", "--sampling", "off-policy", "--json")
IMPORT = ("-c", "import sympy")
AUDITED = Path(__file__).parents[1] / "tests" / "support" / "audits" / "audited.py"
AUDIT = ("-m", "klsym", "audit", f"{AUDITED}:ratio_k3", "--sampling", "off-policy", "--json")


def best(action: Callable[[], Any], repeats: int, before: Callable[[], Any] = lambda: None) -> float:
    """The least of several wall times in seconds; `before` is not timed."""
    times = []
    for _ in range(repeats):
        before()
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return min(times)


# ---------------------------------------------------------------------------- starting up
def start_up(repeats: int) -> dict[str, float]:
    """One command against `import sympy` alone, each in a fresh interpreter.

    "installed": Python may cache bytecode, as it does after pip install; the cache lives in a temporary
    folder, filled by a run that does not count.  "as is": in the environment of this process, where
    PYTHONDONTWRITEBYTECODE, say, makes Python compile klsym, but not the installed SymPy, each time.
    """
    with tempfile.TemporaryDirectory() as folder:
        cached = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        cached["PYTHONPYCACHEPREFIX"] = folder
        found = {}
        for name, environment in (("installed", cached), ("as is", dict(os.environ))):
            for label, command in (("explain", EXPLAIN), ("import sympy", IMPORT)):
                _run(command, environment)
                found[f"{label}, {name}"] = best(lambda c=command, e=environment: _run(c, e), repeats)
            found[f"ratio, {name}"] = found[f"explain, {name}"] / found[f"import sympy, {name}"]
    return found


def audits(repeats: int) -> dict[str, float]:
    """One audit of PyTorch code against `import torch` alone, each in a fresh interpreter; nothing without
    PyTorch."""
    if importlib.util.find_spec("torch") is None:
        return {}
    found = {}
    for label, command in (("audit", AUDIT), ("import torch", ("-c", "import torch"))):
        _run(command, dict(os.environ))
        found[label] = best(lambda c=command: _run(c, dict(os.environ)), repeats)
    return {**found, "ratio": found["audit"] / found["import torch"]}


def _run(command: tuple[str, ...], environment: dict[str, str]) -> None:
    subprocess.run([sys.executable, *command], stdout=subprocess.DEVNULL, env=environment, check=True)


# ---------------------------------------------------------------------------- plain SymPy
class NotPlain(Exception):
    """A part that is no single expression: products of means, premises, covariances."""


DENSITIES = {"q": log_q, "p": log_p, "mu": log_mu}


@dataclass(frozen=True)
class Plain:
    """A proved part as someone with SymPy alone would write it: log_q, log_p, log_mu and diff.

    Every mean is a sum over x, so that a side becomes one integrand; grad is d/dlog q of the integrand,
    since theta enters through log q alone.  Losses are taken as the derivation wrote them.
    """

    labels: dict[ExpPoly, Any]
    context: Context

    def expression(self, element: ExpPoly) -> Any:
        if element in self.labels:
            written = self.labels[element]
            return unfold(sympy.sympify(getattr(written, "expression", written)))
        if element.names() & set(self.context.function_arguments):
            raise NotPlain("a generic function that is not written out")
        return unfold(to_sympy(element))

    def side(self, side: Side) -> Any:
        total = sympy.S.Zero
        for coefficient, atoms in side.terms:
            if len(atoms) != 1:
                raise NotPlain(f"a product of {len(atoms)} means")
            total += self.expression(coefficient) * self.atom(atoms[0])
        return total

    def atom(self, atom: Any) -> Any:
        match atom:
            case E(m, a, score) if len(score) <= 1:
                return self.density(m) * self.expression(a)
            case ExpectedGradient(m, loss):
                return self.density(m) * sympy.diff(self.expression(loss), log_q)
            case Point(a, _):
                return self.expression(a)
            case PointGradient(loss):
                return sympy.diff(self.expression(loss), log_q)
            case Divergence("KL", a, b):
                return self.density(a) * (DENSITIES[a] - DENSITIES[b])
            case Divergence("chi2", a, b):
                return self.density(b) * (self.density(a) / self.density(b) - 1) ** 2
            case Gradient(of):
                return sympy.diff(self.side(of), log_q)
        raise NotPlain(type(atom).__name__)

    def density(self, measure: str) -> Any:
        return sympy.S.One if measure == "count" else sympy.exp(DENSITIES[measure])

    def difference(self, left: Side, right: Side) -> Any:
        """The difference of the score coefficients (of the integrands over q), sg dropped."""
        found = self.side(left) - self.side(right)
        while found.has(sg):
            found = found.replace(lambda e: isinstance(e, sg), lambda e: e.args[0])
        if self.context.on_policy:
            found = found.subs(log_mu, log_q)
        pointwise = any(isinstance(a, Point | PointGradient) for _, atoms in left.terms for a in atoms)
        return found if pointwise else found / sympy.exp(log_q)


def plain_parts(settled: Settled) -> Iterator[tuple[Plain, Any]]:
    """The parts that are proved equations and single expressions."""
    for proof in settled.proofs:
        theorem = proof.theorem
        statement = theorem.statement
        if theorem.kind != "proved" or statement.relation != "=" or statement.context.premises:
            continue
        plain = Plain(proof.labels, statement.context)
        try:
            plain.difference(statement.left, statement.right)
        except NotPlain:
            continue
        yield plain, statement


def plain_lines(settled: Settled) -> Iterator[tuple[Plain, Side]]:
    """Every line of the same derivations that plain SymPy can write as one integrand."""
    wanted = {id(statement) for _, statement in plain_parts(settled)}
    for proof in settled.proofs:
        if id(proof.theorem.statement) not in wanted:
            continue
        plain = Plain(proof.labels, proof.theorem.statement.context)
        for step in proof.part["steps"]:
            side = Side.from_json(step["result"])
            try:
                plain.side(side)
            except NotPlain:
                continue
            yield plain, side


# ---------------------------------------------------------------------------- proofs
@dataclass(frozen=True)
class Compared:
    """Seconds for one claim.

    "Warm" is the middle of a ledger run: klsym's memo tables are filled.  "Cold" starts with empty
    caches, SymPy's and klsym's; so does simplify, whose second run would only look up its first.
    """

    claim: str
    parts: int  # that plain SymPy could try, of a claim that may have more
    simplify: float  # diff and simplify of the difference, once for each of those parts
    lines: int
    simplify_lines: float  # simplify at each line of the same derivations, as one would by hand
    prove_warm: float  # settle: the search for the proofs of all parts, and their replay by the kernel
    prove_cold: float
    replay_warm: float  # the kernel alone, all parts
    replay_cold: float
    decide_cold: float  # the normal form of the same differences


def forget() -> None:
    """Empty SymPy's cache and klsym's memo tables, so that no measurement profits from another."""
    clear_cache()
    for name, module in list(sys.modules.items()):
        if name.startswith("klsym"):
            for value in vars(module).values():
                if callable(getattr(value, "cache_clear", None)):
                    value.cache_clear()
    kernel._CHECKED.clear()


def by_hand(parts: list[tuple[Plain, Any]]) -> None:
    """The difference of the two sides of each equation, simplified once."""
    for plain, statement in parts:
        sympy.simplify(plain.difference(statement.left, statement.right))


def line_by_line(lines: list[tuple[Plain, Side]]) -> None:
    """Each line of the derivation, simplified as it is written down."""
    for plain, side in lines:
        sympy.simplify(plain.side(side))


def compare(settled: Settled, repeats: int) -> Compared | None:
    """Time one claim four ways; None when plain SymPy has nothing to try.

    klsym is charged for all parts of the claim, refutations included, SymPy for the proved equations it
    can express.  In return klsym's answer is a proof found step by step and checked; simplify's is a
    rewritten difference, from which the reader must still see that a constant, or a multiple of
    r - 1 or 1/rho - 1, vanishes in the mean.
    """
    parts = list(plain_parts(settled))
    if not parts:
        return None
    differences = [plain.difference(s.left, s.right) for plain, s in parts]
    lines, certificate = list(plain_lines(settled)), settled.certificate()

    def replay() -> None:
        check(certificate)

    def prove() -> None:
        settle(settled.claim)

    return Compared(
        claim=settled.claim.id,
        parts=len(parts),
        simplify=best(lambda: by_hand(parts), min(repeats, 3), forget),
        lines=len(lines),
        simplify_lines=best(lambda: line_by_line(lines), min(repeats, 2), forget),
        prove_warm=best(prove, repeats),
        prove_cold=best(prove, repeats, forget),
        replay_warm=best(replay, repeats),
        replay_cold=best(replay, repeats, forget),
        decide_cold=best(lambda: [_decide(d) for d in differences], repeats, forget),
    )


def _decide(difference: Any) -> None:
    try:
        to_ring(difference)
    except NotInRing:  # the derivative of a generic function, which has no name in plain SymPy
        return


def ratios(compared: list[Compared], name: str, by: str = "simplify") -> dict[str, float]:
    """How many times faster than simplify, claim by claim and in total."""
    compared = [item for item in compared if by == "simplify" or item.lines]
    each = [getattr(item, by) / getattr(item, name) for item in compared]
    total = sum(getattr(item, by) for item in compared) / sum(getattr(item, name) for item in compared)
    return {
        "least": min(each),
        "median": statistics.median(each),
        "greatest": max(each),
        "total": total,
        "share of claims at 50 or more": sum(x >= 50 for x in each) / len(each),
    }


# ---------------------------------------------------------------------------- certificates
def replay_rate(certificates: list[Any], repeats: int) -> dict[str, float]:
    """Certificates the kernel checks in a second, in one process, their JSON already read."""
    seconds = best(lambda: [check(item) for item in certificates], repeats)
    parts = [part for item in certificates for part in item["parts"]]
    steps = sum(len(part["steps"]) for part in parts)
    return {
        "certificates a second": len(certificates) / seconds,
        "parts a second": len(parts) / seconds,
        "steps a second": steps / seconds,
    }


def sizes(certificates: list[Any]) -> dict[str, float]:
    """How long certificates are, and how large the sides in them grow."""
    lengths = [len(json.dumps(item, separators=(",", ":"))) for item in certificates]
    parts = [part for item in certificates for part in item["parts"]]
    sides = [Side.from_json(step["result"]) for part in parts for step in part["steps"]]
    terms = [sum(len(element.terms) for element in walk_elements(side)) for side in sides]
    return {
        "certificates": len(certificates),
        "parts": len(parts),
        "steps": len(sides),
        "bytes, median": statistics.median(lengths),
        "bytes, greatest": max(lengths),
        "bytes, total": sum(lengths),
        "terms of a side, median": statistics.median(terms),
        "terms of a side, greatest": max(terms),
    }


def profile(certificates: list[Any], claims: list[Any]) -> None:
    """Where the time goes, on stderr."""
    for title, action in (
        ("replay", lambda: [check(item) for item in certificates]),
        ("prove", lambda: [settle(claim) for claim in claims]),
    ):
        with cProfile.Profile() as profiler:
            for _ in range(20):
                action()
        print(f"\n--- {title}, 20 times", file=sys.stderr)
        pstats.Stats(profiler, stream=sys.stderr).strip_dirs().sort_stats("tottime").print_stats(25)


# ---------------------------------------------------------------------------- the report
def measure(repeats: int) -> tuple[dict[str, Any], list[Any]]:
    """All measurements, and the certificates they were made on."""
    claims = [claim for claim in load().values() if claim.verdict not in ("exact", "computed")]
    settled = [item for item in map(settle, claims) if item.error or item.proofs]
    failed = [item.claim.id for item in settled if item.error]
    if failed:
        raise SystemExit(f"these claims fail, nothing to time: {', '.join(failed)}")
    certificates = [json.loads(json.dumps(item.certificate())) for item in settled]
    found = (compare(item, repeats) for item in settled)
    compared = [item for item in found if item is not None]
    results = {
        "start-up": start_up(repeats),
        "audit": audits(min(repeats, 3)),
        "faster than simplify": {name: ratios(compared, name) for name in WORDS},
        "faster than simplify line by line": {
            name: ratios(compared, name, "simplify_lines") for name in WORDS if name != "decide_cold"
        },
        "claims": [asdict(item) for item in compared],
        "replay": replay_rate(certificates, repeats),
        "sizes": sizes(certificates),
    }
    return results, certificates


def rows(results: dict[str, Any]) -> Iterator[Row]:
    """The table: what, measured, aim."""
    start = results["start-up"]
    for name in ("installed", "as is"):
        shown = f"{start[f'ratio, {name}']:.2f} ({start[f'explain, {name}'] * 1e3:.0f} ms)"
        yield f"explain over import sympy, {name}", shown, "<= 1.3" if name == "installed" else ""
    if results["audit"]:
        shown = f"{results['audit']['ratio']:.2f} ({results['audit']['audit'] * 1e3:.0f} ms)"
        yield "klsym audit over import torch", shown, ""
    for how in ("faster than simplify", "faster than simplify line by line"):
        for name, found in results[how].items():
            shown = f"{found['median']:.0f}x median, {found['total']:.0f}x total"
            spread = f"{found['least']:.1f}x to {found['greatest']:.0f}x"
            yield f"{how}: {WORDS[name]}", f"{shown}, {spread}", ">= 50x"
    for name, value in results["replay"].items():
        yield name, f"{value:,.0f}", "thousands" if name.startswith("cert") else ""
    for name, value in results["sizes"].items():
        yield name, f"{value:,.0f}", ""
    yield "claims compared with simplify", str(len(results["claims"])), ""


def table(lines: list[Row]) -> str:
    widths = [max(len(line[i]) for line in lines) for i in range(3)]
    return "\n".join(f"{a:<{widths[0]}}  {b:<{widths[1]}}  {c}".rstrip() for a, b, c in lines)


def options(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Time klsym against plain SymPy.")
    parser.add_argument("--repeats", type=int, default=7, help="each time is the best of these (7)")
    parser.add_argument("--profile", action="store_true", help="also profile replay and proofs, on stderr")
    parser.add_argument("--output", type=Path, default=Path("build/benchmarks.json"), help="results as JSON")
    chosen = parser.parse_args(argv)
    if chosen.repeats < 1:
        parser.error("--repeats: a positive number expected")
    return chosen


def main(argv: list[str] | None = None) -> None:
    chosen = options(argv)
    results, certificates = measure(chosen.repeats)
    print(table([("measure", "value", "aim"), *rows(results)]))
    make_folder(chosen.output.parent)
    write_whole(chosen.output, json.dumps(results, indent=1) + "\n")
    print(f"\nwritten to {chosen.output}", file=sys.stderr)
    if chosen.profile:
        profile(certificates, [claim for claim in load().values() if claim.verdict == "proved"])


if __name__ == "__main__":
    main()
