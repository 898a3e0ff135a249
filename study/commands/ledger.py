"""The commands on the ledger: `klsym prove`, `export`, `claims`, `axioms`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

from klsym.commands.certificates import list_certificate_files, read_certificate
from klsym.commands.console import format_line, make_output_folder, print_complaint, show_progress
from klsym.errors import Refused, UsageError
from klsym.escaping import printable


def prove(options: argparse.Namespace) -> int:
    """Settle claims, with the exact oracle beside them; 1 if one fails."""
    from klsym.experiments.background_runs import ahead, of_claims
    from klsym.study.ledger.cache import Kept
    from klsym.study.ledger.registry import select
    from klsym.study.ledger.settle_all import count_results, settle_all, write_certificates

    claims, cached = select(options.ids), Kept()
    folder = None if options.certificates is None else make_output_folder(options.certificates)
    with ahead(of_claims(claims)):
        results = settle_all(claims, progress=show_progress)
    cached.add(result.settled for result in results if not result.error)
    print(count_results(results))
    failed = [result for result in results if result.error]
    for result in failed:
        print(f"FAILED {result.settled.claim.id}: {format_line(result.error)}")
    if folder is not None:
        print(f"{write_certificates(results, folder)} certificates in {printable(str(folder))}")
    return 1 if failed else 0


def export_to_rocq(options: argparse.Namespace) -> int:
    """Write certificates for the verified checker; 1 if the kernel refuses one, or a claim fails."""
    from klsym.study.rocq.export import export, write_files

    try:
        certificates = dict(_read_certificates(options.files) if options.files else _settle_certificates())
    except Refused as refusal:
        print(f"REFUSED {format_line(str(refusal))}")
        return 1
    exported = export(certificates)
    folder = make_output_folder(options.rocq)
    write_files(exported, folder)
    count = f"{len(exported.scripts)} of {exported.parts} parts"
    print(
        f"{count} in {printable(str(folder))}"
        + ("; outside.txt says why not the others" if exported.outside else "")
    )
    return 0


def _read_certificates(names: list[str]) -> Iterator[tuple[str, Any]]:
    """Name and content of each file; the kernel accepts it."""
    from klsym.kernel import check

    seen = set[str]()
    for path in list_certificate_files(names):
        if path.stem in seen:
            raise UsageError(f"{path}: another file is called {path.stem}, and files name their parts")
        seen.add(path.stem)
        certificate = read_certificate(path)
        try:
            check(certificate)
        except Refused as refusal:
            raise Refused(f"{path}: {refusal}") from None
        yield path.stem, certificate


def _settle_certificates() -> Iterator[tuple[str, Any]]:
    """Those of all claims that have proofs, settled now."""
    from klsym.study.ledger.registry import select
    from klsym.study.ledger.settle_claim import settle

    claims = [claim for claim in select([]) if claim.verdict != "computed"]
    for claim in show_progress(claims, lambda claim: claim.id):
        settled = settle(claim)
        if settled.error:
            raise Refused(f"{claim.id}: {settled.error}")
        if settled.proofs:
            yield claim.id, settled.certificate()


def list_claims(options: argparse.Namespace) -> int:
    """The ledger, settled now or by an earlier run of the same sources; 1 if a claim fails."""
    from klsym.study.rocq.accepted import Mark

    rows = _load_settled(options.ids) if find_spec("numpy") else _load_stored(options.ids)
    if options.json:
        print(json.dumps(rows, indent=1))
    else:
        width = max(len(row["id"]) for row in rows)
        for row in rows:
            mark = Mark.from_json(row["verified"]).word if row["verified"] else "-"
            line = "{id:<{width}} {verdict:<9} {status:<7} {trust:<7} {mark:<8} {statement}"
            print(line.format(width=width, mark=mark, **row))
    return 1 if any(row["status"] == "failed" for row in rows) else 0


def _load_stored(ids: list[str]) -> list[dict[str, Any]]:
    """The answers that are stored with this version."""
    from klsym.study.ledger import stored

    rows = stored.replay_answers(ids)
    print_complaint(f"without NumPy, as settled on {stored.read_date()}; the proofs were replayed just now")
    return rows


def _load_settled(ids: list[str]) -> list[dict[str, Any]]:
    """The answers from the cache; claims that it lacks are settled."""
    from klsym.experiments.background_runs import ahead, of_claims
    from klsym.study.ledger.cache import Kept
    from klsym.study.ledger.registry import select
    from klsym.study.ledger.settle_all import visit_claims
    from klsym.study.ledger.settle_claim import settle

    claims, cached = select(ids), Kept()
    answers = cached.replay_answers(claims)
    missing = [claim for claim in claims if claim.id not in answers]
    with ahead(of_claims(missing)):
        settled = visit_claims(missing, settle, show_progress)
    cached.add(settled)
    answers |= {settled_claim.claim.id: settled_claim.to_json() for settled_claim in settled}
    return [answers[claim.id] for claim in claims]


def show_grounds(options: argparse.Namespace) -> int:
    """What one claim rests on; 1 if it fails."""
    from klsym.study.ledger.axioms import show_axioms
    from klsym.study.ledger.registry import select
    from klsym.study.ledger.settle_claim import settle

    selected_claims = select([options.id])
    if len(selected_claims) != 1:
        raise UsageError(f"{options.id!r} is an area; name one claim of it, such as {selected_claims[0].id}")
    settled = settle(selected_claims[0])
    if settled.error:
        print(f"FAILED {options.id}: {format_line(settled.error)}")
        return 1
    print(show_axioms(settled))
    return 0
