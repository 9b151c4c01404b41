"""What a step of descent does to the imbalances of a linear network, exactly."""

from typing import ClassVar

import numpy as np
from typing_extensions import override

from thalweg.certificates import AbstractTrainingTheorem, Case, Claim, Narrowed, identity
from thalweg.measurement import BALANCE_ROUNDING, balance_defect
from thalweg.theorems.settings.linear import LinearTraining, linear_training


class BalanceLaw(AbstractTrainingTheorem[LinearTraining]):
    """A step of descent changes the imbalances of a linear network by eta^2, and exactly.

    For any loss of the output, with the gradient G_j of layer j without the weight decay lambda,

        D_j after a step = (1 - eta lambda)^2 D_j + eta^2 (G_{j+1}^T G_{j+1} - G_j G_j^T),

    for the imbalances D_j = W_{j+1}^T W_{j+1} - W_j W_j^T. Ours.

    Proof: W_j becomes (1 - eta lambda) W_j - eta G_j. The terms of first order in eta are those
    with W_{j+1}^T G_{j+1} - G_j W_j^T and its transpose, which is zero: with the gradient B of the
    loss at the product, G_j = (W_N ... W_{j+1})^T B (W_{j-1} ... W_1)^T, so that both are
    (W_N ... W_{j+1})^T B (W_j ... W_1)^T. A readout is one more factor on the left.
    """

    reference: ClassVar[str] = "thalweg:balance-law"

    @override
    def narrowed(self, case: Case, /) -> Narrowed[LinearTraining]:
        return linear_training(case)

    @override
    def conclusions(self, subject: LinearTraining, /) -> tuple[Claim, ...]:
        run = subject.case.run
        if run is None or not run.weights or subject.network.depth == 1:
            return ()
        found = balance_defect(run)
        found = found[np.isfinite(found)]
        if not found.size:
            return ()
        statement = (
            "D_j after a step = (1 - eta lambda)^2 D_j + eta^2 (G_{j+1}^T G_{j+1} - G_j G_j^T), "
            "in units of rounding"
        )
        return (identity(statement, found, BALANCE_ROUNDING),)
