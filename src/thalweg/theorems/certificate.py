"""Statements that can be checked: claims with signed margins, and what they add up to.

A theorem has assumptions and conclusions. Both are claims `lesser <= greater` that keep both sides,
so that a margin has a sign and a figure can draw the bound beside the fact. The verdict is, tested
in this order,

    NOT_APPLICABLE   an assumption fails by more than its resolution
    UNDECIDED        an assumption is too close to call, or not a number
    VIOLATED         a conclusion fails by more than its resolution
    UNDECIDED        a conclusion is not a number
    CONFIRMED        otherwise: the assumptions hold, and so does every conclusion looked at

so that NaN never confirms. Without a trajectory there may be no conclusion to look at: a confirmed
certificate then says that the theorem applies, and its answers are what it promises.
"""

import json
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from math import inf, isfinite
from typing import Any, ClassVar, Generic, TypeVar

import equinox as eqx
import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from thalweg.theorems.magnitude import Magnitude, Number, readable

Subject = TypeVar("Subject")
Side = Any  # a Magnitude, a number, or an array of numbers


class Verdict(Enum):
    """What checking a theorem came to."""

    CONFIRMED = "confirmed"
    NOT_APPLICABLE = "not applicable"
    VIOLATED = "violated"
    UNDECIDED = "undecided"


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
    CRITICAL_RATE = "descent cannot settle above the learning rate", False
    PREDICTED_RATE = "critical learning rate, predicted", True
    CURVATURE = "smallest Hessian eigenvalue, at least", True
    PROBABILITY = "probability over the random start, at least", True

    def __init__(self, phrase: str, larger_is_stronger: bool):
        self.phrase, self.larger_is_stronger = phrase, larger_is_stronger


@dataclass(frozen=True)
class Answer:
    """What a theorem promises, in one number."""

    question: Question
    value: Number
    condition: str = ""


@dataclass(frozen=True, eq=False)
class Claim:
    """The inequality `lesser <= greater` between computed numbers, or at every step of a run.

    Where a side is a `Magnitude`, sides are compared by their logarithms, and so are the margin
    and the resolution. A difference below the resolution means nothing: it covers rounding, the
    error of a flow, or the noise of sampling; it may be given for every entry. `whether` marks a
    statement that has no sides: see `requirement`.
    """

    statement: str
    lesser: Side
    greater: Side
    resolution: Side = 0.0
    whether: bool = False

    @property
    def logarithmic(self) -> bool:
        """Whether the margin is log(greater / lesser)."""
        return isinstance(self.lesser, Magnitude) or isinstance(self.greater, Magnitude)

    @property
    def differences(self) -> np.ndarray:
        """`greater - lesser`, everywhere."""
        if self.logarithmic:
            low, high = Magnitude.of(self.lesser).log, Magnitude.of(self.greater).log
            return np.asarray(0.0 if low == high else high - low)  # also for zero <= zero
        greater, lesser = (np.asarray(side, float) for side in (self.greater, self.lesser))
        with np.errstate(invalid="ignore"):
            found = np.where(greater == lesser, 0.0, greater - lesser)
        return found if found.size else np.asarray(np.nan)  # nothing to compare confirms nothing

    @property
    def margin(self) -> float:
        """The least difference; not a number where one of them is not."""
        return float(np.min(self.differences))

    @property
    def fails(self) -> bool:
        """Whether it is broken somewhere, beyond the resolution."""
        return bool(np.any(self.differences < -self._slack))

    @property
    def holds(self) -> bool:
        """Whether it holds everywhere, up to the resolution."""
        return bool(np.all(self.differences >= -self._slack))

    @property
    def holds_clearly(self) -> bool:
        """Whether it holds everywhere, by the resolution at least."""
        return bool(np.all(self.differences >= self._slack))

    @property
    def looseness(self) -> float:
        """The least factor between the sides where both are positive; 1 is tight."""
        if self.logarithmic:
            return float(Magnitude(self.margin))
        lesser, greater = np.broadcast_arrays(*(np.asarray(s, float) for s in self._sides))
        positive = (lesser > 0) & (greater > 0)
        return float(np.min(greater[positive] / lesser[positive])) if positive.any() else np.nan

    def worst(self) -> tuple[Number, Number]:
        """Both sides where the difference is least."""
        if self.logarithmic:
            return Magnitude.of(self.lesser), Magnitude.of(self.greater)
        lesser, greater = np.broadcast_arrays(*(np.asarray(s, float) for s in self._sides))
        if lesser.size == 0:
            return np.nan, np.nan
        where = np.unravel_index(np.argmin(self.differences), self.differences.shape)
        return float(lesser[where]), float(greater[where])

    def describe_sides(self) -> str:
        """Both sides as a reader wants them, where they are closest."""
        if self.whether:
            return "yes" if self.holds else "no"
        lesser, greater = self.worst()
        return f"{readable(lesser)} <= {readable(greater)}"

    def describe_margin(self) -> str:
        """The margin as a reader wants it: a difference, or a factor."""
        if self.whether:
            return ""
        if self.logarithmic:
            factor = readable(Magnitude(abs(self.margin)))
            return f"{'by' if self.margin >= 0 else 'short by'} a factor {factor}"
        return f"{self.margin:+.3g}"

    def to_dict(self) -> dict[str, Any]:
        """Plain data, with the sides where they are closest."""
        lesser, greater = self.worst()
        return {
            "statement": self.statement,
            "lesser": _plain(lesser),
            "greater": _plain(greater),
            "margin": _plain(self.margin),
            "resolution": _plain(float(np.max(self._slack))),
            "logarithmic": self.logarithmic,
            "holds": self.holds,
        }

    @property
    def _slack(self) -> np.ndarray:
        slack = np.asarray(self.resolution, float)
        slack = np.where(np.isfinite(slack), slack, np.nan)  # without limit it would hide anything
        return slack if slack.size else np.zeros(())

    @property
    def _sides(self) -> tuple[Side, Side]:
        return self.lesser, self.greater


