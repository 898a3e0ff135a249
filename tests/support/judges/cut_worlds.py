"""Worlds whose sampler is cut off: q where M = 1, over its mass there."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np

from support.oracle.losses import Node, Tree, trees
from support.oracle.slots import Slotted


@cache
def cut_samples(seed: int) -> Slotted:
    """Single samples from q where M = 1, over its mass there; S is that mass."""

    def cut(tree: Tree) -> Tree:
        q = np.exp(tree.root.logits) / np.exp(tree.root.logits).sum()
        kept = (np.arange(len(q)) % 2 == 0) * 1.0
        log_mu = np.log(q * np.where(kept > 0, 1.0, 1e-300) / (q @ kept))
        root = replace(tree.root, M=kept, log_mu=log_mu)
        return replace(tree, root=root, parameters={"S": float(q @ kept)})

    return Slotted([cut(tree) for size in (2, 3, 5) for tree in trees(seed + size, ((),) * size, 3)],
                   ("off-policy",))  # fmt: skip


@cache
def cut_trees(seed: int, keeps_all: bool = False) -> Slotted:
    """Trees of tokens, sampled from q where M = 1, over its mass there, at each prefix."""

    def cut(at: Node) -> Node:
        kept = np.ones(len(at.logits)) if keeps_all else (np.arange(len(at.logits)) % 2 == 0) * 1.0
        weights = np.exp(at.logits) * np.where(kept > 0, 1.0, 1e-300)
        after = tuple(None if node is None else cut(node) for node in at.after)
        return replace(at, M=kept, log_mu=np.log(weights / weights.sum()), after=after)

    found = trees(seed, (((), (), ((), ())), (), ()), 4)
    return Slotted([replace(tree, root=cut(tree.root)) for tree in found], ("off-policy",), second=True)
