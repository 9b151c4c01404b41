"""The largest learning rate that still trains, next to what theory says about it."""

from thalweg.critical.edges import edge_learning_rate
from thalweg.critical.measured import CriticalLearningRate, critical_learning_rate
from thalweg.critical.predictions import Prediction
from thalweg.critical.search import Bracket, Criterion

__all__ = [
    "Bracket",
    "Criterion",
    "CriticalLearningRate",
    "Prediction",
    "critical_learning_rate",
    "edge_learning_rate",
]


def __dir__() -> list[str]:
    return __all__
