"""What a theorem promises, in numbers: the question that each answers, and of which points."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from math import inf

from thalweg.certificates.magnitude import Magnitude, Number


class Question(Enum):
    """What a user asks, and whether a larger answer is the stronger one."""

    LEARNING_RATE = "largest learning rate that is guaranteed to converge", True
    ITERATIONS = "iterations to the target loss, at most", False
    TIME = "time of the flow to the target loss, at most", False
    RATE = "the excess loss falls like exp(-rate * time), rate at least", True
    FOLLOWING_RATE = "largest learning rate that is guaranteed to stay near the flow", True
    DISTANCE = "distance from descent to the flow, at most", False
    LEAST_SHARPNESS = "sharpness of the minimiser, at least", True
    GREATEST_SHARPNESS = "sharpness of the minimiser found, at most", False
    PREDICTED_SHARPNESS = "sharpness of the minimiser, predicted", True
    CRITICAL_RATE = "no minimiser is linearly stable above learning rate", False
    PREDICTED_RATE = "critical learning rate, predicted", True
    CURVATURE = "smallest Hessian eigenvalue, at least", True
    PROBABILITY = "probability over the random start, at least", True

    def __init__(self, phrase: str, larger_is_stronger: bool):
        self.phrase, self.larger_is_stronger = phrase, larger_is_stronger


class Place(Enum):
    """Which point an answer speaks of, so that what is measured beside it is measured there."""

    ANYWHERE = "anywhere"
    START = "at the start"
    FLOW = "along the flow, or at its end"


@dataclass(frozen=True)
class Answer:
    """What a theorem promises, in one number.

    Attributes:
        question: what it answers.
        value: the number.
        condition: under which, or of what it is true.
        place: of which points it is true.
        until: up to which time.
    """

    question: Question
    value: Number
    condition: str = ""
    place: Place = Place.ANYWHERE
    until: float = inf


def sorted_by_strength(answers: Sequence[Answer]) -> list[Answer]:
    """Answers to one question, the strongest first."""
    larger = answers[0].question.larger_is_stronger if answers else True
    return sorted(answers, key=lambda answer: _signed_order(answer.value), reverse=larger)


def _signed_order(number: Number) -> tuple[int, float, float]:
    """A key that sorts numbers of any sign together with magnitudes of any size.

    Numbers whose logarithms agree to rounding may still differ.
    """
    value = float(number)
    if isinstance(number, Magnitude) or value > 0:
        return 1, Magnitude.of(number).log, value
    return (-1, -Magnitude.of(-value).log, value) if value < 0 else (1, -inf, value)
