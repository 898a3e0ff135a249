"""Notebook 17, made from the losses of released trainers:

    python -m klsym.write_up.gallery notebooks/17-losses-of-trainers.ipynb

It settles a few of them before the reader's eyes, and shows the answers that are stored for the others.

>>> [kind for kind, _ in cells()][:3]
['markdown', 'code', 'code']
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from klsym.files import write_whole
from klsym.tables.trainers import Trainer, stored, trainer, trainers

LEAD = r"""# 17. What do the losses of released trainers do?

Code paths of released trainers and of papers, each written in klsym's grammar. What it does term by term,
what its KL term alone targets, where a bound drops the gradient, and what to write instead. $q$ is the
policy that is trained, $p$ the reference, $\mu$ the policy that sampled, $r = p/q$ and $\rho = q/\mu$; where
each line stands in public code is told by `klsym tables trainer-sources`."""
FIRST = """import klsym
from klsym.ledger.settle_claim import recall
from klsym.tables import trainers
from klsym.tables.writing.layouts import markdown

recall("clip.ppo-reward")"""
WHOLE = """from IPython.display import Markdown

table = trainers.table()
stored = trainers.stored()
assert len(stored) >= 25 and not [id for id, answer in stored.items() if answer["target"] == "open"]
Markdown(markdown(table.with_columns(("trainer", "loss", "does", "kl", "advice"))))"""
# the rows that are settled here, and what is to be seen in them
SHOWN = {
    "slime-reinforce-pp-baseline": (
        "## The KL of each token, off its own advantage",
        "A penalty that each token pays for itself alone is the gradient of no function: what a token does to"
        " later ones is left out. As a reward-to-go, one row further, it is the KL of whole sequences.",
    ),
    "trl-rloo-later": (
        "## A penalty made from the sampler's log-probabilities",
        "From the second step on, $\\log\\mu - \\log p$ is a reward like any other, free of theta: what is"
        " descended is the KL to the reference less the KL to the sampler, which lets go of the reference as"
        " far as $q$ leaves $\\mu$. With `k1` in its place it is the KL.",
    ),
    "trl-dr-grpo": (
        "## k3 in the loss, first step",
        "On-policy k3 pushes with the forward KL of each next token, along prefixes of $q$: the gradient of"
        " no function, though the value that is logged is unbiased for the reverse KL.",
    ),
    "trl-weighted": (
        "## A token's ratio before k3",
        "Off-policy the ratio of the token makes it the reverse KL of tokens under prefixes of $\\mu$, not"
        " that of sequences; `--weights prefix` makes it that.",
    ),
    "gspo-token": (
        "## The ratio of GSPO",
        "A detached ratio at each token, averaged over the tokens, has the very objective of the ratio of the"
        " sequence, proved; the clip is told by the row above it.",
    ),
    "prime-rl": (
        "## A KL to the sampler, in the loss",
        "The gradient of $\\log q - \\log\\mu$ is the score alone: under $\\mu$, descending it raises"
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
    "assert answer.implied.side == whole.implied.side",
}
CANNOT = "## What cannot be said\n\n{}"
LAST = """## What to do in code

Write the loss of a trainer in the grammar, with the policies as they are at that step, and read what each
term does; `make trainers` settles this gallery again and judges each row by enumeration.

```console
$ klsym tables trainers --only TRL --format markdown
```

**Next.** [Notebook 18](18-distillation.ipynb) asks which KL each distillation recipe descends."""


def cells() -> Iterator[tuple[str, str]]:
    """The cells of the notebook: "markdown" or "code", and the source."""
    yield "markdown", LEAD
    yield "code", FIRST
    yield "code", WHOLE
    for id, (title, said) in SHOWN.items():
        yield "markdown", f"{title}\n\n{_where(trainer(id))}\n\n{said}"
        yield "code", "\n".join(_code(trainer(id)))
    reasons = (f"- {one.name} ({one.package}): {one.cannot}" for one in trainers() if one.cannot)
    yield "markdown", CANNOT.format("\n".join(reasons))
    yield "code", "assert len([one for one in trainers.trainers() if one.cannot]) < len(stored) / 5"
    yield "markdown", LAST


def _where(one: Trainer) -> str:
    return f"*{one.name}, {one.package}: {one.source}*"


def _code(one: Trainer) -> Iterator[str]:
    answer = stored()[one.id]
    options = "".join(f', {name}="{value}"' for name, value in one.options.items())
    yield f'row, loss = "{one.id}", "{one.loss}"'
    yield f"answer = klsym.explain(loss{options})"
    yield f'assert (answer.target, answer.trust) == ("{answer["target"]}", "{answer["trust"]}")'
    yield "assert trainers.settled(trainers.trainer(row)) == stored[row]"
    if one.id in ALSO:
        yield ALSO[one.id]
    yield "print(answer)"


if __name__ == "__main__":
    import nbformat

    from klsym.write_up.questions import made

    write_whole(Path(sys.argv[1]), nbformat.writes(made(cells())) + "\n")
