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
    "check": ("klsym check certificates", "klsym check certificates/gradient.k1-loss.json --full"),
    # of klsym.study
    "optimum": (
        "klsym optimum k3 --beta 0.5 --rewards 1,0,-1",
        "klsym optimum k3 --beta 0.5 --rewards 1,0,0.3,-1 --level token",
    ),
    "catalogue": ("klsym catalogue", "klsym catalogue --size 3"),
    "divergence": ("klsym divergence jeffreys", "klsym divergence 'r*log(r)' --sampling off-policy"),
    "prove": ("klsym prove gradient.k1-loss", "klsym prove gradient.k1-loss --certificates certificates"),
    "claims": ("klsym claims gradient.k1-loss", "klsym claims reward --json"),
    "export": (
        "klsym export certificates --rocq checked",
        "klsym export certificates/gradient.k1-loss.json --rocq checked",
    ),
    "verify": ("klsym verify gradient.k1-loss", "klsym verify gradient.k1-loss --samples 1e6 --seed 1"),
    "figures": ("klsym figures tm-fig2", "klsym figures tm-fig2 -o figures"),
    "tables": ("klsym tables --list", "klsym tables gradients --format markdown"),
    "report": ("klsym report", "klsym report -o report"),
    "paper": ("klsym paper", "klsym paper -o paper"),
    "axioms": ("klsym axioms gradient.k1-loss", "klsym axioms value.k2-biased"),
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
