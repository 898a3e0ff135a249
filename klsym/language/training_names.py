"""Names in training code -> what the loss grammar calls them."""

from __future__ import annotations

import re
from collections.abc import Collection

from klsym.language.estimators import NAMES

# Words of names, which are split at _ and before capitals.
LOGS = {
    "log", "ll", "loglik", "lp", "lps", "lprob", "lprobs", "logp", "logps", "logpi", "logq", "logprob",
    "logprobs", "logpis",
}  # fmt: skip
OF_SHAPE = {
    "token", "tokens", "per", "seq", "sequence", "level", "batch", "mb", "micro", "mini", "minibatch",
    "response", "completion", "action", "sample", "samples", "packed", "flat", "flattened", "masked", "local",
    "current", "cur", "curr", "group", "shaped", "normalized", "norm", "estimates", "generated", "selected",
    "picked", "values", "b", "data", "tf", "tensor", "ph", "np", "of", "taken", "act", "acts",
    "actions", "a", "the", "for", "saved", "v",
}  # fmt: skip
OF_TENSORS = {  # words of the same value in another shape or at another place, as in advantages_col
    "col", "column", "row", "expanded", "unsqueezed", "broadcast", "broadcasted", "repeated", "stacked",
    "2d", "3d", "flat", "flattened", "tensor", "torch", "list", "array", "arr", "vec", "cuda", "gpu",
    "device",
}  # fmt: skip
OF_SAMPLES = {"sampled", "sampling", "rollout", "rollouts", "traj", "trajectory", "step", "all", "t", "i"}
PROBABILITIES = {"prob", "probs", "probability", "probabilities"}
DENSITY = {"likelihood", "likelihoods", "p", "q", "pi", "mu", "policy", "theta", "sum", "mean", "all"}
DENSITY |= OF_SHAPE | PROBABILITIES
BEHAVIOUR = {"old", "mu", "behavior", "behaviour", "behave", "sampler", "sampling", "rollout", "infer",
             "inference", "prev", "previous", "vllm", "generation", "generator", "gen"}  # fmt: skip
OLD = {"proximal", "prox", "proxy", "recompute", "recomputed"}
REFERENCE = {"ref", "tea", "tch", "reference", "base", "sft", "init", "teacher", "prior"}
TRAINED = {"new", "stu", "cur", "curr", "current", "policy", "pi", "theta", "student", "actor", "trainer",
           "learner"}  # fmt: skip
DISTRIBUTIONS = {"m", "d", "pi", "dist", "distribution", "dists", "categorical", "normal", "gaussian",
                 "policy", "model", "net", "network", "agent", "actor", "action", "probs", "pd",
                 "bernoulli"}  # fmt: skip
POLICY_WORDS = {"student", "teacher", "policy", "actor"}
DRAWN = {"id", "ids", "label", "labels", "token", "tokens", "action", "actions", "target", "targets", "acts",
         "act", "a"}  # fmt: skip
OF_BATCH = {"inds", "ind", "idx", "idxs", "indices", "perm", "minibatch"}  # words of indices of samples
OF_DATA = {"state", "states", "obs", "observation", "observations", "action", "actions", "act", "acts", "ids",
           "inputs", "memory", "buffer", "batch"}  # fmt: skip
NOT_DRAWN = {  # beside one of these: words that were chosen otherwise, or those of another policy
    "top", "topk", "candidate", "candidates", "greedy", "argmax", "best", "mode", "max", "teacher", "ref",
    "reference", "expert", "gold", "demo", "mask", "soft", "ignored", "special", "pad", "eos", "stop",
}  # fmt: skip
OF_LOGITS = {"logits", "logit", "output", "outputs", "out", "pred", "preds", "prediction", "predictions",
             "lm", "head", "self", "res", "y", "scores", "val", "vals"}  # fmt: skip
