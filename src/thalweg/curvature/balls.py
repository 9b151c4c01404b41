"""Bounds on the derivatives of a linear network's loss, on a ball around a point.

On the ball of radius r each layer is W_j + E_j with |E_j| <= r. Write N_ij for the spectral norm of
W_j ... W_{i+1} at the centre (for j = N with the readout in front; one if i = j). Sorted by the
first disturbed layer from above, a product on the ball has the norm T_ij at most,

    T_ij = N_ij + r sum over i < k <= j of N_kj T_i,k-1,

which is never more than the product of |W_k| + r and, in deep networks, far less. The product F of
all layers then has derivatives of norms |DF| <= d1, |D^2 F| <= d2 and |D^3 F| <= d3,

    d1 = |(T_kN T_0,k-1)_k|,
    d2 = lambda_max of the symmetric matrix of T_lN T_k,l-1 T_0,k-1,    k < l,
    d3 = min{(N - 1)(N - 2) / sqrt(N) max, norm of the unfolding} of the symmetric tensor of
         T_mN T_l,m-1 T_k,l-1 T_0,k-1,    k < l < m,

which are zero where two indices agree. The first form of d3 is Maclaurin's inequality. A convex
loss phi with |phi''| <= h and |phi'''| <= t on what the ball is mapped to, and the gradient G at
the centre, gives f = phi(F) the bounds

    |grad f| <= g d1,    |H| <= h d1^2 + B(r),    |D^3 f| <= t d1^3 + 3 h d1 d2 + g d3,

where g = |G| + c r, and c = h d1 is how fast the gradient of phi changes. In all but the first |G|
may be the spectral norm, because the other factor of <G, D^2 F[u, u]> is bounded in the nuclear
norm, too. The square loss has t = 0 and h = 2 scale lambda_max(Sigma).

B(r) bounds |<grad phi, D^2 F[u, u]>| on the ball, block by block. For layers k < l the block is the
tensor product of A_l^T G B_k^T, with A_l = W_N ... W_{l+1} and B_k = W_{k-1} ... W_1, and of what
lies between them. At the centre S_lk = |A_l^T G B_k^T| may be far below |A_l| |G| |B_k|. On the
ball every factor is disturbed: with a = T_lN - N_lN and b = T_0,k-1 - N_0,k-1,

    B(r) = lambda_max of the symmetric matrix of T_k,l-1 times
           S_lk + a |G B_k^T| + |A_l^T G| b + a |G| b + c r T_lN T_0,k-1,    k < l.

That is never more than g d2, and convex in r, so that at a distance x <= r from the centre

    lambda_min(H) >= -B(0) - (B(r) - B(0)) x / r.

For every other loss h and t come from the bounds that it declares for each sample's outputs
(`output_bounds`), h_i and t_i where sample i's change by |x_i| times what the matrix does:

    h = lambda_max(mean_i h_i x_i x_i^T),
    t = min{mean_i t_i |x_i|^3, max_i |x_i| lambda_max(mean_i t_i x_i x_i^T)}.
"""

from math import inf, sqrt

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, ScalarLike

from thalweg._arguments import checked
from thalweg._checks import InputError, is_traced
from thalweg._shown import shown
from thalweg._typing import Matrix, Scalar, Weights
from thalweg.curvature.products import largest_eigenvalue, linear_network, spectral_norm
from thalweg.network import LinearNetwork
from thalweg.objective import Objective
from thalweg.problem import AbstractProblem, Rounding
from thalweg.problem.base import units

_TINY = 1e-300  # below any radius that matters


@shown
class BallBounds(eqx.Module):
    """What the norms of the derivatives stay below on a ball.

    `gradient` bounds the gradient, `hessian` the spectral norm of the Hessian, `hessian_lipschitz`
    how fast the Hessian changes in spectral norm per unit of distance. At a distance x from the
    centre its eigenvalues stay above `central_eigenvalue` - `eigenvalue_slope` x, and so on all of
    the ball above `smallest_eigenvalue`. `product_first` and `product_second` are d1 and d2.
    """

    gradient: Scalar
    hessian: Scalar
    hessian_lipschitz: Scalar
    smallest_eigenvalue: Scalar
    central_eigenvalue: Scalar
    eigenvalue_slope: Scalar
    product_first: Scalar
    product_second: Scalar


class ObjectiveRounding(eqx.Module):
    """How far the computed objective, and the norms of its derivatives, can be off at a point."""

    value: Scalar
    gradient: Scalar
    hessian: Scalar


class LossBounds(eqx.Module):
    """What the second and third derivatives of a loss of the end-to-end matrix stay below."""

    second: Scalar
    third: Scalar