def requirement(statement: str, met: bool) -> Claim:
    """An assumption that either holds or does not: a margin of 0, or of -1."""
    return Claim(statement, 0.0 if met else 1.0, 0.0, whether=True)


def rounding(*values: Any, units: float = 64.0) -> np.ndarray | np.floating:
    """The resolution of numbers that were computed from these: some units in the last place."""
    arrays = np.broadcast_arrays(*(np.abs(np.asarray(value, float)) for value in values))
    return units * np.finfo(float).eps * np.max(np.stack(arrays), axis=0)


@dataclass(frozen=True, eq=False)
class Certificate:
    """What became of a theorem on one subject."""

    reference: str
    title: str
    assumptions: tuple[Claim, ...]
    conclusions: tuple[Claim, ...] = ()
    answers: tuple[Answer, ...] = field(default=())

    @property
    def verdict(self) -> Verdict:
        """The four-valued result; the module says how it is found."""
        if any(claim.fails for claim in self.assumptions):
            return Verdict.NOT_APPLICABLE
        if not all(claim.holds_clearly for claim in self.assumptions):
            return Verdict.UNDECIDED
        if any(claim.fails for claim in self.conclusions):
            return Verdict.VIOLATED
        held = all(claim.holds for claim in self.conclusions)
        return Verdict.CONFIRMED if held else Verdict.UNDECIDED

    @property
    def applies(self) -> bool:
        """Whether every assumption holds."""
        return all(claim.holds_clearly for claim in self.assumptions)

    @property
    def first_failure(self) -> Claim | None:
        """The first assumption that does not hold, else the first conclusion that does not."""
        doubtful = (claim for claim in self.assumptions if not claim.holds_clearly)
        broken = (claim for claim in self.conclusions if not claim.holds)
        return next(doubtful, next(broken, None))

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "statement": self.reference,
            "title": self.title,
            "verdict": self.verdict.value,
            "assumptions": [claim.to_dict() for claim in self.assumptions],
            "conclusions": [claim.to_dict() for claim in self.conclusions],
            "answers": [
                {
                    "question": answer.question.phrase,
                    "value": _plain(answer.value),
                    "condition": answer.condition,
                }
                for answer in self.answers
            ],
        }

    def to_json(self) -> str:
        """The same as text."""
        return json.dumps(self.to_dict(), indent=1)

    def __rich_console__(self, console: Console, options: Any) -> Iterator[Any]:
        yield Text(f"{self.reference}  {self.title}: {self.verdict.value}", style="bold")
        table = plain_table("", "claim", "is", "margin")
        for role, claims in (("assumed", self.assumptions), ("concluded", self.conclusions)):
            for claim in claims:
                cells = (role, claim.statement, claim.describe_sides(), claim.describe_margin())
                table.add_row(*map(Text, cells))
        yield table
        for each in self.answers:
            yield Text(f"{each.question.phrase}: {readable(each.value)} {each.condition}".rstrip())

    def __str__(self) -> str:
        console = Console(width=110, no_color=True)
        with console.capture() as text:
            console.print(self)
        return text.get()


class AbstractTheorem(eqx.Module, Generic[Subject]):
    """A statement about a subject; its fields are the free numbers of the statement."""

    reference: ClassVar[str]

    @abstractmethod
    def assumptions(self, subject: Subject, /) -> tuple[Claim, ...]:
        """What must hold. It may end at the first claim without which the next makes no sense."""

    @abstractmethod
    def conclusions(self, subject: Subject, /) -> tuple[Claim, ...]:
        """What then follows and can be looked at; called only where the assumptions hold."""

    def answers(self, subject: Subject, /) -> tuple[Answer, ...]:
        """What is promised in numbers; called only where the assumptions hold."""
        return ()

    def check(self, subject: Subject, /) -> Certificate:
        """Compare the statement with the subject."""
        assumptions = tuple(self.assumptions(subject))
        applies = all(claim.holds_clearly for claim in assumptions)
        return Certificate(
            self.reference,
            self.title(),
            assumptions,
            tuple(self.conclusions(subject)) if applies else (),
            tuple(self.answers(subject)) if applies else (),
        )

    @classmethod
    def title(cls) -> str:
        """The first sentence of the docstring."""
        return (cls.__doc__ or cls.__name__).strip().split("\n", 1)[0].rstrip(".")


def plain_table(*names: str) -> Table:
    """A table with lines under its head alone."""
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for name in names:
        table.add_column(name, justify="right" if name == "value" else "left", overflow="fold")
    return table


def sorted_by_strength(answers: Sequence[Answer]) -> list[Answer]:
    """Answers to one question, the strongest first."""
    larger = answers[0].question.larger_is_stronger if answers else True
    return sorted(answers, key=lambda answer: _signed_order(answer.value), reverse=larger)


def _signed_order(number: Number) -> tuple[int, float]:
    """A key that sorts numbers of any sign together with magnitudes of any size."""
    if isinstance(number, Magnitude) or float(number) > 0:
        return 1, Magnitude.of(number).log
    return (-1, -Magnitude.of(-float(number)).log) if float(number) < 0 else (1, -inf)


def _plain(number: Number) -> float | str | None:
    """A number that JSON can hold: as text beyond floating point, null where it is none."""
    value = float(number)
    if isinstance(number, Magnitude) and (value == 0 or not isfinite(value)):
        return readable(number)
    return value if isfinite(value) else (None if value != value else str(value))
