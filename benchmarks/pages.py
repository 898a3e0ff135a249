"""docs/trust.md and docs/benchmarks.md, written from what is stored; nothing in them is typed.

    python benchmarks/pages.py [--check]

Claims by trust are those of the ledger, settled now; what the verified checker accepts is
study/rocq/accepted.json, campaigns are benchmarks/campaigns.json, ratios benchmarks/releases.json.
"""

from __future__ import annotations

import argparse
import json
import lzma
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from klsym.study.rocq.accepted import MEANS, MEANS_NOT, read_accepted
from klsym.study.tables.measured_data import read_functions
from support.campaigns.stored import HOME, Campaign, campaigns

LEVELS = (
    (
        "kernel, and accepted by the verified checker",
        "a theorem for all values of the parameters, under its premises, in every finite setting of full"
        " support",
        "Rocq's kernel, the axioms of its real numbers, the definitions in `rocq/`, and that JSON was"
        " translated faithfully",
        "a setting in which the two sides differ; another axiom in the output of `Print Assumptions`",
    ),
    (
        "`kernel`",
        "replayed step by step from a certificate",
        "the files of the trusted base below, with its printer, and Python's integers and fractions",
        "a model that satisfies the hypotheses of an accepted certificate, and in which its statement is"
        " false",
    ),
    (
        "`sympy`",
        "a calculation outside the decidable core",
        "SymPy's differentiation, integration and simplification, and klsym's own code around them",
        "a point at which the two sides differ; the exact oracle and the tests search for one",
    ),
    (
        "`numeric`",
        "the result of an experiment at the given settings",
        "floating-point arithmetic, and the statistics: one stated false-alarm rate, and wrong controls"
        " that are detected",
        "the same experiment with another result",
    ),
    ("`open`", "nothing", "nothing", "a proof, or a counterexample"),
)
WORDS = {"kernel": "kernel", "sympy": "SymPy", "numeric": "experiments (numbers, or SymPy if exact)"}
WHAT = {
    "mutants": "Each mutant changes one line of the trusted base. Alive: no test fails. (`make mutants`)",
    "attacks": "Random certificates. A literal oracle checks what the kernel accepts in random models, also"
    " in models with zero densities and with sequences of unbounded length. (`make attacks`)",
    "soundness": "Random statements in every setting, about half of them false. The engine, the kernel, a"
    " literal oracle and, for some of them, the verified checker judge each statement. (`make soundness`)",
    "losses": "Random losses over all settings and levels, in the ring, outside it and in batches. The"
    " campaign compares the answers of `explain` with a literal oracle that enumerates."
    " (`make random-losses`)",
    "clamped losses": "Random losses of tokens, sequences and batches with clamps, masks and a third policy;"
    " a third of them contain named sums. The same oracle judges them, also at points on their bounds."
    " (`make random-losses`)",
    "named sums": "Random losses that name their sums over tokens and samples, compared with the same"
    " oracle. (`make random-losses`)",
    "discounted losses": "Random losses of tokens with discounted sums, compared with the same oracle."
    " (`make random-losses`)",
    "shipped losses": "Random losses with comparisons, masks, discounts, critics and, every second one, a"
    " truncated sampler, of samples and of tokens, compared with the same oracle. (`make random-losses`)",
    "losses of new methods": "Random losses from the building blocks of methods of 2025 and 2026: gates by a"
    " sigmoid with a temperature, geometric means of clipped ratios (GMPO), logs of 1 - q, functions of exact"
    " means over the vocabulary, token masks. The same oracle judges them. (`make random-losses`)",
    "detached functions": "Random losses with detached quotients, logs and roots beside masks and clamps:"
    " only what is attached may be differentiated. The same oracle judges them. (`make random-losses`)",
    "fuzz": "Random and changed inputs for the parser, the JSON reader, the certificate reader and the"
    " audit's loader:"
    " a result, or an error in one line, within 10 s and 2 GB (`make fuzz`)",
}
AIMS = {  # what a ratio is meant to be, by the start of its name
    "one verdict over import sympy": "at most 1.05",
    "a verdict on PPO's clip": "at most 1.3",
    "a verdict on GSPO": "at most 1.3",
    "losses of a stream with JSON in a second": "at least 90",
    "sampling Gaussian gradients": "at most 1.5",
    "counting 1e12": "about 1",
    "growth exponent": "at most 2",
}
GOLDEN, RATE = "tests/support/golden/corpus.json.xz", "study/tables/decision_rate.json"
WORDS_OF_ANSWERS = {
    "kernel": "proved", "sympy": "by SymPy alone", "numeric": "by numbers only", "open": "open",
    "refused": "refused",
}  # fmt: skip
MADE = "<!-- Written by `make pages` from stored data; do not edit. -->\n"


