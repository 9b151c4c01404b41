"""How sharp the minimisers of a deep linear regression are [marion2024].

For one output, depth L, readout norm r, least-squares solution w, input moment Sigma with extreme
eigenvalues mu <= M, and A = w^T Sigma w, the sharpness S of any weights whose product is w,

    S = 2 scale lambda_max(Sigma^{1/2} K Sigma^{1/2}),    K = sum_k |q_k|^2 P_k P_k^T,

where w = P_k W_k^T q_k splits the product at layer k, is at least (paper: scale = 1)

    2 scale L r^{2/L} mu |w|^{2 - 2/L}                       thm. 2 (b), corrected: `paper`
    2 scale L r^{2/L} A |w|^{-2/L}                           `moment`
    2 scale L r^{2/L} A^{1 - 2/L} |Sigma w|^{2/L}            `sharper`, also for singular Sigma
    2 scale r^{1/L} mu |w|^{2 - 1/L} sum_k 1 / |W_k|_F       thm. 2 (a), corrected
    2 scale A sum_k 1 / |W_k|_F^2                            `inverse_squares`

The paper prints thm. 2 without r; for r < 1 that is false. The least sharpness of all is

    2 scale min over a > 0 of lambda_max(a Sigma + (L - 1) (r^2 / a)^{1/(L-1)} Sigma^{1/2} w w^T
    Sigma^{1/2}).

No minimiser has less: put a = |q_1|^2, so that the first term of K is a I. For k >= 2 let
c_k = |q_{k-1}| / |q_k|; from w = P_k q_{k-1} follows w w^T <= |q_{k-1}|^2 P_k P_k^T, so the k-th
term of K is at least w w^T / c_k^2, and the product of the c_k is |q_1| / r, so that the inequality
of means bounds sum_k 1 / c_k^2 from below as above. Chains of aligned matrices of rank one attain
it, with |W_1| = |w| / sqrt(a) and all others of one norm. In log(a) the minimised function is
convex. Nothing of this needs an invertible Sigma, nor that w is the solution of least norm. For
F^T F = Sigma and T = F w, A = |T|^2, it is the same with a F F^T and T T^T.

Weight decay has no place here, for it moves the minimisers.

[marion2024] P. Marion, L. Chizat, "Deep linear networks for regression are implicitly regularized
    towards flat minima", arXiv:2405.13456.
"""

from math import exp, log
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import scipy

from thalweg._arguments import checked
from thalweg._checks import InputError, is_traced, placed
from thalweg._host import hosted, largest_singular_value, quiet, settled
from thalweg._shown import shown
from thalweg._typing import Scalar, Weights
from thalweg.curvature.products import (
    partial_products,
    readout_norm,
    spectral_norm,
)
from thalweg.network import LinearNetwork
from thalweg.objective import Objective
from thalweg.problem import AbstractLeastSquares


@shown
class SharpnessBounds(NamedTuple):
    """Lower bounds on the sharpness of every minimiser, each sharper than the one before."""

    paper: Scalar
    moment: Scalar
    sharper: Scalar


@shown
class LayerwiseBounds(NamedTuple):
    """Lower bounds on the sharpness of one minimiser, from the norms of its layers.

    `moment` is the paper's with A for mu |w|^2; `inverse_squares` may be more or less than that.
    """

    paper: Scalar
    moment: Scalar
    inverse_squares: Scalar


@shown
class SmallStartBounds(NamedTuple):
    """Upper bounds on the sharpness that a flow from a small start ends with."""

    paper: Scalar
    sharper: Scalar


@shown
class LeastSharpness(NamedTuple):
    """The sharpness of the flattest minimiser, and the norm of its first layer."""

    sharpness: Scalar
    first_norm: Scalar


@checked
@quiet
def minimiser_sharpness_bounds(objective: Objective) -> SharpnessBounds:
    """Lower bounds on the sharpness of every minimiser (marion2024:thm2 b, and two sharper)."""
    network, problem = _scalar_regression(objective)
    library, of = _numbers(network, problem)
    depth, size, moment = network.depth, library.linalg.norm(of.minimiser), (of.fitted**2).sum()
    # Sigma w = F^T T, which keeps the digits that w itself has lost where it is ill-conditioned.
    slope = library.linalg.norm(of.fitted.T @ of.factor)
    common = 2 * of.scale * depth * of.readout ** (2 / depth)
    return SharpnessBounds(
        paper=settled(common * of.spectrum[0] * size ** (2 - 2 / depth)),
        moment=settled(common * _times_power(moment, size, -2 / depth)),
        sharper=settled(common * _times_power(slope ** (2 / depth), moment, 1 - 2 / depth)),
    )


@checked
@quiet
def layerwise_sharpness_bounds(objective: Objective, weights: Weights) -> LayerwiseBounds:
    """Lower bounds on the sharpness of this minimiser (marion2024:thm2 a, and two others)."""
    network, problem = _scalar_regression(objective)
    network.check(weights)
    library, (of, layers) = hosted(_numbers(network, problem)[1], weights)
    norms = library.stack([library.linalg.norm(layer) for layer in layers])
    depth, size, moment = network.depth, library.linalg.norm(of.minimiser), (of.fitted**2).sum()
    common = 2 * of.scale * of.readout ** (1 / depth) * (1 / norms).sum()
    return LayerwiseBounds(
        paper=settled(common * of.spectrum[0] * size ** (2 - 1 / depth)),
        moment=settled(common * _times_power(moment, size, -1 / depth)),
        inverse_squares=settled(2 * of.scale * moment * (1 / norms**2).sum()),
    )


