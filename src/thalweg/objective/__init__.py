"""What is minimised: any function of a pytree of weights, or a network on a problem."""

from thalweg.objective.base import DENSE_LIMIT, AbstractObjective
from thalweg.objective.functions import FunctionObjective
from thalweg.objective.host import AbstractHostObjective
from thalweg.objective.networks import Objective

__all__ = [
    "DENSE_LIMIT",
    "AbstractHostObjective",
    "AbstractObjective",
    "FunctionObjective",
    "Objective",
]


def __dir__() -> list[str]:
    return __all__
