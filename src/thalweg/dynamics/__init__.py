"""How weights move: gradient descent, the gradient flow, and solutions in closed form.

`descent` runs many starts at once (`batch` has the compiled loop), `flow` integrates with a solver
of `thalweg.solvers`, `validated` records a flow that is proven, `escape` follows one out of a
saddle, `modified` says what a modified flow follows. `central` predicts what descent follows at the
edge of stability: a centre and an `oscillation`, by `stabilised` steps, or in the terms of the
literature a `covariance`, from what `edge` knows at a point, by a problem that `complementarity`
solves, with `forms` of few variables; both see an objective `flattened`. A `trajectory` is what all
of them leave behind, a `comparison` two of them, and `starts` reads what they are given. `exact`
has closed forms, `end_to_end` the flow of a product by itself.
"""

from thalweg.dynamics.central import CentralFlow, central_flow
from thalweg.dynamics.comparison import Comparison, compare
from thalweg.dynamics.covariance import CovarianceFlow
from thalweg.dynamics.descent import Descent, descend, nothing
from thalweg.dynamics.escape import Escape, escape
from thalweg.dynamics.flow import Flow, flow
from thalweg.dynamics.trajectory import (
    AbstractCentralFlow,
    AbstractFlow,
    AbstractTrajectory,
    distance,
)
from thalweg.dynamics.validated import ValidatedFlow, proven_flow
from thalweg.solvers import FlowError

__all__ = [
    "AbstractCentralFlow",
    "AbstractFlow",
    "AbstractTrajectory",
    "CentralFlow",
    "Comparison",
    "CovarianceFlow",
    "Descent",
    "Escape",
    "Flow",
    "FlowError",
    "ValidatedFlow",
    "central_flow",
    "compare",
    "descend",
    "distance",
    "escape",
    "flow",
    "nothing",
    "proven_flow",
]


def __dir__() -> list[str]:
    return __all__
