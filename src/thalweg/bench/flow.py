"""The gradient flow on a stiff problem: gradient evaluations next to scipy's DOP853.

An explicit method of high order is bound by stability there, however loose its tolerance; errors
are distances in weight space to scipy's Radau method with a tolerance of 1e-11.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jax.flatten_util import ravel_pytree
from scipy.integrate import solve_ivp

from thalweg import data, initialisation
from thalweg._typing import Weights
from thalweg.bench.comparison import Comparison
from thalweg.dynamics import flow
from thalweg.network import LinearNetwork
from thalweg.objective import Objective
from thalweg.problem import Regression

CONDITION, HORIZON, WIDTHS = 1e4, 2e4, [8, 8, 8, 8]
TIMES = np.linspace(HORIZON / 10, HORIZON, 10)


class Scipy:
    """The same flow by scipy, with its evaluations counted."""

    def __init__(self, objective: Objective, weights: Weights):
        self.start, unravel = ravel_pytree(weights)
        self._gradient = eqx.filter_jit(lambda y: ravel_pytree(objective.gradient(unravel(y)))[0])
        self._hessian = eqx.filter_jit(lambda y: objective.hessian(unravel(y)))

    def follow(self, method: str, rtol: float) -> tuple[np.ndarray, int]:
        """The weights at the output times, reached one after the other, and the gradients taken."""
        settings: dict[str, Any] = {"method": method, "rtol": rtol, "atol": rtol / 100}
        if method == "Radau":
            settings["jac"] = lambda _, y: -np.asarray(self._hessian(y))
        point, last, points, gradients = np.asarray(self.start), 0.0, [], 0
        for moment in TIMES:
            solution = solve_ivp(
                lambda _, y: -np.asarray(self._gradient(y)), (last, moment), point, **settings
            )
            point, last = solution.y[:, -1], moment
            points.append(point)
            gradients += solution.nfev
        return np.stack(points), gradients


def stiff_case() -> tuple[Objective, Weights]:
    """Three layers of width 8 on inputs with condition number 1e4."""
    x, y, _ = data.conditioned_regression(jax.random.key(0), 32, 8, CONDITION, outputs=8, noise=0.1)
    objective = Objective(LinearNetwork(WIDTHS), Regression(x, y))
    return objective, initialisation.gaussian(objective.network, 0.25, key=jax.random.key(1))


def stiff_flow() -> Comparison:
    """Gradients to follow the flow to time 2e4, at an error no larger than DOP853's."""
    objective, weights = stiff_case()
    scipy = Scipy(objective, weights)
    truth, _ = scipy.follow("Radau", 1e-11)
    points, plain = scipy.follow("DOP853", 1e-9)
    run = flow(objective, weights, times=TIMES, rtol=1e-10, atol=1e-12)
    found = np.concatenate([array.reshape(TIMES.size, -1) for array in run.weights], axis=1)
    theirs, ours = (np.linalg.norm(path - truth, axis=1).max() for path in (points, found))
    return Comparison(
        what=f"flow of depth 3, width 8, condition {CONDITION:g}, time {HORIZON:g}",
        unit="gradients",
        ours=float(run.gradient_evaluations),
        plain=float(plain),
        bar=20,
        note=f"{run.solver}, and {int(run.hessian_evaluations)} Hessians; error {ours:.0e} "
        f"against {theirs:.0e} of DOP853",
    )


BENCHMARKS: dict[str, Callable[[], Comparison]] = {"stiff flow": stiff_flow}
