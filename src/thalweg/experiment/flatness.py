"""How flat a minimiser can be, as far as theory says."""

from thalweg._checks import InputError
from thalweg.curvature.minimisers import (
    balanced_sharpness,
    least_sharpness,
    minimiser_sharpness_bounds,
)
from thalweg.objective import Objective
from thalweg.quantities.of_runs import FLATNESS


def flatness(objective: Objective | None) -> dict[str, float]:
    """By name; NaN where nothing is known, that is but for one output, square loss, no decay."""
    found = dict.fromkeys((each.name for each in FLATNESS), float("nan"))
    if objective is None:
        return found
    try:
        bounds = minimiser_sharpness_bounds(objective)
        found["paper_sharpness_bound"] = float(bounds.paper)
        found["sharper_sharpness_bound"] = float(bounds.sharper)
        found["balanced_sharpness"] = float(balanced_sharpness(objective))
        found["least_sharpness"] = float(least_sharpness(objective).sharpness)
    except InputError:
        pass  # nothing is known, or no more than this
    return found
