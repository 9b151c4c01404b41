"""What checking a theorem leaves behind: claims, verdicts and answers, about the user's case.

* `magnitude`, `claim`, `answers`: numbers of any size, inequalities with signed margins, promises
* `certificate`, `theorem`, `statement`: what checking comes to, of what, and its catalogue entry
* `case`, `trajectories`, `points`: what is known of a training, and where it went
* `measured`: what simulating a case gives, beside what theorems promise of it
* `guarantees`: every theorem of a catalogue, tried on one case
* `overview`, `text`: the same as plain rows, and as plain text

The theorems themselves are in `thalweg.theorems`, which is built on this.
"""

from thalweg.certificates.answers import Answer, Place, Question
from thalweg.certificates.case import Case, RandomStart, UndeclaredCase
from thalweg.certificates.certificate import Certificate, Verdict
from thalweg.certificates.claim import Claim, identity, requirement, rounding
from thalweg.certificates.guarantees import Guarantees
from thalweg.certificates.magnitude import Magnitude, Number
from thalweg.certificates.measured import simulate
from thalweg.certificates.statement import Statement
from thalweg.certificates.theorem import AbstractTheorem, AbstractTrainingTheorem, Narrowed, met

__all__ = [
    "AbstractTheorem",
    "AbstractTrainingTheorem",
    "Answer",
    "Case",
    "Certificate",
    "Claim",
    "Guarantees",
    "Magnitude",
    "Narrowed",
    "Number",
    "Place",
    "Question",
    "RandomStart",
    "Statement",
    "UndeclaredCase",
    "Verdict",
    "identity",
    "met",
    "requirement",
    "rounding",
    "simulate",
]


def __dir__() -> list[str]:
    return __all__
