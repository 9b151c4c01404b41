"""Collocation at the Radau points with the exact Hessian: implicit steps of order 9.

A step of length h from u follows the polynomial v of degree 5 with

    v(0) = u,    v'(c_i h) = -grad f(v(c_i h)) = F(v(c_i h)),    i = 1, ..., 5,

where 0 < c_1 < ... < c_5 = 1 are the Radau points. With z_i = v(c_i h) - u and the integrals
a_ij = integral_0^{c_i} l_j of the Lagrange polynomials l_j of the points this reads

    z = h a F(u + z).

Such a step is L-stable, and it keeps its order in a narrow curved valley, where methods that solve
a linear system only once per stage lose theirs: the motion there tends to the flow along the
bottom, a differential-algebraic equation of index 2 [hairer1996, section VII.4].

Newton's method with one Hessian H = Q diag(l) Q^T for all points needs no factorisation of large
systems: in the basis Q and in that of the eigenvectors of a = T diag(mu) T^-1, each correction is a
division by 1 + h mu_i l_q. A Hessian is kept for as many steps as corrections shrink quickly with
it.

The error is estimated by comparison with the quadrature of order 5 that uses F(u) too, with weight
mu_0, the real eigenvalue of a, and is filtered by (1 + h mu_0 H)^-1, because the estimate of a
stiff component is far too large [hairer1996, section IV.8]. Dense output is v itself, which is
accurate to O(h^6), as the estimate is; at the end of a step the order is 9.

[hairer1996] E. Hairer, G. Wanner, "Solving ordinary differential equations II: stiff and
    differential-algebraic problems", Springer, 1996.
"""

from functools import cache
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy
from jaxtyping import Array, Bool, Float, Int
from typing_extensions import override

from thalweg._checks import InputError
from thalweg._phi import phi_one
from thalweg._typing import Scalar
from thalweg.objective import DENSE_LIMIT
from thalweg.solvers.adaptive import AbstractAdaptiveSolver, FlatObjective, Followed, Goal, Vector
from thalweg.solvers.base import Work
from thalweg.solvers.steady import way_in_basis
from thalweg.solvers.stepping import AbstractStepper, Trial, error_size, integrate

Stages = Float[Array, "stages size"]

STAGES = 5
_CORRECTIONS = 10  # Newton gives up after so many
_SOLVED = (
    0.01  # Newton's error in units of the tolerance, so that the truncation error is the larger
)
_SLOW = 0.05  # a Hessian whose corrections shrink more slowly is computed anew
_EXTRAPOLATE = 3.0  # the last polynomial is a good guess for a step at most so many times as long


class Tableau(NamedTuple):
    """The numbers of a collocation method (see the module's docstring)."""

    nodes: np.ndarray
    matrix: np.ndarray
    poles: np.ndarray  # mu
    to_modes: np.ndarray  # T^-1
    from_modes: np.ndarray  # T
    filter: float  # mu_0
    error_weights: np.ndarray
    to_powers: np.ndarray  # v(s h) - u = sum_k (to_powers z)_k s^k, k = 1, ..., stages


@cache
def radau_tableau(stages: int) -> Tableau:
    """Radau IIA with an odd number of stages, of order 2 stages - 1."""
    nodes = np.append((scipy.special.roots_jacobi(stages - 1, 1.0, 0.0)[0] + 1) / 2, 1.0)
    degrees = np.arange(1, stages + 1)
    powers = nodes[:, None] ** (degrees - 1)
    matrix = (nodes[:, None] ** degrees / degrees) @ np.linalg.inv(powers)
    poles, from_modes = np.linalg.eig(matrix)
    filter_ = float(poles[np.argmin(np.abs(np.imag(poles)))].real)
    embedded = np.linalg.solve(powers.T, 1 / degrees - filter_ * (degrees == 1))
    return Tableau(
        nodes=nodes,
        matrix=matrix,
        poles=poles,
        to_modes=np.linalg.inv(from_modes),
        from_modes=from_modes,
        filter=filter_,
        error_weights=np.linalg.solve(matrix.T, embedded - matrix[-1]),
        to_powers=np.linalg.inv(nodes[:, None] ** degrees),
    )