class BallCentre(eqx.Module):
    """What is known at the centre of balls, so that bounds for many radii cost little.

    `norms` holds N_ij above; `slope` the gradient G of the loss with respect to the product, and
    `seen` the norms of A_l^T G B_k^T, its last row those of G B_k^T; `largest_moment` what the
    input moment is at most, where it is to take the place of moments weighted for each radius,
    which cost a decomposition each.
    """

    objective: Objective
    product: Matrix
    slope: Matrix
    norms: Float[Array, "ends ends"]
    seen: Float[Array, "ends depth"]
    size: Scalar
    steepness: Scalar
    largest_moment: Scalar | None

    @classmethod
    def at(
        cls, objective: Objective, weights: Weights, largest_moment: Scalar | None = None
    ) -> "BallCentre":
        """The balls around these weights of a linear network."""
        network = linear_network(objective, "`ball_bounds`")
        network.check(weights)
        layers = tuple(jnp.asarray(array) for array in weights)
        product = network.end_to_end(layers)
        slope = objective.problem.gradient(product)
        return cls(
            objective,
            product,
            slope,
            _interval_norms(network, layers),
            _seen_norms(network, layers, slope),
            size=jnp.sqrt(sum(jnp.sum(layer**2) for layer in layers)),
            steepness=jnp.sqrt(sum(jnp.sum(each**2) for each in objective.gradient(layers))),
            largest_moment=largest_moment,
        )

    def bounds(self, radius: Scalar, pace: ScalarLike = inf) -> BallBounds:
        """Bounds on the ball of this radius; `pace` is another bound on c, where there is one."""
        reached = disturbed_norms(self.norms, radius)
        first, second, third = product_bounds(reached)
        reach, problem = radius * first, self.objective.problem
        loss = loss_bounds(problem, self.product, reach, self.largest_moment)
        drift = loss.second * reach
        steepest = self.seen[-1, 0] + drift
        decay = self.objective.weight_decay
        central = self._indefinite(self.norms, jnp.zeros_like(radius))
        furthest = self._indefinite(reached, radius * jnp.minimum(loss.second * first, pace))
        hessian = loss.second * first**2 + furthest + decay
        far = (jnp.linalg.norm(self.slope) + drift) * first + decay * (self.size + radius)
        return BallBounds(
            gradient=jnp.minimum(far, self.steepness + radius * hessian),
            hessian=hessian,
            hessian_lipschitz=(
                loss.third * first**3 + 3 * loss.second * first * second + steepest * third
            ),
            smallest_eigenvalue=decay - furthest,
            central_eigenvalue=decay - central,
            eigenvalue_slope=(furthest - central) / jnp.maximum(radius, _TINY),
            product_first=first,
            product_second=second,
        )

    def _indefinite(self, reached: Float[Array, "ends ends"], drift: Scalar) -> Scalar:
        """B(r) above, where c r is `drift`, and `reached` holds the norms T."""
        depth = reached.shape[0] - 1
        above, below = reached[1:, depth], reached[0, :depth]
        a = (above - self.norms[1:, depth])[:, None]
        b = below - self.norms[0, :depth]
        left, right, whole = self.seen[:-1, :1], self.seen[-1], self.seen[-1, 0]
        seen = self.seen[:-1] + a * right + left * b + a * whole * b
        blocks = (seen + drift * above[:, None] * below) * reached[1:, :depth].T
        blocks = jnp.tril(blocks, -1)
        return largest_eigenvalue(blocks + blocks.T)

    def rounding(self) -> ObjectiveRounding:
        """By the rounding of the loss, and of the product of the layers."""
        problem, still = self.objective.problem, self.bounds(jnp.zeros(()))
        slope = jnp.linalg.norm(self.slope)
        return objective_rounding(
            self.objective, still, problem.rounding(self.product), slope, self.size
        )


def objective_rounding(
    objective: Objective, still: BallBounds, loss: Rounding, slope: Scalar, size: Scalar
) -> ObjectiveRounding:
    """How far an objective is off, whose loss is off by `loss`.

    As if it had been taken at weights that differ in their last places, which is what rounding
    makes of their product.

    Args:
        objective: what is computed.
        still: the bounds on the ball of radius zero.
        loss: the rounding of the problem.
        slope: the norm of the loss's gradient with respect to what the network makes.
        size: the norm of the weights.
    """
    unit = units(size.dtype)
    moved = unit * size
    return ObjectiveRounding(
        loss.value + (slope * still.product_first + objective.weight_decay * size) * moved,
        still.product_first * loss.gradient + still.hessian * moved,
        still.product_second * loss.gradient
        + still.hessian_lipschitz * moved
        + unit * still.hessian,
    )


@checked
def ball_bounds(objective: Objective, weights: Weights, radius: ScalarLike) -> BallBounds:
    """Bounds on the ball of this radius around the weights, for a linear network on any problem."""
    centre = BallCentre.at(objective, weights)
    radius = jnp.asarray(radius, centre.norms.dtype)
    if not is_traced(radius) and not radius >= 0:
        raise InputError(f"`radius` must be a number >= 0, got {radius}.")
    return centre.bounds(radius)