OF_TARGETS = {"label", "labels", "target", "targets"}  # whose softmax is a reference
INITIALS = {"t": "teacher", "s": "student"}
LETTERS_BEFORE = {"p": "ref", "q": "policy"}  # of the reference and the policy, as in p_logits, q_logits
ADVANTAGES = {"adv", "advs", "advantage", "advantages", "gae", "gaes"}
METRICS = {"rouge", "bleu", "cider", "meteor", "bertscore", "wer"}  # that are rewards in pasted code
REWARDS = {"reward", "rewards", "scores", "returns", "return"} | METRICS
OF_REWARDS = {  # words beside one, as in reward_score
    "score", "model", "rm", "adjusted", "discounted", "cumulative", "total", "episode", "final", "outcome",
    "task", "env", "extrinsic", "raw", "verifier", "verifiable", "rlhf",
}  # fmt: skip
WHICH = f"the estimator it is: {', '.join(NAMES[:-1])} or {NAMES[-1]}"
LOG_WEIGHT = "log_q - log_mu"
WHOLE = {
    "ratio": "rho", "ratios": "rho", "is_weight": "rho", "is_weights": "rho", "iw": "rho", "is_ratio": "rho",
    "importance_weight": "rho", "importance_weights": "rho", "importance_ratio": "rho",
    "prob_ratio": "rho", "policy_ratio": "rho", "logp_ratio": "rho", "coef_1": "rho",
    "adv": "A", "advs": "A", "advantage": "A", "advantages": "A",
    **dict.fromkeys(("log_ratio", "logratio", "logr"), "k1 for log q - log p, or log_q - log_mu"),
    **dict.fromkeys(("log_importance_ratio", "log_importance_weight", "log_rho", "log_iw"), LOG_WEIGHT),
    **dict.fromkeys(("kl", "approx_kl", "kl_div", "kld", "kl_loss"), WHICH),
    **dict.fromkeys(("pi", "pi_theta"), "exp(log_q)"), "pi_ref": "exp(log_p)", "pi_old": "exp(log_mu)",
    **dict.fromkeys(("td", "td_error", "td_errors", "deltas", "td_delta", "td_deltas"), "A"),
    **dict.fromkeys(("score", "return", "reward", "rewards", "ret", "returns"), "R"),
    **dict.fromkeys(("discounted_ep_rs", "ep_rs", "discounted_rs"), "R"), "mask": "M", "loss_mask": "M",
}  # fmt: skip

# Names that stand for one thing in one codebase and for another elsewhere: what to type for each.
RATIO = (
    "rho for q/mu (`{0} = (logp - old_logp).exp(); ...`) or r for p/q (`{0} = (ref_logp - logp).exp(); ...`)"
)
REWARD_OR_RATIO = "R for a reward (`{0} = R; ...`) or rho for q/mu (`{0} = (logp - old_logp).exp(); ...`)"
LOG_RATIO = (
    "k1 for log q - log p (`{0} = logp - ref_logp; ...`) or log_q - log_mu (`{0} = logp - old_logp; ...`)"
)
PENALTY = "k1, k2 or k3 for samples (`{0} = logp - ref_logp; ...`) or full_kl(q, p) for the whole vocabulary"
AMBIGUOUS = {
    **dict.fromkeys(("ratio", "ratios", "prob_ratio", "policy_ratio", "logp_ratio"), RATIO),
    "G": "R for a return (`{0} = R; ...`) or n for the size of a group",
    "coef_2": "TRL's clipped ratio (`{0} = clip(coef_1, 1 - eps, 1 + eps); ...`)",
    **dict.fromkeys(("r_t", "rt"), REWARD_OR_RATIO),
    **dict.fromkeys(("log_ratio", "logratio", "logr", "log_ratios"), LOG_RATIO),
    **dict.fromkeys(("kl", "approx_kl", "kl_div", "kld", "kl_loss", "kl_penalty", "per_token_kl"), PENALTY),
}  # fmt: skip
MASKS = {"mask", "loss_mask", "response_mask", "action_mask", "attention_mask", "completion_mask",
         "padding_mask", "eos_mask"}  # fmt: skip
COEFFICIENTS = {
    "beta", "coef", "coeff", "coefficient", "eps", "epsilon", "clip", "cliprange", "lam", "alpha", "gamma",
    "tau", "temperature", "delta", "scale", "constant", "const", "ctl", "ctrl", "accumulation", "accum",
}  # fmt: skip
DEVICES, STEPS = {"world_size", "dp_size"}, {"accumulation", "accum"}  # whose number divides a loss
OF_COUNTS = {"num", "n", "total", "count", "number"}
OF_GROUP = {"samples", "sample", "prompt", "rloo", "group", "generations", "rollouts", "rollout", "responses",
            "completions"}  # fmt: skip
