"""Grids of runs: over any fields of an experiment, in blocks, resumable, here or on a cluster.

`axes` and `grid` read what varies, `plan` divides the runs into blocks, `runs` computes one block,
`local` and `cluster` see to all of them, `performing` keeps what they find, `merging` unites two
sweeps, `predicted` says where in one the edge is to be met.
"""

from thalweg.sweeps.merging import merge
from thalweg.sweeps.performing import is_finished, other_in, perform, prepared, sweep
from thalweg.sweeps.predicted import predicted_edges

__all__ = [
    "is_finished",
    "merge",
    "other_in",
    "perform",
    "predicted_edges",
    "prepared",
    "sweep",
]


def __dir__() -> list[str]:
    return __all__
