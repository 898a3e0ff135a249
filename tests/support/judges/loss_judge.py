"""The judge: does a verdict of `klsym.explain`, in any setting, agree with the literal oracle?

`complaints` returns one line for each disagreement, none when all is well.  The judge decides for itself what
a loss targets: it fits the exact gradients by a grad KL(q||p) + b grad KL(p||q) + grad E_q[h(R, A)], looks
whether the field has a potential, and only then at what the verdict says, which it reads as JSON.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from support.judges.loss_fit import DIFFER, fit_gradient, fit_value, mean_of
from support.judges.loss_sentences import directions, rising_rewards
from support.judges.loss_witness import AGREE, NAMED, OPEN, proofs_replay, witness_holds
from support.judges.loss_worlds import (
    SEED,
    at_points,
    combination,
    constants_of,
    flat,
    forest,
    function_of_rewards,
    in_batch,
    number,
    on_bounds,
    on_bounds_alone,
    options,
    rewards_of,
    scales,
    settings,
)  # fmt: skip
from support.judges.objective_judge import wrong_objectives
from support.losses.random_losses import Case
from support.oracle.grammar import evaluate, jet, plain
from support.oracle.losses import Forest, Setting

POINTS = 4000  # some lie between bounds that are close to each other
TWISTED = 1e-7  # an asymmetry of the Jacobian above this, relative to its size, is one
DETACHED = re.compile(r"\bsg\(")
STANDS_FOR = re.compile(r"mean_h stands for E_mu\[(.*)\]")
UNDECLARED = re.compile(r"\b(?:H\d?|std)(?:_\w+)?\b")  # words for a reward that stand for themselves

Check = Callable[[Case, dict[str, Any]], Iterator[str]]


# ---------------------------------------------------------------------------- one loss
@dataclass(frozen=True)
class Outcome:
    """A loss, the target that klsym names, and all that is wrong with the verdict."""

    case: Case
    target: str
    complaints: tuple[str, ...]
    reason: str = ""  # why it is open, or refused
    trust: str = ""


def examine(case: Case, more: tuple[Check, ...] = ()) -> Outcome:
    """Let klsym explain a loss and judge the verdict; a crash is a complaint too."""
    import klsym
    from klsym.errors import UsageError

    try:
        verdict = klsym.explain(case.text, **options(case))
        answer = verdict.to_json()
        target = answer["gradient"]["target"]
        reason = reason_of(verdict) if target == OPEN else ""
        found = (line for check in more for line in check(case, answer))
        return Outcome(case, target, (*complaints(case, verdict), *found), reason, answer["trust"])
    except UsageError as refusal:
        return Outcome(case, "refused", (), str(refusal))
    except Exception as error:
        return Outcome(case, "crashed", (f"{type(error).__name__}: {error}"[:300],))


def reason_of(verdict: Any) -> str:
    """Why an answer is open, in the verdict's own words."""
    telling = ("open", "not known", "not proved", "no fixed", "more than")
    said = [line for line in (*verdict.notes, *verdict.warnings) if any(word in line for word in telling)]
    return said[0] if said else ""


def complaints(case: Case, verdict: Any) -> list[str]:
    """All that the oracle holds against a verdict."""
    answer = written_out(verdict.to_json())
    found = (line for check in NUMERIC for line in check(case, answer))
    return [*found, *proofs_replay(case, answer, verdict.proof.theorems)]


EVERY_STEP = re.compile(r"(?:; at every step |, )(H\d?)_now = (.*?)(?=, H\d?_now = |$)")
RATIOS = {"rho": "log_q - log_mu", "rho_old": "log_q - log_old", "r": "log_p - log_q"}
SLOTTED = re.compile(r"\b([A-Za-z]\w*)_(past|now|future)\b")