@checked
def posterior_sharpness_bound(objective: Objective, weights: Weights) -> Scalar:
    """An upper bound on the sharpness of this minimiser: 2 scale M sum_k |P_k|^2 |q_k|^2.

    The a-posteriori form of marion2024:cor4, for any minimiser.
    """
    network, problem = _scalar_regression(objective)
    after, before = partial_products(network, weights)
    pairs = zip(after, before, strict=True)
    factors = [spectral_norm(low) ** 2 * jnp.sum(high**2) for high, low in pairs]
    return 2 * problem.scale * problem.spectrum[-1] * jnp.sum(jnp.stack(factors))


@checked
def small_start_sharpness_bounds(objective: Objective) -> SmallStartBounds:
    """Upper bounds on the sharpness of the limit of a flow from a small start (marion2024:cor3).

    The paper's 8 scale L M |w|^{2 - 2/L} and its proof's 2 scale L M (2 |w|)^{2 - 2/L}, each with
    r^{2/L}. They hold under the paper's assumptions on the start, which are not looked at here.
    """
    network, problem = _scalar_regression(objective)
    if network.widths[-1] != 1:
        raise InputError(
            "The bound for small starts needs a last layer of width 1, got "
            f"{network.widths[-1]}; with a wider one the layers need not align."
        )
    depth, size = network.depth, jnp.linalg.norm(problem.minimiser)
    common = 2 * problem.scale * depth * readout_norm(network) ** (2 / depth) * problem.spectrum[-1]
    power = 2 - 2 / depth
    return SmallStartBounds(common * 4 * size**power, common * (2 * size) ** power)


@checked
@quiet
def balanced_sharpness(objective: Objective) -> Scalar:
    """The sharpness of the balanced minimisers of rank one, which flows from zero tend to.

    All layers then have the norm (|w| / r)^{1/L}.
    """
    network, problem = _scalar_regression(objective)
    library, of = _numbers(network, problem)
    depth, size = network.depth, library.linalg.norm(of.minimiser)
    lift = of.readout ** (2 / depth) * size ** (2 - 2 / depth)
    return settled(_chain_sharpness(of, depth, lift))


@checked
@quiet
def least_sharpness(objective: Objective) -> LeastSharpness:
    """The sharpness of the flattest of all minimisers, by minimising a convex function."""
    network, problem = _scalar_regression(objective)
    _, of = _numbers(network, problem)
    size, readout = float(np.linalg.norm(of.minimiser)), float(of.readout)
    if size == 0:
        raise InputError("`least_sharpness` needs a solution that is not zero.")
    balanced = float(balanced_sharpness(objective))
    if network.depth == 1:
        return LeastSharpness(placed(np.array(balanced)), placed(np.divide(size, readout)))
    # Below `balanced` both terms must be, which brackets a.
    unit = balanced / (2 * float(of.scale))
    moment = float(np.sum(of.fitted**2))
    steepest = (network.depth - 1) * moment / unit
    bracket = (
        2 * log(readout) + (network.depth - 1) * log(steepest),
        log(unit / float(of.spectrum[-1])),
    )
    found = scipy.optimize.minimize_scalar(
        lambda logarithm: float(_chain_sharpness(of, network.depth, exp(logarithm))),
        bounds=bracket,
        method="bounded",
        options={"xatol": 1e-12 * (1 + abs(bracket[1] - bracket[0]))},
    )
    first = size / exp(float(found.x) / 2)
    return LeastSharpness(placed(np.array(float(found.fun))), placed(np.array(first)))


class _Numbers(NamedTuple):
    """What sharpness at minimisers follows from, besides the depth."""

    minimiser: Any
    fitted: Any
    factor: Any
    spectrum: Any
    scale: Any
    readout: Any


def _numbers(network: LinearNetwork, problem: AbstractLeastSquares) -> tuple[Any, _Numbers]:
    """These numbers, and the library that they are to be computed with."""
    library, (found,) = hosted(
        _Numbers(
            problem.minimiser, problem.fitted, problem.input_factor, problem.spectrum,
            problem.scale, readout_norm(network),
        )
    )  # fmt: skip
    return library, found


def _chain_sharpness(of: _Numbers, depth: int, lift: Any) -> Any:
    """The sharpness of the rank-one chain with |q_1|^2 = `lift` and equal norms from layer 2 on."""
    deeper = depth - 1
    repeated = deeper * (of.readout**2 / lift) ** (1 / deeper) if deeper > 0 else 0.0
    matrix = lift * of.factor @ of.factor.T + repeated * of.fitted @ of.fitted.T
    return 2 * of.scale * largest_singular_value(matrix)  # which has no negative eigenvalues


def _times_power(value: Any, base: Any, exponent: float) -> Any:
    """The product of a value and a power, zero where the base is."""
    library, (value, base) = hosted(value, base)
    safe = library.where(base > 0, base, 1.0)
    return library.where(base > 0, value * safe**exponent, 0.0)


def _scalar_regression(objective: Objective) -> tuple[LinearNetwork, AbstractLeastSquares]:
    network, problem = objective.network.linear, objective.problem.least_squares
    if network is None or problem is None:
        raise InputError(
            "The bound on the sharpness of minimisers must be asked of a LinearNetwork on a "
            f"Regression, got {type(objective.network).__name__} on "
            f"{type(objective.problem).__name__}."
        )
    if problem.shape[0] != 1:
        raise InputError(
            f"The bound on the sharpness of minimisers needs one output, got {problem.shape[0]}."
        )
    if not is_traced(objective.weight_decay) and float(objective.weight_decay) > 0:
        raise InputError(
            "The bound on the sharpness of minimisers speaks of those without weight decay, got "
            f"{float(objective.weight_decay):g}; weight decay moves them."
        )
    return network, problem
