"""What the verified checker accepts of each claim: from `make rocq`, stored with the digests of what it read.

    python -m klsym.study.rocq.accepted FOLDER      # after rocq/check.py FOLDER: store what it accepted

A mark counts for the certificate and the term that it was computed from, and for the checker that gave it:
where one of them has changed since, the part is stale, and said to be so.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from klsym.files import write_whole
from klsym.study.rocq.export import TERMS, digest_terms, export

STORED = Path(__file__).with_name("accepted.json")
SOURCES = Path(__file__).parents[2] / "rocq"  # of the checker, beside klsym in its repository alone
NONE = "no certificate"  # of calculations by SymPy, and of numbers
CHECKED = "checked.json"  # what rocq/check.py writes: the parts accepted, the digest of the checker

MEANS = (
    "A second checker is written in Rocq and proved sound there, from the definitions of finite sums,"
    " derivatives, exp and log. A statement that it accepts as proved holds in every finite setting of full"
    " support, for all values of the parameters, under the premises of the certificate. A statement that it"
    " accepts as refuted fails in one such setting. Rocq runs the checker on the certificates."
)
MEANS_NOT = {
    "full support": "all densities are positive. The checker does not check hypotheses on supports; densities"
    " with zeros are left to the kernel.",
    "finite spaces": "all sums are finite. The checker does not check that expectations exist, or that"
    " gradients may be exchanged with them.",
    "a re-implementation": "the checker implements the kernel's rules again. It proves nothing about the"
    " kernel's Python, but both must accept a theorem.",
    "a trusted translation": "the translation from JSON to Rocq's terms is trusted, except for the headline"
    " theorems, which are written by hand in plain definitions.",
    "abbreviations": "both checkers read statements in which abbreviations are expanded: KL(q||p) of"
    " sequences is E_q[k1]. Rocq proves, as a headline theorem, that this is the expected sum of the"
    " next-token KLs. Neither checker proves that one sample of a batch represents all n.",
}


@dataclass(frozen=True)
class Mark:
    """How far the verified checker bears a claim out, by the numbers of its parts.

    accepted: as they stand now.  stale: not looked at since they changed.  outside: why they are not reached.
    """

    accepted: tuple[int, ...] = ()
    stale: tuple[int, ...] = ()
    outside: tuple[tuple[int, str], ...] = ()

    @property
    def parts(self) -> int:
        return len(self.accepted) + len(self.stale) + len(self.outside)

    @property
    def whole(self) -> bool:
        return len(self.accepted) == self.parts > 0

    @property
    def word(self) -> str:
        """In a table: all, 2 of 3, outside, or stale.

        >>> Mark((1, 2)).word, Mark((1,), (), ((2, "batches"),)).word, Mark((), (1,)).word
        ('all', '1 of 2', 'stale')
        """
        if self.stale:
            return "stale"
        if self.whole:
            return "all"
        return f"{len(self.accepted)} of {self.parts}" if self.accepted else "outside"

    @property
    def sentence(self) -> str:
        """For a page.

        >>> Mark((1,), (), ((2, "batches"),)).sentence
        'accepts 1 of 2 parts; outside: part 2 (batches)'
        """
        part_word = "parts" if self.parts > 1 else "part"
        clauses = (
            [f"accepts all {self.parts} parts" if self.parts > 1 else "accepts it"] if self.whole else []
        )
        if self.accepted and not self.whole:
            clauses = [f"accepts {len(self.accepted)} of {self.parts} {part_word}"]
        if self.stale:
            clauses.append(f"has not been run since it or {list_numbers(self.stale)} changed")
        reasons = dict.fromkeys(reason for _, reason in self.outside)
        why = [
            f"{list_numbers([n for n, r in self.outside if r == reason])} ({reason})"
            if self.parts > 1
            else f"it ({reason})"
            for reason in reasons
        ]
        if why:
            clauses.append(f"outside: {', '.join(why)}" if clauses else f"does not reach {', '.join(why)}")
        return "; ".join(clauses)

    def to_json(self) -> dict[str, Any]:
        """The entry "verified" of `klsym claims --json`."""
        return {
            "parts": self.parts,
            "accepted": list(self.accepted),
            "stale": list(self.stale),
            "outside": {str(number): reason for number, reason in self.outside},
        }

    def mark_parts(self, places: Sequence[int], parts: int) -> Mark:
        """The mark of a claim of so many parts, of which those at these places have certificates.

        >>> Mark((1, 2)).mark_parts([1, 3], 3).sentence
        'accepts 2 of 3 parts; outside: part 2 (no certificate)'
        """
        outside = {places[number - 1]: reason for number, reason in self.outside}
        outside |= {number: NONE for number in range(1, parts + 1) if number not in places}
        good, stale = (tuple(places[n - 1] for n in numbers) for numbers in (self.accepted, self.stale))
        return Mark(good, stale, tuple(sorted(outside.items())))

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Mark:
        """What `to_json` wrote."""
        outside = tuple((int(number), reason) for number, reason in data["outside"].items())
        return Mark(tuple(data["accepted"]), tuple(data["stale"]), outside)


def list_numbers(numbers: Sequence[int]) -> str:
    """
    >>> list_numbers([2]), list_numbers([1, 3])
    ('part 2', 'parts 1, 3')
    """
    return f"part{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"


def mark(claim: str, certificate: dict[str, Any], accepted_claims: Mapping[str, Any] | None = None) -> Mark:
    """How far the checker bears out the certificate that a claim has now.

    known: claim -> what is stored of it; if None that of this version of klsym, for the checker that is here.
    """
    if accepted_claims is None:
        accepted_claims = {} if has_checker_changed() else read_accepted()["claims"]
    stored = accepted_claims.get(claim, {})
    exported = export({claim: certificate})
    current_terms = digest_terms(exported)[claim]
    good, stale = list[int](), list[int]()
    for number, term in current_terms["terms"].items():
        is_unchanged = (
            stored.get("certificate") == current_terms["certificate"] and stored["terms"].get(number) == term
        )
        (good if is_unchanged else stale).append(int(number))
    outside = [(int(name.rpartition(" ")[2]), reason) for name, reason in exported.outside.items()]
    return Mark(tuple(good), tuple(stale), tuple(outside))


def summarise_marks(marks: Iterable[Mark | None]) -> dict[str, Any]:
    """How many claims it accepts as a whole, in some parts, or not since they changed; and how many parts.

    >>> summarise_marks([Mark((1, 2)), Mark((1,), (), ((2, "batches"),)), None])["outside"]
    {'batches': 1}
    """
    existing_marks = [existing_mark for existing_mark in marks if existing_mark is not None]
    reasons = Counter(
        reason for existing_mark in existing_marks for _, reason in existing_mark.outside if reason != NONE
    )
    accepts = sum(len(existing_mark.accepted) for existing_mark in existing_marks)
    stale = sum(len(existing_mark.stale) for existing_mark in existing_marks)
    return {
        "claims": len(existing_marks),
        "whole": sum(existing_mark.whole for existing_mark in existing_marks),
        "some": sum(
            bool(existing_mark.accepted) and not existing_mark.whole for existing_mark in existing_marks
        ),
        "stale": sum(bool(existing_mark.stale) for existing_mark in existing_marks),
        "accepted": accepts,
        "parts": accepts + stale + reasons.total(),
        "outside": dict(sorted(reasons.items(), key=lambda item: (-item[1], item[0]))),
    }


@cache
def read_accepted() -> dict[str, Any]:
    """What is stored: the digest of the checker, how many wrong versions it refused, the terms accepted."""
    accepted_terms: dict[str, Any] = json.loads(STORED.read_text(encoding="utf-8"))
    return accepted_terms


@cache
def has_checker_changed(sources: Path = SOURCES) -> bool:
    """Is the checker here another than the one that ran?  Without its sources there is nothing to compare."""
    source_files = sorted(sources.rglob("*.v"), key=lambda path: path.name)
    texts = [path.read_text(encoding="utf-8") for path in source_files]
    return (
        bool(texts)
        and hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16] != read_accepted()["checker"]
    )


def record(folder: Path, target: Path = STORED) -> int:
    """Store what rocq/check.py has just accepted of the terms in a folder; how many parts."""
    checked = json.loads((folder / CHECKED).read_text(encoding="utf-8"))
    names, claims = set(checked.pop("accepted")), {}
    for claim, row in json.loads((folder / TERMS).read_text(encoding="utf-8")).items():
        terms = {number: term for number, term in row["terms"].items() if f"{claim} part {number}" in names}
        if terms:
            claims[claim] = {"certificate": row["certificate"], "terms": terms}
    text = json.dumps(checked | {"claims": claims}, indent=1, sort_keys=True)
    write_whole(target, text + "\n")
    return len(names)


if __name__ == "__main__":
    print(f"{record(Path(sys.argv[1]))} parts stored in {STORED.name}")
