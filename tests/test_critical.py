"""The critical learning rate: closed forms, published numbers, ragged edges, predictions."""

import json
from math import log

import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import thalweg as tw
import thalweg.cli.critical  # registers the command
from legends import legend_faults
from thalweg import InputError
from thalweg.cli.base import app
from thalweg.critical import critical_learning_rate
from thalweg.critical.search import Search, bracket, criterion_of
from thalweg.dynamics.batch import Iteration
from thalweg.figures import critical_rates


def searched(objective, weights, around, precision=0.02, **budget):
    """The brackets alone, without predictions, which cost compilations."""
    criterion = criterion_of(objective, budget.pop("share", 0.01), None, **budget)
    starts = tuple(np.asarray(array) for array in weights)
    return Search(Iteration(objective), starts, criterion, 8).run(around, precision)


@given(st.lists(st.booleans(), min_size=1, max_size=9), st.randoms())
def test_a_bracket_is_the_first_failure_after_the_first_success(trained, random):
    rates = np.arange(1.0, len(trained) + 1)
    order = list(range(len(trained)))
    random.shuffle(order)  # the order of the trials does not matter
    found = bracket(rates[order], np.array(trained)[order])
    pattern = "".join("T" if each else "F" for each in trained)
    if "T" not in pattern:
        assert found == (0.0, 1.0, ())
        return
    stable = len(pattern) - len(pattern.lstrip("F"))
    failure = pattern.find("F", stable)
    if failure < 0:
        assert found == (len(pattern), np.inf, ())
    else:
        again = tuple(i + 1.0 for i in range(failure, len(pattern)) if pattern[i] == "T")
        assert found == (failure, failure + 1, again)


@pytest.fixture(scope="module")
def line():
    """Least squares in one layer; its sharpness is 2 lambda_max everywhere."""
    x = np.random.default_rng(0).normal(size=(30, 3))
    objective = tw.Objective(tw.LinearNetwork([3, 1]), tw.Regression(x, x @ np.ones(3), 1.0))
    values, vectors = np.linalg.eigh(x.T @ x / 30)
    along_the_top = np.asarray(objective.problem.minimiser) + vectors[:, -1]
    starts = (np.stack([along_the_top, along_the_top + vectors[:, 0]]),)
    return objective, starts, values


@pytest.mark.parametrize("steps", [200, 1000])
def test_one_layer_is_stable_up_to_two_over_its_sharpness(line, steps):
    objective, starts, values = line
    limit = 1 / values[-1]
    for around in (0.3 * limit, limit, 50 * limit):
        found = searched(objective, starts, around, precision=1e-4, steps=steps, time=None)
        # At the rate (1 - d) limit (1 - 2 d)^(2 steps) is left of the part along the top, and all
        # else is gone. The criterion averages over the last tenth of the steps, so that d may be a
        # tenth larger; what is of order d^2 adds some more.
        for own, excess in zip(found, (values[-1], values[-1] + values[0]), strict=True):
            d = log(values[-1] / (0.01 * excess)) / (4 * steps)
            assert limit * (1 - 1.2 * d) < own.lower < own.upper < limit * (1 - 0.95 * d)
            assert not own.isolated


def test_a_budget_of_time_gives_slow_rates_more_steps(line):
    objective, starts, values = line
    limit = 1 / values[-1]
    (found, _) = searched(objective, starts, limit, steps=None, time=500 * limit)
    assert limit * 0.97 < found.lower < found.upper < limit * 1.02
    # With so few steps nothing trains: neither small rates, for want of time, nor large ones.
    for none in searched(objective, starts, limit, steps=1, time=None, share=1e-9):
        assert none.lower == 0 < none.upper


@pytest.fixture(scope="module")
def pair():
    """1/2 (x y - 1)^2 from two starts, and what was found."""
    objective = tw.Objective(tw.LinearNetwork([1, 1, 1]), tw.TargetMatrix([[1.0]]))
    starts = (np.array([0.8, 1.8]).reshape(2, 1, 1), np.array([0.8, 0.4]).reshape(2, 1, 1))
    return objective, starts, critical_learning_rate(objective, starts, steps=1500)


