"""Experiments: settings, validated; as TOML; what is built from them; and how they are done.

An `Experiment` is data: what can be done with it are functions. `files` reads and writes it,
`building` makes an objective and a case of it, `starts` draws starts. `estimates` says what it
takes, `performance` runs it: `trajectories` makes descent and flow, `flatness` what theory says of
minimisers, `results` puts all that was found into one dataset; `folders` says where it goes. The
settings themselves are in `settings`, those of data in `data_settings`.
"""

from typing import TYPE_CHECKING

from thalweg._later import later
from thalweg.experiment.building import case, objective
from thalweg.experiment.files import changed, from_toml, from_values, moved, read, to_toml
from thalweg.experiment.settings import Experiment
from thalweg.experiment.starts import finite_start, start

__all__ = [
    "STAGES",
    "Experiment",
    "case",
    "changed",
    "finite_start",
    "from_toml",
    "from_values",
    "keeper_of",
    "moved",
    "objective",
    "perform",
    "prepared",
    "prepared_own",
    "read",
    "settings_of",
    "start",
    "to_toml",
]


if TYPE_CHECKING:
    from thalweg.experiment.estimates import prepared, prepared_own
    from thalweg.experiment.performance import STAGES, keeper_of, perform
    from thalweg.experiment.results import settings_of
else:  # they bring datasets and stores, which take a second to load
    _RUNNING = dict.fromkeys(("STAGES", "keeper_of", "perform"), "performance")
    __getattr__ = later(
        __name__,
        {
            "prepared": "estimates",
            "prepared_own": "estimates",
            "settings_of": "results",
            **_RUNNING,
        },
    )


def __dir__() -> list[str]:
    return __all__
