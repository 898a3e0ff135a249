"""Small models in the JSON of `kernel.models`, from simple numbers on: candidates for counterexamples.

A model is a tree of rational probabilities, with values of parameters.  The seeds and the order of draws are
part of what is stored: the counterexamples of certificates are among these models.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Any

from klsym.errors import UsageError

Node = dict[str, Any]
Model = dict[str, Any]
ParametersAt = Callable[[int], dict[str, str]]  # the number of a model -> values of parameters

MODELS_TRIED = 200
# q, p, mu, u: small and readable first
SIMPLE = (
    ("1/2 1/2", "1/4 3/4", "1/3 2/3", "1 0"),
    ("1/3 2/3", "3/4 1/4", "1/2 1/2", "1 0"),
    ("1/2 1/4 1/4", "1/4 1/4 1/2", "1/3 1/3 1/3", "1 0 0"),
    ("1/2 1/4 1/4", "1/8 3/8 1/2", "2/5 2/5 1/5", "0 1 0"),
    ("1/2 1/2", "1/1000 999/1000", "1/100 99/100", "1 0"),  # beyond the usual clamps
)
FAR_RATIOS = (6, 10, 20, 50)  # log10 of the ratios beyond larger clamps: exp(13) to exp(115)
MAX_LOG_RATIO = 600  # of a log ratio in a model
FAR_FROM = 8  # the random model before which they come
PARAMETER_VALUES = ("1/3", "2", "1/2", "3")  # of parameters, in every order
BOUNDED_REWARDS = ("R", "A")  # that bounds are met on
RATIOS = ("1/2", "2", "1/5", "5", "4/5", "5/4", "1/20", "20", "1/400", "400")
KEEPS_FIRST_TOKEN = "kept"  # M is 1 at the first token
MASS = "S"  # of what a sampler keeps that is cut off


def draw_distribution(stream: random.Random, size: int, largest: int = 9) -> list[str]:
    """Return weights from 1 to `largest` over their sum.

    >>> draw_distribution(random.Random(1), 3)
    ['3/10', '1/5', '1/2']
    """
    weights = [stream.randint(1, largest) for _ in range(size)]
    return [str(Fraction(w, sum(weights))) for w in weights]


# ---------------------------------------------------------------------------- single samples
def draw_sample_models(
    parameters_at: ParametersAt,
    on_policy: bool = False,
    values_to_meet: Iterable[tuple[str, Fraction]] = (),
) -> Iterator[Model]:
    """Yield models of one sample, always the same; on-policy the row mu repeats q.

    >>> next(draw_sample_models(lambda number: {"lam": "2"}))["tree"]["p"]
    ['1/4', '3/4']

    values_to_meet: ("p", k1), ("mu", w), ("old", o), ("R", x) or ("A", x), a log ratio or a reward that some
    sample must have.
    """
    for rows in SIMPLE:
        q, p, mu, u = (row.split() for row in rows)
        yield _build_model(parameters_at(0), {"q": q, "p": p, "mu": q if on_policy else mu, "u": u}, 0)
    stream = random.Random(20250)
    for step in range(1, MODELS_TRIED):
        if step == FAR_FROM:
            yield from _generate_boundary_models(parameters_at(0), on_policy, values_to_meet)
            yield from _generate_far_models(parameters_at(0), on_policy)
        size = 3 + step % 2
        q, p, mu = (draw_distribution(stream, size) for _ in range(3))
        u = [str(int(i == step % size)) for i in range(size)]
        rows_at_step = {"q": q, "p": p, "mu": q if on_policy else mu, "u": u}
        yield _build_model(parameters_at(step), rows_at_step, step)


def _generate_boundary_models(
    parameters: dict[str, str], on_policy: bool, values_to_meet: Iterable[tuple[str, Fraction]]
) -> Iterator[Model]:
    """Yield models of two outcomes, the first with about the given log ratio, or with the given reward.

    The larger of the two densities of a log ratio is 1/2 there.
    """
    for name, ratio in values_to_meet:  # q over the density of this name
        if name in BOUNDED_REWARDS:
            q, p, mu, u = (row.split() for row in SIMPLE[1])
            rows = {"q": q, "p": p, "mu": q if on_policy else mu, "u": u}
            yield _build_model(parameters, rows, 0, at_first={name: str(ratio)})
            continue
        times = math.exp(min(abs(float(ratio)), MAX_LOG_RATIO))
        half, small = Fraction(1, 2), Fraction(1, 2) / Fraction(f"{times:.2e}")
        first = dict.fromkeys(("q", "p", "mu", "old"), small if ratio < 0 else half)
        first[name] = half if ratio < 0 else small
        q, p, mu, old = ([str(x), str(1 - x)] for x in first.values())
        rows = {"q": q, "p": p, "mu": q if on_policy else mu, "u": ["1", "0"]}
        model = _build_model(parameters, rows, 0)
        yield {**model, "tree": {**model["tree"], "old": old}} if name == "old" else model


def _generate_far_models(parameters: dict[str, str], on_policy: bool) -> Iterator[Model]:
    """Yield models with q = 1/2 where p, or mu, or both are tiny at one outcome: above all clip bounds."""
    for power in FAR_RATIOS:
        tiny, half = Fraction(1, 10**power), Fraction(1, 2)
        for p_first, mu_first in ((tiny, half), *(() if on_policy else ((half, tiny), (tiny, tiny)))):
            q, p, mu = ([str(x), str(1 - x)] for x in (half, p_first, mu_first))
            rows = {"q": q, "p": p, "mu": q if on_policy else mu, "u": ["1", "0"]}
            yield _build_model(parameters, rows, 0)


def list_uneven_models(names: Collection[str]) -> Iterator[Model]:
    """Yield models of two outcomes, one rare under q, with log ratios from about -6 to 6.

    Along u = (1, 0) the rare outcome outweighs the other one in E_q[a s^2], so any sign that `a` takes
    in that range shows in the mean.

    >>> next(list_uneven_models(("lam",)))["parameters"]
    {'lam': '1/3'}

    names: of the parameters.
    """
    number = 0
    for rare in ("1/10", "1/1000", "1/1000000"):
        for times_p in RATIOS:
            for times_mu in RATIOS:
                first = [Fraction(rare) * Fraction(ratio) for ratio in ("1", times_p, times_mu)]
                if max(first) < 1:
                    q, p, mu = ([str(x), str(1 - x)] for x in first)
                    values = {
                        name: PARAMETER_VALUES[(number + i * (1 + number // 4)) % 4]
                        for i, name in enumerate(names)
                    }
                    yield _build_model(values, {"q": q, "p": p, "mu": mu, "u": ["1", "0"]}, number)
                    number += 1


def _build_model(
    parameters: dict[str, str],
    rows: dict[str, list[str]],
    step: int,
    at_first: Mapping[str, str] | None = None,
) -> Model:
    """Build a model of single samples; at_first: rewards of the first outcome."""
    size = len(rows["q"])
    rewards = {"R": [str((3 * x + step) % 4) for x in range(size)]}
    rewards["A"] = [str((2 * x + step) % 3 - 1) for x in range(size)]
    for name, value in (at_first or {}).items():
        rewards[name][0] = value
    return build_one_node(rows, rewards, parameters)


def build_one_node(
    rows: dict[str, list[str]], rewards: dict[str, list[str]], parameters: dict[str, str]
) -> Model:
    """Build a model of single samples: a tree of one node, whose first outcome is the sample of "sample"."""
    ends = [None] * len(rows["q"])
    node = {**rows, "v": ["0"] * len(ends), "rewards": rewards, "next": ends}
    return {"tree": node, "path": [0], "parameters": {**parameters}}


def finite_model(
    q: list[Any],
    p: list[Any],
    mu: list[Any],
    u: list[Any],
    old: list[Any] | None = None,
    M: list[Any] | None = None,
    **parameters: Any,
) -> Model:
    """Return a model in JSON form, for a counterexample chosen by hand.

    >>> finite_model(q=["1/2", "1/2"], p=["1/4", "3/4"], mu=["1/2", "1/2"], u=[1, 0])["tree"]["u"]
    ['1', '0']

    q, p, mu, old: exact probabilities of the outcomes; u: a direction of the softmax logits; M: a mask.
    """
    rows = {"q": q, "p": p, "mu": mu, "u": u} | ({"old": old} if old else {})
    exact = {name: [_to_exact(x) for x in row] for name, row in rows.items()}
    masks = {"M": [_to_exact(x) for x in M]} if M else {}
    return build_one_node(exact, masks, {name: _to_exact(value) for name, value in parameters.items()})


def _to_exact(value: Any) -> str:
    if isinstance(value, int | Fraction | str):
        try:
            return str(Fraction(value))
        except (ValueError, ZeroDivisionError):
            pass
    raise UsageError(
        f"finite_model: an exact number such as 1/3 (text, int or Fraction) expected, got {value!r}"
    )


# ---------------------------------------------------------------------------- sequences
def draw_tree_models(parameters_at: ParametersAt, on_policy: bool = False) -> Iterator[Model]:
    """Yield trees: one token, then stop or another one, from simple numbers on; always the same.

    >>> model = next(draw_tree_models(lambda number: {}))
    >>> [node and len(node["next"]) for node in model["tree"]["next"]], model["path"]
    ([2, None], [0, 0])
    """
    stream = random.Random(20251)
    for step in range(MODELS_TRIED):
        last_nodes = [_draw_node(stream, on_policy, step, [None, None]) for _ in range(2)]
        following = [last_nodes[0], last_nodes[1] if step % 2 else None]
        if step % 4 == 3:
            following = [_draw_node(stream, on_policy, step, [last_nodes[0], None]), last_nodes[1]]
        tree, path = _draw_node(stream, on_policy, step, following), [0]
        while _follow_path(tree, path) is not None:
            path = [*path, 0]
        yield {"tree": tree, "path": path, "parameters": parameters_at(step)}


def _follow_path(node: Node | None, path: list[int]) -> Node | None:
    """Return the node after a path of branches; None where the sequence ends."""
    for branch in path:
        node = node and node["next"][branch]
    return node


def _draw_node(stream: random.Random, on_policy: bool, step: int, following: list[Node | None]) -> Node:
    size, largest = len(following), 2 + step // 4
    rows = {name: draw_distribution(stream, size, largest) for name in ("q", "p", "mu")}
    while rows["p"] == rows["q"]:  # where they agree k1 is 0, and much is equal by accident
        rows["p"] = draw_distribution(stream, size, largest)
    along, across = (stream.choice([("1", "0"), ("0", "1"), ("1", "-1")]) for _ in range(2))
    rewards = [str(stream.randint(0, 2)) for _ in range(size)]
    return {
        "q": rows["q"], "p": rows["p"], "mu": rows["q"] if on_policy else rows["mu"],
        "u": list(along), "v": list(across), "rewards": {"R": rewards}, "next": following,
    }  # fmt: skip


# ---------------------------------------------------------------------------- more rows
def add_rows(model: Model, row_names: Collection[str]) -> Model:
    """Add the rows old and M to a model if they are needed: old = (q + 2 p')/3, p' is p rotated by one.

    >>> model = next(draw_sample_models(lambda number: {}))
    >>> added = add_rows(model, {"o", "M"})["tree"]
    >>> added["old"], added["rewards"]["M"]
    (['2/3', '1/3'], ['1', '0'])

    row_names: o, M; KEEPS_FIRST_TOKEN: M is 1 there; MASS: M is of whole samples, with E_q[M] as parameter.
    """
    if not row_names:
        return model
    tree, parameters = _add_rows_to_node(model["tree"], row_names, 0), model["parameters"]
    if MASS in row_names:  # E_q[M]
        masses = zip(tree["q"], tree["rewards"]["M"], strict=True)
        parameters = {**parameters, MASS: str(sum(Fraction(q) * Fraction(m) for q, m in masses))}
    return {**model, "tree": tree, "parameters": parameters}


def _add_rows_to_node(node: Node, row_names: Collection[str], depth: int) -> Node:
    q, p = ([Fraction(x) for x in node[name]] for name in ("q", "p"))
    old = [str((a + 2 * b) / 3) for a, b in zip(q, [*p[1:], p[0]], strict=True)]
    mask = [1 if KEEPS_FIRST_TOKEN in row_names and not depth else (x + depth + 1) % 2 for x in range(len(q))]
    mask = [0 for _ in q] if MASS in row_names and depth else mask  # the sum over tokens is 0 or 1
    masks = {"M": list(map(str, mask))} if "M" in row_names else {}
    following = [
        next_node and _add_rows_to_node(next_node, row_names, depth + 1) for next_node in node["next"]
    ]
    rows = {**node, "rewards": {**node["rewards"], **masks}, "next": following}
    return {"old": old, **rows} if "o" in row_names else rows
