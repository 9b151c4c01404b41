"""How flat a minimiser of a deep linear regression can be [marion2024].

For one output, depth L, readout norm r, minimiser w and input moment Sigma, every set of weights
whose product is w has a largest Hessian eigenvalue of at least

    2 scale L r^(2/L) lambda_min(Sigma) |w|^(2 - 2/L)          the paper's S_min, corrected
    2 scale L r^(2/L) A^(1 - 2/L) |Sigma w|^(2/L)              stronger, with A = w^T Sigma w

The paper has scale = 1 and prints its bound without r; for r < 1 that form is false. The stronger
form needs no invertible Sigma: it is one Rayleigh quotient and one inequality of means.

[marion2024] P. Marion, L. Chizat, "Deep linear networks for regression are implicitly regularized
    towards flat minima", arXiv:2405.13456.
"""

from typing import NamedTuple

import jax.numpy as jnp

from thalweg._checks import InputError
from thalweg._typing import Scalar
from thalweg.network import LinearNetwork
from thalweg.objective import Objective
from thalweg.problem import Regression, TargetMatrix


class SharpnessBounds(NamedTuple):
    """Lower bounds on the sharpness of every minimiser: the paper's, and a stronger one."""

    paper: Scalar
    stronger: Scalar


def minimiser_sharpness_bounds(objective: Objective) -> SharpnessBounds:
    """Both bounds for a linear network with one output on a regression."""
    network, problem = objective.network, objective.problem
    if not isinstance(network, LinearNetwork) or not isinstance(problem, Regression | TargetMatrix):
        raise InputError(
            "The bound on the sharpness of minimisers must be asked of a LinearNetwork on a "
            f"Regression, got {type(network).__name__} on {type(problem).__name__}."
        )
    if problem.shape[0] != 1:
        raise InputError(
            f"The bound on the sharpness of minimisers needs one output, got {problem.shape[0]}."
        )
    depth = network.depth
    readout = 1.0 if network.readout is None else jnp.linalg.norm(network.readout)
    minimiser = problem.minimiser[0]
    slope = problem.input_moment @ minimiser
    common = 2 * problem.scale * depth * readout ** (2 / depth)
    paper = common * problem.spectrum[0] * jnp.linalg.norm(minimiser) ** (2 - 2 / depth)
    aligned = (minimiser @ slope) ** (1 - 2 / depth) * jnp.linalg.norm(slope) ** (2 / depth)
    return SharpnessBounds(paper, common * aligned)
