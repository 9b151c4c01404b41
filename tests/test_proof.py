"""Proofs in ball arithmetic: made here, checked by a file that stands alone."""

import copy
import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flint import arb, arb_mat, ctx
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.integrate import quad, solve_ivp

import thalweg as tw
from thalweg import InputError, initialisation
from thalweg.curvature import ball_bounds
from thalweg.dynamics import Descent
from thalweg.tubes import checker
from thalweg.tubes.proof import Proof, prove

FLOW = {"rtol": 1e-11, "atol": 1e-13}
FLOW_ERROR = 1e-9  # what the flows of these tests, at those tolerances, are within


class Plain:
    """The objective of a regression in NumPy: an oracle, and descents that need no compiling."""

    def __init__(self, widths, outputs=None, decay=0.0, condition=1.0, samples=9):
        rng = np.random.default_rng(0)
        self.widths, self.decay = widths, decay
        self.readout = None if outputs is None else rng.normal(size=(widths[-1], outputs))
        wanted = widths[-1] if outputs is None else outputs
        self.x = rng.normal(size=(samples, widths[0])) * np.geomspace(1, condition**-0.5, widths[0])
        self.y = self.x @ rng.normal(size=(widths[0], wanted)) + rng.normal(size=(samples, wanted))
        self.start = 0.5 * rng.normal(size=sum(a * b for a, b in pairwise(widths)))

    def layers(self, point):
        ends = np.cumsum([a * b for a, b in pairwise(self.widths)])[:-1]
        shapes = [(b, a) for a, b in pairwise(self.widths)]
        return [w.reshape(s) for w, s in zip(np.split(point, ends), shapes, strict=True)]

    def gradient(self, point):
        layers = self.layers(point)
        factors = layers if self.readout is None else [*layers, self.readout.T]
        outputs = [self.x.T]
        for factor in factors:
            outputs.append(factor @ outputs[-1])
        error, slopes = 2 * 0.7 / len(self.x) * (outputs[-1] - self.y.T), []
        for factor, before in zip(reversed(factors), reversed(outputs[:-1]), strict=True):
            slopes.append(error @ before.T)
            error = factor.T @ error
        flat = [slope.ravel() for slope in slopes[::-1][: len(layers)]]
        return np.concatenate(flat) + self.decay * point

    def hessian(self, point):
        """By complex steps, which lose no digits."""
        steps = 1e-30j * np.eye(point.size)
        return np.array([self.gradient(point + step).imag / 1e-30 for step in steps])

    def run(self, rate=0.02, steps=30, noise=0.0):
        """A descent, whose points may be disturbed."""
        points = [self.start]
        for _ in range(steps):
            points.append(points[-1] - rate * self.gradient(points[-1]))
        points = np.array(points)
        points[1:] += noise * np.random.default_rng(1).normal(size=points[1:].shape)
        network = tw.LinearNetwork(self.widths, self.readout)
        weights = [np.array(w) for w in zip(*map(self.layers, points), strict=True)]
        return Descent(
            objective=tw.Objective(network, tw.Regression(self.x, self.y, 0.7), self.decay),
            learning_rate=np.asarray(rate),
            steps=np.arange(steps + 1),
            times=rate * np.arange(steps + 1),
            weights=tuple(weights),
            loss=np.zeros(steps + 1),
            observed=None,
            divergence_step=np.asarray(-1),
            _final=tuple(w[-1] for w in weights),
        )

    def gap(self, run, start=None):
        """The distance from the flow, by SciPy."""
        flow = solve_ivp(
            lambda _, point: -self.gradient(point),
            (0, run.times[-1]),
            self.start if start is None else start,
            "DOP853",
            run.times,
            rtol=1e-12,
            atol=1e-13,
        )
        points = np.concatenate([w.reshape(run.times.size, -1) for w in run.weights], axis=1)
        return np.linalg.norm(points - flow.y.T, axis=1)


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


