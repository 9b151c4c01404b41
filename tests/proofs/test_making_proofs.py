"""Proofs in ball arithmetic: what is proven is true, and is accepted."""

import sys

import equinox as eqx
import mpmath
import numpy as np
import pytest
from proof_problems import CASES, DIGITS, Plain, digits

import thalweg as tw
from thalweg import InputError, initialisation
from thalweg.proofs import Proof, checker, prove
from thalweg.proofs.making import prove_descents

ORACLE = 1e-21  # what the flow in forty digits is within: extrapolation leaves no more


def assert_true(plain, proven, start=None):
    """That the exact distance, in forty digits, is between the bounds of each step."""
    gaps = plain.gaps(proven.learning_rate, proven.upper.size - 1, start)
    with mpmath.workdps(DIGITS):
        for gap, lower, upper in zip(gaps, proven.lower, proven.upper, strict=True):
            assert mpmath.mpf(lower) - ORACLE <= gap <= mpmath.mpf(upper) + ORACLE


def accepted(proof, folder):
    """The verdict, which must be favourable."""
    proof.write(folder / "proof.json")
    verdict = checker.check(folder / "proof.json")
    assert verdict.accepted, verdict
    return verdict


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_every_loss_of_a_linear_network(case, folder):
    """Both bounds are the exact distance to the last digits, and one file holds several runs."""
    plain = Plain(**case)
    proof = prove([plain.run(steps=8), plain.run(rate=0.1, steps=2)])
    verdict = accepted(proof, folder)
    assert proof.failed_at is None
    assert len(proof.runs) == len(verdict.runs) == 2
    for proven in proof.runs:
        assert_true(plain, proven)
        # The radius is far below a unit in the last place of the distance.
        np.testing.assert_allclose(proven.lower, proven.upper, rtol=1e-14, atol=1e-18)
    assert 0 < proof.radius.max() < 1e-17


def test_it_is_inside_of_what_the_validated_flow_says(folder):
    """The other proof of the same distance, in double precision."""
    network = tw.LinearNetwork([4, 4, 4, 1])
    objective = tw.Objective(network, tw.TargetMatrix(np.eye(4)[0]))
    start = initialisation.aligned(network, 0.1, 0.3, np.eye(4)[0])
    run = tw.descend(objective, start, learning_rate=0.03, steps=100)
    proof = prove(run)
    verdict = accepted(proof, folder)
    gap = tw.distance(run, tw.flow(objective, start, times=run.times, validate=True))
    proven = proof.runs[0]
    # The run in doubles is off from descent in real numbers by less than that.
    rounding = 1e-14
    assert np.all(proven.upper >= gap.lower - rounding)
    assert np.all(proven.lower <= gap.upper + rounding)
    np.testing.assert_allclose(proven.times, run.times, rtol=1e-15)
    assert (verdict.network, verdict.loss, verdict.weights) == ("4-4-4-1", "target", 36)
    assert verdict.time >= run.times[-1]
    assert verdict.intervals == proof.times.size - 1
    assert verdict.radius == proof.radius.max()
    assert verdict.runs[0].largest_upper == proven.upper.max()
    assert verdict.runs[0].last_lower == proven.lower[-1]


def test_a_flow_from_elsewhere_is_inside(folder):
    plain = Plain([3, 2, 2])
    run, start = plain.run(steps=10), plain.start.copy()
    start[0] += 1e-3
    proof = prove(run, 1.0001e-3)
    assert accepted(proof, folder).start_distance == 1.0001e-3
    assert_true(plain, proof.runs[0], start)
    gap = np.array(plain.gaps(0.02, 10, start), float)
    assert np.any(gap > prove(run).runs[0].upper)


def test_descent_is_that_of_real_numbers(folder):
    """Where rounding errors grow, the run in doubles is another one."""
    plain, rate, steps = Plain([3, 2, 3, 2]), 0.4, 60
    run = plain.run(rate, steps)
    proof = prove(run)
    accepted(proof, folder)
    rounded = np.linalg.norm(plain.points(rate, steps) - plain.smooth(run.times), axis=1)
    with mpmath.workdps(DIGITS):
        points = plain.points(mpmath.mpf(rate), steps, digits(plain.start)).astype(float)
    exact = np.linalg.norm(points - plain.smooth(run.times), axis=1)
    # What SciPy interpolates between its steps is good to 1e-9.
    np.testing.assert_allclose(proof.runs[0].upper, exact, rtol=0, atol=1e-8)
    assert np.abs(rounded - exact).max() > 1e-7


