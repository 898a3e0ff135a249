"""Functions of PyTorch, JAX and TensorFlow over the words of the vocabulary: softmax, kl_div, cross_entropy.

>>> sorted(VOCABULARY)[:3]
['KL', 'cross_entropy', 'gather']
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from sympy import Add, log

from klsym.errors import spell_option
from klsym.language.expressions import ATOMS, REWARDS, exp, log_q, sg
from klsym.language.expressions import DENSITIES as SYMBOLS
from klsym.language.parser import SHOWN
from klsym.language.pasted.calls import Call, Row
from klsym.language.pasted.names import list_words_typed, split_operands
from klsym.language.pasted.selections import QUANTILES
from klsym.language.recognition import recognise
from klsym.language.reductions import (
    ONE_HOT,
    SAMPLES,
    WORD_LOGS,
    WORDS,
    Mean,
    average_over_words,
    has_words,
    select_drawn_word,
    select_one_hot,
    sum_over_words,
)
from klsym.language.sums import DENSITIES, OverVocabulary, Scaled, full_kl
from klsym.language.training_names import (
    find_logits,
    find_meaning,
    find_policy,
    find_policy_named,
    names_drawn_word,
)

NAME_DRAWN = ": name the index of the drawn word token_ids or labels; for the top k words type full(M*..)"

# ---------------------------------------------------------------------------- divergences
POLICIES = {"pi": "q", "pi_theta": "q", "policy": "q", "ref": "p", "pi_ref": "p", "pi_old": "mu"}


def _name_policy(name: str) -> str:
    """Return q, p or mu for the name of a policy; other names as they are."""
    if name in POLICIES or name in DENSITIES:
        return POLICIES.get(name, name)
    return (find_policy(name) or name).removeprefix("log_")


MIXTURES = {"m", "mix", "mixture", "avg", "average"}


def _build_divergence(reader: Any, call: Call, given: dict[str, ast.expr], depth: int) -> Any:
    """Return KL(q||p), which the text has as KL(q, p); either may be a mixture, as in KL(p||m)."""
    names = [x.id for x in given.values() if isinstance(x, ast.Name) and x.id not in reader.assigned]
    if unknown := [name for name in names if name.lower() in MIXTURES and name not in reader.policies]:
        hint = f": type what {unknown[0]} is in a line before, such as `{unknown[0]} = 0.5*(p + q); ...`"
        raise reader.make_error_with_hint(f"{call.name} of the unknown {unknown[0]!r}", hint, call.node)
    policies = [_find_policy(reader, name) for name in names]
    if len(policies) == 2 and {*policies} <= {*DENSITIES} and len({*policies}) == 2:
        return full_kl(*policies)
    first, second = (_read_probabilities(reader, node, depth) for node in given.values())
    if first is None or second is None or first == second:
        policy_names = ", ".join(DENSITIES)
        hint = ", and of mixtures such as `m = 0.5*(p + q); KL(p||m)`"
        raise reader.make_error_with_hint(
            f"{call.name} is of two different policies among {policy_names}, as in KL(q||p){hint}",
            "",
            call.node,
        )
    return average_over_words(first * (log(first) - log(second)))


def _find_policy(reader: Any, name: str) -> str:
    """Return q, p or mu for a name that is not assigned, or else the name."""
    density = reader.policies.get(name) or reader.find_letter(name)
    if name.isupper() and density:
        reader.read_as[name] = exp(ATOMS[density])
    return density.removeprefix("log_") if density else _name_policy(name)


def _read_probabilities(reader: Any, node: ast.expr, depth: int) -> Any | None:
    """Return the probability of a policy or a mixture of two; None for other values."""
    name = node.id if isinstance(node, ast.Name) and node.id not in reader.assigned else ""
    if name and (policy := _find_policy(reader, name)) in DENSITIES:
        reader.is_foreign = True
        return exp(DENSITIES[policy])
    if name or not isinstance(node, ast.BinOp | ast.Name):
        return None
    value = select_drawn_word(reader.build(node, depth))
    is_policy = isinstance(value, exp) and value.args[0] in SYMBOLS
    return value if is_policy or (is_mixture(value) and not isinstance(value, log)) else None


def _build_kl_div(reader: Any, call: Call, given: dict[str, ast.expr], depth: int) -> Any:
    """Return F.kl_div(log a, log b, log_target=True) = sum_y b (log b - log a) = KL(b||a).

    An input that is a, not log a, is read as PyTorch computes it: sum_y b (log b - a).
    Either may be a mixture.
    """
    flag, reduction = given.get("log_target"), given.get("reduction")
    is_log = isinstance(flag, ast.Constant) and flag.value is True
    first = _read_distribution(reader, given["x"], depth, is_log=True)
    second = _read_distribution(reader, given["target"], depth, is_log)
    target = second if is_log else (second.args[0] if second.args else None)
    symbols = {symbol: name for name, symbol in DENSITIES.items()}
    is_exponentiated = isinstance(first, exp) and first.args[0] in SYMBOLS
    if reader.gathers:
        hint = ": kl_div adds up all words; for those that are gathered type full(M*..) with a mask M"
        raise reader.make_error_with_hint(f"{call.name} beside gather", hint, call.node)
    if is_mixture(first) or (is_mixture(second) and second not in SYMBOLS):
        log_target = second if is_log else log(second)
        divergence = (exp(second) if is_log else second) * (log_target - first)
        return _read_reduction(reader, call, reduction) * average_over_words(divergence)
    if not (first in SYMBOLS or is_exponentiated) or target not in SYMBOLS or first == target:
        hint = ": it is read of two log-probabilities, as in F.kl_div(logp, ref_logp, log_target=True)"
        if second in SYMBOLS and not is_log:
            hint = (
                ": without log_target=True the target is a probability, as in F.kl_div(logp, ref_logp.exp())"
            )
        raise reader.make_error_with_hint(f"{call.name} of other arguments", hint, call.node)
    factor = _read_reduction(reader, call, reduction)
    if is_exponentiated:
        return factor * OverVocabulary(recognise(exp(target - log_q)) * (target - first))
    return factor * full_kl(symbols[target], symbols[first])


def is_mixture(e: Any) -> bool:
    """Is it a mixture of two policies, or its log?

    >>> p, q = (exp(density) for density in SYMBOLS[:2])
    >>> [is_mixture(e) for e in (log(p / 2 + q / 2), p / 4 + 3 * q / 4, p, p - q)]
    [True, True, False, False]
    """
    inside = e.args[0] if isinstance(e, log) else e
    policies = [density for density in SYMBOLS if inside.has(exp(density))]
    parts = [term.as_independent(*SYMBOLS, as_Add=False) for term in Add.make_args(inside)]
    is_linear = all(part in {exp(x) for x in policies} and not c.is_negative for c, part in parts)
    return bool(is_linear and len(policies) == 2)


def _exponentiate(reader: Any, node: ast.expr, depth: int) -> Any:
    """Return e^node; beta e^x for x + log(beta)."""
    match node:
        case ast.BinOp(left, ast.Add(), right):
            return _exponentiate(reader, left, depth) * _exponentiate(reader, right, depth)
        case ast.Call() if split_operands(node)[0] == "log":
            return reader.build(split_operands(node)[1][0], depth)
    return exp(select_drawn_word(reader.build(node, depth)))


def _build_logsumexp(reader: Any, call: Call, given: dict[str, ast.expr], depth: int) -> Any:
    """Return log(e^x + e^y) for logsumexp(stack([x, y]), dim=0)."""
    match given["x"]:
        case ast.Call(args=[ast.List(parts) | ast.Tuple(parts), *_]) if len(parts) > 1:
            return log(Add(*(_exponentiate(reader, part, depth) for part in parts)))
    reason = f"{call.name}(..) is not part of the loss grammar, and is not read"
    raise reader.make_error_with_hint(reason, suggest_instead(call.name), call.node)


def _read_distribution(reader: Any, node: ast.expr, depth: int, is_log: bool) -> Any:
    """Return what kl_div is of; a policy that is named alone is what kl_div takes: logs, or probabilities."""
    name = node.id if isinstance(node, ast.Name) and node.id not in reader.names else ""
    density = "log_p" if name in ("target", "targets", "soft_targets") else find_policy_named(name)
    if density is None:
        return select_drawn_word(reader.build(node, depth))
    reader.assumed = (*reader.assumed, f"{ast.unparse(node)} are {'log-' * is_log}probabilities")
    reader.read_as[ast.unparse(node)] = (
        WORD_LOGS[ATOMS[density]] if is_log else exp(WORD_LOGS[ATOMS[density]])
    )
    return ATOMS[density] if is_log else exp(ATOMS[density])


OF_DIVERGENCES = {"kl", "kld", "kldiv", "criterion", "loss_function", "loss_fn", "kl_loss", "kd_loss"}


def is_divergence_of_softmax(node: ast.Call) -> bool:
    """Is it a loss that a name stands for, of a log_softmax and a softmax: nn.KLDivLoss?"""
    called = [split_operands(x)[0] if isinstance(x, ast.Call) else "" for x in node.args]
    name = name_called(node)
    return called == ["log_softmax", "softmax"] and name.lower().removeprefix("self.") in OF_DIVERGENCES


def _read_reduction(reader: Any, call: Call, reduction: ast.expr | None) -> Any:
    """Return the factor of a sum over the vocabulary; a setting is assumed to be batchmean."""
    factors = {"none": 1 / WORDS, "mean": 1 / WORDS, "batchmean": 1, "sum": SAMPLES}
    match reduction:
        case None:
            return factors["mean"]
        case ast.Constant(name) if name in factors:
            return factors[name]
        case ast.Name() | ast.Attribute():
            typed = ast.unparse(reduction)[:40]
            reader.assumed = (*reader.assumed, f"{typed} is 'batchmean', another one is another factor")
            return factors["batchmean"]
    raise reader.make_error_at("kl_div with a reduction that is not read", call.node)


MODULES = {
    "KLDivLoss": "kl_div", "CrossEntropyLoss": "cross_entropy", "NLLLoss": "nll_loss", "MSELoss": "mse_loss",
    "L1Loss": "l1_loss", "SmoothL1Loss": "smooth_l1_loss", "HuberLoss": "huber_loss",
}  # fmt: skip
"""The function of each module of torch.nn that is a loss."""
ASSUMED_MODULE = ast.Call(
    ast.Name("KLDivLoss"), [], [ast.keyword("reduction", ast.Constant("batchmean"))]
)  # of a log_softmax and a softmax


def names_module(node: ast.Call) -> bool:
    """Is it nn.KLDivLoss(..), or another module that is a loss?"""
    return name_called(node) in MODULES and not node.args


def name_called(node: ast.Call) -> str:
    """Return the last name of what is called."""
    function = node.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def unfold_module(node: ast.Call, modules: Mapping[str, ast.Call]) -> ast.Call:
    """Return F.kl_div(a, b, ..) for nn.KLDivLoss(..)(a, b), or for the name of such a module.

    modules: the name of each one, and its call.
    """
    match node.func:
        case _ if is_divergence_of_softmax(node) and name_called(node) not in modules:
            module = ASSUMED_MODULE
        case ast.Call() as module if names_module(module):
            pass
        case ast.Name(name) | ast.Attribute(ast.Name("self"), name) if name in modules:
            module = modules[name]
        case _:
            return node
    function = ast.copy_location(ast.Attribute(ast.Name("F"), MODULES[name_called(module)]), node)
    return ast.copy_location(ast.Call(function, node.args, [*node.keywords, *module.keywords]), node)


def _names_reward(reader: Any, node: ast.expr) -> bool:
    """Is it made of rewards or advantages, and of no logits?"""
    names = list_words_typed(node)
    values = [reader.names[name] for name in names & reader.assigned.keys()]
    is_of_reward = any(find_meaning(name) in ("A", "R") for name in names) or any(
        x.has(*REWARDS) for x in values
    )
    return is_of_reward and not any(find_logits(name) for name in names)


def _weight_samples(reader: Any, call: Call, given: dict[str, ast.expr], depth: int) -> Any:
    """Return softmax(A/beta, dim=0) over a batch, exp(A/beta) over its sum, as in AWR: scaled(exp(A/beta))/n.

    Source: Peng et al., Advantage-Weighted Regression, arXiv:1910.00177.
    """
    axis, typed = ast.unparse(given["axis"]) if "axis" in given else "0", ast.unparse(call.node)[:SHOWN]
    x = reader.build(given["x"], depth)
    if axis not in ("0", "-1") or x.has(*SYMBOLS, Mean):
        hint = ": type exp(A/beta)/exp(A/beta).mean() for weights over the samples of a batch"
        raise reader.make_error_with_hint(f"{call.name} of rewards over another axis", hint, call.node)
    reader.note_assumption(f"{typed} is over the samples of a batch")
    return Scaled(exp(x)) / SAMPLES


def _make_softmax_row(is_log: bool) -> Row:
    """Return the row of log_softmax or softmax: of every word; its argument is the logits of a policy."""

    def build(reader: Any, call: Call, given: dict[str, ast.expr], depth: int) -> Any:
        if not is_log and _names_reward(reader, given["x"]):
            return _weight_samples(reader, call, given, depth)
        word = WORD_LOGS[reader.read_logits(given["x"], call)]
        logits = given["x"].left if isinstance(given["x"], ast.BinOp) else given["x"]
        is_detached = any(isinstance(x, ast.Attribute) and x.attr == "detach" for x in ast.walk(logits))
        word = sg(word) if is_detached else word
        return word if is_log else exp(word)

    return Row(("x", "/", "axis", "dtype"), build)


def _build_cross_entropy(reader: Any, call: Call, given: dict[str, ast.expr], depth: int) -> Any:
    """Return -log q of the drawn word for F.cross_entropy(logits, labels), or -sum_v target_v log q_v."""
    word = WORD_LOGS[reader.read_logits(given["x"], call)]
    return _reduce(reader, call, given, -_take_at(reader, word, given["target"], depth))


def _build_nll(reader: Any, call: Call, given: dict[str, ast.expr], depth: int) -> Any:
    """Return -log q of the drawn word for F.nll_loss(log_probs, labels)."""
    log_q = reader.build(given["x"], depth)
    return _reduce(reader, call, given, -_take_at(reader, log_q, given["target"], depth))


def _take_at(reader: Any, of_words: Any, target: ast.expr, depth: int) -> Any:
    """Return a value of every word at the drawn word, or its mean under the probabilities of a target."""
    typed = ast.unparse(target)
    if names_drawn_word(typed):
        return reader.select_drawn(of_words, typed)
    product = reader.read_words(target, depth) * of_words
    return select_one_hot(product) if product.has(ONE_HOT) else sum_over_words(product)


def _reduce(reader: Any, call: Call, given: dict[str, ast.expr], value: Any) -> Any:
    reduction = given.get("reduction")
    kind = reduction.value if isinstance(reduction, ast.Constant) else "" if reduction else "mean"
    if kind not in ("none", "mean", "sum"):
        raise reader.make_error_at(f"{call.name} with a reduction that is not read", call.node)
    is_single = kind == "none" or call.name.startswith("s")  # softmax_cross_entropy_.. of TensorFlow
    return value if is_single else reader.reduce_to_mean(kind, value, call.name)


def _build_one_hot(reader: Any, call: Call, given: dict[str, ast.expr], depth: int) -> Any:
    typed = ast.unparse(given["index"])
    if not names_drawn_word(typed):
        raise reader.make_error_with_hint(f"{call.name} at unknown words", NAME_DRAWN, call.node)
    reader.assume_drawn(typed)
    return ONE_HOT


def _build_gather(reader: Any, call: Call, given: dict[str, ast.expr], depth: int) -> Any:
    """Return a value of every word at the drawn word; the name of the index has to say that it is that."""
    of_words = reader.read_words(given["x"], depth)
    if not has_words(of_words):
        reason = f"{call.name} of a value that is not of every word"
        raise reader.make_error_with_hint(reason, suggest_instead("gather"), call.node)
    index = ast.unparse(given["index"]) if "index" in given else ""
    if not names_drawn_word(index):
        raise reader.make_error_with_hint(f"{call.name} at unknown words", NAME_DRAWN, call.node)
    reader.gathers = True
    return reader.select_drawn(of_words, index)


UNREAD_OVER_WORDS = {"logsumexp"}
OVER_A_BATCH = {"var", "whiten", "masked_whiten", "masked_std", "masked_var"}


def suggest_instead(name: str) -> str:
    """Return what to type for a function over the batch or the vocabulary that is not read; empty for others.

    >>> suggest_instead("var")
    ": type normalised(R) for (R - R.mean())/R.std(), or R alone and choose batch='std'"
    """
    if name in UNREAD_OVER_WORDS:
        return (
            ": type log_q and log_p, full_kl(q, p) for a sum over the vocabulary; klsym audit runs functions"
        )
    if name in QUANTILES:
        return ": it is read in comparisons, as in (x >= quantile(x, 0.8))*A*logp, a mask M that is held"
    if name not in OVER_A_BATCH:
        return ""
    option = spell_option("batch", "std")
    return f": type normalised(R) for (R - R.mean())/R.std(), or R alone and choose {option}"


VOCABULARY: dict[str, Row] = {
    "softmax": _make_softmax_row(is_log=False),
    "log_softmax": _make_softmax_row(is_log=True),
    "gather": Row(("x", "/", "axis", "index"), _build_gather),
    "take_along_axis": Row(("x", "index", "/", "axis"), _build_gather),
    "one_hot": Row(("index", "/", "num_classes", "depth", "dtype"), _build_one_hot),
    "cross_entropy": Row(("x", "target", "/", "reduction"), _build_cross_entropy),
    **dict.fromkeys(
        (
            "sparse_softmax_cross_entropy_with_logits", "softmax_cross_entropy_with_logits",
            "softmax_cross_entropy_with_logits_v2",
        ),
        Row(("target", "x"), _build_cross_entropy),
    ),
    "logsumexp": Row(("x", "/", "axis", "keepdims"), _build_logsumexp),
    "nll_loss": Row(("x", "target", "/", "reduction"), _build_nll),
    "kl_div": Row(("x", "target", "/", "reduction", "log_target"), _build_kl_div),
    **dict.fromkeys(("KL", "kl", "kl_divergence"), Row(("x", "y"), _build_divergence)),
}  # fmt: skip
"""The functions over the vocabulary that are read."""
