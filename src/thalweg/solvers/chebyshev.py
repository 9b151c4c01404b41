"""The second-order Runge-Kutta-Chebyshev method: a stabilised explicit step from gradients alone.

With s stages a step h is stable as long as h rho <= 0.65 (s^2 - 1), rho the largest curvature of f,
so that a horizon T costs about sqrt(T rho) gradients per step where an explicit method of fixed
stages needs T rho of them. From y with F = -grad f(y), and with the Chebyshev polynomials T_j,

    Y_1 = y + b_1 w_1 h F,
    Y_j = (1 - mu_j - nu_j) y + mu_j Y_{j-1} + nu_j Y_{j-2}
          + mut_j h F(Y_{j-1}) + gamt_j h F,                            j = 2, ..., s,

    w_0 = 1 + (2/13) / s^2,    w_1 = T_s'(w_0) / T_s''(w_0),    b_j = T_j''(w_0) / T_j'(w_0)^2,
    mu_j = 2 w_0 b_j / b_{j-1},    nu_j = -b_j / b_{j-2},    mut_j = 2 w_1 b_j / b_{j-1},
    gamt_j = -(1 - b_{j-1} T_{j-1}(w_0)) mut_j,

and b_0 = b_1 = b_2 [sommeijer1998]. The new point is Y_s, its error (12 (y - Y_s) + 6 h (F +
F(Y_s))) / 15, and between the two the motion is the cubic that has both points and both
velocities. rho comes from power iterations with Hessian-vector products, each started from the
direction that the last one ended in.

[sommeijer1998] B. P. Sommeijer, L. F. Shampine, J. G. Verwer, "RKC: an explicit solver for
    parabolic PDEs", J. Comput. Appl. Math. 88, 1998.
"""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int
from typing_extensions import override

from thalweg._typing import Scalar
from thalweg.solvers.adaptive import AbstractAdaptiveSolver, FlatObjective, Followed, Goal, Vector
from thalweg.solvers.base import Work
from thalweg.solvers.steady import way_from_products
from thalweg.solvers.stepping import AbstractStepper, Trial, integrate

_DAMPING = 2 / 13
_STABILITY = (
    1.54  # h rho <= (s - 1)^2 / 1.54 keeps inside of the stability interval 0.653 (s^2 - 1)
)
_MARGIN = 1.2  # on the curvature, which power iterations find from below
_CLOSE = 0.05  # power iterations stop when the curvature changes by less than this part
_FIRST_ITERATIONS = 50
_ITERATIONS = 10
_AGE = 5  # steps for which a curvature is used


class Chebyshev(AbstractAdaptiveSolver):
    """Stabilised explicit steps of order 2, for networks of any size and moderate accuracy.

    With horizon T and largest curvature rho, of the order of sqrt(T rho) gradients per step.
    """

    compiles_limit: ClassVar[bool] = False

    @override
    def integrate(self, objective: FlatObjective, start: Vector, goal: Goal) -> Followed:
        return integrate(ChebyshevStepper(objective=objective, rtol=goal.rtol), start, goal)


class Known(eqx.Module):
    """The velocity at a point, the curvature rho there or shortly before, and its direction."""

    velocity: Vector
    curvature: Scalar
    direction: Vector
    age: Int[Array, ""]


class Hermite(eqx.Module):
    """A step's length and the velocity at its end."""

    step: Scalar
    velocity: Vector


class _Stage(eqx.Module):
    """Y_{j-1} - y and Y_{j-2} - y, and T, T', T'' at w_0 for j-1 and j-2, with b."""

    shift: Vector
    shift_before: Vector
    chebyshev: Float[Array, "2 3"]
    scale: Float[Array, "2"]


