"""Probabilities by Monte Carlo, with the interval that they are known to."""

from dataclasses import dataclass

import numpy as np
import scipy

from thalweg._checks import require_count
from thalweg.certificates import Claim

CONFIDENCE = 0.999
"""Of every interval: a test over a hundred of them is wrong one time in ten, if they are tight."""


@dataclass(frozen=True)
class Proportion:
    """How often an event was seen, with its exact (Clopper-Pearson) interval."""

    successes: int
    trials: int

    def __post_init__(self):
        require_count("trials", self.trials)
        require_count("successes", self.successes, least=0)

    @classmethod
    def of(cls, events: np.ndarray) -> "Proportion":
        """From one flag per trial."""
        flags = np.asarray(events, bool)
        return cls(int(flags.sum()), flags.size)

    @property
    def estimate(self) -> float:
        """The share of successes."""
        return self.successes / self.trials

    @property
    def interval(self) -> tuple[float, float]:
        """Where the probability lies, with the confidence of this module."""
        found = scipy.stats.binomtest(self.successes, self.trials).proportion_ci(
            CONFIDENCE, "exact"
        )
        return float(found.low), float(found.high)

    def at_least(self, statement: str, bound: float) -> Claim:
        """The claim that the probability is at least this, to the resolution of the sample."""
        slack = max(self.interval[1] - self.estimate, 0.0)
        return Claim(self._of_draws(statement), bound, self.estimate, slack)

    def at_most(self, statement: str, bound: float) -> Claim:
        """The claim that the probability is at most this, to the resolution of the sample."""
        slack = max(self.estimate - self.interval[0], 0.0)
        return Claim(self._of_draws(statement), self.estimate, bound, slack)

    def _of_draws(self, statement: str) -> str:
        """The probability on one side is an estimate, and the label says of what."""
        return f"{statement}, in {self.trials} draws"
