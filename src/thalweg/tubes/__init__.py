"""A descent run that proves how far it is from the exact gradient flow.

`tube` puts steps together in float64: `advance` takes them, block by block, `growth` says how a
radius grows over one of them; `steps` finds the largest learning rate that is proven to stay near.
Proofs in ball arithmetic are in `thalweg.proofs`.
"""

from thalweg.tubes.steps import CertifiedStep, certified_step
from thalweg.tubes.tube import Tube, tube, tube_along

__all__ = [
    "CertifiedStep",
    "Tube",
    "certified_step",
    "tube",
    "tube_along",
]


def __dir__() -> list[str]:
    return __all__