COUNTED = {"token", "tokens", "samples", "sequences", "items", "batch"}
LETTERS = {  # of papers: the bound of a truncated weight, min(rho, C); of GFlowNets
    "C", "done", "dones", "logZ", "log_z", "logz", "c", "log_Z", "c1", "c2",
}  # fmt: skip
STEPS_OF_LOOPS = {"key", "i", "j", "k", "t", "n", "pos", "step"}  # names that count what a loop goes through
SIZES = {
    "c", "cap", "threshold", "low", "high", "min", "max", "norm", "len", "length",
    "num", "count", "steps", "processes", "factor", "pos", "neg", "penalty", "lambda", "weight", "coefs",
    "coeffs", "world",
}  # fmt: skip
BOUNDS = {"clip", "cliprange", "eps", "epsilon", "threshold", "cap"}
FACTORS = {"coef", "coeff", "coefficient", "multiplier", "lambda", "beta"}
VARYING = {*ADVANTAGES, *REWARDS, "loss", "prob", "probs", "kls"}

OF_NUMBERS = COEFFICIENTS | FACTORS | BOUNDS | {
    "scale", "coefs", "coeffs", "temp", "rate", "size", "num", "count", "len", "length", "steps", "factor",
    "target", "limit", "max", "min", "ctl", "ctrl", "warmup", "low", "high", "decay", "power",
}  # fmt: skip
OF_TERMS = {
    "rl", "awr", "bc", "sft", "pg", "value", "vf", "critic", "loss", "kl", "entropy", "ent", "reward",
    "bonus", "penalty", "aux", "distill", "distillation",
}  # fmt: skip

OF_WEIGHTED = {"vf", "ent", "entropy", "kl", "bc", "sft", "aux"}  # terms x of w_x

OF_ENTROPY = {
    "entropy", "entropies", "mean", "policy", "action", "dist", "avg", "token", "per", "batch", "actor", "b",
    "pi", "term", "current", "new",
}  # fmt: skip

# Parts of names of a critic: q1a, values, vf, critic.
CRITIC = re.compile(r"(q|qf|qs|qvals?|qvalues?|v|vf|vs|vpreds?|values?|critic|td|returns?)\d*[a-z]?")
OF_CRITICS = {"v", "vf", "vs", "vpred", "vpreds", "value", "values", "critic", "baseline", "baselines"}
OF_STATES = {"old", "new", "state", "states", "s", "pred", "preds", "current", "b", "mb", "batch",
             "loss", "target", "targets", "net", "network", "function", "fn", "estimate", "estimates",
             "clipped"}  # fmt: skip
# Words of names of SAC's temperature and of what it is trained for.
TEMPERATURE = ({"log", "alpha"}, {"log", "ent", "coef"}, {"log", "temperature"}, {"target", "entropy"})


def split_words(name: str) -> list[str]:
    """Return the words of a name: those of refLogp2 are ref, logp.

    >>> split_words("clipRange_high"), split_words("beta2")
    (['clip', 'range', 'high'], ['beta'])
    """
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    return re.findall(r"[a-z]+", spaced)


def find_policy(name: str) -> str | None:
    """Return the log density of a policy of training code; log_q where its name says nothing.

    >>> [find_policy(name) for name in ("m", "ref_policy", "old_dist", "Categorical", "target_policy")]
    ['log_q', 'log_p', 'log_mu', 'log_q', None]
    """
    words = [word for word in split_words(name) if word not in DISTRIBUTIONS]
    return find_meaning("_".join((*words, "logp"))) if words else "log_q"


LIMITS = {"low", "high", "lower", "upper", "min", "max", "bound", "cap"}  # the last word of a bound's name
LIMITED = {"ratio", "ratios", "mask", "clip", "weight", "weights", "importance", "tis", "kl"}


def is_coefficient(name: str) -> bool:
    """Is it a usual name of a number that depends on neither the sample nor theta?

    >>> [is_coefficient(x) for x in ("kl_coef", "clip_range", "entropy_weight", "clip_reward_value")]
    [True, True, True, True]
    >>> [is_coefficient(x) for x in ("mask_ratio_low", "ratio", "weight", "is_weight", "clip_advantage")]
    [True, False, False, False, False]
    """
    ordered = split_words(name)
    words = {*ordered}
    if name in LETTERS | DEVICES or (
        ordered[:1] == ["clip"] and {*ordered[-1:]} <= {"value", "range", "max", "min"}
    ):
        return True
    is_size = ordered[-2:] == ["batch", "size"]
    is_count = bool(words & OF_COUNTS) and bool(words & COUNTED) and not words & (VARYING | LOGS)
    is_limit = bool({*ordered[-1:]} & LIMITS) and bool(words & LIMITED) and not words & (LOGS | {"log"})
    is_factor = is_limit or (bool(words & COEFFICIENTS) and not words & (VARYING | LOGS))
    return is_factor or is_count or is_size or is_weight_of_term(name) or counts_samples(name)


