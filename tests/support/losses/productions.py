"""The productions of random losses: {name} is replaced by one of its own, each as likely as the others.

A name is looked up with the sampling and the use of the loss, with its level, and alone; {name#} stands for
the same text at each of its places.  A production that is written several times is so much likelier.
"""

from __future__ import annotations

from itertools import product

# Pieces by what their expected gradient is a multiple of ("ratio": another function of r alone).
PIECES = {
    "reverse on-policy loss": (
        "k2", "rho*k1", "rho*k3", "sg(rho)*k2", "sg(k1)*log_q", "k2 - sg(k2)", "sg(k1)*k1", "rho*sg(k1)",
        "sg(k3) + k2 - sg(k2)", "rho*k(lam)-lam*sg(rho)*k3-lam*rho*sg(r)",
    ),
    "forward on-policy loss": (
        "k3", "r", "sg(rho)*k3", "-sg(r)*log_q", "-sg(r)*k1", "rho*k3 - k2 + k3 - sg(k3)", "k(1)",
        "-rho*sg(r)", "sg(k1) + k3", "k3 - sg(k3)",
    ),
    "zero on-policy loss": (
        "k1", "log_q", "rho", "sg({loose2})", "log_p", "log_mu", "rho - sg(rho)", "rho*r", "1", "sg(rho)*k1",
        "({loose2#}) - ({loose2#})", "log_p*R",
    ),
    "reward on-policy loss": ("R*log_q", "rho*R", "rho*A", "A*k1", "R*A*log_q", "sg(A)*k1", "rho*R**2"),
    "ratio on-policy loss": ("rho*k2", "k2**2", "r**2", "r*k1", "k3**2", "k2*sg(r)"),
    "reverse on-policy reward": (
        "k1", "rho*k1", "log_q - log_p", "-log(r)", "k3 - r", "sg(k1)*rho", "log_mu - log_p",
    ),
    "forward on-policy reward": ("-r", "1 - r", "-rho*r", "k1 - k3", "-sg(r)", "-r*rho**2"),
    "zero on-policy reward": (
        "1", "rho", "({loose2#}) - sg({loose2#})", "sg(rho)*3", "rho - 1", "log_q - log_mu", "log(rho)",
        "beta",
    ),
    "reward on-policy reward": ("R", "A", "rho*R", "A*R", "A - 1", "sg(rho)*A", "R**2"),
    "ratio on-policy reward": ("k2", "r*k1", "r**2", "1/r", "rho*k1**2", "k3*sg(r)"),
    "reverse off-policy loss": (
        "rho*k1", "rho*k3", "sg(rho)*k2", "sg(rho*k1)*log_q", "rho*k3 - sg(rho*k3)", "rho*sg(k1)",
        "sg(rho)*k1*sg(k1)", "rho*sg(k3) - sg(rho)*k3 + rho*(1 - sg(r))",
    ),
    "forward off-policy loss": (
        "sg(rho)*k3", "sg(rho)*r", "-rho*sg(r)", "-sg(rho*r)*k1", "rho*k1 + sg(rho)*(r - k2)", "sg(rho)*k(1)",
        "sg(rho)*(k3 - sg(k3))",
    ),
    "zero off-policy loss": (
        "rho", "sg(rho)*k1", "sg(rho)*log_q", "sg({loose2})", "log_p", "log_mu", "rho*r", "2",
        "rho - sg(rho)",
        "({loose2#}) - ({loose2#})", "R*log_mu", "sg(rho)*(log_q - log_mu)",
    ),
    "reward off-policy loss": ("rho*R", "rho*A", "sg(rho)*R*log_q", "rho*R*A", "sg(rho*A)*k1", "rho*A**2"),
    "ratio off-policy loss": (
        "rho*k2", "sg(rho)*k2**2", "rho*r**2", "sg(rho)*r*k1", "rho*sg(k3)**2", "sg(rho)*k3*k1",
    ),
    "reverse off-policy reward": (
        "rho*k1", "rho*(log_q - log_p)", "rho*k3 - rho*r", "sg(rho)*k1", "-rho*log(r)",
    ),
    "forward off-policy reward": (
        "-rho*r", "rho*(1 - r)", "rho*k1 - rho*k3", "-sg(rho)*r", "-exp(log_p - log_mu)",
    ),
    "zero off-policy reward": (
        "rho", "sg(rho)", "({loose2#}) - sg({loose2#})", "3*rho", "rho*r*exp(k1)", "beta*rho",
    ),
    "reward off-policy reward": ("rho*R", "rho*A", "sg(rho)*R", "rho*R*A", "rho*(A - 1)", "rho*R**2"),
    "ratio off-policy reward": ("rho*k2", "rho*r*k1", "sg(rho)*r**2", "rho/r", "rho*k2**2", "rho*k3*sg(r)"),
}  # fmt: skip

