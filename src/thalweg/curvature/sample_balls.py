"""Bounds on the derivatives of a loss on a ball, for networks that are linear in each layer.

On its region (`regions`) a network with a two-slope activation is, sample by sample, a product

    F_i = W_N D_i,N-1 W_N-1 ... D_i,1 W_1 x_i

with fixed diagonal matrices of slopes, |D| <= a. The bounds are those of this polynomial on *all*
weights; where it is not the network any more is left to `distance_to_boundary`.

As in `balls` a layer on the ball of radius r is W_k + E_k, but |E_k|_F <= p_k r where weights are
shared, and what enters at the bottom are the samples. Taken in the mean over them,
|v|^2 = mean_i |v_i|^2, a layer applied to the activations h_k has the norm

    |(U h_i,k)_i| <= |U|_F N_0k,    N_0k = sqrt(lambda_max(mean_i h_i,k h_i,k^T)),

so that these N_0k take the place of the norms of W_k ... W_1. Between layers there are products of
norms, and up to the outputs the norms of the samples' own products, of which the largest counts:

    N_kl = p_k a prod over k < m <= l of a |W_m|,    N_kN = p_k max_i |W_N D_i,N-1 ... W_k+1 D_i,k|.

With the factors p_k in these norms the recursion for T_ij and the numbers d1, d2 and d3 are the
same as in `balls`, where they now bound F and its derivatives in the mean over samples. With s1
like d1, but from N_0k = max_i |h_i,k|, and |phi_i''| <= h, |phi_i'''| <= t for all samples,

    |grad f| <= g d1,    |H| <= h d1^2 + g d2,    |D^3 f| <= t s1 d1^2 + 3 h d1 d2 + g d3,

and lambda_min(H) >= -g d2, where g = (mean_i |g_i|^2)^(1/2) + h r d1 with the gradients g_i of the
samples' losses at the centre: Schwarz's inequality for the mean.
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from thalweg._checks import InputError
from thalweg._typing import Scalar, Weights
from thalweg.curvature.balls import (
    BallBounds,
    BallCentre,
    ObjectiveRounding,
    disturbed_norms,
    largest_moment,
    objective_rounding,
    product_bounds,
)
from thalweg.curvature.products import largest_eigenvalue, spectral_norm
from thalweg.objective import Objective

Norms = Float[Array, "ends ends"]
Matrices = tuple[Float[Array, "_ _"], ...]
Rows = list[Float[Array, "samples _"]]
Slopes = list[Float[Array, "_ _"]]


class SampleCentre(eqx.Module):
    """What is known at the centre of balls, so that bounds for many radii cost little.

    `norms` and `largest` hold N_ij above, in the mean over samples and for the largest of them;
    `slope` is (mean_i |g_i|^2)^(1/2).
    """

    objective: Objective
    outputs: Float[Array, "samples outputs"]
    slope: Scalar
    norms: Norms
    largest: Norms
    size: Scalar
    steepness: Scalar

    @classmethod
    def at(
        cls, objective: Objective, weights: Weights, moment: Scalar | None = None
    ) -> "SampleCentre":
        """The balls around these weights; `moment` is `largest_moment`, where it is known."""
        layers = tuple(jnp.asarray(array) for array in weights)
        matrices, tied, slopes = _as_matrices(objective, layers)
        activations, masks = _activations(objective, matrices, slopes)
        *below, outputs = activations
        shared = _norms_above(matrices, tied, masks, jnp.max(jnp.abs(slopes)))
        count = outputs.shape[0]
        moment = largest_moment(objective.problem) if moment is None else moment
        moments = [moment, *(largest_eigenvalue(rows.T @ rows / count) for rows in below[1:])]
        in_mean = jnp.sqrt(jnp.stack(moments))
        at_most = jnp.stack([jnp.max(jnp.linalg.norm(rows, axis=1)) for rows in below])
        gradients = count * objective.problem.output_gradient(outputs)
        return cls(
            objective,
            outputs,
            slope=jnp.sqrt(jnp.sum(gradients**2) / count),
            norms=shared.at[0, :-1].set(in_mean),
            largest=shared.at[0, :-1].set(at_most),
            size=jnp.sqrt(sum(jnp.sum(layer**2) for layer in layers)),
            steepness=jnp.sqrt(sum(jnp.sum(each**2) for each in objective.gradient(layers))),
        )

    def bounds(self, radius: Scalar) -> BallBounds:
        """Bounds on the ball of this radius."""
        first, second, third = product_bounds(disturbed_norms(self.norms, radius))
        most = product_bounds(disturbed_norms(self.largest, radius))[0]
        bend, twist = self._loss_bounds(radius * most)
        decay = self.objective.weight_decay
        steepest = self.slope + bend * radius * first
        hessian = bend * first**2 + steepest * second + decay
        far = steepest * first + decay * (self.size + radius)
        return BallBounds(
            gradient=jnp.minimum(far, self.steepness + radius * hessian),
            hessian=hessian,
            hessian_lipschitz=(
                twist * most * first**2 + 3 * bend * first * second + steepest * third
            ),
            smallest_eigenvalue=decay - steepest * second,
            central_eigenvalue=decay - self.slope * second,
            eigenvalue_slope=bend * first * second,
            product_first=first,
            product_second=second,
        )

    def rounding(self) -> ObjectiveRounding:
        """By the rounding of the loss, and of the outputs."""
        loss, still = (
            self.objective.problem.output_rounding(self.outputs),
            self.bounds(jnp.zeros(())),
        )
        return objective_rounding(self.objective, still, loss, self.slope, self.size)

    def _loss_bounds(self, change: Scalar) -> tuple[Scalar, Scalar]:
        """The numbers h and t, if no sample's outputs change by more."""
        changes = jnp.full(self.outputs.shape[0], change)
        second, third = self.objective.problem.output_bounds(self.outputs, changes)
        return jnp.max(second), jnp.max(third)


