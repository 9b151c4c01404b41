"""Claims `lesser <= greater` with signed margins: what theorems are made of.

The label of a claim is the claim. It has one relation outside of brackets, and the sides are the
numbers that it names, so that a reader can hold one against the other:

    lesser <= greater    up to the resolution
    lesser < greater     strictly, where the resolution is zero
    left = right         see `identity`: what is kept is the largest deviation between both

What follows a comma, comes before a colon, or stands in brackets is a remark.
"""

from collections.abc import Callable
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context
from functools import cached_property
from math import expm1, isnan
from typing import Any

import numpy as np

from thalweg._checks import InputError
from thalweg.certificates.magnitude import Magnitude, Number, plain_number, readable

Side = Any  # a Magnitude, a number, or an array of numbers

_RELATIONS = ("<=", "<", "=")
_MOST_DIGITS = 6  # up to which sides that differ are told apart by their digits


def split_label(statement: str) -> tuple[str, str, str]:
    """The sides that a label names, and the relation between them."""
    words, depth, found = statement.split(" "), 0, []
    for place, word in enumerate(words):
        if word in _RELATIONS and depth == 0:
            found.append(place)
        depth += sum(map(word.count, "([{")) - sum(map(word.count, ")]}"))
    if len(found) != 1:
        raise InputError(
            "The label of a claim must have one of <=, < and = outside of brackets, such as "
            f"'|w| <= 1', got {statement!r}; `requirement` is for what has no sides."
        )
    (place,) = found
    return " ".join(words[:place]), words[place], " ".join(words[place + 1 :])


@dataclass(frozen=True, eq=False)
class Claim:
    """The inequality `lesser <= greater` between computed numbers, or at every step of a run.

    Where a side is a `Magnitude`, sides are compared by their logarithms, and so are the margin
    and the resolution. A difference below the resolution means nothing: it covers rounding, the
    error of a flow, or the noise of sampling; it may be given for every entry. `whether` marks a
    statement that has no sides: see `requirement`. The module says what the label must look like.
    """

    statement: str
    lesser: Side
    greater: Side
    resolution: Side = 0.0
    whether: bool = False

    def __post_init__(self):
        if not self.whether:
            split_label(self.statement)

    @property
    def relation(self) -> str:
        """Of the label: "<=", "<" or "="; none where it has no sides."""
        return "" if self.whether else split_label(self.statement)[1]

    @property
    def logarithmic(self) -> bool:
        """Whether the margin is log(greater / lesser)."""
        return isinstance(self.lesser, Magnitude) or isinstance(self.greater, Magnitude)

    @cached_property
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
        return bool(np.any(self._broken))

    @property
    def holds(self) -> bool:
        """Whether it holds everywhere, up to the resolution."""
        return not self.fails and bool(np.all(self.differences >= -self._slack))

    @property
    def holds_clearly(self) -> bool:
        """Whether it holds everywhere, by the resolution at least."""
        found = self.differences
        return bool(np.all((found >= self._slack) & ((found > 0) | (self.relation != "<"))))

    @property
    def looseness(self) -> float:
        """The least factor between the sides where both are positive; 1 is tight."""
        if self.logarithmic:
            return float(Magnitude(self.margin))
        lesser, greater = np.broadcast_arrays(*(np.asarray(s, float) for s in self._sides))
        positive = (lesser > 0) & (greater > 0)
        return float(np.min(greater[positive] / lesser[positive])) if positive.any() else np.nan

    def worst(self) -> tuple[Number, Number]:
        """Both sides where the claim is broken most, or else where they come closest.

        Places where they are equal exactly, as a bound and what it bounds often are at time zero,
        tell nothing and are passed over where there are others.
        """
        if self.logarithmic:
            return Magnitude.of(self.lesser), Magnitude.of(self.greater)
        place, sides = self._place, (np.asarray(side, float) for side in self._sides)
        lesser, greater, _ = np.broadcast_arrays(*sides, self._slack)
        if lesser.size == 0:
            return np.nan, np.nan
        return float(lesser.ravel()[place]), float(greater.ravel()[place])

    def describe_sides(self, clearly: bool = False) -> str:
        """Both sides as a reader wants them, with the tolerance where that decides.

        Args:
            clearly: whether the claim is an assumption, which must hold by more than its tolerance.
        """
        if self.whether:
            return "yes" if self.holds else "no"
        lesser, greater = self.worst()
        difference, slack = self._there
        if self.relation == "=":
            return self._describe_identity(difference, slack)
        text = f"{_told_apart(lesser, greater, self.relation)}"
        if isnan(difference) or isnan(slack):
            return f"{text}, not a number"
        if self.relation == "<=" and difference == 0:
            text += " (equal)"
        elif difference != 0 and readable(lesser, _MOST_DIGITS) == readable(greater, _MOST_DIGITS):
            more = "less" if difference > 0 else "more"
            text += f", {more} by {self._amount(abs(difference), _nearest)},"
        if not self.fails and not self._satisfied(difference):
            return f"{text} within {self._amount(slack, _upwards)}"
        close = clearly and not self.fails and not self.holds_clearly
        text = text.removesuffix(",")
        return (
            f"{text}, too close to call within {self._amount(slack, _upwards)}" if close else text
        )

    def describe_margin(self) -> str:
        """The margin as a reader wants it, at the sides that are shown: a difference, or a factor.

        An identity has none.
        """
        if self.relation not in ("<=", "<"):
            return ""
        difference, _ = self._there
        if self.logarithmic:
            factor = readable(Magnitude(abs(difference)))
            return f"{'by' if difference >= 0 else 'short by'} a factor {factor}"
        return f"{difference:+.3g}"

    def to_dict(self) -> dict[str, Any]:
        """Plain data, with the sides, margin and resolution where they are shown."""
        lesser, greater = self.worst()
        difference, slack = self._there
        return {
            "statement": self.statement,
            "lesser": plain_number(lesser),
            "greater": plain_number(greater),
            "margin": plain_number(difference),
            "resolution": plain_number(slack),
            "logarithmic": self.logarithmic,
            "holds": self.holds,
        }

    @property
    def _slack(self) -> np.ndarray:
        slack = np.asarray(self.resolution, float)
        slack = np.where(np.isfinite(slack), slack, np.nan)  # without limit it would hide anything
        return slack if slack.size else np.zeros(())

    @property
    def _broken(self) -> np.ndarray:
        found, slack = self.differences, self._slack
        touching = (self.relation == "<") & (slack == 0) & (found <= 0)
        return np.asarray((found < -slack) | touching)

    @property
    def _sides(self) -> tuple[Side, Side]:
        return self.lesser, self.greater

    def _satisfied(self, difference: Any) -> Any:
        """Whether sides that differ by this need no tolerance."""
        return difference > 0 if self.relation == "<" else difference >= 0

    @cached_property
    def _place(self) -> int:
        """Where the sides are shown; the first of: not a number, broken, by tolerance, closest."""
        found, slack = (each.ravel() for each in np.broadcast_arrays(self.differences, self._slack))
        broken, tolerated = self._broken.ravel(), ~self._satisfied(found)
        with np.errstate(invalid="ignore", divide="ignore"):
            for kept, measure in (
                (np.isnan(found), 0 * found),
                (broken, found + slack),
                (tolerated, np.where(slack > 0, found / slack, 0.0)),
                (found != 0, found),
            ):
                if kept.any():
                    return int(np.flatnonzero(kept)[np.argmin(measure[kept])])
        return 0

    @property
    def _there(self) -> tuple[float, float]:
        """The difference of the sides that are shown, and the resolution there."""
        pair = np.broadcast_arrays(self.differences, self._slack)
        difference, slack = (float(each.ravel()[self._place]) for each in pair)
        return difference, slack

    def _amount(self, number: float, written: Callable[[float], str]) -> str:
        """A resolution or a difference in so many digits: of a logarithm it is a factor."""
        if not self.logarithmic:
            return written(number)
        if number >= 1:
            return f"a factor {readable(Magnitude(number))}"
        return f"a factor 1 + {written(expm1(number))}"

    def _describe_identity(self, difference: float, slack: float) -> str:
        if difference == 0:
            return "equal"
        off = f"differ by {readable(-difference)}"
        if isnan(difference) or isnan(slack):
            return f"{off}, not a number"
        return f"{off}, {'more than' if self.fails else 'within'} {self._amount(slack, _upwards)}"


