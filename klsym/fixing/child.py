"""Proposing a change in a process of its own, for each try runs the user's code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from klsym.confirmed.child import Runner, describe_both, describe_failures, prepare
from klsym.worker_process import Options, Reply, serve

if TYPE_CHECKING:
    from klsym.fixing.proposing import Proposal

SHARE = 0.7  # of the time limit, in which changes are tried


class Fixer(Runner):
    """Asked: as `Runner`, with "sources", texts that replace files.  The reply has "fix" beside the answer.

    fix: {"wrong", "reason"}, and of a change also "start", "end", "old", "new", "kind", "file", "says".
    """

    module = "klsym.fixing.child"
    beside_error: ClassVar[dict[str, type]] = {**Runner.beside_error, "fix": dict}

    def fits(self, reply: Reply) -> bool:
        return super().fits(reply) and _is_fix(reply.get("fix"))


def _is_fix(fix: Any) -> bool:
    match fix:
        case {"wrong": bool(), "reason": str(), "start": int(), "end": int(), "old": str(), "new": str(),
              "kind": str(), "file": str(), "says": str()}:  # fmt: skip
            return True
        case {"wrong": bool(), "reason": str()}:
            return "start" not in fix
    return False


def _answer(question: dict[str, Any], options: Options) -> Reply:
    return describe_failures(lambda: _propose(question, options))


def _propose(question: dict[str, Any], options: Options) -> Reply:
    from klsym.audit.compiled.sources import replace_sources
    from klsym.fixing.proposing import Question, propose_change

    arguments = dict(question["options"])
    named = {name: arguments.pop(name, None) for name in ("map", "set", "result")}
    asked = Question(
        question["target"], named["map"] or {}, named["set"] or {}, result=named["result"],
        setting=arguments, expect=question["expect"],
    )  # fmt: skip
    with replace_sources(question["sources"]):
        proposal = propose_change(asked, SHARE * options["seconds"] if options["seconds"] else 1e9)
    return {
        **describe_both(proposal.both, question["expect"], width=question.get("width")),
        "fix": _describe_fix(proposal),
    }


def _describe_fix(proposal: Proposal) -> dict[str, Any]:
    fix = {"wrong": proposal.is_wrong, "reason": proposal.reason}
    edit, after = proposal.edit, proposal.after
    if edit is None or after is None or after.read is None or after.measured is None:
        return fix
    from klsym.render.headline import name_trust

    verdict = after.read.verdict
    says = f"{verdict.summary} ({name_trust(verdict)}); measured: {after.measured.summary}"
    return {
        **fix, "start": edit.start, "end": edit.end, "old": edit.old, "new": edit.new, "kind": edit.kind,
        "file": after.read.code.file, "says": says,
    }  # fmt: skip


if __name__ == "__main__":
    serve(prepare, _answer)
