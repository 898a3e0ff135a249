"""Measure code that `klsym audit` has bound, and compare the measurement with the reading.

The arguments are filled as the audit fills them, from the batches of small worlds.  Where the code was read,
its parameters have numbers that meet the hypotheses of the verdict, and the gradient that the verdict prints
is compared with the one that was measured, on the same worlds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import replace
from itertools import product
from random import Random
from typing import Any

from klsym.audit.audits import MOST_NAMES, AuditRun
from klsym.audit.binding import bind
from klsym.audit.code import Code
from klsym.audit.compiled.running import RoleRequest, ScaledLogits, UndecidedBranch
from klsym.audit.misread import refuse_twice
from klsym.audit.options.assumptions import choose_sampling, describe_arguments
from klsym.audit.reading import read
from klsym.audit.report import Audit
from klsym.audit.terms import (
    VOCABULARY,
    AskedRole,
    Disagreement,
    Refused,
    mask,
    offsets,
    sequence_mask,
    token,
)
from klsym.confirmed.answer import Confirmed
from klsym.confirmed.filling import Filling, use_double
from klsym.confirmed.pairing import PairedSamples, refuse_pairs
from klsym.confirmed.printed import Agreement, compare_with_printed
from klsym.errors import KlsymError, UsageError, spell_option, spell_values
from klsym.language.expressions import DENSITIES, A, R, log_mu, log_old, unfold
from klsym.language.training_names import ADVANTAGES, split_words
from klsym.measure.batch import Batch
from klsym.measure.field import Run
from klsym.measure.libraries import load_library
from klsym.measure.measurement import Measurement
from klsym.measure.measuring import measure
from klsym.measure.world import Array, MeasuredWorld
from klsym.numeric.checks.cross_check import draw_parameters_of
from klsym.worlds.words import WordTree, draw_tables

STRUCTURE = {*VOCABULARY, mask, token, sequence_mask, offsets, A, R, *DENSITIES, log_old}
SAMPLES, TOKENS = 12, 5  # with which code is run once, so that axes differ
SECONDS = 20.0  # for measuring
RANGES = (0.2, 0.9), (1.1, 1.7), (-1.7, 1.7)  # of parameters: code may want a share, or a cap above 1


def audit(
    target: Any,
    map: Mapping[str, str] | None = None,
    set: Mapping[str, Any] | None = None,
    result: str | int | None = None,
    **options: str | None,
) -> Confirmed:
    """Audit real code: read its formula and prove its objective, and measure its gradient.

    Autograd confirms the formula, and E_mu[grad L] of the proof is compared with that of the code.

    Parameters
    ----------
    target : callable or str
        A function, or "FILE.py:FUNC", "FILE.py:Class.method", "FILE.py:120-128", "MODULE:FUNC".  It is run.
    map : mapping of str to str, optional
        Name of an argument, or expression as the code writes it -> an expression of the loss grammar, such as
        "log_q" or "log_q - log_mu"; "log_q[v]" for the whole vocabulary, or "mask".  Others are guessed.
    set : mapping of str to object, optional
        Values of options of the code.
    result : str or int, optional
        Which of several returned values, or the name of a local variable.
    **options : str, optional
        sampling, use, level, batch, credit, weights, aggregate as in `explain`; the answer lists the
        assumptions about options that are not given.

    Returns
    -------
    Confirmed
        With `read`, the verdict on the formula, `measured`, and `target`.

    Raises
    ------
    UsageError
        Code that can neither be read nor run, with the line and the operation.
    Disagreement
        A formula whose gradient is not the one that the code has.

    Examples
    --------
    >>> import pytest; torch = pytest.importorskip("torch")
    >>> def penalty(logp, ref_logp):
    ...     return torch.exp(ref_logp - logp) - (ref_logp - logp) - 1
    >>> answer = audit(penalty)
    >>> answer.target, answer.measured.multiples
    ('forward-kl', {'forward-kl': 1.0})
    """
    both = audit_and_measure(target, map, set, result, **options)
    if both.differs:
        raise Disagreement(both.describe_difference())
    if both.read is None and both.measured is None:
        assert both.error is not None
        raise both.error
    return both


def audit_and_measure(
    target: Any,
    map: Mapping[str, str] | None = None,
    set: Mapping[str, Any] | None = None,
    result: str | int | None = None,
    **options: str | None,
) -> Confirmed:
    """Do what `audit` does, and return also what has no answer: the error, or that the two differ."""
    setting = {"sampling": None, "use": None, "level": None, **options}
    code = read(target, None if result is None else str(result))
    answer, error, run, is_asked = None, None, None, False
    try:
        run = AuditRun(code, bind(code, map or {}, set or {}), result, setting)
        answer = run.audit(dict(map or {}), dict(set or {}))
    except KlsymError as reason:
        error, is_asked = _locate(reason, code), isinstance(reason, AskedRole)
    read_alone = Confirmed(read=answer, unread=str(error or ""), unmeasured=str(error or ""), error=error)
    if run is None or is_asked:
        return read_alone
    measuring = MeasuredCode(run, answer)
    try:
        measured = measuring.measure()
    except AskedRole as reason:
        error = _locate(reason, code)
        return replace(read_alone, unread=str(error), unmeasured=str(error), error=error)
    except KlsymError as reason:
        return replace(read_alone, unmeasured=str(_locate(reason, code)))
    both = replace(read_alone, measured=measured, unmeasured="", assumed=tuple(measuring.assumed))
    if answer is None or measuring.has_rewards_of_sequences:
        return both
    try:
        both = replace(both, untempered=measuring.measure_untempered())
        return replace(both, agreements=measuring.compare_groups(answer, measured))
    except KlsymError as reason:
        return replace(read_alone, unmeasured=str(_locate(reason, code)))


def _locate(error: KlsymError, code: Code) -> KlsymError:
    """Return an error with the place in the code, as `klsym.audit` raises it."""
    if isinstance(error, Refused):
        return code.make_error(error.reason, error.line)
    return error.located(code.file, code.lines[0], str(error)) if isinstance(error, UsageError) else error


class MeasuredCode:
    """One measurement of what an audit has bound.  answer: what was read; None where it was not.

    parameters: numbers of the free parameters.  assumed: notes on code that was not read.
    """

    def __init__(self, run: AuditRun, answer: Audit | None) -> None:
        self.run, self.answer = run, answer
        self.setting = run.setting if answer is not None and run.setting else run.options
        self.parameters: dict[str, float] = {}
        self.assumed: list[str] = []
        self.returns_several = False
        self.may_pair = False  # samples with samples, where the code was not read

    def _draw_parameter_values(self) -> Iterator[dict[str, float]]:
        """Yield numbers of the parameters that meet the hypotheses of what was read, positive ones first."""
        if self.answer is None:
            yield {}
            return
        verdict, loss = self.answer.verdict, self.answer.tokens.loss
        for low, high in RANGES:

            def draw_between(_: str, stream: Random, low: float = low, high: float = high) -> float:
                return stream.uniform(low, high)

            drawn = draw_parameters_of(verdict, loss, draw_between)
            if drawn is not None:
                yield drawn

    def measure(self) -> Measurement:
        """Return the measurement, with the first layout of arguments that the code accepts."""
        if not self.run.framework.differentiates:
            raise Refused("NumPy has no gradient: nothing is measured")
        layouts = [self.run.traced.layout] if self.run.traced is not None else self._list_layouts()
        refusals: list[Refused] = []
        for may_pair in (False, True):
            self.may_pair = may_pair
            for layout, parameters in product(layouts, self._draw_parameter_values()):
                self.parameters = parameters
                try:
                    return self._measure_layout(layout)
                except AskedRole:
                    raise
                except Refused as refusal:
                    refusals.append(refusal)
            if not any(isinstance(refusal, PairedSamples) for refusal in refusals):
                break
        if not layouts:
            raise UsageError("no layout of the arguments fits: nothing packs tokens on one axis")
        if not refusals:
            raise UsageError("no values of the parameters found that meet the hypotheses")
        raise max(refusals, key=lambda refusal: refusal.line or 0)

    def _list_layouts(self) -> list[Any]:
        """Return the layouts of code that was not read: tokens on one axis only where the code packs them.

        Elsewhere a sum along that axis may be meant for the tokens of one sequence, or for all words.
        """
        packs = offsets in self.run.bindings.roles.values()
        return [layout for layout in self.run.layouts if packs or not layout.flat]

    def _measure_layout(self, layout: Any) -> Measurement:
        """Return the measurement, once all names that the code computes with are known."""
        for _ in range(MOST_NAMES):
            try:
                return self._measure_once(layout)
            except RoleRequest as needs:
                self.run.bindings.guess(needs.name, needs.role)
            except ScaledLogits as scaled:
                self.run.bindings.scale(scaled.names, scaled.every, scaled.factor)
            except UndecidedBranch as undecided:
                self.run.questions.decide(undecided)
        raise Refused(f"more than {MOST_NAMES} names are asked for")

    def _measure_once(self, layout: Any) -> Measurement:
        self._run_at_sizes(layout)
        if self.answer is None:
            refuse_twice(self.run.bindings)
            self.run.confirm_use()
            self.setting, self.assumed = self._choose_setting(layout)
        is_sample = self.setting.get("level") == "sample"
        symbols = self.run.bindings.symbols
        with self.run.guard_user_code(), use_double(self.run.framework.name):
            measured = measure(
                lambda batch: self._compute_loss(batch, layout),
                sampling=self.setting.get("sampling") or "on-policy",
                group=self._choose_group(),
                words=4 if is_sample else 3,
                length=1 if is_sample else 2,
                third=log_old in symbols,
                fixed_length=not self._reads_mask,
                framework=self.run.framework.name,
                seconds=SECONDS,
            )
        if self.answer is None and self.returns_several:
            self.assumed.append("the numbers that the code returns are averaged over sequences")
        return replace(measured, is_ascended=self.setting["use"] == "reward")

    def _choose_setting(self, layout: Any) -> tuple[dict[str, Any], list[str]]:
        """Return the options with which code is measured that was not read, and notes on what is assumed."""
        run, setting = self.run, dict(self.run.options)
        reads = ", ".join(f"{name} = {text}" for name, text in run.bindings.texts.items())
        notes = [f"reads {reads}; {spell_option('map')} changes it"] if reads else []
        old = [name for name, role in run.bindings.roles.items() if log_mu in unfold(role).free_symbols]
        setting["sampling"], sampled = choose_sampling(setting["sampling"], old)
        notes += [*run.notes, *sampled, *describe_arguments(run.bindings, layout)]
        if setting["use"] == "reward" and setting.get("credit") is None:
            is_advantage = bool({*split_words(run.code.name)} & ADVANTAGES)
            setting["credit"] = "same-token" if is_advantage else "total"
            notes.append(
                f"credit {setting['credit']}, of rewards of tokens; {spell_option('credit')} changes it"
            )
        if setting["level"] is None and self._runs_with_sequences(layout):
            notes.append(
                f"log densities have one number a token; {spell_option('level', 'sequence')}: one a sequence"
            )
        chosen = {name: f"{self._find_number(x):.4g}" for name, x in run.bindings.free.items()}
        chosen |= run.questions.proposed
        if chosen:
            command = spell_values(chosen)
            notes.append(f"the code is run with {command}; other values may give another answer")
        return setting, [*dict.fromkeys([*run.code.notes, *notes])]

    def _runs_with_sequences(self, layout: Any) -> bool:
        """Does the code also run if log densities have one number a sequence?"""
        if self.run.framework.name == "jax" or layout.flat or layout.summed:
            return False
        try:
            self._run_at_sizes(layout.sequence_layout)
        except (KlsymError, RoleRequest, ScaledLogits):
            return False
        return bool(self.run.bindings.symbols & {*DENSITIES})

    def measure_untempered(self) -> Measurement | None:
        """Measure code that divides logits for the policy at temperature 1; None where it divides none."""
        tempered = self.run.bindings
        if not tempered.tempered or self.run.traced is None:
            return None
        try:
            self.run.bindings = tempered.cool()
            return self._measure_once(self.run.traced.layout)
        finally:
            self.run.bindings = tempered

    def compare_groups(self, answer: Audit, measured: Measurement) -> dict[int, Agreement]:
        """Compare the printed gradient with that of the code on the first world, for groups of 1 and 2.

        Samples of which each has a loss of its own, and those that meet in a loss, differ in pairs alone.
        """
        by_size: dict[int, Agreement] = {}
        world = measured.worlds[0]
        worlds = [(world, measured.gradients[0])]
        if world.group == 1:
            pairs = replace(world, group=2)
            worlds.append((pairs, self._compute_gradient(pairs)))
        for sized, gradient in worlds:
            verdict, loss = answer.verdict, answer.tokens.loss
            agreement = compare_with_printed(verdict, loss, sized, gradient, parameters=self.parameters)
            if agreement is not None:
                by_size[sized.group] = agreement
        return by_size

    def _compute_gradient(self, world: MeasuredWorld) -> Array:
        """Return the expected gradient of the code on a world, [rows, V] in the logits."""
        assert self.run.traced is not None
        layout, library = self.run.traced.layout, load_library(self.run.framework.name)
        with self.run.guard_user_code(), use_double(self.run.framework.name), library.in_float64():
            run = Run(lambda batch: self._compute_loss(batch, layout), library, SECONDS)
            return run.compute_gradient(world, world.theta)[1]

    def _run_at_sizes(self, layout: Any) -> None:
        """Run code that was not read once where all axes differ: the worlds have 2 samples of 2 tokens.

        A group of 12 is one of 2, 3, 4 or 6 samples of each prompt, as code may ask for.
        """
        if self.run.traced is not None:
            return  # it has run at the sizes of a trace
        tree = WordTree(3, TOKENS)
        world = MeasuredWorld(tree, draw_tables(tree, 0), "off-policy", SAMPLES)
        name, axis = self.run.framework.name, SAMPLES * TOKENS if layout.flat else 0
        library = load_library(name)
        with self.run.guard_user_code(), use_double(name, axis), library.in_float64():
            run = Run(lambda batch: self._compute_loss(batch, layout), library, SECONDS)
            with nullcontext() if self.may_pair else refuse_pairs(name, SAMPLES):
                run.run_group(world, world.theta, range(SAMPLES))

    def _choose_group(self) -> int:
        """Return 2 where the samples of a batch meet in the loss, or where that is not known."""
        together = self.answer is None or self.setting.get("aggregate") == "batch"
        return 2 if together or self.setting.get("batch", "none") != "none" else 1

    # -- one batch --------------------------------------------------------------------------
    def _compute_loss(self, batch: Batch, layout: Any) -> Any:
        """Return what the code makes of a batch, as a number whose gradient is meant."""
        symbols = self.run.bindings.free.items()
        numbers_of_roles = {x.name: self._find_number(x) for x in self._list_parameters_of_roles()}
        filled = Filling(
            batch, layout, self.run.framework.name, at_tokens=self._is_at_tokens, parameters=numbers_of_roles
        )
        arguments = filled.fill(self.run.bindings.roles)
        numbers = {name: self.run.framework.number(self._find_number(x)) for name, x in symbols}
        value = self.run.call({**arguments, **numbers}, guessing=True)
        self.returns_several = getattr(value, "ndim", 0) > 0
        if self.setting.get("use") == "reward":
            total = filled.weigh_scores(value, self.setting.get("credit") or "total")
        else:
            total = filled.sum_tokens(value)
        is_averaged = self.answer is None and self.returns_several
        return total / len(batch.mask) if is_averaged else total

    @property
    def has_rewards_of_sequences(self) -> bool:
        """Has each sequence one reward R, where a verdict on tokens means one of each token?"""
        traced = self.run.traced
        rows = traced is not None and bool(traced.layout.rows)
        return rows and self.setting.get("level") == "token" and R in self.run.bindings.symbols

    @property
    def _is_at_tokens(self) -> bool:
        """Has each token a reward of its own, as it has where tokens are explained, or nothing was read?"""
        return self.answer is None or self.setting.get("level") == "token"

    @property
    def _reads_mask(self) -> bool:
        """Does the code leave out padding?  Where it does not, no sequence of its worlds is padded."""
        if self.run.traced is not None:
            return self.run.traced.formula.has(mask)
        return mask in self.run.bindings.roles.values()

    def _list_parameters_of_roles(self) -> list[Any]:
        """Return the parameters in the roles of arguments, such as a temperature."""
        symbols = self.run.bindings.symbols - STRUCTURE
        return sorted(symbols, key=str)

    def _find_number(self, symbol: Any) -> float:
        """Return the number of a parameter; what nothing says is a number of its own between 0.2 and 0.9."""
        position = len(self.parameters)
        return self.parameters.setdefault(symbol.name, 0.2 + math.modf(0.618 * (position + 1))[0] * 0.7)
