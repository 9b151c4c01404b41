"""The main job: descent at several learning rates next to the flow, from one start.

The built-in experiment is the set-up of marion2024: regression on 50 samples with 5 features, a
linear network of depth 10 with a Gaussian start, and learning rates below and above the edge of
stability. A run is recorded about as often in time as any other, but at its own steps; what has
fewer records than the others is padded with NaN.
"""

import platform
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version

import jax
import numpy as np
import xarray as xr

from thalweg import data, initialisation
from thalweg._checks import InputError, require_count, require_positive
from thalweg._version import __version__
from thalweg.curvature import SpectrumPath, minimiser_sharpness_bounds, spectrum_along
from thalweg.dynamics import Descent, Flow, descend, distance, flow
from thalweg.network import LinearNetwork
from thalweg.objective import Objective
from thalweg.problem import Regression

Progress = Callable[[str, float], None]


@dataclass(frozen=True)
class Experiment:
    """What to run; every number has a default."""

    samples: int = 50
    features: int = 5
    noise: float = 1.0
    depth: int = 10
    init_scale: float = 0.3
    learning_rates: tuple[float, ...] = (0.02, 0.05, 0.1, 0.2)
    time: float = 16.0
    every: float = 0.1
    seed: int = 0
    rtol: float = 1e-8
    atol: float = 1e-10
    kind: str = field(default="deep linear regression", init=False)

    def __post_init__(self):
        for name in ("samples", "features", "depth"):
            require_count(name, getattr(self, name))
        for name in ("init_scale", "time", "every", "rtol", "atol", "learning_rates"):
            require_positive(name, getattr(self, name))
        if not self.learning_rates:
            raise InputError("`learning_rates` must hold at least one learning rate.")
        slowest = max(self.learning_rates)
        if self.time < slowest:
            raise InputError(
                f"`time` must allow at least one step, got {self.time:g} for a learning rate of "
                f"{slowest:g}."
            )

    def record_every(self, rate: float) -> int:
        """How many steps at this learning rate come nearest to `every`."""
        return max(1, round(self.every / rate))

    def objective(self) -> Objective:
        """The network on its problem, with the paper's loss: the mean square without a half."""
        drawn = data.gaussian_regression(
            self._key(0), samples=self.samples, features=self.features, noise=self.noise
        )
        network = LinearNetwork([self.features] * self.depth + [1])
        return Objective(network, Regression(drawn.x, drawn.y, scale=1.0))

    def start(self, objective: Objective):
        """The weights that all runs start from."""
        return initialisation.gaussian(objective.network, self.init_scale, key=self._key(1))

    def _key(self, purpose: int):
        return jax.random.fold_in(jax.random.key(self.seed), purpose)


def perform(experiment: Experiment, progress: Progress = lambda stage, share: None) -> xr.Dataset:
    """Run the experiment: loss, distance to the flow and sharpness of every run, over time."""
    objective = experiment.objective()
    weights = experiment.start(objective)
    runs = []
    for number, rate in enumerate(experiment.learning_rates):
        progress("descent", number / len(experiment.learning_rates))
        steps, every = int(experiment.time / rate + 1e-9), experiment.record_every(rate)
        run = descend(
            objective, weights, learning_rate=rate, steps=steps, record_every=min(every, steps)
        )
        runs.append(run)
    progress("descent", 1.0)
    times = np.linspace(0, experiment.time, 1 + round(experiment.time / experiment.every))
    exact = flow(objective, weights, times=times, rtol=experiment.rtol, atol=experiment.atol)
    gaps = []
    for number, run in enumerate(runs):
        progress("flow", (number + 1) / (len(runs) + 1))
        gaps.append(distance(run, exact))
    progress("flow", 1.0)
    spectra = []
    for number, motion in enumerate([*runs, exact]):
        progress("spectrum", number / (len(runs) + 1))
        spectra.append(spectrum_along(objective, motion.weights))
    progress("spectrum", 1.0)
    return _dataset(experiment, objective, runs, exact, gaps, spectra)


def _dataset(
    experiment: Experiment,
    objective: Objective,
    runs: list[Descent],
    exact: Flow,
    gaps: list[np.ndarray],
    spectra: list[SpectrumPath],
) -> xr.Dataset:
    bounds = minimiser_sharpness_bounds(objective)
    by_run = ("learning_rate", "record")
    problem = objective.problem
    assert isinstance(problem, Regression)  # the bounds refuse all else
    return xr.Dataset(
        {
            "time": (by_run, _padded([run.times for run in runs])),
            "loss": (by_run, _padded([run.loss for run in runs])),
            "distance": (by_run, _padded(gaps)),
            "sharpness": (by_run, _padded([path.largest for path in spectra[:-1]])),
            "smallest_eigenvalue": (by_run, _padded([path.smallest for path in spectra[:-1]])),
            "diverged_at": (
                "learning_rate",
                [np.nan if run.diverged_at is None else float(run.diverged_at) for run in runs],
            ),
            "flow_loss": ("flow_time", exact.loss),
            "flow_sharpness": ("flow_time", spectra[-1].largest),
            "flow_smallest_eigenvalue": ("flow_time", spectra[-1].smallest),
            "flow_error": ("flow_time", exact.error),
            "minimum": float(problem.minimum),
            "sharpness_bound": float(bounds.paper),
            "stronger_sharpness_bound": float(bounds.stronger),
        },
        coords={"learning_rate": list(experiment.learning_rates), "flow_time": exact.times},
        attrs={
            **{f"experiment_{name}": value for name, value in asdict(experiment).items()},
            "flow_method": exact.method,
            "flow_gradient_evaluations": int(exact.gradient_evaluations),
            **_provenance(),
        },
    )


def _padded(rows: list[np.ndarray]) -> np.ndarray:
    longest = max(row.size for row in rows)
    return np.stack([np.pad(row, (0, longest - row.size), constant_values=np.nan) for row in rows])


def _provenance() -> dict[str, str]:
    return {
        "thalweg": __version__,
        "jax": version("jax"),
        "diffrax": version("diffrax"),
        "python": platform.python_version(),
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
    }
