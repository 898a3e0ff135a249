"""A toy causal language model over the words of a world, with the interface of those of Hugging Face."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from klsym.measure.world import Array
from klsym.worlds.words import WordTree


@dataclass(frozen=True)
class Output:
    """What a model returns: logits [B, L, V] of the next word after each, and what trainers ask beside."""

    logits: Any
    loss: Any = None
    past_key_values: Any = None

    def __getitem__(self, index: int) -> Any:
        return (self.logits, self.past_key_values)[index]


class TableModel:
    """A causal language model over the words of a world, called as those of Hugging Face are.

    input_ids: [B, L], a prompt word and the words after it.  attention_mask: [B, L], 0 at padding on either
    side.  logits_to_keep: only so many logits at the end.

    table: of logits, one row a prefix.  rows_by_code: as `number_prefixes` gives them, a tensor.
    functions: torch or jax.numpy.
    """

    def __init__(self, tree: WordTree, table: Any, rows_by_code: Any, functions: Any) -> None:
        self.tree, self.table, self.rows_by_code, self.functions = tree, table, rows_by_code, functions
        self.config = type("Config", (), {"vocab_size": tree.vocabulary, "model_type": "toy"})()

    def __call__(self, input_ids: Any, attention_mask: Any = None, **options: Any) -> Output:
        return self.compute(input_ids, attention_mask, **options)

    def compute(
        self, input_ids: Any, attention_mask: Any = None, logits_to_keep: int = 0, **_: Any
    ) -> Output:
        """Return the logits at each place, those of the prefix that ends there."""
        xp, rows = self.functions, []
        base, size = self.tree.vocabulary + 1, len(self.rows_by_code)
        code = input_ids[:, 0] * 0
        prompt, has_started = code, code > 0
        for place in range(input_ids.shape[1]):
            ids = input_ids[:, place]
            is_word = attention_mask[:, place] > 0 if attention_mask is not None else ids == ids
            is_prompt = is_word & ~has_started
            prompt = xp.where(is_prompt, (ids - 1) % self.tree.vocabulary, prompt)
            longer = xp.where(code < size, code * base + ids + 1, code)
            code = xp.where(is_word & has_started, longer, code)
            has_started = has_started | is_word
            row = self.rows_by_code[xp.where(code < size, code, size - 1)]
            rows.append(row + prompt * len(self.tree.prefixes))
        logits = self.table[xp.stack(rows, 1)]
        return Output(logits[:, -logits_to_keep:] if logits_to_keep else logits)


def number_prefixes(tree: WordTree) -> Array:
    """Return the row of each prefix by its code in base V + 1, of digits y_s + 1; the last row for others."""
    base, prefixes = tree.vocabulary + 1, tree.prefixes
    rows = np.full(base**tree.longest, len(prefixes) - 1)
    for row, prefix in enumerate(prefixes):
        code = 0
        for word in prefix:
            code = code * base + word + 1
        rows[code] = row
    return rows
