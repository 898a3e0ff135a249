"""The sentence of each message.

>>> write_sentence(Message("heavy-tail", ratio="r"))
'r = p/q is unbounded where q << p: expect heavy tails far from the reference'
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import sympy

from klsym.engine.options.choices import is_reward
from klsym.language.messages import Message
from klsym.notation import formulas, losses
from klsym.notation.hypotheses import fill_sentence
from klsym.notation.printers import TEXT
from klsym.notation.ratios import describe_region, is_whole
from klsym.notation.tree import Minus
from klsym.notation.values import describe_conditions as place
from klsym.notation.values import show_value
from klsym.render.assumption_sentences import SENTENCES as ASSUMPTIONS
from klsym.render.assumption_sentences import SLOPES
from klsym.render.diagnosis_sentences import SENTENCES as DIAGNOSES
from klsym.render.questions.sentences import SENTENCES as QUESTIONS
from klsym.render.words import describe_place, describe_setting, describe_target, write_slope_of_counts


def write_sentence(message: Message) -> str:
    """Return the sentence of a message."""
    return fill_sentence(SENTENCES[message.code], message.values)


def write_sentences(messages: Iterable[Message]) -> tuple[str, ...]:
    """Return the sentence of each message."""
    return tuple(map(write_sentence, messages))


# ---------------------------------------------------------------------------- warnings
def _describe_outside_core(trust: str) -> str:
    start = "outside the decidable core"
    if trust == "open":
        return f"open: {start}, and numbers at samples do not tell its target from another one"
    support = {"sympy": "calculated by SymPy alone", "numeric": "supported by numbers only"}
    return f"{start}: this verdict is not proved, it is {support[trust]}"


def _describe_zero_gradient(loss: str, setting: Any) -> str:
    kind = "a" if setting.is_reward else f"an {setting.sampling}"
    return f"{loss} as {kind} {setting.use} has zero expected gradient: it only adds noise"


def _describe_value_and_gradient(target: str | None) -> str:
    ends = {"zero": "is zero", "forward-kl": "is that of KL(p||q)"}
    end = ends.get(str(target), "is not that of KL(q||p)")
    return f"the value is unbiased for KL(q||p), but the expected gradient {end}"


def _describe_missing_weight(at: Message | None, setting: Any) -> str:
    tokens = setting.is_per_token
    fix = f" (multiply by rho{', with weights prefix' * tokens})" if setting.is_reward else ""
    place = f" for {write_sentence(at)}" if at else ""
    drawn = "sequences" if tokens else "samples"
    return f"{drawn} come from mu, not from q; no importance weight rho = q/mu{place}{fix}"


def _format_negative_condition(value: Any) -> str:
    """Return " where x < 0" for a multiple x, or " where x > 0" for -x."""
    tree = losses.build_tree(value)
    return f" where {TEXT(tree.of)} > 0" if isinstance(tree, Minus) else f" where {TEXT(tree)} < 0"


def _describe_wrong_term(kind: str, of: Any) -> str:
    if kind == "pushes":
        return "pushes the policy away from mu: it increases KL(mu||q)"
    if kind == "increases":
        return f"increases {'KL(q||p)' if of == 'reverse-kl' else 'KL(p||q)'}"
    if kind == "lowers-rising-reward":
        return f"lowers the mean of a reward whose slope in {of} is nowhere negative"
    return f"lowers {TEXT.expectation('q', losses.show(of, TEXT))}"


def _describe_wrong_sign(does: Sequence[tuple[tuple[str, Any], Any]], alone: bool) -> str:
    clauses = [
        _describe_wrong_term(*change) + ("" if sign.where is None else _format_negative_condition(sign.where))
        for change, sign in does
    ]
    if alone:
        return f"descending this loss {clauses[0]}"
    return f"a term of the objective, minimised alone, {'; another one '.join(clauses)}"


def _choose_by_sign(sign: Any, positive: str, negative: str) -> str:
    """Choose the text for the sign of a multiple; both, with the condition, if the sign is open."""
    if sign is None:
        return positive
    if sign.where is None:
        return negative
    return (
        f"{negative}{_format_negative_condition(sign.where)}"
        if sign.always
        else f"{positive} (but{_format_negative_condition(sign.where)} it {negative})"
    )


LENGTH = "dividing by the length T can bias the gradient, since T depends on later tokens"


def _describe_length_reward(sign: Any) -> str:
    ways = ("rewards long outputs: it lowers E_q[1/T]", "rewards short outputs: it raises E_q[1/T]")
    return f"dividing by the length T {_choose_by_sign(sign, *ways)}"


def _describe_token_count(use: str, sign: Any) -> str:
    ways = ("shortens sequences", "lengthens sequences")[:: -1 if is_reward(use) else 1]
    way = "ascending" if is_reward(use) else "descending"
    return f"a constant at each token counts tokens: {way} it {_choose_by_sign(sign, *ways)}"


def _describe_prefixes_of_mu(typed: bool) -> str:
    ways = "choose weights prefix, or level sequence"
    if not typed:  # the option weights changes a typed rho alone
        ways = "multiply by exp(past(log_q - log_mu)), or choose level sequence"
    return f"rho_now corrects one token, and its prefix still comes from mu: {ways}"


def _describe_push_away(where: Any) -> str:
    if is_whole(where):
        return f"pushes q away from p where f has a kink: f is convex {describe_region(where)}"
    return f"pushes q away from p except where {describe_region(where)}: elsewhere f is not convex"


def _describe_weak_penalty(where: Any, of: str) -> str:
    region_text = f"only where {describe_region(where, of)}: elsewhere" if where else "nowhere:"
    return f"the objective is convex in q {region_text} the penalty weakens as an outcome becomes more likely"


TAILS = {
    "r": "r = p/q is unbounded where q << p: expect heavy tails far from the reference",
    "rho*r": "rho*r = p/mu is unbounded where mu << p: expect heavy tails where the sampler is far from the"
    " reference",
}


def _describe_cut_sampler(of: Any) -> str:
    lost = "" if of is None else f", and E_q[{show_value(of)}*s] of all samples is missing"
    return (
        f"samples come from M*q/S, S = E_q[M] the mass that is drawn: a sample counts 1/S times{lost}; M and"
        " S are not differentiated, and S moves with theta"
    )


def _describe_too_many_regions(most: int, names: tuple[str, ...]) -> str:
    fewer = f"; numbers for {', '.join(names)} make fewer of them" if names else ""
    return f"the bounds divide the samples into more than {most} regions{fewer}"


WARNINGS: dict[str, str | Callable[..., str]] = {
    "outside-the-core": _describe_outside_core,
    "too-many-regions": _describe_too_many_regions,
    "time-is-up": "not decided within {limit:g} s (time): try a larger --time-limit; 0 means no limit",
    "vanishes": "{loss} has zero gradient at every sample: it does nothing",
    "zero-gradient": _describe_zero_gradient,
    "value-is-not-gradient": _describe_value_and_gradient,
    "missing-weight": _describe_missing_weight,
    "in-gradient": lambda of: f"{' and '.join(map(show_value, of))} in the gradient",
    "gradient-of": lambda of: f"the gradient of {show_value(of)}",
    "some-terms": "some terms",
    "weighed-by-old": "rho_old = q/old weights samples from mu: the factor mu/old remains, which is 1 where"
    " mu is old (multiply by sg(exp(log_old - log_mu)) to remove it; if that is truncated, a bias remains)",
    "literal-weight": "on-policy, rho equals 1 but has a gradient: write exp(log_q - log_q.detach()), not 1",
    "mean-zero-noise": "a multiple of {of} changes only the variance: its expectation is zero",
    "wrong-sign": _describe_wrong_sign,
    "pushes-from-mu": _describe_wrong_sign,
    "cut-sampler": _describe_cut_sampler,
    "heavy-tail": lambda ratio: TAILS[ratio],
    "length-in-front": LENGTH,
    "length-rewarded": _describe_length_reward,
    "prefixes-of-mu": _describe_prefixes_of_mu,
    "advantage-counts-once": (
        "A belongs to the whole sequence: it multiplies the score of each token once, and the option"
        " credit adds up the other rewards alone"
    ),
    "later-rewards-dropped": "no token gets credit for the rewards after it: choose credit to-go",
    "later-dropped": "the effect of a token on later tokens is dropped",
    "counts-tokens": _describe_token_count,
    "mean-shrinks": "each sample is part of the mean that is subtracted from it: the gradient shrinks by 1"
    " - 1/n (multiply by n/(n - 1), or subtract the mean of the other samples)",
    "shrink-together": "the reward and the penalty shrink together; centring one alone shrinks that one"
    " alone",
    "score-has-a-mean": "off-policy the score does not have mean zero under mu: the subtracted mean adds"
    " E_mu[h] grad KL(mu||q), with h the coefficient of the score",
    "baseline-attached": "the sum over other samples is differentiated: put sg(..) around a baseline, as"
    " trainers detach it",
    "no-restoring-force": "no restoring force at q = p: f''(1) = 0",
    "pushes-away": _describe_push_away,
    "unbounded-below": "the objective is unbounded below: it falls without end as q goes to 0 somewhere",
    "held-weakly": _describe_weak_penalty,
    "tie": lambda of: f"every sample lies on a tie: the slope of {' '.join(SLOPES[of])}",
    "order-of-pairs": "three arguments of one min or max tie at every sample: the gradient depends on the"
    " order in which code takes them by pairs",
    "boundary-dropped": "autograd gives a comparison the gradient 0: if it depends on theta, the gradient"
    " of the expectation has a further boundary term, which is left out here",
    "bounds-may-cross": "the bounds of clip may cross: where lo > hi it is hi, as in torch.clamp",
    "undefined-at-start": lambda what: f"at q = p, where training starts,"
    f" {'the' if what == 'loss' else 'its'} {what} is 0/0: write its value there",
    "size-lost": "division by the standard deviation removes the size of the coefficient, at n = 2"
    " completely",
    "own-scale": "where the rewards of a batch are equal, the other terms are divided by their own standard"
    " deviation: they then have size 1, whatever their weight (write them outside of normalised(..))",
    "weighed-by-lengths": "a mean over all tokens of a batch divides by sum_i T_i, which depends on the other"
    " sequences; divide by a constant, which keeps the sum over tokens",
    "known-before-drawn": "full(..) of this token or of earlier ones is known before the token is drawn:"
    " times the score of the token it only adds noise; use full(..) itself as the loss",
    "truncated": "the mask leaves words out, so that q = p is not stationary: the expected gradient there"
    " is a multiple of grad E_q[M]; full(M*k3) leaves out the same words and has gradient 0 at q = p",
    "means-at-prefixes-of-mu": "prefixes are distributed as mu: write exp(past(log_q - log_mu)) in front of"
    " full(..)",
    "words-left-out": "where M is 0, c is 0: among these words the policy never moves towards the"
    " reference; renormalise both policies over the words kept, and their mass does not matter either",
    "words-in-one-bucket": "where M is 0, c is the same for all words: among these words the policy never"
    " moves towards the reference; only their common mass moves",
    "words-never-drawn": "no word with M = 0 is drawn, and no weight recovers the part of such words in the"
    " gradient of all samples",
}  # fmt: skip


# ---------------------------------------------------------------------------- remarks
KEPT = {
    "reverse at q": "keeps the KL of each next token at the drawn prefix, drops the effect of a token on"
    " later tokens",
    "forward at q": "a forward KL of each next token, at prefixes drawn from q where KL(p||q) draws them"
    " from p",
    "reverse at mu": "the KL of each next token, at prefixes drawn from mu where KL(q||p) draws them from q",
    "forward at mu": "a forward KL of each next token, at prefixes drawn from mu where KL(p||q) draws them"
    " from p",
    "same token": "keeps the reward of the same token, drops that of later ones",
}


def _describe_std_limit(h: Any, moves: bool, slope: Any) -> str:
    start = "large n (a limit, not proved here): "
    if moves:
        return f"{start}E_q[h s]/sd(h), for h = {show_value(h)}; sd(h) moves with theta"
    if slope is None:
        return f"{start}(E_mu[h s] - E_mu[h] E_mu[s])/sd(h), for h = {show_value(h)}"
    if not slope:
        return f"{start}grad Cov_mu(h, log_q)/sd_mu(h), and sd_mu(h) does not move with theta"
    return f"{start}grad {losses.divide_text('sd_mu(h)', slope, TEXT)}"


def _describe_mean_limit(scale: Any, of: str, moves: bool) -> str:
    c = {1: "", -1: "-"}.get(scale, f"{show_value(scale)}*")
    start, mean = "large n (a limit, not proved here): ", f"E_q[{of}]"
    if moves:
        return f"{start}{c}E_q[h s]/E_q[h], for h = {of}; E_q[h] moves with theta"
    return f"{start}{c}E_q[{of}*s]/{mean}, which is {c}grad log {mean} where {mean} is positive"


def _describe_curl_of_signs(rows: dict[str, Sequence[str]], parameters: dict[str, str]) -> str:
    clauses = [f"{name} = ({', '.join(row)})" for name, row in rows.items()]
    clauses += [f"{name} = {value}" for name, value in parameters.items()]
    return (
        "n = 2: the signs leave a curl: R and R**2 have means that move apart, where R is 0, 1, 2 in the"
        " order of H" + (f" at {', '.join(clauses)}" if clauses else "")
    )


def _describe_mean_length_limit(of: Any) -> str:
    m, verb = "q" if of.setting.on_policy else "mu", "is" if of.target is None else "targets"
    return (
        "large n (a limit, by the law of large numbers, not proved here): the field of the sum over tokens,"
        f" over E_{m}[T]; that of the sum {verb} {describe_target(of)}; E_{m}[T] is positive, so that both"
        " are 0 at the same policies"
    )


def _describe_success_recurrence(beta: Any, step: Any) -> str:
    sized = f", {show_value(beta)} > 0" if beta.free_symbols else ""
    return (
        "rewards 0 or 1, large n (a limit), batches of an old policy with the success probability P"
        f"{sized}: the policy that is best against them has the success P' with logit P' = logit P_p +"
        f" {show_value(step)}, P_p that of p (neighbour.grpo-success-recurrence)"
    )


CURL_OPEN = "the expected gradient a curl, and that it has none is not proved"
REMARKS: dict[str, str | Callable[..., str]] = {
    "kept": lambda term, proof: f"{KEPT[term]}: {proof}",
    "open-no-model": f"open: no model that was tried gives {CURL_OPEN}",
    "open-no-tree": f"open: no tree that was tried gives {CURL_OPEN}, nor is an objective known",
    "open-short-trees": f"open: no tree of sequences of one token and of two that was tried gives"
    f" {CURL_OPEN}",
    "open-detached": "open: no loss without a detached part is known to have this gradient at every sample,"
    f" and no tree of sequences of one token and of two that was tried gives {CURL_OPEN}",
    "open-vocabulary-in-batch": "open: a sum over the vocabulary divided by the number of tokens of a batch,"
    " which depends on later tokens: whether it has an objective is not decided",
    "open-vocabulary-by-length": "open: a sum over the vocabulary divided by the length of the sequence,"
    " which depends on later tokens: whether it has an objective is not decided",
    "open-length-baseline": lambda descended: (
        "open: the baseline weighs a group by its lengths, and the sample itself is in it: not for every n is"
        " the expected gradient a multiple of that without it (klsym claims"
        f" methods.length-weighted-baseline); for large n, a limit that is not proved here, it is that of"
        f" E_q[{losses.show(descended, TEXT)}]"
    ),
    "open-terms-apart": "open: one term compares the samples of a batch, and another {other}; each"
    " is explained by itself",
    "open-support": "open: the theorems about it assume q << mu, but no word with M = 0 is drawn; level"
    " sample explains its effect on one token given its prefix",
    "open-held-means": "open: full(..) is detached, multiplies a sampled quantity or is inside a function; it"
    " is not decided whether there is an objective; level sample explains one token given its prefix",
    "means-move-apart": "E_mu[h] and KL(mu||q) move along different directions, so that E_mu[h] grad"
    " KL(mu||q) has a curl on {on}",
    "product-rule": "grad Var_mu(x)/2 = grad E_mu[x**2]/2 - E_mu[x] grad E_mu[x] and, for b independent of"
    " theta, grad Cov_mu(b, log_q) = grad E_mu[b*log_q] - E_mu[b] grad E_mu[log_q]",
    "signs-alone": "n = 2, for any two numbers R: {half}, whose square is std^2, {square}: divided by std"
    " only the sign is left, 1 or -1",
    "std-limit": _describe_std_limit,
    "same-scale": "large n (a limit): reward and penalty are divided by the same sd(h), so that the field is"
    " 0 where that of h is",
    "binary-rewards": "rewards 0 or 1, P = E_q[R], any n: {sign}grad Phi(P) with Phi'(P) = E[sqrt(K*(n -"
    " K))]/(n*P*(1 - P)), K the number of ones, binomial(n, P): a batch pushes by sqrt(K*(n - K))/n times"
    " the mean score of its ones less that of its zeros",
    "binary-ends": "rewards 0 or 1: std is 1/2 at n = 2 and sqrt(2)/3 at n = 3 wherever two of them differ,"
    " so that {proof} gives Phi = E_q[R] and sqrt(2)*E_q[R]; for large n (a limit) Phi ="
    " 2*arcsin(sqrt(E_q[R]))",
    "binary-over-mean": lambda of, claim: f"rewards 0 or 1, any n: grad of {TEXT(of)} (claim {claim})",
    "series-of-log": "any n, P = E_q[{of}]: sum_(k=1..{last}) (1 - P)**k/k is the series of -log P up to the"
    " order {last} (claim {claim})",
    "slope-of-objective": "any n, P = E_q[{of}], F = 1 - P: Phi'(F) = E[sqrt(K*(n - K))]/(n*P*(1 - P)), K the"
    " number of ones, binomial(n, P): a batch pushes by sqrt(K*(n - K))/n times the mean score of its ones"
    " less that of its zeros",
    "slope-of-counts": lambda of, slope, sign, same_length, rises: (
        f"any n; {write_slope_of_counts(of, slope, sign, same_length)}"
    ),
    "mean-limit": _describe_mean_limit,
    "coefficient-free": "H and mu do not depend on theta: {proof}",
    "slope-of-std": "mu does not depend on theta, and d std = mean_i {coefficient} dH_i, dH = {slope} s",
    "signs-turn": _describe_curl_of_signs,
    "turns-at-three": "n = 3: d_v F.u - d_u F.v is not 0 on a model of three outcomes, enumerated in forty"
    " digits",
    "weighs-by-spread": "large n (a limit): normalised(h) weighs h by 1/sd(h) and what is added to it by 1,"
    " so that against h it weighs sd(h) times what is written: a penalty fades as the rewards agree",
    "success-recurrence": _describe_success_recurrence,
    "adds-no-curl": lambda loss, of: f"{loss} by itself targets {describe_target(of)}: a gradient, which adds"
    f" no curl",
    "adds-a-curl": lambda loss, of: f"open: no model that was tried gives {CURL_OPEN}: {loss} has a curl of"
    f" its own",
    "same-number-at-tokens": "the same number at every token: that number times E_q[sum_i s_i/sum_i T_i] ="
    " grad E_q[1/sum_i T_i], by the log-derivative of the whole batch (not replayed by the kernel)",
    "turns-at-two-lengths": "n = 2, sequences of one token and of two, so that 1/(x + y) = 11/12 - (x + y)/4"
    " + x*y/12: independence takes the field apart, and the curl of what is left, by the product rule, is"
    " not 0",
    "samples-fixed": "mu does not depend on theta: the gradient of the expectation is the expectation of"
    " the gradients",
    "same-gradients": "the loss in the objective detaches nothing, and has the gradient of the typed loss at"
    " every sample (not replayed by the kernel)",
    "taken-apart": "for any H in place of the coefficient: {proof}",
    "any-size": "divided by a constant, or each sequence by its own length, it is that of one sequence, for"
    " every n and H: {proof}",
    "mean-length-limit": _describe_mean_length_limit,
    "no-noise-of-token": "no noise of the drawn token: at each prefix the variance is at most that of the"
    " sampled loss; that of the sum over t can be larger, along directions that prefixes share (claim"
    " neighbour.rao-blackwell)",
    "no-variance": "the same at every sample: the gradient of full(..) has no variance at all",
    "sum-of-means": "grad E_q[sum_t C_t] = E_q[sum_t (grad C_t + sum_{{u>t}} C_u s_t)] for exact means C_t,"
    " each known at its prefix",
    "one-number": "full(..) is the same for all outcomes of one prefix: as a reward it does not distinguish"
    " them",
}  # fmt: skip


# ---------------------------------------------------------------------------- the terms of a sum
SEVERAL = 2  # regions that are told one by one


def _format_gradient_at_sampler(times: Any, of: Any) -> str:
    mean = f"grad E_mu[{show_value(of)}]"
    return mean if times == 1 else f"-{mean}" if times == -1 else f"{show_value(times)} {mean}"


def _describe_nonzero_regions(where: Sequence[Any]) -> str:
    few = f"where {', or where '.join(map(place, where))}" if len(where) <= SEVERAL else ""
    return f"a gradient only {few or f'in {len(where)} regions'}"


def _format_bound(value: Any) -> str:
    if value is sympy.oo:
        return "unbounded"
    return f"at most {f'{value:.6g}' if isinstance(value, float) else show_value(value)}"


def _describe_largest_weight(of: Any, above: Any, below: Any) -> str:
    name = show_value(of)
    positive, negative = _format_bound(above), _format_bound(below)
    return f"|weight| of {name}: {positive} where {name} > 0, {negative} where {name} < 0"


TERMS: dict[str, str | Callable[..., str]] = {
    "no-expected-gradient": "no expected gradient",
    "targets": lambda of: describe_target(of),
    "targets-inside": lambda of: f"{describe_target(of, of.gradient.inside_clamps)} {describe_place(of)}",
    "gradient-at-sampler": _format_gradient_at_sampler,
    "gradient-of-objective": lambda of: f"grad {formulas.show_side(of)}",
    "zero-but-where": _describe_nonzero_regions,
    "zero-where": lambda where: f"no gradient where {', or where '.join(map(place, where))}",
    "largest-weight": _describe_largest_weight,
    "no-weight": "no importance weight",
    "old-weight": "weighed by q/old, not by q/mu",
}
SENTENCES = {**WARNINGS, **ASSUMPTIONS, **REMARKS, **TERMS, **QUESTIONS, **DIAGNOSES}


# ---------------------------------------------------------------------------- suggestions
def describe_suggestion(suggestion: Any) -> str:
    """Describe a `Suggestion`: the loss to write, and its expected gradient."""
    template = "its expected gradient is {}grad KL({}||{}) (proved)"
    if suggestion.changed:
        return f"write {describe_replacement(suggestion)}: {template.format('then ', *suggestion.kl)}"
    how = ", ".join(describe_setting(suggestion.setting))
    return f"write {describe_replacement(suggestion)}: {how}, {template.format('', *suggestion.kl)}"


def describe_replacement(suggestion: Any) -> str:
    """Return the suggested loss with the options that change, and what it replaces."""
    where = " in place of the penalty" * suggestion.beside
    return f"{suggestion.loss}{where}" + (
        f" with {' and '.join(suggestion.changed)}" if suggestion.changed else ""
    )
