"""What is known of a setting as the dataset that a report is made of, whatever is missing yet."""

import json

import numpy as np
import xarray as xr

from thalweg.experiment.results import Measurements, assemble
from thalweg.explorer.computation import Computation
from thalweg.explorer.parts.spectrum import NAMES
from thalweg.quantities.of_runs import FLATNESS
from thalweg.storage.keeper import Arrays


def dataset(known: Computation) -> xr.Dataset:
    """The same variables as those of `thalweg run`, as far as they are there."""
    runs, flow = known.runs, known.flow
    unknown = dict.fromkeys((each.name for each in FLATNESS), np.nan)
    spectra: list[Arrays] = list(known.spectra or [{} for _ in runs])
    if flow is not None:
        missing = {name: np.full(flow.times.shape, np.nan) for name in NAMES}
        spectra.append((missing | known.flow_spectrum) if known.spectra else {})
    nowhere = [np.full(run.times.shape, np.nan) for run in runs]
    found = Measurements(
        runs=runs,
        flow=flow,
        distances=known.distances or nowhere,
        proven=known.proven or [{} for _ in runs],
        spectra=spectra,
        quantities=[{} for _ in spectra],
        edges=[{} for _ in runs],
        certificates={
            "text": "" if known.overview is None else json.dumps(known.overview),
            "greatest_sharpness": np.nan,
        },
        theory=known.theory or unknown,
        minimum=known.minimum,
        reasons={"no_flow": known.no_flow, "not_validated": "", "no_tube": ""},
    )
    return assemble(known.experiment, known.objective, found, 0.0, {})
