"""What the studies of elkabetz2021 find in data of the full size, made up: no MNIST, no waiting."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
import xarray as xr

from thalweg.certificates import Verdict
from thalweg.studies import AbstractStudy, Size
from thalweg.studies.elkabetz2021_curvature import Curvature
from thalweg.studies.elkabetz2021_fig1 import _REFERENCE as PLOTS_1
from thalweg.studies.elkabetz2021_fig1 import Figure1
from thalweg.studies.elkabetz2021_fig3 import _REFERENCE as PLOTS_3
from thalweg.studies.elkabetz2021_fig3 import Figure3
from thalweg.studies.elkabetz2021_paths import paths_of_the_figures


def _runs(name, plots, divisors, every) -> xr.Dataset:
    """Runs as in the authors' plots, whose drifts are of first order in the rate."""
    iteration = np.arange(0, 10_001, every)
    rate = 1 / np.array(divisors)[:, None]
    way, loss = (
        np.interp(iteration, list(points), list(points.values()))
        for points in (plots.travelled, plots.loss)
    )
    axes = ("divisor", "iteration")
    return xr.Dataset(
        {
            "loss": (axes, loss + 1e-3 * rate),
            "drift": (axes, 1e-3 * (1 - rate) * way),
            "to_flow": (axes, 1e-3 * rate * way),
            "travelled": ("iteration", way),
            "one_unit": ("iteration", 0.4 + 0 * way),
        },
        {"divisor": list(divisors), "iteration": iteration, "network": name},
    )


def _figure1() -> xr.Dataset:
    found = []
    for name, plots in PLOTS_1.items():
        runs = _runs(name, plots, (1, 2, 5, 10, 20), 100)
        double = runs.where(runs.divisor <= 5).assign(travelled=runs.travelled)
        rounded = runs.assign(drift=runs.drift * runs.divisor)
        both = [
            rounded.assign_coords(precision="single"),
            double.assign_coords(precision="double"),
        ]
        found.append(xr.concat(both, "precision"))
    results = xr.concat(found, "network")
    true = results.to_flow.sel(precision="single", divisor=1)
    way = results.iteration / results.iteration[-1]
    return results.drop_vars("to_flow").assign(
        true_distance=results.to_flow,
        flow_error=1e-3 * true,
        crossings=40_000 * way,
        sliding=150 * way,
        ridge_distance=1e-5 + way,
    )


def _figure3(divisors=(1, 2, 5)) -> xr.Dataset:
    return xr.concat(
        [_runs(name, plots, divisors, 50) for name, plots in PLOTS_3.items()], "network"
    )


def _curvature() -> xr.Dataset:
    time = np.linspace(0, 10, 21)
    smallest = -np.exp(-time)
    own = xr.Dataset(
        {
            "smallest": ("point", smallest),
            "error": ("point", 1e-4 + 0 * time),
            "largest": ("point", 5 + 0 * time),
            "lemma": ("point", 20 * smallest - 1),
            "sharper": ("point", 5 * smallest - 1),
            "proposition": ("point", 9 * smallest - 1),
            "loss": ("point", np.exp(-time)),
            "time": ("point", time),
            "elsewhere": ("factor", [-100.0, -1000.0]),
        },
        {"factor": [1e3, 1e4]},
    )
    paths = paths_of_the_figures()
    return xr.concat([own.assign_coords(path=name) for name in paths], "path").assign(
        flow_error=1e-6
    )


MADE_UP = {
    "fig1": (Figure1.of_size(Size.FULL), _figure1),
    "fig1, code": (Figure1.chosen(Size.FULL, ["code"]), _figure1),
    "fig3": (Figure3.of_size(Size.FULL), _figure3),
    "fig3, code": (Figure3.chosen(Size.FULL, ["code"]), _figure3),
    "fig3, all rates": (
        Figure3.chosen(Size.FULL, ["code", "all-rates"]),
        lambda: _figure3((1, 2, 5, 10, 20)),
    ),
    "curvature": (Curvature.of_size(Size.FULL), _curvature),
}
TAMPERINGS = (
    lambda r: r.assign(loss=r.loss + 0.2 * r.divisor),
    lambda r: r.assign(drift=100 * r.drift),
    lambda r: r.assign(drift=r.drift / r.divisor**2),
    lambda r: r.assign(drift=r.drift.isel(divisor=slice(None, None, -1)).values + 0 * r.drift),
    lambda r: r.assign(to_flow=1e-3 + 0 * r.to_flow),
    lambda r: r.assign(travelled=1.3 * r.travelled),
    lambda r: r.assign(one_unit=r.one_unit.where(r.iteration > 0)),
    lambda r: r.assign(one_unit=r.one_unit / 10),
    lambda r: r.assign(true_distance=100 * r.true_distance),
    lambda r: r.assign(true_distance=1e-3 + 0 * r.true_distance),
    lambda r: r.assign(flow_error=r.flow_error + 1),
    lambda r: r.assign(crossings=r.crossings / 100, sliding=r.sliding / 100),
    lambda r: r.assign(lemma=r.smallest / 2, sharper=r.smallest / 2, proposition=r.smallest / 2),
    lambda r: r.assign(smallest=r.smallest.isel(point=0) + 0 * r.smallest),
    lambda r: r.assign(elsewhere=r.elsewhere.isel(factor=0) + 0 * r.elsewhere),
)


@pytest.fixture(params=list(MADE_UP))
def made_up(request) -> tuple[AbstractStudy, xr.Dataset]:
    study, data = MADE_UP[request.param]
    return study, data()


def test_every_finding_holds_and_is_violated_by_some_tampering(made_up):
    study, results = made_up
    findings = study.findings(results)
    assert [each for each in findings if each.verdict is not Verdict.CONFIRMED] == []
    violated = np.zeros(len(findings), bool)
    for tampering in TAMPERINGS:
        try:
            other = tampering(results)
        except AttributeError:
            continue  # it is about data of another study
        violated |= [each.verdict is Verdict.VIOLATED for each in study.findings(other)]
    assert [each.statement for each, bad in zip(findings, violated, strict=True) if not bad] == []


def test_it_can_be_drawn(made_up):
    study, results = made_up
    for figure in study.draw(results).values():
        assert figure.axes
        plt.close(figure)


@pytest.mark.parametrize("name", ["loss", "drift", "travelled", "to_flow", "one_unit"])
def test_a_missing_number_is_noticed(name):
    """At the last record, which all findings on ends are about."""
    study, results = Figure3.of_size(Size.FULL), _figure3()
    values = results[name].copy()
    values[..., -1] = np.nan
    found = study.findings(results.assign({name: values}))
    assert any(each.verdict is not Verdict.CONFIRMED for each in found)
