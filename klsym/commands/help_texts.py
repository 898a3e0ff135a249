"""What `klsym` prints alone, and the two commands that each --help begins with."""

from __future__ import annotations

EXAMPLES: dict[str, tuple[str, str]] = {
    "": ("klsym explain grpo", "klsym recommend --target reverse-kl"),
    "explain": ("klsym explain grpo", "klsym explain k3 --sampling off-policy"),
    "compare": ("klsym compare k2 k3", "klsym compare 'rho*k1' 'rho*k3' --sampling off-policy"),
    "recommend": (
        "klsym recommend --target reverse-kl",
        "klsym recommend --target reverse-kl --sampling off-policy --framework jax",
    ),
    "audit": ("klsym audit loss.py:loss", "klsym audit --scan ."),
    "measure": ("klsym measure loss.py:loss", "klsym measure loss.py:loss --sampling off-policy"),
    "rule": ("klsym rule KL004", "klsym rule missing-weight"),
    "rules": ("klsym rules", "klsym rules --json"),
    "examples": ("klsym examples", "klsym examples grpo"),
}  # fmt: skip
TASKS = (
    ("What does a trainer's loss optimise?", "klsym explain grpo"),
    ("What does my formula optimise?", "klsym explain '-A*log_q + 0.04*k3' --sampling off-policy"),
    ("Which of two losses is better?", "klsym compare k2 k3"),
    ("What should I write for a KL penalty?", "klsym recommend --target reverse-kl"),
    ("What does my code optimise?", "klsym audit loss.py:loss"),
    ("What does a warning mean?", "klsym rule KL004"),
)
MORE = "klsym examples (losses with names), klsym measure, klsym rules, klsym check, klsym --help"


def format_overview() -> str:
    """Return one command for each of six tasks.

    >>> print(format_overview().splitlines()[1])
    What does a trainer's loss optimise?
    """
    lines = ["klsym proves what a KL penalty or a policy loss really optimises."]
    for question, command in TASKS:
        lines += [question, f"    {command}"]
    return "\n".join([*lines, f"more: {MORE}"])


def format_examples(command: str) -> str:
    """Return the lines that the help of a command begins with; "" for a command without any."""
    return "".join(f"  {line}\n" for line in EXAMPLES.get(command, ()))
