"""The commands on numbers: `klsym verify` and `klsym figures`."""

from __future__ import annotations

import argparse

from klsym.commands.console import make_output_folder, parse_whole_number, show_bar, show_progress
from klsym.errors import UsageError
from klsym.escaping import printable


def verify_identities(options: argparse.Namespace) -> int:
    """Every identity exactly and by sampling; 1 if one disagrees."""
    from klsym.study.ledger.registry import select
    from klsym.study.ledger.settle_claim import settle
    from klsym.study.sampling.backends import choose_backend
    from klsym.study.sampling.identities import LARGEST_DRAW, Options
    from klsym.study.sampling.verify import build_table, summarise, verify

    on, seed = choose_backend(options.backend, options.device), parse_whole_number("--seed", options.seed, 0)
    chosen = [claim for claim in select(options.ids) if claim.verdict != "computed"]
    if not chosen:
        raise UsageError(
            "experiments are no identities: `klsym prove` runs them, verify has nothing to check"
        )
    settings = Options(on, seed=seed)
    if options.samples is not None:
        samples = parse_whole_number("--samples", options.samples, 1)
        settings = Options(on, samples, min(samples, LARGEST_DRAW), seed)
    settled = [settle(claim) for claim in chosen]
    with show_bar("sample") as progress:
        report = verify(settled, settings, options.scheduler, progress)
    print(build_table(report))
    print("\n".join(["", f"sampled with {on.describe()}, seed {seed}", *summarise(report)]))
    return 0 if report.passed else 1


def draw_figures(options: argparse.Namespace) -> int:
    """The experiments, run, drawn and told."""
    from klsym.experiments.catalogue import EXPERIMENTS, result, select
    from klsym.experiments.save_figure import draw

    names, folder = select(options.ids), make_output_folder(options.output)
    for name in show_progress(names, str):
        paths = draw(name, folder)
        print(f"{name}: {EXPERIMENTS[name].title}  ({', '.join(path.name for path in paths)})")
        for finding in result(name).findings:
            print(finding.line)
    print(f"{len(names)} figures in {printable(str(folder))}")
    return 0