class Collocation(AbstractAdaptiveSolver):
    """Implicit steps of order 9 with the exact Hessian, for small networks on long horizons.

    A few thousand gradients for any horizon and curvature, and some tens of dense Hessians.
    """

    compiles_limit: ClassVar[bool] = False

    @override
    def integrate(self, objective: FlatObjective, start: Vector, goal: Goal) -> Followed:
        if start.size > DENSE_LIMIT:
            raise InputError(
                f"`solver` Collocation needs dense Hessians, of at most {DENSE_LIMIT} weights, but "
                f"there are {start.size}; use tw.solvers.Chebyshev()."
            )
        stepper = CollocationStepper(objective=objective, rtol=goal.rtol, atol=goal.atol)
        return integrate(stepper, start, goal)


class Known(eqx.Module):
    """What is known at a point: F, a Hessian (perhaps of an earlier point), and the last step."""

    velocity: Vector
    rates: Vector  # -l
    basis: Float[Array, "size size"]
    fresh: Bool[Array, ""]
    last: "Path"


class Path(eqx.Module):
    """The collocation polynomial of a step, as the coefficients of s, ..., s^stages."""

    step: Scalar
    coefficients: Stages
    shrinkage: Scalar  # of Newton's corrections


class _Newton(eqx.Module):
    stages: Stages
    size: Scalar
    shrinkage: Scalar
    count: Int[Array, ""]
    solved: Bool[Array, ""]
    failed: Bool[Array, ""]


