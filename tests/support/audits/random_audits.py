"""Random losses as the source of PyTorch functions, and the loss that each is the code of.

The loss is text in the grammar and says what is meant; the source is built beside it, from the same random
choices,
with detach and no_grad, clamps, where, expm1, in-place steps, helper functions and keyword options.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

HEAD = "import torch\n\n\ndef helper(x, *, scale=1.0):\n    return scale * x\n"
ARGUMENTS = "logp, ref_logp, old_logp, advantages, beta"


@dataclass
class Written:
    """One function: its lines, and how many names it has."""

    rng: random.Random
    lines: list[str] = field(default_factory=list)
    names: int = 0

    def store(self, code: str) -> str:
        self.names += 1
        self.lines.append(f"x{self.names} = {code}")
        return f"x{self.names}"


def random_audit(seed: int) -> tuple[str, str, str]:
    """(source of a file with the function f, the loss in the grammar, the sampling)."""
    rng = random.Random(seed)
    sampling = rng.choice(["on-policy", "off-policy"])
    written = Written(rng)
    terms = [_term(written, sampling) for _ in range(rng.choice([1, 1, 2]))]
    loss = " + ".join(text for text, _ in terms)
    result = written.store(f"({' + '.join(code for _, code in terms)}).clone()")
    if rng.random() < 0.3:
        written.lines.append(f"{result} *= 2")
        loss = f"2*({loss})"
    body = "\n".join(f"    {line}" for line in [*written.lines, f"return {result}"])
    return f"{HEAD}\n\ndef f({ARGUMENTS}):\n{body}\n", loss, sampling


def _term(written: Written, sampling: str) -> tuple[str, str]:
    text, code = _estimator(written)
    if written.rng.random() < 0.5:
        weight, weight_code = _weight(written, sampling)
        text, code = f"{weight}*({text})", f"{weight_code} * {code}"
    factor = written.rng.choice(["", "", "beta", "A", "0.5", "-1"])
    if factor:
        spelled = {"A": "advantages"}.get(factor, factor)
        text, code = f"{factor}*({text})", f"({spelled}) * ({code})"
    return text, written.store(code)


def _difference(written: Written) -> str:
    """log p - log q, in one of the ways of writing it."""
    return written.store(
        written.rng.choice(
            ["ref_logp - logp", "-(logp - ref_logp)", "torch.sub(ref_logp, logp)", "ref_logp.sub(logp)",
             "helper(ref_logp - logp)", "2 * helper(ref_logp - logp, scale=0.5)",
             "torch.neg(logp - ref_logp)"]
        )
    )  # fmt: skip


def _estimator(written: Written) -> tuple[str, str]:
    rng, d = written.rng, _difference(written)
    kind = rng.choice(["k1", "k2", "k3", "r", "clamped", "clipped value", "where", "straight", "abs"])
    if kind == "k1":
        return "k1", written.store(rng.choice([f"-{d}", f"{d}.neg()", f"torch.mul({d}, -1)"]))
    if kind == "k2":
        ways = [f"0.5 * {d} ** 2", f"{d}.square() / 2", f"torch.pow({d}, 2).div(2)", f"{d}.pow(2) * 0.5"]
        return "k2", written.store(rng.choice(ways))
    if kind == "k3":
        return "k3", _k3(written, d)
    if kind == "r":
        return "r", written.store(rng.choice([f"torch.exp({d})", f"{d}.exp()", f"torch.expm1({d}) + 1"]))
    if kind == "abs":
        return "abs(k1)", written.store(rng.choice([f"{d}.abs()", f"torch.abs({d})"]))
    if kind == "straight":
        value = _k3(written, d)
        moving = written.store(f"0.5 * {d} ** 2")
        return "k2 + sg(k3 - k2)", written.store(f"{moving} + ({value} - {moving}).detach()")
    if kind == "where":
        chosen = written.store(f"torch.where({d} > 0, {d}, torch.zeros_like({d}))")
        return "max(0, -k1)", chosen
    bound = rng.choice([2, 5])
    if kind == "clamped":
        clamped = written.store(
            rng.choice([f"{d}.clamp(-{bound}, {bound})", f"torch.clamp({d}, min=-{bound}, max={bound})",
                        f"torch.clip({d}, -{bound}, {bound})"])
        )  # fmt: skip
        return f"exp(clip(-k1, -{bound}, {bound})) - clip(-k1, -{bound}, {bound}) - 1", written.store(
            f"torch.exp({clamped}) - {clamped} - 1"
        )
    return f"min(k3, {bound})", written.store(f"{_k3(written, d)}.clamp(max={bound})")


def _k3(written: Written, d: str) -> str:
    kind = written.rng.choice(["plain", "expm1", "in place", "method"])
    if kind == "in place":
        name = written.store(f"torch.expm1({d}).clone()")
        written.lines.append(f"{name} -= {d}")
        return name
    ways = {
        "plain": f"torch.exp({d}) - {d} - 1",
        "expm1": f"torch.expm1({d}) - {d}",
        "method": f"{d}.exp().sub({d}) - 1",
    }
    return written.store(ways[kind])


def _weight(written: Written, sampling: str) -> tuple[str, str]:
    """An importance weight: attached, detached, truncated; on-policy the one of value 1."""
    rng = written.rng
    if sampling == "on-policy":
        return "rho", written.store("torch.exp(logp - logp.detach())")
    ways = ["torch.exp(logp - old_logp)", "(logp - old_logp).exp()", "1 / torch.exp(old_logp - logp)"]
    ratio = written.store(rng.choice(ways))
    kind = rng.choice(["attached", "detached", "no grad", "truncated", "truncated detached"])
    if kind == "attached":
        return "rho", ratio
    if kind == "detached":
        return "sg(rho)", written.store(rng.choice([f"{ratio}.detach()", f"{ratio}.data"]))
    if kind == "no grad":
        written.names += 1
        name = f"x{written.names}"
        written.lines += ["with torch.no_grad():", f"    {name} = (logp - old_logp).exp()"]
        return "sg(rho)", name
    if kind == "truncated":
        ways = [f"{ratio}.clamp(max=3)", f"torch.clamp({ratio}, max=3.0)"]
        return "min(rho, 3)", written.store(rng.choice(ways))
    return "sg(min(rho, 3))", written.store(f"{ratio}.detach().clamp(max=3)")
