"""Grids of runs: over any fields of an experiment, in blocks, resumable, here or on a cluster.

`axes` and `grid` read what varies, `plan` divides the runs into blocks, `runs` computes one block,
`local` and `cluster` see to all of them, `performing` keeps what they find, `merging` unites two
sweeps.
"""

from thalweg.sweeps.merging import merge as merge
from thalweg.sweeps.performing import is_finished as is_finished
from thalweg.sweeps.performing import other_in as other_in
from thalweg.sweeps.performing import perform as perform
from thalweg.sweeps.performing import prepared as prepared
from thalweg.sweeps.performing import sweep as sweep