def verdict_on(content, folder):
    """The checker's verdict, the digest being made to fit."""
    path = folder / "tampered.json"
    path.write_text(json.dumps({**content, "sha256": checker.digest(content)}))
    return checker.check(path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("proofs")


@pytest.fixture(scope="module")
def small():
    """A regression with a readout and decay, three steps."""
    return prove(Plain([3, 2, 2], outputs=2, decay=0.1, samples=4).run(steps=3), 1e-6)


@pytest.fixture(scope="module")
def small_file(small, folder):
    small.write(folder / "small.json")
    return folder / "small.json"


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


CASES = {
    "depth 1": {"widths": [3, 2]},
    "several outputs": {"widths": [3, 4, 2]},
    "readout": {"widths": [3, 3, 4], "outputs": 2},
    "one output": {"widths": [3, 2, 2], "outputs": 1},
    "decay": {"widths": [3, 2, 2], "decay": 0.3},
    "ill-conditioned": {"widths": [3, 2, 2], "condition": 1e10},
    "depth 4": {"widths": [3, 2, 3, 2, 2]},
}


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


def leaves(node, path=()):
    """The paths to all numbers of a content."""
    if isinstance(node, str):
        return [path] if path[-1] not in ("format", "kind") else []
    if node is None or isinstance(node, int):
        return []
    items = node.items() if isinstance(node, dict) else enumerate(node)
    return [leaf for key, child in items for leaf in leaves(child, (*path, key))]


def changed(content, path, change):
    tampered = copy.deepcopy(content)
    node = tampered
    for key in path[:-1]:
        node = node[key]
    node[path[-1]] = change(node[path[-1]])
    return tampered


def times(factor):
    """Multiply a number, or make a zero different."""

    def change(text):
        number = float.fromhex(text)
        return (number * factor if number else factor - 1).hex()

    return change


def test_every_number_matters(small, folder):
    """A change of any number by a thousandth, with a new digest, leaves something unproven."""
    paths = [path for path in leaves(small.content) if path[0] != "hints"]
    assert len(paths) > 100
    # A larger upper bound, a smaller lower bound and the hint at the moment's norm claim no more;
    # the radius of the last step is not used if it is smaller than what is claimed, and so on: the
    # direction that claims more is the one tried.
    down = {"upper", "radii"}
    for path in paths:
        if path[:2] == ("loss", "norm"):
            continue
        factor = 0.999 if path[0] in down else 1.001
        verdict = verdict_on(changed(small.content, path, times(factor)), folder)
        assert not verdict.accepted, path
        assert verdict.reason.endswith("."), verdict


@pytest.mark.parametrize("factor", [1.001, 0.999, 0.0, 1e150])
def test_hints_are_never_trusted(small, folder, factor):
    """With a wrong hint the same claims are either proven all the same, or refused."""
    paths = [path for path in leaves(small.content) if path[0] == "hints" or path[-1] == "norm"]
    verdicts = [verdict_on(changed(small.content, path, times(factor)), folder) for path in paths]
    assert not all(verdict.accepted for verdict in verdicts)
    # Nothing stronger is ever accepted: the claims are those of the true proof.
    assert {v.largest_upper for v in verdicts if v.accepted} <= {small.upper.max()}


def test_a_guess_that_the_flow_may_leave_is_refused(small, folder):
    for k in range(3):
        verdict = verdict_on(changed(small.content, ("hints", k, "within"), times(0.1)), folder)
        assert f"in step {k} the flow is not proven to stay" in verdict.reason


def test_a_last_unit_in_a_claim_is_seen(small, folder):
    """The bounds are rounded outwards to the next double, so that one unit less is refused."""

    def next_below(text):
        return np.nextafter(float.fromhex(text), 0).item().hex()

    def next_above(text):
        return np.nextafter(float.fromhex(text), 1).item().hex()

    for name, change in (("upper", next_below), ("radii", next_below), ("lower", next_above)):
        for k in range(4):
            if name == "lower" and small.lower[k] == 0:
                continue
            assert not verdict_on(changed(small.content, (name, k), change), folder).accepted


@given(st.integers(0, 10**9), st.integers(1, 255))
def test_a_changed_byte_is_refused(small_file, position, flip):
    raw = bytearray(small_file.read_bytes()[:-1])
    raw[position % len(raw)] ^= flip
    path = small_file.parent / "byte.json"
    path.write_bytes(bytes(raw))
    assert not checker.check(path).accepted


NUMBER = "must be a finite number as written by float.hex"
HOSTILE = {
    "nan radius": (("radii", 1), "nan", NUMBER),
    "infinite guess": (("hints", 0, "within"), "inf", NUMBER),
    "zero guess": (("hints", 0, "within"), "0x0.0p+0", "must be positive"),
    "decimal number": (("upper", 0), "1e400", NUMBER),
    "overflowing number": (("upper", 0), "0x1.0p+5000", NUMBER),
    "not canonical": (("upper", 0), " 0x1.0p+0", NUMBER),
    "plain number": (("upper", 0), 1, NUMBER),
    "truth": (("upper", 0), True, NUMBER),
    "a list for a number": (("scale",), ["0x1.0p+0"], "nothing else"),
    "negative radius": (("radii", 0), (-1.0).hex(), "at least 0"),
    "negative rate": (("learning_rate",), (-0.01).hex(), "must be positive"),
    "no rate": (("learning_rate",), "0x0.0p+0", "must be positive"),
    "negative decay": (("weight_decay",), (-0.01).hex(), "at least 0"),
    "negative scale": (("loss", "scale"), (-1.0).hex(), "must be positive"),
    "negative start": (("start_distance",), (-1.0).hex(), "at least 0"),
    "no steps": (("hints",), [], "hints must be a list"),
    "steps are no list": (("hints",), {}, "hints must be a list"),
    "a step is no dictionary": (("hints", 1), [], "must hold within"),
    "no layers": (("network", "widths"), [2], "at least two"),
    "no widths": (("network", "widths"), [], "widths must be a list"),
    "true widths": (("network", "widths"), [3, True, 2], "whole numbers"),
    "negative widths": (("network", "widths"), [-3, 2, -2], "whole numbers"),
    "other widths": (("network", "widths"), [3, 1, 2], "list of 5 entries"),
    "enormous widths": (("network", "widths"), [10**4000, 10**4000, 2], "."),
    "short point": (("points", 2), ["0x0.0p+0"], "list of 10 entries"),
    "no readout columns": (("network", "readout"), [[], []], "one or more"),
    "ragged readout": (("network", "readout"), [["0x0.0p+0"], []], "list of 1 entries"),
    "no samples": (("loss", "inputs"), [], "one or more"),
    "fewer targets": (("loss", "targets"), [["0x0.0p+0"] * 2], "list of 4 entries"),
    "other loss": (("loss", "kind"), "logistic", "target or regression"),
    "no loss": (("loss",), None, "nothing else"),
    "other format": (("format",), "thalweg proof 2", "format"),
}


@pytest.mark.parametrize(("path", "value", "reason"), HOSTILE.values(), ids=HOSTILE)
def test_hostile_values_are_refused(small, folder, path, value, reason):
    verdict = verdict_on(changed_or_new(small.content, path, value), folder)
    assert not verdict.accepted
    assert reason in verdict.reason
    assert str(verdict).startswith("rejected: ")
    assert "\n" not in str(verdict)


def changed_or_new(content, path, value):
    tampered = copy.deepcopy(content)
    node = tampered
    for key in path[:-1]:
        node = node[key]
    node[path[-1]] = value
    return tampered


@pytest.mark.parametrize("name", ["points", "corrections", "radii", "lower", "upper", "hints"])
@pytest.mark.parametrize("edit", ["missing", "extra", "swapped", "absent"])
def test_steps_are_complete_and_in_order(small, folder, name, edit):
    content = copy.deepcopy(small.content)
    rows = content[name]
    if edit == "missing":
        del rows[2]
    elif edit == "extra":
        rows.append(rows[-1])
    elif edit == "swapped":
        rows[0], rows[-1] = rows[-1], rows[0]
    else:
        del content[name]
    assert content != small.content
    assert not verdict_on(content, folder).accepted


TEXTS = {
    "empty": b"",
    "not JSON": b"proof",
    "not text": b"\xff\xfe\x00",
    "a list": b"[]",
    "a number": b"1",
    "NaN": b'{"radii": NaN}',
    "a float": b'{"radii": 1e400}',
    "twice": b'{"format": "thalweg proof 1", "format": "thalweg proof 1"}',
    "deep": b"[" * 100_000,
    "long integer": b'{"widths": ' + b"9" * 5000 + b"}",
}


@pytest.mark.parametrize("raw", TEXTS.values(), ids=TEXTS)
def test_what_is_no_proof_is_refused(raw, folder):
    path = folder / "text.json"
    path.write_bytes(raw)
    verdict = checker.check(path)
    assert not verdict.accepted
    assert verdict.reason
    with pytest.raises(InputError, match="holds no proof"):
        Proof.read(path)


def test_a_key_that_appears_twice_is_refused(small_file, folder):
    text = small_file.read_text()
    path = folder / "twice.json"
    path.write_text(text.replace('"weight_decay":', '"weight_decay":"0x0.0p+0","weight_decay":', 1))
    assert "twice" in checker.check(path).reason


def test_numbers_of_any_size_are_refused_in_peace(small, folder):
    """Balls do not overflow, and what doubles make of them is no more than a hint."""
    no_more = ("hints", "upper", "loss")  # where a huge number need not claim anything
    for path in leaves(small.content):
        if path[0] in ("points", "corrections") and path[1:] > (1, 1):
            continue
        verdict = verdict_on(changed_or_new(small.content, path, (1e308).hex()), folder)
        assert not verdict.accepted or path[0] in no_more, path


def test_the_checker_stands_alone(small_file, folder):
    """A copy runs without this package, and imports nothing but FLINT beyond the library."""
    alone = folder / "alone.py"
    source = Path(checker.__file__).read_text()
    spy = "print(sorted({n.split('.')[0] for n in sys.modules} - set(sys.stdlib_module_names)))"
    alone.write_text(source.replace("sys.exit(main(", f"{spy}\n    sys.exit(main("))
    done = subprocess.run(
        [sys.executable, "-I", alone, small_file], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    for other in ("thalweg", "numpy", "jax", "scipy"):
        assert f"'{other}'" not in done.stdout
    assert "'flint'" in done.stdout
    assert "proven: linear network 3-2-2" in done.stdout


def test_the_exit_codes(small, small_file, folder, capsys):
    assert checker.main([str(small_file)]) == 0
    verdict_on(changed_or_new(small.content, ("radii", 1), "0x0.0p+0"), folder)
    assert checker.main([str(folder / "tampered.json")]) == 1
    assert checker.main([str(folder / "nowhere.json")]) == 2
    assert checker.main([]) == 2
    assert "rejected: the radius after step 0" in capsys.readouterr().out


# The bounds of linear algebra, each against NumPy.


def in_balls(matrix):
    return arb_mat(np.asarray(matrix, float).tolist())


def matrix_of(seed, rows, columns, spread):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(rows, columns)) * np.geomspace(1, spread, columns)


SEEDS, SIZES = st.integers(0, 10**6), st.integers(1, 6)
SPREADS = st.sampled_from([1.0, 1e-3, 1e-9])


@given(SEEDS, SIZES, SPREADS, st.floats(-2, 2))
@example(0, 4, 1.0, 0.5)
def test_the_smallest_eigenvalue_is_bounded_from_below(seed, size, spread, error):
    """For hints on both sides; a good hint is hardly lost."""
    matrix = matrix_of(seed, size, size, spread)
    matrix = matrix + matrix.T
    values = np.linalg.eigvalsh(matrix)
    scale = np.abs(values).max()
    for hint, good in ((values[0] - 1e-12 * scale, True), (values[0] + error * scale, False)):
        with ctx.workprec(checker.PRECISION):
            balls = in_balls(matrix) - arb(float(hint)) * checker.identity(size)
            bound = hint + float(checker.least(balls))
        assert bound <= values[0] + 1e-14 * size * scale  # eigvalsh is good to that
        if good:
            assert bound >= values[0] - 2e-12 * scale


@given(SEEDS, SIZES, SIZES, SPREADS, st.floats(0, 3))
@example(0, 3, 3, 0.0, 0.0)
@example(0, 3, 4, 1.0, 0.5)
def test_the_spectral_norm_is_bounded_from_above(seed, rows, columns, spread, error):
    matrix = matrix_of(seed, rows, columns, spread) if spread else np.zeros((rows, columns))
    exact = np.linalg.norm(matrix, 2)
    with ctx.workprec(checker.PRECISION):
        good, bad = (
            float(checker.spectral_norm(in_balls(matrix), float(hint)))
            for hint in (exact * (1 + 1e-12), exact * error)
        )
    assert exact * (1 - 1e-14) <= good <= exact * (1 + 2e-12)
    assert exact * (1 - 1e-14) <= bad <= np.linalg.norm(matrix) * (1 + 1e-14)


@given(SEEDS, SIZES, st.sampled_from([1.0, 1e-3, 1e-12]))
def test_the_largest_eigenvalue_of_nonnegative_matrices(seed, size, spread):
    matrix = np.abs(matrix_of(seed, size, size, spread))
    matrix = matrix + matrix.T - 2 * np.diag(np.diag(matrix))
    exact = np.linalg.eigvalsh(matrix)[-1]
    with ctx.workprec(checker.PRECISION):
        bound = float(checker.largest(in_balls(matrix).tolist()))
    assert bound >= exact * (1 - 1e-14)
    # Power iteration has converged, unless the matrix nearly falls into parts.
    assert spread < 1 or bound <= exact * (1 + 1e-6) + 1e-300


@given(st.floats(0, 30))
def test_the_phi_functions_are_their_integrals(x):
    """Oracle: quadrature of the definition, which is good to 1e-12; the width is the remainder."""
    with ctx.workprec(checker.PRECISION):
        found = checker.phi(arb(x))
    for order, ball in enumerate(found, 1):
        factor = [1, 1, 2][order - 1]
        exact = quad(lambda u, k=order, f=factor: np.exp((1 - u) * x) * u ** (k - 1) / f, 0, 1)[0]
        slack = 1e-11 * exact
        assert float(ball.lower()) - slack <= exact <= float(ball.upper()) + slack
        if x < 1:
            assert float(ball.rad()) < 1e-25


def place_of(plain):
    """The checker's view of the start."""
    content = prove(plain.run(steps=1, rate=1e-4)).content
    claim = checker.parse(json.dumps({**content, "sha256": checker.digest(content)}).encode())
    return checker.Place(checker.Objective(claim.problem), claim.points[0], claim.hints[0])


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_derivatives_are_enclosed(case):
    """Oracles: backpropagation, complex steps and eigenvalues in NumPy; equal up to rounding."""
    plain = Plain(**case)
    with ctx.workprec(checker.PRECISION):
        place = place_of(plain)
    gradient = [float(x) for x in place.gradient.entries()]
    hessian = [[float(x) for x in row] for row in place.hessian.tolist()]
    wanted = plain.hessian(plain.start)
    np.testing.assert_allclose(gradient, plain.gradient(plain.start), rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(hessian, wanted, rtol=1e-12, atol=1e-13)
    smallest = np.linalg.eigvalsh(wanted)[0]
    assert smallest - 1e-10 <= float(place.smallest) <= smallest + 1e-13


def test_bounds_on_balls_are_those_in_double_precision():
    plain = Plain([3, 3, 3, 3, 3], outputs=2)
    run, bounds = plain.run(steps=1, rate=1e-4), jax.jit(ball_bounds)
    weights = tuple(map(jnp.asarray, plain.layers(plain.start)))
    for radius in (0.0, 0.1, 1.0):
        with ctx.workprec(checker.PRECISION):
            change, first, second = map(float, place_of(plain).ball(arb(radius)))
        known = bounds(run.objective, weights, radius)
        # Hints lie 1e-12 above, and the power iteration may end a little above.
        np.testing.assert_allclose(change, known.hessian_lipschitz, rtol=1e-8)
        np.testing.assert_allclose(first, known.product_first, rtol=1e-10)
        np.testing.assert_allclose(second, known.product_second, rtol=1e-8)


@pytest.fixture(scope="module")
def place():
    with ctx.workprec(checker.PRECISION):
        return place_of(Plain([3, 2, 3, 2]))


@given(SEEDS, st.floats(0, 1))
def test_bounds_on_balls_hold(place, seed, radius):
    """The Hessian, at points of the ball, differs by no more than L times the distance."""
    with ctx.workprec(checker.PRECISION):
        change = float(place.ball(arb(radius))[0])
    plain, rng = Plain([3, 2, 3, 2]), np.random.default_rng(seed)
    away = rng.normal(size=plain.start.size)
    away *= radius / np.linalg.norm(away)
    bent = plain.hessian(plain.start + away) - plain.hessian(plain.start)
    assert np.linalg.norm(bent, 2) <= change * radius * (1 + 1e-12)


@pytest.mark.parametrize("factor", [0.0, 0.5, 0.999, 2.0])
def test_bounds_hold_whatever_the_hints(factor):
    """Oracle: NumPy's eigenvalues and norms, to rounding."""
    plain = Plain([3, 2, 3, 2], outputs=2)
    lowest = np.linalg.eigvalsh(plain.hessian(plain.start))[0]
    with ctx.workprec(checker.PRECISION):
        place = place_of(plain)
        exact = {key: np.linalg.norm(floats(each), 2) for key, each in place.products.items()}
        slope = np.linalg.norm(floats(place.slope_matrix), 2)
        norms = [float(factor * exact[key]) for key in [*exact] if key[0] < key[1]]
        hint = checker.Hint(1.0, float(lowest + factor), [*norms, factor], float(factor * slope))
        place.measure(hint)
    assert float(place.smallest) <= lowest + 1e-13
    assert float(place.slope) >= slope * (1 - 1e-14)
    for key, bound in place.norms.items():
        assert float(bound) >= exact[key] * (1 - 1e-14)


def floats(matrix):
    return np.array([[float(x) for x in row] for row in matrix.tolist()])


@pytest.mark.parametrize(
    ("size", "lowest"), [(0.01, 0.0), (0.3, 0.0), (0.01, None), (0.01, 50.0), (0.01, -50.0)]
)
def test_one_step_is_the_formula(place, size, lowest):
    """Oracle: the bounds in NumPy, with phi_j as integrals; L, d1 and d2 are tested above."""
    plain, rate, radius, within, norm = Plain([3, 2, 3, 2]), 0.03, 0.02, 0.05, np.linalg.norm
    c = size * np.cos(np.arange(plain.start.size))
    g, matrix = plain.gradient(plain.start), plain.hessian(plain.start)
    bent, turned = matrix @ g, matrix @ c
    speed = norm(g) + rate / 2 * norm(bent) + norm(turned)
    with ctx.workprec(checker.PRECISION):
        balls = [place.ball(arb(norm(c) + rate * speed + b)) for b in (0.0, within)]
        step = checker.Step(place, checker.column(c.tolist()), arb(rate))
        smallest, place.smallest = place.smallest, None if lowest is None else arb(lowest)
        found = [float(x) for x in step.grown(arb(radius), arb(within))]
        place.smallest = smallest
    (near, _, _), (change, first, second) = (map(float, ball) for ball in balls)
    slope, bend = float(place.slope), float(place.bend)

    def exponent(time):
        away = norm(c) + time * speed + within / 2
        by_norms = (slope + bend * first * away) * second
        return by_norms if lowest is None else min(change * away - lowest, by_norms)

    q = (
        near * norm(c) ** 2 / 2,
        norm(matrix @ turned) + near * norm(c) * speed,
        norm(matrix @ bent) + near * speed**2,
    )
    steepest = max(0.0, exponent(rate))
    added = sum(
        quad(lambda s, j=j: np.exp(steepest * (rate - s)) * q[j] * s**j / (1, 1, 2)[j], 0, rate)[0]
        for j in range(3)
    )
    wanted = [np.exp(m * rate) * radius + added for m in (steepest, exponent(rate / 2))]
    np.testing.assert_allclose(found, wanted, rtol=1e-9)  # the hints' 1e-12, and rounding
    curve = [float(x) for x in step.correction.entries()]
    np.testing.assert_allclose(curve, c - rate * turned + rate**2 / 2 * bent, rtol=1e-12)
    wander = norm(c) + rate * norm(turned) + rate**2 / 2 * norm(bent)
    assert float(step.wander) == pytest.approx(wander, rel=1e-12)


def test_comparisons_are_certain():
    """What the checker rests on: an undecided or senseless comparison is false."""
    wide, nan = arb(1, 0.1), arb("nan")
    assert not wide < 1.05
    assert not wide >= 1.05
    assert not any((nan < 1, nan <= 1, nan > 1, nan >= 1))
    assert wide.upper() >= wide
    assert checker.smaller(nan, arb(1)) == 1
    assert checker.smaller(arb(1), nan) == 1
    assert checker.bigger(nan, arb(1)).is_nan()
    assert checker.bigger(arb(1), nan).is_nan()
    assert checker.rounded_up(nan) == np.inf
    assert checker.rounded_up(arb(1) / 3) >= arb(1) / 3
    assert checker.rounded_up(arb(2) ** -1100) > 0


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
    with pytest.raises(InputError, match=r"thalweg\[rigorous\]"):
        small.write("nowhere.json")


def test_what_is_printed_is_proven_too():
    """Bounds are rounded up; what is assumed is not rounded."""
    said = str(
        checker.Checked(
            True, "", time=0.99999999, start_distance=0.0999999999, largest_upper=0.12345649,
            ratio=1.00001, between=0.2, largest_jump=1.49e-16,
        )
    )  # fmt: skip
    for words in ("time 0.99999999\n", "within 0.0999999999 of", "within 0.123457 of",
                  "(1.001 times", "up to 2e-16"):  # fmt: skip
        assert words in said
