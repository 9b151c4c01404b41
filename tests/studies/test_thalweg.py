"""Our own studies, at their quick size: confirmed, refutable, drawn."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr
from tampering import (
    assert_confirmed_and_refutable,
    assert_gaps_are_seen,
    assert_quick_study_holds,
)

from thalweg import initialisation, studies
from thalweg.dynamics import descend, flow
from thalweg.studies import Size
from thalweg.studies.thalweg_common import aligned_example, largest_rate

NAMES = [name for name in studies.STUDIES if name.startswith("thalweg-")]
DRAWN_ONLY = {"thalweg-weight-decay": {"slope"}}  # kept to tell where runs had arrived


@pytest.mark.parametrize("name", NAMES)
def test_it_is_confirmed_and_could_fail(name, tmp_path):
    assert_quick_study_holds(name, tmp_path, DRAWN_ONLY.get(name, ()))


def critical_data(study):
    """Rates as expected: just below the best prediction for the strict share."""
    names = ("S_min", "sharper bound", "least sharpness", "S0", "small-start bound",
             "sharpness of the limit", "sharpness at the start")  # fmt: skip
    ratios = np.array([1.5, 1.0, 1.0, 1.0, 0.2, 0.5, 0.4])
    depths, kinds = np.array(study.depths), ["gaussian", "residual"]
    cases = ("share", "depth", "kind")
    coords = {
        "share": list(study.shares), "depth": depths, "kind": kinds,
        "prediction": [f"2 / {name}" for name in names],
    }  # fmt: skip
    sizes = tuple(len(coords[name]) for name in cases)
    over = xr.DataArray([0.95, 1.01], dims="share", coords={"share": list(study.shares)})
    shape = xr.DataArray(np.ones(sizes), {name: coords[name] for name in cases}, cases)
    ratio = shape * over * xr.DataArray(ratios, {"prediction": coords["prediction"]})
    ratio = ratio.where((ratio.prediction != "2 / small-start bound") | (ratio.kind == "gaussian"))
    lower = shape / depths[None, :, None] / over
    starts = xr.DataArray(np.ones(study.starts), dims="start")
    data = {
        "lower": lower, "upper": 1.01 * lower, "lowers": lower * starts,
        "uppers": 1.01 * lower * starts, "arrived": shape, "ratio": ratio,
        "predicted": ratio * lower,
    }  # fmt: skip
    return xr.Dataset(data)


def steps_data(study):
    depth, norm, radius = (np.array(each) for each in zip(*study.settings, strict=True))
    known = (norm == 0.1) & (radius == 0.01)
    true = np.full(depth.size, 0.03)
    true[known & (depth == 2)], true[known & (depth == 3)] = 0.0518, 0.0353
    certified, all_of_them = true / 1.00005, np.ones(depth.size)
    silent = np.where(norm > 0.2, np.nan, 0.0)
    columns = {
        "certified": certified, "empirical": true, "refused": 1.00009 * certified,
        "leaves": all_of_them, "smaller_stay": all_of_them, "theorem_3": certified / 50,
        "log_theorem_15": np.log(certified) - 20 * np.log(10) + silent,
    }  # fmt: skip
    coords = {"depth": depth, "norm": norm, "radius": radius}
    return xr.Dataset(
        {name: ("setting", column) for name, column in columns.items()},
        {name: ("setting", column) for name, column in coords.items()},
    )


def flatness_data(study):
    """Descents end where the flow does, or at the edge; at the largest scale some are lost."""
    scales, rates = np.array(study.scales), np.array(study.rates)
    coords = {"scale": scales, "learning_rate": rates, "seed": np.arange(study.seeds)}
    rising = 16.24 * (1 + 9 * (scales / scales[-1]) ** 6)
    flows = xr.DataArray(
        np.tile(rising[:, None], study.seeds), dims=("scale", "seed"),
        coords={name: coords[name] for name in ("scale", "seed")},
    )  # fmt: skip
    edge = xr.DataArray(2 / rates, dims="learning_rate", coords={"learning_rate": rates})
    ends = np.minimum(flows, 0.99 * edge).transpose("scale", "learning_rate", "seed")
    lost = (ends.scale == scales[-1]) & (ends.learning_rate >= 0.07) & (ends.seed < 8)
    lost = lost.transpose(*ends.dims)
    return xr.Dataset(
        {
            "flow": flows, "descent": ends.where(~lost),
            "excess": xr.where(lost, np.inf, xr.full_like(ends, 1e-12)),
            "sharper_sharpness_bound": 16.2, "greatest_sharpness": 108.0, "small_start": 16.24,
        }
    )  # fmt: skip


def decay_data(study):
    decays = np.array(study.decays)
    starts = ["balanced", *(f"gaussian {seed}" for seed in range(study.seeds))]
    fallen = np.tile(np.exp(-3 * decays)[:, None], len(starts))
    columns = {
        "largest": fallen, "last": 0.5 * fallen, "proven": 1.2 * fallen,
        "proven_last": fallen, "filled": 0.9 + 0 * fallen, "slope": fallen,
    }  # fmt: skip
    return xr.Dataset(
        {name: (("weight_decay", "start"), column) for name, column in columns.items()},
        {"weight_decay": decays, "start": starts},
    )


def modified_data(study):
    rates, ones = np.array(study.rates), np.ones((len(study.depths), 1))
    columns = {"to_flow": 0.2828 * rates, "to_modified": 0.09 * rates**2}
    return xr.Dataset(
        {name: (("depth", "learning_rate"), ones * column) for name, column in columns.items()},
        {"depth": list(study.depths), "learning_rate": rates},
    )


@pytest.mark.parametrize(
    ("name", "made"),
    [
        ("thalweg-critical", critical_data),
        ("thalweg-steps", steps_data),
        ("thalweg-flatness", flatness_data),
        ("thalweg-weight-decay", decay_data),
        ("thalweg-modified-flow", modified_data),
    ],
)
def test_what_is_found_at_full_size_could_fail(name, made):
    """On data that were made up, for a full study takes minutes."""
    (kind,) = studies.find([name])
    study = kind.of_size(Size.FULL)
    results = made(study)
    assert_confirmed_and_refutable(study, results)
    assert_gaps_are_seen(study, results, DRAWN_ONLY.get(name, ()))


def test_descents_that_end_far_below_the_flow_are_noticed():
    """Both sides of a ratio count, not the larger one only."""
    (kind,) = studies.find(["thalweg-flatness"])
    study = kind.of_size(Size.FULL)
    results = flatness_data(study)
    below = results.descent.where(results.scale > 0.02, 0.9 * results.descent)
    found = study.findings(results.assign(descent=below, sharper_sharpness_bound=10.0))
    (finding,) = (each for each in found if each.statement.startswith("smallest scale: descent"))
    np.testing.assert_allclose(finding.measured, 0.1, rtol=1e-9)  # rounding
    assert finding.margin < 0


def test_the_largest_rate_is_found_to_a_percent():
    tried = []

    def fits(rate):
        tried.append(rate)
        return rate <= 0.0371

    for guess in (1e-4, 0.03, 5.0):
        assert 0.0371 / 1.01 <= largest_rate(fits, guess) <= 0.0371
    assert len(tried) < 80


def test_the_example_starts_at_its_norm_and_angle():
    objective, weights = aligned_example(3, norm=0.2, cosine=0.3)
    product = np.asarray(objective.network.end_to_end(weights))[0]
    np.testing.assert_allclose(np.linalg.norm(product), 0.2, rtol=1e-12)  # rounding
    np.testing.assert_allclose(product[0] / 0.2, 0.3, rtol=1e-12)


def test_what_decay_leaves_of_the_distance_lies_along_rotations():
    """As the page of thalweg-weight-decay says; a start that ends farther from its flow."""
    objective, _ = aligned_example(3, weight_decay=jnp.asarray(0.2))
    start = initialisation.gaussian(objective.network, 0.35, key=jax.random.key(4))
    run = descend(objective, start, learning_rate=0.01, steps=1600)
    exact = flow(objective, start, time=16.0, rtol=1e-10, atol=1e-12)
    last = [np.asarray(layer) for layer in run.final]
    apart = np.concatenate(
        [np.ravel(one - other) for one, other in zip(last, exact.final, strict=True)]
    )
    directions = []
    for layer in range(len(last) - 1):
        for row, column in zip(*np.triu_indices(4, 1), strict=True):
            turn = np.zeros((4, 4))
            turn[row, column], turn[column, row] = 1.0, -1.0
            moved = [np.zeros_like(each) for each in last]
            moved[layer], moved[layer + 1] = turn @ last[layer], -last[layer + 1] @ turn
            directions.append(np.concatenate([np.ravel(each) for each in moved]))
    _, sizes, axes = np.linalg.svd(np.array(directions), full_matrices=False)
    along = axes[sizes > 1e-6 * sizes[0]] @ apart
    assert np.sum(along**2) > 0.9 * np.sum(apart**2)
