"""The studies of elkabetz2021 at their quick size: whole, resumed, drawn, and able to fail."""

import warnings
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr

from thalweg import data, initialisation
from thalweg.certificates import Verdict
from thalweg.network import max_pooling_network, strided_network
from thalweg.objective import Objective
from thalweg.problem import Classification
from thalweg.studies import Outcome, Size, conduct
from thalweg.studies.elkabetz2021_common import (
    apart,
    extrapolated,
    from_start,
    long_descent,
    problem,
    start,
)
from thalweg.studies.elkabetz2021_convolutions import (
    fast_max_pooling_network,
    fast_strided_network,
)
from thalweg.studies.elkabetz2021_curvature import Curvature
from thalweg.studies.elkabetz2021_fig1 import Figure1
from thalweg.studies.elkabetz2021_fig2 import Figure2
from thalweg.studies.elkabetz2021_fig3 import Figure3
from thalweg.studies.elkabetz2021_potentials import hill, ridge
from thalweg.studies.elkabetz2021_rates import Reference, in_one_unit, next_to_plots
from thalweg.studies.parts import Parts
from thalweg.studies.study import AbstractStudy

Tampering = Callable[[xr.Dataset], xr.Dataset]


def _conducted(study: type[AbstractStudy], out: Path) -> Outcome:
    shares: list[float] = []
    outcome = conduct(study, Size.QUICK, out, lambda stage, share: shares.append(share))
    assert shares == sorted(shares)
    assert shares[-1] == 1
    return outcome


def _fixture(study: type[AbstractStudy]) -> Callable[..., Outcome]:
    @pytest.fixture(scope="module")
    def conducted(
        request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
    ) -> Outcome:
        with pytest.MonkeyPatch.context() as patch:
            if study.needs:
                patch.setenv("THALWEG_DATA", str(request.getfixturevalue("mnist_path")))
            return _conducted(study, tmp_path_factory.mktemp(study.name))

    return conducted


fig1, fig2, fig3, curvature = map(_fixture, (Figure1, Figure2, Figure3, Curvature))

_TAMPERINGS: dict[str, tuple[Tampering, ...]] = {
    "fig1": (
        lambda r: r.assign(
            drift=100 * r.drift, loss=r.loss * r.divisor,
            true_distance=r.travelled + 0 * r.true_distance,
        ),
        lambda r: r.assign(drift=0 * r.drift + 1 / r.divisor),
        lambda r: r.assign(true_distance=r.true_distance.max() + 0 * r.true_distance),
        lambda r: r.assign(true_distance=1e-3 * r.true_distance, flow_error=r.true_distance),
    ),
    "fig2": (
        lambda r: r.assign(
            largest_jump=1e-300, least_curvature=1.1, least_value=-0.1, slope_gap=1e-3,
            shrink=0 * r.shrink, part=0 * r.part, largest_rate=r.failing_rate**2,
        ),
    ),
    "fig3": (
        lambda r: r.assign(drift=100 * r.drift, loss=r.loss * r.divisor),
        lambda r: r.assign(drift=0 * r.drift + 1 / r.divisor),
        lambda r: r.assign(to_flow=r.to_flow.max() + 0 * r.to_flow),
        lambda r: r.assign(one_unit=r.one_unit.where(r.iteration > 0)),
    ),
    "curvature": (
        lambda r: r.assign(
            lemma=r.smallest / 2, sharper=r.smallest / 2, proposition=r.smallest / 2,
            elsewhere=r.elsewhere.isel(factor=0) + 0 * r.elsewhere, flow_error=1.0,
        ),
    ),
}  # fmt: skip
_STUDIES = {"fig1": Figure1, "fig2": Figure2, "fig3": Figure3, "curvature": Curvature}


@pytest.fixture(params=list(_STUDIES))
def named(request: pytest.FixtureRequest) -> tuple[str, Outcome]:
    """Each study, conducted once."""
    return request.param, request.getfixturevalue(request.param)


def _results(outcome: Outcome) -> xr.Dataset:
    return xr.open_zarr(outcome.folder / "results.zarr", chunks=None).load()