def written_out(answer: dict[str, Any]) -> dict[str, Any]:
    """The answer with H_future and the like written out, where its names say what H is at every step.

    >>> names = {"H_future": "a sum; at every step H_now = exp(T_past)*R_now"}
    >>> written_out({"names": names, "gradient": {"per_sample": "H_future*A"}})["gradient"]["per_sample"]
    '(future(exp(past(1))*R))*A'
    """
    found = {name: of for text in answer["names"].values() for name, of in EVERY_STEP.findall(text)}

    def at_token(m: re.Match[str]) -> str:
        name, slot = ("1" if m[1] == "T" else m[1]), m[2]
        if slot == "now":
            return name
        return f"exp({slot}({RATIOS[name]}))" if name in RATIOS else f"{slot}({name})"

    inside = {name: SLOTTED.sub(at_token, text) for name, text in found.items()}

    def written(text: Any) -> Any:
        if not isinstance(text, str):
            return text
        return SLOTTED.sub(lambda m: f"({m[2]}({inside[m[1]]}))" if m[1] in inside else m[0], text)

    gradient = {key: written(value) for key, value in answer["gradient"].items()}
    if gradient.get("combination"):
        gradient["combination"] = {key: written(value) for key, value in gradient["combination"].items()}
    return {**answer, "gradient": gradient}


# ---------------------------------------------------------------------------- the coefficient
def _coefficient(case: Case, answer: dict[str, Any]) -> Iterator[str]:
    """E_q[c s] is the expected gradient, and so is the mean of what is printed for a sample."""
    where = forest(case)
    for setting in settings(case):
        exact, scale = flat(where.field(case.text, setting).a, where), scales(case, where, setting)
        constants = constants_of(case, setting)
        for name, measure in (("coefficient", "q"), ("per_sample", "m")):
            text = answer["gradient"][name]
            if text is None or UNDECLARED.search(text) or (name == "per_sample" and in_batch(case)):
                continue
            if answer["level"] == "token" and re.search(r"\bs\b", text):
                text = f"{text} + 0*s_now"  # the same at each token, added up over all of them
            form = where.form(text, measure, **constants, **mean_h(text, case, answer, where, setting))
            error = (np.abs(flat(form.a, where) - exact) / (scale + form.value)).max()
            if not error < AGREE:
                yield f"{name} {text!r}: off by {error:.1e} of the gradient"


def mean_h(text: str, case: Case, answer: dict[str, Any], where: Forest, setting: Setting) -> dict[str, Any]:
    """E_mu[h], which the verdict abbreviates as mean_h, if it is named; H is the coefficient of the loss."""
    if "mean_h" not in text:
        return {}
    [h] = [found[1] for line in answer["hypotheses"] if (found := STANDS_FOR.fullmatch(line))]
    names, constants = where.names(where.whole), constants_of(case, setting)

    def value(name: str, slot: str | None = None) -> Any:
        if name == "T" and name not in constants:
            return plain(where.atom("T", where.whole, "x"))
        return plain(constants[name] if name in constants else names(name, slot))

    found = where.coefficient(case.text, setting).value if h == "H" else plain(evaluate(h, value))
    mean = where.mean(where.whole, where.chance(where.whole).value * found).value
    return {"mean_h": mean[where.whole.world]}


def _pointwise(case: Case, answer: dict[str, Any]) -> Iterator[str]:
    """The gradient of a single sample is right at each outcome."""
    if case.level != "sample" or in_batch(case) or "full(" in case.text:
        return
    where, [setting], text = forest(case), settings(case), answer["gradient"]["per_sample"]
    if text is None:  # such as that of too many bounds
        return
    rows, found = where.surrogate(case.text, setting)
    names = where.names(rows)
    score, mass = where.atom("log_q", rows, "x").a, where.chance(rows).value
    value = plain(evaluate(text, lambda name, slot=None: plain(names(name, slot))))
    exact, printed = (
        np.broadcast_to(x, score.shape) for x in (getattr(found, "a", 0.0), mass * value * score)
    )
    error = np.abs(exact - printed).max(axis=(0, 1)) / scales(case, where, setting)[rows.world]
    if not error.max() < AGREE:
        yield f"per_sample {text!r}: off by {error.max():.1e} at a sample"


def _dependence(case: Case, answer: dict[str, Any]) -> Iterator[str]:
    """c depends on r alone exactly for an f-divergence, among the targets without a name."""
    target, c = answer["gradient"]["target"], answer["gradient"]["coefficient"]
    if case.level != "sample" or in_batch(case) or target in (*NAMED, OPEN) or "full(" in c:
        return
    alone = _depends_on_r_alone(c) and (target == "f-divergence" or _depends_on_r_alone(on_bounds(c)))
    if alone != (target == "f-divergence"):
        yield f"target {target}, but the coefficient depends on {'r alone' if alone else 'more than r'}"