CORE = {
    "number": ("2", "3", "5", "1/2", "1/3", "2/5", "3/4", "0.1", "1.5", "7/3"),
    "times": (*("",) * 4, "-1*", "-1*", "2*", "-3*", "1/2*", "-1/2*", "2/3*", "0.25*", "lam*", "-beta*",
        "lam*beta*"),
    "atom": ("k1", "k2", "k3", "r", "rho", "log_q"),
    "rare": ("1/r", "1/rho", "log_p", "log_mu", "log(rho)", "sqrt(r)", "r**lam", "exp(k1/2)", "exp(R/3)",
        "k(lam)"),
    "leaf": (*("{atom}",) * 6, "{number}", "R", "A", "{rare}"),
    # by degree, so that r**4 stays small on the models of the oracle
    "loose2": ("{leaf}", "{leaf}", "({loose2} + {loose2})", "({loose2} - {loose2})", "{leaf}*{leaf}",
        "({leaf})**2",
               "sg({loose2})", "{number}*{loose2}"),
    "loose4": ("{leaf}", "({loose4} + {loose4})", "({loose4} - {loose4})", "{loose2}*{loose2}",
        "({loose2})**2",
               "sg({loose4})", "{number}*{loose4}"),
    "kl": ("{reverse}", "{reverse}", "{reverse}", "{forward}", "{forward}", "{reward}"),
    "scaled": ("{times}({kl})",),
    "noise": ("{times}({zero})",),
    "built": ("{scaled}", "{scaled}", "{scaled} + {scaled}", "{scaled} + {scaled}", "{scaled} + {noise}",
              "{noise} + {scaled} + {noise}", "{noise}", "{noise}", "{noise} + {noise}",
              "{times}({ratio}) + {scaled}"),
    "spoiled": ("rho*({built})", "sg(rho)*({built})", "({built})*{loose2}", "{built} + {loose2}",
        "{built} + k1**3/6",
                "{built} - R*k1/2", "{built} + sg({loose2})*k1", "{built}", "{built}"),
    "core": ("{loose4}", "{built}", "{built}", "{built}", "{spoiled}"),
    "smooth": (
        "log(1 + r)", "1/(1 + r)", "sqrt(1 + k1**2)", "log(1 + k2)", "k1/(2 + r)", "exp(-k2)",
        "log(2 + k3)*rho",
        "sqrt(1 + r)*sg(k1)", "rho*k1/(1 + r)", "k2/(1 + beta) + sqrt(2)*k3", "rho*log(1 + exp(R))",
        "1/(lam + k2)",
    ),
    "outside": ("{kinks}", "{kinks}", "{kinks}", "{smooth}"),
    "anywhere": ("{core}",), "anywhere sample": ("{core}", "{outside}"),
    "anywhere sequence": ("{core}", "{core}", "{outside}"),
}  # fmt: skip

