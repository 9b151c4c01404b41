"""Functions of a point, and how to map them along a run.

For the weights W_1, ..., W_N of a linear network, with top singular vectors u_k and v_k (right),

    imbalance               W_{j+1}^T W_{j+1} - W_j W_j^T,  constant along every gradient flow
    unbalancedness          the largest nuclear norm of an imbalance
    alignment               <v_{k+1}, u_k>^2,  one if consecutive layers pass on their top direction
    balance_defect          how far steps of descent are from the law of imbalances, in rounding
    distance_from_rank_one  |W_k|_F^2 - |W_k|_2^2
    deficiency_margin       sigma_min(Phi) - |W - Phi|_F,  for the product W and a target Phi

All may be traced: `jax.vmap(imbalance)` takes many networks, and `along` maps any function of the
weights over what a run has recorded.
"""

from collections.abc import Callable
from itertools import pairwise
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from thalweg._arguments import checked
from thalweg._checks import InputError, chained, described, require_count
from thalweg._host import hosted, quiet, settled
from thalweg._typing import AnyWeights, Matrix, Scalar, Weights
from thalweg.dynamics.descent import Descent, descend, nothing, plain_objective
from thalweg.dynamics.trajectory import AbstractTrajectory
from thalweg.network import AbstractNetwork
from thalweg.objective import Objective
from thalweg.objective.points import gradient_at

__all__ = [
    "BALANCE_ROUNDING",
    "alignment",
    "along",
    "balance_defect",
    "conserved",
    "deficiency_margin",
    "distance_from_rank_one",
    "distance_to_minimiser",
    "imbalance",
    "layer_norms",
    "least_loss",
    "unbalancedness",
]


def __dir__() -> list[str]:
    return __all__


BALANCE_ROUNDING = 64.0
"""Up to which a `balance_defect` is rounding."""

_CALM = 1e50  # weights and losses above this are on their way to infinity
_Layer = Float[Array, "_ _"]
"""A matrix among others of other shapes."""

_NUMBERS_AT_ONCE = 2**20  # how many weights `along` unpacks at a time: 8 MB


@checked
@quiet
def imbalance(weights: Weights) -> tuple[_Layer, ...]:
    """W_{j+1}^T W_{j+1} - W_j W_j^T of consecutive layers; all zero if balanced."""
    _, (layers,) = hosted(chained(weights))
    return settled(tuple(upper.T @ upper - lower @ lower.T for lower, upper in pairwise(layers)))


@checked
def unbalancedness(weights: Weights) -> Scalar:
    """The largest nuclear norm of an imbalance (elkabetz2021, def. 30); zero for one layer."""
    norms = [jnp.linalg.norm(matrix, "nuc") for matrix in imbalance(weights)]
    return jnp.max(jnp.stack(norms)) if norms else jnp.zeros(())


@checked
def balance_defect(run: Descent, points: int = 64) -> Float[np.ndarray, "*batch points"]:
    """How far single steps of a run are from the law that imbalances must obey, in rounding units.

    A step of plain descent with weight decay lambda on a linear network makes of the imbalance D_j

        (1 - eta lambda)^2 D_j + eta^2 (G_{j+1}^T G_{j+1} - G_j G_j^T)

    exactly, whatever the loss. So a run checks itself: above `BALANCE_ROUNDING` units it has lost
    its digits, or was no descent of this loss. Where consecutive steps were recorded, those are
    looked at; elsewhere one step is taken again from recorded points, by what made the run.

    Args:
        run: of plain descent on a linear network, batched or not.
        points: of how many recorded points, evenly spread over the run.

    Returns:
        The largest entry of the difference over (eps * width * the larger squared norm of a layer);
        NaN where the weights were not recorded, or have run off.
    """
    points = require_count("points", points)
    objective = plain_objective(run, "`balance_defect`")
    if objective.network.linear is None:
        raise InputError(
            "`balance_defect` is about linear networks, got a run on a "
            f"{type(objective.network).__name__}."
        )
    lead, depth = run.learning_rate.shape, len(objective.shapes)
    if not run.has_weights or depth == 1:
        return np.full((*lead, 0), np.nan)
    starts = np.unique(np.linspace(0, run.steps.size - 1, points).astype(int))
    here = jax.tree.map(lambda array: np.take(array, starts, axis=len(lead)), run.weights)
    rates = np.broadcast_to(run.learning_rate[..., None], (*lead, starts.size))
    if np.all(np.diff(run.steps) == 1) and run.steps.size > 1:
        ends = np.minimum(starts + 1, run.steps.size - 1)
        after = jax.tree.map(lambda array: np.take(array, ends, axis=len(lead)), run.weights)
        rates = np.where(starts < ends, rates, np.nan)  # the last has none after it
    else:
        known = jax.tree.map(lambda array: np.where(np.isfinite(array), array, 0.0), here)
        after = descend(objective, known, learning_rate=rates, steps=1, observe=nothing).final
    return _balance_defects(objective, here, after, rates)


