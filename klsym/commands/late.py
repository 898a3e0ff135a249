"""The verdict on a loss that takes too long: its target is open, for the reason "time"."""

from __future__ import annotations

import argparse
import json
from typing import Any

from klsym.commands.timed import print_reply, run_within

QUICK = 2.0  # seconds for the gradient at a sample


def print_late_verdict(options: argparse.Namespace) -> int:
    """Print what is known without a proof: the gradient at each sample, if that is quick."""
    for gradient in (True, False):
        reply = run_within(QUICK, lambda known=gradient: _print_verdict(options, known))  # type: ignore[misc]
        if reply is not None and "error" not in reply:
            print(reply["text"], end="")
            return int(reply["code"])
    return print_reply(None, options.time_limit)


def _print_verdict(options: argparse.Namespace, gradient: bool) -> int:
    verdict = _build_verdict(options, gradient)
    print(json.dumps({**verdict.to_json(), "reason": "time"}) if options.format == "json" else verdict)
    return 0


def _build_verdict(options: argparse.Namespace, gradient: bool) -> Any:
    from klsym.commands.verdicts import read_setting as asked
    from klsym.engine.answers.named_losses import read_question
    from klsym.engine.explain import read_setting
    from klsym.engine.fields.field import reduce_typed_loss
    from klsym.engine.regions.in_steps import to_scored_steps
    from klsym.engine.verdicts.verdict import build_open_verdict
    from klsym.errors import UsageError
    from klsym.kernel.derivatives import attach
    from klsym.language.convert import substitute_on_policy
    from klsym.language.messages import Message
    from klsym.render.verdict import printed

    question = read_question(options.loss.strip(" "), options.param, asked(options))
    written = question.written
    setting = read_setting(written, question.options)
    if gradient and (setting.level != "sample" or setting.batch != "none"):
        raise UsageError("no sample on its own")
    field = reduce_typed_loss(written, setting) if gradient else None
    pushes = {z: attach(c) for z, c in field.score_coefficients.items()} if field else {}
    pushes = {z: substitute_on_policy(c) for z, c in pushes.items()} if setting.on_policy else pushes
    h = to_scored_steps(pushes, field.loss.defined) if field else None
    why = Message("time-is-up", limit=options.time_limit)
    return printed(build_open_verdict(written, setting, why, h))
