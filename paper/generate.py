r"""The generated parts of klsym's own paper: each a file that paper/klsym.tex takes in with \input.

    claims, experiments      what the claims that the text cites state and assume, area by area
    index                    the other claims by area: id, verdict, trust
    derivations              how those of the main text are derived, with rules, hypotheses, certificate
    quotes                   every statement by the claim's id, so that the text types no formula again
    ledger, corrections      counts; what the sources print and what holds
    map, survey              the objectives of the estimators, and of released code
    rules, closings          what a derivation may use, and how it may end
    bibliography, figures/   the sources; the experiments and the pictures of the notebooks, drawn

The same ledger gives the same bytes.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from klsym import __version__
from klsym.errors import ProofError
from klsym.experiments.background_runs import ahead
from klsym.experiments.catalogue import EXPERIMENTS, pictures, result
from klsym.experiments.gallery import GALLERY
from klsym.experiments.save_figure import draw
from klsym.files import make_folder, write_whole
from klsym.kernel import CLOSINGS as ENDINGS
from klsym.notation.printers import LATEX
from klsym.notation.text import show_statement
from klsym.paper import survey
from klsym.paper.theorems import (
    TRUST,
    VERDICT_WORDS,
    claim_latex,
    derivation_latex,
    models,
    premises,
    statements,
)
from klsym.render.rules import CLOSINGS, RULES
from klsym.study.figures.style import save
from klsym.study.ledger.evidence import Evidence, count_evidence
from klsym.study.ledger.experiment_result import MARKS, OUTCOMES
from klsym.study.ledger.progress import Wrapper, show_nothing
from klsym.study.ledger.registry import ERRATA, PRINTED, SLIP, WORDS, Claim, load
from klsym.study.ledger.settle_all import visit_claims
from klsym.study.ledger.settle_claim import Settled, settle
from klsym.study.ledger.view import format_statement_latex
from klsym.study.rocq.accepted import read_accepted, summarise_marks
from klsym.study.tables import penalty_map
from klsym.study.write_up.bibliography import cite_tags, write_bibliography
from klsym.study.write_up.prose import render_prose
from klsym.study.write_up.tex import allow_breaks, escape

RATE = Path(penalty_map.__file__).with_name("decision_rate.json")
MAIN_TEXT, SUPPLEMENT = (Path(__file__).with_name(f"{name}.tex") for name in ("klsym", "supplement"))
QUOTE = re.compile(r"\\kl(?:show|quote|two|three)((?:\{[^}#]*\})+)")
AREAS = {
    "value": "Values",
    "gradient": "Gradients, on-policy",
    "offpolicy": "Off-policy weighting",
    "reward": "KL as a detached reward",
    "implied": "Objectives without a name",
    "optimum": "Where training ends",
    "variance": "Variance of gradient estimates",
    "catalogue": "All losses of a small grammar",
    "clip": "Clamps and masks",
    "batch": "Centring in a batch",
    "sequence": "Sequences",
    "neighbour": "Related results",
    "practice": "Advice for code",
    "discount": "Discounts",
    "distill": "Distillation",
    "shipped": "Losses of released trainers",
    "beyond": "Questions left open",
    "methods": "Losses of recent methods",
    "experiment": "Experiments",
}
VERDICTS = ("proved", "refuted", "corrected", "exact", "computed")
MARGIN = {PRINTED: "as printed, false", WORDS: "our reading, false", SLIP: "slip of the pen"}
HEADER = "% Made by `klsym paper` (klsym.paper.generate) from the ledger; do not edit.\n"
OFTEN = 3  # a reading shared by so many claims of an area is printed once


def write_parts(
    folder: Path, progress: Wrapper = show_nothing, figures: bool = True, here: bool = True
) -> list[Path]:
    """Settle the ledger and write every part; the files written.

    progress: wraps the list of claims, as in `settle_all`.  figures: also draw them.  here: in this process
    alone; else experiments run and are drawn in others, as `workers` starts them.
    Raises ProofError: a claim that does not hold.  UsageError: a folder that cannot be written.
    """
    make_folder(folder)
    claims, pictures = list(load().values()), folder / "figures"
    if not figures:
        return _write_parts(folder, claims, progress)
    with ahead(list(EXPERIMENTS), partial(_drawn, folder=pictures), here) as drawn:
        written = _write_parts(folder, claims, progress)
        written += [path for name in EXPERIMENTS for path in drawn(name)]
    for name, picture in GALLERY.items():
        written += save(picture.make(), pictures, name)
    return written


def _write_parts(folder: Path, claims: list[Claim], progress: Wrapper) -> list[Path]:
    settled = visit_claims(claims, settle, progress)
    failed = [f"{item.claim.id}: {item.error}" for item in settled if item.error]
    if failed:
        raise ProofError(f"no paper from a ledger that does not hold: {failed[0]}")
    return [write_whole(folder / f"{name}.tex", HEADER + body) for name, body in parts(settled).items()]


def _drawn(name: str, folder: Path) -> tuple[Any, list[Path]]:
    paths = draw(name, folder)
    return result(name), paths


def parts(settled: list[Settled]) -> dict[str, str]:
    """Name -> LaTeX of each part."""
    makers: dict[str, Callable[[list[Settled]], Iterable[str]]] = {
        "claims": _claims,
        "index": _index,
        "derivations": _derivations,
        "experiments": _experiments,
        "quotes": _quotes,
        "ledger": _ledger,
        "corrections": _corrections,
        "contradictions": _contradictions,
        "map": lambda _: penalty_map.write_latex(),
        "survey": lambda _: survey.latex(),
        "rules": lambda _: _rules(),
        "closings": lambda _: _closings(),
        "bibliography": lambda _: [write_bibliography()],
    }
    return {name: "\n".join(make(settled)) + "\n" for name, make in makers.items()}


def _in_area(settled: list[Settled], area: str) -> list[Settled]:
    return [item for item in settled if item.claim.area == area]


def _areas(settled: list[Settled]) -> Iterator[tuple[str, list[Settled]]]:
    """The areas in reading order; one that the paper does not know comes last."""
    for area in dict.fromkeys((*AREAS, *(item.claim.area for item in settled))):
        chosen = [
            item
            for item in _in_area(settled, area)
            if item.claim.verdict != "computed" or _is_crib_sheet(item)
        ]
        if chosen:
            yield area, chosen


def _claims(settled: list[Settled]) -> Iterator[str]:
    """What is read into many claims of an area is said once, at its head."""
    cited = list_cited(MAIN_TEXT, SUPPLEMENT)
    for area, chosen in _areas([item for item in settled if item.claim.id in cited]):
        lines = Counter(line for item in chosen for line in item.claim.reading)
        known = [line for line, count in lines.items() if count >= OFTEN]
        yield rf"\klarea{{{area}}}{{{escape(AREAS.get(area, area.capitalize()))}}}"
        yield from [rf"\klthroughout{{{'; '.join(map(render_prose, known))}}}"] if known else []
        yield from (claim_latex(item, known) for item in chosen)


def list_quoted(*texts: Path) -> frozenset[str]:
    """The claims whose statements LaTeX files quote.

    >>> "gradient.k2-unique" in list_quoted(MAIN_TEXT), "catalogue.counts" in list_quoted(MAIN_TEXT)
    (True, False)
    """
    quotes = "".join("".join(QUOTE.findall(path.read_text(encoding="utf-8"))) for path in texts)
    return frozenset(re.findall(r"[a-z]+\.[\w-]+", quotes))


def list_cited(*texts: Path) -> frozenset[str]:
    """The claims that LaTeX files quote or refer to; the paper prints these, the report prints all."""
    text = "".join(path.read_text(encoding="utf-8") for path in texts)
    return list_quoted(*texts) | frozenset(re.findall(r"\{claim:([\w.-]+)\}", text))


def _index(settled: list[Settled]) -> Iterator[str]:
    """The claims that are not printed, each on a line."""
    cited = list_cited(MAIN_TEXT, SUPPLEMENT)
    for area, chosen in _areas([item for item in settled if item.claim.id not in cited]):
        yield rf"\klindexarea{{{escape(AREAS.get(area, area.capitalize()))}}}"
        for item in chosen:
            words = f"{VERDICT_WORDS[item.claim.verdict]}, {TRUST[item.trust]}"
            yield rf"\klindexed{{{escape(item.claim.id)}}}{{{words}}}"


def _derivations(settled: list[Settled]) -> Iterator[str]:
    quoted = list_quoted(MAIN_TEXT)
    for area, chosen in _areas([item for item in settled if item.claim.id in quoted]):
        yield rf"\klproofs{{{area}}}{{{escape(AREAS.get(area, area.capitalize()))}}}"
        yield from map(derivation_latex, chosen)
        yield r"\klproofsend"


def _experiments(settled: list[Settled]) -> Iterator[str]:
    """The findings, each beside its figure if the text has not placed it; the report has the others."""
    for item in (item for item in settled if item.claim.verdict == "computed" and not _is_crib_sheet(item)):
        names = [name for name in EXPERIMENTS if item.claim.id.endswith(f".{name}")]
        yield from (rf"\klfigureonce{{{name}}}" for name in names)
        yield claim_latex(item)


def _is_crib_sheet(item: Settled) -> bool:
    """Does it have the cells of a table of advice, each a theorem of the ledger?"""
    return any(isinstance(part, Evidence) and part.advice is not None for part in item.parts)


def _captions(settled: list[Settled]) -> Iterator[str]:
    """Yield the caption of each figure; that of an experiment also states findings with numbers."""
    for name, experiment in EXPERIMENTS.items():
        known = [item for item in settled if item.claim.id.endswith(f".{name}")]
        found = [part.text for item in known for part in item.parts if isinstance(part, Evidence)]
        said = "; ".join(render_prose(found[number]) for number in experiment.stated if number < len(found))
        title = _capital(render_prose(experiment.title))
        shown = [title, *(_capital(one) for one in (render_prose(experiment.point), said) if one)]
        yield rf"\kldefine{{figure/{name}}}{{{'. '.join(shown)}.}}"
        for one in pictures(name)[1:]:
            words = rf"in other set-ups than those of Figure~\ref{{fig:{name}}}"
            yield rf"\kldefine{{figure/{one}}}{{{title}, {words}.}}"
    for name, picture in GALLERY.items():
        yield rf"\kldefine{{figure/{name}}}{{{render_prose(picture.caption)}.}}"


def _capital(latex: str) -> str:
    """A formula begins with a dollar sign, and stays."""
    return latex[:1].upper() + latex[1:]


def _quotes(settled: list[Settled]) -> Iterator[str]:
    for item in settled:
        for name, latex in (*statements(item), *models(item)):
            yield rf"\kldefine{{{name}}}{{{latex}}}"
        for name, latex in premises(item):
            yield rf"\kldefine{{{name}}}{{{latex}}}"
        if item.claim.verdict == "corrected":
            yield rf"\kldefine{{correction/{item.claim.id}}}{{{''.join(_forms(item))}}}"
    yield from _captions(settled)
    yield rf"\kldefine{{version}}{{{escape(__version__)}}}"
    yield rf"\kldefine{{count/claims}}{{{len(settled)}}}"
    for verdict in VERDICTS:
        count = sum(item.claim.verdict == verdict for item in settled)
        yield rf"\kldefine{{count/{verdict}}}{{{count}}}"
    for trust in TRUST:
        yield rf"\kldefine{{count/{trust}}}{{{sum(item.trust == trust for item in settled)}}}"
    theorems = sum(len(item.proofs) for item in settled)
    steps = sum(len(proof.part["steps"]) for item in settled for proof in item.proofs)
    kinds = Counter(proof.theorem.kind for item in settled for proof in item.proofs)
    found = count_evidence(part for item in settled for part in item.parts)
    counts = {"refutations": kinds["refuted"], "compared": sum(found[name] for name in OUTCOMES), **found}
    counts["advice"] = found["advice-right"] + found["advice-wrong"]
    verified = summarise_marks(item.verified for item in settled)
    counts |= {f"verified-{name}": verified[name] for name in ("whole", "some", "accepted", "parts")}
    counts |= {"headlines": read_accepted()["headlines"], "verified-refused": read_accepted()["refused"]}
    counts |= {"theorems": theorems, "steps": steps, "rules": len(RULES), "closings": len(CLOSINGS)}
    counts |= {"map": len(list(penalty_map.cells())), **survey.counts(), **count_decisions()}
    counts |= {f"area-{area}": len(_in_area(settled, area)) for area in AREAS}
    yield from (rf"\kldefine{{count/{name}}}{{{count}}}" for name, count in counts.items())


def count_decisions() -> dict[str, int]:
    """How many random losses are decided, from `benchmarks/decision_rate.py`.

    >>> counts = count_decisions()
    >>> sum(counts.values()) - counts["rate-losses"] == counts["rate-losses"]
    True
    """
    stored = json.loads(RATE.read_text(encoding="utf-8"))
    names = ("proved", "sympy", "numbers", "open", "refused")
    kinds = stored["kinds"].values()
    return {f"rate-{name}": sum(kind[name] for kind in kinds) for name in names} | {
        "rate-losses": stored["count"] * len(stored["kinds"])
    }


def _ledger(settled: list[Settled]) -> Iterator[str]:
    """Counts by area."""
    yield rf"\begin{{tabular}}{{@{{}}l{'r' * (len(VERDICTS) + 1 + len(TRUST))}@{{}}}} \toprule"
    head = " & ".join(("", "claims", *VERDICTS, "kernel", "SymPy", "numbers"))
    groups = ((len(VERDICTS), "verdict"), (len(TRUST), "trust"))
    yield " & " + "".join(rf" & \multicolumn{{{n}}}{{c}}{{{words}}}" for n, words in groups) + r" \\"
    yield rf"\cmidrule(lr){{3-{len(VERDICTS) + 2}}}\cmidrule(l){{{len(VERDICTS) + 3}-{len(VERDICTS) + 5}}}"
    yield head + r" \\ \midrule"
    areas = dict.fromkeys((*AREAS, *(item.claim.area for item in settled)))
    for area in areas:
        name = escape(AREAS.get(area, area.capitalize()))
        yield " & ".join((name, *_counts(_in_area(settled, area)))) + r" \\"
    yield r"\midrule all & " + " & ".join(_counts(settled)) + r" \\ \bottomrule"
    yield r"\end{tabular}"


def _counts(chosen: list[Settled]) -> Iterator[str]:
    """An empty cell is easier to pass over than a 0."""
    yield str(len(chosen))
    for verdict in VERDICTS:
        yield str(sum(item.claim.verdict == verdict for item in chosen) or "")
    for trust in TRUST:
        yield str(sum(item.trust == trust for item in chosen) or "")


def _corrections(settled: list[Settled]) -> Iterator[str]:
    """Yield each false form of a source beside the true form; slips of the pen come last."""
    yield r"\begin{klcorrections}"
    kind, wrong = "", [item for item in settled if item.claim.verdict == "corrected"]
    for item in sorted(wrong, key=lambda item: ERRATA.index(item.claim.erratum)):
        if item.claim.erratum != kind:
            kind = item.claim.erratum
            yield rf"\subsection*{{{kind}}}"
        about = (item.claim.id, cite_tags(item.claim.source), _judged(item.claim))
        yield r"\klcorrection" + "".join(f"{{{text}}}" for text in about)
        yield from _forms(item)
    yield r"\end{klcorrections}"


def _forms(item: Settled) -> Iterator[str]:
    """Yield the false form of a correction, and the true one: the last before it, which is the closest."""
    false = [number for number, part in enumerate(item.parts) if part.kind == "refuted"]
    true = [number for number, part in enumerate(item.parts) if part.kind != "refuted"]
    for number in false[:1]:
        yield rf"\klfalse{{{MARGIN[item.claim.erratum]}}}{{{allow_breaks(_refuted(item.parts[number]))}}}"
    for number in [n for n in true if n < min(false, default=0)][-1:] or true[:1]:
        yield rf"\kltrue{{{allow_breaks(format_statement_latex(item.parts[number]))}}}"


def _refuted(part: Any) -> str:
    """The false form itself, not its negation."""
    if isinstance(part, Evidence):
        return part.latex
    return show_statement(part.theorem.statement, part.labels, spell=LATEX)


def _judged(claim: Claim) -> str:
    """Return the words of a source, the change in a later version, and the true statement."""
    said = [f"Our reading of: {claim.words}."] if claim.words else []
    said += [f"{claim.later[0].upper()}{claim.later[1:]}."] if claim.later else []
    return render_prose(" ".join((*said, claim.explanation)))


NOTED = ("exception", "otherwise", "undecided")


def _contradictions(settled: list[Settled]) -> Iterator[str]:
    """The findings of experiments that are not, or not wholly, what their source says, and wrong advice."""
    yield r"\begin{klfindings}"
    for item in settled:
        for part in item.parts:
            if isinstance(part, Evidence) and (part.outcome in NOTED or part.advice is False):
                said = part.source_says.removesuffix(f" ({MARKS[False]})")
                yield rf"\item \klref{{{item.claim.id}}}. \emph{{Said:}} {render_prose(said)}."
                yield rf"\emph{{Found:}} {render_prose(part.text)}."
    yield r"\end{klfindings}"


def _rules() -> Iterator[str]:
    for rule in RULES.values():
        body = (
            allow_breaks(rule.latex),
            render_prose(rule.hypotheses),
            render_prose(rule.why),
            escape(rule.cite),
        )
        yield rf"\klrule{{{escape(rule.name)}}}" + "".join(f"{{{text}}}" for text in body)


def _closings() -> Iterator[str]:
    for name, why in CLOSINGS.items():
        yield rf"\klclosing{{{escape(name)}}}{{{escape(ENDINGS[name][0])}}}{{{render_prose(why)}}}"