# x and a bound: equal at every on-policy sample, or in any case; and met with probability 0.
TIED = {
    "rho": "1", "rho*r - sg(r)": "0", "log_q - log_mu": "0", "rho*A": "A", "k1 - sg(k1)": "0", "2*rho": "2",
    "sg(k2) - k2": "0", "1/rho": "1", "k3": "sg(k3)", "r": "sg(r)", "k1 + A": "(sg(k1) + A)",
}  # fmt: skip
FREE = {
    "k1": ("-0.37", "0.21", "r - 1.3"), "k2": ("0.07", "0.11", "k3"), "k3": ("0.08", "0.12", "k1"),
    "r": ("0.83", "1.19", "2*k3"), "log_p - log_mu": ("-0.21", "0.17", "k1"), "k1 + A": ("0.17", "A"),
}  # fmt: skip
SHAPES = (
    "min({x}, {bound})", "max({x}, {bound})", "abs({x} - {bound})", "clip({x}, {bound}, {bound} + 0.45)",
    "clip({x}, {bound} - 1.3, {bound})", "clip({x}, {bound}, {bound})", "clip({bound}, {x}, {bound} + 0.3)",
    "clip({x}, {bound}, {bound} + k1)", "max(min({x}, {bound}), {bound} - 0.2)", "exp(-abs({x} - {bound}))",
    "clip(max({x}, {bound}), {bound} - 0.2, {bound} + 0.3)", "min({x}, {bound}, {bound} + k1)",
    "clip({x}, {bound} + k1, {bound})", "max({x}, {bound})*min({x}, {bound})",
)  # fmt: skip
KINKS = {
    "tied": tuple(s.format(x=x, bound=b) for s, (x, b) in product(SHAPES, TIED.items())),
    "free": tuple(s.format(x=x, bound=b) for s in SHAPES for x, bounds in FREE.items() for b in bounds),
    "kink": tuple(f"{{{of}}}{by}" for of in ("tied", "tied", "tied", "free", "free")
                  for by in ("", "", "*A", "*k1", "*rho", "*sg(k3)", "*R", "/2", "*sqrt(2)", "*(k1 + R)")),
    "smooth term": ("k2", "rho*k1", "sg(rho)*k3", "rho*A", "log_q"),
    "kinks": ("{kink}", "{kink}", "{kink} + {kink}", "{kink} + {smooth term}"),
}  # fmt: skip

# Losses as trainers release them, with a third policy, masks and random lengths.
RELEASED = {
    "surrogate": (
        "-min(rho*A, clip(rho, 0.8, 1.2)*A)", "-min(rho_old*A, clip(rho_old, 0.8, 1.28)*A)",
        "-max(min(rho*A, clip(rho, 0.8, 1.2)*A), 3*A)", "-sg(min(rho, 1.3))*A*log_q",
        "-min(exp(log_old - log_mu), 1.5)*min(rho_old*A, clip(rho_old, 0.8, 1.2)*A)", "-M*min(rho, 1.4)*A",
        "-min(rho*(A - beta*sg(k1)), clip(rho, 0.8, 1.2)*(A - beta*sg(k1)))",
    ),
    "penalty": (
        "", " + beta*k3", " + beta*rho*k3", " + 0.1*clip(k3, 0, 0.4)", " + beta*rho_old*k2", " + 0.2*M*k3",
        " + beta*sg(rho)*k2", " + 0.1*abs(k1)", " + beta*min(rho_old, 1.2)*k3", " + 0.3*sg(min(rho, 1.1))*k2",
    ),
    "of a sequence": (  # with the random length, and the ratio of GSPO
        "-min(exp(whole(log_q - log_mu)/T)*A, clip(exp(whole(log_q - log_mu)/T), 0.8, 1.2)*A)",
        "clip(k1/T, -0.2, 0.2)*rho", "T*max(rho, 1.1)*A", "max(T - 1, 0)*A*rho", "min(T, 2)*rho*k2",
        "abs(k1)/T + max(A*T, 0)*log_q",
    ),
    "masked": (
        "where(rho > 1, k1, 0)", "where(rho < 1.2, R, beta*k1)", "M*where(r > 1, k1, 0)",
        "where(rho > 0.9, 1, 0)*R", "where(k1 > 0.2, k1, 0) - R",
        "clip(rho, 0.8, 1.2)*R + where(rho > 1.2, k1, 0)",
    ),
    "mixed": ("{kinks}", "{kinks}", "{kinks}", "M*({kinks})"),
    "clamped loss": ("{surrogate}{penalty}", "{mixed}"), "clamped reward": ("{mixed}", "{mixed}", "{masked}"),
    "clamped token reward": ("{mixed}", "{masked}"),
    "clamped sequence": ("{of a sequence}", "{mixed}"),
}  # fmt: skip