@quiet
def _balance_defects(
    objective: Objective, here: Weights, after: Weights, rates: Float[np.ndarray, "*points"]
) -> Float[np.ndarray, "*points"]:
    """Of one step from each of these points to its own other."""
    decay, width = float(objective.weight_decay), max(max(shape) for shape in objective.shapes)
    found = np.full(rates.shape, np.nan)
    for place in np.ndindex(rates.shape):
        before, then = ([np.asarray(a)[place] for a in each] for each in (here, after))
        size = max(float(np.sum(each**2)) for each in (*before, *then))
        if not (size < _CALM and np.isfinite(rates[place])):
            continue
        eta = float(rates[place])
        whole = gradient_at(objective, tuple(before))
        slopes = [part - decay * layer for part, layer in zip(whole, before, strict=True)]
        pairs = [map(np.asarray, imbalance(tuple(each))) for each in (then, before, slopes)]
        gaps = [
            np.max(np.abs(new - (1 - eta * decay) ** 2 * old - eta**2 * drift))
            for new, old, drift in zip(*pairs, strict=True)
        ]
        unit = np.finfo(before[0].dtype).eps * width * max(size, np.finfo(float).tiny)
        found[place] = max(gaps) / unit
    return found


@checked
def conserved(
    network: AbstractNetwork, weights: Weights
) -> tuple[_Layer, ...] | tuple[Scalar, ...]:
    """What the gradient flow of any loss keeps constant, without weight decay.

    For a linear network the imbalances; for networks that are homogeneous in each layer the
    differences |W_{j+1}|^2 - |W_j|^2 of squared norms.
    """
    network.check(weights)
    if network.linear is not None:
        return imbalance(weights)
    squares = [jnp.sum(jnp.asarray(array) ** 2) for array in weights]
    return tuple(upper - lower for lower, upper in pairwise(squares))


@checked
@quiet
def layer_norms(weights: Weights) -> Float[Array, " depth"]:
    """The Frobenius norm of each layer."""
    library, (layers,) = hosted(weights)
    return settled(library.stack([library.linalg.norm(library.ravel(each)) for each in layers]))


@checked
def alignment(weights: Weights) -> Float[Array, " pairs"]:
    """<v_{k+1}, u_k>^2 for each pair of consecutive layers, first pair first."""
    parts = [jnp.linalg.svd(layer, full_matrices=False) for layer in chained(weights)]
    cosines = [jnp.vdot(upper[2][0], lower[0][:, 0]) for lower, upper in pairwise(parts)]
    return jnp.stack(cosines) ** 2 if cosines else jnp.zeros(0)


@checked
def distance_from_rank_one(weights: Weights) -> Float[Array, " depth"]:
    """|W_k|_F^2 - |W_k|_2^2 per layer: the squared distance to the nearest matrix of rank one."""
    # As a sum over the other singular values, because the difference would cancel.
    values = [jnp.linalg.svd(layer, compute_uv=False) for layer in chained(weights)]
    return jnp.stack([jnp.sum(each[1:] ** 2) for each in values])


