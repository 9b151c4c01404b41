"""Statements that can be checked: what their claims add up to.

A theorem has assumptions and conclusions. Both are claims `lesser <= greater` that keep both sides
(`claim`), so that a margin has a sign and a figure can draw the bound beside the fact. The verdict
is, tested in this order,

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
from math import inf
from typing import Any, ClassVar, Generic, TypeVar

import equinox as eqx
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from thalweg.certificates.claim import Claim as Claim
from thalweg.certificates.claim import identity as identity
from thalweg.certificates.claim import requirement as requirement
from thalweg.certificates.claim import rounding as rounding
from thalweg.certificates.magnitude import Magnitude, Number, plain_number, readable

Subject = TypeVar("Subject")


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


@dataclass(frozen=True, eq=False)
class Certificate:
    """The result of checking a theorem on one subject."""

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
                    "value": plain_number(answer.value),
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
        table = plain_table("", "claim", "values", "margin")
        for role, claims in (("assumption", self.assumptions), ("conclusion", self.conclusions)):
            for claim in claims:
                sides = claim.describe_sides(clearly=role == "assumption")
                cells = (role, claim.statement, sides, claim.describe_margin())
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
        table.add_column(
            name, justify="right" if name in ("bound", "measured") else "left", overflow="fold"
        )
    return table


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
