"""Statements that can be checked: every theorem is a class, every check leaves a certificate.

The modules go by subject, because theorems outlive their papers; `papers` lists them by paper, and
`registry` finds them by id: `registry["arora2019:thm1"]`.
"""

from typing import Any

from thalweg.theorems.case import Case as Case
from thalweg.theorems.case import RandomStart as RandomStart
from thalweg.theorems.certificate import AbstractTheorem as AbstractTheorem
from thalweg.theorems.certificate import Answer as Answer
from thalweg.theorems.certificate import Certificate as Certificate
from thalweg.theorems.certificate import Claim as Claim
from thalweg.theorems.certificate import Question as Question
from thalweg.theorems.certificate import Verdict as Verdict
from thalweg.theorems.guarantees import Guarantees as Guarantees
from thalweg.theorems.guarantees import certify as certify
from thalweg.theorems.guarantees import certify_case as certify_case
from thalweg.theorems.magnitude import Magnitude as Magnitude
from thalweg.theorems.measured import simulate as simulate
from thalweg.theorems.papers import STATEMENTS as STATEMENTS
from thalweg.theorems.statement import Statement as Statement

registry: dict[str, Any] = {statement.id: statement.code for statement in STATEMENTS}
"""What each statement became: a theorem class, a function, or a start."""
