"""What is seen in each picture of the notebooks, in words, for readers who do not see it."""

from __future__ import annotations

ALTERNATIVE_TEXTS: dict[str, str] = {
    "training": "Three curves of E_q[R] - beta KL(q||p) during training, from the same start. With k2 in the"
    " loss the curve rises to the best possible value, a dotted line, and stays. With k3 in the loss it"
    " rises, falls again and stays below that line. With k1 in the loss it falls far below its start.",
    "gaussian-estimators": "Two panels of the standard deviation over the KL. Left, against the KL of two"
    " Gaussians of one variance: the curve of k1 falls and crosses those of k2 and k3, which rise. Right,"
    " against the variance of p: the curve of k3 ends at 2, those of k1 and k2 go on.",
    "on-policy": "Two panels along the log odds of two outcomes. Left: the means of k1 and k3 lie on the"
    " curve of KL(q||p), that of k2 does not. Right: the expected gradient of k2 lies on that of KL(q||p),"
    " that of k3 on that of KL(p||q), and that of k1 is zero.",
    "off-policy": "Left: the distance of nine weighted losses from the gradient of the reverse KL, against"
    " the distance of the sampler from the policy; it is zero throughout for rho k1, rho k3 and sg(rho) k2"
    " alone. Right: a triangle of policies with the path of each loss; those three end at the optimum, the"
    " others elsewhere.",
    "variance": "Left: the squared coefficients of the gradients of rho k1 and rho k3 against r; they cross"
    " at the square root of e. Right: a parabola of the variance against the baseline; its lowest point is"
    " left of the true KL.",
    "rewards": "Three panels. Left: the logged means of k1 and k3 coincide, that of k2 is larger. Middle: the"
    " expected update of k1 in the reward is a line, that of k2 bends upwards, that of k3 is zero. Right: on"
    " two outcomes the force of k1 towards p is never negative; those of k2 and k3 turn negative.",
    "batches": "Left: the share of the penalty that is left against the batch size; 1 without centring and"
    " with leave-one-out, 1 - 1/n with the mean of the batch. Right: the variance of leave-one-out over that"
    " without centring; above 1 in small batches.",
    "sequences": "Left: a triangle of products of log ratios and scores of two tokens; a token loss keeps its"
    " diagonal, the reward-to-go all of it. Right: the mean lengths of three models rise towards the longest"
    " possible one during descent of k1 over the length.",
    "coefficients": "Score coefficients against the ratio r. Left, r below 1: that of k2 rises as a"
    " logarithm, that of k3 stays below 1. Right, r above 1: that of k3 falls without bound, its clamped"
    " form jumps to zero, and k3 as a reward rises.",
    "phase-portraits": "Six triangles of policies with lines of flow. k1 in the loss collapses to one corner."
    " k2 in the loss and k1 in the reward share one end inside, k3 in the loss has another. The other three"
    " end at corners or edges, depending on the start.",
    "catalogue": "Left: counts of expressions, losses, gradients and expected gradients against the size, on"
    " a log axis; expressions grow fastest. Middle: how many losses have each target. Right: parabolas of"
    " the excess variance, one for each constant, each lowest elsewhere.",
    "token-ends": "Left: the probabilities of four sequences under the reference and at the ends of three"
    " penalties, which differ. Right: how far E_q[R] - beta KL(q||p) is below its largest value, against"
    " beta: zero for k1 to-go, more for token k2 in the loss, most for token k3 in the loss.",
    "distillation": "Left: the strength of the Jensen-Shannon divergence against its weight, a parabola far"
    " below the line of either KL. Right: during descent the reverse KL over six of twelve words moves away"
    " from the teacher; with a bucket for the others, or with k3, it stays.",
    "masks": "Three panels. Left, good samples: PPO's clip drops ratios above 1.2, a truncated weight falls"
    " slowly, a mask drops both ends. Middle, bad samples: the clip drops ratios below 0.8. Right: bars of"
    " fourteen words, of which a top-p sampler draws five, each more often than the policy.",
    "errata": "One line for each refuted printed form, from its left side to its right side in a model; no"
    " two ends coincide.",
    "network": "Points of predicted against differentiated gradients of eleven losses: all lie on the"
    " diagonal.",
    "survey": "Bars: how many KL terms in released losses follow the forward KL, the reverse KL, nothing, or"
    " something else. The forward KL has the longest bar.",
    "trainers": "Bars: how many whole losses of trainers minimise their own mean, a sum of named objectives,"
    " another objective, or none. The longest bar is that of their own mean.",
    "questions": "Bars: what the losses minimise that people asked about in public threads; a bar for each"
    " kind of answer.",
    "measured": "Bars, one a trainer: how many of its measured settings have an objective, and how many have"
    " none.",
    "tm-fig1": "The squared error of the mean of n samples against n, on log axes: k1 and k3 fall as"
    " straight lines, k2 levels off.",
    "tm-fig2": "The squared error of four estimates of the gradient against n: those of the k1 and k3 losses"
    " level off, those of vanilla and leave-one-out keep falling.",
    "tm-fig3": "The divergence during descent, in panels of n: vanilla and leave-one-out lower it, the k1"
    " loss raises it.",
    "tm-fig4": "The distance from the optimum during training with a reward, in panels of n: leave-one-out"
    " approaches it, vanilla levels off, the k1 and k3 losses stay away.",
    "tm-fig5": "The distance from the optimum at the end of training against n: the levels of the k1 and k3"
    " losses do not change, that of vanilla falls.",
    "tm-fig6": "The distance of the k3 loss from two optima against n: it falls for the optimum of the"
    " forward KL, and levels off for that of the reverse KL.",
    "tm-fig8": "Six panels on sequences: the KL during descent with six estimates, by step size and set-up;"
    " which ends lowest differs between a reference within reach and one out of reach.",
    "tm-fig8-settings": "A table of coloured cells: final KLs in other set-ups, relative to the best.",
    "reward-collapse": "Panels with k1, k2 and k3 in the reward: with k1 the policy returns to the optimum,"
    " with k3 arms are lost.",
    "reward-collapse-settings": "A table of coloured cells: the share of runs that collapse elsewhere.",
    "sh-off-policy": "Left: curves of the shortfall of the reward over the age of the sampler; without a"
    " penalty it rises at the right, with one it stays low. Right: bars of runs that have fallen; the"
    " highest one is that of weights with the largest penalty.",
}
