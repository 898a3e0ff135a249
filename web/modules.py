"""Write which modules of SymPy, mpmath and klsym the page needs: those that a corpus of questions loads.

    python web/modules.py FILE.json [STEP]

The corpus asks each kind of question with each option.  STEP: ask only each STEP-th question on losses; the
modules hardly depend on it, as losses differ in few modules.  The file also holds the options of the form.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "try"))

from answer import answer  # noqa: E402

from klsym.diagnostics.codes import load_codes  # noqa: E402
from klsym.engine.options.option_table import OPTIONS  # noqa: E402
from klsym.study.explorer import list_meaningful_values  # noqa: E402

PACKAGES = ("sympy", "mpmath", "klsym")
STEP = 61
LOSSES = (
    "k1", "k2", "k3", "rho*k1", "rho*k3", "sg(rho)*k2", "k1*sg(k1)", "exp(k1) + k2**3",
    "clip(rho, 1-eps, 1+eps)*k1",
    "min(rho*A, clip(rho, 1-eps, 1+eps)*A)", "abs(k1)", "k(lam)", "-A + beta*k3", "sqrt(r)*k1", "log(1 + r)",
    "max(k1, 0)", "togo(k1)", "whole(k1)**2", "others(k1)", "full_kl(q, p)", "H(q)", "js(q, p)",
    "js(q, p, 1/10)",
    "loo(k1)", "normalised(k1)", "centred(k1)", "seqmean(k1)", "past(k1)*now(k1)", "k2 + sg(k1 - k2)",
    "r**3 - r",
    "full(log_q)", "exp(-k1**2)", "k3/T", "kk", "1/0", "R*log_q - beta*k3", "where(rho > 2, 2, rho)*k3",
    "rho_old*A", "M*k3", "disc(1/2, k1)", "sigmoid(rho - 1)", "1/(1 + exp(1 - rho))", "log(r)**2*[rho > 2]",
    "d = ref_logp - logp; loss = (torch.expm1(d) - d).mean()", "ratio*A",
)  # fmt: skip
DIVERGENCES = (
    "reverse-kl", "forward-kl", "jeffreys", "pearson-chi2", "neyman-chi2", "squared-hellinger",
    "jensen-shannon",
    "jensen-shannon=1/10", "alpha", "alpha=1/2", "tsallis=2", "r*log(r)", "-log(r)", "(r-1)**2", "sqrt(r)",
    "max(r - 1, 0)", "r*log(r) - (1+r)*log((1+r)/2)",
)  # fmt: skip
SAMPLINGS, USES, LEVELS = (option.choices for option in OPTIONS[:3])


def explained() -> Iterator[dict[str, Any]]:
    """Each loss with each option."""
    for loss, sampling, use, level in itertools.product(LOSSES, SAMPLINGS, USES, LEVELS):
        setting = {"sampling": sampling, "use": use, "level": level}
        yield {"kind": "explain", "loss": loss, "options": setting}
        for name, values in list_meaningful_values(sampling, use, level).items():
            for value in values[1:]:
                yield {"kind": "explain", "loss": loss, "options": {**setting, name: value}}


def others() -> Iterator[dict[str, Any]]:
    """The other kinds of questions, and the examples of the page."""
    for target, sampling, use in itertools.product(
        ("reverse-kl", "forward-kl"), SAMPLINGS[:2], (*USES, "value")
    ):
        setting = {"target": target, "sampling": sampling, "use": use}
        yield {"kind": "recommend", "options": setting}
    for level in LEVELS[1:]:
        yield {"kind": "recommend", "options": {"target": "reverse-kl", "level": level, "framework": "jax"}}
    for one, other in itertools.combinations(LOSSES[::6], 2):
        yield {"kind": "compare", "loss": one, "other": other, "options": {}}
    for divergence in DIVERGENCES[::2]:  # they are settled alike
        yield {"kind": "divergence", "divergence": divergence, "options": {}}
    for loss in ("k1", "k2", "k3", "rho*k3", "k3 + log_q", "k1**2 + k1"):
        row = {"kind": "optimum", "loss": loss, "beta": "1/2", "rewards": "0,0.4,1"}
        yield {**row, "reference": "", "behaviour": "", "options": {}}
    yield from ({"kind": "rule", "code": code.code} for code in load_codes())
    yield from (one["question"] for one in read_examples())


def main(target: Path, step: int) -> None:
    """Ask the corpus, and store the names of the modules that it loads."""
    questions = [*itertools.islice(explained(), 0, None, step), *others()]
    fails = [q for q in questions if "please report" in json.loads(answer(json.dumps(q))).get("error", "")]
    if fails:
        sys.exit(f"klsym fails on {fails[0]}")
    loaded = sorted(name for name in sys.modules if name.partition(".")[0] in PACKAGES)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps({"modules": loaded, "options": form(), "stored": answered_examples()}))
    print(f"{len(questions)} questions load {len(loaded)} modules")


def answered_examples() -> list[dict[str, Any]]:
    """The examples with their answers, which the page shows until Python has loaded."""
    questions = [one["question"] for one in read_examples()]
    return [{"question": one, "reply": json.loads(answer(json.dumps(one)))} for one in questions]


def read_examples() -> list[dict[str, Any]]:
    examples: list[dict[str, Any]] = json.loads((HERE / "try" / "examples.json").read_text(encoding="utf-8"))
    return examples


def form() -> list[dict[str, Any]]:
    """The options of `explain`, for the selects of the page."""
    return [
        {
            "name": option.name, "choices": option.choices, "meaning": option.meaning,
            "needs": [{"of": need.of, "among": need.among} for need in option.needs],
        }
        for option in OPTIONS
    ]  # fmt: skip


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else STEP)
