"""The walk of one audit: read, bind, trace, confirm, explain; nothing is said of a trace that is not
confirmed."""

from __future__ import annotations

import math
import traceback
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NoReturn

from klsym.api import Verdict, ask
from klsym.audit.aggregation import Tokens, tokens_of
from klsym.audit.binding import Bindings, bind, guesser, refuse_unused
from klsym.audit.code import Code
from klsym.audit.compiled.in_code import raised
from klsym.audit.compiled.running import Longer, Looped, Needs, Scaled, Session, Undecided, session
from klsym.audit.compiled.unread import Unread, settled
from klsym.audit.confirm import SCALES, Point, confirm, draw, far_point, same
from klsym.audit.findings import Facts, findings_of, of_code, on_the_bound
from klsym.audit.misread import refuse_misread
from klsym.audit.options import assumptions
from klsym.audit.options.questions import Questions, copied
from klsym.audit.places import Line, watching
from klsym.audit.reading import read
from klsym.audit.report import Audit
from klsym.audit.results import is_guess, picked
from klsym.audit.sequences import Unpaired, refuse_unpaired, summed, with_sums
from klsym.audit.terms import VOCABULARY, Misfit, Refused
from klsym.audit.tracing.frameworks import Framework, framework_of
from klsym.errors import KlsymError, UsageError
from klsym.language.expressions import log_mu, log_p, log_q, unfold
from klsym.language.sums import Whole

MOST_NAMES = 200
FAR = 100.0  # the log ratios at which overflow is looked for


class Disagrees(KlsymError):
    """A trace that the real function contradicts; nothing is said about such code."""


def audit(
    target: Any,
    map: Mapping[str, str] | None = None,
    set: Mapping[str, Any] | None = None,
    result: str | int | None = None,
    sampling: str | None = None,
    use: str = "loss",
    level: str | None = None,
    **options: str | None,
) -> Audit:
    """What real code optimises: its formula L is traced, confirmed by autograd, and explained.

    >>> import pytest; torch = pytest.importorskip("torch")
    >>> def penalty(logp, ref_logp):
    ...     return torch.exp(ref_logp - logp) - (ref_logp - logp) - 1
    >>> audit(penalty).target
    'forward-kl'

    target: a function, or "FILE.py:FUNC", "FILE.py:Class.method", "FILE.py:120-128", "MODULE:FUNC".  The code
      is run.
    map: name of an argument, or expression as the code writes it -> an expression of the loss grammar
      ("log_q", "log_q - log_mu"), "log_q[v]" for the whole vocabulary,
      or "mask".  What is left out is guessed
      from usual names.
    set: name -> value of an option.
    result: which of several returned values (a number), or the name of a local variable.
    sampling, use, level, batch, credit, weights, aggregate: as in `klsym.explain`; where nothing is said,
      sampling is off-policy if the code reads an old log density, the level is token if the code aggregates
      over tokens, and the answer says so.  level "sequence": of log densities with one number a sequence,
      where the code runs with such numbers.
    Raises UsageError: code that cannot be read, with the line and the operation; `Disagrees`: a trace that
    the
      real function contradicts.
    """
    code = read(target, None if result is None else str(result))
    setting = {"sampling": sampling, "use": use, "level": level, **options}
    try:
        bindings = bind(code, map or {}, set or {})
        return _Walk(code, bindings, result, setting).audit(dict(map or {}), dict(set or {}))
    except Refused as refusal:
        raise code.unreadable(refusal.reason, refusal.line) from None
    except UsageError as error:
        raise error.located(code.file, code.lines[0], str(error)) from None


@dataclass
class _Traced:
    """A trace with the layout of arguments for which it went through."""

    formula: Any
    journal: list[Any]
    layout: Any
    tokens: Tokens