def is_weight_of_term(name: str) -> bool:
    """Is it the weight or the coefficient of a term of the loss, a number?

    >>> is_weight_of_term("entropy_weight"), is_weight_of_term("importance_weight")
    (True, False)
    >>> [is_weight_of_term(x) for x in ("_w_vf", "w_ent", "w_reward", "w_is")]
    [True, True, False, False]
    """
    words = split_words(name)
    if words[:1] == ["w"] and {*words[1:]} & OF_WEIGHTED and len(words) == 2:
        return True
    return bool({*words[-1:]} & {"weight", "cost", *FACTORS}) and bool({*words[-2:-1]} & OF_TERMS)


def names_critic(name: str) -> bool:
    """Is it a usual name of a critic's value, of a Q, or of a critic's loss?

    >>> names = ("current_q1a", "old_values", "vf_loss", "bl_loss", "Q", "log_q", "vf_coef", "q_probs")
    >>> [name for name in (*names, "kl_value") if names_critic(name)]
    ['current_q1a', 'old_values', 'vf_loss', 'bl_loss', 'Q']
    """
    words = split_words(name)
    if is_coefficient(name) or {*words[-1:]} & OF_NUMBERS or {*words} & {*LOGS, "prob", "probs", "kl"}:
        return False
    if {*words} & {"loss", "losses"} and {*words} & {"baseline", "bl"}:
        return True
    parts = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().split("_")
    return any(CRITIC.fullmatch(part) for part in parts)


def names_state_value(name: str) -> bool:
    """Is it a usual name of what a critic says of a state, or of its loss?  It depends on no action.

    >>> [x for x in ("values", "V", "old_values", "vf_loss", "Q", "q_value") if names_state_value(x)]
    ['values', 'V', 'old_values', 'vf_loss']
    """
    words = split_words(name)
    return bool({*words} & OF_CRITICS) and {*words} <= OF_CRITICS | OF_STATES and words[:1] != ["loss"]


def names_entropy(name: str) -> bool:
    """Is it a usual name of the entropy of the policy, and of no loss, whose sign differs?"""
    words = {*split_words(name)}
    return words <= OF_ENTROPY and bool(words & {"entropy", "entropies"})


def names_temperature(name: str) -> bool:
    """Is it a usual name of SAC's temperature, or of the entropy that it is to bring about?

    >>> [name for name in ("log_alpha", "target_entropy", "alpha", "entropy_coef") if names_temperature(name)]
    ['log_alpha', 'target_entropy']
    """
    return any({*split_words(name)} >= words for words in TEMPERATURE)


def is_training_setting(name: str) -> bool:
    """Is it a usual name of a number that is the same for all samples: a coefficient, a bound, a size?

    >>> [is_training_setting(x) for x in ("num_items_in_batch", "mask_clip_low", "kl_loss_coef")]
    [True, True, True]
    >>> is_training_setting("behave_imp_weight")
    False
    """
    words = split_words(name)
    varying = {*ADVANTAGES, *REWARDS, *LOGS, "prob", "probs", "ids", "labels", "losses", "frac"}
    if {*words} & {"clip", "cliprange", "cap", "threshold"} and not {*words} & {*LOGS, "losses", "frac"}:
        return True
    if not words or {*words} & varying:
        return False
    if {*words} & BOUNDS or words[-1] in FACTORS or words[-2:] == ["loss", "weight"]:
        return not {*words} & {"is", "behave", "rollout"}
    weights = {"loss", "kls", "is", "imp", "importance", "mask", "masks", "ratio", "ratios"}
    return bool({*words} & (COEFFICIENTS | SIZES)) and not {*words} & weights