class ChebyshevStepper(AbstractStepper):
    """One stabilised step after the other."""

    objective: FlatObjective
    rtol: Scalar
    order: int = eqx.field(static=True, default=2)

    @override
    def linearise(self, point: Vector) -> tuple[Known, Work]:
        gradient = self.objective.gradient(point)
        # The gradient mostly lies in the sharp directions; the ramp is there in case it is zero.
        direction = gradient + jnp.linalg.norm(gradient) * jnp.linspace(0.01, 0.02, point.size)
        direction = jnp.where(jnp.any(direction != 0), direction, 1.0)
        curvature, direction, count = largest_curvature(
            self.objective, point, direction, _FIRST_ITERATIONS
        )
        known = Known(-gradient, curvature, direction, jnp.asarray(0))
        return known, Work.of(gradients=1, products=count)

    @override
    def relinearise(self, local: Known, trial: Trial) -> tuple[Known, Work]:
        local = eqx.tree_at(
            lambda k: (k.velocity, k.age), local, (trial.path.velocity, local.age + 1)
        )
        return self._with_curvature(local, trial.point, local.age >= _AGE)

    @override
    def reconsider(self, local: Known, point: Vector, trial: Trial) -> tuple[Known, Work]:
        return self._with_curvature(local, point, local.age > 0)

    def _with_curvature(
        self, local: Known, point: Vector, wanted: Bool[Array, ""]
    ) -> tuple[Known, Work]:
        def renewed() -> tuple[Scalar, Vector, Int[Array, ""]]:
            return largest_curvature(self.objective, point, local.direction, _ITERATIONS)

        def kept() -> tuple[Scalar, Vector, Int[Array, ""]]:
            return local.curvature, local.direction, jnp.asarray(0)

        curvature, direction, count = jax.lax.cond(wanted, renewed, kept)
        age = jnp.where(wanted, 0, local.age)
        return Known(local.velocity, curvature, direction, age), Work.of(products=count)

    @override
    def attempt(self, local: Known, point: Vector, step: Scalar) -> tuple[Trial, Work]:
        stages = stages_needed(step * _MARGIN * local.curvature)
        new = point + chebyshev_shift(self.objective, point, local.velocity, step, stages)
        velocity = -self.objective.gradient(new)
        error = (12 * (point - new) + 6 * step * (local.velocity + velocity)) / 15
        error = jnp.where(jnp.isfinite(error), error, jnp.inf)
        trial = Trial(
            new, error, Hermite(step, velocity), jnp.full_like(step, 0.1), jnp.full_like(step, 5.0)
        )
        return trial, Work.of(gradients=stages)

    @override
    def between(self, local: Known, point: Vector, trial: Trial, fraction: Scalar) -> Vector:
        s, step = fraction, trial.path.step
        rise = s**2 * (3 - 2 * s)
        start, end = s * (1 - s) ** 2, -(s**2) * (1 - s)
        move = rise * (trial.point - point)
        return point + move + step * (start * local.velocity + end * trial.path.velocity)

    @override
    def field(self, local: Known) -> Vector:
        return local.velocity

    @override
    def longest(self, local: Known) -> Scalar:
        # Rounding grows like stages^2: with more stages than this it would exceed the tolerance.
        eps = jnp.finfo(self.rtol.dtype).eps
        most = jnp.clip(jnp.sqrt(self.rtol / (10 * eps)), 2, 1000)
        return (most - 1) ** 2 / (_STABILITY * _MARGIN * local.curvature)

    @override
    def way(
        self, local: Known, point: Vector, remaining: Scalar, length: Scalar
    ) -> tuple[Scalar, Work]:
        way, products = way_from_products(
            -local.velocity, lambda v: self.objective.hvp(point, v), remaining, length
        )
        return way, Work.of(products=products)


