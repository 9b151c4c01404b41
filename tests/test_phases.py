"""Phases of runs: constructed ones, real ones whose phase is known, and what must not matter."""

import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

import thalweg as tw
from legends import legend_faults
from thalweg import InputError
from thalweg.figures.phase import _edges, _strips, phase_map
from thalweg.phases import NO_RUN, Phase, classified, classify

STEPS = np.arange(0, 101)


def quadratic(rate, sharpness=1.0):
    """The loss of descent on sharpness / 2 x^2, in closed form."""
    return (1 - rate * sharpness) ** (2.0 * STEPS)


@pytest.mark.parametrize(
    ("loss", "phase"),
    [
        (quadratic(0.5), Phase.MONOTONE),
        (quadratic(1.9), Phase.MONOTONE),
        (quadratic(2.0), Phase.SADDLE),  # from side to side for ever: without S it looks stuck
        (quadratic(2.5), Phase.DIVERGED),
        (np.where(STEPS > 50, np.nan, quadratic(0.5)), Phase.DIVERGED),
        (np.where(STEPS > 50, np.inf, quadratic(0.5)), Phase.DIVERGED),
        (np.exp(-STEPS / 5.0) * (1 + 30 * (STEPS == 4)), Phase.CATAPULT),
        (np.exp(-STEPS / 5.0) * (1 + 0.05 * (STEPS == 4)), Phase.MONOTONE),
        (1 + 0.5 * np.sin(STEPS), Phase.OSCILLATING),
        (np.exp(-STEPS / 60) * (1 + 0.5 * np.sin(STEPS)), Phase.EDGE),
        (np.full(101, 0.7), Phase.SADDLE),
        (np.exp(-STEPS / 60), Phase.DESCENDING),
        # What happens below the level of convergence is no catapult.
        (np.exp(-STEPS / 5.0) + 1e-6 * (1 + np.sin(STEPS)), Phase.MONOTONE),
        (np.zeros(101), Phase.MONOTONE),
    ],
)
def test_a_constructed_loss_has_the_phase_it_was_made_for(loss, phase):
    assert Phase(int(classify(loss, 0.0, 1.0))) is phase


def test_sharpness_tells_apart_what_the_loss_cannot():
    settles, stays, rate = np.exp(-STEPS / 5.0), np.full(101, 0.7), 0.1
    falls = 20 * (1 + np.exp(-STEPS / 5.0) - 0.01)  # from 40 to 19.8, with 2 / rate = 20

    def phase(loss, sharpness):
        return Phase(int(classify(loss, 0.0, rate, np.broadcast_to(sharpness, loss.shape))))

    assert phase(settles, 10.0) is Phase.MONOTONE
    assert phase(settles, falls) is Phase.EDGE
    assert phase(settles, falls - 3) is Phase.CATAPULT
    assert phase(settles, 19.8) is Phase.MONOTONE  # near the edge, but never beyond it
    assert phase(stays, 0.1) is Phase.SADDLE
    assert phase(stays, 30.0) is Phase.OSCILLATING
    wavy = np.exp(-STEPS / 60) * (1 + 0.5 * np.sin(STEPS))
    assert phase(wavy, 20 + 5 * np.sin(STEPS)) is Phase.EDGE
    assert phase(wavy, 40.0) is Phase.OSCILLATING


def test_a_run_with_momentum_has_its_own_edge():
    """Oracle: sharpnesses only count as shares of the edge; where it is not known, they do not."""
    wavy, rate = np.exp(-STEPS / 60) * (1 + 0.5 * np.sin(STEPS)), 0.1
    edge = tw.optimisers.HeavyBall(0.5).edge(rate)
    for sharpness in (10.0, 20.0, 30.0, 60.0):
        plain, own = np.full(101, sharpness), np.full(101, 1.5 * sharpness)
        expected = classify(wavy, 0.0, rate, plain)
        assert classify(wavy, 0.0, rate, own, edge=edge) == expected
        runs = xr.Dataset(
            {"loss": ("record", wavy), "sharpness": ("record", own), "edge": float(edge)}
            | {"step": ("record", STEPS.astype(float)), "minimum": 0.0, "learning_rate": rate}
        )
        assert classified(runs) == expected
    assert classify(wavy, 0.0, rate, np.full(101, 30.0), edge=edge) == Phase.EDGE
    assert classify(wavy, 0.0, rate, np.full(101, 30.0)) == Phase.OSCILLATING
    unknown = classify(wavy, 0.0, rate, np.full(101, 60.0), edge=np.nan)
    assert unknown == classify(wavy, 0.0, rate)


