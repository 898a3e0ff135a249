"""Inputs that nobody would write, for the five readers: each gives a result, or an error of klsym's in one
line.

    .venv/bin/python tests/support/campaigns/fuzzing.py --count 1000000 [--seed 0] [--jobs 2]

    parser         losses changed at random, and pieces of the grammar in any order
    json           texts of certificates changed at random; what can be read goes to the kernel
    certificates   those of `mutated_certificates`
    audit          Python files changed at random, targets, roles and options; the code is found and bound,
    never run
    explain        losses of the whole grammar, some of them changed at random, with random options: `klsym`
    prints an answer, or one line

Within 10 s of a processor and 2 GB each.  Outcomes are kept in build/fuzz-*.jsonl, so that a run goes on
where it was cut off; what came of it is stored in benchmarks/campaigns.json.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import random
import resource
import signal
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from klsym import cli
from klsym.audit import binding, reading
from klsym.engine.options.option_table import OPTIONS as SETTINGS
from klsym.errors import KlsymError, Refused, UsageError
from klsym.kernel import check, read
from klsym.language.parser import parse
from support.campaigns import mutated_certificates
from support.campaigns import stored as campaigns
from support.losses.random_losses import generate

HERE = Path(__file__).parents[1] / "audits"
SECONDS, MEMORY, LIMIT = 10, 2 << 30, 5  # LIMIT: of a question, within which klsym has to keep
LONGEST = 900  # characters of a message
PIECES = (
    "k1", "k2", "r", "rho", "log_q", "R", "lam", "n", "T", "past(", "loo(", "sg(", "exp(", "log(",
    "clip(", "k(", "(", ")", ",", "+", "-", "*", "/", "**", "^", ".", "'", "if", "=", ":", "[", "]",
    "0", "1", "64", "1e9", "1e-9", "0.5", "9" * 50, "λ", "\n", "\t", "\0", "\u202e", "__import__",
    "lambda", "\ud800", "\\", '"', "#", "None",
)  # fmt: skip
OF_JSON = (
    "{", "}", "[", "]", ",", ":", '"', "null", "true", "NaN", "1e5", "-Infinity", "0.1", "9" * 30,
    '"\\ud800"', '{"a":1,"a":2}', "[[[[[[", "\\", "\0", "é", '"1/0"', '"-1"', "{}", "[]",
)  # fmt: skip
OF_PYTHON = (
    "def f(", "    ", "\n", ":", "return ", "self.", "(", ")", "[0]", "[:, 1:]", "=",
    "lambda x: ", "class A(A): pass\n", "class A(B): pass\nclass B(A): pass\n",
    "@property\n", "import os\n", "from . import x\n", "a" + ".a" * 400,
    "1" + "+1" * 400, "((((((", "'", '"""', "\t", "\0", "é", "yield ", "global k1\n",
    "*args, ", "**kwargs", "if True:\n", "try:\n", "\\",
)  # fmt: skip
OPTIONS = (
    "0.04", "k3", "true", "None", "{[]: 1}", "[" * 300, "'", "1e999", "{1, []}", "-'a'",
    "9" * 5000, "", "\0", "b''", "(" * 90 + ")" * 90, "log_q", "mask", "log_p[v]",
    "log_q - log_mu", "k1**k1**k1",
)  # fmt: skip
ATOMS = (
    "k1", "k2", "k3", "k(0.5)", "k(lam)", "r", "rho", "rho_old", "log_q", "log_p", "log_mu", "log_old", "R",
    "A", "M", "T", "n", "lam", "eps", "alpha", "1", "2", "1/2", "0",
)  # fmt: skip
FUNCTIONS = (
    "sg({0})", "sg({0})", "exp({0})", "log({0})", "log(1+{0}**2)", "sqrt({0})", "abs({0})", "min({0},{1})",
    "max({0},{1})", "clip({0},{2},{3})", "past({0})", "now({0})", "future({0})", "whole({0})", "togo({0})",
    "seqmean({0})", "others({0})", "loo({0})", "centred({0})", "normalised({0})", "full({0})",
    "full_kl(q,p)", "H(q)", "js(q,p)",
)  # fmt: skip
BOUNDS = ("-2", "-1", "-1/2", "0", "1/2", "0.8", "1", "1.2", "2", "eps", "1+eps")
AUDITED = ("audited.py", "audited_numpy.py", "audited_jax.py")


