"""What a study is: data, pictures in the paper's form, and findings that are checked.

A study computes one dataset, part by part (`parts`), so that an interrupted one goes on where it
stopped. Everything else is a function of that dataset alone: the pictures, and the findings, which
compare a measured number with what was expected and so can fail. A study comes in two sizes: quick,
which says the same with less, and full, as in the paper; and some in variants, such as what the
authors' code does where it differs from their text.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from math import inf, isfinite, isnan
from typing import Any, ClassVar

import equinox as eqx
import xarray as xr

from thalweg._checks import InputError
from thalweg.certificates import Verdict
from thalweg.studies.parts import Parts

Progress = Callable[[str, float], None]
"""Called with what is being done and the share of it that is."""


class Size(Enum):
    """How much of a study is done."""

    QUICK = "quick"
    FULL = "full"


@dataclass(frozen=True)
class Finding:
    """A number that was measured, and the interval in which it was expected.

    Attributes:
        statement: what the number is, and what it shows where it is as expected.
        measured: the number.
        least: what it must be at least.
        most: what it must be at most.
        reported: what the paper says, in words or numbers; empty where it says nothing.
    """

    statement: str
    measured: float
    least: float = -inf
    most: float = inf
    reported: str = ""

    @property
    def margin(self) -> float:
        """How far inside the interval the number is; negative outside, NaN where it is NaN."""
        if isnan(self.measured):
            return self.measured
        return min(
            self.measured - self.least if isfinite(self.least) else inf,
            self.most - self.measured if isfinite(self.most) else inf,
        )

    @property
    def verdict(self) -> Verdict:
        """Confirmed inside of the interval, violated outside; no finite number, no decision."""
        if not isfinite(self.measured):
            return Verdict.UNDECIDED
        return Verdict.CONFIRMED if self.margin >= 0 else Verdict.VIOLATED

    @property
    def expected(self) -> str:
        """The interval in words."""
        low, high = f"{self.least:.4g}", f"{self.most:.4g}"
        if not isfinite(self.most):
            return f"at least {low}"
        if not isfinite(self.least):
            return f"at most {high}"
        return low if self.least == self.most else f"{low} to {high}"

    def to_dict(self) -> dict[str, str | float | None]:
        """For JSON, which knows no infinite numbers: they are None."""
        numbers = {
            "measured": self.measured, "least": self.least, "most": self.most,
            "margin": self.margin,
        }  # fmt: skip
        finite = {name: value if isfinite(value) else None for name, value in numbers.items()}
        words = {"finding": self.statement, "verdict": self.verdict.value}
        return {**words, **finite, "reported": self.reported}

    def row(self) -> dict[str, str]:
        """The line of a table."""
        return {
            "finding": self.statement,
            "expected": self.expected,
            "measured": f"{self.measured:.4g}",
            "margin": f"{self.margin:.2g}",
            "verdict": self.verdict.value,
        }


def yes(statement: str, holds: bool, reported: str = "") -> Finding:
    """A finding that is true or false."""
    return Finding(statement, float(holds), 1.0, 1.0, reported)


def least(values: xr.DataArray) -> float:
    """The smallest number; NaN if one is missing."""
    return float(values.min(skipna=False))


def largest(values: xr.DataArray) -> float:
    """The largest number; NaN if one is missing."""
    return float(values.max(skipna=False))


@dataclass(frozen=True)
class Variant:
    """A study done otherwise: what is different, in words and in settings."""

    difference: str
    settings: Mapping[str, Any]


class AbstractStudy(eqx.Module):
    """A study; the classes are final, and their fields are the settings of a size."""

    name: ClassVar[str]
    """Paper and figures, e.g. "marion2024-fig1"; one of ours begins with "thalweg"."""
    title: ClassVar[str]
    """One line: what is shown."""
    figures: ClassVar[Sequence[str]] = ()
    """The paper's figures that it reproduces, e.g. ("1a", "1b")."""
    protocol: ClassVar[str]
    """How it is done, in a paragraph; where the authors' text and code differ, what is followed."""
    comparison: ClassVar[str]
    """A paragraph or a list, point by point: what the paper shows, and what is seen here."""
    needs: ClassVar[Sequence[str]] = ()
    """Data that do not ship with the package, e.g. ("mnist",)."""
    variants: ClassVar[Mapping[str, Variant]] = {}
    """What may be asked for by name in place of what is done by default."""
    revision: ClassVar[int] = 1
    """To be raised when other data are computed from the same settings: old ones are not used."""

    @classmethod
    @abstractmethod
    def of_size(cls, size: Size) -> "AbstractStudy":
        """The study with the settings of a size."""

    @classmethod
    def chosen(cls, size: Size, variants: Sequence[str] = ()) -> "AbstractStudy":
        """The study with the settings of a size, changed by variants."""
        sized = cls.of_size(size)
        for name in variants:
            if name not in cls.variants:
                known = ", ".join(f"`{each}`" for each in cls.variants) or "none"
                raise InputError(
                    f"There is no variant `{name}` of {cls.name}; its variants are: {known}."
                )
            sized = replace(sized, **cls.variants[name].settings)
        return sized

    @abstractmethod
    def compute(self, parts: Parts, progress: Progress) -> xr.Dataset:
        """The data; each part that took long is kept by `parts`."""

    @abstractmethod
    def findings(self, results: xr.Dataset) -> list[Finding]:
        """What the data show."""

    @abstractmethod
    def draw(self, results: xr.Dataset) -> Mapping[str, Any]:
        """The pictures, by a short name such as "fig1a"."""
