"""Experiments: settings, validated; as TOML; what is built from them; and how they are done.

An `Experiment` is data: what can be done with it are functions. `files` reads and writes it,
`building` makes an objective, a start and a case of it, `performance` runs it.
"""

from thalweg.experiment.building import case as case
from thalweg.experiment.building import finite_start as finite_start
from thalweg.experiment.building import objective as objective
from thalweg.experiment.building import start as start
from thalweg.experiment.estimates import prepared as prepared
from thalweg.experiment.files import changed as changed
from thalweg.experiment.files import from_toml as from_toml
from thalweg.experiment.files import from_values as from_values
from thalweg.experiment.files import moved as moved
from thalweg.experiment.files import read as read
from thalweg.experiment.files import to_toml as to_toml
from thalweg.experiment.performance import STAGES as STAGES
from thalweg.experiment.performance import keeper_of as keeper_of
from thalweg.experiment.performance import perform as perform
from thalweg.experiment.settings import Experiment as Experiment
