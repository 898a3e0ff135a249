"""The sentences of compare, divergence and optimum: format strings, or functions of the values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction

from klsym.errors import spell_option
from klsym.language.messages import TEMPERATURE_SQUARED
from klsym.notation.tree import format_decimal


def _explain_exact_mean(losses: tuple[str, ...]) -> str:
    """Say how the theorems treat full(..): they are proved of these sampled losses."""
    return (
        "full(x) is the sum of q(y)*x(y) over every outcome or next token y: the mean of rho*x over the one"
        " drawn, where mu > 0 wherever q is, as its gradient is that of grad(rho*x); the theorems are about"
        f" {' and '.join(losses)}"
    )


def _not_isolated(outcomes: tuple[int, ...]) -> str:
    """outcomes: counted from 0; empty for all of them."""
    listed = ", ".join(str(j + 1) for j in outcomes)
    where = f"outcomes {listed} alone" if outcomes else "every outcome"
    return f"stationary policies with mass on {where} are not isolated: there are infinitely many"


def _words_not_isolated(prefix: tuple[int, ...]) -> str:
    """prefix: words, counted from 0; empty for the first token."""
    where = f"after {''.join(str(w + 1) for w in prefix)}" if prefix else "of the first token"
    return f"stationary probabilities of the words {where} are not isolated: there are infinitely many"


def _no_loss(proved: bool) -> str:
    elementary = "is an elementary function (Risch's algorithm, by SymPy)"
    why = elementary if proved else "was found in the loss grammar"
    return f"without sg, no loss unweighted: -r g' = f - r f' has no solution g that {why}"


def _list_names_read(pairs: Sequence[tuple[str, str]]) -> str:
    """pairs: a name of training code, such as logp, and the name of the grammar that it stands for, log_q."""
    (typed, name), *others = pairs
    return ", ".join([f"{typed} is read as {name}", *(f"{one} as {other}" for one, other in others)])


def _describe_name(name: str, whose: str, says: str, setting: str) -> str:
    return f"{name}: {says}; {whose}" + (f"; {setting}" if setting else "")


def _listed(names: Sequence[str], one: str, many: str) -> str:
    """a, b and c, with the verb that fits."""
    *most, last = names
    return f"{', '.join(most)} and {last} {many}" if most else f"{last} {one}"


def _declared(names: Sequence[str]) -> str:
    said = "read as {}, independent of the sample and of theta"
    return _listed(names, f"is {said.format('a parameter')}", f"are {said.format('parameters')}")


def describe_floors(floors: Sequence[tuple[str, Fraction]]) -> str:
    """Say that probabilities are above the bounds that code has of them.

    >>> describe_floors([("exp(log_q)", Fraction(1, 10**8))])
    'exp(log_q) > 1e-8, so that the clamp has no effect'
    """
    above = " and ".join(f"{probability} > {format_decimal(floor)}" for probability, floor in floors)
    return f"{above}, so that the clamp has no effect"


def _averages_left_out(names: Sequence[str]) -> str:
    are = _listed([f"{name}()" for name in names], "is", "are")
    return f"{are} left out: klsym itself takes the mean over samples"


ADDED_UP = {
    "sum": "it is summed over tokens",
    "mean": "it is averaged over the tokens of each sequence",
    "batch": "it is averaged over all tokens of the batch",
}


def _spell_options(options: Mapping[str, str]) -> str:
    return " ".join(spell_option(name, value) for name, value in options.items())


def _list_batch_means(names: Sequence[str], divided: bool, guard: Fraction | str) -> str:
    written = {x: f"({x})" if " " in x else x for x in names}
    pairs = [f"{term} - {term}.mean() is read as centred({x})" for x, term in written.items()]
    by_std = "; divided by its std, as normalised(..)" if divided else ""
    added = f" (without the + {_format_guard(guard)})" if divided and guard else ""
    return f"{', '.join(pairs)}, over the batch{by_std}{added}"


def _format_guard(guard: Fraction | str) -> str:
    return guard if isinstance(guard, str) else format_decimal(guard)


def _masks_left_out(names: Sequence[str]) -> str:
    return f"{_listed(names, 'is', 'are')} left out: a mask of padding does not change the loss of a token"


def _calls_left_out(names: Sequence[str]) -> str:
    are = _listed([f"{name}()" for name in names], "is left out: it changes", "are left out: they change")
    return f"{are} no value"


def _names_unused(names: Sequence[str], loss: str, is_last: bool) -> str:
    end = f"the loss, which is {loss}{', the last name assigned' * is_last}" if loss else "the loss"
    return f"{_listed(names, 'does', 'do')} not enter {end}"


READINGS = (  # codes of how a pasted loss was read
    "read-as", "named-loss", "names-read", "sampling-assumed", "floors-left-out", "inner-clips-dropped",
    "parameters-declared", "expectation-left-out", "kl-is-exact", "objective-as-loss",
    "sampling-of-expectation", "averages-left-out", "masks-left-out", "calls-left-out", "factor-left-out",
    "scale-left-out", "names-unused",
    "at-each-token", "of-sequences", "first-order-at-each-token", "first-order-in-group", "over-tokens",
    "of-each-token", "tokens-added-up", "level-assumed", "level-unlike", "batch-mean-read",
    "added-to-reward", "added-at-each-token", "sampler-is-policy", "drawn-words-are-kept", "cut-at-tokens",
    "settings-assumed", "temperature-read", "temperature-squared", "selection-held",
    "log-divided", "batch-of-weighted", "weight-alone",
)  # fmt: skip
SENTENCES: dict[str, str | Callable[..., str]] = {
    "read-as": "{typed} is read as {loss}",
    "named-loss": _describe_name,
    "expectation-left-out": (
        "E[..] is the mean over samples, as code takes it: klsym differentiates what is inside, not the"
        " policy that draws the samples"
    ),
    "weight-alone": "an importance weight alone: for the advantage that it multiplies type {instead}",
    "batch-of-weighted": (
        "the batch option acts on the factor of the score with its weight: for {of} alone type {instead}"
    ),
    "kl-is-exact": "KL is the exact one; for an estimator of it type k1, k2 or k3 in its place",
    "objective-as-loss": "an objective, which training maximises: explained as the loss, its negative",
    "sampling-of-expectation": lambda sampling: (
        f"{spell_option('sampling', sampling)}, as the expectation says"
    ),
    "names-read": _list_names_read,
    "sampling-assumed": lambda names: (
        f"assumed: samples from an older policy mu, as {' and '.join(names)}"
        f" {'is' if len(names) == 1 else 'are'} read; {spell_option('sampling', 'on-policy')}: from q"
    ),
    "added-to-reward": lambda name: f"{name} is added to the reward, as its name says",
    "added-at-each-token": lambda name: (
        f"assumed: {name} is added at each token, and its sum is maximised; for one number at the end of a"
        f" response choose {spell_option('level', 'sequence')}"
    ),
    "sampler-is-policy": lambda: (
        "assumed: the old log-probability is that of the policy, which draws the samples;"
        f" {spell_option('sampling', 'off-policy')}: of an older one"
    ),
    "floors-left-out": lambda floors: f"assumed: {describe_floors(floors)}",
    "inner-clips-dropped": lambda clips: (
        f"{_listed(clips, 'does nothing', 'do nothing')} near theta: q draws"
        " the samples, and the argument lies strictly between the bounds (parameters are positive)"
    ),
    "of-each-token": lambda aggregate: (
        "the sum or mean over the tokens of a sequence multiplies values of each token"
        f"{'; ' * bool(aggregate)}{ADDED_UP.get(aggregate, '')}"
    ),
    "tokens-added-up": lambda aggregate: ADDED_UP[aggregate],
    "level-unlike": lambda options: f"{_spell_options(options)} explains what that changes",
    "temperature-read": "the logits are divided by {temperature}: q and p are policies at this temperature",
    "temperature-squared": TEMPERATURE_SQUARED,
    "log-divided": "{quotient} is the log-probability of no policy, unless {temperature} is 1: that at a"
    " temperature is log_softmax(logits/{temperature})",
    "settings-assumed": lambda conditions: f"assumed: {' and '.join(conditions)}",
    "parameters-declared": _declared,
    "averages-left-out": _averages_left_out,
    "selection-held": "{of} is read as a mask M that is held: taken as independent of theta and of the other"
    " samples; klsym measure runs the selection itself",
    "over-tokens": "a mean or sum of log-probabilities inside exp, or that a reward multiplies, is over the T"
    " tokens of a sequence; klsym itself takes the mean"
    " over samples",
    "level-assumed": lambda options: f"assumed: {_spell_options(options)}",
    "batch-mean-read": _list_batch_means,
    "masks-left-out": _masks_left_out,
    "calls-left-out": _calls_left_out,
    "factor-left-out": (
        "the factor {factor} is left out; with level token, aggregate chooses how tokens are added up"
    ),
    "scale-left-out": "the factor {factor} is left out",
    "names-unused": _names_unused,
    "drawn-words-are-kept": "M is 1 at each word that is drawn",
    "cut-at-tokens": "mu is the sampler that is cut off at each token, M_now*q/S with S the mass that M keeps"
    " after the prefix, held as it is at theta; rho is q/sg(q) in the loss, q/mu in the answer",
    "at-each-token": "written for each token of the sequence: the same loss, with level token",
    "of-sequences": "written for the whole sequence, with the same gradient at each sample: the advantage is"
    " one number for all tokens of a response",
    "first-order-at-each-token": lambda slopes: (
        "the loss at each token with the same gradient, with level"
        f" token: the slope in {'each sum' if len(slopes) > 1 else 'the sum'} over tokens is held"
    ),
    "first-order-in-group": lambda slopes: (
        f"with the slope in {'each sum' if len(slopes) > 1 else 'the sum'} over the group held, which keeps"
        " the expected gradient"
    ),
    "drawn": _explain_exact_mean,
    "neither-proof-nor-model": "{of}: neither a proof nor a model was found",
    "used-differently": "value and gradients: no theorem compares losses with these different options",
    "order-of-variances": "the order of the variances: neither a proof nor models both ways were found",
    "samples-of-all-outcomes": (
        "the gradient at each sample: full(..) pushes with the scores of all outcomes, whatever is drawn"
    ),
    "variances-of-all-outcomes": (
        "the variances: full(..) adds no noise of the outcome drawn, and the rest is not compared beside it"
    ),
    "variances-of-bounds": "the variances: those of losses with bounds or logs are not compared",
    "variances-of-batches": "the variances of losses over a batch are compared at the optimum alone",
    "variances-of-tokens": "the variances: those of sums over tokens are not compared",
    "rewards-alone-decide": "the penalty has zero expected gradient: rewards alone decide",
    "penalty-is-rewarded": "beta is negative: the penalty is rewarded",
    "start-decides-the-end": "where training ends depends on where it starts",
    "policies-not-isolated": _not_isolated,
    "words-not-isolated": _words_not_isolated,
    "policies-may-be-missing": "not decided: policies that are stationary may be missing from this list",
    "stability-open": "not decided: whether a policy is stable where the table says so",
    "boundary-may-be-missing": (
        "not decided: policies on the boundary that attract may be missing from this list"
    ),
    "mixture-weight": "0 < {of} < 1: {of} is the weight of a mixture",
    "no-f-divergence": "f is not convex: E_q[f(r)] is no f-divergence",
    "no-loss": _no_loss,
}
