"""The statements of elkabetz2021, in the order of the paper.

[elkabetz2021] O. Elkabetz, N. Cohen, "Continuous vs. discrete optimization of deep neural
    networks", NeurIPS 2021, arXiv:2107.06608.
"""

from thalweg.theorems.papers.elkabetz2021 import convergence, curvature

STATEMENTS = (*curvature.STATEMENTS, *convergence.STATEMENTS)
