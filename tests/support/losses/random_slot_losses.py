"""Random losses that sum over tokens or over the samples of a batch, reproducible from a seed and a number.

>>> generate(seed=0, number=3) == generate(seed=0, number=3)
True
"""

from __future__ import annotations

import random

from support.losses.random_losses import Case

OF_TOKENS = ("past", "now", "future", "whole", "togo", "seqmean")
OF_SAMPLES = ("others", "loo", "centred", "loo", "centred")
ATOMS = ("k1", "R", "log_q", "R - beta*k1", "1", "sg(k1)")
LOGS = ("k1", "log_q", "1", "sg(k1)", "log_q - log_mu", "log_q - log_old")
# summed as H, where nothing moves
BEYOND = ("k3", "k2", "R*k1", "A", "rho*k1", "R - beta*k3", "r", "M*k3", "rho_old*k1")
FACTORS = ("k1", "k2", "k3", "log_q", "r", "rho*k1", "sg(r)", "A", "R", "rho*k3", "rho", "sg(rho)",
           "rho_old", "sg(rho_old)*k2", "M*k1", "rho_old*M*k3")  # fmt: skip


def generate(seed: int, number: int) -> Case:
    """Loss `number` of the sequence `seed`: of tokens, of whole sequences or of batches, in turn."""
    stream = random.Random(f"slots {seed}/{number}")
    sampling, use = stream.choice(("on-policy", "off-policy")), stream.choice(("loss", "reward"))
    kind = ("token", "token", "batch", "sequence")[number % 4]
    sums, moving = OF_SAMPLES if kind == "batch" else OF_TOKENS, use == "loss"
    sums = ("whole", "seqmean") if kind == "sequence" else sums

    def summed(still: bool) -> str:
        beyond = still and kind != "sequence" and stream.random() < 0.3
        return f"{stream.choice(sums)}({stream.choice(BEYOND if beyond else ATOMS)})"

    def term() -> str:
        factor, shape = stream.choice(FACTORS), stream.randrange(6)
        if shape == 0:
            return factor
        if shape == 1:
            return f"sg({summed(still=True)})*{factor}"
        if shape == 2 and kind != "batch":
            return f"{factor}*exp({stream.choice(sums)}({stream.choice(LOGS)})/5)"
        found = summed(still=not moving)
        return found if shape == 3 else f"{found}*{factor}"

    text = " + ".join(term() for _ in range(stream.choice((1, 1, 2))))
    level = stream.choice(("sample", "sequence")) if kind == "batch" else kind
    options = {"level": level}
    if level != "sample":
        options["aggregate"] = stream.choice(("sum", "sum", "mean")) if kind != "batch" else "sum"
    if level == "token":
        options["weights"] = "token"
    return Case(text, sampling, use, **options)


def discounted(seed: int, number: int) -> Case:
    """Loss `number` of tokens with discounted sums, with and without the weight of their own token."""
    stream = random.Random(f"discounts {seed}/{number}")
    sampling, use = stream.choice(("on-policy", "off-policy")), stream.choice(("loss", "reward"))
    g = stream.choice(("9/10", "1/2", "99/100"))

    def term() -> str:
        weight = stream.choice(("", f"({g})**past(1)*"))
        found = f"disc({g}, {stream.choice((*ATOMS, 'k3', 'R - beta*k3', 'A'))})"
        factor = stream.choice(("", f"*{stream.choice(FACTORS)}"))
        if use == "reward":
            return f"{weight}{found}{factor}"
        return f"{weight}sg({found}){factor or '*log_q'}"

    text = " + ".join([term(), *([stream.choice(FACTORS)] if stream.random() < 0.3 else [])])
    aggregate = stream.choice(("sum", "sum", "mean"))
    return Case(text, sampling, use, level="token", aggregate=aggregate, weights="token")