def _depends_on_r_alone(coefficient: str) -> bool:
    """Shift log q and log p together, replace mu, R and A: does c stay?"""
    stream = np.random.default_rng(SEED)
    log_q, log_p, shift = stream.normal(size=(3, POINTS))
    names = ("log_mu", "R", "A", "log_old", "M")
    one, other = (dict(zip(names, stream.normal(size=(5, POINTS)), strict=True)) for _ in range(2))
    before = at_points(coefficient, log_q=log_q, log_p=log_p, **one)
    after = at_points(coefficient, log_q=log_q + shift, log_p=log_p + shift, **other)
    return bool(np.all(np.abs(after - before) < AGREE * (1 + np.abs(before))))


# ---------------------------------------------------------------------------- the target
def _target(case: Case, answer: dict[str, Any]) -> Iterator[str]:
    target = answer["gradient"]["target"]
    if (answer["trust"] == OPEN) != (target == OPEN):
        yield f"target {target} with trust {answer['trust']}"
    if target in (OPEN, "no-objective"):  # what has a curl, as `_potential` measures, is no combination
        return
    for setting in settings(case):
        more = function_of_rewards(answer["gradient"])
        judged = fit_gradient(case, setting.n).target or fit_gradient(case, setting.n, more).target
        claimed = target if target in NAMED else None
        if judged is None and case.level != "sample" and "T" in str(answer["gradient"]["combination"]):
            continue  # a reward over T, which _multiples judges
        if judged == "zero" and claimed is None and on_bounds_alone(answer):
            continue  # no world here has a sample on a bound
        if target in ("own-mean", "objective") and case.level == "token" and _of_masks_alone(case, setting):
            continue  # E_q[M] has no name at tokens
        if judged is not None and claimed is None and case.level == "sample" and not in_batch(case):
            judged = fit_gradient(case, setting.n, more, level="many").target
        if judged != claimed and not (_over_std(case) and claimed is None):  # at n = 2 it may be named
            found = judged or "no combination of the KL gradients"
            yield f"target {target}, judged {found} (n = {setting.n})"


def _of_masks_alone(case: Case, setting: Setting) -> bool:
    """Is it the gradient of a mean of M, without a KL or a reward?"""
    fit = fit_gradient(case, setting.n)
    columns = zip(rewards_of(case), fit.rewards, strict=False)
    parts = (fit.reverse, fit.forward, *(value for name, value in columns if name != "M"))
    return fit.misfit < AGREE and max(map(abs, parts)) < AGREE


def _over_std(case: Case) -> bool:
    return case.batch == "std" or "normalised" in case.text


def _potential(case: Case, answer: dict[str, Any]) -> Iterator[str]:
    """The field of "no-objective" is no gradient, that of every other answer is one."""
    target = answer["gradient"]["target"]
    if target == OPEN:
        return
    twists = [twist(case, setting) for setting in settings(case)]
    if target == "no-objective" and case.level == "sample" and not max(twists) > TWISTED:
        twists = [twist(case, setting, far=True) for setting in settings(case)]
    if target == "no-objective" and not max(twists) > TWISTED:
        yield f"target no-objective, but the Jacobian is symmetric up to {max(twists):.1e}"
    if target != "no-objective" and max(twists) > TWISTED:
        yield f"target {target}, but the Jacobian is asymmetric by {max(twists):.1e}"


def _own_mean(case: Case, answer: dict[str, Any]) -> Iterator[str]:
    """The field of "own-mean" is the gradient of the mean of the value, in which nothing is detached."""
    target = answer["gradient"]["target"]
    if target not in ("own-mean", "objective") or in_batch(case) or "full(" in case.text:
        return
    where = forest(case)
    for setting in settings(case):
        rows, value = where.loss(DETACHED.sub("(", case.text), setting)
        mean = where.mean(rows, where.chance(rows, averaged=setting.aggregate == "mean") * value)
        exact, scale = flat(where.field(case.text, setting).a, where), scales(case, where, setting)
        error = float((np.abs(flat(jet(mean).a, where) - exact) / scale).max())
        is_own_mean = error < AGREE and setting.use == "loss" and not where.on_policy
        if target == "own-mean" and not is_own_mean:
            yield f"target own-mean, but the gradient of the mean is off by {error:.1e}"
        if target == "objective" and is_own_mean and not DETACHED.search(case.text):
            yield "target objective, but it is the gradient of the loss's own mean"