def test_predictions_of_two_scalar_layers_are_their_closed_forms(pair):
    _, (x, y), found = pair
    x, y = x.ravel(), y.ravel()
    # At a minimiser the sharpness is x^2 + y^2, 2 at least; the flow keeps x^2 - y^2.
    assert found.prediction("2 / least sharpness").rate == pytest.approx(1.0)
    assert found.prediction("2 / S0").rate == pytest.approx(1.0)
    assert found.prediction("2 / S_min").rate == pytest.approx(1.0)
    limits = 2 / np.sqrt((x**2 - y**2) ** 2 + 4)
    # Slow descent misses the flow's limit by the order of its rate, a twentieth of the limit.
    assert found.prediction("2 / sharpness of the limit").rates == pytest.approx(limits, rel=0.02)
    error = x * y - 1
    hessian = np.stack([[y * y, x * y + error], [x * y + error, x * x]])
    at_start = 2 / np.linalg.eigvalsh(np.moveaxis(hessian, -1, 0))[:, -1]
    assert found.prediction("2 / sharpness at the start").rates == pytest.approx(at_start, rel=1e-6)


def test_the_measured_rate_lies_between_certified_and_impossible(pair):
    objective, starts, found = pair
    assert found.lowers.shape == found.uppers.shape == (2,)
    assert np.all(found.uppers <= 1.02 * found.lowers)
    assert found.spread[0] <= found.lower < found.upper <= found.spread[1]
    # No minimiser is stable above 1. A hundredth of the excess allows for some oscillation.
    assert found.spread[1] < 1.1
    certified = found.prediction("arora2019:cor-cert2")
    assert 0 < certified.rate < found.lower
    assert found.prediction("elkabetz2021:thm15").rate is None
    assert "needs" in found.prediction("elkabetz2021:thm15").reason
    for ends, sign in ((found.lowers, 1), (found.uppers, -1)):
        run = tw.descend(objective, starts, learning_rate=ends, steps=1500)
        left = run.loss[:, 1350:].mean(axis=1) / run.loss[:, 0]
        # The search looks at every seventh of these steps: a few per cent of room.
        assert np.all(sign * left < sign * 0.01 * (1 + sign * 0.05))
    with pytest.raises(InputError, match="2 / S0"):
        found.prediction("2 / S1")


def test_the_result_is_plain_data_and_a_picture(pair):
    found = pair[2].to_dict()
    again = json.loads(json.dumps(found))
    assert again == found
    ratio = found["predictions"][0]["ratio"]
    assert ratio == pytest.approx(1 / np.sqrt(found["lower"] * found["upper"]), rel=1e-6)
    figure = critical_rates({"one": [{"depth": 2, **found}, {"depth": 4, **found}]})
    line = next(each for each in figure.axes[0].lines if each.get_label() == "2 / S_min")
    assert np.allclose(line.get_ydata(), [2.0, 4.0])  # the rate 1 times the depth
    assert legend_faults(figure) == []
    with pytest.raises(InputError, match="at least one"):
        critical_rates({})


def test_predictions_far_from_what_is_shown_are_not_in_the_legend(pair):
    found = pair[2].to_dict()
    far = {**found["predictions"][0], "name": "2 / S0", "rate": 1e6}
    figure = critical_rates({"": [{"depth": 2, **found, "predictions": [far]}]})
    assert legend_faults(figure) == []
    assert len(figure.legends[0].get_texts()) == 1  # what was measured
    plt.close("all")


def test_training_at_the_edge_of_stability_is_told(pair):
    found = pair[2]
    limits = [each for each in found.predictions if each.name == "2 / least sharpness"]
    limit = limits[0].rate
    below = eqx.tree_at(lambda f: f.lowers, found, np.full(found.lowers.shape, 0.9 * limit))
    assert below.remark == ""
    above = eqx.tree_at(lambda f: f.lowers, found, np.full(found.lowers.shape, 1.1 * limit))
    assert f"above 2 / least sharpness = {limit:.4g}" in above.remark
    assert "trains at the edge of stability" in above.remark
    assert above.to_dict()["remark"] == above.remark


def published_data():
    """The data of marion2024's code, which was written for the older random stream of JAX."""
    with jax.threefry_partitionable(False):
        keys = [jax.random.split(jax.random.PRNGKey(0))[1]]
        drawn = []
        for shape in ((50, 5), (50, 5), (5,), (50,)):
            rest, own = jax.random.split(keys.pop())
            keys.append(rest)
            drawn.append(np.asarray(jax.random.normal(own, shape, jnp.float32), float))
    x, _, teacher, noise = drawn
    y = x @ teacher + noise
    solution = np.linalg.lstsq(x, y, rcond=None)[0]
    return x, y / np.linalg.norm(solution), solution / np.linalg.norm(solution)


