"""A descent run that proves how far it is from the exact gradient flow."""

from thalweg.tubes.proof import Proof as Proof
from thalweg.tubes.proof import check as check
from thalweg.tubes.proof import prove as prove
from thalweg.tubes.steps import CertifiedStep as CertifiedStep
from thalweg.tubes.steps import certified_step as certified_step
from thalweg.tubes.tube import Tube as Tube
from thalweg.tubes.tube import tube as tube
from thalweg.tubes.tube import tube_along as tube_along
