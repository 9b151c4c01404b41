"""How descent uses the gradient: plain, with momentum, or through any optax transformation.

One rule holds for all of them. An optimiser turns the gradient into a direction and keeps a memory
of what it has seen; the learning rate scales the direction:

    direction_k, memory_{k+1} = optimiser.direction(gradient(weights_k), memory_k, weights_k)
    weights_{k+1} = weights_k - learning_rate * direction_k.

    GradientDescent   direction = g
    HeavyBall         m <- beta m + g,   direction = m             [polyak1964]
    Nesterov          m <- beta m + g,   direction = g + beta m    [nesterov1983, sutskever2013]

Nesterov's weights are the points at which gradients are taken: with x_{k+1} = w_k - eta g(w_k), the
other sequence of the method, w_{k+1} = x_{k+1} + beta (x_{k+1} - x_k), which is the rule above.

*Linear stability.* In a direction of curvature s > 0 the weights follow

    HeavyBall         w_{k+1} = (1 + beta - eta s) w_k - beta w_{k-1}
    Nesterov          w_{k+1} = (1 - eta s) ((1 + beta) w_k - beta w_{k-1}),

and z^2 - a z + b has both roots within the unit circle if and only if |b| < 1 and |a| < 1 + b. For
0 <= beta < 1 this is eta s < 2 (1 + beta), and eta s < 2 (1 + beta) / (1 + 2 beta): with q = 1 -
eta s, Nesterov's condition (1 + beta) |q| < 1 + beta q is q < 1 or else -q (1 + 2 beta) < 1. What
eta s must be below is the optimiser's `stability`; the *edge* of a learning rate is the curvature
stability / eta, 2 / eta for plain descent, from which on a direction is unstable.
"""

from abc import abstractmethod
from typing import Any, NamedTuple, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, ScalarLike
from typing_extensions import override

from thalweg._arguments import checked
from thalweg._checks import InputError, described, is_traced
from thalweg._shown import shown
from thalweg._typing import AnyWeights, Scalar

__all__ = [
    "PLAIN",
    "AbstractOptimiser",
    "GradientDescent",
    "HeavyBall",
    "Momentum",
    "Nesterov",
    "Transformation",
    "as_optimiser",
]


def __dir__() -> list[str]:
    return __all__


class Momentum(NamedTuple):
    """A rule m <- beta m + g, in plain numbers, for kernels.

    Attributes:
        beta: the share that is kept.
        ahead: whether the direction is g + beta m, or m.
    """

    beta: float
    ahead: bool


@shown
class AbstractOptimiser(eqx.Module):
    """What makes a direction of a gradient; both methods are about one network.

    Numbers that a sweep varies are fields that hold arrays: they are traced, and for another value
    nothing is compiled anew.
    """

    @property
    def plain(self) -> bool:
        """Whether this is plain gradient descent, which the theory of descent is about."""
        return False

    @property
    def momentum(self) -> Momentum | None:
        """The same rule as kernels know it; None: JAX computes it."""
        return None

    @abstractmethod
    def init(self, weights: AnyWeights) -> Any:
        """The memory before the first step: a pytree of arrays."""

    @abstractmethod
    def direction(
        self, gradient: AnyWeights, memory: Any, weights: AnyWeights
    ) -> tuple[AnyWeights, Any]:
        """The direction against which to go, like the gradient, and the memory for the next."""

    @property
    def stability(self) -> float | None:
        """What learning rate x curvature must be below to be linearly stable; None: not known."""
        return None

    def edge(self, learning_rate: Any) -> Float[np.ndarray, "..."]:
        """The sharpness above which it is unstable at each learning rate; NaN where not known."""
        limit = np.nan if self.stability is None else self.stability
        with np.errstate(divide="ignore"):  # on flat ground any rate is stable
            return np.asarray(limit / np.asarray(learning_rate, float))

    def stability_limit(self, sharpness: Any) -> Float[np.ndarray, "..."]:
        """The learning rate up to which a minimiser of each sharpness is linearly stable.

        NaN where it is not known. Rate and sharpness stand in a product: the formula is the edge's.
        """
        return self.edge(sharpness)


@final
class GradientDescent(AbstractOptimiser):
    """Plain gradient descent: the direction is the gradient."""

    @property
    @override
    def plain(self) -> bool:
        return True

    @property
    @override
    def momentum(self) -> Momentum:
        return Momentum(0.0, ahead=False)

    @override
    def init(self, weights: AnyWeights) -> Any:
        return ()

    @override
    def direction(
        self, gradient: AnyWeights, memory: Any, weights: AnyWeights
    ) -> tuple[AnyWeights, Any]:
        return gradient, memory

    @property
    @override
    def stability(self) -> float:
        return 2.0


PLAIN = GradientDescent()
"""What `descend` uses if it is told nothing else."""


