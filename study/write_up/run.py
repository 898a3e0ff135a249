"""Everything that `klsym report` does: settle, certify, cross-check, draw, tabulate, and write the page."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from klsym.errors import UsageError
from klsym.escaping import printable
from klsym.experiments.background_runs import ahead
from klsym.experiments.catalogue import EXPERIMENTS, SETTINGS, result
from klsym.experiments.save_figure import draw
from klsym.files import make_folder, refuse_unless_writable, write_whole
from klsym.kernel import FORMAT
from klsym.study.ledger.cache import Kept
from klsym.study.ledger.progress import Announce, Wrapper, announce_nothing, show_nothing
from klsym.study.ledger.registry import Claim, select
from klsym.study.ledger.settle_all import Judged, count_results, settle_all, write_certificates
from klsym.study.tables.catalogue import tables as every_table
from klsym.study.tables.writing.table import Table
from klsym.study.write_up.page import write_page
from klsym.study.write_up.page_material import Figure, Material

NAME, CERTIFICATES, FIGURES = "report.html", "certificates", "figures"
VERIFIED, FOUND = "verify.txt", "findings.txt"
Sampled = Callable[[int, int], None]


@dataclass(frozen=True)
class Summary:
    """What a report came to: `str` of it is for the terminal.

    passed: every claim settled, the exact oracle and every sampled comparison agree, and each finding of an
    experiment is borne out.
    """

    passed: bool
    text: str

    def __str__(self) -> str:
        return self.text


def make_report(
    folder: Path,
    progress: Wrapper = show_nothing,
    sampled: Sampled | None = None,
    claims: list[Claim] | None = None,
    experiments: list[str] | None = None,
    tables: list[Table] | None = None,
    here: bool = True,
    announce: Announce = announce_nothing,
) -> Summary:
    """Make the report in a folder, with all that it links to beside it.

    folder: made where it is missing; files of a report before this one are written over.  Certificates that
    this run did not make are removed, other files never.
    progress: shown while claims settle and figures are drawn.  sampled: called with (done, total).
    announce: called at the start of each step.
    claims, experiments, tables: a part of them; all if None.
    here: in this process alone; else experiments run and are drawn in others, as `workers` starts them.
    Raises UsageError: a folder that cannot be written.
    """
    _prepare(folder)
    chosen, cached = select([]) if claims is None else claims, Kept()
    names = list(EXPERIMENTS) if experiments is None else experiments
    announce(f"proving and checking {len(chosen)} claims")
    with ahead(names, partial(_draw_experiment, folder=folder / FIGURES), here) as drawn:
        proofs = settle_all([claim for claim in chosen if claim.verdict != "computed"], progress)
        announce("checking the claims by sampling")
        report, verified = check_by_sampling(proofs, sampled)  # before experiments are waited for
        announce("settling the claims that are computed")
        computed_claims = settle_all([claim for claim in chosen if claim.verdict == "computed"], progress)
        place = {claim.id: number for number, claim in enumerate(chosen)}
        results = sorted(
            [*proofs, *computed_claims], key=lambda drawn_figure: place[drawn_figure.settled.claim.id]
        )
        cached.add(r.settled for r in results if not r.error)
        certified = [r.settled.claim.id for r in results if r.settled.proofs and not r.error]
        write_certificates(results, folder / CERTIFICATES)
        _remove_old(folder / CERTIFICATES, certified)
        write_whole(folder / VERIFIED, verified + "\n")
        announce(f"running and drawing {len(names)} experiments")
        figures = [drawn_figure for name in progress(names, str) for drawn_figure in drawn(name)]
    write_whole(folder / FOUND, (findings_text := "\n".join(list_findings(figures))) + "\n")
    announce("making the tables and the page")
    made_tables = list(every_table()) if tables is None else tables
    links = {name: f"{CERTIFICATES}/{name}.json" for name in certified}
    material = Material(results, report, figures, made_tables, sources=list_sources(), certificates=links)
    write_whole(folder / NAME, write_page(material))
    failed = [f"FAILED {r.settled.claim.id}: {' '.join(r.error.split())}" for r in results if r.error]
    lines = [count_results(results), *failed, "", verified, "", findings_text, "", *_list_places(folder)]
    return Summary(not failed and (report is None or report.passed), "\n".join(lines))


def _prepare(folder: Path) -> None:
    """Refuse what cannot be written before a minute of work, and before anything is made."""
    folders = [folder, folder / CERTIFICATES, folder / FIGURES]
    for path in (folder / name for name in (VERIFIED, FOUND, NAME)):
        if path.is_dir():
            raise UsageError(f"cannot write {path}: it is a folder; move it away")
    for path in folders[1:]:
        if path.exists() and not path.is_dir():
            raise UsageError(f"cannot write into {path}: it is a file; move it away")
    for path in folders:
        make_folder(path)
        refuse_unless_writable(path)


def _remove_old(folder: Path, certified: list[str]) -> None:
    """Certificates of a run before this one: they would be taken for those of this run."""
    for path in folder.glob("*.json"):
        if path.stem not in certified and _is_certificate(path):
            path.unlink()


def _is_certificate(path: Path) -> bool:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(content, dict) and content.get("format") == FORMAT


def check_by_sampling(results: list[Judged], sampled: Sampled | None = None) -> tuple[Any, str]:
    """The run of `klsym verify` on settled claims, and what it prints."""
    from klsym.study.sampling import verify
    from klsym.study.sampling.backends import choose_backend
    from klsym.study.sampling.identities import Options

    if not results:
        return None, "experiments are no identities: nothing to cross-check"
    on = choose_backend("numpy", None)
    options = Options(on)
    judged = {r.settled.claim.id: r.judged for r in results}
    report = verify.verify(
        [r.settled for r in results],
        options,
        progress=sampled,
        exactly=lambda one: judged[one.claim.id][one.number - 1],
    )
    lines = ["", f"sampled with {on.describe()}, seed {options.seed}", *verify.summarise(report)]
    return report, "\n".join([verify.build_table(report), *lines])


def _draw_experiment(name: str, folder: Path) -> tuple[Any, list[Figure]]:
    """Run and draw an experiment: PDF, PNG and CSV into the folder, the PNGs for the page."""
    image, *further = [path.read_bytes() for path in draw(name, folder) if path.suffix == ".png"]
    data = result(name)
    header, rows = data.table()
    title = EXPERIMENTS[name].title
    first = Figure(
        name, title, image, ".png", setup=data.setup, findings=data.findings, header=header, rows=rows
    )
    return data, [
        first,
        *(Figure(name + SETTINGS, f"{title}, in other set-ups", further_image) for further_image in further),
    ]


def list_findings(figures: list[Figure]) -> list[str]:
    """What the experiments found, beside what their sources say, in text."""
    lines = []
    for figure in figures:
        if not figure.findings:  # a further picture
            continue
        lines.append(f"{figure.name}: {figure.title}")
        lines += [finding.line for finding in figure.findings]
    return lines


def list_sources() -> dict[str, str]:
    """Tag -> reference in words.

    >>> "Tang" in list_sources()["TM"]
    True
    """
    from klsym.study.write_up.bibliography import SOURCES, describe_source

    return {tag: describe_source(source) for tag, source in SOURCES.items()}


def _list_places(folder: Path) -> list[str]:
    rows = {
        "The report, one page:": folder / NAME,
        "The proofs, one certificate a claim:": folder / CERTIFICATES,
        "The numeric cross-check:": folder / VERIFIED,
        "The experiments, drawn, with their data:": folder / FIGURES,
        "What they found:": folder / FOUND,
    }
    width = max(map(len, rows))
    return [f"{words:<{width}}  {printable(str(path))}" for words, path in rows.items()]
