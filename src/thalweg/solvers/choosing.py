"""What may be given as a solver, and the names of those that need no more than a name."""

import sys
from typing import Any

from thalweg._checks import InputError, described
from thalweg.solvers.auto import Auto
from thalweg.solvers.base import AbstractSolver
from thalweg.solvers.chebyshev import Chebyshev
from thalweg.solvers.collocation import Collocation
from thalweg.solvers.explicit import Diffrax, Explicit
from thalweg.solvers.filippov import Filippov
from thalweg.solvers.validated import Validated

SOLVERS: dict[str, type[AbstractSolver]] = {
    "auto": Auto,
    "explicit": Explicit,
    "collocation": Collocation,
    "chebyshev": Chebyshev,
    "filippov": Filippov,
}
"""The solvers that a file names, by name."""


def as_solver(solver: Any) -> AbstractSolver | Validated:
    """The solver, one of diffrax's wrapped as ours; anything else is refused."""
    if isinstance(solver, AbstractSolver | Validated):
        return solver
    if _is_of_diffrax(solver):
        return Diffrax(solver)
    raise InputError(
        f"`solver` must be a solver such as tw.solvers.Auto() or one of diffrax, got "
        f"{described(solver)}{_fix(solver)}."
    )


def _is_of_diffrax(solver: Any) -> bool:
    # Its solvers exist only once it is loaded.
    diffrax = sys.modules.get("diffrax")
    return diffrax is not None and isinstance(solver, diffrax.AbstractSolver)


def _fix(solver: Any) -> str:
    if isinstance(solver, type):
        return f"; make one: {solver.__name__}()"
    known: dict[str, type] = {**SOLVERS, "validated": Validated}
    if isinstance(solver, str) and solver.lower() in known:
        return f"; use tw.solvers.{known[solver.lower()].__name__}()"
    return ""
