"""Compile kernels before anything needs them, as the set-up does.

python -m thalweg.kernels.ready descents spectra
"""

import sys

import numpy as np

from thalweg.kernels import LANES, MANY_LANES, available
from thalweg.kernels.chain import Chain, chain_of


def descents() -> None:
    """What descends, with few lanes and with many."""
    from thalweg.kernels.descent import Descents

    for lanes in (LANES, MANY_LANES):
        flight = Descents(_smallest(), np.ones((1, 1)), np.zeros(1), 0.0, False, lanes)
        flight.advance(1, 1, np.empty((1, 1)))


def spectra() -> None:
    """What finds both ends of spectra."""
    from thalweg.kernels.spectrum import ends_at

    ends_at(_smallest(), np.ones((1, 1)), tolerance=1e-3, first=2, most=4, lanes=LANES)


def _smallest() -> Chain:
    """(w - 1)^2 of one number w."""
    one = np.ones((1, 1))
    return chain_of((1, 1), None, None, one, scale=1.0, minimum=0.0, decay=0.0)


if __name__ == "__main__" and available():
    for name in sys.argv[1:]:
        {"descents": descents, "spectra": spectra}[name]()
