"""The walk of one audit: read, bind, trace, confirm, explain; only confirmed traces have a verdict."""

from __future__ import annotations

import math
import traceback
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NoReturn

from klsym.audit.aggregation import Tokens, split_aggregation
from klsym.audit.binding import Bindings, bind, make_guesser, refuse_unused
from klsym.audit.code import Code
from klsym.audit.compiled.in_code import describe_error
from klsym.audit.compiled.running import (
    LongerArguments,
    RoleRequest,
    ScaledLogits,
    Session,
    UndecidedBranch,
    UnknownLoop,
    open_session,
)
from klsym.audit.compiled.unread import UnreadValue, resolve_values
from klsym.audit.confirm import (
    SCALES,
    Outcome,
    Point,
    check_trace,
    draw,
    draw_far_points,
    draw_points,
    is_same_loss,
)
from klsym.audit.findings import Facts, add_code_facts, collect_findings, describe_bound
from klsym.audit.misread import refuse_misread, refuse_shifted
from klsym.audit.options import assumptions
from klsym.audit.options.questions import Questions, copy_values
from klsym.audit.places import Line, watch_files
from klsym.audit.reading import read
from klsym.audit.report import Audit
from klsym.audit.results import choose_loss, is_guess
from klsym.audit.sequences import UnpairedSums, iterate_sums, list_summed, refuse_unpaired
from klsym.audit.terms import VOCABULARY, Disagreement, Misfit, Refused
from klsym.audit.tracing.frameworks import Framework, choose_framework
from klsym.errors import KlsymError, UsageError, spell_option
from klsym.language.expressions import log_mu, log_p, log_q, unfold

MOST_NAMES = 200


def audit(
    target: Any,
    map: Mapping[str, str] | None = None,
    set: Mapping[str, Any] | None = None,
    result: str | int | None = None,
    sampling: str | None = None,
    use: str | None = None,
    level: str | None = None,
    **options: str | None,
) -> Audit:
    """Trace the formula of real code, confirm it with autograd, and return the answer of `explain` for it.

    >>> import pytest; torch = pytest.importorskip("torch")
    >>> def penalty(logp, ref_logp):
    ...     return torch.exp(ref_logp - logp) - (ref_logp - logp) - 1
    >>> audit(penalty).target
    'forward-kl'

    target: a function, or "FILE.py:FUNC", "FILE.py:Class.method", "FILE.py:120-128", "MODULE:FUNC", run here.
    map: name of an argument, or expression as the code writes it -> an expression of the loss grammar
      ("log_q", "log_q - log_mu"), "log_q[v]" for the whole vocabulary, or "mask".  Others are guessed.
    set: name -> value of an option.
    result: which of several returned values (a number), or the name of a local variable.
    sampling, use, level, batch, credit, weights, aggregate: as in `klsym.explain`; where nothing is said,
      sampling is off-policy if the code reads an old log density, the use is reward if the function is
      named after rewards or advantages, the level is token if the code aggregates over tokens, and the
      answer says so.  level "sequence": of log densities with one number a sequence, where the code runs
      with such numbers.
    Raises UsageError: code that cannot be read, with the line and the operation; `Disagreement`: a trace that
      the real function contradicts.
    """
    code = read(target, None if result is None else str(result))
    setting = {"sampling": sampling, "use": use, "level": level, **options}
    try:
        bindings = bind(code, map or {}, set or {})
        return AuditRun(code, bindings, result, setting).audit(dict(map or {}), dict(set or {}))
    except Refused as refusal:
        raise code.make_error(refusal.reason, refusal.line) from None
    except UsageError as error:
        raise error.located(code.file, code.lines[0], str(error)) from None


@dataclass
class _Trace:
    """A trace with the layout of arguments for which it went through."""

    formula: Any
    journal: list[Any]
    layout: Any
    tokens: Tokens