def twist(case: Case, setting: Setting, far: bool = False) -> float:
    """How asymmetric the Jacobian of the field is in the worst world, relative to its size."""
    where = forest(case, second=True, level="far" if far else "")
    found = where.field(case.text, setting).ab
    jacobian = np.broadcast_to(found, (where.logits, where.logits, len(where.worlds)))
    size = np.abs(jacobian).max(axis=(0, 1)) + scales(case, where, setting)
    return float((np.abs(jacobian - jacobian.transpose(1, 0, 2)).max(axis=(0, 1)) / size).max())


def _multiples(case: Case, answer: dict[str, Any]) -> Iterator[str]:
    """The gradient is the stated combination; beside an unwritten rest only a reward is."""
    target, multiples = answer["gradient"]["target"], answer["gradient"]["combination"] or {}
    if target not in NAMED and "rest" not in multiples:
        if set(multiples) - {"reward"}:
            yield f"multiples {multiples} for the target {target}"
        return
    expected = {"zero": set(), "reverse-kl": {"reverse-kl"}, "forward-kl": {"forward-kl"}}
    if set(multiples) != expected.get(target, set(multiples)):
        yield f"multiples {multiples} for the target {target}"
    where = forest(case)
    for setting in settings(case):
        exact, scale = flat(where.field(case.text, setting).a, where), scales(case, where, setting)
        constants = constants_of(case, setting)
        constants |= mean_h(" ".join(multiples.values()), case, answer, where, setting)
        stated = combination(multiples, where, constants)
        error = (np.abs(exact - stated) / (scale + np.abs(stated).max(axis=0))).max()
        if not error < AGREE:
            yield f"multiples {multiples}: off by {error:.1e} of the gradient (n = {setting.n})"


# ---------------------------------------------------------------------------- values
def _value_of_loss(case: Case, answer: dict[str, Any]) -> Iterator[str]:
    """The flags say whether E[L] is the KL; its combination and constant add up to it."""
    value, where, setting = answer["value"], forest(case), settings(case)[-1]  # n - 1 is not 1
    exact, scale = mean_of(where, case, setting)
    kl = {"reverse-kl": where.slope("k1").value, "forward-kl": where.slope("-k1", "p").value}
    for name, flag in (("reverse-kl", "reverse"), ("forward-kl", "forward")):
        size = float((np.abs(exact - kl[name]) / scale).max())
        claimed = value[f"unbiased_for_{flag}_kl"]
        if value["target"] != OPEN and (AGREE <= size <= DIFFER or (size < AGREE) != claimed):
            yield f"unbiased for {name}: {claimed}, yet the value is off by {size:.1e}"
    if value["target"] == OPEN or in_batch(case):
        return
    fits = fit_value(case), fit_value(case, function_of_rewards(value))
    judged = fits[0].target or fits[1].target
    claimed = value["target"] if value["target"] in NAMED else None
    if judged != claimed and not fits[0].fits_anything:
        yield f"value target {value['target']}, judged {judged or 'none'}"
    if claimed and (value["combination"] or claimed == "zero"):
        named, constants = value["combination"] or {}, constants_of(case, setting)
        stated = number(value["constant"] or "0", constants) + sum(
            number(named[name], constants) * kl[name] for name in kl if name in named
        )
        if "reward" in named:
            rows = where.whole
            reward = evaluate(named["reward"], where.names(rows, **constants))
            stated = stated + where.mean(rows, where.chance(rows, "q").value * reward).value
        error = float((np.abs(exact - stated) / scale).max())
        if not error < AGREE:
            yield f"value {named} + {value['constant']}: off by {error:.1e}"


NUMERIC: tuple[Check, ...] = (
    _coefficient, _pointwise, _target, _potential, _own_mean, _multiples, _dependence,
    _value_of_loss, directions, rising_rewards, witness_holds, wrong_objectives,
)  # fmt: skip