@final
class HeavyBall(AbstractOptimiser):
    """Gradient descent with Polyak's momentum: m <- beta m + g, and the direction is m."""

    beta: Scalar

    @checked
    def __init__(self, beta: ScalarLike):
        """Take the share of the momentum that is kept from step to step, 0 <= beta < 1."""
        self.beta = _checked_beta(beta)

    @property
    @override
    def momentum(self) -> Momentum:
        return Momentum(float(self.beta), ahead=False)

    @override
    def init(self, weights: AnyWeights) -> Any:
        return jax.tree.map(jnp.zeros_like, weights)

    @override
    def direction(
        self, gradient: AnyWeights, memory: Any, weights: AnyWeights
    ) -> tuple[AnyWeights, Any]:
        momentum = _accumulated(self.beta, memory, gradient)
        return momentum, momentum

    @property
    @override
    def stability(self) -> float:
        return 2 * (1 + float(self.beta))


@final
class Nesterov(AbstractOptimiser):
    """Nesterov's accelerated gradient: m <- beta m + g, and the direction is g + beta m."""

    beta: Scalar

    @checked
    def __init__(self, beta: ScalarLike):
        """Take the share of the momentum that is kept from step to step, 0 <= beta < 1."""
        self.beta = _checked_beta(beta)

    @property
    @override
    def momentum(self) -> Momentum:
        return Momentum(float(self.beta), ahead=True)

    @override
    def init(self, weights: AnyWeights) -> Any:
        return jax.tree.map(jnp.zeros_like, weights)

    @override
    def direction(
        self, gradient: AnyWeights, memory: Any, weights: AnyWeights
    ) -> tuple[AnyWeights, Any]:
        momentum = _accumulated(self.beta, memory, gradient)
        return _accumulated(self.beta, momentum, gradient), momentum

    @property
    @override
    def stability(self) -> float:
        beta = float(self.beta)
        return 2 * (1 + beta) / (1 + 2 * beta)


@final
class Transformation(AbstractOptimiser):
    """A gradient transformation of optax's, without a learning rate of its own.

    What it returns is the direction, which `learning_rate` scales: optax.scale_by_rms() with a
    learning rate is optax.rmsprop of that rate. A whole optimiser such as optax.rmsprop(rate) has
    its rate, and the sign, inside already, and is refused. Make a transformation once and use it
    again: its numbers are inside of functions, so that another one is compiled anew.
    """

    transformation: Any = eqx.field(static=True)

    @override
    def init(self, weights: AnyWeights) -> Any:
        return self.transformation.init(weights)

    @override
    def direction(
        self, gradient: AnyWeights, memory: Any, weights: AnyWeights
    ) -> tuple[AnyWeights, Any]:
        return self.transformation.update(gradient, memory, weights)


def as_optimiser(optimiser: Any, weights: AnyWeights) -> AbstractOptimiser:
    """An optimiser of ours, or an optax transformation, which must suit these weights."""
    if isinstance(optimiser, Transformation):
        return as_optimiser(optimiser.transformation, weights)
    if isinstance(optimiser, AbstractOptimiser):
        return optimiser
    if not all(callable(getattr(optimiser, name, None)) for name in ("init", "update")):
        kind = isinstance(optimiser, type) and issubclass(optimiser, AbstractOptimiser)
        fix = f"; make one: {optimiser.__name__}(...)" if kind else ""
        raise InputError(
            "`optimiser` must be one of tw.optimisers or an optax transformation, got "
            f"{described(optimiser)}{fix}."
        )
    _require_direction(optimiser, weights)
    return Transformation(optimiser)


def _require_direction(transformation: Any, weights: AnyWeights) -> None:
    """Refuse what goes downhill by itself, and what asks for more than a gradient and weights.

    It is tried on a gradient of ones, twice: a schedule may begin at zero. And it is tried at
    weights of zero, on which weight decay has no say.
    """
    ones, zeros = (jax.tree.map(like, weights) for like in (jnp.ones_like, jnp.zeros_like))
    memory, sums = transformation.init(zeros), []
    for _ in range(2):
        try:
            updates, memory = transformation.update(ones, memory, zeros)
        except TypeError as error:
            raise InputError(
                "`optimiser` must need no more than the gradient and the weights, but this "
                f"transformation does: {error}."
            ) from error
        sums.append(float(sum(jnp.sum(update) for update in jax.tree.leaves(updates))))
    if min(sums) < 0:
        raise InputError(
            "`optimiser` must be a transformation without a learning rate, such as "
            "optax.scale_by_rms(), and got one whose update points downhill already, as that of "
            "optax.rmsprop(rate) does; give its rate as `learning_rate`."
        )


def _checked_beta(beta: Any) -> Scalar:
    if not is_traced(beta) and not 0 <= float(beta) < 1:
        raise InputError(f"`beta` must be at least 0 and below 1, got {float(beta):g}.")
    return jnp.asarray(beta, float)


def _accumulated(beta: Scalar, momentum: AnyWeights, gradient: AnyWeights) -> AnyWeights:
    """The sum beta m + g, in the precision of the weights."""
    return jax.tree.map(lambda m, g: beta.astype(g.dtype) * m + g, momentum, gradient)
