"""A flow with a proven radius instead of an estimated error."""

import equinox as eqx
import numpy as np

from thalweg._checks import InputError, described
from thalweg._typing import AnyWeights
from thalweg.objective import AbstractObjective, Objective
from thalweg.validated import Curve, setting_of, validated_curve


class Validated(eqx.Module):
    """A curve that is proven to stay within a radius of the exact flow of a linear network.

    Steps and tolerances are the proof's own, and what comes of it is a `ValidatedFlow`: for this
    reason it is no `AbstractSolver`, whose error is an estimate within given tolerances.
    """

    def curve(self, objective: AbstractObjective, start: AnyWeights, end: float) -> Curve:
        """The curve from these weights to this time, with its proof."""
        if not isinstance(objective, Objective):
            raise InputError(
                "A flow can be validated for linear networks, got "
                f"{described(objective)}; leave `validate` out for an estimate of its error."
            )
        arrays = tuple(np.asarray(array, float) for array in start)
        return validated_curve(setting_of(objective), arrays, end)
