"""What solvers share: their names in files, and which one is chosen for what."""

from typing import get_args

import jax.numpy as jnp
import numpy as np
import pytest

import thalweg as tw
from thalweg.dynamics import ValidatedFlow
from thalweg.experiment.settings import FlowSettings
from thalweg.solvers.choosing import SOLVERS

X = 2 * np.diag([30.0, 3.0])
STIFF = tw.Regression(X, X @ np.ones((2, 1)))


def test_files_name_the_solvers_by_their_own_names():
    names = get_args(FlowSettings.model_fields["solver"].annotation)
    assert names == tuple(SOLVERS)
    assert [kind().name for kind in SOLVERS.values()] == list(names)


@pytest.mark.parametrize(
    ("network", "wanted"),
    [
        (tw.LinearNetwork([2, 3, 1]), "collocation"),
        (tw.HomogeneousNetwork([2, 3, 1]), "chebyshev"),  # it has kinks
        (tw.LinearNetwork([2, 301, 1]), "chebyshev"),  # it has 903 weights
    ],
)
def test_auto_chooses_by_size_and_smoothness(network, wanted):
    """The curvature is some 900 and the horizon 10: far too stiff for explicit steps."""
    weights = tuple(0.5 * jnp.ones(shape) / shape[0] ** 0.5 for shape in network.shapes)
    objective = tw.Objective(network, STIFF)
    run = tw.flow(objective, weights, times=[0.0, 10.0], rtol=1e-2, atol=1e-2, estimate_error=False)
    assert run.solver == wanted


def test_validated_is_the_long_form_of_validate():
    objective = tw.Objective(tw.LinearNetwork([2, 1]), tw.TargetMatrix([1.0, 2.0]))
    start, times = (jnp.ones((1, 2)),), [0.0, 0.5]
    short = tw.flow(objective, start, times=times, validate=True)
    long = tw.flow(objective, start, times=times, solver=tw.solvers.Validated())
    assert isinstance(long, ValidatedFlow)
    assert short.solver == long.solver == "validated"
    np.testing.assert_array_equal(short.radius, long.radius)


def test_a_kink_cannot_be_validated():
    objective = tw.Objective(tw.HomogeneousNetwork([2, 3, 1]), STIFF)
    weights = tuple(jnp.ones(shape) for shape in objective.network.shapes)
    with pytest.raises(tw.InputError, match="validated for linear networks, got"):
        tw.flow(objective, weights, time=1.0, solver=tw.solvers.Validated())
