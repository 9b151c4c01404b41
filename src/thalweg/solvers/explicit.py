"""Runge-Kutta methods for short horizons: ours by default, and any other of diffrax.

Dormand and Prince's method of order 8 [dormand1981] with its dense output is cheap per step and
very accurate, but only stable as long as a step times the largest curvature stays below about 6.

[dormand1981] P. J. Prince, J. R. Dormand, "High order embedded Runge-Kutta formulae",
    J. Comput. Appl. Math. 7, 1981.
"""

from typing import Any, ClassVar

from typing_extensions import override

from thalweg.solvers.adaptive import AbstractAdaptiveSolver, FlatObjective, Followed, Goal, Vector

# diffrax takes a third of a second to load, and only these methods need it: hence the late imports.


class Explicit(AbstractAdaptiveSolver):
    """Explicit steps of order 8, while the horizon times the largest curvature is small.

    With horizon T and largest curvature rho, about 2 T rho gradients or more.
    """

    compiles_limit: ClassVar[bool] = True

    @override
    def integrate(self, objective: FlatObjective, start: Vector, goal: Goal) -> Followed:
        import diffrax

        from thalweg.solvers.diffrax_steps import integrate_by

        return integrate_by(diffrax.Dopri8(), objective, start, goal)


class Diffrax(AbstractAdaptiveSolver):
    """A solver of diffrax; `flow` makes one of any that it is given."""

    method: Any
    compiles_limit: ClassVar[bool] = True

    def __check_init__(self) -> None:
        from thalweg.solvers.diffrax_steps import require_usable

        require_usable(self.method)

    @property
    @override
    def name(self) -> str:
        return type(self.method).__name__.lower()

    @override
    def integrate(self, objective: FlatObjective, start: Vector, goal: Goal) -> Followed:
        from thalweg.solvers.diffrax_steps import integrate_by

        return integrate_by(self.method, objective, start, goal)
