"""Kernels: against JAX, alone and in company, where Numba cannot work or cannot write."""

import os
import subprocess
import sys

import equinox as eqx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import thalweg as tw
from thalweg import kernels
from thalweg.dynamics import native
from thalweg.dynamics.descent import descend

OPTIMISERS = [
    tw.optimisers.GradientDescent(),
    tw.optimisers.HeavyBall(0.8),
    tw.optimisers.Nesterov(0.6),
]


def problem(features, outputs, samples, white, seed=0):
    rng = np.random.default_rng(seed)
    if white:
        return tw.TargetMatrix(rng.normal(size=(outputs, features)))
    return tw.Regression(
        rng.normal(size=(samples, features)), rng.normal(size=(samples, outputs)), scale=0.7
    )


def starts(network, runs, seed=1, scale=0.5):
    rng = np.random.default_rng(seed)
    return tuple(scale * rng.normal(size=(runs, *shape)) for shape in network.shapes)


@pytest.fixture
def without_kernels(monkeypatch):
    """Calls what it is given with JAX alone."""

    def call(function, *args, **kwargs):
        with monkeypatch.context() as patch:
            patch.setenv(kernels.SWITCH, "off")
            return function(*args, **kwargs)

    return call


CASES = [
    # widths, outputs of a readout, samples, white, weight decay
    ([1, 1], None, 3, False, 0.0),
    ([3, 1], None, 9, False, 0.0),
    ([5] * 10 + [1], None, 50, False, 0.0),
    ([5, 5, 5, 1], None, 4, False, 0.1),  # fewer samples than features
    ([4, 7, 3, 2], None, 20, False, 0.0),
    ([2, 6, 5, 4], None, 20, False, 0.2),  # more outputs than inputs: turned round
    ([6, 6, 6], None, 0, True, 0.0),
    ([3, 9], None, 0, True, 0.1),
    ([4, 4, 4], 1, 30, False, 0.0),
    ([2, 5, 3], 3, 30, False, 0.3),
    # The widest, beside layers of a tile and a bit: a dense Hessian takes the cube of its size.
    ([32, 5, 32, 6], None, 60, False, 0.0),
    ([5, 64, 6, 1], None, 60, False, 0.0),
]


def case_of(case, runs):
    widths, readout, samples, white, decay = case
    if readout is not None:
        readout = np.random.default_rng(5).normal(size=(widths[-1], readout))
    network = tw.LinearNetwork(widths, readout=readout)
    wanted = problem(widths[0], network.outputs, samples, white)
    weights = starts(network, runs, scale=0.7 / max(widths) ** 0.5)
    return tw.Objective(network, wanted, weight_decay=decay), weights


@pytest.mark.parametrize("optimiser", OPTIMISERS, ids=lambda each: type(each).__name__)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_step_is_that_of_jax(case, optimiser, without_kernels):
    objective, weights = case_of(case, runs=3)
    how = {"learning_rate": np.array([0.01, 0.02, 0.005]), "steps": 12, "optimiser": optimiser}
    ours = descend(objective, weights, **how)
    theirs = without_kernels(descend, objective, weights, **how)
    # One part in 1e13 for each step: a few dozen roundings of numbers of one size.
    for mine, other in zip(ours.weights, theirs.weights, strict=True):
        size = np.abs(other).max()
        np.testing.assert_allclose(mine, other, rtol=0, atol=12 * 1e-13 * size)
    np.testing.assert_allclose(ours.loss, theirs.loss, rtol=12e-13)
    np.testing.assert_array_equal(ours.diverged_at, theirs.diverged_at)


@given(
    st.lists(st.integers(1, 9), min_size=2, max_size=6),
    st.integers(1, 12),
    st.sampled_from(OPTIMISERS),
    st.integers(0, 99),
)
def test_a_run_is_the_same_in_any_company(widths, runs, optimiser, seed):
    """Bit by bit, in any order, and with four lanes or eight."""
    network = tw.LinearNetwork(widths)
    objective = tw.Objective(network, problem(widths[0], widths[-1], 20, False))
    weights = starts(network, runs, seed)
    rates = 0.01 * (1 + np.arange(runs) % 3)
    how = {"steps": 9, "record_every": 4, "optimiser": optimiser}
    together = descend(objective, weights, learning_rate=rates, **how)
    order = np.random.default_rng(seed).permutation(runs)
    mixed = descend(
        objective, tuple(array[order] for array in weights), learning_rate=rates[order], **how
    )
    one = int(order[0])
    alone = descend(
        objective, tuple(array[one] for array in weights), learning_rate=rates[one], **how
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "_MUCH", 0.0)
        many = descend(objective, weights, learning_rate=rates, **how)
    for layer, array in enumerate(together.weights):
        np.testing.assert_array_equal(array[order], mixed.weights[layer])
        np.testing.assert_array_equal(array[one], alone.weights[layer])
        np.testing.assert_array_equal(array, many.weights[layer])
    np.testing.assert_array_equal(together.loss[order], mixed.loss)
    np.testing.assert_array_equal(together.loss, many.loss)


