"""Marion2024's studies: the authors' numbers, whole quick runs, and findings that can fail."""

from collections.abc import Callable, Iterator
from itertools import pairwise

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import pytest
import xarray as xr

from thalweg import sharpness
from thalweg.certificates import Verdict
from thalweg.measurement import distance_to_minimiser
from thalweg.studies import conducting, marion2024_sweep, marion2024_traces
from thalweg.studies.conducting import conduct
from thalweg.studies.marion2024_common import (
    Place,
    Row,
    authors_bounds,
    authors_data,
    authors_key,
    authors_objective,
    authors_readout,
    gaussian_network,
    last_of_split,
    residual_network,
    sweep_starts,
    trace_start,
)
from thalweg.studies.marion2024_depth import CriticalRate
from thalweg.studies.marion2024_fig1 import GaussianStarts
from thalweg.studies.marion2024_fig1cd import GaussianTraces
from thalweg.studies.marion2024_fig3 import ResidualStarts
from thalweg.studies.marion2024_fig3cd import ResidualTraces
from thalweg.studies.marion2024_findings import farthest
from thalweg.studies.marion2024_gelu import Gelu
from thalweg.studies.marion2024_sweep import Sweep, mean_and_interval
from thalweg.studies.marion2024_underdetermined import Underdetermined
from thalweg.studies.parts import Parts
from thalweg.studies.study import Size

STUDIES = (
    GaussianStarts,
    GaussianTraces,
    ResidualStarts,
    ResidualTraces,
    CriticalRate,
    Underdetermined,
    Gelu,
)


# --- the authors' numbers ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("later", "noise", "moment"),
    [(False, 1.0, 0.9484584), (True, 1.0, 0.9328054), (True, 0.0, 0.9674092)],
)
def test_data_are_the_authors_own(later, noise, moment):
    data = authors_data(later=later, noise=noise)
    known = authors_bounds(authors_objective(data, gaussian_network()))
    # Computed apart from this package in the authors' single precision, seven digits.
    np.testing.assert_allclose(data.x[0, :2], [-0.95431787, 1.45999026], rtol=1e-7)
    assert known["lambda_min"] == pytest.approx(0.5974875, rel=1e-6)
    assert known["lambda_max"] == pytest.approx(1.5941824, rel=1e-6)
    assert known["moment"] == pytest.approx(moment, rel=1e-6)
    assert data.test_x.shape == ((50, 5) if later else (0, 5))


def test_the_default_stream_gives_other_data():
    key = jax.random.split(jax.random.split(jax.random.key(0))[1])[1]
    first = jax.random.normal(key, (50, 5), jnp.float32)[0, :2]
    np.testing.assert_allclose(first, [-1.33562505, -0.35256302], rtol=1e-6)


def test_underdetermined_data_are_the_authors_own():
    data = authors_data(Place.UNDERDETERMINED_DATA, samples=15, features=20, later=True)
    objective = authors_objective(data, gaussian_network(20, 5))
    known = authors_bounds(objective)
    solution = np.asarray(objective.problem.minimiser[0])
    # The authors' pseudo-inverse in single precision costs them a digit.
    assert known["moment"] == pytest.approx(1.7166775, rel=1e-6)
    assert known["lambda_max"] == pytest.approx(3.3751846, rel=1e-6)
    assert known["balanced_sharpness"] == pytest.approx(18.98233, rel=1e-6)
    assert np.mean((data.test_x @ solution - data.test_y) ** 2) == pytest.approx(0.33451, rel=1e-4)


def test_starts_of_single_runs_are_the_authors_own():
    network = gaussian_network()
    objective = authors_objective(authors_data(), network)
    start = trace_start(Place.GAUSSIAN_TRACE, 400, 0.3, network)
    assert sharpness(objective, start).value == pytest.approx(0.37744, rel=1e-5)
    assert float(distance_to_minimiser(objective, start)) ** 2 == pytest.approx(0.99461, rel=1e-5)
    network = residual_network(authors_readout())
    objective = authors_objective(authors_data(), network)
    start = trace_start(Place.RESIDUAL_TRACE, 400, 0.5, network)
    assert sharpness(objective, start).value == pytest.approx(56.604, rel=1e-5)


