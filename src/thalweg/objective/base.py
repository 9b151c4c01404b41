"""What all objectives share: a value over a pytree of weights, its gradient and its Hessian.

A subclass says how the value is computed; everything else follows by automatic differentiation:

    class Quadratic(AbstractObjective):
        matrix: Array

        def __call__(self, weights):
            return weights["w"] @ self.matrix @ weights["w"] / 2

Weights are any pytree of floating arrays: a dict, a list, an equinox module whose other parts were
filtered out. `shapes`, if it is declared, has that structure with a shape at each leaf; only then
can leading batch axes be told from the weights' own.
"""

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, final, no_type_check

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float
from typing_extensions import override

from thalweg._arguments import checked
from thalweg._checks import InputError, as_tree, require_alike, require_tree_shapes
from thalweg._shown import shown
from thalweg._typing import AnyWeights, Scalar
from thalweg.kernels.chain import Chain
from thalweg.network import LinearNetwork

if TYPE_CHECKING:
    from thalweg.objective.kinked import KinkedObjective

DENSE_LIMIT = 6000
"""Above this many weights a dense Hessian (288 MB) is refused."""

_ROWS_AT_ONCE = 256  # of the Hessian, so that its computation takes no more memory than it does


@shown
class AbstractObjective(eqx.Module):
    """A function of weights that is minimised.

    `smooth` says whether its gradient is continuous, `shapes` of which shapes the weights of one
    network are (None: whatever is given); subclasses declare them by a class attribute or property.
    """

    @abstractmethod
    def __call__(self, weights: AnyWeights) -> Scalar:
        """The value f(weights)."""

    @property
    def shapes(self) -> Any:
        """The weights' shapes, in the weights' structure; None where any are taken."""
        return None

    @property
    def smooth(self) -> bool:
        """Whether the gradient is continuous; a (leaky) ReLU network's is not."""
        return True

    @property
    def on_host(self) -> bool:
        """Whether another library computes it, so that compiling loops over it gains nothing."""
        return False

    @property
    def linear(self) -> LinearNetwork | None:
        """The linear network whose weights these are; None where there is none."""
        return None

    @property
    def chain(self) -> Chain | None:
        """The same function as a squared distance of a product, for kernels; None: JAX has it."""
        return None

    @property
    @no_type_check
    def kinked(self) -> "KinkedObjective | None":
        """The same function with its kinks laid open; None where it has none, or hides them."""
        return None

    def operations(self, weights: AnyWeights) -> int:
        """Roughly how many additions and multiplications a gradient takes, by XLA's own count."""
        shapes = jax.tree.map(lambda array: jax.ShapeDtypeStruct(array.shape, array.dtype), weights)
        cost = jax.jit(lambda point: self.value_and_gradient(point)).lower(shapes).cost_analysis()
        return int((cost or {}).get("flops", 0))

    @checked
    def value_and_gradient(self, weights: AnyWeights) -> tuple[Scalar, AnyWeights]:
        """The value and the gradient at once, which costs little more than the gradient."""
        return jax.value_and_grad(self)(floating(weights))

    @checked
    def gradient(self, weights: AnyWeights) -> AnyWeights:
        """The gradient, in the shape of the weights."""
        return self.value_and_gradient(weights)[1]

    def value_and_gradient_in_lanes(
        self, weights: AnyWeights
    ) -> tuple[Float[Array, " lanes"], AnyWeights]:
        """`value_and_gradient` of many networks, stacked along the last axis of each array."""
        return jax.vmap(self.value_and_gradient, in_axes=-1, out_axes=(0, -1))(weights)

    @checked
    def hvp(self, weights: AnyWeights, direction: AnyWeights) -> AnyWeights:
        """The Hessian at the weights, applied to a direction of the same shapes."""
        point = floating(weights)
        require_alike("direction", direction, "weights", point)
        tangent = jax.tree.map(
            lambda change, array: jnp.asarray(change, array.dtype), direction, point
        )
        return jax.jvp(self.gradient, (point,), (tangent,))[1]

    @checked
    def hessian(self, weights: AnyWeights) -> Float[Array, "size size"]:
        """The dense Hessian: arrays one after the other, as in the pytree, each row by row."""
        point, unravel = ravel_pytree(floating(weights))
        require_dense(point.size)

        def column(unit: Float[Array, " size"]) -> Float[Array, " size"]:
            return ravel_pytree(self.hvp(unravel(point), unravel(unit)))[0]

        units = jnp.eye(point.size, dtype=point.dtype)
        columns = jax.lax.map(column, units, batch_size=_ROWS_AT_ONCE)
        return (columns + columns.T) / 2

    def check(self, weights: Any, *, name: str = "weights", many: bool = True) -> None:
        """Refuse weights of other shapes than this takes; batch axes are allowed if `many`."""
        require_tree_shapes(name, weights, self.shapes, many)

    def try_out(self, weights: AnyWeights) -> None:
        """Refuse, before anything runs, what this cannot be descended from; by default nothing."""

    def as_precise(self, weights: AnyWeights) -> AnyWeights:
        """The weights in the precision in which they move; by default their own."""
        return weights

    def as_weights(self, weights: Any, *, name: str = "weights", many: bool = True) -> AnyWeights:
        """The weights with arrays at their leaves, or one sentence on why they are none."""
        taken = as_tree(name, weights)
        self.check(taken, name=name, many=many)
        return taken


def require_dense(size: int) -> None:
    """Refuse a dense Hessian of more weights than fit in memory."""
    if size > DENSE_LIMIT:
        raise InputError(
            f"`hessian` must fit in memory: there are {size} weights and the limit is "
            f"{DENSE_LIMIT}; use `hvp`, which needs no matrix."
        )


def floating(weights: AnyWeights) -> AnyWeights:
    """The weights as floating JAX arrays, which can be differentiated."""
    return jax.tree.map(lambda array: jnp.asarray(array, jnp.result_type(array, float)), weights)


def shaped(objective: AbstractObjective, weights: AnyWeights) -> AbstractObjective:
    """The same objective, which takes weights of these shapes if it has not declared others."""
    if objective.shapes is not None:
        return objective
    return _Shaped(objective, jax.tree.map(np.shape, weights))


@final
class _Shaped(AbstractObjective):
    """An objective with shapes, so that batch axes can be told apart."""

    objective: AbstractObjective
    _shapes: Any

    @property
    @override
    def shapes(self) -> Any:
        return self._shapes

    @property
    @override
    def smooth(self) -> bool:
        return self.objective.smooth

    @override
    def __call__(self, weights: AnyWeights) -> Scalar:
        return self.objective(weights)

    @override
    def try_out(self, weights: AnyWeights) -> None:
        self.objective.try_out(weights)

    @override
    def operations(self, weights: AnyWeights) -> int:
        return self.objective.operations(weights)

    @override
    def as_weights(self, weights: Any, *, name: str = "weights", many: bool = True) -> AnyWeights:
        taken = self.objective.as_weights(weights, name=name, many=many)
        return super().as_weights(taken, name=name, many=many)

    @override
    def value_and_gradient(self, weights: AnyWeights) -> tuple[Scalar, AnyWeights]:
        return self.objective.value_and_gradient(weights)

    @override
    def value_and_gradient_in_lanes(
        self, weights: AnyWeights
    ) -> tuple[Float[Array, " lanes"], AnyWeights]:
        return self.objective.value_and_gradient_in_lanes(weights)

    @override
    def hvp(self, weights: AnyWeights, direction: AnyWeights) -> AnyWeights:
        return self.objective.hvp(weights, direction)
