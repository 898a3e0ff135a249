"""Figures 1 to 6 of Tang & Munos 2025 written plainly: one repeat and one estimate after the other.

    python benchmarks/figures_loop.py [--iterations N] [--share N]

prints the processor time of this version, that of klsym.experiments.tang_munos.experiment, and their ratio.
The loop runs a share of the repeats, and its time is scaled up: every repeat is the same work.
The tests compare the numbers of both on small instances: this version takes the samples that the other one
draws, or the uniform numbers behind them, and shares no code with it.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np

ESTIMATES = ("k1 loss", "k3 loss", "vanilla", "leave-one-out")
VALUE_SIZES = [2**k for k in range(11)]
GRADIENT_SIZES = [2**k for k in range(1, 13)]


def softmax(logits):
    """Probabilities of one bandit, shape (arms,)."""
    weights = np.exp(logits - np.max(logits))
    return weights / np.sum(weights)


def divergence(a, b):
    """KL(a||b) of two distributions."""
    return float(np.sum(a * np.log(a / b)))


# ---------------------------------------------------------------------------- estimates
def value_estimate(name, samples, q, p):
    """Mean of k1, k2 or k3 over samples."""
    ratio = p[samples] / q[samples]
    return np.mean(
        {"k1": -np.log(ratio), "k2": np.log(ratio) ** 2 / 2, "k3": ratio - 1 - np.log(ratio)}[name]
    )


def scores(samples, q):
    """grad log q at each sample, shape (n, arms): e_y - q for softmax logits."""
    return np.eye(len(q))[samples] - q


def gradient_estimate(name, samples, q, p):
    """The mean of coefficient times score over samples."""
    k1 = np.log(q[samples] / p[samples])
    if name == "k1 loss":
        coefficients = np.ones(len(samples))
    elif name == "k3 loss":
        coefficients = 1 - p[samples] / q[samples]
    elif name == "vanilla":
        coefficients = k1
    else:
        coefficients = k1 - (np.sum(k1) - k1) / (len(samples) - 1)
    return np.mean(coefficients[:, None] * scores(samples, q), axis=0)


def reward_gradient(samples, q, rewards):
    """Policy gradient of E_q[R] with the mean of the other rewards as a baseline."""
    got = rewards[samples]
    advantages = got - (np.sum(got) - got) / (len(samples) - 1)
    return np.mean(advantages[:, None] * scores(samples, q), axis=0)


def exact_gradient(q, p):
    """grad KL(q||p): the sum over arms of q log(q/p) score."""
    return (q * np.log(q / p)) @ scores(np.arange(len(q)), q)


# ---------------------------------------------------------------------------- the two optima
def optimum(p, rewards, beta):
    """pi* = p exp(R/beta)/Z."""
    return softmax(np.log(p) + rewards / beta)


def reversed_optimum(p, rewards, beta):
    """pi*_rev = beta p/(nu - R), nu by bisection between max (R + beta p) and max R + beta."""
    low, high = np.max(rewards + beta * p), np.max(rewards) + beta
    for _ in range(100):
        nu = (low + high) / 2
        if np.sum(beta * p / (nu - rewards)) > 1:
            low = nu
        else:
            high = nu
    return beta * p / (high - rewards)


# ---------------------------------------------------------------------------- runs
def descend(name, start, p, rewards, beta, step, uniforms, targets, looks):
    """KL(q||target) at some iterations, for one repeat, shape (targets, looks).

    uniforms: shape (iterations, n).  looks: iterations, from 0 to the last.
    """
    logits, curves = np.array(start), [[] for _ in targets]
    for t in range(len(uniforms) + 1):
        q = softmax(logits)
        if t in looks:
            for curve, target in zip(curves, targets, strict=True):
                curve.append(divergence(q, target))
        if t < len(uniforms):
            samples = np.searchsorted(np.cumsum(q), uniforms[t])
            ascent = reward_gradient(samples, q, rewards) if np.any(rewards) else 0.0
            logits = logits + step * (ascent - beta * gradient_estimate(name, samples, q, p))
    return np.array(curves)


def ascend_exactly(kind, start, p, rewards, beta, step, iterations, targets, looks):
    """The same with the mean update of no penalty, of KL(p||q) ("forward") or of KL(q||p) ("reverse")."""
    logits, curves = np.array(start), [[] for _ in targets]
    for t in range(iterations + 1):
        q = softmax(logits)
        if t in looks:
            for curve, target in zip(curves, targets, strict=True):
                curve.append(divergence(q, target))
        if t < iterations:
            penalty = {"none": 0.0, "forward": q - p, "reverse": exact_gradient(q, p)}[kind]
            logits = logits + step * (q * (rewards - np.sum(q * rewards)) - beta * penalty)
    return np.array(curves)


# ---------------------------------------------------------------------------- the six figures
def errors(rng, repeats, arms):
    """The numbers of figures 1 and 2."""
    for _ in range(repeats):
        eps1, eps2 = rng.standard_normal((2, arms))
        p, q = softmax(eps1), softmax(eps1 + eps2)
        truth, gradient = divergence(q, p), exact_gradient(q, p)
        for n in VALUE_SIZES:
            samples = rng.choice(arms, size=n, p=q)
            for name in ("k1", "k2", "k3"):
                yield (value_estimate(name, samples, q, p) - truth) ** 2
        for n in GRADIENT_SIZES:
            samples = rng.choice(arms, size=n, p=q)
            for name in ESTIMATES:
                yield np.linalg.norm(gradient_estimate(name, samples, q, p) - gradient)


def runs(rng, repeats, arms, iterations):
    """The numbers of figures 3 to 6: half as many iterations without a reward, as in the other version."""
    for _ in range(repeats):
        eps1, eps2, rewards = rng.standard_normal((3, arms))
        p = softmax(eps1)
        targets = [optimum(p, rewards, 1.0), reversed_optimum(p, rewards, 1.0)]
        for ns, start, reward, goals, updates in (
            ((4, 16), eps1 + eps2, np.zeros(arms), [p], iterations // 2),
            ((4, 16, 64), eps1, rewards, targets, iterations),
        ):
            looks = set(np.linspace(0, updates, 150).round().astype(int).tolist())  # about as many as there
            for kind in ("none", "forward", "reverse"):
                yield ascend_exactly(kind, start, p, reward, 1.0, 1.0, updates, goals, looks)
            for n in ns:
                uniforms = rng.random((updates, n))
                for name in ESTIMATES:
                    yield descend(name, start, p, reward, 1.0, 1.0, uniforms, goals, looks)


def measure(iterations: int = 4000, share: int = 1, repeats: int = 100) -> dict[str, float]:
    """Seconds of processor time of both versions for all six figures, and the ratio.

    iterations: of figures 4 to 6; figure 3 has half as many.
    share: repeats that the loop runs; its time is multiplied by repeats/share.
    """
    from klsym.experiments.tang_munos.experiment import FIGURES

    def vectorised() -> None:
        for number, figure in FIGURES.items():
            updates = {3: {"iterations": iterations // 2}, 4: {"iterations": iterations}}
            updates |= {5: updates[4], 6: updates[4]}
            figure(repeats=repeats, **updates.get(number, {}))

    def loop() -> None:
        rng = np.random.default_rng(0)
        for _ in (*errors(rng, share, 100), *runs(rng, share, 100, iterations)):
            pass

    fast, slow = seconds(vectorised), seconds(loop) * repeats / share
    return {"vectorised": fast, "loop": slow, "ratio": slow / fast}


def seconds(action: Callable[[], None]) -> float:
    start = time.process_time()
    action()
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--iterations", type=int, default=4000, help="of figures 4 to 6 (default 4000)")
    parser.add_argument("--share", type=int, default=1, help="repeats that the loop runs (default 1 of 100)")
    chosen = parser.parse_args()
    found = measure(chosen.iterations, chosen.share)
    print("six figures, 100 repeats, seconds of processor time")
    for name in ("vectorised", "loop"):
        print(f"  {name:11} {found[name]:8.1f}")
    print(f"  ratio       {found['ratio']:8.1f}")


if __name__ == "__main__":
    main()