def table(heads: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """
    >>> print(table(["a", "b"], [[1, "x"]]))
    | a | b |
    | --- | --- |
    | 1 | x |
    """
    lines = [list(heads), *([str(cell) for cell in row] for row in rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


# ---------------------------------------------------------------------------- docs/trust.md
def trust(settled: Iterable[Any], computed: int, found: list[Campaign]) -> str:
    """The page.  settled: every claim but the experiments, of which there are so many: computed."""
    known = list(settled)
    parts = [
        MADE,
        "# What must be believed\n",
        "Every answer of klsym has a trust level. This page lists for each level what has to be believed,"
        " what would falsify it, and how many claims have it. It then lists the attempts to break klsym."
        " [SECURITY.md](../SECURITY.md) says how to report a mistake.\n",
        table(("trust", "says", "to be believed", "would be falsified by"), LEVELS),
        "\n## The trusted base\n",
        *base(),
        "\n## Claims by trust\n",
        *claims(known, computed),
        "\n## Answers by trust\n",
        *answers(),
        "\n## The verified checker\n",
        *verified(),
        "\n## Attempts to break it\n",
        *tried(found),
    ]
    return "\n".join(parts) + "\n"


def base() -> Iterator[str]:
    yield (
        "The trusted base is `klsym/kernel/`. It imports Python's standard library alone, and contains no"
        " search and no parser. The engine, SymPy, the command line and the notebooks are not trusted: the"
        " kernel rejects a wrong proof."
    )


def claims(known: list[Any], computed: int) -> Iterator[str]:
    stored, rows = read_accepted()["claims"], []
    for level, words in WORDS.items():
        here = [one for one in known if one.trust == level]
        parts = [(len(stored.get(one.claim.id, {"terms": ()})["terms"]), len(one.parts)) for one in here]
        whole, some = sum(a == b for a, b in parts), sum(0 < a < b for a, b in parts)
        count = len(here) + (computed if level == "numeric" else 0)
        rows.append([words, count, whole, some, count - whole - some])
    heads = ("all parts", "some parts", "no part")
    yield table(("trust", "claims", *heads), [[cell or "" for cell in row] for row in rows])
    yield (
        "\nThe last three columns count claims by how many of their parts the verified checker accepted when"
        " it last ran."
    )


SOURCES = {  # of the golden losses, in words
    "settings": "usual losses in every setting", "grammar": "every part of the grammar",
    "trainers": "losses of trainers", "questions": "questions of public threads",
    "calls": "calls in notebooks and documentation", "anywhere": "random losses",
    "sums": "random losses with sums", "tokens": "random losses of tokens",
    "clamped": "random losses with clamps", "ties": "random losses at their bounds",
    "refused": "texts that should be refused, and their like",
}  # fmt: skip


def answers() -> Iterator[str]:
    """How far the answers to the golden losses, and to random ones, are known."""
    rows = json.loads(lzma.decompress((HOME / GOLDEN).read_bytes()))
    kinds = {name: Counter(_find_trust(row) for row in rows if row["source"] == name) for name in SOURCES}
    random_losses = json.loads((HOME / RATE).read_text(encoding="utf-8"))["kinds"]
    heads = ("losses", *WORDS_OF_ANSWERS.values())
    yield (
        f"The answers to {len(rows)} losses are stored and compared whenever the engine changes"
        " (`make golden`); so many of them rest on the kernel, on SymPy, on numbers, are open or refused:\n"
    )
    yield table(
        heads, [[SOURCES[name], *map(found.__getitem__, WORDS_OF_ANSWERS)] for name, found in kinds.items()]
    )
    yield "\nAnd of random losses, by kind (`benchmarks/decision_rate.py`):\n"
    yield table(heads, [[kind, *found.values()] for kind, found in random_losses.items()])


def _find_trust(row: Mapping[str, Any]) -> str:
    """Return the trust of a stored answer, open or refused."""
    answer = row["answer"]
    return "refused" if "refusal" in answer else answer["trust"] if answer["target"] else "open"


def verified() -> Iterator[str]:
    stored = read_accepted()
    parts = sum(len(row["terms"]) for row in stored["claims"].values())
    yield f"{MEANS}\n"
    yield (
        f"When it last ran, it accepted {parts} parts and refused {stored['refused']} wrong versions of"
        f" them. {stored['headlines']} theorems are stated by hand in plain definitions and follow from its"
        f" soundness; one of them, the tower rule, follows from the definitions alone (`make rocq`).\n"
    )
    yield "Its limits:\n"
    yield from (f"- **{head}**: {body}" for head, body in MEANS_NOT.items())


def tried(found: list[Campaign]) -> Iterator[str]:
    yield (
        "Each campaign is a seeded search, which can be repeated. Campaigns run for releases; each names the"
        " commit on which it ran.\n"
    )
    for one in found:
        yield f"**{one.name}**. {WHAT[one.name]}\n"
        yield table(one.counts, [one.counts.values()])
        if one.reasons:
            yield "\n" + table(("not answered, because", "losses"), one.reasons.items())
        if one.settings:
            first = next(iter(one.settings.values()))
            yield "\n" + table(("setting", *first), [[name, *n.values()] for name, n in one.settings.items()])
        on = f", {one.date}" if one.date else ""
        yield f"\nSeed {one.seed}, {one.seconds} s, commit `{one.version}`{on}.\n"
    missing = [name for name in WHAT if name not in {one.name for one in found}]
    if missing:
        yield f"Not stored: {', '.join(missing)}."


# ---------------------------------------------------------------------------- docs/benchmarks.md
def benchmarks(releases: Mapping[str, Mapping[str, float]]) -> str:
    """The ratios of every release, the newest first."""
    shown = list(releases)[::-1]
    names = list(dict.fromkeys(name for release in shown for name in releases[release]))
    rows = [
        [name, *(f"{releases[r][name]:g}" if name in releases[r] else "" for r in shown), aim(name)]
        for name in names
    ]
    return "\n".join(
        [
            MADE,
            "# Benchmarks\n",
            "Each ratio compares CPU times of one run of `make bench`, so it hardly depends on the machine."
            " The unit is `import sympy` in a fresh interpreter.\n",
            table(("measured", *shown, "aim"), rows),
            "\n`make bench` stores them in `benchmarks/releases.json` under the version of klsym.",
        ]
    ) + "\n"  # fmt: skip


def on_a_gpu(found: Mapping[str, Any]) -> str:
    """The cross-check of the whole ledger on a GPU, and the cost of sampling there."""
    per_type = found["sampling"]
    rows = [[name, *(of[name] for of in per_type.values())] for name in next(iter(per_type.values()))]
    return "\n".join(
        [
            "\n## On a GPU\n",
            f"`klsym verify` on the whole ledger with {found['on']}: {found['identities']} identities of"
            f" {found['claims']} claims, {found['sampled comparisons']:,} sampled comparisons,"
            f" {len(found['disagreeing'])} disagree; {found['negative controls rejected']} of"
            f" {found['negative controls']} negative controls are rejected. Autograd on the card agrees with"
            f" the symbolic gradient in {found['compared with autograd']} identities, relative difference"
            f" at most {found['largest relative difference from autograd']:g}.\n",
            table(("sampling on this card", *per_type), rows),
            f"\n`python benchmarks/gpu.py` measures it; commit `{found['version']}`, {found['date']}.",
        ]
    ) + "\n"  # fmt: skip


def functions(rows: list[dict[str, Any]]) -> str:
    """How many whole loss functions of released packages were read and how many were refused, by kind."""
    kinds = sorted({row["kind"] for row in rows})
    tallies = [(kind, [row for row in rows if row["kind"] == kind]) for kind in kinds] + [("all", rows)]
    heads = ("kind", "functions", "read at first try", "read after --map and --set", "as by hand",
             "not as by hand", "compared by eye", "refused", "of those out of scope", "differs", "crashed",
             "late")  # fmt: skip
    table_rows = [
        [kind, len(some), *(_count(some, *of) for of in COUNTED[:6]), sum(map(_is_out_of_scope, some)),
         *(_count(some, *of) for of in COUNTED[6:])] for kind, some in tallies
    ]  # fmt: skip
    releases = {(row["package"], row["version"]) for row in rows}
    packages = {row["package"] for row in rows}
    return "\n".join(
        [
            "\n## Whole loss functions of released packages\n",
            f"{len(rows)} functions of {len(releases)} releases of {len(packages)} packages. They were"
            " chosen, and a formula was read by hand from the source of each, before klsym read them."
            " Autograd confirms each trace. The trace is compared with the formula: by numbers if both are"
            " about one token, otherwise by eye. The first try has only the configuration of the function;"
            " the second also has the roles of its inputs and further values, or the name of the variable"
            " that is the loss. Packages that a package imports are read if they are installed beside it.\n",
            _shares(rows),
            table(heads, table_rows),
            _measured(rows),
            "\nFor each function that differs from the formula by hand, the reason was found: another"
            " constant factor, an option at its default, or another symbol than the formula by hand assumed."
            " klsym was extended with these functions in view, so the shares are no estimate for"
            " other packages."
            "\n\n`make survey` runs them; the list is `benchmarks/whole_functions.toml`, the results with the"
            " reason of each refusal are `study/tables/whole_functions.json`.",
        ]
    ) + "\n"  # fmt: skip


def _shares(rows: list[dict[str, Any]]) -> str:
    """The shares that were read: of all functions, and of those that are losses of one sequence."""
    inside = [row for row in rows if not _is_out_of_scope(row)]

    def share(some: list[dict[str, Any]], name: str) -> str:
        read = _count(some, name, "read")
        return f"{read} of {len(some)} ({read / len(some):.0%})"

    return (
        f"klsym reads {share(rows, 'first')} at first try and {share(rows, 'second')} after mapping. Without"
        f" the {len(rows) - len(inside)} losses of pairs (DPO and its kin), which are out of scope, it reads"
        f" {share(inside, 'first')} and {share(inside, 'second')}.\n"
    )


def _measured(rows: list[dict[str, Any]]) -> str:
    """How many were measured, alone or beside a reading, and how often the two are not the same."""
    inside = [row for row in rows if not _is_out_of_scope(row)]
    found = [row for row in inside if row["measured"]]
    compared = Counter(row["measured"]["as read"] for row in found)
    either = [row for row in inside if row["measured"] or row["second"] == "read"]
    return (
        f"\n`klsym audit` also runs each function on small worlds. {len(found)} were measured;"
        f" for {compared['yes']} the measured gradient is the proved one, for {compared['no']} it is another"
        f" one (no verdict), and {compared['not compared']} were only measured or have no gradient to"
        f" compare. Read or measured: {len(either)} of {len(inside)} ({len(either) / len(inside):.0%})."
    )


def _is_out_of_scope(row: dict[str, Any]) -> bool:
    return row["kind"] == "pairwise" and "is out of scope" in row["reason"]


COUNTED = (
    ("first", "read"), ("second", "read"), ("by hand", "yes"), ("by hand", "no"), ("by hand", "by eye"),
    ("second", "refused"), ("second", "differs"), ("second", "crashed"), ("second", "late"),
)  # fmt: skip


def _count(rows: list[dict[str, Any]], name: str, value: str) -> int:
    return sum(row[name] == value for row in rows)


def aim(name: str) -> str:
    return next((said for start, said in AIMS.items() if name.startswith(start)), "")


def pages(settled: Iterable[Any], computed: int) -> dict[str, str]:
    """Name -> text of both."""
    releases = json.loads((HOME / "benchmarks" / "releases.json").read_text(encoding="utf-8"))
    told = trust(settled, computed, campaigns())
    gpu = json.loads((HOME / "benchmarks" / "gpu.json").read_text(encoding="utf-8"))
    measured = benchmarks(releases) + on_a_gpu(gpu) + functions([*read_functions()])
    return {"docs/trust.md": told, "docs/benchmarks.md": measured}


def main() -> int:
    from klsym.study.ledger.registry import load
    from klsym.study.ledger.settle_claim import settle

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; 1 if a page would change")
    chosen = parser.parse_args()
    proofs = [claim for claim in load().values() if claim.verdict != "computed"]
    changed = []
    for name, text in pages(map(settle, proofs), len(load()) - len(proofs)).items():
        path = HOME / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            changed.append(name)
        if not chosen.check:
            path.write_text(text, encoding="utf-8")
    print(f"{'would change' if chosen.check else 'written anew'}: {', '.join(changed) or 'none'}")
    return 1 if changed and chosen.check else 0


if __name__ == "__main__":
    sys.exit(main())
