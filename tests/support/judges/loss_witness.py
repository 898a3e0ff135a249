"""The judge of proofs and witnesses: certificates replay, and models refute what they are said to refute."""

from __future__ import annotations

import json
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np

from support.judges.loss_worlds import combination, constants_of, flat, in_batch, settings, which_are_kept
from support.losses.random_losses import Case
from support.oracle.losses import Forest, Node, Setting, Tree
from support.oracle.slots import Slotted

AGREE = 1e-9
NAMED = ("zero", "reverse-kl", "forward-kl", "combination")
OPEN = "open"


def proofs_replay(case: Case, answer: dict[str, Any], proofs: Any) -> Iterator[str]:
    """Each proof replays from its JSON text alone, and has the kind that the target calls for."""
    from klsym.errors import Refused
    from klsym.kernel import check

    single = case.ring and case.level == "sample" and not in_batch(case)
    if single and answer["trust"] != "kernel":
        yield f"trust {answer['trust']!r}, not 'kernel'"
    try:
        texts = [json.dumps(proof.certificate()) for proof in proofs]
        replayed = tuple(theorem for text in texts for theorem in check(_certificate(text)))
        theorems = tuple(proof.theorem.proved for proof in proofs)
    except Refused as refusal:
        yield f"proofs: {refusal}"
        return
    wanted = ("proved",) if answer["gradient"]["target"] in NAMED else ("proved", "independent")
    kinds = tuple(theorem.kind for theorem in replayed)
    if kinds == ("proved", "independent", "proved") and answer["gradient"]["objective"]:
        wanted = kinds  # what it is the gradient of, besides
    if replayed != theorems or (single and kinds != wanted) or (answer["trust"] == "kernel" and not kinds):
        yield f"proofs {kinds} for the target {answer['gradient']['target']}, {wanted} expected"


def _certificate(text: str) -> Any:
    """As the kernel reads it; a proof longer than a file may be is replayed too."""
    from klsym.kernel import read
    from klsym.kernel.replay import MAX_SIZE

    return read(text) if len(text) <= MAX_SIZE else json.loads(text)


def witness_holds(case: Case, answer: dict[str, Any]) -> Iterator[str]:
    """The witness is a model whose two sides, recomputed here, lie in the recorded enclosures."""
    witness, target = answer["witness"], answer["gradient"]["target"]
    if witness is None:
        if (
            target not in ("reverse-kl", "combination", OPEN)
            and case.level == "sample"
            and not in_batch(case)
        ):
            yield f"no witness for the target {target}"
        return
    curl = witness["refutes"].startswith("curl ")
    if not (curl or witness["refutes"].endswith("grad KL(q||p)")):
        return
    where, u, v, n = _witness_forest(witness, case, second=curl)
    setting = next((s for s in settings(case) if s.n == n), settings(case)[0])
    found = where.field(case.text, setting)
    if curl:
        jacobian = np.broadcast_to(found.ab, (where.logits, where.logits, 1))[..., 0]
        values = {"left": u @ jacobian @ v - v @ jacobian @ u, "right": 0.0}
    else:
        stated = answer["gradient"]["combination"] or {}
        reward = {name: value for name, value in stated.items() if name == "reward"}
        right = combination({**reward, "reverse-kl": "1"}, where, witness_constants(witness, case, setting))
        values = {"left": flat(found.a, where)[:, 0] @ u, "right": right[:, 0] @ u}
    for name, value in values.items():
        low, high = (float(Fraction(end)) for end in witness[name])
        if not low - AGREE * (1 + abs(low)) <= value <= high + AGREE * (1 + abs(high)):
            yield f"witness {name}: {value} recomputed, recorded [{low}, {high}]"
    if not abs(values["left"] - values["right"]) > 1e-12:
        yield "witness: the two sides are equal"


def witness_constants(witness: dict[str, Any], case: Case, setting: Setting) -> dict[str, Any]:
    given = {name: float(Fraction(value)) for name, value in witness.get("parameters", {}).items()}
    return constants_of(case, setting) | given


def _witness_forest(witness: dict[str, Any], case: Case, second: bool) -> tuple[Forest, Any, Any, int]:
    """The world of a witness and its directions; what the equation does not mention may be anything."""
    parameters = {name: float(Fraction(value)) for name, value in witness.get("parameters", {}).items()}
    u, v, A = list[float](), list[float](), list[float]()
    rewards = witness.get("rewards", {})

    def numbers(data: dict[str, Any], name: str, otherwise: Any) -> Any:
        return np.array([float(Fraction(x)) for x in data[name]]) if name in data else otherwise

    def forced(tokens: int) -> Node | None:
        """So many tokens more, each of probability 1: an outcome is a sequence of its own length."""
        if not tokens:
            return None
        u.append(0.0)
        v.append(0.0)
        zero = np.zeros(1)
        return Node(zero, zero, zero, zero, (forced(tokens - 1),), zero, zero)

    def grown(data: dict[str, Any], before: float = 0.0) -> Node:
        q = numbers(data, "q", None)
        u.extend(numbers(data, "u", 0 * q))
        v.extend(numbers(data, "v", 0 * q))
        p, mu, R = (numbers(data, name, x) for name, x in (("p", q), ("mu", q), ("R", 0 * q)))
        paid, after = numbers(data, "A", None), []  # A of a tree that has none is the sum of its rewards
        for k, then in enumerate(data.get("next", [None] * len(q))):
            if then is None:
                A.append(paid[k] if paid is not None else before + R[k])
            tokens = int(data["T"][k]) - 1 if "T" in data else 0
            after.append(forced(tokens) if then is None else grown(then, before + R[k]))
        tilted = q * np.arange(1, len(q) + 1)  # on no bound that old = q would meet
        kept = 1.0 * (np.arange(len(q)) < len(q) - 1) if which_are_kept(case.text) == "words" else 0 * q + 1
        old, M = numbers(data, "old", tilted / tilted.sum()), numbers(data, "M", kept)
        return Node(np.log(q), np.log(p), np.log(mu), R, tuple(after), np.log(old), M)

    tree = Tree(grown(witness.get("tree") or {**witness, **rewards}), A, parameters)
    return Slotted([tree], (case.sampling,), second), np.array(u), np.array(v), int(parameters.get("n", 2))
