"""What checking a theorem leaves behind: claims, verdicts and answers, about the user's case.

* `magnitude`, `claim`: numbers of any size, and inequalities between them with signed margins
* `certificate`, `statement`: a theorem, what checking it comes to, its entry in a catalogue
* `case`, `trajectories`, `points`: what is known of a training, and where it went
* `measured`: what simulating a case gives, beside what theorems promise of it
* `guarantees`: every theorem of a catalogue, tried on one case

The theorems themselves are in `thalweg.theorems`, which is built on this.
"""

from thalweg.certificates.case import Case as Case
from thalweg.certificates.case import RandomStart as RandomStart
from thalweg.certificates.certificate import AbstractTheorem as AbstractTheorem
from thalweg.certificates.certificate import Answer as Answer
from thalweg.certificates.certificate import Certificate as Certificate
from thalweg.certificates.certificate import Question as Question
from thalweg.certificates.certificate import Verdict as Verdict
from thalweg.certificates.claim import Claim as Claim
from thalweg.certificates.guarantees import Guarantees as Guarantees
from thalweg.certificates.magnitude import Magnitude as Magnitude
from thalweg.certificates.measured import simulate as simulate
from thalweg.certificates.statement import Statement as Statement
