"""How a gradient flow is integrated: one object for each way, given to `flow` as its `solver`.

`Auto` chooses; `Explicit`, `Collocation` and `Chebyshev` are what it chooses from; any adaptive
solver of diffrax serves as well, and `Validated` proves how far the exact flow is. `base` says what
a solver must define; `adaptive` and `stepping` are for solvers that follow one long vector within
tolerances, `steady` tells where a flow has come to rest.
"""

from thalweg.solvers.auto import Auto as Auto
from thalweg.solvers.base import AbstractSolver as AbstractSolver
from thalweg.solvers.base import FlowError as FlowError
from thalweg.solvers.base import Solution as Solution
from thalweg.solvers.base import Task as Task
from thalweg.solvers.base import Work as Work
from thalweg.solvers.chebyshev import Chebyshev as Chebyshev
from thalweg.solvers.collocation import Collocation as Collocation
from thalweg.solvers.explicit import Diffrax as Diffrax
from thalweg.solvers.explicit import Explicit as Explicit
from thalweg.solvers.validated import Validated as Validated

__all__ = [
    "AbstractSolver",
    "Auto",
    "Chebyshev",
    "Collocation",
    "Diffrax",
    "Explicit",
    "FlowError",
    "Solution",
    "Task",
    "Validated",
    "Work",
]
