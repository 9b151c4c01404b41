"""A descent run that proves how far it is from the exact gradient flow."""

from thalweg.tubes.proof import Proof, check, prove
from thalweg.tubes.steps import CertifiedStep, certified_step
from thalweg.tubes.tube import Tube, tube, tube_along

__all__ = [
    "CertifiedStep",
    "Proof",
    "Tube",
    "certified_step",
    "check",
    "prove",
    "tube",
    "tube_along",
]


def __dir__() -> list[str]:
    return __all__
