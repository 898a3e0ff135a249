"""What the words of the report mean; the glossary of the site has the same list."""

GLOSSARY: tuple[tuple[str, str], ...] = (
    ("q, p, mu", "the trained policy, the reference, the behaviour policy that samples come from"),
    ("r", "p/q, always (some papers write r for q/p)"),
    ("k1, k2, k3", "log(q/p), k1²/2, r - 1 - log r; k(lam) = k1 + lam (r - 1)"),
    ("rho", "the importance weight q/sg(mu); on-policy q/sg(q), with value 1 and gradient s"),
    ("old, rho_old", "a third policy free of theta, such as the one whose ratio PPO clips; q/sg(old)"),
    ("M", "a mask: any random variable free of theta"),
    ("s", "the score function grad log q"),
    ("sg", "stop-gradient: `detach` or `stop_gradient` in code"),
    ("reverse KL", "KL(q||p) = E_q[k1] (some papers call KL(pi_ref||pi) the reverse one)"),
    ("forward KL", "KL(p||q)"),
    ("score coefficient", "c in E_q[c s], the canonical form of an expected gradient; constants drop"),
    ("control variate", "a mean-zero variable added to lower the variance, such as r - 1"),
    ("past, now, future",
     "at step t of a sequence: the sum over earlier steps, the step itself, the sum over later "
     "ones (of ratios: the product)"),
    ("self, others", "a sample of a batch, and the sum over the n - 1 others"),
    ("reward-to-go", "the sum of the rewards of a token and of all later ones"),
    ("loss, reward", "a differentiated penalty; a detached one that multiplies the score function"),
)  # fmt: skip
