"""A lower bound on the smallest eigenvalue of the Hessian that is proven, whatever was computed.

A search finds an eigenvalue, and never knows that none is below it. For linear networks there are
four bounds that do (`thalweg.validated`), from the sharpest to the cheapest.
"""

from typing import Literal

import numpy as np

from thalweg._arguments import checked
from thalweg._checks import finite_weights
from thalweg._threads import one_blas_thread
from thalweg._typing import Weights
from thalweg.objective import Objective
from thalweg.validated import setting_of
from thalweg.validated.hessian import dense_bound, norm_bound
from thalweg.validated.lowest import indefinite_bound, nystroem_bound

Method = Literal["auto", "dense", "nystroem", "indefinite", "norms"]

_METHODS = {
    "dense": dense_bound,
    "nystroem": nystroem_bound,
    "indefinite": indefinite_bound,
    "norms": norm_bound,
}


@checked
def smallest_eigenvalue_bound(
    objective: Objective, weights: Weights, method: Method = "auto"
) -> float:
    """What the smallest eigenvalue of the Hessian is at least, for a linear network.

    Args:
        objective: a linear network with a loss that has a power series.
        weights: where.
        method: "dense" computes all eigenvalues; "nystroem" adds what a few directions know of the
            Gauss-Newton part to the indefinite part; "indefinite" leaves that out; "norms" bounds
            the blocks of the indefinite part by their norms. "auto" is dense up to 600 weights, and
            Nystroem beyond.
    """
    setting = setting_of(objective)
    chosen = ("dense" if setting.dense else "nystroem") if method == "auto" else method
    layers = tuple(np.asarray(layer, float) for layer in finite_weights(weights))
    with one_blas_thread():
        return _METHODS[chosen](layers, setting.readout, setting.loss, setting.decay)
