"""Which guarantees hold, as plain data that a report can be written from."""

from typing import Any

from thalweg.certificates import Certificate, Guarantees, Question
from thalweg.certificates.magnitude import readable
from thalweg.certificates.measured import Measured

Plain = dict[str, Any]


def as_plain(found: Guarantees, measured: Measured) -> Plain:
    """The answers by question, what was refused by reason, and promises next to what was measured.

    Numbers are texts, because some are beyond floating point.
    """
    return {
        "learning_rate": found.case.learning_rate,
        "target_loss": found.case.target_loss,
        "radius": found.case.radius,
        "followed": found.case.run is not None,
        "checked": len(found),
        "applying": len(found.applying),
        "violated": [each.reference for each in found.violated],
        "answers": [
            _answers(question, found, measured) for question in Question if found.answers(question)
        ],
        "refused": _refused([each for each in found if not each.applies]),
        "compared": _compared(found.applying),
    }


def strongest(found: Guarantees, question: Question) -> float:
    """The strongest answer to a question; not a number where there is none."""
    answers = found.answers(question)
    return float(answers[0][0].value) if answers else float("nan")


def _answers(question: Question, found: Guarantees, measured: Measured) -> Plain:
    rows = [
        {
            "value": readable(answer.value),
            "statement": owner.reference,
            "title": owner.title,
            "measured": _readable(measured.beside(answer)),
            "condition": answer.condition,
            "margin": _tightest(owner),
        }
        for answer, owner in found.answers(question)
    ]
    return {"question": question.phrase, "rows": rows}


def _readable(value: float | None) -> str:
    return "" if value is None else readable(value)


def _tightest(certificate: Certificate) -> str:
    """The assumption with the least margin, as a share of its larger side; that in words."""
    # A margin of zero is that of an equation, such as a width that must be one.
    claims = [each for each in certificate.assumptions if not each.whether and each.margin != 0]
    if not claims:
        return ""

    def share(claim: Any) -> float:
        if claim.logarithmic:
            return claim.margin
        lesser, greater = (abs(float(side)) for side in claim.worst())
        return claim.margin / max(lesser, greater, 1e-300)

    claim = min(claims, key=share)
    return f"{claim.describe_margin()} ({claim.statement})"


def _refused(certificates: list[Certificate]) -> list[Plain]:
    """One row for each reason, with all statements that fail for it."""
    reasons: dict[tuple[str, str, str], list[str]] = {}
    for each in certificates:
        broken = each.first_failure
        assert broken is not None  # it does not apply
        sides = broken.describe_sides(clearly=broken in each.assumptions)
        reason = broken.statement, sides, broken.describe_margin()
        reasons.setdefault(reason, []).append(each.reference)
    return [
        {"needs": needs, "is": sides, "margin": margin, "statements": names}
        for (needs, sides, margin), names in reasons.items()
    ]


def _compared(certificates: tuple[Certificate, ...]) -> list[Plain]:
    rows = dict.fromkeys(
        (each.reference, claim.statement, claim.describe_sides(), each.verdict.value)
        for each in certificates
        for claim in each.conclusions
    )
    return [dict(zip(("statement", "claim", "is", "verdict"), row, strict=True)) for row in rows]