def largest_curvature(
    objective: FlatObjective, point: Vector, direction: Vector, most: int
) -> tuple[Scalar, Vector, Int[Array, ""]]:
    """The largest |eigenvalue| of the Hessian from below, its direction, and the products taken."""

    def improve(
        carry: tuple[Scalar, Scalar, Vector, Int[Array, ""]],
    ) -> tuple[Scalar, Scalar, Vector, Int[Array, ""]]:
        now, _, direction, count = carry
        image = objective.hvp(point, direction)
        norm = jnp.linalg.norm(image)
        direction = jnp.where(norm > 0, image / jnp.where(norm > 0, norm, 1.0), direction)
        return norm, now, direction, count + 1

    def unsettled(carry: tuple[Scalar, Scalar, Vector, Int[Array, ""]]) -> Bool[Array, ""]:
        now, before, _, count = carry
        return (count < 2) | ((jnp.abs(now - before) > _CLOSE * now) & (count < most))

    zero = jnp.zeros_like(direction[0])
    unit = direction / jnp.linalg.norm(direction)
    start = (zero, zero, unit, jnp.asarray(0))
    curvature, _, direction, count = jax.lax.while_loop(unsettled, improve, start)
    # A flat point would allow any step; the next one may not be flat.
    return jnp.maximum(curvature, jnp.finfo(zero.dtype).tiny), direction, count


def stages_needed(reach: Scalar) -> Int[Array, ""]:
    """The least number of stages that is stable for h rho = reach."""
    return jnp.maximum(2, 1 + jnp.floor(jnp.sqrt(1 + _STABILITY * reach))).astype(int)


def chebyshev_shift(
    objective: FlatObjective, point: Vector, velocity: Vector, step: Scalar, stages: Int[Array, ""]
) -> Vector:
    """Y_s - y; its number of stages is traced, so that one compilation serves all."""
    excess = _DAMPING / stages**2
    w0 = 1 + excess
    w1 = _slope_over_curvature(excess, stages)

    def next_stage(index: Array, stage: _Stage) -> _Stage:
        chebyshev = _next_chebyshev(stage.chebyshev, w0)
        scale = jnp.where(index == 2, stage.scale[0], chebyshev[2] / chebyshev[1] ** 2)
        mu = 2 * w0 * scale / stage.scale[0]
        nu = -scale / stage.scale[1]
        mu_tilde = 2 * w1 * scale / stage.scale[0]
        gamma_tilde = -(1 - stage.scale[0] * stage.chebyshev[0, 0]) * mu_tilde
        inner = -objective.gradient(point + stage.shift)
        shift = mu * stage.shift + nu * stage.shift_before
        shift = shift + step * (mu_tilde * inner + gamma_tilde * velocity)
        return _Stage(
            shift,
            stage.shift,
            jnp.stack([chebyshev, stage.chebyshev[0]]),
            jnp.stack([scale, stage.scale[0]]),
        )

    scale = 1 / (4 * w0**2)  # b_2 = T_2'' / T_2'^2 = 4 / (4 w_0)^2
    first = _Stage(
        scale * w1 * step * velocity,
        jnp.zeros_like(velocity),
        jnp.stack([jnp.stack([w0, jnp.ones_like(w0), jnp.zeros_like(w0)]), jnp.eye(3)[0]]),
        jnp.stack([scale, scale]),
    )
    return jax.lax.fori_loop(2, stages + 1, next_stage, first).shift


def _slope_over_curvature(excess: Scalar, stages: Int[Array, ""]) -> Scalar:
    """T_s'(w_0) / T_s''(w_0) in closed form, with w_0 - 1 = excess given to full precision."""
    square = excess * (2 + excess)  # w_0^2 - 1
    root = jnp.sqrt(square)
    angle = stages * jnp.log1p(excess + root)  # s arcosh(w_0)
    sine, cosine = jnp.sinh(angle), jnp.cosh(angle)
    return sine * square / (cosine * stages * root - (1 + excess) * sine)


def _next_chebyshev(rows: Float[Array, "2 3"], w0: Scalar) -> Float[Array, "3"]:
    """T_j, T_j', T_j'' at w_0 from those of j - 1 and j - 2."""
    (t, d, c), (t_before, d_before, c_before) = rows
    return jnp.stack(
        [2 * w0 * t - t_before, 2 * w0 * d + 2 * t - d_before, 2 * w0 * c + 4 * d - c_before]
    )