class TooSlow(BaseException):
    """Not done within the limit; nothing that klsym catches."""


# ---------------------------------------------------------------------------- random texts
def changed(text: str, pieces: tuple[str, ...], rng: random.Random) -> str:
    """Some characters or stretches left out, doubled, exchanged or put in."""
    for _ in range(rng.choice((1, 1, 2, 3, 5, 9))):
        i = rng.randint(0, len(text))
        j = min(len(text), i + rng.choice((0, 1, 1, 3, 12, 60)))
        shape = rng.randrange(5)
        if shape == 0:
            text = text[:i] + text[j:]
        elif shape == 1:
            text = text[:i] + text[i:j] * rng.choice((2, 2, 3, 40)) + text[j:]
        elif shape == 2:
            text = text[:i] + rng.choice(pieces) + text[j:]
        elif shape == 3:
            text = text[:i] + rng.choice(pieces) * rng.choice((1, 1, 2, 200)) + text[i:]
        else:
            k = rng.randint(0, len(text))
            text = text[:i] + text[k : k + j - i] + text[j:]
        text = text[:200_000]
    return text


def loss_text(rng: random.Random) -> str:
    if rng.random() < 0.25:
        return "".join(rng.choice(PIECES) + rng.choice(("", " ")) for _ in range(rng.randint(0, 30)))
    kind = rng.choice(("core", "anywhere", "sums", "shipped"))
    return changed(generate(kind, 0, rng.randrange(10**6)).text, PIECES, rng)


def sentence(rng: random.Random, depth: int) -> str:
    """A loss of the whole grammar."""
    if depth == 0 or rng.random() < 0.15:
        return rng.choice(ATOMS)
    shape = rng.random()
    if shape < 0.45:
        return f"({sentence(rng, depth - 1)}{rng.choice('+-**/')}{sentence(rng, depth - 1)})"
    if shape < 0.5:
        return f"({sentence(rng, depth - 1)})**{rng.choice(('2', '3', '(1/2)', '-1', 'lam', '0'))}"
    arguments = [sentence(rng, depth - 1) for _ in range(2)]
    return rng.choice(FUNCTIONS).format(*arguments, *rng.sample(BOUNDS, 2))


def question(rng: random.Random) -> list[str]:
    """Words for `klsym`: mostly such as have an effect."""
    loss = sentence(rng, rng.choice((1, 2, 2, 3, 4)))
    if rng.random() < 0.2:
        loss = changed(loss, PIECES, rng)
    given = {option.name: option.choices[0] for option in SETTINGS}
    words = []
    for option in SETTINGS:
        if rng.random() < 0.5 and (not option.explain_no_effect(given) or rng.random() < 0.05):
            given[option.name] = rng.choice(option.choices)
            words += [f"--{option.name}", given[option.name]]
    form = rng.choice(("text", "text", "text", "latex", "markdown", "json"))
    return [
        "explain",
        *words,
        "--format",
        form,
        "--time-limit",
        str(LIMIT),
        "--",
        f"{loss} ",
    ]  # - alone reads stdin


@cache
def certificate_texts() -> tuple[str, ...]:
    return tuple(json.dumps(one) for _, one in sorted(mutated_certificates.originals().items()))


@cache
def sources() -> tuple[str, ...]:
    return tuple((HERE / name).read_text(encoding="utf-8") for name in AUDITED)


# ---------------------------------------------------------------------------- the readers
def parser(rng: random.Random) -> Callable[[], Any]:
    text = loss_text(rng)
    return lambda: parse(text)


def json_text(rng: random.Random) -> Callable[[], Any]:
    text = changed(rng.choice(certificate_texts()), OF_JSON, rng)
    return lambda: check(read(text))


def certificates(rng: random.Random) -> Callable[[], Any]:
    name = rng.choice(sorted(mutated_certificates.originals()))
    mutant = mutated_certificates.mutant(name, rng)
    return lambda: check(mutated_certificates.as_read(mutant))


