"""Every finding of a study must be able to fail: data that were tampered with do not confirm it."""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr

from thalweg import studies
from thalweg.storage import open_results
from thalweg.studies import AbstractStudy, Size, conduct
from thalweg.theorems.certificate import Verdict


def tampered(results: xr.Dataset):
    """The data with one variable changed at a time: lost, scaled, zero, or in another order."""
    for name in results.data_vars:
        values = results[name]
        if values.dtype.kind not in "fi":
            continue
        real = values.astype(float)
        yield results.assign({name: real * np.nan})
        for factor in (-1.0, 0.0, 0.1, 0.5, 2.0, 10.0, 1e30):
            yield results.assign({name: real * factor})
        for dimension in values.dims:
            turned = real.isel({dimension: slice(None, None, -1)})
            yield results.assign({name: (values.dims, turned.values)})


def assert_confirmed_and_refutable(study: AbstractStudy, results: xr.Dataset) -> None:
    """All findings hold for the data, and each fails for some data that were tampered with."""
    findings = study.findings(results)
    for finding in findings:
        assert finding.verdict is Verdict.CONFIRMED, finding
    able = set()
    with np.errstate(all="ignore"):  # what was tampered with makes no sense
        for other in tampered(results):
            for index, finding in enumerate(study.findings(other)):
                if finding.verdict is not Verdict.CONFIRMED:
                    able.add(index)
    stuck = [findings[index].statement for index in range(len(findings)) if index not in able]
    assert not stuck, f"no tampering makes these fail: {stuck}"


def assert_quick_study_holds(name: str, folder: Path) -> None:
    """The quick study of this name is confirmed, refutable, and draws pictures that it closes."""
    (study,) = studies.find([name])
    open_before = plt.get_fignums()
    outcome = conduct(study, Size.QUICK, folder)
    assert_confirmed_and_refutable(study.of_size(Size.QUICK), open_results(outcome.folder).load())
    assert outcome.confirmed
    assert all(picture.stat().st_size > 10_000 for picture in outcome.pictures)
    assert plt.get_fignums() == open_before
