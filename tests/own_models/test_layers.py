"""The Hessian's blocks, layer by layer. Oracle: the same blocks of the dense Hessian."""

import jax
import numpy as np
import pytest
from small_model import OBJECTIVE, PARAMS

import thalweg as tw

PLACES = {"hidden": slice(0, 36), "out": slice(36, 40)}
"""Rows of the dense Hessian: keys in order, b before w."""


@pytest.mark.parametrize("name", PLACES)
def test_the_spectrum_of_a_layer_is_that_of_its_block(name):
    own = PLACES[name]
    block = np.asarray(OBJECTIVE.hessian(PARAMS))[own, own]
    values = np.linalg.eigvalsh(block)
    found = tw.layer_spectra(OBJECTIVE, PARAMS, 2, tolerance=1e-9)[name]
    for expected, each in zip(
        (values[0], values[1], values[-1], values[-2]),
        (*found.smallest, *found.largest),
        strict=True,
    ):
        assert abs(each.value - expected) <= each.error < 1e-7 * values[-1]
    shapes = [part.shape for part in found.largest[0].vector]
    assert shapes == [np.shape(leaf) for leaf in jax.tree.leaves(PARAMS[name])]


def test_by_leaf_and_with_other_measures():
    blocks = tw.curvature.layer_operators(OBJECTIVE, PARAMS, "leaf")
    assert list(blocks) == ["hidden.b", "hidden.w", "out"]
    assert [each.size for each in blocks.values()] == [4, 32, 4]
    dense = np.asarray(OBJECTIVE.hessian(PARAMS))[4:36, 4:36]
    density = tw.curvature.spectral_density(blocks["hidden.w"], probes=4, steps=32)
    mean, spread = density.mean_of(density.nodes)
    assert abs(mean - np.trace(dense) / 32) <= 5 * spread  # standard errors, of a fixed seed


def test_ends_of_layers_lie_between_those_of_the_whole():
    whole = tw.extreme_eigenvalues(OBJECTIVE, PARAMS)
    for found in tw.layer_spectra(OBJECTIVE, PARAMS).values():
        assert found.largest[0].value <= whole.largest[0].value + found.largest[0].error
        assert found.smallest[0].value >= whole.smallest[0].value - found.smallest[0].error


def test_layers_of_a_network_and_of_dotted_names():
    objective = tw.Objective(tw.LinearNetwork([2, 3, 1]), tw.TargetMatrix([[1.0, 0.0]]))
    blocks = tw.curvature.layer_operators(objective, (np.ones((3, 2)), np.ones((1, 3))))
    assert list(blocks) == ["0", "1"]
    dotted = {"net.0.weight": np.ones(3), "net.0.bias": np.ones(1), "net.2.weight": np.ones(2)}
    ours = tw.FunctionObjective(lambda w: sum((each**2).sum() for each in w.values()))
    assert list(tw.curvature.layer_operators(ours, dotted)) == ["net.0", "net.2"]
    with pytest.raises(tw.InputError, match="`by` must be one of layer, leaf, got the text 'row'"):
        tw.layer_spectra(ours, dotted, by="row")
