"""The largest learning rate that still trains, next to what theory says about it."""

from thalweg.critical.measured import CriticalLearningRate as CriticalLearningRate
from thalweg.critical.measured import critical_learning_rate as critical_learning_rate
from thalweg.critical.predictions import Prediction as Prediction
from thalweg.critical.search import Bracket as Bracket
from thalweg.critical.search import Criterion as Criterion