def identity(statement: str, deviation: Side, resolution: Side) -> Claim:
    """The claim that two things are equal, `left = right`, as far as can be told.

    Args:
        statement: the equation.
        deviation: how far both sides are apart, not negative; one number, or one for each step.
        resolution: how far apart rounding and the like may put them.
    """
    return Claim(statement, deviation, 0.0, resolution)


def requirement(statement: str, met: bool) -> Claim:
    """An assumption that either holds or does not: a margin of 0, or of -1."""
    return Claim(statement, 0.0 if met else 1.0, 0.0, whether=True)


def rounding(*values: Any, units: float = 64.0) -> np.ndarray | np.floating:
    """The resolution of numbers that were computed from these: some units in the last place."""
    arrays = np.broadcast_arrays(*(np.abs(np.asarray(value, float)) for value in values))
    return units * np.finfo(float).eps * np.max(np.stack(arrays), axis=0)


def _told_apart(lesser: Number, greater: Number, relation: str) -> str:
    """Both sides, with as few digits as show which one is larger."""
    texts = ("", "")
    for digits in range(3, _MOST_DIGITS + 1):
        texts = readable(lesser, digits), readable(greater, digits)
        if texts[0] != texts[1]:
            return f"{texts[0]} {relation} {texts[1]}"
    return f"{readable(lesser)} {relation} {readable(greater)}"


def _nearest(number: float) -> str:
    """Two digits."""
    return f"{number:.2g}"


def _upwards(number: float) -> str:
    """Two digits, rounded up, so that what is within stays within."""
    return _nearest(float(Context(prec=2, rounding=ROUND_CEILING).create_decimal(repr(number))))
