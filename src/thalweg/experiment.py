"""The main job: descent at several learning rates next to the flow, from one start.

The built-in experiment is the set-up of marion2024: regression on 50 samples with 5 features, a
linear network of depth 10 with a Gaussian start, and learning rates below and above the edge of
stability. A run is recorded about as often in time as any other, but at its own steps; what has
fewer records than the others is padded with NaN.
"""

import platform
import tomllib
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from difflib import get_close_matches
from importlib.metadata import version
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from thalweg import data, initialisation
from thalweg._checks import InputError, require_count, require_positive
from thalweg._typing import Weights
from thalweg._version import __version__
from thalweg.curvature import SpectrumPath, minimiser_sharpness_bounds, spectrum_along
from thalweg.dynamics import Descent, Flow, descend, distance, flow
from thalweg.network import LinearNetwork
from thalweg.objective import Objective
from thalweg.problem import Regression
from thalweg.theorems import Case, RandomStart
from thalweg.tubes import Tube, tube

Progress = Callable[[str, float], None]

STARTS: dict[str, Callable[..., Weights]] = {
    "gaussian": initialisation.gaussian,
    "balanced": initialisation.balanced,
    "residual": initialisation.residual,
}
"""How the weights may be drawn; each takes a network, a scale and a key."""


@dataclass(frozen=True)
class Experiment:
    """What to run; every number has a default."""

    samples: int = 50
    features: int = 5
    noise: float = 1.0
    white: bool = False
    depth: int = 10
    start: str = "gaussian"
    init_scale: float = 0.3
    learning_rates: tuple[float, ...] = (0.02, 0.05, 0.1, 0.2)
    time: float = 16.0
    every: float = 0.1
    seed: int = 0
    radius: float = 0.01
    rtol: float = 1e-8
    atol: float = 1e-10
    kind: str = field(default="deep linear regression", init=False)

    def __post_init__(self):
        for name in ("samples", "features", "depth"):
            require_count(name, getattr(self, name))
        for name in ("init_scale", "time", "every", "radius", "rtol", "atol", "learning_rates"):
            require_positive(name, getattr(self, name))
        if self.start not in STARTS:
            raise InputError(f"`start` must be one of {', '.join(STARTS)}, got {self.start!r}.")
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
        x = data.whiten(drawn.x).x if self.white else drawn.x
        return Objective(self._network(), Regression(x, drawn.y, scale=1.0))

    def weights(self, objective: Objective) -> Weights:
        """The weights that all runs start from."""
        return STARTS[self.start](objective.network, self.init_scale, key=self._key(1))

    def case(self, learning_rate: float | None = None, target_loss: float | None = None) -> Case:
        """What theorems are asked about: a hundredth of the excess loss, if no target is given."""
        objective = self.objective()
        weights, problem = self.weights(objective), objective.problem
        assert isinstance(problem, Regression)
        if target_loss is None:
            lowest = float(problem.minimum)
            target_loss = lowest + 0.01 * (float(objective(weights)) - lowest)
        return Case(
            objective,
            weights,
            learning_rate=learning_rate,
            target_loss=target_loss,
            time=self.time,
            radius=self.radius,
            random_start=RandomStart(self.start, self.init_scale),
        )

    def _network(self) -> LinearNetwork:
        """One output; a residual network has square layers and a random unit readout."""
        if self.start != "residual":
            return LinearNetwork([self.features] * self.depth + [1])
        readout = jax.random.normal(self._key(2), (self.features,))
        return LinearNetwork([self.features] * (self.depth + 1), readout / jnp.linalg.norm(readout))

    def _key(self, purpose: int):
        return jax.random.fold_in(jax.random.key(self.seed), purpose)


def read(path: Path) -> Experiment:
    """The experiment that a TOML file describes: the fields of `Experiment`, all optional."""
    try:
        settings = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(
            f"The experiment must be a file that can be read, got {path}: {error.strerror}."
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} must be a TOML file: {error}.") from error
    known = [each.name for each in fields(Experiment) if each.init]
    for name, value in settings.items():
        if name not in known:
            nearest = get_close_matches(name, known, 1)
            hint = (
                f"; did you mean `{nearest[0]}`?" if nearest else f"; known are {', '.join(known)}."
            )
            raise InputError(f"{path} must not set `{name}`, which no experiment has{hint}")
        if isinstance(value, list):
            settings[name] = tuple(value)
    try:
        return Experiment(**settings)
    except TypeError as error:
        raise InputError(f"{path} has a value of the wrong kind: {error}.") from error


def perform(experiment: Experiment, progress: Progress = lambda stage, share: None) -> xr.Dataset:
    """Run the experiment: loss, distance to the flow and sharpness of every run, over time."""
    objective = experiment.objective()
    weights = experiment.weights(objective)
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
    tubes = []
    for number, run in enumerate(runs):
        progress("tube", number / len(runs))
        tubes.append(tube(run, curvature="norms"))
    progress("tube", 1.0)
    spectra = []
    for number, motion in enumerate([*runs, exact]):
        progress("spectrum", number / (len(runs) + 1))
        spectra.append(spectrum_along(objective, motion.weights))
    progress("spectrum", 1.0)
    return _dataset(experiment, objective, runs, exact, gaps, tubes, spectra)


def _dataset(
    experiment: Experiment,
    objective: Objective,
    runs: list[Descent],
    exact: Flow,
    gaps: list[np.ndarray],
    tubes: list[Tube],
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
            "distance_lower": (by_run, _padded([each.lower for each in tubes])),
            "distance_upper": (by_run, _padded([each.upper for each in tubes])),
            "proven_until": ("learning_rate", [_proven_until(each) for each in tubes]),
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


def _proven_until(proven: Tube) -> float:
    """The last recorded time at which a tube is finite."""
    return float(proven.times[np.isfinite(proven.upper)][-1])


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
