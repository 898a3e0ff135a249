"""What is found in a target: its diagnostics, an objective that is not met, code that cannot be read."""

from __future__ import annotations

import hashlib
import io
import re
import tokenize
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from klsym.audit.notebooks import NOTEBOOK, join_cells
from klsym.diagnostics.codes import find_code
from klsym.errors import UsageError
from klsym.files import read_text
from klsym.lint.config import Config, Target

LARGEST = 5_000_000  # bytes of a file
EXPECTED, UNREADABLE, UNUSED = "KL900", "KL901", "KL902"
NAMES = {EXPECTED: "unmet-expectation", UNREADABLE: "unreadable-code", UNUSED: "unused-suppression"}
SAYS = {
    EXPECTED: "the code minimises something else than is expected of it",
    UNREADABLE: "the code cannot be read",
    UNUSED: "a comment that suppresses nothing",
}
IMPLIED = "KL002", "KL007", "KL013"  # beside an objective that is expected, and met
PRECISION = {"kernel": "very-high", "sympy": "high", "numeric": "medium"}
COMMENT = re.compile(r"#\s*klsym:\s*ignore\[([A-Z0-9, ]+)\]")


class FindingKey(NamedTuple):
    """What makes two findings the same one to a baseline, whatever their lines."""

    path: str
    function: str
    code: str
    digest: str


@dataclass(frozen=True)
class Finding:
    """One finding: where it stands, what it says, how sure it is.

    digest: of the loss and its use, by which a baseline knows it again where lines have moved.
    """

    code: str
    name: str
    message: str
    path: str
    line: int
    function: str
    level: str = "warning"  # or "error", "note"
    precision: str = "very-high"
    digest: str = ""

    @property
    def key(self) -> FindingKey:
        return FindingKey(self.path, self.function, self.code, self.digest)


def collect_findings(target: Target, reply: Mapping[str, Any]) -> list[Finding]:
    """Return the findings of one target, from the reply of an audit.

    A target with an expectation that is met has warnings alone, without what the expectation says already.
    """
    function = target.code.rpartition(":")[2]
    if "json" not in reply:
        return [_describe_unread(target, reply, function)]
    answer = reply["json"]
    place = (as_relative_path(answer["file"]), max(1, answer["lines"][0]), function)
    used = ("sampling", "use", "level", "batch", "credit", "weights", "aggregate")
    text = repr((answer["expression"], [answer[name] for name in used]))
    precision = PRECISION.get(answer["trust"], "low")
    listed = [
        Finding(
            d["code"], d["name"], d["message"], *place, level=find_code(d["code"]).level, precision=precision,
            digest=_digest(text),
        )
        for d in answer["diagnostics"]
    ]  # fmt: skip
    if not answer["expect"]:
        return listed
    wanted = answer["expect"]["wanted"]
    if answer["expect"]["ok"]:
        kept = [finding for finding in listed if finding.code not in IMPLIED]
        return [replace(one, level="warning") if one.level == "error" else one for one in kept]
    unmet = _make_finding(EXPECTED, f"{answer['summary']}; expected {wanted}", place, "error")
    return [replace(unmet, digest=_digest(f"{text} {wanted}")), *listed]


def _describe_unread(target: Target, reply: Mapping[str, Any], function: str) -> Finding:
    """Return the finding of code that was not read: it fails if an expectation is not met by running it."""
    path, line, message = reply.get("place") or (target.code.rpartition(":")[0], 1, reply["error"])
    place = (as_relative_path(path), max(1, line), function)
    measured = reply.get("measured")
    if measured and target.expect and not reply.get("measured_meets"):
        unmet = _make_finding(EXPECTED, f"{measured} (measured); expected {target.expect}", place, "error")
        return replace(unmet, digest=_digest(f"{measured} {target.expect}"))
    is_wrong = reply.get("code") == 1 or (target.expect and not measured)
    said = f"{message}; measured: {measured}" if measured else message
    return _make_finding(UNREADABLE, said, place, "error" if is_wrong else "note")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="backslashreplace")).hexdigest()[:16]


def _make_finding(code: str, message: str, place: tuple[str, int, str], level: str) -> Finding:
    """place: the file, the line and the function."""
    return Finding(code, NAMES[code], message, *place, level=level, precision="very-high")


def as_relative_path(path: str) -> str:
    """Return the path relative to the current folder, with slashes, as reports have it."""
    try:
        return Path(path).resolve().relative_to(Path.cwd()).as_posix()
    except ValueError:
        return Path(path).as_posix()


def sort_findings(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings by importance: errors, unmet objectives, codes, and what cannot be read at last."""

    def rank(finding: Finding) -> tuple[int, int]:
        kinds = (EXPECTED, "", UNUSED, UNREADABLE)
        kind = finding.code if finding.code in kinds else ""
        return (finding.level != "error", kinds.index(kind))

    return sorted(findings, key=rank)


# ---------------------------------------------------------------------------- suppressions
def drop_suppressed(
    findings: Iterable[Finding], spans: Mapping[str, list[tuple[int, int]]], config: Config
) -> tuple[list[Finding], int]:
    """Return the findings that no comment suppresses, with unused comments added, and the number suppressed.

    spans: file -> the lines of its targets.  A comment counts for the target whose lines contain it.
    """
    spans = {
        path: [(_find_first_decorator(path, first), last) for first, last in of] for path, of in spans.items()
    }
    comments = {path: dict(_find_comments(path)) for path in spans}
    used: set[tuple[str, int, str]] = set()
    remaining: list[Finding] = []
    for finding in findings:
        span = next(
            (s for s in spans.get(finding.path, []) if s[0] <= finding.line <= s[1]),
            (finding.line, finding.line),
        )
        places = {
            (finding.path, line, code)
            for line, codes in comments.get(finding.path, {}).items() if span[0] - 1 <= line <= span[1]
            for code in codes if code == finding.code
        }  # fmt: skip
        used |= places
        remaining += [] if places else [finding]
    suppressed = len([*findings]) - len(remaining)
    for path, lines in comments.items():
        remaining += [
            _make_finding(
                UNUSED, f"{code} is not found here: take the comment away", (path, line, ""), "warning"
            )
            for line, codes in lines.items()
            for code in codes
            if (path, line, code) not in used and config.counts(code) and _is_within(line, spans[path])
        ]
    return [finding for finding in remaining if config.counts(finding.code)], suppressed


def _read_code(path: str) -> str:
    """Return the text of a file as an audit reads it: the cells of a notebook one after the other."""
    text = read_text(Path(path), LARGEST)
    return join_cells(Path(path), text) if path.endswith(NOTEBOOK) else text


def _find_first_decorator(path: str, first: int) -> int:
    """Return the line of the first decorator of a definition."""
    try:
        lines = _read_code(path).splitlines()
    except UsageError:
        return first
    while first > 1 and lines[first - 2].lstrip().startswith("@"):
        first -= 1
    return first


def _is_within(line: int, spans: list[tuple[int, int]]) -> bool:
    return any(first - 1 <= line <= last for first, last in spans)


def _find_comments(path: str) -> Iterator[tuple[int, list[str]]]:
    """Yield each line with the codes of its comment `# klsym: ignore[KL012] reason`."""
    try:
        text = _read_code(path)
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            suppression = COMMENT.search(token.string) if token.type == tokenize.COMMENT else None
            if suppression:
                yield token.start[0], [code.strip() for code in suppression[1].split(",") if code.strip()]
    except (UsageError, tokenize.TokenError, SyntaxError):
        return
