"""Marion2024's studies: the authors' numbers, whole quick runs, and findings that can fail."""

from collections.abc import Callable, Iterator
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr

from thalweg import sharpness
from thalweg.measurement import distance_to_minimiser
from thalweg.studies import conducting, marion2024_sweep
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
from thalweg.studies.marion2024_gelu import Gelu
from thalweg.studies.marion2024_sweep import Sweep, mean_and_interval
from thalweg.studies.marion2024_underdetermined import Underdetermined
from thalweg.studies.parts import Parts
from thalweg.studies.study import Size
from thalweg.theorems.certificate import Verdict

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
        violated = np.zeros(len(outcome.findings), bool)
        for tampered in tamperings(results):
            verdicts = [finding.verdict for finding in sized.findings(tampered)]
            violated |= np.array([verdict is Verdict.VIOLATED for verdict in verdicts])
        saved = [
            finding.statement
            for finding, fell in zip(outcome.findings, violated, strict=True)
            if not fell
        ]
        assert not saved

    def test_nothing_is_confirmed_without_data(self, study, conducted):
        outcome, _ = conducted(study)
        empty = stored(outcome).map(lambda values: values * np.nan)
        empty.attrs = {name: np.nan for name in stored(outcome).attrs}
        sized = study.of_size(Size.QUICK)
        verdicts = [finding.verdict for finding in sized.findings(empty)]
        assert Verdict.CONFIRMED not in verdicts


def tamperings(results: xr.Dataset) -> Iterator[xr.Dataset]:
    """The results with something wrong: numbers too large or small, or in the wrong order."""
    for name in results.data_vars:
        for factor in (30.0, 1 / 30):
            yield results.assign({name: results[name] * factor})
        yield results.assign({name: results[name] + 1.0})
        yield results.assign({name: 0.0 * results[name]})
        for dimension in ("scale", "learning_rate", "step", "depth"):
            if dimension in results[name].dims:
                backwards = results[name].isel({dimension: slice(None, None, -1)}).values
                yield results.assign({name: (results[name].dims, backwards)})
    for name, value in results.attrs.items():
        if isinstance(value, float):
            for factor in (30.0, 1 / 30):
                yield results.assign_attrs({name: factor * value})


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
    values = xr.DataArray([[1.0, 2.0, 3.0, np.nan], [np.nan] * 4], dims=("scale", "repetition"))
    mean, low, high = mean_and_interval(values)
    assert float(mean[0]) == 2.0
    # Of 27 resamplings of (1, 2, 3) one has the mean 1: more than 2.5 %.
    assert float(low[0]) == 1.0
    assert float(high[0]) == 3.0
    assert np.isnan([mean[1], low[1], high[1]]).all()
