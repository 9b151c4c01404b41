"""What is guaranteed, as plain rows: every rendering shows these, and JSON keeps them.

A row is a text for each column, under the column's name, because some numbers are beyond floating
point; `share` is for bars (see `margin_share`). Answers are in `answers`, one list of rows for each
question; what does not apply, by the assumption that fails, in `refused`; conclusions next to what
was measured in `compared`.
"""

from collections.abc import Iterator, Sequence
from math import copysign, expm1, isnan
from typing import Any

from thalweg.certificates.answers import Answer
from thalweg.certificates.certificate import Certificate
from thalweg.certificates.claim import Claim
from thalweg.certificates.magnitude import readable
from thalweg.certificates.measured import Measured

Row = dict[str, str]


def titled_tables(overview: dict[str, Any]) -> Iterator[tuple[str, list[Row]]]:
    """The tables in the order of reading, each under its title, for pages that are not wide.

    What an answer's own assumptions leave as a margin is left out, and so is what is for bars.
    """
    for each in overview["answers"]:
        yield each["question"], _without(each["rows"], "assumption", "margin", "share")
    refused, checked = overview["checked"] - overview["applying"], overview["checked"]
    title = f"What does not apply, and why ({refused} of {checked} statements about training)"
    yield title, _without(overview["refused"], "share")
    if overview["compared"]:
        yield "Conclusions against measurements", overview["compared"]


def answer_rows(answers: Sequence[tuple[Answer, Certificate]], measured: Measured) -> list[Row]:
    """One row for each answer; what its theorem says is told once, however often it answers."""
    rows, last = [], None
    for answer, owner in answers:
        value = measured.beside(answer)
        decisive = None if owner is last else narrowest(owner)
        rows.append(
            {
                "bound": readable(answer.value),
                "measured": "" if value is None else readable(value),
                "source": owner.reference,
                "statement": "" if owner is last else owner.title,
                "condition": answer.condition,
                "assumption": decisive.statement if decisive else "",
                "margin": decisive.describe_margin() if decisive else "",
                "share": f"{margin_share(decisive):.3g}" if decisive else "",
            }
        )
        last = owner
    return rows


def refused_rows(certificates: Sequence[Certificate]) -> list[Row]:
    """One row for each reason, with all statements that fail for it."""
    reasons: dict[tuple[str, str, str, str], list[str]] = {}
    for each in certificates:
        broken = each.first_failure
        if broken is not None:
            sides = broken.describe_sides(clearly=broken in each.assumptions)
            share = "" if broken.whether else f"{margin_share(broken):.3g}"
            reason = broken.statement, sides, broken.describe_margin(), share
            reasons.setdefault(reason, []).append(each.reference)
    names = ("assumption", "values", "margin", "share")
    return [
        dict(zip(names, reason, strict=True), source=_by_paper(references))
        for reason, references in reasons.items()
    ]


def compared_rows(certificates: Sequence[Certificate]) -> list[Row]:
    """One row for each conclusion that was looked at."""
    rows = dict.fromkeys(
        (each.reference, claim.statement, claim.describe_sides(), each.verdict.value)
        for each in certificates
        for claim in each.conclusions
    )
    names = ("source", "conclusion", "values", "verdict")
    return [dict(zip(names, row, strict=True)) for row in rows]


def narrowest(certificate: Certificate) -> Claim | None:
    """The assumption that holds with the least margin, as a share of its larger side."""
    # A margin of zero is that of an equation, such as a width that must be one.
    claims = [each for each in certificate.assumptions if not each.whether and each.margin != 0]
    return min(claims, key=margin_share, default=None)


def margin_share(claim: Claim) -> float:
    """The margin as a share of the larger side: 1 is far inside, 0 at the limit, -1 far outside."""
    if claim.logarithmic:
        return copysign(-expm1(-abs(float(claim.margin))), float(claim.margin))
    lesser, greater = (abs(float(side)) for side in claim.worst())
    share = float(claim.margin) / max(lesser, greater, 1e-300)
    return share if isnan(share) else min(1.0, max(-1.0, share))


def _without(rows: list[Row], *names: str) -> list[Row]:
    return [{name: row[name] for name in row if name not in names} for row in rows]


def _by_paper(references: list[str]) -> str:
    """The ids, with each paper's key once."""
    papers: dict[str, list[str]] = {}
    for reference in references:
        paper, name = reference.split(":")
        papers.setdefault(paper, []).append(name)
    return "; ".join(f"{paper}: {', '.join(names)}" for paper, names in papers.items())