@checked
def deficiency_margin(matrix: Matrix, target: Matrix) -> Scalar:
    """sigma_min(target) - |matrix - target|_F (arora2019, def. 2): positive where it has a margin.

    With one row or column, sigma_min(target) = |target| and the difference is rewritten as

        (2 <w, phi> - |w|^2) / (|phi| + |w - phi|),

    which keeps its digits for small w.
    """
    gap = jnp.linalg.norm(matrix - target)
    if min(target.shape) > 1:
        return jnp.linalg.svd(target, compute_uv=False)[-1] - gap
    sizes = jnp.linalg.norm(target) + gap
    excess = 2 * jnp.sum(matrix * target) - jnp.sum(matrix**2)
    return jnp.where(sizes > 0, excess / jnp.where(sizes > 0, sizes, 1), 0)


@checked
def distance_to_minimiser(objective: Objective, weights: Weights) -> Scalar:
    """|W_N ... W_1 - M*|_F, with the least-squares minimiser M* of least norm."""
    network, problem = objective.network.linear, objective.problem.least_squares
    if network is None:
        raise InputError(
            "`distance_to_minimiser` needs a LinearNetwork, whose product can be compared with a "
            f"matrix, got {type(objective.network).__name__}."
        )
    if problem is None:
        raise InputError(
            "`distance_to_minimiser` needs a Regression or a TargetMatrix, whose minimiser is "
            f"known, got {type(objective.problem).__name__}."
        )
    return jnp.linalg.norm(network.end_to_end(weights) - problem.minimiser)


@checked
def least_loss(objective: Objective) -> float:
    """The least loss over all weights; NaN where it is not known.

    Known are linear networks under the square loss without weight decay. Where a layer is narrower
    than the rank of the minimiser M, the network can at best be the product of that rank which is
    nearest to it in the norm of the loss, and what is lost are the smallest singular values of
    M Sigma^{1/2}.
    """
    network, problem = objective.network.linear, objective.problem.least_squares
    if network is None or problem is None:
        return float("nan")
    readout = network.readout
    reaches_all = readout is None or np.linalg.matrix_rank(readout) == network.outputs
    if float(objective.weight_decay) > 0 or not reaches_all:
        return float("nan")
    values = np.linalg.svd(problem.fitted, compute_uv=False)  # those of M Sigma^{1/2}
    return float(problem.minimum) + float(problem.scale) * float(
        np.sum(values[min(network.widths) :] ** 2)
    )


@checked
def along(run: AbstractTrajectory, function: Callable[[AnyWeights], Any]) -> Any:
    """A function of a point, at each point that a run has recorded.

    Args:
        run: the trajectory, batched or not.
        function: takes the weights of one network at one time, in JAX, and gives an array or a
            pytree of arrays.

    Returns:
        What the function gives, as NumPy arrays with the axes (*batch, times) in front.
    """
    if not run.has_weights:
        raise InputError(
            "`along` needs the recorded weights, but this run kept only what `observe` returned; "
            "run it without `observe`."
        )
    lead = run.times.shape
    points = jax.tree.map(
        lambda array: jnp.asarray(array).reshape(prod(lead), *array.shape[len(lead) :]), run.weights
    )

    def measured(weights: AnyWeights) -> Any:
        found = function(weights)
        if not jax.tree.leaves(found):
            raise InputError(
                f"`function` must give an array or a pytree of arrays, got {described(found)}."
            )
        return found

    chunk = max(1, _NUMBERS_AT_ONCE // max(1, sum(map(prod, run.shapes()))))

    def everywhere(weights: AnyWeights) -> Any:
        return jax.lax.map(measured, weights, batch_size=min(chunk, prod(lead)))

    results = jax.jit(everywhere)(points)
    return jax.tree.map(lambda array: np.asarray(array).reshape(*lead, *array.shape[1:]), results)
