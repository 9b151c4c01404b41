"""The solver that chooses: by how stiff the flow is, and by what the objective declares.

Which solver is cheapest depends on T rho (the horizon times the largest curvature), on the number
of weights p, and on the tolerance, and rho is only known along the way: a start near a saddle is
flat. So the explicit one is tried first with a limit on its steps, unless the start is already too
sharp for it, and a stiff one follows where it gave up.

Where the objective declares its kinks, the Filippov solver goes ahead with long steps, to the first
kink that it meets. If there is none, the flow is smooth, and the others follow it to the tolerance
that was asked for; if there is one, it follows the flow from the start. Its steps are explicit, so
that on a stiff flow it gives up looking after some, and the flow that a stiff solver finds is asked
whether it has left the region of its start at any of its output times. Across kinks the order is 2,
so that no more than some accuracy is asked for: `flow.error` says what that gave, and who wants
more gives `Filippov()` itself. Of an objective whose kinks are not declared Chebyshev steps are the
cheapest: sliding along a kink takes many short ones.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Int
from typing_extensions import override

from thalweg._typing import AnyWeights, Scalar
from thalweg.objective import AbstractObjective
from thalweg.solvers.adaptive import FlatObjective
from thalweg.solvers.base import AbstractSolver, FlowError, Solution, Task, Work
from thalweg.solvers.chebyshev import Chebyshev, largest_curvature
from thalweg.solvers.collocation import Collocation
from thalweg.solvers.explicit import Explicit
from thalweg.solvers.filippov import Filippov, leaves_region, meets_kinks

# Estimated from measured costs, not swept. The explicit solver is bound by stability: about 2 T rho
# gradients. Collocation takes 1,000 to 4,000 gradients and tens of Hessians whatever T rho is,
# so it is ahead from T rho of some thousands on; an eigendecomposition takes 5, 20 and 150 ms for
# 200, 400 and 800 weights. The Chebyshev solver takes about sqrt(2 T rho steps) gradients, in as
# many steps as its order 2 demands, some rtol^(-1/3): it is ahead from T rho of about rtol^(-1/3)
# on, but it is less accurate at the same tolerance, hence the factor.
_COLLOCATION_SIZE = 600
_COLLOCATION_REACH = 3000.0
_CHEBYSHEV_REACH = 10.0
# Across kinks: the least tolerance, for gradients of more and of fewer operations than `_LARGE`.
# Some thousand steps: 40 s on MNIST with 42,200 weights, a second or two for tens of weights.
_KINKS, _KINKS_SMALL, _KINKS_SCOUTED, _LARGE = 1e-4, 1e-5, 1e-3, 1e7
_SCOUTING_STEPS = 2000  # in which Filippov's solver looks for the first kink; some 4,000 in T rho
_EXPLICIT_STEPS = 1000  # some 5,000 in T rho; more shows that the curvature grew on the way


class Auto(AbstractSolver):
    """Explicit steps while they are cheap, then those of a stiff solver; Filippov's across kinks.

    The stiff one is collocation for small smooth objectives, and Chebyshev for others.
    """

    @override
    def solve(self, task: Task) -> Solution:
        if task.objective.kinked is None:
            return self._solve_smooth(task, Work.of())
        try:
            met, spent = meets_kinks(_scouting(task))
        except FlowError as unfinished:  # too stiff for its steps, which are explicit
            found = self._solve_smooth(task, unfinished.work)
            met, looked = leaves_region(task, found.weights)
            spent = found.work + found.companion_work + looked
            if not met:
                return _with_work(found, looked)
        if met:
            return _with_work(Filippov().solve(_across_kinks(task)), spent)
        return self._solve_smooth(task, spent)

    def _solve_smooth(self, task: Task, spent: Work) -> Solution:
        stiff, limit = _stiff_solver(task)
        curvature, products = _curvature(task.objective, task.start)
        spent = spent + Work.of(products=products)
        if float(task.times[-1] * curvature) <= limit:
            few = min(task.max_steps, _EXPLICIT_STEPS)
            try:
                found = Explicit().solve(eqx.tree_at(lambda each: each.max_steps, task, few))
            except FlowError as unfinished:
                spent = spent + unfinished.work
            else:
                return _with_work(found, spent)
        return _with_work(stiff.solve(task), spent)


def _scouting(task: Task) -> Task:
    """The same flow, as roughly as tells whether it meets a kink."""
    rough, few = jnp.maximum(task.rtol, _KINKS_SCOUTED), min(task.max_steps, _SCOUTING_STEPS)
    return eqx.tree_at(lambda each: (each.rtol, each.max_steps), task, (rough, few))


def _across_kinks(task: Task) -> Task:
    least = _KINKS if task.objective.operations(task.start) > _LARGE else _KINKS_SMALL
    return eqx.tree_at(lambda each: each.rtol, task, jnp.maximum(task.rtol, least))


def _stiff_solver(task: Task) -> tuple[AbstractSolver, float]:
    """What follows a stiff flow, and from which T rho on it is ahead of explicit steps."""
    size = sum(array.size for array in jax.tree.leaves(task.start))
    if size <= _COLLOCATION_SIZE and task.objective.smooth:
        return Collocation(), _COLLOCATION_REACH
    return Chebyshev(), _CHEBYSHEV_REACH * float(task.rtol) ** (-1 / 3)


def _with_work(found: Solution, spent: Work) -> Solution:
    return eqx.tree_at(lambda run: run.work, found, found.work + spent)


@eqx.filter_jit
def _curvature(objective: AbstractObjective, weights: AnyWeights) -> tuple[Scalar, Int[Array, ""]]:
    """The largest |curvature| at the start, and the products with the Hessian that it took."""
    point, unravel = ravel_pytree(weights)
    flattened = FlatObjective(objective, unravel)
    direction = flattened.gradient(point) + 1e-3 * jnp.ones_like(point)
    curvature, _, products = largest_curvature(flattened, point, direction, 20)
    return curvature, products