class JointCentre(eqx.Module):
    """Balls around weights of a deep linear network that take the better of both kinds of bounds.

    Where there are many features the samples point in many directions, and what is taken in the
    mean over them is far below what the largest does to the largest. The eigenvalues stay bounded
    by the gradient of the product, which changes by at most h d1 sqrt(lambda_max(Sigma)) per unit
    of distance, with h and d1 from the samples.
    """

    by_products: BallCentre
    by_samples: SampleCentre
    moment: Scalar

    @classmethod
    def at(cls, objective: Objective, weights: Weights, moment: Scalar) -> "JointCentre":
        """The balls around these weights; `moment` is `largest_moment`."""
        by_products = BallCentre.at(objective, weights, moment)
        return cls(by_products, SampleCentre.at(objective, weights, moment), moment)

    def bounds(self, radius: Scalar) -> BallBounds:
        """Bounds on the ball of this radius."""
        other = self.by_samples.bounds(radius)
        pace = other.eigenvalue_slope / other.product_second * jnp.sqrt(self.moment)
        one = self.by_products.bounds(radius, pace)
        return BallBounds(
            gradient=jnp.minimum(one.gradient, other.gradient),
            hessian=jnp.minimum(one.hessian, other.hessian),
            hessian_lipschitz=jnp.minimum(one.hessian_lipschitz, other.hessian_lipschitz),
            smallest_eigenvalue=jnp.maximum(one.smallest_eigenvalue, other.smallest_eigenvalue),
            central_eigenvalue=one.central_eigenvalue,
            eigenvalue_slope=one.eigenvalue_slope,
            product_first=one.product_first,
            product_second=one.product_second,
        )

    def rounding(self) -> ObjectiveRounding:
        """By the rounding of the loss, and of the product of the layers."""
        return self.by_products.rounding()


def _as_matrices(
    objective: Objective, layers: tuple[Float[Array, "..."], ...]
) -> tuple[Matrices, Float[Array, " depth"], Float[Array, " two"]]:
    """The layers' matrices, the norms p_k, and the slopes of the activation."""
    network = objective.network
    network.check(layers)
    linear, layered = network.linear, network.layered
    if layered is not None:
        tied = jnp.asarray(layered.operator_norms)
        return layered.matrices(layers), tied, jnp.stack(layered.slopes)
    if linear is not None and linear.readout is None:
        return layers, jnp.ones(linear.depth), jnp.ones(2)
    raise InputError(
        "Bounds by samples need a HomogeneousNetwork, a SharedNetwork or a LinearNetwork "
        f"without a readout, got {type(network).__name__}."
    )


def _activations(
    objective: Objective, matrices: Matrices, slopes: Float[Array, " two"]
) -> tuple[Rows, Slopes]:
    """What goes into each layer and comes out of the last, and the diagonals of D_i,k.

    The diagonals have one row only where all samples share them.
    """
    rows, masks = [objective.problem.inputs], []
    linear = objective.network.linear is not None
    for matrix in matrices[:-1]:
        z = rows[-1] @ matrix.T
        mask = jnp.ones((1, z.shape[1])) if linear else jnp.where(z > 0, slopes[0], slopes[1])
        masks.append(mask)
        rows.append(mask * z)
    return [*rows, rows[-1] @ matrices[-1].T], masks


def _norms_above(
    matrices: Matrices, tied: Float[Array, " depth"], masks: Slopes, steepest: Scalar
) -> Norms:
    """N_kl above for k >= 1, zero for k > l."""
    depth = len(matrices)
    norms = jnp.zeros((depth + 1, depth + 1))
    factors = [steepest * spectral_norm(matrix) for matrix in matrices[:-1]]
    for k in range(1, depth):
        grown = tied[k - 1] * steepest
        norms = norms.at[k, k].set(grown)
        for m in range(k + 1, depth):
            grown = grown * factors[m - 1]
            norms = norms.at[k, m].set(grown)
    norms = norms.at[depth, depth].set(tied[-1])
    upward = matrices[-1][None]
    for k in range(depth - 1, 0, -1):
        upward = upward * masks[k - 1][:, None, :]
        norms = norms.at[k, depth].set(tied[k - 1] * _largest_norm(upward))
        upward = upward @ matrices[k - 1]
    return norms


def _largest_norm(matrices: Float[Array, "samples outputs units"]) -> Scalar:
    """The largest spectral norm."""
    if min(matrices.shape[1:]) == 1:
        return jnp.max(jnp.sqrt(jnp.sum(matrices**2, axis=(1, 2))))
    return jnp.max(jnp.linalg.svd(matrices, compute_uv=False)[:, 0])
