"""How weights move: gradient descent, the gradient flow, and solutions in closed form."""

from thalweg.dynamics.descent import Descent, descend, nothing
from thalweg.dynamics.escape import Escape, escape
from thalweg.dynamics.flow import Flow, flow
from thalweg.dynamics.trajectory import AbstractTrajectory, distance
from thalweg.dynamics.validated import ValidatedFlow
from thalweg.solvers import FlowError

__all__ = [
    "AbstractTrajectory",
    "Descent",
    "Escape",
    "Flow",
    "FlowError",
    "ValidatedFlow",
    "descend",
    "distance",
    "escape",
    "flow",
    "nothing",
]


def __dir__() -> list[str]:
    return __all__