# Sums over tokens or samples, by name.
SUMS = {
    "summed": (
        "past({each})", "now({each})", "future({each})", "whole({each})", "togo({each})", "seqmean({each})",
    ),
    "summed sequence": ("whole({each})", "seqmean({each})"),
    "summed sample": ("others({each})", "loo({each})", "loo({each})", "centred({each})", "centred({each})"),
    "each": ("k1", "R", "log_q", "R - beta*k1", "1", "sg(k1)"),
    "beyond": ("k3", "k2", "R*k1", "A", "rho*k1", "R - beta*k3", "r", "M*k3", "rho_old*k1"),
    "of one": ("k1", "k2", "k3", "log_q", "r", "rho*k1", "sg(r)", "A", "R", "rho*k3", "rho", "sg(rho)",
               "rho_old", "sg(rho_old)*k2", "M*k1", "rho_old*M*k3"),
    "held": ("sg({summed})", "sg({summed})", "sg(future({beyond}))", "sg(past({beyond}))"),
    "held sequence": ("sg({summed})",), "held sample": ("sg({summed})", "sg(loo({beyond}))"),
    "power": ("past", "future", "whole"), "logs": ("k1", "log_q", "1", "sg(k1)", "log_q - log_mu",
        "log_q - log_old"),
    "term": ("{of one}", "{held}*{of one}", "{of one}*exp({power}({logs})/5)", "{summed}",
        "{summed}*{of one}"),
    "term sequence": ("{of one}", "{held}*{of one}", "{of one}*exp(whole({logs})/5)", "{summed}",
        "{summed}*{of one}"),
    "term sample": ("{of one}", "{held}*{of one}", "{summed}", "{summed}*{of one}"),
    "sums": ("{term}", "{term}", "{term} + {term}"),
    "sums batch": ("{term sample}", "{term sample}", "{term sample} + {term sample}"),
    "g": ("9/10", "1/2", "99/100"),
    "paid": ("k1", "R", "log_q", "R - beta*k1", "1", "sg(k1)", "k3", "R - beta*k3", "A"),
    "discount loss": ("sg(disc({g}, {paid}))*log_q", "sg(disc({g}, {paid}))*{of one}",
                      "({g#})**past(1)*sg(disc({g#}, {paid}))*{of one}"),
    "discount reward": ("disc({g}, {paid})", "disc({g}, {paid})*{of one}",
        "({g#})**past(1)*disc({g#}, {paid})*{of one}"),
    "discounted": ("{discount}", "{discount}", "{discount} + {of one}"),
}  # fmt: skip

# Comparisons, masks, critics, and samplers that are cut off.
SHIPPED = {
    "sign": ("", "-", "2*", "beta*", "-1/3*"),
    "bounded": ("min(k3, 1)", "max(k1, -1/5)", "clip(rho, 4/5, 6/5)", "abs(k1)", "clip(r, 1/2, 2)",
        "min(R, A)"),
    "plain": ("k1", "k2", "k3", "r", "A", "R", "log_q", "rho", "1", "M"),
    "condition": ("r > 1/2", "k1 < 1/5", "k3 < 1", "A > 0", "R < 1/3", "k1 > -1 and r > 1/4", "not k2 > 1"),
    "quantity": ("{plain}", "{plain}", "{plain}", "{bounded}"),
    "factor": ("{quantity}", "{quantity}", "sg({quantity})", "where({condition}, {quantity}, {plain})"),
    "one factor": ("{sign}{factor}", "{sign}{factor}", "{sign}{factor}*{factor}"),
    "shipped sample": ("{one factor}", "{one factor}", "{one factor} + {one factor}",
                       "{one factor} + {one factor} + {one factor}"),
    "kept": ("whole(M*k2)/max(whole(M), 1)", "M*k3", "M*rho*k3", "V*k2", "where(k1 < 1/5, k2, k3)",
             "where(rho > 2, 2, rho)*A", "min(rho*A, clip(rho, 4/5, 6/5)*A)", "rho*k3", "k2", "k1", "A*log_q",
             "R*log_q", "(k3 < 1)*k1"),
    "advantage": ("disc(9/10, R)", "disc(1/2, sg(k1))", "gae(1)", "gae(0.9)", "togo(R) - V"),
    "of tokens": ("{sign}({kept})", "{sign}({kept})", "{sign}sg({kept})*log_q",
        "{sign}sg({advantage})*log_q"),
    "shipped token": ("{of tokens}", "{of tokens}", "{of tokens} + {of tokens}"),
}  # fmt: skip