def test_every_finding_of_the_quick_study_is_confirmed(named):
    _, outcome = named
    assert outcome.confirmed, [finding.row() for finding in outcome.findings]
    assert {picture.suffix for picture in outcome.pictures} == {".png"}
    assert all(picture.stat().st_size > 5000 for picture in outcome.pictures)


def test_every_finding_fails_under_some_tampering(named):
    name, outcome = named
    study, results = _STUDIES[name].of_size(Size.QUICK), _results(outcome)
    failed = np.zeros(len(outcome.findings), bool)
    for tampering in _TAMPERINGS[name]:
        found = study.findings(tampering(results))
        failed |= [finding.verdict is Verdict.VIOLATED for finding in found]
    assert failed.all(), [
        f.statement for f, gone in zip(outcome.findings, failed, strict=True) if not gone
    ]
    nothing = study.findings(results * np.nan)
    assert not any(finding.verdict is Verdict.CONFIRMED for finding in nothing)


def test_pictures_are_drawn_without_warnings(named):
    name, outcome = named
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pictures = _STUDIES[name].of_size(Size.QUICK).draw(_results(outcome))
    for figure in pictures.values():
        assert figure.axes
        assert all(panel.get_title("left") or panel.get_xlabel() for panel in figure.axes)


def test_a_finished_study_is_not_computed_again(fig2, monkeypatch):
    monkeypatch.setattr(Figure2, "compute", lambda *_: pytest.fail("computed twice"))
    assert conduct(Figure2, Size.QUICK, fig2.folder.parent).confirmed


@pytest.fixture
def small(mnist_path, monkeypatch) -> Objective:
    """Ten images under the adapted network, in double precision."""
    monkeypatch.setenv("THALWEG_DATA", str(mnist_path))
    return Objective(fast_strided_network(), problem(10, "random", "float64"))


def test_a_long_descent_goes_on_where_it_was_killed(small, tmp_path):
    """Oracle: the same run in one piece; the pieces differ from it by rounding at most."""
    weights = start(small.network, 0, "xavier", "float64")
    settings = {"divisor": 2, "iterations": 12, "record_every": 2}
    done: list[int] = []
    parts = Parts(tmp_path, "settings")

    def killed(steps: int) -> None:
        done.append(steps)
        if len(done) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        long_descent(parts, "run", small, weights, piece=8, note=killed, **settings)
    kept = {place: place.stat().st_mtime_ns for place in tmp_path.rglob("*.npz")}
    assert len(kept) == 2
    pieces = long_descent(parts, "run", small, weights, piece=8, note=done.append, **settings)
    assert all(place.stat().st_mtime_ns == then for place, then in kept.items())
    assert done == [8, 8, 8, 8, 8]
    other = Parts(tmp_path, "others")
    whole = long_descent(other, "run", small, weights, piece=24, note=done.append, **settings)
    assert done[-1] == 24
    np.testing.assert_allclose(pieces.loss, whole.loss, rtol=1e-12)
    assert apart(pieces.weights, whole.weights).max() < 1e-12
    assert from_start(whole.weights)[-1] > 1e-4


@pytest.mark.parametrize(
    ("fast", "plain"),
    [
        (fast_strided_network, strided_network),
        (fast_max_pooling_network, max_pooling_network),
    ],
)
def test_fast_convolutions_are_those_of_the_package(fast, plain):
    """Oracle: XLA's own convolution, values and gradients; sums of 400 terms round to 1e-13."""
    keys = jax.random.split(jax.random.key(0), 2)
    x, labels = jax.random.normal(keys[0], (6, 784)), jnp.arange(6)
    weights = initialisation.pytorch_default(plain(), key=keys[1])
    task = Classification(x, labels, classes=10)
    found, wanted = (
        eqx.filter_jit(Objective.value_and_gradient)(Objective(network, task), weights)
        for network in (fast(), plain())
    )
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-13)
    singles = tuple(jnp.asarray(array, jnp.float32) for array in weights)
    assert fast()(singles, jnp.asarray(x, jnp.float32)).dtype == jnp.float32


