"""The largest learning rate whose run proves that it stays near the flow."""

from math import ceil, inf, sqrt

import equinox as eqx

from thalweg._arguments import checked
from thalweg._checks import InputError, finite_weights, require_positive
from thalweg._shown import shown
from thalweg._typing import Weights
from thalweg.curvature import ball_bounds
from thalweg.dynamics import Descent, descend
from thalweg.objective import Objective
from thalweg.tubes.tube import Tube, tube

_MOST_STEPS = 2_000_000


@shown
class CertifiedStep(eqx.Module):
    """A learning rate, its run and its tube; and the smallest rate that was refused, if any was."""

    learning_rate: float
    run: Descent
    tube: Tube
    refused: float


@checked
def certified_step(
    objective: Objective,
    weights: Weights,
    radius: float,
    time: float,
    *,
    corrected: bool = True,
    curvature: str = "auto",
    precision: float = 0.01,
) -> CertifiedStep:
    """The largest learning rate found whose steps are proven to stay within a radius, over a time.

    The answer is proven whatever the search did; that it is the largest is not. The search halves
    from 2 / (a bound on the sharpness) until a tube fits, and then bisects the ratio.

    Args:
        objective: the loss.
        weights: the start of descent and flow.
        radius: how near descent must stay to the flow.
        time: for how long.
        corrected: as for `tube`.
        curvature: as for `tube`.
        precision: the ratio to the smallest rate refused at which the search ends.
    """
    for name, value in (("radius", radius), ("time", time), ("precision", precision)):
        require_positive(name, value)
    weights = finite_weights(weights)

    def attempt(rate: float) -> tuple[Descent, Tube]:
        steps = ceil(time / rate - 1e-9)
        if steps > _MOST_STEPS:
            raise InputError(
                f"No learning rate down to {rate:.1e} is proven to stay within {radius:g} for "
                f"{time:g}; ask for a larger radius or a shorter time."
            )
        run = descend(objective, weights, learning_rate=rate, steps=steps)
        return run, tube(run, corrected=corrected, curvature=curvature)

    good, refused = min(2 / float(ball_bounds(objective, weights, 0.0).hessian), time), inf
    found = attempt(good)
    while not _fits(found[1], radius):
        refused, good = good, good / 2
        found = attempt(good)
    while inf > refused > (1 + precision) * good:
        middle = sqrt(good * refused)
        candidate = attempt(middle)
        if _fits(candidate[1], radius):
            good, found = middle, candidate
        else:
            refused = middle
    return CertifiedStep(good, *found, refused)


def _fits(proven: Tube, radius: float) -> bool:
    return bool((proven.upper <= radius).all())
