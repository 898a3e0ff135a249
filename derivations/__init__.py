"""Proof scripts: one theme a file, each claim a short function that reads like the proof on paper.

Sources, by the tags that the claims use:

WZ1  X. Wang, S. Zhang, "Understanding KL Divergence Estimators in RL: From Value Approximation to
     Gradient Estimation", 2025 (first version); sections by their headings.
WZ2  X. Wang, S. Zhang, "Choosing KL Estimators in RL: From Value Unbiasedness to Gradient
     Correctness", 2025 (later version).
TM   Y. Tang, R. Munos, "On a few pitfalls in KL divergence gradient estimation for RL", 2025.
SH   V. Shah et al., "A Comedy of Estimators: On KL Regularization in RL Training of LLMs", 2025.
RE   "Re-understanding KL Approximation from an RL-for-LLM Lens: Notes on 'Approximating KL
     Divergence'".

"new" marks what goes beyond the sources.
"""