# Quantities of the calculus at a token: what is summed over t, what stands before s_t, or of whole sequences.
TOKENS = {
    "t piece": (
        "now(k1)", "now(k2)", "now(k3)", "now(r)", "now(sg(k1)*k1)", "now(sg(k1)*log_q)", "now(-sg(r)*log_q)",
        "now(rho*k3)", "now(rho*k1)", "now(sg(rho)*k2)", "past(rho)*now(rho)*now(k3)", "rho*now(k3)",
        "sg(rho)*now(k2)", "past(k1)*now(log_q)", "sg(now(k1) + future(k1))*now(log_q)", "sg(k1)*now(k1)",
        "past(A)*now(k1)", "R*now(log_q)", "(now(R) + future(R))*now(log_q)", "now(rho*r)", "sg({t loose})",
        "sg(past({t loose}))*now(log_q)", "now({t loose#}) - now({t loose#})", "k1", "sg(k1)*log_q",
        "past(k1)*now(k1)", "now(k1)*past(log_q)", "past(r)*now(k3)", "future(k1)*now(rho)",
    ),
    "t piece reward": (
        "now(k1)", "-now(r)", "k1", "now({y#}) + future({y#})", "past({y#}) + now({y#}) + future({y#})",
        "{y}",
        "past({y})", "past(A)", "future({y})", "now({t loose})", "past(r)*now(k1)", "now(w) + past(w)",
        "now(R)",
        "past(length) + 1", "future(k1)*now({t loose})",
    ),
    "t piece sequence": (
        "k1", "k2", "k3", "r", "rho*k1", "rho*k3", "sg(rho)*k2", "sg(rho)*k3", "rho", "sg(k1)*log_q",
        "-sg(r)*log_q", "R*log_q", "rho*R", "rho*A", "A*k1", "sg(k1)*k1", "rho*r",
        "({t loose#}) - ({t loose#})",
        "sg({t loose})",
    ),
    "y": ("k1", "w", "R"), "t number": ("2", "3", "1/2", "1/3", "3/4", "7/3"),
    "t times": (*("",) * 6, "-1*", "-1*", "2*", "-3*", "1/2*", "-1/2*", "2/3*", "beta*", "-lam*",
          "lam*beta*"),
    "t weight": (
        *("",) * 5, "now(rho)*", "sg(now(rho))*", "past(rho)*now(rho)*", "sg(past(rho)*now(rho))*",
        "past(sg(rho))*",
        "past(sg(rho))*now(rho)*", "past(rho)*sg(now(rho))*", "rho*", "sg(rho)*",
    ),
    "t weight sequence": ("",),
    "t length": (*("",) * 7, "/length", "/length", "*length", "*past(length)", "*future(length)/length"),
    "t length sequence": (*("",) * 7, "/length", "/length", "*length"),
    "t atom": (*("k1", "k2", "k3", "r", "rho", "log_q", "w") * 2, "k1**3", "r**2", "1/rho", "log_p",
        "log_mu"),
    "t sum": ("{t atom}", "{t atom}", "{t atom} + {t number}*{t atom}", "sg({t atom})"),
    "t loose": ("{t sum}", "{t sum}", "({t sum})*({t sum})", "({t sum})**2", "sg({t sum})", "rho**2"),
    "t slot": ("now({t sum})",) * 5 + ("past({t sum})", "past({t sum})", "future({t sum})", "({t sum})"),
    "t slot sequence": ("({t sum})",),
    "t fixed": ("R", "now(R)", "past(R)", "future(R)", "A", "now(A)", "past(A)"), "t fixed sequence": ("R",
        "A"),
    "t factor": ("{t slot}", "{t slot}", "{t slot}", "sg({t slot})", "({t loose})", "{t fixed}",
        "({t number})"),
    "t product": ("{t factor}", "{t factor}*{t factor}", "{t factor}*{t factor}",
        "{t factor}*{t factor}*{t factor}"),
    "t term": ("{t times}{t weight}({t piece}){t length}",) * 3 + ("{t times}{t product}{t length}",),
    "t terms": ("{t term}", "{t term}", "{t term} + {t term}", "{t term} + {t term} + {t term}"),
    "tokens": (*("{t terms}",) * 6, "rho*({t terms})", "({t terms})*{t factor}", "({t terms})/length"),
}  # fmt: skip

