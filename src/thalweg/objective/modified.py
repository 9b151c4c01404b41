"""The modified flows, which descent follows more closely than the gradient flow.

Backward error analysis looks for a vector field whose exact solution passes through the points of
descent. With g = grad f, H its Hessian and eta the learning rate, for w_{k+1} = w_k - eta g(w_k) it
is the series

    w' = -(g + (eta / 2) H g + eta^2 (H^2 g / 3 + D^3 f[g, g] / 12) + ...),

where D^3 f[g, g] is the derivative of H g along a constant g [hairer2006, ch. IX]. It follows from
equating the Taylor series of w(t + eta) in eta with one step: with w' = F0 + eta F1 + eta^2 F2,

    F0 = -g,    F1 = -F0' F0 / 2,    F2 = F0' F0' F0 / 3 + F0''[F0, F0] / 12.

Cut off after eta^n it is followed by descent up to O(eta^(n+1)). To order one the field is the
gradient of f + (eta / 4) |g|^2 [barrett2021]; from order two on it is no gradient.

*Heavy ball*, w_{k+1} = w_k + beta (w_k - w_{k-1}) - eta g(w_k), in time t = eta k: expanding
w(t + eta) - w(t) and w(t) - w(t - eta) gives (1 - beta) w' + (eta / 2) (1 + beta) w'' = -g, so

    w' = -(g + (eta / 2) (1 + beta) / (1 - beta)^2 H g + O(eta^2)) / (1 - beta),

the gradient of f + (eta / 4) (1 + beta) / (1 - beta)^2 |g|^2 in the time t / (1 - beta). The
momentum starts at rest, though, and takes some 1 / (1 - beta) steps to come up to its speed.
v_k = w_k + beta / (1 - beta) (w_k - w_{k-1}) moves as plain descent does at the rate
eta / (1 - beta), from v_0 = w_0. On the smooth solution v - w = -eta beta / (1 - beta)^2 g, so
that the smooth solution which the weights come to begins, up to O(eta^2), at

    w_0 + eta beta / (1 - beta)^2 g(w_0).
"""

from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
from typing_extensions import override

from thalweg._typing import AnyWeights, Scalar
from thalweg.objective.base import AbstractObjective, floating


@final
class ModifiedObjective(AbstractObjective):
    """An objective whose gradient is replaced by a modified one; its value is that of f itself.

    The value stays what it is, because that is what a run's loss is compared with, and because
    from order two on there is no function with this gradient.

    Attributes:
        objective: f.
        learning_rate: eta.
        beta: the momentum of the heavy ball; 0 for plain descent.
        order: 0, 1 or 2, the power of eta up to which terms are kept.
    """

    objective: AbstractObjective
    learning_rate: Scalar
    beta: Scalar
    order: int = eqx.field(static=True)

    @property
    @override
    def shapes(self) -> Any:
        return self.objective.shapes

    @override
    def __call__(self, weights: AnyWeights) -> Scalar:
        return self.objective(weights)

    @override
    def value_and_gradient(self, weights: AnyWeights) -> tuple[Scalar, AnyWeights]:
        point = floating(weights)
        value, gradient = self.objective.value_and_gradient(point)
        return value, jax.tree.map(
            lambda part: part / (1 - self.beta), self._field(point, gradient)
        )

    def first_point(self, weights: AnyWeights) -> AnyWeights:
        """Where the smooth solution begins that descent from these weights comes to."""
        if self.order == 0:
            return weights
        shift = self.learning_rate * self.beta / (1 - self.beta) ** 2
        gradient = self.objective.gradient(weights)
        return jax.tree.map(lambda array, part: array + shift * part, weights, gradient)

    def _field(self, point: AnyWeights, gradient: AnyWeights) -> AnyWeights:
        """The modified gradient, but for the factor of the time."""
        if self.order == 0:
            return gradient
        eta, beta = self.learning_rate, self.beta
        bent = self.objective.hvp(point, gradient)
        field = _plus(gradient, eta / 2 * (1 + beta) / (1 - beta) ** 2, bent)
        if self.order == 1:
            return field
        field = _plus(field, eta**2 / 3, self.objective.hvp(point, bent))
        turned = jax.jvp(lambda at: self.objective.hvp(at, gradient), (point,), (gradient,))[1]
        return _plus(field, eta**2 / 12, turned)


def _plus(tree: AnyWeights, factor: Scalar, other: AnyWeights) -> AnyWeights:
    return jax.tree.map(lambda a, b: a + jnp.asarray(factor, a.dtype) * b, tree, other)
