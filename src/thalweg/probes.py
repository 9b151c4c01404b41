"""Curvature along a training loop of one's own, whatever makes its steps.

    with tw.Probe(objective, every=50, folder="report") as probe:
        for step in range(1000):
            params, state = update(params, state)  # optax, torch, anything
            probe(params)

A probe counts its calls and measures at every so many: the loss over all data, the length of its
gradient, and both ends of the Hessian's spectrum. The eigenvectors of the last points start the
next search, which that shortens. What was measured is there at once, so that a loop that fails
leaves it behind; with a `folder` the report is written when the `with` block is left, whatever the
reason.
"""

from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple
from warnings import warn

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from thalweg._arguments import checked
from thalweg._checks import InputError, require_count, require_positive
from thalweg._pictured import Pictured
from thalweg._shown import shown
from thalweg._typing import AnyWeights
from thalweg.curvature import Extremes, extreme_eigenvalues
from thalweg.curvature.following import PAST
from thalweg.objective import AbstractObjective
from thalweg.optimisers import PLAIN, AbstractOptimiser

__all__ = ["Probe", "Probed"]


def __dir__() -> list[str]:
    return __all__


_WRITING = "thalweg.reports.probes"  # above, like all that draws: known by its name alone


@shown
class Probed(NamedTuple):
    """What was measured at one step of a loop; NaN where the weights or the Hessian are not finite.

    Attributes:
        step: how many calls came before.
        loss: over all data.
        gradient_norm: the Euclidean length of its gradient.
        sharpness: the largest eigenvalue of the Hessian.
        sharpness_error: it lies within this of `sharpness`.
        smallest_eigenvalue: the smallest eigenvalue of the Hessian.
        smallest_eigenvalue_error: it lies within this of `smallest_eigenvalue`.
        learning_rate: at this step, NaN where it was not told.
        matvecs: the products of the Hessian with a vector that both ends took.
    """

    step: int
    loss: float
    gradient_norm: float
    sharpness: float
    sharpness_error: float
    smallest_eigenvalue: float
    smallest_eigenvalue_error: float
    learning_rate: float
    matvecs: int


@shown
class Probe(Pictured):
    """Measures an objective at every so many calls, at the weights that it is called with.

    Attributes:
        objective: what is measured: the loss over all data, whatever the loop descends.
        every: at how many calls one measures; the first always does.
        records: what was measured so far.
    """

    @checked
    def __init__(
        self,
        objective: AbstractObjective,
        every: int = 50,
        *,
        learning_rate: Any = None,
        optimiser: AbstractOptimiser = PLAIN,
        tolerance: float = 1e-3,
        folder: str | PathLike[str] | None = None,
    ):
        """Take what to measure, and at how many calls.

        Args:
            objective: any, such as a `FunctionObjective` of the loss that is trained.
            every: measure at the first call and at each so many after it.
            learning_rate: of the loop, for the edge 2 / learning_rate; where it changes, give it
                with each call.
            optimiser: of the loop, where it has momentum and with it another edge.
            tolerance: the error of the eigenvalues that is asked for, as a part of the spectral
                norm.
            folder: where the report goes when a `with` block of this probe is left.
        """
        self.objective, self.every = objective, require_count("every", every)
        require_positive("tolerance", tolerance)
        self.tolerance, self.folder = tolerance, folder
        self.learning_rate, self.optimiser = _rate(learning_rate), optimiser
        self.records: list[Probed] = []
        self._calls = 0
        self._past: list[Extremes] = []

    def __call__(self, weights: Any, learning_rate: Any = None) -> Probed | None:
        """Count this step; measure at its weights if it is one of those, and return what was found.

        Args:
            weights: as the objective takes them.
            learning_rate: of this step, where it is not the same for all.
        """
        step, self._calls = self._calls, self._calls + 1
        if step % self.every:
            return None
        point = self.objective.as_weights(weights, many=False)
        if not self.records:
            self.objective.try_out(point)
        rate = self.learning_rate if learning_rate is None else _rate(learning_rate)
        loss, length = map(float, _value_and_length(self.objective, point))
        self.records.append(Probed(step, loss, length, *self._ends(point)[:4], rate, self._spent))
        return self.records[-1]

    def _ends(self, point: AnyWeights) -> tuple[float, float, float, float]:
        try:
            found = extreme_eigenvalues(
                self.objective, point, tolerance=self.tolerance, start=self._past or None
            )
        except InputError:  # the run has diverged
            self._past, self._spent = [], 0
            return np.nan, np.nan, np.nan, np.nan
        self._past = [*self._past, found][-PAST:]
        high, low = found.largest[0], found.smallest[0]
        self._spent = high.matvecs
        return high.value, high.error, low.value, low.error

    def named(self) -> dict[str, Float[np.ndarray, " records"]]:
        """All that was measured, as one array per name of `Probed`, and the `edge`."""
        found = {
            name: np.array([getattr(each, name) for each in self.records], float)
            for name in Probed._fields
        }
        return found | {"edge": self.optimiser.edge(found["learning_rate"])}

    def report(self, folder: str | PathLike[str] | None = None) -> Path:
        """Write what was measured so far, as a page with its pictures; the path of the page.

        Args:
            folder: where to; the one that the probe was made with, if not given.
        """
        place = self.folder if folder is None else folder
        if place is None:
            raise InputError("`folder` must say where the report goes, got None.")
        return import_module(_WRITING).report_probe(self, Path(place))

    def headline(self) -> dict[str, Any]:
        """What is said first of it: how often it measured, and what it found last."""
        last = self.records[-1] if self.records else None
        return {"calls": self._calls, "measured": len(self.records), "last": last}

    def __enter__(self) -> "Probe":
        return self

    def __exit__(self, *exception: Any) -> None:
        if self.folder is None or not self.records:
            return
        try:
            self.report()
        except InputError as error:
            if exception[0] is None:
                raise
            warn(str(error), stacklevel=2)  # what ended the loop matters more


def _rate(given: Any) -> float:
    if given is None:
        return np.nan
    require_positive("learning_rate", given)
    return float(given)


@eqx.filter_jit
def _value_and_length(
    objective: AbstractObjective, weights: AnyWeights
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """The loss, and the Euclidean length of its gradient."""
    value, gradient = objective.value_and_gradient(weights)
    return value, jnp.sqrt(sum(jnp.sum(part**2) for part in jax.tree.leaves(gradient)))
