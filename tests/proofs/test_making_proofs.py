"""Proofs in ball arithmetic: what is proven is true, and is accepted."""

import sys

import equinox as eqx
import numpy as np
import pytest
from proof_problems import CASES, Plain

import thalweg as tw
from thalweg import InputError, initialisation
from thalweg.tubes import checker
from thalweg.tubes.proof import Proof, prove

FLOW = {"rtol": 1e-11, "atol": 1e-13}
FLOW_ERROR = 1e-9  # what the flows of these tests, at those tolerances, are within


def aligned_run(depth, rate, time):
    """From the balanced start of norm 0.1 on white data."""
    target = np.eye(4)[0]
    network = tw.LinearNetwork([4] * depth + [1])
    start = initialisation.aligned(network, 0.1, 0.3, target)
    objective = tw.Objective(network, tw.TargetMatrix(target))
    return tw.descend(objective, start, learning_rate=rate, steps=round(time / rate))


def flow_gap(run):
    start = tuple(array[0] for array in run.weights)
    return tw.distance(run, tw.flow(run.objective, start, times=run.times, **FLOW))


def assert_true(run, proof, gap):
    """That the measured distance is between the bounds."""
    count = proof.times.size
    np.testing.assert_allclose(proof.times, run.times[:count], rtol=1e-15)
    assert np.all(gap[:count] >= proof.lower - FLOW_ERROR)
    assert np.all(gap[:count] <= proof.upper + FLOW_ERROR)


def accepted(proof, folder):
    """The verdict, which must be favourable."""
    proof.write(folder / "proof.json")
    verdict = checker.check(folder / "proof.json")
    assert verdict.accepted, verdict
    return verdict


def test_it_proves_what_the_float64_tube_says(folder):
    """And it is accepted; the flow is where it says, and it is no wider than the other level."""
    run = aligned_run(3, 0.03, 3.0)
    proof, other = prove(run), tw.tube(run)
    verdict = accepted(proof, folder)
    # The tube adds 64 units in the last place at each step; the proof adds nothing.
    np.testing.assert_allclose(proof.upper, other.upper, rtol=1e-6)
    np.testing.assert_allclose(proof.lower, other.lower, rtol=1e-6, atol=1e-10)
    np.testing.assert_allclose(proof.correction, other.correction, rtol=1e-9)
    np.testing.assert_allclose(proof.correction + proof.radius, proof.upper, rtol=1e-14)
    assert np.all(proof.upper <= other.upper)
    assert_true(run, proof, flow_gap(run))
    assert proof.failed_at is None
    assert (verdict.network, verdict.weights, verdict.steps) == ("4-4-4-1", 36, 100)
    assert verdict.time == pytest.approx(3.0)
    assert verdict.largest_upper == proof.upper.max()
    top = proof.upper.argmax()
    assert verdict.ratio == proof.upper[top] / proof.lower[top]
    # Between the steps the float64 tube adds the same but for the rounding.
    assert verdict.between == pytest.approx(other.between[-1], rel=1e-6)
    assert verdict.largest_jump < 1e-15


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_every_square_loss_of_a_linear_network(case, folder):
    """The radius is of second order: what is foretold is nearly what is measured."""
    plain = Plain(**case)
    run = plain.run(rate=0.004, steps=20)
    proof, gap = prove(run), plain.gap(run)
    accepted(proof, folder)
    assert proof.failed_at is None
    assert_true(run, proof, gap)
    assert np.all(proof.radius <= 0.1 * gap + FLOW_ERROR)


def test_a_flow_from_elsewhere_is_inside(folder):
    plain = Plain([3, 2, 2])
    run, start = plain.run(), plain.start.copy()
    start[0] += 1e-3
    proof = prove(run, 1.0001e-3)
    assert accepted(proof, folder).start_distance == 1.0001e-3
    gap = plain.gap(run, start)
    assert_true(run, proof, gap)
    assert np.any(gap > prove(run).upper)


def test_the_points_need_not_be_descent(folder):
    """The statement is about the points in the file, whatever made them."""
    plain = Plain([3, 2, 2])
    run = plain.run(noise=1e-4)
    proof = prove(run)
    verdict = accepted(proof, folder)
    gap = plain.gap(run)
    assert_true(run, proof, gap)
    # The correction takes the noise up, which leaves the radius as it would have been.
    np.testing.assert_allclose(proof.radius, prove(plain.run()).radius, rtol=0.01)
    points = np.concatenate([w.reshape(31, -1) for w in run.weights], axis=1)
    stepped = np.array([point - 0.02 * plain.gradient(point) for point in points[:-1]])
    jumps = np.linalg.norm(points[1:] - stepped, axis=1)
    assert verdict.largest_jump == pytest.approx(jumps.max(), rel=1e-9)


def test_norms_prove_less(folder):
    plain = Plain([3, 2, 2])
    run = plain.run(rate=0.002)
    best, simple = prove(run), prove(run, curvature="norms")
    accepted(simple, folder)
    assert_true(run, simple, plain.gap(run))
    assert simple.upper[-1] > best.upper[-1]


def test_where_it_breaks_down_the_steps_before_are_proven(folder):
    plain = Plain([3, 2, 3, 2, 2])
    run = plain.run(rate=0.05)
    proof = prove(run)
    accepted(proof, folder)
    assert proof.failed_at == run.times[proof.times.size]
    assert_true(run, proof, plain.gap(run))


def test_a_file_is_read_as_it_was_written(small, small_file):
    again = Proof.read(small_file)
    assert again.content == small.content
    np.testing.assert_array_equal(again.upper, small.upper)
    assert checker.check(small_file).accepted


BAD = {
    "record_every": (lambda: some_records(), {}, "record_every=1"),
    "batch": (lambda: batch(), {}, "one run"),
    "network": (lambda: other_network(), {}, "linear networks"),
    "loss": (lambda: classification(), {}, "square loss"),
    "start": (lambda: Plain([3, 2]).run(), {"start_distance": -1.0}, "start_distance"),
    "infinite": (lambda: Plain([3, 2]).run(), {"start_distance": np.inf}, "start_distance"),
    "curvature": (lambda: Plain([3, 2]).run(), {"curvature": "auto"}, "exact or norms"),
    "nothing": (lambda: Plain([3, 2, 2]).run(), {"start_distance": 1e5}, "No step"),
}


def some_records():
    run = Plain([3, 2]).run()
    return eqx.tree_at(lambda each: each.steps, run, 2 * run.steps)


def batch():
    run = Plain([3, 2]).run()
    return eqx.tree_at(lambda each: each.learning_rate, run, np.array([0.1, 0.2]))


def other_network():
    run, network = Plain([3, 2]).run(), tw.HomogeneousNetwork([3, 2])
    return eqx.tree_at(
        lambda each: each.objective, run, tw.Objective(network, run.objective.problem)
    )


def classification():
    run = Plain([3, 2]).run()
    problem = tw.Classification(np.eye(3), [0, 1, 0])
    return eqx.tree_at(
        lambda each: each.objective, run, tw.Objective(run.objective.network, problem)
    )


@pytest.mark.parametrize(("make", "options", "message"), BAD.values(), ids=BAD)
def test_what_cannot_be_proven_is_said(make, options, message):
    with pytest.raises(InputError, match=message):
        prove(make(), **options)


def test_without_flint_the_fix_is_named(monkeypatch, small):
    monkeypatch.setitem(sys.modules, "thalweg.tubes.checker", None)
    monkeypatch.delattr("thalweg.tubes.checker", raising=False)
    with pytest.raises(InputError, match="pip install python-flint"):
        small.write("nowhere.json")
