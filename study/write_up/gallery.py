"""Notebook 17, made from the losses of released trainers:

    python -m klsym.study.write_up.gallery notebooks/17-losses-of-trainers.ipynb

It computes the answers of a few rows, and prints the stored answers of all.

>>> [kind for kind, _ in list_cells()][:3]
['markdown', 'code', 'code']
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from klsym.files import write_whole
from klsym.study.tables.trainers import Trainer, stored, trainer

LEAD = r"""# 17. What do the losses of TRL, verl and other trainers minimise?

**Result.** The table says what each loss of a released trainer or of a paper minimises, one row per
loss. `klsym tables trainers` adds the objective of its KL term alone, and a replacement.

Each loss is written in klsym's grammar. $q$ is the trained policy, $p$ the reference, $\mu$ the policy that
sampled, $r = p/q$ and $\rho = q/\mu$. `klsym tables trainer-sources` prints the place of each line in public
code."""
FIRST = (
    """import klsym

klsym.notebook.draw_picture("trainers")""",
    'klsym.claim("clip.ppo-reward")',
)
WHOLE = """klsym.notebook.show_table("trainers", columns=("trainer", "loss", "does"))"""
# the rows that the notebook computes again, with a heading and an explanation
SHOWN = {
    "slime-reinforce-pp-baseline": (
        "## The KL of each token, subtracted from its own advantage",
        "This loss has no objective, since it omits the effect of a token on the penalties of later ones. As"
        " a reward-to-go, in the next row, the penalty is the KL of whole sequences.",
    ),
    "trl-rloo-later": (
        "## A penalty made from the sampler's log-probabilities",
        "From the second step on, $\\log\\mu - \\log p$ is a reward that does not depend on $\\theta$. The"
        " penalty is the KL to the reference minus the KL to the sampler, so it weakens as $q$ moves away"
        " from $\\mu$. With `k1` in its place it is the KL to the reference.",
    ),
    "trl-dr-grpo": (
        "## k3 in the loss, first step",
        "On-policy, k3 has the gradient of the forward KL of each next token, at prefixes of $q$. This"
        " expected gradient has no objective, though the logged value is unbiased for the reverse KL.",
    ),
    "trl-weighted": (
        "## A token's ratio before k3",
        "Off-policy, with the ratio of the token, the penalty is the reverse KL of each next token at"
        " prefixes of $\\mu$. With `--weights prefix` it is the reverse KL of sequences.",
    ),
    "gspo-token": (
        "## The ratio of GSPO",
        "klsym proves that the detached ratio at each token, averaged over the tokens, has the same objective"
        " as the ratio of the sequence. The row above it covers the clip.",
    ),
    "prime-rl": (
        "## A KL to the sampler, in the loss",
        "The gradient of $\\log q - \\log\\mu$ is the score. With samples of $\\mu$, descent therefore raises"
        " $\\mathrm{KL}(\\mu\\,\\Vert\\,q)$.",
    ),
}
ALSO = {
    "trl-rloo-later": 'right = klsym.explain("-rho*sg(loo(R - beta*k1))", sampling="off-policy",'
    ' level="sequence")\n'
    'assert right.gradient.multiples == {"reverse-kl": "beta", "reward": "-R"}',
    "trl-weighted": 'right = klsym.explain("rho*k3", sampling="off-policy", level="token",'
    ' weights="prefix")\n'
    'assert (right.target, right.trust) == ("reverse-kl", "kernel")',
    "gspo-token": 'whole = klsym.explain("-exp(whole(log_q - log_mu)/T)*A", sampling="off-policy",'
    ' level="sequence")\n'
    "assert answer.objective.quantity.side == whole.objective.quantity.side",
}
LAST = """## What to do in code

Write the loss of a trainer in the grammar, with the policies of that step, and read the objective of each
term. `make trainers` computes the table again and checks each row by enumeration.

```console
$ klsym tables trainers --only TRL --format markdown
```

**Next.** [Notebook 18](18-distillation.ipynb) covers distillation."""


def list_cells() -> Iterator[tuple[str, str]]:
    """The cells of the notebook: "markdown" or "code", and the source."""
    yield "markdown", LEAD
    for source in FIRST:
        yield "code", source
    yield "code", WHOLE
    for id, (title, comment) in SHOWN.items():
        yield "markdown", f"{title}\n\n{_describe_place(trainer(id))}\n\n{comment}"
        yield "code", "\n".join(_write_code(trainer(id)))
    yield "markdown", LAST


def _describe_place(one: Trainer) -> str:
    return f"*{one.name}, {one.package}: {one.source}*"


def _write_code(one: Trainer) -> Iterator[str]:
    answer = stored()[one.id]
    options = "".join(f', {name}="{value}"' for name, value in one.options.items())
    yield f'loss = "{one.loss}"'
    yield f"answer = klsym.explain(loss{options})"
    yield f'assert (answer.target, answer.trust) == ("{answer["target"]}", "{answer["trust"]}")'
    if one.id in ALSO:
        yield ALSO[one.id]
    yield "print(answer)"


if __name__ == "__main__":
    import nbformat

    from klsym.study.write_up.questions import make_notebook

    write_whole(Path(sys.argv[1]), nbformat.writes(make_notebook(list_cells())) + "\n")