# Methods of 2026: gates by a sigmoid, geometric means of clipped ratios, logs of 1 - q, exact means.
METHODS = {
    "tau": ("", "", "2*", "5*", "1/2*", "lam*"),
    "moved": ("(rho - 1)", "(rho - 1)", "(log_q - log_mu)", "k1", "(rho_old - 1)", "(-k1)",
              "(A - beta*k1)", "(rho*A)", "(log_q + 1)"),
    "gate": ("sigmoid({tau}{moved})", "sigmoid({tau}{moved})", "sg(sigmoid({tau}{moved}))",
             "logsigmoid({tau}{moved})", "(1 - sigmoid({tau}{moved}))", "4/5*sigmoid(5*(rho - 1))",
             "where(A > 0, 4*sigmoid(rho - 1), 2*sigmoid(2*(rho - 1)))"),
    "beside a gate": ("*A", "*A", "*R", "*A*log_q", "*k1", "*k3", ""),
    "gated": ("{sign}{gate}{beside a gate}", "{sign}{gate}{beside a gate}", "{sign}{gate}*sigmoid(A)*A"),
    "left": ("log(1 - exp(log_q))", "log(1 - exp(log_q))", "sg(log(1 - exp(log_q)))",
             "log(1 + 0.01 - exp(log_q))", "log(1 - exp(log_p))"),
    "beside a log": ("", "*A", "*(1 - R)", "*log_q", "*exp(log_q)", "*k1", "*rho*A"),
    "unlikely": ("{sign}{left}{beside a log}", "-R*log_q - (1 - R)*log(1 - exp(log_q))",
                 "{sign}sg(rho)*{left}*A"),
    "exact": ("full(M*k1)", "full(M*k1)", "full(M)", "full(M*r)", "full(k1)", "full(-log_q)", "full(k3)",
              "full(R)", "full(M*R)", "full(k1**2)", "full(-M*r*k1)", "full(rho*k1)"),
    "of exact": ("{exact}/full(M)", "{exact}/full(M)", "log(full(M))", "log(full(M*r))", "log(1 - full(M))",
                 "log(1 - full(M*r))", "{exact}**2", "{exact}*{exact}", "exp({exact}/5)",
                 "{exact}/(1 + full(k1**2))", "full(M*k1)/full(M) - log(full(M)) + log(full(M*r))",
                 "full(M*k1) + (1 - full(M))*(log(1 - full(M)) - log(1 - full(M*r)))",
                 "full(-M*r*k1)/full(M*r) + log(full(M)) - log(full(M*r))", "full({gate}{beside a gate})"),
    "beside exact": (*("",) * 5, "*A", "*log_q", "*k1", "*R*log_q", "*rho*A", "*M*log_q"),
    "exactly": ("{sign}({of exact}){beside exact}", "{sign}({of exact}){beside exact}",
                "{sign}sg({of exact})*log_q"),
    "geometric": ("-exp(whole(clip(log_q - log_mu, -0.2, 0.2))/T)*A",
                  "-exp(seqmean(clip(log(rho), -0.4, 0.4)))*A", "exp(seqmean(clip(log(rho), -0.1, 0.3)))*k1",
                  "-exp(seqmean(clip(log(rho), -eps, 2*eps)))*(A - beta*k1)"),
    "behind a mask": ("M*({method})", "sg(M)*({method})"),
    "method": ("{gated}", "{gated}", "{unlikely}", "{exactly}", "{exactly}"),
    "method reward": ("{gated}", "{unlikely}", "{exactly}"),
    "method batch": ("{gated}", "{gated}", "{unlikely}"),
    "method sequence": ("{gated}", "{geometric}", "{geometric}"),
    "methods": ("{method}", "{method}", "{behind a mask}", "{method}{penalty}"),
    "methods batch": ("{method batch}", "{method batch}{penalty}"),
    "methods sequence": ("{method}", "{method} + 0.1*k3", "{method} - R*log_q"),
}  # fmt: skip