# Their sweep has a grid of ratio 1.177: the largest rate whose runs end near the solution, the
# smallest whose runs do not, and 2 / (2 A L), at depth L.
@pytest.mark.parametrize(
    ("depth", "last", "first", "limit"), [(5, 0.188, 0.261, 0.2144), (10, 0.0981, 0.136, 0.1072)]
)
def test_published_thresholds_of_residual_networks(depth, last, first, limit):
    x, y, solution = published_data()
    moment = solution @ (x.T @ x / 50) @ solution
    assert moment == pytest.approx(0.9328054, rel=1e-6)
    assert 1 / (moment * depth) == pytest.approx(limit, rel=1e-3)
    readout = jax.random.normal(jax.random.key(depth), (5,))
    network = tw.LinearNetwork([5] * (depth + 1), readout / jnp.linalg.norm(readout))
    objective = tw.Objective(network, tw.Regression(x, y, 1.0))
    keys = jax.random.split(jax.random.key(0), 6)
    starts = jax.vmap(lambda key: tw.initialisation.residual(network, 0.25, key=key))(keys)
    found = searched(objective, starts, limit, steps=1000, time=None)
    lower = sorted(each.lower for each in found)[2]
    upper = sorted(each.upper for each in found)[2]
    assert last < lower < upper < first
    assert 0.95 * limit < lower < upper < 1.177 * limit


def test_bad_input_is_refused(line):
    objective, starts, _ = line
    with pytest.raises(InputError, match="either as `steps` or as `time`"):
        critical_learning_rate(objective, starts)
    with pytest.raises(InputError, match="below 1"):
        critical_learning_rate(objective, starts, steps=10, share=1.5)
    with pytest.raises(InputError, match="at least one start"):
        critical_learning_rate(objective, (np.ones((0, 1, 3)),), steps=10)
    decaying = tw.Objective(objective.network, objective.problem, 0.1)
    with pytest.raises(InputError, match="weight decay"):
        critical_learning_rate(decaying, starts, steps=10)
    with pytest.raises(InputError, match="at most 5000000 steps"):
        critical_learning_rate(objective, starts, time=1e9, around=1e-3)
    with pytest.raises(InputError, match=r"^`steps` must be at most 5000000, got 6000000\.$"):
        critical_learning_rate(objective, starts, steps=6_000_000)


def test_the_command_prints_a_table_or_json(tmp_path):
    common = ["critical", "--set", "data.source=target", "--set", "data.matrix=[[1.0]]",
              "--starts", "2", "--steps", "1500", "--depths", "2"]  # fmt: skip
    shown = CliRunner().invoke(app, [*common, "--out", str(tmp_path / "rates.png")])
    assert shown.exit_code == 0, shown.output
    assert "critical learning rate" in shown.output
    assert "2 / S_min" in shown.output
    assert (tmp_path / "rates.png").stat().st_size > 0
    plain = CliRunner().invoke(app, [*common, "--json"])
    found = json.loads(plain.stdout)
    assert [each["depth"] for each in found] == [2]
    assert 0.3 < found[0]["lower"] < found[0]["upper"] < 1.1
    for wrong in (["--depths", "two"], ["--scales", "-1"], ["--depths", "2", "--scales", "1"]):
        assert isinstance(CliRunner().invoke(app, ["critical", *wrong]).exception, InputError)


def test_a_network_without_a_known_minimum_is_measured_from_zero():
    objective = tw.Objective(tw.HomogeneousNetwork([1, 1, 1]), tw.TargetMatrix([[1.0]]))
    start = (np.full((1, 1), 0.8), np.full((1, 1), 0.8))
    found = critical_learning_rate(objective, start, steps=1500, certified=False)
    assert found.criterion.minimum == 0
    assert 0.5 < found.lower < 1.1  # that of the linear network, while its one unit is alive
    with pytest.raises(InputError, match="precision"):
        critical_learning_rate(objective, start, steps=10, precision=1e-17)


def test_the_command_goes_through_scales(tmp_path):
    """From scalar layers of scales that hardly matter the rate is the same."""
    common = ["critical", "--set", "data.source=target", "--set", "data.matrix=[[1.0]]",
              "--starts", "2", "--steps", "1500", "--scales", "0.1,0.2"]  # fmt: skip
    shown = CliRunner().invoke(app, [*common, "--json", "--out", str(tmp_path / "rates.png")])
    assert shown.exit_code == 0, shown.output
    found = json.loads(shown.stdout)
    assert [each["scale"] for each in found] == [0.1, 0.2]
    assert found[0]["lower"] == pytest.approx(found[1]["lower"], rel=0.1)
    assert (tmp_path / "rates.png").stat().st_size > 0
