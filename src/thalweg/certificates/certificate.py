"""What checking a theorem comes to: a certificate, with a verdict on all its claims.

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
from dataclasses import dataclass, field
from enum import Enum
from html import escape
from typing import Any

from thalweg.certificates.answers import Answer
from thalweg.certificates.claim import Claim
from thalweg.certificates.magnitude import plain_number, readable
from thalweg.certificates.text import html_table, table


class Verdict(Enum):
    """What checking a theorem came to."""

    CONFIRMED = "confirmed"
    NOT_APPLICABLE = "not applicable"
    VIOLATED = "violated"
    UNDECIDED = "undecided"


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

    def rows(self) -> list[dict[str, str]]:
        """One row for each claim, by the names of its columns."""
        roles = (("assumption", self.assumptions), ("conclusion", self.conclusions))
        return [
            {
                "role": role,
                "claim": claim.statement,
                "values": claim.describe_sides(clearly=role == "assumption"),
                "margin": claim.describe_margin(),
            }
            for role, claims in roles
            for claim in claims
        ]

    def __str__(self) -> str:
        answers = (
            f"{each.question.phrase}: {readable(each.value)} {each.condition}".rstrip()
            for each in self.answers
        )
        head = f"{self.reference}  {self.title}: {self.verdict.value}"
        return "\n".join((head, table(self.rows()), *answers))

    def _repr_html_(self) -> str:
        head = f"<b>{escape(self.reference)}</b>  {escape(self.title)}: {self.verdict.value}"
        return f"<p>{head}</p>{html_table(self.rows())}"
