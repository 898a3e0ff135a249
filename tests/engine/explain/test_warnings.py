"""Which warnings a verdict has, by their codes, and what those say, on models."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import klsym
from klsym.render.sentences import write_sentence
from support.losses.cases import options
from support.oracle.losses import Forest, Setting, sample, samples

SAID = {  # the code of a warning, and what its sentence holds
    "vanishes": r"zero gradient at every sample",
    "zero-gradient": r"has zero expected gradient: it only adds noise",
    "value-is-not-gradient": r"the value is unbiased for KL\(q\|\|p\), but",
    "mean-zero-noise": r"changes only the variance",
    "missing-weight": r"no importance weight", "literal-weight": r"rho equals 1 but has a gradient",
    "wrong-sign": r"increases .*KL\((?!mu)|lowers (E_q|the mean of a reward)",
    "heavy-tail": r"heavy tails",
    "pushes-from-mu": r"pushes the policy away from mu: it increases KL\(mu\|\|q\)",
    "no-restoring-force": r"no restoring force at q = p", "unbounded-below": r"unbounded below",
    "pushes-away": r"pushes q away from p except where ", "boundary-dropped": r"boundary term",
    "held-weakly": r"the objective is convex in q (only where|nowhere)",
    "later-dropped": r"the effect of a token on later tokens is dropped",
    "length-rewarded": r"dividing by the length T rewards",
    "advantage-counts-once": r"A belongs to the whole sequence",
    "later-rewards-dropped": r"no token gets credit for the rewards after it",
    "counts-tokens": r"counts tokens", "prefixes-of-mu": r"its prefix still comes from mu",
    "mean-shrinks": r"shrinks by 1 - 1/n \(multiply by n/\(n - 1\)",
    "size-lost": r"removes the size of the coefficient",
    "shrink-together": r"reward and the penalty shrink together",
    "score-has-a-mean": r"the subtracted mean adds E_mu\[h\] grad KL\(mu\|\|q\)",
}  # fmt: skip
MEAN, AWAY = "value-is-not-gradient mean-zero-noise heavy-tail", "missing-weight pushes-from-mu held-weakly"
WARNED: dict[str, dict[str, str]] = {  # how a loss is used: a loss, the codes of its warnings in order
    "": {
        "k1": "zero-gradient value-is-not-gradient", "k2": "", "k3": MEAN, "k(lam)": MEAN,
        "k(-1)": "value-is-not-gradient mean-zero-noise wrong-sign heavy-tail unbounded-below",
        "-k2": "wrong-sign", "-k3": "mean-zero-noise wrong-sign heavy-tail unbounded-below",
        "sg(k1)": "vanishes value-is-not-gradient", "R": "vanishes", "beta*k2 - A*log_q": "",
        "rho*k1": "literal-weight mean-zero-noise", "rho*k2": "literal-weight pushes-away",
        "rho*k3": "literal-weight", "sg(rho)*k2": "", "sg(rho)*k3": MEAN, "k2 + log_mu": "",
        "k2 + lam*k1": "mean-zero-noise", "abs(k1)": "", "rho*abs(k1)": "literal-weight pushes-away",
        "sqrt(2)*k1": "zero-gradient", "1/rho": "zero-gradient", "A*log_q": "wrong-sign", "(A - R)*log_q": "",
        "-A*log_q": "", "-lam*k2": "wrong-sign", "(lam - 2)*k2": "wrong-sign", "lam*k2": "",
        "rho*(k1 - sg(k1))": "zero-gradient", "exp(-k2)": "", "clip(A, -1, 1)*log_q": "wrong-sign",
        "k2 - k3": "mean-zero-noise wrong-sign heavy-tail no-restoring-force pushes-away unbounded-below",
    },
    "off": {
        "k1": AWAY, "-k1": "missing-weight", "k2": "missing-weight held-weakly",
        "k3": "missing-weight pushes-from-mu heavy-tail held-weakly", "rho*k1": "mean-zero-noise",
        "rho*k3": "",
        "sg(rho)*k2": "", "sg(rho)*k1": "zero-gradient value-is-not-gradient", "sg(rho)*k3": MEAN,
        "-rho*A + beta*k3": "missing-weight pushes-from-mu heavy-tail held-weakly",
        "-rho*A + beta*rho*k3": "", "-rho*A + beta*abs(k1)": "missing-weight", "exp(-k2)": "missing-weight",
        # a truncated weight is a weight, and a mask is none
        "sg(min(rho, 2))*A*log_q": "", "sg(min(rho, 1))*k2": "", "sg(clip(rho, 1, 6/5))*k2": "",
        "sg(min(rho, alpha))*A*log_q": "", "sg(min(rho, alpha))*A*log_q - A*log_q": "missing-weight",
        "where(rho < 2, rho, 0)*A": "boundary-dropped", "max(k1, 0)": "missing-weight",
        "where(rho < 2, 1, 0)*A*log_q": "missing-weight boundary-dropped", "sg(rho)*max(k1, 0)": "",
        "clip(log_q - log_mu, -1, 1)*sg(k3)": "missing-weight",
    },
    "reward": {
        "k3": f"{MEAN} no-restoring-force pushes-away unbounded-below", "k1 + 5": "mean-zero-noise",
        "rho*k1": "",
        "R - beta*k3": "mean-zero-noise heavy-tail no-restoring-force pushes-away unbounded-below",
        "R - beta*k1": "", "r*exp(k1)": "zero-gradient",
    },
    "off reward": {
        "k1": "missing-weight held-weakly", "R - beta*k1": "missing-weight", "rho*(R - beta*k1)": "",
        "rho**2*k1": "held-weakly", "clip(k1, -1, 1)": "missing-weight", "rho*clip(k1, -1, 1)": "",
        "rho*R - beta*k1": "missing-weight held-weakly",
    },
    "token": {"k1": "zero-gradient value-is-not-gradient", "k2": "later-dropped", "rho": "zero-gradient",
              "rho*k2": "later-dropped literal-weight"},
    "off token": {"k1": "missing-weight pushes-from-mu", "rho*k3": "prefixes-of-mu later-dropped",
                  "rho": "zero-gradient", "rho*log_p": "prefixes-of-mu later-dropped",
                  "sg(rho)*log_q": "zero-gradient"},
    "off token prefix": {"rho*k3": "", "rho*k3 + beta*k1": "missing-weight"},
    "token reward": {"k1": "", "1": "counts-tokens"},
    "token reward total": {"A": "advantage-counts-once", "R": "", "A - k1": "advantage-counts-once"},
    "token reward same": {"A": "", "k1": "value-is-not-gradient later-rewards-dropped"},
    "token /T": {"k1": "length-rewarded", "rho": "literal-weight length-rewarded"},
    "off token reward": {"k1": "missing-weight", "R": "missing-weight", "rho*k1": "prefixes-of-mu"},
    "mean": {"k1": "vanishes value-is-not-gradient", "k3": "value-is-not-gradient heavy-tail mean-shrinks"},
    "loo": {"k3": "value-is-not-gradient heavy-tail"},  # the constant of 1 - r is subtracted: no noise
    "reward mean": {"k1": "mean-shrinks", "R - beta*k1": "mean-shrinks shrink-together"},
    "reward loo": {"k1": ""},
    "off reward loo": {"rho*k1": "value-is-not-gradient score-has-a-mean"},
    "reward std": {"k1": "size-lost"},
    "sequence /T": {"k1": "length-rewarded", "R": "vanishes"},
}  # fmt: skip
ROWS = [(words, loss, codes) for words, rows in WARNED.items() for loss, codes in rows.items()]


@pytest.mark.parametrize(("words", "loss", "codes"), ROWS)
@pytest.mark.share(3)
def test_warnings(words: str, loss: str, codes: str) -> None:
    messages = klsym.explain(loss, **{"sampling": "on-policy", **options(words)}).messages
    assert [message.code for message in messages] == codes.split()
    for message in messages:
        assert re.search(SAID[message.code], write_sentence(message)), write_sentence(message)


# what the sentences name: a term, a condition, what to do instead
SENTENCES: list[tuple[str, str, str]] = [
    ("off", "-rho*A + beta*k3", r"for beta\*\(1 - r\) in the gradient"),
    ("off", "rho*R + clip(k3, -10, 10)", r"for the gradient of clip\(k3, -10, 10\)"),
    ("off token prefix", "rho*k3 + beta*k1", r"sequences come from mu.* for beta in the gradient"),
    ("off token reward", "rho*k1", r"choose weights prefix"),
    ("off token", "rho*k3", r"choose weights prefix"),
    ("off token", "exp(log_q - log_mu)*k3", r"multiply by exp\(past\(log_q - log_mu\)\)"),
    ("token /T", "k1", r"rewards long outputs: it lowers E_q.1/T"), ("token /T", "-k1",
    r"rewards short outputs: it raises E_q.1/T"),
    ("token /T", "(beta - 2)*k1", r"where beta - 2 < 0 it rewards short outputs: it raises E_q.1/T"),
    ("token reward", "lam - 1", r"it lengthens sequences .but where lam - 1 < 0 it shortens sequences"),
    ("token reward", "1", r"a constant at each token counts tokens: ascending it lengthens sequences"),
    ("off", "rho*loo(R - k1)", r"put sg\(..\) around a baseline"),
    ("reward std", "R - beta*k1", r"whatever their weight"),
    ("", "full(M*k1)/full(M) - log(full(M)) + log(full(M*r))", r"their mass does not matter either"),
    *(("token", loss, r"the mask leaves words out") for loss in ("full(M*k1)", "full(-M*k1*r)")),
    ("", "clip(rho, 1, 2)*A", r"every sample lies on a tie.*PyTorch up to 2.13"),
    *(("off", loss, "a term of the objective, minimised alone, ") for loss in ("k2 + k1", "rho*k3 + k1")),
    *(("", loss, "a term of the objective, minimised alone, ") for loss in ("R*log_q - k2", "k2 - k3")),
    ("", "A*log_q + clip(k1, -1, 1)*log_q", r"a term of the objective, minimised alone, lowers E_q.A.$"),
    ("", "(lam - 1)*A*log_q", r"descending this loss lowers E_q.A. where 1 - lam < 0$"),
    ("", "log(2)*A*log_q", r"descending this loss lowers E_q.A.$"),
    ("", "lam*clip(A, -1, 1)*log_q", r"descending this loss lowers the mean of .* where lam > 0$"),
    ("", "k2 + max(A, 0)*log_q", r"a term of the objective, minimised alone, lowers the mean of a"),
    ("off reward", "r**lam", "r = p/q is unbounded"), ("token reward", "seqmean(k3)", "r = p/q is unbounded"),
    ("off token", "sg(rho)*k3", r"rho\*r = p/mu is unbounded"),
]  # fmt: skip
NOT_WARNED_OF: list[tuple[str, str, str]] = [  # neighbours of which it is not said
    ("off", "rho*sg(loo(R - k1))", r"put sg\("), ("reward std", "k1", "weight is lost"),
    ("token", "full(M*k3)", "left out"), ("token", "full(k1)", "left out"), ("off token", "rho",
    "weights prefix"),
    ("off token whole", "rho*k3", "weights prefix"), ("off token", "rho*k3", "is unbounded"),
    *(("off", loss, "descending this loss") for loss in ("k2 + k1", "rho*k3 + k1", "k3 + 2*k1", "k3")),
    *(("", loss, "descending this loss") for loss in ("R*log_q - k2", "R*log_q - k2/10", "k2 - k3")),
    ("off", "min(k2, 1/9)/2 + rho*A", "descending this loss"),
    *(("", f"({of})*log_q", "descending this loss") for of in ("A + clip(k1, -1, 1)", "k1 + max(A, 0)")),
    ("", "where(R < 1/3, A, 1)*k1", "nowhere negative"),  # R moves it, too
    ("", "clip(rho, 0.8, 1.2)*A", "a tie"), ("", "normalised(R)", "recurrence"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "loss", "said"), SENTENCES)
def test_what_a_warning_names(words: str, loss: str, said: str) -> None:
    assert re.search(said, warned(loss, options(words)))


@pytest.mark.parametrize(("words", "loss", "unsaid"), NOT_WARNED_OF)
def test_what_no_warning_names(words: str, loss: str, unsaid: str) -> None:
    assert not re.search(unsaid, warned(loss, options(words)))


def warned(loss: str, given: dict[str, Any]) -> str:
    return "\n".join(klsym.explain(loss, **{"sampling": "on-policy", **given}).warnings)


# ---------------------------------------------------------------------------- on models: the wrong way
WRONG_WAYS: list[tuple[str, str, str]] = [  # loss, what it may move the wrong way, where ("1": everywhere)
    ("-lam*k2", "increases KL(q||p)", "lam"),
    ("(lam - 2)*k2", "increases KL(q||p)", "2 - lam"),
    ("-exp(lam)*k2", "increases KL(q||p)", "1"),
    ("k2 - 2*lam*k3", "increases KL(p||q)", "lam"),
    ("(sqrt(2) - lam)*k2", "increases KL(q||p)", "lam - sqrt(2)"),
    ("A*log_q", "lowers E_q[A]", "1"),
    ("lam*A*log_q", "lowers E_q[A]", "lam"),
    ("rho*A*(1 - lam)", "lowers E_q[A]", "1 - lam"),
    ("log_q*exp(A)", "lowers E_q[exp(A)]", "1"),
]


@pytest.mark.parametrize(("loss", "words", "where"), WRONG_WAYS)
@pytest.mark.parametrize("size", [-3.0, 0.5, 1.5, 3.0])
def test_where_a_loss_moves_the_wrong_way(loss: str, words: str, where: str, size: float) -> None:
    """The multiple of grad KL, or of -grad E_q[h], is negative exactly where the warning says so."""
    [told] = [line for line in klsym.explain(loss).warnings if words in line]
    worlds = Forest([replace(tree, parameters={"lam": size}) for tree in samples(3, copies=2)])
    moved = {"KL(q||p)": worlds.slope("k1").a, "KL(p||q)": worlds.slope("-k1", "p").a}
    name = words.split()[-1]
    wanted = moved[name] if name in moved else -worlds.slope(name[4:-1]).a
    others = moved["KL(q||p)"] if loss.startswith("k2 -") else 0
    multiple = ((worlds.field(loss).a - others) * wanted).sum(axis=(0, 1))
    names = {"lam": size, "sqrt": np.sqrt}
    wrong = eval(where, {}, names) > 0
    assert ((multiple < 0) == wrong).all()
    condition = re.search(r" where (.*) ([<>]) 0$", told)
    assert eval(f"{condition[1]} {condition[2]} 0", {}, names) == wrong if condition else where == "1"


WITH_BOUNDS = ["clip(A, -1, 1)*log_q", "max(min(rho*A, clip(rho, 0.8, 1.2)*A), 3*A)", "max(A, 0)*log_q",
               "where(A > 0, 2*A, A)*k1", "log(2)*clip(A, 0, 1)*log_q", "max(4/5*A, 6/5*A)*k1"]  # fmt: skip
EITHER_WAY = ["abs(A)*log_q", "-clip(A, -1, 1)*log_q", "(clip(A, -1, 1) + log(1 + exp(-3*A)))*log_q",
              "A*log(1 + exp(A))*log_q", "max(A, -2*A)*log_q", "-max(4/5*A, 6/5*A)*k1"]  # fmt: skip


@pytest.mark.parametrize("loss", [*WITH_BOUNDS, *EITHER_WAY])
def test_a_reward_that_is_said_to_fall_never_falls_in_a(loss: str) -> None:
    """The coefficient of s at values of A: its differences between the bounds are >= 0, and not all are 0."""
    grid = np.linspace(-3, 3, 120)  # no bound is in it
    worlds = [sample([0.4, 0.6], [0.5, 0.5], [0.3, 0.7], [1.0, 0.5], [a, 0.5]) for a in grid]
    found = [float(Forest([world]).coefficient(loss, Setting()).value[0]) for world in worlds]
    steps = np.diff(found)
    rises = bool((steps > -1e-9).all() and (steps > 1e-6).any())
    assert rises == (loss in WITH_BOUNDS)
    assert ("slope in A is nowhere negative" in warned(loss, {})) == rises


KL = {"KL(q||p)": ("k1", "q"), "KL(p||q)": ("-k1", "p"), "KL(mu||q)": ("-w", "mu")}
WHOLE = [("k1", "off"), ("log_q", "off"), ("-k2", ""), ("-3*k3", ""), ("R - k2", ""), ("-rho*k3", "off"),
         ("rho*r*k1", "off"), ("-sg(rho)*k3", "off")]  # fmt: skip


def ascent(loss: str, name: str, sampling: str) -> np.ndarray:
    """How fast a divergence rises as the loss is descended, in each world."""
    text, measure = KL[name]
    where = Forest(samples(seed=3, copies=12), (sampling,))
    return -(where.field(loss, Setting(sampling)).a * where.slope(text, measure).a).sum(axis=(0, 1))


@pytest.mark.parametrize(("loss", "words"), WHOLE)
def test_descending_the_whole_loss_does_what_is_said(loss: str, words: str) -> None:
    """d KL/dt = -(grad KL).(expected gradient) >= 0 in every world."""
    found = re.search(r"descending this loss .*increases (KL\(\w+\|\|\w+\))", warned(loss, options(words)))
    assert found
    assert (ascent(loss, found[1], options(words).get("sampling", "on-policy")) > -1e-12).all()


def test_k3_off_policy_often_draws_q_to_mu() -> None:
    """What was said of it is false in some worlds, and true in others."""
    found = ascent("k3", "KL(mu||q)", "off-policy")
    assert (found < -1e-3).any() and (found > 1e-3).any()


@pytest.mark.parametrize(
    "loss", ["rho", "1/rho", "rho*(k1 - sg(k1))", "rho + k2", "rho*k1", "k2/rho", "rho*A"]
)
def test_the_literal_1_is_warned_of_where_it_gives_another_gradient(loss: str) -> None:
    worlds = Forest(samples(5, copies=1))
    one, other = (worlds.field(text).a for text in (loss, loss.replace("rho", "(1 + 0*rho)")))
    assert ("not 1" in warned(loss, {})) == (np.abs(one - other).max() > 1e-9)


# ---------------------------------------------------------------------------- on models: the ratio that grows
TAILS = [
    ("k3", "", "r"), ("k3", "off", "r"), ("sg(rho)*k3", "off", "rho*r"), ("rho*r*k1", "off", "rho*r"),
    ("r", "off", "r"), ("rho*r", "off reward", "rho*r"), ("rho*r", "reward", "r"), ("rho*r**2", "off", "r"),
    ("rho**2*r", "off reward", "rho*r"), ("rho*k3", "off", ""), ("k2", "", ""), ("exp(-k2)", "off", ""),
    ("r*exp(k1)", "reward", ""), ("r**2", "off reward", "r"),
]  # fmt: skip


@pytest.mark.parametrize(("loss", "words", "ratio"), TAILS)
def test_the_ratio_that_is_named_is_the_one_that_grows(loss: str, words: str, ratio: str) -> None:
    """r as q goes to 0; p/mu as mu does, and not as q does."""
    text = warned(loss, options(words))
    assert ("r = p/q is unbounded" in text) == (ratio == "r")
    assert ("rho*r = p/mu is unbounded" in text) == (ratio == "rho*r")
    assert (pushed(loss, words, q=1e-9) > 1e6) == (ratio == "r")
    assert pushed(loss, words, mu=1e-9) > 1e6 or "off" not in words or ratio != "rho*r"


def pushed(loss: str, words: str, q: float = 0.4, mu: float = 0.3) -> float:
    """|h| at an outcome with these probabilities and p = 1/2."""
    setting = Setting(**{"sampling": "on-policy", **options(words)})
    world = sample([q, 1 - q], [0.5, 0.5], [mu, 1 - mu], [1.0, 0.5], [1.0, 0.5])
    return abs(float(Forest([world], (setting.sampling,)).coefficient(loss, setting).value[0]))


# ---------------------------------------------------------------------------- noise, or nothing at all
NOTHING = [
    ("sg(k1)", ""), ("log_q - log_mu", "reward"), ("(log_q - log_mu)**2", ""), ("min(rho, 1) - 1", "reward"),
    ("(log_q - log_mu)*k1 - sg(k1)*log_q", ""), ("loo(1)*log_q", ""), ("centred(1)*log_q", ""),
    ("1", "reward mean"), ("full(1)", ""), ("full(1)", "token"), ("log_q - log_mu", "token reward same"),
]  # fmt: skip
NOISE = [("k1", ""), ("rho", "off"), ("3", "reward"), ("loo(1)*log_q + log_q", ""), ("full(k1)", "reward"),
         ("log_q", "token")]  # fmt: skip


@pytest.mark.parametrize(("loss", "words"), [*NOTHING, *NOISE, ("full(sg(k1))*log_q", "")])
def test_what_is_identically_zero_adds_no_noise(loss: str, words: str) -> None:
    verdict = klsym.explain(loss, **{"sampling": "on-policy", **options(words)})
    codes = [message.code for message in verdict.messages]
    assert ("vanishes" in codes) == ((loss, words) in NOTHING)
    assert ("zero-gradient" in codes) == ((loss, words) in NOISE)