class AuditRun:
    """One audit.

    traced: what was read, and setting: the options that it was explained with; None before that.
    """

    def __init__(self, code: Code, bindings: Bindings, result: Any, options: dict[str, Any]) -> None:
        self.code, self.bindings, self.options = code, bindings, options
        self.result = int(result) if result is not None and str(result).isdigit() else None
        self.guess = make_guesser(code)
        self.questions = Questions(code, self.add_note)
        declared = {name: code.defaults[name] for name in code.origin}
        containers = frozenset(k for k, v in code.defaults.items() if isinstance(v, tuple | list | dict))
        self.session = Session(
            files=code.files,
            declared=declared,
            containers=containers,
            objects=frozenset(bindings.objects),
            methods=code.methods,
        )
        with self.guard_user_code():
            keys = [*bindings.roles, *bindings.options, *bindings.free, *bindings.objects]
            self.function, self.namespace = code.build(keys)
        self.traced: _Trace | None = None
        self.setting: dict[str, Any] | None = None
        options["use"], self.use_notes = assumptions.choose_use(options["use"], code.name, result)
        self.returns_number = False
        gradient = options["use"] == "loss"
        self.framework: Framework = choose_framework(self.function, self.namespace, gradient)
        if gradient and not self.framework.differentiates:
            raise Refused(f"NumPy has no gradient: {spell_option('use', 'reward')}")

    @property
    def notes(self) -> list[str]:
        return self.session.notes

    @contextmanager
    def guard_user_code(self) -> Iterator[None]:
        """Turn whatever the user's code raises into one line."""
        with watch_files(frozenset(self.code.files)), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                yield
            except KlsymError:
                raise
            except (Exception, SystemExit) as error:  # the user's code: anything may happen
                frames = traceback.extract_tb(error.__traceback__)
                lines = [Line(f.lineno or 0, f.filename) for f in frames if f.filename in self.code.files]
                refusal = Refused(describe_error(error), lines[-1] if lines else None)
                refusal.raised = True
                raise refusal from None

    def call(self, values: Mapping[str, Any], guessing: bool = False) -> Any:
        """Run the code with these values of its arguments, and return the loss out of what it returns."""
        whole = copy_values({**values, **self.questions.values, **self.bindings.options})
        self.session.values, self.session.guess = whole, self.guess if guessing else None
        self.session.something = self.questions.something
        self.session.read_once.clear()
        self.session.touched.clear()
        self.session.shaped.clear()
        self.session.parameters = {x: name for name, x in self.bindings.free.items()}
        arguments = {}
        for argument in self.code.arguments:
            if argument.name in whole or not argument.has_default:
                arguments[argument.name] = whole.get(argument.name, UnreadValue._from_name(argument.name))
        with open_session(self.session):
            if not self.framework.asks:
                for value in arguments.values():
                    resolve_values([value])  # a name that says what it is raises RoleRequest
            value = choose_loss(self.function(**arguments), self.result, self.add_note)
        self.returns_number = getattr(value, "ndim", 1) == 0
        return value

    def confirm_use(self, loss: Any = None) -> None:
        """Keep the use that the name suggests, unless the code returns one number or weighs an advantage."""
        is_loss = self.returns_number or assumptions.weighs_advantage(loss)
        if self.use_notes and self.framework.differentiates and is_loss:
            self.options["use"] = "loss"
            self.use_notes = [assumptions.describe_loss(self.code.name, self.returns_number)]
        self.notes.extend(self.use_notes)
        self.use_notes = []

    def add_note(self, text: str) -> None:
        self.notes.append(text)

    # -- the trace ------------------------------------------------------------------------
    @property
    def layouts(self) -> list[Any]:
        """The layouts to try; for losses of sequences, first those with one number a sequence."""
        layouts = list(self.framework.every_layout)
        asked = self.options["level"] == "sequence"
        of_sequences = [layout.sequence_layout for layout in layouts if asked and not layout.flat]
        return [*dict.fromkeys(of_sequences), *layouts]

    def find_unsized(self, traced: _Trace) -> list[str]:
        """Return the log densities with which the code also runs if they have one number a sequence."""
        names = assumptions.find_unsized(traced.formula, self.bindings)
        runs = names and self.is_same(None, traced.layout.sequence_layout)
        return names if runs else []

    def trace_first_layout(self) -> _Trace:
        """Return the trace with the first layout of arguments that the code accepts."""
        refusals: list[Refused] = []
        for layout in self.layouts:
            if layout.flat and not all(r.is_of_shape or r.raised for r in refusals):
                continue
            if refusals and not self.framework.is_different(layout, self.bindings):
                continue
            try:
                return self.trace_layout(layout)
            except Refused as refusal:
                refusals += [] if layout.summed else [refusal]
        furthest = max(refusals, key=lambda r: (not r.is_of_shape, r.line or math.inf))
        if refusals[0].is_of_shape and not list_summed(self.bindings):
            before = self.bindings
            for bindings in iterate_sums(before):
                self.bindings = bindings
                try:
                    return self.trace_first_layout()
                except UnpairedSums as refusal:
                    furthest = refusal
                except Refused:
                    continue
            self.bindings = before
        self.refuse_if_asked(furthest)
        raise furthest

    def trace_layout(self, layout: Any) -> _Trace:
        """Return the trace with this layout, once all names that the code computes with are known."""
        for _ in range(MOST_NAMES):
            try:
                trace = self.trace_once(layout)
            except RoleRequest as needs:
                self.bindings.guess(needs.name, needs.role)
            except LongerArguments as longer:
                layout = replace(layout, longer=layout.longer | longer.names)
            except ScaledLogits as scaled:
                self.bindings.scale(scaled.names, scaled.every, scaled.factor)
            except UnknownLoop as loop:
                if loop.text in self.session.loops:
                    raise
                self.session.loops.add(loop.text)
            except UndecidedBranch as undecided:
                self.questions.decide(undecided)
                self.bindings.free.pop(undecided.name, None)
            except Refused as refusal:
                if not refusal.is_of_shape:
                    self.refuse_if_asked(refusal)
                raise
            else:
                self.questions.drop_without_effect(partial(self.is_same, trace.formula, layout))
                self.refuse_if_asked()
                return trace
        raise Refused(f"more than {MOST_NAMES} names are asked for")

    def refuse_if_asked(self, refusal: Refused | None = None) -> None:
        self.questions.refuse(
            f"{self.code.describe_place(refusal.line)}: {refusal.reason}" if refusal else ""
        )

    def is_same(self, formula: Any, layout: Any) -> bool:
        """Is the formula the same with the other answers that are tried?  None: any formula will do."""
        bindings, notes = self.bindings, [*self.notes]
        self.bindings = bindings.copy()
        try:
            for _ in range(MOST_NAMES):
                try:
                    return formula in (None, self.trace_once(layout).formula)
                except RoleRequest as needs:
                    self.bindings.guess(needs.name, needs.role)
        except (KlsymError, LongerArguments, ScaledLogits):
            return False
        finally:
            self.bindings, self.notes[:] = bindings, notes
        return False

    def trace_once(self, layout: Any) -> _Trace:
        with self.guard_user_code():
            arguments = {
                k: self.framework.make_argument(k, f, layout) for k, f in self.bindings.roles.items()
            }
            self.session.cuts.clear()
            self.session.flat = layout.flat
            arguments.update({k: self.framework.make_parameter(x) for k, x in self.bindings.free.items()})
            with open_session(self.session):  # JAX is read after the code has run
                formula, journal = self.framework.trace(partial(self.call, guessing=True), arguments)
            self.bindings.keep(self.session.touched | self.code.argument_names)
            self.refuse_carried(formula, arguments)
            refuse_misread(formula, journal, self.bindings)
            refuse_unpaired(formula, self.bindings)
            refuse_shifted(self.session.cuts, self.bindings.roles)
            layout = replace(layout, cuts=dict(self.session.cuts))
            formula = layout.move_rewards_out(formula)
            trace = _Trace(formula, journal, layout, split_aggregation(formula, self.options["level"]))
            layout.refuse_without_rewards(formula, trace.tokens.loss)
            self.make_runner(layout)(draw(0, SCALES[0], self.collect_symbols(trace), layout.rows))
        return trace

    def refuse_carried(self, formula: Any, arguments: Any) -> None:
        """Raise Refused if a second round of a loop, of which one was read, changes the loss."""
        if not self.session.read_once:
            return
        loops = " and ".join(sorted(self.session.read_once))
        self.session.rounds = 2
        try:
            with self.guard_user_code():
                second, _ = self.framework.trace(partial(self.call, guessing=True), arguments)
        except Refused as refusal:
            reason = f"a second round of the loop over {loops} cannot be read: {refusal.reason}"
            raise Refused(reason, refusal.line) from None
        finally:
            self.session.rounds = 1
        if second != formula:
            raise Refused(f"the loss changes from round to round of the loop over {loops}")

    def trace_with_guesses(self) -> _Trace:
        """Return the trace; if it fails, guess the roles of arguments at their defaults from their names."""
        try:
            return self.trace_first_layout()
        except Misfit:
            raise
        except Refused:
            guesses = [guess for name in self.bindings.defaulted if (guess := self.guess(name, "", False))]
            if not guesses:
                raise
            for name, role in guesses:
                self.bindings.guess(name, role)
            self.bindings.defaulted = []
            return self.trace_first_layout()

    def trace_probabilities(self) -> _Trace:
        """Return the trace; probabilities that are not summed over the vocabulary are of sampled tokens."""
        try:
            return self.trace_with_guesses()
        except Refused as refusal:
            before, self.bindings = self.bindings, self.bindings.copy()
            names = [] if isinstance(refusal, Misfit) else self.bindings.take_as_sampled()
            with suppress(Refused):
                trace = self.trace_with_guesses() if names else None
                if trace is not None:
                    self.notes.append(f"{', '.join(names)}: probabilities of the sampled tokens")
                    return trace
            self.bindings = before
            raise

    def trace_without_misfits(self) -> _Trace:
        """Return the trace; what is called a mask and is used as a number becomes a parameter."""
        try:
            return self.trace_probabilities()
        except Misfit as misfit:
            bindings, names = self.bindings, self.bindings.list_guessed(misfit.role)
            for chosen in [*([name] for name in reversed(names)), names] if names else []:
                self.bindings = bindings.as_numbers(chosen)
                with suppress(Refused):
                    trace = self.trace_first_layout()
                    self.notes.append(f"{', '.join(chosen)}: used as a number, so no {misfit.role}")
                    return trace
            self.bindings = bindings
            raise misfit.ask_about([n for n, e in bindings.roles.items() if e == misfit.role]) from None

    def make_runner(self, layout: Any) -> Any:
        """Return the real function, for arguments with this layout."""
        return self.framework.make_runner(self.call_at, self.bindings.roles, layout)

    def collect_symbols(self, traced: _Trace) -> set[Any]:
        return self.bindings.symbols | unfold(traced.tokens.loss).free_symbols

    def call_at(self, point: Point, values: Mapping[str, Any]) -> Any:
        """Run the code at a point, parameters having the numbers of the point."""
        numbers = {key: self.framework.number(point.values[x]) for key, x in self.bindings.free.items()}
        return self.call({**values, **numbers})

    # -- the answer -----------------------------------------------------------------------
    def audit(self, given_map: dict[str, str], given_set: dict[str, Any]) -> Audit:
        self.traced = traced = self.trace_without_misfits()
        self.confirm_use(traced.tokens.loss)
        old = assumptions.find_old_densities(traced.formula, self.bindings)
        self.options["sampling"], assumed = assumptions.choose_sampling(self.options["sampling"], old)
        self.notes.extend(assumed)
        refuse_unused(self.code, self.bindings, [*given_map, *given_set], self.session.used)
        gradient = self.options["use"] == "loss"
        symbols = self.collect_symbols(traced)
        points = draw_points(symbols, traced.layout.rows, not self.is_off_policy)
        outcome = self.confirm_trace(traced, points, gradient)
        choice = assumptions.choose_setting(self.options, traced.tokens, partial(self.find_unsized, traced))
        self.setting = setting = choice.options
        self.notes.extend(choice.notes)
        traced.tokens = assumptions.leave_out_floors(traced.tokens)
        if traced.tokens.over_vocabulary and not gradient:
            raise Refused(
                "a sum over the vocabulary is the same whatever word is sampled: no reward of a word"
            )
        verdict = assumptions.explain_tokens(traced.tokens, setting, self.options["level"])
        with self.guard_user_code():
            overflows = self.find_overflows(traced, symbols)
        guess = is_guess(self.code.name, self.result, [*self.code.notes, *self.notes])
        verdict = add_code_facts(verdict, overflows, guess)
        facts = Facts(traced.tokens, traced.formula, verdict, setting, outcome, tuple(points.values()),
                      traced.journal, self.bindings.roles, overflows)  # fmt: skip
        bindings = self.bindings.sort_by(a.name for a in self.code.arguments)
        self.notes.extend(assumptions.describe_assumptions(bindings, traced, verdict))
        known_names = [*bindings.bound_names, *self.questions.values]
        self.notes.extend(assumptions.describe_branches(self.code, known_names, self.session))
        notes = tuple(dict.fromkeys([*self.code.notes, *self.notes]))
        return Audit(verdict, self.code, bindings, traced.tokens, collect_findings(facts), outcome.points,
                     bool(outcome.sides) and not outcome.one_sided, given_map,
                     given_set, notes, self.framework.name)  # fmt: skip

    def confirm_trace(self, traced: _Trace, points: Mapping[int, Point], gradient: bool) -> Outcome:
        """Compare the trace with the code and with its loss; raises Disagreement where they differ."""
        over_vocabulary = any(f.has(*VOCABULARY) for f in self.bindings.roles.values())
        with self.guard_user_code():
            outcome = check_trace(
                traced.formula, self.make_runner(traced.layout), points, over_vocabulary,
                gradient and self.framework.differentiates,
            )  # fmt: skip
        if outcome.failed or not outcome.points:
            reason = outcome.failed or "no finite number to compare"
            self.raise_disagreement(reason + describe_bound(outcome.bound))
        if not is_same_loss(traced.tokens.traced, traced.tokens.loss, points.values()):
            self.raise_disagreement("its formula is lost in the loss grammar")
        return outcome

    def raise_disagreement(self, reason: str) -> NoReturn:
        statement = f"the trace disagrees with the code ({reason}), so that klsym gives no verdict"
        raise Disagreement(f"{self.code.name}: {statement}")

    @property
    def is_off_policy(self) -> bool:
        return bool(self.options["sampling"] == "off-policy")

    def find_overflows(self, traced: _Trace, symbols: Any) -> list[Any] | None:
        """Return where the code is not finite in short floats; None where it is not run in them."""
        if not self.framework.differentiates or log_q not in symbols:
            return None
        densities = {log_p, log_mu} if self.is_off_policy else {log_p}
        densities &= unfold(traced.tokens.loss).free_symbols
        points = draw_far_points(symbols, traced.layout.rows, densities)
        return self.framework.find_overflows(self.call_at, self.bindings.roles, traced.layout, points)