class CollocationStepper(AbstractStepper):
    """Collocation at the points of one step after the other."""

    objective: FlatObjective
    rtol: Scalar
    atol: Scalar
    order: int = eqx.field(static=True, default=STAGES)

    @property
    def tableau(self) -> Tableau:
        """The numbers of the method: as many stages as the order of its error estimate."""
        return radau_tableau(self.order)

    @override
    def linearise(self, point: Vector) -> tuple[Known, Work]:
        values, basis = jnp.linalg.eigh(self.objective.hessian(point))
        velocity = -self.objective.gradient(point)
        nothing = Path(
            jnp.zeros_like(point[0]),
            jnp.zeros((self.tableau.nodes.size, point.size)),
            jnp.zeros_like(point[0]),
        )
        known = Known(velocity, -values, basis, jnp.asarray(True), nothing)
        return known, Work.of(gradients=1, hessians=1)

    @override
    def relinearise(self, local: Known, trial: Trial) -> tuple[Known, Work]:
        velocity = -self.objective.gradient(trial.point)
        local = eqx.tree_at(
            lambda k: (k.velocity, k.last, k.fresh),
            local,
            (velocity, trial.path, jnp.asarray(False)),
        )
        refresh = trial.path.shrinkage > _SLOW
        local, work = self._with_hessian(local, trial.point, refresh)
        return local, work + Work.of(gradients=1)

    @override
    def reconsider(self, local: Known, point: Vector, trial: Trial) -> tuple[Known, Work]:
        return self._with_hessian(local, point, ~local.fresh)

    def _with_hessian(
        self, local: Known, point: Vector, wanted: Bool[Array, ""]
    ) -> tuple[Known, Work]:
        def renewed() -> tuple[Array, Array]:
            values, basis = jnp.linalg.eigh(self.objective.hessian(point))
            return -values, basis

        rates, basis = jax.lax.cond(wanted, renewed, lambda: (local.rates, local.basis))
        local = eqx.tree_at(
            lambda k: (k.rates, k.basis, k.fresh), local, (rates, basis, local.fresh | wanted)
        )
        return local, Work.of(hessians=wanted)

    @override
    def attempt(self, local: Known, point: Vector, step: Scalar) -> tuple[Trial, Work]:
        newton = self._solve(local, point, step)
        tableau = self.tableau
        error = step * tableau.filter * local.velocity + tableau.error_weights @ newton.stages
        filtered = (local.basis.T @ error) / (1 - step * tableau.filter * local.rates)
        error = jnp.where(newton.solved, local.basis @ filtered, jnp.inf)
        path = Path(step, jnp.asarray(tableau.to_powers) @ newton.stages, newton.shrinkage)
        retry = jnp.where(local.fresh, 0.25, 1.0)
        grow = jnp.where(newton.count <= 4, 5.0, jnp.where(newton.count <= 6, 1.5, 1.0))
        trial = Trial(point + newton.stages[-1], error, path, retry, grow)
        return trial, Work.of(gradients=newton.count * tableau.nodes.size)

    def _solve(self, local: Known, point: Vector, step: Scalar) -> _Newton:
        tableau = self.tableau
        # Rounding leaves corrections of some ulps of the weights.
        rounding = 20 * jnp.finfo(point.dtype).eps / self.rtol
        goal = jnp.maximum(_SOLVED, rounding)
        divisors = 1 - step * tableau.poles[:, None] * local.rates

        def correct(newton: _Newton) -> _Newton:
            fields = -jax.vmap(self.objective.gradient)(point + newton.stages)
            residual = step * (tableau.matrix @ fields) - newton.stages
            modes = jnp.asarray(tableau.to_modes) @ (residual @ local.basis) / divisors
            correction = jnp.real(jnp.asarray(tableau.from_modes) @ modes) @ local.basis.T
            size = error_size(correction, point, point + newton.stages[-1], self.rtol, self.atol)
            shrinkage = jnp.where(newton.count == 0, newton.shrinkage, size / newton.size)
            solved = (
                (shrinkage / (1 - shrinkage) * size < goal) & (shrinkage < 1) & (newton.count > 0)
            )
            solved |= size < 0.01 * goal
            failed = ~(shrinkage < 2) & (newton.count > 0) | ~jnp.isfinite(size)
            return _Newton(
                newton.stages + correction, size, shrinkage, newton.count + 1, solved, failed
            )

        def unsolved(newton: _Newton) -> Bool[Array, ""]:
            return ~newton.solved & ~newton.failed & (newton.count < _CORRECTIONS)

        zero = jnp.zeros_like(step)
        guess = _Newton(
            self._guess(local, step),
            zero,
            zero,
            jnp.asarray(0),
            jnp.asarray(False),
            jnp.asarray(False),
        )
        return jax.lax.while_loop(unsolved, correct, guess)

    def _guess(self, local: Known, step: Scalar) -> Stages:
        """The last polynomial, continued; the linearised flow where there is none near enough."""
        nodes = self.tableau.nodes[:, None]
        last = local.last
        ratio = step / last.step
        near = (last.step > 0) & (ratio < _EXTRAPOLATE)
        fractions = jnp.where(near, 1 + ratio * nodes, 1.0)
        degrees = np.arange(1, nodes.size + 1)
        continued = (fractions**degrees - 1) @ last.coefficients
        phi = phi_one(step * nodes * local.rates)
        linear = (step * nodes * phi * (local.velocity @ local.basis)) @ local.basis.T
        return jnp.where(near, continued, linear)

    @override
    def between(self, local: Known, point: Vector, trial: Trial, fraction: Scalar) -> Vector:
        degrees = np.arange(1, self.tableau.nodes.size + 1)
        return point + fraction**degrees @ trial.path.coefficients

    @override
    def field(self, local: Known) -> Vector:
        return local.velocity

    @override
    def longest(self, local: Known) -> Scalar:
        return jnp.asarray(jnp.inf, local.rates.dtype)

    @override
    def way(
        self, local: Known, point: Vector, remaining: Scalar, length: Scalar
    ) -> tuple[Scalar, Work]:
        return way_in_basis(local.velocity, -local.rates, local.basis, remaining), Work.of()
