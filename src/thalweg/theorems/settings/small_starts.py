"""What statements about small starts assume: the size of the start, and (A1) to (A3) [marion2024].

With imbalances D_k = W_{k+1}^T W_{k+1} - W_k W_k^T the start is measured by

    eps = 3 max_k |W_k(0)|_F^2 + 2 sum_k |D_k(0)|_2,

which is of the second order in the weights.

[marion2024] P. Marion, L. Chizat, "Deep linear networks for regression are implicitly regularized
    towards flat minima", arXiv:2405.13456.
"""

import jax.numpy as jnp

from thalweg._typing import Scalar, Weights
from thalweg.certificates.case import Case
from thalweg.certificates.certificate import Claim, requirement, rounding
from thalweg.curvature.products import spectral_norm
from thalweg.measurement import imbalance, layer_norms
from thalweg.objective import Objective
from thalweg.theorems.settings.deep_regression import (
    Setting,
    linear_network,
    met,
    scalar_regression,
    unique_solution,
)


def start_size(weights: Weights) -> Scalar:
    """The eps of the module: zero only at zero, and quadratic in the weights."""
    squares = layer_norms(weights) ** 2
    return 3 * jnp.max(squares) + 2 * sum(spectral_norm(matrix) for matrix in imbalance(weights))


def starts_below_zero_network(objective: Objective, weights: Weights) -> tuple[Claim, ...]:
    """That the start is no worse than the zero network, and not stationary (A2).

    R(W) <= R(0) is written as |F p|^2 <= 2 <F p, T> for the product p, F^T F = Sigma and T = F w,
    where nothing cancels. One zero layer with others that are not is enough.
    """
    setting = Setting.of(objective)
    product = setting.network.end_to_end(weights)
    image = setting.problem.image(product)
    own = float(jnp.sum(image**2))
    shared = 2 * float(jnp.sum(image * setting.problem.fitted.T))
    slope = max(float(jnp.max(jnp.abs(array))) for array in objective.gradient(weights))
    return (
        Claim(
            "p^T Sigma p <= 2 p^T Sigma w, that is (R(W(0)) <= R(0))",
            own,
            shared,
            rounding(own, shared),
        ),
        requirement("the gradient at the start is not zero", slope > 0),
    )


def starts_small(objective: Objective, weights: Weights) -> tuple[Claim, ...]:
    """That the solution is not small and the start is, by comparison and with depth (A3)."""
    setting = Setting.of(objective)
    return (
        Claim("1 <= |w| + rounding", 1.0, setting.size + rounding(1.0)),
        Claim("32 L sqrt(eps) <= 1", 32 * setting.depth * float(start_size(weights)) ** 0.5, 1.0),
    )


def without_readout(objective: Objective) -> tuple[Claim, ...]:
    """That a linear network whose last layer has one row, and no readout, is trained."""
    claims = scalar_regression(objective)
    if not met(claims):
        return claims
    network = Setting.of(objective).network
    plain = network.readout is None and network.widths[-1] == 1
    return (*claims, requirement("the last layer has one row, and no readout follows", plain))


def on_the_curve(case: Case) -> tuple[Claim, ...]:
    """That the flow starts where the case does or later on its curve, so with its imbalances."""
    if case.flow is None or not linear_network(case.objective)[0].holds:
        return ()
    pairs = zip(imbalance(case.flow.start), imbalance(case.weights), strict=True)
    gap = max((float(jnp.max(jnp.abs(a - b))) for a, b in pairs), default=0.0)
    size = float(jnp.max(layer_norms(case.weights))) ** 2
    statement = (
        "the flow starts on the curve of the start: max |D - D(0)| <= 1e-6 max_k |W_k(0)|_F^2"
    )
    return (Claim(statement, gap, 1e-6 * size),)


def unique_below_zero(case: Case) -> tuple[Claim, ...]:
    """The setting of small starts with (A1) and (A2)."""
    claims = (*without_readout(case.objective), *on_the_curve(case))
    if not met(claims):
        return claims
    unique = (*claims, *unique_solution(case.objective))
    if not met(unique):
        return unique
    return (*unique, *starts_below_zero_network(case.objective, case.weights))


def small_and_below_zero(case: Case) -> tuple[Claim, ...]:
    """The setting of small starts with (A1), (A2) and (A3)."""
    claims = unique_below_zero(case)
    if not met(claims):
        return claims
    return (*claims, *starts_small(case.objective, case.weights))
