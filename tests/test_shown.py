"""Every public result prints in one line, and as a few that a person can read."""

import jax
import numpy as np
import pytest

import thalweg as tw
from thalweg import adversarial, curvature, data, initialisation
from thalweg.critical.measured import CriticalLearningRate
from thalweg.critical.search import Criterion


@pytest.fixture(scope="module")
def results():
    network = tw.LinearNetwork([3, 2, 1])
    drawn = data.gaussian_regression(jax.random.key(0), samples=8, features=3)
    problem = tw.Regression(drawn.x, drawn.y)
    objective = tw.Objective(network, problem)
    start = initialisation.gaussian(network, 0.5, key=jax.random.key(1))
    run = tw.descend(objective, start, learning_rate=0.02, steps=10)
    return {
        "network": network,
        "data": drawn,
        "problem": problem,
        "target": tw.TargetMatrix([[1.0, 2.0, 3.0]]),
        "classes": tw.Classification(np.eye(3), [0, 1, 2]),
        "homogeneous": tw.HomogeneousNetwork([3, 2, 1]),
        "objective": objective,
        "run": run,
        "flow": tw.flow(objective, start, times=run.times),
        "validated": tw.flow(objective, start, times=run.times, validate=True),
        "tube": tw.tube(run),
        "sharpness": tw.sharpness(objective, start),
        "ends": tw.extreme_eigenvalues(objective, start),
        "along": curvature.spectrum_along(objective, run.weights),
        "trap": adversarial.diverging(2, 3, 0.1, 0.5),
    }


NAMES = (
    "network", "data", "problem", "target", "classes", "homogeneous", "objective", "run", "flow",
    "validated", "tube", "sharpness", "ends", "along", "trap",
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_one_line_and_a_few(results, name):
    result = results[name]
    line, text = repr(result), str(result)
    assert "\n" not in line
    assert len(line) <= 100
    assert line.startswith(type(result).__name__ + "(")
    assert "object at 0x" not in line + text
    assert "array(" not in line + text
    assert 1 < len(text.splitlines()) < 30
    assert max(map(len, text.splitlines())) <= 120


def test_the_numbers_are_there(results):
    top = results["sharpness"]
    assert f"value={top.value:.6g}" in repr(top)
    assert "learning_rate=0.02" in repr(results["run"])
    assert f"{results['run'].loss.min():.4g} to {results['run'].loss.max():.4g}" in str(
        results["run"]
    )


def test_a_critical_learning_rate_shows_its_number():
    bracket = np.array([0.2693]), np.array([0.2716])
    criterion = Criterion(minimum=0.1, share=0.5, steps=100, time=None)
    found = CriticalLearningRate(*bracket, ((),), criterion, ())
    assert repr(found).startswith("CriticalLearningRate(lower=0.2693, upper=0.2716")
    assert "lower        0.2693" in str(found)


def test_values_that_are_traced_print():
    lines = []

    @jax.jit
    def inside(target):
        lines.append(repr(tw.TargetMatrix(target)))
        return target

    inside(np.ones((1, 2)))
    assert lines == ["TargetMatrix(minimiser=traced)"]