def expand_name(name: str, names: Collection[str]) -> str:
    """Return the full name of a log-probability or a probability that says its policy by a letter or a role.

    s_x or x_s is of the student, and t_x or x_t of the teacher, if both are among names; so are q_x of the
    policy and p_x of the reference.  beta_x is of the
    sampler.  target_x is of the teacher beside one of the trained policy, else of the trained policy beside
    one of the sampler.

    >>> expand_name("t_logps", {"s_logps", "t_logps"}), expand_name("t_logps", {"t_logps"})
    ('teacher_logps', 't_logps')
    >>> expand_name("logp_t", {"logp_t", "A_t"}), expand_name("A_t", ())  # t is then the step
    ('logp', 'advantages')
    >>> expand_name("ratio_t", ()), expand_name("kl_t", ())  # which are asked for without t, too
    ('ratio_t', 'kl_t')
    >>> [expand_name("target_probs", {"target_probs", x}) for x in ("logp", "behavior_probs", "adv")]
    ['teacher_probs', 'new_probs', 'target_probs']
    >>> expand_name("beta_probs", ()), expand_name("p_logps", {"q_logps", "p_logps"})
    ('behavior_probs', 'ref_logps')
    """
    for initial, stem, form in ((name[:1], name[2:], "{}_{}"), (name[-1:], name[:-2], "{1}_{0}")):
        pair = {form.format(letter, stem) for letter in INITIALS}
        if stem and initial in INITIALS and name in pair and pair <= {*names}:
            return f"{INITIALS[initial]}_{stem}"
    if name[-2:] in ("_t", "_i") and name[:-2] not in AMBIGUOUS and find_meaning(name) is None:
        return {"A": "advantages", "R": "rewards"}.get(name[:-2], name[:-2])
    role, _, density = name.partition("_")
    if role in LETTERS_BEFORE and {f"{letter}_{density}" for letter in LETTERS_BEFORE} <= {*names}:
        return f"{LETTERS_BEFORE[role]}_{density}"
    if role not in ("beta", "target") or not (find_meaning(density) == "log_q" or find_density(density)):
        return name
    if role == "beta":
        return f"behavior_{density}"
    others = {*names} - {name}
    densities = {find_meaning(x) or find_density(x) for x in others}
    densities |= {"log_mu" for x in others if x.startswith("beta_")}
    policy = "teacher" if "log_q" in densities else "new" if "log_mu" in densities else role
    return f"{policy}_{density}"


def counts_steps(name: str) -> bool:
    """Is it a usual name of the number of steps, or of devices, over which gradients are added up?"""
    return name in DEVICES or bool({*split_words(name)} & STEPS)


def counts_samples(name: str) -> bool:
    """Is it a usual name of the number of samples in a group, the n of a mean of the others?

    >>> [counts_samples(x) for x in ("n_samples_per_prompt", "args.rloo_k", "num_generations", "num_tokens")]
    [True, True, True, False]
    """
    words = {*split_words(name.rpartition(".")[2])}
    is_number = bool(words & {"num", "n", "number", "k", "size"})
    return (
        is_number
        and bool(words & OF_GROUP)
        and words <= OF_GROUP | {"num", "n", "number", "k", "size", "per", "of"}
    )


def find_meaning(name: str) -> str | None:
    """Return what the grammar calls a density, ratio or reward of training code; None for other names.

    Such a name is no parameter: a parameter depends on neither the sample nor theta.

    >>> [find_meaning(name) for name in ("log_ref", "old_logprobs", "logp", "ratio", "log_alpha", "har")]
    ['log_p', 'log_mu', 'log_q', 'rho', None, None]
    """
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().strip("_")
    if spaced in WHOLE:
        return WHOLE[spaced]
    words = set(filter(None, re.sub(r"(logprobs?|logps?)", r"_\1_", spaced).split("_")))
    for meant, vocabulary in (("A", ADVANTAGES), ("R", REWARDS | OF_REWARDS)):
        if (
            words & (ADVANTAGES | REWARDS) & vocabulary
            and words - OF_SHAPE - OF_TENSORS - OF_SAMPLES <= vocabulary
        ):
            return meant
    others = words - LOGS
    if not words & LOGS or others - (DENSITY | BEHAVIOUR | OLD | REFERENCE | TRAINED) or words == {"log"}:
        return None
    named = {"log_p": REFERENCE, "log_old": OLD, "log_mu": BEHAVIOUR}
    return next((name for name, words in named.items() if others & words), "log_q")


def name_same_value(first: str, second: str) -> bool:
    """Do two names differ at most in words of the shape of a value?

    >>> [name_same_value(x, "advantages") for x in ("advantages_col", "norm_advantages", "advantages2")]
    [True, False, False]
    """
    left, right = ({*name.lower().split("_")} - OF_TENSORS for name in (first, second))
    return first == second or left == right