def audit(rng: random.Random) -> Callable[[], Any]:
    text = rng.choice(sources())
    names = [line[4:].partition("(")[0] for line in text.splitlines() if line.startswith("def ")]
    lines = "-".join(str(rng.randint(0, 80)) for _ in range(rng.choice((1, 2))))
    name = rng.choice(
        (rng.choice(names), rng.choice(names), lines, f"A.{rng.choice(names)}", "9" * 5000, "f", "\0")
    )
    key = rng.choice((*OPTIONS, "logp", "ref_logp", "self.beta"))
    roles = {key: rng.choice(OPTIONS)} if rng.random() < 0.3 else {}
    value, result = rng.choice(OPTIONS), rng.choice((None, None, "0", "loss", rng.choice(OPTIONS)))
    python = changed(text, OF_PYTHON, rng) if rng.random() < 0.9 else text

    def work() -> Any:
        with tempfile.TemporaryDirectory(prefix="klsym-fuzz-") as folder:
            path = Path(folder) / rng.choice(("a.py", "a.py", "a.py", "none.py", "\0.py"))
            if path.name == "a.py":
                path.write_text(python, encoding="utf-8", errors="replace")
            code = reading.read(f"{path}:{name}", result)
            binding.split_pair(f"x={value}", "--set")
            return binding.bind(code, roles, {"x": binding.parse_option(value)} if rng.random() < 0.1 else {})

    return work


def explained(rng: random.Random) -> Callable[[], Any]:
    words = question(rng)

    def work() -> None:
        out, errors = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
            code = cli.main(words)
        said = errors.getvalue()
        if code == 2 and "please report it" not in said:
            raise UsageError(said.removesuffix("\n"))
        if code or said or not out.getvalue():
            raise RuntimeError(f"exit code {code} after {words}: {said}")

    return work


READERS: dict[str, tuple[Callable[[random.Random], Callable[[], Any]], type[KlsymError]]] = {
    "parser": (parser, UsageError),
    "json": (json_text, Refused),
    "certificates": (certificates, Refused),
    "audit": (audit, UsageError),
    "explain": (explained, UsageError),
}
TEN = ("parser", "json", "audit", "parser", "json", "audit", "parser", "json", "audit", "certificates")
TURNS = (*TEN * 10, "explain")


def examine(seed: int, number: int) -> tuple[int, dict[str, Any]]:
    """Input `number` of the sequence `seed`."""
    name = TURNS[number % len(TURNS)]
    make, refusal = READERS[name]
    began = time.process_time()
    work = make(random.Random(f"fuzz {seed}/{number}"))
    signal.signal(signal.SIGPROF, _too_slow)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    complaints, said = list[str](), list[Any]()
    try:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            work()
        kind = "accepted"
    except refusal as error:
        kind, line = "refused", str(error)
        if not line or not line.isprintable() or len(line) > LONGEST:
            complaints.append(f"no line: {line[:200]!r}")
    except TooSlow:
        kind = "broken"
        complaints.append(f"more than {SECONDS} s")
    except BaseException as error:
        kind = "broken"
        complaints.append(f"{type(error).__name__}: {error}"[:200])
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    complaints += [f"prints a warning: {one.message}" for one in said]
    spent = round(time.process_time() - began, 3)
    return number, {"reader": name, "kind": kind, "complaints": complaints, "seconds": spent}


def _too_slow(*_: Any) -> None:
    raise TooSlow


def counted(answers: list[dict[str, Any]]) -> dict[str, int]:
    """What is stored of a run."""
    readers, kinds = Counter(a["reader"] for a in answers), Counter(a["kind"] for a in answers)
    broken = sum(bool(a["complaints"]) for a in answers)
    return {"inputs": len(answers), **{name: readers[name] for name in READERS}, "read": kinds["accepted"],
            "refused in one line": kinds["refused"], "anything else": broken}  # fmt: skip


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--count", type=int, default=1_000_000)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    chosen = options.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    log, base = campaigns.log_of("fuzz", chosen.seed), campaigns.version()
    answers = campaigns.resumed(log, chosen.count, examine, chosen.seed, chosen.jobs, _print_failed)
    counts = counted(answers)
    print("; ".join(f"{count} {name}" for name, count in counts.items()))
    slowest = max(range(len(answers)), key=lambda number: answers[number]["seconds"])
    print(f"the slowest: {answers[slowest]['seconds']} s (number {slowest}, {answers[slowest]['reader']})")
    seconds = sum(answer["seconds"] for answer in answers) / chosen.jobs
    campaigns.record("fuzz", counts, chosen.seed, seconds, base)
    return 1 if counts["anything else"] else 0


def _print_failed(number: int, answer: dict[str, Any]) -> None:
    print(f"BROKEN {number} {answer['reader']}: {'; '.join(answer['complaints'])}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