def test_starts_of_sweeps_follow_the_authors_keys():
    """The keys are split one after the other, as their loops do, and compared with the batch."""
    table, scales = (Row(0.5, 7, 3), Row(0.1, 9, 2)), (0.25, 0.5)
    network = gaussian_network(depth=2)
    found = sweep_starts(Place.GAUSSIAN_SWEEP, table, table[1], scales, network)
    with jax.threefry_partitionable(False):
        own = jax.random.split(authors_key(2), 2)[1]
        for repetition in range(2):
            keys = jax.random.split(jax.random.split(own, 2)[repetition], 2)
            for place, scale in enumerate(scales):
                key = jax.random.split(keys[place], 9 + 2)[-1]
                layers = jax.random.split(key, 2)
                for layer, shape in enumerate(network.shapes):
                    drawn = jax.random.normal(layers[layer], shape, jnp.float32)
                    np.testing.assert_allclose(
                        found[layer][repetition, place], np.float32(scale) * drawn, rtol=1e-6
                    )
    fewer = sweep_starts(Place.GAUSSIAN_SWEEP, table, Row(0.1, 4, 1), scales, network)
    assert all(np.array_equal(a, b[:1]) for a, b in zip(fewer, found, strict=True))


@pytest.mark.parametrize("count", [2, 3, 402])
def test_the_last_key_of_a_split_needs_no_others(count):
    with jax.threefry_partitionable(False):
        key = jax.random.key(7)
        expected = jax.random.split(key, count)[-1]
        assert bool(
            jnp.all(jax.random.key_data(last_of_split(key, count)) == jax.random.key_data(expected))
        )


# --- whole quick runs ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def conducted(tmp_path_factory) -> Callable:
    """The quick run of a study, done once."""
    out, done = tmp_path_factory.mktemp("studies"), {}

    def get(study):
        if study not in done:
            shares = []
            outcome = conduct(study, Size.QUICK, out, lambda _, share: shares.append(share))
            done[study] = outcome, shares
        return done[study]

    return get


def stored(outcome) -> xr.Dataset:
    return xr.open_zarr(outcome.folder / "results.zarr", chunks=None).load()


