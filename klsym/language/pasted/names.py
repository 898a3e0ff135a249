"""Names in the tree of pasted code: which only multiply, and which an advantage is multiplied by."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping

from klsym.language.pasted.text import forbids_gradient
from klsym.language.training_names import (
    ADVANTAGES,
    BEHAVIOUR,
    DRAWN,
    MASKS,
    OF_DATA,
    OLD,
    REFERENCE,
    find_logits,
    find_meaning,
    names_entropy,
    split_words,
)

LIBRARIES = {"torch", "jnp", "np", "numpy", "jax", "F", "nn", "lax", "tf", "math", "mx", "th", "TF", "K",
             "ch", "pt", "Math"}  # fmt: skip
REDUCING = {"sum", "mean", "reduce_sum", "reduce_mean", "masked_mean", "masked_sum"}
OF_FACTORS = {"detach", "float", "contiguous", "bool"}  # methods that leave a factor one
OF_PADDING = {
    "loss", "response", "action", "attention", "completion", "padding", "pad", "eos", "token", "tokens", "kl",
    "label", "labels", "valid", "seq", "sequence", "assistant", "generation", "output", "cur", "current", "b",
    "mb", "batch", "non", "not", "resp", "responses", "completions", "actions", "attn", "losses", "gen",
    "target", "targets",
}  # fmt: skip
OF_TYPES = {"bool", "float", "int", "long", "all"}  # words of a mask's name that say only how it is stored
OF_SEQUENCES = {"seq", "seqs", "sequences", "input"}
WITHOUT_GRADIENT = {"detach", "no_grad", "data", "stop_gradient", "inference_mode"}
BOUNDS_OF_TWO = {"min", "max", "minimum", "maximum"}
CLIPPING = {"clamp", "clip", "clamp_", "clip_by_value", "clipByValue"}
BOUNDS_OF_ONE = {"clamp", "clip", "clamp_", "clamp_max", "clamp_min"}


def list_chain(node: ast.expr) -> list[str]:
    """Return the names in x.y["z"], in their order."""
    match node:
        case ast.Name(name):
            return [name]
        case ast.Attribute(of, name) | ast.Subscript(of, ast.Constant(str(name))):
            return [*list_chain(of), name]
        case ast.Call(ast.Attribute(of, name)) if name in OF_FACTORS:
            return list_chain(of)
        case ast.Subscript(of) | ast.Call(of):
            return list_chain(of)
    return []


def split_operands(call: ast.Call) -> tuple[str, list[ast.expr]]:
    """Return the name of a function and what it is of: of x.clamp(0, 1) x is the first."""
    match call.func:
        case ast.Attribute(owner, name) if {*list_chain(owner)[:1]} & LIBRARIES:
            return name, call.args
        case ast.Attribute(receiver, name):
            return name, [receiver, *call.args]
        case ast.Name(name):
            return name, call.args
    return "", [call.func, *call.args]


def list_factors(tree: ast.AST) -> frozenset[str]:
    """Return the names that occur as factors of products alone: w in -(w.detach() * x).mean().

    >>> sorted(list_factors(ast.parse("k = a - 1 - log(a); -w.detach()*b*k + c*d.x + a*2")))
    ['b', 'c', 'd', 'k', 'w', 'x']
    """
    of_products: set[str] = set()
    elsewhere: set[str] = set()

    def visit(node: ast.AST, is_factor: bool) -> None:
        match node:
            case ast.Name(name, ast.Load()):
                (of_products if is_factor else elsewhere).add(name)
            case ast.BinOp(first, ast.Mult(), second):
                visit(first, True)
                visit(second, True)
            case ast.UnaryOp(_, operand):
                visit(operand, is_factor)
            case ast.Attribute(operand, name):
                (of_products if is_factor else elsewhere).add(name)
                visit(operand, is_factor)
            case ast.Call(_, _, keywords):
                name, operands = split_operands(node)
                is_product = name in ("multiply", "mul") and len(operands) == 2
                for number, operand in enumerate(operands):
                    is_kept = name in BOUNDS_OF_ONE or (is_factor and name in OF_FACTORS)
                    is_bounded = name in BOUNDS_OF_TWO and isinstance(operand, ast.Name)
                    visit(operand, is_product or is_bounded or (number == 0 and is_kept))
                for keyword in keywords:
                    visit(keyword.value, False)
            case ast.Compare(first, _, others):  # a mask of ratios, as ratio < 1.2
                for operand in (first, *others):
                    visit(operand, isinstance(operand, ast.Name))
            case _:
                for child in ast.iter_child_nodes(node):
                    visit(child, False)

    visit(tree, False)
    return frozenset(of_products - elsewhere)


def list_clipped(tree: ast.AST) -> frozenset[str]:
    """Return the names that are bounded from both sides.

    >>> sorted(list_clipped(ast.parse("a.clamp(0, 1) + clip(self.b, 1 - e, 1 + e) + c.clamp(min=0)")))
    ['a', 'b']
    """
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    clipped = ((call, *split_operands(call)) for call in calls)
    both = [operands[0] for call, name, operands in clipped if name in CLIPPING and len(operands) == 3]
    return frozenset(name for operand in both for name in list_chain(operand)[-1:])


def list_logged(tree: ast.AST) -> frozenset[str]:
    """Return the names that occur inside a log alone, or q if it occurs there at all.

    >>> sorted(list_logged(ast.parse("a.log() + b*log(b) + q*torch.log(q + c)")))
    ['a', 'c', 'q']
    """
    logs = [
        node for node in ast.walk(tree) if isinstance(node, ast.Call) and split_operands(node)[0] == "log"
    ]
    inside = [x.id for node in logs for part in split_operands(node)[1][:1] for x in ast.walk(part)
              if isinstance(x, ast.Name)]  # fmt: skip
    typed = [x.id for x in ast.walk(tree) if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Load)]
    return frozenset(name for name in inside if name == "q" or inside.count(name) == typed.count(name))


OF_DISTRIBUTIONS = {"log", "KL", "kl", "kl_div", "kl_divergence", "xlogy", "entropy"}


def list_distributions(tree: ast.AST) -> frozenset[str]:
    """Return the names inside functions of probabilities: a log, a divergence.

    >>> sorted(list_distributions(ast.parse("KL(P, Q) + S*(S/M).log() + x*exp(y)")))
    ['M', 'P', 'Q', 'S']
    """
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    operands = [
        x for call in calls if split_operands(call)[0] in OF_DISTRIBUTIONS for x in split_operands(call)[1]
    ]
    return frozenset(x.id for operand in operands for x in ast.walk(operand) if isinstance(x, ast.Name))


def list_multipliers_of_advantage(tree: ast.AST) -> frozenset[str]:
    """Return the names in what an advantage is multiplied by.

    >>> sorted(list_multipliers_of_advantage(ast.parse("f(b*(c - 1))*adv + beta*(d - 1)")))
    ['b', 'c', 'f']
    """
    found: set[str] = set()

    def has_advantage(names: set[str]) -> bool:
        return any(find_meaning(name) == "A" or name == "A" for name in names)

    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            left, right = (
                {x.id for x in ast.walk(side) if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Load)}
                for side in (node.left, node.right)
            )
            found |= (right if has_advantage(left) else set()) | (left if has_advantage(right) else set())
    return frozenset(found)


def list_terms(tree: ast.AST) -> frozenset[str]:
    """Return the names that are terms of sums, with or without a coefficient, that is no advantage.

    >>> sorted(list_terms(ast.parse("loss = a.mean() + c*self.b - exp(d)")))
    ['a', 'b', 'c']
    """
    terms: set[str] = set()

    def visit(node: ast.expr) -> None:
        match node:
            case ast.BinOp(left, _, right):
                visit(left)
                visit(right)
            case ast.UnaryOp(_, operand):
                visit(operand)
            case ast.Call(ast.Attribute(operand, name)) if name in REDUCING:
                visit(operand)
            case ast.Name(name) | ast.Attribute(_, name) | ast.Subscript(_, ast.Constant(str(name))):
                terms.add(name)

    for node in ast.walk(tree):
        match node:
            case ast.BinOp(left, ast.Add() | ast.Sub(), right):
                visit(left)
                visit(right)
            case ast.AugAssign(_, ast.Add() | ast.Sub(), value):
                visit(value)
    return frozenset(terms) - list_multipliers_of_advantage(tree)


def list_divisors_of_logits(tree: ast.AST) -> set[str]:
    """Return the names by which the arguments of softmax are divided, the temperatures.

    >>> list_divisors_of_logits(ast.parse("F.softmax(logits/T, -1)*x/y"))
    {'T'}
    """
    arguments = [
        operand
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and split_operands(node)[0] in ("softmax", "log_softmax")
        for operand in split_operands(node)[1]
    ]
    return {
        node.right.id
        for argument in arguments
        for node in ast.walk(argument)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) and isinstance(node.right, ast.Name)
    }


SELECTING = {"gather", "log_prob", "take_along_axis", "take_along_dim", "nll_loss", "cross_entropy"}


def list_summed_names(node: ast.expr, trees: Mapping[str, list[ast.expr]]) -> frozenset[str]:
    """Return the names whose values are summed one by one; trees: what stands for an assigned name.

    Not those in an inner sum, nor those at the drawn word.

    >>> code = ast.parse("x = probs*log(probs)*p.logits; y = (x*(old - z.sum())).sum()").body
    >>> sorted(list_summed_names(code[1].value.func.value, {"x": [code[0].value]}))
    ['old', 'p.logits', 'probs']
    """
    names: set[str] = set()
    expanded: set[str] = set()

    def visit(inner: ast.AST) -> None:
        match inner:
            case ast.Name(name) if name in trees and name not in expanded:
                expanded.add(name)
                for tree in trees[name]:
                    visit(tree)
            case ast.Name(name):
                names.add(name)
            case ast.Attribute() | ast.Subscript() if (chain := list_chain(inner)) and not has_call(inner):
                names.add(".".join(chain))
            case ast.Call():
                called, operands = split_operands(inner)
                for operand in () if called in SELECTING | REDUCING else operands:
                    visit(operand)
            case _:
                for child in ast.iter_child_nodes(inner):
                    visit(child)

    visit(node)
    return frozenset(names)


def has_call(node: ast.expr) -> bool:
    """Is there a call in it?"""
    return any(isinstance(inner, ast.Call) for inner in ast.walk(node))


def count_reductions(tree: ast.AST) -> int:
    """Return how many means and sums are in it."""
    return sum(isinstance(node, ast.Call) and split_operands(node)[0] in REDUCING for node in ast.walk(tree))


def has_mask_index(node: ast.expr) -> bool:
    """Is it of the tokens that a mask keeps, as in (x*y)[mask]?"""
    return any(isinstance(inner, ast.Subscript) and names_mask(inner.slice) for inner in ast.walk(node))


def names_mask(index: ast.expr) -> bool:
    """Is it a mask of padding, or a comparison of one?

    >>> [names_mask(ast.parse(x, mode="eval").body) for x in ("mask", "b['mask'].bool()", "mask == 1", "m")]
    [True, True, True, False]
    """
    match index:
        case ast.UnaryOp(ast.Invert(), operand):
            return any("pad" in name and is_padding_mask(name) for name in list_chain(operand)[-1:])
        case ast.Compare(ast.Name(name), [ast.NotEq() | ast.Gt()], [padding]) if is_padding_token(
            name, ast.unparse(padding)
        ):
            return True
        case ast.Compare(of, [ast.Eq()], [ast.Constant(1 | True)]) | ast.Compare(
            of, [ast.Gt() | ast.NotEq()], [ast.Constant(0)]
        ):
            return names_mask(of)
    return any(is_padding_mask(name) for name in list_chain(index)[-1:])


def is_padding_token(name: str, padding: str) -> bool:
    """Is it a comparison of tokens with the token of padding, which keeps the others?

    >>> is_padding_token("labels", "-100"), is_padding_token("seq", "pad_id"), is_padding_token("seq", "eos")
    (True, True, False)
    """
    words = {*split_words(padding)}
    is_token = bool({*split_words(name)} & (DRAWN - {"a", "act", "acts", "action", "actions"} | OF_SEQUENCES))
    return is_token and (padding in ("-100", "0") or bool(words & {"pad", "ignore", "padding"}))


def is_padding_mask(name: str) -> bool:
    """Is it a usual name of a mask of padding, and of no selection?

    >>> [is_padding_mask(x) for x in ("loss_mask", "kl_mask", "response_masks_bool", "high_entropy_mask")]
    [True, True, True, False]
    """
    words = [word for word in split_words(name) if word not in OF_TYPES]
    return name in MASKS or (words[-1:] in (["mask"], ["masks"]) and {*words[:-1]} <= OF_PADDING)


def is_new_axis(index: ast.expr) -> bool:
    """Is it None or np.newaxis?"""
    return ast.unparse(index).rpartition(".")[2] in ("None", "newaxis")


FAMILIES = {"Categorical", "Normal", "Bernoulli", "Beta", "OneHotCategorical", "MultivariateNormal",
            "Independent", "TransformedDistribution", "MultiCategorical", "DiagGaussian"}  # fmt: skip


def names_distribution(node: ast.expr) -> bool:
    """Is it a distribution that is built, as in Categorical(logits=logits)?"""
    return isinstance(node, ast.Call) and split_operands(node)[0] in FAMILIES


def is_told_by_name(name: str, value: ast.expr) -> bool:
    """Does the name of a value that cannot be read say what it is: logp of logp = get_logps(model, ids)?

    Not where the value is made of what is read itself, selects, has no gradient, or is of another policy.

    >>> codes = ("net(x)", "f(-logp)", "net(x).detach()", "ref(x)", "net(x) > 0")
    >>> [is_told_by_name("logp", ast.parse(code, mode="eval").body) for code in codes]
    [True, False, False, False, False]
    >>> is_told_by_name("logp", ast.parse("get_logps(logits, ids)", mode="eval").body)
    True
    >>> is_told_by_name("advantages", ast.parse("gae(rewards, values)", mode="eval").body)
    True
    """
    meaning = find_meaning(name) or find_logits(name) or ("log_q" if names_entropy(name) else "")
    names = list_words_typed(value)
    called = {split_operands(node)[0] for node in ast.walk(value) if isinstance(node, ast.Call)}
    own_logits = {x for x in names if find_meaning(x) is None and find_logits(x) == meaning}
    parts = {
        x.attr for x in ast.walk(value) if isinstance(x, ast.Attribute) and isinstance(x.value, ast.Call)
    }
    typed = {x.id for x in ast.walk(value) if isinstance(x, ast.Name)}
    others = names - called - own_logits - ({"logits"} & parts - typed)  # of ref_model(x).logits
    of_policies = {x for x in others if (find_meaning(x) or find_logits(x) or "").startswith("log_")}
    alike = {x for x in names - called if find_meaning(x) == meaning}
    if of_policies or alike or any(isinstance(node, ast.Compare) for node in ast.walk(value)):
        return False
    words = {word for x in names if not {*split_words(x)} & OF_DATA for word in split_words(x)}
    is_of_another = bool(words & (REFERENCE | BEHAVIOUR | OLD)) or bool({*names} & WITHOUT_GRADIENT)
    is_of_another |= forbids_gradient(value)
    return not (meaning == "log_q" and is_of_another)


def is_told_by_loop(name: str, loop: ast.stmt) -> bool:
    """Does the name of what a loop computes step by step say what it is: returns, advantages?

    >>> loop = ast.parse("for r in rewards[::-1]:\\n R = r + g*R\\n returns.insert(0, R)").body[0]
    >>> [is_told_by_loop(x, loop) for x in ("returns", "advantages", "R", "logp")]
    [True, True, False, False]
    """
    is_of_policy = any(
        (find_meaning(x) or find_logits(x) or "").startswith("log_") for x in list_words_typed(loop)
    )
    names_sum = bool({*split_words(name)} & {"returns", "return", "discounted", *ADVANTAGES})
    return find_meaning(name) in ("R", "A") and names_sum and not is_of_policy


REWARD_LETTERS = {"r", "rs", "rew", "rews"}


def list_returns_filled(loop: ast.stmt) -> list[str]:
    """Return the names that a loop over the steps, the last one first, fills with discounted sums of rewards.

    >>> codes = ("G = r + gamma*G; Gs.insert(0, G)", "G = r*G; Gs.insert(0, G)", "G = r + G; Gs.append(G)")
    >>> [list_returns_filled(ast.parse(f"for r in rewards[::-1]: {code}").body[0]) for code in codes]
    [['Gs'], [], []]
    """
    if not isinstance(loop, ast.For) or not re.search(
        r"\[::-1\]|reversed\(|-1, -1\)", ast.unparse(loop.iter)
    ):
        return []
    if any((find_meaning(x) or find_logits(x) or "").startswith("log_") for x in list_words_typed(loop)):
        return []
    is_of_rewards = any(_names_reward(x) for x in list_words_typed(loop.iter))
    steps = {*list_words_typed(loop.target)} if is_of_rewards else set()
    sums = {
        node.targets[0].id
        for node in ast.walk(loop)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        and _adds_reward(node.targets[0].id, node.value, steps)
    }  # fmt: skip
    filled: list[str] = []
    for node in ast.walk(loop):
        match node:
            case ast.Assign([ast.Subscript(ast.Name(name))], ast.Name(total)) if total in sums:
                filled.append(name)
            case ast.Call(ast.Attribute(ast.Name(name), "insert"), [ast.Constant(0), ast.Name(total)]) if (
                total in sums
            ):
                filled.append(name)
    return filled


def _names_reward(name: str) -> bool:
    return name in REWARD_LETTERS or find_meaning(name) == "R"


def _adds_reward(total: str, value: ast.expr, steps: set[str]) -> bool:
    """Is it the reward of a step, and a multiple of the sum before: r + gamma*total?"""
    if not isinstance(value, ast.BinOp) or not isinstance(value.op, ast.Add):
        return False
    parts = {total in list_words_typed(x): x for x in (value.left, value.right)}
    match parts.get(True), parts.get(False):
        case ast.BinOp(op=ast.Mult()) as multiple, ast.Subscript(value=reward):
            pass
        case ast.BinOp(op=ast.Mult()) as multiple, ast.expr() as reward:
            pass
        case _:
            return False
    names, factors = list_words_typed(reward), list_words_typed(multiple) - {total}
    is_reward = len(names) == 1 and (names <= steps or all(map(_names_reward, names)))
    return is_reward and not any(map(_names_reward, factors)) and not factors & steps


def list_names_filled(loop: ast.stmt) -> list[str]:
    """Return the names that a loop assigns, or to which it appends."""
    names = []
    for node in ast.walk(loop):
        match node:
            case ast.Name(name, ast.Store()):
                names.append(name)
            case ast.Subscript(ast.Name(name), _, ast.Store()):
                names.append(name)
            case ast.Call(ast.Attribute(ast.Name(name), "append" | "insert" | "extend")):
                names.append(name)
    return names


def list_words_typed(tree: ast.AST) -> set[str]:
    """Return the names and attributes in it."""
    typed = (getattr(node, "id", getattr(node, "attr", None)) for node in ast.walk(tree))
    return {name for name in typed if name}
