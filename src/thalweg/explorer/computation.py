"""What has been found for one setting so far: each part adds to it, later ones build on that."""

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import numpy as np

from thalweg._typing import AnyWeights
from thalweg.dynamics import AbstractFlow, Descent
from thalweg.dynamics.trajectory import Distance
from thalweg.experiment import Experiment, finite_start, to_toml
from thalweg.experiment import objective as objective_of
from thalweg.experiment.settings import Output
from thalweg.experiment.trajectories import descent_arrays, descent_from
from thalweg.explorer.frames import frame
from thalweg.explorer.settings import SettingError, require_few_weights
from thalweg.measurement import least_loss
from thalweg.objective import AbstractObjective, Objective
from thalweg.storage.keeper import Arrays

_MOST_OPERATIONS = 4e9  # of a descent: some seconds


def nothing() -> None:
    """What `turn` does where nobody else waits."""


@dataclass
class Computation:
    """A setting, and what is known of it.

    Attributes:
        experiment: the setting.
        folder: where its tables are.
        own: an objective and a start that were given in Python, instead of the setting's.
        turn: called now and then by what takes long.
        check: the same, from any thread: raises where nobody waits any more.
        options: what else a page asked for, by part.
    """

    experiment: Experiment
    folder: Path = Path()
    own: tuple[AbstractObjective, AnyWeights] | None = None
    turn: Callable[[], None] = nothing
    check: Callable[[], None] = nothing
    options: dict[str, Any] = field(default_factory=dict)
    since: float = field(default_factory=time.perf_counter)
    flow: AbstractFlow | None = None
    no_flow: str = ""
    distances: list[Distance] = field(default_factory=list)
    spectra: list[Arrays] = field(default_factory=list)
    flow_spectrum: Arrays = field(default_factory=dict)
    theory: dict[str, float] = field(default_factory=dict)
    overview: dict[str, Any] | None = None
    proven: list[Arrays] = field(default_factory=list)

    @cached_property
    def objective(self) -> AbstractObjective:
        """What is descended."""
        if self.own is not None:
            return self.own[0]
        found = objective_of(self.experiment, self.folder)
        require_few_weights(found.network.size)
        return found

    @cached_property
    def weights(self) -> AnyWeights:
        """The start."""
        if self.own is not None:
            return self.own[1]
        return finite_start(self.experiment, self.network_objective_or_fail)

    @property
    def network_objective(self) -> Objective | None:
        """The network on its problem; None where the objective is another one."""
        return self.objective if isinstance(self.objective, Objective) else None

    @property
    def network_objective_or_fail(self) -> Objective:
        """The same where it must be one."""
        assert isinstance(self.objective, Objective)
        return self.objective

    @property
    def linear(self) -> bool:
        """Whether this is a linear network on a problem."""
        found = self.network_objective
        return found is not None and found.network.linear is not None

    @cached_property
    def runs(self) -> list[Descent]:
        """Descent at each learning rate, as `thalweg run` makes it."""
        training, found = self.experiment.training, []
        operations = self.objective.operations(self.weights)
        for rate in training.learning_rate:
            if training.steps_at(rate) * operations > _MOST_OPERATIONS:
                raise SettingError(
                    f"The explorer takes runs of a second or two, but {training.steps_at(rate)} "
                    "steps of this network take longer; lower `training.time`, or take "
                    "`thalweg run`.",
                    "training.time",
                )
            arrays = descent_arrays(
                self.objective, self.weights, training, rate, lambda share: self.check()
            )
            found.append(descent_from(arrays, self.objective, self.weights))
        return found

    @cached_property
    def minimum(self) -> float:
        """The least loss; NaN where it is not known."""
        found = self.network_objective
        return np.nan if found is None else least_loss(found)

    @cached_property
    def key(self) -> str:
        """What tells this setting from others."""
        bare = self.experiment.model_copy(update={"title": "", "output": Output()})
        return hashlib.sha256(to_toml(bare).encode()).hexdigest()[:16]

    @property
    def size(self) -> int:
        """How many weights there are."""
        return sum(int(np.size(array)) for array in jax.tree.leaves(self.weights))

    def framed(
        self, part: str, arrays: dict[str, np.ndarray] | None = None, **fields: Any
    ) -> bytes:
        """A frame of a part, with the time that has passed."""
        seconds = round(time.perf_counter() - self.since, 4)
        return frame(part, arrays, seconds=seconds, **fields)


def padded(rows: list[np.ndarray]) -> np.ndarray:
    """Rows of different length as one array, with NaN behind the shorter ones."""
    longest = max(row.shape[0] for row in rows)

    def filled(row: np.ndarray) -> np.ndarray:
        room = [(0, longest - row.shape[0])] + [(0, 0)] * (row.ndim - 1)
        return np.pad(np.asarray(row, float), room, constant_values=np.nan)

    return np.stack([filled(row) for row in rows])
