"""Two ways of doing one thing, and what each costs."""

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Comparison:
    """What ours and the plain way cost, in the same unit, and the ratio that must be reached."""

    what: str
    unit: str
    ours: float
    plain: float
    bar: float
    note: str = ""

    @property
    def ratio(self) -> float:
        """How many times cheaper ours is."""
        return self.plain / self.ours

    def row(self) -> dict[str, str]:
        """For a table."""
        return {
            "what": self.what,
            "ours": f"{self.ours:.4g} {self.unit}",
            "plain way": f"{self.plain:.4g} {self.unit}",
            "ratio": f"{self.ratio:.3g}",
            "bar": f">= {self.bar:g}",
            "note": self.note,
        }


def best_of(rounds: int, *works: Callable[[], object]) -> list[float]:
    """The least seconds that each work took; they take turns, so noise hits all alike."""
    best = [float("inf")] * len(works)
    for _ in range(rounds):
        for index, work in enumerate(works):
            started = time.perf_counter()
            work()
            best[index] = min(best[index], time.perf_counter() - started)
    return best
