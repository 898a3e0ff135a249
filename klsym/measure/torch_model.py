"""The toy model as a module of PyTorch."""

from __future__ import annotations

from typing import Any

import torch

from klsym.measure.toy_model import Output, TableModel


class TorchModel(torch.nn.Module):
    """A causal language model over the words of a world; trainers ask its config, device and mode."""

    def __init__(self, table: TableModel) -> None:
        super().__init__()
        self.table = table
        self.config, self.device, self.dtype = table.config, torch.device("cpu"), torch.float64

    def forward(
        self, input_ids: Any, attention_mask: Any = None, labels: Any = None, **options: Any
    ) -> Output:
        """Return logits; with labels, also the mean negative log-likelihood of those but -100."""
        output = self.table.compute(input_ids, attention_mask, **options)
        if labels is None:
            return output
        logits, targets = output.logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten()
        loss = torch.nn.functional.cross_entropy(logits, targets, ignore_index=-100)
        return Output(output.logits, loss)
