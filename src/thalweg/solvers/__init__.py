"""How a gradient flow is integrated: one object for each way, given to `flow` as its `solver`.

`Auto` chooses; `Explicit`, `Collocation`, `Chebyshev` and, across kinks, `Filippov` are what it
chooses from; any adaptive solver of diffrax serves as well (`diffrax_steps`), and `Validated`
proves how far the exact flow is (`thalweg.validated` has its numerics). `base` says what a solver
must define, `choosing` what may be given as one; `adaptive` and `stepping` are for solvers that
follow one long vector within tolerances, `steady` tells where a flow has come to rest,
`filippov_step` and `box` are what a step across kinks is made of.
"""

from thalweg.solvers.auto import Auto
from thalweg.solvers.base import AbstractSolver, FlowError, Solution, Task, Work
from thalweg.solvers.chebyshev import Chebyshev
from thalweg.solvers.collocation import Collocation
from thalweg.solvers.explicit import Diffrax, Explicit
from thalweg.solvers.filippov import Filippov
from thalweg.solvers.validated import Validated

__all__ = [
    "AbstractSolver",
    "Auto",
    "Chebyshev",
    "Collocation",
    "Diffrax",
    "Explicit",
    "Filippov",
    "FlowError",
    "Solution",
    "Task",
    "Validated",
    "Work",
]


def __dir__() -> list[str]:
    return __all__
