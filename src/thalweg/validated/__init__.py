"""A computed curve that is proven to stay within a radius of the exact gradient flow.

`curve` has the argument and puts steps together; `series` makes each of them, `defect` says how far
it is from being a flow, `hessian` how errors grow, `losses` and `probabilities` what losses
contribute, `norms` bounds partial products, `rest` says what holds after the last step, and
`building` takes all of it from an objective.
"""

from thalweg.validated.building import can_validate, setting_of
from thalweg.validated.curve import Curve, Setting, proven_curve, validated_curve

__all__ = [
    "Curve",
    "Setting",
    "can_validate",
    "proven_curve",
    "setting_of",
    "validated_curve",
]


def __dir__() -> list[str]:
    return __all__
