"""The toy model as a module of PyTorch."""

from __future__ import annotations

from typing import Any

import torch

from klsym.measure.libraries import Library, Output, TableModel
from klsym.measure.world import Array
from klsym.worlds.words import WordTree


class TorchModel(torch.nn.Module):
    """A causal language model over the words of a world; trainers ask its config, device and mode."""

    def __init__(self, library: Library, tree: WordTree, table: Any, codes: Array) -> None:
        super().__init__()
        self.table = TableModel(library, tree, table, codes)
        self.config, self.device, self.dtype = self.table.config, torch.device("cpu"), torch.float64

    def forward(
        self, input_ids: Any, attention_mask: Any = None, labels: Any = None, **options: Any
    ) -> Output:
        """Return logits; with labels, the mean negative log-likelihood of those that are not -100, too."""
        output = self.table.compute(input_ids, attention_mask, **options)
        if labels is None:
            return output
        logits, targets = output.logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten()
        return Output(output.logits, torch.nn.functional.cross_entropy(logits, targets, ignore_index=-100))
