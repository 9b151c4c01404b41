"""Every finding of a study must be able to fail, and no number may be missing unnoticed."""

from collections.abc import Collection, Iterator
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr

from thalweg import studies
from thalweg.certificates import Verdict
from thalweg.storage import open_results
from thalweg.studies import AbstractStudy, Size, conduct


def _numbers(results: xr.Dataset) -> Iterator[tuple[str, xr.DataArray]]:
    for name, values in results.data_vars.items():
        if values.dtype.kind in "fi":
            yield str(name), values.astype(float)


def tampered(results: xr.Dataset) -> Iterator[xr.Dataset]:
    """The data with one variable changed at a time: scaled, zero, or in another order."""
    for name, values in _numbers(results):
        for factor in (-1.0, 0.0, 0.1, 0.5, 2.0, 10.0, 1e30):
            yield results.assign({name: values * factor})
        for dimension in values.dims:
            turned = values.isel({dimension: slice(None, None, -1)})
            yield results.assign({name: (values.dims, turned.values)})


def assert_confirmed_and_refutable(study: AbstractStudy, results: xr.Dataset) -> None:
    """All findings hold for the data, and each is violated by some data that were tampered with."""
    findings = study.findings(results)
    for finding in findings:
        assert finding.verdict is Verdict.CONFIRMED, finding
    able = set()
    with np.errstate(all="ignore"):  # what was tampered with makes no sense
        for other in tampered(results):
            if len(able) == len(findings):
                break
            for index, finding in enumerate(study.findings(other)):
                if finding.verdict is Verdict.VIOLATED:
                    able.add(index)
    stuck = [findings[index].statement for index in range(len(findings)) if index not in able]
    assert not stuck, f"no tampering makes these fail: {stuck}"


def assert_gaps_are_seen(
    study: AbstractStudy, results: xr.Dataset, drawn_only: Collection[str] = ()
) -> None:
    """Where any one number is missing, some finding is not confirmed.

    Only variables that no finding reads, which are `drawn_only`, may have gaps.
    """
    for name, values in _numbers(results):
        if name in drawn_only:
            continue
        for place in {0, values.size // 2, values.size - 1}:
            gapped = values.values.copy()
            gapped.flat[place] = np.nan
            with np.errstate(all="ignore"):
                found = study.findings(results.assign({name: (values.dims, gapped)}))
            assert any(finding.verdict is not Verdict.CONFIRMED for finding in found), (name, place)


def assert_quick_study_holds(name: str, folder: Path, drawn_only: Collection[str] = ()) -> None:
    """The quick study of this name is confirmed, refutable, and draws pictures that it closes."""
    (study,) = studies.find([name])
    open_before = plt.get_fignums()
    outcome = conduct(study, Size.QUICK, folder)
    results = open_results(outcome.folder).load()
    assert_confirmed_and_refutable(study.of_size(Size.QUICK), results)
    assert_gaps_are_seen(study.of_size(Size.QUICK), results, drawn_only)
    assert outcome.confirmed
    assert all(picture.stat().st_size > 10_000 for picture in outcome.pictures)
    assert plt.get_fignums() == open_before
