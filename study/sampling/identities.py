"""From a settled claim to the sampled cross-checks of each of its parts, or the reason why there is none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np

from klsym.engine.proof.derivation import Proof
from klsym.errors import UsageError
from klsym.kernel.names import parse_name
from klsym.kernel.ring import ExpPoly
from klsym.language.abbreviations import Context, E, Statement
from klsym.language.convert import to_sympy
from klsym.language.unfolding import Theorem
from klsym.numeric.evaluation import evaluate_sides
from klsym.numeric.exact import THETAS, choose_thetas, find_allowed_model, list_regions
from klsym.numeric.models import FiniteModel, from_certificate, random_model
from klsym.numeric.number_systems import FLOAT
from klsym.numeric.random_models import draw_models, find_needs
from klsym.study.gaussian.exact import GaussianModel, refuse_unless_gaussian
from klsym.study.ledger.evidence import Evidence
from klsym.study.ledger.registry import Claim
from klsym.study.ledger.settle_claim import Settled
from klsym.study.sampling.backends import Backend
from klsym.study.sampling.finite import LARGEST_SAMPLES, FiniteSampler
from klsym.study.sampling.gaussians import GaussianSampler, Unsound
from klsym.study.sampling.means import Deterministic, expand_side, list_gradient_losses
from klsym.study.sampling.monte_carlo_check import Trial, build_trials_both_ways, list_sampled_means
from klsym.study.sampling.streams import Stream
from klsym.study.sequences.dynamic_programming import compute_side, random_chains

OUTCOMES = 8  # of the finite model that a proved identity is sampled on
# Tails such that every moment the judgements need is finite for weights, ratios and their inverses.
GAUSSIANS = GaussianModel((0.0, 1.0), (0.5, 0.9), (-0.2, 1.2))
LARGEST_DRAW = 10**9  # samples drawn one by one: some ten seconds for each check
SIGHT = 14.0  # standard errors by which a refutation must show


@dataclass(frozen=True)
class Options:
    """How a verification samples.

    on: the backend.  counted: samples of a finite model, where counts stand for any number of them.
    drawn: samples of Gaussians, drawn one by one.  seed: what all streams come from.
    Raises UsageError: more samples than can be counted, before any of them is drawn.
    """

    on: Backend
    counted: int = 10**12
    drawn: int = 2 * 10**6
    seed: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.counted <= LARGEST_SAMPLES:
            raise UsageError(f"{self.counted} samples: from 1 to 2^53 expected")


@dataclass
class Identity:
    """One part of a claim, and how it is cross-checked by sampling.

    finite, gaussian: the trials on a finite model and on Gaussians, or the reason why there are none.
    losses: the expected gradients that autograd can estimate from the same counts.
    notes: estimates that are not sampled, and why.
    """

    claim: Claim
    number: int
    of: int
    part: Proof | Evidence
    finite: list[Trial] | str = "no finite model"
    gaussian: list[Trial] | str = "no Gaussian closed form"
    losses: list[tuple[str, Any, ExpPoly]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.claim.id if self.of == 1 else f"{self.claim.id} {self.number}/{self.of}"

    @property
    def trials(self) -> list[Trial]:
        return [t for group in (self.finite, self.gaussian) if not isinstance(group, str) for t in group]


def list_identities(settled: Settled, number: int, options: Options) -> list[Identity]:
    """The parts of a claim with their trials; `number` keeps the streams of claims apart."""
    collected_identities = []
    for i, part in enumerate(settled.parts, start=1):
        identity = Identity(settled.claim, i, len(settled.parts), part)
        stream = Stream(options.seed).derive_child(number, i)
        if isinstance(part, Evidence):
            identity.finite = "a calculation on Gaussians" if part.estimates else "an exact calculation"
            identity.gaussian, identity.notes = _build_estimate_trials(part, options, stream)
        else:
            _add_trials(identity, part, options, stream)
        collected_identities.append(identity)
    return collected_identities


def _add_trials(identity: Identity, part: Proof, options: Options, stream: Stream) -> None:
    theorem, functions = part.theorem, _select_declared(identity.claim, part.theorem)
    try:
        identity.finite, identity.gaussian = _build_trials_by_kind(theorem, functions, options, stream)
    except Deterministic as reason:
        identity.finite = identity.gaussian = str(reason)
    except UsageError as reason:
        identity.finite = identity.gaussian = str(reason).removeprefix("sampling: ")
    if isinstance(identity.finite, list) and theorem.kind == "proved":
        identity.losses = [
            (atom.measure, _to_sympy(part.labels.get(atom.loss), atom.loss), atom.loss)
            for atom in list_gradient_losses(theorem.statement)
            if not _has_generic_function(atom.loss, theorem.statement.context)
        ]


def _to_sympy(label: Any, loss: ExpPoly) -> Any:
    """A loss as its author wrote it, in SymPy or as text with its expression; else from its normal form."""
    return to_sympy(loss) if label is None else getattr(label, "expression", label)


def _has_generic_function(loss: ExpPoly, context: Context) -> bool:
    """Does a loss hold a generic function or a reward whose value the statement gives?"""
    names = {*context.function_arguments, *(name for name, _ in context.given)}
    return bool({parse_name(name).base for name in loss.names()} & names)


def _select_declared(claim: Claim, theorem: Theorem) -> dict[str, Any]:
    names = theorem.statement.context.function_arguments
    return {name: instance for name, instance in claim.instances.items() if name in names}


def _build_trials_by_kind(
    theorem: Theorem, functions: Mapping[str, Any], options: Options, stream: Stream
) -> tuple[list[Trial] | str, list[Trial] | str]:
    match theorem.kind:
        case "proved":
            finite = _on_outcomes(theorem, functions, options, stream.derive_child(0))
            finite += _build_programme_trials(theorem, options, stream.derive_child(2))
            return finite, _on_gaussians(theorem, options, stream.derive_child(1))
        case "refuted":
            return _build_refutation_trials(
                theorem, options, stream.derive_child(0)
            ), "refuted by a finite model"
        case "unique":
            return _build_uniqueness_trials(
                theorem, options, stream.derive_child(0)
            ), "refers to every function"
    return "a statement about all combinations", "a statement about all combinations"


# ---------------------------------------------------------------------------- finite models
def _on_outcomes(
    theorem: Theorem, functions: Mapping[str, Any], options: Options, stream: Stream
) -> list[Trial]:
    """On a random model whose parameters satisfy the hypotheses."""
    statement, seed = theorem.statement, stream.draw_seed() % 2**31
    needs = find_needs(statement)
    small = needs.batches or needs.sequences
    model = draw_models(statement, [seed])[0] if small else random_model(seed, OUTCOMES, statement.context)
    model, thetas = find_allowed_model(theorem, model, dict(functions)), choose_thetas(theorem)
    along = np.array([[float(v) for v in model.u]]) if _is_tied_to_direction(theorem) else None
    return _build_finite_trials(
        statement,
        model,
        functions,
        samples=options.counted,
        stream=stream,
        on=options.on,
        directions=along,
        thetas=thetas,
    )


def _build_programme_trials(theorem: Theorem, options: Options, stream: Stream) -> list[Trial]:
    """Each side, sampled on an autoregressive model, against the other one by dynamic programming."""
    statement, needs = theorem.statement, find_needs(theorem.statement)
    context, sides, built_trials = statement.context, (statement.left, statement.right), list[Trial]()
    if needs.batches or not needs.sequences or context.parameters or statement.relation != "=":
        return built_trials
    chains = random_chains(stream.draw_seed() % 2**31, context)
    has_score = any(mean.score for mean in list_sampled_means(statement))
    directions = chains.directions if has_score else chains.directions[:1]
    sampler = FiniteSampler(chains.tree, context, functions={}, directions=directions, on=options.on)
    for i, side in enumerate(sides):
        exact = compute_side(sides[1 - i], chains)
        if exact is not None and sides[1 - i].terms:
            products, name = expand_side(side, context), ("left", "right")[i]
            judge, chosen = exact[: len(directions)], stream.derive_child(i)
            trial = Trial(
                sampler,
                side=products,
                reference=judge,
                relation="=",
                samples=options.counted,
                stream=chosen,
                name=f"{name} side, by programme",
            )
            built_trials += _require_finite_moments([trial])
    return built_trials


def _is_tied_to_direction(theorem: Theorem) -> bool:
    """Does a premise hold score functions, so that it fixes a parameter along one direction only?"""
    sides = [side for pair in theorem.statement.context.premises for side in pair]
    return any(isinstance(a, E) and a.score for side in sides for _, atoms in side.terms for a in atoms)


def _build_finite_trials(
    statement: Statement, model: FiniteModel, functions: Mapping[str, Any], samples: int,
    stream: Stream, on: Backend, directions: Any = None, relation: str | None = None,
    thetas: tuple[float, ...] = THETAS,
) -> list[Trial]:  # fmt: skip
    """Both sides on a finite model, along each logit; values need one direction only."""
    u = _choose_directions(statement, model) if directions is None else directions
    needs, context = find_needs(statement), statement.context
    sampler = FiniteSampler(model, context, functions, directions=u, on=on, batches=needs.batches)
    rows = [
        evaluate_sides(
            statement, replace(model, u=list(row)), functions=dict(functions), system=FLOAT, thetas=thetas
        )
        for row in u
    ]
    exact, sizes = (
        tuple(
            np.array([float(np.real(getattr(side, part))) for side in row_values])
            for row_values in zip(*rows, strict=True)
        )
        for part in ("value", "size")
    )
    sides = (statement.left, statement.right)
    related = relation or statement.relation
    trials = build_trials_both_ways(
        sampler, sides, (exact[0], exact[1]), relation=related, context=statement.context,
        samples=samples, stream=stream, sizes=(sizes[0], sizes[1]),
    )  # fmt: skip
    return _require_finite_moments(trials)


def _choose_directions(statement: Statement, model: FiniteModel) -> Any:
    """Every logit for a gradient; a value has no direction, so one does."""
    unit_directions = np.eye(len(model.q))
    return (
        unit_directions if any(mean.score for mean in list_sampled_means(statement)) else unit_directions[:1]
    )


def _build_refutation_trials(theorem: Theorem, options: Options, stream: Stream) -> list[Trial]:
    """The recorded model must show the difference, with as many samples as that takes."""
    statement, model = theorem.statement, from_certificate(theorem.close["model"])
    u = np.array([[float(v) for v in model.u]])
    trials = _build_finite_trials(
        statement, model, {}, options.counted, stream=stream, on=options.on, directions=u, relation="!="
    )
    return [replace(trial, samples=_count_enough_samples(trial)) for trial in trials]


def _count_enough_samples(trial: Trial) -> int:
    """Samples that put the two sides, and the control and its side, SIGHT standard errors apart."""
    gap = float(np.max(np.abs(trial.spread.value - trial.reference)))
    needed = (SIGHT * float(np.max(trial.spread.deviation)) / gap) ** 2 if gap else float(LARGEST_SAMPLES)
    control = (SIGHT * float(np.max(trial.control_spread.deviation)) / float(np.max(trial.shift))) ** 2
    return int(min(max(trial.samples, needed, control), LARGEST_SAMPLES))


def _build_uniqueness_trials(theorem: Theorem, options: Options, stream: Stream) -> list[Trial]:
    """The family solves the equation; the family with k1^3 added does not."""
    statement, name = theorem.statement, theorem.close["function"]
    family = ExpPoly.from_json(theorem.close["family"])
    disturbed_family = family + ExpPoly.from_variable("k1") ** 3 * Fraction(3, 10)
    model = random_model(stream.draw_seed() % 2**31, OUTCOMES, statement.context)
    built_trials = []
    for i, (function, relation) in enumerate(((family, "="), (disturbed_family, "!="))):
        instances = {name: function}
        built_trials += _build_finite_trials(
            statement,
            model,
            functions=instances,
            samples=options.counted,
            stream=stream.derive_child(i),
            on=options.on,
            directions=None,
            relation=relation,
        )
    return built_trials


# ---------------------------------------------------------------------------- Gaussians
def _on_gaussians(theorem: Theorem, options: Options, stream: Stream) -> list[Trial] | str:
    statement, context = theorem.statement, theorem.statement.context
    needs = find_needs(statement)
    if needs.batches or needs.sequences:
        return "a batch or a sequence: the sampled models are finite"
    if list_regions(theorem):
        return "a bound on p/q that no two Gaussians keep to"
    model = replace(GAUSSIANS, mu=None) if context.on_policy else GAUSSIANS
    positive = {h[1] for h in theorem.hypotheses if h[0] == "positive"}
    random = random_model(stream.draw_seed() % 2**31, OUTCOMES, Context(context.parameters)).parameters
    numbers = {name: abs(value) if name in positive else value for name, value in random.items()}
    try:
        refuse_unless_gaussian(context)
        exact = model.evaluate(statement, numbers)
        sampler = GaussianSampler(model, numbers, options.on)
        sides = (statement.left, statement.right)
        return _require_finite_moments(
            build_trials_both_ways(
                sampler,
                sides,
                exact,
                statement.relation,
                context=context,
                samples=options.drawn,
                stream=stream,
            )
        )
    except Unsound as error:
        return error.reason
    except UsageError as error:
        return str(error)


def _build_estimate_trials(
    part: Evidence, options: Options, stream: Stream
) -> tuple[list[Trial] | str, list[str]]:
    """What a calculation on Gaussians says of estimators: trials, and why some have none."""
    built_trials: list[Trial] = []
    notes = []
    for i, estimate in enumerate(part.estimates):
        sampler = GaussianSampler(estimate.model, {}, options.on)
        products = expand_side(estimate.side, Context())
        exact = np.full(2, estimate.value)
        try:
            trial = Trial(
                sampler,
                side=products,
                reference=exact,
                relation="=",
                samples=options.drawn,
                stream=stream.derive_child(i),
                name=estimate.text,
            )
            built_trials += _require_finite_moments([trial])
        except Unsound as error:
            notes.append(f"{estimate.text}: {error.reason}")
        except UsageError as error:
            notes.append(f"{estimate.text}: {error}")
    return built_trials or "an exact calculation", notes


def _require_finite_moments(trials: list[Trial]) -> list[Trial]:
    """The same trials, once every moment that their judgement needs is known to be finite."""
    for trial in trials:
        trial.refuse_unless_sound()
    return trials
