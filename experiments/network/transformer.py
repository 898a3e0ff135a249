"""A transformer with one block in PyTorch: its next-token distributions, and sequences drawn from them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

Tensor = Any
Parameters = dict[str, Tensor]
WIDTH = 8  # of the network's vectors
SPREAD, AT_THE_END = 0.7, 0.2  # of the parameters, and of those that make the logits: no density is extreme


def network(seed: int, vocabulary: int, longest: int) -> Parameters:
    """The parameters of a transformer with one block, drawn from a normal law, in float64.

    vocabulary: number of tokens, the end included.  longest: the most tokens of a sequence.
    """
    import torch

    draw = torch.Generator().manual_seed(seed)
    shapes = {
        "token": (vocabulary + 1, WIDTH), "place": (longest, WIDTH),
        "query": (WIDTH, WIDTH), "key": (WIDTH, WIDTH), "value": (WIDTH, WIDTH),
        "up": (WIDTH, 2 * WIDTH), "down": (2 * WIDTH, WIDTH), "out": (WIDTH, vocabulary),
    }  # fmt: skip
    scale = dict.fromkeys(shapes, SPREAD) | {"out": AT_THE_END}
    return {
        name: scale[name] * torch.randn(shape, generator=draw, dtype=torch.float64)
        for name, shape in shapes.items()
    }


def next_logs(net: Parameters, tokens: Tensor) -> Tensor:
    """log q(. | y_<t) at each position t, shape (sequences, longest, vocabulary).

    tokens: shape (sequences, longest); what stands at t and behind has no effect at t.
    """
    import torch

    start = torch.full_like(tokens[:, :1], net["token"].shape[0] - 1)
    x = net["token"][torch.cat([start, tokens[:, :-1]], dim=1)] + net["place"]
    seen = (_normed(x) @ net["query"]) @ (_normed(x) @ net["key"]).transpose(1, 2) / WIDTH**0.5
    later = torch.ones(seen.shape[-2:], dtype=torch.bool).triu(1)
    x = x + seen.masked_fill(later, -torch.inf).softmax(-1) @ (_normed(x) @ net["value"])
    x = x + (_normed(x) @ net["up"]).tanh() @ net["down"]
    return (_normed(x) @ net["out"]).log_softmax(-1)


def _normed(x: Tensor) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    return centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()


def token_logs(net: Parameters, tokens: Tensor) -> Tensor:
    """log q(y_t | y_<t), shape (sequences, longest)."""
    return next_logs(net, tokens).gather(-1, tokens[..., None]).squeeze(-1)


def draw_sequences(net: Parameters, count: int, stream: Any) -> Tensor:
    """Sequences drawn token by token; behind token 0 there is no more.

    stream: a torch.Generator.  Returns shape (count, longest).
    """
    import torch

    longest = net["place"].shape[0]
    tokens = torch.zeros(count, longest, dtype=torch.long)
    going = torch.ones(count, dtype=torch.bool)
    for t in range(longest):
        chosen = torch.multinomial(next_logs(net, tokens)[:, t].exp(), 1, generator=stream).squeeze(1)
        tokens[:, t] = torch.where(going, chosen, 0)
        going &= chosen != 0
    return tokens


def mask_of(tokens: Tensor) -> Tensor:
    """1 up to the first token 0, which belongs to the sequence, and 0 behind it."""
    ended = (tokens == 0).long().cumsum(1)
    return (ended - (tokens == 0).long() == 0).double()


@contextmanager
def one_thread() -> Iterator[None]:
    """Tensors this small are faster without threads that wait for each other."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
