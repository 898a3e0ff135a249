"""Checks the warnings that say what the descent of a loss increases, lowers or raises."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from support.judges.loss_fit import DIFFER, fit_gradient
from support.judges.loss_witness import AGREE, NAMED
from support.judges.loss_worlds import (
    REWARDS,
    constants_of,
    function_of_rewards,
    number,
    reward_jumps,
    reward_slopes,
    settings,
)
from support.losses.random_losses import Case

SAID = re.compile(
    r"(increases|lowers) (KL\(q\|\|p\)|KL\(p\|\|q\)|E_q\[1/T\]|E_q\[.*?\])"
    r"(?: where ([^,;]*?))?(?= and |,|;|$)"
)
LESS = re.compile(r"\(but where (.*?) it (?:raises|lowers) E_q\[1/T\]")
WHOLE, TERM = "descending this loss", "a term of the objective, minimised alone,"
RISING = re.compile(
    r"lowers the mean of a reward whose slope in (R|A) is nowhere negative(?: where ([^,;]*?))?(?=;|$)"
)
LESS_LIKELY = re.compile(r"makes a sample less likely the larger its (R|A) is(?: where ([^,;]*?))?(?=;|$)")
PAIRS = {"KL(q||p)": "reverse", "KL(p||q)": "forward"}


def directions(case: Case, answer: dict[str, Any]) -> Iterator[str]:
    """Check each sentence on what the descent increases or lowers, and that none is missing."""
    descending = " and ".join(line for line in answer["warnings"] if line.startswith((WHOLE, TERM)))
    said = {of: (verb, where) for verb, of, where in SAID.findall(descending)}
    lengths = [line for line in answer["warnings"] if "descending this lowers E_q[1/T]" in line]
    lengths += [line for line in answer["warnings"] if "descending this raises E_q[1/T]" in line]
    if case.use != "loss" or answer["gradient"]["target"] not in NAMED:
        if set(said) & set(PAIRS) and "rest" not in (answer["gradient"]["combination"] or {}):
            yield f"said of no combination: {descending}"
        if said and "rest" in (answer["gradient"]["combination"] or {}) and descending.startswith(WHOLE):
            yield f"a rest moves too, but the sentence is about the whole loss: {descending!r}"
    else:
        fit, constants = fit_gradient(case), constants_of(case, settings(case)[0])
        if fit.misfit > DIFFER:  # such as a reward over T, which has no column: `_multiples` judges it
            return
        for of, name in PAIRS.items():
            rises = getattr(fit, name) < -DIFFER
            verb, where = said.get(of, ("", ""))
            claimed = verb == "increases" and (not where or _holds(where, constants))
            if rises != claimed:
                yield f"descending moves {of} by {-getattr(fit, name):.3g}, but it is said: {descending!r}"
        alone = [k for k, value in enumerate(fit.rewards) if abs(value) > DIFFER]
        moved = sum(abs(getattr(fit, name)) > DIFFER for name in PAIRS.values()) + len(alone)
        if descending.startswith(WHOLE) and moved > 1:
            yield f"{moved} terms move, but the sentence is about the whole loss: {descending!r}"
        for of in set(said) - set(PAIRS):
            if alone in ([0], [1]) and REWARDS[alone[0]] == of[4:-1]:
                held = not said[of][1] or _holds(said[of][1], constants)
                if held != (fit.rewards[alone[0]] > 0):
                    yield f"descending moves {of} otherwise, but it is said: {descending!r}"
    for line in lengths:
        fit, where = fit_gradient(case, 2, ("1/T", "T")), LESS.search(line)
        otherwise = where and _holds(where[1], constants_of(case, settings(case)[0]))
        lowers = line.index("lowers E_q[1/T]") < line.find("raises") if where else "lowers E_q[1/T]" in line
        if fit.misfit < AGREE and (fit.rewards[-2] > 0) != (lowers != bool(otherwise)):
            yield f"descending moves E_q[1/T] by {-fit.rewards[-2]:.3g}, but it is said: {line!r}"


def rising_rewards(case: Case, answer: dict[str, Any]) -> Iterator[str]:
    """Check that exactly those rewards with bounds are reported that never fall, and rise somewhere."""
    told = [line for line in answer["warnings"] if RISING.search(line)]
    reward = " ".join(function_of_rewards(answer["gradient"])) if case.use == "loss" else ""
    moving = [x for x in REWARDS[:2] if re.search(rf"\b{x}\b", reward)]
    if len(moving) != 1 or "where(" not in reward or "log(" in reward:
        if told:
            yield f"said of the reward {reward!r}: {told[0]!r}"
        return
    constants = constants_of(case, settings(case)[0])
    slopes = reward_slopes(reward, moving[0], constants)
    jumps = reward_jumps(reward, moving[0], constants)
    rises = min(slopes.min(), *jumps) > -DIFFER and max(slopes.max(), *jumps) > DIFFER
    beside = {x for x in REWARDS[:2] if re.search(rf"\b{x}\b", case.text)} - {*moving}
    signs = [about["message"] for about in answer["diagnostics"] if about["name"] == "wrong-sign"]
    sentence = next(filter(None, [*map(RISING.search, told), *map(LESS_LIKELY.search, signs)]), None)
    of, where = sentence.groups() if sentence else ("", None)
    claimed = of == moving[0] and (where is None or _holds(where, constants))
    lowered = {of for line in answer["warnings"] for _, of, _ in SAID.findall(line)}
    rest = str((answer["gradient"]["combination"] or {}).get("rest", ""))
    beside |= {x for x in moving if re.search(rf"\b{x}\b", rest)}
    # A baseline, a sentence of its own, or a reward that only jumps, which parameters may turn.
    may_be_silent = beside or f"E_q[{moving[0]}]" in lowered or slopes.max() <= DIFFER
    if rises != claimed and not (rises and may_be_silent):
        yield f"the slope of {reward!r} is {slopes.min():.3g} to {slopes.max():.3g}, but it is said: {told}"


def _holds(condition: str, constants: dict[str, Any]) -> bool:
    left, sign, right = condition.partition(" > ") if " > " in condition else condition.partition(" < ")
    gap = number(left, constants) - number(right, constants)
    return gap > 0 if sign == " > " else gap < 0