@pytest.mark.parametrize("study", STUDIES, ids=lambda study: study.name)
class TestQuickRun:
    def test_every_finding_is_confirmed(self, study, conducted):
        outcome, _ = conducted(study)
        failed = [each.row() for each in outcome.findings if each.verdict is not Verdict.CONFIRMED]
        assert outcome.confirmed, failed

    def test_progress_goes_from_nothing_to_all(self, study, conducted):
        _, shares = conducted(study)
        assert shares[-1] == pytest.approx(1.0)
        assert all(later >= sooner - 1e-9 for sooner, later in pairwise(shares))
        assert min(shares) >= 0

    def test_pictures_are_drawn_and_small(self, study, conducted):
        outcome, _ = conducted(study)
        names = {f"fig{number}" for number in study.figures}
        assert names <= {picture.stem for picture in outcome.pictures}
        assert all(10_000 < picture.stat().st_size < 150_000 for picture in outcome.pictures)

    def test_the_page_says_how_and_compares(self, study, conducted):
        outcome, _ = conducted(study)
        text = (outcome.folder / "page.md").read_text(encoding="utf-8")
        assert study.protocol.strip() in text
        assert len(study.comparison.strip()) > 200
        assert study.comparison.strip() in text

    def test_every_finding_fails_for_other_data(self, study, conducted):
        outcome, _ = conducted(study)
        results, sized = stored(outcome), study.of_size(Size.QUICK)
        assert not never_violated(sized, results)

    def test_one_missing_number_is_noticed(self, study, conducted):
        """Whichever it is: the first, one in the middle, the last of those that there are."""
        outcome, _ = conducted(study)
        results, sized = stored(outcome), study.of_size(Size.QUICK)
        for name, values in results.data_vars.items():
            there = np.flatnonzero(np.isfinite(values.values))
            for place in {there[0], there[there.size // 2], there[-1]}:
                gapped = values.values.astype(float)
                gapped.flat[place] = np.nan
                with np.errstate(all="ignore"):
                    found = sized.findings(results.assign({name: (values.dims, gapped)}))
                assert any(each.verdict is not Verdict.CONFIRMED for each in found), name

    def test_nothing_is_confirmed_without_data(self, study, conducted):
        outcome, _ = conducted(study)
        empty = stored(outcome).map(lambda values: values * np.nan)
        empty.attrs = {name: np.nan for name in stored(outcome).attrs}
        sized = study.of_size(Size.QUICK)
        verdicts = [finding.verdict for finding in sized.findings(empty)]
        assert Verdict.CONFIRMED not in verdicts


@pytest.mark.parametrize(
    "study", [GaussianStarts, ResidualStarts, Underdetermined, Gelu], ids=lambda study: study.name
)
def test_runs_without_a_sharpness_did_diverge_or_something_is_wrong(study, conducted):
    """All ends but one are missing in a cell in which no run diverged."""
    outcome, _ = conducted(study)
    results, sized = stored(outcome), study.of_size(Size.QUICK)
    assert float(results.diverged[0, :, 0].sum()) == 0
    gapped = results.copy(deep=True)
    gapped.final_sharpness[0, 1:, 0] = np.nan
    assert any(each.verdict is Verdict.VIOLATED for each in sized.findings(gapped))
    # What is left by a run that is said to have diverged is as wrong.
    claimed = results.copy(deep=True)
    claimed.diverged[0, 0, 0] = 1.0
    assert any(each.verdict is Verdict.VIOLATED for each in sized.findings(claimed))


def never_violated(sized, results: xr.Dataset) -> list[str]:
    """The findings that no tampering makes fail."""
    findings = sized.findings(results)
    violated = np.zeros(len(findings), bool)
    for tampered in tamperings(results):
        if violated.all():
            break
        verdicts = [finding.verdict for finding in sized.findings(tampered)]
        violated |= np.array([verdict is Verdict.VIOLATED for verdict in verdicts])
    return [each.statement for each, fell in zip(findings, violated, strict=True) if not fell]


def tamperings(results: xr.Dataset) -> Iterator[xr.Dataset]:
    """The results with something wrong: too large or small, in the wrong order, or missing."""
    for name in results.data_vars:
        for factor in (30.0, 1 / 30):
            yield results.assign({name: results[name] * factor})
        yield results.assign({name: results[name] + 1.0})
        yield results.assign({name: 0.0 * results[name]})
        there = np.isfinite(results[name].values)
        others = results[name].values.astype(float)
        others[there] = np.random.default_rng(0).permutation(others[there])
        yield results.assign({name: (results[name].dims, others)})
        yield results.assign({name: results[name].where(results[name] != others[there][0])})
        for dimension in ("scale", "learning_rate", "step", "depth"):
            if dimension in results[name].dims:
                backwards = results[name].isel({dimension: slice(None, None, -1)}).values
                yield results.assign({name: (results[name].dims, backwards)})
    for name, value in results.attrs.items():
        if isinstance(value, float):
            for factor in (30.0, 1 / 30):
                yield results.assign_attrs({name: factor * value})


# --- variants, and what there is at full size only ------------------------------------------------


@pytest.mark.parametrize("study", [GaussianTraces, ResidualTraces], ids=lambda study: study.name)
def test_findings_of_the_later_code_can_fail(study, tmp_path):
    """Those of its runs alone: the others are in the quick size."""
    full = study.of_size(Size.FULL)
    later = study((full.versions[1],))
    assert later.versions[0].later
    results = later.compute(Parts(tmp_path, "settings"), lambda stage, share: None)
    findings = later.findings(results)
    assert [each.row() for each in findings if each.verdict is not Verdict.CONFIRMED] == []
    assert not never_violated(later, results)


@pytest.mark.parametrize("study", [GaussianStarts, ResidualStarts], ids=lambda study: study.name)
def test_the_later_data_have_the_same_findings(study, conducted):
    """With the quick size's runs, but another data set's bounds, as the variant has them."""
    outcome, _ = conducted(study)
    sized = study.chosen(Size.QUICK, ["later-data"])
    assert sized.later_data
    network = gaussian_network() if study is GaussianStarts else residual_network(authors_readout())
    bounds = authors_bounds(authors_objective(authors_data(later=True), network))
    results = stored(outcome).assign_attrs(bounds)
    assert len(sized.findings(results)) == len(outcome.findings)
    drawn = sized.draw(results)
    assert set(drawn) == {picture.stem for picture in outcome.pictures}
    for figure in drawn.values():
        plt.close(figure)


def test_all_repetitions_are_those_of_the_sizes_learning_rates():
    everything = ["all-repetitions"]
    assert Gelu.chosen(Size.QUICK, everything)._rows == (Row(0.07, 16_000, 20),)
    assert [row.repetitions for row in Gelu.chosen(Size.FULL, everything)._rows] == [20, 20, 20]
    assert [row.repetitions for row in Gelu.of_size(Size.FULL)._rows] == [2, 4, 8]


def test_all_repetitions_are_found_and_drawn(conducted):
    """The quick run's two repetitions, ten times."""
    results = stored(conducted(Gelu)[0])
    sized = Gelu.chosen(Size.QUICK, ["all-repetitions"])
    many = results.isel(repetition=[0, 1] * 10).assign_coords(repetition=np.arange(20))
    found = sized.findings(many)
    assert all(each.verdict is Verdict.CONFIRMED for each in found)
    assert any(each.verdict is Verdict.VIOLATED for each in sized.findings(results))  # 18 missing
    for figure in sized.draw(many).values():
        plt.close(figure)


# --- parts of findings ----------------------------------------------------------------------------


def test_the_farthest_ratio_may_be_on_either_side():
    assert farthest(xr.DataArray([0.5, 1.0, 1.6])) == 0.5
    assert farthest(xr.DataArray([0.8, 1.6])) == 1.6
    assert np.isnan(farthest(xr.DataArray([0.8, np.nan])))
    assert farthest(xr.DataArray([-0.1, 1.0])) < 0


def test_a_distance_that_comes_back_does_not_only_fall():
    falling = np.array([1.0, 0.9, 0.4, 0.1, 1e-21, 1e-20])
    assert marion2024_traces._falls(falling)  # what comes after rounding does not count
    assert not marion2024_traces._falls(np.array([1.0, 0.4, 0.7, 0.3, 0.1]))
    assert not marion2024_traces._falls(np.array([1.0, 0.4, np.nan, 0.1]))
    assert not marion2024_traces._falls(np.array([1.0, 0.9]))


def test_an_eigenvalue_that_is_not_found_is_no_error_of_zero(tmp_path, monkeypatch):
    """Unless the run diverged, when there is none to be found."""
    real, calls = marion2024_sweep._ends, []

    def failing_at_the_end(objective, weights):
        calls.append(weights)
        ends = real(objective, weights)
        return ends if len(calls) == 1 else ends._replace(error=ends.error * np.nan)

    monkeypatch.setattr(marion2024_sweep, "_ends", failing_at_the_end)
    sweep = small_sweep(100)._replace(rows=(Row(0.1, 3, 2),))
    results = sweep.run(Parts(tmp_path, "settings"), lambda stage, share: None)
    alive = results.diverged.values == 0
    assert alive.any()
    assert np.isnan(results.sharpness_error.values[alive]).all()
    assert np.isfinite(results.sharpness_error.values[~alive]).all()


# --- interrupted and taken up again --------------------------------------------------------------


def small_sweep(together: int = 1) -> Sweep:
    objective = authors_objective(authors_data(), gaussian_network())  # compiled by now
    rows, scales = (Row(0.1, 3, 2), Row(0.2, 3, 1)), (0.25, 0.5)
    return Sweep(
        objective,
        lambda row: sweep_starts(Place.GAUSSIAN_SWEEP, rows, row, scales, objective.network),
        rows,
        scales,
        {},
        together,
    )


def test_an_interrupted_sweep_computes_only_what_is_left(tmp_path, monkeypatch):
    done, real = [], marion2024_sweep.descend

    def counted(*args, **options):
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(options["learning_rate"])
        return real(*args, **options)

    monkeypatch.setattr(marion2024_sweep, "descend", counted)
    with pytest.raises(KeyboardInterrupt):
        small_sweep().run(Parts(tmp_path, "settings"), lambda stage, share: None)
    assert done == [0.1, 0.1]
    monkeypatch.setattr(marion2024_sweep, "descend", real)
    resumed = small_sweep().run(Parts(tmp_path, "settings"), lambda stage, share: None)
    whole = small_sweep(100).run(Parts(tmp_path, "others"), lambda stage, share: None)
    exact = [name for name in whole if "sharpness" not in name and name != "start_smallest"]
    xr.testing.assert_equal(resumed[exact], whole[exact])
    # Where an eigenvalue's search begins depends on its company; it ends within 1e-6 of the norm.
    xr.testing.assert_allclose(resumed.final_sharpness, whole.final_sharpness, rtol=1e-5)
    assert np.isnan(resumed.diverged.sel(learning_rate=0.2, repetition=1)).all()
    assert not np.isnan(resumed.diverged.sel(learning_rate=0.1)).any()


def test_a_finished_study_is_not_computed_again(conducted, monkeypatch):
    outcome, _ = conducted(GaussianTraces)
    monkeypatch.setattr(GaussianTraces, "compute", None)
    again = conducting.conduct(GaussianTraces, Size.QUICK, outcome.folder.parent)
    assert again.findings == outcome.findings


def test_the_interval_of_a_mean_leaves_diverged_runs_out():
    nan = np.nan
    rows = [[1.0, 2.0, 3.0, nan], [nan] * 4, [nan, 5.0, nan, nan]]
    values = xr.DataArray(rows, dims=("scale", "repetition"))
    mean, low, high = mean_and_interval(values)
    assert float(mean[0]) == 2.0
    # Of 27 resamplings of (1, 2, 3) one has the mean 1: more than 2.5 %.
    assert float(low[0]) == 1.0
    assert float(high[0]) == 3.0
    assert np.isnan([mean[1], low[1], high[1]]).all()
    assert float(mean[2]) == float(low[2]) == float(high[2]) == 5.0
