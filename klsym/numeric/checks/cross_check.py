"""The numeric cross-check of a verdict: its theorems on exact finite models, its formulas at samples.

What is printed says of each sample and of the score coefficient c

    grad L = a s        E_m[grad L] = E_q[c s], so that  c - a m/q  is the same number at all samples

(completeness), and c is the named combination up to a constant.  Both are judged against the literal loss
at random samples and on both sides of every bound of a clip, min, max or abs.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import mpmath
import sympy

from klsym.engine.verdicts.verdict import Verdict
from klsym.errors import KlsymError, UsageError
from klsym.language.expressions import COUNTS, PARAMETERS, M, OverPositions, k1, parameter, r
from klsym.language.messages import Message
from klsym.language.parser import parse
from klsym.language.sums import Divided
from klsym.numeric.checks.bounds import find_bounds, find_crossings
from klsym.numeric.checks.field_check import Literal, check_formulas
from klsym.numeric.exact import check_theorem
from klsym.worlds.losses import SAMPLED, evaluate_at_sample

SEEDS = range(8)
DRAWS = 2000  # of parameters, until the hypotheses hold
DIGITS = 50  # that remain when numbers of the size of exp(coordinates) cancel
CLOSE = 1e-20
NEAR = 0.25  # distance of a sample from a bound, at most
SAME = 1e-6  # below this distance, two bounds are met at one place
FARTHEST = 400  # log ratios up to which bounds are looked for
NAMED = {"zero", "reverse-kl", "forward-kl", "combination"}
RELATIONS = {"positive": ">", "bounds-in-order": ">", "nonzero": "!="}  # of hypotheses on parameters

UNMET = "no values of the parameters found that meet the hypotheses"

Values = dict[str, Any]


def with_check(verdict: Verdict, loss: Any) -> Verdict:
    """Return the verdict with `check`: {"passed", "text"}.

    Each theorem is judged by the exact oracle.  The printed gradient, coefficient, target and value are
    compared with the literal loss on finite models (`field_check`); those of one sample, and of a sequence as
    one, at samples on both sides of every bound as well.
    """
    loss = loss * M / parameter("S") if verdict.setting.truncated else loss
    if loss.atoms(Divided):
        raise UsageError("check: a division by a value of the batch is not evaluated; leave it out")
    checks = [check_theorem(proof.theorem) for proof in verdict.proof.theorems]
    passed, text = _compare_with_loss(verdict, loss)
    passed = passed and all(c.passed for c in checks)
    text = "; ".join(filter(None, [*(c.text for c in checks), text]))
    return verdict.revise(check={"passed": passed, "text": text if passed else f"FAILED: {text}"})


def _compare_with_loss(verdict: Verdict, loss: Any) -> tuple[bool, str]:
    """Compare what is printed with the loss: in finite models, and for one sample at random samples, too.

    Returns: does it agree everywhere, and the sentence that says so.
    """
    literal = Literal(loss, verdict.setting)
    single = not literal.of_tokens and not literal.is_centred
    try:
        with mpmath.workdps(DIGITS):
            parameters = draw_parameters_of(verdict, loss)
            if parameters is None:
                return False, UNMET
            results = [check_formulas(verdict, loss, parameters)]
            if single and not loss.atoms(OverPositions):
                results.append(_Printed.from_verdict(verdict, loss).check_samples())
            return all(passed for passed, _ in results), "; ".join(text for _, text in results)
    except KlsymError as error:
        return False, f"a printed formula cannot be read: {error}"


def draw_parameters_of(
    verdict: Verdict, loss: Any, draw_number: Callable[[str, random.Random], Any] | None = None
) -> dict[str, float] | None:
    """Return values of the parameters in a verdict that meet its hypotheses; None where none are found."""
    names = {x.name for x in loss.free_symbols} - {x.name for x in SAMPLED} | {*PARAMETERS} - {*COUNTS}
    stream, draw = random.Random(0), draw_number or _draw_number
    parameters = draw_parameters(sorted(names), verdict.assumptions, stream, draw)
    return None if parameters is None else {name: float(value) for name, value in parameters.items()}


@dataclass(frozen=True)
class _Printed:
    """What a verdict prints, beside the loss that it speaks of, and the parameters in all of it."""

    verdict: Verdict
    loss: Any
    per_sample: Any
    coefficient: Any
    named: Any | None  # what the target says that the coefficient is, up to a constant
    names: tuple[str, ...]

    @staticmethod
    def from_verdict(verdict: Verdict, loss: Any) -> _Printed:
        loss = loss / parameter("T") if verdict.setting.averaged else loss
        declared = {x.name for x in loss.free_symbols - {*SAMPLED}} - {*PARAMETERS}
        assert verdict.gradient.canonical_text is not None, "of one sample it is always printed"
        per_sample, coefficient = (
            parse(t, declared) for t in (verdict.gradient.score_text, verdict.gradient.canonical_text)
        )
        parts = {"reverse-kl": k1, "forward-kl": -r, "reward": 1}
        multiples = verdict.gradient.multiples if verdict.target in NAMED else {}
        named = sum((parse(text, declared) * parts[n] for n, text in multiples.items()), sympy.S.Zero)
        named = named if verdict.target in NAMED else None
        names = {x.name for e in (loss, per_sample, coefficient, named or k1) for x in e.free_symbols}
        return _Printed(
            verdict,
            loss,
            per_sample,
            coefficient,
            named=named,
            names=tuple(sorted(names - {x.name for x in SAMPLED})),
        )

    # -- the judgement ------------------------------------------------------------------
    def check_samples(self) -> tuple[bool, str]:
        on_policy = self.verdict.setting.on_policy
        bounds = find_bounds(self.loss, self.per_sample, self.coefficient, on_policy=on_policy)
        worst: dict[str, float] = {}
        samples, reached = 0, set()
        for seed in SEEDS:
            stream = random.Random(seed)
            fixed = draw_parameters(self.names, self.verdict.assumptions, stream, _draw_number)
            if fixed is None:
                return False, UNMET
            rows = []
            for bounds_met, values in self.draw_samples(stream, fixed, bounds):
                row = self.compare_sample(values)
                rows += [] if row is None else [row]
                reached |= set() if row is None else bounds_met
            samples += len(rows)
            for name, gap in _list_differences(rows):
                worst[name] = max(worst.get(name, 0.0), gap)
        wrong = [name for name, gap in worst.items() if not gap <= CLOSE]
        return samples > 0 and not wrong, _describe_check(worst, samples, bounds, reached, wrong=wrong)

    # -- samples ------------------------------------------------------------------------
    def draw_samples(
        self, stream: random.Random, fixed: Values, bounds: list[Any]
    ) -> Iterator[tuple[set[Any], Values]]:
        """Draw random samples, and along each coordinate one on either side of every bound that is met."""
        for _ in range(4):
            yield set(), self.draw_sample(stream, fixed)
        numbers = [abs(float(x)) for e in bounds for x in e.atoms(sympy.Rational)]
        reach = 3 * (4 + min(max(numbers, default=0.0), FARTHEST))
        start = self.draw_sample(stream, fixed)
        for symbol in SAMPLED:
            name = symbol.name
            bounds_of_symbol = [bound for bound in bounds if bound.has(symbol)]

            def move_along(t: Any, name: str = name) -> Values:
                return self.complete_values(start | {name: start[name] + t})

            crossings = [
                (t, bound) for bound in bounds_of_symbol for t in find_crossings(bound, move_along, reach)
            ]
            for t, bound in crossings:
                gaps = (abs(t - neighbour) / 2 for neighbour, _ in crossings)
                step = min([mpmath.mpf(NEAR), *(gap for gap in gaps if gap > SAME)])
                yield from (({bound}, move_along(t + side * step)) for side in (-1, 1))

    def draw_sample(self, stream: random.Random, fixed: Values) -> Values:
        values = {x.name: mpmath.mpf(stream.gauss(0, 1.5)) for x in SAMPLED}
        length = {"T": mpmath.mpf(stream.randint(1, 6))} if self.verdict.setting.averaged else {}
        return self.complete_values(values | fixed | length)

    def complete_values(self, values: Values) -> Values:
        """Return the values of a sample; on-policy the sampler is the policy."""
        return values | {"log_mu": values["log_q"]} if self.verdict.setting.on_policy else values

    def compare_sample(self, values: Values) -> dict[str, Any] | None:
        """Return, at a sample, what is 0 if the print is right, and what is the same at all samples."""
        size = max(abs(values[x.name]) for x in SAMPLED)
        with mpmath.workdps(DIGITS + int(2 * size)):
            try:
                loss = evaluate_at_sample(self.loss, values)
                is_reward = Literal(self.loss, self.verdict.setting).is_reward
                literal = loss.value if is_reward else loss.slope
                a, c = (evaluate_at_sample(e, values).value for e in (self.per_sample, self.coefficient))
                named = None if self.named is None else evaluate_at_sample(self.named, values).value
            except (ArithmeticError, ValueError):
                return None
            under_q = literal * mpmath.exp(values["log_mu"] - values["log_q"])
            rounding = max(map(abs, (loss.value, literal, under_q, c))) * mpmath.mpf(10) ** -int(
                2 * size + 20
            )
            scale = 1 + rounding
            return {"gradient": (literal - a, scale), "coefficient": (under_q - c, scale)} | (
                {} if named is None else {"target": (c - named, scale)}
            )


def draw_parameters(
    names: Iterable[str],
    assumptions: Iterable[Message],
    stream: random.Random,
    draw_number: Callable[[str, random.Random], Any],
) -> Values | None:
    """Return values that meet the hypotheses of a verdict, such as eps > 0."""
    names, hypotheses = list(names), [x for x in assumptions if x.code in RELATIONS]
    conditions = [(_parse_condition(str(x.values["of"]), names), RELATIONS[x.code]) for x in hypotheses]
    for _ in range(DRAWS):
        values = {name: draw_number(name, stream) for name in names}
        if all(e is None or _is_met(e, relation, values) for e, relation in conditions):
            return values
    return None


def _parse_condition(text: str, names: list[str]) -> Any | None:
    """Return the left side of a hypothesis on parameters; None for one that speaks of more than them."""
    try:
        expression = parse(text, [name for name in names if name not in PARAMETERS])
    except UsageError:  # it speaks of measures, or is a sentence
        return None
    return expression if {x.name for x in expression.free_symbols} <= set(names) else None


def _draw_number(name: str, stream: random.Random) -> Any:
    """Return a number of either sign; a batch size or length is a whole number."""
    if name in COUNTS:
        return mpmath.mpf(stream.randint(2, 6))
    return mpmath.mpf(stream.choice((-1, 1)) * stream.uniform(0.3, 1.7))


def _is_met(e: Any, relation: str, values: Values) -> bool:
    try:
        x = evaluate_at_sample(e, values).value
    except (ArithmeticError, ValueError):
        return False
    return bool(x > 0 or (relation == "!=" and x != 0))


def _list_differences(rows: list[dict[str, Any]]) -> Iterator[tuple[str, float]]:
    """Yield differences: of the gradient at each sample, of coefficient and target up to one constant."""
    for row in rows:
        for name, (gap, scale) in row.items():
            first, first_scale = rows[0][name] if name != "gradient" else (0, 0)
            yield name, float(abs(gap - first) / max(scale, first_scale))


def _describe_check(
    worst: dict[str, float], samples: int, bounds: list[Any], reached: set[Any], wrong: list[str]
) -> str:
    if not samples:
        return "the literal loss has no value at any sample that was tried"
    sides = f", on both sides of {len(reached)} bound{'s' * (len(reached) != 1)}" if reached else ""
    missed = len(bounds) - len(reached)
    sides += f" ({missed} bound{'s' * (missed != 1)} met by no sample)" if missed else ""
    largest = max(worst.values())
    text = f"literal loss at {samples} samples{sides}: largest difference {largest:.1e}"
    return text + (f" (in the {' and the '.join(wrong)})" if wrong else "")
