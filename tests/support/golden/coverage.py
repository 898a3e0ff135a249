"""What the corpus covers: pairs by setting, target and trust, and the parts of the grammar that occur.

>>> from support.golden.stored import read
>>> missing(read())
[]
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from klsym.engine.options.option_table import OPTIONS
from klsym.language.expressions import ATOMS, PARAMETERS
from klsym.language.parser import FUNCTIONS, OF_DENSITIES
from klsym.render.words import TARGETS

from .stored import Row

FEWEST = 3  # answered pairs for each part of the grammar and each choice
PARTS = (*ATOMS, *FUNCTIONS, *OF_DENSITIES, *PARAMETERS)
TRUSTS = ("kernel", "sympy", "numeric", "open")


def coverage_lines(rows: Sequence[Row]) -> Iterator[str]:
    """The counts, one line for each question."""
    yield f"{len(rows)} pairs, {sum('refusal' in answer for _, answer in rows)} refused"
    tallies = {
        "source": Counter(pair.source for pair, _ in rows),
        **{
            option.name: Counter(pair.option(option.name) or "not said" for pair, _ in rows)
            for option in OPTIONS
        },
        "target": Counter(answer.get("target", "refused") for _, answer in rows),
        "trust": Counter(answer.get("trust", "refused") for _, answer in rows),
        "form of h": Counter(answer["form"]["h"] for _, answer in rows if "form" in answer),
        "form of c": Counter(answer["form"]["c"] or "not known" for _, answer in rows if "form" in answer),
        "counterexample": Counter("yes" if answer.get("counterexample") else "no" for _, answer in rows),
        "messages": Counter(code for _, answer in rows for code in answer.get("messages", {})),
        "refusals": Counter(answer["refusal"] for _, answer in rows if "refusal" in answer),
        "grammar": Counter(name for pair, _ in rows for name in pair.names & set(PARTS)),
    }
    for name, tally in tallies.items():
        yield f"{name}: {', '.join(f'{value} {count}' for value, count in tally.most_common())}"
    rooms = Counter(
        " ".join(pair.option(x) for x in ("level", "sampling", "use", "batch")) for pair, _ in rows
    )
    yield from (f"  {room}: {count}" for room, count in sorted(rooms.items()))


def missing(rows: Sequence[Row]) -> list[str]:
    """The choices, parts of the grammar, targets and trusts with too few answered pairs."""
    answered = [(pair, answer) for pair, answer in rows if "refusal" not in answer]
    wanted = {f"{option.name} {choice}" for option in OPTIONS for choice in option.choices}
    wanted |= {*PARTS, *(f"target {target or 'open'}" for target in TARGETS), *(f"trust {x}" for x in TRUSTS)}
    found: Counter[str] = Counter()
    for pair, answer in answered:
        found.update(pair.names)
        found.update(f"{option.name} {pair.option(option.name)}" for option in OPTIONS)
        found.update((f"target {answer['target']}", f"trust {answer['trust']}"))
    return sorted(name for name in wanted if found[name] < FEWEST)