# Detached functions outside the ring, beside masks: coefficients, of which no gradient counts.
DETACHED = {
    "nonlinear": ("r/(1 + r)", "1/(1 + k3)", "log(1 + r)", "k1/(2 + r)", "rho/(1 + rho)", "sqrt(1 + k2)",
                  "exp(-k2)", "(1 + rho)/(2 + r)", "log(1 + exp(k1))", "sigmoid({tau}{moved})", "abs(k1)",
                  "R/(1 + r)", "log(2 + R**2)", "1/(1 + R**2)", "log_q/(1 + k2)",
                  "clip(rho, 4/5, 6/5)/(1 + r)"),
    "kept as it is": ("sg({nonlinear})", "sg({nonlinear})", "sg({nonlinear})", "(1 - sg({nonlinear}))",
                      "sg({nonlinear}*{nonlinear})", "{nonlinear}*sg({nonlinear})"),
    "mask": ("(R > 1/3)", "(A > 0)", "M", "sg(M)", "where(rho > 6/5, 0, 1)", "where(A > 0, 1, beta)",
             "(k1 > 1/5)", "(not r > 1/2)", "where(rho < 6/5, r, k3)", "sg(where(k1 < 1/5, k2, 1))"),
    "of the policy": ("r", "log_q", "rho", "k1", "k2", "k3", "log_q", "rho*A", "clip(rho, 4/5, 6/5)",
                      "min(rho*A, clip(rho, 4/5, 6/5)*A)", "R*log_q", "1"),
    "weighed": ("{sign}{kept as it is}*{of the policy}*{mask}",
                "{sign}{kept as it is}*{of the policy}*{mask}",
                "{sign}{mask}*{of the policy}", "{sign}{kept as it is}*{of the policy}",
                "where({condition}, {kept as it is}*{of the policy}, {of the policy})"),
    "detached": ("{weighed}", "{weighed}", "{weighed} + {weighed}", "{weighed} - {weighed}"),
}  # fmt: skip

RULES: dict[str, tuple[str, ...]] = {
    **PIECES,
    **CORE,
    **KINKS,
    **RELEASED,
    **SUMS,
    **SHIPPED,
    **TOKENS,
    **METHODS,
    **DETACHED,
}

# Names written out by their definitions, and slips: what stands there, and what is written for it.
DISGUISES = {
    "k1": ("(log_q - log_p)", "(-log(r))", "(k3 + 1 - r)"),
    "k2": ("(k1**2/2)", "(0.5*k1*k1)", "((log_q - log_p)**2/2)"),
    "k3": ("(r - 1 + k1)", "(r - 1 - log(r))", "k(1)", "(exp(-k1) - 1 + k1)"),
    "r": ("exp(-k1)", "exp(log_p - log_q)", "1/exp(k1)"),
    "rho": ("exp(log_q - log_mu)",),
}  # fmt: skip
SLIPS = (("rho", "1"), ("sg(", "("))
