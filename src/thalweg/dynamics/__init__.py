"""How weights move: gradient descent, the gradient flow, and solutions in closed form."""

from thalweg.dynamics.descent import Descent as Descent
from thalweg.dynamics.descent import descend as descend
from thalweg.dynamics.descent import nothing as nothing
from thalweg.dynamics.escape import Escape as Escape
from thalweg.dynamics.escape import escape as escape
from thalweg.dynamics.flow import Flow as Flow
from thalweg.dynamics.flow import flow as flow
from thalweg.dynamics.trajectory import AbstractTrajectory as AbstractTrajectory
from thalweg.dynamics.trajectory import distance as distance
from thalweg.dynamics.validated import ValidatedFlow as ValidatedFlow
from thalweg.solvers import FlowError as FlowError
