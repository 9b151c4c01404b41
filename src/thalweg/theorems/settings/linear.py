"""Training of a linear network, on any problem."""

from typing import NamedTuple

from thalweg.certificates import Case, Narrowed, requirement
from thalweg.network import LinearNetwork


class LinearTraining(NamedTuple):
    """A case, and its network as a linear one."""

    case: Case
    network: LinearNetwork


def linear_training(case: Case) -> Narrowed[LinearTraining]:
    """A case on a linear network, with or without a readout and weight decay."""
    network = case.objective.network.linear
    claims = (requirement("the network is linear", network is not None),)
    return Narrowed(claims, None if network is None else LinearTraining(case, network))


def without_decay(training: LinearTraining) -> Narrowed[LinearTraining]:
    """That nothing but the problem's loss is descended."""
    free = float(training.case.objective.weight_decay) == 0
    return Narrowed.where((requirement("there is no weight decay", free),), training)


def product_training(case: Case) -> Narrowed[LinearTraining]:
    """A case whose loss is one of the product of the layers, and of nothing else."""
    network, free = case.objective.network.linear, float(case.objective.weight_decay) == 0
    plain = None if network is None or network.readout is not None else network
    claims = (
        requirement("the network is linear, without a readout", plain is not None),
        requirement("there is no weight decay", free),
    )
    return Narrowed(claims, LinearTraining(case, plain) if plain is not None and free else None)
