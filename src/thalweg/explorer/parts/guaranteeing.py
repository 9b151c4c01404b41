"""What is guaranteed here: every theorem about training, checked on the setting and its run.

At first they are checked at the start alone, which takes a tenth of a second. Once the flow is
proven, they are compared with the run and that flow, as `thalweg run` does; with a flow whose error
is only estimated, some would compute a proof of their own, in functions compiled for each shape.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from thalweg.certificates import Certificate, Guarantees
from thalweg.certificates.claim import Claim
from thalweg.certificates.overview import margin_share, narrowest
from thalweg.dynamics import ValidatedFlow
from thalweg.experiment.building import case_of
from thalweg.experiment.trajectories import flow_at
from thalweg.explorer.computation import Computation
from thalweg.explorer.parts.words import words
from thalweg.explorer.settings import SettingError
from thalweg.explorer.waiting import beside
from thalweg.theorems import certify_case

_COMPARED = 1000  # weights up to which promises are compared with the run


def certificates(known: Computation) -> Iterator[bytes]:
    """The answers, strongest first, and every statement with its narrowest margin."""
    objective = known.network_objective
    if objective is None:
        raise SettingError("Theorems are about networks on problems, not about other objectives.")
    if not known.experiment.certificates.enabled:
        raise SettingError("Certificates were not asked for (certificates.enabled = false).")
    case, run = case_of(known.experiment, objective, known.weights), known.runs[0]
    exact = known.flow if isinstance(known.flow, ValidatedFlow) else None
    if exact is not None and not run.diverged and known.size <= _COMPARED:
        case = replace(case, run=run, flow=flow_at(exact, run.times))

    def found() -> tuple[Guarantees, dict[str, Any]]:
        made = certify_case(case)
        return made, made.overview()

    guarantees, overview = beside(known, found)
    known.overview = overview
    names = ("learning_rate", "checked", "applying", "violated", "followed")
    yield known.framed(
        "certificates",
        **{name: overview[name] for name in names},
        answers=[_answer(each) for each in overview["answers"]],
        statements=[_statement(each) for each in guarantees],
    )
    yield from words(known)


def _answer(answer: dict[str, Any]) -> dict[str, Any]:
    """A question with its bounds; bars are drawn of the share, in words it is the margin."""
    names = ("bound", "measured", "source", "statement", "condition", "assumption")
    rows = [
        {name: row[name] for name in names}
        | {"margin": float(row["share"]) if row["share"] else None, "told": row["margin"]}
        for row in answer["rows"]
    ]
    return {"question": answer["question"], "rows": rows}


def _statement(certificate: Certificate) -> dict[str, Any]:
    claim = narrowest(certificate) if certificate.applies else certificate.first_failure
    return {
        "reference": certificate.reference,
        "title": certificate.title,
        "applies": certificate.applies,
        "verdict": certificate.verdict.value.replace(" ", "_"),
        **_margin(claim),
    }


def _margin(claim: Claim | None) -> dict[str, Any]:
    """Of the claim that decides: a statement without numbers has no bar."""
    if claim is None:
        return {"margin": None, "assumption": "", "values": "", "missed_by": None}
    share = np.nan if claim.whether else margin_share(claim)
    return {
        "margin": None if np.isnan(share) else share,
        "assumption": claim.statement,
        "values": claim.describe_sides(clearly=True),
        "missed_by": claim.describe_margin() if claim.fails else None,
    }