def names_drawn_word(name: str) -> bool:
    """Does the name of an index say that it is the word that was drawn?

    >>> [names_drawn_word(x) for x in ("input_ids.unsqueeze(-1)", "labels", "topk_ids", "seq", "seq_idx")]
    [True, True, False, True, False]
    """
    words, first = {*split_words(name)}, split_words(name)[:1]
    is_drawn = (
        bool(words & (DRAWN - {"a"}))
        or (first == ["seq"] and not words & OF_BATCH)
        or split_words(name.removeprefix("self."))[:1] == ["a"]
    )
    return is_drawn and not words & NOT_DRAWN


def is_index_of_samples(name: str) -> bool:
    """Is it a usual name of the indices of a minibatch?

    >>> [is_index_of_samples(x) for x in ("mb_inds", "idx", "top_indices", "positive_idx")]
    [True, True, False, False]
    """
    words = {*split_words(name)}
    return bool(words & OF_BATCH) and words <= OF_BATCH | {"mb", "b", "batch", "mini", "sample", "train"}


def find_negative_density(name: str) -> str | None:
    """Return the log density of a name such as neglogp, a negative log-probability; None for other names.

    >>> [find_negative_density(x) for x in ("neglogpac", "OLDNEGLOGPAC", "old_neg_logp", "logp", "neg_ratio")]
    ['log_q', 'log_mu', 'log_mu', None, None]
    """
    match = re.fullmatch(r"(.*?)_?neg(?:ative)?_?(logp|logprob|log_prob)s?_?(?:acs?)?", name, re.IGNORECASE)
    return find_meaning(f"{match[1].lower()}_logp") if match else None


def find_policy_named(name: str) -> str | None:
    """Return the log density of a name that is a word for a policy alone; None for other names.

    >>> find_policy_named("student"), find_policy_named("teacher"), find_policy_named("student_out")
    ('log_q', 'log_p', None)
    """
    return find_meaning(f"{name}_logp") if name in POLICY_WORDS else None


def names_policy(name: str) -> bool:
    """Has a name a word for the trained policy, the reference or an older policy?

    >>> [name for name in ("student", "ref_out", "old_probs", "logp", "out") if names_policy(name)]
    ['student', 'ref_out', 'old_probs']
    """
    return bool({*split_words(name)} & (TRAINED | REFERENCE | BEHAVIOUR | OLD))


def find_logits(name: str) -> str | None:
    """Return the log density whose logits have this name; None for other names, and for unknown policies.

    >>> [find_logits(x) for x in ("student_logits", "out_teacher_logits", "logits", "b_logits", "q_values")]
    ['log_q', 'log_p', 'log_q', None, None]
    """
    words = split_words(name)
    if not {*words} & {"logits", "logit"}:
        return None
    named = [word for word in words if word not in OF_LOGITS | DISTRIBUTIONS]
    if {*named} & {"a", "b"}:  # two policies that have letters for names
        return None
    return find_meaning("_".join((*named, "logp")))


def find_density(name: str) -> str | None:
    """Return the log density whose exp a name of a probability is; None for other names.

    >>> [find_density(name) for name in ("probs", "ref_probs", "old_prob", "teacher_probabilities")]
    ['log_q', 'log_p', 'log_mu', 'log_p']
    >>> [find_density(name) for name in ("log_probs", "prob_ratio", "probs_of_words", "prop", "pi_old")]
    [None, None, None, None, 'log_mu']
    >>> find_density("pi_learner"), find_density("pi_sampler"), find_density("pi_loss")
    ('log_q', 'log_mu', None)
    """
    if (whole := WHOLE.get(name, "")).startswith("exp(log_"):
        return whole[4:-1]
    words = split_words(name)
    if words[:1] == ["soft"] and {*words[1:]} <= {"label", "labels", "target", "targets"} != {*words[1:]}:
        return "log_p"
    if words[:1] == ["pi"] and {*words[1:]} & (TRAINED | BEHAVIOUR | OLD | REFERENCE):
        return find_meaning("_".join(("logp", *words[1:])))
    if {*words} & LOGS or not {*words} & PROBABILITIES:
        return None
    meant = find_meaning("_".join("logps" if word in PROBABILITIES else word for word in words))
    return meant if meant and meant.startswith("log_") else None
