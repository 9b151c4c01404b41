"""Descent: against a plain loop, in batches, with divergence, recording and interruption."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import thalweg as tw
from thalweg._checks import InputError
from thalweg.dynamics import batch
from thalweg.dynamics.descent import descend
from thalweg.dynamics.trajectory import distance


def regression(features=3, outputs=1, samples=20, seed=0):
    rng = np.random.default_rng(seed)
    return tw.Regression(rng.normal(size=(samples, features)), rng.normal(size=(samples, outputs)))


def start(network, batch=(), scale=0.5, seed=1):
    rng = np.random.default_rng(seed)
    return tuple(scale * rng.normal(size=(*batch, *shape)) for shape in network.shapes)


def naive(objective, weights, learning_rate, steps):
    """All iterates and losses, by autodiff of the network on its samples, in a Python loop."""
    problem, network = objective.problem, objective.network

    def loss(weights):
        return problem.output_value(network(weights, problem.inputs))

    step = jax.jit(jax.value_and_grad(loss))
    iterates, losses = [weights], []
    for _ in range(steps):
        value, slope = step(iterates[-1])
        losses.append(float(value))
        iterates.append(jax.tree.map(lambda w, s: w - learning_rate * s, iterates[-1], slope))
    losses.append(float(loss(iterates[-1])))
    return [np.stack(layer) for layer in zip(*iterates, strict=True)], np.array(losses)


NETWORKS = [
    tw.LinearNetwork([3, 4, 2, 1]),
    tw.LinearNetwork([3, 3, 3], readout=[1.0, -0.5, 2.0]),
    tw.LinearNetwork([3, 40, 1]),  # too wide for lanes
    tw.HomogeneousNetwork([3, 4, 1], slopes=(1.0, 0.2)),
]


@pytest.mark.parametrize("network", NETWORKS)
def test_descent_follows_the_plain_loop(network):
    objective = tw.Objective(network, regression())
    weights = start(network, scale=0.3)
    run = descend(objective, weights, learning_rate=0.05, steps=30)
    iterates, losses = naive(objective, weights, 0.05, 30)
    for mine, plain in zip(run.weights, iterates, strict=True):
        np.testing.assert_allclose(mine, plain, rtol=0, atol=1e-13)  # 30 steps of rounding at O(1)
    np.testing.assert_allclose(run.loss, losses, rtol=1e-12)
    np.testing.assert_allclose(run.times, 0.05 * np.arange(31))
    assert not run.diverged


@pytest.mark.parametrize("outputs", [1, 2, 4])
@pytest.mark.parametrize("loss", ["square", "cross_entropy"])
def test_several_outputs_in_lanes_follow_the_plain_loop(outputs, loss):
    network = tw.LinearNetwork([3, 4, max(outputs, 2 if loss == "cross_entropy" else 1)])
    problem = regression(outputs=network.outputs)
    if loss == "cross_entropy":
        labels = np.arange(20) % network.outputs
        problem = tw.Classification(problem.inputs, labels, classes=network.outputs)
    objective = tw.Objective(network, problem)
    weights = start(network, batch=(3,))
    run = descend(objective, weights, learning_rate=0.1, steps=10)
    for index in range(3):
        iterates, _ = naive(objective, tuple(w[index] for w in weights), 0.1, 10)
        for mine, plain in zip(run.weights, iterates, strict=True):
            np.testing.assert_allclose(mine[index], plain, atol=1e-13)  # rounding at O(1)


@given(st.floats(1e-3, 0.1), st.integers(1, 40), st.integers(1, 50))
def test_records_are_the_steps_that_were_asked_for(learning_rate, steps, record_every):
    """Whatever is recorded, the iterates are those of the run that records everything."""
    network = NETWORKS[0]
    objective = tw.Objective(network, regression())
    full = descend(objective, start(network), learning_rate=learning_rate, steps=steps)
    run = descend(
        objective, start(network), learning_rate=learning_rate, steps=steps,
        record_every=record_every,
    )  # fmt: skip
    expected = sorted({*range(0, steps, record_every), steps})
    assert run.steps.tolist() == expected
    # Two steps per round of the loop may be fused differently from one: a few units of rounding.
    np.testing.assert_allclose(run.loss, full.loss[expected], rtol=1e-12)
    np.testing.assert_allclose(run.final[0], full.weights[0][-1], rtol=1e-10, atol=1e-14)
    np.testing.assert_array_equal(run.weights[0][-1], run.final[0])


def test_a_grid_is_made_by_broadcasting():
    network = NETWORKS[0]
    objective = tw.Objective(network, regression())
    rates = np.array([0.01, 0.05])
    run = descend(
        objective, start(network, (3,)), learning_rate=rates[:, None], steps=7, record_every=3
    )
    assert run.loss.shape == (2, 3, 4)
    assert run.weights[1].shape == (2, 3, 4, 2, 4)
    assert run.final[0].shape == (2, 3, 4, 3)
    np.testing.assert_allclose(run.times[1, 2], 0.05 * np.array([0, 3, 6, 7]))
    single = descend(
        objective, tuple(w[2] for w in start(network, (3,))), learning_rate=0.05, steps=7,
        record_every=3,
    )  # fmt: skip
    np.testing.assert_array_equal(run.loss[1, 2], single.loss)


def test_a_whole_grid_compiles_once(compilations):
    """New rates, scales, counts, data and batch sizes must not compile the loop again."""
    network = tw.LinearNetwork([3, 2, 2, 1])
    descend(tw.Objective(network, regression()), start(network), learning_rate=0.1, steps=5)
    with compilations("_advance", "_look") as count:
        for seed, batch in enumerate([(), (7,), (4, 50), (2,)]):
            descend(
                tw.Objective(network, regression(seed=seed)),
                start(network, batch, scale=0.1 * (seed + 1)),
                learning_rate=0.01 * (seed + 1),
                steps=40 + seed,
                record_every=1 + seed,
            )
    assert count() == 0


def test_a_diverging_run_leaves_the_others_bit_identical():
    network = tw.LinearNetwork([5] * 10 + [1])
    objective = tw.Objective(network, regression(features=5))
    weights = start(network, (150,), scale=0.3)
    rates = np.full(150, 0.02)
    rates[[3, 70, 120]] = 1e4
    run = descend(objective, weights, learning_rate=rates, steps=300, record_every=20)
    assert set(np.flatnonzero(run.diverged_at >= 0)) == {3, 70, 120}
    for index in (0, 2, 4, 95, 96, 149):
        alone = descend(
            objective, tuple(w[index] for w in weights), learning_rate=0.02, steps=300,
            record_every=20,
        )  # fmt: skip
        for together, single in zip(run.weights, alone.weights, strict=True):
            np.testing.assert_array_equal(together[index], single)
        np.testing.assert_array_equal(run.loss[index], alone.loss)


@pytest.mark.parametrize("network", [NETWORKS[0], NETWORKS[3]])
def test_divergence_is_located_where_the_plain_loop_has_it(network):
    objective = tw.Objective(network, regression())
    weights = start(network, scale=1.0)
    run = descend(objective, weights, learning_rate=50.0, steps=60, record_every=7)
    with np.errstate(all="ignore"):
        _, losses = naive(objective, weights, 50.0, 60)
    first = int(np.flatnonzero(~np.isfinite(losses))[0])
    assert run.diverged_at == first
    assert np.isfinite(run.loss[run.steps < first]).all()
    assert not np.isfinite(run.loss[run.steps >= first]).any()


def test_divergence_at_the_very_last_step_is_seen():
    network = NETWORKS[0]
    objective = tw.Objective(network, regression())
    weights = start(network, scale=1.0)
    step = descend(objective, weights, learning_rate=50.0, steps=60).diverged_at.item()
    assert descend(objective, weights, learning_rate=50.0, steps=step).diverged_at == step
    assert descend(objective, weights, learning_rate=50.0, steps=step - 1).diverged_at == -1


def squared_norms(weights):
    return {"norms": jnp.stack([jnp.sum(array**2) for array in weights])}


def test_observe_replaces_the_weights_in_the_record():
    network = NETWORKS[0]
    objective = tw.Objective(network, regression())
    weights = start(network, (2,))
    plain = descend(objective, weights, learning_rate=0.1, steps=9, record_every=2)
    run = descend(
        objective, weights, learning_rate=0.1, steps=9, record_every=2, observe=squared_norms
    )
    assert run.weights == ()
    expected = np.stack([np.sum(w**2, axis=(2, 3)) for w in plain.weights], axis=-1)
    np.testing.assert_allclose(run.observed["norms"], expected, rtol=1e-12)
    np.testing.assert_array_equal(run.final[0], plain.final[0])
    with pytest.raises(InputError, match="kept only what `observe` returned"):
        distance(run, plain)


def test_long_stretches_between_records_are_cut_and_still_right(monkeypatch):
    """A call that would last too long is cut between two records; nothing else changes."""
    network = NETWORKS[0]
    objective = tw.Objective(network, regression())
    whole = descend(objective, start(network), learning_rate=0.1, steps=1000, record_every=300)
    monkeypatch.setattr(batch, "_CALL_SECONDS", 1e-9)
    cut = descend(objective, start(network), learning_rate=0.1, steps=1000, record_every=300)
    np.testing.assert_array_equal(cut.steps, [0, 300, 600, 900, 1000])
    np.testing.assert_allclose(cut.loss, whole.loss, rtol=1e-12)  # pairs of steps fall otherwise


def test_weight_decay_is_descended_too():
    network = NETWORKS[0]
    objective = tw.Objective(network, tw.TargetMatrix(np.zeros(3)), weight_decay=0.5)
    zero = (*start(network)[:-1], np.zeros((1, 2)))
    run = descend(objective, zero, learning_rate=0.1, steps=20)
    # With a zero last layer and a zero target only the decay moves the first layer.
    np.testing.assert_allclose(run.final[0], zero[0] * 0.95**20, rtol=1e-12)


def test_progress_reaches_the_total():
    network = NETWORKS[0]
    seen = []
    descend(
        tw.Objective(network, regression()), start(network, (200,)), learning_rate=0.1, steps=500,
        progress=lambda done, total: seen.append((done, total)),
    )  # fmt: skip
    assert seen[-1] == (200 * 500, 200 * 500)
    assert all(a < b for (a, _), (b, _) in itertools.pairwise(seen))


def test_an_interrupt_stops_all_blocks():
    network = NETWORKS[0]
    calls = []

    def interrupt(done, total):
        calls.append(done)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        descend(
            tw.Objective(network, regression()), start(network, (1000,)), learning_rate=0.1,
            steps=1_000_000, record_every=1_000_000, progress=interrupt,
        )  # fmt: skip
    assert len(calls) <= 10  # at most the first call of each of the 10 blocks


def test_float32_stays_float32():
    network = NETWORKS[0]
    problem = tw.Regression(
        np.float32(regression().inputs), np.float32(regression().targets), scale=1.0
    )
    weights = tuple(np.float32(w) for w in start(network))
    run = descend(tw.Objective(network, problem), weights, learning_rate=0.1, steps=3)
    assert run.loss.dtype == run.weights[0].dtype == np.float32


def test_a_descent_can_be_read_at_some_of_its_steps():
    network = NETWORKS[0]
    objective = tw.Objective(network, regression())
    fine = descend(objective, start(network), learning_rate=0.05, steps=40)
    coarse = descend(objective, start(network), learning_rate=0.1, steps=20)
    gap = distance(coarse, fine)
    by_hand = np.sqrt(
        sum(
            np.sum((a - b[::2]) ** 2, axis=(1, 2))
            for a, b in zip(coarse.weights, fine.weights, strict=True)
        )
    )
    np.testing.assert_array_equal(gap, by_hand)
    with pytest.raises(InputError, match="not defined in between"):
        distance(fine, coarse)
    sparse = descend(objective, start(network), learning_rate=0.05, steps=40, record_every=8)
    with pytest.raises(InputError, match="lower `record_every`"):
        distance(coarse, sparse)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"learning_rate": 0.0}, "`learning_rate` must be positive and finite, got 0.0"),
        ({"learning_rate": -0.1}, "`learning_rate` must be positive"),
        ({"learning_rate": np.array([0.1, np.nan])}, "`learning_rate` must be positive"),
        (
            {"learning_rate": np.ones(4)},
            r"shape \(4,\) must broadcast against the batch axes \(3,\)",
        ),
        ({"steps": 0}, "`steps` must be a whole number >= 1, got 0"),
        ({"steps": 2.5}, "`steps` must be a whole number >= 1, got 2.5"),
        ({"record_every": -1}, "`record_every` must be a whole number >= 1, got -1"),
        ({"steps": 10**9}, "The recording must stay below 8 GiB.*raise `record_every`"),
    ],
)
def test_bad_input_gets_one_sentence(change, sentence):
    network = NETWORKS[0]
    arguments = {"learning_rate": 0.1, "steps": 5} | change
    with pytest.raises(InputError, match=sentence):
        descend(tw.Objective(network, regression()), start(network, (3,)), **arguments)


def test_weights_must_be_finite_and_fit():
    network = NETWORKS[0]
    objective = tw.Objective(network, regression())
    broken = start(network)
    broken[1][0, 0] = np.nan
    with pytest.raises(InputError, match=r"`weights\[1\]` must be finite, got nan .* diverge\?"):
        descend(objective, broken, learning_rate=0.1, steps=5)
    with pytest.raises(InputError, match="last layer first"):
        descend(objective, start(network)[::-1], learning_rate=0.1, steps=5)
    uneven = (start(network, (2,))[0], *start(network, (3,))[1:])
    with pytest.raises(InputError, match="same batch axes in every array"):
        descend(objective, uneven, learning_rate=0.1, steps=5)


@pytest.mark.parametrize("network", [tw.LinearNetwork([3, 4, 1]), tw.HomogeneousNetwork([3, 4, 1])])
def test_weights_of_less_precision_than_the_data_move_in_that_of_the_data(network):
    """Oracle: the run from the same numbers in double precision."""
    objective = tw.Objective(network, regression())
    single = tuple(np.float32(layer) for layer in start(network))
    runs = [
        tw.descend(objective, weights, learning_rate=0.05, steps=20)
        for weights in (single, tuple(np.float64(layer) for layer in single))
    ]
    assert runs[0].final[0].dtype == np.float64
    np.testing.assert_array_equal(runs[0].loss, runs[1].loss)
