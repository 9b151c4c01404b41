"""A descent run that proves how far it is from the exact gradient flow.

`tube` puts steps together in float64: `advance` takes them, block by block, `growth` says how a
radius grows over one of them, `tail` what holds after the last; `steps` finds the largest step that
is proven to stay near. `proof` makes a file of the same bounds in ball arithmetic, and `checker`,
which uses nothing of this package, checks it.
"""

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
