"""What statements about small starts assume: the size of the start, and (A1) to (A3) [marion2024].

With imbalances D_k = W_{k+1}^T W_{k+1} - W_k W_k^T the start is measured by

    eps = 3 max_k |W_k(0)|_F^2 + 2 sum_k |D_k(0)|_2,

which is of the second order in the weights.

[marion2024] P. Marion, L. Chizat, "Deep linear networks for regression are implicitly regularized
    towards flat minima", arXiv:2405.13456.
"""

import numpy as np
from numpy.linalg import multi_dot

from thalweg._host import hosted, quiet, settled
from thalweg._typing import Scalar, Weights
from thalweg.certificates import Case, Claim, Narrowed, requirement, rounding
from thalweg.curvature.products import spectral_norm
from thalweg.measurement import imbalance, layer_norms
from thalweg.objective.points import gradient_at
from thalweg.theorems.settings.deep_regression import (
    DeepRegression,
    RegressionTraining,
    in_training,
    scalar_regression,
    unique_solution,
)


@quiet
def start_size(weights: Weights) -> Scalar:
    """The eps of the module: zero only at zero, and quadratic in the weights."""
    norms, gaps = layer_norms(weights), [spectral_norm(matrix) for matrix in imbalance(weights)]
    library, (norms, gaps) = hosted(norms, gaps)
    return settled(3 * library.max(norms**2) + 2 * sum(gaps))


def unique_below_zero(case: Case) -> Narrowed[RegressionTraining]:
    """The setting of small starts with (A1) and (A2)."""
    found = scalar_regression(case.objective).further(_without_readout)
    on_curve = in_training(case, found).further(_on_the_curve)
    return on_curve.further(_unique).further(starts_below_zero_network)


def small_and_below_zero(case: Case) -> Narrowed[RegressionTraining]:
    """The setting of small starts with (A1), (A2) and (A3)."""
    return unique_below_zero(case).further(starts_small)


def _without_readout(setting: DeepRegression) -> Narrowed[DeepRegression]:
    """That a linear network whose last layer has one row, and no readout, is trained."""
    plain = setting.network.readout is None and setting.network.widths[-1] == 1
    claim = requirement("the last layer has one row, and no readout follows", plain)
    return Narrowed.where((claim,), setting)


def _on_the_curve(training: RegressionTraining) -> Narrowed[RegressionTraining]:
    """That the flow starts where the case does or later on its curve, so with its imbalances."""
    flow, weights = training.case.flow, training.case.weights
    if flow is None:
        return Narrowed((), training)
    pairs = zip(imbalance(flow.start), imbalance(weights), strict=True)
    gap = max((float(np.abs(np.subtract(a, b)).max()) for a, b in pairs), default=0.0)
    size = float(np.asarray(layer_norms(weights)).max()) ** 2
    statement = (
        "the flow starts on the curve of the start: max |D - D(0)| <= 1e-6 max_k |W_k(0)|_F^2"
    )
    return Narrowed.where((Claim(statement, gap, 1e-6 * size),), training)


def _unique(training: RegressionTraining) -> Narrowed[RegressionTraining]:
    return in_training(training.case, unique_solution(training.regression))


def starts_below_zero_network(training: RegressionTraining) -> Narrowed[RegressionTraining]:
    """That the start is no worse than the zero network, and not stationary (A2).

    R(W) <= R(0) is written as |F p|^2 <= 2 <F p, T> for the product p, F^T F = Sigma and T = F w,
    where nothing cancels. One zero layer with others that are not is enough.
    """
    (case, setting), weights = training, training.case.weights
    factors = [np.asarray(factor) for factor in setting.network.factors(weights)]
    image = multi_dot([*reversed(factors), np.asarray(setting.problem.input_factor).T])
    own = float(np.sum(image**2))
    shared = 2 * float(np.sum(image * np.asarray(setting.problem.fitted).T))
    slope = max(float(np.abs(array).max()) for array in gradient_at(case.objective, weights))
    statement = "p^T Sigma p <= 2 p^T Sigma w, that is (R(W(0)) <= R(0))"
    claims = (
        Claim(statement, own, shared, rounding(own, shared)),
        requirement("the gradient at the start is not zero", slope > 0),
    )
    return Narrowed.where(claims, training)


def starts_small(training: RegressionTraining) -> Narrowed[RegressionTraining]:
    """That the solution is not small and the start is, by comparison and with depth (A3)."""
    setting, eps = training.regression, float(start_size(training.case.weights))
    claims = (
        Claim("1 <= |w| + rounding", 1.0, setting.size + rounding(1.0)),
        Claim("32 L sqrt(eps) <= 1", 32 * setting.depth * eps**0.5, 1.0),
    )
    return Narrowed.where(claims, training)
