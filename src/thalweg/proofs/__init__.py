"""Proofs that anyone can check: where the exact gradient flow is, seen from runs of descent.

`proof` is what a file holds, `making` makes it, and `checker`, which uses nothing of this package,
has the mathematics and checks it.
"""

from thalweg.proofs.making import prove
from thalweg.proofs.proof import Proof, ProvenRun, check

__all__ = [
    "Proof",
    "ProvenRun",
    "check",
    "prove",
]


def __dir__() -> list[str]:
    return __all__