@pytest.mark.parametrize("much", [0.0, np.inf], ids=["eight lanes", "four lanes"])
def test_a_run_that_diverges_leaves_its_neighbours_alone(much, monkeypatch):
    monkeypatch.setattr(native, "_MUCH", much)
    network = tw.LinearNetwork([3, 4, 1])
    objective = tw.Objective(network, problem(3, 1, 20, False))
    weights, rates = starts(network, 11), np.full(11, 0.05)
    rates[[2, 9]] = 1e4
    run = descend(objective, weights, learning_rate=rates, steps=40, record_every=5)
    assert set(np.flatnonzero(run.diverged)) == {2, 9}
    quiet = descend(objective, weights, learning_rate=0.05, steps=40, record_every=5)
    others = np.delete(np.arange(11), [2, 9])
    np.testing.assert_array_equal(run.loss[others], quiet.loss[others])
    for mine, theirs in zip(run.final, quiet.final, strict=True):
        np.testing.assert_array_equal(mine[others], theirs[others])


@pytest.mark.parametrize("case", CASES, ids=str)
def test_both_ends_are_those_of_the_dense_hessian_and_of_jax(case, without_kernels):
    objective, weights = case_of(case, runs=5)
    ours = tw.curvature.spectrum_along(objective, weights)
    theirs = without_kernels(tw.curvature.spectrum_along, objective, weights)
    hessian = eqx.filter_jit(
        objective.hessian
    )  # one function to compile, not each of its forty parts
    for run in range(5):
        dense = np.linalg.eigvalsh(hessian(tuple(array[run] for array in weights)))
        norm = np.abs(dense).max()
        # The error is an estimate that holds, and is what was asked for.
        assert abs(ours.smallest[run] - dense[0]) <= ours.smallest_error[run] <= 1e-6 * norm
        assert abs(ours.largest[run] - dense[-1]) <= ours.largest_error[run] <= 1e-6 * norm
    apart = np.abs(ours.largest - theirs.largest)
    assert (apart <= ours.largest_error + theirs.largest_error).all()


@pytest.mark.parametrize("case", CASES[:10], ids=str)
def test_hessian_products_are_those_of_jax(case):
    """One Lanczos step is <v, H v> and the norm of the rest, which both need all of H v."""
    from thalweg.kernels import spectrum

    objective, weights = case_of(case, runs=3)
    flat = np.concatenate([array.reshape(3, -1) for array in weights], axis=1)
    unit = np.random.default_rng(0).standard_normal(flat.shape[1])
    unit /= np.linalg.norm(unit)
    found, _ = spectrum.ends_at(objective.chain, flat, tolerance=1e-6, first=1, most=1, lanes=4)
    hessian = eqx.filter_jit(objective.hessian)
    for run in range(3):
        dense = np.asarray(hessian(tuple(array[run] for array in weights)))
        image = dense @ unit
        alpha, norm = unit @ image, np.abs(dense).sum()  # which rounding is relative to
        beta = np.linalg.norm(image - alpha * unit)
        np.testing.assert_allclose(found[run, [0, 2]], alpha, rtol=0, atol=1e-12 * norm)
        # The residual of the one value is beta; its width is 0, so that bisection adds nothing.
        np.testing.assert_allclose(found[run, [1, 3]], 4 * beta, rtol=1e-6, atol=1e-11 * norm)


@given(st.lists(st.integers(1, 7), min_size=2, max_size=5), st.integers(2, 12), st.integers(0, 99))
def test_a_spectrum_is_the_same_in_any_company(widths, points, seed):
    network = tw.LinearNetwork(widths)
    objective = tw.Objective(network, problem(widths[0], widths[-1], 20, False))
    weights = starts(network, points, seed)
    together = tw.curvature.spectrum_along(objective, weights)
    order = np.random.default_rng(seed).permutation(points)[: points - 1]
    some = tw.curvature.spectrum_along(objective, tuple(array[order] for array in weights))
    for mine, theirs in zip(together, some, strict=True):
        np.testing.assert_array_equal(mine[order], theirs)


def test_a_point_without_a_spectrum_leaves_its_neighbours_alone():
    network = tw.LinearNetwork([3, 4, 1])
    objective = tw.Objective(network, problem(3, 1, 20, False))
    weights = starts(network, 6)
    quiet = tw.curvature.spectrum_along(objective, weights)
    weights[0][1, 0, 0], weights[1][4, 0, 0] = (
        np.nan,
        1e200,
    )  # not finite, and a Hessian that is not
    path = tw.curvature.spectrum_along(objective, weights)
    assert np.isnan(path.largest[[1, 4]]).all()
    others = [0, 2, 3, 5]
    np.testing.assert_array_equal(path.largest[others], quiet.largest[others])
    np.testing.assert_array_equal(path.smallest_error[others], quiet.smallest_error[others])