def test_a_run_that_begins_at_the_minimum_has_not_diverged_by_rounding():
    loss = np.array([1.0] * 4 + [1.0 + 2.3e-16] * 6)
    assert classify(loss, 1.0, 0.1) == Phase.MONOTONE
    assert classify(np.zeros(10), 0.0, 0.1) == Phase.MONOTONE


def test_a_reference_keeps_a_fall_from_far_above_from_counting_as_convergence():
    fallen = np.concatenate([[1e5, 1e3], np.full(99, 1.0)])  # onto a plateau
    assert Phase(int(classify(fallen, 0.0, 0.1, reference=1.0))) is Phase.SADDLE


CASES = {  # the weights of four layers of width one that are to have the product 1, and the rate
    "small rate": ((0.9, 0.7, 0.8, 0.9), 0.1, Phase.MONOTONE),
    "tiny start": ((0.05, 0.05, 0.05, 0.05), 0.1, Phase.SADDLE),
    "sharpening to the edge": ((1.3, 0.6, 0.9, 0.5), 0.45, Phase.EDGE),
    "beyond every minimiser": ((1.3, 0.6, 0.9, 0.5), 0.55, Phase.OSCILLATING),  # 2 / S = 0.5
    "far too large a rate": ((1.3, 0.6, 0.9, 0.5), 3.0, Phase.DIVERGED),
    "sharp start": ((2.5, 1.5, 0.8, 0.5), 0.2, Phase.CATAPULT),
}


def chain_sharpness(layers):
    """Of 1/2 (product - 1)^2, whose Hessian is written out; layers last."""
    slopes = np.stack([np.delete(layers, i, -1).prod(-1) for i in range(4)], -1)
    hessian = slopes[..., :, None] * slopes[..., None, :]
    for i, j in ((i, j) for i in range(4) for j in range(4) if i != j):
        rest = np.delete(layers, [i, j], -1).prod(-1)
        hessian[..., i, j] += (layers.prod(-1) - 1) * rest
    known = np.isfinite(hessian).all((-1, -2))
    values = np.linalg.eigvalsh(np.where(known[..., None, None], hessian, 0.0))[..., -1]
    return np.where(known, values, np.nan)


def test_real_runs_of_a_deep_network():
    objective = tw.Objective(tw.LinearNetwork([1] * 5), tw.TargetMatrix([[1.0]]))
    starts, rates, phases = zip(*CASES.values(), strict=True)
    layers = tuple(jnp.asarray(layer)[:, None, None] for layer in zip(*starts, strict=True))
    run = tw.descend(objective, layers, learning_rate=rates, steps=600, record_every=5)
    with np.errstate(all="ignore"):
        sharpness = chain_sharpness(np.stack([array[..., 0, 0] for array in run.weights], -1))
    found = classify(run.loss, 0.0, rates, sharpness, run.diverged_at)
    named = dict(zip(CASES, map(Phase, found.tolist()), strict=True))
    assert named == dict(zip(CASES, phases, strict=True))


@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([1e-200, 1e-6, 3.0, 1e90]),
    st.booleans(),
)
def test_every_run_has_one_phase_and_units_do_not_matter(seed, unit, measured):
    draw = np.random.default_rng(seed)
    walk = np.cumsum(draw.normal(size=(3, 4, 40)) * draw.choice([0.05, 0.5, 3.0], (3, 4, 1)), -1)
    loss = np.exp(np.clip(walk, -40, 40))
    loss[draw.random(loss.shape) < 0.002] = np.nan
    sharpness = np.exp(draw.normal(size=loss.shape)) * 20 if measured else None
    found = classify(loss, 0.0, 0.1, sharpness)
    assert found.shape == (3, 4)
    assert set(found.ravel().tolist()) <= {int(phase) for phase in Phase}
    assert np.array_equal(found, classify(unit * loss, 0.0, 0.1, sharpness))
    rescaled = None if sharpness is None else sharpness * 8.0
    assert np.array_equal(found, classify(8.0 * loss, 0.0, 0.1 / 8.0, rescaled))
    alone = [[int(classify(run, 0.0, 0.1, None if sharpness is None else sharpness[i, j]))
              for j, run in enumerate(row)] for i, row in enumerate(loss)]  # fmt: skip
    assert np.array_equal(found, alone)