def loss_bounds(
    problem: AbstractProblem,
    matrix: Matrix,
    reach: ScalarLike,
    largest_moment: Scalar | None = None,
) -> LossBounds:
    """Bounds on the loss's derivatives at all matrices within `reach` (Frobenius) of this one.

    Losses other than the square weigh the samples by factors that depend on the reach. Where the
    largest eigenvalue of the input moment is given, it times the largest factor bounds the weighted
    one. A bound is infinite where it is none.
    """
    squared = problem.least_squares
    if squared is not None:
        return LossBounds(2 * squared.scale * squared.spectrum[-1], jnp.zeros(()))
    sizes = jnp.linalg.norm(problem.inputs, axis=1)
    second, third = problem.output_bounds(problem.inputs @ matrix.T, sizes * reach)
    cubes = jnp.mean(third * sizes**3)
    if largest_moment is None:
        moments = (_weighted_moment(problem, second), _weighted_moment(problem, third))
    else:
        moments = (jnp.max(second) * largest_moment, jnp.max(third) * largest_moment)
    twist = jnp.minimum(cubes, jnp.max(sizes) * moments[1])
    return LossBounds(*(jnp.where(jnp.isnan(each), jnp.inf, each) for each in (moments[0], twist)))


def largest_moment(problem: AbstractProblem) -> Scalar:
    """The largest eigenvalue of the input moment, from whichever of its two forms is smaller."""
    inputs = problem.inputs
    samples, features = inputs.shape
    gram = inputs @ inputs.T if samples < features else inputs.T @ inputs
    return largest_eigenvalue(gram) / samples


def _weighted_moment(problem: AbstractProblem, factors: Float[Array, " samples"]) -> Scalar:
    """The largest eigenvalue of mean_i factor_i x_i x_i^T."""
    inputs = problem.inputs
    return largest_eigenvalue(inputs.T @ (factors[:, None] * inputs) / inputs.shape[0])


def _interval_norms(
    network: LinearNetwork, layers: tuple[Float[Array, "_ _"], ...]
) -> Float[Array, "ends ends"]:
    """N_ij above, zero for i > j."""
    depth = network.depth
    zero, one = jnp.zeros((), layers[0].dtype), jnp.ones((), layers[0].dtype)
    columns = []
    for j in range(depth + 1):
        product = network.readout.T if j == depth and network.readout is not None else None
        column = [one if product is None else spectral_norm(product)]
        for layer in reversed(layers[:j]):
            product = layer if product is None else product @ layer
            column.insert(0, spectral_norm(product))
        columns.append(jnp.stack([*column, *[zero] * (depth - j)]))
    return jnp.stack(columns, axis=1)


def _seen_norms(
    network: LinearNetwork, layers: tuple[Float[Array, "_ _"], ...], slope: Matrix
) -> Float[Array, "ends depth"]:
    """|A_l^T G B_k^T| at (l, k), and |G B_k^T| in one more row.

    A_l^T and B_k G^T are thin; of either only the triangle is needed.
    """
    one = jnp.eye(network.outputs, dtype=slope.dtype)
    above, below = [one if network.readout is None else network.readout], [slope.T]
    for layer in reversed(layers[1:]):
        above.insert(0, layer.T @ above[0])
    for layer in layers[:-1]:
        below.append(layer @ below[-1])
    left, right = _triangles([*above, one]), _triangles(below)
    products = left[:, None] @ jnp.swapaxes(right, -1, -2)
    if network.outputs == 1:
        return jnp.abs(products[..., 0, 0])
    return jnp.linalg.svd(products, compute_uv=False)[..., 0]


def _triangles(matrices: list[Float[Array, "_ outputs"]]) -> Float[Array, "count _ outputs"]:
    """The R of each one's QR decomposition; all are filled up with zeros to one shape."""
    tall = max(each.shape[0] for each in matrices)
    filled = jnp.stack([jnp.pad(each, ((0, tall - each.shape[0]), (0, 0))) for each in matrices])
    if filled.shape[-1] == 1:
        return jnp.linalg.norm(filled, axis=1, keepdims=True)
    return jnp.linalg.qr(filled, mode="r")


def disturbed_norms(norms: Float[Array, "ends ends"], radius: Scalar) -> Float[Array, "ends ends"]:
    """T_ij above, zero for i > j."""
    columns = [norms[:, 0]]
    for j in range(1, norms.shape[0]):
        disturbed = radius * jnp.stack(columns, axis=1) @ norms[1 : j + 1, j]
        columns.append(norms[:, j] + disturbed)
    return jnp.stack(columns, axis=1)


def product_bounds(reached: Float[Array, "ends ends"]) -> tuple[Scalar, Scalar, Scalar]:
    """d1, d2 and d3 above."""
    depth = reached.shape[0] - 1
    above, below, between = reached[1:, depth], reached[0, :depth], reached[1:, :depth]
    pairs = below[:, None] * between * above
    largest = jnp.zeros(())
    if depth > 2:
        triples = jnp.einsum("k,kl,lm,m->klm", below, between, between, above)
        orders = [(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)]
        symmetric = sum((jnp.transpose(triples, order) for order in orders), 0.0)
        unfolded = spectral_norm(jnp.reshape(symmetric, (depth, -1)))
        maclaurin = (depth - 1) * (depth - 2) / sqrt(depth) * jnp.max(triples)
        largest = jnp.minimum(maclaurin, unfolded)
    return jnp.linalg.norm(above * below), largest_eigenvalue(pairs + pairs.T), largest
