"""The run and the flow of a case, where they are what it says they are."""

import numpy as np

from thalweg._typing import Weights
from thalweg.certificates.case import Case
from thalweg.dynamics import AbstractFlow, Descent
from thalweg.dynamics.escape import Escape

FLOW_ERRORS = 2
"""Of a flow's own estimate: it is made by a companion that has an error itself."""


def is_run_of(run: Descent, case: Case) -> bool:
    """Whether a descent began where the case does, with its learning rate if it has one."""
    if run.learning_rate.ndim:
        return False
    rate = float(run.learning_rate)  # in the precision of the weights
    same_rate = case.learning_rate is None or bool(np.isclose(case.learning_rate, rate, 1e-6, 0))
    return same_rate and all(
        np.array_equal(np.asarray(mine)[0], np.asarray(own))
        for mine, own in zip(run.weights, case.weights, strict=False)
    )


def own_run(case: Case) -> Descent | None:
    """The recorded descent from the start with the learning rate of the case, if there is one."""
    run = case.run
    if run is None or not run.weights or case.learning_rate is None or not is_run_of(run, case):
        return None
    return run


def own_flow(case: Case) -> AbstractFlow | None:
    """The recorded flow, in its own time and with its error; it may start beside the case."""
    flow = case.flow
    if flow is None or not flow.weights or isinstance(flow, Escape):
        return None
    return flow if bool(np.all(np.isfinite(flow.error))) else None


def start_distance(case: Case) -> float:
    """How far from the flow's start descent begins."""
    return 0.0 if case.flow is None else apart(case.flow.start, case.weights)


def apart(weights: Weights, others: Weights) -> float:
    """The Euclidean distance between the weights of two networks."""
    pairs = zip(weights, others, strict=True)
    return float(np.sqrt(sum(np.sum((np.asarray(a) - np.asarray(b)) ** 2) for a, b in pairs)))