def test_an_observed_spectrum_is_that_of_the_recorded_weights():
    network = tw.LinearNetwork([4, 4, 4, 1])
    objective = tw.Objective(network, problem(4, 1, 20, False))
    how = {"learning_rate": 0.02, "steps": 30, "record_every": 7}
    run = descend(objective, starts(network, 9), **how)
    observer = tw.curvature.SpectrumObserver(objective)
    watched = descend(objective, starts(network, 9), observe=observer, **how)
    path = tw.curvature.spectrum_along(objective, run.weights)
    np.testing.assert_array_equal(watched.observed.largest, path.largest)
    np.testing.assert_array_equal(watched.observed.smallest_error, path.smallest_error)


def test_another_depth_or_width_compiles_nothing(compilations):
    """Descent, both ends of the spectrum, and the flow that is validated."""

    def case(*widths):
        network = tw.LinearNetwork(widths)
        objective = tw.Objective(network, problem(widths[0], widths[-1], 20, False))
        return objective, starts(network, 5)

    def all_three(objective, weights):
        run = descend(objective, weights, learning_rate=0.01, steps=5)
        tw.curvature.spectrum_along(objective, weights)
        one = tuple(layer[0] for layer in weights)
        flow = tw.flow(objective, one, times=run.times[0], validate=True)
        assert np.all(flow.radius < 1e-9)

    first, *others = case(3, 2, 1), case(4, 3, 1), case(*[5] * 12, 1), case(2, 7, 3)
    all_three(*first)
    from thalweg.kernels.descent import _advance
    from thalweg.kernels.spectrum import _ends_at

    known = len(_advance.signatures), len(_ends_at.signatures)
    with compilations("") as count:
        for objective, weights in others:
            all_three(objective, weights)
    assert count() == 0
    assert (len(_advance.signatures), len(_ends_at.signatures)) == known


def engine_of(objective, weights, optimiser=OPTIMISERS[0]):
    iteration = native.Iteration(objective, optimiser)
    return native.native_engine(iteration, None, weights, 10)


class Twice(tw.Regression):
    """A loss that derives from ours and is another one."""

    def value_and_gradient(self, matrix):
        value, gradient = super().value_and_gradient(matrix)
        return 2 * value, 2 * gradient


def test_only_what_kernels_know_is_theirs():
    network, squares = tw.LinearNetwork([3, 4, 1]), problem(3, 1, 20, False)
    objective, weights = tw.Objective(network, squares), starts(tw.LinearNetwork([3, 4, 1]), 2)
    assert engine_of(objective, weights) is not None
    single = tuple(np.float32(array) for array in weights)
    assert engine_of(objective, single) is None
    labels = tw.Classification(squares.inputs, np.arange(20) % 2, loss="logistic")
    assert engine_of(tw.Objective(network, labels), weights) is None
    bent = tw.HomogeneousNetwork([3, 4, 1])
    assert engine_of(tw.Objective(bent, squares), weights) is None
    for outputs, widest in ((1, 64), (3, 32)):
        for width in (widest, widest + 1):
            wide = tw.LinearNetwork([3, width, outputs])
            many = tw.Objective(wide, problem(3, outputs, 20, False))
            assert (engine_of(many, starts(wide, 2)) is None) == (width > widest)
    derived = Twice(squares.inputs, squares.targets)
    assert engine_of(tw.Objective(network, derived), weights) is None


def in_a_process(program, **environment):
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


PROGRAM = """
import sys
{before}
import numpy as np
import thalweg as tw
from thalweg import kernels
objective = tw.Objective(tw.LinearNetwork([3, 3, 1]), tw.TargetMatrix([1.0, 2.0, 3.0]))
run = tw.descend(objective, (0.5 * np.eye(3), np.ones((1, 3))), learning_rate=0.1, steps=20)
print(kernels.available(), repr(float(run.loss[-1])), "numba" in sys.modules)
"""


def test_without_numba_jax_does_it():
    """Where it cannot be loaded, and where it is switched off: the same run to rounding."""
    broken = PROGRAM.format(before="sys.modules['numba'] = None")
    outcomes = [
        in_a_process(PROGRAM.format(before="")),
        in_a_process(broken),
        in_a_process(PROGRAM.format(before=""), THALWEG_KERNELS="off"),
    ]
    assert [available for available, _, _ in outcomes] == ["True", "False", "False"]
    assert outcomes[2][2] == "False"
    losses = [float(loss) for _, loss, _ in outcomes]
    np.testing.assert_allclose(losses[1:], losses[0], rtol=20e-13)  # 1e-13 per step


def test_numba_is_loaded_by_a_descent_alone():
    import_alone = "import sys, thalweg; print('numba' in sys.modules)"
    assert in_a_process(import_alone) == ["False"]


def test_no_place_to_write_is_no_reason_not_to_work(monkeypatch):
    """Numba then refuses to cache; the kernel is compiled for this process alone."""
    from numba.core import caching

    from thalweg.kernels.compiling import kernel

    monkeypatch.setattr(caching.CacheImpl, "_locator_classes", [])
    with pytest.raises(RuntimeError, match="no locator"):
        caching.FunctionCache(in_a_process)
    assert kernel(_twice)(3) == 6


def _twice(number):
    return 2 * number