def test_of_equal_entries_of_a_pooling_window_one_alone_has_the_gradient():
    """On images of one colour all are equal, and the derivative is that of each."""
    network, image = fast_max_pooling_network(), jnp.full((1, 784), 0.7)
    weights = initialisation.pytorch_default(network, key=jax.random.key(3))
    steps = jax.tree.map(lambda array: jax.random.normal(jax.random.key(1), array.shape), weights)

    @jax.jit  # or each of its operations, and of its derivative's, is compiled by itself
    def along(size):
        moved = jax.tree.map(lambda array, step: array + size * step, weights, steps)
        return jnp.sum(network(moved, image))

    by_differences = (along(1e-6) - along(-1e-6)) / 2e-6
    # The second difference is of order 1e-12 / 1e-6, rounding of 1e-16 / 1e-6.
    np.testing.assert_allclose(jax.grad(along)(0.0), by_differences, rtol=1e-6)


def test_extrapolation_is_exact_for_runs_that_approach_linearly():
    flow, slope = np.array([[1.0, 2.0]]), np.array([[3.0, -5.0]])
    coarse, fine = ((flow + slope / r,) for r in (2, 5))
    np.testing.assert_allclose(extrapolated(coarse, fine, (2, 5))[0], flow, rtol=1e-14)


def test_a_distance_may_be_that_of_one_unit():
    """Two records of a filter bank and of a dense layer; nothing differs at the first."""
    one = (np.zeros((2, 3, 1, 2, 2)), np.zeros((2, 4, 5)))
    other = tuple(array.copy() for array in one)
    other[0][1, 2] = 0.5  # four weights: a square of 1
    other[1][1, 3, :2] = 1.0  # two weights into one unit: 2
    other[1][1, 0, 0] = 1.0  # and one into another: 1
    np.testing.assert_allclose(in_one_unit(one, other), [0.0, 0.5])


def test_the_code_variant_takes_every_fiftieth_image(mnist_path, monkeypatch):
    monkeypatch.setenv("THALWEG_DATA", str(mnist_path))
    chosen = problem(3, "every 50th", "float64")
    np.testing.assert_array_equal(chosen.inputs, data.mnist(images=[0, 50, 100]).x)
    few, many = (problem(count, "random", "float64") for count in (3, 5))
    np.testing.assert_array_equal(few.inputs, many.inputs[:3])


def test_the_code_variant_starts_kernels_as_pytorch_does():
    network = fast_max_pooling_network()
    by_text, by_code = (start(network, 0, kind, "float64") for kind in ("xavier", "pytorch"))
    assert np.all(by_text[1] == 0)
    assert np.abs(by_code[1]).max() <= 1 / 5
    assert np.abs(by_code[1]).max() > 0
    assert np.abs(by_code[2]).max() <= 150**-0.5 < np.abs(by_text[2]).max()
    np.testing.assert_array_equal(by_text[4], by_code[4])


def test_differences_to_the_plots_are_found():
    """Oracle: a run that is 10 % longer and has a loss higher by 0.2 at the second mark."""
    reference = Reference({0: 0.0, 1: 2.0, 2: 3.0}, {0: 5.0, 1: 1.0, 2: 0.5})
    results = xr.Dataset(
        {
            "travelled": ("iteration", [0.0, 2.2, 3.0]),
            "loss": (("divisor", "iteration"), [[9.0, 1.0, 0.7]]),
        },
        coords={"iteration": [0, 1, 2], "divisor": [1], "network": "some"},
    )
    way, loss = next_to_plots(results, reference)
    assert way.measured == pytest.approx(0.1)
    assert loss.measured == pytest.approx(0.2)
    assert way.verdict is Verdict.CONFIRMED
    assert loss.verdict is Verdict.VIOLATED


def test_a_wrong_coefficient_makes_the_potentials_jump():
    """The exact check can fail: with another edge in the last piece the value jumps."""
    good, other = hill(Fraction(2), Fraction(7)), hill(Fraction(2), Fraction(8))
    assert max(good.jumps()) == 0
    assert max(ridge(Fraction(2), Fraction(7), Fraction(1, 9)).jumps()) == 0
    broken = type(good)(good.joints, (*good.pieces[:1], other.pieces[1], good.pieces[2]))
    assert max(broken.jumps()) > 0