class _Walk:
    """One audit."""

    def __init__(self, code: Code, bindings: Bindings, result: Any, options: dict[str, Any]) -> None:
        self.code, self.bindings, self.options = code, bindings, options
        self.result = int(result) if result is not None and str(result).isdigit() else None
        self.guess = guesser(code)
        self.questions = Questions(code, self.note)
        declared = {name: code.defaults[name] for name in code.origin}
        many = frozenset(k for k, v in code.defaults.items() if isinstance(v, tuple | list | dict))
        self.session = Session(
            files=code.files, declared=declared, containers=many, objects=frozenset(bindings.objects)
        )
        with self.guarded():
            keys = [*bindings.roles, *bindings.options, *bindings.free, *bindings.objects]
            self.function, self.namespace = code.build(keys)
        gradient = options["use"] == "loss"
        self.framework: Framework = framework_of(self.function, self.namespace, gradient)
        if gradient and not self.framework.differentiates:
            raise Refused("NumPy has no gradient: --use reward")

    @property
    def notes(self) -> list[str]:
        return self.session.notes

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Whatever the user's code raises becomes one line."""
        with watching(frozenset(self.code.files)), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                yield
            except KlsymError:
                raise
            except (Exception, SystemExit) as error:  # the user's code: anything may happen
                frames = traceback.extract_tb(error.__traceback__)
                lines = [Line(f.lineno or 0, f.filename) for f in frames if f.filename in self.code.files]
                refusal = Refused(raised(error), lines[-1] if lines else None)
                refusal.raised = True
                raise refusal from None

    def call(self, values: Mapping[str, Any], guessing: bool = False) -> Any:
        """Run the code with these values of its arguments; the loss out of what it returns."""
        whole = copied({**values, **self.questions.values, **self.bindings.options})
        self.session.values, self.session.guess = whole, self.guess if guessing else None
        self.session.something = self.questions.something
        self.session.read_once.clear()
        self.session.touched.clear()
        self.session.shaped.clear()
        self.session.parameters = {x: name for name, x in self.bindings.free.items()}
        given = {}
        for argument in self.code.arguments:
            if argument.name in whole or not argument.has_default:
                given[argument.name] = whole.get(argument.name, Unread.named(argument.name))
        with session(self.session):
            if not self.framework.asks:
                for value in given.values():
                    settled([value])  # a name that says what it is raises Needs
            return picked(self.function(**given), self.result, self.note)

    def note(self, text: str) -> None:
        self.notes.append(text)

    # -- the trace ------------------------------------------------------------------------
    @property
    def layouts(self) -> list[Any]:
        """Those that are tried; for losses of sequences, first with one number a sequence."""
        found = list(self.framework.every_layout)
        asked = self.options["level"] == "sequence"
        return [*dict.fromkeys(one.of_sequences for one in found if asked and not one.flat), *found]

    def unsized(self, traced: _Traced) -> list[str]:
        """The log densities that may have one number a sequence as well, as the code runs with these."""
        names = assumptions.without_size(traced.formula, self.bindings)
        runs = names and self.is_same(None, traced.layout.of_sequences)
        return names if runs else []

    def traced(self) -> _Traced:
        """With the first layout of arguments that the code accepts."""
        refusals: list[Refused] = []
        for layout in self.layouts:
            if layout.flat and not all(r.of_shape or r.raised for r in refusals):
                continue
            if refusals and not self.framework.differs(layout, self.bindings):
                continue
            try:
                return self.discovered(layout)
            except Refused as refusal:
                refusals += [] if layout.summed else [refusal]
        furthest = max(refusals, key=lambda r: (not r.of_shape, r.line or math.inf))
        if refusals[0].of_shape and not summed(self.bindings):
            before = self.bindings
            for bindings in with_sums(before):
                self.bindings = bindings
                try:
                    return self.traced()
                except Unpaired as refusal:
                    furthest = refusal
                except Refused:
                    continue
            self.bindings = before
        self.refuse_if_asked(furthest)
        raise furthest

    def discovered(self, layout: Any) -> _Traced:
        """The trace with this layout, once all names that the code computes with are known."""
        for _ in range(MOST_NAMES):
            try:
                found = self.traced_with(layout)
            except Needs as needs:
                self.bindings.guess(needs.name, needs.role)
            except Longer as longer:
                layout = replace(layout, longer=layout.longer | longer.names)
            except Scaled as scaled:
                self.bindings.scale(scaled.names, scaled.every, scaled.factor)
            except Looped as loop:
                if loop.text in self.session.loops:
                    raise
                self.session.loops.add(loop.text)
            except Undecided as undecided:
                self.questions.decide(undecided)
                self.bindings.free.pop(undecided.name, None)
            except Refused as refusal:
                if not refusal.of_shape:
                    self.refuse_if_asked(refusal)
                raise
            else:
                self.questions.drop_those_without_effect(partial(self.is_same, found.formula, layout))
                self.refuse_if_asked()
                return found
        raise Refused(f"more than {MOST_NAMES} names are asked for")

    def refuse_if_asked(self, refusal: Refused | None = None) -> None:
        self.questions.refuse(f"{self.code.place(refusal.line)}: {refusal.reason}" if refusal else "")

    def is_same(self, formula: Any, layout: Any) -> bool:
        """Is the formula the same with the other answers that are tried?  None: any formula will do."""
        bindings, notes = self.bindings, [*self.notes]
        self.bindings = bindings.copy()
        try:
            for _ in range(MOST_NAMES):
                try:
                    return formula in (None, self.traced_with(layout).formula)
                except Needs as needs:
                    self.bindings.guess(needs.name, needs.role)
        except (KlsymError, Longer, Scaled):
            return False
        finally:
            self.bindings, self.notes[:] = bindings, notes
        return False

    def traced_with(self, layout: Any) -> _Traced:
        with self.guarded():
            arguments = {k: self.framework.argument(k, f, layout) for k, f in self.bindings.roles.items()}
            self.session.cuts.clear()
            self.session.flat = layout.flat
            arguments.update({k: self.framework.parameter(x) for k, x in self.bindings.free.items()})
            with session(self.session):  # JAX is read after the code has run
                formula, journal = self.framework.trace(partial(self.call, guessing=True), arguments)
            self.bindings.keep(self.session.touched | self.code.own)
            self.refuse_carried(formula, arguments)
            refuse_misread(formula, journal, self.bindings)
            refuse_unpaired(formula, self.bindings)
            self.refuse_shifted()
            layout = replace(layout, cuts=dict(self.session.cuts))
            formula = layout.taken_out(formula)
            found = _Traced(formula, journal, layout, tokens_of(formula, self.options["level"]))
            self.runner(layout)(draw(0, SCALES[0], self.symbols(found), layout.rows))
        return found

    def refuse_carried(self, formula: Any, arguments: Any) -> None:
        """Raise Refused if a second round of a loop, of which one was read, changes the loss."""
        if not self.session.read_once:
            return
        loops = " and ".join(sorted(self.session.read_once))
        self.session.rounds = 2
        try:
            with self.guarded():
                second, _ = self.framework.trace(partial(self.call, guessing=True), arguments)
        except Refused as refusal:
            told = f"a second round of the loop over {loops} cannot be read: {refusal.reason}"
            raise Refused(told, refusal.line) from None
        finally:
            self.session.rounds = 1
        if second != formula:
            raise Refused(f"the loss changes from round to round of the loop over {loops}")

    def with_those_left(self) -> _Traced:
        """The trace; where it fails with arguments at their defaults, with what their names say."""
        try:
            return self.traced()
        except Misfit:
            raise
        except Refused:
            meant = [found for name in self.bindings.left if (found := self.guess(name, "", False))]
            if not meant:
                raise
            for name, role in meant:
                self.bindings.guess(name, role)
            self.bindings.left = []
            return self.traced()

    def refuse_shifted(self) -> None:
        """Densities of one token have to be cut in the same way; logits stand before their token."""
        for of_words in (False, True):
            cuts = {
                start: name for name, start in self.session.cuts.items()
                if self.bindings.roles[name].has(*VOCABULARY) == of_words
            }  # fmt: skip
            if len(cuts) > 1:
                raise Refused(
                    f"{cuts[0]} and {cuts[1]} are cut differently: neighbouring tokens are combined"
                )

    def fitted(self) -> _Traced:
        """The trace; what is called a mask and is used as a number becomes a parameter."""
        try:
            return self.with_those_left()
        except Misfit as misfit:
            bindings, names = self.bindings, self.bindings.guessed_as(misfit.role)
            for chosen in [*([name] for name in reversed(names)), names] if names else []:
                self.bindings = bindings.as_numbers(chosen)
                with suppress(Refused):
                    found = self.traced()
                    self.notes.append(f"{', '.join(chosen)}: used as a number, so no {misfit.role}")
                    return found
            self.bindings = bindings
            raise misfit.about([n for n, e in bindings.roles.items() if e == misfit.role]) from None

    def runner(self, layout: Any) -> Any:
        """The real function, for arguments that look like this."""
        return self.framework.exactly(self.at, self.bindings.roles, layout)

    def symbols(self, traced: _Traced) -> set[Any]:
        return self.bindings.symbols | unfold(traced.tokens.loss).free_symbols

    def points(self, traced: _Traced, symbols: Any, on_policy: bool) -> dict[int, Point]:
        rows = traced.layout.rows
        found = {n: draw(n, scale, symbols, rows) for n, scale in enumerate(SCALES)}
        if on_policy and log_mu in symbols:
            found[len(SCALES)] = draw(len(SCALES), 2.0, symbols, rows, tied=True)
        return found

    def at(self, point: Point, values: Mapping[str, Any]) -> Any:
        """Run the code at a point, parameters having the numbers of the point."""
        numbers = {key: self.framework.number(point.values[x]) for key, x in self.bindings.free.items()}
        return self.call({**values, **numbers})

    # -- the answer -----------------------------------------------------------------------
    def audit(self, given_map: dict[str, str], given_set: dict[str, Any]) -> Audit:
        traced = self.fitted()
        old = assumptions.old_densities(traced.formula, self.bindings)
        self.options["sampling"], assumed = assumptions.sampling_of(self.options["sampling"], old)
        self.notes.extend(assumed)
        refuse_unused(self.code, self.bindings, [*given_map, *given_set], self.session.used)
        gradient = self.options["use"] == "loss"
        symbols = self.symbols(traced)
        over_vocabulary = any(f.has(*VOCABULARY) for f in self.bindings.roles.values())
        points = self.points(traced, symbols, self.options["sampling"] != "off-policy")
        with self.guarded():
            outcome = confirm(
                traced.formula, self.runner(traced.layout), points, over_vocabulary,
                gradient and self.framework.differentiates,
            )  # fmt: skip
        if outcome.failed or not outcome.points:
            self.disagree((outcome.failed or "no finite number to compare") + on_the_bound(outcome.bound))
        if not same(traced.tokens.traced, traced.tokens.loss, points.values()):
            self.disagree("its formula is lost in the loss grammar")
        setting = self.setting(traced)
        if traced.tokens.over_vocabulary and not gradient:
            raise Refused(
                "a sum over the vocabulary is the same whatever word is sampled: no reward of a word"
            )
        verdict = self.asked(traced.tokens, setting)
        with self.guarded():
            overflows = self.overflows(traced, symbols)
        guess = is_guess(self.code.name, self.result, [*self.code.notes, *self.notes])
        verdict = of_code(verdict, overflows, guess)
        facts = Facts(traced.tokens, traced.formula, verdict, setting, outcome, tuple(points.values()),
                      traced.journal, self.bindings.roles, overflows)  # fmt: skip
        bindings = self.bindings.in_order(a.name for a in self.code.arguments)
        self.notes.extend(assumptions.notes_of(bindings, traced.layout, traced.tokens, verdict))
        self.notes.extend(
            assumptions.branches_of(self.code, [*bindings.known, *self.questions.values], self.session)
        )
        notes = tuple(dict.fromkeys([*self.code.notes, *self.notes]))
        return Audit(verdict, self.code, bindings, traced.tokens, findings_of(facts), outcome.points,
                     bool(outcome.sides) and not outcome.unmet, given_map,
                     given_set, notes, self.framework.name)  # fmt: skip

    def disagree(self, reason: str) -> NoReturn:
        told = f"the trace disagrees with the code ({reason}): nothing is said about it"
        raise Disagrees(f"{self.code.name}: {told}")

    def setting(self, traced: _Traced) -> dict[str, Any]:
        """What was asked for, and where nothing was said, what the code does."""
        tokens = traced.tokens
        found = {key: value for key, value in self.options.items() if value is not None}
        if tokens.weights == "sequence":
            found.setdefault("level", "token")
            found.setdefault("weights", "sequence")
            if found["weights"] != "sequence":
                raise UsageError("weights: the code multiplies each token by the ratio of its whole sequence")
        if tokens.level == "sequence":
            found.setdefault("level", "sequence")
        if tokens.loss.atoms(Whole):
            found.setdefault("level", "token")
        found.setdefault("level", "token" if tokens.aggregate else "sample")
        sized = self.options["level"] or found["level"] != "token"
        either = [] if sized else self.unsized(traced)
        self.notes.extend(assumptions.on_level(found["level"], self.options["level"], tokens, either))
        said = tokens.aggregate if found["level"] in ("token", tokens.level) else ""
        if said and found.setdefault("aggregate", said) != said:
            raise UsageError(f"aggregate {found['aggregate']}: the loss is {tokens.words}")
        if (
            said and found["use"] == "reward" and found["level"] == "token"
        ):  # one number a sequence, which all its tokens get
            found.setdefault("credit", "total")
        return found

    def asked(self, tokens: Tokens, setting: dict[str, Any]) -> Verdict:
        """The verdict; where the level comes from the code, what else can be asked."""
        try:
            return ask(tokens.loss, **setting)
        except UsageError as error:
            if self.options["level"] or setting["level"] == "sample":
                raise
            hint = "the code aggregates over tokens, so this is asked at level token"
            raise UsageError(f"{error} ({hint}; --level sample explains a single token)") from None

    @property
    def off_policy(self) -> bool:
        return bool(self.options["sampling"] == "off-policy")

    def overflows(self, traced: _Traced, symbols: Any) -> list[Any] | None:
        """Where the code is not finite in short floats; None where it is not run in them."""
        if not self.framework.differentiates or log_q not in symbols:
            return None
        points = {}
        far = {log_p: "log q - log p", log_mu: "log q - log mu"}
        for x, words in far.items():
            for sign in (1, -1):
                if x in unfold(traced.tokens.loss).free_symbols and (x == log_p or self.off_policy):
                    points[f"{words} = {sign * FAR:+g}"] = far_point(
                        symbols, traced.layout.rows, x, sign * FAR
                    )
        return self.framework.overflows(self.at, self.bindings.roles, traced.layout, points)