def test_a_dataset_with_runs_of_several_lengths():
    lost = quadratic(2.5)
    loss = np.stack([quadratic(0.5), lost, quadratic(0.5), quadratic(0.01)])
    step = np.broadcast_to(STEPS.astype(float), loss.shape).copy()
    loss[2, 30:], step[2, 30:] = np.nan, np.nan  # shorter, not lost
    loss[3], step[3] = np.nan, np.nan  # no run at all
    runs = xr.Dataset(
        {
            "loss": (("learning_rate", "record"), loss),
            "step": (("learning_rate", "record"), step),
            "minimum": 0.0,
        },
        {"learning_rate": [0.5, 2.5, 0.6, 0.7]},
    )
    found = classified(runs)
    assert found.values.tolist() == [Phase.MONOTONE, Phase.DIVERGED, Phase.MONOTONE, NO_RUN]
    assert len(found.attrs["flag_meanings"].split()) == len(found.attrs["flag_values"])
    # Sharpness at both ends alone is used too: 2 / 0.5 = 4.
    known = runs.assign(
        initial_sharpness=("learning_rate", [9.0] * 4), final_sharpness=("learning_rate", [1.0] * 4)
    )
    assert classified(known).values[0] == Phase.CATAPULT


def test_too_few_records_and_a_wrong_shape_are_refused():
    with pytest.raises(InputError, match="at least 8 records"):
        classify(np.ones(5), 0.0, 0.1)
    with pytest.raises(InputError, match="shape of the loss"):
        classify(np.ones(9), 0.0, 0.1, np.ones(8))


# --- the map -------------------------------------------------------------------------------------


def small_grid():
    phase = xr.DataArray(
        np.array([[[0, 0], [4, 0]], [[2, 2], [4, 4]], [[-1, -1], [3, -1]]]),
        {"learning_rate": [0.01, 0.1, 1.0], "scale": [0.2, 0.4], "seed": [0, 1]},
        ("learning_rate", "scale", "seed"),
        attrs=classified(
            xr.Dataset(
                {
                    "loss": ("record", np.ones(9)),
                    "step": ("record", np.arange(9.0)),
                    "minimum": 0.0,
                },
                {"learning_rate": 1.0},
            )
        ).attrs,
    )
    return xr.Dataset({"phase": phase, "sharper_sharpness_bound": 20.0})


def test_every_cell_is_divided_by_the_numbers_of_its_runs():
    shares = np.array([[[1.0, 0.25, 0.0]], [[0.0, 0.75, 0.0]]])  # phases, scales, rates
    assert _strips(shares, 4).tolist() == [[0, 0, 0, 0, 0, 1, 1, 1, -1, -1, -1, -1]]
    assert np.allclose(
        _edges(np.array([0.01, 0.1, 1.0])), 10.0 ** np.array([-2.5, -1.5, -0.5, 0.5])
    )
    assert np.allclose(_edges(np.array([1.0, 2.0, 3.0])), [0.5, 1.5, 2.5, 3.5])


def test_the_map_shows_the_phases_that_there_are_and_the_boundaries():
    figure = phase_map(small_grid())
    labels = {text.get_text() for legend in figure.legends for text in legend.get_texts()}
    assert {"converged monotonically", "diverged", "oscillating"} <= labels
    assert "stuck at a saddle" not in labels
    line = next(
        each
        for each in figure.axes[0].lines
        if "limit of linear stability" in str(each.get_label())
    )
    assert np.allclose(line.get_xdata(), 0.1)  # 2 / 20
    with pytest.raises(InputError, match="`depth`"):
        phase_map(small_grid(), scale="depth")


def test_the_legend_of_the_map_lists_what_is_painted():
    whole = small_grid()
    assert legend_faults(phase_map(whole)) == []
    unfinished = whole.assign(phase=whole.phase.where(whole.scale < 0.3))
    figure = phase_map(unfinished)
    assert legend_faults(figure) == []
    assert "no run" in {text.get_text() for text in figure.legends[0].get_texts()}
    # Its 2 / sharpness is far to the right of the picture.
    flat = whole.assign(initial_sharpness=("scale", [1e-9, 1e-9]))
    assert legend_faults(phase_map(flat)) == []
    sharp = whole.assign(initial_sharpness=("scale", [10.0, 40.0]))
    labels = {text.get_text() for text in phase_map(sharp).legends[0].get_texts()}
    assert "2 / sharpness at the start" in labels
    plt.close("all")


def test_a_loss_below_zero_needs_a_minimum():
    """It would count as settled: as if all that is below zero were zero."""
    loss = np.linspace(1.0, -5.0, 20)
    with pytest.raises(InputError, match=r"`minimum` must be given where .* a loss of -5 is"):
        classify(loss, np.nan, 0.1)
    assert classify(loss, -5.0, 0.1) == Phase.DESCENDING
