"""What is minimised: any function of a pytree of weights, or a network on a problem."""

from thalweg.objective.base import DENSE_LIMIT as DENSE_LIMIT
from thalweg.objective.base import AbstractObjective as AbstractObjective
from thalweg.objective.networks import Objective as Objective
