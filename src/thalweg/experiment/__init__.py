"""Experiments: settings, validated; as TOML; what is built from them; and how they are done.

An `Experiment` is data: what can be done with it are functions. `files` reads and writes it,
`building` makes an objective, a start and a case of it, `performance` runs it.
"""

from thalweg.experiment.building import case, finite_start, objective, start
from thalweg.experiment.estimates import prepared
from thalweg.experiment.files import changed, from_toml, from_values, moved, read, to_toml
from thalweg.experiment.performance import STAGES, keeper_of, perform
from thalweg.experiment.settings import Experiment

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
    "read",
    "start",
    "to_toml",
]


def __dir__() -> list[str]:
    return __all__