def test_a_batch_of_runs_is_several(folder):
    plain = Plain([3, 2, 2])
    start = tuple(plain.layers(plain.start))
    run = tw.descend(plain.objective, start, learning_rate=np.array([0.02, 0.05]), steps=4)
    proof = prove(run)
    accepted(proof, folder)
    assert [each.learning_rate for each in proof.runs] == [0.02, 0.05]


def test_steps_that_were_not_recorded_are_proven_too():
    plain = Plain([3, 2])
    some = eqx.tree_at(lambda each: each.steps, plain.run(steps=5), np.array([0, 2, 4, 6, 8, 10]))
    assert prove(some).content == prove(plain.run(steps=10)).content


def test_a_run_that_diverges_is_proven_up_to_there(folder):
    plain = Plain([3, 2, 3, 2, 2])
    start = tuple(plain.layers(plain.start))
    proof = prove_descents(plain.objective, start, [(2.0, 40)])
    accepted(proof, folder)
    count = proof.runs[0].upper.size
    assert 1 < count < 41
    assert proof.failed_at == 2.0 * count
    assert np.all(np.isfinite(proof.runs[0].upper))


def test_a_file_is_read_as_it_was_written(small, small_file):
    again = Proof.read(small_file)
    assert again.content == small.content
    np.testing.assert_array_equal(again.runs[1].upper, small.runs[1].upper)
    assert checker.check(small_file).accepted


BAD = {
    "nothing recorded": (lambda: unrecorded(), {}, "the weights that a run starts from"),
    "later records": (lambda: later(), {}, "the weights that a run starts from"),
    "network": (lambda: other(network=tw.HomogeneousNetwork([3, 2])), {}, "linear networks"),
    "loss": (lambda: other(problem=logistic()), {}, "the loss logistic"),
    "start": (lambda: Plain([3, 2]).run(), {"start_distance": -1.0}, "start_distance"),
    "infinite": (lambda: Plain([3, 2]).run(), {"start_distance": np.inf}, "start_distance"),
    "nothing": (lambda: Plain([3, 2, 2]).run(), {"start_distance": 1e5}, "Nothing can be proven"),
    "no runs": (lambda: [], {}, "at least one run"),
    "two starts": (lambda: [Plain([3, 2]).run(), moved()], {}, "from one start"),
    "two objectives": (lambda: [Plain([3, 2]).run(), decayed()], {}, "of one objective"),
}


def unrecorded():
    return eqx.tree_at(lambda each: each.weights, Plain([3, 2]).run(), ())


def later():
    run = Plain([3, 2]).run()
    return eqx.tree_at(lambda each: each.steps, run, 1 + run.steps)


def other(network=None, problem=None):
    run = Plain([3, 1]).run() if network is None else Plain([3, 2]).run()
    objective = tw.Objective(network or run.objective.network, problem or run.objective.problem)
    return eqx.tree_at(lambda each: each.objective, run, objective)


def logistic():
    return tw.Classification(np.eye(3), [0, 1, 0], loss="logistic")


def moved():
    plain = Plain([3, 2])
    plain.start = 2 * plain.start
    return plain.run()


def decayed():
    return Plain([3, 2], decay=0.1).run()


@pytest.mark.parametrize(("make", "options", "message"), BAD.values(), ids=BAD)
def test_what_cannot_be_proven_is_said(make, options, message):
    with pytest.raises(InputError, match=message):
        prove(make(), **options)


def test_without_flint_the_fix_is_named(monkeypatch, small):
    monkeypatch.setitem(sys.modules, "thalweg.proofs.checker", None)
    monkeypatch.delattr("thalweg.proofs.checker", raising=False)
    with pytest.raises(InputError, match="pip install python-flint"):
        small.write("nowhere.json")
